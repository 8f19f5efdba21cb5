"""Functions on Spark DataFrames: ingest, outcomes, audits and figures of recorded messages.

They run in the session of the DataFrame, whoever started it, classic or through Spark Connect:

    from causeway import spark as cs

    found = cs.audit(events, observed=windows)
    found.violations.where("verdict = 'violated'").show()
"""

from causeway.spark.frames import FRAME_TABLES, FrameLedger, LedgerTables, store
from causeway.spark.functions import FrameAudit, audit, backlog, calls, ingest, latency, outcomes, trace
from causeway.spark.source import register_format

__all__ = [
    "FRAME_TABLES",
    "FrameAudit",
    "FrameLedger",
    "LedgerTables",
    "audit",
    "backlog",
    "calls",
    "ingest",
    "latency",
    "outcomes",
    "register_format",
    "store",
    "trace",
]
