"""Messages of an opened ledger: a row each, a row a call, and their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from causeway.figures.figures import Figures
from causeway.figures.messages import MESSAGES_SCHEMA
from causeway.figures.where import EVERYTHING, Where
from causeway.model.text import readable
from causeway.network.rows import Rows
from causeway.pipeline.ledger_figures import MessageReader, figures_of, messages_of, replies_in_all
from causeway.pipeline.ledger_kept import KeptShown
from causeway.pipeline.ledger_passes import Steps, bucket_rows
from causeway.pipeline.ledger_store import Ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW_ROWS = 2_000_000
"""Up to so many rows a ledger is counted in this process, whatever Spark session there is: it takes a second."""

_KEPT = 8
"""Figures of so many selections are kept."""


@dataclass
class Counted:
    """Figures that were counted, of the last commit that was looked at; for any number of threads."""

    lock: Lock = field(default_factory=Lock)
    commit: tuple[int, str] = (-1, "")
    figures: dict[tuple[str, bool], Figures] = field(default_factory=dict)
    kept: KeptShown = field(default_factory=KeptShown)
    steps: Steps | None = None

    def use(self, ledger: Ledger, where: Where, by_lane: bool) -> Figures:
        """Return the figures of some messages of a ledger."""
        with self.lock:
            if self.commit != (ledger.number, ledger.last):
                self.commit = ledger.number, ledger.last
                self.figures.clear()
            key = repr(where), by_lane
            if key not in self.figures:
                while len(self.figures) >= _KEPT:
                    del self.figures[next(iter(self.figures))]
                session, kept = session_for(ledger), None if where or by_lane else self.kept
                progress = None if self.steps is None else self.steps("counting")
                self.figures[key] = figures_of(
                    ledger, where=where, by_lane=by_lane, session=session, kept=kept, progress=progress
                )
            return self.figures[key]


def session_for(ledger: Ledger) -> SparkSession | None:
    """Return the user's Spark session where it is worth it and its tasks can read the ledger."""
    from causeway.pipeline.session import active_session

    session = active_session()
    if session is None or sum(bucket_rows(ledger)) <= FEW_ROWS:
        return None
    master = session.sparkContext.master or ""
    return session if master.startswith("local") or ledger.storage.uri.partition("://")[1] else None


class Selection:
    """Some messages of an opened ledger, and what there is to see of them.

    ``messages``: a row a message; ``calls``: a row a request that a chain sent; ``lanes``, ``latency``,
    ``latency_over_time``, ``backlog``, ``lane_backlog``, ``worst``, ``fees``, ``codes``, ``chains``: figures; all are
    ``Rows``. ``figures`` has the figures as Arrow tables, and totals. They are counted when they are asked for, and
    once.
    """

    def __init__(self, place: str, ledger: Callable[[], Ledger], asked: Where, counted: Counted) -> None:
        self.place = place
        self._now, self._asked, self._counted = ledger, asked, counted

    def where(self, **values: Any) -> Selection:
        """Return those messages that have a value in a column, or one of several (None: not seen), in each named.

        ``values``: of ``protocol``, ``source``, ``destination``, ``lane``, ``kind``, ``outcome``, ``index``,
        ``sender``, ``receiver``, ``message_id``, ``answers``, ``journey``; ``chain``: those that come from it or go to
        it. Raises ``InvalidInput``.
        """
        return Selection(self.place, self._now, self._asked.and_(Where.of(**values)), self._counted)

    def between(self, **ranges: Any) -> Selection:
        """Return those messages that are seen to be within a range of each column named.

        ``ranges``: of ``index``, ``sent_height``, ``sent_tick``, ``sent_time`` the first and the last, both included
        (None: without a bound); times as ``datetime`` or ISO 8601, without a zone UTC. Raises ``InvalidInput``.
        """
        return Selection(self.place, self._now, self._asked.and_(Where.between(**ranges)), self._counted)

    @property
    def figures(self) -> Figures:
        """Return all figures of these messages as Arrow tables, and totals."""
        return self._counted.use(self._now(), self._asked, by_lane=False)

    @property
    def messages(self) -> Rows:
        """Return a row a message (``figures.messages.MESSAGES_SCHEMA``), in the order of the ledger's buckets."""
        return _messages("messages", self._now, self._asked)

    @property
    def calls(self) -> Rows:
        """Return a row a call: a request that a chain sent, none of users; columns as of ``messages``."""
        return _messages("calls", self._now, self._asked.and_(Where(calls=True)))

    @property
    def lanes(self) -> Rows:
        """Return a row a lane (``figures.lanes.LANES_SCHEMA``)."""
        return Rows.of("lanes", self.figures.lanes)

    @property
    def latency(self) -> Rows:
        """Return delays of all messages and of each lane (``figures.delays.LATENCY_SCHEMA``)."""
        return Rows.of("latency", self.figures.latency)

    @property
    def latency_over_time(self) -> Rows:
        """Return delays by bins of time (``figures.pace.PACE_SCHEMA``)."""
        return Rows.of("latency_over_time", self.figures.latency_over_time)

    @property
    def backlog(self) -> Rows:
        """Return what was sent, came and ended over time, and what was open (``figures.flow.BACKLOG_SCHEMA``)."""
        return Rows.of("backlog", self.figures.backlog)

    @property
    def lane_backlog(self) -> Rows:
        """Return the backlog of each lane over time (``figures.flow.LANE_BACKLOG_SCHEMA``): bins in which anything
        happened."""
        found = self._counted.use(self._now(), self._asked, by_lane=True)
        return Rows.of("lane_backlog", found.lane_backlog)

    @property
    def worst(self) -> Rows:
        """Return the slowest and the oldest pending messages (``figures.worst.WORST_SCHEMA``)."""
        return Rows.of("worst", self.figures.worst)

    @property
    def fees(self) -> Rows:
        """Return the movements of value by lane, asset and reason (``figures.fees.FEES_SCHEMA``)."""
        return Rows.of("fees", self.figures.fees)

    @property
    def codes(self) -> Rows:
        """Return outcomes by code and reason (``figures.codes.CODES_SCHEMA``)."""
        return Rows.of("codes", self.figures.codes)

    @property
    def chains(self) -> Rows:
        """Return a row a chain (``figures.lanes.CHAINS_SCHEMA``)."""
        return Rows.of("chains", self.figures.chains)

    def __repr__(self) -> str:
        more = ".messages, .calls, .lanes, .latency, .backlog, ..."
        return f"<messages of {readable(self.place)} where {self._asked}; {more}>"


def _messages(name: str, now: Callable[[], Ledger], where: Where) -> Rows:
    ledger = now()

    def parts() -> Iterator[pa.Table]:
        now()
        yield from messages_of(ledger, where, session=session_for(ledger))

    def frame(session: SparkSession) -> DataFrame:
        from causeway.pipeline.stored_frames import frame_by

        now()
        reader = MessageReader.of(ledger, where, replies_in_all(ledger, session_for(ledger)))
        return frame_by(session, MESSAGES_SCHEMA, len(reader.buckets), lambda task: reader.rows(reader.buckets[task]))

    def choose(values: dict[str, Any]) -> Rows:
        return _messages(name, now, where.and_(Where.of(**values)))

    return Rows(name, MESSAGES_SCHEMA, parts, None, frame, choose)


__all__ = ["EVERYTHING", "Counted", "Selection", "session_for"]
