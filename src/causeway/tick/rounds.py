"""Heights of a network in memory, each on top of what the one before it gave; nothing is written.

What is at hand of a bucket's chains at a height, without executing anything: their state then, or at an earlier
height, and what a log table has of the heights since (``Reads.nearest``).

A lake has the state of the last height of every commit, and its logs have every height.
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
    """Return by log table and height what is at hand for the chains for which the height is asked (``PAST_SCHEMA``).

    Raises ``LakeDamaged``, ``Freed``.
    """
    found: dict[str, dict[int, NearestState[Any]]] = {}
    for table, wanted in asked.items():
        heights = np.unique(wanted["height"]).tolist()
        chains = {height: np.unique(wanted["chain"][wanted["height"] == height]) for height in heights}
        found[table] = {height: _nearest(reader, table, height, chains[height]) for height in heights}
    return found


class _AtHand(NamedTuple):
    """A height with its tick, and the bucket's state at it."""

    height: int
    tick: int
    state: Any


def _nearest(reader: BucketReader, table: str, height: int, chains: Chains) -> NearestState[Any]:
    # The height that is asked stands, so what is abandoned before it was abandoned by a height before it.
    before = height
    while True:
        here = _at_hand(reader, before)
        gone = _reverted(reader, here.height + 1, height, chains)
        left = (gone.first <= here.height) & (here.height <= gone.last)
        if not left.any():
            break
        before = int(gone.first[left].min()) - 1
    rows = _of(reader.logged(table, here.height + 1, height), chains)
    abandoned = gone.hits(pa.table({name: rows[name] for name in ("height", "chain")}), "chain")
    state = select_chains(reader.deployment.kernel, here.state, chains, here.tick)
    return NearestState(state, rows.filter(~abandoned))


def _reverted(reader: BucketReader, first: int, last: int, chains: Chains) -> RevertedRanges:
    """Return what chains abandoned at heights."""
    rows = REVERTED_SCHEMA.empty_table()
    if REVERTED in reader.deployment.kernel.logs:
        rows = _of(reader.logged(REVERTED, first, last), chains).select(rows.column_names).to_table(rows.schema)
    return RevertedRanges.of(rows)


def _of(rows: Frame, chains: Chains) -> Frame:
    return rows.filter(np.isin(rows["chain"], chains))


def _at_hand(reader: BucketReader, height: int) -> _AtHand:
    """Return the last height up to one whose state is in memory, or in a file."""
    held = max((other for other in reader.held if other <= height), default=-1)
    if held < min(height, reader.base.height):  # a file may have a later one
        manifest = _in_files(reader, height)
        if manifest.height > held:
            return _AtHand(manifest.height, manifest.tick, reader.state_at(manifest))
    tick, states = reader.held[held]
    return _AtHand(held, tick, states[reader.bucket])


def _in_files(reader: BucketReader, height: int) -> Manifest:
    """Return the last commit that ends with a height or before it."""
    manifest = reader.manifest(min(height, reader.base.height))
    return manifest if manifest.height == manifest.last else reader.lake.numbered(manifest.number - 1)


def genesis_round(deployment: Deployment, bucket: int) -> RoundResult[Any]:
    """Return what a bucket's chains are at height 0."""
    return deployment.kernel.genesis(deployment.chains(bucket), deployment.traffic.next_tick(0))


def execute_round(reader: BucketReader, state: Any, tick: Tick, outside: ExternalInput) -> RoundResult[Any]:
    """Return what one tick makes of the state of a reader's bucket; nothing is written."""
    deployment = reader.deployment
    kernel, chains = deployment.kernel, deployment.chains(reader.bucket)
    ingress, carried = deployment.ingress(tick.tick, outside, chains), deployment.carried(outside, chains)
    begun = work.snapshot()
    plan = kernel.plan(state, chains, reader.view(state.frames()), ingress, carried, tick)
    planned = work.work_since(begun)
    offered, again = reader.entries(plan.reads)
    rows, past = reader.rows(plan.reads.rows), reader.past(plan.reads.past)
    headers, before = reader.headers(plan.reads.headers), reader.ingress(plan.reads.ingress)
    at_hand = find_nearest_state(reader, plan.reads.nearest)
    inputs = Inputs(ingress, carried, offered, again, rows, past, headers, before, at_hand)
    begun = work.snapshot()
    result = kernel.round(state, chains, plan, inputs, tick)
    calls = count_round_calls(result.outbound, result.logs, tick.tick)
    return replace(result, work=work.merge_counts([planned, work.work_since(begun), calls]))


def migrate_state(reader: BucketReader, tick: Tick) -> Any:
    """Return a bucket's state for a tick, None where it is what it was: programs that change chains may bring what is
    its own now out of any bucket."""
    kernel, bucket = reader.deployment.kernel, reader.bucket
    if kernel.registry_version(reader.before.tick) == kernel.registry_version(tick.tick):
        return None
    chains = reader.deployment.chains(bucket)
    states = [reader.state(other, verified=other == bucket) for other in range(len(reader.deployment.buckets))]
    return merge_states(kernel, [select_chains(kernel, state, chains, tick.tick) for state in states])


