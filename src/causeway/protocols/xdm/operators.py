"""The operators of each chain: who submits the execution receipt of a block, and is paid for it (XDM reference 3.6).

A domain's block is executed by all operators that are online; each of them submits its receipt. A block of the
consensus chain has no receipt: its author stands in the place of the submitters.

Who signs for chains that other lakes follow: the author of the consensus chain's blocks, operators of domains.

A chain has one Ed25519 key. The options list the public keys (``validator_keys``) of chains that are served for real,
and the secret ones are read from files; all others are drawn from the seed, for simulations: whoever knows the seed
knows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.tendermint.validators import SIGNATURE_BYTES, PublicKey, SigningKey

from causeway.config.faults import FaultRule
from causeway.core.frame import Frame
from causeway.protocols.contract import Chains
from causeway.protocols.shared.random_numbers import DrawPurpose, draw_words
from causeway.protocols.shared.secrets import NONE, Secrets
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, DomainNetwork
from causeway.protocols.xdm.fault_kinds import ABSENT, CHANCE, OPERATOR
from causeway.protocols.xdm.state import encode_set


def split_rewards(amount: int, operators: Sequence[int], number: int) -> list[tuple[int, int]]:
    """Split what a block pays for one receipt among the operators who submitted it (3.6).

    Each gets the same amount. The units that remain go one each to operators in ascending order, beginning with the one
    at position ``number`` modulo their count, so that over many receipts nobody is preferred.

    Args:
        amount: the sum of the fees, in units.
        operators: who submitted the receipt, ascending; at least one.
        number: the number of the block that the receipt is of.

    Returns:
        (operator, units) of every operator that gets any.
    """
    count = len(operators)
    share, rest = divmod(amount, count)
    parts = [share + ((place - number) % count < rest) for place in range(count)]
    return [(operator, part) for operator, part in zip(operators, parts, strict=True) if part]


@dataclass(frozen=True)
class Operators:
    """The operators of all chains: ``count`` on each, numbered from 0.

    ``absences``: the faults that keep operators from submitting receipts, or from making blocks of the consensus chain.
    """

    count: int
    absences: tuple[tuple[int, FaultRule], ...]
    network: DomainNetwork
    seed: int

    @classmethod
    def of(cls, count: int, faults: Sequence[FaultRule], network: DomainNetwork, seed: int) -> Operators:
        """Create the operators of a scenario.

        Raises:
            InvalidInput: an absent operator does not exist, or every operator of a chain may be absent.
        """
        absences = tuple((row, fault) for row, fault in enumerate(faults) if fault.kind == ABSENT)
        names = dict(zip(network.numbers.tolist(), network.names, strict=True))
        absent: dict[int, set[int]] = {}
        for _, fault in absences:
            operator = fault.args[OPERATOR]
            assert fault.source is not None
            if operator >= count:
                where = f'kind = "{ABSENT}", chain = "{names[fault.source]}", operator = {operator}'
                raise InvalidInput(f"faults: {where}: allowed: 0 to {count - 1} (options.operators = {count})")
            absent.setdefault(fault.source, set()).add(operator)
        for chain, operators in absent.items():
            if len(operators) == count:
                raise InvalidInput(
                    f'faults: kind = "{ABSENT}", chain = "{names[chain]}": all of its {count} operators may be absent; '
                    "allowed: at least one that never is, or nobody submits receipts"
                )
        return cls(count, absences, network, seed)

    def submitters(self, chain: int, number: int) -> list[int]:
        """Return who submits the receipt of a block, ascending; of the consensus chain the author of the block."""
        return self._submitters_of(chain, number, self._online(chain, number))

    def default_submitters(self, chain: int, number: int) -> list[int]:
        """Return who submits the receipt of a block, or is its author, when no operator is absent."""
        return self._submitters_of(chain, number, list(range(self.count)))

    def absent_submitters(self, chains: Chains, number: int) -> dict[int, list[int]]:
        """Return, of those of ``chains`` of which some operators are absent, who submits the receipts of a block."""
        concerned = {fault.source for _, fault in self.absences if fault.is_active(number - 1)}
        online = {chain: self._online(chain, number) for chain in chains.tolist() if self._number(chain) in concerned}
        return {
            chain: self._submitters_of(chain, number, present)
            for chain, present in online.items()
            if len(present) < self.count
        }

    def encoded(self, taken: Frame) -> pa.BinaryArray:
        """Return who submits each receipt of a table with the columns ``domain`` and ``number``."""
        rows = zip(taken["domain"].tolist(), taken["number"].tolist(), strict=True)
        return pa.array([encode_set(self.submitters(*row)) for row in rows], pa.binary())

    def _submitters_of(self, chain: int, number: int, online: list[int]) -> list[int]:
        if chain != CONSENSUS_POSITION:
            return online
        words = draw_words(DrawPurpose.AUTHOR, self.seed, self._number(chain), number)
        return [online[int(np.random.Generator(words).integers(len(online)))]]

    def _online(self, chain: int, number: int) -> list[int]:
        place = self._number(chain)
        absent = set()
        for row, fault in self.absences:
            if fault.source == place and fault.is_active(number - 1):
                words = draw_words(DrawPurpose.ABSENT, self.seed, place, number, row)
                if np.random.Generator(words).random() < fault.args[CHANCE]:
                    absent.add(fault.args[OPERATOR])
        return [operator for operator in range(self.count) if operator not in absent]

    def _number(self, chain: int) -> int:
        return int(self.network.numbers[chain])


BLOCK, RECEIPT = b"causeway/xdm/block/v1\0", b"causeway/xdm/receipt/v1\0"
"""What is signed begins with one of these: no signature on the one is good for the other."""

SIGNED_BYTES = DIGEST_BYTES + SIGNATURE_BYTES
"""What certifies a header: the root of what the block took in, and the signature on the block's hash."""


