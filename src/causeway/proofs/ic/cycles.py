"""Cycles: amounts of 128 bits, in the two forms in which messages carry them (IC reference 2.9)."""

from __future__ import annotations

from causeway.proofs.ic.cbor import (
    U64_LIMIT,
    U128_LIMIT,
    Fields,
    Item,
    require_unsigned,
)
from causeway.proofs.ic.errors import DecodeError

CYCLES = ("low", "high")
FUNDS = ("cycles", "icp")


def cycles_item(amount: int, what: str, always_high: bool = False) -> Item:
    """Return an amount as the struct ``Cycles``; the upper half only if it is not zero, or ``always_high``."""
    high, low = divmod(require_unsigned(amount, what, U128_LIMIT), U64_LIMIT)
    return {0: low, 1: high} if high or always_high else {0: low}


def read_cycles(item: Item) -> int:
    """Return the amount in a struct ``Cycles``."""
    fields = Fields(item, "Cycles", CYCLES)
    low = fields.unsigned("low")
    return (fields.optional_unsigned("high") or 0) << 64 | low


def funds_item(amount: int, what: str) -> Item:
    """Return an amount as the struct ``Funds``."""
    return {0: cycles_item(amount, what)}


def read_funds(item: Item) -> int:
    """Return the cycles in a struct ``Funds``; the other currency that it once had must be none."""
    fields = Fields(item, "Funds", FUNDS)
    if "icp" in fields:
        raise DecodeError(f"Funds: field `icp` is populated: {fields.unsigned('icp')}")
    return read_cycles(fields.item("cycles"))
