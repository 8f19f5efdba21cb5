"""The lake: tables of Parquet files, and manifests that say which of them count, one a commit.

A commit is one height, or many that follow each other. A height is committed when the manifest that has it exists; the
manifest is created last and only if absent, so its heights are there whole or not at all, whoever was killed when.
Readers see committed heights only. State tables are named in every manifest as they are at its last height, by the file
that holds them (an unchanged table keeps the file of an earlier commit); at the heights between, state is what
replaying from there gives (``replay``). Log tables (``outbound``, ``headers``, ``events``, ``collected``, and those of
the protocol) hold the rows of the heights of one commit, or of a run of commits once compacted.

Nothing is taken on trust: every file is sealed in what names it, every manifest carries the digest of the one before,
and ``head`` says how far the chain went. What does not fit is a ``LakeDamaged``.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.frame import from_table
from causeway.model.joins import codes
from causeway.pipeline.confined import DATA_FOLDERS, confined
from causeway.pipeline.lake_manifests import LakeManifests
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
    volume_path,
)
from causeway.pipeline.manifests import Compacted, Manifest, Parts, decoded, encoded
from causeway.pipeline.sealed import Seal, seal_from, seal_of
from causeway.pipeline.storage import AlreadyExists, Storage, first_line, row_groups_with


@dataclass(frozen=True)
class Lake(LakeManifests):
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
            # The time decides nothing but how far the headers of others may move a served lake's clock; that of the
            # file would be another one in a copy.
            made = {"identity": uuid.uuid4().hex, "made": int(time.time())}
            content = {"format": FORMAT, **made, "files": files, **about}
            self.storage.create(LAKE_FILE, encoded(content, in_lines=True))
        except AlreadyExists:
            raise LakeError(
                f"lake: {self.storage.uri} already holds a lake; continue it with --resume, or name another folder"
            ) from None
        except OSError as error:
            raise LakeError(f"lake: {self.storage.uri} cannot be written: {first_line(error)}") from error

    # ---- files

    def table(self, manifest: Manifest, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a file that a manifest names, verified. Raises ``LakeDamaged``, ``Freed``."""
        return self.sealed_table(path, manifest.files[path], columns)

    def part(self, manifest: Manifest, parts: Parts, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a state table that ``parts`` of a manifest have, verified; out of several files they are
        in no order. ``columns``: those that are wanted; all without. Raises ``LakeDamaged``, ``Freed``."""
        if not parts.gone:
            return pa.concat_tables([self.table(manifest, path, columns) for path in parts.rows])
        gone = from_table(pa.concat_tables([self.table(manifest, path) for path in parts.gone]))
        read = None if columns is None else list(dict.fromkeys((*columns, *gone.names)))
        rows = pa.concat_tables([self.table(manifest, path, read) for path in parts.rows])
        ours, theirs = codes(gone.names, from_table(rows.select(gone.names)), gone)
        rows = rows.filter(pa.array(~np.isin(ours, theirs)))
        return rows if columns is None else rows.select(columns)

    def state(self, manifest: Manifest, table: str, columns: Sequence[str] | None = None) -> list[pa.Table]:
        """Return the rows of a state table at the last height of a commit, a table a bucket, as ``part`` has them."""
        return [self.part(manifest, parts, columns) for parts in manifest.state.get(table, {}).values()]

    def outside(self, manifest: Manifest) -> dict[str, tuple[str, Seal]]:
        """Return what was recorded for the tick of a height: kind -> file and its seal."""
        return {kind: (path, manifest.files[path]) for kind, path in manifest.outside.items()}

    # ---- log tables

    def compaction(self, first: int) -> Compaction | None:
        """Return the record of the compaction that begins with the manifest of a number, None when there is none."""
        return self._compaction_in(compaction_path(first))

    def volume(self, last: int) -> Compaction | None:
        """Return the records of all compactions up to the manifest of a number as one (``before``: the digest of the
        last of them), None when there is none such."""
        return self._compaction_in(volume_path(last)) if last >= 0 else None

    def _compaction_in(self, path: str) -> Compaction | None:
        try:
            found = decoded(self.storage.read_bytes(path))
            if not {type(found[name]) for name in ("first", "last", "height")} <= {int}:
                raise ValueError("first, last and height are no whole numbers")
            return Compaction(
                found["first"],
                found["last"],
                found["height"],
                {table: [confined(path, DATA_FOLDERS) for path in paths] for table, paths in found["log"].items()},
                {confined(path, DATA_FOLDERS): seal_from(seal) for path, seal in found["files"].items()},
                found["before"],
                found["digest"],
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            number = int(path[-len("0000000000.json") :].removesuffix(".json"))
            raise self._damaged_record(path, number, f"is not what was written: {first_line(error)}") from None

    def _damaged_record(self, path: str, number: int, what: str) -> LakeDamaged:
        """Return the error that says what is wrong with a record: heights before the manifest ``number`` do without."""
        whole = -1
        with contextlib.suppress(LakeDamaged):
            whole = self.numbered(number).first - 1 if "/all-" not in path else -1
        return self.damaged(path, what, whole)

    def compactions(self) -> list[Compaction]:
        """Return the runs of commits whose log tables were compacted, ascending, without a gap."""
        newest = self.newest()
        return [] if newest is None else self.runs_after(None, newest)

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
                raise self._damaged_record(compaction_path(first), first, "does not follow on the record before it")
            if record.last == known.last and record.digest != known.digest:
                text = f"is not the one that height {manifest.height} knows"
                raise self._damaged_record(compaction_path(first), first, text)
            found.append(record)
            digest, first = record.digest, record.last + 1
        if first <= known.last:
            raise self._damaged_record(compaction_path(first), first, "is missing")
        return found

    def log_files(self, table: str, heights: range | None = None) -> dict[str, Seal]:
        """Return the files of a log table over all committed heights (or those that have some of ``heights``) with
        their seals, ascending by height."""
        files: dict[str, Seal] = {}
        if heights is not None:
            if not len(heights):
                return files
            found, last = self.manifest(heights[0]), heights[-1]
            while True:
                files |= self._log_files_of(table, found)
                if found.last >= last:
                    return files
                found = self.numbered(found.number + 1)
        last = self._last()[1]
        if last < 0:
            return files
        runs = self.volume_and_runs(self.numbered(last))
        for run in runs:
            files |= {path: run.files[path] for path in run.log.get(table, [])}
        for manifest in self.chain(runs[-1].last + 1 if runs else 0, last):
            files |= {path: manifest.files[path] for path in manifest.log.get(table, {}).values()}
        return files

    def _log_files_of(self, table: str, manifest: Manifest) -> dict[str, Seal]:
        run = self.compaction(manifest.number - manifest.number % RUN)
        if run is not None:
            return {path: run.files[path] for path in run.log.get(table, [])}
        return {path: manifest.files[path] for path in manifest.log.get(table, {}).values()}

    def log_rows(self, table: str, manifest: Manifest, bucket: int | None = None) -> list[pa.Table]:
        """Return the rows of a log table at the height that a manifest is looked at from, compacted or not: all, or
        some that hold those of ``bucket``."""
        files = self._files_with(table, manifest, bucket)
        return [self._rows_of(path, seal, manifest, manifest.height, manifest.height) for path, seal in files.items()]

    def rows_between(self, table: str, manifest: Manifest, first: int, last: int) -> list[pa.Table]:
        """Return the rows of a log table at the heights of a commit from ``first`` to ``last``, of all buckets."""
        files = self._files_with(table, manifest, None)
        return [self._rows_of(path, seal, manifest, first, last) for path, seal in files.items()]

    def commit_rows(self, table: str, manifest: Manifest) -> list[pa.Table]:
        """Return the rows of a log table at all heights of a commit, and perhaps at others."""
        files = self._files_with(table, manifest, None)
        return [self.sealed_table(path, seal, whole=manifest.first - 1) for path, seal in files.items()]

    def _files_with(self, table: str, manifest: Manifest, bucket: int | None) -> dict[str, Seal]:
        """Return the files with a commit's rows of a log table, of all buckets or some that have those of one."""
        paths = manifest.log.get(table, {})
        mine = list(paths.values()) if bucket is None else [paths[str(bucket)]] if str(bucket) in paths else []
        if self.replaced(manifest, mine):
            return self._log_files_of(table, manifest)
        return {path: manifest.files[path] for path in mine}

    def _rows_of(self, path: str, seal: Seal, manifest: Manifest, first: int, last: int) -> pa.Table:
        """Return a log file's rows at heights of a commit; row groups without any are not read."""
        with self.open_parquet(path, seal, manifest.first - 1) as file:
            groups = row_groups_with(file, "height", first, last + 1)
            return at_heights(file.read_row_groups(groups, use_threads=False), first, last)

    def replaced(self, manifest: Manifest, paths: Sequence[str]) -> bool:
        """Return whether log files of a commit are gone because a compaction replaced them."""
        if all(self.storage.exists(path) for path in paths):
            return False
        return self.compaction(manifest.number - manifest.number % RUN) is not None


def at_height(rows: pa.Table, height: int) -> pa.Table:
    """Return the rows of a height of log rows, which ascend by height in every file."""
    return at_heights(rows, height, height)


def at_heights(rows: pa.Table, first: int, last: int) -> pa.Table:
    """Return the rows of the heights from ``first`` to ``last``."""
    heights = rows["height"].to_numpy()
    if not len(heights) or (first <= heights[0] and heights[-1] <= last):
        return rows
    start, end = np.searchsorted(heights, [first, last + 1])
    return rows.slice(start, end - start)


__all__ = ["Compacted", "Freed", "Lake", "LakeDamaged", "LakeError", "Manifest", "at_height"]
