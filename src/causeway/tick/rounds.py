"""Rounds in memory: consecutive heights of a network without writes.

A lake has the state of the last height of every commit, and logs of every height. ``RoundChain`` executes further
heights on top of a commit. ``replay_heights`` executes committed heights again and compares the results.
``find_nearest_state`` finds the closest stored state of chains at or before a height, and their later log rows
(``Reads.nearest``), without executing anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from causeway_proofs import work

from causeway.core.frame import Frame, concat, empty_frame, from_table
from causeway.core.vocabulary import REVERTED, REVERTED_SCHEMA, Event, Kind
from causeway.protocols.contract import HEADERS_SCHEMA, Chains, Inputs, NearestState, RoundResult, Tick
from causeway.protocols.shared.state_tables import merge_states, select_chains
from causeway.storage.external_input import ExternalInput
from causeway.storage.lake import Lake, LakeError, select_height
from causeway.storage.manifests import HeightLine, Manifest
from causeway.storage.reorgs import RevertedRanges, rolled_back_heights
from causeway.tick.deployment import Deployment, HeightReport, count_round_calls, height_line, next_height_tick
from causeway.tick.reading import BucketReader, CommittedHeight, find_differing_chains


def find_nearest_state(reader: BucketReader, asked: Mapping[str, Frame]) -> dict[str, dict[int, NearestState[Any]]]:
    """Find the closest stored states for chains at heights.

    Args:
        reader: Reads of a bucket.
        asked: Requested chains and heights (``PAST_SCHEMA``) by log table.

    Returns:
        The states with their later log rows, by log table and height.

    Raises:
        LakeDamaged: A file is damaged.
        Freed: A vacuum freed a state.
    """
    found: dict[str, dict[int, NearestState[Any]]] = {}
    for table, wanted in asked.items():
        heights = np.unique(wanted["height"]).tolist()
        chains = {height: np.unique(wanted["chain"][wanted["height"] == height]) for height in heights}
        found[table] = {height: _find_nearest(reader, table, height, chains[height]) for height in heights}
    return found


class _StoredHeight(NamedTuple):
    """A height with its tick and the bucket's state."""

    height: int
    tick: int
    state: Any


def _find_nearest(reader: BucketReader, table: str, height: int, chains: Chains) -> NearestState[Any]:
    """Find the closest stored state of chains at a height, and the log rows since."""
    # The requested height stands, so only forks at heights before it reverted its predecessors.
    before = height
    while True:
        stored = _nearest_height(reader, before)
        reverted = _reverted_ranges(reader, stored.height + 1, height, chains)
        covered = (reverted.first <= stored.height) & (stored.height <= reverted.last)
        if not covered.any():
            break
        before = int(reverted.first[covered].min()) - 1
    rows = _select_chains(reader.logged(table, stored.height + 1, height), chains)
    abandoned = reverted.hits(pa.table({name: rows[name] for name in ("height", "chain")}), "chain")
    state = select_chains(reader.deployment.kernel, stored.state, chains, stored.tick)
    return NearestState(state, rows.filter(~abandoned))


def _reverted_ranges(reader: BucketReader, first: int, last: int, chains: Chains) -> RevertedRanges:
    """Return the ranges of heights that chains reverted."""
    if REVERTED not in reader.deployment.kernel.logs:
        return RevertedRanges.of(REVERTED_SCHEMA.empty_table())
    rows = _select_chains(reader.logged(REVERTED, first, last), chains)
    return RevertedRanges.of(rows.to_table(REVERTED_SCHEMA))


def _select_chains(rows: Frame, chains: Chains) -> Frame:
    return rows.filter(np.isin(rows["chain"], chains))


def _nearest_height(reader: BucketReader, height: int) -> _StoredHeight:
    """Return the last stored height up to one, in memory or in a file."""
    held = max((other for other in reader.held if other <= height), default=-1)
    if held < min(height, reader.base.height):  # a file may have a later one
        # The last commit that ends at or before the height.
        manifest = reader.manifest(min(height, reader.base.height))
        if manifest.height < manifest.last:
            manifest = reader.lake.numbered(manifest.number - 1)
        if manifest.height > held:
            return _StoredHeight(manifest.height, manifest.tick, reader.state_at(manifest))
    tick, states = reader.held[held]
    return _StoredHeight(held, tick, states[reader.bucket])


