"""Aggregates of BLS signatures: of one message under many keys, and of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from causeway_proofs.errors import NotProven
from causeway_proofs.ic.bls import _GENERATOR, _hash_to_point, key_point, signature_point
from causeway_proofs.ic.errors import InvalidSignature
from py_arkworks_bls12381 import GT


def aggregate_signatures(signatures: Sequence[bytes]) -> bytes:
    """Return the sum of ``signatures``, one signature of 48 bytes.

    Raises:
        MalformedSignature: one of them is malformed.
        NotProven: there are none, or their sum is the identity.
    """
    return _sum([signature_point(signature) for signature in signatures], "signatures")


def aggregate_public_keys(public_keys: Sequence[bytes]) -> bytes:
    """Return the sum of ``public_keys``, the key of an aggregate of signatures of one message.

    Only for keys whose owners have proved that they hold the secret: whoever may choose a key after seeing the others
    can sign for all of them alone.

    Raises:
        MalformedKey: one of them is malformed.
        NotProven: there are none, or their sum is the identity.
    """
    return _sum([key_point(key) for key in public_keys], "public keys")


def verify_aggregate(signature: bytes, messages: Sequence[bytes], public_keys: Sequence[bytes]) -> None:
    """Return when ``signature`` is the sum of one signature of each message under the key at the same position.

    The messages must differ: that is what keeps a chosen key from cancelling others out.

    Raises:
        MalformedSignature: the signature is malformed.
        MalformedKey: one of the keys is malformed.
        NotProven: there are no messages, not as many as keys, or one of them twice.
        InvalidSignature: the signature is not that sum.
    """
    if len(messages) != len(public_keys):
        raise NotProven(f"{len(messages)} messages under {len(public_keys)} keys: one key a message")
    if not messages or len(set(messages)) != len(messages):
        raise NotProven("an aggregate is over one or more messages, each another")
    point = signature_point(signature)
    keys = [key_point(key) for key in public_keys]
    hashed = [-_hash_to_point(message) for message in messages]
    if not GT.pairing_check([point, *hashed], [_GENERATOR, *keys]):
        raise InvalidSignature(f"the signature {signature.hex()} is not the aggregate of these messages and keys")


def _sum(points: list[Any], what: str) -> bytes:
    if not points:
        raise NotProven(f"an aggregate is over one or more {what}")
    total = points[0]
    for point in points[1:]:
        total = total + point
    if total == type(total).identity():
        raise NotProven(f"the sum of the {what} is the identity: they cancel each other out")
    return cast(bytes, total.to_compressed_bytes())
