"""``causeway state``: the state of a network at a committed height."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from causeway.cli import completion, shell
from causeway.cli.message_options import MAX_LIMIT
from causeway.cli.options import argument, option
from causeway.cli.output.progress import show_spinner, stdout_console
from causeway.cli.scenario_options import ProgramsOfLake, ScenarioOfLake, SparkSettings, parse_setting, program_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from causeway.dataframes.lake_tables import LakeTables
    from causeway.protocols.contract import StateTable
    from causeway.storage.lake import Lake

DEFAULT_ROWS = 20
MAX_CELL = 48
"""Maximum characters of a value in a table."""


def command(
    lake: Annotated[str, argument("Folder or URI of a lake.")],
    chain: Annotated[str | None, option("Only this chain, and the programs it hosts at that height.")] = None,
    height: Annotated[int | None, option("A committed height; without it the last.")] = None,
    table: Annotated[
        str | None,
        option("The state table; without it, a list of them.", autocompletion=completion.complete_state_tables),
    ] = None,
    limit: Annotated[
        int | None, option(f"Maximum rows to print; default: {DEFAULT_ROWS}, or all with --json.", min=0, max=MAX_LIMIT)
    ] = None,
    scenario: ScenarioOfLake = None,
    programs: ProgramsOfLake = None,
    master: Annotated[str, option("Spark master.", show_default=True)] = "local[*]",
    spark: SparkSettings = None,
    as_json: Annotated[bool, option("Print one JSON array of rows.", "--json")] = False,
) -> int:
    """Print a state table as it was at a committed height.

    Chains and programs are shown by name, bytes as hexadecimal digits. Of a height within a commit the state is in no
    file: the heights of the commit up to it are executed again.

    [bold]Example[/bold]: causeway state my-lake --table lanes --chain subnet-3 --height 7
    """
    from causeway.cluster.session import open_session
    from causeway.network.replay import StateReplay, recorded_deployment
    from causeway.storage.lake import Lake
    from causeway.storage.table_schemas import TableSchemas, chain_position

    place = Lake.at(lake).with_identity()
    about = place.about()  # validate the lake and the arguments before Spark starts
    at_height = place.last_manifest() if height is None else place.manifest(height)
    if freed := place.freed(at_height.height):
        raise freed
    if table is not None:
        TableSchemas.decoded(about["tables"]).state_table(table)
    if chain is not None:
        chain_position(about, chain)
    again = StateReplay(place, partial(recorded_deployment, place, about, program_sources(scenario, programs)))
    if at_height.height < at_height.last:
        with show_spinner("Executing heights again"):
            again.frames(at_height.height)
    with show_spinner("Starting Spark"):
        from causeway.cluster.jobs import spark_jobs
        from causeway.dataframes.lake_tables import LakeTables

        session = open_session(master, extra=dict(parse_setting(text, "--conf") for text in spark or ()))
        tables = LakeTables(session, place, again.tables)
    with show_spinner("Reading"), spark_jobs(session, f"state, height {at_height.height}"):
        if table is None:
            rows, title = state_overview(tables, height, chain), "rows per state table"
        else:
            found = tables.state(table, height, chain)
            declared = tables.state_tables()[table]
            rows = with_names(place, declared, _rows(found, declared.order, _limit(limit, as_json)))
            title = table
    if as_json:
        rows = rows if limit is None else rows[:limit]
        print(json.dumps([{name: to_json_value(value) for name, value in row.items()} for row in rows]))
        return shell.OK
    manifest = tables.manifest(height)
    where = f", chain {chain}" if chain else ""
    console = stdout_console()
    console.print(
        f"[bold]{escape(lake)}[/bold]: {title} at height {manifest.height} (tick {manifest.tick}{escape(where)})"
    )
    _print(console, rows, _limit(limit, as_json))
    if table is None and rows:
        longest = max(rows, key=lambda row: row["rows"])["table"]
        console.print(f"Next: causeway state {escape(shlex.quote(lake))} --table {longest}", soft_wrap=True)
    return shell.OK


def _limit(limit: int | None, as_json: bool) -> int | None:
    return DEFAULT_ROWS if limit is None and not as_json else limit


def state_overview(tables: LakeTables, height: int | None, chain: str | None) -> list[dict[str, Any]]:
    """Return the number of rows of each state table.

    Args:
        tables: the tables of the lake.
        height: a committed height, or None.
        chain: a chain, or None.

    Returns:
        One object a table.
    """
    from functools import reduce

    from pyspark.sql import functions as F

    names = list(tables.state_tables())
    counts = [tables.state(name, height, chain).select(F.lit(name).alias("table")) for name in names]
    counted = reduce(lambda one, other: one.union(other), counts).groupBy("table").count().collect()
    found = {row["table"]: int(row["count"]) for row in counted}
    return [{"table": name, "rows": found.get(name, 0)} for name in names]


def _rows(found: DataFrame, order: Sequence[str], limit: int | None) -> list[dict[str, Any]]:
    """Return the first rows, in the table's order."""
    ordered = found.orderBy(*order)
    if limit is not None:
        ordered = ordered.limit(limit + 1)
    return [row.asDict() for row in ordered.collect()]


