"""Heights of a network in memory, each on top of what the one before it gave; nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame, from_table
from causeway.model.ledger import Event, Kind
from causeway.pipeline.deployment import Deployment
from causeway.pipeline.heights import Said, line_of, tick_after
from causeway.pipeline.lake import Lake, LakeError, at_height
from causeway.pipeline.manifests import Line, Manifest
from causeway.pipeline.nearest import nearest
from causeway.pipeline.open_calls import calls_of_round
from causeway.pipeline.reading import Made, Reader, different_chains
from causeway.pipeline.record import Outside
from causeway.pipeline.reverted import gone_back_to
from causeway.proofs import work
from causeway.protocols.contract import HEADERS_SCHEMA, Inputs, RoundResult, Tick
from causeway.protocols.partition import part, union


def begun(deployment: Deployment, bucket: int) -> RoundResult[Any]:
    """Return what a bucket's chains are at height 0."""
    return deployment.kernel.genesis(deployment.chains(bucket), deployment.traffic.next_tick(0))


def executed(reader: Reader, state: Any, tick: Tick, outside: Outside) -> RoundResult[Any]:
    """Return what one tick makes of the state of a reader's bucket; nothing is written."""
    deployment = reader.deployment
    kernel, chains = deployment.kernel, deployment.chains(reader.bucket)
    ingress, carried = deployment.ingress(tick.tick, outside, chains), deployment.carried(outside, chains)
    begun = work.snapshot()
    plan = kernel.plan(state, chains, reader.view(state.frames()), ingress, carried, tick)
    planned = work.since(begun)
    offered, again = reader.entries(plan.reads)
    rows, past = reader.rows(plan.reads.rows), reader.past(plan.reads.past)
    headers, before = reader.headers(plan.reads.headers), reader.ingress(plan.reads.ingress)
    at_hand = nearest(reader, plan.reads.nearest)
    inputs = Inputs(ingress, carried, offered, again, rows, past, headers, before, at_hand)
    begun = work.snapshot()
    result = kernel.round(state, chains, plan, inputs, tick)
    calls = calls_of_round(result.outbound, result.logs, tick.tick)
    return replace(result, work=work.together([planned, work.since(begun), calls]))


def moved_state(reader: Reader, tick: Tick) -> Any:
    """Return a bucket's state for a tick, None where it is what it was: programs that change chains may bring what is
    its own now out of any bucket."""
    kernel, bucket = reader.deployment.kernel, reader.bucket
    if kernel.registry_version(reader.before.tick) == kernel.registry_version(tick.tick):
        return None
    chains = reader.deployment.chains(bucket)
    states = [reader.state(other, verified=other == bucket) for other in range(len(reader.deployment.buckets))]
    return union(kernel, [part(kernel, state, chains, tick.tick) for state in states])


def said_of(result: RoundResult[Any]) -> Said:
    """Return what a bucket says of the height that it made."""
    frames: dict[str, Frame] = {**result.logs, "headers": result.headers, "outbound": result.outbound}
    rows = {name: len(frame) for name, frame in frames.items() if len(frame)}
    if "events" in rows and (of_carriers := _of_carriers(result.logs["events"])):
        rows["of_carriers"] = of_carriers
    return Said(result.wake, result.needs, result.gives_up, rows, result.upkeep)


def _of_carriers(events: Frame) -> int:
    """Return how many of the events are about what carriers brought, refused or taken: no message moves by them."""
    control = events["kind"] == np.uint8(Kind.CONTROL)
    return int((control & ((events["events"] & np.uint16(Event.REJECTED | Event.RELAYED)) > 0)).sum())


HELD = 64 << 20
"""So many bytes of what was made at committed heights are kept in memory, and no more."""

SPARSE = 64
"""Of the heights that are not committed, further back than ``held_heights``, every so many's state is in memory."""


