"""Transfers declared in receipts of remote domains, and the remaining value per recipient."""

from __future__ import annotations

import numpy as np
import pytest

from causeway.core.frame import Frame, empty_frame
from causeway.protocols.xdm.state import State, state_of_frames
from causeway.protocols.xdm.tables import DECLARED_SCHEMA, DRAWN_SCHEMA
from causeway.protocols.xdm.value.balances import SUMS, ChainSums
from causeway.protocols.xdm.value.books import MAX_BALANCE, CoveredValue, DeclaredValue, TransferRecord, encode_declared

NO_DECLARED, NO_DRAWN = empty_frame(DECLARED_SCHEMA), empty_frame(DRAWN_SCHEMA)
NEAR, FAR, BEYOND = 1, 2, {2, 3}


def declare_transfers(*moves: tuple[int, TransferRecord, int, int]) -> DeclaredValue:
    """Return declarations after receipts: domain, kind, the other chain, amount."""
    found = DeclaredValue(NO_DECLARED, BEYOND)
    for domain, what, foreign, amount in moves:
        found.note(domain, [(what, foreign, amount)])
    return found


def test_only_transfers_between_lakes_and_domains_are_summed() -> None:
    found = declare_transfers(
        (FAR, TransferRecord.OUT, NEAR, 5),
        (FAR, TransferRecord.OUT, 0, 7),
        (FAR, TransferRecord.IN, NEAR, 11),
        (FAR, TransferRecord.CLAIMED, NEAR, 13),
        (NEAR, TransferRecord.REJECTED, FAR, 17),
        (NEAR, TransferRecord.OUT, 4, 19),
        (FAR, TransferRecord.OUT, NEAR, 23),
    ).frame()
    rows = zip(*(found[name].tolist() for name in ("destination", "source", "out_low", "refused_low")), strict=True)
    assert list(rows) == [(NEAR, FAR, 28, 0), (FAR, NEAR, 0, 17)]
    assert not declare_transfers((FAR, TransferRecord.OUT, 0, 7), (NEAR, TransferRecord.OUT, 4, 19)).changed
    entry = encode_declared(found.filter(found["destination"] == NEAR))
    assert entry == (FAR - 1).to_bytes(4, "little") + (28).to_bytes(16, "little") + bytes(16)


def test_remaining_value_is_exact_when_sums_exceed_128_bits() -> None:
    """Totals keep only their lowest bits; in-flight value always fits."""
    after, drawn = declare_transfers((FAR, TransferRecord.OUT, NEAR, MAX_BALANCE)), NO_DRAWN
    cover = CoveredValue(after.frame(), drawn, BEYOND)
    made = cover.after({(NEAR, TransferRecord.IN, FAR): MAX_BALANCE - 5, (NEAR, TransferRecord.REJECTED, FAR): 3})
    assert made is not None
    assert CoveredValue(after.frame(), made, BEYOND).left(NEAR, FAR, TransferRecord.IN) == 2
    after.note(FAR, [(TransferRecord.OUT, NEAR, MAX_BALANCE - 2)])
    cover = CoveredValue(after.frame(), made, BEYOND)
    assert cover.left(NEAR, FAR, TransferRecord.IN) == MAX_BALANCE
    assert cover.left(NEAR, FAR, TransferRecord.CLAIMED) == 0
    assert (
        cover.after(
            {(NEAR, TransferRecord.OUT, FAR): 1, (NEAR, TransferRecord.IN, 4): 1, (NEAR, TransferRecord.IN, 0): 1}
        )
        is None
    )


def empty_state(chain: int) -> State:
    """Return the empty state of one chain."""
    zero = {f"{name}_{half}": np.zeros(1, dtype=np.uint64) for name in SUMS for half in ("high", "low")}
    return state_of_frames({"money": Frame({"chain": np.array([chain], dtype=np.uint32), **zero}, 1)}, {})


@pytest.mark.parametrize("what", [TransferRecord.IN, TransferRecord.CLAIMED])
def test_amounts_accepted_in_a_block_reduce_its_remaining_value(what: TransferRecord) -> None:
    said = declare_transfers((FAR, TransferRecord.OUT, NEAR, 10), (FAR, TransferRecord.REJECTED, NEAR, 10))
    money = ChainSums(empty_state(NEAR), CoveredValue(said.frame(), NO_DRAWN, BEYOND))
    chain, far, home = (np.array([value] * 3, dtype=np.uint32) for value in (NEAR, FAR, 4))
    amounts, zero = np.array([6, 6, 4], dtype=np.uint64), np.zeros(3, dtype=np.uint64)
    assert money.unnoted(what, chain, far, [(amounts, zero)], whole=True).tolist() == [-1, 0, -1]
    assert money.unnoted(what, chain, home, [(amounts, zero)], whole=True).tolist() == [-1, -1, -1]
    assert money.unnoted(TransferRecord.OUT, chain, far, [(amounts, zero)], whole=True).tolist() == [-1, -1, -1]
    money.note_rejected(chain[:1], far[:1], np.array([3], dtype=np.uint64), zero[:1])
    left = [-1, 0, 0] if what == TransferRecord.IN else [-1, 0, -1]
    assert money.unnoted(what, chain, far, [(amounts, zero)], whole=True).tolist() == left
    assert money.close(empty_state(NEAR))[0]["drawn"]["in_low"].tolist() == [3]
