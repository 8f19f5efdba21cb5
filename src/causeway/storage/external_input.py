"""External input of a lake, written before the tick that consumes it.

So a tick is a function of files alone and can be repeated. ``record/ingress/<folder>/<tick>-<digest>.parquet`` holds
user messages, ``record/carried/...`` wire bytes. Beside them are a server's notes on senders, which no tick reads:
``taken``, ``senders``, ``carriers`` (``service/node/mempool.py``). The manifest of the consuming height names the files
with their seals; a file without a manifest was never consumed.

The digest in a name is that of the file: two attempts at a tick write two files, and each can be verified alone. A
folder holds the files of ``TICKS_PER_FOLDER`` ticks, so that finding the latest ones lists few.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from causeway.config.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.storage.lake import Lake
from causeway.storage.layout import RECORD
from causeway.storage.object_store import MAX_WHOLE_BYTES
from causeway.storage.seals import FileDamaged, Seal, seal_content

INPUT_SCHEMA = pa.schema(
    [
        pa.field("hash", pa.binary(32), nullable=False),
        pa.field("sender", pa.binary(), nullable=False),
        pa.field("nonce", pa.uint64(), nullable=False),
        pa.field("height", pa.uint64(), nullable=False),
    ]
)
"""One row a message of a block: hash, sender's public key and nonce, height of the block."""

SENDERS_SCHEMA = pa.schema(
    [pa.field("sender", pa.binary(), nullable=False), pa.field("nonce", pa.uint64(), nullable=False)]
)
"""One row a sender: public key and last nonce, in order of last use.

The first row, with an empty key, has the largest nonce of the evicted senders.
"""

CARRIERS_SCHEMA = pa.schema([pa.field("sender", pa.binary(), nullable=False)])
"""One row a sender that has carried messages: its public key.

Normally the new ones of a block; all of them where ``senders`` is written.
"""

INPUT_SCHEMAS = {
    "ingress": INGRESS_SCHEMA,
    "carried": CARRIED_SCHEMA,
    "taken": INPUT_SCHEMA,
    "senders": SENDERS_SCHEMA,
    "carriers": CARRIERS_SCHEMA,
}
"""Schemas of recorded input by kind."""

ExternalInput: TypeAlias = Mapping[str, tuple[str, Seal]]
"""Recorded input of a tick: file and seal by kind."""

NO_INPUT: ExternalInput = MappingProxyType({})
"""A tick without recorded input."""

TICKS_PER_FOLDER = 4096
"""Number of ticks in a folder."""

_FOLDER = re.compile(r"\d{17}")
_NAME = re.compile(r"(\d{20})-([0-9a-f]{16})\.parquet")


def has_input(outside: ExternalInput) -> bool:
    """Return True if the record has input for the tick, beyond notes on senders.

    Args:
        outside: Recorded files of the tick.
    """
    return "ingress" in outside or "carried" in outside


@dataclass(frozen=True)
class InputRecord:
    """The record of a lake; picklable."""

    lake: Lake

    def write(self, tick: int, **tables: pa.Table | None) -> ExternalInput:
        """Write the input of a tick that has not run.

        Args:
            tick: The tick.
            tables: Rows by kind (``INPUT_SCHEMAS``).

        Returns:
            The files.
        """
        storage, found = self.lake.storage, {}
        folders: set[str] = set()
        for kind, schema in INPUT_SCHEMAS.items():
            table = tables.get(kind)
            if table is not None and table.num_rows:
                sink = pa.BufferOutputStream()
                pq.write_table(table.cast(schema), sink, compression="lz4", write_page_checksum=True)
                content = sink.getvalue().to_pybytes()
                folder = f"{RECORD}/{kind}/{tick // TICKS_PER_FOLDER:017d}"
                storage.make_folder(folder)
                folders |= {folder, f"{RECORD}/{kind}", RECORD, ""}
                path = f"{folder}/{tick:020d}-{_digest(content)}.parquet"
                with storage.place.writer(path) as file:
                    file.write(content)
                found[kind] = path, seal_content(content)
        if found:
            storage.sync([*(path for path, _ in found.values()), *sorted(folders)])
        return found

    def remove(self, old: ExternalInput, new: ExternalInput) -> None:
        """Remove the files of a failed attempt at a tick, except those that the new one reuses."""
        reused = {path for path, _ in new.values()}
        for path, _ in old.values():
            if path not in reused:
                self.lake.storage.remove(path)

    def forget(self, since: int, but: int | None = None) -> ExternalInput:
        """Remove uncommitted input of ticks from ``since`` on. Only for the holder of the claim.

        Args:
            since: First tick.
            but: Tick to keep; None: none.

        Returns:
            The files of tick ``but``.
        """
        retained: dict[str, tuple[str, Seal]] = {}
        for kind in INPUT_SCHEMAS:
            for tick, paths in self.newest(kind, since):
                for path in paths:
                    if tick == but:
                        retained[kind] = path, seal_content(self._content(path))
                    else:
                        self.lake.storage.remove(path)
        return retained

    def rows(self, outside: ExternalInput, kind: str, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return the input to chains (numbers) in order of arrival. Raises ``LakeDamaged``."""
        if kind not in outside:
            return INPUT_SCHEMAS[kind].empty_table()
        path, seal = outside[kind]
        rows = self.lake.sealed_table(path, seal, whole=lambda: self._whole_before(path)).cast(INPUT_SCHEMAS[kind])
        return rows.filter(pa.array(np.isin(rows["chain"].to_numpy(), chains)))

    def newest(self, kind: str, since: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Yield the ticks from ``since`` on with files of a kind, latest first, with these files.

        A tick has several files after failed attempts. Folders are listed on demand.
        """
        storage = self.lake.storage
        for folder in reversed(storage.list(f"{RECORD}/{kind}")):
            if not _FOLDER.fullmatch(folder) or int(folder) < since // TICKS_PER_FOLDER:
                continue
            found: dict[int, list[str]] = {}
            for name in reversed(storage.list(f"{RECORD}/{kind}/{folder}")):
                if (known := _NAME.fullmatch(name)) and int(known[1]) >= since:
                    found.setdefault(int(known[1]), []).append(f"{RECORD}/{kind}/{folder}/{name}")
            yield from found.items()

    def read(self, kind: str, path: str) -> pa.Table:
        """Read a file of a kind. Raises ``LakeDamaged``."""
        return pq.read_table(pa.BufferReader(self._content(path))).cast(INPUT_SCHEMAS[kind])

    def _content(self, path: str) -> bytes:
        with self.lake.reading(path, lambda: self._whole_before(path)):
            content = self.lake.storage.read_bytes(path, MAX_WHOLE_BYTES)
            if _digest(content) not in path:
                raise FileDamaged(path, "has other bytes than were written")
        return content

    def _whole_before(self, path: str) -> int:
        """Return the last height that does not need a file; height 0 consumes no input."""
        named = _NAME.fullmatch(path.rpartition("/")[2])
        assert named is not None, path
        heights = range(self.lake.last_height() + 1)
        return max(bisect_left(heights, int(named[1]), key=lambda height: self.lake.manifest(height).tick) - 1, 0)


def _digest(content: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(content)
