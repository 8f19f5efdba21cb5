"""Identifiers of the Internet Computer: byte forms, order and texts (IC reference 2.9)."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
from causeway_proofs.ic.primitives import principal_to_text
from causeway_proofs.order import U64

CANISTER_SUFFIX = b"\x01\x01"
TEST_SUBNET_SUFFIX = b"\xfc\x01"
NUMBER_BYTES = 8


def canister_id(number: int) -> bytes:
    """Return the id of canister ``number``: 8 bytes big-endian, then 01 01."""
    return number.to_bytes(8, "big") + CANISTER_SUFFIX


def canister_number(identifier: bytes) -> int:
    """Return the number of a canister from an id of ``canister_id``."""
    return int.from_bytes(identifier[: -len(CANISTER_SUFFIX)], "big")


def subnet_id(number: int) -> bytes:
    """Return the id of test subnet ``number``: 8 bytes little-endian, then fc 01."""
    return number.to_bytes(8, "little") + TEST_SUBNET_SUFFIX


def _number_ids(suffix: bytes, form: str, numbers: U64) -> npt.NDArray[np.uint8]:
    """Return numbers in a byte order (``form``), each with a suffix, uint8, one a row."""
    suffixes = np.tile(np.frombuffer(suffix, dtype=np.uint8), (len(numbers), 1))
    return np.concatenate([numbers.astype(form).view(np.uint8).reshape(-1, NUMBER_BYTES), suffixes], axis=1)


canister_ids = partial(_number_ids, CANISTER_SUFFIX, ">u8")
"""Return the ids of canisters by number, uint8, shape (n, 10)."""

subnet_ids = partial(_number_ids, TEST_SUBNET_SUFFIX, "<u8")
"""Return the ids of test subnets by number, uint8, shape (n, 10)."""


def stream_labels(subnets: U64, substreams: U64, *, flat: bool) -> npt.NDArray[np.uint8]:
    """Return the label of each stream in its state tree, uint8, one a row.

    The label of a flat stream is the id of the destination subnet; a substream appends the id of its canister.

    Args:
        subnets: The numbers of the destination subnets.
        substreams: The numbers of the substreams' canisters.
        flat: True for flat streams.
    """
    labels = subnet_ids(subnets)
    return labels if flat else np.concatenate([labels, canister_ids(substreams)], axis=1)


def subnet_order(numbers: U64) -> U64:
    """Return sort keys in the order of subnets' id bytes: the byte-swapped numbers."""
    return numbers.astype("<u8").byteswap()


def canister_texts(numbers: U64) -> list[str]:
    """Return the principal text of each canister (for few messages)."""
    distinct, inverse = np.unique(numbers, return_inverse=True)
    texts = [principal_to_text(canister_id(int(number))) for number in distinct]
    return [texts[position] for position in inverse]
