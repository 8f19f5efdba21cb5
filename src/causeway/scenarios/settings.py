"""The sections of a scenario file: keys, descriptions and allowed values.

Descriptions and section docstrings are the source of the key tables in the documentation.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from causeway.config.section import LAST_TICK, U64, U64_MAX, Balance, ScenarioSection, TickNumber
from causeway.config.topology import MAX_NODES, TickSpan
from causeway.core.text import format_value
from causeway.protocols.registry import DEFAULT
from causeway.protocols.shared.option_values import option_error
from causeway.scenarios.jvm_prestart import EXECUTOR, MASTER, spark_setting_texts
from causeway.tick.deployment import MAX_HEIGHTS, CommitEvery

MAX_MEGABYTES = 1024
"""Maximum megabytes of rows in a commit, which is in memory."""

NOTHING_INSTALLED = "none"
"""Program of an instance that is mapped to a chain without an installed program."""


def _name_check(forbidden: str) -> AfterValidator:
    def check(value: str) -> str:
        if not value or re.search(rf"[\s{forbidden}]", value):
            raise ValueError(f"must be a name without spaces and without any of {' '.join(forbidden)}")
        return value

    return AfterValidator(check)


def _json_table(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        for key, found in _entries(value):
            try:
                json.dumps(found, allow_nan=False)
            except (TypeError, ValueError):
                text = f"{format_value(found)}: must be text, a finite number, a boolean, a list or a table"
                raise option_error(key, text) from None
        raise
    return value


def _entries(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in tables and lists, by key (``a.b[2]``)."""
    if isinstance(value, dict):
        for name, under in value.items():
            yield from _entries(under, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for place, under in enumerate(value):
            yield from _entries(under, f"{key}[{place}]")
    else:
        yield key, value


Positive = Annotated[int, Field(ge=1, le=U64_MAX)]
Probability = Annotated[float, Field(ge=0, lt=1)]
ChainName = Annotated[str, _name_check("/>#")]
ProgramName = Annotated[str, _name_check(">#")]
JsonTable = Annotated[dict[str, Any], AfterValidator(_json_table)]


def refuse_spark_key(text: str) -> None:
    """Raise ``ValueError`` for a key that is no Spark setting allowed in a scenario."""
    if not text.startswith("spark.") or text in ("spark.", "spark.master"):
        raise ValueError("must be a setting of Spark, spark.*; the master is network.master")


def _spark_key(text: str) -> str:
    refuse_spark_key(text)
    return text


SparkKey = Annotated[str, AfterValidator(_spark_key)]


AUTO = "auto"
_COMMIT = re.compile(r"([1-9][0-9]{0,8}) ?(s|MB)")
_COMMITS = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_HEIGHTS}, {"type": "string"}]}


def parse_commit_every(value: object) -> CommitEvery:
    """Parse the limit of a commit: heights, ``auto``, seconds (``5 s``) or bytes (``64 MB``).

    Raises:
        ValueError: The value is invalid.
    """
    if value == AUTO:
        return CommitEvery()
    if type(value) is int and 1 <= value <= MAX_HEIGHTS:
        return CommitEvery(heights=value, seconds=math.inf)
    found = _COMMIT.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found[2] == "MB" and int(found[1]) > MAX_MEGABYTES):
        known = f'"{AUTO}", heights as a whole number from 1 to {MAX_HEIGHTS}, seconds as "5 s"'
        raise ValueError(f'must be {known}, or megabytes of rows as "64 MB", up to "{MAX_MEGABYTES} MB"')
    amount = int(found[1])
    if found[2] == "s":
        return CommitEvery(seconds=amount)
    return CommitEvery(bytes=amount * 1_000_000, seconds=math.inf)


def _commit_check(value: object) -> object:
    parse_commit_every(value)
    return value


