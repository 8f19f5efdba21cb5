"""What buckets offer each other from one height to the next: headers, the rows of shown tables, outbound entries.

Every bucket packs its offers into parts, one a table and taker (the bucket that will read it; or everyone). Small parts
go to the driver with the task's result. It puts those of all buckets together in one file of the height, the
``exchange``, with a section for everyone and a section a taker, so that a task finds what is for it in one file,
whatever the number of buckets. What is larger than ``ROOM`` allows stays in a file of the bucket, and the section says
where: a task opens no file of a bucket that has nothing for it, and reads only its parts.

Each section and each part that lies in a bucket's file has a digest of its own, so that exactly the bytes that are used
are verified. An exchange is derived from the state and the logs of its height; only the height after it reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from causeway_proofs.order import stable_order

from causeway.core.frame import Frame, from_table
from causeway.storage.files import Storage
from causeway.storage.lake import Lake
from causeway.storage.manifests import ExchangeFile, FileSection, Manifest
from causeway.storage.seals import Seal, check_part, digest_part, part_reader, seal_content

DRIVER_BYTES = 8 << 20
"""Bytes that all buckets together may hand to the driver for a height."""

ALL_BUCKETS = -1
"""The taker of what all buckets read."""

HEADERS = "headers"
ENTRIES = "outbound"
ROW_GROUP = "outbound row group"
"""Entries for a taker that lie in the Parquet file of a bucket's outbound entries; the file's end is for everyone, who
may need it to read a row group."""

FOOTER = "outbound footer"

_LENGTH = 8
"""Bytes in front of a section that say how long its index is."""

_CODEC = "lz4"


class OfferPart(NamedTuple):
    """A part of what a bucket offers: a ``table``'s rows for a ``taker``, as the bytes ``start`` to ``end`` - 1 of a
    file; of what lies beside it where ``path`` is empty. ``digest``: of the bytes, where they lie in a file. ``size``:
    how many bytes they are unpacked; of a row group its number in the file."""

    taker: int
    table: str
    path: str
    start: int
    end: int
    size: int
    digest: str = ""


@dataclass(frozen=True)
class BucketOffers:
    """All that a bucket offers at a height. ``content``: the bytes of the parts that lie in no file."""

    parts: tuple[OfferPart, ...] = ()
    content: bytes = b""

    def files(self) -> set[str]:
        """Return the files that hold nothing but parts."""
        return {part.path for part in self.parts if part.path and part.table not in (ROW_GROUP, FOOTER)}


def offer_limit(buckets: int) -> int:
    """Return how many bytes one of so many buckets may hand to the driver."""
    return DRIVER_BYTES // buckets


@dataclass
class OfferWriter:
    """Packs the offers of one bucket: the tables in the order in which they are added, as long as there is ``room``,
    and the others for a file."""

    room: int
    _parts: list[OfferPart] = field(default_factory=list)
    _content: list[bytes] = field(default_factory=list)
    _length: int = 0
    _spilled: list[tuple[int, str, bytes, int]] = field(default_factory=list)

    def left(self) -> int:
        """Return how many bytes there is room for yet."""
        return self.room - self._length

    def add(self, table: str, parts: Iterable[tuple[int, pa.Table]]) -> None:
        """Offer rows of a table, those of each taker."""
        packed = [(taker, table, *_packed(rows)) for taker, rows in parts if rows.num_rows]
        if sum(len(content) for _, _, content, _ in packed) > self.left():
            self._spilled += packed
            return
        for taker, name, content, size in packed:
            self._parts.append(OfferPart(taker, name, "", self._length, self._length + len(content), size))
            self._content.append(content)
            self._length += len(content)

    def refer(self, parts: Iterable[OfferPart]) -> None:
        """Offer what lies in a file already."""
        self._parts += parts

    def spill(self, storage: Storage, path: str) -> Seal | None:
        """Write what there was no room for into a file; return its seal, None when there was room for all."""
        if not self._spilled:
            return None
        start = 0
        for taker, table, content, size in self._spilled:
            end = start + len(content)
            self._parts.append(OfferPart(taker, table, path, start, end, size, digest_part(content)))
            start = end
        whole = b"".join(content for _, _, content, _ in self._spilled)
        with storage.place.writer(path) as file:
            file.write(whole)
        return seal_content(whole)

    def offers(self) -> BucketOffers:
        """Return what was offered."""
        return BucketOffers(tuple(self._parts), b"".join(self._content))


def group_by_consumer(table: pa.Table, takers: Any, but: int | None = None) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of a table for each taker, in the table's order. ``takers``: of each row. ``but``: a taker that
    needs none."""
    order = stable_order(takers)
    takers = takers[order]
    if not bool((order[1:] > order[:-1]).all()):
        table = table.take(pa.array(order))
    bounds = np.flatnonzero(np.diff(takers)) + 1
    starts = [0, *bounds.tolist()] if len(takers) else []
    for start, end in zip(starts, [*starts[1:], len(takers)], strict=True):
        if (taker := int(takers[start])) != but:
            yield taker, table.slice(start, end - start)


