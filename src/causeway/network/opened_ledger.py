"""Read-only access to a ledger, or to a lake of a run: the objects behind ``cw.open``.

``OpenedLedger`` gives the tables, figures, traces and audits of a ledger; ``AuditFindings`` holds an audit's result.
For a lake the ledger is derived into a temporary folder. ``read_extents`` reads protocols and times from file
statistics, without reading rows.
"""

from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.analysis.figures.filters import ALL_MESSAGES
from causeway.analysis.selections import FiguresCounter, MessageSelection, Rows, choose_session
from causeway.analysis.tracing import MessageTrace, read_histories, trace_message
from causeway.audit.engine import AuditResult, CheckVerdict
from causeway.audit.passes.bucket_pass import LIMIT
from causeway.audit.passes.results import CHECK_NAMES, VERDICTS
from causeway.audit.stored import AuditTerms, audit_ledger
from causeway.audit.verdict import Verdict, combine_verdicts
from causeway.core.arrow_types import to_python_rows
from causeway.core.text import count_noun, format_moment, format_value, to_one_line
from causeway.ledger.bucket_scan import PassProgressCallback, Steps, bucket_rows
from causeway.ledger.lake.ingest import ingest_lake, is_lake, require_stored
from causeway.ledger.schema import TABLES
from causeway.ledger.search import BUCKETED, MessageKey, select_rows
from causeway.ledger.store import Ledger, open_ledger
from causeway.network.state_tables import OVERVIEW_SCHEMA, LakeStates
from causeway.programs.user_modules import NOWHERE, ModuleSources
from causeway.storage.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["AuditFindings", "OpenedLedger", "PlaceOverview", "Rows", "open", "read_extents"]

TimeExtent = tuple[datetime | None, datetime | None]

_MAX_FILES = 64
"""Maximum number of files read for statistics.

With more, protocols come from these and times are unknown.
"""


def read_extents(ledger: Ledger) -> tuple[list[str], TimeExtent]:
    """Return protocols and the time range of events from file statistics.

    Args:
        ledger: The ledger.

    Returns:
        The protocols that row groups name as minimum or maximum, and the first and last time; None if files do not
        state them.

    Raises:
        LedgerDamaged: A file is damaged.
    """
    protocols: set[str] = set()
    times: list[int] = []
    files = ledger.files("ledger")
    for file in files[:_MAX_FILES]:
        with ledger.opened(file) as parquet:
            for statistic in parquet.statistics("protocol"):
                if statistic is not None and statistic.has_min_max:
                    protocols |= {str(statistic.min), str(statistic.max)}
            for statistic in parquet.statistics("time"):
                if statistic is not None and statistic.has_min_max:
                    times += [int(statistic.min_raw), int(statistic.max_raw)]
    if not times or len(files) > _MAX_FILES:
        return sorted(protocols), (None, None)
    times_table = pa.table(
        {
            name: pa.array([time]).cast(pa.timestamp("us", "UTC"))
            for name, time in zip("ab", (min(times), max(times)), strict=True)
        }
    )
    [row] = to_python_rows(times_table)
    return sorted(protocols), (row["a"], row["b"])


class AuditFindings:
    """The result of an audit: verdict, ``checks`` by name, and tables.

    The tables are ``violations``, ``completeness``, ``lanes``, ``sums`` and ``abroad``.
    """

    def __init__(self, audit: AuditResult, checks: Mapping[str, CheckVerdict]) -> None:
        self._audit, self.checks = audit, dict(checks)

    @property
    def audit(self) -> AuditResult:
        """The full audit result."""
        return self._audit

    @property
    def verdict(self) -> Verdict:
        """The combined verdict of the checks."""
        return combine_verdicts(self.checks.values())

    @property
    def sentence(self) -> str:
        """The verdict as a sentence, as ``causeway audit`` prints it."""
        return self._audit.sentence(*self.checks)

    @property
    def holds(self) -> bool:
        """True if no check failed."""
        return self.verdict is not Verdict.FAILED

    @property
    def violations(self) -> Rows:
        """The findings of the checks: violations, unknown cases and notes."""
        found = self._audit.violations
        if len(self.checks) < len(CHECK_NAMES):
            found = found.filter(pc.is_in(found["check"], pa.array([*self.checks], pa.string())))
        return Rows.of("violations", found)

    @property
    def completeness(self) -> Rows:
        """The coverage of each lane and side."""
        return Rows.of("completeness", self._audit.completeness)

    @property
    def lanes(self) -> Rows:
        """The figures of each lane."""
        return Rows.of("lanes", self._audit.lanes)

    @property
    def sums(self) -> Rows:
        """The value sent, received, paid out, refunded and pending, by lane and asset."""
        return Rows.of("sums", self._audit.sums)

    @property
    def abroad(self) -> Rows:
        """The value that left chains and came back, by asset."""
        return Rows.of("abroad", self._audit.abroad)

    def _lines(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("check", "verdict", "examined", *VERDICTS)]
        for check in self.checks.values():
            counts = (f"{getattr(check, name):,}" for name in ("examined", *VERDICTS))
            rows.append((check.name, check.verdict, *counts))
        return rows

    def __repr__(self) -> str:
        rows = self._lines()
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([self.sentence, *lines])

    def _repr_html_(self) -> str:
        head, *rows = self._lines()
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return f"<p>{html.escape(self.sentence)}</p><table><tr>{cells}</tr>{body}</table>"