def height_report(result: RoundResult[Any]) -> HeightReport:
    """Return what a bucket says of the height that it made."""
    frames: dict[str, Frame] = {**result.logs, "headers": result.headers, "outbound": result.outbound}
    rows = {name: len(frame) for name, frame in frames.items() if len(frame)}
    if "events" in rows and (of_carriers := _of_carriers(result.logs["events"])):
        rows["of_carriers"] = of_carriers
    return HeightReport(result.wake, result.needs, result.gives_up, rows, result.upkeep)


def _of_carriers(events: Frame) -> int:
    """Return how many of the events are about what carriers brought, refused or taken: no message moves by them."""
    control = events["kind"] == np.uint8(Kind.CONTROL)
    return int((control & ((events["events"] & np.uint16(Event.REJECTED | Event.RELAYED)) > 0)).sum())


CACHED_HEIGHTS = 64 << 20
"""So many bytes of what was made at committed heights are kept in memory, and no more."""

SPARSE_ROWS = 64
"""Of the heights that are not committed, further back than ``held_heights``, every so many's state is in memory."""


@dataclass
class RoundChain:
    """The heights of all buckets after ``before``, made one by one in memory.

    ``states``: of all buckets at the last height. ``made``: what was made at heights that may be asked for again; what
    is not there is read from the lake. ``past``: ticks and states of earlier heights that may be asked for, of the last
    ``held_heights`` all. ``held``: the bytes of what is ``made``. ``said``: what each bucket says of the last height,
    once one was made. ``committed``: the last height that the lake has.
    """

    deployment: Deployment
    lake: Lake
    before: Manifest
    states: dict[int, Any]
    made: dict[int, CommittedHeight] = field(default_factory=dict)
    past: dict[int, tuple[int, dict[int, Any]]] = field(default_factory=dict)
    held: int = 0
    said: Sequence[HeightReport] = ()
    committed: Manifest = field(init=False)

    def __post_init__(self) -> None:
        self.committed = self.before

    @property
    def line(self) -> HeightLine:
        """Return what is known of the last height."""
        return self.before.line

    def run(self, tick: Tick, outside: ExternalInput) -> Sequence[RoundResult[Any]]:
        """Make the next height; return what each bucket gave."""
        results = []
        for bucket in range(len(self.deployment.buckets)):
            reader = self._reader(bucket)
            moved = migrate_state(reader, tick)
            results.append(execute_round(reader, self.states[bucket] if moved is None else moved, tick, outside))
        self._take(tick, results, outside)
        return results

    def _reader(self, bucket: int) -> BucketReader:
        where = self.deployment, self.lake, bucket, self.before, self.states, self.made
        return BucketReader(*where, self._earlier, self.at_hand(), self.committed)

    def at_hand(self) -> dict[int, tuple[int, dict[int, Any]]]:
        """Return the ticks and states of the heights that are in memory."""
        return {**self.past, self.line.height: (self.line.tick, self.states)}

    def _earlier(self, height: int) -> tuple[int, dict[int, Any]]:
        """Return the tick of an earlier height, and the states at it.

        What is not in memory is in the lake; with it those before it are kept that may be asked for, too.
        """
        if height not in (found := self.at_hand()):
            manifest = self.lake.manifest(height)
            if manifest.height == manifest.last:
                found = {height: (manifest.tick, read_states(self.deployment, self.lake, manifest))}
            else:
                found = _replayed(self.deployment, self.lake, manifest).at_hand()
            self.past |= found
        return found[height]

    def _take(self, tick: Tick, results: Sequence[RoundResult[Any]], outside: ExternalInput) -> None:
        self.past[self.line.height] = self.line.tick, self.states
        self.past = {height: found for height, found in self.past.items() if self._may_be_asked(height, tick.height)}
        self.states = {bucket: result.state for bucket, result in enumerate(results)}
        made = self.made[tick.height] = CommittedHeight.of(tick, results, outside)
        self.held += made.held
        self.said = [height_report(result) for result in results]
        # No manifest need name it yet: all of it is in memory.
        self.before = Manifest(-1, (height_line(tick, self.said),))

    def _may_be_asked(self, height: int, last: int) -> bool:
        """Return whether the state of a height is kept in memory, after a round of the height ``last``."""
        kernel, back = self.deployment.kernel, last - height
        sparse = height > self.committed.height and height % SPARSE_ROWS == 0
        return back <= kernel.held_heights or (sparse and back <= kernel.past_heights)

    def acknowledge_height(self, committed: Manifest) -> None:
        """Take note that the lake has the last height."""
        self.before = self.committed = committed

    def forget(self, committed: int) -> None:
        """Forget of the heights up to ``committed`` what nobody will ask for, and what is too much: the lake has it."""
        line, shown = self.line, self.deployment.kernel.header_heights
        needed = min(line.height - shown + 1, line.height if line.needs is None else line.needs)
        for height in sorted(self.made):
            if height > committed or (height >= needed and self.held <= CACHED_HEIGHTS):
                return
            self.held -= self.made.pop(height).held


