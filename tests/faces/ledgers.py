"""Ledgers on disk with the rows of a test."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from causeway.ledger.row_order import sort_rows
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA, QUARANTINE_SCHEMA
from causeway.ledger.store import LedgerWriter, create_ledger, group_by_bucket
from tests.support.properties.audit_ledgers import table

Row = dict[str, Any]

SECOND = 1_000_000
BEGIN = 1_750_000_000


def store_ledger(
    folder: Path,
    rows: Iterable[Row],
    observed: Iterable[Row] = (),
    promises: Iterable[Row] = (),
    quarantine: Iterable[Row] = (),
) -> str:
    """Write a ledger into a folder; its rows give the columns that differ from null."""
    place = str(folder / "ledger")
    writer = LedgerWriter(create_ledger(place, 2))
    stated = [{"stated_by": "test", "source_row": number, **row} for number, row in enumerate(rows)]
    for bucket, own in group_by_bucket(table(stated, LEDGER_SCHEMA), 2).items():
        writer.write("ledger", sort_rows(own), bucket)
    about = {"stated_by": "test"}
    writer.write("observed", table(({**about, "how": "declared", **row} for row in observed), OBSERVED_SCHEMA))
    writer.write("promises", table(({**about, **row} for row in promises), PROMISES_SCHEMA))
    writer.write("quarantine", table(quarantine, QUARANTINE_SCHEMA))
    writer.commit([], {})
    return place


def both_ends(
    lane: str, source: str, destination: str, index: int, asset: str = "gold", amount: int = 100, after: int = 60
) -> list[Row]:
    """A message of 100 units, of which this amount is received so many seconds later."""
    names = {"protocol": "bridge", "source": source, "destination": destination, "lane": lane, "index": index}
    message = {**names, "kind": "request", "sender": "alice", "receiver": "bob", "asset": asset}
    return [
        {
            **message,
            "event": event,
            "chain": chain,
            "time": (BEGIN + 10 * index + waited) * SECOND,
            "transaction": f"0x{event}{index}",
            "amount": held,
            "payload_hash": hashlib.sha256(str(held).encode()).digest(),
        }
        for event, chain, waited, held in (("sent", source, 0, 100), ("received", destination, after, amount))
    ]
