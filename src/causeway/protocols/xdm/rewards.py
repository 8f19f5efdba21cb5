"""Share the fees that a block pays among the operators who submitted the receipts concerned (XDM reference 3.6, 3.8).

At the source a fee is due when the response has come, to the operators who submitted the receipt of the block that sent
the request; at the destination with the acknowledgement, to those of the block that executed it. By then either receipt
is confirmed, or the message would not have been proved.
"""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.order import stable_order
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.money import Money
from causeway.protocols.xdm.operators import split_rewards
from causeway.protocols.xdm.small_tables import table_of
from causeway.protocols.xdm.state import State, decode_set, encode_set
from causeway.protocols.xdm.tables import SUBMITTERS_SCHEMA


def share_rewards(state: State, money: Money, context: Context) -> State:
    """Pay operators what became due in this block, and record who submits the receipts of its blocks.

    What is due for one receipt is summed and split once (``split_rewards``).

    Returns:
        The state with the submitters of the blocks that include messages whose fees are held.
    """
    dues, recorded = money.dues(), state["submitters"]
    # The row of the table of submitters for each due, -1 where there is none.
    chains, numbers = ([of_due[place] for of_due in dues] for place in (0, 1))
    asked = {"chain": np.array(chains, dtype=np.uint32), "number": np.array(numbers, dtype=np.uint64)}
    rows = lookup(recorded, Frame(asked, len(dues)), ("chain", "number"))
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
    absences = operators.absences_at(context.chains, context.number)
    if not len(recorded) and not absences:
        return state
    unpaid = recorded["unpaid"].copy()
    unpaid[rows[rows >= 0]] -= np.array([due.messages for due in dues], dtype=np.uint64)[rows >= 0]
    added = [
        {"chain": chain, "number": context.number, "unpaid": count, "operators": encode_set(online)}
        for chain, online in absences.items()
        if (count := money.held_for(chain))
    ]
    after = concat([recorded.with_columns(unpaid=unpaid).filter(unpaid > 0), table_of(added, SUBMITTERS_SCHEMA)])
    after = after.select(SUBMITTERS_SCHEMA.names)
    return state.with_tables(submitters=after.take(stable_order(after["chain"], after["number"])))
