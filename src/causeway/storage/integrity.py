"""Verifying a whole lake: the chain of manifests and of compactions, the seal of every file, what is missing, and what
lies there that nothing names."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from causeway.storage.commit_log import decoded, numbers_in
from causeway.storage.compaction import bind_volume
from causeway.storage.external_input import INPUT_FOLDER as RECORD
from causeway.storage.files import Storage
from causeway.storage.lake import Freed, Lake, LakeDamaged, Manifest
from causeway.storage.layout import (
    COMPACTED,
    HEAD_FILE,
    HEIGHTS,
    LAKE_FILE,
    MANIFESTS,
    RESULTS,
    RUN,
    TRAFFIC,
    TRAFFIC_MANIFEST,
    VOLUME,
    CompactionRun,
    compaction_path,
    height_folder,
    manifest_path,
    volume_path,
)
from causeway.storage.object_store import io_threads
from causeway.storage.paths import confine_path
from causeway.storage.seals import MISSING, FileDamaged, Seal, parse_seal
from causeway.storage.table_schemas import TableSchemas
from causeway.storage.vacuum_log import VACUUM_FOLDER as VACUUMED
from causeway.storage.vacuum_log import VacuumRecord, read_vacuums
from causeway.storage.writer_claim import CLAIM_FILE

_NUMBER = re.compile(r"\d{10,}")
"""The height or tick in the name of a file."""

NEVER_WRITTEN = 1 << 62
"""No height that is committed needs the file; a run that goes on may."""

FILES_AT_ONCE = 64
"""Files that are read between two reports of progress."""

BATCH = 1 << 14
"""Rows of a file in memory at a time."""

MAX_MISSING = 10_000
"""Manifests in a row that are listed as missing, where the head does not say how many there are."""

CheckProgress = Callable[[int, int], None]
"""Called with how many files are verified, of how many."""


@dataclass(frozen=True)
class LakeCheck:
    """What a check found: ``damaged`` files, ascending by the height that they hurt first; ``strays``, files that
    nothing names; and what was looked at."""

    heights: int
    files: int
    bytes: int
    freed: int
    damaged: tuple[LakeDamaged, ...] = ()
    strays: tuple[str, ...] = ()


@dataclass
class _Expected:
    """The files that a lake should have: ``seals``, and the first height that needs each; ``optional``: those that may
    be gone, because a compaction replaced them or a vacuum took them; ``logs``: the table of each file of a log;
    ``known``: small files; ``unread``: the folders of heights whose manifests are damaged."""

    seals: dict[str, Seal] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    logs: dict[str, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    last: int = -1
    unread: set[str] = field(default_factory=set)

    def add(self, path: str, seal: Seal, height: int, *, optional: bool) -> bool:
        """Take a file; return whether it is sealed as it was before."""
        self.first.setdefault(path, height)
        (self.optional if optional else self.needed).add(path)
        return tuple(self.seals.setdefault(path, seal)) == tuple(seal)


def verify_lake(lake: Lake, progress: CheckProgress = lambda done, of: None) -> LakeCheck:
    """Verify a lake, which may be being written: all up to the last height that is committed when it begins.

    Raises ``LakeError`` when there is no lake or it is of another version, or its place cannot be reached.
    """
    damaged: list[LakeDamaged] = []
    expected = _Expected(known={LAKE_FILE, HEAD_FILE, CLAIM_FILE})
    about = lake.about()
    for path, seal in about["files"].items():
        expected.add(path, parse_seal(seal), NEVER_WRITTEN if path == TRAFFIC_MANIFEST else 0, optional=False)
    _traffic(lake, damaged, expected)
    last = _last(lake, damaged)
    taken = _vacuums(lake, damaged, expected)
    runs = _compactions(lake, last, damaged, expected)
    height, tick, freed = _manifests(lake, last, runs, taken, damaged, expected)
    expected.last = height
    done = there = bytes_read = 0
    paths, schemas = sorted(expected.seals), TableSchemas.decoded(about["tables"]).logs
    for start in range(0, len(paths), FILES_AT_ONCE):
        batch = paths[start : start + FILES_AT_ONCE]
        found = list(io_threads(os.getpid()).map(lambda path: _verified(lake, path, expected, schemas), batch))
        damaged += [error for error, _ in found if error is not None]
        there += sum(is_there for _, is_there in found)
        bytes_read += sum(expected.seals[path][0] for path, (_, is_there) in zip(batch, found, strict=True) if is_there)
        done += len(batch)
        progress(done, len(paths))
    compacted = runs[-1].last if runs else -1
    limits = {HEIGHTS: height, MANIFESTS: last, COMPACTED: compacted, RECORD: tick}
    strays = sorted(path for path in lake.storage.walk() if not _is_known(path, expected, limits))
    # What says how far the lake goes meets the same damage as who looks at each height.
    damaged = list({(error.path, error.what): error for error in damaged}.values())
    damaged.sort(key=lambda error: (error.whole, error.path))
    return LakeCheck(height + 1, there, bytes_read, freed, tuple(damaged), tuple(strays))


def _traffic(lake: Lake, damaged: list[LakeDamaged], expected: _Expected) -> None:
    """Expect what the manifest of recorded traffic names, where it is what it was (it is sealed itself)."""
    try:
        named = decoded(lake.storage.read_bytes(TRAFFIC_MANIFEST))["files"]
    except (FileNotFoundError, ValueError):
        return
    for name, seal in named.items():
        try:
            expected.add(confine_path(f"{TRAFFIC}/{name}"), parse_seal(seal), NEVER_WRITTEN, optional=False)
        except ValueError as error:
            damaged.append(lake.damaged(TRAFFIC_MANIFEST, f"names a file that it cannot have: {error}"))


def _last(lake: Lake, damaged: list[LakeDamaged]) -> int:
    """Return the number of the last manifest, by ``head`` or, where that is damaged, by the manifests there are."""
    try:
        newest = lake.newest()
        return -1 if newest is None else newest.number
    except LakeDamaged as error:
        damaged.append(error)
    last = -1
    for number in lake.manifests.numbers():
        if number - last > MAX_MISSING:
            break
        last = number
    return last


def _vacuums(lake: Lake, damaged: list[LakeDamaged], expected: _Expected) -> list[VacuumRecord]:
    expected.known |= {f"{VACUUMED}/{name}" for name in lake.storage.list(VACUUMED)}
    try:
        return read_vacuums(lake.storage)
    except FileDamaged as error:
        damaged.append(lake.damaged(error.path, error.what))
        return []


def _compactions(lake: Lake, last: int, damaged: list[LakeDamaged], expected: _Expected) -> list[CompactionRun]:
    try:
        runs = lake.compactions() if last >= 0 else []
    except LakeDamaged as error:
        damaged.append(error)
        runs = []
        # What comes before the damage, and behind it, still says which files there are.
        for first in numbers_in(lake.storage, COMPACTED):
            with contextlib.suppress(LakeDamaged):
                run = lake.compaction(first) if first <= last else None
                runs += [run] if run is not None else []
    for run in runs:
        expected.known.add(compaction_path(run.first))
        expected.logs |= {path: table for table, paths in run.log.items() for path in paths}
        for path, seal in run.files.items():
            if not expected.add(path, seal, run.height, optional=False):
                damaged.append(lake.damaged(compaction_path(run.first), f"seals {path} differently"))
    _volume(lake, runs, last, damaged, expected)
    return runs


def _volume(lake: Lake, runs: list[CompactionRun], last: int, damaged: list[LakeDamaged], expected: _Expected) -> None:
    """Compare the records that were written together with each by itself."""
    many = RUN * VOLUME
    there = {f"{COMPACTED}/{name}" for name in lake.storage.list(COMPACTED)}
    for until in range(many, min(runs[-1].last, last) + 2 if runs else 0, many):
        path, wanted = volume_path(until - 1), bind_volume([run for run in runs if run.last < until])
        # The one before is removed after it was written, which a kill may prevent; the last is written after the record
        # that it ends with, and before the next.
        if path not in there:
            if until + RUN <= runs[-1].last + 1 < until + many:
                damaged.append(lake.damaged(path, MISSING, -1))
            continue
        expected.known.add(path)
        try:
            volume = lake.volume(until - 1)
        except LakeDamaged as error:
            damaged.append(error)
            continue
        if volume is not None and volume.content() != wanted.content():
            damaged.append(lake.damaged(path, "is not what the records of compactions say", -1))


def _manifests(
    lake: Lake,
    last: int,
    runs: list[CompactionRun],
    taken: list[VacuumRecord],
    damaged: list[LakeDamaged],
    to: _Expected,
) -> tuple[int, int, int]:
    """Expect what the manifests name; return the last height and the last tick that they have, and of how many heights
    the state was freed."""
    covered = {number: run for run in runs for number in range(run.first, min(run.last, last) + 1)}
    before: Manifest | None = None
    epoch, height, tick, freed = 0, -1, -1, 0
    with contextlib.suppress(LakeDamaged):
        tidying = last + 1
        tidying = lake.head().tidying
    for number in range(last + 1):
        path = manifest_path(number)
        to.known.add(path)
        try:
            *_, manifest = lake.chain(number, number)
        except LakeDamaged as error:
            if (error.path, error.what) not in [(other.path, other.what) for other in damaged]:
                damaged.append(error)
            before = None
            to.unread.add(height_folder(error.whole + 1))
            continue
        follows = before is None or (manifest.parent, manifest.first) == (before.digest, before.last + 1)
        if before is not None and not follows:
            damaged.append(lake.damaged(path, "does not follow on the manifest before it", before.last))
        if manifest.epoch < epoch:
            text = f"is of epoch {manifest.epoch}, after one of epoch {epoch}"
            damaged.append(lake.damaged(path, text, manifest.first - 1))
        # Heights of this commit that are kept need the state that it began with.
        kept = before is not None and follows and range(before.last, manifest.last)
        if before is not None and kept and not all(_frees(taken, number) for number in kept):
            for file in before.state_files():
                to.add(file, before.files[file], before.first, optional=False)
        before, epoch, height, tick = manifest, max(epoch, manifest.epoch), manifest.last, manifest.tick
        freed += sum(_frees(taken, line.height) for line in manifest.lines)
        run = covered.get(number) if number < tidying else None
        to.logs |= {file: table for table, files in manifest.log.items() for file in files.values()}
        for file, needed in _named(manifest, run, freed=_frees(taken, manifest.last)):
            if not to.add(file, manifest.files[file], manifest.first, optional=not needed):
                damaged.append(lake.damaged(path, f"seals {file} differently", manifest.first - 1))
    return height, tick, freed


def _named(manifest: Manifest, run: CompactionRun | None, *, freed: bool) -> Iterator[tuple[str, bool]]:
    """Yield the files that a manifest names, and whether they have to be there."""
    for path in manifest.state_files():
        yield path, not freed
    for files in manifest.log.values():
        for path in files.values():
            yield path, run is None or path in run.files
    for path in manifest.outside.values():
        yield path, True
    for path in manifest.exchanged():
        yield path, run is None


def _frees(taken: list[VacuumRecord], height: int) -> bool:
    return any(one.covers_height(height) for one in taken)


def _verified(
    lake: Lake, path: str, expected: _Expected, schemas: Mapping[str, pa.Schema]
) -> tuple[LakeDamaged | None, bool]:
    """Return what is wrong with a file, and whether it is there."""
    first = expected.first[path]
    whole = expected.last if first == NEVER_WRITTEN else first - 1
    try:
        with lake.reading(path, whole):
            _verify(lake.storage, path, expected.seals[path], schemas.get(expected.logs.get(path, "")))
    except Freed:
        return (lake.damaged(path, MISSING, whole) if path in expected.needed else None), False
    except LakeDamaged as error:
        missing = error.what == MISSING
        return (None if missing and path not in expected.needed else error), not missing
    return None, True


def _verify(storage: Storage, path: str, seal: Seal, schema: pa.Schema | None) -> None:
    """Compare a file with its seal, and read that of a log, of which ``schema`` is, to its end: states are read where
    their roots are made again. Raises ``FileDamaged``."""
    if not path.endswith(".parquet"):
        storage.verify(path, seal)
        return
    with storage.open_parquet(path, seal, whole=True) as file:
        if schema is not None:
            file.require(schema)
            for _ in file.iter_batches(BATCH, use_threads=False):
                pass


def _is_known(path: str, expected: _Expected, limits: Mapping[str, int]) -> bool:
    """Return whether something names a file, or may yet: beyond the ``limits`` of its folder is what was being
    made."""
    if path in expected.seals or path in expected.known or path.rpartition("/")[0] in expected.unread:
        return True
    folder, _, inside = path.partition("/")
    name = path.rpartition("/")[2]
    if folder == RESULTS == path.rpartition("/")[0]:
        # What a simulation found follows from the log tables, and is written again by whoever resumes it.
        return not name.endswith(".tmp")
    number = _NUMBER.match(name) or _NUMBER.search(inside)
    return number is not None and not name.endswith(".tmp") and int(number[0]) > limits.get(folder, int(number[0]))


def count_strays(strays: Iterable[str]) -> Mapping[str, int]:
    """Return how many stray files there are by folder."""
    found: dict[str, int] = {}
    for path in strays:
        folder = path.rpartition("/")[0] or "."
        found[folder] = found.get(folder, 0) + 1
    return found
