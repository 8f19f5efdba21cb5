"""What the files of a ledger state of it without being read.

The findings of an audit, for ``cw.open``.

A ledger, or a lake that Causeway ran, opened to be read: the object behind ``cw.open``.
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
from causeway.audit.engine import CHECK_NAMES as ENGINE_CHECK_NAMES
from causeway.audit.engine import AuditResult, CheckVerdict
from causeway.audit.passes.bucket_pass import LIMIT
from causeway.audit.passes.results import CHECK_NAMES, VERDICTS
from causeway.audit.stored import AuditTerms, audit_ledger
from causeway.audit.verdict import Verdict, combine_verdicts
from causeway.core.arrow_types import to_python_rows
from causeway.core.text import format_moment, format_value, to_one_line
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
"""So many files are opened; of more these will do for the names of protocols, and times are not told."""


def read_extents(ledger: Ledger) -> tuple[list[str], TimeExtent]:
    """Return the protocols that row groups name as the least or the largest, and the first and last time of events,
    None where files do not state it. Raises ``LedgerDamaged``."""
    protocols: set[str] = set()
    times: list[int] = []
    files = ledger.files("ledger")
    for file in files[:_MAX_FILES]:
        with ledger.opened(file) as opened:
            for stated in opened.statistics("protocol"):
                if stated is not None and stated.has_min_max:
                    protocols |= {str(stated.min), str(stated.max)}
            for stated in opened.statistics("time"):
                if stated is not None and stated.has_min_max:
                    times += [int(stated.min_raw), int(stated.max_raw)]
    if not times or len(files) > _MAX_FILES:
        return sorted(protocols), (None, None)
    ends = pa.table(
        {
            name: pa.array([time]).cast(pa.timestamp("us", "UTC"))
            for name, time in zip("ab", (min(times), max(times)), strict=True)
        }
    )
    [found] = to_python_rows(ends)
    return sorted(protocols), (found["a"], found["b"])


class AuditFindings:
    """The findings of an audit: its verdict, the ``checks`` by name, and tables (``violations``, ``completeness``,
    ``lanes``, ``sums``, ``abroad``)."""

    def __init__(self, audit: AuditResult, checks: Mapping[str, CheckVerdict]) -> None:
        self._audit, self.checks = audit, dict(checks)

    @property
    def audit(self) -> AuditResult:
        """Return the whole audit."""
        return self._audit

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the checks."""
        return combine_verdicts(self.checks.values())

    @property
    def sentence(self) -> str:
        """Return the verdict as a sentence, as ``causeway audit`` prints it."""
        return self._audit.sentence(*self.checks)

    @property
    def holds(self) -> bool:
        """Return whether none of the checks failed."""
        return self.verdict is not Verdict.FAILED

    @property
    def violations(self) -> Rows:
        """Return what the checks name, violated, unknown and noted."""
        found = self._audit.violations
        if len(self.checks) < len(CHECK_NAMES):
            found = found.filter(pc.is_in(found["check"], pa.array([*self.checks], pa.string())))
        return Rows.of("violations", found)

    @property
    def completeness(self) -> Rows:
        """Return the coverage of each lane and side."""
        return Rows.of("completeness", self._audit.completeness)

    @property
    def lanes(self) -> Rows:
        """Return the figures of each lane."""
        return Rows.of("lanes", self._audit.lanes)

    @property
    def sums(self) -> Rows:
        """Return the value sent, received, paid out, refunded and pending, by lane and asset."""
        return Rows.of("sums", self._audit.sums)

    @property
    def abroad(self) -> Rows:
        """Return the value that left chains for others and came back, by asset."""
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
"""What there is to see of an opened ledger beside its tables."""

_MAX_NAMED = 12


