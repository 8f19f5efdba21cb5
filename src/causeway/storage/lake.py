"""Lakes: Parquet tables with one manifest a commit.

A commit holds one height, or several consecutive ones. A height is committed once its manifest exists. The manifest is
created last, and only if absent, so a commit is atomic whenever a writer is killed. Readers see committed heights only.

Each manifest lists the state tables at its last height, by file; an unchanged table reuses the file of an earlier
commit. State at the heights between is recomputed by replay (``replay``). Log tables (``outbound``, ``headers``,
``events``, ``collected``, and those of the protocol) hold the rows of one commit, or of a run of commits once
compacted.

All files are untrusted: the file that names another seals it, each manifest carries the digest of its predecessor, and
``head`` records the end of that chain. A mismatch raises ``LakeDamaged``.
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
from causeway.storage.seals import MISSING, FileDamaged, NotRegularFile, Seal, parse_seal, seal_content
from causeway.storage.vacuum_log import VACUUM_FOLDER as VACUUMED
from causeway.storage.vacuum_log import find_vacuum

KEPT_LAKES = 2
"""Number of lakes that a process caches, so that networks of one session can alternate."""

_MAX_SPANS = 1 << 16
"""Maximum number of manifests with cached height ranges."""


@cached(LRUCache(KEPT_LAKES), key=lambda content, digest: digest, lock=threading.Lock())
def _validate(content: Mapping[str, Any], digest: bytes) -> None:
    """Validate the content of a ``lake.json``.

    Commands read the file often, so each ``digest`` is validated once.
    """
    from causeway.storage.lake_description import LakeDescription

    validate_document(LakeDescription, content, "has invalid content")


@dataclass
class _ManifestSpans:
    """Height ranges of the manifests read so far. Manifests never change.

    Attributes:
        spans: First and last height by manifest number.
        latest: Number and last height of the latest manifest.
    """

    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    latest: tuple[int, int] = (-1, -1)

    def add(self, manifest: Manifest) -> tuple[int, int]:
        """Record a manifest; return its first and last heights."""
        if len(self.spans) > _MAX_SPANS:
            self.spans.clear()
        span = self.spans[manifest.number] = manifest.first, manifest.last
        self.latest = max(self.latest, (manifest.number, manifest.last))
        return span


_KNOWN: dict[tuple[str, str], _ManifestSpans] = {}
"""Cache by URI and identity of a lake; it holds one lake at a time."""


Whole = int | Callable[[], int] | None
"""Last height that does not need a file, or a function returning it; None: from the path."""


@dataclass(frozen=True)
class Lake:
    """A lake in a storage; picklable.

    Attributes:
        storage: Place of the files.
        identity: Distinguishes lakes that were created at the same place one after the other.
    """

    storage: Storage
    identity: str = ""

    @classmethod
    def at(cls, uri: str) -> Lake:
        """Return the lake at a path or URI; it need not exist."""
        return cls(Storage(uri))

    def with_identity(self) -> Lake:
        """Return the lake with its identity, read from its description."""
        return replace(self, identity=self.about()["identity"])

    def create(self, about: Mapping[str, Any], tables: Mapping[str, pa.Table] = MappingProxyType({})) -> None:
        """Create a new lake.

        The tables are written before the description, so a lake always has them all.

        Args:
            about: Description of the network, for readers and for a later resume.
            tables: Topology tables by name. Recorded traffic, if any, is in the folder already.

        Raises:
            LakeError: The folder already holds a lake, or cannot be written.
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
            # The creation time only bounds how far remote headers may move the clock of a served lake. It is stored
            # because a copy changes the file's own time.
            content = {"format": FORMAT, "identity": uuid.uuid4().hex, "made": int(time.time())}
            content |= {"files": files, **about}
            self.storage.create(LAKE_FILE, encoded(content, in_lines=True))
        except AlreadyExists:
            raise LakeError(
                f"lake: {self.storage.uri} already holds a lake; continue it with --resume, or name another folder"
            ) from None
        except OSError as error:
            raise LakeError(f"lake: {self.storage.uri} cannot be written: {first_line(error)}") from error

    def damaged(self, path: str, what: str, whole: Whole = None) -> LakeDamaged:
        """Return the error for a damaged file.

        Args:
            path: Path of the file in the lake.
            what: Description of the damage.
            whole: Last height that does not need the file, or a function that returns it; None: derived from the path.
        """
        last = last_folder_height(path) if whole is None else whole if isinstance(whole, int) else whole()
        return LakeDamaged(self.storage.uri, path, what, last)

    @contextlib.contextmanager
    def reading(self, path: str, whole: Whole = None) -> Iterator[None]:
        """Convert read errors in the body of a ``with`` statement to ``LakeDamaged``/``LakeError``."""
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

    def about(self) -> dict[str, Any]:
        """Return the description that ``create`` stored.

        Raises:
            LakeError: There is no lake, or it has another format.
        """
        return self.described()[0]

    def described(self) -> tuple[dict[str, Any], str]:
        """Return the description and the digest of its file. Raises as ``about``."""
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
            self._require_digest(raw)
            raise self.damaged(LAKE_FILE, f"has invalid content: {first_line(error)}") from None
        self._require_format(content)
        try:
            _validate(content, sha256(raw).digest())
        except InvalidInput as error:
            raise self.damaged(LAKE_FILE, str(error)) from None
        return content, content.pop("digest")

    def _require_digest(self, raw: bytes) -> None:
        """Raise ``LakeError`` for a file of an older format: those had no digest."""
        with contextlib.suppress(ValueError):
            content = load_json(raw)
            if not isinstance(content, dict):
                raise LakeError(f"lake: {self.storage.uri} cannot be read: {LAKE_FILE} is no JSON object")
            if "digest" not in content:
                self._require_format(content)

    def _require_format(self, content: Mapping[str, Any]) -> None:
        name = content.get("protocol")
        allowed = [each for each in READABLE if each >= first_format(name)]
        if content.get("format") not in allowed:
            of = f" of {name}" if allowed[0] > READABLE[0] else ""
            raise LakeError(
                f"lake: {self.storage.uri} is of format {content.get('format')}, this Causeway reads lakes{of} of "
                f"format {', '.join(map(str, allowed))}"
            )

    def exists(self) -> bool:
        """Return True if the lake exists. Raises ``LakeDamaged`` for a lake without its description."""
        if self.storage.exists(LAKE_FILE):
            return True
        if self.storage.exists(HEAD_FILE) and self.storage.exists(manifest_path(0)):
            raise self.damaged(LAKE_FILE, MISSING)
        return False

    def topology(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a table written at creation: ``chains``, ``programs`` or ``registry``."""
        path = f"{name}.parquet"
        files = self.about()["files"]
        if path not in files:
            raise self.damaged(LAKE_FILE, f"does not name {path}")
        return self.sealed_table(path, parse_seal(files[path]), columns)

    def head(self) -> LakeHead:
        """Return the head record of the last commit."""
        with self.reading(HEAD_FILE):
            return LakeHead.read(self.storage, HEAD_FILE)

    def sealed_table(
        self, path: str, seal: Seal, columns: Sequence[str] | None = None, whole: Whole = None
    ) -> pa.Table:
        """Read and verify a sealed Parquet file.

        ``whole`` as in ``damaged``. Raises ``LakeDamaged``.
        """
        with self.reading(path, whole):
            return self.storage.read_table(path, columns, seal)

    @contextlib.contextmanager
    def open_parquet(self, path: str, seal: Seal, whole: int | None = None) -> Iterator[StoredParquet]:
        """Open a sealed Parquet file; each read is verified.

        Raises:
            LakeDamaged: The file is damaged, or the body of the ``with`` statement cannot cast its rows.
        """
        with self.reading(path, whole), self.storage.open_parquet(path, seal) as file, convert_arrow_errors(path):
            yield file

    def _missing(self, path: str, whole: Whole) -> LakeError:
        """Return the error for a missing file: ``Freed`` after a vacuum, else ``LakeDamaged``."""
        folder, _, name = path.rpartition("/")
        if folder.startswith(f"{HEIGHTS}/") and "-" in name:
            table = name.rsplit("-", 2)[0].removesuffix(STATE_VACUUMED)
            state = {item["name"].replace(":", ".") for item in self.about()["tables"]["state"]}
            # A commit stores the state of its last height; a vacuum keeps at most one of two consecutive heights.
            first = int(folder.split("/")[1])
            freed = (self.freed(first) or self.freed(first + 1)) if table in state else None
            if freed is not None:
                return freed
        return self.damaged(path, MISSING, whole)

    def freed(self, height: int) -> Freed | None:
        """Return the error for a height whose state a vacuum freed, or None."""
        with self.reading(VACUUMED):
            vacuum = find_vacuum(self.storage, height)
        return None if vacuum is None else Freed(f"height: the state of {height} was freed by a vacuum; {vacuum}")

    @property
    def manifests(self) -> CommitLog[Manifest]:
        """Return the commit log."""
        return CommitLog(self.storage, MANIFESTS, "manifest", Manifest.of)

    def last_height(self) -> int:
        """Return the last committed height, or -1.

        Raises ``LakeDamaged`` if its manifest is missing.
        """
        head, number = self._last()
        return head.height if number == head.number else self.numbered(number).last

    def _last(self) -> tuple[LakeHead, int]:
        """Return the head record and the number of the last manifest."""
        head = self.head()
        last = head.number
        while self.storage.exists(manifest_path(last + 1)):  # committed by a writer killed before it updated the head
            last += 1
        if last == head.number >= 0 and not self.storage.exists(manifest_path(last)):
            raise self._damaged_manifest(last, MISSING)
        return head, last

    def heights(self) -> list[int]:
        """Return the committed heights, ascending from 0."""
        return list(range(self.last_height() + 1))

    def last_manifest(self) -> Manifest:
        """Return the manifest of the last committed height. Raises ``LakeError`` for none."""
        manifest = self.newest()
        if manifest is None:
            raise LakeError(f"lake: {self.storage.uri} has no committed height yet")
        return manifest

    def newest(self) -> Manifest | None:
        """Return the manifest of the last committed height, or None."""
        head, last = self._last()
        if last < 0:
            return None
        manifest = self.numbered(last)
        if last == head.number and manifest.digest != head.manifest:
            raise self._damaged_manifest(last, "is not the one that was committed")
        return manifest

    def manifest(self, height: int) -> Manifest:
        """Return the manifest that holds a height, viewed at that height.

        Raises:
            LakeError: The height is not committed.
            LakeDamaged: A manifest is damaged.
        """
        spans = self._cached_spans()
        number, last = spans.latest
        if 0 <= height <= last:
            return self._search_manifest(height, spans, number, last)
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
        return self._search_manifest(height, spans, head.number, head.height)

    def _search_manifest(self, height: int, cached_spans: _ManifestSpans, high: int, last: int) -> Manifest:
        """Find the manifest that holds a height: interpolation search, with bisection as fallback.

        Args:
            height: Height to find, at most ``last``.
            cached_spans: Cached height ranges.
            high: Number of the last candidate manifest.
            last: Last height of that manifest.
        """
        low, first = 0, 0
        for attempt in itertools.count():
            share = high - low if height == last else (height - first) * (high - low) // max(last - first, 1)
            number = low + ((high - low) // 2 if attempt % 2 else share)
            span = cached_spans.spans.get(number)
            if span is None or span[0] <= height <= span[1]:
                manifest = self._read_nearest(number, height, high)
                number = manifest.number
                span = cached_spans.add(manifest)
                if span[0] <= height <= span[1]:
                    return manifest.at(height)
            if height < span[0]:
                high, last = number - 1, span[0] - 1
            else:
                low, first = number + 1, span[1] + 1
            if low > high or not first <= height <= last:
                raise self._damaged_manifest(number, f"does not fit its neighbours at height {height}")
        raise AssertionError

    def _read_nearest(self, number: int, height: int, high: int) -> Manifest:
        """Return a manifest by number, or its nearest readable neighbor if it is damaged.

        The neighbor is used only if the damaged manifest does not hold the height.
        """
        try:
            return self.numbered(number)
        except LakeDamaged as error:
            neighbors = range(number - 1, -1, -1) if height <= error.whole else range(number + 1, high + 1)
            for other in neighbors:
                with contextlib.suppress(LakeDamaged):
                    manifest = self.numbered(other)
                    if height < manifest.first and height > error.whole:
                        break
                    return manifest
            raise

    def _cached_spans(self) -> _ManifestSpans:
        """Return the height ranges cached for this lake."""
        if not self.identity:
            return _ManifestSpans()
        if (self.storage.uri, self.identity) not in _KNOWN:
            _KNOWN.clear()
        return _KNOWN.setdefault((self.storage.uri, self.identity), _ManifestSpans())

    def numbered(self, number: int) -> Manifest:
        """Return a manifest by number. Raises ``LakeDamaged``."""
        with self.reading(manifest_path(number), lambda: self._last_before(number)):
            return self.manifests.read(number)

    def _damaged_manifest(self, number: int, what: str) -> LakeDamaged:
        """Return the error for a damaged manifest."""
        return self.damaged(manifest_path(number), what, lambda: self._last_before(number))

    def _last_before(self, number: int) -> int:
        """Return the last height of the readable manifests before a number, or -1."""
        for before in reversed(self.manifests.numbers()):  # a damaged head may name any number
            if before < number:
                with contextlib.suppress(FileDamaged, FileNotFoundError):
                    return self.manifests.read(before).last
        return -1

    def chain(self, first: int, last: int) -> Iterator[Manifest]:
        """Yield the manifests of a range of numbers, verifying that each follows its predecessor."""
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
        """Yield the manifests that hold any of the heights."""
        if not len(heights):
            return
        manifest = self.manifest(heights[0])
        yield manifest
        while manifest.last < heights[-1]:
            manifest = self.numbered(manifest.number + 1)
            yield manifest

    def commit(self, manifest: Manifest) -> Manifest:
        """Commit heights; return the manifest as written.

        Raises:
            LakeError: Another run committed the heights.
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
        """Record that the run finished with a manifest. Only for the holder of the claim."""
        head = self.head()
        if (head.number, head.manifest, head.settled) == (manifest.number, manifest.digest, False):
            self.write_head(replace(head, settled=True))

    def is_settled(self, manifest: Manifest) -> bool:
        """Return True if the run is recorded as finished with this manifest."""
        head = self.head()
        return head.settled and (head.number, head.manifest) == (manifest.number, manifest.digest)

    def write_head(self, head: LakeHead) -> None:
        """Write the head record. Only for the holder of the claim."""
        self.storage.put(HEAD_FILE, head.content())

    def table(self, manifest: Manifest, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read and verify a file of a manifest. Raises ``LakeDamaged``, ``Freed``."""
        return self.sealed_table(path, manifest.files[path], columns)

    def part(self, manifest: Manifest, parts: StateParts, columns: Sequence[str] | None = None) -> pa.Table:
        """Read and verify rows of a state table.

        Args:
            manifest: Manifest that seals the files.
            parts: Files with the rows, and files with the keys of removed rows.
            columns: Columns to read; None: all.

        Returns:
            The rows; unordered if they come from several files.

        Raises:
            LakeDamaged: A file is damaged.
            Freed: A vacuum removed the files.
        """
        if not parts.gone:
            return pa.concat_tables([self.table(manifest, path, columns) for path in parts.rows])
        removed = from_table(pa.concat_tables([self.table(manifest, path) for path in parts.gone]))
        needed = None if columns is None else list(dict.fromkeys((*columns, *removed.names)))
        rows = pa.concat_tables([self.table(manifest, path, needed) for path in parts.rows])
        keys, removed_keys = encode_keys(removed.names, from_table(rows.select(removed.names)), removed)
        rows = rows.filter(pa.array(~np.isin(keys, removed_keys)))
        return rows if columns is None else rows.select(columns)

    def state(self, manifest: Manifest, table: str, columns: Sequence[str] | None = None) -> list[pa.Table]:
        """Read a state table at the last height of a commit: one table a bucket. Raises as ``part``."""
        return [self.part(manifest, parts, columns) for parts in manifest.state.get(table, {}).values()]

    def outside(self, manifest: Manifest) -> dict[str, tuple[str, Seal]]:
        """Return the input recorded for the tick of a height: file and seal by kind."""
        return {kind: (path, manifest.files[path]) for kind, path in manifest.outside.items()}

    def compaction(self, first: int) -> CompactionRun | None:
        """Return the compaction record that begins with a manifest number, or None."""
        return self._compaction_in(compaction_path(first), lambda: self._whole_without_record(first))

    def volume(self, last: int) -> CompactionRun | None:
        """Return the merged record of all compactions up to a manifest number, or None.

        Its ``before`` is the digest of the last merged record.
        """
        return self._compaction_in(volume_path(last), -1) if last >= 0 else None

    def _compaction_in(self, path: str, whole: Whole) -> CompactionRun | None:
        with self.reading(path, whole):
            try:
                return read_record(self.storage, path, CompactionRun.of)
            except FileNotFoundError:
                return None

    def _whole_without_record(self, number: int) -> int:
        """Return the last height that does not need the compaction record beginning with a manifest."""
        with contextlib.suppress(LakeDamaged):
            return self.numbered(number).first - 1
        return -1

    def compactions(self) -> list[CompactionRun]:
        """Return the compacted runs of commits, ascending and without gaps."""
        newest = self.newest()
        return [] if newest is None else self.runs_after(None, newest)

    def volume_and_runs(self, manifest: Manifest) -> list[CompactionRun]:
        """Return ``compactions``, with the first ones merged into a volume to read few files."""
        done = manifest.compacted.last + 1
        volume = self.volume(done - done % (VOLUME * RUN) - 1)
        return [*([volume] if volume is not None else []), *self.runs_after(volume, manifest)]

    def runs_after(self, after: CompactionRun | None, manifest: Manifest) -> list[CompactionRun]:
        """Return the compactions after a volume (None: all).

        Each is verified against those that the manifest records.
        """
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
        """Return the files of a log table with their seals, ascending by height.

        Args:
            table: Name of the table.
            heights: Heights to cover; None: all committed heights.
        """
        files: dict[str, Seal] = {}
        if heights is not None:
            for manifest in self.commits(heights):
                files |= self._current_log_files(table, manifest)
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

    def _current_log_files(self, table: str, manifest: Manifest) -> dict[str, Seal]:
        """Return the log files of a commit, compacted or not."""
        run = self.compaction(manifest.number - manifest.number % RUN)
        if run is not None:
            return {path: run.files[path] for path in run.log.get(table, [])}
        return {path: manifest.files[path] for path in manifest.log.get(table, {}).values()}

    def log_rows(
        self, table: str, manifest: Manifest, bucket: int | None = None, heights: tuple[int, int] | None = None
    ) -> list[pa.Table]:
        """Return rows of a log table at a range of heights of a commit, compacted or not.

        Args:
            table: Name of the table.
            manifest: Manifest of the commit, viewed at a height.
            bucket: Bucket to read; the result may include rows of others. None: all.
            heights: First and last height, both in the commit; None: the height of ``manifest``.
        """
        files, (first, last) = self._log_files_for(table, manifest, bucket), heights or (manifest.height,) * 2
        return [self.rows_at(path, seal, first, last, manifest.first - 1) for path, seal in files.items()]

    def commit_rows(self, table: str, manifest: Manifest) -> list[pa.Table]:
        """Return the rows of a log table at all heights of a commit; compacted files add others."""
        files = self._log_files_for(table, manifest, None)
        return [self.sealed_table(path, seal, whole=manifest.first - 1) for path, seal in files.items()]

    def _log_files_for(self, table: str, manifest: Manifest, bucket: int | None) -> dict[str, Seal]:
        """Return the log files of a commit: all, or those that include a bucket."""
        paths = manifest.log.get(table, {})
        selected = list(paths.values()) if bucket is None else [paths[str(bucket)]] if str(bucket) in paths else []
        if self.replaced(manifest, selected):
            return self._current_log_files(table, manifest)
        return {path: manifest.files[path] for path in selected}

    def rows_at(
        self, path: str, seal: Seal, first: int, last: int, whole: int, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return rows of a log file at heights ``first`` to ``last``.

        Row groups outside that range are not read. ``whole`` as in ``damaged``.
        """
        with self.open_parquet(path, seal, whole) as file:
            groups = find_row_groups(file, "height", first, last + 1)
            return select_heights(file.read_row_groups(groups, columns=columns, use_threads=False), first, last)

    def replaced(self, manifest: Manifest, paths: Sequence[str]) -> bool:
        """Return True if a compaction replaced log files of a commit."""
        if all(self.storage.exists(path) for path in paths):
            return False
        return self.compaction(manifest.number - manifest.number % RUN) is not None


def select_height(rows: pa.Table, height: int) -> pa.Table:
    """Return the log rows of one height.

    Args:
        rows: Log rows, ascending by height.
        height: The height.
    """
    return select_heights(rows, height, height)


def select_heights(rows: pa.Table, first: int, last: int) -> pa.Table:
    """Return the log rows of a range of heights.

    Args:
        rows: Log rows, ascending by height.
        first: First height.
        last: Last height.
    """
    heights = rows["height"].to_numpy()
    if not len(heights) or (first <= heights[0] and heights[-1] <= last):
        return rows
    start, end = np.searchsorted(heights, [first, last + 1])
    return rows.slice(start, end - start)


__all__ = ["CompactedLogs", "Freed", "Lake", "LakeDamaged", "LakeError", "Manifest", "select_height"]
