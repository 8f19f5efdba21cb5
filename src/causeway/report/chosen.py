"""The messages that a report shows with their journeys: examples of findings, the slowest, the oldest pending."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED
from causeway.ledger.schema import LANE
from causeway.network.ledgers import OpenedLedger
from causeway.network.tracing import life_as_dict
from causeway.pipeline.ledger_passes import Progress
from causeway.pipeline.ledger_search import MessageKey
from causeway.report.checked import worst_and_first
from causeway.report.wording import OF_CHAINS

OF_VERDICT = {VIOLATED: 24, UNKNOWN: 12, NOTED: 6}
OF_REASON, OF_DELAYS = 3, 6
"""Messages that are shown: of the findings of each verdict, of each reason, of each kind of the worst delays."""

_WHY = ("slowest_delivery", "slowest_round_trip", "oldest_pending")

_NO_MESSAGE = ("headers", "watermarks")


def key_of(row: Mapping[str, Any]) -> MessageKey | None:
    """Return which message a row is about; None: about none."""
    if row["index"] is None and row["message_id"] is None:
        return None
    lane = tuple(row[name] for name in LANE)
    return MessageKey(lane, row["index"], row["message_id"] if row["index"] is None else None)


def message_of_finding(row: Mapping[str, Any]) -> MessageKey | None:
    """Return which message a finding is about; None: about a chain or a number of a lane."""
    if row["check"] in _NO_MESSAGE or row["reason"] in OF_CHAINS:
        return None
    return key_of(row)


def chosen_messages(
    opened: OpenedLedger, checks: Sequence[Mapping[str, Any]], worst: pa.Table, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Return the messages with all of their events, and the reasons for which each is shown.

    Args:
        opened: the ledger.
        checks: as of ``checked.checks_data``.
        worst: of ``figures.worst``.
        progress: is called with the number of messages that were looked up, and of all.
    """
    why: dict[MessageKey, list[dict[str, Any]]] = {}
    of_findings = (each for verdict in OF_VERDICT for each in _of_findings(checks, verdict))
    for key, reason in (*of_findings, *_of_delays(worst)):
        why.setdefault(key, []).append(reason)
    if progress is not None:
        progress(0, len(why))
    traced = opened.lives([*why])
    if progress is not None:
        progress(len(why), len(why))
    lives = {MessageKey(life.lane, life.index, _name(life)): life_as_dict(life, traced) for life in traced.lives}
    found = [(key, reasons) for key, reasons in why.items() if key in lives]
    return [
        {"ident": f"message-{number}", "why": reasons, **lives[key]}
        for number, (key, reasons) in enumerate(found, start=1)
    ]


def _name(life: Any) -> str | None:
    return life.message_id if life.index is None else None


def _of_findings(checks: Sequence[Mapping[str, Any]], verdict: str) -> Iterable[tuple[MessageKey, dict[str, Any]]]:
    """Yield the findings of the first screen, then the first example of each reason, the second and so on, up to the
    limit of the verdict."""
    reasons: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    wanted: list[Mapping[str, Any]] = []
    for check in checks:
        own = [row for row in check["examples"] if row["verdict"] == verdict]
        wanted += [row for _, row in worst_and_first(check, verdict)]
        for row in own:
            reasons.setdefault((row["check"], row["reason"]), []).append(row)
    for place in range(OF_REASON):
        wanted += [rows[place] for rows in reasons.values() if place < len(rows)]
    left = OF_VERDICT[verdict]
    for row in {id(row): row for row in wanted}.values():
        key = message_of_finding(row)
        if key is not None and left > 0:
            left -= 1
            yield key, {"kind": verdict, "finding": row}


def _of_delays(worst: pa.Table) -> Iterable[tuple[MessageKey, dict[str, Any]]]:
    for kind in _WHY:
        rows = worst.filter(pc.and_(pc.equal(worst["why"], kind), pc.less_equal(worst["rank"], OF_DELAYS)))
        for row in rows.select([*LANE, "index", "message_id", "rank", "delay", "unit"]).to_pylist():
            key = key_of(row)
            if key is not None:
                yield key, {"kind": kind, "rank": row["rank"], "delay": row["delay"], "unit": row["unit"]}


__all__ = ["OF_DELAYS", "OF_VERDICT", "chosen_messages", "key_of", "message_of_finding"]
