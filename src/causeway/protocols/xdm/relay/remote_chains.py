"""Chains of other lakes: constraints of a scenario, and delivered transactions.

Consensus blocks and confirmed receipts go to a following lake, receipts of other lakes' domains to the consensus chain,
envelopes to their destination. The receiving code verifies them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import stable_order

from causeway.config.faults import Faults
from causeway.core.frame import concat
from causeway.core.text import suggest_known
from causeway.core.vocabulary import NO_CHAIN
from causeway.protocols.contract import Chains
from causeway.protocols.shared.interference import DROP, HALT, REPLAY, TAMPER
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, DomainNetwork
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.events import ChainEvent
from causeway.protocols.xdm.fault_kinds import DELAY, REORDER
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.planned_calls import PlannedCalls
from causeway.protocols.xdm.relay.envelopes import decode_envelopes
from causeway.protocols.xdm.tables import BASE
from causeway.protocols.xdm.transactions import Blocks, Confirmed, Receipts, RelayedMessages, decode_transaction
from causeway.protocols.xdm.validate import DeliveredEnvelopes

LOCAL_FAULTS = (HALT, DROP, REPLAY, TAMPER, DELAY, REORDER)
"""Faults within one lake: halted local chains, and carriers between local chains."""


def check_remote_chains(network: DomainNetwork, options: XdmOptions, planned: PlannedCalls, faults: Faults) -> None:
    """Validate keys, and faults and allow-list calls in a network with remote chains.

    Args:
        network: Fixed properties of the network.
        options: Options of the protocol.
        planned: Planned calls.
        faults: Faults of the scenario.

    Raises:
        InvalidInput: A key names an unknown chain, or a fault or call would have to reach another lake.
    """
    for chain in options.validator_keys:
        if chain not in network.names:
            raise InvalidInput(f"options.validator_keys: {suggest_known('chain', chain, network.names)}")
    if not len(network.external):
        return
    external = {int(position) for position in network.external}
    numbers = {int(network.numbers[position]): network.names[position] for position in sorted(external)}
    for fault in faults.rows:
        if fault.kind not in LOCAL_FAULTS:
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


FIRST_BASE = 1 << 40
"""First base number of delivered envelopes.

The local ones follow block numbers, hence have 33 bits at most.
"""


@dataclass(frozen=True)
class ExternalInput:
    """Transactions delivered in a block.

    Attributes:
        followed: Blocks and confirmed receipts for a followed consensus chain.
        receipts: Receipts for the local consensus chain.
        delivered: Envelopes.
        notices: Events of unreadable or misdirected transactions.
    """

    followed: tuple[Blocks | Confirmed, ...] = ()
    receipts: tuple[Receipts, ...] = ()
    delivered: DeliveredEnvelopes | None = None
    notices: list[ChainEvent] = field(default_factory=list)


NOTHING_CARRIED = ExternalInput()
"""The input of a block without deliveries from other lakes."""


def read_carried(carried: pa.Table, chains: Chains, running: Chains, context: Context) -> ExternalInput:
    """Read delivered transactions (``CARRIED_SCHEMA``).

    Args:
        carried: Delivered rows.
        chains: Positions of the local chains.
        running: Positions of the chains that make a block.
        context: Context of the block.
    """
    followed: list[Blocks | Confirmed] = []
    receipts: list[Receipts] = []
    envelopes: list[bytes] = []
    responses: list[bool] = []
    owners: list[int] = []
    notices: list[ChainEvent] = []
    positions = context.network.positions_of(carried["chain"].to_numpy()).tolist()
    local, active = set(context.network.own(chains).tolist()), set(running.tolist())
    for position, payload in zip(positions, carried["payload"].to_pylist(), strict=True):
        try:
            found = decode_transaction(payload)
        except InvalidInput:
            notices.append(_refused(position, "FailedToDecode"))
            continue
        follows = position == CONSENSUS_POSITION and position not in local
        if isinstance(found, Blocks | Confirmed) and follows:
            followed.append(found)
        elif position in local and position not in active:
            notices.append(_refused(position, "ChainHalted"))
        elif isinstance(found, Receipts) and position == CONSENSUS_POSITION and position in local:
            receipts.append(found)
        elif isinstance(found, RelayedMessages) and position in local:
            envelopes += found.envelopes
            responses += found.responses
            owners += [position] * len(found.envelopes)
        else:
            notices.append(_refused(position, "InvalidCall"))
    delivered = _read_envelopes(envelopes, responses, owners, notices, context) if envelopes else None
    return ExternalInput(tuple(followed), tuple(receipts), delivered, notices)


def _refused(position: int, name: str) -> ChainEvent:
    return ChainEvent(position, NO_CHAIN, name, refused=True)


def _read_envelopes(
    envelopes: list[bytes], responses: list[bool], owners: list[int], notices: list[ChainEvent], context: Context
) -> DeliveredEnvelopes | None:
    """Return envelopes as tables; unreadable or misdirected ones leave an event."""
    found, unread = decode_envelopes(pa.array(envelopes, pa.large_binary()), np.array(responses))
    to = np.array(owners, dtype=np.uint32)
    notices += [_refused(position, "FailedToDecode") for position in to[unread].tolist()]
    rows, to = found.envelopes, to[~unread]
    if len(rows) == 0:
        return None
    between = (rows["destination"] == to) & (rows["source"] != rows["destination"])
    between &= rows["source"] < np.uint32(len(context.network.names))
    notices += [_refused(position, "InvalidChain") for position in to[~between].tolist()]
    numbered = [
        frame.with_columns(base=np.uint64(FIRST_BASE) + frame["base"]) for frame in (rows, found.nodes, found.bases)
    ]
    return DeliveredEnvelopes(numbered[0].filter(between), numbered[1], numbered[2])


def merge_delivered(first: DeliveredEnvelopes, second: DeliveredEnvelopes) -> DeliveredEnvelopes:
    """Merge two deliveries."""
    envelopes = concat([first.envelopes, second.envelopes.select(first.envelopes.names)])
    nodes = concat([first.nodes, second.nodes.select(first.nodes.names)])
    bases = concat([first.bases, second.bases.select(first.bases.names)])
    nodes = nodes.take(stable_order(*(nodes[name] for name in (*BASE, "number"))))
    return DeliveredEnvelopes(envelopes, nodes, bases.take(stable_order(*(bases[name] for name in BASE))))
