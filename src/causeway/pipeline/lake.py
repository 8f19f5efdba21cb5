"""The lake: tables of Parquet files, and one manifest a height that says which of them count.

A height is committed when its manifest exists; the manifest is created last and only if absent, so a height is there
whole or not at all, whoever was killed when. Readers see committed heights only. State tables are named in every
manifest, by the file that holds them (an unchanged table keeps the file of an earlier height), so that state can be
read at any height. Log tables (``outbound``, ``headers``, ``events``, ``collected``, and those of the protocol) hold
the rows of one height each, or of a run of heights once compacted.

Nothing is taken on trust: every file is sealed in what names it, every manifest carries the digest of the one before,
and ``head`` says how far the chain went. What does not fit is a ``LakeDamaged``.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from causeway.pipeline.lake_files import LakeFiles
from causeway.pipeline.layout import (
    COMPACTED,
    FORMAT,
    HEAD_FILE,
    HEIGHTS,
    LAKE_FILE,
    MANIFESTS,
    RUN,
    TRAFFIC_MANIFEST,
    VOLUME,
    Compaction,
    Freed,
    Head,
    LakeDamaged,
    LakeError,
    compaction_path,
    height_name,
    manifest_path,
    volume_path,
)
from causeway.pipeline.manifests import Compacted, Manifest, decoded, encoded
from causeway.pipeline.sealed import MISSING, Seal, seal_from, seal_of
from causeway.pipeline.storage import AlreadyExists, Storage, first_line


@dataclass(frozen=True)
class Lake(LakeFiles):
    """A lake in a storage. Picklable."""

    @classmethod
    def at(cls, uri: str) -> Lake:
        """Return the lake at a path or URI, whether it exists or not."""
        return cls(Storage(uri))

    def identified(self) -> Lake:
        """Return the existing lake with its identity."""
        return replace(self, identity=self.about()["identity"])

    def create(self, about: Mapping[str, Any], tables: Mapping[str, pa.Table] = MappingProxyType({})) -> None:
        """Make a new lake. ``about``: what the network is, for readers and for a later resume. ``tables``: the
        topology. Recorded traffic, where there is any, is there already.

        The tables are there before the lake is: a lake has them all. Raises ``LakeError`` when there is a lake
        already, or the place cannot be written.
        """
        try:
            for folder in ("", MANIFESTS, HEIGHTS, COMPACTED):
                self.storage.make_folder(folder)
            if self.exists():
                raise AlreadyExists(LAKE_FILE)
            files = {
                f"{name}.parquet": self.storage.write_table(f"{name}.parquet", table) for name, table in tables.items()
            }
            with contextlib.suppress(FileNotFoundError):
                files[TRAFFIC_MANIFEST] = seal_of(self.storage.read_bytes(TRAFFIC_MANIFEST))
            self.storage.put(HEAD_FILE, Head().content())
            self.storage.sync([HEAD_FILE, ""])
            content = {"format": FORMAT, "identity": uuid.uuid4().hex, "files": files, **about}
            self.storage.create(LAKE_FILE, encoded(content, in_lines=True))
        except AlreadyExists:
            raise LakeError(
                f"lake: {self.storage.uri} already holds a lake; continue it with --resume, or name another folder"
            ) from None
        except OSError as error:
            raise LakeError(f"lake: {self.storage.uri} cannot be written: {first_line(error)}") from error

    # ---- heights

    def last_height(self) -> int:
        """Return the last committed height, -1 when there is none. Raises ``LakeDamaged`` when it is gone."""
        return self._last()[0]

    def _last(self) -> tuple[int, str]:
        """Return the last height, and the digest of its manifest as far as ``head`` knows it."""
        head = self.head()
        last = head.height
        while self.storage.exists(manifest_path(last + 1)):  # committed, and killed before that was written down
            last += 1
        if last == head.height >= 0 and not self.storage.exists(manifest_path(last)):
            raise self.damaged(manifest_path(last), MISSING)
        return last, head.manifest if last == head.height else ""

    def heights(self) -> list[int]:
        """Return the committed heights, ascending: all from 0 to the last."""
        return list(range(self.last_height() + 1))

    def last_manifest(self) -> Manifest:
        """Return the manifest of the last committed height. Raises ``LakeError`` when there is none yet."""
        last, digest = self._last()
        if last < 0:
            raise LakeError(f"lake: {self.storage.uri} has no committed height yet")
        manifest = self.manifest(last)
        if digest and manifest.digest != digest:
            raise self.damaged(manifest_path(last), "is not the one that was committed")
        return manifest

    def manifest(self, height: int) -> Manifest:
        """Return the manifest of a height. Raises ``LakeError`` when it is not committed, ``LakeDamaged``."""
        path = manifest_path(height)
        try:
            with self.reading(path):
                manifest = Manifest.of(self.storage.read_bytes(path))
        except LakeDamaged:
            last = self.head().height
            if 0 <= height <= last:
                raise
            last = self.last_height()
            known = f"0 to {last}" if last >= 0 else "none"
            raise LakeError(f"height: {height} is not committed; committed are {known}") from None
        except (ValueError, TypeError, KeyError) as error:
            raise self.damaged(path, f"is not what was written: {first_line(error)}") from None
        if manifest.height != height:
            raise self.damaged(path, f"is the manifest of height {manifest.height}")
        return manifest

    def chain(self, first: int, last: int) -> Iterator[Manifest]:
        """Yield the manifests of heights, each compared with the digest that the next one has of it."""
        parent = None
        for height in range(first, last + 1):
            manifest = self.manifest(height)
            if height == 0 and manifest.parent != self.described()[1]:
                raise self.damaged(manifest_path(0), f"is not the first of this {LAKE_FILE}")
            if parent is not None and manifest.parent != parent:
                raise self.damaged(manifest_path(height), "does not follow on the manifest before it")
            parent = manifest.digest
            yield manifest

    def commit(self, manifest: Manifest) -> Manifest:
        """Commit a height: from now on it exists. Return the manifest as it was written.

        Raises ``LakeError`` when another run has committed it.
        """
        if manifest.height == 0:
            manifest = replace(manifest, parent=self.described()[1])
        path = manifest_path(manifest.height)
        try:
            self.storage.create(path, manifest.content)
        except AlreadyExists:
            # An object store may have taken it and lost its answer: then it holds just this.
            if self.manifest(manifest.height).digest != manifest.digest:
                raise LakeError(
                    f"lake: height {manifest.height} of {self.storage.uri} was committed by another run"
                ) from None
        head = self.head()
        if manifest.height > head.height:
            self.write_head(replace(head, height=manifest.height, manifest=manifest.digest))
        return manifest

    def write_head(self, head: Head) -> None:
        """Write down how far the lake has come, for the holder of the claim."""
        self.storage.put(HEAD_FILE, head.content())

    def height_folder(self, height: int) -> str:
        """Return the folder of a height's files."""
        return f"{HEIGHTS}/{height_name(height)}"

    # ---- files

    def table(self, manifest: Manifest, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a file that a manifest names, verified. Raises ``LakeDamaged``, ``Freed``."""
        return self.sealed_table(path, manifest.files[path], columns)

    def outside(self, manifest: Manifest) -> dict[str, tuple[str, Seal]]:
        """Return what was recorded for the tick of a height: kind -> file and its seal."""
        return {kind: (path, manifest.files[path]) for kind, path in manifest.outside.items()}

    # ---- log tables

    def compaction(self, first: int) -> Compaction | None:
        """Return the record of the compaction that begins with a height, None when there is none."""
        return self._compaction_in(compaction_path(first))

    def volume(self, last: int) -> Compaction | None:
        """Return the records of all compactions up to a height as one (``before``: the digest of the last of them),
        None when there is none such."""
        return self._compaction_in(volume_path(last)) if last >= 0 else None

    def _compaction_in(self, path: str) -> Compaction | None:
        try:
            found = decoded(self.storage.read_bytes(path))
            return Compaction(
                found["first"],
                found["last"],
                found["log"],
                {name: seal_from(seal) for name, seal in found["files"].items()},
                found["before"],
                found["digest"],
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError) as error:
            raise self.damaged(path, f"is not what was written: {first_line(error)}") from None

    def compactions(self, manifest: Manifest | None = None) -> list[Compaction]:
        """Return the runs of heights whose log tables were compacted, ascending, without a gap. ``manifest``: of the
        last height, where it is known."""
        last = self.last_height() if manifest is None else manifest.height
        if last < 0:
            return []
        return self.runs_after(None, self.manifest(last) if manifest is None else manifest)

    def volume_and_runs(self, manifest: Manifest) -> list[Compaction]:
        """Return what ``compactions`` does, but the first ones of many as one, so that few files are read."""
        done = manifest.compacted.last + 1
        volume = self.volume(done - done % (VOLUME * RUN) - 1)
        return [*([volume] if volume is not None else []), *self.runs_after(volume, manifest)]

    def runs_after(self, after: Compaction | None, manifest: Manifest) -> list[Compaction]:
        """Return the compactions after a volume, or all of them, as far as a manifest knows them and beyond."""
        known = manifest.compacted
        found: list[Compaction] = []
        digest, first = ("", 0) if after is None else (after.before, after.last + 1)
        if after is not None and after.last == known.last and digest != known.digest:
            raise self.damaged(volume_path(after.last), f"is not of the records that height {manifest.height} knows")
        while (record := self.compaction(first)) is not None:
            if record.before != digest or record.first != first:
                raise self.damaged(compaction_path(first), "does not follow on the record before it")
            if record.last == known.last and record.digest != known.digest:
                raise self.damaged(compaction_path(first), f"is not the one that height {manifest.height} knows")
            found.append(record)
            digest, first = record.digest, record.last + 1
        if first <= known.last:
            raise self.damaged(compaction_path(first), "is missing")
        return found

    def log_files(self, table: str, heights: Iterable[int] | None = None) -> dict[str, Seal]:
        """Return the files of a log table over all committed heights (or ``heights``) with their seals, ascending by
        height."""
        files: dict[str, Seal] = {}
        if heights is not None:
            for height in sorted(set(heights)):
                files |= self._log_files_at(table, self.manifest(height))
            return files
        last = self.last_height()
        if last < 0:
            return files
        runs = self.volume_and_runs(self.manifest(last))
        for run in runs:
            files |= {path: run.files[path] for path in run.log.get(table, [])}
        for manifest in self.chain(runs[-1].last + 1 if runs else 0, last):
            files |= {path: manifest.files[path] for path in manifest.log.get(table, {}).values()}
        return files

    def _log_files_at(self, table: str, manifest: Manifest) -> dict[str, Seal]:
        run = self.compaction(manifest.height - manifest.height % RUN)
        if run is not None:
            return {path: run.files[path] for path in run.log.get(table, [])}
        return {path: manifest.files[path] for path in manifest.log.get(table, {}).values()}

    def log_rows(self, table: str, manifest: Manifest, bucket: int | None = None) -> list[pa.Table]:
        """Return the rows of a log table at a height, compacted or not: all, or some that hold those of ``bucket``."""
        paths = manifest.log.get(table, {})
        mine = list(paths.values()) if bucket is None else [paths[str(bucket)]] if str(bucket) in paths else []
        if not self.replaced(manifest, mine):
            return [self.table(manifest, path) for path in mine]
        found = [
            self.sealed_table(path, seal, whole=manifest.height - 1)
            for path, seal in self._log_files_at(table, manifest).items()
        ]
        return [rows.filter(pc.equal(rows["height"], manifest.height)) for rows in found]

    def replaced(self, manifest: Manifest, paths: Sequence[str]) -> bool:
        """Return whether log files of a height are gone because a compaction replaced them."""
        if all(self.storage.exists(path) for path in paths):
            return False
        return self.compaction(manifest.height - manifest.height % RUN) is not None


def root_of(lake: Lake, manifest: Manifest) -> str:
    """Return one digest over the roots of all chains at a height, in the order of their positions, as hex."""
    tables = [table.select(["chain", "root"]) for table in lake.log_rows("headers", manifest)]
    rows = sorted(
        row for table in tables for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    )
    return hashlib.sha256(b"".join(root for _, root in rows)).hexdigest()


__all__ = ["Compacted", "Freed", "Lake", "LakeDamaged", "LakeError", "Manifest", "root_of"]