def block_signing_bytes(chain: str, block_hash: bytes) -> bytes:
    """Return what the key of ``chain`` signs of a block."""
    return BLOCK + _named(chain) + block_hash


def receipt_signing_bytes(chain: str, receipt: bytes) -> bytes:
    """Return what the key of the domain ``chain`` signs of an execution receipt."""
    return RECEIPT + _named(chain) + receipt


def _named(chain: str) -> bytes:
    name = chain.encode()
    return len(name).to_bytes(4, "big") + name


@dataclass(frozen=True)
class ChainSigners:
    """The keys of the chains of a network. ``listed``: public keys by chain, in hexadecimal; ``needed``: whether
    anything is signed at all, which is so where other lakes run some of the chains."""

    seed: int
    listed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    secrets: Secrets = NONE
    needed: bool = False

    def public(self, chain: str) -> PublicKey:
        """Return the public key of a chain."""
        if chain in self.listed:
            return PublicKey(bytes.fromhex(self.listed[chain][0]))
        return _drawn_key(self.seed, chain).public_key

    def require(self, chain: str) -> None:
        """Refuse to run a chain whose blocks nobody would believe. Raises ``InvalidInput``."""
        if chain in self.listed and bytes.fromhex(self.listed[chain][0]) not in self.secrets.seeds:
            text = f"{chain}: its secret key is not here: causeway serve --validator-key {chain}=FILE"
            raise InvalidInput(f"options.validator_keys: {text}")

    def block(self, chain: str, block_hash: bytes, extrinsics_root: bytes) -> bytes:
        """Return what certifies a header of a chain that is run here; nothing where nothing is signed."""
        if not self.needed:
            return b""
        return extrinsics_root + self._key(chain).sign(block_signing_bytes(chain, block_hash))

    def receipt(self, chain: str, receipt: bytes) -> bytes:
        """Return the signature on a receipt of a domain that is run here."""
        return self._key(chain).sign(receipt_signing_bytes(chain, receipt))

    def _key(self, chain: str) -> SigningKey:
        if chain not in self.listed:
            return _drawn_key(self.seed, chain)
        self.require(chain)
        return SigningKey(self.secrets.seeds[bytes.fromhex(self.listed[chain][0])])


@lru_cache(maxsize=4096)
def _drawn_key(seed: int, chain: str) -> SigningKey:
    return SigningKey.from_name(f"causeway/{seed}/{chain}/operator")
