"""A lake's heights once more: the roots of the state that it holds, and what its ticks give when they are executed
again from what it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame, concat, empty_frame, from_table
from causeway.network.deploy import deploy
from causeway.network.opened import OpenedLake
from causeway.network.scenario import scenario_of
from causeway.pipeline.heights import FIRST_HEIGHT
from causeway.pipeline.lake import Manifest, at_height
from causeway.pipeline.reading import different_chains
from causeway.pipeline.rounds import Rounds, begun, replay, replayed, states_of
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
        self._read: tuple[int, list[pa.Table]] = (-1, [])
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

    def roots(self, number: int) -> None:
        """Compute the roots of all chains from the state that the manifest of a number has, which is that of its last
        height. Raises ``LakeDamaged``, ``Freed``."""
        states_of(self._deployment, self._lake, self._lake.numbered(number))

    def states(self, height: int) -> dict[int, Any]:
        """Return the states of all buckets at a height. Raises ``LakeDamaged``, ``Freed``; ``InvalidInput`` where keys
        are missing."""
        manifest = self._lake.manifest(height)
        if manifest.height < manifest.last:
            self._need_keys()
        return replayed(self._deployment, self._lake, manifest)

    def tables(self, height: int) -> dict[str, list[pa.Table]]:
        """Return the rows of every state table at a height, a table a bucket; raises as ``states`` does."""
        states = self.states(height)
        tables = self._deployment.kernel.tables()
        frames = {name: [state.frames()[name] for _, state in sorted(states.items())] for name in tables}
        return {name: [frame.to_table(tables[name].schema) for frame in of] for name, of in frames.items()}

    def _need_keys(self) -> None:
        if self._keyless:
            raise InvalidInput("--validator-key: missing; the validators of this lake sign with keys in files")

    def execute(self, first: int, last: int, progress: Progress = lambda done, of: None) -> Different | None:
        """Execute heights again, each on top of what the one before it gave; return the first that differs.

        Compared are the headers of all chains and the number of rows of each log table. Raises ``LakeDamaged``;
        ``Freed`` when the state before ``first`` is; ``InvalidInput`` when there are no such heights, or keys are
        missing.
        """
        self._need_keys()
        newest = self._opened.last_height()
        if not FIRST_HEIGHT <= first <= last <= newest:
            raise InvalidInput(f"--from {first}, --to {last}: allowed are heights from 0 to {newest}, in this order")
        if first == FIRST_HEIGHT:
            buckets = range(len(self._deployment.buckets))
            made = [begun(self._deployment, bucket) for bucket in buckets]
            before = self._lake.manifest(first)
            found = self._compared(before, made)
            states: dict[int, Any] = {bucket: result.state for bucket, result in zip(buckets, made, strict=True)}
            progress(1, last - first + 1)
            if found is not None:
                return found
        else:
            before = self._lake.manifest(first - 1)
            states = self.states(first - 1)
        for manifest, results in replay(Rounds(self._deployment, self._lake, before, states), last):
            if (found := self._compared(manifest, results)) is not None:
                return found
            progress(manifest.height - first + 1, last - first + 1)
        return None

    def _compared(self, manifest: Manifest, results: Sequence[RoundResult[Any]]) -> Different | None:
        committed = concat([empty_frame(HEADERS_SCHEMA), *self._headers(manifest)])
        again = concat([empty_frame(HEADERS_SCHEMA), *(result.headers for result in results)])
        chains = different_chains(committed, again)
        chains = np.union1d(chains, np.setdiff1d(again["chain"], committed["chain"]))
        if not len(chains) and _rows(results) != {name: manifest.rows.get(name, 0) for name in _rows(results)}:
            chains = np.unique(again["chain"])
        names = self._deployment.kernel.chains()
        return Different(manifest.height, tuple(names[chain] for chain in chains.tolist())) if len(chains) else None

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
