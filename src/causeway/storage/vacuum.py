"""Vacuum: removes the stored state of old heights. Headers, logs and recorded input stay.

It is safe beside readers and a writer. A record is written first, so that a reader of a removed file gets ``Freed``. A
file is removed only if no retained height needs it; a writer continues from the last height, which is retained. The
next vacuum completes a killed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from causeway_proofs.errors import InvalidInput

from causeway.storage.files import AlreadyExists
from causeway.storage.lake import Lake
from causeway.storage.layout import last_folder_height
from causeway.storage.vacuum_log import VACUUM_FOLDER, VacuumRecord, read_vacuums

MIN_RETAINED_HEIGHTS = 2
"""Minimum number of last heights with state: the last, and that of a concurrent tick."""

VacuumProgress = Callable[[int, int], None]
"""Callback with the number of processed heights and their total."""


@dataclass(frozen=True)
class VacuumResult:
    """The result of a vacuum: freed heights up to ``last``, removed ``files`` and ``bytes``."""

    last: int
    files: int
    bytes: int


def vacuum_lake(
    lake: Lake, keep_every: int, keep_last: int, progress: VacuumProgress = lambda done, of: None
) -> VacuumResult:
    """Free the state of old heights.

    Further heights are retained where the protocol may read its own past.

    Args:
        lake: The lake.
        keep_every: Retain heights that are multiples of it; 0: none.
        keep_last: Number of last heights to retain.
        progress: Called with the number of processed heights and their total.

    Raises:
        InvalidInput: A number is not allowed, another process vacuums the lake, or its protocol reads a past that is
            not stored.
        LakeError: The lake cannot be read.
    """
    if keep_every < 0:
        raise InvalidInput(f"--keep-every: {keep_every}; allowed: 0 (no height), or every how many heights one stays")
    if keep_last < 1:
        raise InvalidInput(f"--keep-last: {keep_last}; allowed: 1 or more")
    past = int(lake.about()["past_heights"])
    retained = max(keep_last, MIN_RETAINED_HEIGHTS, past + MIN_RETAINED_HEIGHTS)
    newest = lake.last_manifest().height
    if past:
        _require_stored_heights(lake)
    with lake.reading("vacuumed"):
        before = read_vacuums(lake.storage)
    record = VacuumRecord(before[-1].number + 1 if before else 0, newest - retained, keep_every)
    if record.last < 0:
        return VacuumResult(-1, 0, 0)
    storage = lake.storage
    storage.make_folder(VACUUM_FOLDER)
    try:
        storage.create(record.path, record.content())
    except AlreadyExists:
        raise InvalidInput(f"lake: {storage.uri} is being vacuumed by another process") from None
    vacuums = [*before, record]
    # If all earlier vacuums finished, and the last had the same rule, heights up to its last one are done.
    first = 0
    done = all(storage.exists(one.done_path) for one in before)
    if before and done and before[-1].keep_every == keep_every:
        first = min(before[-1].last, record.last)
    files = freed_bytes = 0
    for height, path, size in _unneeded_files(lake, first, record.last, vacuums):
        progress(height - first, record.last - first + 1)
        if storage.exists(path):
            storage.remove(path)
            files, freed_bytes = files + 1, freed_bytes + size
    progress(record.last - first + 1, record.last - first + 1)
    storage.put(record.done_path, b"")
    return VacuumResult(record.last, files, freed_bytes)


def _require_stored_heights(lake: Lake) -> None:
    """Raise ``InvalidInput`` if a commit has several heights.

    Their states are replayed, which reads the protocol's past. That may lie within a commit too, so everything is
    needed.
    """
    for manifest in lake.chain(0, lake.last_manifest().number):
        if manifest.first < manifest.last:
            heights = f"heights {manifest.first} to {manifest.last} are one commit"
            raise InvalidInput(
                f"lake: {lake.storage.uri}: {heights}, and its protocol asks for its own past, which is made out of "
                "the states before: none can be freed. The state of each height is in files, and can be freed, where "
                "network.commit_every is 1 from the beginning"
            )


def _unneeded_files(lake: Lake, first: int, last: int, vacuums: list[VacuumRecord]) -> Iterator[tuple[int, str, int]]:
    """Yield the state files that no retained height needs: current height, file, length.

    A commit's state files belong to its last height. Every height needs those of the last commit that ends at or before
    it. A file is in consecutive commits, from that of its folder to the last before its replacement.
    """
    previous: dict[str, int] = {}
    since: dict[str, int] = {}
    # Files replaced by the commit of the first height were needed by its other heights, which may be freed only now.
    begin = max(lake.manifest(first).number - 1, 0)
    for manifest in lake.chain(begin, lake.manifest(last + 1).number):
        current = {path: manifest.files[path][0] for path in manifest.state_files()}
        for path, size in previous.items():
            if path not in current and _all_freed(since[path], manifest.last - 1, vacuums):
                yield manifest.last - 1, path, size
        since = {
            path: since[path]
            if path in since
            else manifest.last
            if manifest.number > begin
            else _first_height(lake, path)
            for path in current
        }
        previous = current


def _first_height(lake: Lake, path: str) -> int:
    """Return the first height that needs a state file: the last one of the commit that wrote it."""
    return lake.manifest(last_folder_height(path) + 1).last


def _all_freed(first: int, last: int, vacuums: list[VacuumRecord]) -> bool:
    """Return True if the state of all heights from ``first`` to ``last`` is freed."""
    return all(any(vacuum.covers_height(height) for vacuum in vacuums) for height in range(first, last + 1))
