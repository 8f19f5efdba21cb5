"""Freeing the state of heights that nobody wants any more; headers, logs and the record of what came in stay.

Safe beside readers and a writer. What is going to be freed is written down first: a reader that finds a file gone is
told so. A file goes only when no height that is kept names it; a writer goes on from the last height, which is kept.
A vacuum that was killed is finished by the next one.
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
"""The state of so many of the last heights stays in any case: of the last, and of the one that a tick began with while
it was looked for."""

VacuumProgress = Callable[[int, int], None]
"""Called with how many heights are done, of how many."""


@dataclass(frozen=True)
class VacuumResult:
    """What a vacuum freed: the state of heights up to ``last``, in ``files`` of so many ``bytes``."""

    last: int
    files: int
    bytes: int


def vacuum_lake(
    lake: Lake, keep_every: int, keep_last: int, progress: VacuumProgress = lambda done, of: None
) -> VacuumResult:
    """Free the state of all heights but multiples of ``keep_every`` (0: of none) and the last ``keep_last``.

    More of the last heights are kept where the protocol may ask for its own past. Raises ``InvalidInput`` for numbers
    that are not allowed, and for a lake whose protocol asks for its own past where that is in no file; ``LakeError``.
    """
    if keep_every < 0:
        raise InvalidInput(f"--keep-every: {keep_every}; allowed: 0 (no height), or every how many heights one stays")
    if keep_last < 1:
        raise InvalidInput(f"--keep-last: {keep_last}; allowed: 1 or more")
    past = int(lake.about()["past_heights"])
    kept = max(keep_last, MIN_RETAINED_HEIGHTS, past + MIN_RETAINED_HEIGHTS)
    newest = lake.last_manifest().height
    if past:
        _require_own_files(lake)
    with lake.reading("vacuumed"):
        before = read_vacuums(lake.storage)
    this = VacuumRecord(before[-1].number + 1 if before else 0, newest - kept, keep_every)
    if this.last < 0:
        return VacuumResult(-1, 0, 0)
    storage = lake.storage
    storage.make_folder(VACUUM_FOLDER)
    try:
        storage.create(this.path, this.content())
    except AlreadyExists:
        raise InvalidInput(f"lake: {storage.uri} is being vacuumed by another process") from None
    taken = [*before, this]
    # Where all before it were finished with this very rule, everything up to where the last one came is done.
    first = 0
    done = all(storage.exists(one.done_path) for one in before)
    if before and done and before[-1].keep_every == keep_every:
        first = min(before[-1].last, this.last)
    files = freed_bytes = 0
    for height, path, size in _superseded(lake, first, this.last, taken):
        progress(height - first, this.last - first + 1)
        if storage.exists(path):
            storage.remove(path)
            files, freed_bytes = files + 1, freed_bytes + size
    progress(this.last - first + 1, this.last - first + 1)
    storage.put(this.done_path, b"")
    return VacuumResult(this.last, files, freed_bytes)


def _require_own_files(lake: Lake) -> None:
    """Raise ``InvalidInput`` where a commit has several heights. The state between them is made by executing heights,
    which ask for their own past; that may lie within a commit again, and so on: all of it is needed."""
    for manifest in lake.chain(0, lake.last_manifest().number):
        if manifest.first < manifest.last:
            heights = f"heights {manifest.first} to {manifest.last} are one commit"
            raise InvalidInput(
                f"lake: {lake.storage.uri}: {heights}, and its protocol asks for its own past, which is made out of "
                "the states before: none can be freed. The state of each height is in files, and can be freed, where "
                "network.commit_every is 1 from the beginning"
            )


def _superseded(lake: Lake, first: int, last: int, taken: list[VacuumRecord]) -> Iterator[tuple[int, str, int]]:
    """Yield the state files that no height that is kept needs: the height that is looked at, the file, its length.

    A commit's state files are of its last height. Every height needs those of the last commit that ends with it or
    before it; a file is in the commits from that of its folder to the last one before it was replaced, without a gap.
    """
    named: dict[str, int] = {}
    since: dict[str, int] = {}
    # What the commit that has the first of them replaced was needed by its other heights, which may be freed only now.
    begin = max(lake.manifest(first).number - 1, 0)
    for manifest in lake.chain(begin, lake.manifest(last + 1).number):
        now = {path: manifest.files[path][0] for path in manifest.state_files()}
        for path, size in named.items():
            if path not in now and _all_freed(since[path], manifest.last - 1, taken):
                yield manifest.last - 1, path, size
        since = {
            path: since[path] if path in since else manifest.last if manifest.number > begin else _first_of(lake, path)
            for path in now
        }
        named = now


def _first_of(lake: Lake, path: str) -> int:
    """Return the first height that needs a state file: the last one of the commit that wrote it."""
    return lake.manifest(last_folder_height(path) + 1).last


def _all_freed(first: int, last: int, taken: list[VacuumRecord]) -> bool:
    """Return whether the state of all heights from ``first`` to ``last`` is freed."""
    return all(any(one.covers_height(height) for one in taken) for height in range(first, last + 1))
