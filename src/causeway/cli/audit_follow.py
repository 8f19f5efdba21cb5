"""``causeway audit --follow``: audit a growing ledger, with a line a change and metrics."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from causeway_proofs.errors import CausewayError, describe_os_error
from rich.markup import escape

from causeway.audit.json_output import check_to_json
from causeway.audit.verdict import Verdict, combine_verdicts
from causeway.cli import shell
from causeway.cli.output.audit import color_verdict, describe_earliest, progress_bar
from causeway.cli.output.progress import stderr_console, stdout_console
from causeway.cli.process import SIGNALS
from causeway.cli.shell import one_line
from causeway.core.text import count_noun, to_one_line

if TYPE_CHECKING:
    from causeway.audit.engine import AuditResult, CheckVerdict
    from causeway.audit.incremental.watch import WatchResult
    from causeway.service.audit_metrics import AuditSnapshot


def follow_audit(
    place: str,
    names: Collection[str],
    *,
    metrics_port: int | None,
    seconds: float,
    limit: int,
    as_json: bool,
    strict: bool,
) -> int:
    """Audit a ledger, or a lake of a running network, after every change until Ctrl-C.

    Args:
        place: path or URI.
        names: names of the selected checks.
        metrics_port: port of the Prometheus metrics, or None.
        seconds: pause between two passes.
        limit: findings to list for each lane, check and reason.
        as_json: print JSON lines.
        strict: as of ``shell.exit_code``.

    Returns:
        The exit code of the last verdict.
    """
    from causeway.audit.incremental.watch import LedgerWatch, Stopped
    from causeway.service.audit_metrics import AuditCollector, take_snapshot
    from causeway.service.http.metrics_port import HOST, serve_metrics

    collector, view = AuditCollector(), _View(place, names, seconds, as_json, strict)

    def take(watched: WatchResult | None) -> None:
        snapshot = None if watched is None else take_snapshot(watched, names)
        collector.show(snapshot)  # the metrics are updated before the line is printed
        view.take(watched, snapshot)

    with (
        _stopping() as stop,
        LedgerWatch(place, limit, stop) as watch,
        serve_metrics(collector, metrics_port) as served,
    ):
        view.began(None if served is None else f"http://{HOST}:{served}/metrics")
        try:
            with progress_bar() as begin:
                found = watch.look(begin("deriving the ledger"), begin("checking"))
            take(found)
            while not stop.wait(seconds):
                try:
                    with progress_bar() as begin:
                        found = watch.look(begin("deriving the ledger"), begin("checking"))
                except Stopped:
                    raise
                except (CausewayError, OSError) as error:
                    collector.failed()
                    view.failed(error)
                else:
                    take(found)
        except Stopped:
            pass
    return view.ended()


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Give an event set by the first Ctrl-C or SIGTERM; a second one ends the process at once."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    for number in SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        restore()


class _View:
    """The output for a person, or for a reader of JSON lines."""

    def __init__(self, place: str, names: Collection[str], seconds: float, as_json: bool, strict: bool) -> None:
        self._place, self._names, self._seconds = place, names, seconds
        self._as_json, self._strict = as_json, strict
        self._before: AuditSnapshot | None = None
        self._audit: AuditResult | None = None
        self._unread: Mapping[int, str] = {}
        self._failure = ""

    def began(self, metrics: str | None) -> None:
        """Print the followed ledger."""
        where = "" if metrics is None else f"; metrics at {metrics}"
        text = f"following {to_one_line(self._place)} every {self._seconds:g} s{where}; Ctrl-C ends it"
        stderr_console().print(escape(text), soft_wrap=True)

    def take(self, watched: WatchResult | None, snapshot: AuditSnapshot | None) -> None:
        """Print changes. ``shown``: the prepared result of a pass."""
        if self._failure:
            self._print_line("can be read again", {"failure": None})
            self._failure = ""
        if watched is None or snapshot is None:
            return
        for bucket, text in watched.unread.items():
            if bucket not in self._unread:
                what = f"bucket {bucket} cannot be read, and counts as it was last read: {to_one_line(text)}"
                self._print_line(f"[yellow]{escape(what)}[/yellow]", {"bucket": bucket, "unread": text})
        for bucket in self._unread:
            if bucket not in watched.unread:
                self._print_line(f"bucket {bucket} can be read again", {"bucket": bucket, "unread": None})
        self._unread = watched.unread
        before = self._before
        if before is None or _line_values(snapshot) != _line_values(before):
            self._print_change(snapshot, before, watched)
        self._before, self._audit = snapshot, watched.audit

    def failed(self, error: Exception) -> None:
        """Print once for each reason that the ledger cannot be read."""
        text = describe_os_error(error) or one_line(error)
        if text != self._failure:
            what = f"cannot be read: {to_one_line(text)}; looking again every {self._seconds:g} s"
            self._print_line(f"[yellow]{escape(what)}[/yellow]", {"failure": text})
        self._failure = text

    def ended(self) -> int:
        """Print a final line, and return the exit code."""
        if self._audit is None or self._before is None:
            shell.print_line("stopped before anything was checked")
            return shell.OK
        checks = self._checks(self._audit)
        verdict = combine_verdicts(checks)
        if verdict is Verdict.NOT_APPLICABLE and not self._before.rows:
            shell.print_line(f"stopped at {_position_text(self._before)}: there was nothing to examine")
            return shell.OK  # an empty ledger
        shell.print_line(
            f"stopped at {_position_text(self._before)}: {self._audit.sentence(*(check.name for check in checks))}"
        )
        return shell.exit_code(verdict, strict=self._strict)

    def _checks(self, audit: AuditResult) -> list[CheckVerdict]:
        return [check for name, check in audit.checks.items() if name in self._names]

    def _print_change(self, snapshot: AuditSnapshot, before: AuditSnapshot | None, watched: WatchResult) -> None:
        checks = self._checks(watched.audit)
        parts = [f"{snapshot.rows:,} rows{_increase_text(snapshot.rows, None if before is None else before.rows)}"]
        named, over = [], []
        for check in checks:
            old = None if before is None else before.totals.get((check.name, "violated"), 0)
            if check.violated:
                named.append(f"{check.name} {check.violated:,}{_increase_text(check.violated, old)}")
            elif old:
                over.append(check.name)
        verdict = color_verdict(combine_verdicts(checks).value)
        parts.append(f"{verdict}: {', '.join(named)}" if named else verdict)
        parts += [f"no longer violated: {', '.join(over)}"] if over else []
        for what in ("unknown", "noted"):
            total = sum(getattr(check, what) for check in checks)
            parts += [f"{what} {total:,}"] if total else []
        if snapshot.quarantined:
            parts.append(f"[yellow]{count_noun(snapshot.quarantined, 'record')} in quarantine[/]")
        waiting = sum(lane.open for lane in snapshot.lanes)
        if waiting:
            ages = [lane.open_age for lane in snapshot.lanes if lane.open_age is not None]
            oldest = f", the oldest for {_age_text(max(ages))}" if ages else ""
            parts.append(f"{waiting:,} open{oldest}")
        self._print_line(f"{_position_text(snapshot)}: {'; '.join(parts)}", self._plain(snapshot, checks))
        for check in checks:
            old = 0 if before is None else before.totals.get((check.name, "violated"), 0)
            if check.violated and not old and check.first is not None and not self._as_json:
                self._print_line(f"  {check.name}: {escape(describe_earliest(check.first))}", {})

    def _plain(self, snapshot: AuditSnapshot, checks: list[CheckVerdict]) -> dict[str, Any]:
        ages = {
            name: [age for lane in snapshot.lanes if (age := getattr(lane, f"{name}_age")) is not None]
            for name in ("open", "unacknowledged")
        }
        backlog = {
            name: {
                "messages": sum(getattr(lane, name) for lane in snapshot.lanes),
                "oldest_seconds": max(ages[name], default=None),
            }
            for name in ages
        }
        return {
            "lake": self._place,
            "commit": snapshot.commit,
            "height": snapshot.height,
            "rows": snapshot.rows,
            "verdict": combine_verdicts(checks).value,
            "holds": combine_verdicts(checks) is not Verdict.FAILED,
            "checks": [check_to_json(check) for check in checks],
            **backlog,
            "one_sided_lanes": snapshot.one_sided,
            "missing": sum(lane.missing for lane in snapshot.lanes),
            "unread_buckets": [*self._unread],
        }

    def _print_line(self, text: str, plain: dict[str, Any]) -> None:
        if self._as_json:
            print(json.dumps(plain), flush=True)
            return
        console = stdout_console()
        console.print(text, soft_wrap=True)
        console.file.flush()


def _line_values(snapshot: AuditSnapshot) -> tuple[Any, ...]:
    """Return the values of a line; a commit that only merges files changes none of them."""
    backlog = [(lane.lane, lane.open, lane.unacknowledged, lane.missing) for lane in snapshot.lanes]
    return snapshot.rows, snapshot.totals, snapshot.examined, snapshot.quarantined, sorted(backlog, key=str)


def _position_text(snapshot: AuditSnapshot) -> str:
    if snapshot.height is not None:
        return f"height {snapshot.height}"
    return "nothing yet" if snapshot.commit < 0 else f"commit {snapshot.commit}"


def _increase_text(now: int, before: int | None) -> str:
    return "" if before is None or now == before else f" ({now - before:+,})"


def _age_text(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:,.0f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"


__all__ = ["follow_audit"]
