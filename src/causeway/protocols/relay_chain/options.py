"""Options of egress queues (ICMP) and HRMP, the table of simulated body delays, and the network's fixed properties.

``causeway gossip simulate --out LAKE`` writes the table to ``results/bodies.parquet`` of the lake.

Chains are positions in every column of the kernel: the relay chain is 0, the parachains follow by their numbers in the
topology. The parachain at position p has ParaId p.

Reference: ICMP, section 4.1, X-6.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64, Rows, stable_order
from pydantic import BeforeValidator, ConfigDict, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from causeway.config.section import ScenarioSection
from causeway.config.topology import Topology
from causeway.core.frame import Frame, from_table
from causeway.core.joins import lookup_rows
from causeway.protocols.shared.limits import MAX_DATA_BYTES, PlannedTick
from causeway.protocols.shared.option_values import LARGEST, ProfiledOptions, option_error
from causeway.protocols.shared.state_tables import Hosting, add_role_chain

PAGE_BYTES = 14
"""Maximum overhead of a page with one message: kind byte, index and length."""

MOST_BLOCKS = 10_000
"""Maximum number of blocks a session; an idle session still makes all its blocks."""


NOTICE = 2
"""Minimum number of blocks between a close or deregistration and its effect.

Blocks of parachains built before the request are included by then.
"""

MOST_CHANNEL_CALLS = 100_000
"""Maximum number of planned calls on channels."""


class HrmpChannelCall(ScenarioSection):
    """A planned call on the channel from ``sender`` to ``recipient``.

    The caller's first block from ``tick`` on executes it. ``by`` is the caller, by default the sender (of an
    ``accept``: the recipient).
    """

    tick: PlannedTick
    do: Literal["open", "accept", "cancel", "close"]
    sender: str
    recipient: str
    by: str | None = None


class HrmpOptions(ScenarioSection):
    """Options of HRMP; ``docs/explanation/protocols/icmp.md`` describes each.

    Amounts are in units of the asset, sizes in bytes.
    """

    channels: Literal["egress", "hrmp"] = "egress"
    session_blocks: int = Field(default=10, ge=1, le=MOST_BLOCKS)
    max_capacity: int = Field(default=1_000, ge=1, le=2**32 - 1)
    max_total_size: int = Field(default=102_400, ge=1, le=2**31)
    max_message_size: int = Field(default=102_400, ge=1, le=2**24)
    max_messages_per_candidate: int = Field(default=10, ge=1, le=1_000)
    max_outbound_channels: int = Field(default=128, ge=1, le=2**32 - 1)
    max_inbound_channels: int = Field(default=128, ge=1, le=2**32 - 1)
    sender_deposit: int = Field(default=10, ge=0, le=LARGEST)
    recipient_deposit: int = Field(default=10, ge=0, le=LARGEST)
    endowment: int = Field(default=1_000_000_000, ge=0, le=LARGEST)
    suspend_threshold: int = Field(default=2, ge=1, le=LARGEST)
    drop_threshold: int = Field(default=5, ge=1, le=LARGEST)
    resume_threshold: int = Field(default=1, ge=0, le=LARGEST)
    pages_per_block: int = Field(default=0, ge=0, le=LARGEST)
    overflow: Literal["wait", "drop"] = "wait"
    channel_calls: Annotated[tuple[HrmpChannelCall, ...], Strict(False)] = Field(
        default=(), max_length=MOST_CHANNEL_CALLS
    )

    @model_validator(mode="after")
    def _thresholds_ascend(self) -> Self:
        resume, suspend, drop = self.resume_threshold, self.suspend_threshold, self.drop_threshold
        if resume >= suspend:
            raise option_error("resume_threshold", f"{resume}: allowed: less than suspend_threshold = {suspend}")
        if suspend > drop:
            raise option_error("suspend_threshold", f"{suspend}: allowed: at most drop_threshold = {drop}")
        return self

    @property
    def content_limit(self) -> int:
        """Return the maximum size of a program's message in bytes, so that it fits into a page."""
        return MAX_DATA_BYTES if self.channels == "egress" else min(MAX_DATA_BYTES, self.max_message_size - PAGE_BYTES)


