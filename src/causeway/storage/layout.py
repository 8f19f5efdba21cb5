"""The layout of a lake: what its files are called, what its small files say, and the errors about them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from causeway_proofs.errors import InvalidInput

from causeway.storage.commit_log import HeadRecord, Record, numbered_path
from causeway.storage.manifests import LakePath
from causeway.storage.paths import DATA_FOLDERS
from causeway.storage.seals import Seal, parse_seal

FORMAT = 8
"""The version of this layout; a lake of another is refused."""

READABLE = (6, 7, FORMAT)
"""Formats of lakes that are read and continued. One of format 6 has no state table in several files."""

STATE_VACUUMED = ".gone"
"""What stands behind the name of a state table in the names of files with keys of rows that are gone."""

LAKE_FILE = "lake.json"
HEAD_FILE = "head"
MANIFESTS = "manifests"
HEIGHTS, COMPACTED, RECORD = DATA_FOLDERS
RESULTS = "results"
TRAFFIC = "traffic"
TRAFFIC_MANIFEST = f"{TRAFFIC}/manifest.json"

RUN = 32
"""How many commits are compacted together."""

VOLUME = 32
"""So many runs later, all records of compactions are written together as one."""

_FIRST_HEIGHT = re.compile(rf"{HEIGHTS}/(\d{{10}})/|{COMPACTED}/.*-(\d{{10}})-\d{{10}}\.parquet$")


class LakeError(InvalidInput):
    """A lake cannot be used as asked."""


class LakeDamaged(LakeError):
    """A file of a lake is missing, or is not what was written.

    ``path``: which. ``what``: what is wrong with it. ``whole``: the last height that needs nothing that is known to be
    damaged, -1 when there is none.
    """

    def __init__(self, uri: str, path: str, what: str, whole: int) -> None:
        until = f"the last whole height is {whole}" if whole >= 0 else "no height is whole"
        super().__init__(f"lake: {uri} is damaged: {path} {what}; {until}")
        self.path, self.what, self.whole = path, what, whole


class Freed(LakeError):
    """The state of a height was freed by a vacuum."""


@dataclass(frozen=True)
class LakeHead(HeadRecord):
    """How far a lake has come: the last ``height`` and the ``number`` of the manifest that has it, with the digest of
    that ``manifest``; -1 before the first.

    ``tidied``: the number below which what compactions replaced has been removed; below ``tidying`` it may be.
    ``settled``: nothing more would happen after that height, however long the network ran.
    """

    height: int = -1
    number: int = -1
    manifest: str = ""
    tidied: int = 0
    tidying: int = 0
    settled: bool = False


@dataclass(frozen=True)
class CompactionRun(Record):
    """One run of commits whose log tables were compacted: the manifests number ``first`` to ``last``, which have the
    heights from ``height`` on. ``log``: table -> its files. ``files``: their seals. ``before``: the digest of the
    record of the run before; ``digest``: of this one."""

    first: int
    last: int
    height: int
    log: Mapping[str, Sequence[LakePath]]
    files: Mapping[LakePath, Annotated[Seal, parse_seal]]
    before: str
    digest: str = ""


def height_name(height: int) -> str:
    """Return the name of a height in paths: ten digits, so that names order as heights do."""
    return f"{height:010d}"


def height_folder(height: int) -> str:
    """Return the folder of the files of a commit that begins with a height."""
    return f"{HEIGHTS}/{height_name(height)}"


def manifest_path(number: int) -> str:
    """Return where the manifest of that number is."""
    return numbered_path(MANIFESTS, number)


def compaction_path(first: int) -> str:
    """Return where the record of the compaction is that begins with the manifest of a number."""
    return numbered_path(COMPACTED, first)


def volume_path(last: int) -> str:
    """Return where the records of all compactions up to the manifest of a number are together."""
    return f"{COMPACTED}/all-{height_name(last)}.json"


def last_folder_height(path: str) -> int:
    """Return the last height that does not need a file with rows of heights, as its path tells: -1 for what all
    heights need, or what does not tell."""
    found = _FIRST_HEIGHT.match(path)
    return int(found[1] or found[2]) - 1 if found is not None else -1
