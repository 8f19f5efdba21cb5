"""Prepared traffic: Parquet files sorted by tick and chain, for fast reads of a tick.

A folder holds ``parts/part-*.parquet`` (columns tick, chain, receiver, payload; row groups end at ticks, and within a
large tick at chains), ``index.parquet`` (one row a row group: position, ticks and chains), ``ticks.parquet`` (ticks
with rows), ``chains.parquet`` and ``programs.parquet`` (additions to the topology). ``manifest.json``, written last,
seals all of them. A folder without it is unfinished and counts as empty.
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
from causeway_proofs.order import U64

from causeway.config.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.caches import cache_results
from causeway.core.ingress_call import CALL_METHOD
from causeway.storage.commit_log import decoded, encoded
from causeway.storage.files import AlreadyExists, Storage
from causeway.storage.seals import MISSING, FileDamaged, Seal, parse_seal

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
"""Rows after which a row group ends at the next tick, or in a larger tick at the next chain."""

_MAX_CACHED_ROWS = 65_536
_CACHE_BYTES = 64 << 20
_USER = 0


@dataclass(frozen=True)
class PreparedTraffic:
    """The traffic of a prepared folder; rows and topology are read on demand.

    ``token`` identifies the content of the folder, so that caches never return stale rows.
    """

    folder: str
    token: str

    def rows(self, tick: int, chains: U64) -> pa.Table:
        """Return the rows of ``tick`` for ``chains``, by chain, then in recorded order."""
        wanted, tables = chains.astype(np.uint64, copy=False).tobytes(), []
        for part, group, size in self._groups(tick, np.unique(chains)):
            read = _cached_messages if size <= _MAX_CACHED_ROWS else _messages
            table, ticks = read(self.folder, self.token, part, group, wanted)
            first, end = (int(ticks.searchsorted(np.uint64(tick), side=side)) for side in ("left", "right"))
            tables.append(table.slice(first, end - first))
        return tables[0] if len(tables) == 1 else pa.concat_tables([INGRESS_SCHEMA.empty_table(), *tables])

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` with any row, or None."""
        ticks = _index(self.folder, self.token)[1]
        index = int(np.searchsorted(ticks, np.uint64(tick)))
        return int(ticks[index]) if index < len(ticks) else None

    def topology(self) -> Topology:
        """Return the chains and programs of the recording."""
        chains = _read_table(self.folder, self.token, "chains.parquet").cast(CHAINS_SCHEMA)
        return Topology(chains, _read_table(self.folder, self.token, "programs.parquet").cast(PROGRAMS_SCHEMA))

    def rows_a_tick(self) -> float:
        """Return the mean number of rows a tick with traffic."""
        index, ticks = _index(self.folder, self.token)
        return float(index["rows"].sum()) / max(len(ticks), 1)

    def _groups(self, tick: int, chains: U64) -> list[tuple[int, int, int]]:
        """Return part, number and size of row groups that may hold rows of a tick for chains."""
        index = _index(self.folder, self.token)[0]
        first = int(np.searchsorted(index["last_tick"], np.uint64(tick)))
        end = int(np.searchsorted(index["first_tick"], np.uint64(tick), side="right"))
        near = {name: column[first:end] for name, column in index.items()}
        overlaps = np.searchsorted(chains, near["first_chain"]) < np.searchsorted(
            chains, near["last_chain"], side="right"
        )
        hit = np.flatnonzero(overlaps | (near["first_tick"] < near["last_tick"]))
        return [(int(near["part"][i]), int(near["group"][i]), int(near["rows"][i])) for i in hit]


class TrafficDamaged(InvalidInput):
    """A file of prepared traffic is missing or corrupted."""

    def __init__(self, folder: str, path: str, what: str) -> None:
        super().__init__(
            f"traffic: {folder}/{path} {what}; committed heights do not need it; remove the folder to have it "
            "prepared again from the recording"
        )


def read_prepared(folder: str) -> dict[str, Any] | None:
    """Read the manifest of a prepared folder.

    Args:
        folder: Path or URI.

    Returns:
        The manifest, or None for an absent or unfinished folder.

    Raises:
        TrafficDamaged: The manifest is corrupted.
    """
    try:
        return decoded(Storage(folder).read_bytes(MANIFEST))
    except FileNotFoundError:
        return None
    except ValueError:
        raise TrafficDamaged(folder, MANIFEST, "has invalid content") from None


