"""Re-execution of committed heights in one process; results are compared with the lake.

Each commit is executed on top of the result of the one before it. After a difference, execution continues from the next
stored state whose roots match the headers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.audit.findings import decode_texts
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
"""Name of a differing chain root in place of a table."""

UNCOMPARED_TABLES = ("failures",)
"""Log tables that are not compared: a failure's line may change with the program's text."""

RangeResults = Sequence[RoundResult[Any]]
"""Results of the buckets for a height."""


class DifferenceReason(StrEnum):
    """Kind of a difference.

    ``ROOT``: a chain's root. ``ROWS``: rows of a log table, with equal roots. ``STATE``: a stored state table at the
    end of a commit.
    """

    ROOT = "root_differs"
    ROWS = "rows_differ"
    STATE = "state_differs"


@dataclass(frozen=True)
class DifferingHeight:
    """A height with a result that differs from the lake.

    Attributes:
        height: The height.
        chains: Names of the chains that differ.
        what: ``ROOT_COLUMN``, or the name of the table.
        reason: Kind of the difference.
        column: First differing column of a log table; empty if the row counts differ.
    """

    height: int
    chains: tuple[str, ...]
    what: str = ROOT_COLUMN
    reason: DifferenceReason = DifferenceReason.ROOT
    column: str = ""

    @property
    def place(self) -> str:
        """The table that differs, with the column if known."""
        return f"{self.what}.{self.column}" if self.column else self.what


@dataclass
class RangeResult:
    """The result of re-executing a range of heights.

    Attributes:
        began: Number of the commit with the initial stored state; -1 for genesis.
        different: The first differing height of each commit, and differing stored states.
        wrong: Commits whose stored state is wrong.
        unverified: Ranges (first, last) that could not be executed.
    """

    began: int = -1
    different: list[DifferingHeight] = field(default_factory=list)
    wrong: set[int] = field(default_factory=set)
    unverified: list[tuple[int, int]] = field(default_factory=list)


class Reexecutor:
    """Re-executes heights of a lake; writes nothing."""

    def __init__(self, deployment: Deployment, lake: Lake) -> None:
        self._deployment, self._lake = deployment, lake

    def run(
        self, first: int, last: int, wrong: Collection[int], done: Callable[[int], None] = lambda heights: None
    ) -> RangeResult:
        """Execute a range of heights, and the heights between the last stored state and the range.

        A commit is executed on the result of the previous one, or on the stored state if that result differed.

        Args:
            first: First height.
            last: Last height.
            wrong: Commits whose stored state is known to be wrong.
            done: Called with the number of further heights executed.

        Raises:
            LakeDamaged: A file is damaged.
            Freed: A vacuum freed a file that is needed.
        """
        found = RangeResult(wrong=set(wrong))
        commit = self._lake.manifest(first)
        rounds = self._prepare(commit.number, found)
        number = commit.number
        while True:
            manifest = self._lake.numbered(number)
            end = min(manifest.last, last)
            if rounds is None and number > 0:
                rounds = self._load_stored(number - 1, found)
            if rounds is None and number > 0:
                found.unverified.append((manifest.first, end))
            else:
                rounds = self._execute_commit(manifest, rounds, end, found)
            done(end - max(first, manifest.first) + 1)
            if end == last:
                found.wrong -= set(wrong)
                return found
            number += 1

    def _prepare(self, number: int, found: RangeResult) -> RoundChain | None:
        """Return the rounds up to the height before a commit; None for the first, or on failure."""
        start = number - 1
        while start >= 0 and (rounds := self._load_stored(start, found)) is None:
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
                found.different.append(self._difference(error))
                return None
            rounds.made.clear()  # later reads use the lake
        return rounds

    def _genesis(self, found: RangeResult) -> RoundChain | None:
        """Execute height 0 and compare it; return None after a difference."""
        before = self._lake.manifest(FIRST_HEIGHT)
        try:
            results = [genesis_round(self._deployment, bucket) for bucket in range(len(self._deployment.buckets))]
            CommittedHeights(self._lake, self._deployment).compare(before, results)
        except (ReplayDiffers, NotAsRecorded) as error:
            found.different.append(self._difference(error))
            return None
        different = _CommittedLogs(self._lake, self._deployment, before).different(FIRST_HEIGHT, results)
        if different is not None:
            found.different.append(different)
        states = {bucket: result.state for bucket, result in enumerate(results)}
        return RoundChain(self._deployment, self._lake, before, states)

    def _load_stored(self, number: int, found: RangeResult) -> RoundChain | None:
        """Load the state at the end of a commit; return None if it was freed or its roots are wrong."""
        manifest = self._at_end(number)
        if number in found.wrong or self._lake.freed(manifest.height) is not None:
            return None
        states, wrong = self._states(manifest)
        if wrong:
            found.wrong.add(number)
            return None
        return RoundChain(self._deployment, self._lake, manifest, states)

    def _states(self, manifest: Manifest) -> tuple[dict[int, Any], tuple[str, ...]]:
        """Read the stored states of all buckets at a commit, and the chains with wrong roots."""
        states: dict[int, Any] = {}
        wrong: list[int] = []
        for bucket in range(len(self._deployment.buckets)):
            reader = BucketReader(self._deployment, self._lake, bucket, manifest)
            states[bucket] = reader.state_at(manifest)
            wrong += reader.wrong_roots(bucket, states[bucket]).tolist()
        return states, self._deployment.names(sorted(wrong))

    def _execute_commit(
        self, manifest: Manifest, rounds: RoundChain | None, end: int, found: RangeResult
    ) -> RoundChain | None:
        """Execute the heights of a commit up to ``end``; return None after a differing root."""
        if rounds is None:
            rounds = self._genesis(found)
        if rounds is not None:
            rounds = self._execute_heights(rounds, manifest, end, found)
        if end == manifest.last:
            self._check_state(self._at_end(manifest.number), rounds, found)
        return rounds

    def _execute_heights(
        self, rounds: RoundChain, manifest: Manifest, end: int, found: RangeResult
    ) -> RoundChain | None:
        """Execute heights up to the first differing root; return None if there is one."""
        logged, differs = _CommittedLogs(self._lake, self._deployment, manifest), False
        try:
            for at, results in replay_heights(rounds, end):
                different = None if differs else logged.different(at.height, results)
                if different is not None:
                    found.different.append(different)
                    differs = True
        except (ReplayDiffers, NotAsRecorded) as error:
            found.different.append(self._difference(error))
            return None
        if differs:
            rounds.made.clear()  # later reads use the lake
        return rounds

    def _difference(self, error: ReplayDiffers | NotAsRecorded) -> DifferingHeight:
        """Return the difference that ended the execution of a range."""
        if isinstance(error, ReplayDiffers):
            return DifferingHeight(error.height, error.chains)
        chains = self._deployment.names([error.position])
        return DifferingHeight(error.height, chains, "headers", DifferenceReason.ROWS, "certification")

    def _check_state(self, manifest: Manifest, rounds: RoundChain | None, found: RangeResult) -> None:
        """Compare the stored state at the end of a commit with the executed one.

        After a differing root, compare its roots with the headers instead.
        """
        if self._lake.freed(manifest.height) is not None:
            return
        if rounds is not None:
            differing = self._differing_table(manifest, rounds.states)
            if differing is not None:
                found.different.append(
                    DifferingHeight(manifest.height, differing[1], differing[0], DifferenceReason.STATE)
                )
                found.wrong.add(manifest.number)
        elif manifest.number not in found.wrong:
            _, wrong = self._states(manifest)
            if wrong:
                found.different.append(DifferingHeight(manifest.height, wrong))
                found.wrong.add(manifest.number)

    def _differing_table(self, manifest: Manifest, states: dict[int, Any]) -> tuple[str, tuple[str, ...]] | None:
        """Return the first state table that differs from the stored one, and its chains, or None."""
        kernel = self._deployment.kernel
        for name, table in kernel.tables().items():
            chains: set[int] = set()
            for bucket, state in states.items():
                parts = manifest.state.get(name, {}).get(str(bucket))
                executed = state.frames()[name].to_table(table.schema)
                stored = table.schema.empty_table()
                if parts is not None:
                    stored = self._lake.part(manifest, parts).select(table.schema.names).cast(table.schema)
                    if len(parts.rows) > 1:
                        stored = sort_table(table, from_table(stored)).to_table(table.schema)
                if not _equal_rows(stored, executed):
                    owners = [row_owners(kernel, table, from_table(rows), manifest.tick) for rows in (stored, executed)]
                    chains |= _differing_chains((stored, executed), owners)
            if chains:
                return name, self._deployment.names(sorted(chains))
        return None

    def _at_end(self, number: int) -> Manifest:
        manifest = self._lake.numbered(number)
        return manifest.at(manifest.last)


def open_reexecutor(uri: str, sources: ModuleSources) -> Reexecutor:
    """Open a lake for re-execution.

    Args:
        uri: Path or URI of the lake.
        sources: Allowed sources of its program classes.

    Raises:
        InvalidInput: The lake or its programs cannot be loaded.
    """
    opened = open_lake(uri)
    return Reexecutor(recorded_deployment(opened.lake, opened.about, sources), opened.lake)


class _CommittedLogs:
    """The log tables of a commit."""

    def __init__(self, lake: Lake, deployment: Deployment, manifest: Manifest) -> None:
        self._lake, self._manifest, self._deployment = lake, manifest, deployment
        logs = {"outbound": deployment.kernel.outbound, **deployment.kernel.logs, "headers": HEADERS_SCHEMA}
        self._schemas = {name: stamped_schema(schema) for name, schema in logs.items() if name not in UNCOMPARED_TABLES}
        self._read: dict[str, pa.Table] = {}

    def different(self, height: int, results: RangeResults) -> DifferingHeight | None:
        """Return the first log table that differs from the results of a height, or None."""
        for name in self._schemas:
            both = self._rows(name, height), self._result_rows(name, height, results)
            if not _equal_rows(*both):
                owners = [rows[owner_column(name)].to_numpy() for rows in both]
                chains = self._deployment.names(sorted(_differing_chains(both, owners)))
                return DifferingHeight(height, chains, name, DifferenceReason.ROWS, _differing_column(*both))
        return None

    def _rows(self, table: str, height: int) -> pa.Table:
        schema = self._schemas[table]
        if not self._manifest.at(height).rows.get(table):
            return schema.empty_table()
        if table not in self._read:
            commit = self._manifest
            parts = self._lake.log_rows(table, commit, heights=(commit.first, commit.last))
            self._read[table] = pa.concat_tables(parts).combine_chunks() if len(parts) == 1 else _sort_by_height(parts)
        return select_height(self._read[table], height).select(schema.names)

    def _result_rows(self, table: str, height: int, results: RangeResults) -> pa.Table:
        schema = self._schemas[table]
        frames = [
            {**result.logs, "headers": result.headers, "outbound": result.outbound}.get(table) for result in results
        ]
        stamps = {"height": np.int64(height), "tick": np.int64(self._manifest.at(height).tick)}
        tables = [frame.with_columns(**stamps).to_table(schema) for frame in frames if frame is not None and len(frame)]
        return pa.concat_tables([schema.empty_table(), *tables])


def _sort_by_height(parts: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    order = np.argsort(rows["height"].to_numpy(), kind="stable")
    return rows.take(pa.array(order))


def _equal_rows(one: pa.Table, other: pa.Table) -> bool:
    """Return True if two tables have equal rows in order, ignoring dictionary codes."""
    if one.num_rows != other.num_rows:
        return False
    return all(decode_texts(a).equals(decode_texts(b)) for a, b in zip(one.columns, other.columns, strict=True))


def _differing_column(one: pa.Table, other: pa.Table) -> str:
    """Return the first column that differs; empty if the row counts differ."""
    if one.num_rows != other.num_rows:
        return ""
    columns = zip(one.schema.names, one.columns, other.columns, strict=True)
    return next((str(name) for name, a, b in columns if not decode_texts(a).equals(decode_texts(b))), "")


def _differing_chains(both: tuple[pa.Table, pa.Table], owners: Sequence[Any]) -> set[int]:
    """Return the chains whose rows differ between two tables. ``owners``: the chain of each row."""
    found = set()
    for chain in np.unique(np.concatenate([np.asarray(own, dtype=np.int64) for own in owners])).tolist():
        rows_of_chain = [
            rows.filter(pa.array(np.asarray(own) == chain)) for rows, own in zip(both, owners, strict=True)
        ]
        if not _equal_rows(*rows_of_chain):
            found.add(int(chain))
    return found


__all__ = ["ROOT_COLUMN", "DifferenceReason", "DifferingHeight", "RangeResult", "Reexecutor", "open_reexecutor"]
