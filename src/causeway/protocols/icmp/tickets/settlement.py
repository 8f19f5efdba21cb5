"""Accounts of payers on the relay chain, and claims of winning tickets.

An account has a deposit, from which prizes are paid, and a bond. A prize that the deposit does not cover burns the
bond: payees get what is left of the deposit, never of the bond, so that a payer cannot save its bond through an
accomplice. A payer that leaves gets both back when its last ticket has expired. Claimed serial numbers are remembered
until their tickets expire, so that the state does not grow with history.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from causeway.model.errors import InvalidInput
from causeway.protocols.icmp.tickets.errors import TicketVerdict
from causeway.protocols.icmp.tickets.options import TicketOptions
from causeway.protocols.icmp.tickets.ticket import Ticket


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
