"""A network as its lake alone tells it: what there is without the scenario's file and without the programs' classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame, empty_frame, from_table
from causeway.model.text import unknown
from causeway.model.topology import Topology
from causeway.pipeline.lake import Lake, LakeError, Manifest
from causeway.pipeline.schemas import TableSchemas
from causeway.pipeline.sealed import Seal
from causeway.pipeline.storage import row_groups_with
from causeway.protocols.option_values import NANOSECONDS

TOPOLOGY = ("chains", "programs", "registry")
"""Tables of the lake that say what the network consists of."""

BATCH = 1 << 14
"""Rows of a file that are in memory at once while some of them are looked for."""

Mask = npt.NDArray[np.bool_]
Chosen = Callable[[pa.RecordBatch], Mask]
"""Says of a batch of rows which are wanted."""


HostOf = Callable[[Any], npt.NDArray[np.integer[Any]]]
"""Says on which chain programs are: its position, by their numbers."""


@dataclass(frozen=True, eq=False)
class OpenedLake:
    """The network in a lake, for readers. Picklable.

    Attributes:
        lake: the lake; it may be one that is being written.
        about: what the lake says of itself.
        topology: the chains, the programs on them at genesis, and their moves.
    """

    lake: Lake
    about: Mapping[str, Any]
    topology: Topology

    @property
    def protocol(self) -> str:
        """Return the name of the protocol."""
        name: str = self.about["protocol"]
        return name

    @property
    def options(self) -> Mapping[str, Any]:
        """Return the protocol's options as the scenario gave them."""
        options: Mapping[str, Any] = self.about["scenario"]["options"]
        return options

    @property
    def seed(self) -> int:
        """Return the network's seed."""
        return int(self.about["scenario"]["network"]["seed"])

    @property
    def tick_ns(self) -> int:
        """Return how many nanoseconds a tick has."""
        return round(float(self.about["seconds_per_tick"]) * NANOSECONDS)

    @cached_property
    def names(self) -> list[str]:
        """Return the chains' names by position."""
        return [item["name"] for item in self.about["chains"]]

    @cached_property
    def program_names(self) -> dict[int, str]:
        """Return the programs' names by number."""
        programs = self.topology.programs
        return dict(zip(programs["number"].to_pylist(), programs["name"].to_pylist(), strict=True))

    def position(self, chain: str) -> int:
        """Return the position of the chain of that name.

        Raises:
            InvalidInput: there is none.
        """
        if chain not in self._positions:
            raise InvalidInput(f"chain: {unknown('chain', chain, self.names)}")
        return self._positions[chain]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def bucket(self, position: int) -> str:
        """Return the bucket of the chain at a position, as manifests name it."""
        ends = [end for _, end in self.about["buckets"]]
        return str(int(np.searchsorted(np.array(ends), position, side="right")))

    def last_height(self) -> int:
        """Return the last committed height.

        Raises:
            LakeError: there is none yet.
        """
        last = self.lake.last_height()
        if last < 0:
            raise LakeError(f"lake: {self.lake.storage.uri} has no committed height yet")
        return last

    def manifest(self, height: int | None = None) -> Manifest:
        """Return the manifest of a height, by default the last.

        Raises:
            LakeError: it is not committed.
        """
        return self.lake.manifest(self.last_height() if height is None else height)

    @cached_property
    def tables(self) -> TableSchemas:
        """Return what the lake's tables are made of, those of the programs in use included."""
        return TableSchemas.decoded(self.about["tables"])

    def header(self, chain: str, height: int) -> tuple[bytes, bytes]:
        """Return the root in the header number ``height`` that a chain made at that height, and what certifies it
        (nothing at height 0).

        Raises:
            LakeError: the height is not committed, or there is no such header.
            InvalidInput: there is no such chain.
        """
        position = self.position(chain)

        def mine(batch: pa.RecordBatch) -> Mask:
            mask: Mask = (batch["chain"].to_numpy() == position) & (batch["number"].to_numpy() == height)
            return mask

        rows = self.log_rows("headers", height, position, ["chain", "number", "root", "certification"], mine)
        if rows is None or rows.num_rows != 1:
            raise LakeError(f"lake: {self.lake.storage.uri} has no header of {chain} at height {height}")
        return rows["root"][0].as_py(), rows["certification"][0].as_py()

    def state_rows(self, manifest: Manifest, table: str, position: int, host_of: HostOf) -> Frame:
        """Return the rows of a state table that belong to the chain at a position, in the table's order.

        ``host_of``: says on which chain programs are; a program's rows belong to that chain.
        """
        declared = self.tables.state[table]
        path = manifest.state.get(table, {}).get(self.bucket(position))
        if path is None:
            return empty_frame(declared.schema)

        def mine(batch: pa.RecordBatch) -> Mask:
            owners = batch[declared.owner].to_numpy()
            mask: Mask = (host_of(owners) if declared.owned_by_program else owners) == position
            return mask

        if freed := self.lake.freed(manifest.height):
            raise freed
        return from_table(select(self.lake, path, manifest.files[path], None, mine))

    def log_rows(
        self,
        table: str,
        height: int,
        position: int,
        columns: Sequence[str],
        chosen: Chosen,
        *,
        destination: int | None = None,
        most: int | None = None,
    ) -> pa.Table | None:
        """Return the rows of a log table at a height, of the bucket of the chain at ``position``, that are ``chosen``.

        Read is one file: the height's own, or the one into which it was compacted; None where there is none.
        ``destination``, ``most``: as of ``select``.
        """
        manifest = self.lake.manifest(height)
        path = manifest.log.get(table, {}).get(self.bucket(position))
        if path is None:
            return None
        if self.lake.replaced(manifest, [path]):
            return self._compacted_rows(table, height, columns, chosen, most)
        return select(self.lake, path, manifest.files[path], columns, chosen, destination, most)

    def _compacted_rows(
        self, table: str, height: int, columns: Sequence[str], chosen: Chosen, most: int | None
    ) -> pa.Table:
        own = np.int64(height)
        extended = [*columns, *(["height"] if "height" not in columns else [])]

        def wanted(batch: pa.RecordBatch) -> Mask:
            mask: Mask = batch["height"].to_numpy() == own
            return mask & chosen(batch) if mask.any() else mask

        files = self.lake.log_files(table, range(height, height + 1))
        found = [select(self.lake, path, seal, extended, wanted, most=most) for path, seal in files.items()]
        return pa.concat_tables(found).select(columns)


