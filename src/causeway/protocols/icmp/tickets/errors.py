"""The verdicts on tickets, at the payee and on the relay chain."""

from __future__ import annotations

from enum import IntEnum


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
