"""Signed headers of a chain whose validators stay what they are: what all of them have in common is encoded and hashed
once, so that a header costs its signatures and the hashes of what it says.

The bytes are those of ``building.sign_header`` and ``HeaderUpdate.encode``; tests hold them equal.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from causeway.proofs.hashing import sha256
from causeway.proofs.merkle import INNER_PREFIX, LEAF_PREFIX
from causeway.proofs.tendermint.building import Keys, make_header
from causeway.proofs.tendermint.commit import CommitSignature, Flag, vote_sign_bytes
from causeway.proofs.tendermint.encoding import bytes_field, message_field, number_field, timestamp
from causeway.proofs.tendermint.header import HASH_BYTES, BlockId, revision_of
from causeway.proofs.tendermint.keys import SIGNATURE_BYTES, SigningKey
from causeway.proofs.tendermint.validators import ValidatorSet

_APP_HASH = bytes_field(1, bytes(HASH_BYTES))[:-HASH_BYTES]
_SIGNATURE = bytes_field(4, bytes(SIGNATURE_BYTES))[:-SIGNATURE_BYTES]
"""What comes before a root of 32 bytes as a leaf of a header's tree, and before a signature in a vote."""


class _Moment(NamedTuple):
    """What the headers of one height and time have in common: both fields, their node in the tree of the fields, and
    the time of a vote."""

    fields: bytes
    node: bytes
    voted: bytes


@lru_cache(maxsize=64)
def _moment(height: int, time: int) -> _Moment:
    when = timestamp(time)
    node = _inner(_leaf(number_field(1, height)), _leaf(when))
    return _Moment(number_field(3, height) + message_field(4, when), node, message_field(3, when))


class SignedSeries:
    """The headers of a chain that follow none in particular (no block before is named), signed by one set of
    validators.

    Args:
        chain_id: the chain.
        validators: who sign.
        next_validators: those of the next height, whom the headers name.
        trusted_validators: those of the height before, who go with an update that builds on that.
        keys: the keys of those that vote, by address; validators without a key are absent.
    """

    def __init__(
        self,
        chain_id: str,
        validators: ValidatorSet,
        next_validators: ValidatorSet,
        trusted_validators: ValidatorSet,
        keys: Keys,
    ) -> None:
        self._chain_id, self._revision = chain_id, number_field(1, revision_of(chain_id))
        # Any height, time and root do: what depends on them is replaced.
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
            entry = message_field(4, CommitSignature(Flag.ABSENT).encode())
            if key is not None:
                entry = number_field(1, Flag.COMMIT) + bytes_field(2, address)
            self._votes.append((entry, key))
        self._validators = message_field(2, validators.encode())
        self._trusted = message_field(4, trusted_validators.encode())

    def update(self, height: int, time: int, root: bytes) -> bytes:
        """Return the update (``HeaderUpdate``, encoded) of a light client that trusts the height before.

        ``height``: from 1; ``time``: nanoseconds since 1970; ``root``: the state root, 32 bytes.
        """
        moment, turn = _moment(height, time), height % len(self._votes)
        header = b"".join(
            (self._to_moment, moment.fields, self._to_root, root, self._to_proposer, self._proposers[turn])
        )
        first = _inner(_inner(self._before, moment.node), self._between)
        second = _inner(self._above_root, _inner(_leaf(_APP_HASH + root), self._beside_root))
        block_id = BlockId(_inner(first, _inner(second, self._last[turn])), 1, _leaf(header))
        vote = vote_sign_bytes(self._chain_id, height, 0, block_id)(Flag.COMMIT, time)
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
