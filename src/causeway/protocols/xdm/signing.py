"""Who signs for chains that other lakes follow: the author of the consensus chain's blocks, operators of domains.

A chain has one Ed25519 key. The options list the public keys (``validator_keys``) of chains that are served for real,
and the secret ones are read from files; all others are drawn from the seed, for simulations: whoever knows the seed
knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from causeway.model.errors import InvalidInput
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.tendermint.keys import SIGNATURE_BYTES, PublicKey, SigningKey
from causeway.protocols.secrets import NONE, Secrets

BLOCK, RECEIPT = b"causeway/xdm/block/v1\0", b"causeway/xdm/receipt/v1\0"
"""What is signed begins with one of these: no signature on the one is good for the other."""

SIGNED_BYTES = DIGEST_BYTES + SIGNATURE_BYTES
"""What certifies a header: the root of what the block took in, and the signature on the block's hash."""


def signed_block(chain: str, block_hash: bytes) -> bytes:
    """Return what the key of ``chain`` signs of a block."""
    return BLOCK + _named(chain) + block_hash


def signed_receipt(chain: str, receipt: bytes) -> bytes:
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
        return extrinsics_root + self._key(chain).sign(signed_block(chain, block_hash))

    def receipt(self, chain: str, receipt: bytes) -> bytes:
        """Return the signature on a receipt of a domain that is run here."""
        return self._key(chain).sign(signed_receipt(chain, receipt))

    def _key(self, chain: str) -> SigningKey:
        if chain not in self.listed:
            return _drawn_key(self.seed, chain)
        self.require(chain)
        return SigningKey(self.secrets.seeds[bytes.fromhex(self.listed[chain][0])])


@lru_cache(maxsize=4096)
def _drawn_key(seed: int, chain: str) -> SigningKey:
    return SigningKey.from_name(f"causeway/{seed}/{chain}/operator")
