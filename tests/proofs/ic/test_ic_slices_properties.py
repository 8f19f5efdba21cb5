"""Witnesses and slices of any trees and streams: only they have the root of the whole."""

from __future__ import annotations

import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.ic.bls import SecretKey
from causeway_proofs.ic.messages import Data, StreamResponse, encode_stream_message
from causeway_proofs.ic.slice import (
    Certification,
    CertifiedStreamSlice,
    decode_certified_stream,
    decode_certified_stream_slice,
    encode_certified_stream_slice,
)
from causeway_proofs.ic.slice_payload import payload_tree, read_payload
from causeway_proofs.ic.stream_header import RejectReason, RejectSignal, StreamHeader, encode_stream_header
from causeway_proofs.ic.witness import (
    LabeledTree,
    SubTree,
    TreeLeaf,
    decode_labeled_tree,
    decode_witness,
    encode_labeled_tree,
    encode_witness,
    prune_witness,
    recompute_digest,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.oracles.ic.witness_builder import build_witness, digest_tree
from tests.tiers import sized

SETTINGS = settings(max_examples=sized(27, 300), deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
FEW = settings(SETTINGS, max_examples=sized(5, 60))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(changed)


# Trees and witnesses.

LABELS = st.binary(min_size=0, max_size=3)
LEAVES: st.SearchStrategy[LabeledTree] = st.builds(TreeLeaf, st.binary(max_size=5))
TREES: st.SearchStrategy[LabeledTree] = st.recursive(
    LEAVES, lambda below: st.builds(SubTree, st.dictionaries(LABELS, below, max_size=9)), max_leaves=25
)


@st.composite
def trees_and_parts(draw: st.DrawFn) -> tuple[LabeledTree, LabeledTree, LabeledTree]:
    """Return a tree, a part of it, and a part of the part."""
    full = draw(TREES)

    def part_of(tree: LabeledTree) -> LabeledTree:
        if isinstance(tree, TreeLeaf) or not tree.children:
            return tree
        kept = draw(st.sets(st.sampled_from(list(tree.children)), min_size=1))
        return SubTree({label: part_of(tree.children[label]) for label in kept})

    part = part_of(full)
    return full, part, part_of(part)


def without(tree: LabeledTree, taken: LabeledTree) -> LabeledTree | None:
    """Return ``tree`` without the leaves of ``taken``; None if it is empty then."""
    if isinstance(tree, TreeLeaf) or isinstance(taken, TreeLeaf) or not tree.children:
        return None
    left = {
        label: rest
        for label, child in tree.children.items()
        if (rest := without(child, taken.children[label]) if label in taken.children else child) is not None
    }
    return SubTree(left) if left else None


@SETTINGS
@given(trees_and_parts())
def test_witnesses(given_: tuple[LabeledTree, LabeledTree, LabeledTree]) -> None:
    full, part, taken = given_
    digested = digest_tree(full)
    witness = build_witness(digested, part)
    assert recompute_digest(part, witness) == digested.digest
    assert decode_witness(encode_witness(witness)) == witness
    assert decode_labeled_tree(encode_labeled_tree(part)) == part
    rest = without(part, taken)
    pruned = prune_witness(witness, taken)
    if rest is not None:
        assert pruned == build_witness(digested, rest)
        assert recompute_digest(rest, pruned) == digested.digest
    # No other tree matches this witness, and no other witness this root.
    if rest is not None:
        with pytest.raises(ProofError):
            recompute_digest(rest, witness)
    encoded = encode_witness(witness)
    for bit in range(0, 8 * len(encoded), 5):
        with pytest.raises(ProofError):
            require_root(part, flipped(encoded, bit), digested.digest)


class OtherRoot(ProofError):
    """For this test: the root differs."""


def require_root(part: LabeledTree, witness: bytes, root: bytes) -> None:
    if recompute_digest(part, decode_witness(witness)) != root:
        raise OtherRoot


# Slices.

KEY = SecretKey.derive(b"a subnet that certifies the streams of these properties")
OWN = b"\x07" + bytes(7) + b"\xfc\x01"


def certified_slice(begin: int, count: int, first: int, shown: int) -> CertifiedStreamSlice:
    """Return a slice of ``shown`` of the ``count`` messages from index ``begin`` on, the first at ``first``."""
    blobs = {
        begin + place: encode_stream_message(StreamResponse(b"o", b"r", place, place, Data(bytes(place % 5))))
        for place in range(count)
    }
    header = encode_stream_header(StreamHeader(begin, begin + count, 7, (RejectSignal(3, RejectReason.QueueFull),)))
    full = payload_tree(OWN, header, blobs)
    assert isinstance(full, SubTree)
    digested = digest_tree(SubTree({**full.children, b"time": TreeLeaf(b"\x01"), b"metadata": TreeLeaf(b"m")}))
    part = payload_tree(OWN, header, {index: blobs[index] for index in range(first, first + shown)})
    unsigned = Certification(12, digested.digest, b"", signer=b"\x0a\x00")
    signature = KEY.sign(unsigned.signed_bytes())
    certification = Certification(12, digested.digest, signature, signer=b"\x0a\x00")
    return CertifiedStreamSlice(read_payload(part), build_witness(digested, part), certification)


@st.composite
def slices(draw: st.DrawFn) -> CertifiedStreamSlice:
    count = draw(st.integers(1, 20))
    begin = draw(st.integers(0, 30) | st.integers(0, 2**64 - 1 - count))
    skipped = draw(st.integers(0, count))
    return certified_slice(begin, count, begin + skipped, draw(st.integers(0, count - skipped)))


@FEW
@given(slices(), st.integers(0, 21))
def test_slices(whole: CertifiedStreamSlice, count: int) -> None:
    whole.verify_root()
    encoded = encode_certified_stream_slice(whole)
    assert decode_certified_stream_slice(encoded) == whole
    first, rest = whole.take_prefix(count)
    first.verify_root()
    assert decode_certified_stream_slice(encode_certified_stream_slice(first)) == first
    messages = first.payload.messages
    if rest is not None:
        rest.verify_root()
        assert whole.garbage_collect(rest.payload.messages_begin or 0) == rest
        messages += rest.payload.messages
    assert messages == whole.payload.messages


@FEW
@given(slices())
def test_altered_slice_is_refused(whole: CertifiedStreamSlice) -> None:
    encoded = encode_certified_stream_slice(whole)
    # The certification is at the end; root and signature do not cover its height, nor the key's name.
    # No bit of the rest can differ.
    covered = encoded.index(b"\x1a", len(encoded) - 120 - 8)
    for bit in range(0, 8 * covered, 7):
        with pytest.raises(ProofError):
            decode_certified_stream_slice(flipped(encoded, bit)).verify_root()
    for changed in (encoded[:-1], encoded + b"\x00", encoded + encoded, encoded[1:], b""):
        with pytest.raises(ProofError):
            decode_certified_stream_slice(changed)


def test_altered_root_or_signature_is_refused() -> None:
    whole = certified_slice(5, 9, 7, 4)
    encoded = encode_certified_stream_slice(whole)
    decode_certified_stream(OWN, b"", encoded, KEY.public_key())
    for part in (whole.certification.root_hash, whole.certification.signature):
        start = encoded.rindex(part) * 8
        for bit in range(start, start + 8 * len(part), 29):
            with pytest.raises(ProofError):
                decode_certified_stream(OWN, b"", flipped(encoded, bit), KEY.public_key())


def test_swapped_messages_are_refused() -> None:
    whole = certified_slice(5, 9, 5, 9)
    for place in range(8):
        blobs = list(whole.payload.messages)
        blobs[place], blobs[place + 1] = blobs[place + 1], blobs[place]
        tree = payload_tree(OWN, whole.payload.header_bytes, dict(enumerate(blobs, 5)))
        with pytest.raises(ProofError):
            CertifiedStreamSlice(read_payload(tree), whole.witness, whole.certification).verify_root()