class NetworkSection(ScenarioSection):
    """``[network]``: which protocol runs, for how long, and where."""

    protocol: str = Field(DEFAULT, description="The messaging protocol.")
    seed: U64 = Field(0, description="All randomness is drawn from it; the same seed gives the same run.")
    ticks: Positive | None = Field(
        None, description="Most ticks to run; without it the run ends when there is nothing left to do."
    )
    seconds_per_tick: Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)] = Field(
        1.0, description="Time that passes on every chain from one tick to the next, in seconds."
    )
    executor: Literal["spark", "in_process"] = Field(
        EXECUTOR, description="What runs the rounds: a Spark session, or the calling process (for small networks)."
    )
    master: str = Field(MASTER, min_length=1, description="The Spark master.")
    spark: dict[SparkKey, str | int | bool] = Field(
        default_factory=dict,
        description='Settings of Spark, such as `"spark.executor.pyspark.memory" = "2g"` (memory of Python workers).',
    )
    partitions: Annotated[int, Field(ge=0, le=100_000)] = Field(
        0, description="Tasks per tick; 0 = chosen from messages per tick, cores and chains. Never changes a result."
    )
    commit_every: Annotated[int | str, BeforeValidator(_commit_check), WithJsonSchema(_COMMITS)] = Field(
        AUTO,
        description='How much of a run is committed at once: so many heights, or `"5 s"` of running, or `"64 MB"` of '
        'rows; `"auto"`: two seconds or 64 MB. Never changes a result.',
    )
    lake: str | None = Field(None, min_length=1, description="Folder or URI of the lake.")

    @property
    def commits(self) -> CommitEvery:
        """Limits of a commit."""
        return parse_commit_every(self.commit_every)

    @property
    def spark_settings(self) -> dict[str, str]:
        """Spark settings as text."""
        return spark_setting_texts(self.spark)


class TransportSection(ScenarioSection):
    """``[transport]``: how reliably chains fetch what others offer."""

    skip: Probability = Field(
        0.0,
        description="Probability that a chain does not fetch from a given other chain at a tick (a slow block maker).",
    )


class ChainSection(ScenarioSection):
    """``[[chains]]``: one chain, or a group of ``count`` chains named ``prefix`` and a number from 0."""

    name: ChainName | None = Field(None, description="Name of a single chain.")
    count: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(None, description="Size of a group of chains.")
    prefix: ChainName = Field("chain-", description="Beginning of the names of a group.")
    number: U64 | None = Field(
        None, description="Number of the (first) chain; without it, one more than the chain before, from 0."
    )
    role: str = Field("", description="The chain's role, in protocols that have roles.")
    external: bool = Field(
        False,
        description="Another lake runs this chain, where the protocol allows it; relay processes carry what goes there "
        "and comes back, or the lakes pull from each other.",
    )
    from_tick: TickNumber = Field(
        0,
        alias="from",
        description="First tick at which it is in the registry, where chains may come and go; its programs begin then.",
    )
    until: TickNumber | None = Field(
        None,
        description="Last tick at which it is in the registry; without it, it stays. Programs still on it end.",
    )
    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = Field(
        None, description="How many nodes it has at first, where chains have nodes; they are numbered from 0."
    )

    @model_validator(mode="after")
    def _validate_form(self) -> Self:
        if (self.name is None) == (self.count is None):
            raise ValueError("give either name (one chain) or count (a group)")
        if self.until is not None and self.until < self.from_tick:
            raise ValueError(f"until = {self.until} must not be below from = {self.from_tick}")
        return self

    @property
    def span(self) -> TickSpan:
        """Lifetime of the chain in the registry."""
        return TickSpan(self.from_tick, self.until)


class NodesSection(ScenarioSection):
    """``[[nodes]]``: from a tick on, a chain has other nodes."""

    tick: TickNumber = Field(..., description="In force before the round of this tick.")
    chain: str = Field(..., description="Name of the chain.")
    add: Annotated[int, Field(ge=0, le=MAX_NODES)] = Field(
        0, description="How many new nodes join; they are numbered on from the highest number that the chain ever gave."
    )
    remove: list[Annotated[int, Field(ge=0, le=U64_MAX)]] = Field(
        default_factory=list, description="The numbers of the nodes that leave."
    )

    @model_validator(mode="after")
    def _require_change(self) -> Self:
        if not self.add and not self.remove:
            raise ValueError("give add, remove or both")
        if len({*self.remove}) < len(self.remove):
            raise ValueError("remove names a node twice")
        return self


