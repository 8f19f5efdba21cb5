"""State of a network at any committed height: stored at the end of commits, else replayed.

``StateReplay`` caches states within limits, and may be restricted to a share of the process's time.
``recorded_deployment`` loads the network of a lake for execution.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.core.frame import Frame
from causeway.network.deploy import deploy_scenario
from causeway.programs.user_modules import NOWHERE, ModuleSources
from causeway.protocols.shared.secrets import LISTED, LISTED_CHAINS, NONE, Secrets
from causeway.scenarios.scenario import recorded_scenario
from causeway.storage.lake import Lake, LakeError, Manifest
from causeway.tick.deployment import Deployment
from causeway.tick.rounds import ReplayDiffers, RoundChain, read_states, replay_heights

MAX_CACHED = 64
"""Maximum number of cached states; unchanged columns are shared between them."""

CACHE_BYTES = 256 << 20
"""Maximum bytes of cached states; one is always cached."""

STOP_HEIGHTS = 32
"""Number of states cached on a long replay: the next request is often nearby."""


def recorded_deployment(
    lake: Lake,
    about: Mapping[str, Any],
    sources: ModuleSources = NOWHERE,
    secrets: Secrets = NONE,
    *,
    unsigned: bool = False,
) -> Deployment:
    """Load the network of a lake for execution.

    Certifications of chains that certify headers are read from the lake, so their keys are never needed.

    Args:
        lake: The lake.
        about: Its description.
        sources: Allowed sources of user programs.
        secrets: Validator keys not derived from the seed.
        unsigned: Nothing will be executed, so keys are not needed.

    Raises:
        InvalidInput: A program or one of several keys is missing, or the tables have changed.
    """
    identity = about["scenario"]
    if not unsigned:
        require_keys(about, secrets)
    if LISTED in identity["options"] and not secrets.seeds:
        options = {name: value for name, value in identity["options"].items() if name != LISTED}
        identity = {**identity, "options": options}
    if LISTED_CHAINS in identity["options"]:
        secrets = Secrets(certifications=partial(_certifications, lake))
    uri = lake.storage.uri
    scenario = recorded_scenario(identity, uri, sources)
    buckets = tuple((first, end) for first, end in about["buckets"])
    deployed = deploy_scenario(scenario, uri, None, 1, buckets, secrets, prepared=True)
    require_same_tables(uri, about["tables"], deployed.about["tables"])
    return deployed.deployment


class OtherTables(LakeError):
    """The tables of a lake differ from those of its scenario now.

    ``what`` describes the first difference.
    """

    def __init__(self, uri: str, what: str) -> None:
        super().__init__(
            f"lake: {uri}: {what}: its program may have changed since, or Causeway; it can be read, but neither "
            "continued nor executed again"
        )
        self.what = what
        self._uri = uri

    def __reduce__(self) -> tuple[type[OtherTables], tuple[str, str]]:
        return OtherTables, (self._uri, self.what)


def require_same_tables(uri: str, made: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Check that a lake's tables equal those of its scenario now.

    Executing or continuing a lake with other tables would silently give other results.

    Args:
        uri: Path or URI of the lake.
        made: Tables of the lake.
        now: Tables of the scenario.

    Raises:
        OtherTables: They differ; the text names the first.
    """
    tables = [{item["name"]: item for kind in ("logs", "state") for item in about[kind]} for about in (made, now)]
    changed = [name for name in {**tables[0], **tables[1]} if tables[0].get(name) != tables[1].get(name)]
    if not changed:
        return
    name = changed[0]
    what = f"table {name} has other columns than when the lake was made"
    if name not in tables[0]:
        what = f"it was made without the table {name}"
    elif name not in tables[1]:
        what = f"its table {name} is none any more"
    raise OtherTables(uri, what)


def _certifications(lake: Lake, height: int) -> dict[int, bytes]:
    """Return the certifications in the headers of a height, by chain position."""
    rows = [table.select(["chain", "certification"]) for table in lake.log_rows("headers", lake.manifest(height))]
    return {row["chain"]: row["certification"] for table in rows for row in table.to_pylist()}


class MissingKeys(InvalidInput):
    """Validators sign with keys from files, and none are given."""


def require_keys(about: Mapping[str, Any], secrets: Secrets) -> None:
    """Check that validator keys are given if they are not derived from the seed.

    Args:
        about: Description of the lake.
        secrets: The given keys.

    Raises:
        MissingKeys: They are missing.
    """
    if LISTED in about["scenario"]["options"] and not secrets.seeds:
        raise MissingKeys("--validator-key: missing; the validators of this lake sign with keys in files")


class ReplayBusy(CausewayError):
    """A replay is in progress, or its share of the time is used up; retry later."""


@dataclass(frozen=True)
class ReplayShare:
    """Share of a busy process's time for replays.

    Attributes:
        seconds: Maximum seconds in a row; a height that was begun is finished.
        part: Fraction of all time.
        least: Minimum seconds left to begin a replay.
    """

    seconds: float = 5.0
    part: float = 0.2
    least: float = 1.0


StateFrames = tuple[Mapping[str, Frame], ...]
"""Rows of every state table, for each bucket."""


@dataclass(frozen=True)
class _CachedState:
    """A state in memory. ``sizes``: bytes by identity of the column."""

    frames: StateFrames
    sizes: Mapping[int, int]


