"""Commits: the votes that finalize a block, their sign bytes, and their verification (X-4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from causeway_proofs.errors import MalformedProof, OverLimit
from causeway_proofs.protobuf import parse_canonical
from causeway_proofs.steps import Step
from causeway_proofs.tendermint import header
from causeway_proofs.tendermint.errors import InvalidHeader
from causeway_proofs.tendermint.header import (
    ADDRESS_BYTES,
    HASH_BYTES,
    BlockId,
    Header,
    block_id_from_proto,
    bytes_field,
    header_from_proto,
    message_field,
    number_field,
    require_parts,
    require_size,
    sfixed64_field,
    simple_root,
)
from causeway_proofs.tendermint.validators import MAX_VALIDATORS, SIGNATURE_BYTES, ValidatorSet
from causeway_proofs.varints import uvarint
from causeway_proofs.wire import tendermint_types_pb2 as wire

PRECOMMIT = 2
"""Type of the votes in a commit."""

MAX_ROUND = 2**31 - 1

MAX_SIGNED_HEADER_BYTES = 5 << 18
"""Longest signed header: ``MAX_VALIDATORS`` entries of at most 111 bytes, and the header."""


class VoteFlag(IntEnum):
    """A validator's vote: absent, for the block, or for no block."""

    ABSENT = 1
    COMMIT = 2
    NIL = 3


@dataclass(frozen=True)
class Threshold:
    """A required share of the power: more than ``numerator / denominator``, or at least it.

    Attributes:
        numerator: numerator of the share.
        denominator: denominator of the share.
        at_least: accept exactly the share.
    """

    numerator: int
    denominator: int
    at_least: bool = False

    def is_met(self, power: int, total: int) -> bool:
        """Return True if ``power`` of ``total`` suffices; exact integer arithmetic.

        Args:
            power: voting power that signed.
            total: total voting power.

        Returns:
            True if the threshold is met.
        """
        share, needed = power * self.denominator, total * self.numerator
        return share >= needed if self.at_least else share > needed

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'more than'} {self.numerator}/{self.denominator}"


MORE_THAN_TWO_THIRDS = Threshold(2, 3)


@dataclass(frozen=True)
class CommitSignature:
    """A validator's entry in a commit; an absent validator has only the flag.

    Attributes:
        flag: the vote.
        validator_address: 20 bytes.
        timestamp: time of the vote, nanoseconds since 1970, or ``NO_TIME``.
        signature: 64 bytes.
    """

    flag: VoteFlag
    validator_address: bytes = b""
    timestamp: int = header.NO_TIME
    signature: bytes = b""

    def __post_init__(self) -> None:
        if self.flag is VoteFlag.ABSENT:
            if self.validator_address or self.signature or self.timestamp != header.NO_TIME:
                raise MalformedProof("an absent validator has an address, a time or a signature in a commit")
            return
        require_size(self.validator_address, "validator_address in a commit", ADDRESS_BYTES)
        require_size(self.signature, "signature in a commit", SIGNATURE_BYTES)

    def encode(self) -> bytes:
        """Return the protobuf form (``tendermint.types.CommitSig``)."""
        return b"".join(
            (
                number_field(1, self.flag),
                bytes_field(2, self.validator_address),
                message_field(3, header.timestamp(self.timestamp)),
                bytes_field(4, self.signature),
            )
        )


