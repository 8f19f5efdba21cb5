"""Layout of a lake: file names, small records, and their errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from causeway_proofs.errors import InvalidInput

from causeway.storage.commit_log import HeadRecord, Record, numbered_path
from causeway.storage.manifests import LakePath
from causeway.storage.seals import DATA_FOLDERS, Seal, parse_seal

FORMAT = 8
"""Version of this layout."""

READABLE = (6, 7, FORMAT)
"""Formats of lakes that can be read and continued.

Format 6 has no state table in several files.
"""

STATE_VACUUMED = ".gone"
"""Suffix of a state table's name in files with the keys of removed rows."""

LAKE_FILE = "lake.json"
HEAD_FILE = "head"
MANIFESTS = "manifests"
HEIGHTS, COMPACTED, RECORD = DATA_FOLDERS
RESULTS = "results"
TRAFFIC = "traffic"
TRAFFIC_MANIFEST = f"{TRAFFIC}/manifest.json"

RUN = 32
"""Number of commits compacted together."""

VOLUME = 32
"""Number of runs whose compaction records are merged into one."""

_FIRST_HEIGHT = re.compile(rf"{HEIGHTS}/(\d{{10}})/|{COMPACTED}/.*-(\d{{10}})-\d{{10}}\.parquet$")


class LakeError(InvalidInput):
    """A lake cannot be used as requested."""


class LakeDamaged(LakeError):
    """A file of a lake is missing or corrupted.

    Attributes:
        path: Path of the file.
        what: Description of the damage.
        whole: Last height that needs nothing known to be damaged, or -1.
    """

    def __init__(self, uri: str, path: str, what: str, whole: int) -> None:
        until = f"last verified height {whole}" if whole >= 0 else "no verified height"
        super().__init__(f"lake: {uri} is damaged: {path} {what}; {until}")
        self.path, self.what, self.whole = path, what, whole


class Freed(LakeError):
    """A vacuum freed the state of a height."""


@dataclass(frozen=True)
class LakeHead(HeadRecord):
    """Progress of a lake.

    Attributes:
        height: Last height, or -1.
        number: Number of its manifest, or -1.
        manifest: Digest of that manifest.
        tidied: Manifest number below which replaced files are removed.
        tidying: Manifest number below which they may be.
        settled: Nothing more would happen after that height.
    """

    height: int = -1
    number: int = -1
    manifest: str = ""
    tidied: int = 0
    tidying: int = 0
    settled: bool = False


@dataclass(frozen=True)
class CompactionRun(Record):
    """A run of commits with compacted log tables.

    Attributes:
        first: First manifest number.
        last: Last manifest number.
        height: First height.
        log: Files by table.
        files: Seals by file.
        before: Digest of the previous run's record.
        digest: Digest of this record.
    """

    first: int
    last: int
    height: int
    log: Mapping[str, Sequence[LakePath]]
    files: Mapping[LakePath, Annotated[Seal, parse_seal]]
    before: str
    digest: str = ""


def height_name(height: int) -> str:
    """Return the name of a height in paths: ten digits, so that names sort by height."""
    return f"{height:010d}"


def height_folder(height: int) -> str:
    """Return the folder of a commit.

    Args:
        height: First height of the commit.
    """
    return f"{HEIGHTS}/{height_name(height)}"


def manifest_path(number: int) -> str:
    """Return the path of a manifest.

    Args:
        number: Number of the manifest.
    """
    return numbered_path(MANIFESTS, number)


def compaction_path(first: int) -> str:
    """Return the path of the compaction record that begins with a manifest number."""
    return numbered_path(COMPACTED, first)


def volume_path(last: int) -> str:
    """Return the path of the merged compaction records up to a manifest number."""
    return f"{COMPACTED}/all-{height_name(last)}.json"


def last_folder_height(path: str) -> int:
    """Return the last height that does not need a file, derived from its path.

    Args:
        path: Path of the file.

    Returns:
        The height; -1 if all heights need it, or the path does not tell.
    """
    found = _FIRST_HEIGHT.match(path)
    return int(found[1] or found[2]) - 1 if found is not None else -1
