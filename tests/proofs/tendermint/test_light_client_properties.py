"""The trust rule against its text, for any validators and signers; altered proofs."""

from __future__ import annotations

import functools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import MalformedProof, ProofError
from causeway_proofs.ibc import commitments
from causeway_proofs.ibc.commitments import (
    KeyKind,
    PacketKey,
    PacketV2,
    Payload,
    commit_acknowledgement_v1,
    commit_acknowledgement_v2,
    commit_packet_v1,
    commit_packet_v2,
    packet_receipt_key_v2,
    parse_packet_key_v2,
)
from causeway_proofs.order import group_rows
from causeway_proofs.tendermint.building import create_validators, make_header, sign_header
from causeway_proofs.tendermint.commit import SignedHeader, decode_signed_header, verify_commit
from causeway_proofs.tendermint.errors import InvalidHeader
from causeway_proofs.tendermint.header import SECOND
from causeway_proofs.tendermint.light_client import LightClient, UpdateOutcome, bisect_headers
from causeway_proofs.tendermint.trust import (
    DEPLOYED_RULE,
    REFERENCE_RULE,
    HeaderUpdate,
    TrustAnchor,
    TrustedHeader,
    TrustOptions,
    TrustRule,
    UpdateValidity,
    check_validity,
    decode_header_update,
)
from causeway_proofs.tendermint.validators import SigningKey, ValidatorSet
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import sized

CHAIN = "zone"
NOW = 10**18
PEOPLE = 8
KEYS = [SigningKey.from_name(f"person {number}") for number in range(PEOPLE)]
KEY_OF = {key.public_key.address: key for key in KEYS}
PLACE = {key.public_key.address: place for place, key in enumerate(KEYS)}

powers = st.sampled_from([1, 1, 1, 2, 3, 5, 10**15])
members = st.dictionaries(st.integers(0, PEOPLE - 1), powers, min_size=1)
people = st.sets(st.integers(0, PEOPLE - 1))
RULES = {"reference": REFERENCE_RULE, "deployed": DEPLOYED_RULE}


def set_of(power: dict[int, int]) -> ValidatorSet:
    return create_validators({KEYS[number]: weight for number, weight in power.items()})[0]


def expected_validity(
    rule: str,
    current: dict[int, int],
    following: dict[int, int],
    new: dict[int, int],
    signers: set[int],
    distance: int,
) -> UpdateValidity:
    """IBC reference X-4 in fractions; the deployed rule likewise, from the next validators of the trusted header."""
    trusted = current if rule == "reference" else following

    def share(of: dict[int, int]) -> Fraction:
        return Fraction(sum(of[number] for number in of if number in signers and number in new), sum(of.values()))

    if distance == 1 and new != following:
        return UpdateValidity.FALSE
    if new == trusted:
        return UpdateValidity.TRUE if share(new) > Fraction(2, 3) else UpdateValidity.FALSE
    if rule == "reference":
        new_set_signed, trusted_set_signed = share(new) >= Fraction(2, 3), share(trusted) >= Fraction(2, 3)
    else:
        new_set_signed, trusted_set_signed = share(new) > Fraction(2, 3), share(trusted) > Fraction(1, 3)
    if not new_set_signed:
        return UpdateValidity.FALSE
    if trusted_set_signed:
        return UpdateValidity.TRUE
    return UpdateValidity.FALSE if distance == 1 else UpdateValidity.UNKNOWN


def step_to(
    rule: TrustRule,
    current: dict[int, int],
    following: dict[int, int],
    new: dict[int, int],
    signers: set[int],
    distance: int,
) -> tuple[TrustedHeader, HeaderUpdate]:
    first = make_header(CHAIN, 7, NOW - 100, bytes(32), set_of(current), set_of(following))
    header = make_header(CHAIN, 7 + distance, NOW - 50, bytes(32), set_of(new))
    keys = {KEYS[number].public_key.address: KEYS[number] for number in signers}
    believed = current if rule.anchor is TrustAnchor.CURRENT else following
    update = HeaderUpdate.on(7, set_of(believed), sign_header(header, set_of(new), keys), set_of(new))
    return TrustedHeader.of(first), update