def open_lake(uri: str) -> OpenedLake:
    """Return the network in the lake at a path or URI.

    Raises:
        LakeError: there is no lake, or it is of another version.
    """
    lake = Lake.at(uri).identified()
    about = lake.about()
    chains, programs, moves = (lake.topology(name) for name in TOPOLOGY)
    external = tuple(int(item["number"]) for item in about["chains"] if item.get("external"))
    return OpenedLake(lake, about, Topology(chains, programs, moves, external))


def select(
    lake: Lake,
    path: str,
    seal: Seal,
    columns: Sequence[str] | None,
    chosen: Chosen,
    destination: int | None = None,
    most: int | None = None,
) -> pa.Table:
    """Return the rows of a Parquet file that are ``chosen``; the others are in memory a batch at a time.

    ``destination``: of outbound entries, a chain that the rows are for; row groups with none to it are not read.
    ``most``: when so many are found, the rest is not read.

    Raises:
        LakeDamaged: it is missing, or not what was written.
    """
    with lake.open_parquet(path, seal) as file:
        groups: Sequence[int] = range(file.num_row_groups)
        if destination is not None:
            groups = row_groups_with(file, "destination", destination, destination + 1)
        names = file.schema_arrow.names if columns is None else list(columns)
        schema = pa.schema([file.schema_arrow.field(name) for name in names])
        kept: list[pa.RecordBatch] = []
        found = 0
        for batch in file.iter_batches(BATCH, row_groups=[*groups], columns=names, use_threads=False):
            mask = chosen(batch)
            if mask.all():
                kept.append(batch)
            elif mask.any():
                kept.append(batch.filter(pa.array(mask)))
            found += int(mask.sum())
            if most is not None and found >= most:
                break
        return pa.Table.from_batches(kept, schema=schema) if kept else schema.empty_table()


__all__ = ["OpenedLake", "open_lake", "select"]
