"""Model of ``lake.json``, the description of a network; it may be written by hand."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator

from causeway.config.section import U64, TickNumber
from causeway.protocols.contract import Visibility
from causeway.storage.seals import confine_path, parse_seal

Name = Annotated[str, Field(min_length=1)]
U32 = Annotated[int, Field(ge=0, lt=2**32)]
Pair = Annotated[tuple[U32, U32], Strict(False)]
Columns = list[Annotated[tuple[Name, Name], Strict(False)]]
"""Column names with their types."""


class _Described(BaseModel):
    """An object of the file; unknown keys are allowed."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class DescribedChain(_Described):
    """A chain, in order of position."""

    number: U64
    name: Name
    role: str = ""
    external: bool = False


class DescribedLog(_Described):
    """A log table."""

    name: Name
    columns: Columns


class DescribedState(DescribedLog):
    """A state table, with the fields of ``StateTable``."""

    owner: str
    order: list[str]
    chains: list[str]
    programs: list[str]
    shown: str
    shown_to: str

    @model_validator(mode="after")
    def _validate_column_names(self) -> Self:
        columns = [name for name, _ in self.columns]
        shown = [self.shown_to] if self.shown == Visibility.DESTINATION.value else []
        for name in (self.owner, *self.order, *self.chains, *self.programs, *shown):
            if name not in columns:
                raise ValueError(f"{name} is no column of it")
        if self.shown not in [each.value for each in Visibility]:
            raise ValueError(f"nobody knows how it is shown to {self.shown}")
        return self


class DescribedTables(_Described):
    """All tables."""

    logs: list[DescribedLog]
    state: list[DescribedState]

    @model_validator(mode="after")
    def _validate_unique_names(self) -> Self:
        listed: Sequence[DescribedLog]
        for listed in (self.logs, self.state):
            _require_unique(each.name for each in listed)
            for each in listed:
                _require_unique(name for name, _ in each.columns)
        return self


class DescribedNetwork(_Described):
    """The keys of ``[network]`` read before the scenario is validated."""

    seed: Annotated[int, Field(ge=0)]


class DescribedScenario(_Described):
    """The scenario.

    It is validated only before a run, since its programs may not be installed here.
    """

    network: DescribedNetwork
    traffic: dict[str, Any]
    options: dict[str, Any]


class DescribedMembership(_Described):
    """Membership, as encoded by ``Membership.encoded``."""

    spans: list[Annotated[tuple[U64, TickNumber, TickNumber | None], Strict(False)]] = []
    nodes: list[Annotated[tuple[U64, U32], Strict(False)]] = []
    changes: list[Annotated[tuple[TickNumber, U64, U32, Annotated[tuple[U32, ...], Strict(False)]], Strict(False)]] = []
    splits: list[Annotated[tuple[TickNumber, U64, U64], Strict(False)]] = []


class LakeDescription(_Described):
    """The whole file.

    Attributes:
        made: Creation time in Unix seconds; None in older lakes.
        buckets: First and end position of each bucket.
    """

    identity: Name
    made: Annotated[int, Field(ge=0, lt=2**40)] | None = None
    protocol: Name
    asset: str
    seconds_per_tick: Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)]
    past_heights: Annotated[int, Field(ge=0, lt=2**31)] = 0
    chains: Annotated[list[DescribedChain], Field(min_length=1)]
    buckets: Annotated[list[Pair], Field(min_length=1)]
    membership: DescribedMembership = DescribedMembership()
    scenario: DescribedScenario
    tables: DescribedTables
    files: dict[str, Any]

    @model_validator(mode="after")
    def _validate_consistency(self) -> Self:
        _require_unique(chain.name for chain in self.chains)
        _require_unique(chain.number for chain in self.chains)
        if [first for first, _ in self.buckets] != [0, *(end for _, end in self.buckets[:-1])]:
            raise ValueError("buckets that do not follow each other")
        if self.buckets[-1][1] != len(self.chains):
            raise ValueError(f"buckets of {self.buckets[-1][1]} chains, where {len(self.chains)} are listed")
        for path, seal in self.files.items():
            confine_path(path)
            parse_seal(seal)
        return self


def _require_unique(names: Iterable[Hashable]) -> None:
    seen: set[Hashable] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{name} is listed twice")
        seen.add(name)


__all__ = ["LakeDescription"]