@dataclass(frozen=True)
class PlaceOverview:
    """What an opened place is. ``kind``: ``lake`` or ``ledger``; ``protocols``: their names, as far as files state them
    without being read; ``chains``: those of the lake, or of windows; ``rows``: of the table ``ledger``, as its files
    have them; ``heights``: of a lake with any, the first and the last; ``tick_seconds``: of a lake; ``first_time``,
    ``last_time``: of an event; ``commit``: the number of the ledger's last one."""

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
    """A ledger, or a lake that Causeway ran with the ledger that is derived of it, to be read.

    Its tables (``ledger``, ``value``, ``observed``, ``promises``, ``headers``, ``watermarks``, ``quarantine``) and what
    there is to see of them (see ``Selection``) are ``Rows``; ``state`` gives the state tables of a lake. It is as of
    the moment when it was opened, whoever writes meanwhile; ``reload`` takes in what was committed since. Of a lake the
    ledger is derived into a temporary folder, which goes with ``close`` or the end of a ``with`` statement; nothing is
    written into the lake. A Spark session that is active is used where there is much to count.
    """

    def __init__(self, place: str, steps: Steps | None = None, sources: ModuleSources = NOWHERE) -> None:
        self.place, self._steps, self._sources = place, steps, sources
        self.kind = "lake" if is_lake(place) else "ledger"
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lake: Lake | None = None
        self._ledger = self._opened()
        super().__init__(place, self._as_of, ALL_MESSAGES, FiguresCounter(steps=steps))

    def _as_of(self) -> Ledger:
        """Return the ledger. Raises ``InvalidInput`` after ``close`` of what is derived of a lake."""
        if self._lake is not None and self._folder is None:
            raise InvalidInput(f"{self.place}: was closed; open it again")
        return self._ledger

    def _opened(self) -> Ledger:
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
        ingest_lake(self.place, self._folder.name, progress=self._begun("deriving the ledger"))
        return open_ledger(self._folder.name)

    def _begun(self, step: str) -> PassProgressCallback | None:
        return None if self._steps is None else self._steps(step)

    def reload(self) -> bool:
        """Take in what was committed meanwhile; return whether anything was. Raises as ``open_place``."""
        before = self._ledger
        self._ledger = self._opened()
        return (before.number, before.last) != (self._ledger.number, self._ledger.last)

    @property
    def stored(self) -> Ledger:
        """Return the stored ledger that it reads."""
        return self._as_of()

    @property
    def about(self) -> PlaceOverview:
        """Return what it is."""
        ledger, lake = self._as_of(), self._lake
        observed = to_python_rows(ledger.table("observed"))
        chains = dict.fromkeys(row["chain"] for row in observed)
        protocols, times = read_extents(ledger)
        heights, tick_seconds = None, None
        if lake is not None:
            said = lake.about()
            chains = dict.fromkeys(item["name"] for item in said["chains"])
            protocols = [said["protocol"]]
            last, tick_seconds = lake.last_height(), float(said["seconds_per_tick"])
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
        """Return a state table of the lake, in its order; without ``table``, how many rows each has.

        Args:
            table: its name.
            height: a committed height; default: the last.
            chain: only of this chain, and of the programs that it has at that height.
            names: chains and programs by their names in place of the numbers.

        Raises:
            InvalidInput: it is no lake that Causeway ran, or has no such table.
            LakeError: the height is not committed, or there is no such chain.
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
        """Check it.

        Args:
            check: the checks that count; none: all.
            deadlines: ``received=1h``, ``answered=none``, in place of those that the ledger has.
            tolerances: by how much clocks may be wrong: ``2s``, ``CHAIN=500ms``.
            session: runs it where there is much to check; None: the active one.
            executor: as of ``pipeline.ledger_audit.audit_ledger``.
            limit: findings of each lane, check and reason that are named.

        Raises:
            InvalidInput: an argument is not allowed.
            LedgerDamaged: the ledger cannot be read.
        """
        for name in check:
            if name not in ENGINE_CHECK_NAMES:
                raise InvalidInput(f"check: {name}: must be one of {', '.join(ENGINE_CHECK_NAMES)}")
        if session is None and executor == "auto":
            session = choose_session(self._as_of())
        progress = self._begun("checking")
        terms = AuditTerms.of(deadlines, tolerances)
        found = audit_ledger(
            self._as_of(), executor=executor, session=session, limit=limit, terms=terms, progress=progress
        )
        return AuditFindings(found, {name: found.checks[name] for name in check or ENGINE_CHECK_NAMES})

    def trace(self, message: str | None = None, **narrowing: str | int | None) -> MessageTrace:
        """Return the life of a message and of those that belong to it; as of ``network.tracing.trace``."""
        return trace_message(self._as_of(), message, **narrowing)

    def lives(self, messages: Sequence[MessageKey]) -> MessageTrace:
        """Return the lives of messages that are known by their keys; as of ``network.tracing.lives``."""
        return read_histories(self._as_of(), messages)

    def __getattr__(self, name: str) -> Rows:
        if name.startswith("_") or name not in TABLES:
            raise AttributeError(f"a ledger has no {name}; its tables are {', '.join((*TABLES, *FIGURES))}")
        return _table(self._as_of, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLES})

    def close(self) -> None:
        """Remove what was made for it."""
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
        lines = [("protocol", _named(about.protocols)), ("chains", f"{len(about.chains)}: {_named(about.chains)}")]
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
        known = self._counted.figures.get((repr(ALL_MESSAGES), False))
        if known is not None and self._counted.commit == (self._ledger.number, self._ledger.last):
            totals = known.totals
            lines.append(
                ("messages", f"{totals['messages']:,}, {totals['pending']:,} pending, {totals['lanes']:,} lanes")
            )
        return [(name, text) for name, text in lines if text and not text.startswith("0:")]

    def __repr__(self) -> str:
        said = "; ".join(f"{name} {text}" for name, text in self._lines())
        more = ".ledger, .messages, .calls, .lanes, .latency, .backlog, .audit(), .trace(MESSAGE)"
        return f"<{self.kind} {to_one_line(self.place)}: {said}; {more}{', .state(TABLE)' if self._lake else ''}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in self._lines()
        )
        tables = ", ".join((*FIGURES, *TABLES))
        said = f"tables: {tables}; audit(), trace(MESSAGE){', state(TABLE)' if self._lake else ''}"
        title = f"{self.kind} {to_one_line(self.place)}"
        return f"<p><b>{html.escape(title)}</b></p><table>{rows}</table><p>{html.escape(said)}</p>"


def _named(names: Sequence[str]) -> str:
    shown = [to_one_line(name) for name in names[:_MAX_NAMED]]
    return ", ".join(shown) + (f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else "")


def _table(now: Callable[[], Ledger], name: str) -> Rows:
    """Return a stored table. ``now``: gives the ledger, and says where it was closed."""
    ledger = now()

    def parts() -> Iterator[pa.Table]:
        now()
        if name in BUCKETED:
            yield from (ledger.rows(bucket, table=name) for bucket in range(ledger.buckets))
        else:
            yield ledger.table(name)

    def frame(session: SparkSession) -> DataFrame:
        from causeway.dataframes.ledger_tables import ledger_dataframe

        now()
        return ledger_dataframe(session, ledger, name)

    def choose(values: dict[str, Any]) -> Rows:
        whole = Rows(name, TABLES[name], parts).where(**values)  # says what is wrong with them
        condition = {key: given if isinstance(given, list | tuple | set) else (given,) for key, given in values.items()}
        if name not in BUCKETED:
            return whole
        return Rows(name, TABLES[name], lambda: select_rows(ledger, name, condition))

    if name in BUCKETED:
        return Rows(name, TABLES[name], parts, None, frame, choose)
    return Rows(name, TABLES[name], parts, sum(file.rows for file in ledger.files(name)), None, choose)


def open(place: Any, *, programs: Sequence[str | os.PathLike[str]] = (), steps: Steps | None = None) -> OpenedLedger:
    """Open a ledger, or a lake that Causeway ran, to be read; a path or URI.

    ``programs``: folders, files of scenarios that programs of one's own lie beside, and modules: from these only they
    are imported, to execute heights again; ``steps``: begins each step that takes time (deriving, checking, counting),
    and gives what is told how far it is.

    Raises ``InvalidInput`` where neither is there, ``LedgerDamaged``, ``LakeError``.
    """
    if not isinstance(place, str | os.PathLike) or not str(place):
        raise InvalidInput(f"place: {format_value(place)}: must be the path or URI of a lake or a ledger")
    uri = str(place)
    require_stored(uri)
    return OpenedLedger(uri, steps, ModuleSources.of(*programs))
