"""Restarted heights are detected from two blocks per chain, for any order of parts."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from causeway.audit.engine import audit_table
from causeway.ledger.ingest.ingest import ingest_files
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA
from causeway.ledger.store import open_ledger
from causeway.ledger.windows import HeightBounds, find_restarted_chains
from tests.ledger.ingest.test_ledger_ingest import mapping
from tests.support.properties.audit_ledgers import table


def rows(*blocks: tuple[str | None, int | None, int | None], **changes: Any) -> pa.Table:
    """Return rows of chain, time and height."""
    event = {"protocol": "p", "kind": "request", "event": "sent", "stated_by": "t", **changes}
    return table([{**event, "chain": c, "time": t, "height": h} for c, t, h in blocks], LEDGER_SCHEMA)


def test_latest_block_is_lower_than_the_earliest() -> None:
    up, anew = [("a", 1, 10), ("a", 5, 20)], [("b", 1, 1000), ("b", 5, 3), ("b", 3, 2000)]
    assert find_restarted_chains(rows(*up, *anew)) == ["b"]
    assert find_restarted_chains(rows(("c", 1, 10), ("c", 5, 10))) == []
    # Several rows at one time: the lowest is the earliest, the highest the latest.
    assert find_restarted_chains(rows(("c", 1, 10), ("c", 1, 50), ("c", 5, 2), ("c", 5, 11))) == []
    assert find_restarted_chains(rows(("c", -5, 10), ("c", 1, 2**64 - 1), ("c", 2, 9))) == ["c"]


@pytest.mark.parametrize("changes", [{"revision": 1}, {"event": "observed"}, {"event": "reverted"}], ids=str)
def test_rows_without_a_block_or_with_a_revision_are_ignored(changes: dict[str, Any]) -> None:
    assert find_restarted_chains(rows(("a", 1, 10), ("a", 5, 2), **changes)) == []
    assert find_restarted_chains(rows((None, 1, 10), (None, 5, 2), ("a", None, 3), ("a", 5, 2), ("a", 4, None))) == []


def test_restarts_are_independent_of_part_order() -> None:
    random = Random(5)
    for _ in range(50):
        some = [(random.choice("abc"), random.randrange(6), random.randrange(6)) for _ in range(random.randrange(1, 9))]
        whole = HeightBounds()
        whole.add(rows(*some))
        parts = HeightBounds()
        for block in random.sample(some, len(some)):
            part = HeightBounds()
            part.add(rows(block))
            parts.merge(part)
        assert (parts.first, parts.last) == (whole.first, whole.last)
        expected = {
            chain: (min((t, h) for c, t, h in some if c == chain), max((t, h) for c, t, h in some if c == chain))
            for chain, _, _ in some
        }
        assert whole.restarted() == sorted(c for c, (low, high) in expected.items() if high[1] < low[1])


HEAD = "n,what,who,at,h\n"
OF = mapping(
    fields={
        "protocol": {"text": "p"}, "source": {"text": "a"}, "chain": "who", "index": "n", "height": "h",
        "time": {"column": "at", "unit": "s"},
    },
    deadline=0,
)  # fmt: skip


def promised(lake: str) -> list[tuple[str, str, str]]:
    found = open_ledger(lake).table("promises").to_pylist()
    return [(row["promise"], row["source"], row["stated_by"]) for row in found]


def test_audit_of_rows_detects_a_restart() -> None:
    moved = {"source": "a", "destination": "b", "lane": "l", "index": 1}
    upgraded = pa.concat_tables([rows(("a", 1, 100), **moved), rows(("a", 2, 7), event="committed", **moved)])
    nothing = OBSERVED_SCHEMA.empty_table(), PROMISES_SCHEMA.empty_table()
    assert audit_table(upgraded, *nothing).checks["causality"].reasons == {}
    forked = pa.concat_tables([rows(("a", 1, 100), **moved), rows(("a", 1, 7), event="committed", **moved)])
    assert audit_table(forked, *nothing).checks["causality"].reasons == {("violated", "committed_before_sent"): 1}


def test_commit_records_the_chain_and_later_ones_keep_it(tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", str(tmp_path / "ledger")
    folder.mkdir()
    files = {"a": "1,s,x,100,50\n2,s,y,100,7\n", "b": "3,s,x,200,5\n", "c": "4,s,x,300,90\n5,s,y,200,8\n"}
    expected: list[list[tuple[str, str, str]]] = [[], [("restarted", "x", "t")], [("restarted", "x", "t")]]
    for (name, text), found in zip(files.items(), expected, strict=True):
        (folder / f"{name}.csv").write_text(HEAD + text)
        ingest_files(str(folder), lake, OF)
        assert promised(lake) == found
    # Another mapping does not record it again, and retains it.
    (folder / "d.csv").write_text(HEAD + "6,s,x,400,1\n")
    ingest_files(str(folder), lake, OF.model_copy(update={"stated_by": "other"}))
    assert promised(lake) == [("restarted", "x", "t")]
    assert len(open_ledger(lake).files("state")) == 1


def test_restarts_are_independent_of_file_order(tmp_path: Path) -> None:
    found = []
    for names in ("ab", "ba"):
        folder = tmp_path / names
        folder.mkdir()
        for name, text in zip(names, ("1,s,x,100,50\n", "2,s,x,200,5\n"), strict=True):
            (folder / f"{name}.csv").write_text(HEAD + text)
        ingest_files(str(folder), str(tmp_path / f"{names}-ledger"), OF)
        ledger = open_ledger(str(tmp_path / f"{names}-ledger"))
        found.append((ledger.table("promises"), ledger.table("state")))
    assert found[0] == found[1] and found[0][0].num_rows == 1
