"""A ticket and its draw.

The payee sends a commitment with each body: the hash of a secret that only it can derive. The payer answers with a
ticket: the payee, the root of the body, the payee's serial number and commitment, a nonce that only the payer can
derive, price, odds and a relay block, all signed with Ed25519. The draw is the hash of the ticket and the secret.

Neither side can bias it. The payer signs before it knows the secret: whatever nonce it takes, a ticket wins with the
same probability. The payee commits before it knows the nonce, and cannot open the commitment to another secret. The
nonce depends on the serial number, the root and the commitment: another commitment under a serial number that a payer
has seen gets another nonce. The secret is new for each serial number, so that one that a claim reveals says nothing
about other tickets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from causeway.proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows
from causeway.proofs.tendermint.keys import PublicKey, SigningKey

U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

TICKET_TAG = b"causeway-ticket\x01"
DRAW_TAG = b"causeway-draw\x01"
NONCE_TAG = b"causeway-nonce\x01"
SECRET_TAG = b"causeway-secret\x01"
COMMITMENT_TAG = b"causeway-commit\x01"

PROMISE_BYTES = 8 + 8 + DIGEST_BYTES + 64
"""A ticket between two nodes: serial number, relay block, nonce and signature. The payee knows the rest."""

DELIVERY_BYTES = 8 + DIGEST_BYTES
"""What a body has besides: serial number and commitment."""

OFFER_BYTES = DIGEST_BYTES
"""An offer or a request: a root."""


@dataclass(frozen=True)
class Tickets:
    """Columns of tickets: digests in the shape (n, 32), numbers u64. ``network``: the relay chain's genesis hash."""

    network: bytes
    payer: Digests
    payee: Digests
    root: Digests
    commitment: Digests
    nonce: Digests
    serial: U64
    price: U64
    odds: U64
    block: U64

    def payloads(self) -> Bytes:
        """Return the bytes that payers sign, shape (n, 256)."""
        count = len(self.serial)
        fixed = np.frombuffer(TICKET_TAG + self.network, dtype=np.uint8)
        numbers = np.stack([self.serial, self.price, self.odds, self.block], axis=1).astype("<u8")
        parts = [self.payer, self.payee, self.root, self.commitment, self.nonce, numbers.view(np.uint8)]
        return np.concatenate([np.broadcast_to(fixed, (count, len(fixed))), *parts], axis=1)

    def wins(self, secret: Digests) -> Mask:
        """Return which tickets win: of ``odds``, which is a power of two, one in so many."""
        draw = digest_rows(HashFunction.BLAKE2B_256, np.concatenate([self.payloads(), secret], axis=1), prefix=DRAW_TAG)
        return np.asarray((draw[:, :8].copy().view("<u8")[:, 0] & (self.odds - np.uint64(1))) == 0)


@dataclass(frozen=True)
class Ticket:
    """One ticket. ``Tickets`` has the layout and the draw."""

    network: bytes
    payer: bytes
    payee: bytes
    root: bytes
    commitment: bytes
    nonce: bytes
    serial: int
    price: int
    odds: int
    block: int

    @property
    def _column(self) -> Tickets:
        digests = (self.payer, self.payee, self.root, self.commitment, self.nonce)
        payer, payee, root, commitment, nonce = map(_row, digests)
        numbers = np.array([[self.serial], [self.price], [self.odds], [self.block]], dtype=np.uint64)
        return Tickets(self.network, payer, payee, root, commitment, nonce, *numbers)

    def payload(self) -> bytes:
        """Return the bytes that the payer signs."""
        return self._column.payloads().tobytes()

    def sign(self, key: SigningKey) -> bytes:
        """Return the payer's signature."""
        return key.sign(self.payload())

    def is_signed(self, signature: bytes) -> bool:
        """Return whether the signature is the payer's on this ticket."""
        return PublicKey(self.payer).accepts(signature, self.payload())

    def opens(self, secret: bytes) -> bool:
        """Return whether a secret is the one of the commitment."""
        return len(secret) == DIGEST_BYTES and commit(_row(secret)).tobytes() == self.commitment

    def wins(self, secret: bytes) -> bool:
        """Return whether the ticket wins with a secret."""
        return bool(self._column.wins(_row(secret))[0])


def derive_secrets(keys: Digests, payers: Digests, serials: U64) -> Digests:
    """Return the secrets of payees: one for each of their ``keys``, payer and serial number."""
    return _derived(SECRET_TAG, keys, payers, serials)


def derive_nonces(keys: Digests, payees: Digests, serials: U64, roots: Digests, commitments: Digests) -> Digests:
    """Return the nonces of payers: one for each of their ``keys`` and all that the payee chose of a ticket."""
    return _derived(NONCE_TAG, keys, payees, serials, roots, commitments)


def commit(secrets: Digests) -> Digests:
    """Return the commitments to secrets."""
    return digest_rows(HashFunction.BLAKE2B_256, secrets, prefix=COMMITMENT_TAG)


def _derived(tag: bytes, keys: Digests, others: Digests, serials: U64, *more: Digests) -> Digests:
    numbers = serials.astype("<u8").reshape(-1, 1).view(np.uint8)
    parts = np.concatenate([keys, others, numbers, *more], axis=1)
    return digest_rows(HashFunction.BLAKE2B_256, parts, prefix=tag)


def _row(digest: bytes) -> Digests:
    return np.frombuffer(digest, dtype=np.uint8).reshape(1, DIGEST_BYTES)
