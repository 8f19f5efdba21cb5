"""The endowments of programs (ours): they pay fees and deposits, and are attached to no call.

An account holds a program's own value and what is left of its endowment: fees and deposits (``COSTS``) come out of that
first. Handlers see the program's own value alone, as under protocols without fees.

Share the fees that a block pays among the operators who submitted the receipts concerned (XDM reference 3.6, 3.8).

At the source a fee is due when the response has come, to the operators who submitted the receipt of the block that sent
the request; at the destination with the acknowledgement, to those of the block that executed it. By then either receipt
is confirmed, or the message would not have been proved.

What programs do with value: what local messages bring them, what they attach, keep and give back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import U64, Rows, find_positions, stable_order

from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import NO_CHAIN, NO_INDEX, Kind, ValueHolder, ValueReason
from causeway.protocols.shared.execution import Execution, credit_accounts
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.operators import split_rewards
from causeway.protocols.xdm.state import State, decode_set, encode_set, table_from_rows
from causeway.protocols.xdm.tables import COSTS_SCHEMA, SUBMITTERS_SCHEMA
from causeway.protocols.xdm.value.balances import MESSAGES, ChainSums, Purse, join_words, split_words


def update_costs(state: State, money: ChainSums) -> Frame:
    """Return the costs of programs (``COSTS_SCHEMA``) after what a block has moved so far."""
    before, paid = state["costs"], money.costs()
    programs = np.array(sorted(paid), dtype=np.uint64)
    at = find_positions(before["program"], programs)
    if not (at >= 0).any():
        return before
    totals = join_words(before, "amount")
    for row, program in zip(at.tolist(), programs.tolist(), strict=True):
        if row >= 0:
            totals[row] += paid[program]
    high, low = split_words(totals)
    return before.with_columns(amount_high=high, amount_low=low).select(COSTS_SCHEMA.names)


class Endowments:
    """What is left of endowments while a block's handlers run."""

    def __init__(self, state: State, money: ChainSums, context: Context) -> None:
        costs = update_costs(state, money)
        given, low = np.uint64(context.options.endowment), costs["amount_low"]
        spent = (costs["amount_high"] > 0) | (low > given)
        self._left: U64 = np.where(spent, np.uint64(0), given - np.minimum(low, given))
        self._rows: Rows = find_positions(state["accounts"]["program"], costs["program"])

    def deduct_endowments(self, accounts: Frame) -> Frame:
        """Return accounts with each program's own value alone."""
        if len(self._rows) == 0:
            return accounts
        over, high, low = (accounts[f"balance_{word}"].copy() for word in ("over", "high", "low"))
        one, zero = np.uint64(1), np.uint64(0)
        less = np.zeros(len(accounts), dtype=np.uint64)
        less[self._rows] = self._left
        borrow = low < less
        low -= less
        over -= np.where(borrow & (high == zero), one, zero)
        high -= np.where(borrow, one, zero)
        return accounts.with_columns(balance_over=over, balance_high=high, balance_low=low)

    def restore_endowments(self, accounts: Frame) -> Frame:
        """Return accounts with what is left of endowments again."""
        if len(self._rows) == 0:
            return accounts
        return credit_accounts(accounts, self._rows, np.zeros(len(self._rows), dtype=np.uint64), self._left)


def share_rewards(state: State, money: ChainSums, context: Context) -> State:
    """Pay operators what became due in this block, and record who submits the receipts of its blocks.

    What is due for one receipt is summed and split once (``split_rewards``).

    Returns:
        The state with the submitters of the blocks that include messages whose fees are held.
    """
    dues, recorded = money.dues(), state["submitters"]
    # The row of the table of submitters for each due, -1 where there is none.
    chains, numbers = ([of_due[place] for of_due in dues] for place in (0, 1))
    asked = {"chain": np.array(chains, dtype=np.uint32), "number": np.array(numbers, dtype=np.uint64)}
    rows = lookup_rows(recorded, Frame(asked, len(dues)), ("chain", "number"))
    operators = context.operators
    rewards: dict[tuple[int, int], int] = {}
    for due, row in zip(dues, rows.tolist(), strict=True):
        if row >= 0:
            paid = decode_set(recorded["operators"][row].as_py())
        else:
            paid = operators.default_submitters(due.chain, due.number)
        for operator, part in split_rewards(due.amount, paid, due.number):
            rewards[due.chain, operator] = rewards.get((due.chain, operator), 0) + part
    money.reward(rewards)
    absences = operators.absent_submitters(context.chains, context.number)
    if not len(recorded) and not absences:
        return state
    unpaid = recorded["unpaid"].copy()
    unpaid[rows[rows >= 0]] -= np.array([due.messages for due in dues], dtype=np.uint64)[rows >= 0]
    added = [
        {"chain": chain, "number": context.number, "unpaid": count, "operators": encode_set(online)}
        for chain, online in absences.items()
        if (count := money.count_held_fees(chain))
    ]
    after = concat([recorded.with_columns(unpaid=unpaid).filter(unpaid > 0), table_from_rows(added, SUBMITTERS_SCHEMA)])
    after = after.select(SUBMITTERS_SCHEMA.names)
    return state.with_tables(submitters=after.take(stable_order(after["chain"], after["number"])))


def log_handled(inputs: Frame, outcome: Execution, money: ChainSums, context: Context) -> None:
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
        purses = Purse(ValueHolder.REQUESTS, program), Purse(ValueHolder.ACCOUNT, program)
        money.move(ValueReason.ACCEPTED, accepted_chain, *purses, accepted_low, accepted_high, _about(handled, known))
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
    account, hand = Purse(ValueHolder.ACCOUNT, rows["sender"]), Purse(ValueHolder.REQUESTS, rows["sender"])
    zero = np.uint64(0)
    kept = np.where(answer, kept_low, zero), np.where(answer, kept_high, zero)
    money.move(ValueReason.ACCEPTED, chain, hand, account, *kept, about)
    back = np.where(answer, low, zero), np.where(answer, high, zero)
    money.move(ValueReason.RETURNED, chain, hand, MESSAGES, *back, about)
    sent = np.where(answer, zero, low), np.where(answer, zero, high)
    money.move(ValueReason.ATTACHED, chain, account, MESSAGES, *sent, about)


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
