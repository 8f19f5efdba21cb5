"""The state of a lake's network at any committed height: at the last one of a commit it is in files; between it is what
executing the heights again gives, from the commit before. What comes out is compared with what was committed."""

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
"""So many heights' states are kept in memory at most; what did not change from one to the next is there once."""

CACHE_BYTES = 256 << 20
"""So many bytes of them, or one state."""

STOP_HEIGHTS = 32
"""Of a long way to a height so many states on it are kept: who looks for one is going to ask for others there."""


def recorded_deployment(
    lake: Lake,
    about: Mapping[str, Any],
    sources: ModuleSources = NOWHERE,
    secrets: Secrets = NONE,
    *,
    unsigned: bool = False,
) -> Deployment:
    """Return the network that a lake says it is of (``about``), to be executed again.

    ``sources``: where programs of one's own come from.
    ``secrets``: the keys that validators of its chains sign with, where they are not drawn from the seed; ``unsigned``:
    they are not needed, since nothing is going to be executed. Those of chains that certify never are: what they
    signed is in the headers of the lake.

    Raises ``InvalidInput`` when a program of the network, or one of several keys, is not found, or when the tables of
    the programs are not those of the lake.
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
    made = recorded_scenario(identity, uri, sources)
    cut = tuple((first, end) for first, end in about["buckets"])
    deployed = deploy_scenario(made, uri, None, 1, cut, secrets, prepared=True)
    require_same_tables(uri, about["tables"], deployed.about["tables"])
    return deployed.deployment


class OtherTables(LakeError):
    """A lake was made with other tables than its scenario has now; ``what``: the first of them, and how it differs."""

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
    """Check that a lake's tables are those of now. What a lake of other tables lacks nobody can tell: executed again or
    continued, it would silently come to something else. Raises ``OtherTables``: it names the first."""
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
    """Return what certifies the chains in the headers of a height, by the chains' positions."""
    rows = [table.select(["chain", "certification"]) for table in lake.log_rows("headers", lake.manifest(height))]
    return {row["chain"]: row["certification"] for table in rows for row in table.to_pylist()}


class MissingKeys(InvalidInput):
    """Validators sign with keys in files, and none are given."""


def require_keys(about: Mapping[str, Any], secrets: Secrets) -> None:
    """Check that there are keys where validators sign with some that are not drawn. Raises ``MissingKeys``."""
    if LISTED in about["scenario"]["options"] and not secrets.seeds:
        raise MissingKeys("--validator-key: missing; the validators of this lake sign with keys in files")


class ReplayBusy(CausewayError):
    """Heights are being executed again, or have had their share of the time: that passes."""


@dataclass(frozen=True)
class ReplayShare:
    """How much of its time a process that has more to do executes heights again for whoever asks.

    ``seconds``: in a row at most, where it has not for long (a height that was begun is finished); ``part``: of all the
    time; ``least``: seconds that must be left to begin.
    """

    seconds: float = 5.0
    part: float = 0.2
    least: float = 1.0


StateFrames = tuple[Mapping[str, Frame], ...]
"""The rows of every state table, of each bucket."""


@dataclass(frozen=True)
class _Kept:
    """A state in memory. ``sizes``: the bytes of each of its columns, by the column's identity."""

    frames: StateFrames
    sizes: Mapping[int, int]


class StateReplay:
    """The states of a lake's network at heights that were asked for; writes nothing. For any number of threads."""

    def __init__(self, lake: Lake, make: Callable[[], Deployment], share: ReplayShare | None = None) -> None:
        """``make``: returns the network; called when something has to be executed or verified for the first time.
        ``share``: of this process's time; without it, all that it takes."""
        self._lake, self._make, self._share = lake, make, share
        self._left, self._at = (0.0 if share is None else share.seconds), time.monotonic()
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._holders: Counter[int] = Counter()
        self._bytes = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._lake, self._make, self._share)

    @cached_property
    def deployment(self) -> Deployment:
        """Return the network."""
        return self._make()

    def states(self, height: int) -> dict[int, Any]:
        """Return the states of all buckets at a height, by bucket.

        Raises ``LakeDamaged``, ``Freed``, ``ReplayDiffers``, what making the network does and, where there is a share
        of the time, ``ReplayBusy``: what was executed by then is kept, so whoever comes again gets further.
        """
        frames, kernel = self.frames(height), self.deployment.kernel
        return {bucket: kernel.state(of_bucket) for bucket, of_bucket in enumerate(frames)}

    def tables(self, height: int, table: str) -> list[pa.Table]:
        """Return the rows of a state table at a height, a table a bucket; raises as ``states`` does."""
        schema = self.deployment.kernel.tables()[table].schema
        return [frames[table].to_table(schema) for frames in self.frames(height)]

    def frames(self, height: int) -> StateFrames:
        """Return the rows of every state table at a height, of each bucket; raises as ``states`` does."""
        if self._share is not None and (kept := self._kept.get(height)) is not None:
            return kept.frames  # it waits for nobody
        with self._turn(height) as end:
            if height in self._kept:
                self._kept.move_to_end(height)
            else:
                if freed := self._lake.freed(height):
                    raise freed
                self._find(self._lake.manifest(height), end)
            return self._kept[height].frames

    @contextmanager
    def _turn(self, height: int) -> Iterator[float]:
        """Let one thread at a time look for a state; yield when its time is over. Raises ``ReplayBusy``."""
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

    def _find(self, commit: Manifest, end: float) -> None:
        """Keep the state at the height that a manifest is looked at from: go on from the nearest one before it.

        Raises ``ReplayBusy`` when the time is over: the state that was reached is kept then.
        """
        height, last = commit.height, commit.first - 1
        if height == commit.last:
            self._keep(height, read_states(self.deployment, self._lake, commit))
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
            over = manifest.height < height and time.monotonic() > end
            if manifest.height == height or over or (manifest.height - before.height) % stops == 0:
                self._keep(manifest.height, {bucket: result.state for bucket, result in enumerate(results)})
            if over:
                raise self._busy(height)

    def _keep(self, height: int, states: Mapping[int, Any]) -> None:
        """Keep the rows of a state, and not the state, which may have more in it that serves the next round only."""
        kept = _kept([state.frames() for _, state in sorted(states.items())])
        self._kept[height] = kept
        self._kept.move_to_end(height)
        for column, size in kept.sizes.items():
            self._bytes += 0 if self._holders[column] else size
            self._holders[column] += 1
        while len(self._kept) > MAX_CACHED or (len(self._kept) > 1 and self._bytes > CACHE_BYTES):
            _, oldest = self._kept.popitem(last=False)
            for column, size in oldest.sizes.items():
                self._holders[column] -= 1
                if not self._holders[column]:
                    del self._holders[column]
                    self._bytes -= size


def _kept(frames: Sequence[Mapping[str, Frame]]) -> _Kept:
    sizes: dict[int, int] = {}
    for of_bucket in frames:
        for frame in of_bucket.values():
            for name in frame.names:
                column = frame[name]  # gathered: several threads may read it
                repeated = isinstance(column, np.ndarray) and column.ndim and column.strides[0] == 0
                sizes[id(column)] = column.itemsize if repeated else column.nbytes
    return _Kept(tuple(frames), sizes)


__all__ = ["ReplayBusy", "ReplayDiffers", "ReplayShare", "StateReplay", "recorded_deployment", "require_keys"]
