"""``causeway audit --follow``: an audit that goes on as the ledger grows, with a line a change and metrics."""

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
from causeway.audit.verdict import Verdict, combine_verdicts, count_noun
from causeway.cli import shell
from causeway.cli.output.audit import color_verdict, describe_earliest, progress_bar
from causeway.cli.output.progress import stderr_console, stdout_console
from causeway.cli.process import SIGNALS
from causeway.cli.shell import one_line
from causeway.core.text import to_one_line

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
    """Audit a ledger, or a lake that Causeway runs, whenever there is something new, until Ctrl-C.

    ``names``: of the checks that are asked for; ``metrics_port``: where Prometheus is answered; ``seconds``: between
    two looks; ``limit``: findings to name of each lane, check and reason. Returns the exit code of the verdict at the
    end. ``strict``: as of ``shell.code_of``.
    """
    from causeway.audit.incremental.watch import LedgerWatch, Stopped
    from causeway.service.audit_metrics import AuditCollector, take_snapshot
    from causeway.service.http.metrics_port import HOST, serve_metrics

    collector, view = AuditCollector(), _View(place, names, seconds, as_json, strict)

    def take(watched: WatchResult | None) -> None:
        shown = None if watched is None else take_snapshot(watched, names)
        collector.show(shown)  # whoever reads the line finds its metrics
        view.take(watched, shown)

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
    """Give what the first Ctrl-C or SIGTERM sets; a second one ends the process at once."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def asked(number: int, frame: FrameType | None) -> None:
        stop.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    for number in SIGNALS:
        signal.signal(number, asked)
    try:
        yield stop
    finally:
        restore()


class _View:
    """What a person, or a program that reads the lines, is told."""

    def __init__(self, place: str, names: Collection[str], seconds: float, as_json: bool, strict: bool) -> None:
        self._place, self._names, self._seconds = place, names, seconds
        self._as_json, self._strict = as_json, strict
        self._before: AuditSnapshot | None = None
        self._audit: AuditResult | None = None
        self._unread: Mapping[int, str] = {}
        self._failure = ""

    def began(self, metrics: str | None) -> None:
        """Say what is followed."""
        where = "" if metrics is None else f"; metrics at {metrics}"
        text = f"following {to_one_line(self._place)} every {self._seconds:g} s{where}; Ctrl-C ends it"
        stderr_console().print(escape(text), soft_wrap=True)

    def take(self, watched: WatchResult | None, shown: AuditSnapshot | None) -> None:
        """Say what is new. ``shown``: what a look showed, prepared."""
        if self._failure:
            self._say("can be read again", {"failure": None})
            self._failure = ""
        if watched is None or shown is None:
            return
        for bucket, text in watched.unread.items():
            if bucket not in self._unread:
                what = f"bucket {bucket} cannot be read, and counts as it was last read: {to_one_line(text)}"
                self._say(f"[yellow]{escape(what)}[/yellow]", {"bucket": bucket, "unread": text})
        for bucket in self._unread:
            if bucket not in watched.unread:
                self._say(f"bucket {bucket} can be read again", {"bucket": bucket, "unread": None})
        self._unread = watched.unread
        before = self._before
        if before is None or _figures(shown) != _figures(before):
            self._tell(shown, before, watched)
        self._before, self._audit = shown, watched.audit

    def failed(self, error: Exception) -> None:
        """Say that the ledger cannot be read, once for each reason."""
        text = describe_os_error(error) or one_line(error)
        if text != self._failure:
            what = f"cannot be read: {to_one_line(text)}; looking again every {self._seconds:g} s"
            self._say(f"[yellow]{escape(what)}[/yellow]", {"failure": text})
        self._failure = text

    def ended(self) -> int:
        """Say in one line how it was at the end, and return the exit code."""
        if self._audit is None or self._before is None:
            shell.print_line("stopped before anything was checked")
            return shell.OK
        checks = self._checks(self._audit)
        verdict = combine_verdicts(checks)
        if verdict is Verdict.NOT_APPLICABLE and not self._before.rows:
            shell.print_line(f"stopped at {_at(self._before)}: there was nothing to examine")
            return shell.OK  # a ledger that is yet to grow
        shell.print_line(f"stopped at {_at(self._before)}: {self._audit.sentence(*(check.name for check in checks))}")
        return shell.exit_code(verdict, strict=self._strict)

    def _checks(self, audit: AuditResult) -> list[CheckVerdict]:
        return [check for name, check in audit.checks.items() if name in self._names]

    def _tell(self, shown: AuditSnapshot, before: AuditSnapshot | None, watched: WatchResult) -> None:
        checks = self._checks(watched.audit)
        parts = [f"{shown.rows:,} rows{_more(shown.rows, None if before is None else before.rows)}"]
        named, over = [], []
        for check in checks:
            old = None if before is None else before.totals.get((check.name, "violated"), 0)
            if check.violated:
                named.append(f"{check.name} {check.violated:,}{_more(check.violated, old)}")
            elif old:
                over.append(check.name)
        verdict = color_verdict(combine_verdicts(checks).value)
        parts.append(f"{verdict}: {', '.join(named)}" if named else verdict)
        parts += [f"no longer violated: {', '.join(over)}"] if over else []
        for what in ("unknown", "noted"):
            total = sum(getattr(check, what) for check in checks)
            parts += [f"{what} {total:,}"] if total else []
        if shown.quarantined:
            parts.append(f"[yellow]{count_noun(shown.quarantined, 'record')} in quarantine[/]")
        waiting = sum(lane.open for lane in shown.lanes)
        if waiting:
            ages = [lane.open_age for lane in shown.lanes if lane.open_age is not None]
            oldest = f", the oldest for {_age(max(ages))}" if ages else ""
            parts.append(f"{waiting:,} open{oldest}")
        self._say(f"{_at(shown)}: {'; '.join(parts)}", self._plain(shown, checks))
        for check in checks:
            old = 0 if before is None else before.totals.get((check.name, "violated"), 0)
            if check.violated and not old and check.first is not None and not self._as_json:
                self._say(f"  {check.name}: {escape(describe_earliest(check.first))}", {})

    def _plain(self, shown: AuditSnapshot, checks: list[CheckVerdict]) -> dict[str, Any]:
        ages = {
            name: [age for lane in shown.lanes if (age := getattr(lane, f"{name}_age")) is not None]
            for name in ("open", "unacknowledged")
        }
        backlog = {
            name: {
                "messages": sum(getattr(lane, name) for lane in shown.lanes),
                "oldest_seconds": max(ages[name], default=None),
            }
            for name in ages
        }
        return {
            "lake": self._place,
            "commit": shown.commit,
            "height": shown.height,
            "rows": shown.rows,
            "verdict": combine_verdicts(checks).value,
            "holds": combine_verdicts(checks) is not Verdict.FAILED,
            "checks": [check_to_json(check) for check in checks],
            **backlog,
            "one_sided_lanes": shown.one_sided,
            "missing": sum(lane.missing for lane in shown.lanes),
            "unread_buckets": [*self._unread],
        }

    def _say(self, text: str, plain: dict[str, Any]) -> None:
        if self._as_json:
            print(json.dumps(plain), flush=True)
            return
        console = stdout_console()
        console.print(text, soft_wrap=True)
        console.file.flush()


def _figures(shown: AuditSnapshot) -> tuple[Any, ...]:
    """Return what makes a line: a commit that only merges files changes nothing of it."""
    backlog = [(lane.lane, lane.open, lane.unacknowledged, lane.missing) for lane in shown.lanes]
    return shown.rows, shown.totals, shown.examined, shown.quarantined, sorted(backlog, key=str)


def _at(shown: AuditSnapshot) -> str:
    if shown.height is not None:
        return f"height {shown.height}"
    return "nothing yet" if shown.commit < 0 else f"commit {shown.commit}"


def _more(now: int, before: int | None) -> str:
    return "" if before is None or now == before else f" ({now - before:+,})"


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:,.0f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"


__all__ = ["follow_audit"]