@settings(deadline=None, max_examples=sized(135, 1500), derandomize=True)
@given(
    rule=st.sampled_from(sorted(RULES)),
    current=members,
    change=members,
    kind=st.sampled_from(["same", "mixed", "other"]),
    announced=st.booleans(),
    absent=people,
    distance=st.sampled_from([1, 2, 9]),
)
def test_validity_matches_the_specification(
    rule: str,
    current: dict[int, int],
    change: dict[int, int],
    kind: str,
    announced: bool,
    absent: set[int],
    distance: int,
) -> None:
    new = {"same": current, "mixed": current | change, "other": change}[kind]
    following = new if announced else current
    signers = set(range(PEOPLE)) - absent
    trusted, update = step_to(RULES[rule], current, following, new, signers, distance)
    options = TrustOptions(CHAIN, SECOND, 0, RULES[rule])
    expected = expected_validity(rule, current, following, new, signers, distance)
    assert check_validity(trusted, update, options, NOW) is expected


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("distance", [1, 2])
def test_every_subset_of_signers(rule: str, distance: int) -> None:
    """Two sets of three and four, one person in both powerful: all 64 subsets of signers, around the thirds exactly."""
    current, new = {0: 2, 1: 2, 2: 2}, {0: 2, 1: 2, 3: 1, 4: 1}
    options = TrustOptions(CHAIN, SECOND, 0, RULES[rule])
    seen = set()
    for subset in range(64):
        signers = {number for number in range(6) if subset >> number & 1}
        trusted, update = step_to(RULES[rule], current, new, new, signers, distance)
        verdict = check_validity(trusted, update, options, NOW)
        assert verdict is expected_validity(rule, current, new, new, signers, distance)
        seen.add(verdict)
    assert UpdateValidity.TRUE in seen and UpdateValidity.FALSE in seen


def signed_example() -> tuple[SignedHeader, ValidatorSet]:
    validators = set_of({0: 3, 1: 2, 2: 2, 3: 1})
    header = make_header(CHAIN, 7, NOW, bytes(32), validators)
    keys = {KEYS[number].public_key.address: KEYS[number] for number in (0, 1, 2)}
    return sign_header(header, validators, keys, round=1), validators


def test_any_flipped_bit_of_a_signed_header_is_refused() -> None:
    signed, validators = signed_example()
    data = signed.encode()
    verify_commit(decode_signed_header(data), CHAIN, validators)
    for position in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(ProofError):
            verify_commit(decode_signed_header(bytes(flipped)), CHAIN, validators)


@functools.cache
def right_update() -> tuple[TrustedHeader, bytes, TrustOptions]:
    """Return an encoded valid update, with the client's trust and rule."""
    trusted, update = step_to(REFERENCE_RULE, {0: 1, 1: 1, 2: 1}, {0: 1, 1: 1, 2: 1}, {0: 1, 1: 1, 3: 1}, {0, 1, 3}, 2)
    right, options = update.encode(), TrustOptions(CHAIN, SECOND, 0)
    assert check_validity(trusted, decode_header_update(right), options, NOW) is UpdateValidity.TRUE
    return trusted, right, options


@settings(deadline=None, max_examples=sized(90, 1000), derandomize=True)
@given(data=st.data())
def test_truncated_extended_or_spliced_update_is_refused(data: st.DataObject) -> None:
    trusted, right, options = right_update()
    start = data.draw(st.integers(0, len(right)))
    stop = data.draw(st.integers(start, min(start + 40, len(right))))
    put = data.draw(st.binary(max_size=8) | st.just(right[stop : stop + 34]))
    wrong = right[:start] + put + right[stop:]
    if wrong == right:
        return
    client = LightClient(options, [trusted])
    with pytest.raises(ProofError):
        client.update(decode_header_update(wrong), NOW)
    assert client.heights == (7,) and not client.frozen


@settings(deadline=None, max_examples=sized(18, 200), derandomize=True)
@given(
    sets=st.lists(st.sets(st.integers(0, PEOPLE - 1), min_size=3), min_size=2, max_size=24),
    rule=st.sampled_from(sorted(RULES)),
)
def test_bisection_matches_single_steps(sets: list[set[int]], rule: str) -> None:
    validators = [set_of(dict.fromkeys(sorted(each), 1)) for each in sets]
    signed: list[SignedHeader] = []
    for place, each in enumerate(validators):
        following = validators[min(place + 1, len(validators) - 1)]
        header = make_header(CHAIN, place + 1, NOW + place, bytes([place]) * 32, each, following)
        signed.append(sign_header(header, each, KEY_OF))
    options = TrustOptions(CHAIN, SECOND, SECOND, RULES[rule])
    root_of_trust = TrustedHeader.of(signed[0].header)

    def follow(targets: list[int]) -> LightClient:
        client = LightClient(options, [root_of_trust])
        for target in targets:
            steps = bisect_headers(client, target, NOW)
            try:
                wanted = next(steps)
                while True:
                    believed = validators[min(wanted.validators_height, len(validators)) - 1]
                    to = wanted.height - 1
                    update = HeaderUpdate.on(wanted.trusted_height, believed, signed[to], validators[to])
                    wanted = steps.send(update)
            except StopIteration:
                continue
        return client

    height = len(sets)
    try:
        one_by_one = follow(list(range(2, height + 1)))
    except InvalidHeader:
        # A step to the next height that is impossible; a jump over it may still hold.
        assert rule == "reference"
        return
    at_once = follow([height])
    assert at_once.latest == one_by_one.latest
    assert set(at_once.heights) <= set(one_by_one.heights)
    again = LightClient(options, [at_once.trusted(at_once.heights[-2])])
    base = again.wanted(height)
    believed = validators[min(base.validators_height, height) - 1]
    update = HeaderUpdate.on(base.trusted_height, believed, signed[-1], validators[-1])
    assert again.update(update, NOW).outcome is UpdateOutcome.ADDED


