"""Read-only networks reconstructed from their lake, without scenario and program classes.

``OpenedLake`` reads headers, state rows and log rows of a chain. Parquet files are read a batch at a time, and only row
groups whose statistics match.
"""

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
"""Topology tables of a lake."""

BATCH = 1 << 14
"""Number of rows of a file in memory during a search."""

Mask = npt.NDArray[np.bool_]
RowChoice = Callable[[pa.RecordBatch], Mask]
"""Returns a mask of the wanted rows of a batch."""


HostLookup = Callable[[Any], npt.NDArray[np.integer[Any]]]
"""Returns the position of the host chain of programs, given by number."""


@dataclass(frozen=True, eq=False)
class OpenedLake:
    """A network in a lake, for readers; picklable.

    Attributes:
        lake: The lake; it may be written meanwhile.
        about: Its description.
        topology: The chains, their programs at genesis, and program moves.
        sources: Allowed sources of user programs, to execute heights within a commit again.
        share: Share of this process's time for such replays; None: all.
    """

    lake: Lake
    about: Mapping[str, Any]
    topology: Topology
    sources: ModuleSources = NOWHERE
    share: ReplayShare | None = None

    @property
    def protocol(self) -> str:
        """Name of the protocol."""
        name: str = self.about["protocol"]
        return name

    @property
    def options(self) -> Mapping[str, Any]:
        """The protocol's options from the scenario."""
        options: Mapping[str, Any] = self.about["scenario"]["options"]
        return options

    @property
    def seed(self) -> int:
        """Seed of the network."""
        return int(self.about["scenario"]["network"]["seed"])

    @property
    def tick_ns(self) -> int:
        """Nanoseconds a tick."""
        return round(float(self.about["seconds_per_tick"]) * NANOSECONDS)

    @cached_property
    def names(self) -> list[str]:
        """Chain names by position."""
        return [item["name"] for item in self.about["chains"]]

    @cached_property
    def program_names(self) -> dict[int, str]:
        """Program names by number."""
        programs = self.topology.programs
        return dict(zip(programs["number"].to_pylist(), programs["name"].to_pylist(), strict=True))

    def position(self, chain: str) -> int:
        """Return the position of a chain by name.

        Raises:
            InvalidInput: There is no such chain.
        """
        if chain not in self._positions:
            raise InvalidInput(f"chain: {suggest_known('chain', chain, self.names)}")
        return self._positions[chain]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def bucket(self, position: int) -> str:
        """Return the bucket of a chain position, as manifests name it."""
        ends = [end for _, end in self.about["buckets"]]
        return str(int(np.searchsorted(np.array(ends), position, side="right")))

    def last_height(self) -> int:
        """Return the last committed height.

        Raises:
            LakeError: There is none yet.
        """
        last = self.lake.last_height()
        if last < 0:
            raise LakeError(f"lake: {self.lake.storage.uri} has no committed height yet")
        return last

    def manifest(self, height: int | None = None) -> Manifest:
        """Return the manifest of a height; None: the last.

        Raises:
            LakeError: The height is not committed.
        """
        return self.lake.manifest(self.last_height() if height is None else height)

    @cached_property
    def tables(self) -> TableSchemas:
        """Schemas of the lake's tables, including those of programs."""
        return TableSchemas.decoded(self.about["tables"])

    def header(self, chain: str, height: int) -> tuple[bytes, bytes]:
        """Return root and certification of a chain's header (no certification at height 0).

        Args:
            chain: Name of the chain.
            height: Height and number of the header.

        Raises:
            LakeError: The height is not committed, or has no such header.
            InvalidInput: There is no such chain.
        """
        position = self.position(chain)

        def is_header(batch: pa.RecordBatch) -> Mask:
            mask: Mask = (batch["chain"].to_numpy() == position) & (batch["number"].to_numpy() == height)
            return mask

        rows = self.log_rows("headers", height, position, ["chain", "number", "root", "certification"], is_header)
        if rows is None or rows.num_rows != 1:
            raise LakeError(f"lake: {self.lake.storage.uri} has no header of {chain} at height {height}")
        return rows["root"][0].as_py(), rows["certification"][0].as_py()

    @cached_property
    def replayed(self) -> StateReplay:
        """States at heights that are in no file."""
        from causeway.network.replay import StateReplay, recorded_deployment

        return StateReplay(self.lake, partial(recorded_deployment, self.lake, self.about, self.sources), self.share)

    def state_rows(self, manifest: Manifest, table: str, position: int, host_of: HostLookup) -> Frame:
        """Return the rows of a state table that belong to a chain, in the table's order.

        Args:
            manifest: Manifest viewed at the height.
            table: Name of the table.
            position: Position of the chain.
            host_of: Maps programs to chains; a program's rows belong to its chain.

        Raises:
            Freed: A vacuum freed the state.
            ReplayDiffers: The state is in no file, and replaying gives another.
            InvalidInput: The programs to replay cannot be loaded.
            ReplayBusy: A replay exceeds the share of time now.
        """
        declared = self.tables.state[table]

        def belongs(batch: pa.RecordBatch) -> Mask:
            owners = batch[declared.owner].to_numpy()
            mask: Mask = (host_of(owners) if declared.belongs_to_program else owners) == position
            return mask

        rows = self.chosen_rows(manifest, table, position, None, belongs)
        return empty_frame(declared.schema) if rows is None else from_table(rows)

    def chosen_rows(
        self, manifest: Manifest, table: str, position: int, columns: Sequence[str] | None, chosen: RowChoice
    ) -> pa.Table | None:
        """Return the chosen rows of a state table, from the bucket of a chain.

        Args:
            manifest: Manifest viewed at the height.
            table: Name of the table.
            position: Position of the chain.
            columns: Columns to return; None: all.
            chosen: Selects rows.

        Returns:
            The rows, or None if the bucket has none. Raises as ``state_rows``.
        """
        if freed := self.lake.freed(manifest.height):
            raise freed
        bucket = self.bucket(position)
        if manifest.height < manifest.last:
            rows = self.replayed.tables(manifest.height, table)[int(bucket)]
            return _filter_rows(rows if columns is None else rows.select(columns), chosen) if rows.num_rows else None
        parts = manifest.state.get(table, {}).get(bucket)
        if parts is None:
            return None
        if parts.whole:
            return select_rows(self.lake, parts.rows[0], manifest.files[parts.rows[0]], columns, chosen)
        rows = self.lake.part(manifest, parts)
        return _filter_rows(rows if columns is None else rows.select(columns), chosen)

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
        """Return the chosen rows of a log table at a height, from the bucket of a chain.

        Only one file is read, that of the commit or its compaction, and only row groups with possible matches.

        Args:
            table: Name of the table.
            height: A committed height.
            position: Position of the chain.
            columns: Columns to return.
            chosen: Selects rows.
            destination: As in ``select_rows``.
            most: As in ``select_rows``.

        Returns:
            The rows, or None without a file.
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
    """Open the network in a lake for reading.

    Args:
        uri: Path or URI.
        sources: As in ``OpenedLake``.
        share: As in ``OpenedLake``.

    Raises:
        LakeError: There is no lake, or it has another format.
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
    """Return the chosen rows of a Parquet file, reading a batch at a time.

    Args:
        lake: The lake.
        path: Path of the file.
        seal: Its seal.
        columns: Columns to return; None: all.
        chosen: Selects rows.
        destination: Receiving chain of outbound entries; skips row groups without it.
        most: Number of rows to stop after.
        height: Height of log rows; skips row groups without it.

    Raises:
        LakeDamaged: The file is missing or damaged.
    """
    with lake.open_parquet(path, seal) as file:
        groups = _matching_groups(file, {"destination": destination, "height": height})
        stored = file.schema_arrow  # rebuilt on every access
        names = stored.names if columns is None else list(columns)
        read = names if height is None or "height" in names else [*names, "height"]
        schema = pa.schema([stored.field(name) for name in read])
        parts: list[pa.Table] = []
        found = 0
        for batch in file.iter_batches(BATCH, row_groups=groups, columns=read, use_threads=False):
            rows = pa.Table.from_batches([batch], schema=schema)
            rows = _filter_rows(rows if height is None else select_height(rows, height), chosen)
            if rows.num_rows:
                parts.append(rows)
            found += rows.num_rows
            if most is not None and found >= most:
                break
        return (pa.concat_tables(parts) if parts else schema.empty_table()).select(names)


def _matching_groups(file: StoredParquet, wanted: Mapping[str, int | None]) -> list[int]:
    """Return the row groups that may hold certain values in some columns."""
    found = set(range(file.num_row_groups))
    for column, value in wanted.items():
        if value is not None:
            found &= set(find_row_groups(file, column, value, value + 1))
    return sorted(found)


def _filter_rows(rows: pa.Table, chosen: RowChoice) -> pa.Table:
    """Return the chosen rows."""
    batches: list[pa.RecordBatch] = []
    for batch in rows.to_batches():
        mask = chosen(batch)
        if mask.all():
            batches.append(batch)
        elif mask.any():
            batches.append(batch.filter(pa.array(mask)))
    return pa.Table.from_batches(batches, schema=rows.schema)


__all__ = ["OpenedLake", "open_lake", "select_rows"]
