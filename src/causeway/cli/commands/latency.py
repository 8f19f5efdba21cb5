"""``causeway latency``: delays of messages, of all lanes and of each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from causeway.cli import message_options, process, shell
from causeway.core.text import count_noun

if TYPE_CHECKING:
    import pyarrow as pa

    from causeway.analysis.figures.figures import LedgerFigures

MEASURES = {
    "delivery": "from sending to receipt",
    "service": "from receipt to execution",
    "round_trip": "from sending to the answer",
}
_FIGURES = ("min", "mean", "p50", "p90", "p99", "max")


@message_options.add_filter_options("--event")
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
    """Show message delays: to receipt, to execution and to the answer.

    Minimum, mean, quantiles and maximum for all messages and for the slowest lanes, in ticks of a run, else in seconds.
    --json and --csv have both units, and the heights until the answer. A timeout is not an answer. Clocks of chains
    differ, so delays can be negative.

    [bold]Example[/bold]: causeway latency my-ledger --source cosmoshub-4 --over-time
    """
    process.skip_jit_import()
    from causeway.cli.output.rows import print_csv, require_one_format

    require_one_format(as_json, as_csv, None)
    found = message_options.count_figures(lake, filters.message_filter(), executor, master)
    if as_csv:
        rows = found.latency_over_time if over_time else _select_rows(found, limit)
        print_csv([rows], rows.schema)
    elif as_json:
        _print_json(lake, found, limit, over_time)
    else:
        _show(lake, found, message_options.LANES if limit is None else limit, over_time)
    return shell.OK


def _select_rows(found: LedgerFigures, limit: int | None) -> pa.Table:
    """Return the delays of all messages and of the slowest lanes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    of_all = found.latency.filter(pc.equal(found.latency["scope"], "all"))
    if limit is None:
        return found.latency
    lanes = slowest_lanes(found, limit)
    rows = [of_all]
    for lane in lanes.select(list(_LANE)).to_pylist():
        own = pc.equal(found.latency["scope"], "lane")
        for name, value in lane.items():
            column = found.latency[name]
            own = pc.and_(own, pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False))
        rows.append(found.latency.filter(own))
    return pa.concat_tables(rows)


_LANE = ("protocol", "source", "destination", "lane")


def slowest_lanes(found: LedgerFigures, limit: int | None) -> pa.Table:
    """Return the lanes with delays by p99, of answers first, then of receipts.

    Args:
        found: the figures.
        limit: maximum number of lanes; None: all.

    Returns:
        Rows of ``LATENCY_SCHEMA``.
    """
    import pyarrow.compute as pc

    lanes = found.lanes
    known = pc.or_(pc.is_valid(lanes["round_trip_p99"]), pc.is_valid(lanes["delivery_p99"]))
    order = [("round_trip_p99", "descending"), ("delivery_p99", "descending")]
    return message_options.largest_rows(lanes.filter(known), order, limit)


def _print_json(lake: str, found: LedgerFigures, limit: int | None, over_time: bool) -> None:
    from causeway.cli.output.rows import json_rows

    content: dict[str, Any] = {
        "lake": lake,
        "unit": found.totals["unit"],
        "latency": json_rows(_select_rows(found, limit)),
    }
    if over_time:
        content["over_time"] = json_rows(found.latency_over_time)
    print(json.dumps(content))


def _show(lake: str, found: LedgerFigures, limit: int, over_time: bool) -> None:
    import pyarrow.compute as pc
    from rich.markup import escape

    from causeway.cli.output import tables
    from causeway.cli.output.progress import stdout_console
    from causeway.cli.output.tables import show_table
    from causeway.core.arrow_types import to_python_rows
    from causeway.core.text import format_lane_or_none, shorten_name, was_or_were

    console, unit = stdout_console(), found.totals["unit"]
    sent = found.totals["sent"]
    in_ticks = ", delays in ticks" if unit == "ticks" else ""
    summary = f"{count_noun(sent, 'message')} {was_or_were(sent)} sent{in_ticks}"
    console.print(f"[bold]{escape(shorten_name(lake))}[/bold]: {summary}", soft_wrap=not console.is_terminal)
    shown_unit = "count" if unit == "ticks" else "seconds"
    of_all = found.latency.filter(pc.equal(found.latency["scope"], "all"))
    rows = [row for row in to_python_rows(of_all) if row["unit"] == unit]
    if not rows:
        console.print("no delays recorded: no message has both a send time and a later event")
        return
    cells = []
    for row in rows:
        figures = [tables.format_amount(row[name], shown_unit) for name in _FIGURES]
        cells.append([row["measure"].replace("_", " "), f"{row['count']:,}", *figures])
    show_table(console, ["", "messages", *_FIGURES], cells, left=[""])
    backwards = sum(row["negative"] for row in rows)
    if backwards:
        console.print(f"{backwards:,} delays are below 0: the clocks of two chains differ")
    if not all(row["exact"] for row in rows):
        console.print("Quantiles are within 0.025 % of the delays: there are many different ones.")
    lanes = to_python_rows(slowest_lanes(found, limit))
    if limit and found.totals["lanes"] > 1 and lanes:
        console.print(f"\n[bold]Slowest of {found.totals['lanes']:,} lanes[/bold]")
        measure = "round_trip" if lanes[0]["round_trip_p99"] is not None else "delivery"
        cells = []
        for row in lanes:
            values = [row[f"{measure}_{name}"] for name in ("p50", "p99", "max")]
            figures = ["" if value is None else tables.format_amount(value, shown_unit) for value in values]
            named = format_lane_or_none([row[name] for name in _LANE])
            cells.append([escape(shorten_name(named)), f"{row['messages']:,}", *figures])
        titles = ["lane", "messages", f"{measure.replace('_', ' ')} p50", "p99", "max"]
        show_table(console, titles, cells, left=["lane"], folds=["lane"])
    if over_time:
        every = [row for row in to_python_rows(found.latency_over_time) if row["unit"] == unit]
        for measure in MEASURES:
            bins = [row for row in every if row["measure"] == measure]
            if bins:
                title = f"{measure.replace('_', ' ')}, {MEASURES[measure]}: p99"
                console.print()
                tables.plot_over_time(console, title, [row["p99"] for row in bins], *tables.format_span(bins), unit)
