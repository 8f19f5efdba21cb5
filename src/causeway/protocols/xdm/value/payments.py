"""Payments: endowments of programs, rewards of operators, value of program messages.

An account holds a program's own value and the rest of its endowment. Fees and deposits (``COSTS``) use the endowment
first. Handlers see only the program's own value, as under protocols without fees. Endowments are an extension of the
reference.

The submitters of a receipt share its fees. The source pays on arrival of the response, for the block that sent the
request. The destination pays on the acknowledgement, for the block that executed it. Both receipts are confirmed by
then, since the message was proved.

Reference: XDM, sections 3.6 and 3.8.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import U64, Rows, find_positions, stable_order

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import COSTS, NO_CHAIN, NO_INDEX, VALUE_SCHEMA, Kind, ValueHolder, ValueReason
from causeway.protocols.shared.execution import Execution
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.operators import split_rewards
from causeway.protocols.xdm.state import State, decode_set, encode_set, table_from_rows
from causeway.protocols.xdm.tables import COSTS_SCHEMA, SUBMITTERS_SCHEMA
from causeway.protocols.xdm.value.balances import MESSAGES, ChainSums, Purse, join_words, pair_sums, split_words


def update_costs(state: State, money: ChainSums) -> Frame:
    """Return the costs of programs (``COSTS_SCHEMA``) including the block's movements so far."""
    before = state["costs"]
    rows = concat([empty_frame(VALUE_SCHEMA), *(each for each in money.rows if int(each["why"][0]) in COSTS)])
    paid: dict[int, int] = {}
    for end, sign in (("from", 1), ("to", -1)):
        debits = rows.filter(rows[f"{end}_holder"] == np.uint8(ValueHolder.ACCOUNT))
        programs, group = np.unique(debits[f"{end}_number"], return_inverse=True)
        zero = np.zeros(len(group), dtype=np.uint32)
        for row, _, amount in pair_sums(group.astype(np.uint32), zero, debits["amount_low"], debits["amount_high"]):
            paid[int(programs[row])] = paid.get(int(programs[row]), 0) + sign * amount
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


def deduct_endowments(state: State, money: ChainSums, context: Context) -> tuple[Frame, Rows, U64]:
    """Deduct the rest of each endowment from its program's account, for the execution of a block.

    Returns:
        The accounts, the rows of those with an endowment, and the deducted amounts.
    """
    accounts, costs = state["accounts"], update_costs(state, money)
    endowment, spent = np.uint64(context.options.endowment), costs["amount_low"]
    beyond = (costs["amount_high"] > 0) | (spent > endowment)
    left = np.where(beyond, np.uint64(0), endowment - np.minimum(spent, endowment))
    rows = find_positions(accounts["program"], costs["program"])
    if len(rows) == 0:
        return accounts, rows, left
    over, high, low = (accounts[f"balance_{word}"].copy() for word in ("over", "high", "low"))
    one, zero = np.uint64(1), np.uint64(0)
    less = np.zeros(len(accounts), dtype=np.uint64)
    less[rows] = left
    borrow = low < less
    low -= less
    over -= np.where(borrow & (high == zero), one, zero)
    high -= np.where(borrow, one, zero)
    return accounts.with_columns(balance_over=over, balance_high=high, balance_low=low), rows, left


