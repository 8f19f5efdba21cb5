"""The lake: tables of Parquet files, and one manifest a height that says which of them count.

A height is committed when its manifest exists; the manifest is created last and only if absent, so a height is there
whole or not at all, whoever was killed when. Readers see committed heights only. State tables are named in every
manifest, by the file that holds them (an unchanged table keeps the file of an earlier height), so that state can be
read at any height. Log tables (``outbound``, ``headers``, ``events``, ``collected``, and those of the protocol) hold
the rows of one height each, or of a run of heights once compacted.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.pipeline.claim import Claimed, WriterClaim
from causeway.pipeline.storage import AlreadyExists, Storage, first_line

FORMAT = 2
"""The version of this layout; a lake of another is refused."""

LAKE_FILE = "lake.json"
MANIFESTS = "manifests"
HEIGHTS = "heights"
COMPACTED = "compacted"


class LakeError(InvalidInput):
    """A lake cannot be used as asked."""


@dataclass(frozen=True)
class Manifest:
    """What one committed height consists of.

    ``state``: table -> bucket -> file. ``log``: log table -> bucket -> file of this height. ``row_groups``: file of
    outbound entries -> bucket of their destinations -> its row group. ``wake``: the next tick at which something
    happens of itself, None when nothing will. ``quiet_since``: the first tick from which on nothing has moved, and
    after which nothing has come from outside. ``needs``: the lowest height whose outbound entries may still be read.
    """

    height: int
    tick: int
    state: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    log: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    row_groups: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    wake: int | None = None
    quiet_since: int = 0
    needs: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Return the manifest as JSON."""
        return json.dumps(self.__dict__, sort_keys=True, separators=(",", ":")).encode()


def height_name(height: int) -> str:
    """Return the name of a height in paths: ten digits, so that names order as heights do."""
    return f"{height:010d}"


