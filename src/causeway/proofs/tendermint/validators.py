"""Validator sets and their hash (IBC reference 2.5: the consensus rules of a header)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from causeway.proofs.errors import MalformedProof, OverLimit, hex_text
from causeway.proofs.protobuf import parse_canonical
from causeway.proofs.tendermint.encoding import bytes_field, message_field, number_field
from causeway.proofs.tendermint.header import require_parts
from causeway.proofs.tendermint.keys import PublicKey, public_key_of
from causeway.proofs.tendermint.simple_merkle import simple_root
from causeway.proofs.wire import tendermint_types_pb2 as wire

MAX_VALIDATORS = 10_000
"""As deployed: more votes than this are never read."""

MAX_VALIDATOR_SET_BYTES = 1 << 20
"""Longest validator set in protobuf form: ``MAX_VALIDATORS`` and a proposer of at most 84 bytes each."""

MAX_TOTAL_POWER = (2**63 - 1) // 8
"""As deployed: sums of power stay below it."""

LARGEST_KEPT = 8 << 10
"""Bytes of a set up to which it is kept when it was read; about 80 validators."""


@dataclass(frozen=True)
class Validator:
    """A validator: its key, and what its signature weighs.

    ``proposer_priority`` belongs to the choice of the next proposer. It is in no hash: whoever carries a validator set
    may write what he likes.
    """

    public_key: PublicKey
    power: int
    proposer_priority: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.power <= MAX_TOTAL_POWER:
            raise MalformedProof(f"voting_power of a validator is {self.power}, 1..{MAX_TOTAL_POWER} is allowed")

    @property
    def address(self) -> bytes:
        """Return the first 20 bytes of the key's hash (for Ed25519)."""
        return self.public_key.address

    def encode(self) -> bytes:
        """Return the protobuf form (``tendermint.types.Validator``)."""
        return b"".join(
            (
                bytes_field(1, self.address),
                message_field(2, self.public_key.encode()),
                number_field(3, self.power),
                number_field(4, self.proposer_priority),
            )
        )

    def encode_simple(self) -> bytes:
        """Return what goes into the hash of the set (``tendermint.types.SimpleValidator``)."""
        return message_field(1, self.public_key.encode()) + number_field(2, self.power)


@dataclass(frozen=True)
class ValidatorSet:
    """Validators in the order in which they are hashed and in which a commit lists their signatures.

    Use ``ValidatorSet.of`` to make one; the constructor keeps the order it is given, since the hash vouches for it.
    ``proposer`` is a member, or None; like the priorities it is in no hash.
    """

    validators: tuple[Validator, ...]
    proposer: Validator | None = None

    def __post_init__(self) -> None:
        if not self.validators:
            raise MalformedProof("a validator set has no validators")
        if len(self.validators) > MAX_VALIDATORS:
            raise OverLimit(f"a validator set has {len(self.validators)} validators, at most {MAX_VALIDATORS} are read")
        if self.total_power > MAX_TOTAL_POWER:
            raise MalformedProof(f"a validator set has the power {self.total_power}, at most {MAX_TOTAL_POWER}")
        if len(self.position_of) != len(self.validators):
            raise MalformedProof("a validator set names one validator twice")

    @classmethod
    def of(cls, validators: Iterable[Validator]) -> ValidatorSet:
        """Return the set of ``validators`` in the deployed order: the most power first, then by address."""
        return cls(tuple(sorted(validators, key=lambda validator: (-validator.power, validator.address))))

    def __len__(self) -> int:
        return len(self.validators)

    @cached_property
    def total_power(self) -> int:
        """Return the sum of the power of all."""
        return sum(validator.power for validator in self.validators)

    @cached_property
    def position_of(self) -> dict[bytes, int]:
        """Return each validator's position by its address."""
        return {validator.address: position for position, validator in enumerate(self.validators)}

    @cached_property
    def power_of(self) -> dict[PublicKey, int]:
        """Return each validator's power by its key."""
        return {validator.public_key: validator.power for validator in self.validators}

    @cached_property
    def hash(self) -> bytes:
        """Return the Merkle root over keys and power of the validators in order."""
        return simple_root([validator.encode_simple() for validator in self.validators])

    def encode(self) -> bytes:
        """Return the protobuf form (``tendermint.types.ValidatorSet``)."""
        # Deployed decoders want a proposer.
        proposer = self.proposer or self.validators[0]
        members = b"".join([message_field(1, validator.encode()) for validator in self.validators])
        return members + message_field(2, proposer.encode()) + number_field(3, self.total_power)


def validator_set_of(message: wire.ValidatorSet) -> ValidatorSet:
    """Return the validator set that a protobuf message holds.

    Raises:
        OverLimit: it has more than 10,000 validators.
        MalformedProof: none, an address that is not its key's, one twice, power out of range, a wrong sum of power, or
            a proposer who is no member.
    """
    encoded = message.SerializeToString(deterministic=True)
    return _small_set(encoded) if len(encoded) <= LARGEST_KEPT else _validator_set_of(message)


@lru_cache(maxsize=128)
def _small_set(encoded: bytes) -> ValidatorSet:
    """Return a set that is decoded, and hashed, once however many headers bring it: the same bytes are the same set."""
    message = wire.ValidatorSet()
    message.ParseFromString(encoded)
    return _validator_set_of(message)


def _validator_set_of(message: wire.ValidatorSet) -> ValidatorSet:
    if len(message.validators) > MAX_VALIDATORS:
        raise OverLimit(f"a validator set has {len(message.validators)} validators, at most {MAX_VALIDATORS} are read")
    proposer = validator_of(message.proposer) if message.HasField("proposer") else None
    found = ValidatorSet(tuple([validator_of(validator) for validator in message.validators]), proposer)
    # Encoders of different age leave the sum out or write it; nobody may lie about it.
    if message.total_voting_power not in (0, found.total_power):
        raise MalformedProof(
            f"total_voting_power of a validator set is {message.total_voting_power}, its validators have"
            f" {found.total_power}"
        )
    if proposer is not None and found.power_of.get(proposer.public_key) != proposer.power:
        raise MalformedProof(f"proposer {proposer.address.hex()} of a validator set is no member of it")
    return found


def validator_of(message: wire.Validator) -> Validator:
    """Return the validator that a protobuf message holds.

    Raises:
        MalformedProof: no key, an address that is not the key's, or power out of range.
    """
    require_parts(message, "a validator", "pub_key")
    validator = Validator(public_key_of(message.pub_key), message.voting_power, message.proposer_priority)
    if message.address != validator.address:
        raise MalformedProof(
            f"address of a validator is {hex_text(message.address)}, its key belongs to {validator.address.hex()}"
        )
    return validator


def decode_validator_set(data: bytes) -> ValidatorSet:
    """Return the validator set of its protobuf form.

    Raises:
        OverLimit: it has more than 10,000 validators, or more than ``MAX_VALIDATOR_SET_BYTES`` bytes.
        MalformedProof: see ``validator_set_of``; or it is not the canonical encoding of one.
    """
    return validator_set_of(parse_canonical(wire.ValidatorSet, data, "validator set", MAX_VALIDATOR_SET_BYTES))
