"""Prepared traffic: a folder of Parquet files sorted by tick and chain, from which the rows of a tick are read at once.

A folder holds ``parts/part-*.parquet`` (columns tick, chain, receiver, payload; row groups cut at ticks, and inside a
large tick at chains), ``index.parquet`` (one row a row group: where it is, its ticks and chains), ``ticks.parquet``
(the ticks that have rows), ``chains.parquet`` and ``programs.parquet`` (what the traffic adds to the topology) and,
written last, ``manifest.json``, which seals all of them. A folder without manifest is unfinished and counts as empty.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from causeway_proofs.errors import InvalidInput

from causeway.config.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.caches import cache_results
from causeway.core.ingress_call import CALL_METHOD
from causeway.storage.commit_log import decoded, encoded
from causeway.storage.files import AlreadyExists, Storage
from causeway.storage.seals import MISSING, FileDamaged, Seal, parse_seal

U64Array = npt.NDArray[np.uint64]

STORED_SCHEMA = pa.schema(
    [
        pa.field("tick", pa.uint64(), nullable=False),
        pa.field("chain", pa.uint64(), nullable=False),
        pa.field("receiver", pa.uint64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
INDEX_SCHEMA = pa.schema(
    [(name, pa.uint64()) for name in ("part", "group", "first_tick", "last_tick", "first_chain", "last_chain", "rows")]
)
MANIFEST = "manifest.json"
GROUP_ROWS = 8_192
"""Rows after which a row group is cut at the next tick (in a larger tick: at the next chain)."""

_KEPT_ROWS = 65_536
_KEPT_BYTES = 64 << 20
_USER = 0


@dataclass(frozen=True)
class PreparedTraffic:
    """The traffic of a prepared folder. Holds its name only: rows and topology are read where they are asked for.

    ``token`` tells one content of the folder from another, so that nothing stale is kept in memory.
    """

    folder: str
    token: str

    def rows(self, tick: int, chains: U64Array) -> pa.Table:
        """Return the rows of ``tick`` for ``chains``, by chain, then in the order of the recording."""
        wanted, tables = chains.astype(np.uint64, copy=False).tobytes(), []
        for part, group, size in self._groups(tick, np.unique(chains)):
            read = _kept_messages if size <= _KEPT_ROWS else _messages
            table, ticks = read(self.folder, self.token, part, group, wanted)
            first, end = (int(ticks.searchsorted(np.uint64(tick), side=side)) for side in ("left", "right"))
            tables.append(table.slice(first, end - first))
        return tables[0] if len(tables) == 1 else pa.concat_tables([INGRESS_SCHEMA.empty_table(), *tables])

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` with any row."""
        ticks = _index(self.folder, self.token)[1]
        place = int(np.searchsorted(ticks, np.uint64(tick)))
        return int(ticks[place]) if place < len(ticks) else None

    def topology(self) -> Topology:
        """Return the chains and programs that the recording brings."""
        chains = _read_table(self.folder, self.token, "chains.parquet").cast(CHAINS_SCHEMA)
        return Topology(chains, _read_table(self.folder, self.token, "programs.parquet").cast(PROGRAMS_SCHEMA))

    def rows_a_tick(self) -> float:
        """Return how many rows a tick with any has on average."""
        index, ticks = _index(self.folder, self.token)
        return float(index["rows"].sum()) / max(len(ticks), 1)

    def _groups(self, tick: int, chains: U64Array) -> list[tuple[int, int, int]]:
        """Return part, number and size of the row groups that may hold rows of ``tick`` for ``chains`` (ascending)."""
        index = _index(self.folder, self.token)[0]
        first = int(np.searchsorted(index["last_tick"], np.uint64(tick)))
        end = int(np.searchsorted(index["first_tick"], np.uint64(tick), side="right"))
        near = {name: column[first:end] for name, column in index.items()}
        asked = np.searchsorted(chains, near["first_chain"]) < np.searchsorted(chains, near["last_chain"], side="right")
        hit = np.flatnonzero(asked | (near["first_tick"] < near["last_tick"]))
        return [(int(near["part"][i]), int(near["group"][i]), int(near["rows"][i])) for i in hit]


