"""Recorded traffic into a stored ledger: each record of each file once, whatever was killed before.

One call is one commit. Rows are sorted and written a batch at a time; what is in memory is a batch.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa

from causeway.ingest.chunks import unpacked_name
from causeway.ingest.mapping import MappingDocument
from causeway.ingest.reader import ENDINGS, is_of, take_file
from causeway.ingest.windows import Seen, promises
from causeway.ledger.order import buckets_of, without_repeats
from causeway.model.errors import InvalidInput
from causeway.pipeline.ledger_store import (
    LEDGER_FILE,
    Input,
    Ledger,
    LedgerWriter,
    create_ledger,
    open_ledger,
)
from causeway.pipeline.places import LocalPlace
from causeway.pipeline.storage import Storage

BATCH_BYTES = 512 << 20
"""About how much of the ledger is in memory before it is sorted and written."""

_READ = 8 << 20
_ROW_BYTES = {"csv": 200, "jsonl": 1000, "parquet": 20}
"""About how many bytes a record takes, by the format: to choose how many buckets a new ledger has."""

_BUCKET_ROWS = 400_000
_MOST_CHOSEN = 64

Progress = Callable[[int, int], None]
"""Told how many bytes are read, and of how many."""


@dataclass
class Ingested:
    """What one call did. ``commit``: the number of the commit, None: nothing was new. ``records``: that were read;
    ``rows``: of the ledger that were written; ``repeated``: rows that say again what another one said; ``quarantined``:
    records that could not be read, by the reason; ``skipped``: files of which all was taken before."""

    commit: int | None
    files: int
    records: int
    rows: int
    repeated: int
    ignored: int
    blank: int
    quarantined: dict[str, int]
    skipped: int
    others: int


@dataclass(frozen=True)
class _Source:
    storage: Storage
    path: str
    size: int
    sha256: str

    def open(self) -> IO[bytes] | _Remote:
        place = self.storage.place
        if isinstance(place, LocalPlace):
            return open(place.full(self.path), "rb", buffering=0)
        return _Remote(self.storage, self.path, self.size)


def ingest(
    source: str, lake: str, mapping: MappingDocument, *, buckets: int | None = None, progress: Progress | None = None
) -> Ingested:
    """Take the files of ``source``, a file or a folder (paths or URIs), into the ledger at ``lake``, made if need be.

    A file of which the same mapping took all bytes before is skipped, whatever it is called. ``buckets``: of a new
    ledger; default: by the size of the files. ``progress``: told of the bytes that are read.

    Raises ``InvalidInput`` for files that are not as the mapping says, or when another process commits at the same
    time; nothing is committed then.
    """
    found, others = _files(source, mapping)
    known = identity(mapping)
    ledger = _opened(lake)
    before = set() if ledger is None else {(each.sha256, each.mapping) for each in ledger.taken()}
    sources: list[_Source] = []
    for each in found:
        if (each.sha256, known) not in before:
            before.add((each.sha256, known))
            sources.append(each)
    skipped = len(found) - len(sources)
    if not sources:
        if ledger is None:
            raise InvalidInput(f"{source}: no files of format {mapping.format} ({', '.join(ENDINGS[mapping.format])})")
        return Ingested(None, 0, 0, 0, 0, 0, 0, {}, skipped, others)
    if ledger is None:
        ledger = create_ledger(lake, buckets or _buckets_for(sources, mapping))
    elif buckets is not None and buckets != ledger.buckets:
        raise InvalidInput(f"buckets: {buckets}: the ledger at {lake} has {ledger.buckets}, for good")
    writer = LedgerWriter(ledger)
    try:
        return _Taking(writer, mapping, progress).run(sources, known, skipped, others)
    except BaseException:
        writer.abandon()
        raise


def identity(mapping: MappingDocument) -> str:
    """Return the digest of what a mapping says."""
    text = json.dumps(mapping.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class _Taking:
    def __init__(self, writer: LedgerWriter, mapping: MappingDocument, progress: Progress | None) -> None:
        self._writer, self._mapping, self._progress = writer, mapping, progress
        self._rows: list[pa.Table] = []
        self._bytes = 0
        self._written = self._taken = 0

    def run(self, sources: list[_Source], known: str, skipped: int, others: int) -> Ingested:
        ledger = self._writer.ledger
        seen = Seen(self._mapping)
        observed, promised = ledger.table("observed"), ledger.table("promises")
        seen.resume(observed)
        reasons: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        quarantine: list[pa.Table] = []
        inputs = []
        total, done = sum(source.size for source in sources), 0
        for source in sources:
            records = 0
            with source.open() as stream:
                for taken in take_file(stream, source.path, source.size, self._mapping):
                    records += taken.records
                    counts.update(ignored=taken.ignored, blank=taken.blank)
                    if taken.quarantine.num_rows:
                        reasons += taken.reasons()
                        quarantine.append(taken.quarantine)
                    seen.add(taken.ledger)
                    self._add(taken.ledger)
                    if self._progress is not None:
                        self._progress(done + min(stream.tell(), source.size), total)
            done += source.size
            inputs.append(Input(source.path, source.size, source.sha256, records, known))
        self._flush()
        if quarantine:
            self._writer.write("quarantine", pa.concat_tables(quarantine))
        now = seen.observed(observed)
        if not now.equals(observed):
            self._writer.write("observed", now)
        now = promises(self._mapping, promised)
        if not now.equals(promised):
            self._writer.write("promises", now)
        records = sum(each.records for each in inputs)
        counts.update(
            records=records, rows=self._written, repeated=self._taken - self._written, quarantined=reasons.total()
        )
        commit = self._writer.commit(inputs, counts)
        return Ingested(
            commit.number, len(sources), records, self._written, self._taken - self._written, counts["ignored"],
            counts["blank"], dict(sorted(reasons.items())), skipped, others,
        )  # fmt: skip

    def _add(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._rows.append(rows)
            self._bytes += rows.nbytes
            if self._bytes >= BATCH_BYTES:
                self._flush()

    def _flush(self) -> None:
        """Sort what is in memory, and write a file for each bucket that has some of it."""
        if not self._rows:
            return
        rows = pa.concat_tables(self._rows).unify_dictionaries()
        self._rows, self._bytes = [], 0
        self._taken += rows.num_rows
        buckets = self._writer.ledger.buckets
        of_rows = buckets_of(rows, buckets) if buckets > 1 else None
        present = [0] if of_rows is None else np.unique(of_rows).tolist()

        def store(bucket: int) -> int:
            mine = rows if of_rows is None else rows.take(pa.array(np.flatnonzero(of_rows == bucket)))
            mine = without_repeats(mine)
            self._writer.write("ledger", mine, bucket)
            return int(mine.num_rows)

        with ThreadPoolExecutor(min(os.cpu_count() or 1, 4), "causeway-sort") as pool:
            self._written += sum(pool.map(store, present))


def _opened(lake: str) -> Ledger | None:
    return open_ledger(lake) if Storage(lake).exists(LEDGER_FILE) else None


def _files(source: str, mapping: MappingDocument) -> tuple[list[_Source], int]:
    """Return the files to take, by their names, and how many others a folder has. Raises ``InvalidInput``."""
    whole = Storage(source.rstrip("/") or "/")
    parent, _, name = whole.uri.rpartition("/")
    if isinstance(whole.place, LocalPlace):
        path = whole.place.root
        if not os.path.exists(path):
            raise InvalidInput(f"{source}: no such file or folder")
        parent, name = os.path.split(path)
        folder = os.path.isdir(path)
    else:
        folder = "://" not in parent or Storage(parent).size(name) is None
    if not folder:
        return [_digested(Storage(parent), name)], 0
    names = whole.list("")
    chosen = [each for each in names if is_of(mapping.format, each)]
    if not chosen:
        raise InvalidInput(f"{source}: no files of format {mapping.format} ({', '.join(ENDINGS[mapping.format])})")
    return [_digested(whole, each) for each in chosen], len(names) - len(chosen)


def _digested(storage: Storage, path: str) -> _Source:
    digest, size = hashlib.sha256(), 0
    with _Source(storage, path, storage.size(path) or 0, "").open() as stream:
        while content := stream.read(_READ):
            digest.update(content)
            size += len(content)
    return _Source(storage, path, size, digest.hexdigest())


def _buckets_for(sources: list[_Source], mapping: MappingDocument) -> int:
    """Return how many buckets a new ledger gets: a power of two."""
    packed = sum(source.size for source in sources if unpacked_name(source.path) != source.path)
    size = sum(source.size for source in sources) + 4 * packed
    rows = size // _ROW_BYTES[mapping.format]
    return min(1 << max(rows // _BUCKET_ROWS, 0).bit_length(), _MOST_CHOSEN)


class _Remote(io.RawIOBase):
    """A file in a store, read a range at a time."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        super().__init__()
        self._storage, self._path, self._size, self._at = storage, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        found = self._storage.place.read_range(self._path, self._at, end)
        self._at += len(found)
        return found


__all__ = ["Ingested", "identity", "ingest"]
