"""Messages, calls and figures of an opened ledger as lazy tables.

A table converts to Arrow, pandas, Polars or Spark.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.analysis.figures.figures import LedgerFigures
from causeway.analysis.figures.filters import ALL_MESSAGES, MessageFilter, in_values
from causeway.analysis.figures.message_rows import MESSAGES_SCHEMA
from causeway.analysis.stored_figures import FiguresCache, MessageReader, all_replies, compute_figures, read_messages
from causeway.core.arrow_types import to_python_rows, value_type
from causeway.core.text import format_value, suggest_known, to_one_line
from causeway.ledger.bucket_scan import Steps, bucket_rows
from causeway.ledger.store import Ledger

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "ALL_MESSAGES",
    "SHOWN_ROWS",
    "FiguresCounter",
    "MessageSelection",
    "Rows",
    "cell_text",
    "choose_session",
    "type_text",
]

SHOWN_ROWS = 10
"""Rows of a table in its representation."""

_SHOWN_CHARACTERS = 48
"""Characters of a text in a notebook's table."""


@dataclass(frozen=True)
class Rows:
    """A lazy table; ``arrow()``, ``pandas()``, ``polars()`` and ``spark()`` convert it.

    Attributes:
        name: its name.
        schema: its columns.
        parts: reads it part by part, in a fixed order.
        count: number of rows; None if unknown without reading.
        frame: builds a DataFrame that Spark tasks read.
        choose: selects rows without reading the others.
    """

    name: str
    schema: pa.Schema
    parts: Callable[[], Iterator[pa.Table]]
    count: int | None = None
    frame: Callable[[SparkSession], DataFrame] | None = None
    choose: Callable[[dict[str, Any]], Rows] | None = None

    @classmethod
    def of(cls, name: str, table: pa.Table) -> Rows:
        """Wrap a table in memory."""
        return cls(name, table.schema, lambda: iter([table]), table.num_rows)

    def where(self, **values: Any) -> Rows:
        """Select the rows with given values.

        Args:
            values: one or several allowed values by column (None: null).

        Returns:
            The selected rows.

        Raises:
            InvalidInput: a column does not exist, or cannot have such a value.
        """
        for name in values:
            if name not in self.schema.names:
                raise InvalidInput(f"{self.name}: {suggest_known('column', name, self.schema.names)}")
        if not values:
            return self
        if self.choose is not None:
            return self.choose(values)
        wanted = {name: _several(given) for name, given in values.items()}
        for name, each in wanted.items():
            _check(self.schema.field(name), each)

        def parts() -> Iterator[pa.Table]:
            for part in self.parts():
                found = np.ones(part.num_rows, bool)
                for name, each in wanted.items():
                    found &= in_values(part[name], each)
                yield part.filter(pa.array(found))

        return Rows(self.name, self.schema, parts)

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows, one part in memory at a time."""
        yield from self.parts()

    def arrow(self) -> pa.Table:
        """Return all rows as one Arrow table."""
        return pa.concat_tables([self.schema.empty_table(), *self.parts()]).unify_dictionaries()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a stream of the Arrow C interface, one part in memory at a time.

        DuckDB, Polars, pandas and pyarrow accept the table directly. Names are texts.
        """
        plain = self._plain_schema()
        batches = (batch for part in self.parts() for batch in part.cast(plain).to_batches())
        return pa.RecordBatchReader.from_batches(plain, batches).__arrow_c_stream__(requested_schema)

    @property
    def columns(self) -> list[str]:
        """Return the column names."""
        return list(self.schema.names)

    def head(self, rows: int = SHOWN_ROWS) -> Rows:
        """Return the first rows; no more parts are read than necessary.

        Args:
            rows: number of rows.

        Returns:
            The first rows.

        Raises:
            InvalidInput: the number is negative.
        """
        given: object = rows
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise InvalidInput(f"head: {format_value(rows)}: must be a whole number, and not below 0")

        def parts() -> Iterator[pa.Table]:
            left = rows
            for part in self.parts() if left else ():
                yield part.slice(0, left)
                left -= part.num_rows
                if left <= 0:
                    break

        return Rows(self.name, self.schema, parts, None if self.count is None else min(rows, self.count))

    def _plain_schema(self) -> pa.Schema:
        # With dictionary codes pandas would group by all pairs of names, even those without rows.
        return pa.schema([field.with_type(value_type(field.type)) for field in self.schema])

    def pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame.

        Integers are exact, also beside null (``Int64``, ``UInt64``). Names are texts; equal ones share memory.
        """
        import pandas as pd

        whole = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype(), pa.int32(): pd.Int32Dtype()}
        found: pd.DataFrame = self.arrow().cast(self._plain_schema()).to_pandas(types_mapper=whole.get)
        return found

    def polars(self) -> pl.DataFrame:
        """Return all rows as a Polars DataFrame.

        Raises:
            InvalidInput: Polars is not installed.
        """
        try:
            import polars as pl
        except ImportError:
            raise InvalidInput("polars: not installed; pip install polars") from None
        found = pl.from_arrow(self.arrow())
        assert isinstance(found, pl.DataFrame)
        return found

    def spark(self, session: SparkSession | None = None) -> DataFrame:
        """Return the rows as a DataFrame of a Spark session.

        Args:
            session: the session; default: the active one.

        Returns:
            The rows as a DataFrame.

        Raises:
            InvalidInput: there is no session.
        """
        from causeway.cluster.session import active_session
        from causeway.dataframes.ledger_tables import table_to_dataframe

        session = session or active_session()
        if session is None:
            raise InvalidInput("spark: no session is active; give one, as in .spark(session)")
        if self.frame is not None:
            return self.frame(session)
        return table_to_dataframe(session, self.arrow())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dicts, one at a time."""
        for part in self.parts():
            for batch in part.to_batches(max_chunksize=1 << 12):
                yield from to_python_rows(pa.Table.from_batches([batch]))

    def _head(self) -> tuple[pa.Table, bool]:
        """Return the first rows, and True if there are more."""
        found = pa.concat_tables([self.schema.empty_table(), *self.head(SHOWN_ROWS + 1).parts()])
        return found.slice(0, SHOWN_ROWS), found.num_rows > SHOWN_ROWS

    def _title(self) -> str:
        many = "" if self.count is None else f", {self.count:,} rows"
        return f"{self.name}{many}"

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {type_text(field.type)}" for field in self.schema)
        return f"<{self._title()}: {columns}; .where(), .arrow(), .pandas(), .polars(), .spark()>"

    def _repr_html_(self) -> str:
        head, more = self._head()
        used = [name for name in head.column_names if not head.num_rows or head[name].null_count < head.num_rows]
        left = [name for name in head.column_names if name not in used]
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell_text(row[name]))}</td>' for name in used)}</tr>"
            for row in to_python_rows(head)
        )
        names = "".join(f"<th>{html.escape(name)}</th>" for name in used)
        notes = [f"the first {SHOWN_ROWS} rows"] if more else []
        notes += [f"empty in these: {', '.join(left)}"] if left else []
        note = f"<p>{html.escape('; '.join(notes))}</p>" if notes else ""
        return f"<p><b>{html.escape(self._title())}</b></p><table><tr>{names}</tr>{body}</table>{note}"


