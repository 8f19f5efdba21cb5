"""A ticket and its draw.

The payee sends a commitment with each body: the hash of a secret that only it can derive. The payer answers with a
ticket: the payee, the root of the body, the payee's serial number and commitment, a nonce that only the payer can
derive, price, odds and a relay block, all signed with Ed25519. The draw is the hash of the ticket and the secret.

Neither side can bias it. The payer signs before it knows the secret: whatever nonce it takes, a ticket wins with the
same probability. The payee commits before it knows the nonce, and cannot open the commitment to another secret. The
nonce depends on the serial number, the root and the commitment: another commitment under a serial number that a payer
has seen gets another nonce. The secret is new for each serial number, so that one that a claim reveals says nothing
about other tickets.

The verdicts on tickets, at the payee and on the relay chain.

Accounts of payers on the relay chain, and claims of winning tickets.

An account has a deposit, from which prizes are paid, and a bond. A prize that the deposit does not cover burns the
bond: payees get what is left of the deposit, never of the bond, so that a payer cannot save its bond through an
accomplice. A payer that leaves gets both back when its last ticket has expired. Claimed serial numbers are remembered
until their tickets expire, so that the state does not grow with history.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows
from causeway_proofs.tendermint.validators import PublicKey, SigningKey

from causeway.gossip.tickets.trading import TicketOptions

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


class TicketVerdict(IntEnum):
    """What a payee says of a ticket that came, and the relay chain of a claim. Checks are in this order."""

    OK = 0
    UnknownDelivery = 1
    """The payee has no unpaid delivery of this serial number to the payer."""
    NotPayee = 2
    """It is claimed by somebody else than the payee whom it names."""
    WrongNetwork = 3
    """It is for another relay chain."""
    WrongTerms = 4
    """Its price or odds are not those of the network."""
    FromTheFuture = 5
    """It names a relay block that is not there yet."""
    Expired = 6
    """Its relay block is too old: for the chain to pay it, or for the payee to claim it in time."""
    BadSignature = 7
    """The payer did not sign exactly this ticket."""
    BadSecret = 8
    """The secret is not the one of the payee's commitment."""
    Lost = 9
    """The draw did not win."""
    AlreadyClaimed = 10
    """The payer's ticket of this serial number to this payee was paid before."""
    NoAccount = 11
    """The payer has no account, or lost it."""
    Overdrawn = 12
    """The deposit is below the prize: the payee gets what is left, the payer's bond is burned, the account closed."""


@dataclass
class Account:
    """A payer's account. ``leaving``: the relay block in which the payer asked for its money; None: it did not."""

    deposit: int
    bond: int
    leaving: int | None = None


