"""Operators of chains, and the keys that sign for chains.

All online operators of a domain execute its block and submit its receipt. A block of the consensus chain has no
receipt; its author takes the place of the submitters.

Lakes that follow a chain verify its signatures: those of the consensus chain's author and of domains' operators. A
chain has one Ed25519 key. For a served chain the options list the public key (``validator_keys``) and files hold the
secret one. Simulations derive all other keys from the seed, so they are not secret.

Reference: XDM, section 3.6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.tendermint.validators import SIGNATURE_BYTES, PublicKey, SigningKey

from causeway.config.faults import FaultRule
from causeway.protocols.contract import Chains
from causeway.protocols.shared.random_numbers import DrawPurpose, draw_words
from causeway.protocols.shared.secrets import NONE, Secrets
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, DomainNetwork
from causeway.protocols.xdm.fault_kinds import ABSENT, CHANCE, OPERATOR


def split_rewards(amount: int, operators: Sequence[int], number: int) -> list[tuple[int, int]]:
    """Split the reward for one receipt among its submitters (3.6).

    All get the same amount. The remaining units go to operators in ascending order from position ``number`` modulo
    their count. Over many receipts the shares are equal.

    Args:
        amount: Sum of the fees, in units.
        operators: Submitters, ascending; at least one.
        number: Block number of the receipt.

    Returns:
        (operator, units) of every operator with a share.
    """
    count = len(operators)
    share, remainder = divmod(amount, count)
    parts = [share + ((position - number) % count < remainder) for position in range(count)]
    return [(operator, part) for operator, part in zip(operators, parts, strict=True) if part]


@dataclass(frozen=True)
class Operators:
    """The operators of all chains, ``count`` on each, numbered from 0.

    ``absences`` are faults of absent operators, with their rows in the scenario.
    """

    count: int
    absences: tuple[tuple[int, FaultRule], ...]
    network: DomainNetwork
    seed: int

    @classmethod
    def of(cls, count: int, faults: Sequence[FaultRule], network: DomainNetwork, seed: int) -> Operators:
        """Create the operators of a scenario.

        Args:
            count: Operators a chain.
            faults: Faults of the scenario.
            network: Fixed properties of the network.
            seed: Seed of all random numbers.

        Raises:
            InvalidInput: An absent operator does not exist, or every operator of a chain may be absent.
        """
        absences = tuple((row, fault) for row, fault in enumerate(faults) if fault.kind == ABSENT)
        names = dict(zip(network.numbers.tolist(), network.names, strict=True))
        absent: dict[int, set[int]] = {}
        for _, fault in absences:
            operator = fault.args[OPERATOR]
            assert fault.source is not None
            if operator >= count:
                key = f'kind = "{ABSENT}", chain = "{names[fault.source]}", operator = {operator}'
                raise InvalidInput(f"faults: {key}: allowed: 0 to {count - 1} (options.operators = {count})")
            absent.setdefault(fault.source, set()).add(operator)
        for chain, operators in absent.items():
            if len(operators) == count:
                raise InvalidInput(
                    f'faults: kind = "{ABSENT}", chain = "{names[chain]}": all of its {count} operators may be absent; '
                    "allowed: at least one that never is, or nobody submits receipts"
                )
        return cls(count, absences, network, seed)

    def submitters(self, chain: int, number: int, *, everyone: bool = False) -> list[int]:
        """Return the submitters of a block's receipt, or the author of a consensus block, ascending.

        ``everyone`` ignores absences.
        """
        online = self._online(chain, number) if self.absences and not everyone else list(range(self.count))
        return self._submitters_of(chain, number, online)

    def _submitters_of(self, chain: int, number: int, online: list[int]) -> list[int]:
        if chain != CONSENSUS_POSITION:
            return online
        words = draw_words(DrawPurpose.AUTHOR, self.seed, int(self.network.numbers[chain]), number)
        return [online[int(np.random.Generator(words).integers(len(online)))]]

    def absent_submitters(self, chains: Chains, number: int) -> dict[int, list[int]]:
        """Return the submitters of a block on chains with absent operators."""
        concerned = {fault.source for _, fault in self.absences if fault.is_active(number - 1)}
        own = zip(chains.tolist(), self.network.numbers[chains].tolist(), strict=True)
        online = {chain: self._online(chain, number) for chain, named in own if named in concerned}
        return {
            chain: self._submitters_of(chain, number, present)
            for chain, present in online.items()
            if len(present) < self.count
        }

    def _online(self, chain: int, number: int) -> list[int]:
        chain_number = int(self.network.numbers[chain])
        absent = set()
        for row, fault in self.absences:
            if fault.source == chain_number and fault.is_active(number - 1):
                words = draw_words(DrawPurpose.ABSENT, self.seed, chain_number, number, row)
                if np.random.Generator(words).random() < fault.args[CHANCE]:
                    absent.add(fault.args[OPERATOR])
        return [operator for operator in range(self.count) if operator not in absent]


BLOCK, RECEIPT = b"causeway/xdm/block/v1\0", b"causeway/xdm/receipt/v1\0"
"""Domain separators of signatures."""

SIGNED_BYTES = DIGEST_BYTES + SIGNATURE_BYTES
"""Length of a header's certification: extrinsics root, and signature on the block hash."""


def block_signing_bytes(chain: str, block_hash: bytes) -> bytes:
    """Return the bytes to sign for a block of ``chain``."""
    return BLOCK + _encode_name(chain) + block_hash


def receipt_signing_bytes(chain: str, receipt: bytes) -> bytes:
    """Return the bytes to sign for a receipt of the domain ``chain``."""
    return RECEIPT + _encode_name(chain) + receipt


def _encode_name(chain: str) -> bytes:
    name = chain.encode()
    return len(name).to_bytes(4, "big") + name


@dataclass(frozen=True)
class ChainSigners:
    """The keys of a network's chains.

    Attributes:
        seed: Seed of derived keys.
        listed: Public keys by chain, in hexadecimal.
        secrets: Secret keys from files.
        needed: Sign blocks; True with chains of other lakes.
    """

    seed: int
    listed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    secrets: Secrets = NONE
    needed: bool = False

    def public(self, chain: str) -> PublicKey:
        """Return the public key of a chain."""
        if chain in self.listed:
            return PublicKey(bytes.fromhex(self.listed[chain][0]))
        return _derived_key(self.seed, chain).public_key

    def require(self, chain: str) -> None:
        """Check that the secret key of a chain is available.

        Raises:
            InvalidInput: It is missing.
        """
        if chain in self.listed and bytes.fromhex(self.listed[chain][0]) not in self.secrets.seeds:
            text = f"{chain}: its secret key is not here: causeway serve --validator-key {chain}=FILE"
            raise InvalidInput(f"options.validator_keys: {text}")

    def block(self, chain: str, block_hash: bytes, extrinsics_root: bytes) -> bytes:
        """Return the certification of a local chain's header, empty without signatures."""
        return extrinsics_root + self._key(chain).sign(block_signing_bytes(chain, block_hash))

    def receipt(self, chain: str, receipt: bytes) -> bytes:
        """Sign a receipt of a local domain."""
        return self._key(chain).sign(receipt_signing_bytes(chain, receipt))

    def _key(self, chain: str) -> SigningKey:
        if chain not in self.listed:
            return _derived_key(self.seed, chain)
        self.require(chain)
        return SigningKey(self.secrets.seeds[bytes.fromhex(self.listed[chain][0])])


@lru_cache(maxsize=4096)
def _derived_key(seed: int, chain: str) -> SigningKey:
    return SigningKey.from_name(f"causeway/{seed}/{chain}/operator")
