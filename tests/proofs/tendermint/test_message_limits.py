"""Length limits of untrusted protobuf messages: the longest real ones fit, longer ones are not parsed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import OverLimit
from causeway_proofs.ics23.batch import decode_proof
from causeway_proofs.ics23.proof_specs import IAVL_SPEC, TENDERMINT_SPEC
from causeway_proofs.ics23.simple_store import SimpleStore
from causeway_proofs.ics23.verify import verify_chained_membership, verify_membership
from causeway_proofs.limits import MAX_MESSAGE_BYTES
from causeway_proofs.tendermint.building import make_header
from causeway_proofs.tendermint.commit import (
    MAX_SIGNED_HEADER_BYTES,
    Commit,
    CommitSignature,
    SignedHeader,
    VoteFlag,
    decode_signed_header,
)
from causeway_proofs.tendermint.header import MAX_HEIGHT, MIN_TIME, SECOND, BlockId
from causeway_proofs.tendermint.light_client import decode_client_state, decode_consensus_state
from causeway_proofs.tendermint.trust import (
    MAX_HEADER_UPDATE_BYTES,
    MAX_MISBEHAVIOUR_BYTES,
    HeaderUpdate,
    Misbehaviour,
    decode_header_update,
    decode_misbehaviour,
)
from causeway_proofs.tendermint.validators import (
    MAX_TOTAL_POWER,
    MAX_VALIDATOR_SET_BYTES,
    MAX_VALIDATORS,
    KeyType,
    PublicKey,
    Validator,
    ValidatorSet,
    decode_validator_set,
)


def longest_update() -> HeaderUpdate:
    """Return an update with the maximum number of validators, all parts of maximum length."""
    keys = [PublicKey(b"\x02" + number.to_bytes(32, "big"), KeyType.SECP256K1) for number in range(MAX_VALIDATORS)]
    members = tuple([Validator(key, MAX_TOTAL_POWER // MAX_VALIDATORS, -1) for key in keys])
    validators = ValidatorSet(members, members[0])
    header = make_header("c" * 50, MAX_HEIGHT, 1_700_000_000 * SECOND + 999_999_999, bytes(32), validators)
    votes = [CommitSignature(VoteFlag.COMMIT, key.address, MIN_TIME + 999_999_999, bytes(64)) for key in keys]
    commit = Commit(MAX_HEIGHT, 2**31 - 1, BlockId(header.hash, 1, bytes(32)), tuple(votes))
    return HeaderUpdate.on(MAX_HEIGHT - 1, validators, SignedHeader(header, commit), validators)


def test_ten_thousand_validators_are_read_in_every_message() -> None:
    update = longest_update()
    assert decode_validator_set(update.validators.encode()) == update.validators
    assert decode_signed_header(update.signed_header.encode()) == update.signed_header
    assert decode_header_update(update.encode()) == update
    misbehaviour = Misbehaviour(update, update)
    assert len(misbehaviour.encode()) > 5_000_000
    assert decode_misbehaviour(misbehaviour.encode()) == misbehaviour


@pytest.mark.parametrize(
    ("decode", "limit"),
    [
        (decode_proof, MAX_MESSAGE_BYTES),
        (lambda data: verify_membership(IAVL_SPEC, bytes(32), data, b"k", b"v"), MAX_MESSAGE_BYTES),
        (lambda data: verify_chained_membership([IAVL_SPEC], bytes(32), data, [b"k"], b"v"), MAX_MESSAGE_BYTES),
        (decode_client_state, MAX_MESSAGE_BYTES),
        (lambda data: decode_consensus_state(data, 1), MAX_MESSAGE_BYTES),
        (decode_validator_set, MAX_VALIDATOR_SET_BYTES),
        (decode_signed_header, MAX_SIGNED_HEADER_BYTES),
        (decode_header_update, MAX_HEADER_UPDATE_BYTES),
        (decode_misbehaviour, MAX_MISBEHAVIOUR_BYTES),
    ],
)
def test_longer_messages_are_not_parsed(decode: Callable[[bytes], Any], limit: int) -> None:
    with pytest.raises(OverLimit, match=f"has {limit + 1} bytes, at most {limit} are read"):
        decode(bytes(limit + 1))


def test_proof_length_is_limited_exactly() -> None:
    """A proof one byte too long, and one of exactly the maximum length, both honest."""
    around = len(_single_entry(bytes(MAX_MESSAGE_BYTES // 2))[1]) - MAX_MESSAGE_BYTES // 2
    for length, holds in ((MAX_MESSAGE_BYTES, True), (MAX_MESSAGE_BYTES + 1, False)):
        value = bytes(length - around)
        root, proof = _single_entry(value)
        assert len(proof) == length
        with contextlib.nullcontext() if holds else pytest.raises(OverLimit):
            verify_membership(TENDERMINT_SPEC, root, proof, b"k", value)


def _single_entry(value: bytes) -> tuple[bytes, bytes]:
    """Return the root of a store of one entry, and that entry's proof."""
    store = SimpleStore.of(pa.array([b"k"], pa.binary()), pa.array([value], pa.binary()))
    return store.root, store.existence_proofs(np.zeros(1, dtype=np.int64))[0].as_py()
