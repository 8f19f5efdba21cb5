"""``causeway ledger``: rows of a ledger, or of a lake's ledger, by filters or by SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from causeway_proofs.errors import InvalidInput

from causeway.cli import completion, message_options, process, shell
from causeway.cli.options import option
from causeway.core.text import escape_controls, suggest_known

if TYPE_CHECKING:
    import pyarrow as pa

    from causeway.analysis.sql import SqlView
    from causeway.ledger.search import Condition

DEFAULT_ROWS = 20
"""Default number of rows on a terminal."""

SQL = "SQL"

MAX_SECONDS = 1e6


def _tables() -> list[str]:
    from causeway.analysis.sql import SCHEMAS

    return [*SCHEMAS]


@message_options.add_filter_options("--outcome", rows=True)
def command(
    lake: message_options.Place,
    filters: message_options.FilterOptions,
    table: Annotated[
        str,
        option(
            "Another table, such as value, headers, observed, messages or lanes.",
            metavar="NAME",
            panel=message_options.FILTERS,
            autocompletion=completion.complete_names(_tables),
            show_default=True,
        ),
    ] = "ledger",
    sql: Annotated[
        str | None,
        option(
            "DuckDB query over the tables, instead of filters; it can read no other data.", metavar="QUERY", panel=SQL
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        option(
            "With --sql: stop the query after this time; default: no limit.",
            metavar="SECONDS",
            panel=SQL,
            min=0.001,
            max=MAX_SECONDS,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        option(
            f"Maximum rows; default: {DEFAULT_ROWS}, all with --json, --csv and --parquet.",
            metavar="N",
            panel=message_options.OUTPUT,
            min=0,
            max=message_options.MAX_LIMIT,
        ),
    ] = None,
    as_json: Annotated[bool, option("Print one JSON object a line.", "--json", panel=message_options.OUTPUT)] = False,
    as_csv: message_options.Csv = False,
    parquet: Annotated[
        Path | None, option("Write the rows as a Parquet file.", metavar="FILE", panel=message_options.OUTPUT)
    ] = None,
    overwrite: message_options.Overwrite = False,
) -> int:
    """Print the rows of a ledger: one row per message event.

    Rows are in ledger order: by bucket, then lane and index. Rows are compared with their seals as they are read. For a
    lake that Causeway ran, the ledger is derived first; the lake is not changed. A process may write to either
    meanwhile: the rows are those committed when the command began.

    Tables, for --table and --sql: ledger, value, observed, promises, headers, watermarks, quarantine, waiting; messages
    and calls, a row each; and the figures lanes, latency, latency_over_time, backlog, worst, fees, codes, chains. With
    --sql also state_NAME, the state tables of a lake. --sql "describe calls" names the columns of one, --sql "show
    tables" all tables. A query reads nothing else, and changes nothing.

    [bold]Example[/bold]: causeway ledger my-ledger --lane channel-141 --event sent --from 3951000 --limit 5
    [bold]Example[/bold]: causeway ledger my-ledger --sql "select lane, count(*) from ledger group by lane" --csv
    """
    process.skip_jit_import()
    from causeway.cli.output.rows import (
        limit_rows,
        print_csv,
        print_json,
        require_one_format,
        require_parquet_target,
        write_parquet,
    )
    from causeway.cli.output_paths import name_ledger_errors, require_place
    from causeway.cli.process import compile_before_use

    require_place("LAKE", lake)
    require_one_format(as_json, as_csv, parquet)
    if overwrite and parquet is None:
        raise InvalidInput("--overwrite: only with --parquet")
    if table not in (tables := _tables()):
        raise InvalidInput(f"--table: {suggest_known('table', table, tables)}")
    condition = build_condition(filters, table)
    if sql is not None and (filters or table != "ledger"):
        option = next(iter(filters.given), "--table")
        raise InvalidInput(f"{option}: not with --sql: write it into the query")
    if timeout is not None and sql is None:
        raise InvalidInput("--timeout: only with --sql")
    if parquet is not None:
        require_parquet_target(parquet, lake, overwrite=overwrite)
    people = not as_json and not as_csv and parquet is None
    most = DEFAULT_ROWS if limit is None and people else limit
    compile_before_use()
    query = _Query(table, condition, sql, timeout, None if most is None else most + 1)
    with name_ledger_errors(lake), _rows(lake, query) as (schema, parts):
        if people:
            _show(schema, parts, most or 0, as_stored=sql is not None)
            return shell.OK
        with limit_rows(parts, most) as selected:
            if as_json:
                print_json(selected)
            elif as_csv:
                print_csv(selected, schema)
            elif parquet is not None:
                count = write_parquet(selected, schema, parquet)
                shell.print_line(f"{count:,} rows written to {escape_controls(str(parquet))}")
    return shell.OK


@dataclass(frozen=True)
class _Query:
    table: str
    condition: Condition
    sql: str | None
    seconds: float | None
    most: int | None


@contextmanager
def _rows(lake: str, query: _Query) -> Iterator[tuple[pa.Schema, Iterator[pa.Table]]]:
    """Give the columns of the requested table, and its rows."""
    import pyarrow as pa

    from causeway.analysis.sql import ledger_views, run_query
    from causeway.cli.output.audit import progress_bar
    from causeway.cli.output.rows import distinct_names
    from causeway.ledger.lake.ingest import open_or_derive_ledger
    from causeway.ledger.schema import TABLES
    from causeway.ledger.search import select_rows

    with progress_bar() as begin, open_or_derive_ledger(lake, progress=begin("deriving the ledger")) as ledger:
        table, condition = query.table, query.condition
        if query.sql is not None:
            views = {**ledger_views(ledger), **_state_views(lake)}
            report = begin("preparing the tables")
            with run_query(views, query.sql, seconds=query.seconds, progress=report) as found:
                schema = distinct_names(found.schema)
                yield schema, (pa.Table.from_batches([batch.rename_columns(schema.names)]) for batch in found)
        elif table in TABLES:
            yield TABLES[table], select_rows(ledger, table, condition, query.most)
        else:
            yield _view_rows(ledger_views(ledger)[table], condition)


def _view_rows(view: SqlView, condition: Condition) -> tuple[pa.Schema, Iterator[pa.Table]]:
    import pyarrow as pa

    from causeway.ledger.search import condition_mask

    parts = (part.cast(view.schema) for piece in range(view.pieces) for part in view.read(piece))
    return view.schema, (part.filter(pa.array(condition_mask(part, condition))) for part in parts)


def _state_views(lake: str) -> dict[str, SqlView]:
    """Return the state tables of a lake at its last height, with names; none of a ledger."""
    from causeway.analysis.sql import SqlView
    from causeway.ledger.lake.ingest import is_lake
    from causeway.network.state_tables import LakeStates
    from causeway.storage.lake import Lake

    if not is_lake(lake):
        return {}
    states = LakeStates(Lake.at(lake))

    def view(name: str) -> SqlView:
        return SqlView(states.schema(name, True), 1, lambda piece: [states.rows(name, None, None, True)])

    return {f"state_{name}": view(name) for name in states.tables}


def build_condition(filters: message_options.FilterOptions, table: str) -> Condition:
    """Convert options to a condition on a table.

    For tables of messages, heights, ticks and times are those of sending.

    Args:
        filters: the options.
        table: name of the table.

    Returns:
        The condition.

    Raises:
        InvalidInput: the table has no such column.
    """
    from causeway.analysis.sql import SCHEMAS
    from causeway.ledger.search import ValueRange

    names = SCHEMAS[table].names
    ranges = {name: ValueRange(*bounds) for name, bounds in filters.ranges().items()}
    found: dict[str, Any] = {}
    for column, wanted in {**filters.values(), **ranges}.items():
        own = column if column in names else f"sent_{column}"
        if own not in names:
            raise InvalidInput(f"{filters.flag(column)}: the table {table} has no column {column}")
        found[own] = wanted
    return found


def _show(schema: pa.Schema, parts: Iterator[pa.Table], most: int, *, as_stored: bool) -> None:
    import pyarrow as pa

    from causeway.cli.output.progress import stdout_console
    from causeway.cli.output.rows import limit_rows, show_rows

    with limit_rows(parts, most + 1) as selected:
        rows = pa.concat_tables([schema.empty_table(), *selected]).unify_dictionaries()
    console = stdout_console()
    if not rows.num_rows:
        console.print("no rows")
        return
    left_out = show_rows(console, rows.slice(0, most), as_stored=as_stored)
    if rows.num_rows > most:
        console.print(f"... and more: --limit N shows more than {most}, --json and --csv all")
    if left_out:
        console.print(f"Columns that do not fit: {left_out}; --json and --csv have all")


__all__ = ["build_condition", "command"]
