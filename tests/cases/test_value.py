"""Transferred value: deducted fees, other assets and wrong decimals."""

from __future__ import annotations

import pytest

from tests.cases.recorded import MAPPING, NUMBERED, TOGETHER, Case, Judge, Row

CONSERVED = MAPPING + TOGETHER + NUMBERED + '[[promises]]\npromise = "conserved"\n'


def transfer_rows(*amounts: tuple[str, int, str, int]) -> list[Row]:
    """Messages sent with one asset and amount and received with another."""
    rows: list[Row] = []
    for n, (asset, amount, other, came) in enumerate(amounts, start=1):
        rows += [
            ("lock", n, n, {"asset": asset, "amount": amount}),
            ("mint", n, 60 + n, {"asset": other, "amount": came}),
        ]
    return rows


CASES = {
    "what was sent is received": Case("PASSED", 0, {}, transfer_rows(("usdc", 100, "usdc", 100)), mapping=CONSERVED),
    "a fee, another asset, mistaken decimals": Case(
        "FAILED: 3 violations of conservation", 1,
        {"conservation": {"less_received": 1, "asset_differs": 1, "more_received": 1}},
        transfer_rows(
            ("usdc", 10_000, "usdc", 9_940), ("usdc", 5_000, "USDC.e", 4_997), ("usdc", 100, "usdc", 100 * 10**6)
        ),
        mapping=CONSERVED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_value(name: str, judge: Judge) -> None:
    judge.check(CASES[name])