@dataclass(frozen=True)
class Lake:
    """A lake in a storage. Picklable. ``identity``: tells lakes that were at one place one after the other apart."""

    storage: Storage
    identity: str = ""

    @classmethod
    def at(cls, uri: str) -> Lake:
        """Return the lake at a path or URI, whether it exists or not."""
        return cls(Storage(uri))

    def identified(self) -> Lake:
        """Return the existing lake with its identity."""
        return replace(self, identity=self.about()["identity"])

    def claim(self) -> WriterClaim:
        """Claim the right to write, before anything in the lake is changed. Raises ``LakeError``."""
        try:
            self.storage.make_folder("")
            return WriterClaim(self.storage)
        except Claimed as other:
            raise LakeError(f"lake: {self.storage.uri} is being written by {other}") from None
        except OSError as error:
            raise LakeError(f"lake: {self.storage.uri} cannot be written: {first_line(error)}") from error

    def create(self, about: Mapping[str, Any], tables: Mapping[str, pa.Table] = MappingProxyType({})) -> None:
        """Make a new lake. ``about``: what the network is, for readers and for a later resume. ``tables``: the
        topology.

        The tables are there before the lake is: a lake has them all. Raises ``LakeError`` when there is a lake
        already, or the place cannot be written.
        """
        content = {"format": FORMAT, "identity": uuid.uuid4().hex, **about}
        try:
            for folder in ("", MANIFESTS, HEIGHTS, COMPACTED):
                self.storage.make_folder(folder)
            if self.exists():
                raise AlreadyExists(LAKE_FILE)
            for name, table in tables.items():
                self.storage.write_table(f"{name}.parquet", table)
            self.storage.sync([""])
            self.storage.create(LAKE_FILE, json.dumps(content, sort_keys=True, indent=1).encode())
        except AlreadyExists:
            raise LakeError(
                f"lake: {self.storage.uri} already holds a lake; continue it with --resume, or name another folder"
            ) from None
        except OSError as error:
            raise LakeError(f"lake: {self.storage.uri} cannot be written: {first_line(error)}") from error

    def about(self) -> dict[str, Any]:
        """Return what ``create`` was given. Raises ``LakeError`` when there is no lake or it is of another version."""
        try:
            content: dict[str, Any] = json.loads(self.storage.read_bytes(LAKE_FILE))
        except FileNotFoundError:
            raise LakeError(f"lake: {self.storage.uri} holds no lake (no {LAKE_FILE})") from None
        except (OSError, ValueError) as error:
            raise LakeError(f"lake: {self.storage.uri} cannot be read: {first_line(error)}") from error
        if not isinstance(content, dict):
            raise LakeError(f"lake: {self.storage.uri} cannot be read: {LAKE_FILE} is no JSON object")
        if content.get("format") != FORMAT:
            raise LakeError(
                f"lake: {self.storage.uri} is of format {content.get('format')}, this Causeway reads format {FORMAT}"
            )
        return content

    def exists(self) -> bool:
        """Return whether there is a lake."""
        return self.storage.exists(LAKE_FILE)

    def heights(self) -> list[int]:
        """Return the committed heights, ascending."""
        names = self.storage.list(MANIFESTS)
        return [int(name.removesuffix(".json")) for name in names if name.endswith(".json")]

    def manifest(self, height: int) -> Manifest:
        """Return the manifest of a height. Raises ``LakeError`` when it is not committed."""
        try:
            content = json.loads(self.storage.read_bytes(f"{MANIFESTS}/{height_name(height)}.json"))
        except FileNotFoundError:
            heights = self.heights()
            known = f"{heights[0]} to {heights[-1]}" if heights else "none"
            raise LakeError(f"height: {height} is not committed; committed are {known}") from None
        return Manifest(**content)

    def commit(self, manifest: Manifest) -> None:
        """Commit a height: from now on it exists. Raises ``LakeError`` when another run has committed it."""
        path = f"{MANIFESTS}/{height_name(manifest.height)}.json"
        try:
            self.storage.create(path, manifest.encoded())
        except AlreadyExists:
            raise LakeError(
                f"lake: height {manifest.height} of {self.storage.uri} was committed by another run"
            ) from None

    def tidy(self) -> None:
        """Remove what counts no more: heights never committed, and small files that a compaction has replaced.

        For the holder of the claim only. Queries of other processes that were planned before may miss the small files.
        """
        heights = self.heights()
        last = heights[-1] if heights else -1
        for name in self.storage.list(HEIGHTS):
            if int(name) > last:
                self.storage.remove_folder(f"{HEIGHTS}/{name}")
        for compaction in self.compactions():
            kept = {path for files in compaction["log"].values() for path in files}
            for height in range(compaction["first"], compaction["last"] + 1):
                for files in self.manifest(height).log.values():
                    for path in files.values():
                        if path not in kept and self.storage.exists(path):
                            self.storage.remove(path)

    def height_folder(self, height: int) -> str:
        """Return the folder of a height's files."""
        return f"{HEIGHTS}/{height_name(height)}"

    def compactions(self) -> list[dict[str, Any]]:
        """Return the runs of heights whose log tables were compacted, ascending: ``first``, ``last``, ``log``."""
        names = [name for name in self.storage.list(COMPACTED) if name.endswith(".json")]
        return [json.loads(self.storage.read_bytes(f"{COMPACTED}/{name}")) for name in names]

    def log_files(self, table: str, heights: Iterable[int] | None = None) -> list[str]:
        """Return the files of a log table over all committed heights (or ``heights``), compacted ones first."""
        files: list[str] = []
        covered = -1
        wanted = None if heights is None else set(heights)
        for compaction in self.compactions():
            covered = compaction["last"]
            if wanted is None or any(compaction["first"] <= height <= covered for height in wanted):
                files += compaction["log"].get(table, [])
        for height in self.heights():
            if height > covered and (wanted is None or height in wanted):
                files += self.manifest(height).log.get(table, {}).values()
        return files

    def log_rows(self, table: str, manifest: Manifest, bucket: int | None = None) -> list[pa.Table]:
        """Return the rows of a log table at a height, compacted or not: all, or some that hold those of ``bucket``."""
        paths = manifest.log.get(table, {})
        mine = list(paths.values()) if bucket is None else [paths[str(bucket)]] if str(bucket) in paths else []
        if all(self.storage.exists(path) for path in mine):
            return [self.storage.read_table(path) for path in mine]
        found = [self.storage.read_table(path) for path in self.log_files(table, [manifest.height])]
        return [rows.filter(pc.equal(rows["height"], manifest.height)) for rows in found]


def root_of(lake: Lake, manifest: Manifest) -> str:
    """Return one digest over the roots of all chains at a height, in the order of their positions, as hex."""
    tables = [table.select(["chain", "root"]) for table in lake.log_rows("headers", manifest)]
    rows = sorted(
        row for table in tables for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    )
    return hashlib.sha256(b"".join(root for _, root in rows)).hexdigest()