class ProgramSection(ScenarioSection):
    """``[[programs]]``: one program instance, or ``per_chain`` instances on one or every chain."""

    name: ProgramName | None = Field(None, description="Name of a single instance.")
    per_chain: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="Instances on each chain, named prefix, chain's name, `-` and a number from 0."
    )
    prefix: ProgramName = Field("program-", description="Beginning of the names of a group.")
    chain: str | None = Field(
        None,
        description="Name of its chain. Without it: an instance with a name is on no chain, a group is on every chain.",
    )
    program: str = Field(
        ...,
        min_length=1,
        description='A registered program, `"module:Class"`, or `"none"` (mapped to the chain, nothing installed).',
    )
    options: JsonTable = Field(
        default_factory=dict,
        description='Options for the program; `{ program = "name" }` in them becomes the number of that program.',
    )
    balance: Balance = Field(0, description="Value it starts with, below 10**38; digits in quotes from 2**63 on.")

    @model_validator(mode="after")
    def _validate_form(self) -> Self:
        if (self.name is None) == (self.per_chain is None):
            raise ValueError("give either name (one instance) or per_chain (a group)")
        return self


class InstallSection(ScenarioSection):
    """``install`` in ``[[changes]]``: a program that is there from then on, numbered after all others."""

    name: ProgramName = Field(..., description="Its name.")
    chain: str = Field(..., description="Name of its chain.")
    program: str = Field(..., min_length=1, description='A registered program, or `"module:Class"`.')
    options: JsonTable = Field(default_factory=dict, description="Its options, as in `[[programs]]`.")
    balance: Balance = Field(0, description="Value it starts with, where not all value is issued at genesis.")


class UpgradeSection(ScenarioSection):
    """``upgrade`` in ``[[changes]]``: a program goes on under another class, with its state, balance and open calls."""

    program: str = Field(..., description="Name of the program.")
    to: str = Field(..., min_length=1, description='A registered program, or `"module:Class"`.')
    options: JsonTable | None = Field(None, description="Its options from then on; without them, those that it had.")


class MovedSection(ScenarioSection):
    """``move`` in ``[[changes]]``: a program goes to another chain, with its state, its balance and its calls."""

    program: str = Field(..., description="Name of the program.")
    chain: str = Field(..., description="Name of its chain from then on.")


class ChangeSection(ScenarioSection):
    """``[[changes]]``: what nobody knew of before a tick, and is so from its round on; ticks ascend."""

    tick: TickNumber = Field(..., description="In force before the round of this tick.")
    inject: list[Any] = Field(
        default_factory=list, description="Faults, as in `[[faults]]`; none begins before the tick."
    )
    heal: bool | list[Annotated[int, Field(ge=0)]] = Field(
        False,
        description="`true`: all faults of before end; or which of them: their positions, from 0, in `[[faults]]` and, "
        "behind these, in `inject` of the changes before.",
    )
    install: list[InstallSection] = Field(default_factory=list, description="New programs.")
    upgrade: list[UpgradeSection] = Field(default_factory=list, description="Programs that get another class.")
    move: list[MovedSection] = Field(
        default_factory=list, description="Programs that go to another chain, where programs may leave theirs."
    )
    remove: list[str] = Field(
        default_factory=list, description="Names of programs that end, where programs may leave their chain."
    )

    @model_validator(mode="after")
    def _require_change(self) -> Self:
        if not (self.inject or self.heal or self.install or self.upgrade or self.move or self.remove):
            raise ValueError("give inject, heal, install, upgrade, move or remove")
        return self


class MoveSection(ScenarioSection):
    """``[[moves]]``: from a tick on, a program is on another chain."""

    tick: TickNumber = Field(..., description="In force before the round of this tick.")
    program: str = Field(..., description="Name of the program instance.")
    chain: str | None = Field(None, description="Name of its chain from then on; without it, it is on no chain.")


class SplitSection(ScenarioSection):
    """``[[splits]]``: a chain is split, where chains come and go: a new chain begins with some of its programs."""

    tick: Annotated[int, Field(ge=1, le=LAST_TICK)] = Field(
        ..., description="Before the round of this tick; at the tick itself neither chain runs a round."
    )
    chain: str = Field(..., description="Name of the chain that is split; it keeps its streams.")
    into: str = Field(..., description="Name of the new chain, whose `from` is this tick.")
    programs: Annotated[list[str], Field(min_length=1)] = Field(
        ..., description="Names of the programs that go to the new chain; all others stay."
    )
