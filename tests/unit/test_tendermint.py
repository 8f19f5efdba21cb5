"""Tendermint headers, commits and light clients, against facts of real chains and one case at a time."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from google.protobuf.timestamp_pb2 import Timestamp

from causeway.commitments.errors import MalformedProof, OverLimit
from causeway.commitments.tendermint.building import CONSENSUS_HASH, make_header, sign_header, validators_of
from causeway.commitments.tendermint.commit import (
    MORE_THAN_TWO_THIRDS,
    Commit,
    CommitSignature,
    Flag,
    SignedHeader,
    Threshold,
    decode_signed_header,
    verify_commit,
    vote_sign_bytes,
)
from causeway.commitments.tendermint.encoding import NO_TIME, SECOND, timestamp
from causeway.commitments.tendermint.errors import (
    ClientExpired,
    ConnectionFrozen,
    DelayNotElapsed,
    InvalidHeader,
    InvalidMisbehaviour,
    MissingHeader,
    NeedIntermediateHeader,
)
from causeway.commitments.tendermint.header import BlockId, Header, revision_of
from causeway.commitments.tendermint.keys import KeyType, PublicKey, SigningKey
from causeway.commitments.tendermint.light_client import LightClient, Outcome, Status, Wanted, bisection
from causeway.commitments.tendermint.rpc import signed_header_from_json, time_from_text, validators_from_json
from causeway.commitments.tendermint.simple_merkle import simple_root
from causeway.commitments.tendermint.trust import (
    DEPLOYED_RULE,
    REFERENCE_RULE,
    TrustedHeader,
    TrustOptions,
    TrustRule,
    deployed_rule,
)
from causeway.commitments.tendermint.update import HeaderUpdate, Misbehaviour, decode_header_update, decode_misbehaviour
from causeway.commitments.tendermint.validators import (
    MAX_TOTAL_POWER,
    Validator,
    ValidatorSet,
    decode_validator_set,
)
from causeway.commitments.wire import tendermint_types_pb2 as wire
from causeway.model.errors import InvalidInput

CHAIN = "zone-1"
START = 1_700_000_000 * SECOND
PERIOD = 1_000 * SECOND
SECP256K1_ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141


def key(number: int) -> SigningKey:
    return SigningKey.from_name(f"validator {number}")


def options(rule: TrustRule = REFERENCE_RULE) -> TrustOptions:
    return TrustOptions(CHAIN, PERIOD, 5 * SECOND, rule)


class Chain:
    """A chain whose validators at each height are given; heights start at 1, a block a second."""

    def __init__(self, sets: list[dict[int, int]], branch: int = 0) -> None:
        made = [validators_of({key(number): power for number, power in members.items()}) for members in sets]
        self.sets = [validators for validators, _ in made]
        self.keys = {address: signer for _, keys in made for address, signer in keys.items()}
        self.signed: list[SignedHeader] = []
        for place, validators in enumerate(self.sets):
            following = self.sets[min(place + 1, len(self.sets) - 1)]
            last = self.signed[-1] if self.signed else None
            root = bytes([branch, place]) * 16
            header = make_header(CHAIN, place + 1, self.time(place + 1), root, validators, following, last)
            self.signed.append(sign_header(header, validators, self.keys))

    @staticmethod
    def time(height: int) -> int:
        return START + height * SECOND

    def header(self, height: int) -> Header:
        return self.signed[height - 1].header

    def update(self, wanted: Wanted) -> HeaderUpdate:
        return HeaderUpdate.on(
            wanted.trusted_height,
            self.sets[wanted.validators_height - 1],
            self.signed[wanted.height - 1],
            self.sets[wanted.height - 1],
        )

    def client(self, rule: TrustRule = REFERENCE_RULE, height: int = 1) -> LightClient:
        return LightClient(options(rule), [TrustedHeader.of(self.header(height))])


NOW = Chain.time(300)


def steady(length: int = 4) -> Chain:
    return Chain([{1: 10, 2: 10, 3: 10, 4: 10}] * length)


# Facts of real chains.


def test_header_hash_of_a_published_header() -> None:
    last = bytes.fromhex("15f15ef50bde2018f4b129a827f90c18222c757770c8295eb8ee7bf50e761bc0")
    parts = bytes.fromhex("077e16d720f9aa656ebfd7f3fb31a4a35e1f2f4ebebb123642bed45535d88ad5")
    validators = bytes.fromhex("26952b5d784a1564d167df98d2d37376b5e77771928256d25e6ff9ae3ad11564")
    header = Header(
        chain_id="test-chain-1",
        height=20,
        time=time_from_text("2030-11-02T15:04:10Z", "time"),
        validators_hash=validators,
        next_validators_hash=validators,
        app_hash=b"app_hash",
        proposer_address=bytes.fromhex("026cc7b6f3e62f789dbecec59766888b5464737d"),
        last_block_id=BlockId(last, 1, parts),
        last_commit_hash=bytes.fromhex("d5439dd65d45ef1e51412691bcf2f6741d48ac1325572e08d48bd72f80669e70"),
        consensus_hash=CONSENSUS_HASH,
        version_block=0,
    )
    assert header.hash.hex() == "680b59cb4663d45502bc7c2263d996d00fa59a2b4813573e42606ae86b45de08"
    earlier = replace(header, time=time_from_text("2019-11-02T15:04:10Z", "time"))
    assert earlier.hash.hex() == "864d4bc459ddedb4bb60cdd2af563ae266e80775c5adc52a9dd767e108cde05f"


def test_consensus_hash_is_that_of_the_deployed_defaults() -> None:
    assert CONSENSUS_HASH.hex() == "048091bc7ddc283f77bfbf91d73c44da58c3df8a9cbc867405d8b7f3daada22f"


def test_validators_hash_of_a_real_set() -> None:
    keys = (
        "6cc181140349de59019737b8cdac7aab0461fb8aa4c6a55bf5b912f48cdb3db7",
        "419899a35f6281f00d9d9724766b188d6f03fd2d0a5ae6914f9344b8f3b2c253",
    )
    validators = ValidatorSet.of(Validator(PublicKey(bytes.fromhex(each)), 5_000_000) for each in reversed(keys))
    assert [validator.address.hex() for validator in validators.validators] == [
        "1b627d5a05e8c137668f1a1a2a6746e436f57440",
        "52f8b9063d03e1cb9e4285c9f184f5fbacc1ae26",
    ]
    assert validators.hash.hex() == "ebf7d584287b9b91c0d328de6094de5f5f94a54f7ef39ab8211db6e17d433d5d"


def test_sign_bytes_of_a_published_vote() -> None:
    expected = "2108021101000000000000001901000000000000002a0b088092b8c398feffffff01"
    assert vote_sign_bytes("", 1, 1, BlockId())(Flag.NIL, NO_TIME).hex() == expected


def test_address_of_a_published_secp256k1_key() -> None:
    public = PublicKey(
        bytes.fromhex("02950e1cdfcb133d6024109fd489f734eeb4502418e538c28481f22bce276f248c"), KeyType.SECP256K1
    )
    digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    number = 0
    for digit in "1CKZ9Nx4zgds8tU7nJHotKSDr4a9bYJCa3":
        number = number * 58 + digits.index(digit)
    assert public.address == number.to_bytes(25, "big")[1:21]


# Encodings.


@pytest.mark.parametrize("round", [0, 1, 2**31 - 1])
@pytest.mark.parametrize("flag", [Flag.COMMIT, Flag.NIL])
def test_sign_bytes_are_the_protobuf_message_with_its_length(flag: Flag, round: int) -> None:
    block = BlockId(b"h" * 32, 3, b"p" * 32)
    vote = wire.CanonicalVote(
        type=wire.SIGNED_MSG_TYPE_PRECOMMIT,
        height=7,
        round=round,
        timestamp=Timestamp(seconds=1_700_000_001, nanos=5),
        chain_id=CHAIN,
    )
    if flag is Flag.COMMIT:
        vote.block_id.hash = block.hash
        vote.block_id.part_set_header.total = 3
        vote.block_id.part_set_header.hash = block.parts_hash
    data = vote.SerializeToString(deterministic=True)
    assert vote_sign_bytes(CHAIN, 7, round, block)(flag, START + SECOND + 5) == bytes([len(data)]) + data


@pytest.mark.parametrize("time", [NO_TIME, -1, 0, 1, SECOND, START + 999_999_999])
def test_times_are_protobuf_timestamps(time: int) -> None:
    message = Timestamp(seconds=time // SECOND, nanos=time % SECOND)
    assert timestamp(time) == message.SerializeToString(deterministic=True)


def test_update_is_written_and_read_back() -> None:
    chain = Chain([{1: 10, 2: 10, 3: 10, 4: 10}, {1: 10, 2: 10, 3: 10, 5: 7}])
    update = chain.update(Wanted(2, 1, 1))
    read = decode_header_update(update.encode())
    assert read.signed_header == update.signed_header
    assert read.validators.validators == update.validators.validators
    assert (read.trusted_revision, read.trusted_height) == (1, 1)
    assert read.encode() == update.encode()


def test_header_must_have_every_part_that_deployed_encoders_write() -> None:
    data = steady(2).signed[1].encode()
    message = wire.SignedHeader.FromString(data)
    message.header.ClearField("version")
    message.header.version.SetInParent()
    assert b"\x0a\x00" in message.SerializeToString()
    for part in ("version", "time", "last_block_id"):
        message = wire.SignedHeader.FromString(data)
        message.header.ClearField(part)
        with pytest.raises(MalformedProof, match=part):
            decode_signed_header(message.SerializeToString(deterministic=True))


@pytest.mark.parametrize(("seconds", "nanos"), [(1, 10**9), (1, -1), (253_402_300_800, 0), (-62_135_596_801, 0)])
def test_time_in_another_form_or_outside_of_the_calendar(seconds: int, nanos: int) -> None:
    message = wire.SignedHeader.FromString(steady(2).signed[1].encode())
    message.header.time.seconds, message.header.time.nanos = seconds, nanos
    with pytest.raises(MalformedProof, match="time of a header"):
        decode_signed_header(message.SerializeToString(deterministic=True))


def test_revision_is_the_number_after_the_last_hyphen() -> None:
    names = {"cosmoshub-4": 4, "simd-2": 2, "zone": 0, "zone-0": 0, "zone-01": 0, "-1": 0, "a--1": 0, "a-b-12": 12}
    assert {name: revision_of(name) for name in names} == names
    assert revision_of(f"a-{2**64}") == 0 and revision_of(f"a-{2**64 - 1}") == 2**64 - 1


# Validator sets and commits.


def test_set_is_ordered_by_power_and_address_and_hashed_without_priority() -> None:
    members = [Validator(key(number).public_key, power) for number, power in ((1, 5), (2, 9), (3, 5), (4, 1))]
    validators = ValidatorSet.of(members)
    assert [validator.power for validator in validators.validators] == [9, 5, 5, 1]
    assert validators.validators[1].address < validators.validators[2].address
    assert validators.hash == ValidatorSet.of(replace(each, proposer_priority=-7) for each in members).hash
    assert validators.hash != ValidatorSet(validators.validators[::-1]).hash


def set_message(**changes: Any) -> bytes:
    message = wire.ValidatorSet.FromString(steady(1).sets[0].encode())
    for name, value in changes.items():
        setattr(message if name == "total_voting_power" else message.validators[0], name, value)
    return message.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"address": b"a" * 20}, "address"),
        ({"voting_power": 0}, "voting_power"),
        ({"voting_power": -1}, "voting_power"),
        ({"voting_power": MAX_TOTAL_POWER}, "power"),
        ({"total_voting_power": 39}, "total_voting_power"),
    ],
)
def test_validator_set_is_malformed(change: dict[str, Any], text: str) -> None:
    with pytest.raises(MalformedProof, match=text):
        decode_validator_set(set_message(**change))


def test_validator_set_may_leave_out_its_sum_but_not_name_one_twice_or_a_stranger() -> None:
    decode_validator_set(set_message(total_voting_power=0))
    message = wire.ValidatorSet.FromString(set_message(total_voting_power=0))
    message.validators.append(message.validators[0])
    with pytest.raises(MalformedProof, match="twice"):
        decode_validator_set(message.SerializeToString(deterministic=True))
    message = wire.ValidatorSet.FromString(set_message())
    message.proposer.voting_power += 1
    with pytest.raises(MalformedProof, match="no member"):
        decode_validator_set(message.SerializeToString(deterministic=True))


def test_more_validators_or_votes_than_are_read() -> None:
    message = wire.ValidatorSet.FromString(set_message())
    message.validators.extend([message.validators[0]] * 9_997)
    with pytest.raises(OverLimit, match="10001"):
        decode_validator_set(message.SerializeToString(deterministic=True))
    with pytest.raises(OverLimit, match="10001"):
        Commit(1, 0, BlockId(b"h" * 32, 1, b"p" * 32), (CommitSignature(Flag.ABSENT),) * 10_001)


def test_threshold_is_exact() -> None:
    huge = 3 * (MAX_TOTAL_POWER // 3)
    assert not MORE_THAN_TWO_THIRDS.is_met(huge // 3 * 2, huge)
    assert MORE_THAN_TWO_THIRDS.is_met(huge // 3 * 2 + 1, huge)
    assert Threshold(2, 3, at_least=True).is_met(huge // 3 * 2, huge)
    assert not Threshold(2, 3, at_least=True).is_met(huge // 3 * 2 - 1, huge)


@pytest.mark.parametrize("level", [(1, 4), (0, 1), (4, 3), (1, 0), (-1, -3)])
def test_trust_level_out_of_range(level: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput, match="trust level"):
        deployed_rule(*level)


def signed_by(present: list[int], nil: tuple[int, ...] = ()) -> tuple[SignedHeader, ValidatorSet]:
    """Return a header of nine validators of equal power, signed by some of them."""
    validators, keys = validators_of({key(number): 1 for number in range(9)})
    header = make_header(CHAIN, 5, START, b"r" * 32, validators)
    voting = {address: each for address, each in keys.items() if each in [key(number) for number in present]}
    nil_addresses = [key(number).public_key.address for number in nil]
    return sign_header(header, validators, voting, nil=nil_addresses), validators


def test_two_thirds_are_not_enough_and_votes_for_no_block_do_not_count() -> None:
    verify_commit(signed_by(list(range(7)))[0], CHAIN, signed_by([])[1])
    verify_commit(signed_by(list(range(9)), nil=(7, 8))[0], CHAIN, signed_by([])[1])
    for present, nil in ((range(6), ()), (range(9), (6, 7, 8)), (range(0), ())):
        signed, validators = signed_by(list(present), nil)
        with pytest.raises(InvalidHeader, match="of 9 of the validators' power signed"):
            verify_commit(signed, CHAIN, validators)


def test_commit_of_another_chain_height_block_or_set() -> None:
    signed, validators = signed_by(list(range(9)))
    other, _ = validators_of({key(number): 2 for number in range(9)})
    changed = replace(signed.header, app_hash=b"s" * 32)
    later = replace(signed.header, height=6)
    for given, chain, members, text in (
        (signed, "zone-2", validators, "chain"),
        (SignedHeader(changed, signed.commit), CHAIN, validators, "commit signs"),
        (SignedHeader(later, signed.commit), CHAIN, validators, "commit is for height 5"),
        (signed, CHAIN, other, "names the validators"),
        (SignedHeader(signed.header, replace(signed.commit, round=1)), CHAIN, validators, "does not hold"),
    ):
        with pytest.raises(InvalidHeader, match=text):
            verify_commit(given, chain, members)


def test_entries_of_a_commit_cannot_change_places_be_repeated_or_left_out() -> None:
    signed, validators = signed_by(list(range(9)))
    entries = signed.commit.signatures
    for changed, text in (
        ((entries[1], entries[0], *entries[2:]), "entry 0"),
        ((entries[0],) * 9, "entry 1"),
        (entries[:8], "8 entries for 9"),
        ((*entries, entries[0]), "10 entries for 9"),
        ((replace(entries[0], signature=entries[1].signature), *entries[1:]), "does not hold"),
        ((replace(entries[0], flag=Flag.NIL), *entries[1:]), "does not hold"),
        ((replace(entries[0], timestamp=START + 1), *entries[1:]), "does not hold"),
    ):
        with pytest.raises(InvalidHeader, match=text):
            verify_commit(SignedHeader(signed.header, replace(signed.commit, signatures=changed)), CHAIN, validators)


def test_secp256k1_validators_sign_with_the_lower_root_only() -> None:
    private = ec.derive_private_key(12345, ec.SECP256K1())
    numbers = private.public_key().public_numbers()
    public = PublicKey(bytes([2 + numbers.y % 2]) + numbers.x.to_bytes(32, "big"), KeyType.SECP256K1)
    r, s = utils.decode_dss_signature(private.sign(b"vote", ec.ECDSA(SHA256())))
    low = min(s, SECP256K1_ORDER - s)
    signature = r.to_bytes(32, "big") + low.to_bytes(32, "big")
    assert public.accepts(signature, b"vote") and not public.accepts(signature, b"note")
    assert not public.accepts(r.to_bytes(32, "big") + (SECP256K1_ORDER - low).to_bytes(32, "big"), b"vote")
    assert not PublicKey(b"\x02" + b"\xff" * 32, KeyType.SECP256K1).accepts(signature, b"vote")
    validators = ValidatorSet.of([Validator(public, 3), Validator(key(1).public_key, 1)])
    assert decode_validator_set(validators.encode()).hash == validators.hash


# The light client.


def test_unchanged_set_is_followed_over_any_distance() -> None:
    chain = steady(200)
    for rule in (REFERENCE_RULE, DEPLOYED_RULE):
        client = chain.client(rule)
        client.update(chain.update(client.wanted(200)), NOW)
        assert list(client.heights) == [1, 200] and client.latest.root == chain.header(200).app_hash
        client.update(chain.update(client.wanted(100)), NOW)
        assert list(client.heights) == [1, 100, 200]


def test_a_high_trust_level_also_binds_an_unchanged_set_that_skips_heights() -> None:
    chain = steady(5)
    voters = dict(list(chain.keys.items())[1:])
    three_of_four = [sign_header(signed.header, chain.sets[0], voters) for signed in chain.signed]
    for level, skips in (((1, 3), True), ((2, 3), True), ((3, 4), False), ((1, 1), False)):
        client = chain.client(deployed_rule(*level))
        skipping = replace(chain.update(client.wanted(5)), signed_header=three_of_four[4])
        if skips:
            client.update(skipping, NOW)
            continue
        with pytest.raises(NeedIntermediateHeader, match="30 of 40 of the power trusted at height 1 signed"):
            client.update(skipping, NOW)
        # To the next height, the validators that were named answer for themselves.
        client.update(replace(chain.update(client.wanted(2)), signed_header=three_of_four[1]), NOW)


def test_third_of_the_set_can_be_skipped_over_more_needs_a_header_between() -> None:
    chain = Chain([{1: 1, 2: 1, 3: 1}, {1: 1, 2: 1, 4: 1}, {1: 1, 4: 1, 5: 1}, {4: 1, 5: 1, 6: 1}])
    client = chain.client()
    with pytest.raises(NeedIntermediateHeader) as caught:
        client.update(chain.update(client.wanted(4)), NOW)
    assert (caught.value.trusted_height, caught.value.height) == (1, 2)
    assert list(client.heights) == [1]
    client.update(chain.update(client.wanted(2)), NOW)
    assert list(client.heights) == [1, 2]


def fetch_all(chain: Chain, client: LightClient, target: int) -> int:
    steps = bisection(client, target, NOW)
    wanted = next(steps)
    while True:
        try:
            wanted = steps.send(chain.update(wanted))
        except StopIteration as done:
            return int(done.value)


@pytest.mark.parametrize("rule", [REFERENCE_RULE, DEPLOYED_RULE])
def test_bisection_arrives_where_every_block_changes_a_validator(rule: TrustRule) -> None:
    chain = Chain([dict.fromkeys(range(place, place + 8), 10) for place in range(64)])
    client = chain.client(rule)
    tried = fetch_all(chain, client, 64)
    assert client.latest.header_hash == chain.header(64).hash
    # 2 of 8 validators may go in a step by the reference, 5 by the deployed rule.
    assert 63 // 6 < len(client.heights) <= 64 and tried < 128
    assert fetch_to_known(client) == 0


def fetch_to_known(client: LightClient) -> int:
    with pytest.raises(StopIteration) as done:
        next(bisection(client, 64, NOW))
    return int(done.value.value)


def test_set_replaced_in_one_step_with_new_signatures_only() -> None:
    chain = Chain([{1: 1, 2: 1}, {1: 1, 2: 1}, {3: 1, 4: 1}, {3: 1, 4: 1}])
    for rule in (REFERENCE_RULE, DEPLOYED_RULE):
        client = chain.client(rule)
        with pytest.raises(NeedIntermediateHeader):
            client.update(chain.update(client.wanted(4)), NOW)
    # By the reference no step leads there; by the deployed rule the old set has named the new one.
    with pytest.raises(InvalidHeader, match="no height between"):
        fetch_all(chain, chain.client(REFERENCE_RULE), 4)
    client = chain.client(DEPLOYED_RULE)
    fetch_all(chain, client, 4)
    assert list(client.heights) == [1, 2, 4]


def test_set_replaced_without_being_named() -> None:
    honest = steady(3)
    usurpers, keys = validators_of({key(50): 10, key(51): 10})
    header = make_header(CHAIN, 2, Chain.time(2), b"x" * 32, usurpers)
    signed = sign_header(header, usurpers, keys)
    for rule in (REFERENCE_RULE, DEPLOYED_RULE):
        with pytest.raises(InvalidHeader, match="not those that the trusted header before names"):
            honest.client(rule).update(HeaderUpdate.on(1, honest.sets[0], signed, usurpers), NOW)
        with pytest.raises(InvalidHeader, match="trusted validators hash"):
            honest.client(rule).update(HeaderUpdate.on(1, usurpers, signed, usurpers), NOW)


def test_expired_header_is_unusable() -> None:
    chain = steady(3)
    over = chain.time(1) + PERIOD
    client = chain.client()
    client.update(chain.update(Wanted(2, 1, 1)), over - 1)
    with pytest.raises(ClientExpired):
        client.update(chain.update(Wanted(3, 1, 1)), over)
    client.update(chain.update(Wanted(3, 2, 2)), over)
    assert client.status(chain.time(3) + PERIOD) is Status.EXPIRED
    with pytest.raises(ClientExpired):
        client.root(3, chain.time(3) + PERIOD)
    assert client.prune(over) == (1,) and list(client.heights) == [2, 3]
    assert client.prune(2 * over) == (2,) and list(client.heights) == [3]


def test_header_from_the_future() -> None:
    chain = steady(3)
    client = chain.client()
    with pytest.raises(InvalidHeader, match="ahead"):
        client.update(chain.update(Wanted(3, 1, 1)), chain.time(3) - 5 * SECOND)
    client.update(chain.update(Wanted(3, 1, 1)), chain.time(3) - 5 * SECOND + 1)


def test_header_that_is_not_later_than_the_trusted_one() -> None:
    chain = steady(2)
    for time, holds in ((chain.time(1) + 1, True), (chain.time(1), False), (chain.time(1) - 1, False)):
        signed = sign_header(replace(chain.header(2), time=time), chain.sets[1], chain.keys)
        update = replace(chain.update(Wanted(2, 1, 1)), signed_header=signed)
        if holds:
            chain.client().update(update, NOW)
        else:
            with pytest.raises(InvalidHeader, match="is not after"):
                chain.client().update(update, NOW)


def test_lower_height_missing_height_and_other_revision() -> None:
    chain = steady(3)
    client = chain.client(height=2)
    for wanted, error in ((Wanted(1, 2, 2), InvalidHeader), (Wanted(3, 1, 1), MissingHeader)):
        with pytest.raises(error):
            client.update(chain.update(wanted), NOW)
    with pytest.raises(InvalidHeader, match="2-2"):
        client.update(replace(chain.update(Wanted(3, 2, 2)), trusted_revision=2), NOW)
    with pytest.raises(MissingHeader):
        client.wanted(2)


def test_proofs_wait_for_the_delay() -> None:
    chain = steady(2)
    client = chain.client()
    client.update(chain.update(Wanted(2, 1, 1)), NOW, block_height=70)
    assert client.root(2, NOW) == chain.header(2).app_hash
    assert client.root(2, NOW + 9, delay=9, block_height=73, block_delay=3) == chain.header(2).app_hash
    with pytest.raises(DelayNotElapsed):
        client.root(2, NOW + 8, delay=9)
    with pytest.raises(DelayNotElapsed):
        client.root(2, NOW + 9, delay=9, block_height=72, block_delay=3)
    with pytest.raises(MissingHeader):
        client.root(3, NOW)


def test_two_headers_for_one_height_freeze_the_client() -> None:
    chain, fork = steady(3), Chain([{1: 10, 2: 10, 3: 10, 4: 10}] * 3, branch=1)
    client = chain.client()
    client.update(chain.update(Wanted(3, 1, 1)), NOW)
    updated = client.update(fork.update(Wanted(3, 1, 1)), NOW)
    assert updated.outcome is Outcome.FROZEN and client.frozen
    assert client.trusted(3).root == chain.header(3).app_hash
    for refused in (
        lambda: client.update(chain.update(Wanted(2, 1, 1)), NOW),
        lambda: client.root(3, NOW),
        lambda: client.require_active(NOW),
    ):
        with pytest.raises(ConnectionFrozen):
            refused()


def test_header_whose_time_does_not_lie_between_its_neighbours_freezes_the_client() -> None:
    chain = steady(4)
    client = chain.client()
    client.update(chain.update(Wanted(4, 1, 1)), NOW)
    late = replace(chain.header(2), time=chain.time(4))
    update = replace(chain.update(Wanted(2, 1, 1)), signed_header=sign_header(late, chain.sets[1], chain.keys))
    assert client.update(update, NOW).outcome is Outcome.FROZEN


def test_misbehaviour_freezes_and_what_is_none_does_not() -> None:
    chain, fork = steady(3), Chain([{1: 10, 2: 10, 3: 10, 4: 10}] * 3, branch=1)
    here, there = chain.update(Wanted(3, 1, 1)), fork.update(Wanted(3, 1, 1))
    client = chain.client()
    for misbehaviour in (
        Misbehaviour(here, here),
        Misbehaviour(here, chain.update(Wanted(2, 1, 1))),
        Misbehaviour(chain.update(Wanted(2, 1, 1)), here),
    ):
        with pytest.raises(InvalidMisbehaviour):
            client.submit_misbehaviour(misbehaviour, NOW)
    weak = sign_header(fork.header(3), fork.sets[2], dict(list(fork.keys.items())[:2]))
    with pytest.raises(InvalidHeader):
        client.submit_misbehaviour(Misbehaviour(here, replace(there, signed_header=weak)), NOW)
    with pytest.raises(ClientExpired):
        client.submit_misbehaviour(Misbehaviour(here, there), chain.time(1) + PERIOD)
    assert not client.frozen
    for misbehaviour in (Misbehaviour(here, there), earlier_but_higher(chain)):
        frozen = client.copy()
        read = decode_misbehaviour(misbehaviour.encode())
        assert read.encode() == misbehaviour.encode()
        frozen.submit_misbehaviour(read, NOW)
        assert frozen.frozen and not client.frozen
        with pytest.raises(ConnectionFrozen):
            frozen.submit_misbehaviour(misbehaviour, NOW)


def earlier_but_higher(chain: Chain) -> Misbehaviour:
    early = sign_header(replace(chain.header(3), time=chain.time(2)), chain.sets[2], chain.keys)
    return Misbehaviour(replace(chain.update(Wanted(3, 1, 1)), signed_header=early), chain.update(Wanted(2, 1, 1)))


def test_bisection_takes_no_other_header_than_the_one_it_wants() -> None:
    chain = steady(3)
    steps = bisection(chain.client(), 3, NOW)
    assert next(steps) == Wanted(3, 1, 1)
    with pytest.raises(InvalidHeader, match="wanted"):
        steps.send(chain.update(Wanted(2, 1, 1)))


def test_client_without_a_root_of_trust() -> None:
    with pytest.raises(InvalidInput, match="no header"):
        LightClient(options(), [])


# JSON of nodes.


def as_json(signed: SignedHeader, validators: ValidatorSet) -> tuple[Any, Any]:
    header, commit = signed.header, signed.commit

    def hexadecimal(value: bytes) -> str:
        return value.hex().upper()

    def block_id(value: BlockId) -> Any:
        parts = {"total": value.part_count, "hash": hexadecimal(value.parts_hash)}
        return {"hash": hexadecimal(value.hash), "parts": parts}

    names = ["last_commit_hash", "data_hash", "validators_hash", "next_validators_hash", "consensus_hash", "app_hash"]
    names += ["last_results_hash", "evidence_hash", "proposer_address"]
    return {
        "header": {
            "version": {"block": "11"},
            "chain_id": header.chain_id,
            "height": str(header.height),
            "time": "2023-11-14T22:13:22.000000000Z",
            "last_block_id": block_id(header.last_block_id),
            **{name: hexadecimal(getattr(header, name)) for name in names},
        },
        "commit": {
            "height": str(commit.height),
            "round": commit.round,
            "block_id": block_id(commit.block_id),
            "signatures": [
                {
                    "block_id_flag": int(entry.flag),
                    "validator_address": hexadecimal(entry.validator_address),
                    "timestamp": "2023-11-14T22:13:22Z" if entry.signature else "0001-01-01T00:00:00Z",
                    "signature": base64.b64encode(entry.signature).decode() if entry.signature else None,
                }
                for entry in commit.signatures
            ],
        },
    }, [
        {
            "address": hexadecimal(each.address),
            "pub_key": {
                "type": "tendermint/PubKeyEd25519",
                "value": base64.b64encode(each.public_key.data).decode(),
            },
            "voting_power": str(each.power),
            "proposer_priority": "-3",
        }
        for each in validators.validators
    ]


def test_json_of_a_node_is_read() -> None:
    chain = steady(2)
    signed = sign_header(chain.header(2), chain.sets[1], dict(list(chain.keys.items())[:3]))
    in_json, validators = as_json(signed, chain.sets[1])
    assert signed_header_from_json(json.loads(json.dumps(in_json))) == signed
    assert validators_from_json(validators).hash == chain.sets[1].hash


def test_base64_has_one_form() -> None:
    chain = steady(2)
    in_json, _ = as_json(chain.signed[1], chain.sets[1])
    entry = in_json["commit"]["signatures"][0]
    right = entry["signature"]
    # The last letter before the padding holds four bits that belong to nothing.
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".index(right[-3])
    entry["signature"] = right[:-3] + "BRhx"["AQgw".index(right[-3])] + "=="
    assert last % 16 == 0 and base64.b64decode(entry["signature"]) == base64.b64decode(right)
    with pytest.raises(MalformedProof, match="canonical"):
        signed_header_from_json(in_json)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("header",), None),
        (("header", "version"), []),
        (("header", "height"), "020"),
        (("header", "height"), True),
        (("header", "height"), 2**63),
        (("header", "height"), "9" * 50_000),
        (("header", "time"), "2023-11-14T22:13:22+01:00"),
        (("header", "time"), "2023-13-14T22:13:22Z"),
        (("header", "chain_id"), "\ud800"),
        (("header", "app_hash"), "0"),
        (("header", "validators_hash"), None),
        (("commit", "signatures"), {}),
        (("commit", "signatures"), ["signature"]),
        (("commit", "block_id", "parts", "total"), -1),
    ],
)
def test_json_that_is_no_signed_header(path: tuple[str, ...], value: Any) -> None:
    chain = steady(2)
    in_json, _ = as_json(chain.signed[1], chain.sets[1])
    place = in_json
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(MalformedProof):
        signed_header_from_json(in_json)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 100])
def test_simple_root_splits_at_the_largest_power_of_two(count: int) -> None:
    leaves = [bytes([number]) for number in range(count)]
    if count > 1:
        split = 1 << (count - 1).bit_length() - 1
        inner = b"\x01" + simple_root(leaves[:split]) + simple_root(leaves[split:])
        assert simple_root(leaves) == sha256(inner).digest()
    else:
        assert simple_root(leaves) == sha256(b"\x00" + leaves[0]).digest()
