"""A network whose heights are in memory alone, for tests of programs: the same rounds as on a lake, and no file until
somebody wants one.

All chains are one bucket. What was made at every height stays, so nothing is read back: a network of a few chains takes
about 30 KiB a height. Copies share what was made and go on by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame
from causeway.core.vocabulary import REVERTED, REVERTED_SCHEMA
from causeway.storage.external_input import NO_INPUT
from causeway.storage.lake import Lake
from causeway.storage.manifests import HeightLine, Manifest
from causeway.storage.reorgs import RevertedRanges, Root, digest_roots
from causeway.tick.bucket import write_heights
from causeway.tick.deployment import GENESIS, MAX_HEIGHTS, Deployment, HeightReport, height_line, next_height_tick
from causeway.tick.executors import InProcessExecutor
from causeway.tick.reading import CommittedHeight
from causeway.tick.rounds import RoundChain, genesis_round, height_report
from causeway.tick.run import commit_genesis, commit_written

RECENT_HEIGHTS = 64
"""Of so many of the last heights the states stay, and of every so many's."""

_NOWHERE = Lake.at("memory")
"""The lake of a network that has none: nothing is ever read from it."""


@dataclass
class _MemoryRounds(RoundChain):
    """Rounds of which everything stays in memory."""

    def _earlier(self, height: int) -> tuple[int, dict[int, Any]]:
        """Return the tick of an earlier height, and the states at it; one that is not kept is made again."""
        found = self.at_hand()
        if height not in found:
            again = _begun(self.deployment)
            for earlier in range(1, height + 1):
                again.run(self.made[earlier].tick, NO_INPUT)
            found = {height: (again.line.tick, again.states)}
            self.past |= found
        return found[height]

    def _may_be_asked(self, height: int, last: int) -> bool:
        back = max(RECENT_HEIGHTS, self.deployment.kernel.held_heights)
        return height % RECENT_HEIGHTS == 0 or last - height <= back


@dataclass
class MemoryNetwork:
    """A network in memory. ``lines``: what is known of each height; ``said``: what its bucket said of it."""

    rounds: RoundChain
    lines: list[HeightLine]
    said: list[HeightReport]
    commits: dict[int, Mapping[str, Frame]] = field(default_factory=dict)

    @classmethod
    def begun(cls, deployment: Deployment) -> MemoryNetwork:
        """Return a network at height 0; ``deployment``: of one bucket."""
        rounds = _begun(deployment)
        return cls(rounds, [rounds.line], [rounds.said[0]])

    @property
    def deployment(self) -> Deployment:
        """Return the network."""
        return self.rounds.deployment

    @property
    def line(self) -> HeightLine:
        """Return what is known of the last height."""
        return self.rounds.line

    @property
    def made(self) -> Mapping[int, CommittedHeight]:
        """Return what was made at each height."""
        return self.rounds.made

    @property
    def frames(self) -> Mapping[str, Frame]:
        """Return the rows of every state table at the last height."""
        found: Mapping[str, Frame] = self.rounds.states[0].frames()
        return found

    def run(self, tick: int) -> CommittedHeight:
        """Run a tick above the last one; return what was made. Nothing is changed where it raises."""
        rounds = self.rounds
        try:
            rounds.run(next_height_tick(rounds.line, tick, self.deployment.traffic), NO_INPUT)
        except BaseException:
            rounds.states = self._own_states()  # what is derived of them may be half-way
            raise
        self.lines.append(rounds.line)
        self.said.append(rounds.said[0])
        if rounds.line.height % MAX_HEIGHTS == 0:
            self.commits[rounds.line.height] = self.frames
        return rounds.made[rounds.line.height]

    def change(self, deployment: Deployment) -> None:
        """Let another deployment of the same chains run what follows."""
        self.rounds.deployment = deployment

    def _own_states(self) -> dict[int, Any]:
        """Return the states at the last height without what is derived from their tables, which is changed in place."""
        kernel = self.deployment.kernel
        return {bucket: kernel.state(state.frames()) for bucket, state in self.rounds.states.items()}

    def copy(self) -> MemoryNetwork:
        """Return a network that goes on from here by itself."""
        made, past, held = dict(self.rounds.made), dict(self.rounds.past), self.rounds.held
        before, states = self.rounds.before, self._own_states()
        rounds = _MemoryRounds(self.deployment, _NOWHERE, before, states, made, past, held, self.rounds.said)
        rounds.committed = self.rounds.committed
        return MemoryNetwork(rounds, list(self.lines), list(self.said), dict(self.commits))

    def root(self) -> str:
        """Return one digest over the last roots of all chains, as ``roots.root_of`` does of a lake."""
        last = self.line.height
        found = list(_roots(self.made[last].headers))
        missing = {chain for chain, _ in _roots(self.made[0].headers)} - {chain for chain, _ in found}
        undone = self._reverted()
        for height in range(last - 1, -1, -1):
            if not missing:
                break
            headers = self.made[height].headers
            heights = np.full(len(headers), height, dtype=np.int64)
            rows = pa.table({"chain": pa.array(headers["chain"]), "height": pa.array(heights)})
            stands = ~undone.hits(rows, "chain") & np.isin(headers["chain"], np.array(sorted(missing)))
            roots = dict(_roots(headers.filter(stands)))
            found += roots.items()
            missing -= roots.keys()
        return digest_roots(found)

    def _reverted(self) -> RevertedRanges:
        logs = [made.logs[REVERTED] for made in self.made.values() if len(made.logs.get(REVERTED, ()))]
        tables = [frame.select(REVERTED_SCHEMA.names).to_table(REVERTED_SCHEMA) for frame in logs]
        return RevertedRanges.of(pa.concat_tables([REVERTED_SCHEMA.empty_table(), *tables]))

    def write(self, lake: Lake, about: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Lake:
        """Write a lake, which must not exist, of all heights; return it. ``about``, ``tables``: as of ``Lake.create``.

        Raises ``LakeError``.
        """
        lake.create(about, tables)
        lake = lake.with_identity()
        before = commit_genesis(InProcessExecutor(self.deployment, lake), lake)
        last = self.line.height
        while before.last < last:
            first = before.last + 1
            until = min(last, first - first % MAX_HEIGHTS + MAX_HEIGHTS)
            heights = range(first, until + 1)
            made = [self.made[height] for height in heights]
            said = [(self.made[height].tick, self.said[height]) for height in heights]
            state = self.deployment.kernel.state(self.frames if until == last else self.commits[until])
            before = commit_written(lake, before, [write_heights(self.deployment, lake, made, said, state)])
        return lake


def _begun(deployment: Deployment) -> _MemoryRounds:
    """Return the rounds of a network at height 0."""
    result = genesis_round(deployment, 0)
    said = height_report(result)
    first = Manifest(-1, (height_line(GENESIS, [said]),))
    made = {GENESIS.height: CommittedHeight.of(GENESIS, [result])}
    rounds = _MemoryRounds(deployment, _NOWHERE, first, {0: result.state}, made)
    rounds.said = [said]
    return rounds


def _roots(headers: Frame) -> list[Root]:
    return [(chain, root.tobytes()) for chain, root in zip(headers["chain"].tolist(), headers["root"], strict=True)]


__all__ = ["MemoryNetwork"]
