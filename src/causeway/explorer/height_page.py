"""The page of a height (headers and events), and the page of state tables at a height."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from causeway.audit.findings import UNKNOWN
from causeway.core.text import count_noun
from causeway.explorer.addresses import MAX_NUMBER, PageRequest, chain_address, height_address, page_address
from causeway.explorer.findings import height_violations
from causeway.explorer.frame import ExplorerPage, PagePart, choice_box, empty_part, number_box, render_form, turn_link
from causeway.explorer.network_page import PageNotFound
from causeway.explorer.overview import lane_link, message_link, message_parties, name_link
from causeway.explorer.view import LedgerView, height_events, height_headers
from causeway.ledger.schema import LANE
from causeway.network.opened_lake import OpenedLake, select_rows
from causeway.protocols.contract import StateTable
from causeway.report.elements import (
    TableCell,
    TableColumn,
    element,
    format_count,
    format_name,
    format_time,
    render_table,
    safe_name,
    table_columns,
    verdict_badge,
)
from causeway.storage.lake import Manifest

__all__ = ["height_page", "state_page"]

HEADERS = 400
EVENTS = 300
"""Maximum headers and events of a height."""


def height_page(view: LedgerView, query: PageRequest) -> ExplorerPage:
    """Return the page of a height, by default the last one.

    Args:
        view: the snapshot's data.
        query: the query parameters.

    Returns:
        The page.
    """
    last = view.last_height
    chain = query.text("chain")
    number = query.number("n")
    if number is None:
        number = last
    if number is None:
        note = "This ledger has no headers, and its events name no blocks of one network."
        return ExplorerPage(
            "Heights",
            [
                PagePart(
                    "height",
                    "Heights",
                    element("p", note, class_="empty") + element("div", _form(chain), class_="turn"),
                )
            ],
            "Heights",
        )
    events, whole = height_events(view.ledger, number, chain, EVENTS)
    tick = view.height_tick(number)
    ticks = {row["tick"] for row in events} - {None} if tick is None else {tick}
    headers = height_headers(view.ledger, number, ticks, chain, HEADERS)
    lead = count_noun(len(headers), "header")
    if chain is not None:
        lead += f" of {safe_name(chain)}"
    if headers and headers[0]["time"] is not None:
        lead += f", {format_time(headers[0]['time'])}"
    sections = [
        PagePart(
            "height", f"Height {number:,}", _moves(number, last, chain) + _headers(headers, number, view), f"{lead}."
        )
    ]
    if (found := height_violations(view, number, chain)) is not None:
        sections.append(found)
    note = "" if whole else f" The first {EVENTS} are shown; a lane or chain narrows them."
    sections.append(
        PagePart("events", "Events of messages", _events(events), f"{count_noun(len(events), 'event')}.{note}")
    )
    return ExplorerPage(f"Height {number:,}", sections, "Heights")


def _moves(number: int, last: int | None, chain: str | None) -> Markup:
    beyond = MAX_NUMBER if last is None else last
    parts = [
        turn_link(word, None if other == number or not 0 <= other <= beyond else height_address(other, chain))
        for word, other in (("First", 0), ("Before", number - 1), ("Next", number + 1))
    ]
    parts.append(element("a", "Last", href="/height"))
    if chain is not None:
        parts.append(element("a", "All chains", href=height_address(number)))
    return element("div", [*parts, _form(chain)], class_="turn")


def _form(chain: str | None) -> Markup:
    return render_form("/height", [number_box("n", "Height")], {"chain": chain})


def _headers(headers: Sequence[Mapping[str, Any]], number: int, view: LedgerView) -> Markup:
    columns = table_columns("chain:name", "block:number", "hash:code", "parent:code", "root:code", "status")
    if all(row["hash"] is None for row in headers):
        columns = [column for column in columns if column.title not in ("hash", "parent")]
    if all(row["height"] == number for row in headers):
        columns = [column for column in columns if column.title != "block"]
    cells: list[list[TableCell]] = []
    for row in headers:
        listed: dict[str, TableCell] = {title: _digest(row[title]) for title in ("hash", "parent", "root")}
        listed["chain"], listed["block"] = name_link(row["chain"], chain_address(row["chain"])), row["height"]
        listed["status"] = verdict_badge(UNKNOWN, row["status"]) if row["status"] else None
        cells.append([listed[column.title] for column in columns])
    if not any(row["status"] for row in headers):
        columns, cells = columns[:-1], [row[:-1] for row in cells]
    empty = "No header of this height is in the ledger."
    return element(
        "div",
        render_table(columns, cells, caption=f"Headers of height {number}", empty=empty, stacked=True),
        class_="gap",
    )


def _digest(text: str | None) -> TableCell:
    return None if text is None else element("span", format_name(text, 30), class_="code")


def _events(events: Sequence[Mapping[str, Any]]) -> Markup:
    columns = table_columns("chain:name", "event", "message", "lane", "kind", "from → to", "reason")
    cells: list[list[TableCell]] = []
    for row in events:
        lane = [row[each] for each in LANE]
        because = [safe_name(row["detail"])] if row["detail"] else []
        because += [f"code {row['code']}"] if row["code"] else []
        cells.append(
            [
                name_link(row["chain"], chain_address(row["chain"])),
                row["event"].replace("_", " "),
                message_link(dict(row)),
                lane_link(lane) if any(lane[1:]) else None,
                row["kind"],
                message_parties(row),
                ", ".join(because) or None,
            ]
        )
    return render_table(columns, cells, caption="Events", stacked=True, empty="No events of messages at this height.")


MAX_STATE_ROWS = 200
"""Maximum rows of a state table."""

LONGEST = 120
"""Maximum characters of a value."""


def state_page(view: LedgerView, query: PageRequest) -> ExplorerPage:
    """Return the page of state tables.

    Args:
        view: the snapshot's data.
        query: the query parameters.

    Returns:
        The page.

    Raises:
        PageNotFound: the height, table or chain does not exist. Errors of reading a state pass through.
    """
    opened = view.opened
    if opened is None:
        note = "This is a recorded ledger: it has events, and no state."
        return ExplorerPage("State", [empty_part("state", "State", note)], "State")
    last = opened.last_height()
    height = query.number("height", (1 << 63) - 1)
    height = last if height is None else height
    if height > last:
        raise PageNotFound(f"height: {height:,} is not committed; the last is {last:,}")
    chosen, chain = query.text("table"), query.text("chain")
    names = sorted(opened.tables.state)
    if chosen is not None and chosen not in names:
        raise PageNotFound(f"table: {chosen[:60]}: no such table")
    manifest = opened.manifest(height)
    lead = f"At height {height:,}, tick {manifest.tick:,}" + (f", chain {safe_name(chain)}" if chain else "")
    if chosen is None:
        return ExplorerPage(
            "State",
            [
                PagePart(
                    "state",
                    "State",
                    _states_form(names, None, height, chain) + _overview(opened, manifest, query),
                    f"{lead}.",
                )
            ],
            "State",
        )
    declared = opened.tables.state[chosen]
    rows, more = _rows(opened, manifest, chosen, declared, chain)
    back = element("a", "State", href=page_address("/state", {"height": query.text("height"), "chain": chain}))
    body = _states_form(names, chosen, height, chain) + _table(opened, declared, rows, chosen, more=more)
    return ExplorerPage(
        f"State: {safe_name(chosen)}", [PagePart("state", safe_name(chosen), body, f"{lead}.", back)], "State"
    )


def _states_form(names: list[str], chosen: str | None, height: int, chain: str | None) -> Markup:
    at = element("label", [Markup("at height"), number_box("height", "Height", height)])
    fields = [choice_box("table", "Table", names, chosen), at]
    return element("div", render_form("/state", fields, {"chain": chain}, "Show"), class_="turn")


def _overview(opened: OpenedLake, manifest: Manifest, query: PageRequest) -> Markup:
    columns = table_columns("table:name", "rows of all:number", "of", "columns")
    cells: list[list[TableCell]] = []
    for each, declared in sorted(opened.tables.state.items()):
        href = page_address("/state", {**query.values(), "table": each})
        owner = "programs" if declared.belongs_to_program else "chains"
        cells.append(
            [
                name_link(each, href),
                _count(opened, manifest, each),
                owner,
                safe_name(", ".join(declared.schema.names), 90),
            ]
        )
    return render_table(columns, cells, caption="State tables", stacked=True)


def _count(opened: OpenedLake, manifest: Manifest, name_of_table: str) -> int | None:
    """Return the number of rows of a table, if file metadata has it."""
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
    """Return the first rows of a table, and True if there are more."""
    if freed := opened.lake.freed(manifest.height):
        raise freed
    wanted = None if chain is None else opened.position(chain)
    hosted = None if wanted is None or not declared.belongs_to_program else _hosted(opened, manifest.tick, wanted)

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
        if found > MAX_STATE_ROWS:
            break
    whole = pa.concat_tables(parts).unify_dictionaries()
    if found <= MAX_STATE_ROWS:
        whole = whole.sort_by([(each, "ascending") for each in declared.order]) if _sortable(declared) else whole
    return whole.slice(0, MAX_STATE_ROWS), found > MAX_STATE_ROWS


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
            yield select_rows(opened.lake, path, manifest.files[path], None, chosen, most=MAX_STATE_ROWS + 1)
        else:
            rows = opened.lake.part(manifest, parts)
            yield from (pa.Table.from_batches([batch.filter(pa.array(chosen(batch)))]) for batch in rows.to_batches())


def _hosted(opened: OpenedLake, tick: int, position: int) -> Any:
    """Return the numbers of a chain's programs at a tick."""
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
        TableColumn(each, "text" if each in (*declared.chains, *declared.programs) else kinds[each])
        for each in declared.schema.names
    ]
    cells = [[_cell(opened, declared, each, value) for each, value in row.items()] for row in rows.to_pylist()]
    note = (
        element("p", f"The first {count_noun(len(cells), 'row')}; causeway state prints all.", class_="note")
        if more
        else Markup("")
    )
    return element("div", render_table(columns, cells, caption=title, empty="No rows."), class_="wide-table") + note


def _cell(opened: OpenedLake, declared: StateTable, column: str, value: Any) -> TableCell:
    if value is None:
        return None
    if column in declared.chains:
        return (
            name_link(opened.names[value], chain_address(opened.names[value]))
            if value < len(opened.names)
            else format_count(value)
        )
    if column in declared.programs:
        return format_name(opened.program_names.get(int(value), str(value)), 32)
    if isinstance(value, bytes):
        return element("span", format_name(_bytes(column, value), 48), class_="code")
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return f"{int(value):,}"
    return format_name(str(value), LONGEST)


def _bytes(column: str, value: bytes) -> str:
    if column == "state":
        from causeway.programs.state_values import UnreadableState, read_state_value

        try:
            content = read_state_value(value)
            return str(content[0] if isinstance(content, list) and content else content)[:LONGEST]
        except (UnreadableState, ValueError):
            pass
    if value.isascii() and value.decode("ascii", "replace").isprintable() and value:
        return value.decode("ascii")
    return value.hex()