def genesis_round(deployment: Deployment, bucket: int) -> RoundResult[Any]:
    """Return the result of a bucket's chains at height 0.

    Args:
        deployment: The network.
        bucket: The bucket.
    """
    return deployment.kernel.genesis(deployment.chains(bucket), deployment.traffic.next_tick(0))


def execute_round(reader: BucketReader, state: Any, tick: Tick, outside: ExternalInput) -> RoundResult[Any]:
    """Execute one tick of a bucket without writing.

    Args:
        reader: Reads of the bucket.
        state: State of the bucket.
        tick: The tick.
        outside: External input.
    """
    deployment = reader.deployment
    kernel, chains = deployment.kernel, deployment.chains(reader.bucket)
    ingress, carried = deployment.ingress(tick.tick, outside, chains), deployment.carried(outside, chains)
    started = work.snapshot()
    plan = kernel.plan(state, chains, reader.view(state.frames()), ingress, carried, tick)
    planned = work.work_since(started)
    offered, own_entries = reader.entries(plan.reads)
    rows, past = reader.rows(plan.reads.rows), reader.past(plan.reads.past)
    headers, before = reader.headers(plan.reads.headers), reader.ingress(plan.reads.ingress)
    nearest = find_nearest_state(reader, plan.reads.nearest)
    inputs = Inputs(ingress, carried, offered, own_entries, rows, past, headers, before, nearest)
    started = work.snapshot()
    result = kernel.round(state, chains, plan, inputs, tick)
    calls = count_round_calls(result.outbound, result.logs, tick.tick)
    return replace(result, work=work.merge_counts([planned, work.work_since(started), calls]))


def migrate_state(reader: BucketReader, tick: Tick) -> Any:
    """Return a bucket's state after programs changed chains, or None if none did.

    Programs may move between buckets, so it is merged from the states of all.
    """
    kernel, bucket = reader.deployment.kernel, reader.bucket
    if kernel.registry_version(reader.before.tick) == kernel.registry_version(tick.tick):
        return None
    chains = reader.deployment.chains(bucket)
    states = [reader.state(other, verified=other == bucket) for other in range(len(reader.deployment.buckets))]
    return merge_states(kernel, [select_chains(kernel, state, chains, tick.tick) for state in states])


def height_report(result: RoundResult[Any]) -> HeightReport:
    """Return a bucket's report of a height."""
    frames: dict[str, Frame] = {**result.logs, "headers": result.headers, "outbound": result.outbound}
    rows = {name: len(frame) for name, frame in frames.items() if len(frame)}
    if "events" in rows:
        # The events about carriers move no message.
        events = result.logs["events"]
        of_carriers = (events["events"] & np.uint16(Event.REJECTED | Event.RELAYED)) > 0
        if count := int((of_carriers & (events["kind"] == np.uint8(Kind.CONTROL))).sum()):
            rows["of_carriers"] = count
    return HeightReport(result.wake, result.needs, result.gives_up, rows, result.upkeep)


CACHED_HEIGHTS = 64 << 20
"""Maximum bytes of cached outputs of committed heights."""

SPARSE_ROWS = 64
"""Spacing of cached states of uncommitted heights older than ``retained_heights``."""


