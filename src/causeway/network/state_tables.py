"""The state tables of a lake at committed heights, read without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.core.text import suggest_known
from causeway.programs.user_modules import NOWHERE, ModuleSources
from causeway.protocols.contract import StateTable
from causeway.storage.lake import Lake, Manifest
from causeway.storage.table_schemas import TableSchemas, chain_position

if TYPE_CHECKING:
    from causeway.network.replay import StateReplay

OVERVIEW_SCHEMA = pa.schema([pa.field("table", pa.string(), nullable=False), pa.field("rows", pa.int64())])
"""A row a state table: how many rows it has."""


class LakeStates:
    """The state of a lake's network. ``sources``: where programs of one's own come from: heights within a commit are
    executed again."""

    def __init__(self, lake: Lake, sources: ModuleSources = NOWHERE) -> None:
        self.lake, self._sources = lake, sources

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """What the lake says of itself."""
        return self.lake.about()

    @cached_property
    def tables(self) -> Mapping[str, StateTable]:
        """The state tables by name: those of the protocol and those of the programs."""
        return TableSchemas.decoded(self.about["tables"]).state

    @cached_property
    def _replayed(self) -> StateReplay:
        from causeway.network.replay import StateReplay, recorded_deployment

        return StateReplay(self.lake, partial(recorded_deployment, self.lake, self.about, self._sources))

    def declared(self, table: str) -> StateTable:
        """Return what a state table is. Raises ``InvalidInput`` where there is none of that name."""
        if table not in self.tables:
            raise InvalidInput(f"table: {suggest_known('table', table, self.tables)}")
        return self.tables[table]

    def rows(self, table: str, height: int | None, chain: str | None, names: bool) -> pa.Table:
        """Return the rows of a state table, in its order.

        Args:
            table: its name.
            height: a committed height; None: the last.
            chain: only of this chain, and of the programs that it has at that height; None: of all.
            names: chains and programs by their names in place of the numbers.

        Raises:
            InvalidInput: there is no such table or chain.
            LakeError: the height is not committed.
            Freed: its state was freed.
            ReplayDiffers: it is in no file, and executing its heights again gives another.
        """
        declared = self.declared(table)
        manifest = self._manifest(height)
        rows = pa.concat_tables([declared.schema.empty_table(), *self._parts(manifest, table, declared)])
        if chain is not None:
            position = chain_position(self.about, chain)
            owners = rows[declared.owner].to_numpy()
            own = (
                np.isin(owners, self._hosted(manifest, position)) if declared.belongs_to_program else owners == position
            )
            rows = rows.filter(pa.array(np.asarray(own, bool)))
        order = [(name, "ascending") for name in declared.order]
        rows = rows.take(pc.sort_indices(rows, order)) if rows.num_rows else rows
        return self._named(rows, declared) if names else rows

    def overview(self, height: int | None, chain: str | None) -> pa.Table:
        """Return how many rows each state table has (``OVERVIEW_SCHEMA``); otherwise as ``rows``."""
        counts = [self.rows(table, height, chain, names=False).num_rows for table in self.tables]
        return pa.table([pa.array([*self.tables], pa.string()), pa.array(counts, pa.int64())], OVERVIEW_SCHEMA)

    def schema(self, table: str, names: bool) -> pa.Schema:
        """Return the columns of a state table. Raises ``InvalidInput``."""
        declared = self.declared(table)
        named = {*declared.chains, *declared.programs} if names else set()
        return pa.schema([field.with_type(pa.string()) if field.name in named else field for field in declared.schema])

    def _manifest(self, height: int | None) -> Manifest:
        manifest = self.lake.last_manifest() if height is None else self.lake.manifest(height)
        if freed := self.lake.freed(manifest.height):
            raise freed
        return manifest

    def _parts(self, manifest: Manifest, table: str, declared: StateTable) -> list[pa.Table]:
        if manifest.height == manifest.last:
            found = self.lake.state(manifest, table)
        else:
            found = self._replayed.tables(manifest.height, table)
        return [part.select(declared.schema.names).cast(declared.schema) for part in found]

    def _hosted(self, manifest: Manifest, position: int) -> npt.NDArray[np.uint64]:
        """Return the programs that a chain has at a height."""
        number = self.about["chains"][position]["number"]
        programs, moves = (self.lake.topology(name) for name in ("programs", "registry"))
        on = dict(zip(programs["number"].to_pylist(), programs["chain"].to_pylist(), strict=True))
        rows = zip(*(moves[name].to_pylist() for name in ("tick", "program", "chain")), strict=True)
        for tick, program, chain in sorted(rows, key=lambda row: row[0]):
            if tick <= manifest.tick:
                on[program] = chain
        return np.array([program for program, chain in on.items() if chain == number], np.uint64)

    def _named(self, rows: pa.Table, declared: StateTable) -> pa.Table:
        programs = self.lake.topology("programs", ["number", "name"])
        of_programs = dict(zip(programs["number"].to_pylist(), programs["name"].to_pylist(), strict=True))
        of_chains = {place: item["name"] for place, item in enumerate(self.about["chains"])}
        for columns, known in ((declared.programs, of_programs), (declared.chains, of_chains)):
            for name in columns:
                texts = [None if each is None else known.get(each, str(each)) for each in rows[name].to_pylist()]
                rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(texts, pa.string()))
        return rows


__all__ = ["OVERVIEW_SCHEMA", "LakeStates"]