FIGURES = (
    *("messages", "calls", "lanes", "latency", "latency_over_time", "backlog", "lane_backlog", "worst", "fees"),
    *("codes", "chains"),
)
"""Figures of an opened ledger beside its tables."""

_MAX_NAMED = 12


@dataclass(frozen=True)
class PlaceOverview:
    """Summary of an opened place.

    Attributes:
        place: Path or URI.
        kind: ``lake`` or ``ledger``.
        protocols: Protocol names, as far as file statistics state them.
        chains: Chain names of the lake, or of observed windows.
        rows: Number of rows of the table ``ledger``, from file metadata.
        heights: First and last height of a lake; None if it has none.
        tick_seconds: Seconds a tick of a lake.
        first_time: Time of the first event.
        last_time: Time of the last event.
        commit: Number of the ledger's last commit.
    """

    place: str
    kind: str
    protocols: tuple[str, ...]
    chains: tuple[str, ...]
    rows: int
    heights: tuple[int, int] | None
    tick_seconds: float | None
    first_time: datetime | None
    last_time: datetime | None
    commit: int


class OpenedLedger(MessageSelection):
    """A ledger opened for reading; for a lake the ledger derived from it.

    Tables (``ledger``, ``value``, ``observed``, ``promises``, ``headers``, ``watermarks``, ``quarantine``) and figures
    (see ``MessageSelection``) are ``Rows``. ``state`` gives the state tables of a lake. The view is a snapshot of the
    time of opening; ``reload`` adds later commits. The ledger of a lake is derived into a temporary folder, which
    ``close`` or the end of a ``with`` statement removes; the lake is never written. Large counts use the active Spark
    session, if any.
    """

    def __init__(
        self,
        place: str,
        steps: Steps | None = None,
        sources: ModuleSources = NOWHERE,
        session: SparkSession | None = None,
    ) -> None:
        self.place, self._steps, self._sources = place, steps, sources
        self.kind = "lake" if is_lake(place) else "ledger"
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lake: Lake | None = None
        self._ledger = self._open_ledger()
        super().__init__(place, self._current, ALL_MESSAGES, FiguresCounter(steps=steps, session=session))

    def _current(self) -> Ledger:
        """Return the ledger. Raises ``InvalidInput`` after ``close`` of a lake's derived ledger."""
        if self._lake is not None and self._folder is None:
            raise InvalidInput(f"{self.place}: was closed; open it again")
        return self._ledger

    def _open_ledger(self) -> Ledger:
        """Open the ledger; derive it first for a lake."""
        if self.kind == "ledger":
            return open_ledger(self.place)
        lake = Lake.at(self.place).with_identity()
        if self._lake is None or self._folder is None or self._lake.identity != lake.identity:
            self._lake = lake
            if self._folder is not None:
                self._folder.cleanup()
            self._folder = tempfile.TemporaryDirectory(prefix="causeway-ledger-", ignore_cleanup_errors=True)
            self.__dict__.pop("_states", None)
        assert self._folder is not None
        ingest_lake(self.place, self._folder.name, progress=self._begin_step("deriving the ledger"))
        return open_ledger(self._folder.name)

    def _begin_step(self, step: str) -> PassProgressCallback | None:
        return None if self._steps is None else self._steps(step)

    def reload(self) -> bool:
        """Load commits written since; return True if there were any. Raises as ``open``."""
        before = self._ledger
        self._ledger = self._open_ledger()
        return (before.number, before.last) != (self._ledger.number, self._ledger.last)

    @property
    def stored(self) -> Ledger:
        """The underlying stored ledger."""
        return self._current()

    @property
    def about(self) -> PlaceOverview:
        """A summary of the place."""
        ledger, lake = self._current(), self._lake
        observed = to_python_rows(ledger.table("observed"))
        chains = dict.fromkeys(row["chain"] for row in observed)
        protocols, times = read_extents(ledger)
        heights, tick_seconds = None, None
        if lake is not None:
            description = lake.about()
            chains = dict.fromkeys(item["name"] for item in description["chains"])
            protocols = [description["protocol"]]
            last, tick_seconds = lake.last_height(), float(description["seconds_per_tick"])
            heights = None if last < 0 else (0, last)
        return PlaceOverview(
            self.place,
            self.kind,
            tuple(protocols),
            tuple(name for name in chains if name is not None),
            sum(bucket_rows(ledger)),
            heights,
            tick_seconds,
            *times,
            ledger.number,
        )

    def state(
        self, table: str | None = None, height: int | None = None, chain: str | None = None, *, names: bool = False
    ) -> Rows:
        """Return a state table of the lake, or the row count of each table.

        Args:
            table: Name of the table; None: an overview.
            height: A committed height; None: the last.
            chain: Restrict to this chain, and to its programs at that height.
            names: Show chains and programs by name in place of numbers.

        Raises:
            InvalidInput: The place is not a lake of a run, or has no such table.
            LakeError: The height is not committed, or the chain is unknown.
        """
        if self._lake is None:
            raise InvalidInput(f"{self.place}: a ledger of recorded traffic has no state; only a lake of a run has")
        if height is not None and (type(height) is not int or height < 0):
            raise InvalidInput(f"height: {format_value(height)}: must be a whole number from 0 on")
        states = self._states
        if table is None:
            return Rows("state", OVERVIEW_SCHEMA, lambda: iter([states.overview(height, chain)]))
        schema = states.schema(table, names)
        return Rows(table, schema, lambda: iter([states.rows(table, height, chain, names)]))

    @cached_property
    def _states(self) -> LakeStates:
        assert self._lake is not None
        return LakeStates(self._lake, self._sources)

    def audit(
        self,
        *check: str,
        deadlines: Iterable[str] = (),
        tolerances: Iterable[str] = (),
        session: SparkSession | None = None,
        executor: str = "auto",
        limit: int = LIMIT,
    ) -> AuditFindings:
        """Audit the ledger.

        Args:
            check: Names of the checks to report; none: all.
            deadlines: Deadlines such as ``received=1h`` or ``answered=none``, in place of the ledger's.
            tolerances: Clock tolerances such as ``2s`` or ``CHAIN=500ms``.
            session: Spark session for large ledgers; None: the active one.
            executor: As in ``audit_ledger``.
            limit: Maximum number of findings named for each lane, check and reason.

        Raises:
            InvalidInput: An argument is not allowed.
            LedgerDamaged: The ledger cannot be read.
        """
        for name in check:
            if name not in CHECK_NAMES:
                raise InvalidInput(f"check: {name}: must be one of {', '.join(CHECK_NAMES)}")
        if session is None and executor == "auto":
            session = choose_session(self._current(), self._counted.session)
        progress = self._begin_step("checking")
        terms = AuditTerms.of(deadlines, tolerances)
        result = audit_ledger(
            self._current(), executor=executor, session=session, limit=limit, terms=terms, progress=progress
        )
        return AuditFindings(result, {name: result.checks[name] for name in check or CHECK_NAMES})

    def trace(self, message: str | None = None, **narrowing: str | int | None) -> MessageTrace:
        """Return the history of a message and of related messages, as ``trace_message`` does."""
        return trace_message(self._current(), message, **narrowing)

    def lives(self, messages: Sequence[MessageKey]) -> MessageTrace:
        """Return the histories of messages by key, as ``read_histories`` does."""
        return read_histories(self._current(), messages)

    def __getattr__(self, name: str) -> Rows:
        if name.startswith("_") or name not in TABLES:
            raise AttributeError(f"a ledger has no {name}; its tables are {', '.join((*TABLES, *FIGURES))}")
        return _stored_rows(self._current, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLES})

    def close(self) -> None:
        """Remove the temporary folder."""
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lines(self) -> list[tuple[str, str]]:
        if self._lake is not None and self._folder is None:
            return [("closed", "open it again")]
        about = self.about
        lines = [
            ("protocol", _join_names(about.protocols)),
            ("chains", f"{len(about.chains)}: {_join_names(about.chains)}"),
        ]
        if self._lake is not None and about.heights is None:
            lines.append(("heights", "none yet"))
        if about.heights is not None:
            lines.append(("heights", f"{about.heights[0]:,} to {about.heights[1]:,}"))
        if about.first_time is not None and about.last_time is not None and self._lake is None:
            lines.append(
                (
                    "time",
                    " to ".join(format_moment(each, seconds=False) for each in (about.first_time, about.last_time)),
                )
            )
        lines.append(("rows", f"{about.rows:,} events of messages"))
        aside = sum(file.rows for file in self.stored.files("quarantine"))
        if aside:
            lines.append(("quarantine", count_noun(aside, "record")))
        known = self._counted.figures.get((repr(ALL_MESSAGES), False))
        if known is not None and self._counted.commit == (self._ledger.number, self._ledger.last):
            totals = known.totals
            lines.append(
                ("messages", f"{totals['messages']:,}, {totals['pending']:,} pending, {totals['lanes']:,} lanes")
            )
        return [(name, text) for name, text in lines if text and not text.startswith("0:")]

    def __repr__(self) -> str:
        summary = "; ".join(f"{name} {text}" for name, text in self._lines())
        more = ".ledger, .messages, .calls, .lanes, .latency, .backlog, .audit(), .trace(MESSAGE)"
        return f"<{self.kind} {to_one_line(self.place)}: {summary}; {more}{', .state(TABLE)' if self._lake else ''}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in self._lines()
        )
        tables = ", ".join((*FIGURES, *TABLES))
        contents = f"tables: {tables}; audit(), trace(MESSAGE){', state(TABLE)' if self._lake else ''}"
        title = f"{self.kind} {to_one_line(self.place)}"
        return f"<p><b>{html.escape(title)}</b></p><table>{rows}</table><p>{html.escape(contents)}</p>"


