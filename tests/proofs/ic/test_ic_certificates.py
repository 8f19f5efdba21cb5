"""Keys, shares and certificates of any content: valid ones are accepted, altered ones refused."""

from __future__ import annotations

import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.ic import bls
from causeway_proofs.ic.bls import combine, deal, seeded_coefficients
from causeway_proofs.ic.certificate import decode_certificate, decode_ranges, encode_certificate, encode_ranges
from causeway_proofs.ic.certification import RangesForm, certify, delegate, state_tree, verify_certificate
from causeway_proofs.ic.lookup import prune
from causeway_proofs.ic.primitives import decode_leb128, encode_leb128
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.ic.aggregates import aggregate_public_keys, aggregate_signatures, verify_aggregate
from tests.support.ic.ic_certification import CANISTER, RANGES, ROOT, SUBNET, SUBNET_ID, SUBNETS, canister, certificate
from tests.tiers import sized

slow_settings = settings(deadline=None, derandomize=True, max_examples=sized(5, 60))
quick_settings = settings(deadline=None, derandomize=True, max_examples=sized(45, 500))

ids = st.binary(max_size=29)


@slow_settings
@given(
    st.integers(1, 5),
    st.integers(0, 4),
    st.binary(max_size=8),
    st.binary(max_size=40),
    st.randoms(use_true_random=False),
)
def test_any_threshold_of_signers_yields_the_signature_of_the_whole_key(
    threshold: int, others: int, seed: bytes, message: bytes, random: object
) -> None:
    secret = bls.SecretKey.derive(seed)
    dealing = deal(secret, threshold, threshold + others, seeded_coefficients(seed, threshold))
    dealing.key.require_consistent()
    shares = [(index, own.sign(message)) for index, own in enumerate(dealing.secrets, 1)]
    random.shuffle(shares)  # type: ignore[attr-defined]
    signature = dealing.key.combine(shares[:threshold], message)
    assert signature == secret.sign(message) == combine(shares, threshold)
    bls.verify(signature, message, dealing.key.public_key)
    if threshold > 1:
        # One fewer yields a signature of another polynomial.
        with pytest.raises(ProofError):
            bls.verify(combine(shares[: threshold - 1], threshold - 1), message, dealing.key.public_key)


@slow_settings
@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=4), st.binary(max_size=9)), min_size=1, max_size=4, unique=True)
)
def test_aggregates_verify_only_for_their_messages_and_keys(pairs: list[tuple[bytes, bytes]]) -> None:
    secrets = [bls.SecretKey.derive(seed) for seed, _ in pairs]
    messages = [b"%d " % at + message for at, (_, message) in enumerate(pairs)]
    keys = [secret.public_key() for secret in secrets]
    total = aggregate_signatures([secret.sign(message) for secret, message in zip(secrets, messages, strict=True)])
    verify_aggregate(total, messages, keys)
    with pytest.raises(ProofError):
        verify_aggregate(total, [*messages[:-1], b"other"], keys)
    same = aggregate_signatures([secret.sign(b"same") for secret in secrets])
    bls.verify(same, b"same", aggregate_public_keys(keys))


@slow_settings
@given(st.dictionaries(st.binary(min_size=1, max_size=3), st.binary(max_size=5), max_size=5), st.integers(0, 2**64 - 1))
def test_certificate_of_any_state_is_accepted(content: dict[bytes, bytes], time: int) -> None:
    content.pop(b"time", None)
    tree = state_tree({b"content": content}, time)
    delegation = delegate(SUBNETS, SUBNET_ID, time, ROOT.sign)
    pruned = prune(tree, [[b"time"], *([b"content", label] for label in content)])
    data = encode_certificate(certify(pruned, SUBNET.sign, delegation))
    for first, last in RANGES:
        assert decode_certificate(data).delegation == delegation
        found = verify_certificate(data, ROOT.public_key(), canister_id=first, subnet_id=SUBNET_ID)
        assert found.canister_range == (first, last) and found.time == time
        break
    for label, value in content.items():
        assert found.value([b"content", label]) == value
        assert found.explain([b"content", label])[-1].result == ROOT.public_key()


@pytest.mark.parametrize("form", [RangesForm.SUBNET, RangesForm.PIECES])
def test_canister_ranges_include_their_bounds_and_no_more(form: RangesForm) -> None:
    delegation = delegate(SUBNETS, SUBNET_ID, 1, ROOT.sign, form=form, ranges_a_piece=3)
    data = encode_certificate(certify(state_tree({}, 1), SUBNET.sign, delegation))
    inside = [RANGES[0][0], RANGES[0][1], RANGES[3][0], RANGES[-1][1], RANGES[2][0] + b"\0"]
    outside = [canister(99), canister(110), RANGES[0][0][:-1], RANGES[-1][1] + b"\0", b"", CANISTER[:4]]
    for number in inside:
        verify_certificate(data, ROOT.public_key(), canister_id=number)
    for number in outside:
        with pytest.raises(ProofError):
            verify_certificate(data, ROOT.public_key(), canister_id=number)


@settings(deadline=None, derandomize=True, max_examples=sized(27, 300))
@given(st.data())
def test_altered_certificate_is_refused(data: st.DataObject) -> None:
    encoded = certificate()
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    altered = bytearray(encoded)
    altered[bit // 8] ^= 1 << bit % 8
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    longer = encoded + data.draw(st.binary(min_size=1, max_size=3))
    for wrong in (bytes(altered), cut, longer):
        with pytest.raises(ProofError):
            verify_certificate(wrong, ROOT.public_key(), canister_id=CANISTER)


@quick_settings
@given(st.integers(0, 2**64 - 1), st.binary(max_size=12))
def test_leb128_has_one_form(value: int, data: bytes) -> None:
    assert decode_leb128(encode_leb128(value)) == value
    try:
        decoded = decode_leb128(data)
    except ProofError:
        return
    assert encode_leb128(decoded) == data


@quick_settings
@given(st.lists(st.tuples(ids, ids).map(lambda pair: (min(pair), max(pair))), max_size=30))
def test_ranges_round_trip(ranges: list[tuple[bytes, bytes]]) -> None:
    encoded = encode_ranges(ranges)
    assert decode_ranges(encoded) == decode_ranges(encoded[3:]) == tuple(ranges)
    with pytest.raises(ProofError):
        decode_ranges(encoded + b"\0")
