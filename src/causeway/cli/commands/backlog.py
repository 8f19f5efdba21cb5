"""``causeway backlog``: messages in flight and unanswered requests, by lane and over time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from causeway.cli import message_options, process, shell
from causeway.core.text import count_noun

if TYPE_CHECKING:
    import pyarrow as pa

    from causeway.analysis.figures.figures import LedgerFigures

_LANE = ("protocol", "source", "destination", "lane")


@message_options.add_filter_options("--event", "--outcome")
def command(
    lake: message_options.Place,
    filters: message_options.FilterOptions,
    over_time: message_options.OverTime = False,
    limit: message_options.Lanes = None,
    as_json: message_options.Json = False,
    as_csv: message_options.Csv = False,
    executor: message_options.Executor = "auto",
    master: message_options.Master = "local[*]",
) -> int:
    """Show pending and in-flight messages by lane.

    In flight: sent, and neither received nor ended. Pending: sent, received or not, with no recorded outcome. Lanes are
    sorted by the number of pending messages; each row shows the oldest one.

    [bold]Example[/bold]: causeway backlog my-ledger --over-time
    """
    process.skip_jit_import()
    from causeway.cli.output.rows import print_csv, require_one_format

    require_one_format(as_json, as_csv, None)
    found = message_options.count_figures(lake, filters.message_filter(), executor, master)
    if as_csv:
        rows = found.backlog if over_time else pending_lanes(found, limit)
        print_csv([rows], rows.schema)
    elif as_json:
        from causeway.cli.output.rows import json_rows, to_json_value

        totals = {name: to_json_value(value) for name, value in found.totals.items()}
        content: dict[str, Any] = {"lake": lake, "totals": totals, "lanes": json_rows(pending_lanes(found, limit))}
        if over_time:
            content["over_time"] = json_rows(found.backlog)
        print(json.dumps(content))
    else:
        _show(lake, found, message_options.LANES if limit is None else limit, over_time)
    return shell.OK


def pending_lanes(found: LedgerFigures, limit: int | None) -> pa.Table:
    """Return the lanes with pending messages, most first.

    Args:
        found: the figures.
        limit: maximum number of lanes; None: all.

    Returns:
        Rows of ``LANES_SCHEMA``.
    """
    import pyarrow.compute as pc

    open_ones = pc.or_(pc.greater(found.lanes["pending"], 0), pc.greater(found.lanes["in_flight"], 0))
    return message_options.largest_rows(
        found.lanes.filter(open_ones), [("pending", "descending"), ("in_flight", "descending")], limit
    )


def _unplaced_note(unplaced: int) -> str:
    return f"{count_noun(unplaced, 'message')} left out: when sent was not seen"


def _show(lake: str, found: LedgerFigures, limit: int, over_time: bool) -> None:
    from rich.markup import escape

    from causeway.cli.output import tables
    from causeway.cli.output.progress import stdout_console
    from causeway.cli.output.tables import show_table
    from causeway.core.arrow_types import to_python_rows
    from causeway.core.text import format_lane_or_none, format_moment, shorten_name, was_or_were

    console, totals = stdout_console(), found.totals
    counts = f"{count_noun(totals['sent'], 'message')} {was_or_were(totals['sent'])} sent"
    meaning = " (no outcome yet)" if totals["pending"] else ""
    summary = f"{counts}; {totals['pending']:,} pending{meaning}, {totals['in_flight']:,} in flight"
    console.print(f"[bold]{escape(shorten_name(lake))}[/bold]: {summary}", soft_wrap=not console.is_terminal)
    bins = to_python_rows(found.backlog)
    if not over_time and (most := max(bins, key=lambda row: row["pending"], default=None)) and most["pending"]:
        when = (
            f"tick {most['tick']:,}" if most["axis"] == "tick" else f"{format_moment(most['time'], seconds=False)} UTC"
        )
        about = "at" if most["ticks"] == 1 else "about"
        left_out = f" ({_unplaced_note(totals['unplaced'])})" if totals["unplaced"] else ""
        pending = f"{most['pending']:,} {was_or_were(most['pending'])} pending"
        console.print(f"At most {pending}, requests and answers alike, {about} {when}{left_out}; see --over-time")
    lanes = to_python_rows(pending_lanes(found, limit))
    if lanes and limit:
        many = pending_lanes(found, None).num_rows
        console.print(f"\n[bold]Most waits in[/bold] ({len(lanes):,} of {many:,} lanes in which something does)")
        cells = []
        for row in lanes:
            named = format_lane_or_none([row[name] for name in _LANE])
            oldest = row["oldest_pending_id"] if row["oldest_pending_index"] is None else row["oldest_pending_index"]
            age = row["oldest_pending_ticks" if row["unit"] == "ticks" else "oldest_pending_seconds"]
            cells.append(
                [
                    escape(shorten_name(named)),
                    *(f"{row[name]:,}" for name in ("pending", "in_flight", "sent")),
                    "" if oldest is None else escape(shorten_name(str(oldest))),
                    "" if age is None else tables.format_amount(age, row["unit"] or "ticks"),
                ]
            )
        titles = ["lane", "pending", "in flight", "sent", "oldest", "waits for"]
        show_table(console, titles, cells, left=["lane", "oldest"], folds=["lane", "oldest"])
    if over_time and bins:
        waits = [row["pending"] for row in bins]
        for name, title in (("pending", "pending"), ("in_flight", "of these in flight"), ("sent", "sent")):
            if name == "in_flight" and [row[name] for row in bins] == waits:
                continue
            console.print()
            tables.plot_over_time(console, title, [row[name] for row in bins], *tables.format_span(bins), "count")
        if totals["unplaced"]:
            console.print(_unplaced_note(totals["unplaced"]))
    elif over_time:
        console.print("no send times recorded")
