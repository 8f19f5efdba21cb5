"""State tables of a lake at a height: which there are, and the first rows of one."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from causeway.explorer.addresses import Asked, address, chain_address
from causeway.explorer.forms import choice, form, number_box
from causeway.explorer.frame import Page, Part
from causeway.explorer.networks import NotFound
from causeway.explorer.overview import link
from causeway.explorer.view import View
from causeway.network.opened import OpenedLake, select
from causeway.pipeline.lake import Manifest
from causeway.protocols.contract import StateTable
from causeway.report.svg import element
from causeway.report.tables import Cell, Column, table
from causeway.report.text import count, many, name, safe_name

ROWS = 200
"""Rows of a table that are shown."""

LONGEST = 120
"""Characters of a value that are shown."""


def state(view: View, asked: Asked) -> Page:
    """Return the page of state tables. Raises ``NotFound``, and what reading a state does."""
    opened = view.opened
    if opened is None:
        said = "This is a recorded ledger: it has events, and no state."
        return Page("State", [Part("state", "State", element("p", {"class": "empty"}, said))], "State")
    last = opened.last_height()
    height = asked.number("height", (1 << 63) - 1)
    height = last if height is None else height
    if height > last:
        raise NotFound(f"height: {height:,} is not committed; the last is {last:,}")
    chosen, chain = asked.text("table"), asked.text("chain")
    names = sorted(opened.tables.state)
    if chosen is not None and chosen not in names:
        raise NotFound(f"table: {chosen[:60]}: no such table")
    manifest = opened.manifest(height)
    lead = f"At height {height:,}, tick {manifest.tick:,}" + (f", chain {safe_name(chain)}" if chain else "")
    if chosen is None:
        return Page(
            "State",
            [
                Part(
                    "state", "State", _form(names, None, height, chain) + _overview(opened, manifest, asked), f"{lead}."
                )
            ],
            "State",
        )
    declared = opened.tables.state[chosen]
    rows, more = _rows(opened, manifest, chosen, declared, chain)
    back = element("a", {"href": address("/state", {"height": asked.text("height"), "chain": chain})}, "State")
    body = _form(names, chosen, height, chain) + _table(opened, declared, rows, chosen, more=more)
    return Page(f"State: {safe_name(chosen)}", [Part("state", safe_name(chosen), body, f"{lead}.", back)], "State")


def _form(names: list[str], chosen: str | None, height: int, chain: str | None) -> Markup:
    at = element("label", {}, [Markup("at height"), number_box("height", "Height", height)])
    fields = [choice("table", "Table", names, chosen), at]
    return element("div", {"class": "turn"}, form("/state", fields, {"chain": chain}, "Show"))


def _overview(opened: OpenedLake, manifest: Manifest, asked: Asked) -> Markup:
    columns = [Column("table", "name"), Column("rows of all", "number"), Column("of"), Column("columns")]
    cells: list[list[Cell]] = []
    for each, declared in sorted(opened.tables.state.items()):
        href = address("/state", {**asked.values(), "table": each})
        owner = "programs" if declared.owned_by_program else "chains"
        cells.append(
            [link(each, href), _count(opened, manifest, each), owner, safe_name(", ".join(declared.schema.names), 90)]
        )
    return table(columns, cells, caption="State tables", stacked=True)


def _count(opened: OpenedLake, manifest: Manifest, name_of_table: str) -> int | None:
    """Return how many rows a table has, where the files say it without being read."""
    if manifest.height < manifest.last:
        return None
    total = 0
    for parts in manifest.state.get(name_of_table, {}).values():
        if not parts.whole:
            return None
        path = parts.rows[0]
        with opened.lake.open_parquet(path, manifest.files[path]) as file:
            total += file.metadata.num_rows
    return total


def _rows(
    opened: OpenedLake, manifest: Manifest, which: str, declared: StateTable, chain: str | None
) -> tuple[pa.Table, bool]:
    """Return the first rows of a table, and whether there are more."""
    if freed := opened.lake.freed(manifest.height):
        raise freed
    wanted = None if chain is None else opened.position(chain)
    hosted = None if wanted is None or not declared.owned_by_program else _hosted(opened, manifest.tick, wanted)

    def chosen(batch: pa.RecordBatch) -> Any:
        if wanted is None:
            return np.ones(batch.num_rows, dtype=bool)
        owners = batch[declared.owner].to_numpy()
        return np.isin(owners, hosted) if hosted is not None else owners == wanted

    parts = [pa.schema(declared.schema).empty_table()]
    found = 0
    for rows in _pieces(opened, manifest, which, wanted, chosen):
        parts.append(rows.select(declared.schema.names).cast(declared.schema))
        found += rows.num_rows
        if found > ROWS:
            break
    whole = pa.concat_tables(parts).unify_dictionaries()
    if found <= ROWS:
        whole = whole.sort_by([(each, "ascending") for each in declared.order]) if _sortable(declared) else whole
    return whole.slice(0, ROWS), found > ROWS


def _sortable(declared: StateTable) -> bool:
    kinds = [declared.schema.field(each).type for each in declared.order]
    return bool(kinds) and not any(pa.types.is_fixed_size_binary(kind) or pa.types.is_nested(kind) for kind in kinds)


def _pieces(opened: OpenedLake, manifest: Manifest, which: str, wanted: int | None, chosen: Any) -> Iterator[pa.Table]:
    if manifest.height < manifest.last:
        for number, rows in enumerate(opened.replayed.tables(manifest.height, which)):
            if wanted is None or str(number) == opened.bucket(wanted):
                yield from (
                    pa.Table.from_batches([batch.filter(pa.array(chosen(batch)))]) for batch in rows.to_batches()
                )
        return
    files = manifest.state.get(which, {})
    for bucket in sorted(files, key=int):
        if wanted is not None and bucket != opened.bucket(wanted):
            continue
        parts = files[bucket]
        if parts.whole:
            path = parts.rows[0]
            yield select(opened.lake, path, manifest.files[path], None, chosen, most=ROWS + 1)
        else:
            rows = opened.lake.part(manifest, parts)
            yield from (pa.Table.from_batches([batch.filter(pa.array(chosen(batch)))]) for batch in rows.to_batches())


def _hosted(opened: OpenedLake, tick: int, position: int) -> Any:
    """Return the numbers of the programs that are on a chain at a tick."""
    topology = opened.topology
    on = dict(zip(topology.programs["number"].to_pylist(), topology.programs["chain"].to_pylist(), strict=True))
    moves = topology.moves.filter(pc.less_equal(topology.moves["tick"], pa.scalar(tick, pa.uint64()))).sort_by("tick")
    on |= dict(zip(moves["program"].to_pylist(), moves["chain"].to_pylist(), strict=True))
    number = topology.chains["number"].to_pylist()[position]
    return np.array(sorted(program for program, chain in on.items() if chain == number), dtype=np.uint64)


def _table(opened: OpenedLake, declared: StateTable, rows: pa.Table, title: str, *, more: bool) -> Markup:
    kinds = {
        field.name: "number" if pa.types.is_integer(field.type) or pa.types.is_decimal(field.type) else "text"
        for field in declared.schema
    }
    columns = [
        Column(each, "text" if each in (*declared.chains, *declared.programs) else kinds[each])
        for each in declared.schema.names
    ]
    cells = [[_cell(opened, declared, each, value) for each, value in row.items()] for row in rows.to_pylist()]
    said = (
        element("p", {"class": "note"}, f"The first {many(len(cells), 'row')}; causeway state prints all.")
        if more
        else Markup("")
    )
    return element("div", {"class": "wide-table"}, table(columns, cells, caption=title, empty="No rows.")) + said


def _cell(opened: OpenedLake, declared: StateTable, column: str, value: Any) -> Cell:
    if value is None:
        return None
    if column in declared.chains:
        return (
            link(opened.names[value], chain_address(opened.names[value])) if value < len(opened.names) else count(value)
        )
    if column in declared.programs:
        return name(opened.program_names.get(int(value), str(value)), 32)
    if isinstance(value, bytes):
        return element("span", {"class": "code"}, name(_bytes(column, value), 48))
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return f"{int(value):,}"
    return name(str(value), LONGEST)


def _bytes(column: str, value: bytes) -> str:
    if column == "state":
        from causeway.programs.kept import UnreadableState, read_kept

        try:
            content = read_kept(value)
            return str(content[0] if isinstance(content, list) and content else content)[:LONGEST]
        except (UnreadableState, ValueError):
            pass
    if value.isascii() and value.decode("ascii", "replace").isprintable() and value:
        return value.decode("ascii")
    return value.hex()


__all__ = ["state"]