class TrafficDamaged(InvalidInput):
    """A file of prepared traffic is missing, or is not what was written."""

    def __init__(self, folder: str, path: str, what: str) -> None:
        super().__init__(
            f"traffic: {folder}/{path} {what}; committed heights do not need it; remove the folder to have it "
            "prepared again from the recording"
        )


def read_prepared(folder: str) -> dict[str, Any] | None:
    """Return the manifest of a prepared folder, None when there is none (absent or unfinished).

    Raises ``TrafficDamaged``.
    """
    try:
        return decoded(Storage(folder).read_bytes(MANIFEST))
    except FileNotFoundError:
        return None
    except ValueError:
        raise TrafficDamaged(folder, MANIFEST, "is not what was written") from None


def prepared_traffic(folder: str) -> PreparedTraffic:
    """Return the traffic in a folder. Raises ``TrafficDamaged`` when there is none."""
    manifest = read_prepared(folder)
    if manifest is None:
        raise TrafficDamaged(folder, MANIFEST, MISSING)
    return PreparedTraffic(folder, manifest["token"])


def write_part(folder: str, part: int, table: pa.Table) -> tuple[pa.Table, Seal]:
    """Write rows (``STORED_SCHEMA``, sorted by tick and chain) as one part; return their lines of the index, and the
    seal of the part."""
    starts = group_starts(table["tick"].to_numpy(), table["chain"].to_numpy())
    ends = np.append(starts[1:], table.num_rows)
    ticks, chains = table["tick"].to_numpy(), table["chain"].to_numpy()
    path = part_path(part)
    with Storage(folder).parquet_writer(path, STORED_SCHEMA, dictionary=["chain", "receiver"]) as writer:
        for first, end in zip(starts.tolist(), ends.tolist(), strict=True):
            writer.write_table(table.slice(first, end - first), row_group_size=end - first)
    least = np.minimum.reduceat(chains, starts)
    most = np.maximum.reduceat(chains, starts)
    columns = [
        np.full(len(starts), part),
        np.arange(len(starts)),
        ticks[starts],
        ticks[ends - 1],
        least,
        most,
        ends - starts,
    ]
    return pa.table([pa.array(column.astype(np.uint64)) for column in columns], schema=INDEX_SCHEMA), writer.seal


def part_path(part: int) -> str:
    """Return where a part is in a prepared folder."""
    return f"parts/part-{part:05d}.parquet"


def group_starts(ticks: U64Array, chains: U64Array, size: int = GROUP_ROWS) -> npt.NDArray[np.int64]:
    """Return where row groups start in n >= 1 sorted rows.

    A group ends at the first tick after ``size`` rows; a tick of more rows is a group of its own, or several that end
    at the first chain after ``size`` rows.
    """
    count = len(ticks)
    tick_starts = np.flatnonzero(np.append(True, ticks[1:] != ticks[:-1]))
    large = np.diff(np.append(tick_starts, count)) > size
    cell = tick_starts // size
    after_large = np.append(False, large[:-1])
    cut = np.append(True, cell[1:] != cell[:-1]) | large | after_large
    pair_starts = np.flatnonzero(np.append(True, (ticks[1:] != ticks[:-1]) | (chains[1:] != chains[:-1])))
    own_tick = np.searchsorted(tick_starts, pair_starts, side="right") - 1
    cell = (pair_starts - tick_starts[own_tick]) // size
    inner = large[own_tick] & np.append(False, (cell[1:] != cell[:-1]) & (own_tick[1:] == own_tick[:-1]))
    return np.union1d(tick_starts[cut], pair_starts[inner]).astype(np.int64)


