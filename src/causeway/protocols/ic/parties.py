"""Which parties of a network are faulty at a tick: block makers, nodes, and who delivers batches.

What they do stands elsewhere: ``tampering`` alters slices, ``certifying`` signs, the endpoints serve.
"""

from __future__ import annotations

from collections.abc import Iterator

from causeway.model.errors import InvalidInput
from causeway.model.faults import Fault, Faults
from causeway.model.frame import Frame
from causeway.model.ledger import Event, Kind
from causeway.model.topology import Topology
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ic.batch_queue import BatchQueue, Ignored
from causeway.protocols.ic.certifying import ShareFaults
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.fault_kinds import (
    AHEAD,
    ALTER,
    BATCH,
    BLOCK_MAKER,
    DOES,
    FALSE_SHARE,
    NO_SHARE,
    NODE,
    NODES,
    OVERSIZED,
    PART,
    SUBSTREAM,
)
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.messages import blank_messages

_THRESHOLD = (FALSE_SHARE, NO_SHARE)


def faulty_nodes(faults: Faults, tick: int, *does: str) -> frozenset[tuple[int, int]]:
    """Return the nodes that do one of ``does`` at ``tick``, each by the numbers of its subnet and of its own."""
    return frozenset(
        (fault.source, node)
        for fault in _acting(faults, tick, NODE, *does)
        for node in fault.args[NODES]
        if fault.source is not None
    )


def share_faults(faults: Faults, tick: int) -> ShareFaults:
    """Return the nodes that do not sign as they should at ``tick``."""
    return ShareFaults(faulty_nodes(faults, tick, FALSE_SHARE), faulty_nodes(faults, tick, NO_SHARE))


def block_makers(faults: Faults, tick: int) -> dict[int, list[str]]:
    """Return what the malicious block makers of subnets (their numbers) do at ``tick``, in the order of the scenario.

    An honest one follows them.
    """
    found: dict[int, list[str]] = {}
    for fault in _acting(faults, tick, BLOCK_MAKER):
        if fault.destination is not None:
            found.setdefault(fault.destination, []).append(fault.args[DOES])
    return found


def delivered_batches(faults: Faults, tick: int, number: int, chain: int) -> list[int]:
    """Return the numbers of the batches that are delivered to ``chain`` at ``tick`` in their order.

    ``number``: that of the round's batch, which always is among them.
    """
    does = [fault.args[DOES] for fault in _acting(faults, tick, BATCH) if fault.destination == chain]
    ahead = does.count(AHEAD)
    return [number + 1] * ahead + [number] * (1 + len(does) - ahead)


def ignored_batches(faults: Faults, numbers: Frame, context: Context) -> EventLog:
    """Return the events of batches that subnets ignore in a round, because they are not the next one.

    ``numbers``: the ``number`` of the round's batch of each subnet that runs it (``chain``). Of each that is ignored
    ``index`` is the batch's number, and ``queue_index`` that of the expected one.
    """
    log = EventLog()
    if not any(True for _ in _acting(faults, context.tick, BATCH)):
        return log
    for chain, number in zip(numbers["chain"].tolist(), numbers["number"].tolist(), strict=True):
        queue = BatchQueue(latest_state=number - 1)
        for delivered in delivered_batches(faults, context.tick, number, int(context.registry.subnets[chain])):
            try:
                queue.deliver(delivered)
            except Ignored as error:
                control = blank_messages(1, kind=int(Kind.CONTROL))
                at = {"chain": chain, "index": error.actual, "queue_index": error.expected}
                log.add(event_rows(control, Event.REJECTED, reason=error.name, **at))
    return log


def check_faults(faults: Faults, topology: Topology, options: IcOptions) -> None:
    """Check what a scenario says of faults against its options and nodes.

    Raises:
        InvalidInput: a fault would have no effect, because the options do not have what it alters, or is one of a node
            that never is there.
    """
    for row, fault in enumerate(faults.rows):
        what = fault.args.get(DOES, fault.args.get(PART))
        said = f"faults[{row}]: {fault.kind} of {what}"
        if not options.certified and fault.kind in (ALTER, BLOCK_MAKER):
            raise InvalidInput(f'{said}: nobody would see it with certification = "off"; allowed: bls, threshold')
        if SUBSTREAM in fault.args and options.flat:
            text = 'streams have no substreams with substreams = "flat"'
            raise InvalidInput(f"{said}: substream: {text}; allowed: per_destination, per_source")
        if fault.kind == BLOCK_MAKER and what == OVERSIZED and not (options.payload_bytes or options.limits != "none"):
            text = "payloads have no limit of size with payload_bytes = 0; allowed: 1 and more"
            raise InvalidInput(f'{said}: {text}, or limits = "deployed"')
        if fault.kind == NODE:
            if what in _THRESHOLD and options.certification != "threshold":
                raise InvalidInput(f'{said}: nodes give no shares; allowed with certification = "threshold"')
            if fault.source in topology.external:
                raise InvalidInput(f"{said}: another lake runs the subnet; its scenario says what its nodes do")
            membership = topology.membership
            count = membership.nodes.get(fault.source or 0, options.nodes)
            count += sum(change.add for change in membership.changes if change.chain == fault.source)
            unknown = [node for node in fault.args[NODES] if node >= count]
            if unknown:
                raise InvalidInput(
                    f"{said}: the subnet has no node {unknown[0]}; its nodes have the numbers 0 to {count - 1}"
                )


def _acting(faults: Faults, tick: int, kind: str, *does: str) -> Iterator[Fault]:
    for fault in faults.rows:
        if fault.kind == kind and fault.acts(tick) and (not does or fault.args[DOES] in does):
            yield fault