def prepared_traffic(folder: str) -> PreparedTraffic:
    """Open the traffic in a folder. Raises ``TrafficDamaged`` if there is none."""
    manifest = read_prepared(folder)
    if manifest is None:
        raise TrafficDamaged(folder, MANIFEST, MISSING)
    return PreparedTraffic(folder, manifest["token"])


def write_part(folder: str, part: int, table: pa.Table) -> tuple[pa.Table, Seal]:
    """Write rows as a part.

    Args:
        folder: The folder.
        part: Number of the part.
        table: Rows of ``STORED_SCHEMA``, sorted by tick and chain.

    Returns:
        Index rows of the part, and its seal.
    """
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
    """Return the path of a part in a prepared folder."""
    return f"parts/part-{part:05d}.parquet"


def group_starts(ticks: U64, chains: U64, size: int = GROUP_ROWS) -> npt.NDArray[np.int64]:
    """Return the first rows of row groups.

    A group ends at the first tick after ``size`` rows. A tick with more rows forms its own group, or several that end
    at the first chain after ``size`` rows.

    Args:
        ticks: Tick of n >= 1 sorted rows.
        chains: Chain of each row.
        size: Number of rows.
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
    ticks: U64,
    topology: Topology,
    manifest: dict[str, Any],
) -> None:
    """Write index, ticks and topology, then the manifest, which makes the folder valid.

    Args:
        folder: The folder.
        index: Index rows of the parts.
        parts: Seals of the parts.
        ticks: Ticks with rows.
        topology: Chains and programs of the recording.
        manifest: Further keys of the manifest.
    """
    storage = Storage(folder)
    tables = {
        "index.parquet": pa.concat_tables([INDEX_SCHEMA.empty_table(), *index]),
        "ticks.parquet": pa.table({"tick": pa.array(ticks)}),
        "chains.parquet": topology.chains,
        "programs.parquet": topology.programs,
    }
    files = {name: storage.write_table(name, table) for name, table in tables.items()}
    storage.sync(["parts", ""])
    with contextlib.suppress(AlreadyExists):  # another run has prepared the same traffic
        storage.create(MANIFEST, encoded({**manifest, "files": {**parts, **files}}))


def clear_folder(folder: str) -> None:
    """Create empty folders for parts and runs. Raises ``InvalidInput`` if that fails."""
    storage = Storage(folder)
    try:
        for name in ("parts", "runs"):
            if storage.list(name):
                storage.remove_folder(name)
            storage.make_folder(name)
    except OSError as error:
        raise InvalidInput(f"{folder}: cannot be written: {' '.join(str(error).split())}") from None


@functools.lru_cache(maxsize=4)
def _index(folder: str, token: str) -> tuple[dict[str, U64], U64]:
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


def _messages(folder: str, token: str, part: int, group: int, chains: bytes) -> tuple[pa.Table, U64]:
    """Read the messages of a row group to chains (``INGRESS_SCHEMA``), and the tick of each.

    Files stay open in the process that read them, but not in its forks.
    """
    with _reading(folder, part_path(part)):
        found = _open_part(folder, token, part, os.getpid()).read_row_group(group)
    wanted = np.isin(found["chain"].to_numpy(), np.frombuffer(chains, dtype=np.uint64))
    if not wanted.all():
        found = found.filter(pa.array(wanted))
    count = found.num_rows
    columns = {
        "chain": found["chain"],
        "receiver": found["receiver"],
        "sender": pa.array(np.full(count, _USER, dtype=np.uint64)),
        "method": pa.repeat(pa.scalar(CALL_METHOD), count),
        "payload": found["payload"],
    }
    return pa.table(columns, schema=INGRESS_SCHEMA).combine_chunks(), found["tick"].to_numpy()


_cached_messages = cache_results(_messages, _CACHE_BYTES, lambda kept: int(kept[0].nbytes + kept[1].nbytes))
"""``_messages``, cached for row groups of several ticks: each is read once for all of them."""


@functools.lru_cache(maxsize=16)
def _open_part(folder: str, token: str, part: int, process: int) -> pq.ParquetFile:
    path = part_path(part)
    return Storage(folder).open_parquet(path, _seals(folder, token)[path])