def _join_names(names: Sequence[str]) -> str:
    shown = [to_one_line(name) for name in names[:_MAX_NAMED]]
    return ", ".join(shown) + (f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else "")


def _stored_rows(current: Callable[[], Ledger], name: str) -> Rows:
    """Return a stored table as ``Rows``.

    ``current`` returns the ledger, or raises once it is closed.
    """
    ledger = current()

    def parts() -> Iterator[pa.Table]:
        current()
        if name in BUCKETED:
            yield from (ledger.rows(bucket, table=name) for bucket in range(ledger.buckets))
        else:
            yield ledger.table(name)

    def frame(session: SparkSession) -> DataFrame:
        from causeway.dataframes.ledger_tables import ledger_dataframe

        current()
        return ledger_dataframe(session, ledger, name)

    def choose(values: dict[str, Any]) -> Rows:
        whole = Rows(name, TABLES[name], parts).where(**values)  # validates the values
        condition = {key: given if isinstance(given, list | tuple | set) else (given,) for key, given in values.items()}
        if name not in BUCKETED:
            return whole
        return Rows(name, TABLES[name], lambda: select_rows(ledger, name, condition))

    if name in BUCKETED:
        return Rows(name, TABLES[name], parts, None, frame, choose)
    return Rows(name, TABLES[name], parts, sum(file.rows for file in ledger.files(name)), None, choose)


def open(place: Any, *, programs: Sequence[str | os.PathLike[str]] = (), steps: Steps | None = None) -> OpenedLedger:
    """Open a ledger, or a lake of a run, for reading.

    Args:
        place: Path or URI.
        programs: Folders, scenario files beside user programs, and modules: the only sources from which programs are
            imported to execute heights again.
        steps: Begins each slow step (deriving, checking, counting) and returns its progress callback.

    Raises:
        InvalidInput: The place holds neither a ledger nor a lake.
        LedgerDamaged: The ledger is damaged.
        LakeError: The lake cannot be read.
    """
    if not isinstance(place, str | os.PathLike) or not str(place):
        raise InvalidInput(f"place: {format_value(place)}: must be the path or URI of a lake or a ledger")
    uri = str(place)
    require_stored(uri)
    return OpenedLedger(uri, steps, ModuleSources.of(*programs))
