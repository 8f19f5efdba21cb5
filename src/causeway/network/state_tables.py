"""State tables of a lake at committed heights, read without Spark."""

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
"""One row a state table, with its row count."""


class LakeStates:
    """The state of a lake's network.

    Args:
        lake: The lake.
        sources: Allowed sources of user programs, to execute heights within a commit again.
    """

    def __init__(self, lake: Lake, sources: ModuleSources = NOWHERE) -> None:
        self.lake, self._sources = lake, sources

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """Description of the lake."""
        return self.lake.about()

    @cached_property
    def tables(self) -> Mapping[str, StateTable]:
        """State tables by name: those of the protocol and of programs."""
        return TableSchemas.decoded(self.about["tables"]).state

    @cached_property
    def _replayed(self) -> StateReplay:
        from causeway.network.replay import StateReplay, recorded_deployment

        return StateReplay(self.lake, partial(recorded_deployment, self.lake, self.about, self._sources))

    def declared(self, table: str) -> StateTable:
        """Return the declaration of a state table. Raises ``InvalidInput``."""
        if table not in self.tables:
            raise InvalidInput(f"table: {suggest_known('table', table, self.tables)}")
        return self.tables[table]

    def rows(self, table: str, height: int | None, chain: str | None, names: bool) -> pa.Table:
        """Return the rows of a state table, in its order.

        Args:
            table: Name of the table.
            height: A committed height; None: the last.
            chain: Restrict to this chain, and to its programs at that height; None: all.
            names: Show chains and programs by name in place of numbers.

        Raises:
            InvalidInput: There is no such table or chain.
            LakeError: The height is not committed.
            Freed: A vacuum freed the state.
            ReplayDiffers: The state is in no file, and replaying gives another.
        """
        declared = self.declared(table)
        manifest = self.lake.last_manifest() if height is None else self.lake.manifest(height)
        if freed := self.lake.freed(manifest.height):
            raise freed
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
        return self._with_names(rows, declared) if names else rows

    def overview(self, height: int | None, chain: str | None) -> pa.Table:
        """Return the row count of each state table (``OVERVIEW_SCHEMA``); arguments as in ``rows``."""
        counts = [self.rows(table, height, chain, names=False).num_rows for table in self.tables]
        return pa.table([pa.array([*self.tables], pa.string()), pa.array(counts, pa.int64())], OVERVIEW_SCHEMA)

    def schema(self, table: str, names: bool) -> pa.Schema:
        """Return the schema of a state table. Raises ``InvalidInput``."""
        declared = self.declared(table)
        text_columns = {*declared.chains, *declared.programs} if names else set()
        return pa.schema(
            [field.with_type(pa.string()) if field.name in text_columns else field for field in declared.schema]
        )

    def _parts(self, manifest: Manifest, table: str, declared: StateTable) -> list[pa.Table]:
        if manifest.height == manifest.last:
            found = self.lake.state(manifest, table)
        else:
            found = self._replayed.tables(manifest.height, table)
        return [part.select(declared.schema.names).cast(declared.schema) for part in found]

    def _hosted(self, manifest: Manifest, position: int) -> npt.NDArray[np.uint64]:
        """Return the programs on a chain at a height."""
        number = self.about["chains"][position]["number"]
        programs, moves = (self.lake.topology(name) for name in ("programs", "registry"))
        hosts = dict(zip(programs["number"].to_pylist(), programs["chain"].to_pylist(), strict=True))
        rows = zip(*(moves[name].to_pylist() for name in ("tick", "program", "chain")), strict=True)
        for tick, program, chain in sorted(rows, key=lambda row: row[0]):
            if tick <= manifest.tick:
                hosts[program] = chain
        return np.array([program for program, chain in hosts.items() if chain == number], np.uint64)

    def _with_names(self, rows: pa.Table, declared: StateTable) -> pa.Table:
        programs = self.lake.topology("programs", ["number", "name"])
        program_names = dict(zip(programs["number"].to_pylist(), programs["name"].to_pylist(), strict=True))
        chain_names = {place: item["name"] for place, item in enumerate(self.about["chains"])}
        for columns, known in ((declared.programs, program_names), (declared.chains, chain_names)):
            for name in columns:
                texts = [None if each is None else known.get(each, str(each)) for each in rows[name].to_pylist()]
                rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(texts, pa.string()))
        return rows


__all__ = ["OVERVIEW_SCHEMA", "LakeStates"]
