"""Build signed headers and commits of local chains from state roots.

``SignedSeries`` builds the headers of a chain with constant validators. It encodes and hashes their common parts once,
so that a header costs its signatures and the hashes of its own fields. Tests hold its bytes equal to those of
``sign_header`` and ``HeaderUpdate.encode``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from causeway_proofs.hashing import sha256
from causeway_proofs.merkle import EMPTY_ROOT, INNER_PREFIX, LEAF_PREFIX
from causeway_proofs.tendermint.commit import Commit, CommitSignature, SignedHeader, VoteFlag, vote_sign_bytes
from causeway_proofs.tendermint.header import (
    HASH_BYTES,
    BlockId,
    Header,
    bytes_field,
    message_field,
    number_field,
    parse_revision,
    simple_root,
    timestamp,
)
from causeway_proofs.tendermint.validators import SIGNATURE_BYTES, SigningKey, Validator, ValidatorSet

MAX_BLOCK_BYTES = 22_020_096
"""Deployed default, part of ``consensus_hash``, as is the gas limit, -1 (none)."""

CONSENSUS_HASH = hashlib.sha256(number_field(1, MAX_BLOCK_BYTES) + number_field(2, -1)).digest()

Keys = Mapping[bytes, SigningKey]
"""Signing keys by validator address."""


def create_validators(power: Mapping[SigningKey, int]) -> tuple[ValidatorSet, dict[bytes, SigningKey]]:
    """Build a validator set from signing keys.

    Args:
        power: power of each key.

    Returns:
        The set, and the keys by address.
    """
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
    """Build the header that commits to a state root.

    Args:
        chain_id: the chain.
        height: from 1.
        time: nanoseconds since 1970; greater than that of the previous header.
        root: the state root, as ``app_hash`` (of the state after this block or the previous one: ``app_hash_lag``).
        validators: the validators that will sign this header.
        next_validators: validators of the next height; default: the same.
        last: the previous signed header; None for the first block.

    Returns:
        The header.
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
    """Sign ``header`` with a commit of its validators.

    Args:
        header: the header.
        validators: its validators, in order.
        keys: keys of the voters by address; validators without a key are absent.
        nil: addresses of validators that vote for no block.
        round: round of the votes.
        time: time of the votes, nanoseconds since 1970; default: the header's.

    Returns:
        The signed header.
    """
    voted = header.time if time is None else time
    block_id = BlockId(header.hash, 1, simple_root([header.encode()]))
    sign_bytes = vote_sign_bytes(header.chain_id, header.height, round, block_id)
    messages = {flag: sign_bytes(flag, voted) for flag in (VoteFlag.COMMIT, VoteFlag.NIL)}
    entries = []
    for validator in validators.validators:
        key = keys.get(validator.address)
        if key is None:
            entries.append(CommitSignature(VoteFlag.ABSENT))
            continue
        flag = VoteFlag.NIL if validator.address in nil else VoteFlag.COMMIT
        entries.append(CommitSignature(flag, validator.address, voted, key.sign(messages[flag])))
    return SignedHeader(header, Commit(header.height, round, block_id, tuple(entries)))


_APP_HASH = bytes_field(1, bytes(HASH_BYTES))[:-HASH_BYTES]
_SIGNATURE = bytes_field(4, bytes(SIGNATURE_BYTES))[:-SIGNATURE_BYTES]
"""Prefix of a 32-byte root as a leaf of a header's tree, and of a signature in a vote."""


class _Moment(NamedTuple):
    """Common parts of the headers of one height and time.

    Both fields, their node in the tree of the fields, and the time of a vote.
    """

    fields: bytes
    node: bytes
    voted: bytes


@lru_cache(maxsize=64)
def _moment(height: int, time: int) -> _Moment:
    when = timestamp(time)
    node = _inner(_leaf(number_field(1, height)), _leaf(when))
    return _Moment(number_field(3, height) + message_field(4, when), node, message_field(3, when))


class SignedSeries:
    """Headers without a predecessor, signed by one set of validators.

    Args:
        chain_id: the chain.
        validators: the signing validators.
        next_validators: validators of the next height, named by the headers.
        trusted_validators: validators of the previous height, sent with an update that builds on it.
        keys: keys of the voters by address; validators without a key are absent.
    """

    def __init__(
        self,
        chain_id: str,
        validators: ValidatorSet,
        next_validators: ValidatorSet,
        trusted_validators: ValidatorSet,
        keys: Keys,
    ) -> None:
        self._chain_id, self._revision = chain_id, number_field(1, parse_revision(chain_id))
        # Arbitrary height, time and root: the dependent parts are replaced.
        header = make_header(chain_id, 1, 0, bytes(HASH_BYTES), validators, next_validators)
        leaves = [_leaf(field) for field in header.fields]
        pairs = [_inner(leaves[row], leaves[row + 1]) for row in range(0, len(leaves), 2)]
        self._before, self._between, self._above_root = pairs[0], _inner(pairs[2], pairs[3]), pairs[4]
        self._beside_root = leaves[11]
        by_proposer = [validator.address for validator in validators.validators]
        self._last = [_inner(leaves[12], _leaf(bytes_field(1, address))) for address in by_proposer]
        self._proposers = [bytes_field(14, address) for address in by_proposer]
        fields = header.encoded_fields()
        self._to_moment = b"".join(fields[:2])
        self._to_root = b"".join(fields[4:11])[:-HASH_BYTES]
        self._to_proposer = b"".join(fields[11:13])
        self._votes: list[tuple[bytes, SigningKey | None]] = []
        for address in by_proposer:
            key = keys.get(address)
            entry = message_field(4, CommitSignature(VoteFlag.ABSENT).encode())
            if key is not None:
                entry = number_field(1, VoteFlag.COMMIT) + bytes_field(2, address)
            self._votes.append((entry, key))
        self._validators = message_field(2, validators.encode())
        self._trusted = message_field(4, trusted_validators.encode())

    def update(self, height: int, time: int, root: bytes) -> bytes:
        """Build the update of a light client that trusts the previous height.

        Args:
            height: from 1.
            time: nanoseconds since 1970.
            root: the state root, 32 bytes.

        Returns:
            The encoded ``HeaderUpdate``.
        """
        moment, turn = _moment(height, time), height % len(self._votes)
        header = b"".join(
            (self._to_moment, moment.fields, self._to_root, root, self._to_proposer, self._proposers[turn])
        )
        first = _inner(_inner(self._before, moment.node), self._between)
        second = _inner(self._above_root, _inner(_leaf(_APP_HASH + root), self._beside_root))
        block_id = BlockId(_inner(first, _inner(second, self._last[turn])), 1, _leaf(header))
        vote = vote_sign_bytes(self._chain_id, height, 0, block_id)(VoteFlag.COMMIT, time)
        commit = [number_field(1, height), message_field(3, block_id.encode())]
        for entry, key in self._votes:
            if key is not None:
                entry = message_field(4, b"".join((entry, moment.voted, _SIGNATURE, key.sign(vote))))
            commit.append(entry)
        signed = message_field(1, header) + message_field(2, b"".join(commit))
        trusted_height = self._revision + number_field(2, height - 1)
        return b"".join((message_field(1, signed), self._validators, message_field(3, trusted_height), self._trusted))


def _leaf(data: bytes) -> bytes:
    return sha256(LEAF_PREFIX + data)


def _inner(left: bytes, right: bytes) -> bytes:
    return sha256(INNER_PREFIX + left + right)
