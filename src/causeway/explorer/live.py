"""What a lake or a ledger shows now: threads look at it again and again, and pages read what they saw last.

One thread derives and audits what is new, which costs as much as that; one counts figures, which costs as much as the
buckets in which anything is new; one looks how far a lake is. So pages about messages, heights and findings do not wait
for figures.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from causeway_proofs.errors import CausewayError, InvalidInput, describe_os_error

from causeway.audit.incremental.watch import NAMED_FINDINGS, LedgerWatch, Stopped, WatchResult
from causeway.core.text import to_one_line
from causeway.ledger.commits import FilesMerged, LedgerDamaged
from causeway.ledger.lake.derivation import LedgerDerivation
from causeway.ledger.lake.ingest import is_lake, require_stored
from causeway.network.opened_lake import OpenedLake, open_lake
from causeway.network.replay import ReplayShare
from causeway.programs.user_modules import NOWHERE, ModuleSources
from causeway.storage.lake import Lake

if TYPE_CHECKING:
    from causeway.analysis.figures.figures import LedgerFigures
    from causeway.audit.engine import AuditResult
    from causeway.ledger.store import Ledger

SECONDS = 1.0
"""Seconds between two looks at least; after a long one as many as it took, up to ``LONGEST_PAUSE``."""

LONGEST_PAUSE = 30.0

RATE_SPAN = 5.0
"""The rate of messages is the mean over so many seconds."""

CLOSE_SECONDS = 3.0
"""Seconds that threads have to end."""

READ_TRIES = 3

ReadResult = TypeVar("ReadResult")


class NothingYet(CausewayError):
    """Nothing was read yet; that passes."""


@dataclass(frozen=True, eq=False)
class LedgerSnapshot:
    """What was seen last. ``serial``: counts looks that saw something new; ``ledger``: as of the last one;
    ``counted``: the height, or of a ledger the commit, as of which ``figures`` are."""

    serial: int
    ledger: Ledger
    watched: WatchResult
    figures: LedgerFigures
    counted: int | None

    @property
    def audit(self) -> AuditResult:
        """Return what the checks found."""
        return self.watched.audit

    @property
    def height(self) -> int | None:
        """Return the last height of a lake that was read; None: it is none of a lake, or has none yet."""
        return self.watched.height

    @property
    def behind(self) -> bool:
        """Return whether more was read than was counted."""
        return self.counted != _place(self.watched)


@dataclass(frozen=True)
class LiveHead:
    """How far a lake is, which is known before its ledger is read.

    ``height``, ``tick``: of the last commit; ``messages``: that were put into lanes; ``rate``: of these a second, over
    the last seconds; None where nothing tells, as of a ledger.
    """

    height: int | None = None
    tick: int | None = None
    messages: int | None = None
    rate: float | None = None


class LiveLedger:
    """Follows a lake that may be running, or a ledger, until ``close``.

    Args:
        place: a path or URI.
        sources: where programs of one's own come from.
        seconds: between two looks.

    ``broken``: the error with which following it ended, where nobody foresaw it.

    Raises:
        InvalidInput, LedgerDamaged, LakeError: there is none, or it cannot be opened, or no messages of users are in
            it, as in a simulation of gossip.
    """

    def __init__(self, place: str, sources: ModuleSources = NOWHERE, seconds: float = SECONDS) -> None:
        require_stored(place)
        self.place = place
        self.opened: OpenedLake | None = open_lake(place, sources, ReplayShare()) if is_lake(place) else None
        if self.opened is not None:
            LedgerDerivation(self.opened.lake)  # says what has no ledger
        self._seconds, self._sources = seconds, sources
        self._stop = threading.Event()
        self._watch = LedgerWatch(place, NAMED_FINDINGS, self._stop)
        self._snapshot: LedgerSnapshot | None = None
        self._seen: tuple[WatchResult, Ledger] | None = None
        self._figures: tuple[LedgerFigures, int | None] | None = None
        self._news = threading.Event()
        self._lock = threading.Lock()
        self._head = LiveHead()
        self._past: deque[tuple[float, int]] = deque()
        self._began = time.monotonic()
        self._progress: tuple[str, int, int] | None = None
        self._failures: dict[str, str] = {}
        self.broken: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._until_broken, args=[work], name=f"explorer-{name}", daemon=True)
            for name, work in (("follow", self._follow), ("count", self._count), ("head", self._look_ahead))
        ]

    def start(self) -> None:
        """Begin to look."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End, and remove what was made for it."""
        self._stop.set()
        self._news.set()
        until = time.monotonic() + CLOSE_SECONDS
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=max(0.0, until - time.monotonic()))
        self._watch.close()

    @property
    def head(self) -> LiveHead:
        """Return how far the lake is."""
        return self._head

    @property
    def failure(self) -> str:
        """Return why it cannot be read at the moment; empty: it can."""
        found = [*self._failures.values()]
        return found[0] if found else ""

    @property
    def progress(self) -> tuple[str, int, int] | None:
        """Return what the first look is at, how much of it is done, and of how much."""
        return self._progress

    @property
    def waited(self) -> int:
        """Return for how many seconds the first look has been under way."""
        return int(time.monotonic() - self._began)

    @property
    def newest(self) -> LedgerSnapshot | None:
        """Return what was seen last, None before anything was."""
        return self._snapshot

    def snapshot(self) -> LedgerSnapshot:
        """Return what was seen last. Raises ``NothingYet``."""
        found = self._snapshot
        if found is None:
            raise NothingYet(self.failure or "the ledger is being read for the first time")
        return found

    def read(self, work: Callable[[LedgerSnapshot], ReadResult]) -> ReadResult:
        """Return what ``work`` makes of what was seen last.

        Files of a ledger that is followed are merged now and then, and go; ``work`` is done again then, on what was
        seen since. Raises what it does.
        """
        for tried in range(READ_TRIES):
            snapshot = self.snapshot()
            try:
                return work(snapshot)
            except (LedgerDamaged, FilesMerged):
                if tried == READ_TRIES - 1 or not self._newer(snapshot.serial):
                    raise
        raise AssertionError("unreachable")

    def _newer(self, serial: int) -> bool:
        """Wait a little until something newer was seen."""
        for _ in range(20):
            if self.snapshot().serial != serial:
                return True
            if self._stop.wait(0.1):
                return False
        return False

    # ---- threads

    def _until_broken(self, work: Callable[[], None]) -> None:
        """Do something until it ends; an error that nobody foresaw is shown, and kept for who ends the process."""
        try:
            work()
        except BaseException as error:
            self.broken = error
            why = f"no longer followed: unexpected {type(error).__name__}: {to_one_line(str(error))[:300]}"
            with self._lock:
                self._failures = {"broken": why, **self._failures}

    def _follow(self) -> None:
        """Derive and audit what is new."""
        while not self._stop.is_set():
            began = time.monotonic()
            with self._failing("follow"):
                watched = self._watch.look(self._told("heights read"), self._told("rows checked"))
                ledger = self._watch.ledger
                if watched is not None and ledger is not None:
                    self._publish(seen=(watched, ledger))
                    self._news.set()
            self._pause(began)

    def _count(self) -> None:
        """Count the figures of what was read."""
        from causeway.analysis.stored_figures import FiguresCache, compute_figures

        done: Ledger | None = None
        kept = FiguresCache()
        while not self._stop.is_set():
            self._news.wait()
            self._news.clear()
            if self._seen is None or self._seen[1] is done:
                continue
            (watched, ledger), began = self._seen, time.monotonic()
            try:
                with self._failing("count"):
                    told = self._told("rows counted")
                    figures = compute_figures(ledger, executor="in_process", progress=told, kept=kept)
                    self._publish(figures=(figures, _place(watched)))
                    done = ledger
            finally:
                self._pause(began)
                if self._seen[1] is not done:
                    self._news.set()  # more came meanwhile, or it could not be read: files were merged

    def _publish(
        self, *, seen: tuple[WatchResult, Ledger] | None = None, figures: tuple[LedgerFigures, int | None] | None = None
    ) -> None:
        with self._lock:
            self._seen, self._figures = seen or self._seen, figures or self._figures
            if self._seen is None or self._figures is None:
                return
            serial = 1 if self._snapshot is None else self._snapshot.serial + 1
            self._snapshot = LedgerSnapshot(serial, self._seen[1], self._seen[0], *self._figures)
            self._progress = None

    @contextlib.contextmanager
    def _failing(self, work: str) -> Iterator[None]:
        """Say why nothing can be read, until the same work succeeds. Files that were merged meanwhile are no reason:
        the others are read with the next look."""
        why = None
        try:
            yield
        except (Stopped, FilesMerged):
            return
        except (CausewayError, OSError) as error:
            why = self._gone() or to_one_line(describe_os_error(error) or str(error))[:500]
        with self._lock:
            others = {each: text for each, text in self._failures.items() if each != work}
            self._failures = others if why is None else {**others, work: why}

    def _gone(self) -> str | None:
        """Return what is said where there is no longer what was opened, None where it is there."""
        try:
            require_stored(self.place)
            if is_lake(self.place) == (self.opened is not None):
                return None
        except InvalidInput as error:
            return f"{to_one_line(str(error))[:400]}; shown is what was read last"
        except OSError:
            return None
        now = "a ledger" if self.opened is not None else "a lake"
        return f"{to_one_line(self.place)[:400]}: {now} is there now, another thing than was opened; explore it anew"

    def _told(self, what: str) -> Callable[[int, int], None]:
        def told(done: int, of: int) -> None:
            if self._stop.is_set():
                raise Stopped("stopped")
            if self._snapshot is None:
                self._progress = what, done, of

        return told

    def _pause(self, began: float) -> None:
        took = time.monotonic() - began
        self._stop.wait(max(self._seconds, min(took, LONGEST_PAUSE)))

    def _look_ahead(self) -> None:
        """Look how far a lake is, apart from its ledger, whose reading may take longer."""
        while self.opened is not None and not self._stop.is_set():
            with contextlib.suppress(CausewayError, OSError):  # the other thread says why
                self._head = self._ahead(self._same(self.opened))
            self._stop.wait(self._seconds)

    def _same(self, opened: OpenedLake) -> OpenedLake:
        """Return the lake; where another one is at its place now, that one."""
        if Lake.at(self.place).with_identity().identity != opened.lake.identity:
            self.opened = opened = open_lake(self.place, self._sources, ReplayShare())
            self._past.clear()
        return opened

    def _ahead(self, opened: OpenedLake) -> LiveHead:
        newest = opened.lake.newest()
        if newest is None:
            return LiveHead()
        now, messages = time.monotonic(), newest.totals.get("outbound", 0)
        self._past.append((now, messages))
        while len(self._past) > 2 and now - self._past[1][0] >= RATE_SPAN:
            self._past.popleft()
        began, before = self._past[0]
        rate = (messages - before) / (now - began) if now - began > 0 else None
        return LiveHead(newest.last, newest.tick, messages, rate)


def _place(watched: WatchResult) -> int | None:
    return watched.commit if watched.height is None else watched.height


__all__ = ["LedgerSnapshot", "LiveHead", "LiveLedger", "NothingYet"]
