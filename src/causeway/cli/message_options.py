"""Filter, executor and format options of the commands about messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from causeway_proofs.errors import InvalidInput

from causeway.cli import completion, shell
from causeway.cli.options import argument, option
from causeway.core.text import escape_controls, suggest_known, to_utc

if TYPE_CHECKING:
    import pyarrow as pa

    from causeway.analysis.figures.figures import LedgerFigures
    from causeway.analysis.figures.filters import MessageFilter
    from causeway.ledger.bucket_scan import PassProgressCallback
    from causeway.ledger.store import Ledger

__all__ = [
    "FILTERS",
    "LANES",
    "MAX_LIMIT",
    "FilterOption",
    "FilterOptions",
    "add_filter_options",
    "count_figures",
    "largest_rows",
    "open_counted",
    "parse_time",
    "report_unknown",
    "select_messages",
]

OUTPUT, HOW = "Output", "How"

MAX_LIMIT = (1 << 31) - 2
"""Maximum of ``--limit``: the row limit of Spark and of an Arrow table's part."""

LANES = 10
"""Default number of lanes on a terminal."""


_MAX_LINE = 500
"""Maximum characters of a line about untrusted names."""


Place = Annotated[str, argument("Folder or URI of a ledger, or of a lake of a run.", metavar="LAKE")]
Lanes = Annotated[
    int | None,
    option(
        f"Lanes to show; default: {LANES}, all with --json and --csv.",
        "--limit",
        metavar="N",
        panel=OUTPUT,
        min=0,
        max=MAX_LIMIT,
    ),
]
OverTime = Annotated[bool, option("Show how it was over time, as a plot.", "--over-time", panel=OUTPUT)]
Json = Annotated[bool, option("Print one JSON object.", "--json", panel=OUTPUT)]
Overwrite = Annotated[bool, option("With --parquet: replace a file.", "--overwrite", panel=OUTPUT)]
Csv = Annotated[bool, option("Print CSV.", "--csv", panel=OUTPUT)]
Executor = Annotated[
    str,
    option(
        "in_process, spark, or auto: by the number of rows.",
        metavar="HOW",
        panel=HOW,
        autocompletion=completion.complete_audit_executors,
        show_default=True,
    ),
]
Master = Annotated[
    str, option("Spark master, such as 'local[2]' or spark://host:7077.", metavar="URL", panel=HOW, show_default=True)
]


@contextmanager
def open_counted(lake: str) -> Iterator[tuple[Ledger, PassProgressCallback]]:
    """Open the ledger at a path or URI, or derive that of a lake.

    Args:
        lake: path or URI.

    Yields:
        The ledger, and a progress callback.
    """
    from causeway.cli.output.audit import progress_bar
    from causeway.cli.output_paths import name_ledger_errors, require_place
    from causeway.cli.process import compile_before_use
    from causeway.ledger.lake.ingest import open_or_derive_ledger

    require_place("LAKE", lake)
    compile_before_use()
    with (
        name_ledger_errors(lake),
        progress_bar() as begin,
        open_or_derive_ledger(lake, progress=begin("deriving the ledger")) as ledger,
    ):
        yield ledger, begin("counting")


def count_figures(lake: str, where: MessageFilter, executor: str, master: str, worst: int = 0) -> LedgerFigures:
    """Count the figures of the selected messages.

    Args:
        lake: path or URI.
        where: the filter on messages.
        executor: ``in_process``, ``spark`` or ``auto``.
        master: Spark master.
        worst: number of worst messages of each ranking.

    Returns:
        The figures.

    Raises:
        InvalidInput: as of ``compute_figures``.
        LedgerDamaged: a file is corrupted.
    """
    from causeway.analysis.stored_figures import compute_figures

    with open_counted(lake) as (ledger, progress):
        found = compute_figures(
            ledger, where=where, executor=executor, master=master, worst=max(worst, 1), progress=progress
        )
        if not found.totals["messages"]:
            report_unknown(ledger, where)
    return found


def select_messages(ledger: Ledger, where: MessageFilter) -> Iterator[pa.Table]:
    """Yield the selected messages; without any, print unknown names of lanes.

    Args:
        ledger: the ledger.
        where: the filter on messages.

    Yields:
        Rows of ``MESSAGES_SCHEMA``.
    """
    from causeway.analysis.stored_figures import read_messages

    none = True
    for part in read_messages(ledger, where):
        none &= not part.num_rows
        yield part
    if none:
        report_unknown(ledger, where)