class StateReplay:
    """States of a network at requested heights; thread-safe, writes nothing."""

    def __init__(self, lake: Lake, make: Callable[[], Deployment], share: ReplayShare | None = None) -> None:
        """Create an empty cache.

        Args:
            lake: The lake.
            make: Creates the network; called on first use.
            share: Share of this process's time; None: all.
        """
        self._lake, self._make, self._share = lake, make, share
        self._left, self._at = (0.0 if share is None else share.seconds), time.monotonic()
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, _CachedState] = OrderedDict()
        self._holders: Counter[int] = Counter()
        self._bytes = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._lake, self._make, self._share)

    @cached_property
    def deployment(self) -> Deployment:
        """The network."""
        return self._make()

    def states(self, height: int) -> dict[int, Any]:
        """Return the states of all buckets at a height.

        Args:
            height: A committed height.

        Raises:
            LakeDamaged: A file is damaged.
            Freed: A vacuum freed the state.
            ReplayDiffers: Execution differs from the committed heights.
            ReplayBusy: The share of time is used up; progress is cached, so a retry gets further.
        """
        frames, kernel = self.frames(height), self.deployment.kernel
        return {bucket: kernel.state(of_bucket) for bucket, of_bucket in enumerate(frames)}

    def tables(self, height: int, table: str) -> list[pa.Table]:
        """Return the rows of a state table at a height, one table a bucket. Raises as ``states``."""
        schema = self.deployment.kernel.tables()[table].schema
        return [frames[table].to_table(schema) for frames in self.frames(height)]

    def frames(self, height: int) -> StateFrames:
        """Return the rows of every state table at a height, for each bucket. Raises as ``states``."""
        if self._share is not None and (kept := self._kept.get(height)) is not None:
            return kept.frames  # without waiting for the lock
        with self._exclusive(height) as end:
            if height in self._kept:
                self._kept.move_to_end(height)
            else:
                if freed := self._lake.freed(height):
                    raise freed
                self._replay_to(self._lake.manifest(height), end)
            return self._kept[height].frames

    @contextmanager
    def _exclusive(self, height: int) -> Iterator[float]:
        """Let one thread replay at a time; yield its deadline. Raises ``ReplayBusy``."""
        share = self._share
        if share is None:
            with self._lock:
                yield math.inf
            return
        if not self._lock.acquire(blocking=False):
            raise self._busy(height)
        try:
            now = time.monotonic()
            self._left, self._at = min(share.seconds, self._left + share.part * (now - self._at)), now
            if self._left < share.least:
                raise self._busy(height)
            try:
                yield now + self._left
            finally:
                self._left, self._at = self._left - (time.monotonic() - now), time.monotonic()
        finally:
            self._lock.release()

    def _busy(self, height: int) -> ReplayBusy:
        text = "is in no file, and executing heights again has a share of the time only"
        return ReplayBusy(f"height: the state at {height} {text}: come again, or ask for the last height of a commit")

    def _replay_to(self, commit: Manifest, end: float) -> None:
        """Cache the state at the height of a manifest, continuing from the nearest earlier one.

        Raises:
            ReplayBusy: The time is over; the last state is cached.
        """
        height, last = commit.height, commit.first - 1
        if height == commit.last:
            self._cache_state(height, read_states(self.deployment, self._lake, commit))
            return
        start = max((kept for kept in self._kept if last <= kept < height), default=None)
        before = commit.at(start) if start is not None and start > last else self._lake.numbered(commit.number - 1)
        if start is None:
            states = read_states(self.deployment, self._lake, before)
        else:
            kernel = self.deployment.kernel
            states = {bucket: kernel.state(frames) for bucket, frames in enumerate(self._kept[start].frames)}
        stops = -(-(height - before.height) // STOP_HEIGHTS)
        for manifest, results in replay_heights(RoundChain(self.deployment, self._lake, before, states), height):
            is_over = manifest.height < height and time.monotonic() > end
            if manifest.height == height or is_over or (manifest.height - before.height) % stops == 0:
                self._cache_state(manifest.height, {bucket: result.state for bucket, result in enumerate(results)})
            if is_over:
                raise self._busy(height)

    def _cache_state(self, height: int, states: Mapping[int, Any]) -> None:
        """Cache the rows of a state, without data that serves only the next round."""
        entry = _measure_state([state.frames() for _, state in sorted(states.items())])
        self._kept[height] = entry
        self._kept.move_to_end(height)
        for column, size in entry.sizes.items():
            self._bytes += 0 if self._holders[column] else size
            self._holders[column] += 1
        while len(self._kept) > MAX_CACHED or (len(self._kept) > 1 and self._bytes > CACHE_BYTES):
            _, oldest = self._kept.popitem(last=False)
            for column, size in oldest.sizes.items():
                self._holders[column] -= 1
                if not self._holders[column]:
                    del self._holders[column]
                    self._bytes -= size


def _measure_state(frames: Sequence[Mapping[str, Frame]]) -> _CachedState:
    sizes: dict[int, int] = {}
    for of_bucket in frames:
        for frame in of_bucket.values():
            for name in frame.names:
                column = frame[name]  # gather it now: several threads may read it
                repeated = isinstance(column, np.ndarray) and column.ndim and column.strides[0] == 0
                sizes[id(column)] = column.itemsize if repeated else column.nbytes
    return _CachedState(tuple(frames), sizes)


__all__ = ["ReplayBusy", "ReplayDiffers", "ReplayShare", "StateReplay", "recorded_deployment", "require_keys"]
