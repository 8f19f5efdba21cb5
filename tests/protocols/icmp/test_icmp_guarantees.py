"""Checks of 1.2: each detects its violations and reports "unchecked" for missing rows."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.spec.icmp.events import Consumed, Included, Lists, Queue, RelayRow, Row
from tests.spec.icmp.guarantees import RUNTIME_CHECKS, g4_authenticity
from tests.spec.icmp.history import Finding, Record
from tests.spec.icmp.relay import GENESIS, Mark
from tests.spec.icmp.trie import EMPTY_ROOT
from tests.support.icmp.icmp_networks import started


def build_log() -> list[Row]:
    """Build two blocks with queues for chain 1 (two, then one), a sibling of the last, and their candidate."""
    net, first = started()
    sent = [net.candidate(first, 2, [(1, b"a"), (1, b"b")]), net.candidate(first, 3, [(1, b"c")])]
    a = net.make(first, sent).block.hash
    b = net.make(a, [net.candidate(a, 3, [(1, b"d")])]).block.hash
    net.make(a, [net.candidate(a, 2, [(1, b"e")])], seal=b"fork")
    c = net.make(b).block.hash
    net.make(c, [net.candidate(c, 1)])
    return net.log


def findings(rows: Sequence[Row], status: str = "violated", missing: frozenset[int] = frozenset()) -> list[Finding]:
    return [f for check in RUNTIME_CHECKS for f in check(Record(rows, missing=missing)) if f.status == status]


def replace_row(rows: list[Row], kind: type, which: int, change: Callable[[Row], list[Row]]) -> list[Row]:
    """Replace the n-th row of a kind in the log."""
    at = [i for i, row in enumerate(rows) if isinstance(row, kind)][which]
    return [*rows[:at], *change(rows[at]), *rows[at + 1 :]]


def plant_row(kind: type, which: int, **columns: object) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: replace_row(rows, kind, which, lambda row: [replace(row, **columns)])  # type: ignore[arg-type]


def drop_row(kind: type, which: int) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: replace_row(rows, kind, which, lambda row: [])


def repeat_consumption(rows: list[Row]) -> list[Row]:
    """Add another candidate of chain 1 that consumes the same one block later."""
    last = [row for row in rows if isinstance(row, Included)][-1]
    block = RelayRow(b"next" * 8, last.block, 6)
    after = replace(last, block=block.block, candidate=b"again" * 6, watermark_before=last.watermark_after)
    took = [replace(row, candidate=after.candidate) for row in rows if isinstance(row, Consumed)]
    return [*rows, block, after, *took]


def include_on_fork(rows: list[Row]) -> list[Row]:
    """Include the candidate of chain 1 on the other fork too."""
    last = [row for row in rows if isinstance(row, Included)][-1]
    fork = [row for row in rows if isinstance(row, RelayRow)][4]
    block = RelayRow(b"fork" * 8, fork.block, 4)
    return [*rows, block, replace(last, block=block.block)]


def leak_root(rows: list[Row]) -> list[Row]:
    """Put a root posted on one fork into a list of the other."""
    other = [row for row in rows if isinstance(row, Queue)][-1]
    at = [i for i, row in enumerate(rows) if isinstance(row, Lists) and row.para == 1][-1]
    row = rows[at]
    assert isinstance(row, Lists)
    return [*rows[:at], replace(row, ingress=((3, ((2, other.root),)),)), *rows[at + 1 :]]


def change_list(rows: list[Row], change: Callable[[Lists], Lists]) -> list[Row]:
    """Alter the list of chain 1 with two blocks of entries."""
    wide = [i for i, row in enumerate(rows) if isinstance(row, Lists) and len(row.ingress or ()) == 2]
    row = rows[wide[0]]
    assert isinstance(row, Lists)
    return [*rows[: wide[0]], change(row), *rows[wide[0] + 1 :]]


def empty_ingress(row: Lists) -> Lists:
    assert row.ingress is not None
    return replace(row, ingress=((row.ingress[0][0], ((2, EMPTY_ROOT),)), *row.ingress[1:]))


PLANTED = {
    "G1": plant_row(Consumed, 0, position=9),
    "G1 indices": plant_row(Consumed, 0, index=5),
    "G2": drop_row(Consumed, 2),
    "G2 half a queue": drop_row(Consumed, 1),
    "G3 passed": drop_row(Consumed, 3),
    "G3": repeat_consumption,
    "G4": plant_row(Consumed, 0, payload_hash=b"x" * 32),
    "G4 root": plant_row(Consumed, 2, root=b"x" * 32),
    "G5": plant_row(Included, -1, watermark_before=Mark(9, b"x" * 32)),
    "G5 ancestor": plant_row(Included, -1, watermark_after=Mark(3, b"x" * 32)),
    "G5 fell": plant_row(Included, -1, watermark_after=GENESIS.mark, watermark_before=Mark(1, b"x" * 32)),
    "G5 pending": lambda rows: change_list(rows, lambda row: replace(row, ingress=(row.ingress or ())[1:])),
    "G6": lambda rows: change_list(rows, lambda row: replace(row, ingress=(row.ingress or ())[::-1])),
    "G6 empty": lambda rows: change_list(rows, empty_ingress),
    "G6 union": lambda rows: change_list(rows, lambda row: replace(row, ingress=())),
    "G9": include_on_fork,
    "G9 list": leak_root,
}


def test_honest_log_has_no_violations() -> None:
    assert findings(build_log()) == findings(build_log(), "unchecked") == []
    assert sum(isinstance(row, Consumed) for row in build_log()) == 4


@pytest.mark.parametrize("name", PLANTED)
def test_planted_violations_are_detected(name: str) -> None:
    guarantee = name.split()[0]
    found = [f for f in findings(PLANTED[name](build_log())) if f.guarantee == guarantee]
    assert found, name
    assert all(f.rows for f in found)


def test_31_authenticity_is_unchecked_without_sender_rows() -> None:
    rows = [row for row in build_log() if not isinstance(row, Queue)]
    found = g4_authenticity(Record(rows))
    assert len(found) == 3
    assert {f.status for f in found} == {"unchecked"}


def test_unobserved_chain_is_unchecked() -> None:
    rows = [row for row in build_log() if not isinstance(row, Consumed)]
    assert {f.guarantee for f in findings(rows)} == {"G3"}
    assert findings(rows, missing=frozenset({1})) == []
    assert {f.guarantee for f in findings(rows, "unchecked", frozenset({1}))} == {"G3"}


@pytest.mark.parametrize(("kind", "which"), [(RelayRow, 2), (Lists, 3)])
def test_missing_relay_chain_rows_are_reported(kind: type, which: int) -> None:
    rows = drop_row(kind, which)(build_log())
    assert findings(rows) == []
    assert findings(rows, "unchecked") != []
