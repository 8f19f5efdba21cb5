"""Identifiers of the Internet Computer: bytes, orders, texts (IC reference 2.9)."""

from __future__ import annotations

import zlib
from base64 import b32decode

import numpy as np
import pytest
from causeway_proofs.ic.primitives import principal_to_text

from causeway.protocols.ic.ids import canister_id, canister_texts, subnet_id, subnet_order


@pytest.mark.parametrize(
    ("number", "text"),
    [
        # Well-known canisters of the network: registry, governance, ledger.
        (0, "rwlgt-iiaaa-aaaaa-aaaaa-cai"),
        (1, "rrkah-fqaaa-aaaaa-aaaaq-cai"),
        (2, "ryjl3-tyaaa-aaaaa-aaaba-cai"),
    ],
)
def test_texts_of_known_canisters(number: int, text: str) -> None:
    assert canister_texts(np.array([number], dtype=np.uint64)) == [text]


def test_management_canister_is_the_empty_principal() -> None:
    assert principal_to_text(b"") == "aaaaa-aa"


@pytest.mark.parametrize("principal", [b"", b"\x04", bytes(range(10)), b"\xff" * 29])
def test_text_is_checksum_and_bytes_in_base32(principal: bytes) -> None:
    text = principal_to_text(principal)
    groups = text.split("-")
    assert all(len(group) == 5 for group in groups[:-1])
    assert text == text.lower()
    letters = "".join(groups).upper()
    decoded = b32decode(letters + "=" * (-len(letters) % 8))
    assert (int.from_bytes(decoded[:4], "big"), decoded[4:]) == (zlib.crc32(principal), principal)


def test_id_bytes() -> None:
    assert canister_id(258) == bytes([0, 0, 0, 0, 0, 0, 1, 2, 1, 1])
    assert subnet_id(258) == bytes([2, 1, 0, 0, 0, 0, 0, 0, 0xFC, 1])
    assert canister_id(2**64 - 1) == b"\xff" * 8 + b"\x01\x01"


def test_subnets_are_ordered_by_bytes_not_by_number() -> None:
    numbers = [0, 1, 2, 255, 256, 257, 65_536, 2**40, 2**64 - 1]
    keys = subnet_order(np.array(numbers, dtype=np.uint64))
    by_key = [numbers[place] for place in np.argsort(keys, kind="stable")]
    assert by_key == sorted(numbers, key=subnet_id)
    assert by_key.index(256) < by_key.index(1)


def test_texts_are_returned_in_request_order() -> None:
    texts = canister_texts(np.array([2, 1, 2], dtype=np.uint64))
    assert texts == ["ryjl3-tyaaa-aaaaa-aaaba-cai", "rrkah-fqaaa-aaaaa-aaaaq-cai", "ryjl3-tyaaa-aaaaa-aaaba-cai"]