@dataclass(frozen=True)
class Commit:
    """The votes of one round on one block.

    Attributes:
        height: height of the block.
        round: the round.
        block_id: the block.
        signatures: one entry a validator, in the order of the validator set.
    """

    height: int
    round: int
    block_id: BlockId
    signatures: tuple[CommitSignature, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.height <= header.MAX_HEIGHT:
            raise MalformedProof(f"height of a commit is {self.height}, 1..2**63 - 1 is allowed")
        if not 0 <= self.round <= MAX_ROUND:
            raise MalformedProof(f"round of a commit is {self.round}, 0..{MAX_ROUND} is allowed")
        require_size(self.block_id.hash, "hash of a commit's block_id", HASH_BYTES)
        require_size(self.block_id.parts_hash, "part set hash of a commit's block_id", HASH_BYTES)
        if not self.block_id.is_complete:
            raise MalformedProof("block_id of a commit has no parts")
        if not self.signatures:
            raise MalformedProof("a commit has no signatures")
        if len(self.signatures) > MAX_VALIDATORS:
            raise OverLimit(f"a commit has {len(self.signatures)} signatures, at most {MAX_VALIDATORS} are read")

    @cached_property
    def hash(self) -> bytes:
        """Return the Merkle root over the entries: ``last_commit_hash`` of the next header."""
        return simple_root([signature.encode() for signature in self.signatures])

    def encode(self) -> bytes:
        """Return the protobuf form (``tendermint.types.Commit``)."""
        return b"".join(
            (
                number_field(1, self.height),
                number_field(2, self.round),
                message_field(3, self.block_id.encode()),
                *[message_field(4, signature.encode()) for signature in self.signatures],
            )
        )


@dataclass(frozen=True)
class SignedHeader:
    """A header with the commit that finalizes it."""

    header: Header
    commit: Commit

    def encode(self) -> bytes:
        """Return the protobuf form (``tendermint.types.SignedHeader``)."""
        return message_field(1, self.header.encode()) + message_field(2, self.commit.encode())


def vote_sign_bytes(chain_id: str, height: int, round: int, block_id: BlockId) -> Callable[[VoteFlag, int], bytes]:
    """Return a function from (flag, time of the vote) to the vote's sign bytes.

    They are the length-prefixed canonical vote (``tendermint.types.CanonicalVote``). Only flag and time differ between
    the votes of a commit.

    Args:
        chain_id: the chain.
        height: height of the block.
        round: the round.
        block_id: the block.

    Returns:
        The function.
    """
    common = number_field(1, PRECOMMIT) + sfixed64_field(2, height) + sfixed64_field(3, round)
    before = {VoteFlag.COMMIT: common + message_field(4, block_id.encode()), VoteFlag.NIL: common}
    after = bytes_field(6, chain_id.encode())

    def sign_bytes(flag: VoteFlag, timestamp: int) -> bytes:
        vote = before[flag] + message_field(5, header.timestamp(timestamp)) + after
        return uvarint(len(vote)) + vote

    return sign_bytes


def check_commit_is_of_header(signed: SignedHeader) -> None:
    """Check that a commit is for its header, as far as possible without the validators.

    Raises:
        InvalidHeader: the commit is for another height or another header.
    """
    header, commit = signed.header, signed.commit
    if commit.height != header.height:
        raise InvalidHeader(f"commit is for height {commit.height}, the header has height {header.height}")
    if commit.block_id.hash != header.hash:
        raise InvalidHeader(f"commit signs {commit.block_id.hash.hex()}, the header's hash is {header.hash.hex()}")


def check_signed_header(signed: SignedHeader, chain_id: str, validators: ValidatorSet) -> None:
    """Check a signed header except for signatures: chain, heights, hashes and stated voters.

    Raises:
        InvalidHeader: a field does not match; the text names it.
    """
    header, commit = signed.header, signed.commit
    if header.chain_id != chain_id:
        raise InvalidHeader(f"header is of chain {header.chain_id!r}, expected {chain_id!r}")
    check_commit_is_of_header(signed)
    if header.validators_hash != validators.hash:
        raise InvalidHeader(
            f"header names the validators {header.validators_hash.hex()}, those given hash to {validators.hash.hex()}"
        )
    if len(commit.signatures) != len(validators):
        raise InvalidHeader(f"commit has {len(commit.signatures)} entries for {len(validators)} validators")
    for position, (entry, validator) in enumerate(zip(commit.signatures, validators.validators, strict=True)):
        if entry.flag is not VoteFlag.ABSENT and entry.validator_address != validator.address:
            raise InvalidHeader(
                f"entry {position} of the commit is of {entry.validator_address.hex()}, the validator there is"
                f" {validator.address.hex()}"
            )


def signed_power(commit: Commit, validators: ValidatorSet, counted: ValidatorSet | None = None) -> int:
    """Return the power of ``validators`` that voted for the block, weighed by ``counted``.

    Without ``counted``, they weigh themselves.

    The commit's entries must be those of ``validators``. A validator is identified by its key, unique in a set, so no
    power counts twice.
    """
    weights = (counted or validators).power_of
    return sum(
        weights.get(validator.public_key, 0)
        for entry, validator in zip(commit.signatures, validators.validators, strict=True)
        if entry.flag is VoteFlag.COMMIT
    )


def verify_signatures(
    commit: Commit, chain_id: str, validators: ValidatorSet, first: ValidatorSet | None = None
) -> Step:
    """Verify every vote of a commit, also those for no block, so that no byte is forged.

    Votes of validators in ``first`` are verified before the others, so that an attacker's own validators cost nothing
    before trusted ones have signed.

    Raises:
        InvalidHeader: a signature does not verify; the text names the validator.
    """
    sign_bytes = vote_sign_bytes(chain_id, commit.height, commit.round, commit.block_id)
    votes = [
        (entry, validator)
        for entry, validator in zip(commit.signatures, validators.validators, strict=True)
        if entry.flag is not VoteFlag.ABSENT
    ]
    if first is not None:
        votes.sort(key=lambda vote: vote[1].public_key not in first.power_of)
    for entry, validator in votes:
        if not validator.public_key.accepts(entry.signature, sign_bytes(entry.flag, entry.timestamp)):
            raise InvalidHeader(f"signature of validator {validator.address.hex()} does not hold")
    return Step("signature", f"{len(votes)} votes of {len(validators)} validators", commit.block_id.hash)


def verify_commit(
    signed: SignedHeader, chain_id: str, validators: ValidatorSet, threshold: Threshold = MORE_THAN_TWO_THIRDS
) -> tuple[Step, ...]:
    """Verify that ``validators`` finalized the header of ``signed`` on chain ``chain_id``.

    Args:
        signed: the header and its commit.
        chain_id: the chain.
        validators: the validator set of the header.
        threshold: the required power.

    Returns:
        The steps.

    Raises:
        InvalidHeader: chain, height, block or validator set differ, a signature does not verify, or too little power
            signed.
    """
    check_signed_header(signed, chain_id, validators)
    share = require_power(signed.commit, validators, threshold)
    return (
        Step("header", f"{chain_id} at height {signed.header.height}", signed.header.hash),
        Step("validators", f"{len(validators)} validators", validators.hash),
        verify_signatures(signed.commit, chain_id, validators),
        share,
    )


def require_power(commit: Commit, validators: ValidatorSet, threshold: Threshold) -> Step:
    """Require that ``threshold`` of the power voted for a commit, according to its flags.

    Raises:
        InvalidHeader: the power is below the threshold.
    """
    power, total = signed_power(commit, validators), validators.total_power
    if not threshold.is_met(power, total):
        raise InvalidHeader(f"{power} of {total} of the validators' power signed, {threshold} is needed")
    return Step("power", f"{power} of {total} signed, {threshold} is needed")


def commit_from_proto(message: wire.Commit) -> Commit:
    """Convert a protobuf message to a commit.

    Raises:
        OverLimit: the commit exceeds 10,000 entries.
        MalformedProof: a part is missing, or a field has an invalid size or value.
    """
    if len(message.signatures) > MAX_VALIDATORS:
        raise OverLimit(f"a commit has {len(message.signatures)} signatures, at most {MAX_VALIDATORS} are read")
    require_parts(message, "a commit", "block_id")
    signatures = tuple([_signature_of(signature) for signature in message.signatures])
    return Commit(
        message.height, message.round, block_id_from_proto(message.block_id, "block_id of a commit"), signatures
    )


def signed_header_from_proto(message: wire.SignedHeader) -> SignedHeader:
    """Convert a protobuf message to a signed header.

    Raises:
        MalformedProof: header or commit is missing or malformed.
    """
    require_parts(message, "a signed header", "header", "commit")
    return SignedHeader(header_from_proto(message.header), commit_from_proto(message.commit))


def decode_signed_header(data: bytes) -> SignedHeader:
    """Decode the canonical protobuf form of a signed header.

    Args:
        data: the encoding.

    Returns:
        The signed header.

    Raises:
        OverLimit: ``data`` exceeds ``MAX_SIGNED_HEADER_BYTES``.
        MalformedProof: ``data`` is not a signed header, or not canonical.
    """
    return signed_header_from_proto(parse_canonical(wire.SignedHeader, data, "signed header", MAX_SIGNED_HEADER_BYTES))


def _signature_of(message: wire.CommitSig) -> CommitSignature:
    require_parts(message, "an entry of a commit", "timestamp")
    return CommitSignature(
        flag_from_number(message.block_id_flag),
        message.validator_address,
        header.time_from_proto(message.timestamp, "timestamp in a commit"),
        message.signature,
    )


def flag_from_number(value: int) -> VoteFlag:
    """Return the flag with a number.

    Raises:
        MalformedProof: no flag has that number.
    """
    if value not in VoteFlag.__members__.values():
        raise MalformedProof(f"block_id_flag in a commit is {value}, 1..3 is allowed")
    return VoteFlag(value)
