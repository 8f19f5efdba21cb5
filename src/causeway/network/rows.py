"""Tables as what one works with: Arrow, pandas, Polars, Spark; read when they are asked for."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from causeway.figures.where import is_in
from causeway.ledger.typed import plain_rows, value_type
from causeway.model.errors import InvalidInput
from causeway.model.text import readable, shown, unknown

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

SHOWN_ROWS = 10
"""Rows of a table that are shown of it."""

_SHOWN_CHARACTERS = 48
"""So much of a text is shown in a table of a notebook."""


@dataclass(frozen=True)
class Rows:
    """A table: ``arrow()``, ``pandas()``, ``polars()`` and ``spark()`` give it as what one works with.

    ``name``: what it is called; ``schema``: its columns; ``parts``: reads it, one piece after the other in a fixed
    order; ``count``: how many rows there are, None where only reading tells. ``frame``: makes a DataFrame of it whose
    rows Spark's tasks read; ``choose``: gives some of its rows without reading the others.
    """

    name: str
    schema: pa.Schema
    parts: Callable[[], Iterator[pa.Table]]
    count: int | None = None
    frame: Callable[[SparkSession], DataFrame] | None = None
    choose: Callable[[dict[str, Any]], Rows] | None = None

    @classmethod
    def of(cls, name: str, table: pa.Table) -> Rows:
        """Return a table that is in memory."""
        return cls(name, table.schema, lambda: iter([table]), table.num_rows)

    def where(self, **values: Any) -> Rows:
        """Return the rows that have a value in a column, or one of several (None: null), in each column named.

        Raises ``InvalidInput`` for a column that is not there or a value that it cannot have.
        """
        for name in values:
            if name not in self.schema.names:
                raise InvalidInput(f"{self.name}: {unknown('column', name, self.schema.names)}")
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
                    found &= is_in(part[name], each)
                yield part.filter(pa.array(found))

        return Rows(self.name, self.schema, parts)

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows, one piece in memory at a time."""
        yield from self.parts()

    def arrow(self) -> pa.Table:
        """Return all rows as one Arrow table."""
        return pa.concat_tables([self.schema.empty_table(), *self.parts()]).unify_dictionaries()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a stream of the Arrow C interface, a piece in memory at a time: so DuckDB, Polars, pandas
        and pyarrow take a table as it is. Names are texts."""
        plain = self._plain_schema()
        batches = (batch for part in self.parts() for batch in part.cast(plain).to_batches())
        return pa.RecordBatchReader.from_batches(plain, batches).__arrow_c_stream__(requested_schema)

    @property
    def columns(self) -> list[str]:
        """Return the names of its columns."""
        return list(self.schema.names)

    def head(self, rows: int = SHOWN_ROWS) -> Rows:
        """Return the first rows; no more pieces are read than have them. Raises ``InvalidInput``."""
        given: object = rows
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise InvalidInput(f"head: {shown(rows)}: must be a whole number, and not below 0")

        def parts() -> Iterator[pa.Table]:
            left = rows
            for part in self.parts() if left else ():
                yield part.slice(0, left)
                left -= part.num_rows
                if left <= 0:
                    break

        return Rows(self.name, self.schema, parts, None if self.count is None else min(rows, self.count))

    def _plain_schema(self) -> pa.Schema:
        # With codes pandas would group by all pairs of names, whether any row has them or not.
        return pa.schema([field.with_type(value_type(field.type)) for field in self.schema])

    def pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame; whole numbers are exact, also beside null (``Int64``, ``UInt64``), and
        names are texts, of which equal ones are in memory once."""
        import pandas as pd

        whole = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype(), pa.int32(): pd.Int32Dtype()}
        found: pd.DataFrame = self.arrow().cast(self._plain_schema()).to_pandas(types_mapper=whole.get)
        return found

    def polars(self) -> pl.DataFrame:
        """Return all rows as a Polars DataFrame. Raises ``InvalidInput`` where Polars is not installed."""
        try:
            import polars as pl
        except ImportError:
            raise InvalidInput("polars: not installed; pip install polars") from None
        found = pl.from_arrow(self.arrow())
        assert isinstance(found, pl.DataFrame)
        return found

    def spark(self, session: SparkSession | None = None) -> DataFrame:
        """Return the rows as a DataFrame of a Spark session: the one given, or the one that is active.

        Raises ``InvalidInput`` where there is none.
        """
        from causeway.pipeline.session import active_session
        from causeway.pipeline.stored_frames import frame_of

        session = session or active_session()
        if session is None:
            raise InvalidInput("spark: no session is active; give one, as in .spark(session)")
        if self.frame is not None:
            return self.frame(session)
        return frame_of(session, self.arrow())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, one in memory at a time as Python has it."""
        for part in self.parts():
            for batch in part.to_batches(max_chunksize=1 << 12):
                yield from plain_rows(pa.Table.from_batches([batch]))

    def _head(self) -> tuple[pa.Table, bool]:
        """Return the first rows, and whether there are more."""
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
            for row in plain_rows(head)
        )
        names = "".join(f"<th>{html.escape(name)}</th>" for name in used)
        notes = [f"the first {SHOWN_ROWS} rows"] if more else []
        notes += [f"empty in these: {', '.join(left)}"] if left else []
        note = f"<p>{html.escape('; '.join(notes))}</p>" if notes else ""
        return f"<p><b>{html.escape(self._title())}</b></p><table><tr>{names}</tr>{body}</table>{note}"


def cell_text(value: Any) -> str:
    """Return a value as a table shows it: without what a terminal or a page would take for more than text."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = "0x" + value.hex()
    if isinstance(value, float):
        value = f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    text = readable(str(value))
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def type_text(kind: pa.DataType) -> str:
    """Return the name of a type as readers of a table say it."""
    return type_text(kind.value_type) if pa.types.is_dictionary(kind) else str(kind)


def _several(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)


def _check(field: pa.Field, values: tuple[Any, ...]) -> None:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    for value in values:
        try:
            pa.scalar(value, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError):
            raise InvalidInput(f"{field.name}: {shown(value)}: must be of type {type_text(kind)}") from None


__all__ = ["SHOWN_ROWS", "Rows", "cell_text", "type_text"]