def finish_prepared(
    folder: str,
    index: Sequence[pa.Table],
    parts: Mapping[str, Seal],
    ticks: U64Array,
    topology: Topology,
    manifest: dict[str, Any],
) -> None:
    """Write all but the ``parts``, whose seals these are; the manifest last: from then on the folder counts."""
    storage = Storage(folder)
    tables = {
        "index.parquet": pa.concat_tables([INDEX_SCHEMA.empty_table(), *index]),
        "ticks.parquet": pa.table({"tick": pa.array(ticks)}),
        "chains.parquet": topology.chains,
        "programs.parquet": topology.programs,
    }
    files = {name: storage.write_table(name, table) for name, table in tables.items()}
    storage.sync(["parts", ""])
    with contextlib.suppress(AlreadyExists):  # another run has prepared the same
        storage.create(MANIFEST, encoded({**manifest, "files": {**parts, **files}}))


def clear_folder(folder: str) -> None:
    """Make an empty folder for the parts and one for the runs; raises ``InvalidInput`` when that is not possible."""
    storage = Storage(folder)
    try:
        for name in ("parts", "runs"):
            if storage.list(name):
                storage.remove_folder(name)
            storage.make_folder(name)
    except OSError as error:
        raise InvalidInput(f"{folder}: cannot be written: {' '.join(str(error).split())}") from None


@functools.lru_cache(maxsize=4)
def _index(folder: str, token: str) -> tuple[dict[str, U64Array], U64Array]:
    table = _read_table(folder, token, "index.parquet")
    columns = {name: table[name].to_numpy() for name in table.schema.names}
    return columns, _read_table(folder, token, "ticks.parquet")["tick"].to_numpy()


@functools.lru_cache(maxsize=4)
def _seals(folder: str, token: str) -> dict[str, Seal]:
    manifest = read_prepared(folder)
    if manifest is None or manifest["token"] != token:
        raise TrafficDamaged(folder, MANIFEST, MISSING if manifest is None else "is of another recording")
    return {name: parse_seal(seal) for name, seal in manifest["files"].items()}


@contextlib.contextmanager
def _reading(folder: str, path: str) -> Iterator[None]:
    try:
        yield
    except FileDamaged as error:
        raise TrafficDamaged(folder, error.path, error.what) from None
    except FileNotFoundError:
        raise TrafficDamaged(folder, path, MISSING) from None


def _read_table(folder: str, token: str, name: str) -> pa.Table:
    with _reading(folder, name):
        return Storage(folder).read_table(name, seal=_seals(folder, token)[name])


def _messages(folder: str, token: str, part: int, group: int, chains: bytes) -> tuple[pa.Table, U64Array]:
    """Return the messages of one row group to some chains (``INGRESS_SCHEMA``), and the tick of each.

    Files stay open in the process that read them (not in one forked from it).
    """
    with _reading(folder, part_path(part)):
        found = _open_part(folder, token, part, os.getpid()).read_row_group(group)
    here = np.isin(found["chain"].to_numpy(), np.frombuffer(chains, dtype=np.uint64))
    if not here.all():
        found = found.filter(pa.array(here))
    count = found.num_rows
    columns = {
        "chain": found["chain"],
        "receiver": found["receiver"],
        "sender": pa.array(np.full(count, _USER, dtype=np.uint64)),
        "method": pa.repeat(pa.scalar(CALL_METHOD), count),
        "payload": found["payload"],
    }
    return pa.table(columns, schema=INGRESS_SCHEMA).combine_chunks(), found["tick"].to_numpy()


_kept_messages = cache_results(_messages, _KEPT_BYTES, lambda kept: int(kept[0].nbytes + kept[1].nbytes))
"""The same for row groups of several ticks, each read once for all of them and for each of the process's buckets."""


@functools.lru_cache(maxsize=16)
def _open_part(folder: str, token: str, part: int, process: int) -> pq.ParquetFile:
    path = part_path(part)
    return Storage(folder).parquet_file(path, _seals(folder, token)[path])