@dataclass
class Settlement:
    """The relay chain's state of tickets.

    Args:
        network: Hash of the relay chain's genesis block, 32 bytes; tickets name it.
        options: Price, odds, fee, lifetime and bond of the network.

    ``earned``: by payee, what claims paid, fees deducted. ``burned``: bonds of overdrawn accounts and fees.
    """

    network: bytes
    options: TicketOptions
    number: int = 0
    accounts: dict[bytes, Account] = field(default_factory=dict)
    earned: defaultdict[bytes, int] = field(default_factory=lambda: defaultdict(int))
    burned: int = 0
    claimed: set[tuple[bytes, bytes, int]] = field(default_factory=set)
    _expiring: defaultdict[int, list[tuple[bytes, bytes, int]]] = field(default_factory=lambda: defaultdict(list))

    def advance(self, number: int) -> None:
        """Begin the relay block ``number``, and forget claims of expired tickets.

        Raises:
            InvalidInput: a later block has begun; the claims of tickets that had expired there are forgotten.
        """
        if number < self.number:
            raise InvalidInput(f"relay block {number}: allowed: {self.number} or a later one")
        for past in range(self.number, number):
            self.claimed.difference_update(self._expiring.pop(past, ()))
        self.number = number

    def open_account(self, payer: bytes, deposit: int, bond: int) -> None:
        """Open the account of a payer, or add to it.

        Raises:
            InvalidInput: an amount is negative, the bond is below the network's, or the account is being closed.
        """
        if min(deposit, bond) < 0:
            raise InvalidInput(f"deposit, bond: {deposit}, {bond}; allowed: 0 or more")
        account = self.accounts.get(payer, Account(0, 0))
        if account.leaving is not None:
            raise InvalidInput(f"account {payer.hex()}: closing since relay block {account.leaving}")
        if account.bond + bond < self.options.bond:
            raise InvalidInput(f"bond: {account.bond + bond}; allowed: {self.options.bond} or more")
        self.accounts[payer] = Account(account.deposit + deposit, account.bond + bond)

    def leave(self, payer: bytes) -> None:
        """Announce that a payer closes its account: payees take no more tickets of it."""
        account = self.accounts[payer]
        if account.leaving is None:
            account.leaving = self.number

    def withdraw(self, payer: bytes) -> int:
        """Close an account and return what is in it.

        Raises:
            InvalidInput: the payer did not leave, or a ticket of it may still be claimed.
        """
        account = self.accounts[payer]
        # Payees may have taken a ticket that names a block so much later than the payer's announcement.
        wait = self.options.lifetime + self.options.slack
        if account.leaving is None or self.number <= account.leaving + wait:
            since = "not announced" if account.leaving is None else f"announced in relay block {account.leaving}"
            text = f"allowed: {wait + 1} blocks after leave"
            raise InvalidInput(f"account {payer.hex()}: withdrawal in relay block {self.number}, {since}; {text}")
        del self.accounts[payer]
        return account.deposit + account.bond

    def accepts(self, payer: bytes) -> bool:
        """Return whether payees take tickets of a payer: it can pay a prize, has the bond, and does not leave."""
        account = self.accounts.get(payer)
        if account is None or account.leaving is not None:
            return False
        return account.deposit >= self.options.prize and account.bond >= self.options.bond

    def claim(self, claimant: bytes, ticket: Ticket, signature: bytes, secret: bytes) -> TicketVerdict:
        """Pay the prize of a winning ticket to its payee, once.

        Args:
            claimant: Public key of who claims, 32 bytes.
            ticket: What the payer signed.
            signature: The payer's signature, 64 bytes.
            secret: What the payee committed to, 32 bytes.

        Returns:
            The first check that fails, else ``OK``. Only ``OK`` and ``Overdrawn`` change the state.
        """
        verdict = self._verdict(claimant, ticket, signature, secret)
        if verdict is not TicketVerdict.OK:
            return verdict
        account = self.accounts[ticket.payer]
        paid = min(account.deposit, self.options.prize)
        account.deposit -= paid
        fee = min(self.options.fee, paid)
        self.earned[ticket.payee] += paid - fee
        self.burned += fee
        serial = ticket.payer, ticket.payee, ticket.serial
        self.claimed.add(serial)
        self._expiring[ticket.block + self.options.lifetime].append(serial)
        if paid == self.options.prize:
            return TicketVerdict.OK
        self.burned += account.bond
        del self.accounts[ticket.payer]
        return TicketVerdict.Overdrawn

    def _verdict(self, claimant: bytes, ticket: Ticket, signature: bytes, secret: bytes) -> TicketVerdict:
        options = self.options
        if claimant != ticket.payee:
            return TicketVerdict.NotPayee
        if ticket.network != self.network:
            return TicketVerdict.WrongNetwork
        if (ticket.price, ticket.odds) != (options.price, options.odds):
            return TicketVerdict.WrongTerms
        if ticket.block > self.number:
            return TicketVerdict.FromTheFuture
        if ticket.block + options.lifetime < self.number:
            return TicketVerdict.Expired
        if not ticket.is_signed(signature):
            return TicketVerdict.BadSignature
        if not ticket.opens(secret):
            return TicketVerdict.BadSecret
        if not ticket.wins(secret):
            return TicketVerdict.Lost
        if (ticket.payer, ticket.payee, ticket.serial) in self.claimed:
            return TicketVerdict.AlreadyClaimed
        if ticket.payer not in self.accounts:
            return TicketVerdict.NoAccount
        return TicketVerdict.OK
