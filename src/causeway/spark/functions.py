"""Ledgers, figures and audits of DataFrames, of any session: classic, or through Spark Connect.

Each function takes the events of messages, or a ``FrameLedger`` that ``store`` or ``ingest`` has made of them: several
functions of one ledger then write it once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from causeway_proofs.errors import InvalidInput

from causeway.audit.engine import AuditResult, CheckVerdict
from causeway.audit.passes.bucket_pass import LIMIT, require_limit
from causeway.audit.stored import AuditTerms, audit_ledger
from causeway.audit.verdict import Verdict, combine_verdicts
from causeway.cluster.progress import show_progress
from causeway.core.text import count_noun, format_value, suggest_known
from causeway.dataframes.ledger_tables import table_to_dataframe
from causeway.ledger.ingest import mapping_names
from causeway.ledger.ingest.mapping import MappingDocument, load_mapping
from causeway.network.opened_ledger import AuditFindings
from causeway.spark.frames import FRAME_TABLES, FrameLedger, LedgerTables, store, store_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from causeway.analysis.tracing import MessageTrace

__all__ = ["FrameAudit", "audit", "backlog", "calls", "ingest", "latency", "outcomes", "trace"]

_LOGGER = logging.getLogger("causeway.spark")


@dataclass(frozen=True)
class FrameAudit:
    """The audit of a DataFrame, and its tables as DataFrames of the same session.

    Unsigned numbers become decimals.

    Attributes:
        audit: The result, with its tables as Arrow tables.
        session: The session.
    """

    audit: AuditResult
    session: SparkSession

    def __repr__(self) -> str:
        return repr(AuditFindings(self.audit, self.checks))

    def _repr_html_(self) -> str:
        return AuditFindings(self.audit, self.checks)._repr_html_()

    @property
    def checks(self) -> dict[str, CheckVerdict]:
        """The verdict of each check, by name."""
        return self.audit.checks

    @property
    def verdict(self) -> Verdict:
        """The combined verdict of the checks."""
        return combine_verdicts(self.checks.values())

    @property
    def holds(self) -> bool:
        """True unless a check is violated."""
        return self.audit.holds

    @property
    def violations(self) -> DataFrame:
        """The findings."""
        return table_to_dataframe(self.session, self.audit.violations)

    @property
    def completeness(self) -> DataFrame:
        """The coverage of the input."""
        return table_to_dataframe(self.session, self.audit.completeness)

    @property
    def lanes(self) -> DataFrame:
        """The figures of each lane."""
        return table_to_dataframe(self.session, self.audit.lanes)

    @property
    def sums(self) -> DataFrame:
        """The sums of each lane and asset."""
        return table_to_dataframe(self.session, self.audit.sums)

    @property
    def abroad(self) -> DataFrame:
        """The balance of each asset that left its chain: the amounts sent out and returned."""
        return table_to_dataframe(self.session, self.audit.abroad)


def ingest(
    records: DataFrame,
    mapping: MappingDocument | str | os.PathLike[str],
    *,
    buckets: int | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> FrameLedger:
    """Ingest recorded traffic of any columns into a temporary ledger.

    Records that the mapping cannot read go to its table ``quarantine``, with the reason. A warning of the logger
    ``causeway.spark`` counts them, and so does the ``repr`` of the ledger.

    Args:
        records: The records.
        mapping: Their meaning: a mapping, the file of one, or the name of a kind of traffic that ``causeway ingest``
            knows.
        buckets: As in ``LedgerTables``.
        folder: As in ``LedgerTables``.

    Raises:
        InvalidInput: An argument or the mapping is invalid, the records do not fit it or cannot be read, workers do not
            see the folder, or the session was stopped.
        TaskFailed: A Spark task failed.
    """
    with show_progress("ingest"):
        stored = store_records(records, _load_mapping(mapping), buckets=buckets, folder=folder)
    # After the progress line, which would hide it.
    reasons = stored.stored.quarantined()
    if reasons:
        counts = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        _LOGGER.warning("ingest: %s in quarantine: %s", count_noun(sum(reasons.values()), "record"), counts)
    return stored


def _load_mapping(given: object) -> MappingDocument:
    """Return a mapping by its name or file.

    Raises:
        InvalidInput: It is unknown or invalid.
    """
    if isinstance(given, MappingDocument):
        return given
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise InvalidInput(
            f"mapping: {format_value(given)}: must be a MappingDocument, the path of a mapping file, or one of "
            f"{', '.join(mapping_names())}"
        )
    name = os.fspath(given)
    if name in mapping_names():
        return load_mapping(name)
    if "/" not in name and "." not in name and not os.path.exists(name):
        raise InvalidInput(f"mapping: {suggest_known('kind of traffic', name, mapping_names())}")
    return load_mapping("", name)


@show_progress("audit")
def audit(
    ledger: DataFrame | FrameLedger,
    *,
    deadlines: Iterable[str] = (),
    tolerances: Iterable[str] = (),
    limit: int = LIMIT,
    **tables: Unpack[LedgerTables],
) -> FrameAudit:
    """Audit the events of messages, by tasks of their session.

    Args:
        ledger: The events, or a ledger of ``store`` or ``ingest``.
        deadlines: Deadlines such as ``received=1h`` or ``answered=none``, in place of those of ``promises``.
        tolerances: Clock tolerances such as ``2s`` or ``CHAIN=500ms``.
        limit: Number of findings listed for each lane, check and reason; all findings are counted.
        tables: As in ``LedgerTables``.

    Raises:
        InvalidInput: There are no rows; an argument is invalid; a column is missing, or has a wrong type or value; a
            table cannot be read; workers do not see the folder; or the session was stopped.
        TaskFailed: A Spark task failed.
    """
    terms = AuditTerms.of(deadlines, tolerances)
    require_limit(limit)
    if isinstance(ledger, FrameLedger):
        return _audit(_require_alone(ledger, tables), terms, limit)
    with store(ledger, **tables) as stored:
        return _audit(stored, terms, limit)


_EXAMINED = tuple(table for table in FRAME_TABLES if table not in ("observed", "promises"))
"""Tables with rows to examine."""


def _audit(stored: FrameLedger, terms: AuditTerms, limit: int) -> FrameAudit:
    session = stored.session
    if not any(stored.stored.files(table) for table in _EXAMINED):
        raise InvalidInput("ledger: no rows: there is nothing to audit")
    return FrameAudit(audit_ledger(stored.stored, executor="spark", session=session, terms=terms, limit=limit), session)


def outcomes(ledger: DataFrame | FrameLedger, **tables: Unpack[LedgerTables]) -> DataFrame:
    """Return one row a message, with its outcome and delays (``MESSAGES_SCHEMA``).

    The rows are read from the temporary ledger, which the end of this process removes.

    Args:
        ledger: The events, or a ledger of ``store`` or ``ingest``.
        tables: As in ``LedgerTables``.

    Raises:
        InvalidInput: As in ``store``.
        TaskFailed: A Spark task failed.
    """
    stored = _stored(ledger, tables)
    return stored.messages.spark(stored.session)


def calls(ledger: DataFrame | FrameLedger, **tables: Unpack[LedgerTables]) -> DataFrame:
    """Return one row a call, a request sent by a chain; columns as of ``outcomes``.

    Args:
        ledger: The events, or a ledger of ``store`` or ``ingest``.
        tables: As in ``LedgerTables``.

    Raises:
        InvalidInput: As in ``store``.
        TaskFailed: A Spark task failed.
    """
    stored = _stored(ledger, tables)
    return stored.calls.spark(stored.session)


def latency(ledger: DataFrame | FrameLedger, **tables: Unpack[LedgerTables]) -> DataFrame:
    """Return the delays of all messages and of each lane (``LATENCY_SCHEMA``).

    Args:
        ledger: The events, or a ledger of ``store`` or ``ingest``.
        tables: As in ``LedgerTables``.

    Raises:
        InvalidInput: As in ``store``.
        TaskFailed: A Spark task failed.
    """
    stored = _stored(ledger, tables)
    return stored.latency.spark(stored.session)


def backlog(ledger: DataFrame | FrameLedger, **tables: Unpack[LedgerTables]) -> DataFrame:
    """Return the messages sent, received, completed and open over time (``BACKLOG_SCHEMA``).

    Args:
        ledger: The events, or a ledger of ``store`` or ``ingest``.
        tables: As in ``LedgerTables``.

    Raises:
        InvalidInput: As in ``store``.
        TaskFailed: A Spark task failed.
    """
    stored = _stored(ledger, tables)
    return stored.backlog.spark(stored.session)


def trace(ledger: DataFrame | FrameLedger, message: str, **tables: Unpack[LedgerTables]) -> MessageTrace:
    """Return the history of a message and of related messages.

    Args:
        ledger: The events, or a ledger of ``store`` or ``ingest``.
        message: As in ``cw.open(...).trace``: a ``message_id``, lane and index, a journey, or a transaction's hash.
        tables: As in ``LedgerTables``.

    Raises:
        InvalidInput: No message has this name; or as in ``store``.
        SeveralMessages: Several unrelated messages have it.
        TaskFailed: A Spark task failed.
    """
    if isinstance(ledger, FrameLedger):
        return _require_alone(ledger, tables).trace(message)
    with store(ledger, **tables) as stored:
        return stored.trace(message)


def _stored(ledger: DataFrame | FrameLedger, tables: LedgerTables) -> FrameLedger:
    return _require_alone(ledger, tables) if isinstance(ledger, FrameLedger) else store(ledger, **tables)


def _require_alone(ledger: FrameLedger, tables: LedgerTables) -> FrameLedger:
    """Refuse tables beside a stored ledger, which has its own."""
    for name in tables:
        raise InvalidInput(f"{name}: the ledger is stored already; give it to the function that stores it")
    return ledger
