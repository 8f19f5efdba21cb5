"""Gossip checks: each detects its violations and reports "unchecked" for missing rows."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.spec.icmp.events import Fetch, Got, Heads, Leaf, Lists, Peer, Pool, Queue, Read, Row, Sent
from tests.spec.icmp.gossip_guarantees import GOSSIP_CHECKS, l1_reach, most_accesses
from tests.spec.icmp.gossip_network import GossipNetwork
from tests.spec.icmp.history import Finding, Record
from tests.spec.icmp.options import Options
from tests.support.gossip.icmp_gossip_engines import block, everybody, registered

HOLDERS = {"a": (1,)}


def build_log() -> list[Row]:
    """Build the log of collator a of 1, v, and fetching collator b of 2, with consumption and purge."""
    g = GossipNetwork()
    first = registered(g, 1, 2)
    x = block(g, first, {1: [(2, b"q")]})
    y = block(g, x, {1: [(2, b"r")]})
    top = block(g, y)
    done = block(g, top, consumes=[2])
    for name, paras in (("a", (1,)), ("v", ()), ("b", (2,))):
        g.add(name, *paras)
    g.connect("a", "v")
    g.connect("v", "b")
    everybody(g, "avb", first, x, y)
    everybody(g, "avb", top)
    g.fetch("b", top, 2)
    everybody(g, "avb", done)
    g.run(g.options.purge_interval)
    return g.log


def findings(rows: Sequence[Row], status: str = "violated") -> list[Finding]:
    found = [f for check in GOSSIP_CHECKS for f in check(Record(rows))] + l1_reach(Record(rows), HOLDERS)
    return [f for f in found if f.status == status]


Change = Callable[[list[Row]], list[Row]]
Which = Callable[[Row], bool]


def rows_of(kind: type[Row], rows: list[Row], node: str, which: Which) -> list[int]:
    return [i for i, row in enumerate(rows) if isinstance(row, kind) and row.node == node and which(row)]  # type: ignore[union-attr]


def replace_row(kind: type[Row], node: str, at: int, which: Which = lambda row: True, **columns: object) -> Change:
    """Replace columns of one node's row at a position of its kind."""

    def change(rows: list[Row]) -> list[Row]:
        i = rows_of(kind, rows, node, which)[at]
        return [*rows[:i], replace(rows[i], **columns), *rows[i + 1 :]]  # type: ignore[arg-type]

    return change


def drop_row(kind: type[Row], node: str, at: int, which: Which = lambda row: True) -> Change:
    def change(rows: list[Row]) -> list[Row]:
        i = rows_of(kind, rows, node, which)[at]
        return [*rows[:i], *rows[i + 1 :]]

    return change


def repeat_row(kind: type[Row], node: str, **columns: object) -> Change:
    """Repeat the first row of a kind with other columns right after it."""

    def change(rows: list[Row]) -> list[Row]:
        i = rows_of(kind, rows, node, lambda row: True)[0]
        return [*rows[: i + 1], replace(rows[i], **columns), *rows[i + 1 :]]  # type: ignore[arg-type]

    return change


def is_put(row: Row) -> bool:
    return isinstance(row, Pool) and row.change == "put"


def is_purge(row: Row) -> bool:
    return isinstance(row, Pool) and row.change == "purge"


def add_returned_queue(rows: list[Row]) -> list[Row]:
    """Add v sending a's queue back to a."""
    i = rows_of(Sent, rows, "v", lambda row: True)[0]
    return [*rows[: i + 1], replace(rows[i], peer="a"), *rows[i + 1 :]]  # type: ignore[arg-type]


def truncate_log(rows: list[Row], change: Change) -> list[Row]:
    """Truncate the log at the fetch, while the queue is live everywhere."""
    end = next(i for i, row in enumerate(rows) if isinstance(row, Fetch))
    return change(rows[: end + 1])


MANY = tuple(bytes([i]) * 32 for i in range(6))
PLANTED: dict[str, Change] = {
    "G4 unexpected": replace_row(Pool, "v", 0, is_put, root=b"x" * 32),
    "G4 topic": replace_row(Pool, "v", 0, is_put, topic=b"x" * 32),
    "G4 messages": replace_row(Pool, "v", 0, is_put, messages_hash=b"x" * 32),
    "G7 leaves": replace_row(Leaf, "v", 0, leaves=MANY),
    "G7 heads": repeat_row(Heads, "v", heads=MANY),
    "G7 read": replace_row(Read, "a", -1, block=b"x" * 32),
    "G7 sent": replace_row(Sent, "a", 0, accesses=most_accesses(Options()) + 1),
    "G7 got": replace_row(Got, "v", 0, accesses=most_accesses(Options()) + 1),
    "G7 dead": drop_row(Pool, "v", 0, is_purge),
    "G8 twice": repeat_row(Sent, "a"),
    "G8 back": add_returned_queue,
    "L1 spread": lambda rows: truncate_log(rows, drop_row(Pool, "b", 0, is_put)),
    "L1 holder": lambda rows: truncate_log(rows, lambda rest: [row for row in rest if not is_put(row)]),
    "L2 less": replace_row(Fetch, "b", 0, complete_prefix=()),
    "L2 more": lambda rows: truncate_log(rows, drop_row(Pool, "b", 0, is_put)),
    "L2 wanted": replace_row(Fetch, "b", 0, wanted=(2,)),
}


def test_honest_log_has_no_violations() -> None:
    rows = build_log()
    assert findings(rows) == findings(rows, "unchecked") == []
    assert [most_accesses(Options(ancestors=a)) for a in (0, 1)] == [42, 132]
    assert findings(replace_row(Sent, "a", 0, accesses=42)(rows)) == []
    assert truncate_log(rows, lambda rest: findings(rest)) == []  # type: ignore[arg-type, return-value]
    assert [row.complete_prefix for row in rows if isinstance(row, Fetch)] == [(2, 3)]
    assert sum(is_put(row) for row in rows) == sum(is_purge(row) for row in rows) == 6


@pytest.mark.parametrize("name", PLANTED)
def test_planted_violations_are_detected(name: str) -> None:
    found = [f for f in findings(PLANTED[name](build_log())) if f.guarantee == name.split()[0]]
    assert found, name


def test_new_connection_inherits_no_state() -> None:
    rows = build_log()
    i = rows_of(Sent, rows, "a", lambda row: True)[0]
    first = rows[i]
    between: list[Row] = [Peer("a", "v", 0, "disconnect"), Peer("a", "v", 0, "connect")]
    assert [f for f in findings([*rows[: i + 1], *between, first, *rows[i + 1 :]]) if f.guarantee == "G8"] == []


@pytest.mark.parametrize(("kind", "guarantees"), [(Lists, {"G4", "L1", "L2"}), (Queue, {"G4"})])
def test_missing_rows_are_reported(kind: type, guarantees: set[str]) -> None:
    rows = [row for row in build_log() if not isinstance(row, kind)]
    assert findings(rows) == []
    assert {f.guarantee for f in findings(rows, "unchecked")} == guarantees