def cell_text(value: Any) -> str:
    """Format a value of a table's cell, safe for terminals and pages.

    Args:
        value: the value.

    Returns:
        The text.
    """
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = "0x" + value.hex()
    if isinstance(value, float):
        value = f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    text = to_one_line(str(value))
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def type_text(kind: pa.DataType) -> str:
    """Return the readable name of a type.

    Args:
        kind: the type.

    Returns:
        The name.
    """
    return type_text(kind.value_type) if pa.types.is_dictionary(kind) else str(kind)


def _several(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)


def _check(field: pa.Field, values: tuple[Any, ...]) -> None:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    for value in values:
        try:
            pa.scalar(value, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError):
            raise InvalidInput(f"{field.name}: {format_value(value)}: must be of type {type_text(kind)}") from None


_CACHED_SELECTIONS = 8
"""Number of selections with cached figures."""


@dataclass
class FiguresCounter:
    """Cached figures of a ledger's last commit; thread-safe."""

    lock: Lock = field(default_factory=Lock)
    commit: tuple[int, str] = (-1, "")
    figures: dict[tuple[str, bool], LedgerFigures] = field(default_factory=dict)
    kept: FiguresCache = field(default_factory=FiguresCache)
    steps: Steps | None = None
    session: SparkSession | None = None

    def use(self, ledger: Ledger, where: MessageFilter, by_lane: bool) -> LedgerFigures:
        """Return the figures of the selected messages of a ledger."""
        with self.lock:
            if self.commit != (ledger.number, ledger.last):
                self.commit = ledger.number, ledger.last
                self.figures.clear()
            key = repr(where), by_lane
            if key not in self.figures:
                while len(self.figures) >= _CACHED_SELECTIONS:
                    del self.figures[next(iter(self.figures))]
                session, kept = choose_session(ledger, self.session), None if where or by_lane else self.kept
                progress = None if self.steps is None else self.steps("counting")
                self.figures[key] = compute_figures(
                    ledger, where=where, by_lane=by_lane, session=session, kept=kept, progress=progress
                )
            return self.figures[key]


