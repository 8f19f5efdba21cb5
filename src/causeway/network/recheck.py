"""A lake's heights once more: the roots of the state that it holds, and what its ticks give when they are executed
again from what it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.network.opened import OpenedLake
from causeway.network.replayed import Replayed, deployment_of, require_keys
from causeway.pipeline.heights import FIRST_HEIGHT
from causeway.pipeline.rounds import Committed, ReplayDiffers, Rounds, begun, replay, states_of
from causeway.protocols.secrets import NONE, Secrets

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
        self._secrets = secrets
        self._deployment = deployment_of(self._lake, opened.about, scenario, secrets, unsigned=True)

    def roots(self, number: int) -> None:
        """Compute the roots of all chains from the state that the manifest of a number has, which is that of its last
        height. Raises ``LakeDamaged``, ``Freed``."""
        states_of(self._deployment, self._lake, self._lake.numbered(number))

    def execute(self, first: int, last: int, progress: Progress = lambda done, of: None) -> Different | None:
        """Execute heights again, each on top of what the one before it gave; return the first that differs.

        Compared are the headers of all chains and the number of rows of each log table. Where the state before
        ``first`` is in no file, the heights since the last one that is are executed, too. Raises ``LakeDamaged``;
        ``Freed`` when the state before ``first`` is; ``InvalidInput`` when there are no such heights, or keys are
        missing.
        """
        require_keys(self._opened.about, self._secrets)
        newest = self._opened.last_height()
        if not FIRST_HEIGHT <= first <= last <= newest:
            raise InvalidInput(f"--from {first}, --to {last}: allowed are heights from 0 to {newest}, in this order")
        try:
            self._execute(first, last, progress)
        except ReplayDiffers as error:
            return Different(error.height, error.chains)
        return None

    def _execute(self, first: int, last: int, progress: Progress) -> None:
        deployment = self._deployment
        if first == FIRST_HEIGHT:
            before = self._lake.manifest(first)
            made = [begun(deployment, bucket) for bucket in range(len(deployment.buckets))]
            states: dict[int, Any] = {bucket: result.state for bucket, result in enumerate(made)}
            progress(1, last - first + 1)
            Committed(self._lake, deployment).compare(before, made)
        else:
            before = self._lake.manifest(first - 1)
            states = Replayed(self._lake, lambda: deployment).states(first - 1)
        for manifest, _ in replay(Rounds(deployment, self._lake, before, states), last):
            progress(manifest.height - first + 1, last - first + 1)


__all__ = ["Different", "Recheck"]
