"""``causeway calls``: outcomes of calls between programs, in total or one by one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from causeway_proofs.errors import InvalidInput

from causeway.cli import message_options, process, shell
from causeway.cli.message_options import (
    FILTERS,
    MAX_LIMIT,
    OUTPUT,
    Csv,
    Executor,
    FilterOptions,
    Master,
    Overwrite,
    Place,
    add_filter_options,
)
from causeway.cli.options import option
from causeway.core.text import count_noun, parse_duration

if TYPE_CHECKING:
    import pyarrow as pa

    from causeway.analysis.figures.figures import LedgerFigures

DEFAULT_ROWS = 20
"""Default number of calls on a terminal."""

MAX_NAMED = 5
"""Number of listed calls of the slowest, and of the oldest open ones."""

MAX_SLOWEST = 10_000

BAR, MIN_BAR = 30, 5
"""Maximum and minimum characters of a bar."""

_BESIDE_BAR = len("    ") + len("  ") + len("100.0 %  ")

_TICKS = re.compile(r"(\d{1,18}(?:\.\d+)?) ?ticks?")


@add_filter_options("--event", "--kind")
def command(
    lake: Place,
    filters: FilterOptions,
    is_open: Annotated[bool, option("Only open calls, as --outcome pending.", "--open", panel=FILTERS)] = False,
    slower_than: Annotated[
        str | None,
        option(
            "Only calls answered after a longer time: 90s, 5min, 2h, or 30ticks of a run.",
            metavar="TIME",
            panel=FILTERS,
        ),
    ] = None,
    slowest: Annotated[
        int | None,
        option("The N slowest calls, slowest first.", metavar="N", panel=OUTPUT, min=1, max=MAX_SLOWEST),
    ] = None,
    each: Annotated[bool, option("List calls instead of the summary.", "--list", panel=OUTPUT)] = False,
    limit: Annotated[
        int | None,
        option(
            f"Maximum calls to list; default: {DEFAULT_ROWS}, all with --json, --csv and --parquet.",
            metavar="N",
            panel=OUTPUT,
            min=0,
            max=MAX_LIMIT,
        ),
    ] = None,
    as_json: Annotated[bool, option("Print one JSON object per call, one a line.", "--json", panel=OUTPUT)] = False,
    as_csv: Csv = False,
    parquet: Annotated[Path | None, option("Write the calls as a Parquet file.", metavar="FILE", panel=OUTPUT)] = None,
    overwrite: Overwrite = False,
    executor: Executor = "auto",
    master: Master = "local[*]",
) -> int:
    """Show the outcomes of calls: requests from chains to others.

    By default a summary: counts by outcome, the slowest and the oldest open calls. With --list, --slowest,
    --slower-than, --open, --json, --csv or --parquet, single calls in ledger order (by bucket, then lane and index).

    [bold]Example[/bold]: causeway calls my-lake --outcome rejected --list
    [bold]Example[/bold]: causeway calls my-lake --slowest 100 --csv
    """
    process.skip_jit_import()
    from causeway.analysis.figures.filters import MessageFilter
    from causeway.cli.output.rows import (
        limit_rows,
        print_csv,
        print_json,
        require_one_format,
        require_parquet_target,
        write_parquet,
    )

    require_one_format(as_json, as_csv, parquet)
    if overwrite and parquet is None:
        raise InvalidInput("--overwrite: only with --parquet")
    if is_open and "--outcome" in filters.given:
        raise InvalidInput("--open: not with --outcome: it is --outcome pending")
    threshold = None if slower_than is None else parse_threshold(slower_than)
    selection = FilterOptions({**filters.given, "--outcome": ["pending"]}) if is_open else filters
    where = selection.message_filter().and_(MessageFilter(calls=True))
    if parquet is not None:
        require_parquet_target(parquet, lake, overwrite=overwrite)
    people = not as_json and not as_csv and parquet is None
    if people and not (each or is_open or slowest or threshold is not None or limit is not None):
        _show(lake, message_options.count_figures(lake, where, executor, master, MAX_NAMED))
        return shell.OK
    most = DEFAULT_ROWS if people and limit is None and slowest is None else limit
    with message_options.open_counted(lake) as (ledger, _):
        from causeway.analysis.figures.message_rows import MESSAGES_SCHEMA

        rows: Iterable[pa.Table] = message_options.select_messages(ledger, where)
        if threshold is not None:
            rows = _slower(rows, *threshold)
        if slowest is not None:
            rows = [_slowest(rows, slowest)]
        if people:
            _list(rows, most)
            return shell.OK
        with limit_rows(rows, most) as selected:
            if as_json:
                print_json(selected)
            elif as_csv:
                print_csv(selected, MESSAGES_SCHEMA)
            elif parquet is not None:
                count = write_parquet(selected, MESSAGES_SCHEMA, parquet)
                shell.print_line(f"{count:,} calls written to {parquet}")
    return shell.OK


def parse_threshold(text: str) -> tuple[float, str]:
    """Parse a duration: a number, and ``ticks`` or ``seconds``.

    Args:
        text: the text of the user.

    Returns:
        Number and unit.

    Raises:
        InvalidInput: the text is no duration.
    """
    ticks, seconds = _TICKS.fullmatch(text.strip()), parse_duration(text)
    if ticks is not None:
        return float(ticks[1]), "ticks"
    if seconds is None:
        raise InvalidInput(f"--slower-than {text}: is no time; write 90s, 5min, 2h or 30ticks")
    return seconds, "seconds"


def _slower(parts: Iterable[pa.Table], least: float, unit: str) -> Iterator[pa.Table]:
    import pyarrow.compute as pc

    count = known = others = 0
    for part in parts:
        took, other = part[f"round_trip_{unit}"], part[f"round_trip_{_OTHER[unit]}"]
        count, known = count + part.num_rows, known + part.num_rows - took.null_count
        others += part.num_rows - other.null_count
        yield part.filter(pc.fill_null(pc.greater(took, least), False))
    if count and not known:
        shell.print_line(
            f"--slower-than: {_unknown(count)} in {unit}{f', but in {_OTHER[unit]}' if others else _ELSEWHERE}"
        )


def _slowest(parts: Iterable[pa.Table], count: int) -> pa.Table:
    """Return the slowest answered calls, in ticks if known, else in seconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from causeway.analysis.figures.message_rows import MESSAGES_SCHEMA

    slowest, many = MESSAGES_SCHEMA.empty_table(), 0
    order = [("round_trip_ticks", "descending"), ("round_trip_seconds", "descending")]
    for part in parts:
        many += part.num_rows
        known = pc.or_(pc.is_valid(part["round_trip_ticks"]), pc.is_valid(part["round_trip_seconds"]))
        found = pa.concat_tables([slowest, part.filter(known).cast(MESSAGES_SCHEMA)])
        slowest = message_options.largest_rows(found, order, count) if found.num_rows > 4 * count else found
    if many and not slowest.num_rows:
        shell.print_line(f"--slowest: {_unknown(many)}{_ELSEWHERE}")
    return message_options.largest_rows(slowest, order, count)