@dataclass
class RoundChain:
    """Heights of all buckets after ``before``, executed one by one in memory.

    Attributes:
        deployment: The network.
        lake: The lake.
        before: Manifest of the last height.
        states: States of all buckets at the last height.
        made: Outputs of heights that may be read again; others are read from the lake.
        past: Ticks and states of earlier heights that may be read, including the last ``retained_heights``.
        held: Bytes of ``made``.
        reports: Reports of the buckets for the last height, once one was executed.
        committed: Last height in the lake.
    """

    deployment: Deployment
    lake: Lake
    before: Manifest
    states: dict[int, Any]
    made: dict[int, CommittedHeight] = field(default_factory=dict)
    past: dict[int, tuple[int, dict[int, Any]]] = field(default_factory=dict)
    held: int = 0
    reports: Sequence[HeightReport] = ()
    committed: Manifest = field(init=False)

    def __post_init__(self) -> None:
        self.committed = self.before

    @property
    def line(self) -> HeightLine:
        """Summary of the last height."""
        return self.before.line

    def run(self, tick: Tick, outside: ExternalInput) -> Sequence[RoundResult[Any]]:
        """Execute the next height; return the result of each bucket."""
        results = []
        for bucket in range(len(self.deployment.buckets)):
            reader = self._reader(bucket)
            moved = migrate_state(reader, tick)
            results.append(execute_round(reader, self.states[bucket] if moved is None else moved, tick, outside))
        self._advance(tick, results, outside)
        return results

    def _reader(self, bucket: int) -> BucketReader:
        position = self.deployment, self.lake, bucket, self.before, self.states, self.made
        return BucketReader(*position, self._earlier, self.at_hand(), self.committed)

    def at_hand(self) -> dict[int, tuple[int, dict[int, Any]]]:
        """Return ticks and states of the heights in memory."""
        return {**self.past, self.line.height: (self.line.tick, self.states)}

    def _earlier(self, height: int) -> tuple[int, dict[int, Any]]:
        """Return tick and states of an earlier height.

        A height not in memory is read or replayed from the lake; states before it that may be read are cached, too.
        """
        if height not in (found := self.at_hand()):
            manifest = self.lake.manifest(height)
            if manifest.height == manifest.last:
                found = {height: (manifest.tick, read_states(self.deployment, self.lake, manifest))}
            else:
                found = _replay(self.deployment, self.lake, manifest).at_hand()
            self.past |= found
        return found[height]

    def _advance(self, tick: Tick, results: Sequence[RoundResult[Any]], outside: ExternalInput) -> None:
        self.past[self.line.height] = self.line.tick, self.states
        self.past = {height: found for height, found in self.past.items() if self._may_be_asked(height, tick.height)}
        self.states = {bucket: result.state for bucket, result in enumerate(results)}
        made = self.made[tick.height] = CommittedHeight.of(tick, results, outside)
        self.held += made.held
        self.reports = [height_report(result) for result in results]
        # Everything is in memory, so no manifest has to name it yet.
        self.before = Manifest(-1, (height_line(tick, self.reports),))

    def _may_be_asked(self, height: int, last: int) -> bool:
        """Return True if the state of a height stays in memory after a round of height ``last``."""
        kernel, back = self.deployment.kernel, last - height
        sparse = height > self.committed.height and height % SPARSE_ROWS == 0
        return back <= kernel.retained_heights or (sparse and back <= kernel.past_heights)

    def acknowledge_height(self, committed: Manifest) -> None:
        """Record that the lake has the last height."""
        self.before = self.committed = committed

    def forget(self, committed: int) -> None:
        """Drop outputs of heights up to ``committed`` that are not needed or exceed the cache."""
        line, shown = self.line, self.deployment.kernel.header_heights
        needed = min(line.height - shown + 1, line.height if line.needs is None else line.needs)
        for height in sorted(self.made):
            if height > committed or (height >= needed and self.held <= CACHED_HEIGHTS):
                return
            self.held -= self.made.pop(height).held


class ReplayDiffers(LakeError):
    """Executing committed heights again gives other results; a program may have changed since.

    Attributes:
        height: First height that differs.
        chains: Names of the chains with other roots.
    """

    def __init__(self, uri: str, height: int, chains: tuple[str, ...]) -> None:
        """Create the error of a lake."""
        self.height, self.chains = height, chains
        super().__init__(
            f"lake: {uri}: height {height}, executed again, gives {', '.join(chains[:8])} another root than was "
            "committed: a program of the network may have changed since, or the lake was made by another Causeway"
        )


class CommittedHeights:
    """Committed results of a lake for comparison with a replay."""

    def __init__(self, lake: Lake, deployment: Deployment) -> None:
        self._lake, self._deployment = lake, deployment
        self._read: tuple[int, list[pa.Table]] = (-1, [])

    def compare(self, manifest: Manifest, results: Sequence[RoundResult[Any]]) -> None:
        """Compare the results of a height with its headers and log row counts.

        Args:
            manifest: Manifest viewed at the height.
            results: Results of the buckets.

        Raises:
            ReplayDiffers: They differ.
        """
        committed = concat([empty_frame(HEADERS_SCHEMA), *self._headers(manifest)])
        replayed = concat([empty_frame(HEADERS_SCHEMA), *(result.headers for result in results)])
        chains = find_differing_chains(committed, replayed)
        chains = np.union1d(chains, np.setdiff1d(replayed["chain"], committed["chain"]))
        if not len(chains) and _count_rows(results) != {
            name: manifest.rows.get(name, 0) for name in _count_rows(results)
        }:
            chains = np.unique(replayed["chain"])
        if len(chains):
            names = self._deployment.names(chains.tolist())
            raise ReplayDiffers(self._lake.storage.uri, manifest.height, names)

    def _headers(self, manifest: Manifest) -> list[Frame]:
        """Return the headers of a height; a whole commit is read at once."""
        if self._read[0] != manifest.number:
            self._read = manifest.number, self._lake.commit_rows("headers", manifest)
        rows = [select_height(table, manifest.height) for table in self._read[1]]
        return [from_table(table.select(HEADERS_SCHEMA.names)) for table in rows]


