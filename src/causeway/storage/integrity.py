"""Integrity check of a lake: manifest and compaction chains, seals, missing and stray files.

The check first collects the files that the lake should have, with their seals, then verifies each, then walks the
folder for files that nothing names. A lake may be written meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from causeway.storage.commit_log import decoded, numbers_in
from causeway.storage.compaction import bind_volume
from causeway.storage.files import Storage
from causeway.storage.lake import Freed, Lake, LakeDamaged, Manifest
from causeway.storage.layout import (
    COMPACTED,
    HEAD_FILE,
    HEIGHTS,
    LAKE_FILE,
    MANIFESTS,
    RECORD,
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
from causeway.storage.seals import MISSING, FileDamaged, Seal, confine_path, parse_seal
from causeway.storage.table_schemas import TableSchemas
from causeway.storage.vacuum_log import VACUUM_FOLDER as VACUUMED
from causeway.storage.vacuum_log import VacuumRecord, read_vacuums
from causeway.storage.writer_claim import CLAIM_FILE

_NUMBER = re.compile(r"\d{10,}")
"""Height or tick in a file name."""

NEVER_WRITTEN = 1 << 62
"""First height that needs a file required only to continue a run."""

FILES_AT_ONCE = 64
"""Number of files verified between two progress reports."""

BATCH = 1 << 14
"""Number of rows of a file in memory."""

MAX_MISSING = 10_000
"""Maximum number of consecutive missing manifests listed when the head is damaged."""

CheckProgress = Callable[[int, int], None]
"""Callback with the number of verified files and their total."""


@dataclass(frozen=True)
class LakeCheck:
    """The result of an integrity check.

    Attributes:
        heights: Number of heights.
        files: Number of files present.
        bytes: Their size.
        freed: Number of heights with a freed state.
        damaged: Damaged files, by the first height affected.
        strays: Files that nothing names.
    """

    heights: int
    files: int
    bytes: int
    freed: int
    damaged: tuple[LakeDamaged, ...] = ()
    strays: tuple[str, ...] = ()


@dataclass
class _Expected:
    """The files that a lake should have.

    Attributes:
        seals: Seal by file.
        first: First height that needs each file.
        optional: Files that a compaction or vacuum may have removed.
        needed: Files that must exist.
        logs: Table of each log file.
        known: Small files without a seal.
        last: Last height.
        unread: Folders of heights whose manifests are damaged.
    """

    seals: dict[str, Seal] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    logs: dict[str, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    last: int = -1
    unread: set[str] = field(default_factory=set)

    def add(self, path: str, seal: Seal, height: int, *, optional: bool) -> bool:
        """Add a file; return False if it was added with another seal."""
        self.first.setdefault(path, height)
        (self.optional if optional else self.needed).add(path)
        return tuple(self.seals.setdefault(path, seal)) == tuple(seal)


def verify_lake(lake: Lake, progress: CheckProgress = lambda done, of: None) -> LakeCheck:
    """Verify a lake up to the last height committed at the start of the check.

    Args:
        lake: The lake; it may be written meanwhile.
        progress: Called with the number of verified files and their total.

    Raises:
        LakeError: There is no lake, it has another format, or its place cannot be reached.
    """
    damaged: list[LakeDamaged] = []
    expected = _Expected(known={LAKE_FILE, HEAD_FILE, CLAIM_FILE})
    about = lake.about()
    for path, seal in about["files"].items():
        expected.add(path, parse_seal(seal), NEVER_WRITTEN if path == TRAFFIC_MANIFEST else 0, optional=False)
    _expect_traffic(lake, damaged, expected)
    last = _find_last(lake, damaged)
    vacuums = _read_vacuums(lake, damaged, expected)
    runs = _expect_compactions(lake, last, damaged, expected)
    height, tick, freed = _expect_manifests(lake, last, runs, vacuums, damaged, expected)
    expected.last = height
    done = present = bytes_read = 0
    paths, schemas = sorted(expected.seals), TableSchemas.decoded(about["tables"]).logs
    for start in range(0, len(paths), FILES_AT_ONCE):
        batch = paths[start : start + FILES_AT_ONCE]
        found = list(io_threads(os.getpid()).map(lambda path: _verify_file(lake, path, expected, schemas), batch))
        damaged += [error for error, _ in found if error is not None]
        present += sum(is_there for _, is_there in found)
        bytes_read += sum(expected.seals[path][0] for path, (_, is_there) in zip(batch, found, strict=True) if is_there)
        done += len(batch)
        progress(done, len(paths))
    compacted = runs[-1].last if runs else -1
    limits = {HEIGHTS: height, MANIFESTS: last, COMPACTED: compacted, RECORD: tick}
    strays = sorted(path for path in lake.storage.walk() if not _is_known(path, expected, limits))
    # Finding the last height and reading each manifest may report the same damage.
    damaged = list({(error.path, error.what): error for error in damaged}.values())
    damaged.sort(key=lambda error: (error.whole, error.path))
    return LakeCheck(height + 1, present, bytes_read, freed, tuple(damaged), tuple(strays))


def _expect_traffic(lake: Lake, damaged: list[LakeDamaged], expected: _Expected) -> None:
    """Expect the files in the manifest of recorded traffic; the manifest itself is sealed."""
    try:
        named = decoded(lake.storage.read_bytes(TRAFFIC_MANIFEST))["files"]
    except (FileNotFoundError, ValueError):
        return
    for name, seal in named.items():
        try:
            expected.add(confine_path(f"{TRAFFIC}/{name}"), parse_seal(seal), NEVER_WRITTEN, optional=False)
        except ValueError as error:
            damaged.append(lake.damaged(TRAFFIC_MANIFEST, f"names a file that it cannot have: {error}"))


def _find_last(lake: Lake, damaged: list[LakeDamaged]) -> int:
    """Return the number of the last manifest, from the head or else from the manifest files."""
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


def _read_vacuums(lake: Lake, damaged: list[LakeDamaged], expected: _Expected) -> list[VacuumRecord]:
    expected.known |= {f"{VACUUMED}/{name}" for name in lake.storage.list(VACUUMED)}
    try:
        return read_vacuums(lake.storage)
    except FileDamaged as error:
        damaged.append(lake.damaged(error.path, error.what))
        return []


def _expect_compactions(lake: Lake, last: int, damaged: list[LakeDamaged], expected: _Expected) -> list[CompactionRun]:
    try:
        runs = lake.compactions() if last >= 0 else []
    except LakeDamaged as error:
        damaged.append(error)
        runs = []
        # Records before and after the damage still name their files.
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
    _check_volumes(lake, runs, last, damaged, expected)
    return runs


def _check_volumes(
    lake: Lake, runs: list[CompactionRun], last: int, damaged: list[LakeDamaged], expected: _Expected
) -> None:
    """Compare merged compaction records with the single ones."""
    many = RUN * VOLUME
    present = {f"{COMPACTED}/{name}" for name in lake.storage.list(COMPACTED)}
    for until in range(many, min(runs[-1].last, last) + 2 if runs else 0, many):
        path, wanted = volume_path(until - 1), bind_volume([run for run in runs if run.last < until])
        # A volume replaces its predecessor, which a killed run may leave behind. The last volume is written after the
        # record that it ends with, and before the next one.
        if path not in present:
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
            damaged.append(lake.damaged(path, "differs from the records of compactions", -1))


def _expect_manifests(
    lake: Lake,
    last: int,
    runs: list[CompactionRun],
    vacuums: list[VacuumRecord],
    damaged: list[LakeDamaged],
    expected: _Expected,
) -> tuple[int, int, int]:
    """Expect the files of all manifests; return last height, last tick, number of freed heights."""
    covered = {number: run for run in runs for number in range(run.first, min(run.last, last) + 1)}
    before: Manifest | None = None
    epoch, height, tick, freed = 0, -1, -1, 0
    with contextlib.suppress(LakeDamaged):
        tidying = last + 1
        tidying = lake.head().tidying
    for number in range(last + 1):
        path = manifest_path(number)
        expected.known.add(path)
        try:
            *_, manifest = lake.chain(number, number)
        except LakeDamaged as error:
            if (error.path, error.what) not in [(other.path, other.what) for other in damaged]:
                damaged.append(error)
            before = None
            expected.unread.add(height_folder(error.whole + 1))
            continue
        follows = before is None or (manifest.parent, manifest.first) == (before.digest, before.last + 1)
        if before is not None and not follows:
            damaged.append(lake.damaged(path, "does not follow on the manifest before it", before.last))
        if manifest.epoch < epoch:
            text = f"is of epoch {manifest.epoch}, after one of epoch {epoch}"
            damaged.append(lake.damaged(path, text, manifest.first - 1))
        # Heights of this commit that were not freed need its initial state.
        heights = before is not None and follows and range(before.last, manifest.last)
        if before is not None and heights and not all(_is_freed(vacuums, number) for number in heights):
            for file in before.state_files():
                expected.add(file, before.files[file], before.first, optional=False)
        before, epoch, height, tick = manifest, max(epoch, manifest.epoch), manifest.last, manifest.tick
        freed += sum(_is_freed(vacuums, line.height) for line in manifest.lines)
        run = covered.get(number) if number < tidying else None
        expected.logs |= {file: table for table, files in manifest.log.items() for file in files.values()}
        for file, needed in _list_files(manifest, run, freed=_is_freed(vacuums, manifest.last)):
            if not expected.add(file, manifest.files[file], manifest.first, optional=not needed):
                damaged.append(lake.damaged(path, f"seals {file} differently", manifest.first - 1))
    return height, tick, freed


def _list_files(manifest: Manifest, run: CompactionRun | None, *, freed: bool) -> Iterator[tuple[str, bool]]:
    """Yield the files that a manifest names, each with True if it must exist."""
    for path in manifest.state_files():
        yield path, not freed
    for files in manifest.log.values():
        for path in files.values():
            yield path, run is None or path in run.files
    for path in manifest.outside.values():
        yield path, True
    for path in manifest.exchanged():
        yield path, run is None


def _is_freed(vacuums: list[VacuumRecord], height: int) -> bool:
    return any(one.covers_height(height) for one in vacuums)


def _verify_file(
    lake: Lake, path: str, expected: _Expected, schemas: Mapping[str, pa.Schema]
) -> tuple[LakeDamaged | None, bool]:
    """Verify a file; return its damage or None, and True if it exists."""
    first = expected.first[path]
    whole = expected.last if first == NEVER_WRITTEN else first - 1
    try:
        with lake.reading(path, whole):
            _verify_content(lake.storage, path, expected.seals[path], schemas.get(expected.logs.get(path, "")))
    except Freed:
        return (lake.damaged(path, MISSING, whole) if path in expected.needed else None), False
    except LakeDamaged as error:
        missing = error.what == MISSING
        return (None if missing and path not in expected.needed else error), not missing
    return None, True


def _verify_content(storage: Storage, path: str, seal: Seal, schema: pa.Schema | None) -> None:
    """Compare a file with its seal, and read a log file to its end. Raises ``FileDamaged``.

    States are read where their roots are recomputed, so they are not decoded here.
    """
    if not path.endswith(".parquet"):
        storage.verify(path, seal)
        return
    with storage.open_parquet(path, seal, whole=True) as file:
        if schema is not None:
            file.require(schema)
            for _ in file.iter_batches(BATCH, use_threads=False):
                pass


def _is_known(path: str, expected: _Expected, limits: Mapping[str, int]) -> bool:
    """Return True if something names a file, or may do so later.

    Numbers above the ``limits`` belong to unfinished writes.
    """
    if path in expected.seals or path in expected.known or path.rpartition("/")[0] in expected.unread:
        return True
    folder, _, inside = path.partition("/")
    name = path.rpartition("/")[2]
    if folder == RESULTS == path.rpartition("/")[0]:
        # Results of a simulation follow from the log tables, and a resumed run writes them again.
        return not name.endswith(".tmp")
    number = _NUMBER.match(name) or _NUMBER.search(inside)
    return number is not None and not name.endswith(".tmp") and int(number[0]) > limits.get(folder, int(number[0]))


def count_strays(strays: Iterable[str]) -> Mapping[str, int]:
    """Count stray files by folder.

    Args:
        strays: Paths of the files.
    """
    found: dict[str, int] = {}
    for path in strays:
        folder = path.rpartition("/")[0] or "."
        found[folder] = found.get(folder, 0) + 1
    return found
