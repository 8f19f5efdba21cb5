"""Existence proofs of the deployed stores, verified off their encoding, one at a time.

Stores write few forms of steps. Where a proof is made of those, all of it in canonical encoding, there is no need to
make messages of it: what must stand before the steps is written down and compared, and the steps are cut out at once.
Whatever is of another form is left to the message, which has every check and says what is wrong.
"""

from __future__ import annotations

import re
from hashlib import sha256

from causeway.proofs.ics23.operations import LOW_EVEN, NUMBER
from causeway.proofs.ics23.proof_specs import SpecRules, StoreForm
from causeway.proofs.limits import MAX_MESSAGE_BYTES
from causeway.proofs.varints import uvarint
from causeway.proofs.wire.ics23_pb2 import ExistenceProof

EXIST = KEY = b"\x0a"
VALUE = b"\x12"
LEAF = b"\x1a"
SIZED_HASH = b"\x20"
"""Length of a hash."""

_SIMPLE_STEPS = re.compile(
    rb"\x22(?:\x27\x08\x01\x12\x01(\x01)\x1a\x20(.{32})|\x25\x08\x01\x12\x21(\x01.{32}))|(.+)", re.DOTALL
).findall
"""Steps with prefix 01: prefix and suffix, or prefix with the left sibling; last, all that is no such step."""

_IAVL_LEAF = re.compile(rb"(.)\x08\x01\x18\x01\x20\x01\x2a(.)(\x00\x02" + NUMBER + rb")", re.DOTALL).match
_IAVL_STEPS = re.compile(
    rb"\x22(.\x08\x01\x12.)(" + LOW_EVEN + NUMBER + rb"{2}\x20)(?:\x1a\x21(\x20.{32})|(.{32}\x20))|(.+)", re.DOTALL
).findall
"""Steps whose height has one byte: lengths, numbers, and suffix, or rest of the prefix; last, all that is none."""

_LONGEST_NUMBERS = 12
"""Bytes of an IAVL step's numbers, and of the length of a hash after them."""

_RIGHT_SIBLING = {bytes([4 + size + 35, 8, 1, 0x12, size]): size for size in range(4, _LONGEST_NUMBERS + 1)}
_LEFT_SIBLING = {bytes([4 + size + 33, 8, 1, 0x12, size + 33]): size for size in range(4, _LONGEST_NUMBERS + 1)}
"""The bytes of a step's numbers by what stands before its prefix, with the sibling on that side."""


def encoded_root(rules: SpecRules, proof: bytes, key: bytes, value: bytes) -> bytes | None:
    """Return the root that an encoded CommitmentProof leads to, if it is one of existence in a store's usual form.

    Where there is a root, every check of ``prove_existence`` passes for the message that ``proof`` encodes, and that
    is its result. None says nothing about the proof but that the message must be asked.
    """
    form = rules.form
    if form is StoreForm.OTHER or not key or not value or len(proof) > MAX_MESSAGE_BYTES:
        return None
    sized = uvarint(len(key)) + key
    claim = KEY + sized + VALUE + uvarint(len(value)) + value + LEAF
    if len(proof) < len(claim):
        return None
    # How many bytes the length of the whole has depends on it: one to 127, two to 16383.
    whole = len(proof) - (2 if len(proof) < 130 else 3 if len(proof) < 16387 else 4)
    head = EXIST + uvarint(whole)
    if len(head) + whole != len(proof) or not proof.startswith(head + claim):
        return None
    at = len(head) + len(claim)
    if form is StoreForm.IAVL:
        return _iavl_root(rules, proof, at, sized, value)
    leaf = rules.encoded_leaf
    if not proof.startswith(leaf, at):
        return None
    steps = _SIMPLE_STEPS(proof, at + len(leaf))
    if not rules.min_depth <= len(steps) <= rules.max_depth:
        return None
    if form is StoreForm.SPARSE:
        node = sha256(b"\x00" + sha256(key).digest() + sha256(value).digest()).digest()
    else:
        node = sha256(b"\x00" + sized + SIZED_HASH + sha256(value).digest()).digest()
    for prefix, suffix, sibling, other in steps:
        if other:
            return None
        node = sha256(prefix + sibling + node + suffix).digest()
    return node


def existence_root(
    rules: SpecRules, proof: ExistenceProof, key: bytes | None = None, value: bytes | None = None
) -> bytes | None:
    """Return the root that the message ``proof`` leads to, for ``key`` and ``value`` (its own by default).

    As ``encoded_root``: encoding a message again takes less time than reading its fields.
    """
    encoded = proof.SerializeToString(deterministic=True)
    key, value = proof.key if key is None else key, proof.value if value is None else value
    return encoded_root(rules, EXIST + uvarint(len(encoded)) + encoded, key, value)


def _iavl_root(rules: SpecRules, proof: bytes, at: int, sized: bytes, value: bytes) -> bytes | None:
    """Return the root; ``at`` is where the leaf operation begins, with its length."""
    leaf = _IAVL_LEAF(proof, at)
    if leaf is None:
        return None
    lengths, numbers = leaf.group(1, 2), leaf.group(3)
    if lengths != (bytes([8 + len(numbers)]), bytes([len(numbers)])):
        return None
    steps = _IAVL_STEPS(proof, leaf.end())
    if not rules.min_depth <= len(steps) <= rules.max_depth:
        return None
    node = sha256(numbers + sized + SIZED_HASH + sha256(value).digest()).digest()
    least_height = 0
    for lengths, numbers, suffix, rest, _ in steps:
        # Zigzag: a height is written as its double.
        least_height += 2
        size = (_RIGHT_SIBLING if suffix else _LEFT_SIBLING).get(lengths)
        if size != len(numbers) or numbers[0] < least_height:
            return None
        node = sha256(numbers + rest + node + suffix).digest()
    return node
