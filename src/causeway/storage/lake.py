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
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from cachetools import LRUCache, cached
from causeway_proofs.errors import InvalidInput

from causeway.config.document import validate_document
from causeway.core.frame import from_table
from causeway.core.joins import encode_keys
from causeway.core.text import load_json
from causeway.protocols.registry import first_format
from causeway.storage.commit_log import CommitLog, decoded, encoded, read_record
from causeway.storage.files import AlreadyExists, Storage, find_row_groups, first_line
from causeway.storage.layout import (
    COMPACTED,
    FORMAT,
    HEAD_FILE,
    HEIGHTS,
    LAKE_FILE,
    MANIFESTS,
    READABLE,
    RUN,
    STATE_VACUUMED,
    TRAFFIC_MANIFEST,
    VOLUME,
    CompactionRun,
    Freed,
    LakeDamaged,
    LakeError,
    LakeHead,
    compaction_path,
    last_folder_height,
    manifest_path,
    volume_path,
)
from causeway.storage.manifests import CompactedLogs, Manifest, StateParts
from causeway.storage.parquet_files import StoredParquet, convert_arrow_errors
from causeway.storage.paths import NotRegularFile
from causeway.storage.seals import MISSING, FileDamaged, Seal, parse_seal, seal_content
from causeway.storage.vacuum_log import VACUUM_FOLDER as VACUUMED
from causeway.storage.vacuum_log import find_vacuum

KEPT_LAKES = 2
"""Lakes of which a process keeps what it read: networks that take turns in one session; memory stays bounded."""

_MAX_SPANS = 1 << 16
"""Manifests of which a process knows at most what heights they have."""


@cached(LRUCache(KEPT_LAKES), key=lambda content, digest: digest, lock=threading.Lock())
def _validate(content: Mapping[str, Any], digest: bytes) -> None:
    """Validate the content of a ``lake.json``: once for each ``digest``, since commands read the file often."""
    from causeway.storage.lake_description import LakeDescription

    validate_document(LakeDescription, content, "is not what was written")


@dataclass
class _Known:
    """What this process has read of a lake's manifests, which never change: the first and last heights of each, by its
    number, and the number and the last height of the ``latest``."""

    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    latest: tuple[int, int] = (-1, -1)

    def add(self, manifest: Manifest) -> tuple[int, int]:
        """Take a manifest; return its first and last heights."""
        if len(self.spans) > _MAX_SPANS:
            self.spans.clear()
        span = self.spans[manifest.number] = manifest.first, manifest.last
        self.latest = max(self.latest, (manifest.number, manifest.last))
        return span


_KNOWN: dict[tuple[str, str], _Known] = {}
"""By URI and identity of a lake. Holds one lake at a time."""


Whole = int | Callable[[], int] | None
"""The last height that does not need a file, or a function that returns it; None: its path tells."""


