"""Headers and commits of chains of our own: made from state roots, signed with the keys of their validators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256

from causeway.proofs.merkle import EMPTY_ROOT
from causeway.proofs.tendermint.commit import Commit, CommitSignature, Flag, SignedHeader, vote_sign_bytes
from causeway.proofs.tendermint.encoding import number_field
from causeway.proofs.tendermint.header import BlockId, Header
from causeway.proofs.tendermint.keys import SigningKey
from causeway.proofs.tendermint.simple_merkle import simple_root
from causeway.proofs.tendermint.validators import Validator, ValidatorSet

MAX_BLOCK_BYTES = 22_020_096
"""The deployed default; part of ``consensus_hash``, as is the gas limit, -1 (none)."""

CONSENSUS_HASH = sha256(number_field(1, MAX_BLOCK_BYTES) + number_field(2, -1)).digest()

Keys = Mapping[bytes, SigningKey]
"""Signing keys by validator address."""


def validators_of(power: Mapping[SigningKey, int]) -> tuple[ValidatorSet, dict[bytes, SigningKey]]:
    """Return the validator set of the given keys and power, and the keys by address."""
    validators = ValidatorSet.of(Validator(key.public_key, weight) for key, weight in power.items())
    return validators, {key.public_key.address: key for key in power}


def make_header(
    chain_id: str,
    height: int,
    time: int,
    root: bytes,
    validators: ValidatorSet,
    next_validators: ValidatorSet | None = None,
    last: SignedHeader | None = None,
) -> Header:
    """Return the header that commits to a state root.

    Args:
        chain_id: the chain.
        height: from 1.
        time: nanoseconds since 1970; greater than that of the header before.
        root: the state root, as ``app_hash`` (of the state after this block or the one before: ``app_hash_lag``).
        validators: the validators that will sign this header.
        next_validators: those of the next height; the same if not given.
        last: the signed header before; none for the first block.
    """
    return Header(
        chain_id=chain_id,
        height=height,
        time=time,
        validators_hash=validators.hash,
        next_validators_hash=(next_validators or validators).hash,
        app_hash=root,
        proposer_address=validators.validators[height % len(validators)].address,
        last_block_id=last.commit.block_id if last else BlockId(),
        last_commit_hash=last.commit.hash if last else EMPTY_ROOT,
        data_hash=EMPTY_ROOT,
        consensus_hash=CONSENSUS_HASH,
        last_results_hash=EMPTY_ROOT,
        evidence_hash=EMPTY_ROOT,
    )


def sign_header(
    header: Header,
    validators: ValidatorSet,
    keys: Keys,
    nil: Collection[bytes] = (),
    round: int = 0,
    time: int | None = None,
) -> SignedHeader:
    """Return ``header`` with the commit of its validators.

    Args:
        header: what is signed.
        validators: its validators, in their order.
        keys: the keys of those that vote, by address; validators without a key are absent.
        nil: addresses of validators that vote for no block.
        round: the round of the votes.
        time: of the votes, nanoseconds since 1970; the header's if not given.
    """
    voted = header.time if time is None else time
    block_id = BlockId(header.hash, 1, simple_root([header.encode()]))
    sign_bytes = vote_sign_bytes(header.chain_id, header.height, round, block_id)
    messages = {flag: sign_bytes(flag, voted) for flag in (Flag.COMMIT, Flag.NIL)}
    entries = []
    for validator in validators.validators:
        key = keys.get(validator.address)
        if key is None:
            entries.append(CommitSignature(Flag.ABSENT))
            continue
        flag = Flag.NIL if validator.address in nil else Flag.COMMIT
        entries.append(CommitSignature(flag, validator.address, voted, key.sign(messages[flag])))
    return SignedHeader(header, Commit(header.height, round, block_id, tuple(entries)))
