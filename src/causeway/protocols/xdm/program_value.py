"""What programs do with value: what local messages bring them, what they attach, keep and give back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.ledger import NO_CHAIN, Kind
from causeway.model.value import NO_INDEX, Holder, Why
from causeway.protocols.execution import Execution
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.money import MESSAGES, Money, Purse


def log_handled(inputs: Frame, outcome: Execution, money: Money, context: Context) -> None:
    """Log what handlers attached to calls, kept of requests and gave back.

    ``inputs``: what was given to programs, with ``LANE_COLUMNS``; ``outcome``: what they made of it.
    """
    # Log what handlers took of requests that stay open (`ACCEPTED_SCHEMA`).
    if len(outcome.accepted):
        handled = inputs.take(outcome.accepted["row"])
        known = handled["kind"] == Kind.REQUEST
        for name in ("sender", "callback", "deadline"):
            known &= handled[name] == outcome.accepted[name]
        accepted_low = outcome.accepted["before_low"] - outcome.accepted["after_low"]
        accepted_high = (
            outcome.accepted["before_high"]
            - outcome.accepted["after_high"]
            - (outcome.accepted["before_low"] < outcome.accepted["after_low"])
        )
        program = outcome.accepted["program"]
        accepted_chain = context.network.host_of(program).view(np.uint32)
        purses = Purse(Holder.REQUESTS, program), Purse(Holder.ACCOUNT, program)
        money.move(Why.ACCEPTED, accepted_chain, *purses, accepted_low, accepted_high, _about(handled, known))
    answer, late = outcome.produced["kind"] == Kind.RESPONSE, outcome.asked["late"] == 1
    # An answer in the same handler is to the message that was handled.
    attached = {
        half: np.where(late, outcome.asked[f"asked_{half}"], inputs[f"amount_{half}"][outcome.origins])
        for half in ("low", "high")
    }
    given = outcome.produced["amount_low"] | outcome.produced["amount_high"]
    some = np.flatnonzero((given > 0) | (answer & ((attached["low"] | attached["high"]) > 0)))
    if len(some) == 0:
        return
    rows, answer, late = outcome.produced.take(some), answer[some], late[some]
    low, high = rows["amount_low"], rows["amount_high"]
    kept_low = attached["low"][some] - low
    kept_high = attached["high"][some] - high - (attached["low"][some] < low)
    about = _about(inputs.take(outcome.origins[some]), answer & ~late)
    chain = context.network.host_of(rows["sender"]).view(np.uint32)
    account, hand = Purse(Holder.ACCOUNT, rows["sender"]), Purse(Holder.REQUESTS, rows["sender"])
    zero = np.uint64(0)
    kept = np.where(answer, kept_low, zero), np.where(answer, kept_high, zero)
    money.move(Why.ACCEPTED, chain, hand, account, *kept, about)
    back = np.where(answer, low, zero), np.where(answer, high, zero)
    money.move(Why.RETURNED, chain, hand, MESSAGES, *back, about)
    sent = np.where(answer, zero, low), np.where(answer, zero, high)
    money.move(Why.ATTACHED, chain, account, MESSAGES, *sent, about)


def _about(handled: Frame, known: npt.NDArray[np.bool_]) -> Frame:
    """Return the message that each row is about (``LANE_COLUMNS``): the one handled, none where it is not ``known``."""
    nothing: dict[str, np.unsignedinteger] = {
        "source": np.uint32(NO_CHAIN),
        "destination": np.uint32(NO_CHAIN),
        "substream": np.uint64(0),
        "index": np.uint64(NO_INDEX),
    }
    columns = {name: np.where(known, handled[name], other) for name, other in nothing.items()}
    return Frame(columns, len(handled))
