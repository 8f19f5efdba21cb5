"""Tendermint headers, votes, sets and updates: facts of real chains, canonical message forms."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest
from causeway_proofs.errors import MalformedProof
from causeway_proofs.tendermint.building import CONSENSUS_HASH
from causeway_proofs.tendermint.commit import VoteFlag, decode_signed_header, vote_sign_bytes
from causeway_proofs.tendermint.header import NO_TIME, SECOND, BlockId, Header, parse_revision, simple_root, timestamp
from causeway_proofs.tendermint.light_client import WantedHeader
from causeway_proofs.tendermint.rpc import time_from_text
from causeway_proofs.tendermint.trust import decode_header_update
from causeway_proofs.tendermint.validators import KeyType, PublicKey, Validator, ValidatorSet
from causeway_proofs.wire import tendermint_types_pb2 as wire
from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.common.tendermint_chain import CHAIN, START, Chain, steady


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
    assert vote_sign_bytes("", 1, 1, BlockId())(VoteFlag.NIL, NO_TIME).hex() == expected


def test_address_of_a_published_secp256k1_key() -> None:
    public = PublicKey(
        bytes.fromhex("02950e1cdfcb133d6024109fd489f734eeb4502418e538c28481f22bce276f248c"), KeyType.SECP256K1
    )
    digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    number = 0
    for digit in "1CKZ9Nx4zgds8tU7nJHotKSDr4a9bYJCa3":
        number = number * 58 + digits.index(digit)
    assert public.address == number.to_bytes(25, "big")[1:21]


@pytest.mark.parametrize("round", [0, 1, 2**31 - 1])
@pytest.mark.parametrize("flag", [VoteFlag.COMMIT, VoteFlag.NIL])
def test_sign_bytes_are_the_length_prefixed_protobuf_message(flag: VoteFlag, round: int) -> None:
    block = BlockId(b"h" * 32, 3, b"p" * 32)
    vote = wire.CanonicalVote(
        type=wire.SIGNED_MSG_TYPE_PRECOMMIT,
        height=7,
        round=round,
        timestamp=Timestamp(seconds=1_700_000_001, nanos=5),
        chain_id=CHAIN,
    )
    if flag is VoteFlag.COMMIT:
        vote.block_id.hash = block.hash
        vote.block_id.part_set_header.total = 3
        vote.block_id.part_set_header.hash = block.parts_hash
    data = vote.SerializeToString(deterministic=True)
    assert vote_sign_bytes(CHAIN, 7, round, block)(flag, START + SECOND + 5) == bytes([len(data)]) + data


@pytest.mark.parametrize("time", [NO_TIME, -1, 0, 1, SECOND, START + 999_999_999])
def test_times_are_protobuf_timestamps(time: int) -> None:
    message = Timestamp(seconds=time // SECOND, nanos=time % SECOND)
    assert timestamp(time) == message.SerializeToString(deterministic=True)


def test_update_round_trips() -> None:
    chain = Chain([{1: 10, 2: 10, 3: 10, 4: 10}, {1: 10, 2: 10, 3: 10, 5: 7}])
    update = chain.update(WantedHeader(2, 1, 1))
    read = decode_header_update(update.encode())
    assert read.signed_header == update.signed_header
    assert read.validators.validators == update.validators.validators
    assert (read.trusted_revision, read.trusted_height) == (1, 1)
    assert read.encode() == update.encode()


def test_header_needs_every_part_that_deployed_encoders_write() -> None:
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
    assert {name: parse_revision(name) for name in names} == names
    assert parse_revision(f"a-{2**64}") == 0 and parse_revision(f"a-{2**64 - 1}") == 2**64 - 1


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 100])
def test_simple_root_splits_at_the_largest_power_of_two(count: int) -> None:
    leaves = [bytes([number]) for number in range(count)]
    if count > 1:
        split = 1 << (count - 1).bit_length() - 1
        inner = b"\x01" + simple_root(leaves[:split]) + simple_root(leaves[split:])
        assert simple_root(leaves) == sha256(inner).digest()
    else:
        assert simple_root(leaves) == sha256(b"\x00" + leaves[0]).digest()