def share_rewards(state: State, money: ChainSums, context: Context) -> State:
    """Pay operators the rewards due in this block, and record the submitters of new receipts.

    The fees of one receipt are summed and split once (``split_rewards``).

    Args:
        state: State after the block's messages.
        money: Sums of the chains, changed in place.
        context: Context of the block.

    Returns:
        The state with the submitters of blocks with fees on hold.
    """
    dues, recorded = [money.dues[key] for key in sorted(money.dues)], state["submitters"]
    keys = {
        "chain": np.array([due.chain for due in dues], dtype=np.uint32),
        "number": np.array([due.number for due in dues], dtype=np.uint64),
    }
    rows = lookup_rows(recorded, Frame(keys, len(dues)), ("chain", "number"))
    operators = context.operators
    rewards: dict[tuple[int, int], int] = {}
    for due, row in zip(dues, rows.tolist(), strict=True):
        if row >= 0:
            submitters = decode_set(recorded["operators"][row].as_py())
        else:
            submitters = operators.submitters(due.chain, due.number, everyone=True)
        for operator, part in split_rewards(due.amount, submitters, due.number):
            rewards[due.chain, operator] = rewards.get((due.chain, operator), 0) + part
    if rewards:
        paid = sorted(rewards)
        for key in paid:
            money.operators[key] += rewards[key]
        paying, numbers = zip(*paid, strict=True)
        high, low = split_words(rewards[key] for key in paid)
        purses = Purse(ValueHolder.REWARDS), Purse(ValueHolder.OPERATOR, np.array(numbers, np.uint64))
        money.move(ValueReason.FEE_SHARED, np.array(paying, np.uint32), *purses, low, high)
    absences = operators.absent_submitters(context.chains, context.number) if operators.absences else {}
    if not len(recorded) and not absences:
        return state
    unpaid = recorded["unpaid"].copy()
    unpaid[rows[rows >= 0]] -= np.array([due.messages for due in dues], dtype=np.uint64)[rows >= 0]
    added = [
        {"chain": chain, "number": context.number, "unpaid": count, "operators": encode_set(online)}
        for chain, online in absences.items()
        if (count := money.count_withheld_fees(chain))
    ]
    after = concat([recorded.with_columns(unpaid=unpaid).filter(unpaid > 0), table_from_rows(added, SUBMITTERS_SCHEMA)])
    after = after.select(SUBMITTERS_SCHEMA.names)
    return state.with_tables(submitters=after.take(stable_order(after["chain"], after["number"])))


def log_handled(inputs: Frame, outcome: Execution, money: ChainSums, context: Context) -> None:
    """Log the value that handlers attached, accepted and returned.

    Args:
        inputs: Messages given to programs, with ``LANE_COLUMNS``.
        outcome: Result of their execution.
        money: Sums of the chains, changed in place.
        context: Context of the block.
    """
    # Value accepted from requests that stay open (`ACCEPTED_SCHEMA`).
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
    # An answer of the same handler belongs to the handled message.
    attached = {
        half: np.where(late, outcome.asked[f"asked_{half}"], inputs[f"amount_{half}"][outcome.origins])
        for half in ("low", "high")
    }
    has_value = outcome.produced["amount_low"] | outcome.produced["amount_high"]
    rows_with_value = np.flatnonzero((has_value > 0) | (answer & ((attached["low"] | attached["high"]) > 0)))
    if len(rows_with_value) == 0:
        return
    rows, answer, late = outcome.produced.take(rows_with_value), answer[rows_with_value], late[rows_with_value]
    low, high = rows["amount_low"], rows["amount_high"]
    accepted_rest_low = attached["low"][rows_with_value] - low
    accepted_rest_high = attached["high"][rows_with_value] - high - (attached["low"][rows_with_value] < low)
    about = _about(inputs.take(outcome.origins[rows_with_value]), answer & ~late)
    chain = context.network.host_of(rows["sender"]).view(np.uint32)
    account, requests = Purse(ValueHolder.ACCOUNT, rows["sender"]), Purse(ValueHolder.REQUESTS, rows["sender"])
    zero = np.uint64(0)
    accepted = np.where(answer, accepted_rest_low, zero), np.where(answer, accepted_rest_high, zero)
    money.move(ValueReason.ACCEPTED, chain, requests, account, *accepted, about)
    returned = np.where(answer, low, zero), np.where(answer, high, zero)
    money.move(ValueReason.RETURNED, chain, requests, MESSAGES, *returned, about)
    sent = np.where(answer, zero, low), np.where(answer, zero, high)
    money.move(ValueReason.ATTACHED, chain, account, MESSAGES, *sent, about)


def _about(handled: Frame, known: npt.NDArray[np.bool_]) -> Frame:
    """Return the handled message of each row (``LANE_COLUMNS``), none for unknown rows."""
    nothing: dict[str, np.unsignedinteger] = {
        "source": np.uint32(NO_CHAIN),
        "destination": np.uint32(NO_CHAIN),
        "substream": np.uint64(0),
        "index": np.uint64(NO_INDEX),
    }
    columns = {name: np.where(known, handled[name], other) for name, other in nothing.items()}
    return Frame(columns, len(handled))
