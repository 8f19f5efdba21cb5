"""Exchange between buckets from one height to the next: headers, tables, outbound entries.

Every bucket packs its offers into parts, one a table and consumer (a bucket, or everyone). Small parts travel to the
driver with the task's result. The driver merges them into one file of the height, the ``exchange``, with a section for
everyone and a section a consumer. So a task finds its input in one file, whatever the number of buckets. Parts beyond
the limit stay in a file of the bucket, and the section refers to them: a task opens no file of a bucket without parts
for it, and reads only its parts.

Each section and each part in a bucket's file has a digest, so exactly the bytes used are verified. An exchange is
derived from the state and the logs of its height; only the next height reads it.
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
"""Maximum bytes that all buckets together pass to the driver for a height."""

ALL_BUCKETS = -1
"""Consumer of parts that all buckets read."""

HEADERS = "headers"
ENTRIES = "outbound"
ROW_GROUP = "outbound row group"
"""Entries for a consumer as a row group of a bucket's outbound file.

The file's footer, needed to read a row group, is offered to everyone.
"""

FOOTER = "outbound footer"

_LENGTH = 8
"""Bytes of the length field in front of a section's index."""

_CODEC = "lz4"


class OfferPart(NamedTuple):
    """A part of a bucket's offers: rows of a table for a consumer.

    Attributes:
        taker: The consumer.
        table: Name of the table.
        path: File of the part; empty for bytes stored with the offer.
        start: First byte.
        end: End of the bytes.
        size: Unpacked size in bytes; for a row group its number in the file.
        digest: Digest of the bytes in a file.
    """

    taker: int
    table: str
    path: str
    start: int
    end: int
    size: int
    digest: str = ""


@dataclass(frozen=True)
class BucketOffers:
    """All offers of a bucket at a height. ``content``: bytes of the parts without a file."""

    parts: tuple[OfferPart, ...] = ()
    content: bytes = b""

    def files(self) -> set[str]:
        """Return the files that hold only parts."""
        return {part.path for part in self.parts if part.path and part.table not in (ROW_GROUP, FOOTER)}


def offer_limit(buckets: int) -> int:
    """Return the maximum bytes that each bucket may pass to the driver."""
    return DRIVER_BYTES // buckets


@dataclass
class OfferWriter:
    """Packs the offers of a bucket, up to ``room`` bytes; the rest is spilled to a file."""

    room: int
    _parts: list[OfferPart] = field(default_factory=list)
    _content: list[bytes] = field(default_factory=list)
    _length: int = 0
    _spilled: list[tuple[int, str, bytes, int]] = field(default_factory=list)

    def left(self) -> int:
        """Return the number of bytes still available."""
        return self.room - self._length

    def add(self, table: str, parts: Iterable[tuple[int, pa.Table]]) -> None:
        """Offer rows of a table to each consumer."""
        packed = [(consumer, table, *_pack(rows)) for consumer, rows in parts if rows.num_rows]
        if sum(len(content) for _, _, content, _ in packed) > self.left():
            self._spilled += packed
            return
        for consumer, name, content, size in packed:
            self._parts.append(OfferPart(consumer, name, "", self._length, self._length + len(content), size))
            self._content.append(content)
            self._length += len(content)

    def refer(self, parts: Iterable[OfferPart]) -> None:
        """Offer parts that are in a file already."""
        self._parts += parts

    def spill(self, storage: Storage, path: str) -> Seal | None:
        """Write the parts that exceeded the limit to a file; return its seal, or None."""
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
        """Return all offers."""
        return BucketOffers(tuple(self._parts), b"".join(self._content))


def group_by_consumer(table: pa.Table, takers: Any, but: int | None = None) -> Iterator[tuple[int, pa.Table]]:
    """Group rows by consumer, in the table's order.

    Args:
        table: The rows.
        takers: Consumer of each row.
        but: Consumer to skip.

    Yields:
        Each consumer with its rows.
    """
    order = stable_order(takers)
    takers = takers[order]
    if not bool((order[1:] > order[:-1]).all()):
        table = table.take(pa.array(order))
    bounds = np.flatnonzero(np.diff(takers)) + 1
    starts = [0, *bounds.tolist()] if len(takers) else []
    for start, end in zip(starts, [*starts[1:], len(takers)], strict=True):
        if (consumer := int(takers[start])) != but:
            yield consumer, table.slice(start, end - start)


def row_group_parts(path: str, takers: Sequence[int], cuts: Sequence[tuple[int, int, str]]) -> list[OfferPart]:
    """Return the parts of a Parquet file with one row group a consumer.

    Args:
        path: The file.
        takers: Consumers in order of row groups.
        cuts: First byte, end and digest of each row group, and of the footer.
    """
    groups = [
        OfferPart(consumer, ROW_GROUP, path, start, end, number, digest)
        for number, (consumer, (start, end, digest)) in enumerate(zip(takers, cuts, strict=False))
    ]
    start, end, digest = cuts[-1]
    return [*groups, OfferPart(ALL_BUCKETS, FOOTER, path, start, end, end - start, digest)]


