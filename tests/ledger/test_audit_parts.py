"""Buckets in parts: each message is in one part, and lane results do not depend on the parts."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.audit.engine import audit_ledger_rows
from causeway.ledger.parts import TablePart, split_runs
from causeway.ledger.row_order import sort_rows
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA
from tests.support.properties.audit_ledgers import table

LANE = {"protocol": "p", "source": "a", "destination": "b", "lane": "1"}


def parts(rows: pa.Table, cut: int) -> list[TablePart]:
    return [TablePart(rows.slice(first, cut)) for first in range(0, rows.num_rows, cut)]


def ledger(rows: list[dict[str, Any]]) -> pa.Table:
    stated = [{**LANE, "kind": "request", "stated_by": "test", **row, "source_row": at} for at, row in enumerate(rows)]
    return table(stated, LEDGER_SCHEMA)


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 1000])
def test_message_is_in_one_run_and_every_row_in_exactly_one(cut: int) -> None:
    random = Random(cut)
    rows = [
        {"lane": random.choice("12"), "index": index, "message_id": random.choice("mn"), "event": event}
        for index in (*range(5), None)
        for event in random.choices(("sent", "received", "received"), k=random.choice((1, 2, 9)))
    ]
    ordered = sort_rows(ledger(rows))
    runs = list(split_runs(parts(ordered, cut)))
    names = ("lane", "index", "message_id", "source_row")
    found = [
        [(row["lane"], row["index"], row["message_id"] if row["index"] is None else None) for row in read]
        for read in (run.read(names).to_pylist() for run in runs)
    ]
    assert all(not set(one) & set(other) for at, one in enumerate(found) for other in found[:at])
    taken = [run.take(("source_row", "index"), np.arange(run.num_rows)[::-1]) for run in runs]
    assert sorted(pa.concat_tables(taken)["source_row"].to_pylist()) == list(range(len(rows)))
    for run, its_rows in zip(runs, taken, strict=True):
        assert its_rows["index"].to_pylist() == run.table["index"].to_pylist()[::-1]
        assert its_rows["source_row"].to_pylist() == run.read(("source_row",))["source_row"].to_pylist()[::-1]
    assert not any(run.scattered for run in runs[:-1])


@pytest.mark.parametrize("seed", range(25))
def test_positions_before_a_part_count(seed: int) -> None:
    random = Random(seed)
    rows = [
        {
            **{"index": index, "event": "sent", "chain": "a", "height": random.choice((None, 1, 1, 2))},
            **{"position": random.choice((None, 1, 2, 3)), "time": random.choice((None, 5, 6, 7))},
        }
        for index in range(8)
    ]
    ordered = sort_rows(ledger(rows))
    observed, promises = OBSERVED_SCHEMA.empty_table(), PROMISES_SCHEMA.empty_table()
    whole = audit_ledger_rows([lambda: ordered], observed, promises)
    for cut in (1, 2, 3):
        found = audit_ledger_rows([lambda cut=cut: parts(ordered, cut)], observed, promises)  # type: ignore[misc]
        assert found.lanes.equals(whole.lanes), cut


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([{"index": 2, "event": "sent"}, {"index": 1, "event": "sent"}], "index"),
        ([{"index": None, "event": "sent"}, {"index": 1, "event": "sent"}], "index"),
        ([{"lane": "2", "index": 1, "event": "sent"}, {"lane": "1", "index": 1, "event": "sent"}], "lane"),
    ],
)
def test_unordered_rows_are_refused(rows: list[dict[str, Any]], what: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{what}: not in the order of the ledger"):
        audit_ledger_rows([lambda: ledger(rows)], OBSERVED_SCHEMA.empty_table(), PROMISES_SCHEMA.empty_table())