def with_names(lake: Lake, table: StateTable, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Replace the numbers of chains and programs by names; unknown numbers stay.

    Args:
        lake: the lake.
        table: the state table.
        rows: its rows.

    Returns:
        The rows with names.
    """
    if not rows:
        return []
    programs = lake.topology("programs", ["number", "name"])
    of_programs = dict(zip(programs["number"].to_pylist(), programs["name"].to_pylist(), strict=True))
    of_chains = {place: item["name"] for place, item in enumerate(lake.about()["chains"])}
    names = {**dict.fromkeys(table.programs, of_programs), **dict.fromkeys(table.chains, of_chains)}

    def named(column: str, value: Any) -> Any:
        return value if column not in names or value is None else names[column].get(int(value), str(value))

    return [{column: named(column, value) for column, value in row.items()} for row in rows]


def to_json_value(value: Any) -> Any:
    """Convert a value to JSON: exact integers, bytes as hexadecimal digits.

    Args:
        value: the value.

    Returns:
        The JSON value.
    """
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return int(value) if isinstance(value, Decimal) else value


def format_cell(column: str, value: Any) -> str:
    """Format a value for a table, shortened to fit a line.

    Args:
        column: its column.
        value: the value.

    Returns:
        The text.
    """
    if column == "state" and isinstance(value, bytes | bytearray):
        text = _decode(bytes(value))
    elif isinstance(value, bytes | bytearray):
        readable = column != "root" and value.isascii() and bytes(value).decode("ascii", "replace").isprintable()
        text = bytes(value).decode("ascii") if readable else value.hex()
    elif isinstance(value, int | Decimal) and not isinstance(value, bool):
        text = f"{int(value):,}"
    else:
        text = "" if value is None else str(value)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def _decode(state: bytes) -> str:
    """Decode the state of a scalar program."""
    from causeway.programs.state_values import UnreadableState, read_state_value

    try:
        content = read_state_value(state)
        return str(content[0] if isinstance(content, list) and content else content)
    except (UnreadableState, ValueError):  # str fails for integers above Python's limit of digits
        return state.hex()


def _print(console: Console, rows: Sequence[Mapping[str, Any]], limit: int | None) -> None:
    if not rows:
        console.print("  no rows")
        return
    printed = rows if limit is None else rows[:limit]
    texts = [{name: format_cell(name, value) for name, value in row.items()} for row in printed]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, value in rows[0].items():
        if isinstance(value, int | Decimal):
            width = max(len(name), *(len(row[name]) for row in texts)) if texts else len(name)
            table.add_column(name, justify="right", no_wrap=True, min_width=width)
        else:
            table.add_column(name, no_wrap=True, overflow="ellipsis")
    for row in texts:
        table.add_row(*map(escape, row.values()))
    console.print(table)
    if len(rows) > len(printed):
        console.print(f"  ... and more: --limit N prints more than {limit}, --json all of them")