BODY_TABLE_SCHEMA = pa.schema(
    [
        pa.field("number", pa.uint64(), nullable=False),
        pa.field("source", pa.uint32(), nullable=False),
        pa.field("destination", pa.uint32(), nullable=False),
        pa.field("delay", pa.uint64()),
    ]
)
"""One row a queue: posting relay block, ends (parachains from 0), delay of the body.

The delay is in milliseconds after the relay block, null for a lost body.
"""

MOST_ROWS = 10_000_000
MOST_BYTES = 1 << 30

NEVER = 2**62
"""Delay of a body that never arrives, in milliseconds or ticks."""

_KEYS = ("number", "destination", "source")


@dataclass(frozen=True, eq=False)
class BodyTable:
    """Body delays (``number``, ``destination``, ``source``, ``delay``), sorted by key."""

    rows: Frame

    def delays(self, listed: Frame, drawn: U64) -> Rows:
        """Return the delay (ms) of each queue.

        Args:
            listed: ``number``, ``to``, ``source`` of the queues; parachains count from 1.
            drawn: Random word of each queue; a queue without a row gets the row of its word modulo the rows.
        """
        one = np.uint32(1)
        keys = Frame(
            {"number": listed["number"], "destination": listed["to"] - one, "source": listed["source"] - one},
            len(listed),
        )
        found = lookup_rows(self.rows, keys, _KEYS)
        other = (drawn % np.uint64(len(self.rows))).astype(np.int64)
        delay: Rows = self.rows["delay"][np.where(found >= 0, found, other)]
        return delay


def read_body_table(path: object) -> BodyTable | None:
    """Read a Parquet file with ``BODY_TABLE_SCHEMA``.

    Args:
        path: Path of the file, a table, or None.

    Raises:
        PydanticCustomError: The file is unreadable or malformed.
    """
    if path is None or isinstance(path, BodyTable):
        return path
    if not isinstance(path, str):
        raise _wrong("the path of a Parquet file")
    try:
        if os.path.getsize(path) > MOST_BYTES:
            raise _wrong(f"a file of at most {MOST_BYTES:,} bytes")
        if not os.path.isfile(path):  # opening a pipe would block
            raise _wrong("a Parquet file that can be read")
        with pq.ParquetFile(path) as file:
            names, count = file.schema_arrow.names, file.metadata.num_rows
            if sorted(names) != sorted(BODY_TABLE_SCHEMA.names) or not 0 < count <= MOST_ROWS:
                columns = ", ".join(BODY_TABLE_SCHEMA.names)
                raise _wrong(f"a table with the columns {columns}, and 1 to {MOST_ROWS:,} rows")
            table = file.read().select(BODY_TABLE_SCHEMA.names)
            if any(table[name].null_count for name in _KEYS):
                raise _wrong(f"a table in which no {', '.join(_KEYS[:-1])} or {_KEYS[-1]} is null")
            table = table.cast(BODY_TABLE_SCHEMA)
        delay = table["delay"].cast(pa.int64()).fill_null(NEVER)
    except (OSError, pa.ArrowException) as error:
        raise _wrong(f"a Parquet file that can be read ({type(error).__name__})") from error
    rows = from_table(table.set_column(3, "delay", delay.combine_chunks()))
    rows = rows.take(stable_order(*(rows[name] for name in _KEYS)))
    keys = np.stack([rows[name].astype(np.uint64) for name in _KEYS])
    if len(rows) > 1 and bool((keys[:, 1:] == keys[:, :-1]).all(axis=0).any()):
        raise _wrong("one row a queue (number, source, destination)")
    return BodyTable(rows)


def _wrong(allowed: str) -> PydanticCustomError:
    return PydanticCustomError("body_table", "{text}", {"text": f"must be {allowed}"})


DEPLOYED: Mapping[str, Any] = {"watermark_rule": "has_messages"}
"""Values of ``profile = deployed``: column "other" of the reference as deployed."""


MOST_TICKS = 1_000_000
"""Maximum average delay of bodies, and maximum delay of the fallback, in ticks."""

MOST_CALLS = 100_000
"""Maximum number of planned calls on parachains."""


class ParaCall(ScenarioSection):
    """A planned call to the relay chain about ``chain``, in its first block from ``tick`` on.

    It registers or deregisters the parachain, or starts (``block``) or ends (``unblock``) its censoring of ``other``.
    """

    tick: PlannedTick
    chain: str
    do: Literal["register", "deregister", "block", "unblock"]
    other: str | None = None