def report_unknown(ledger: Ledger, where: MessageFilter) -> None:
    """Print each chain and lane of a filter that the ledger does not contain.

    Args:
        ledger: the ledger.
        where: the filter on messages.
    """
    from causeway.core.text import escape_controls, suggest_known, truncate_text

    conditions = {
        **where.lanes,
        **({"chain": [name for names in where.chains for name in names]} if where.chains else {}),
    }
    columns = {name: ("source", "destination") if name == "chain" else (name,) for name in conditions}
    known: dict[str, set[str]] = {name: set() for name in conditions}
    for bucket in range(ledger.buckets) if known else ():
        rows = ledger.rows(bucket, [*dict.fromkeys(column for each in columns.values() for column in each)])
        for name, names in known.items():
            for column in columns[name]:
                names |= {*rows[column].unique().to_pylist()} - {None}
    for name, names in known.items():
        for value in conditions[name]:
            if value not in names:
                kind = "lane" if name == "lane" else "chain of a message" if name == "chain" else f"{name} of a message"
                shell.print_line(
                    f"--{name}: {truncate_text(escape_controls(suggest_known(kind, value, sorted(names))), _MAX_LINE)}"
                )


def largest_rows(rows: pa.Table, order: Sequence[tuple[str, str]], limit: int | None) -> pa.Table:
    """Return the first rows in an order, null last; the sort is stable.

    Args:
        rows: the rows.
        order: columns with ``ascending`` or ``descending``.
        limit: maximum number of rows; None: all.

    Returns:
        The sorted rows.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not rows.num_rows:
        return rows
    place = pa.array(np.arange(rows.num_rows))
    keyed = rows.append_column("_place", place)
    found = pc.sort_indices(keyed, sort_keys=[*order, ("_place", "ascending")])
    return rows.take(found if limit is None else found[:limit])


FILTERS = "Filters"

MAX_NUMBER = (1 << 64) - 1


def _events() -> list[str]:
    from causeway.ledger.schema import LedgerEvent

    return [*map(str, LedgerEvent)]


def _kinds() -> list[str]:
    from causeway.ledger.schema import LedgerKind

    return [*map(str, LedgerKind)]


def _outcomes() -> list[str]:
    from causeway.ledger.outcomes import Outcome

    return [*map(str, Outcome)]


@dataclass(frozen=True)
class FilterOption:
    """A filter option of commands.

    Attributes:
        column: its column.
        known: the allowed values; None: any.
        bound: ``first`` or ``last`` of a range.
        of_rows: its help in commands about rows; a message has several rows.
    """

    flag: str
    column: str
    help: str
    metavar: str = "NAME"
    known: Callable[[], list[str]] | None = None
    bound: str | None = None
    of_rows: str | None = None

    @property
    def name(self) -> str:
        """Return the name of its parameter."""
        return f"filter_{self.flag.strip('-').replace('-', '_')}"

    def parameter(self, *, rows: bool) -> inspect.Parameter:
        """Return it as a parameter for Typer."""
        description = (self.of_rows if rows else None) or self.help
        kind: Any = list[str] if self.bound is None else str if self.metavar == "TIME" else int
        chooses = option(
            description if self.bound else f"{description} May be repeated.",
            self.flag,
            metavar=self.metavar,
            panel=FILTERS,
            autocompletion=None if self.known is None else completion.complete_names(self.known),
        )
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, chooses]
        )


_ALL = (
    FilterOption("--chain", "chain", "Source or destination chain.", of_rows="Chain of the event."),
    FilterOption("--source", "source", "Source chain."),
    FilterOption("--destination", "destination", "Destination chain."),
    FilterOption("--lane", "lane", "Lane: a channel, stream or queue."),
    FilterOption("--event", "event", "Event type, such as sent or received.", known=_events),
    FilterOption("--kind", "kind", "Message kind: request, response, ...", known=_kinds),
    FilterOption("--outcome", "outcome", "Call outcome, such as answered or pending.", known=_outcomes),
    FilterOption("--message", "message_id", "The message_id.", "ID"),
    FilterOption("--sender", "sender", "Sender of the message."),
    FilterOption("--receiver", "receiver", "Receiver of the message."),
    FilterOption("--from", "index", "First index in the lane.", "N", bound="first"),
    FilterOption("--to", "index", "Last index in the lane.", "N", bound="last"),
    FilterOption("--from-height", "height", "Sent in this block or later.", "N", bound="first", of_rows="First block."),
    FilterOption("--to-height", "height", "Sent in this block or earlier.", "N", bound="last", of_rows="Last block."),
    FilterOption(
        "--from-tick", "tick", "Sent in this tick or later.", "N", bound="first", of_rows="First tick of a run."
    ),
    FilterOption("--to-tick", "tick", "Sent in this tick or earlier.", "N", bound="last", of_rows="Last tick."),
    FilterOption(
        "--from-time",
        "time",
        "Sent at this time or later, as 2024-10-09 or 2024-10-09T14:54:48; UTC.",
        "TIME",
        bound="first",
        of_rows="From this time on, as 2024-10-09 or 2024-10-09T14:54:48; UTC.",
    ),
    FilterOption(
        "--to-time", "time", "Sent at this time or earlier.", "TIME", bound="last", of_rows="Up to this time."
    ),
)


@dataclass(frozen=True)
class FilterOptions:
    """The filter options given by a user, with their values."""

    given: Mapping[str, Any]

    def __bool__(self) -> bool:
        return bool(self.given)

    def values(self) -> dict[str, tuple[str, ...]]:
        """Return the allowed values by column.

        Raises:
            InvalidInput: a value is not allowed.
        """
        found: dict[str, tuple[str, ...]] = {}
        for each in _ALL:
            if each.flag not in self.given or each.bound is not None:
                continue
            known = None if each.known is None else each.known()
            for value in self.given[each.flag]:
                if known is not None and value not in known:
                    raise InvalidInput(f"{each.flag}: {suggest_known(each.column, value, known)}")
            found[each.column] = tuple(self.given[each.flag])
        return found

    def ranges(self) -> dict[str, tuple[Any, Any]]:
        """Return the first and last value (None: unbounded) by column.

        Raises:
            InvalidInput: a value is invalid.
        """
        found: dict[str, tuple[Any, Any]] = {}
        for each in _ALL:
            if each.flag not in self.given or each.bound is None:
                continue
            value = self.given[each.flag]
            if each.metavar == "TIME":
                value = parse_time(each.flag, value)
            elif not 0 <= value <= MAX_NUMBER:
                raise InvalidInput(f"{each.flag} {value}: must be from 0 to {MAX_NUMBER}")
            first, last = found.get(each.column, (None, None))
            first, last = (value, last) if each.bound == "first" else (first, value)
            if first is not None and last is not None and first > last:
                begin = each.flag.replace("--to", "--from")
                text = (
                    f"{begin} {escape_controls(str(self.given[begin]))}: is after {each.flag} {self.given[each.flag]}"
                )
                raise InvalidInput(f"{escape_controls(text)}: the range is empty")
            found[each.column] = first, last
        return found

    def flag(self, column: str) -> str:
        """Return the given option of a column."""
        return next(each.flag for each in _ALL if each.column == column and each.flag in self.given)

    def message_filter(self) -> MessageFilter:
        """Return the filter on messages; heights, ticks and times are those of sending.

        Raises:
            InvalidInput: a value is invalid.
        """
        from causeway.analysis.figures.filters import MessageFilter

        ranges = self.ranges().items()
        sent = {name if name == "index" else f"sent_{name}": bounds for name, bounds in ranges}
        return MessageFilter.of(**self.values()).and_(MessageFilter.between(**sent))


def add_filter_options(*without: str, rows: bool = False) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Decorate a command: replace its parameter ``filters`` by the filter options.

    Args:
        without: columns of omitted options.
        rows: the command is about rows, not messages.

    Returns:
        The decorator.
    """

    def change(command: Callable[..., int]) -> Callable[..., int]:
        own = [each for each in _ALL if each.flag not in without]
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "filters":
                parameters += [each.parameter(rows=rows) for each in own]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

        def with_filters(**given: Any) -> int:
            values = {each.flag: given.pop(each.name) for each in own}
            given_values = {flag: value for flag, value in values.items() if value not in (None, [], ())}
            return command(**given, filters=FilterOptions(given_values))

        with_filters.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
        with_filters.__doc__ = command.__doc__
        return with_filters

    return change


def parse_time(option: str, text: str) -> datetime:
    """Parse a time, UTC without a zone.

    Args:
        option: the option, for errors.
        text: the text of the user.

    Returns:
        The time.

    Raises:
        InvalidInput: the text is no time.
    """
    try:
        return to_utc(text)
    except ValueError:
        raise InvalidInput(
            f"{option} {escape_controls(text)}: is no time; write 2024-10-09 or 2024-10-09T14:54:48"
        ) from None
    except OverflowError:
        raise InvalidInput(f"{option} {text}: must be within the years 1 to 9999") from None
