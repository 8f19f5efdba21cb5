"""Cycles: amounts of 128 bits, in the two forms in which messages carry them (IC reference 2.9)."""

from __future__ import annotations

from causeway.proofs.ic.cbor import (
    U64_LIMIT,
    U128_LIMIT,
    Fields,
    Item,
    read_item,
    require_same,
    require_unsigned,
    write_item,
)
from causeway.proofs.ic.errors import DecodeError

CYCLES = ("low", "high")
FUNDS = ("cycles", "icp")


def encode_cycles(amount: int) -> bytes:
    """Return the encoding of an amount of cycles (0 to 2^128 - 1).

    Raises:
        EncodeError: it is out of range.
    """
    return write_item(cycles_item(amount, "Cycles"))


def decode_cycles(data: bytes) -> int:
    """Return the amount of cycles that ``data`` encodes.

    Raises:
        DecodeError: it is no canonical encoding of any.
    """
    amount = read_cycles(read_item(data, "Cycles"))
    require_same(data, encode_cycles(amount), "Cycles")
    return amount


def encode_funds(amount: int) -> bytes:
    """Return the encoding of an amount of cycles as messages carried it up to certification version 22.

    Raises:
        EncodeError: it is out of range.
    """
    return write_item(funds_item(amount, "Funds"))


def decode_funds(data: bytes) -> int:
    """Return the amount of cycles in the form of messages up to certification version 22.

    Raises:
        DecodeError: it is no canonical encoding of any.
    """
    amount = read_funds(read_item(data, "Funds"))
    require_same(data, encode_funds(amount), "Funds")
    return amount


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