class IcmpOptions(HrmpOptions, ProfiledOptions):
    """Options of egress queues; ``docs/explanation/protocols/icmp.md`` describes each."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    ingress_upper: Literal["exclusive", "inclusive"] = "exclusive"
    watermark_mode: Literal["per_candidate", "now_minus_1"] = "per_candidate"
    watermark_rule: Literal["any_ancestor", "has_messages"] = "any_ancestor"
    allow_empty_prefix: Literal["on", "off"] = "on"
    bodies: Literal["ideal", "drawn", "simulated"] = "ideal"
    body_ticks: float = Field(default=1.0, ge=0, le=MOST_TICKS)
    body_loss: float = Field(default=0.0, ge=0, le=1)
    body_table: Annotated[BodyTable | None, BeforeValidator(read_body_table)] = None
    fallback_request: Literal["off", "on"] = "off"
    fallback_after: int = Field(default=4, ge=0, le=MOST_TICKS)
    para_calls: Annotated[tuple[ParaCall, ...], Strict(False)] = Field(default=(), max_length=MOST_CALLS)

    @model_validator(mode="after")
    def _of_the_channels(self) -> Self:
        """Refuse options without an effect for the kind of channels."""
        deployed = DEPLOYED if self.profile == "deployed" else {}
        for row, call in enumerate(self.para_calls if self.channels == "hrmp" else ()):
            if call.do in ("block", "unblock"):
                allowed = 'allowed with channels = "hrmp": "register", "deregister"'
                raise option_error(f"para_calls.{row}.do", f"{call.do!r}; {allowed}")
        for key in sorted(self.model_fields_set - {"channels", "profile", "para_calls"}):
            needed = "hrmp" if key in HrmpOptions.model_fields else "egress"
            if needed != self.channels and deployed.get(key) != getattr(self, key):
                raise option_error(
                    key, f'it does nothing with channels = "{self.channels}"; it needs channels = "{needed}"'
                )
        return self

    @model_validator(mode="after")
    def _table_is_there(self) -> Self:
        if (self.bodies == "simulated") != (self.body_table is not None):
            problem = "missing" if self.body_table is None else f'it does nothing with bodies = "{self.bodies}"'
            raise option_error("body_table", f'{problem}; with bodies = "simulated", and only then, it names a table')
        return self

    @model_validator(mode="after")
    def _of_the_bodies(self) -> Self:
        """Refuse options without an effect for the source of bodies."""
        needed: dict[str, tuple[str, ...]] = {"body_ticks": ("drawn",), "body_loss": ("drawn",)}
        needed |= dict.fromkeys(("fallback_request", "fallback_after"), ("drawn", "simulated"))
        for key in sorted(self.model_fields_set & needed.keys()):
            if self.bodies not in needed[key]:
                allowed = " or ".join(f'"{bodies}"' for bodies in needed[key])
                raise option_error(key, f'it does nothing with bodies = "{self.bodies}"; it needs bodies = {allowed}')
        return self

    @classmethod
    def deployed(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of ``profile = deployed``."""
        return DEPLOYED


RELAY = "relay"
"""Role of the relay chain, and its default name."""

RELAY_POSITION = 0


def add_relay_chain(topology: Topology) -> Topology:
    """Return the topology with a relay chain added if it has none.

    Args:
        topology: Chains and their roles.

    Raises:
        InvalidInput: There are two relay chains.
    """
    return add_role_chain(topology, RELAY, "the relay chain")


@dataclass(frozen=True)
class ParachainNetwork(Hosting):
    """The chains of a completed topology.

    Raises:
        InvalidInput: A program moves, or is on the relay chain.
    """

    def __post_init__(self) -> None:
        if self.topology.moves.num_rows:
            raise InvalidInput("moves: under icmp programs stay on their chain; leave them out")
        if RELAY_POSITION in self.hosting_chains:
            name = self.names[RELAY_POSITION]
            raise InvalidInput(f"programs: {name!r} is the relay chain, on which no program runs; allowed: parachains")

    def _rank(self, name: str, number: int) -> tuple[bool, int]:
        return self.topology.roles.get(number) != RELAY, number