def _count_rows(results: Sequence[RoundResult[Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for result in results:
        frames: dict[str, Frame] = {**result.logs, "headers": result.headers, "outbound": result.outbound}
        for name, frame in frames.items():
            found[name] = found.get(name, 0) + len(frame)
    return found


def replay_heights(rounds: RoundChain, last: int) -> Iterator[tuple[Manifest, Sequence[RoundResult[Any]]]]:
    """Execute committed heights again.

    Args:
        rounds: Rounds that end at a committed height.
        last: Last height to execute.

    Yields:
        Each manifest, with the results of the buckets.

    Raises:
        LakeDamaged: A file is damaged.
        ReplayDiffers: The results differ from the committed ones.
    """
    lake, traffic, committed = rounds.lake, rounds.deployment.traffic, CommittedHeights(rounds.lake, rounds.deployment)
    commit = rounds.before
    while rounds.line.height < last:
        height = rounds.line.height + 1
        commit = commit.at(height) if height <= commit.last else lake.numbered(commit.number + 1).at(height)
        outside = lake.outside(commit)
        results = rounds.run(next_height_tick(rounds.line, commit.tick, traffic, outside), outside)
        committed.compare(commit, results)
        yield commit, results
        rounds.acknowledge_height(commit)  # dropped outputs can be read from the lake
        rounds.forget(height)


def read_states(deployment: Deployment, lake: Lake, manifest: Manifest) -> dict[int, Any]:
    """Return the states of all buckets at the last height of a commit, verified by their roots.

    Args:
        deployment: The network.
        lake: The lake.
        manifest: The commit.

    Raises:
        LakeDamaged: A file is damaged.
        Freed: A vacuum freed the state.
    """
    at_end = manifest.at(manifest.last)
    readers = [BucketReader(deployment, lake, bucket, at_end) for bucket in range(len(deployment.buckets))]
    return {reader.bucket: reader.state(reader.bucket, verified=True) for reader in readers}


def replay_to_height(deployment: Deployment, lake: Lake, manifest: Manifest) -> dict[int, Any]:
    """Return the states of all buckets at the height of a manifest.

    A height inside a commit is executed again from the commit before it.

    Args:
        deployment: The network.
        lake: The lake.
        manifest: Manifest viewed at the height.

    Raises:
        LakeDamaged: A file is damaged.
        Freed: A vacuum freed the state.
        ReplayDiffers: The results differ from the committed ones.
    """
    if manifest.height == manifest.last:
        return read_states(deployment, lake, manifest)
    return _replay(deployment, lake, manifest).states


def _replay(deployment: Deployment, lake: Lake, manifest: Manifest) -> RoundChain:
    """Replay the rounds up to the height of a manifest.

    Forks may revert to heights inside earlier commits, which are replayed first. So each height is executed at most
    once, and no replay needs a nested one.
    """
    past: dict[int, tuple[int, dict[int, Any]]] = {}
    for commit in reversed(_commits_to_replay(lake, manifest)):
        before = lake.numbered(commit.number - 1)
        rounds = RoundChain(deployment, lake, before, read_states(deployment, lake, before), past=past)
        for _ in replay_heights(rounds, commit.height):
            pass
        past = rounds.at_hand()
    return rounds


def _commits_to_replay(lake: Lake, manifest: Manifest) -> list[Manifest]:
    """Return the commits that a replay executes, descending, each viewed at its last height."""
    found, needed = list[Manifest](), {manifest.number: manifest.height}
    while needed:
        number = max(needed)
        commit = lake.numbered(number).at(needed.pop(number))
        found.append(commit)
        for back in map(lake.manifest, rolled_back_heights(lake, commit)):
            if back.number < number and back.height < back.last:
                needed[back.number] = max(back.height, needed.get(back.number, back.height))
    return found
