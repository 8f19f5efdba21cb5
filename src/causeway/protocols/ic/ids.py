"""Identifiers of the Internet Computer: byte forms, their order, and principal texts (IC reference 2.9)."""

from __future__ import annotations

import base64
import binascii

import numpy as np

from causeway.model.order import U64

CANISTER_SUFFIX = b"\x01\x01"
TEST_SUBNET_SUFFIX = b"\xfc\x01"


def canister_id(number: int) -> bytes:
    """Return the id of canister ``number``: 8 bytes big-endian, then 01 01."""
    return number.to_bytes(8, "big") + CANISTER_SUFFIX


def subnet_id(number: int) -> bytes:
    """Return the id of test subnet ``number``: 8 bytes little-endian, then fc 01."""
    return number.to_bytes(8, "little") + TEST_SUBNET_SUFFIX


def subnet_order(numbers: U64) -> U64:
    """Return keys that order subnets as their id bytes do: the numbers with their bytes swapped."""
    return numbers.astype("<u8").byteswap()


def principal_text(principal: bytes) -> str:
    """Return the text of a principal: base32 of CRC-32 and bytes, lower case, groups of five joined by dashes."""
    checksum = binascii.crc32(principal).to_bytes(4, "big")
    text = base64.b32encode(checksum + principal).decode().rstrip("=").lower()
    return "-".join(text[start : start + 5] for start in range(0, len(text), 5))


def canister_texts(numbers: U64) -> list[str]:
    """Return the principal text of each canister; meant for the few messages that quote one."""
    distinct, inverse = np.unique(numbers, return_inverse=True)
    texts = [principal_text(canister_id(int(number))) for number in distinct]
    return [texts[position] for position in inverse]