_OTHER = {"ticks": "seconds", "seconds": "ticks"}
_ELSEWHERE = "; causeway latency has how long they were on their way"


def _unknown(count: int) -> str:
    return f"of none of {count_noun(count, 'call')} it is known how long the answer took"


def _list(parts: Iterable[pa.Table], most: int | None) -> None:
    import pyarrow as pa

    from causeway.analysis.figures.message_rows import MESSAGES_SCHEMA
    from causeway.cli.output.progress import stdout_console
    from causeway.cli.output.rows import limit_rows, show_rows

    with limit_rows(parts, None if most is None else most + 1) as first_parts:
        rows = pa.concat_tables([MESSAGES_SCHEMA.empty_table(), *(part.cast(MESSAGES_SCHEMA) for part in first_parts)])
    console = stdout_console()
    if not rows.num_rows:
        console.print("no calls")
        return
    left_out = show_rows(console, _terminal_columns(rows if most is None else rows.slice(0, most)))
    if most is not None and rows.num_rows > most:
        console.print(f"... and more: --limit N lists more than {most}, --json and --csv all")
    if left_out:
        console.print(f"Columns that do not fit: {left_out}; --json and --csv have all")


def _terminal_columns(rows: pa.Table) -> pa.Table:
    """Select the columns of calls for a terminal."""
    import pyarrow as pa

    from causeway.cli.output import tables

    plain = rows.select(["round_trip_ticks", "round_trip_seconds"]).to_pylist()
    took = [
        tables.format_amount(row["round_trip_ticks"], "ticks") if row["round_trip_ticks"] is not None
        else None if row["round_trip_seconds"] is None else tables.format_amount(row["round_trip_seconds"], "seconds")
        for row in plain
    ]  # fmt: skip
    ticks = rows["sent_tick"].null_count < rows.num_rows
    columns: dict[str, Any] = {
        "outcome": rows["outcome"],
        "took": pa.array(took, pa.string()),
        "sent at": rows["sent_tick"] if ticks else rows["sent_time"],
    }
    names = ("protocol", "source", "destination", "lane", "index", "message_id", "sender", "receiver")
    columns |= {name: rows[name] for name in (*names, "code", "detail", "asset", "amount")}
    return pa.table(columns)