@dataclass
class Rounds:
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
    made: dict[int, Made] = field(default_factory=dict)
    past: dict[int, tuple[int, dict[int, Any]]] = field(default_factory=dict)
    held: int = 0
    said: Sequence[Said] = ()
    committed: Manifest = field(init=False)

    def __post_init__(self) -> None:
        self.committed = self.before

    @property
    def line(self) -> Line:
        """Return what is known of the last height."""
        return self.before.line

    def run(self, tick: Tick, outside: Outside) -> Sequence[RoundResult[Any]]:
        """Make the next height; return what each bucket gave."""
        results = []
        for bucket in range(len(self.deployment.buckets)):
            reader = self._reader(bucket)
            moved = moved_state(reader, tick)
            results.append(executed(reader, self.states[bucket] if moved is None else moved, tick, outside))
        self._take(tick, results, outside)
        return results

    def _reader(self, bucket: int) -> Reader:
        where = self.deployment, self.lake, bucket, self.before, self.states, self.made
        return Reader(*where, self._earlier, self.at_hand(), self.committed)

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
                found = {height: (manifest.tick, states_of(self.deployment, self.lake, manifest))}
            else:
                found = _replayed(self.deployment, self.lake, manifest).at_hand()
            self.past |= found
        return found[height]

    def _take(self, tick: Tick, results: Sequence[RoundResult[Any]], outside: Outside) -> None:
        self.past[self.line.height] = self.line.tick, self.states
        self.past = {height: found for height, found in self.past.items() if self._may_be_asked(height, tick.height)}
        self.states = {bucket: result.state for bucket, result in enumerate(results)}
        made = self.made[tick.height] = Made.of(tick, results, outside)
        self.held += made.held
        self.said = [said_of(result) for result in results]
        # No manifest need name it yet: all of it is in memory.
        self.before = Manifest(-1, (line_of(tick, self.said),))

    def _may_be_asked(self, height: int, last: int) -> bool:
        """Return whether the state of a height is kept in memory, after a round of the height ``last``."""
        kernel, back = self.deployment.kernel, last - height
        sparse = height > self.committed.height and height % SPARSE == 0
        return back <= kernel.held_heights or (sparse and back <= kernel.past_heights)

    def go_on_from(self, committed: Manifest) -> None:
        """Take note that the lake has the last height."""
        self.before = self.committed = committed

    def forget(self, committed: int) -> None:
        """Forget of the heights up to ``committed`` what nobody will ask for, and what is too much: the lake has it."""
        line, shown = self.line, self.deployment.kernel.header_heights
        needed = min(line.height - shown + 1, line.height if line.needs is None else line.needs)
        for height in sorted(self.made):
            if height > committed or (height >= needed and self.held <= HELD):
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


class Committed:
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
        chains = different_chains(committed, again)
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
        rows = [at_height(table, manifest.height) for table in self._read[1]]
        return [from_table(table.select(HEADERS_SCHEMA.names)) for table in rows]


def _rows(results: Sequence[RoundResult[Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for result in results:
        frames: dict[str, Frame] = {**result.logs, "headers": result.headers, "outbound": result.outbound}
        for name, frame in frames.items():
            found[name] = found.get(name, 0) + len(frame)
    return found


def replay(rounds: Rounds, last: int) -> Iterator[tuple[Manifest, Sequence[RoundResult[Any]]]]:
    """Make committed heights again, up to ``last``; yield each manifest, and what the buckets gave.

    Raises ``LakeDamaged``, and ``ReplayDiffers`` when that is not what was committed.
    """
    lake, traffic, committed = rounds.lake, rounds.deployment.traffic, Committed(rounds.lake, rounds.deployment)
    commit = rounds.before
    while rounds.line.height < last:
        height = rounds.line.height + 1
        commit = commit.at(height) if height <= commit.last else lake.numbered(commit.number + 1).at(height)
        outside = lake.outside(commit)
        results = rounds.run(tick_after(rounds.line, commit.tick, traffic, outside), outside)
        committed.compare(commit, results)
        yield commit, results
        rounds.go_on_from(commit)  # the lake has what is forgotten, and this says where
        rounds.forget(height)


def states_of(deployment: Deployment, lake: Lake, manifest: Manifest) -> dict[int, Any]:
    """Return the states of all buckets at the last height of a commit, verified by their roots.

    Raises ``LakeDamaged``, ``Freed``.
    """
    at_end = manifest.at(manifest.last)
    readers = [Reader(deployment, lake, bucket, at_end) for bucket in range(len(deployment.buckets))]
    return {reader.bucket: reader.state(reader.bucket, verified=True) for reader in readers}


def replayed(deployment: Deployment, lake: Lake, manifest: Manifest) -> dict[int, Any]:
    """Return the states of all buckets at the height that a manifest is looked at from: what its commit, or the one
    before it with the heights between, gives.

    Raises ``LakeDamaged``, ``Freed``, ``ReplayDiffers``.
    """
    if manifest.height == manifest.last:
        return states_of(deployment, lake, manifest)
    return _replayed(deployment, lake, manifest).states


def _replayed(deployment: Deployment, lake: Lake, manifest: Manifest) -> Rounds:
    """Return the rounds that lead to the height that a manifest is looked at from.

    What forks in between went back to, and is in no file, is made first, and what forks on the way to that went back
    to: so each height is executed once at most, and no replay needs another one.
    """
    past: dict[int, tuple[int, dict[int, Any]]] = {}
    for commit in reversed(_needed(lake, manifest)):
        before = lake.numbered(commit.number - 1)
        rounds = Rounds(deployment, lake, before, states_of(deployment, lake, before), past=past)
        for _ in replay(rounds, commit.height):
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
        for back in map(lake.manifest, gone_back_to(lake, commit)):
            if back.number < number and back.height < back.last:
                needed[back.number] = max(back.height, needed.get(back.number, back.height))
    return found
