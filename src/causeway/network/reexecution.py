"""Heights of a lake executed again, commit by commit, in one process: what comes out is compared with what it holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.core.frame import from_table
from causeway.network.opened_lake import open_lake
from causeway.network.replay import recorded_deployment
from causeway.programs.user_modules import ModuleSources
from causeway.protocols.contract import HEADERS_SCHEMA, RoundResult
from causeway.protocols.shared.secrets import NotAsRecorded
from causeway.protocols.shared.state_tables import row_owners, sort_table
from causeway.storage.lake import Lake, Manifest, select_height
from causeway.storage.reorgs import owner_column
from causeway.storage.table_schemas import stamped_schema
from causeway.tick.deployment import FIRST_HEIGHT, Deployment
from causeway.tick.reading import BucketReader
from causeway.tick.rounds import CommittedHeights, ReplayDiffers, RoundChain, genesis_round, replay_heights

ROOT_COLUMN = "root"
"""What differs where the root of a chain does."""

UNCOMPARED_TABLES = ("failures",)
"""Log tables whose rows are not compared: where in a program a handler failed may be another line now."""

RangeResults = Sequence[RoundResult[Any]]


class DifferenceReason(StrEnum):
    """What comes out differently.

    ``ROOT``: of a chain; ``ROWS``: of a log table, while all roots are the same; ``STATE``: a state table at the end of
    a commit is another one in files.
    """

    ROOT = "root_differs"
    ROWS = "rows_differ"
    STATE = "state_differs"


@dataclass(frozen=True)
class DifferingHeight:
    """A height that comes out differently when it is executed again.

    ``chains``: whose, by name; ``what``: ``ROOT``, or the name of the table; ``column``: of the rows of a log table,
    the first column that differs, empty where there are more or fewer rows.
    """

    height: int
    chains: tuple[str, ...]
    what: str = ROOT_COLUMN
    reason: DifferenceReason = DifferenceReason.ROOT
    column: str = ""

    @property
    def place(self) -> str:
        """Return the table that differs, with the column where one is known."""
        return f"{self.what}.{self.column}" if self.column else self.what


@dataclass
class RangeResult:
    """What came of a range of heights.

    ``began``: the number of the commit whose state in files it began with, -1: with genesis. ``different``: in each
    commit the first height that is, and states in files that are. ``wrong``: commits whose state in files is not what
    executing them gives. ``unverified``: heights (first, last) to which there was no way.
    """

    began: int = -1
    different: list[DifferingHeight] = field(default_factory=list)
    wrong: set[int] = field(default_factory=set)
    unverified: list[tuple[int, int]] = field(default_factory=list)


class Reexecutor:
    """Executes heights of a lake again; writes nothing."""

    def __init__(self, deployment: Deployment, lake: Lake) -> None:
        self._deployment, self._lake = deployment, lake

    def run(
        self, first: int, last: int, wrong: Collection[int], done: Callable[[int], None] = lambda heights: None
    ) -> RangeResult:
        """Execute the heights from ``first`` to ``last``, and those before ``first`` since a state that is in files.

        A commit is executed on top of what the one before it gave; where that came out differently, of the state in
        files. ``wrong``: commits whose state in files is known to be wrong. ``done``: told how many heights are done.
        Raises ``LakeDamaged``, ``Freed``.
        """
        found = RangeResult(wrong=set(wrong))
        commit = self._lake.manifest(first)
        rounds = self._begin(commit.number, found)
        number = commit.number
        while True:
            manifest = self._lake.numbered(number)
            end = min(manifest.last, last)
            if rounds is None and number > 0:
                rounds = self._stored(number - 1, found)
            if rounds is None and number > 0:
                found.unverified.append((manifest.first, end))
            else:
                rounds = self._commit(manifest, rounds, end, found)
            done(end - max(first, manifest.first) + 1)
            if end == last:
                found.wrong -= set(wrong)
                return found
            number += 1

    def _begin(self, number: int, found: RangeResult) -> RoundChain | None:
        """Return the heights up to the one before a commit, None before the first or where there is no way to it."""
        start = number - 1
        while start >= 0 and (rounds := self._stored(start, found)) is None:
            start -= 1
        found.began = start
        if start < 0 < number:
            rounds = self._genesis(found)
        if number == 0 or rounds is None:
            return None
        for before in range(start + 1, number):
            try:
                for _ in replay_heights(rounds, self._lake.numbered(before).last):
                    pass
            except (ReplayDiffers, NotAsRecorded) as error:
                found.different.append(self._different(error))
                return None
            rounds.made.clear()  # whatever comes reads what the lake has
        return rounds

    def _genesis(self, found: RangeResult) -> RoundChain | None:
        """Return height 0 alone."""
        before = self._lake.manifest(FIRST_HEIGHT)
        try:
            made = [genesis_round(self._deployment, bucket) for bucket in range(len(self._deployment.buckets))]
            CommittedHeights(self._lake, self._deployment).compare(before, made)
        except (ReplayDiffers, NotAsRecorded) as error:
            found.different.append(self._different(error))
            return None
        different = _Logged(self._lake, self._deployment, before).different(FIRST_HEIGHT, made)
        if different is not None:
            found.different.append(different)
        states = {bucket: result.state for bucket, result in enumerate(made)}
        return RoundChain(self._deployment, self._lake, before, states)

    def _stored(self, number: int, found: RangeResult) -> RoundChain | None:
        """Return the heights up to the end of a commit, of whose state in files the roots are those in the headers;
        None where they are not, or the state is not there."""
        manifest = self._at_end(number)
        if number in found.wrong or self._lake.freed(manifest.height) is not None:
            return None
        states, wrong = self._states(manifest)
        if wrong:
            found.wrong.add(number)
            return None
        return RoundChain(self._deployment, self._lake, manifest, states)

    def _states(self, manifest: Manifest) -> tuple[dict[int, Any], tuple[str, ...]]:
        """Return the states of all buckets at the end of a commit, and the names of the chains whose roots in it are
        not those in their headers."""
        states: dict[int, Any] = {}
        wrong: list[int] = []
        for bucket in range(len(self._deployment.buckets)):
            reader = BucketReader(self._deployment, self._lake, bucket, manifest)
            states[bucket] = reader.state_at(manifest)
            wrong += reader.wrong_roots(bucket, states[bucket]).tolist()
        return states, self._deployment.names(sorted(wrong))

    def _commit(self, manifest: Manifest, rounds: RoundChain | None, end: int, found: RangeResult) -> RoundChain | None:
        """Execute the heights of a commit up to ``end``; return the heights up to there, None where a root came out
        differently."""
        if rounds is None:
            rounds = self._genesis(found)
        if rounds is not None:
            rounds = self._heights(rounds, manifest, end, found)
        if end == manifest.last:
            self._look_at_state(self._at_end(manifest.number), rounds, found)
        return rounds

    def _heights(self, rounds: RoundChain, manifest: Manifest, end: int, found: RangeResult) -> RoundChain | None:
        """Execute heights, up to the first at which a root comes out differently."""
        logged, other = _Logged(self._lake, self._deployment, manifest), False
        try:
            for at, results in replay_heights(rounds, end):
                different = None if other else logged.different(at.height, results)
                if different is not None:
                    found.different.append(different)
                    other = True
        except (ReplayDiffers, NotAsRecorded) as error:
            found.different.append(self._different(error))
            return None
        if other:
            rounds.made.clear()  # whatever comes reads what the lake has
        return rounds

    def _different(self, error: ReplayDiffers | NotAsRecorded) -> DifferingHeight:
        """Return the difference that ended the execution of a range."""
        if isinstance(error, ReplayDiffers):
            return DifferingHeight(error.height, error.chains)
        chains = self._deployment.names([error.position])
        return DifferingHeight(error.height, chains, "headers", DifferenceReason.ROWS, "certification")

    def _look_at_state(self, manifest: Manifest, rounds: RoundChain | None, found: RangeResult) -> None:
        """Compare the state in files at the end of a commit with what executing it gave; where a root came out
        differently, its roots with those in the headers."""
        if self._lake.freed(manifest.height) is not None:
            return
        if rounds is not None:
            other = self._other_table(manifest, rounds.states)
            if other is not None:
                found.different.append(DifferingHeight(manifest.height, other[1], other[0], DifferenceReason.STATE))
                found.wrong.add(manifest.number)
        elif manifest.number not in found.wrong:
            _, wrong = self._states(manifest)
            if wrong:
                found.different.append(DifferingHeight(manifest.height, wrong))
                found.wrong.add(manifest.number)

    def _other_table(self, manifest: Manifest, states: dict[int, Any]) -> tuple[str, tuple[str, ...]] | None:
        """Return the first state table of which the files have other rows than states, and whose rows they are."""
        kernel = self._deployment.kernel
        for name, table in kernel.tables().items():
            chains: set[int] = set()
            for bucket, state in states.items():
                parts = manifest.state.get(name, {}).get(str(bucket))
                made = state.frames()[name].to_table(table.schema)
                stored = table.schema.empty_table()
                if parts is not None:
                    stored = self._lake.part(manifest, parts).select(table.schema.names).cast(table.schema)
                    if len(parts.rows) > 1:
                        stored = sort_table(table, from_table(stored)).to_table(table.schema)
                if not _same(stored, made):
                    of = [row_owners(kernel, table, from_table(rows), manifest.tick) for rows in (stored, made)]
                    chains |= _with_other_rows((stored, made), of)
            if chains:
                return name, self._deployment.names(sorted(chains))
        return None

    def _at_end(self, number: int) -> Manifest:
        manifest = self._lake.numbered(number)
        return manifest.at(manifest.last)


def open_reexecutor(uri: str, sources: ModuleSources) -> Reexecutor:
    """Return the re-execution of the lake at a path or URI. ``sources``: of its programs. Raises ``InvalidInput``."""
    opened = open_lake(uri)
    return Reexecutor(recorded_deployment(opened.lake, opened.about, sources), opened.lake)


class _Logged:
    """The log tables of a commit."""

    def __init__(self, lake: Lake, deployment: Deployment, manifest: Manifest) -> None:
        self._lake, self._manifest, self._deployment = lake, manifest, deployment
        logs = {"outbound": deployment.kernel.outbound, **deployment.kernel.logs, "headers": HEADERS_SCHEMA}
        self._schemas = {name: stamped_schema(schema) for name, schema in logs.items() if name not in UNCOMPARED_TABLES}
        self._read: dict[str, pa.Table] = {}

    def different(self, height: int, results: RangeResults) -> DifferingHeight | None:
        """Return the first log table whose rows at a height differ from the results of the buckets, None for none."""
        for name in self._schemas:
            both = self._rows(name, height), self._made(name, height, results)
            if not _same(*both):
                of = [rows[owner_column(name)].to_numpy() for rows in both]
                chains = self._deployment.names(sorted(_with_other_rows(both, of)))
                return DifferingHeight(height, chains, name, DifferenceReason.ROWS, _other_column(*both))
        return None

    def _rows(self, table: str, height: int) -> pa.Table:
        schema = self._schemas[table]
        if not self._manifest.at(height).rows.get(table):
            return schema.empty_table()
        if table not in self._read:
            commit = self._manifest
            parts = self._lake.log_rows(table, commit, heights=(commit.first, commit.last))
            self._read[table] = pa.concat_tables(parts).combine_chunks() if len(parts) == 1 else _by_height(parts)
        return select_height(self._read[table], height).select(schema.names)

    def _made(self, table: str, height: int, results: RangeResults) -> pa.Table:
        schema = self._schemas[table]
        frames = [
            {**result.logs, "headers": result.headers, "outbound": result.outbound}.get(table) for result in results
        ]
        stamps = {"height": np.int64(height), "tick": np.int64(self._manifest.at(height).tick)}
        made = [frame.with_columns(**stamps).to_table(schema) for frame in frames if frame is not None and len(frame)]
        return pa.concat_tables([schema.empty_table(), *made])


def _by_height(parts: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    order = np.argsort(rows["height"].to_numpy(), kind="stable")
    return rows.take(pa.array(order))


def _same(one: pa.Table, other: pa.Table) -> bool:
    """Return whether two tables have the same rows in the same order, names being the same by whatever code."""
    if one.num_rows != other.num_rows:
        return False
    return all(_plain(a).equals(_plain(b)) for a, b in zip(one.columns, other.columns, strict=True))


def _other_column(one: pa.Table, other: pa.Table) -> str:
    """Return the first column that two tables differ in, empty where one has more rows."""
    if one.num_rows != other.num_rows:
        return ""
    columns = zip(one.schema.names, one.columns, other.columns, strict=True)
    return next((str(name) for name, a, b in columns if not _plain(a).equals(_plain(b))), "")


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _with_other_rows(both: tuple[pa.Table, pa.Table], of: Sequence[Any]) -> set[int]:
    """Return the chains whose rows differ in two tables; ``of``: whose each row is."""
    found = set()
    for chain in np.unique(np.concatenate([np.asarray(own, dtype=np.int64) for own in of])).tolist():
        mine = [rows.filter(pa.array(np.asarray(own) == chain)) for rows, own in zip(both, of, strict=True)]
        if not _same(*mine):
            found.add(int(chain))
    return found


__all__ = ["ROOT_COLUMN", "DifferenceReason", "DifferingHeight", "RangeResult", "Reexecutor", "open_reexecutor"]
