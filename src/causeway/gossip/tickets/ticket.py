"""Tickets, their draw, verdicts on them, and their settlement on the relay chain.

The payee sends a commitment with each body: the hash of a secret that only it can derive. The payer
answers with a ticket: the payee, the root of the body, the payee's serial number and commitment, a nonce
that only the payer can derive, price, odds and a relay block, all signed with Ed25519. The draw is the
hash of the ticket and the secret.

Neither side can bias the draw. The payer signs before it knows the secret, so every nonce wins with the
same probability. The payee commits before it knows the nonce, and cannot open the commitment to another
secret. The nonce depends on the serial number, the root and the commitment, so a second commitment under
a used serial number gets another nonce. Each serial number has a new secret, so a claim reveals nothing
about other tickets.

A payer's account has a deposit, from which prizes are paid, and a bond. A prize above the deposit burns
the bond: payees receive the rest of the deposit but never the bond, so an accomplice cannot rescue it.
A leaving payer gets both back once its last ticket has expired. Claimed serial numbers are stored until
their tickets expire, so the state does not grow with history.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows
from causeway_proofs.order import U64
from causeway_proofs.tendermint.validators import PublicKey, SigningKey

from causeway.gossip.listings import Mask
from causeway.gossip.tickets.trading import TicketOptions

Bytes = npt.NDArray[np.uint8]

TICKET_TAG = b"causeway-ticket\x01"
DRAW_TAG = b"causeway-draw\x01"
NONCE_TAG = b"causeway-nonce\x01"
SECRET_TAG = b"causeway-secret\x01"
COMMITMENT_TAG = b"causeway-commit\x01"

PROMISE_BYTES = 8 + 8 + DIGEST_BYTES + 64
"""Size of a ticket on the wire: serial number, relay block, nonce, signature; the payee knows the rest."""

DELIVERY_BYTES = 8 + DIGEST_BYTES
"""Size of a delivery without its body: serial number and commitment."""

OFFER_BYTES = DIGEST_BYTES
"""Size of an offer or a request: a root."""


@dataclass(frozen=True)
class Tickets:
    """Columns of tickets.

    Attributes:
        network: Genesis hash of the relay chain.
        payer: Public keys, shape (n, 32).
        payee: Public keys, shape (n, 32).
        root: Roots of the bodies, shape (n, 32).
        commitment: Commitments of the payees, shape (n, 32).
        nonce: Nonces of the payers, shape (n, 32).
        serial: Serial numbers.
        price: Prices of a body.
        odds: Odds, powers of two.
        block: Numbers of relay blocks.
    """

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
        """Return the signed bytes of each ticket, shape (n, 256)."""
        count = len(self.serial)
        fixed = np.frombuffer(TICKET_TAG + self.network, dtype=np.uint8)
        numbers = np.stack([self.serial, self.price, self.odds, self.block], axis=1).astype("<u8")
        parts = [self.payer, self.payee, self.root, self.commitment, self.nonce, numbers.view(np.uint8)]
        return np.concatenate([np.broadcast_to(fixed, (count, len(fixed))), *parts], axis=1)

    def wins(self, secret: Digests) -> Mask:
        """Return a mask of the winning tickets: one in ``odds``."""
        draw = digest_rows(HashFunction.BLAKE2B_256, np.concatenate([self.payloads(), secret], axis=1), prefix=DRAW_TAG)
        return np.asarray((draw[:, :8].copy().view("<u8")[:, 0] & (self.odds - np.uint64(1))) == 0)


@dataclass(frozen=True)
class Ticket:
    """Single ticket; see ``Tickets`` for layout and draw."""

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
        """Return the signed bytes."""
        return self._column.payloads().tobytes()

    def sign(self, key: SigningKey) -> bytes:
        """Sign the ticket with the payer's key."""
        return key.sign(self.payload())

    def opens(self, secret: bytes) -> bool:
        """Return True if the secret opens the commitment."""
        return len(secret) == DIGEST_BYTES and commit(_row(secret)).tobytes() == self.commitment

    def wins(self, secret: bytes) -> bool:
        """Return True if the ticket wins with the secret."""
        return bool(self._column.wins(_row(secret))[0])


def derive_secrets(keys: Digests, payers: Digests, serials: U64) -> Digests:
    """Derive the payees' secrets, one for each key, payer and serial number."""
    return _derive(SECRET_TAG, keys, payers, serials)


def derive_nonces(keys: Digests, payees: Digests, serials: U64, roots: Digests, commitments: Digests) -> Digests:
    """Derive the payers' nonces, one for each key and all values that the payee chose."""
    return _derive(NONCE_TAG, keys, payees, serials, roots, commitments)


def commit(secrets: Digests) -> Digests:
    """Compute the commitments to secrets."""
    return digest_rows(HashFunction.BLAKE2B_256, secrets, prefix=COMMITMENT_TAG)