def choose_session(ledger: Ledger, given: SparkSession | None = None) -> SparkSession | None:
    """Return the Spark session to count a large ledger with: the given one, or the active one if its tasks can read it.

    Args:
        ledger: the ledger.
        given: a session whose tasks can read the ledger; None: the active one.

    Returns:
        The session, or None for a ledger of fewer rows than ``CAUSEWAY_SESSION_ROWS``.

    Raises:
        InvalidInput: The threshold is not a number.
    """
    from causeway.cluster.jobs import is_one_process
    from causeway.cluster.session import active_session
    from causeway.cluster.thresholds import spark_threshold

    session = given or active_session()
    if session is None or sum(bucket_rows(ledger)) < spark_threshold("CAUSEWAY_SESSION_ROWS"):
        return None
    return session if given is not None or is_one_process(session) or ledger.storage.uri.partition("://")[1] else None


class MessageSelection:
    """Selected messages of an opened ledger, with their tables and figures.

    ``messages``: one row a message; ``calls``: one row a request sent by a chain; ``lanes``, ``latency``,
    ``latency_over_time``, ``backlog``, ``lane_backlog``, ``worst``, ``fees``, ``codes``, ``chains``: figures. All are
    ``Rows``. ``figures`` has the figures as Arrow tables, with totals. Figures are computed lazily and once.
    """

    def __init__(self, place: str, ledger: Callable[[], Ledger], where: MessageFilter, counted: FiguresCounter) -> None:
        self.place = place
        self._now, self._filter, self._counted = ledger, where, counted

    def where(self, **values: Any) -> MessageSelection:
        """Narrow the selection to messages with given values.

        Args:
            values: one or several allowed values (None: unknown) by ``protocol``, ``source``, ``destination``,
                ``lane``,
                ``kind``, ``outcome``, ``index``, ``sender``, ``receiver``, ``message_id``, ``answers`` or ``journey``;
                ``chain`` matches source or destination.

        Returns:
            The narrower selection.

        Raises:
            InvalidInput: a column is unknown, or cannot have such a value.
        """
        return MessageSelection(self.place, self._now, self._filter.and_(MessageFilter.of(**values)), self._counted)

    def between(self, **ranges: Any) -> MessageSelection:
        """Narrow the selection to messages within given ranges.

        Args:
            ranges: first and last value, both inclusive (None: unbounded), by ``index``, ``sent_height``, ``sent_tick``
                or
                ``sent_time``; times as ``datetime`` or ISO 8601, UTC without a zone.

        Returns:
            The narrower selection.

        Raises:
            InvalidInput: a column is unknown, or a bound is invalid.
        """
        return MessageSelection(
            self.place, self._now, self._filter.and_(MessageFilter.between(**ranges)), self._counted
        )

    @property
    def figures(self) -> LedgerFigures:
        """Return all figures of the selection as Arrow tables, with totals."""
        return self._counted.use(self._now(), self._filter, by_lane=False)

    @property
    def messages(self) -> Rows:
        """Return one row a message (``MESSAGES_SCHEMA``), in the order of the ledger's buckets."""
        return _messages("messages", self._now, self._filter, self._counted)

    @property
    def calls(self) -> Rows:
        """Return one row a call, a request sent by a chain; columns as of ``messages``."""
        return _messages("calls", self._now, self._filter.and_(MessageFilter(calls=True)), self._counted)

    @property
    def lanes(self) -> Rows:
        """Return one row a lane (``LANES_SCHEMA``)."""
        return Rows.of("lanes", self.figures.lanes)

    @property
    def latency(self) -> Rows:
        """Return the delays of all messages and of each lane (``LATENCY_SCHEMA``)."""
        return Rows.of("latency", self.figures.latency)

    @property
    def latency_over_time(self) -> Rows:
        """Return the delays by bins of time (``PACE_SCHEMA``)."""
        return Rows.of("latency_over_time", self.figures.latency_over_time)

    @property
    def backlog(self) -> Rows:
        """Return the messages sent, received, completed and open over time (``BACKLOG_SCHEMA``)."""
        return Rows.of("backlog", self.figures.backlog)

    @property
    def lane_backlog(self) -> Rows:
        """Return the backlog of each lane over time (``LANE_BACKLOG_SCHEMA``), without empty bins."""
        found = self._counted.use(self._now(), self._filter, by_lane=True)
        return Rows.of("lane_backlog", found.lane_backlog)

    @property
    def worst(self) -> Rows:
        """Return the slowest and the oldest pending messages (``WORST_SCHEMA``)."""
        return Rows.of("worst", self.figures.worst)

    @property
    def fees(self) -> Rows:
        """Return the value movements by lane, asset and reason (``FEES_SCHEMA``)."""
        return Rows.of("fees", self.figures.fees)

    @property
    def codes(self) -> Rows:
        """Return the outcomes by code and reason (``CODES_SCHEMA``)."""
        return Rows.of("codes", self.figures.codes)

    @property
    def chains(self) -> Rows:
        """Return one row a chain (``CHAINS_SCHEMA``)."""
        return Rows.of("chains", self.figures.chains)

    def __repr__(self) -> str:
        more = ".messages, .calls, .lanes, .latency, .backlog, ..."
        return f"<messages of {to_one_line(self.place)} where {self._filter}; {more}>"


def _messages(name: str, now: Callable[[], Ledger], where: MessageFilter, counted: FiguresCounter) -> Rows:
    ledger = now()

    def parts() -> Iterator[pa.Table]:
        now()
        yield from read_messages(ledger, where, session=choose_session(ledger, counted.session))

    def frame(session: SparkSession) -> DataFrame:
        from causeway.dataframes.ledger_tables import task_dataframe

        now()
        reader = MessageReader.of(ledger, where, all_replies(ledger, choose_session(ledger, counted.session)))
        return task_dataframe(
            session, MESSAGES_SCHEMA, len(reader.buckets), lambda task: reader.rows(reader.buckets[task])
        )

    def choose(values: dict[str, Any]) -> Rows:
        return _messages(name, now, where.and_(MessageFilter.of(**values)), counted)

    return Rows(name, MESSAGES_SCHEMA, parts, None, frame, choose)
