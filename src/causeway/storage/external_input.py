"""What came from outside while a lake was run: written into the lake before the tick that takes it in.

So a tick is a function of files alone, whoever runs it again: ``record/ingress/<folder>/<tick>-<digest>.parquet`` are
messages of users, ``record/carried/...`` wire bytes. What a server remembers of their senders lies beside them, and no
tick reads it: ``taken``, ``senders``, ``carriers`` (``service/node/mempool.py``). The manifest of the height that took
them
in names them, with their seals. What no manifest names was never taken in. The digest in a name is that of the file:
two attempts at a tick write two files, and each tells by itself whether it is what was written. A folder has the files
of ``TICKS`` ticks, so that who looks for the last ones lists few.
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

INPUT_FOLDER = RECORD

INPUT_SCHEMA = pa.schema(
    [
        pa.field("hash", pa.binary(32), nullable=False),
        pa.field("sender", pa.binary(), nullable=False),
        pa.field("nonce", pa.uint64(), nullable=False),
        pa.field("height", pa.uint64(), nullable=False),
    ]
)
"""One row a message that a block has: its name, its sender's public key and nonce, the block's height."""

SENDERS_SCHEMA = pa.schema(
    [pa.field("sender", pa.binary(), nullable=False), pa.field("nonce", pa.uint64(), nullable=False)]
)
"""One row a sender: its public key and last nonce, by when that was used. The first row, with an empty key, has the
largest nonce of those that are forgotten."""

CARRIERS_SCHEMA = pa.schema([pa.field("sender", pa.binary(), nullable=False)])
"""One row a sender who has carried something: its public key. Those who did so first in this block; where ``senders``
is written, all."""

INPUT_SCHEMAS = {
    "ingress": INGRESS_SCHEMA,
    "carried": CARRIED_SCHEMA,
    "taken": INPUT_SCHEMA,
    "senders": SENDERS_SCHEMA,
    "carriers": CARRIERS_SCHEMA,
}
"""What is recorded, by kind."""

ExternalInput: TypeAlias = Mapping[str, tuple[str, Seal]]
"""What was recorded for one tick: kind -> its file in the lake, and its seal."""

NO_INPUT: ExternalInput = MappingProxyType({})
"""What was recorded for a tick into which nothing came."""

TICKS_PER_FOLDER = 4096
"""So many ticks have a folder of their own."""

_FOLDER = re.compile(r"\d{17}")
_NAME = re.compile(r"(\d{20})-([0-9a-f]{16})\.parquet")


def has_input(outside: ExternalInput) -> bool:
    """Return whether anything in a tick's record comes in; the rest is only remembered."""
    return "ingress" in outside or "carried" in outside


@dataclass(frozen=True)
class InputRecord:
    """The record of one lake. Picklable."""

    lake: Lake

    def write(self, tick: int, **tables: pa.Table | None) -> ExternalInput:
        """Write down what goes into ``tick``, which must not have been run; return the files, for the tick.

        ``tables``: any of ``ingress`` (``INGRESS_SCHEMA``), ``carried`` (``CARRIED_SCHEMA``), ``taken``
        (``TAKEN_SCHEMA``), ``senders`` (``SENDERS_SCHEMA``), ``carriers`` (``CARRIERS_SCHEMA``).
        """
        storage, found = self.lake.storage, {}
        folders: set[str] = set()
        for kind, schema in INPUT_SCHEMAS.items():
            table = tables.get(kind)
            if table is not None and table.num_rows:
                sink = pa.BufferOutputStream()
                pq.write_table(table.cast(schema), sink, compression="lz4", write_page_checksum=True)
                content = sink.getvalue().to_pybytes()
                folder = f"{INPUT_FOLDER}/{kind}/{tick // TICKS_PER_FOLDER:017d}"
                storage.make_folder(folder)
                folders |= {folder, f"{INPUT_FOLDER}/{kind}", INPUT_FOLDER, ""}
                path = f"{folder}/{tick:020d}-{_digest(content)}.parquet"
                with storage.place.writer(path) as file:
                    file.write(content)
                found[kind] = path, seal_content(content)
        if found:
            storage.sync([*(path for path, _ in found.values()), *sorted(folders)])
        return found

    def remove(self, old: ExternalInput, new: ExternalInput) -> None:
        """Remove what an attempt that failed wrote for a tick, but for what the ``new`` one wrote, too."""
        kept = {path for path, _ in new.values()}
        for path, _ in old.values():
            if path not in kept:
                self.lake.storage.remove(path)

    def forget(self, since: int, but: int | None = None) -> ExternalInput:
        """Remove what was written down for ticks from ``since`` on, which were never committed; not for tick ``but``,
        of which the files are returned.

        For the holder of the claim.
        """
        kept: dict[str, tuple[str, Seal]] = {}
        for kind in INPUT_SCHEMAS:
            for tick, paths in self.newest(kind, since):
                for path in paths:
                    if tick == but:
                        kept[kind] = path, seal_content(self._content(path))
                    else:
                        self.lake.storage.remove(path)
        return kept

    def rows(self, outside: ExternalInput, kind: str, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return what came to ``chains`` (numbers), in the order in which it came. Raises ``LakeDamaged``."""
        if kind not in outside:
            return INPUT_SCHEMAS[kind].empty_table()
        path, seal = outside[kind]
        rows = self.lake.sealed_table(path, seal, whole=lambda: self._whole_before(path)).cast(INPUT_SCHEMAS[kind])
        return rows.filter(pa.array(np.isin(rows["chain"].to_numpy(), chains)))

    def newest(self, kind: str, since: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Yield the ticks from ``since`` on that have files of a kind, the newest first, with these: one, where no
        attempt at the tick failed. Folders are listed as they are needed."""
        storage = self.lake.storage
        for folder in reversed(storage.list(f"{INPUT_FOLDER}/{kind}")):
            if not _FOLDER.fullmatch(folder) or int(folder) < since // TICKS_PER_FOLDER:
                continue
            found: dict[int, list[str]] = {}
            for name in reversed(storage.list(f"{INPUT_FOLDER}/{kind}/{folder}")):
                if (known := _NAME.fullmatch(name)) and int(known[1]) >= since:
                    found.setdefault(int(known[1]), []).append(f"{INPUT_FOLDER}/{kind}/{folder}/{name}")
            yield from found.items()

    def read(self, kind: str, path: str) -> pa.Table:
        """Return the table in a file. Raises ``LakeDamaged``."""
        return pq.read_table(pa.BufferReader(self._content(path))).cast(INPUT_SCHEMAS[kind])

    def _content(self, path: str) -> bytes:
        with self.lake.reading(path, lambda: self._whole_before(path)):
            content = self.lake.storage.read_bytes(path, MAX_WHOLE_BYTES)
            if _digest(content) not in path:
                raise FileDamaged(path, "has other bytes than were written")
        return content

    def _whole_before(self, path: str) -> int:
        """Return the last height that does not need a file. The first takes nothing in."""
        named = _NAME.fullmatch(path.rpartition("/")[2])
        assert named is not None, path
        heights = range(self.lake.last_height() + 1)
        return max(bisect_left(heights, int(named[1]), key=lambda height: self.lake.manifest(height).tick) - 1, 0)


def _digest(content: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(content)
