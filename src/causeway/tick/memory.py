"""Networks in memory, for tests of programs: lake rounds without files until exported.

All chains are one bucket. The outputs of every height stay in memory, so nothing is read back; a network of a few
chains takes about 30 KiB a height. Copies share earlier outputs and diverge from there.
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
"""Number of recent heights with cached states, and spacing of older ones."""

_NOWHERE = Lake.at("memory")
"""Placeholder lake of a network in memory, never read."""


@dataclass
class _MemoryRounds(RoundChain):
    """Rounds with all outputs in memory."""

    def _earlier(self, height: int) -> tuple[int, dict[int, Any]]:
        """Return tick and states of an earlier height; one that is not cached is executed again."""
        found = self.at_hand()
        if height not in found:
            replayed = _genesis_rounds(self.deployment)
            for earlier in range(1, height + 1):
                replayed.run(self.made[earlier].tick, NO_INPUT)
            found = {height: (replayed.line.tick, replayed.states)}
            self.past |= found
        return found[height]

    def _may_be_asked(self, height: int, last: int) -> bool:
        back = max(RECENT_HEIGHTS, self.deployment.kernel.retained_heights)
        return height % RECENT_HEIGHTS == 0 or last - height <= back


@dataclass
class MemoryNetwork:
    """A network in memory.

    Attributes:
        rounds: The rounds so far.
        lines: Summary of each height.
        reports: Report of the bucket for each height.
        commits: State tables at heights that end a commit of an exported lake.
    """

    rounds: RoundChain
    lines: list[HeightLine]
    reports: list[HeightReport]
    commits: dict[int, Mapping[str, Frame]] = field(default_factory=dict)

    @classmethod
    def create(cls, deployment: Deployment) -> MemoryNetwork:
        """Create a network at height 0 from a deployment with one bucket."""
        rounds = _genesis_rounds(deployment)
        return cls(rounds, [rounds.line], [rounds.reports[0]])

    @property
    def deployment(self) -> Deployment:
        """The deployment that runs the network."""
        return self.rounds.deployment

    @property
    def line(self) -> HeightLine:
        """Summary of the last height."""
        return self.rounds.line

    @property
    def made(self) -> Mapping[int, CommittedHeight]:
        """Outputs by height."""
        return self.rounds.made

    @property
    def frames(self) -> Mapping[str, Frame]:
        """Rows of every state table at the last height."""
        found: Mapping[str, Frame] = self.rounds.states[0].frames()
        return found

    def run(self, tick: int) -> CommittedHeight:
        """Run a tick above the last one; return its outputs.

        An exception leaves the network unchanged.
        """
        rounds = self.rounds
        try:
            rounds.run(next_height_tick(rounds.line, tick, self.deployment.traffic), NO_INPUT)
        except BaseException:
            rounds.states = self._own_states()  # derived data may be half updated
            raise
        self.lines.append(rounds.line)
        self.reports.append(rounds.reports[0])
        if rounds.line.height % MAX_HEIGHTS == 0:
            self.commits[rounds.line.height] = self.frames
        return rounds.made[rounds.line.height]

    def change(self, deployment: Deployment) -> None:
        """Use another deployment of the same chains from now on."""
        self.rounds.deployment = deployment

    def _own_states(self) -> dict[int, Any]:
        """Return the states at the last height without derived data, which is updated in place."""
        kernel = self.deployment.kernel
        return {bucket: kernel.state(state.frames()) for bucket, state in self.rounds.states.items()}

    def copy(self) -> MemoryNetwork:
        """Return an independent copy."""
        made, past, held = dict(self.rounds.made), dict(self.rounds.past), self.rounds.held
        before, states = self.rounds.before, self._own_states()
        rounds = _MemoryRounds(self.deployment, _NOWHERE, before, states, made, past, held, self.rounds.reports)
        rounds.committed = self.rounds.committed
        return MemoryNetwork(rounds, list(self.lines), list(self.reports), dict(self.commits))

    def root(self) -> str:
        """Return a digest of the last roots of all chains, as ``network_root`` does for a lake."""
        last = self.line.height
        found = list(_roots(self.made[last].headers))
        missing = {chain for chain, _ in _roots(self.made[0].headers)} - {chain for chain, _ in found}
        reverted = self._reverted()
        for height in range(last - 1, -1, -1):
            if not missing:
                break
            headers = self.made[height].headers
            heights = np.full(len(headers), height, dtype=np.int64)
            rows = pa.table({"chain": pa.array(headers["chain"]), "height": pa.array(heights)})
            stands = ~reverted.hits(rows, "chain") & np.isin(headers["chain"], np.array(sorted(missing)))
            roots = dict(_roots(headers.filter(stands)))
            found += roots.items()
            missing -= roots.keys()
        return digest_roots(found)

    def _reverted(self) -> RevertedRanges:
        logs = [made.logs[REVERTED] for made in self.made.values() if len(made.logs.get(REVERTED, ()))]
        tables = [frame.select(REVERTED_SCHEMA.names).to_table(REVERTED_SCHEMA) for frame in logs]
        return RevertedRanges.of(pa.concat_tables([REVERTED_SCHEMA.empty_table(), *tables]))

    def write(self, lake: Lake, about: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Lake:
        """Write a new lake of all heights and return it.

        Args:
            lake: The lake; it must not exist.
            about: As in ``Lake.create``.
            tables: As in ``Lake.create``.

        Raises:
            LakeError: The lake exists, or cannot be written.
        """
        lake.create(about, tables)
        lake = lake.with_identity()
        before = commit_genesis(InProcessExecutor(self.deployment, lake), lake)
        last = self.line.height
        while before.last < last:
            first = before.last + 1
            until = min(last, first - first % MAX_HEIGHTS + MAX_HEIGHTS)
            heights = range(first, until + 1)
            outputs = [self.made[height] for height in heights]
            reports = [(self.made[height].tick, self.reports[height]) for height in heights]
            state = self.deployment.kernel.state(self.frames if until == last else self.commits[until])
            before = commit_written(lake, before, [write_heights(self.deployment, lake, outputs, reports, state)])
        return lake


def _genesis_rounds(deployment: Deployment) -> _MemoryRounds:
    """Return the rounds of a network at height 0."""
    result = genesis_round(deployment, 0)
    report = height_report(result)
    first = Manifest(-1, (height_line(GENESIS, [report]),))
    outputs = {GENESIS.height: CommittedHeight.of(GENESIS, [result])}
    rounds = _MemoryRounds(deployment, _NOWHERE, first, {0: result.state}, outputs)
    rounds.reports = [report]
    return rounds


def _roots(headers: Frame) -> list[Root]:
    return [(chain, root.tobytes()) for chain, root in zip(headers["chain"].tolist(), headers["root"], strict=True)]


__all__ = ["MemoryNetwork"]
