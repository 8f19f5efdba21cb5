"""Where some chains are run by other lakes: what a scenario may not say then, and what is theirs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.model.faults import Faults
from causeway.model.text import unknown
from causeway.protocols.interference import DROP, HALT, REPLAY, TAMPER
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, Network
from causeway.protocols.xdm.fault_kinds import DELAY, REORDER
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.planned import Planned
from causeway.protocols.xdm.state import State

INSIDE = (HALT, DROP, REPLAY, TAMPER, DELAY, REORDER)
"""Faults that need nothing of the other lakes: chains here that make no blocks, and carriers between chains here."""


def require_served(network: Network, options: XdmOptions, planned: Planned, faults: Faults) -> None:
    """Refuse keys of chains that there are not; where other lakes run chains, faults and changes of allow lists that
    would have to reach them.

    Raises:
        InvalidInput: it names the key.
    """
    for chain in options.validator_keys:
        if chain not in network.names:
            raise InvalidInput(f"options.validator_keys: {unknown('chain', chain, network.names)}")
    if not len(network.external):
        return
    external = {int(position) for position in network.external}
    numbers = {int(network.numbers[position]): network.names[position] for position in sorted(external)}
    for fault in faults.rows:
        if fault.kind not in INSIDE:
            raise InvalidInput(
                f"faults: kind = {fault.kind!r}: not where other lakes run chains ({numbers[min(numbers)]} is external)"
            )
        for end in (fault.source, fault.destination):
            if end in numbers:
                text = "causeway relay --fault says what happens on the way there, its own lake what it does"
                raise InvalidInput(f"faults: kind = {fault.kind!r}: {numbers[end]} is external: {text}")
    for row, call in enumerate(planned.allowlists):
        if call.chain != CONSENSUS_POSITION and (call.chain in external) != network.follows:
            name = network.names[call.chain]
            text = "its list cannot be changed by a consensus chain of another lake"
            raise InvalidInput(f"options.allowlist_calls.{row}: {name}: {text}")


def to_own(rows: pa.Table, network: Network) -> pa.Table:
    """Return what comes to chains that are run here; the rest comes in at its own lake."""
    if not len(network.external) or not rows.num_rows:
        return rows
    foreign = pc.is_in(rows["chain"], pa.array(network.topology.external, pa.uint64()))
    return rows.filter(pc.invert(foreign))


def waits_outside(state: State, network: Network) -> bool:
    """Return whether a request to another lake's chain has no response: it needs blocks that nothing here needs."""
    if not len(network.external):
        return False
    channels = state["channels"]
    return bool((np.isin(channels["foreign"], network.external) & (channels["count"] > 0)).any())