def _pack(table: pa.Table) -> tuple[bytes, int]:
    """Compress rows as a record batch; return it with its unpacked size."""
    has_dictionaries = any(pa.types.is_dictionary(kind) for kind in table.schema.types)
    plain = table.cast(_plain_schema(table.schema)) if has_dictionaries else table
    (batch,) = plain.combine_chunks().to_batches()
    content = batch.serialize()
    return pa.compress(content, _CODEC, asbytes=True), content.size


def _unpack(content: Any, size: int, schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.decompress(content, size, _CODEC), _plain_schema(schema))


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    """Replace dictionaries by plain columns: a single record batch has no dictionaries."""
    kinds = [item.type.value_type if pa.types.is_dictionary(item.type) else item.type for item in schema]
    return pa.schema([pa.field(name, kind) for name, kind in zip(schema.names, kinds, strict=True)])


# ---- the exchange of a height


def write_exchange(
    lake: Lake, folder: str, attempt: str, offers: Mapping[int, BucketOffers]
) -> tuple[ExchangeFile, Seal] | None:
    """Merge the offers of all buckets into one file.

    Args:
        lake: The lake.
        folder: Folder of the height.
        attempt: Suffix that distinguishes retries.
        offers: Offers by bucket.

    Returns:
        The file with its sections and its seal, or None for a single bucket.
    """
    if len(offers) < 2:
        return None
    path = f"{folder}/exchange-{attempt}"
    written: dict[int, tuple[list[list[Any]], list[bytes]]] = {
        consumer: ([], []) for consumer in (ALL_BUCKETS, *sorted(offers))
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
    """The offers to one bucket at a height. Raises ``LakeDamaged`` if they are corrupted."""

    lake: Lake
    parts: Mapping[str, Mapping[int, tuple[OfferPart, Any]]]
    """Part and its bytes (None for a row group or footer), by table and offering bucket."""

    @classmethod
    def of(cls, lake: Lake, manifest: Manifest, exchange: ExchangeFile, takers: Sequence[int]) -> PulledSlices:
        """Read the sections of consumers."""
        wanted = [exchange.sections[1 + consumer] for consumer in takers]
        found: dict[str, dict[int, tuple[OfferPart, Any]]] = {}
        elsewhere: dict[str, list[tuple[int, OfferPart]]] = {}
        for consumer, content in zip(takers, _read_sections(lake, exchange.path, wanted), strict=True):
            length = int.from_bytes(content[:_LENGTH], "little")
            inside = memoryview(content)[_LENGTH + length :]
            for bucket, *rest in json.loads(content[_LENGTH : _LENGTH + length]):
                part = OfferPart(consumer, *rest)
                if part.path and part.table not in (ROW_GROUP, FOOTER):
                    elsewhere.setdefault(part.path, []).append((bucket, part))
                else:
                    content_bytes = None if part.path else inside[part.start : part.end]
                    found.setdefault(part.table, {})[bucket] = part, content_bytes
        for path, parts in elsewhere.items():
            wanted = [FileSection(part.start, part.end, part.digest) for _, part in parts]
            for (bucket, part), content in zip(parts, _read_sections(lake, path, wanted), strict=True):
                found.setdefault(part.table, {})[bucket] = part, content
        return cls(lake, found)

    def rows(self, table: str, schema: pa.Schema, but: int | None = None) -> Frame:
        """Concatenate the rows of a table that the buckets offer, except one."""
        parts = {bucket: given for bucket, given in self.parts.get(table, {}).items() if bucket != but}
        return _frame([_unpack(content, part.size, schema) for part, content in parts.values()], schema)

    def entries(self, bucket: int, schema: pa.Schema) -> Frame | None:
        """Return the outbound entries that a bucket offers, or None."""
        if (packed := self.parts.get(ENTRIES, {}).get(bucket)) is not None:
            return _frame([_unpack(packed[1], packed[0].size, schema)], schema)
        if (group := self.parts.get(ROW_GROUP, {}).get(bucket)) is None:
            return None
        part, footer = group[0], self.parts[FOOTER][bucket][0]
        sections = [
            FileSection(part.start, part.end, part.digest),
            FileSection(footer.start, footer.end, footer.digest),
        ]
        content, end = _read_sections(self.lake, part.path, sections)
        with self.lake.reading(part.path):
            reader = pa.PythonFile(part_reader(part.path, footer.end, part.start, content), mode="r")
            with pq.ParquetFile(reader, metadata=pq.read_metadata(pa.BufferReader(end)), pre_buffer=False) as file:
                return from_table(file.read_row_groups([part.size], schema.names, use_threads=False))


def _frame(batches: list[pa.RecordBatch], schema: pa.Schema) -> Frame:
    table = pa.Table.from_batches(batches, _plain_schema(schema))
    for number, item in enumerate(schema):
        if pa.types.is_dictionary(item.type):
            table = table.set_column(number, item.name, table.column(number).dictionary_encode())
    return from_table(table)


def _read_sections(lake: Lake, path: str, sections: Sequence[FileSection]) -> Sequence[bytes]:
    """Read and verify sections of a file. Raises ``LakeDamaged``."""
    with lake.reading(path):
        found = lake.storage.place.read_ranges(path, [(section.start, section.end) for section in sections])
        for section, content in zip(sections, found, strict=True):
            check_part(path, section.start, section.end, section.digest, content)
        return found