def _show(lake: str, found: LedgerFigures) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    from rich.markup import escape
    from rich.table import Table

    from causeway.analysis.figures.outcomes import NO_CAUSE
    from causeway.cli.output import tables
    from causeway.cli.output.progress import stdout_console
    from causeway.cli.output.tables import show_pairs
    from causeway.core.arrow_types import to_python_rows
    from causeway.core.text import format_lane, shorten_name
    from causeway.ledger.outcomes import UNSUCCESSFUL
    from causeway.ledger.outcomes import Outcome as Ended

    console, totals = stdout_console(), found.totals
    count = totals["messages"]
    over = f"{count_noun(count, 'call')} over {count_noun(totals['lanes'], 'lane')}"
    console.print(f"[bold]{escape(shorten_name(lake))}[/bold]: {over}", soft_wrap=not console.is_terminal)
    ended_counts = [(ended.replace("_", " "), totals[ended]) for ended in Ended if totals[ended]]
    wide = max((len(f"{name}{many:,}") for name, many in ended_counts), default=0) + _BESIDE_BAR
    room = min(BAR, console.width - wide)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for side in ("left", "right", "right", *(["left"] if room >= MIN_BAR else [])):
        table.add_column(justify="right" if side == "right" else "left", no_wrap=True)
    for name, many in ended_counts:
        bar = [f"[cyan]{tables.share_bar(many, count, room)}[/cyan]"] if room >= MIN_BAR else []
        table.add_row(f"  {name}", f"{many:,}", tables.format_percent(many, count), *bar)
    console.print(table)
    failed = pc.is_in(found.codes["outcome"], pa.array([each.value for each in UNSUCCESSFUL]))
    reasons = to_python_rows(found.codes.filter(failed).slice(0, MAX_NAMED))
    if reasons:
        console.print("\n[bold]Why calls did not succeed[/bold]")
        pairs = []
        for row in reasons:
            code = "" if not row["code"] else f"code {row['code']}"
            why = ", ".join(part for part in (shorten_name(row["detail"]) if row["detail"] else "", code) if part)
            text = row["outcome"].replace("_", " ")
            if not why and row["outcome"] == Ended.DROPPED:
                why = NO_CAUSE
            pairs.append((f"{row['messages']:>12,}", f"{text}: {escape(why)}" if why else text))
        show_pairs(console, pairs, right=True)
    for why, title in (("slowest_round_trip", "Slowest answers"), ("oldest_pending", "Oldest open")):
        rows = [row for row in to_python_rows(found.worst) if row["why"] == why][:MAX_NAMED]
        if rows:
            console.print(f"\n[bold]{title}[/bold]")
        pairs = []
        for row in rows:
            named = format_lane([row[name] for name in ("protocol", "source", "destination", "lane")]) or ""
            which = row["message_id"] if row["index"] is None else row["index"]
            parties = " -> ".join(shorten_name(row[name]) for name in ("sender", "receiver") if row[name])
            text = f"{shorten_name(named)} {shorten_name(str(which))}{f': {parties}' if parties else ''}"
            pairs.append((f"{tables.format_amount(row['delay'], row['unit'] or 'ticks'):>12}", escape(text)))
        show_pairs(console, pairs, right=True)