class ReplayDiffers(LakeError):
    """Executing committed heights again does not give what was committed: a program may have changed since.

    ``height``: the first that comes out differently; ``chains``: the names of those with other roots.
    """

    def __init__(self, uri: str, height: int, chains: tuple[str, ...]) -> None:
        """Make the error of a lake."""
        self.height, self.chains = height, chains
        super().__init__(
            f"lake: {uri}: height {height}, executed again, gives {', '.join(chains[:8])} another root than was "
            "committed: a program of the network may have changed since, or the lake was made by another Causeway"
        )


class CommittedHeights:
    """What a lake has of heights, to be compared with what executing them again gives."""

    def __init__(self, lake: Lake, deployment: Deployment) -> None:
        self._lake, self._deployment = lake, deployment
        self._read: tuple[int, list[pa.Table]] = (-1, [])

    def compare(self, manifest: Manifest, results: Sequence[RoundResult[Any]]) -> None:
        """Compare what the buckets gave at a height with its headers, and with the number of rows of each log table.

        Raises ``ReplayDiffers``.
        """
        committed = concat([empty_frame(HEADERS_SCHEMA), *self._headers(manifest)])
        again = concat([empty_frame(HEADERS_SCHEMA), *(result.headers for result in results)])
        chains = find_differing_chains(committed, again)
        chains = np.union1d(chains, np.setdiff1d(again["chain"], committed["chain"]))
        if not len(chains) and _rows(results) != {name: manifest.rows.get(name, 0) for name in _rows(results)}:
            chains = np.unique(again["chain"])
        if len(chains):
            names = self._deployment.names(chains.tolist())
            raise ReplayDiffers(self._lake.storage.uri, manifest.height, names)

    def _headers(self, manifest: Manifest) -> list[Frame]:
        """Return the headers at a height; those of its whole commit are read at once."""
        if self._read[0] != manifest.number:
            self._read = manifest.number, self._lake.commit_rows("headers", manifest)
        rows = [select_height(table, manifest.height) for table in self._read[1]]
        return [from_table(table.select(HEADERS_SCHEMA.names)) for table in rows]


def _rows(results: Sequence[RoundResult[Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for result in results:
        frames: dict[str, Frame] = {**result.logs, "headers": result.headers, "outbound": result.outbound}
        for name, frame in frames.items():
            found[name] = found.get(name, 0) + len(frame)
    return found


def replay_heights(rounds: RoundChain, last: int) -> Iterator[tuple[Manifest, Sequence[RoundResult[Any]]]]:
    """Make committed heights again, up to ``last``; yield each manifest, and what the buckets gave.

    Raises ``LakeDamaged``, and ``ReplayDiffers`` when that is not what was committed.
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
        rounds.acknowledge_height(commit)  # the lake has what is forgotten, and this says where
        rounds.forget(height)


def read_states(deployment: Deployment, lake: Lake, manifest: Manifest) -> dict[int, Any]:
    """Return the states of all buckets at the last height of a commit, verified by their roots.

    Raises ``LakeDamaged``, ``Freed``.
    """
    at_end = manifest.at(manifest.last)
    readers = [BucketReader(deployment, lake, bucket, at_end) for bucket in range(len(deployment.buckets))]
    return {reader.bucket: reader.state(reader.bucket, verified=True) for reader in readers}


def replay_to_height(deployment: Deployment, lake: Lake, manifest: Manifest) -> dict[int, Any]:
    """Return the states of all buckets at the height that a manifest is looked at from: what its commit, or the one
    before it with the heights between, gives.

    Raises ``LakeDamaged``, ``Freed``, ``ReplayDiffers``.
    """
    if manifest.height == manifest.last:
        return read_states(deployment, lake, manifest)
    return _replayed(deployment, lake, manifest).states


def _replayed(deployment: Deployment, lake: Lake, manifest: Manifest) -> RoundChain:
    """Return the rounds that lead to the height that a manifest is looked at from.

    What forks in between went back to, and is in no file, is made first, and what forks on the way to that went back
    to: so each height is executed once at most, and no replay needs another one.
    """
    past: dict[int, tuple[int, dict[int, Any]]] = {}
    for commit in reversed(_needed(lake, manifest)):
        before = lake.numbered(commit.number - 1)
        rounds = RoundChain(deployment, lake, before, read_states(deployment, lake, before), past=past)
        for _ in replay_heights(rounds, commit.height):
            pass
        past = rounds.at_hand()
    return rounds


def _needed(lake: Lake, manifest: Manifest) -> list[Manifest]:
    """Return the commits whose heights a replay executes, descending, each looked at from the last one of these."""
    found, needed = list[Manifest](), {manifest.number: manifest.height}
    while needed:
        number = max(needed)
        commit = lake.numbered(number).at(needed.pop(number))
        found.append(commit)
        for back in map(lake.manifest, rolled_back_heights(lake, commit)):
            if back.number < number and back.height < back.last:
                needed[back.number] = max(back.height, needed.get(back.number, back.height))
    return found