def test_equal_powers_in_another_order_are_the_same_set() -> None:
    power = {number: 1 + number % 3 for number in range(PEOPLE)}
    assert set_of(power).hash == set_of(dict(reversed(power.items()))).hash
    assert [PLACE[each.address] for each in set_of(power).validators][-1] % 3 == 0


u64 = st.integers(0, 2**64 - 1)


@settings(deadline=None, max_examples=sized(27, 300), derandomize=True)
@given(st.lists(st.tuples(u64, u64, u64, st.binary(max_size=70)), min_size=1, max_size=20))
def test_columns_of_packets_v1(packets: list[tuple[int, int, int, bytes]]) -> None:
    time, revision, height = (np.array([packet[place] for packet in packets], dtype=np.uint64) for place in range(3))
    data = pa.array([packet[3] for packet in packets], pa.binary())
    expected = [commit_packet_v1(*packet) for packet in packets]
    assert [row.tobytes() for row in commitments.commit_packets_v1(time, revision, height, data)] == expected
    acknowledgements = [commit_acknowledgement_v1(packet[3]) for packet in packets]
    assert [row.tobytes() for row in commitments.commit_acknowledgements_v1(data)] == acknowledgements


names = st.sampled_from(["transfer", "ics20-1", "07-tendermint-0", "x", ""])
payloads = st.builds(Payload, names, names, names, names, st.binary(max_size=70))
packets_v2 = st.builds(
    PacketV2, st.integers(1, 9), names, names, u64, st.lists(payloads, min_size=1, max_size=4).map(tuple)
)


@settings(deadline=None, max_examples=sized(27, 300), derandomize=True)
@given(st.lists(packets_v2, min_size=1, max_size=12), st.booleans())
def test_columns_of_packets_v2(packets: list[PacketV2], in_dictionaries: bool) -> None:
    rows = [payload for packet in packets for payload in packet.payloads]
    owner = np.repeat(np.arange(len(packets)), [len(packet.payloads) for packet in packets])

    def texts(name: str) -> pa.Array:
        column = pa.array([getattr(row, name) for row in rows])
        return column.dictionary_encode() if in_dictionaries else column

    values = pa.array([row.value for row in rows], pa.binary())
    hashes = commitments.hash_payloads(
        texts("source_port"), texts("destination_port"), texts("version"), texts("encoding"), values
    )
    committed = commitments.commit_packets_v2(
        pa.array([packet.destination_client for packet in packets]),
        np.array([packet.timeout_timestamp for packet in packets], dtype=np.uint64),
        hashes,
        group_rows(owner),
    )
    assert [row.tobytes() for row in committed] == [commit_packet_v2(packet) for packet in packets]
    acknowledged = commitments.commit_acknowledgements_v2(values, group_rows(owner))
    expected = [commit_acknowledgement_v2([payload.value for payload in packet.payloads]) for packet in packets]
    assert [row.tobytes() for row in acknowledged] == expected


@settings(deadline=None, max_examples=sized(45, 500), derandomize=True)
@given(st.text("abcdefXYZ0189._+#[]<>-", min_size=1, max_size=64), st.integers(1, 2**64 - 1))
def test_packet_keys_are_parsed(client: str, sequence: int) -> None:
    key = packet_receipt_key_v2(client, sequence)
    assert parse_packet_key_v2(key) == PacketKey(client, KeyKind.RECEIPT, sequence)
    too_long = b"c" * 129 + key[-9:]
    for wrong in (key[:-9] + b"\x04" + key[-8:], key[-9:], key[:-8] + bytes(8), b":" + key, too_long):
        with pytest.raises(MalformedProof):
            parse_packet_key_v2(wrong)


def test_power_of_a_non_signer_is_not_counted_for_another() -> None:
    """A validator of the trusted set counts by its key, not by its place in the commit."""
    trusted, update = step_to(DEPLOYED_RULE, {0: 1, 1: 1, 2: 1}, {0: 1, 1: 1, 2: 1}, {3: 1, 4: 1, 5: 1}, {3, 4, 5}, 2)
    assert check_validity(trusted, update, TrustOptions(CHAIN, SECOND, 0, DEPLOYED_RULE), NOW) is UpdateValidity.UNKNOWN
    lying = replace(update, trusted_validators=update.validators)
    assert check_validity(trusted, lying, TrustOptions(CHAIN, SECOND, 0, DEPLOYED_RULE), NOW) is UpdateValidity.FALSE