def _derive(tag: bytes, keys: Digests, others: Digests, serials: U64, *more: Digests) -> Digests:
    numbers = serials.astype("<u8").reshape(-1, 1).view(np.uint8)
    parts = np.concatenate([keys, others, numbers, *more], axis=1)
    return digest_rows(HashFunction.BLAKE2B_256, parts, prefix=tag)


def _row(digest: bytes) -> Digests:
    return np.frombuffer(digest, dtype=np.uint8).reshape(1, DIGEST_BYTES)


class TicketVerdict(IntEnum):
    """Verdict of a payee on a ticket, and of the relay chain on a claim; in order of the checks."""

    OK = 0
    UnknownDelivery = 1
    """The payee has no unpaid delivery of this serial number to the payer."""
    NotPayee = 2
    """The claimant is not the payee."""
    WrongNetwork = 3
    """The ticket is for another relay chain."""
    WrongTerms = 4
    """Price or odds differ from the network's."""
    FromTheFuture = 5
    """The relay block does not exist yet."""
    Expired = 6
    """The relay block is too old for the chain to pay, or for the payee to claim in time."""
    BadSignature = 7
    """The payer did not sign exactly this ticket."""
    BadSecret = 8
    """The secret does not open the payee's commitment."""
    Lost = 9
    """The draw did not win."""
    AlreadyClaimed = 10
    """The payer's ticket of this serial number to this payee was paid before."""
    NoAccount = 11
    """The payer has no account, or lost it."""
    Overdrawn = 12
    """The deposit is below the prize.

    The payee gets the rest of it, the payer's bond is burned, and the account is closed.
    """


@dataclass
class Account:
    """Account of a payer; ``leaving`` is the relay block of its announced withdrawal, or None."""

    deposit: int
    bond: int
    leaving: int | None = None


@dataclass
class Settlement:
    """State of tickets on the relay chain.

    Attributes:
        network: Hash of the relay chain's genesis block, 32 bytes.
        options: Price, odds, fee, lifetime and bond of the network.
        number: Current relay block.
        accounts: Accounts by payer.
        earned: Paid claims by payee, without fees.
        burned: Bonds of overdrawn accounts, and fees.
        claimed: Payer, payee and serial number of claimed tickets that have not expired.
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
        """Begin the relay block ``number`` and drop claims of expired tickets.

        Raises:
            InvalidInput: A later block has begun; its expired claims are already dropped.
        """
        if number < self.number:
            raise InvalidInput(f"relay block {number}: allowed: {self.number} or a later one")
        for past in range(self.number, number):
            self.claimed.difference_update(self._expiring.pop(past, ()))
        self.number = number

    def open_account(self, payer: bytes, deposit: int, bond: int) -> None:
        """Open the account of a payer, or add to it.

        Args:
            payer: Public key, 32 bytes.
            deposit: Amount added to the deposit.
            bond: Amount added to the bond.

        Raises:
            InvalidInput: An amount is negative, the bond is below the network's, or the account is closing.
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
        """Announce the closing of an account; payees accept no more of its tickets."""
        account = self.accounts[payer]
        if account.leaving is None:
            account.leaving = self.number

    def withdraw(self, payer: bytes) -> int:
        """Close an account and return its balance.

        Raises:
            InvalidInput: The payer did not announce it, or one of its tickets may still be claimed.
        """
        account = self.accounts[payer]
        # A payee may accept a ticket for a block up to ``slack`` after the announcement.
        wait = self.options.lifetime + self.options.slack
        if account.leaving is None or self.number <= account.leaving + wait:
            since = "not announced" if account.leaving is None else f"announced in relay block {account.leaving}"
            text = f"allowed: {wait + 1} blocks after leave"
            raise InvalidInput(f"account {payer.hex()}: withdrawal in relay block {self.number}, {since}; {text}")
        del self.accounts[payer]
        return account.deposit + account.bond

    def accepts(self, payer: bytes) -> bool:
        """Return True if payees accept the payer's tickets.

        Deposit and bond suffice, and the payer is not leaving.
        """
        account = self.accounts.get(payer)
        if account is None or account.leaving is not None:
            return False
        return account.deposit >= self.options.prize and account.bond >= self.options.bond

    def claim(self, claimant: bytes, ticket: Ticket, signature: bytes, secret: bytes) -> TicketVerdict:
        """Pay the prize of a winning ticket to its payee, once.

        Args:
            claimant: Public key of the claimant, 32 bytes.
            ticket: The ticket.
            signature: Signature of the payer, 64 bytes.
            secret: Secret of the payee's commitment, 32 bytes.

        Returns:
            The first failed check, else ``OK``. Only ``OK`` and ``Overdrawn`` change the state.
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
        if not PublicKey(ticket.payer).accepts(signature, ticket.payload()):
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
