"""Validator sets and commits: required signers, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput, MalformedProof, OverLimit
from causeway_proofs.tendermint.building import create_validators, make_header, sign_header
from causeway_proofs.tendermint.commit import (
    MORE_THAN_TWO_THIRDS,
    Commit,
    CommitSignature,
    SignedHeader,
    Threshold,
    VoteFlag,
    verify_commit,
)
from causeway_proofs.tendermint.errors import InvalidHeader
from causeway_proofs.tendermint.header import BlockId
from causeway_proofs.tendermint.trust import deployed_rule
from causeway_proofs.tendermint.validators import (
    MAX_TOTAL_POWER,
    KeyType,
    PublicKey,
    Validator,
    ValidatorSet,
    decode_validator_set,
)
from causeway_proofs.wire import tendermint_types_pb2 as wire
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256

from tests.support.common.tendermint_chain import CHAIN, START, key, steady

SECP256K1_ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141


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
def test_malformed_validator_sets_are_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(MalformedProof, match=text):
        decode_validator_set(set_message(**change))


def test_message_about_a_validator_stays_short() -> None:
    message = wire.ValidatorSet.FromString(set_message())
    message.validators[0].address = bytes(1 << 19)
    with pytest.raises(MalformedProof, match=r"^address of a validator is (00){64}\.\.\. \(524288 bytes\), its"):
        decode_validator_set(message.SerializeToString(deterministic=True))


def test_validator_set_may_omit_its_sum_but_not_repeat_or_invent_a_validator() -> None:
    decode_validator_set(set_message(total_voting_power=0))
    message = wire.ValidatorSet.FromString(set_message(total_voting_power=0))
    message.validators.append(message.validators[0])
    with pytest.raises(MalformedProof, match="twice"):
        decode_validator_set(message.SerializeToString(deterministic=True))
    message = wire.ValidatorSet.FromString(set_message())
    message.proposer.voting_power += 1
    with pytest.raises(MalformedProof, match="no member"):
        decode_validator_set(message.SerializeToString(deterministic=True))


def test_validators_and_votes_above_the_limit_are_refused() -> None:
    message = wire.ValidatorSet.FromString(set_message())
    message.validators.extend([message.validators[0]] * 9_997)
    with pytest.raises(OverLimit, match="10001"):
        decode_validator_set(message.SerializeToString(deterministic=True))
    with pytest.raises(OverLimit, match="10001"):
        Commit(1, 0, BlockId(b"h" * 32, 1, b"p" * 32), (CommitSignature(VoteFlag.ABSENT),) * 10_001)


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
    validators, keys = create_validators({key(number): 1 for number in range(9)})
    header = make_header(CHAIN, 5, START, b"r" * 32, validators)
    voting = {address: each for address, each in keys.items() if each in [key(number) for number in present]}
    nil_addresses = [key(number).public_key.address for number in nil]
    return sign_header(header, validators, voting, nil=nil_addresses), validators


def test_two_thirds_are_not_enough_and_nil_votes_do_not_count() -> None:
    verify_commit(signed_by(list(range(7)))[0], CHAIN, signed_by([])[1])
    verify_commit(signed_by(list(range(9)), nil=(7, 8))[0], CHAIN, signed_by([])[1])
    for present, nil in ((range(6), ()), (range(9), (6, 7, 8)), (range(0), ())):
        signed, validators = signed_by(list(present), nil)
        with pytest.raises(InvalidHeader, match="of 9 of the validators' power signed"):
            verify_commit(signed, CHAIN, validators)


def test_commit_of_another_chain_height_block_or_set() -> None:
    signed, validators = signed_by(list(range(9)))
    other, _ = create_validators({key(number): 2 for number in range(9)})
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


def test_commit_entries_cannot_be_reordered_repeated_or_omitted() -> None:
    signed, validators = signed_by(list(range(9)))
    entries = signed.commit.signatures
    for changed, text in (
        ((entries[1], entries[0], *entries[2:]), "entry 0"),
        ((entries[0],) * 9, "entry 1"),
        (entries[:8], "8 entries for 9"),
        ((*entries, entries[0]), "10 entries for 9"),
        ((replace(entries[0], signature=entries[1].signature), *entries[1:]), "does not hold"),
        ((replace(entries[0], flag=VoteFlag.NIL), *entries[1:]), "does not hold"),
        ((replace(entries[0], timestamp=START + 1), *entries[1:]), "does not hold"),
    ):
        with pytest.raises(InvalidHeader, match=text):
            verify_commit(SignedHeader(signed.header, replace(signed.commit, signatures=changed)), CHAIN, validators)


def test_secp256k1_signatures_need_the_lower_s() -> None:
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
