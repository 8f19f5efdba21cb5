"""Follow a lake or a ledger: threads update a snapshot, pages read it.

One thread derives and audits new rows, at a cost proportional to them. Another counts figures, at a cost proportional
to
the changed buckets. A third reads the head of the lake. So pages of messages, heights and findings do not wait for
figures.
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
"""Least seconds between two passes; after a long one its duration, up to ``LONGEST_PAUSE``."""

LONGEST_PAUSE = 30.0

RATE_SPAN = 5.0
"""Seconds of the moving average of the message rate."""

CLOSE_SECONDS = 3.0
"""Seconds for threads to end."""

READ_TRIES = 3

ReadResult = TypeVar("ReadResult")


class NothingYet(CausewayError):
    """There is no snapshot yet; a temporary error."""


@dataclass(frozen=True, eq=False)
class LedgerSnapshot:
    """The latest state of the ledger.

    ``serial``: number of updates. ``ledger``: as of the last one. ``counted``: height (or commit of a ledger) of
    ``figures``.
    """

    serial: int
    ledger: Ledger
    watched: WatchResult
    figures: LedgerFigures
    counted: int | None

    @property
    def audit(self) -> AuditResult:
        """Return the result of the audit."""
        return self.watched.audit

    @property
    def height(self) -> int | None:
        """Return the last derived height of a lake; None for a ledger, or before the first height."""
        return self.watched.height

    @property
    def behind(self) -> bool:
        """Return True if the figures are older than the rows."""
        return self.counted != _position_of(self.watched)


@dataclass(frozen=True)
class LiveHead:
    """The head of a lake, known before its ledger is derived.

    ``height``, ``tick``: of the last commit. ``messages``: number put into lanes. ``rate``: messages a second. None:
    unknown, as for a ledger.
    """

    height: int | None = None
    tick: int | None = None
    messages: int | None = None
    rate: float | None = None


class LiveLedger:
    """Follows a lake, possibly of a running network, or a ledger, until ``close``.

    Args:
        place: a path or URI.
        sources: modules of user programs.
        seconds: pause between two passes.

    ``broken``: an unexpected error that ended it.

    Raises:
        InvalidInput: it cannot be opened, or has no user messages (a simulation of gossip).
        LedgerDamaged: the ledger is corrupted.
        LakeError: the lake is corrupted, or does not exist.
    """

    def __init__(self, place: str, sources: ModuleSources = NOWHERE, seconds: float = SECONDS) -> None:
        require_stored(place)
        self.place = place
        self.opened: OpenedLake | None = open_lake(place, sources, ReplayShare()) if is_lake(place) else None
        if self.opened is not None:
            LedgerDerivation(self.opened.lake)  # raises for lakes without a ledger
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
            for name, work in (("follow", self._follow), ("count", self._count), ("head", self._read_heads))
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads, and remove temporary files."""
        self._stop.set()
        self._news.set()
        until = time.monotonic() + CLOSE_SECONDS
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=max(0.0, until - time.monotonic()))
        self._watch.close()

    @property
    def head(self) -> LiveHead:
        """Return the head of the lake."""
        return self._head

    @property
    def failure(self) -> str:
        """Return the reason of a failed read; empty: none."""
        found = [*self._failures.values()]
        return found[0] if found else ""

    @property
    def progress(self) -> tuple[str, int, int] | None:
        """Return the current step of the first pass, its done units and all units."""
        return self._progress

    @property
    def waited(self) -> int:
        """Return the seconds since the start of the first pass."""
        return int(time.monotonic() - self._began)

    @property
    def newest(self) -> LedgerSnapshot | None:
        """Return the latest snapshot, or None."""
        return self._snapshot

    def snapshot(self) -> LedgerSnapshot:
        """Return the latest snapshot.

        Raises:
            NothingYet: there is none.
        """
        found = self._snapshot
        if found is None:
            raise NothingYet(self.failure or "the ledger is being read for the first time")
        return found

    def read(self, work: Callable[[LedgerSnapshot], ReadResult]) -> ReadResult:
        """Return the result of ``work`` on the latest snapshot; its errors pass through.

        Compaction deletes merged files, so ``work`` is retried on a newer snapshot.
        """
        for tried in range(READ_TRIES):
            snapshot = self.snapshot()
            try:
                return work(snapshot)
            except (LedgerDamaged, FilesMerged):
                if tried == READ_TRIES - 1 or not self._wait_for_newer(snapshot.serial):
                    raise
        raise AssertionError("unreachable")

    def _wait_for_newer(self, serial: int) -> bool:
        """Wait briefly for a newer snapshot."""
        for _ in range(20):
            if self.snapshot().serial != serial:
                return True
            if self._stop.wait(0.1):
                return False
        return False

    # ---- threads

    def _until_broken(self, work: Callable[[], None]) -> None:
        """Run work to its end; report and store an unexpected error."""
        try:
            work()
        except BaseException as error:
            self.broken = error
            why = f"no longer followed: unexpected {type(error).__name__}: {to_one_line(str(error))[:300]}"
            with self._lock:
                self._failures = {"broken": why, **self._failures}

    def _follow(self) -> None:
        """Derive and audit new rows."""
        while not self._stop.is_set():
            began = time.monotonic()
            with self._failing("follow"):
                watched = self._watch.look(self._progress_of("heights read"), self._progress_of("rows checked"))
                ledger = self._watch.ledger
                if watched is not None and ledger is not None:
                    self._publish(seen=(watched, ledger))
                    self._news.set()
            self._pause(began)

    def _count(self) -> None:
        """Count the figures of the derived rows."""
        from causeway.analysis.stored_figures import FiguresCache, compute_figures

        done: Ledger | None = None
        cache = FiguresCache()
        while not self._stop.is_set():
            self._news.wait()
            self._news.clear()
            if self._seen is None or self._seen[1] is done:
                continue
            (watched, ledger), began = self._seen, time.monotonic()
            try:
                with self._failing("count"):
                    report = self._progress_of("rows counted")
                    figures = compute_figures(ledger, executor="in_process", progress=report, kept=cache)
                    self._publish(figures=(figures, _position_of(watched)))
                    done = ledger
            finally:
                self._pause(began)
                if self._seen[1] is not done:
                    self._news.set()  # rows arrived meanwhile, or files were merged

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
        """Report a failure until the same work succeeds.

        Files merged meanwhile are no failure: the next pass reads the new ones.
        """
        why = None
        try:
            yield
        except (Stopped, FilesMerged):
            return
        except (CausewayError, OSError) as error:
            why = self._missing_reason() or to_one_line(describe_os_error(error) or str(error))[:500]
        with self._lock:
            others = {each: text for each, text in self._failures.items() if each != work}
            self._failures = others if why is None else {**others, work: why}

    def _missing_reason(self) -> str | None:
        """Return a message if the lake or ledger no longer exists, else None."""
        try:
            require_stored(self.place)
            if is_lake(self.place) == (self.opened is not None):
                return None
        except InvalidInput as error:
            return f"{to_one_line(str(error))[:400]}; showing the last data that was read"
        except OSError:
            return None
        now = "a ledger" if self.opened is not None else "a lake"
        return f"{to_one_line(self.place)[:400]}: {now} is there now, another thing than was opened; explore it anew"

    def _progress_of(self, what: str) -> Callable[[int, int], None]:
        def report(done: int, of: int) -> None:
            if self._stop.is_set():
                raise Stopped("stopped")
            if self._snapshot is None:
                self._progress = what, done, of

        return report

    def _pause(self, began: float) -> None:
        took = time.monotonic() - began
        self._stop.wait(max(self._seconds, min(took, LONGEST_PAUSE)))

    def _read_heads(self) -> None:
        """Read the head of the lake, independent of its ledger."""
        while self.opened is not None and not self._stop.is_set():
            with contextlib.suppress(CausewayError, OSError):  # the other thread reports the reason
                self._head = self._read_head(self._reopen_if_replaced(self.opened))
            self._stop.wait(self._seconds)

    def _reopen_if_replaced(self, opened: OpenedLake) -> OpenedLake:
        """Return the lake, reopened if another one replaced it."""
        if Lake.at(self.place).with_identity().identity != opened.lake.identity:
            self.opened = opened = open_lake(self.place, self._sources, ReplayShare())
            self._past.clear()
        return opened

    def _read_head(self, opened: OpenedLake) -> LiveHead:
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


def _position_of(watched: WatchResult) -> int | None:
    return watched.commit if watched.height is None else watched.height


__all__ = ["LedgerSnapshot", "LiveHead", "LiveLedger", "NothingYet"]