def row_group_parts(path: str, takers: Sequence[int], cuts: Sequence[tuple[int, int, str]]) -> list[OfferPart]:
    """Return the parts of a Parquet file with a row group a taker. ``cuts``: first byte, end and digest of each row
    group, and of what comes after them."""
    groups = [
        OfferPart(taker, ROW_GROUP, path, start, end, number, digest)
        for number, (taker, (start, end, digest)) in enumerate(zip(takers, cuts, strict=False))
    ]
    start, end, digest = cuts[-1]
    return [*groups, OfferPart(ALL_BUCKETS, FOOTER, path, start, end, end - start, digest)]


def _packed(table: pa.Table) -> tuple[bytes, int]:
    """Return rows as a packed record batch, and how many bytes it is unpacked."""
    plain = table.cast(_plain(table.schema)) if _has_dictionaries(table.schema) else table
    (batch,) = plain.combine_chunks().to_batches()
    content = batch.serialize()
    return pa.compress(content, _CODEC, asbytes=True), content.size


def _unpacked(content: Any, size: int, schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.decompress(content, size, _CODEC), _plain(schema))


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema with plain columns in place of dictionaries: a record batch by itself has no dictionaries."""
    kinds = [item.type.value_type if pa.types.is_dictionary(item.type) else item.type for item in schema]
    return pa.schema([pa.field(name, kind) for name, kind in zip(schema.names, kinds, strict=True)])


def _has_dictionaries(schema: pa.Schema) -> bool:
    return any(pa.types.is_dictionary(item.type) for item in schema)


# ---- the exchange of a height


def write_exchange(
    lake: Lake, folder: str, attempt: str, offers: Mapping[int, BucketOffers]
) -> tuple[ExchangeFile, Seal] | None:
    """Put the offers of all buckets together in one file; return where its sections are, and its seal. None when there
    is one bucket: it offers nothing."""
    if len(offers) < 2:
        return None
    path = f"{folder}/exchange-{attempt}"
    written: dict[int, tuple[list[list[Any]], list[bytes]]] = {
        taker: ([], []) for taker in (ALL_BUCKETS, *sorted(offers))
    }
    lengths = dict.fromkeys(written, 0)
    for bucket, offered in sorted(offers.items()):
        for part in offered.parts:
            index, content = written[part.taker]
            if part.path:
                index.append([bucket, *part[1:]])
                continue
            start, length = lengths[part.taker], part.end - part.start
            index.append([bucket, part.table, "", start, start + length, part.size, ""])
            content.append(offered.content[part.start : part.end])
            lengths[part.taker] += length
    sections: list[FileSection] = []
    whole, position = [], 0
    for index, content in written.values():
        head = json.dumps(index, separators=(",", ":")).encode()
        section = b"".join([len(head).to_bytes(_LENGTH, "little"), head, *content])
        sections.append(FileSection(position, position + len(section), digest_part(section)))
        whole.append(section)
        position += len(section)
    file_content = b"".join(whole)
    with lake.storage.place.writer(path) as file:
        file.write(file_content)
    lake.storage.sync([path, folder])
    return ExchangeFile(path, tuple(sections)), seal_content(file_content)


@dataclass(frozen=True)
class PulledSlices:
    """What is offered to one bucket at a height. Raises ``LakeDamaged`` where it is not what was written."""

    lake: Lake
    parts: Mapping[str, Mapping[int, tuple[OfferPart, Any]]]
    """Table -> bucket that offers -> part and its bytes, None of a row group or footer."""

    @classmethod
    def of(cls, lake: Lake, manifest: Manifest, exchange: ExchangeFile, takers: Sequence[int]) -> PulledSlices:
        """Read the sections of ``takers``."""
        asked = [exchange.sections[1 + taker] for taker in takers]
        found: dict[str, dict[int, tuple[OfferPart, Any]]] = {}
        elsewhere: dict[str, list[tuple[int, OfferPart]]] = {}
        for taker, content in zip(takers, _ranges(lake, exchange.path, asked), strict=True):
            length = int.from_bytes(content[:_LENGTH], "little")
            inside = memoryview(content)[_LENGTH + length :]
            for bucket, *rest in json.loads(content[_LENGTH : _LENGTH + length]):
                part = OfferPart(taker, *rest)
                if part.path and part.table not in (ROW_GROUP, FOOTER):
                    elsewhere.setdefault(part.path, []).append((bucket, part))
                else:
                    here = None if part.path else inside[part.start : part.end]
                    found.setdefault(part.table, {})[bucket] = part, here
        for path, parts in elsewhere.items():
            asked = [FileSection(part.start, part.end, part.digest) for _, part in parts]
            for (bucket, part), content in zip(parts, _ranges(lake, path, asked), strict=True):
                found.setdefault(part.table, {})[bucket] = part, content
        return cls(lake, found)

    def rows(self, table: str, schema: pa.Schema, but: int | None = None) -> Frame:
        """Return the rows of a table that the buckets offer, all ``but`` one, one after the other."""
        parts = {bucket: given for bucket, given in self.parts.get(table, {}).items() if bucket != but}
        return _frame([_unpacked(content, part.size, schema) for part, content in parts.values()], schema)

    def entries(self, bucket: int, schema: pa.Schema) -> Frame | None:
        """Return the outbound entries that a bucket offers, None when it offers none."""
        if (packed := self.parts.get(ENTRIES, {}).get(bucket)) is not None:
            return _frame([_unpacked(packed[1], packed[0].size, schema)], schema)
        if (group := self.parts.get(ROW_GROUP, {}).get(bucket)) is None:
            return None
        part, footer = group[0], self.parts[FOOTER][bucket][0]
        sections = [
            FileSection(part.start, part.end, part.digest),
            FileSection(footer.start, footer.end, footer.digest),
        ]
        content, end = _ranges(self.lake, part.path, sections)
        with self.lake.reading(part.path):
            reader = pa.PythonFile(part_reader(part.path, footer.end, part.start, content), mode="r")
            with pq.ParquetFile(reader, metadata=pq.read_metadata(pa.BufferReader(end)), pre_buffer=False) as file:
                return from_table(file.read_row_groups([part.size], schema.names, use_threads=False))


def _frame(batches: list[pa.RecordBatch], schema: pa.Schema) -> Frame:
    table = pa.Table.from_batches(batches, _plain(schema))
    for number, item in enumerate(schema):
        if pa.types.is_dictionary(item.type):
            table = table.set_column(number, item.name, table.column(number).dictionary_encode())
    return from_table(table)


def _ranges(lake: Lake, path: str, sections: Sequence[FileSection]) -> Sequence[bytes]:
    """Return parts of a file, verified. Raises ``LakeDamaged``."""
    with lake.reading(path):
        found = lake.storage.place.read_ranges(path, [(section.start, section.end) for section in sections])
        for section, content in zip(sections, found, strict=True):
            check_part(path, section.start, section.end, section.digest, content)
        return found
