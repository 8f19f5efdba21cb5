"""The summary of a finished run: call outcomes, and the audit of its ledger.

The figures equal those of ``stored_figures``, the verdict that of ``audit.engine``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from causeway.analysis.figures.figures import LedgerFigures
from causeway.analysis.figures.outcomes import calls_by_outcome, dropped_calls, select_kind
from causeway.analysis.selections import choose_session
from causeway.analysis.stored_figures import compute_figures
from causeway.audit.engine import AuditResult
from causeway.audit.json_output import verdicts_to_json
from causeway.audit.stored import audit_ledger
from causeway.audit.verdict import Verdict
from causeway.core.vocabulary import REVERTED
from causeway.ledger.lake.ingest import open_or_derive_ledger
from causeway.ledger.outcomes import OUTCOMES
from causeway.ledger.store import Ledger
from causeway.storage.lake import Lake
from causeway.storage.reorgs import count_reverted, find_reverted
from causeway.storage.table_schemas import TableSchemas


@dataclass(frozen=True)
class RunSummary:
    """The figures and audit of a run's ledger. ``reverted``: rows reverted by forks."""

    figures: LedgerFigures
    audit: AuditResult
    reverted: Mapping[str, int] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the audit."""
        return self.audit.verdict

    @property
    def holds(self) -> bool:
        """Return True unless a guarantee is violated."""
        return self.verdict is not Verdict.FAILED

    @property
    def messages(self) -> int:
        """Return the number of messages between chains."""
        return int(self.figures.totals["between_chains"])

    @property
    def in_flight(self) -> int:
        """Return the number of messages in flight: neither received nor completed."""
        return int(self.figures.totals["in_flight"])

    @property
    def counts(self) -> dict[str, int]:
        """Return the counts of calls by name (``COUNTS``); the outcomes add up to ``sent``."""
        totals, checks = self.figures.totals, self.audit.checks
        requests = select_kind(self.figures.codes, "request")
        calls = calls_by_outcome(self.figures.codes)
        return {
            "sent": sum(calls.values()),
            "received": pc.sum(requests["received"]).as_py() or 0,
            **{each.value: calls.get(each, 0) for each in OUTCOMES},
            "duplicates": checks["exactly_once"].violated,
            "out_of_order": checks["order"].violated,
            "forged": totals["forged"],
            "ingress_refused": totals["refused_from_users"],
            **self.reverted,
        }

    @property
    def dropped_because(self) -> dict[str, int]:
        """Return the number of dropped calls by cause, the most frequent first.

        A call with a dropped answer has the cause of its answer. The numbers add up to the dropped calls.
        """
        return dropped_calls(self.figures.codes)

    def plain(self) -> dict[str, Any]:
        """Return the summary as JSON."""
        return {
            **self.counts,
            "messages": self.messages,
            "in_flight": self.in_flight,
            "dropped_because": self.dropped_because,
            "verdict": self.verdict.value,
            "sentence": self.audit.sentence(),
            "holds": self.holds,
            "checks": verdicts_to_json(self.audit),
        }


@contextmanager
def summarize_run(lake: Lake) -> Iterator[tuple[Ledger, RunSummary]]:
    """Open the ledger of a lake and summarize it.

    Spark counts large ledgers if a session is open.

    Args:
        lake: the lake.

    Yields:
        The ledger and its summary.

    Raises:
        LakeError: nothing is committed.
        LedgerDamaged: a file is corrupted.
        TaskFailed: a Spark task failed.
    """
    with open_or_derive_ledger(lake.storage.uri) as ledger:
        session = choose_session(ledger)
        executor = "in_process" if session is None else "spark"
        figures = compute_figures(ledger, executor=executor, session=session)
        yield (
            ledger,
            RunSummary(figures, audit_ledger(ledger, executor=executor, session=session), _reverted(lake)),
        )


def _reverted(lake: Lake) -> dict[str, int]:
    if REVERTED not in TableSchemas.decoded(lake.about()["tables"]).logs:
        return {}
    return count_reverted(lake, find_reverted(lake, lake.last_manifest()))


__all__ = ["RunSummary", "summarize_run"]
