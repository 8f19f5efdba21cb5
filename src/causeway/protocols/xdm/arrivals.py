"""What a block's messages bring to programs: calls and answers, and the value with them."""

from __future__ import annotations

from causeway.model.frame import Frame
from causeway.protocols.messages import LANE, MESSAGE_COLUMNS
from causeway.protocols.xdm.books import Moved
from causeway.protocols.xdm.money import Money
from causeway.protocols.xdm.sums import sums

ARRIVALS = [*LANE, "index", *MESSAGE_COLUMNS, "via"]
"""What a program is given, and how it came."""

REJECTED = 16
"""The code of an answer that the protocol itself made, because the request was refused."""

OPEN_CALL = ("chain", "sender", "callback")
"""What tells an open call of a program from others."""


def value_in(arrivals: Frame, money: Money) -> None:
    """Note the value that calls and answers bring."""
    ends = arrivals["destination"], arrivals["source"]
    for chain, foreign, amount in sums(*ends, arrivals["amount_low"], arrivals["amount_high"]):
        money.add(chain, "issuance", amount)
        money.move(chain, Moved.IN, foreign, amount)