@dataclass(frozen=True)
class Lake:
    """A lake in a storage. Picklable. ``identity``: tells lakes that were at one place one after the other apart."""

    storage: Storage
    identity: str = ""

    @classmethod
    def at(cls, uri: str) -> Lake:
        """Return the lake at a path or URI, whether it exists or not."""
        return cls(Storage(uri))

    def with_identity(self) -> Lake:
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
                files[TRAFFIC_MANIFEST] = seal_content(self.storage.read_bytes(TRAFFIC_MANIFEST))
            self.storage.put(HEAD_FILE, LakeHead().content())
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

    # ---- what can be wrong

    def damaged(self, path: str, what: str, whole: Whole = None) -> LakeDamaged:
        """Return the error that says so. ``whole``: the last height that does not need the file, or returns it;
        without it what the path tells."""
        last = last_folder_height(path) if whole is None else whole if isinstance(whole, int) else whole()
        return LakeDamaged(self.storage.uri, path, what, last)

    @contextlib.contextmanager
    def reading(self, path: str, whole: Whole = None) -> Iterator[None]:
        """Let what is found wrong with a file in the body of a ``with`` statement be a ``LakeDamaged``."""
        try:
            yield
        except FileDamaged as error:
            if error.what == MISSING:
                raise self._missing(path, whole) from None
            raise self.damaged(error.path, error.what, whole) from None
        except FileNotFoundError:
            raise self._missing(path, whole) from None
        except NotRegularFile as error:
            raise self.damaged(path, str(error.strerror), whole) from None
        except OSError as error:
            raise LakeError(f"lake: {self.storage.uri}: {path} cannot be read: {first_line(error)}") from error

    # ---- what the network is

    def about(self) -> dict[str, Any]:
        """Return what ``create`` was given. Raises ``LakeError`` when there is no lake or it is of another version."""
        return self.described()[0]

    def described(self) -> tuple[dict[str, Any], str]:
        """Return what ``about`` does, and the digest of the file."""

        try:
            raw = self.storage.read_bytes(LAKE_FILE)
        except FileNotFoundError:
            self.exists()
            raise LakeError(f"lake: {self.storage.uri} holds no lake (no {LAKE_FILE})") from None
        except OSError as error:
            raise LakeError(f"lake: {self.storage.uri} cannot be read: {first_line(error)}") from error
        try:
            content = decoded(raw)
        except ValueError as error:
            self._of_another_version(raw)
            raise self.damaged(LAKE_FILE, f"is not what was written: {first_line(error)}") from None
        self._of_this_version(content)
        try:
            _validate(content, sha256(raw).digest())
        except InvalidInput as error:
            raise self.damaged(LAKE_FILE, str(error)) from None
        return content, content.pop("digest")

    def _of_another_version(self, raw: bytes) -> None:
        """Refuse what is no lake of this version: those before it had no digest."""
        with contextlib.suppress(ValueError):
            content = load_json(raw)
            if not isinstance(content, dict):
                raise LakeError(f"lake: {self.storage.uri} cannot be read: {LAKE_FILE} is no JSON object")
            if "digest" not in content:
                self._of_this_version(content)

    def _of_this_version(self, content: Mapping[str, Any]) -> None:
        name = content.get("protocol")
        allowed = [each for each in READABLE if each >= first_format(name)]
        if content.get("format") not in allowed:
            of = f" of {name}" if allowed[0] > READABLE[0] else ""
            raise LakeError(
                f"lake: {self.storage.uri} is of format {content.get('format')}, this Causeway reads lakes{of} of "
                f"format {', '.join(map(str, allowed))}"
            )

    def exists(self) -> bool:
        """Return whether there is a lake. Raises ``LakeDamaged`` where there is one without what says what it is."""
        if self.storage.exists(LAKE_FILE):
            return True
        if self.storage.exists(HEAD_FILE) and self.storage.exists(manifest_path(0)):
            raise self.damaged(LAKE_FILE, MISSING)
        return False

    def topology(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a table that was written when the lake was made: ``chains``, ``programs`` or ``registry``."""
        path = f"{name}.parquet"
        files = self.about()["files"]
        if path not in files:
            raise self.damaged(LAKE_FILE, f"does not name {path}")
        return self.sealed_table(path, parse_seal(files[path]), columns)

    def head(self) -> LakeHead:
        """Return how far the lake has come, as the last commit said."""
        with self.reading(HEAD_FILE):
            return LakeHead.read(self.storage, HEAD_FILE)

    # ---- files

    def sealed_table(
        self, path: str, seal: Seal, columns: Sequence[str] | None = None, whole: Whole = None
    ) -> pa.Table:
        """Return a sealed Parquet file, verified. ``whole``: as of ``damaged``. Raises ``LakeDamaged``."""
        with self.reading(path, whole):
            return self.storage.read_table(path, columns, seal)

    @contextlib.contextmanager
    def open_parquet(self, path: str, seal: Seal, whole: int | None = None) -> Iterator[StoredParquet]:
        """Open a Parquet file; what is read of it is verified. Raises ``LakeDamaged``, also for rows that the body of
        the ``with`` statement cannot cast."""
        with self.reading(path, whole), self.storage.open_parquet(path, seal) as file, convert_arrow_errors(path):
            yield file

    def _missing(self, path: str, whole: Whole) -> LakeError:
        """Return the error that says that a file is missing, or that a vacuum took it."""
        folder, _, name = path.rpartition("/")
        if folder.startswith(f"{HEIGHTS}/") and "-" in name:
            table = name.rsplit("-", 2)[0].removesuffix(STATE_VACUUMED)
            state = {item["name"].replace(":", ".") for item in self.about()["tables"]["state"]}
            # A commit's state is of its last height; of two heights in a row a vacuum keeps at most one.
            first = int(folder.split("/")[1])
            freed = (self.freed(first) or self.freed(first + 1)) if table in state else None
            if freed is not None:
                return freed
        return self.damaged(path, MISSING, whole)

    def freed(self, height: int) -> Freed | None:
        """Return the error that says that a height's state was freed, None when it was not."""
        with self.reading(VACUUMED):
            taken = find_vacuum(self.storage, height)
        return None if taken is None else Freed(f"height: the state of {height} was freed by a vacuum; {taken}")

    # ---- commits and heights

    @property
    def manifests(self) -> CommitLog[Manifest]:
        """Return the log of the commits."""
        return CommitLog(self.storage, MANIFESTS, "manifest", Manifest.of)

    def last_height(self) -> int:
        """Return the last committed height, -1 when there is none. Raises ``LakeDamaged`` when it is gone."""
        head, number = self._last()
        return head.height if number == head.number else self.numbered(number).last

    def _last(self) -> tuple[LakeHead, int]:
        """Return ``head``, and the number of the last manifest."""
        head = self.head()
        last = head.number
        while self.storage.exists(manifest_path(last + 1)):  # committed, and killed before that was written down
            last += 1
        if last == head.number >= 0 and not self.storage.exists(manifest_path(last)):
            raise self._damaged_manifest(last, MISSING)
        return head, last

    def heights(self) -> list[int]:
        """Return the committed heights, ascending: all from 0 to the last."""
        return list(range(self.last_height() + 1))

    def last_manifest(self) -> Manifest:
        """Return the manifest of the last committed height. Raises ``LakeError`` when there is none yet."""
        manifest = self.newest()
        if manifest is None:
            raise LakeError(f"lake: {self.storage.uri} has no committed height yet")
        return manifest

    def newest(self) -> Manifest | None:
        """Return the manifest of the last committed height, None when there is none yet."""
        head, last = self._last()
        if last < 0:
            return None
        manifest = self.numbered(last)
        if last == head.number and manifest.digest != head.manifest:
            raise self._damaged_manifest(last, "is not the one that was committed")
        return manifest

    def manifest(self, height: int) -> Manifest:
        """Return the manifest that has a height, looked at from it. Raises ``LakeError`` when the height is not
        committed, ``LakeDamaged``."""
        known = self._known()
        number, last = known.latest
        if 0 <= height <= last:
            return self._found(height, known, number, last)
        head = self.head()
        if height > head.height or height < 0:
            last = self.last_height()
            if not 0 <= height <= last:
                committed = f"0 to {last}" if last >= 0 else "none"
                raise LakeError(f"height: {height} is not committed; committed are {committed}")
            number = head.number + 1
            while (manifest := self.numbered(number)).last < height:
                number += 1
            return manifest.at(height)
        return self._found(height, known, head.number, head.height)

    def _found(self, height: int, known: _Known, high: int, last: int) -> Manifest:
        """Return the manifest that has a height up to ``last``, with which the manifest of the number ``high`` ends: by
        its share of the heights between those that are known to lie around it, and by halves where that does not do."""
        low, first = 0, 0
        for halves in itertools.count():
            share = high - low if height == last else (height - first) * (high - low) // max(last - first, 1)
            number = low + ((high - low) // 2 if halves % 2 else share)
            span = known.spans.get(number)
            if span is None or span[0] <= height <= span[1]:
                manifest = self._readable(number, height, high)
                number = manifest.number
                span = known.add(manifest)
                if span[0] <= height <= span[1]:
                    return manifest.at(height)
            if height < span[0]:
                high, last = number - 1, span[0] - 1
            else:
                low, first = number + 1, span[1] + 1
            if low > high or not first <= height <= last:
                raise self._damaged_manifest(number, f"does not fit its neighbours at height {height}")
        raise AssertionError

    def _readable(self, number: int, height: int, high: int) -> Manifest:
        """Return the manifest of that number; where it is damaged, and does not have the height, one beside it."""
        try:
            return self.numbered(number)
        except LakeDamaged as error:
            beside = range(number - 1, -1, -1) if height <= error.whole else range(number + 1, high + 1)
            for other in beside:
                with contextlib.suppress(LakeDamaged):
                    manifest = self.numbered(other)
                    if height < manifest.first and height > error.whole:
                        break
                    return manifest
            raise

    def _known(self) -> _Known:
        """Return what this process knows of the manifests."""
        if not self.identity:
            return _Known()
        if (self.storage.uri, self.identity) not in _KNOWN:
            _KNOWN.clear()
        return _KNOWN.setdefault((self.storage.uri, self.identity), _Known())

    def numbered(self, number: int) -> Manifest:
        """Return the manifest of that number. Raises ``LakeDamaged`` where it is missing or not what was written."""
        with self.reading(manifest_path(number), lambda: self._last_before(number)):
            return self.manifests.read(number)

    def _damaged_manifest(self, number: int, what: str) -> LakeDamaged:
        """Return the error that says what is wrong with a manifest."""
        return self.damaged(manifest_path(number), what, lambda: self._last_before(number))

    def _last_before(self, number: int) -> int:
        """Return the last height of the manifests before a number that can be read, -1 where there is none."""
        for before in reversed(self.manifests.numbers()):  # a damaged head may name any number
            if before < number:
                with contextlib.suppress(FileDamaged, FileNotFoundError):
                    return self.manifests.read(before).last
        return -1

    def chain(self, first: int, last: int) -> Iterator[Manifest]:
        """Yield the manifests of those numbers, each compared with what the next one has of it."""
        before: Manifest | None = None
        for number in range(first, last + 1):
            manifest = self.numbered(number)
            if number == 0 and manifest.parent != self.described()[1]:
                raise self.damaged(manifest_path(0), f"is not the first of this {LAKE_FILE}")
            if before is not None and (manifest.parent, manifest.first) != (before.digest, before.last + 1):
                raise self.damaged(manifest_path(number), "does not follow on the manifest before it", before.last)
            before = manifest
            yield manifest

    def commits(self, heights: range) -> Iterator[Manifest]:
        """Yield the commits that have some of the heights."""
        if not len(heights):
            return
        manifest = self.manifest(heights[0])
        yield manifest
        while manifest.last < heights[-1]:
            manifest = self.numbered(manifest.number + 1)
            yield manifest

    def commit(self, manifest: Manifest) -> Manifest:
        """Commit heights: from now on they exist. Return the manifest as it was written.

        Raises ``LakeError`` when another run has committed them.
        """
        if manifest.number == 0:
            manifest = replace(manifest, parent=self.described()[1])
        try:
            self.manifests.create(manifest.number, manifest.content)
        except AlreadyExists:
            text = f"height {manifest.first} of {self.storage.uri} was committed by another run"
            raise LakeError(f"lake: {text}") from None
        head = self.head()
        if manifest.number > head.number:
            number, digest = manifest.number, manifest.digest
            self.write_head(replace(head, height=manifest.last, number=number, manifest=digest, settled=False))
        return manifest

    def settle(self, manifest: Manifest) -> None:
        """Write down that nothing more would happen after the last manifest, for the holder of the claim."""
        head = self.head()
        if (head.number, head.manifest, head.settled) == (manifest.number, manifest.digest, False):
            self.write_head(replace(head, settled=True))

    def is_settled(self, manifest: Manifest) -> bool:
        """Return whether nothing more would have happened after a manifest, as far as it was written down."""
        head = self.head()
        return head.settled and (head.number, head.manifest) == (manifest.number, manifest.digest)

    def write_head(self, head: LakeHead) -> None:
        """Write down how far the lake has come, for the holder of the claim."""
        self.storage.put(HEAD_FILE, head.content())

    # ---- rows of files

    def table(self, manifest: Manifest, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a file that a manifest names, verified. Raises ``LakeDamaged``, ``Freed``."""
        return self.sealed_table(path, manifest.files[path], columns)

    def part(self, manifest: Manifest, parts: StateParts, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a state table that ``parts`` of a manifest have, verified; out of several files they are
        in no order. ``columns``: those that are wanted; all without. Raises ``LakeDamaged``, ``Freed``."""
        if not parts.gone:
            return pa.concat_tables([self.table(manifest, path, columns) for path in parts.rows])
        gone = from_table(pa.concat_tables([self.table(manifest, path) for path in parts.gone]))
        read = None if columns is None else list(dict.fromkeys((*columns, *gone.names)))
        rows = pa.concat_tables([self.table(manifest, path, read) for path in parts.rows])
        ours, theirs = encode_keys(gone.names, from_table(rows.select(gone.names)), gone)
        rows = rows.filter(pa.array(~np.isin(ours, theirs)))
        return rows if columns is None else rows.select(columns)

    def state(self, manifest: Manifest, table: str, columns: Sequence[str] | None = None) -> list[pa.Table]:
        """Return the rows of a state table at the last height of a commit, a table a bucket, as ``part`` has them."""
        return [self.part(manifest, parts, columns) for parts in manifest.state.get(table, {}).values()]

    def outside(self, manifest: Manifest) -> dict[str, tuple[str, Seal]]:
        """Return what was recorded for the tick of a height: kind -> file and its seal."""
        return {kind: (path, manifest.files[path]) for kind, path in manifest.outside.items()}

    # ---- log tables

    def compaction(self, first: int) -> CompactionRun | None:
        """Return the record of the compaction that begins with the manifest of a number, None when there is none."""
        return self._compaction_in(compaction_path(first), lambda: self._whole_without_record(first))

    def volume(self, last: int) -> CompactionRun | None:
        """Return the records of all compactions up to the manifest of a number as one (``before``: the digest of the
        last of them), None when there is none such."""
        return self._compaction_in(volume_path(last), -1) if last >= 0 else None

    def _compaction_in(self, path: str, whole: Whole) -> CompactionRun | None:
        with self.reading(path, whole):
            try:
                return read_record(self.storage, path, CompactionRun.of)
            except FileNotFoundError:
                return None

    def _whole_without_record(self, number: int) -> int:
        """Return the last height that does without the record of the compaction that begins with a manifest."""
        with contextlib.suppress(LakeDamaged):
            return self.numbered(number).first - 1
        return -1

    def compactions(self) -> list[CompactionRun]:
        """Return the runs of commits whose log tables were compacted, ascending, without a gap."""
        newest = self.newest()
        return [] if newest is None else self.runs_after(None, newest)

    def volume_and_runs(self, manifest: Manifest) -> list[CompactionRun]:
        """Return what ``compactions`` does, but the first ones of many as one, so that few files are read."""
        done = manifest.compacted.last + 1
        volume = self.volume(done - done % (VOLUME * RUN) - 1)
        return [*([volume] if volume is not None else []), *self.runs_after(volume, manifest)]

    def runs_after(self, after: CompactionRun | None, manifest: Manifest) -> list[CompactionRun]:
        """Return the compactions after a volume, or all of them, as far as a manifest knows them and beyond."""
        known = manifest.compacted
        found: list[CompactionRun] = []
        digest, first = ("", 0) if after is None else (after.before, after.last + 1)
        if after is not None and after.last == known.last and digest != known.digest:
            raise self.damaged(volume_path(after.last), f"is not of the records that height {manifest.height} knows")
        while True:
            record, wrong = self.compaction(first), None
            if record is None:
                wrong = MISSING if first <= known.last else None
            elif record.before != digest or record.first != first:
                wrong = "does not follow on the record before it"
            elif record.last == known.last and record.digest != known.digest:
                wrong = f"is not the one that height {manifest.height} knows"
            if wrong is not None:
                raise self.damaged(compaction_path(first), wrong, self._whole_without_record(first))
            if record is None:
                return found
            found.append(record)
            digest, first = record.digest, record.last + 1

    def log_files(self, table: str, heights: range | None = None) -> dict[str, Seal]:
        """Return the files of a log table over all committed heights (or those that have some of ``heights``) with
        their seals, ascending by height."""
        files: dict[str, Seal] = {}
        if heights is not None:
            for manifest in self.commits(heights):
                files |= self._log_files_of(table, manifest)
            return files
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

    def log_rows(
        self, table: str, manifest: Manifest, bucket: int | None = None, heights: tuple[int, int] | None = None
    ) -> list[pa.Table]:
        """Return the rows of a log table, compacted or not, at the height that a manifest is looked at from: all, or
        some that hold those of ``bucket``. ``heights``: at others of its commit, the first and the last."""
        files, (first, last) = self._files_with(table, manifest, bucket), heights or (manifest.height,) * 2
        return [self.rows_at(path, seal, first, last, manifest.first - 1) for path, seal in files.items()]

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

    def rows_at(
        self, path: str, seal: Seal, first: int, last: int, whole: int, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return a log file's rows at heights from ``first`` to ``last``; row groups without any are not read.
        ``whole``: as of ``damaged``."""
        with self.open_parquet(path, seal, whole) as file:
            groups = find_row_groups(file, "height", first, last + 1)
            return select_heights(file.read_row_groups(groups, columns=columns, use_threads=False), first, last)

    def replaced(self, manifest: Manifest, paths: Sequence[str]) -> bool:
        """Return whether log files of a commit are gone because a compaction replaced them."""
        if all(self.storage.exists(path) for path in paths):
            return False
        return self.compaction(manifest.number - manifest.number % RUN) is not None


def select_height(rows: pa.Table, height: int) -> pa.Table:
    """Return the rows of a height of log rows, which ascend by height in every file."""
    return select_heights(rows, height, height)


def select_heights(rows: pa.Table, first: int, last: int) -> pa.Table:
    """Return the rows of the heights from ``first`` to ``last``."""
    heights = rows["height"].to_numpy()
    if not len(heights) or (first <= heights[0] and heights[-1] <= last):
        return rows
    start, end = np.searchsorted(heights, [first, last + 1])
    return rows.slice(start, end - start)


__all__ = ["CompactedLogs", "Freed", "Lake", "LakeDamaged", "LakeError", "Manifest", "select_height"]
