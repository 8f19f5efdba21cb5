"""A network as its lake alone tells it: what there is without the scenario's file and without the programs' classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.config.topology import Membership, Topology
from causeway.core.frame import Frame, empty_frame, from_table
from causeway.core.text import suggest_known
from causeway.programs.user_modules import NOWHERE, ModuleSources
from causeway.protocols.shared.option_values import NANOSECONDS
from causeway.storage.files import find_row_groups
from causeway.storage.lake import Lake, LakeError, Manifest, select_height
from causeway.storage.parquet_files import StoredParquet
from causeway.storage.seals import Seal
from causeway.storage.table_schemas import TableSchemas

if TYPE_CHECKING:
    from causeway.network.replay import ReplayShare, StateReplay

TOPOLOGY = ("chains", "programs", "registry")
"""Tables of the lake that say what the network consists of."""

BATCH = 1 << 14
"""Rows of a file that are in memory at once while some of them are looked for."""

Mask = npt.NDArray[np.bool_]
RowChoice = Callable[[pa.RecordBatch], Mask]
"""Says of a batch of rows which are wanted."""


HostLookup = Callable[[Any], npt.NDArray[np.integer[Any]]]
"""Says on which chain programs are: its position, by their numbers."""


@dataclass(frozen=True, eq=False)
class OpenedLake:
    """The network in a lake, for readers. Picklable.

    Attributes:
        lake: the lake; it may be one that is being written.
        about: what the lake says of itself.
        topology: the chains, the programs on them at genesis, and their moves.
        sources: where programs of one's own come from: heights within a commit are executed again when somebody asks
            for their state.
        share: how much of this process's time that may take; without it, all.
    """

    lake: Lake
    about: Mapping[str, Any]
    topology: Topology
    sources: ModuleSources = NOWHERE
    share: ReplayShare | None = None

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
            raise InvalidInput(f"chain: {suggest_known('chain', chain, self.names)}")
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

    @cached_property
    def replayed(self) -> StateReplay:
        """Return the states of the network at heights that are in no file."""
        from causeway.network.replay import StateReplay, recorded_deployment

        return StateReplay(self.lake, partial(recorded_deployment, self.lake, self.about, self.sources), self.share)

    def state_rows(self, manifest: Manifest, table: str, position: int, host_of: HostLookup) -> Frame:
        """Return the rows of a state table that belong to the chain at a position, in the table's order.

        ``host_of``: says on which chain programs are; a program's rows belong to that chain.

        Raises:
            Freed: the state of the height was freed.
            ReplayDiffers: it is in no file, and executing its heights again gives another (``InvalidInput``: they
                cannot be executed; ``ReplayBusy``: not now).
        """
        declared = self.tables.state[table]

        def mine(batch: pa.RecordBatch) -> Mask:
            owners = batch[declared.owner].to_numpy()
            mask: Mask = (host_of(owners) if declared.belongs_to_program else owners) == position
            return mask

        rows = self.chosen_rows(manifest, table, position, None, mine)
        return empty_frame(declared.schema) if rows is None else from_table(rows)

    def chosen_rows(
        self, manifest: Manifest, table: str, position: int, columns: Sequence[str] | None, chosen: RowChoice
    ) -> pa.Table | None:
        """Return the rows of a state table, of the bucket of the chain at ``position``, that are ``chosen``; None where
        there are none at all. Raises as ``state_rows`` does."""
        if freed := self.lake.freed(manifest.height):
            raise freed
        bucket = self.bucket(position)
        if manifest.height < manifest.last:
            rows = self.replayed.tables(manifest.height, table)[int(bucket)]
            return _chosen(rows if columns is None else rows.select(columns), chosen) if rows.num_rows else None
        parts = manifest.state.get(table, {}).get(bucket)
        if parts is None:
            return None
        if parts.whole:
            return select_rows(self.lake, parts.rows[0], manifest.files[parts.rows[0]], columns, chosen)
        rows = self.lake.part(manifest, parts)
        return _chosen(rows if columns is None else rows.select(columns), chosen)

    def log_rows(
        self,
        table: str,
        height: int,
        position: int,
        columns: Sequence[str],
        chosen: RowChoice,
        *,
        destination: int | None = None,
        most: int | None = None,
    ) -> pa.Table | None:
        """Return the rows of a log table at a height, of the bucket of the chain at ``position``, that are ``chosen``.

        Read is one file, that of the commit or the one into which it was compacted, and of it the row groups that may
        have such rows; None where there is none.
        ``destination``, ``most``: as of ``select``.
        """
        manifest = self.lake.manifest(height)
        path = manifest.log.get(table, {}).get(self.bucket(position))
        if path is None:
            return None
        if self.lake.replaced(manifest, [path]):
            files = self.lake.log_files(table, range(height, height + 1))
        else:
            files = {path: manifest.files[path]}
            if manifest.first == manifest.last:
                return select_rows(self.lake, path, files[path], columns, chosen, destination, most)
        found = [
            select_rows(self.lake, path, seal, columns, chosen, destination, most, height)
            for path, seal in files.items()
        ]
        return pa.concat_tables(found)


def open_lake(uri: str, sources: ModuleSources = NOWHERE, share: ReplayShare | None = None) -> OpenedLake:
    """Return the network in the lake at a path or URI. ``sources``, ``share``: as of ``OpenedLake``.

    Raises:
        LakeError: there is no lake, or it is of another version.
    """
    lake = Lake.at(uri).with_identity()
    about = lake.about()
    chains, programs, moves = (lake.topology(name) for name in TOPOLOGY)
    external = tuple(int(item["number"]) for item in about["chains"] if item.get("external"))
    roles = {int(item["number"]): item["role"] for item in about["chains"] if item.get("role")}
    membership = Membership.decoded(about.get("membership", {}))
    return OpenedLake(lake, about, Topology(chains, programs, moves, external, roles, membership), sources, share)


def select_rows(
    lake: Lake,
    path: str,
    seal: Seal,
    columns: Sequence[str] | None,
    chosen: RowChoice,
    destination: int | None = None,
    most: int | None = None,
    height: int | None = None,
) -> pa.Table:
    """Return the rows of a Parquet file that are ``chosen``; the others are in memory a batch at a time.

    ``destination``: of outbound entries, a chain that the rows are for; row groups with none to it are not read.
    ``most``: when so many are found, the rest is not read. ``height``: of a log table, only the rows of that height;
    row groups without are not read.

    Raises:
        LakeDamaged: it is missing, or not what was written.
    """
    with lake.open_parquet(path, seal) as file:
        groups = _groups(file, {"destination": destination, "height": height})
        stored = file.schema_arrow  # made anew at every access
        names = stored.names if columns is None else list(columns)
        read = names if height is None or "height" in names else [*names, "height"]
        schema = pa.schema([stored.field(name) for name in read])
        kept: list[pa.Table] = []
        found = 0
        for batch in file.iter_batches(BATCH, row_groups=groups, columns=read, use_threads=False):
            rows = pa.Table.from_batches([batch], schema=schema)
            rows = _chosen(rows if height is None else select_height(rows, height), chosen)
            if rows.num_rows:
                kept.append(rows)
            found += rows.num_rows
            if most is not None and found >= most:
                break
        return (pa.concat_tables(kept) if kept else schema.empty_table()).select(names)


def _groups(file: StoredParquet, wanted: Mapping[str, int | None]) -> list[int]:
    """Return the row groups of a file that may hold rows with certain values in some columns."""
    found = set(range(file.num_row_groups))
    for column, value in wanted.items():
        if value is not None:
            found &= set(find_row_groups(file, column, value, value + 1))
    return sorted(found)


def _chosen(rows: pa.Table, chosen: RowChoice) -> pa.Table:
    """Return the rows that are ``chosen``."""
    kept: list[pa.RecordBatch] = []
    for batch in rows.to_batches():
        mask = chosen(batch)
        if mask.all():
            kept.append(batch)
        elif mask.any():
            kept.append(batch.filter(pa.array(mask)))
    return pa.Table.from_batches(kept, schema=rows.schema)


__all__ = ["OpenedLake", "open_lake", "select_rows"]
