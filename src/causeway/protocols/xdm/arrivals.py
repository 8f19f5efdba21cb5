"""What a block's messages bring to programs: calls and answers, and the value with them."""

from __future__ import annotations

from causeway.model.frame import Frame
from causeway.model.ledger import Kind
from causeway.model.value import Holder, Why
from causeway.protocols.xdm.money import Money, Purse

REJECTED = 16
"""The code of an answer that the protocol itself made, because the request was refused."""


def value_in(arrivals: Frame, money: Money) -> None:
    """Issue the value that calls and answers bring: a program has it in hand with a call, on its account with an
    answer."""
    for kind, holder in ((Kind.REQUEST, Holder.REQUESTS), (Kind.RESPONSE, Holder.ACCOUNT)):
        rows = arrivals.filter(arrivals["kind"] == kind)
        giver, taker = Purse(Holder.ABROAD, rows["source"]), Purse(holder, rows["receiver"])
        money.move(Why.RECEIVED, rows["destination"], giver, taker, rows["amount_low"], rows["amount_high"], rows)
