"""A ledger opened to be read: the object behind ``cw.open``."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.auditing import CHECK_NAMES, Audit, Check
from causeway.audit.passing import LIMIT
from causeway.figures.figures import Figures
from causeway.figures.messages import MESSAGES_SCHEMA
from causeway.ledger.schema import TABLES
from causeway.model.errors import InvalidInput
from causeway.network.tracing import Traced, lives, trace
from causeway.pipeline.lake_taking import is_lake, ledger_of
from causeway.pipeline.ledger_audit import audit_ledger
from causeway.pipeline.ledger_figures import figures_of, messages_of
from causeway.pipeline.ledger_search import MessageKey
from causeway.pipeline.ledger_store import Ledger, open_ledger

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

SHOWN_ROWS = 10
"""Rows of a table that are shown of it."""


@dataclass(frozen=True)
class Rows:
    """A table: ``arrow()``, ``pandas()`` and ``spark()`` give it as what one works with.

    ``name``: what it is called; ``schema``: its columns; ``parts``: reads it, one piece after the other in a fixed
    order; ``count``: how many rows there are, None where only reading tells.
    """

    name: str
    schema: pa.Schema
    parts: Callable[[], Iterator[pa.Table]]
    count: int | None = None
    frame: Callable[[SparkSession], DataFrame] | None = None

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows, one piece in memory at a time."""
        yield from self.parts()

    def arrow(self) -> pa.Table:
        """Return all rows as one Arrow table."""
        return pa.concat_tables([self.schema.empty_table(), *self.parts()]).unify_dictionaries()

    def pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame."""
        found: pd.DataFrame = self.arrow().to_pandas()
        return found

    def spark(self, session: SparkSession | None = None) -> DataFrame:
        """Return the rows as a DataFrame of a Spark session: the one given, or the one that is active.

        Raises ``InvalidInput`` where there is none.
        """
        from pyspark.sql import SparkSession

        from causeway.pipeline.stored_frames import frame_of

        session = session or SparkSession.getActiveSession()
        if session is None:
            raise InvalidInput("spark: no session is active; give one, as in .spark(session)")
        if self.frame is not None:
            return self.frame(session)
        return frame_of(session, self.arrow())

    def _head(self) -> pa.Table:
        found = [self.schema.empty_table()]
        for part in self.parts():
            found.append(part.slice(0, SHOWN_ROWS - sum(each.num_rows for each in found)))
            if sum(each.num_rows for each in found) >= SHOWN_ROWS:
                break
        return pa.concat_tables(found)

    def _title(self) -> str:
        many = "" if self.count is None else f", {self.count:,} rows"
        return f"{self.name}{many}: {', '.join(self.schema.names)}"

    def __repr__(self) -> str:
        return f"<{self._title()}; .arrow(), .pandas(), .spark()>"

    def _repr_html_(self) -> str:
        shown = self._head().to_pandas().to_html(index=False, escape=True, na_rep="")
        return f"<p>{html.escape(self._title())}</p>{shown}"


class Findings:
    """What came of an audit: ``checks`` by name, ``holds``, and tables (``violations``, ``completeness``, ``lanes``,
    ``sums``, ``abroad``)."""

    def __init__(self, audit: Audit, checks: Mapping[str, Check]) -> None:
        self._audit, self.checks = audit, dict(checks)

    @property
    def audit(self) -> Audit:
        """Return the whole audit, as ``audit.auditing`` makes it."""
        return self._audit

    @property
    def holds(self) -> bool:
        """Return whether none of the checks is violated."""
        return not any(check.verdict == "violated" for check in self.checks.values())

    @property
    def violations(self) -> Rows:
        """Return what the checks name, violated and unknown."""
        found = self._audit.violations
        if len(self.checks) < len(CHECK_NAMES):
            found = found.filter(pc.is_in(found["check"], pa.array([*self.checks], pa.string())))
        return _in_memory("violations", found)

    @property
    def completeness(self) -> Rows:
        """Return what the input covers of each lane and side."""
        return _in_memory("completeness", self._audit.completeness)

    @property
    def lanes(self) -> Rows:
        """Return the figures of each lane."""
        return _in_memory("lanes", self._audit.lanes)

    @property
    def sums(self) -> Rows:
        """Return what was sent, received, paid out of messages, refunded and is pending, by lane and asset."""
        return _in_memory("sums", self._audit.sums)

    @property
    def abroad(self) -> Rows:
        """Return what left chains for others and came back, by asset."""
        return _in_memory("abroad", self._audit.abroad)

    def _lines(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("check", "verdict", "examined", "violated", "unknown")]
        for check in self.checks.values():
            figures = (f"{figure:,}" for figure in (check.examined, check.violated, check.unknown))
            rows.append((check.name, check.verdict, *figures))
        return rows

    def __repr__(self) -> str:
        rows = self._lines()
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)

    def _repr_html_(self) -> str:
        head, *rows = self._lines()
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><tr>{cells}</tr>{body}</table>"


class OpenedLedger:
    """A ledger, or the ledger of a lake that Causeway ran, to be read.

    Its tables (``ledger``, ``value``, ``observed``, ``promises``, ``headers``, ``watermarks``, ``quarantine``) are
    ``Rows``. It is as of the moment when it was opened; ``reload`` opens it anew. Of a lake the ledger is derived into
    a temporary folder, which goes with ``close`` or the end of a ``with`` statement; nothing is written into the lake.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._stack = ExitStack()
        self._ledger: Ledger = self._stack.enter_context(ledger_of(place))
        self._figures: Figures | None = None

    def reload(self) -> None:
        """Open it anew, so that it has what was committed meanwhile. Raises ``InvalidInput``, ``LedgerDamaged``."""
        self._figures = None
        if not is_lake(self.place):
            self._ledger = open_ledger(self.place)
            return
        stack = ExitStack()
        self._ledger = stack.enter_context(ledger_of(self.place))
        self._stack.close()
        self._stack = stack

    def audit(
        self,
        *check: str,
        session: SparkSession | None = None,
        executor: str = "auto",
        limit: int = LIMIT,
    ) -> Findings:
        """Check it; ``check``: only these checks.

        ``session``, ``executor``, ``limit``: as of ``pipeline.ledger_audit.audit_ledger``. Raises ``InvalidInput``,
        ``LedgerDamaged``.
        """
        for name in check:
            if name not in CHECK_NAMES:
                raise InvalidInput(f"check: {name}: must be one of {', '.join(CHECK_NAMES)}")
        found = audit_ledger(self._ledger, executor=executor, session=session, limit=limit)
        return Findings(found, {name: found.checks[name] for name in check or CHECK_NAMES})

    def trace(self, message: str | None = None, **narrowing: str | int | None) -> Traced:
        """Return the life of a message and of those that belong to it; as of ``network.tracing.trace``."""
        return trace(self._ledger, message, **narrowing)

    def lives(self, messages: Sequence[MessageKey]) -> Traced:
        """Return the lives of messages that are known by their keys; as of ``network.tracing.lives``."""
        return lives(self._ledger, messages)

    @property
    def figures(self) -> Figures:
        """Return what there is to see of it as tables: lanes, delays, the backlog over time and more. They are made
        once, and anew after ``reload``."""
        if self._figures is None:
            self._figures = figures_of(self._ledger)
        return self._figures

    @property
    def messages(self) -> Rows:
        """Return a row a message (``figures.messages.MESSAGES_SCHEMA``)."""
        ledger = self._ledger
        return Rows("messages", MESSAGES_SCHEMA, lambda: messages_of(ledger))

    @property
    def stored(self) -> Ledger:
        """Return the stored ledger that it reads."""
        return self._ledger

    def __getattr__(self, name: str) -> Rows:
        if name in FIGURES:
            return _in_memory(name, getattr(self.figures, name))
        if name.startswith("_") or name not in TABLES:
            raise AttributeError(f"a ledger has no {name}; its tables are {', '.join(TABLES)}")
        return self._rows(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLES, *FIGURES})

    def _rows(self, name: str) -> Rows:
        ledger = self._ledger
        count = sum(file.rows for file in ledger.files(name))

        def parts() -> Iterator[pa.Table]:
            if name in BUCKETED:
                yield from (ledger.rows(bucket, table=name) for bucket in range(ledger.buckets))
            else:
                yield ledger.table(name)

        def frame(session: SparkSession) -> DataFrame:
            from causeway.pipeline.stored_frames import stored_frame

            return stored_frame(session, ledger, name)

        if name in BUCKETED:
            return Rows(name, TABLES[name], parts, None, frame)
        return Rows(name, TABLES[name], parts, count)

    def close(self) -> None:
        """Remove what was made for it."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        rows = sum(file.rows for file in self._ledger.files("ledger"))
        return f"<ledger {self.place}: about {rows:,} rows; .ledger, .audit(), .trace(MESSAGE)>"


FIGURES = ("lanes", "latency", "backlog", "worst", "fees", "codes", "chains")
"""Figures of a ledger that are tables."""

BUCKETED = ("ledger", "value", "headers", "watermarks")
"""Tables that lie in buckets: of what several files say one row counts, which reading tells."""


def open_place(place: Any) -> OpenedLedger:
    """Open a ledger, or a lake that Causeway ran, to be read; a path or URI.

    Raises ``InvalidInput`` where neither is there, ``LedgerDamaged``, ``LakeError``.
    """
    return OpenedLedger(str(place))


def _in_memory(name: str, table: pa.Table) -> Rows:
    return Rows(name, table.schema, lambda: iter([table]), table.num_rows)


__all__ = ["Findings", "OpenedLedger", "Rows", "open_place"]
