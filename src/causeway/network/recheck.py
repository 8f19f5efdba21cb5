"""A lake's heights once more: the roots of the state that it holds, and what its ticks give when they are executed
again from what it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame, concat, empty_frame, from_table
from causeway.network.deploy import deploy
from causeway.network.opened import OpenedLake
from causeway.network.scenario import scenario_of
from causeway.pipeline.bucket import FIRST_HEIGHT, begun, executed, moved_state
from causeway.pipeline.lake import Manifest
from causeway.pipeline.reading import Reader, different_chains
from causeway.pipeline.record import brings
from causeway.pipeline.run import tick_after
from causeway.programs.catalogue import ProgramNotFound
from causeway.protocols.contract import HEADERS_SCHEMA, RoundResult
from causeway.protocols.secrets import LISTED, NONE, Secrets

Progress = Callable[[int, int], None]
"""Called with how many heights are done, of how many."""


@dataclass(frozen=True)
class Different:
    """A height that comes out differently when it is executed again: ``chains`` with other roots, by name."""

    height: int
    chains: tuple[str, ...]


class Recheck:
    """Computes again what a lake says of its heights; writes nothing.

    ``scenario``: the file that the lake was made with, for the modules that lie beside it; without it the lake alone
    says what its network is.
    """

    def __init__(self, opened: OpenedLake, scenario: str | None = None, secrets: Secrets = NONE) -> None:
        """``secrets``: the keys that validators of its chains sign with, where they are not drawn from the seed; only
        executing needs them.

        Raises ``InvalidInput`` when a program of the network, or one of several keys, is not found.
        """
        self._opened, self._lake = opened, opened.lake
        identity = opened.about["scenario"]
        self._keyless = LISTED in identity["options"] and not secrets.seeds
        if self._keyless:
            options = {name: value for name, value in identity["options"].items() if name != LISTED}
            identity = {**identity, "options": options}
        made = scenario_of(identity, scenario or opened.lake.storage.uri)
        cut = tuple((first, end) for first, end in opened.about["buckets"])
        try:
            self._deployment = deploy(made, opened.lake.storage.uri, None, 1, cut, secrets, prepared=True).deployment
        except ProgramNotFound as error:
            raise InvalidInput(f"{error}; name the scenario that it lies beside: --scenario FILE") from None

    def roots(self, height: int) -> None:
        """Compute the roots of all chains from the state at a height. Raises ``LakeDamaged``, ``Freed``."""
        manifest = self._lake.manifest(height)
        for bucket in range(len(self._deployment.buckets)):
            self._reader(bucket, manifest).state(bucket, verified=True)

    def execute(self, first: int, last: int, progress: Progress = lambda done, of: None) -> Different | None:
        """Execute heights again, each on top of what the one before it gave; return the first that differs.

        Compared are the headers of all chains and the number of rows of each log table. Raises ``LakeDamaged``;
        ``Freed`` when the state before ``first`` is; ``InvalidInput`` when there are no such heights, or keys are
        missing.
        """
        if self._keyless:
            raise InvalidInput("--validator-key: missing; the validators of this lake sign with keys in files")
        newest = self._opened.last_height()
        if not FIRST_HEIGHT <= first <= last <= newest:
            raise InvalidInput(f"--from {first}, --to {last}: allowed are heights from 0 to {newest}, in this order")
        buckets = range(len(self._deployment.buckets))
        if first == FIRST_HEIGHT:
            results = [begun(self._deployment, bucket) for bucket in buckets]
            found = self._compared(self._lake.manifest(first), results)
            states: dict[int, Any] = {bucket: result.state for bucket, result in zip(buckets, results, strict=True)}
            progress(1, last - first + 1)
            if found is not None:
                return found
        else:
            before = self._lake.manifest(first - 1)
            states = {bucket: self._reader(bucket, before).state(bucket, verified=True) for bucket in buckets}
        for height in range(max(first, FIRST_HEIGHT + 1), last + 1):
            manifest = self._lake.manifest(height)
            results = self._executed(manifest, states)
            if (found := self._compared(manifest, results)) is not None:
                return found
            states = {bucket: result.state for bucket, result in zip(buckets, results, strict=True)}
            progress(height - first + 1, last - first + 1)
        return None

    def _reader(self, bucket: int, before: Manifest, states: dict[int, Any] | None = None) -> Reader:
        return Reader(self._deployment, self._lake, bucket, before, states)

    def _executed(self, manifest: Manifest, states: dict[int, Any]) -> list[RoundResult[Any]]:
        before, traffic = self._lake.manifest(manifest.height - 1), self._deployment.traffic
        outside = self._lake.outside(manifest)
        came = brings(outside) or traffic.next_tick(manifest.tick) == manifest.tick
        tick = tick_after(before, manifest.tick, traffic.next_tick(manifest.tick + 1), came=came)
        results = []
        for bucket in range(len(self._deployment.buckets)):
            reader = self._reader(bucket, before, states)
            moved = moved_state(reader, tick)
            results.append(executed(reader, states[bucket] if moved is None else moved, tick, outside))
        return results

    def _compared(self, manifest: Manifest, results: list[RoundResult[Any]]) -> Different | None:
        rows = [from_table(table.select(HEADERS_SCHEMA.names)) for table in self._lake.log_rows("headers", manifest)]
        committed = concat([empty_frame(HEADERS_SCHEMA), *rows])
        again = concat([empty_frame(HEADERS_SCHEMA), *(result.headers for result in results)])
        chains = different_chains(committed, again)
        chains = np.union1d(chains, np.setdiff1d(again["chain"], committed["chain"]))
        if not len(chains) and _rows(results) != {name: manifest.rows.get(name, 0) for name in _rows(results)}:
            chains = np.unique(again["chain"])
        names = self._deployment.kernel.chains()
        return Different(manifest.height, tuple(names[chain] for chain in chains.tolist())) if len(chains) else None


def _rows(results: list[RoundResult[Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for result in results:
        frames: dict[str, Frame] = {**result.logs, "headers": result.headers, "outbound": result.outbound}
        for name, frame in frames.items():
            found[name] = found.get(name, 0) + len(frame)
    return found
