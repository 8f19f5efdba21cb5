"""Payloads that a subnet has agreed on and not yet executed: blocks run ``blocks_ahead`` heights ahead of the state (IC
reference 3.7, 3.8).

What is kept of a slice is all that is needed to verify it again when it is executed, whatever its source has collected
since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, concat
from causeway.model.order import U64, positions_in, stable_order
from causeway.protocols.contract import Chains
from causeway.protocols.ic.certified_slices import with_reads
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.expected_indexes import ContradictoryIndices, Expected, expected_indexes
from causeway.protocols.ic.state import AGREED_ORDER, AGREED_SCHEMA, State


def past_payloads(state: State) -> list[Frame]:
    """Return the payloads that are agreed and not yet executed, in order of height."""
    agreed = state.agreed
    return [agreed.filter(agreed["executed"] == height) for height in np.unique(agreed["executed"])]


def due(state: State, chains: Chains) -> Frame:
    """Return the agreed slices that ``chains`` execute in this round, at the height after that of the state."""
    slices = state.agreed.filter(_due_now(state) & np.isin(state.agreed["destination"], chains))
    return with_reads(slices.with_columns(receiver=slices["destination"]))


def _due_now(state: State) -> npt.NDArray[np.bool_]:
    agreed = state.agreed
    found: npt.NDArray[np.bool_] = agreed["executed"] == _numbers(state, agreed["destination"]) + np.uint64(1)
    return found


def _numbers(state: State, chains: Chains) -> U64:
    """Return the height of each chain."""
    found: U64 = state.heads["number"][positions_in(state.heads["chain"].astype(np.uint64), chains.astype(np.uint64))]
    return found


def expected_after(state: State, context: Context) -> tuple[Expected, Chains]:
    """Return what is expected after the payloads that are agreed, and which of ``context.chains`` can build one.

    Those cannot whose payloads contradict their state, as no honest network's do: their payload is empty (3.8 (1)).
    """
    base = context.options.index_base
    try:
        return expected_indexes(state, past_payloads(state), base), context.chains
    except ContradictoryIndices as error:
        wrong = error.chains
    agreed = state.agreed.filter(~np.isin(state.agreed["destination"], wrong))
    chains = context.chains[~np.isin(context.chains, wrong)]
    return expected_indexes(state, past_payloads(replace(state, agreed=agreed)), base), chains


def agreed_after(state: State, payloads: Sequence[Frame], context: Context) -> Frame:
    """Return what is agreed and not yet executed when a round is over in which ``payloads`` were agreed
    (``AGREED_SCHEMA``)."""
    ahead = np.uint64(1 + context.options.blocks_ahead)
    kept = [state.agreed.filter(~_due_now(state))]
    for payload in payloads:
        new = payload.with_columns(executed=_numbers(state, payload["destination"]) + ahead)
        kept.append(new.select(AGREED_SCHEMA.names))
    agreed = concat(kept)
    return agreed.take(stable_order(*(agreed[name] for name in AGREED_ORDER)))
