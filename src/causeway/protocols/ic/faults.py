"""Injected faults between subnets: carriers, block makers, nodes, byzantine subnets.

An honest carrier offers the newest certified slice of a stream at every tick. A slow one skips some ticks, by a draw
from seed, destination, source and height. A stale one offers slices of older heights, from stream headers that it
keeps. The faults of the scenario come on top.

Faults act before a slice is checked, before the phases of a round and before routing, so no protocol rule knows of
them. An altered slice stays well-formed wherever a decoder would refuse it: the certification check has to detect it.

The module also holds the queue of batches that consensus delivers to a subnet: one batch per height, in order (IC
reference 3.1, X-1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import CausewayError, InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.ic.messages import StreamRejectCode
from causeway_proofs.ic.primitives import CertificationVersion
from causeway_proofs.ic.slice import decode_certification, encode_certification
from causeway_proofs.ic.stream_header import decode_stream_header, encode_stream_header
from causeway_proofs.order import U64, group_rows, stable_order

from causeway.config.faults import FaultRule, Faults
from causeway.config.topology import Topology
from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.queues import MAX_INDEX
from causeway.core.vocabulary import Event, Kind
from causeway.protocols.contract import Chains, Tick, View
from causeway.protocols.ic.batch import DecodedBatch, refuse_ingress
from causeway.protocols.ic.fault_kinds import (
    AGE,
    AHEAD,
    ALTER,
    ALTERED,
    BATCH,
    BLOCK_MAKER,
    DESTINATION,
    DOES,
    FALSE_SHARE,
    FOREIGN,
    HEADER,
    HEIGHT,
    NO_SHARE,
    NODE,
    NODES,
    OVERSIZED,
    PART,
    PAYLOAD,
    REORDER,
    SIBLING,
    SIGNATURE,
    STALE,
    SUBSTREAM,
)
from causeway.protocols.ic.messages import CHAIN_HALTED, CHAIN_SPLITTING, FORGED_FOR_NOBODY, UNKNOWN_SUBNET
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import KEPT_SLICES_SCHEMA, ONWARD_SCHEMA, State, reverse_lanes
from causeway.protocols.ic.streams.endpoint import certified_streams, sort_by_stream
from causeway.protocols.ic.subnet_keys import ShareFaults
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.interference import DROP, GAP, PASSIVE, REPLAY, TAMPER, Interference
from causeway.protocols.shared.messages import FORGED, LANE, blank_messages

TAMPERED = "tampered"
"""A column of slices: the alteration of their messages on arrival."""

UNTOUCHED, FLIPPED, EXCHANGED = 0, 1, 2
"""Values of ``TAMPERED``: unaltered, first payload flipped, first two messages exchanged."""


def alter_slices(slices: Frame, part: str, version: CertificationVersion) -> Frame:
    """Alter one part of slices, as a faulty carrier does.

    Args:
        slices: Slices with the columns that certify them.
        part: One of ``payload`` (marks the slices for ``alter_messages``), ``sibling`` (a bit of the first digest
            beside the messages, or of the last one above the stream), ``signature`` (its last bit), ``destination``
            (the subnet that offers the slices), ``height`` (one higher, in the certification too), ``header`` (one more
            signal).
        version: The version of the encodings.

    Returns:
        The altered slices.
    """
    if part == PAYLOAD:
        return _marked(slices, FLIPPED)
    if part == SIBLING:
        siblings, paths = slices["siblings"].to_pylist(), slices["path"].to_pylist()
        first = slices["message_begin"]
        used = (slices["message_end"] > first) & (first >= slices["anchor"])
        for row, beside in enumerate(siblings):
            if beside and used[row]:
                siblings[row] = _flipped(beside, 0)
            else:
                paths[row] = _flipped(paths[row], len(paths[row]) - DIGEST_BYTES)
        return slices.with_columns(siblings=pa.array(siblings, pa.binary()), path=pa.array(paths, pa.binary()))
    if part == DESTINATION:
        return slices.with_columns(receiver=slices["source"])
    if part == HEADER:
        headers = [decode_stream_header(data, version) for data in slices["header"].to_pylist()]
        more = [replace(header, signals_end=min(header.signals_end + 1, MAX_INDEX)) for header in headers]
        return slices.with_columns(
            header=pa.array([encode_stream_header(header, version) for header in more], pa.binary()),
            signals_end=np.array([header.signals_end for header in more], dtype=np.uint64),
        )
    assert part in (SIGNATURE, HEIGHT), part
    found = [decode_certification(data) for data in slices["certification"].to_pylist()]
    if part == SIGNATURE:
        found = [replace(item, signature=_flipped(item.signature, -1)) for item in found]
    else:
        found = [replace(item, height=item.height + 1) for item in found]
        slices = slices.with_columns(number=slices["number"] + np.uint64(1))
    return slices.with_columns(certification=pa.array([encode_certification(item) for item in found], pa.binary()))


def propose_slices(honest: Frame, everything: Frame, older: Frame, does: str) -> Frame:
    """Build the proposal of a malicious block maker.

    Args:
        honest: The honest proposal.
        everything: All slices that endpoints serve to the block maker.
        older: The same at the previous height.
        does: The behaviour (``fault_kinds.BlockMakerSection``).

    Returns:
        The proposal. A slice stays honest where the behaviour is impossible: the block maker has only the endpoints'
        certificates.
    """
    if does == FOREIGN:
        return honest.with_columns(receiver=honest["source"])
    if does in (REORDER, ALTERED):
        return _marked(honest, EXCHANGED if does == REORDER else FLIPPED)
    served = older if does == STALE else everything
    row = lookup_rows(served, honest, LANE, ordered=False)
    hit = row >= 0
    if does in (GAP, OVERSIZED):
        hit &= honest["message_end"] > honest["message_begin"]
    false, first = served.select(honest.names).take(row[hit]), honest["message_begin"][hit]
    if does in (REPLAY, STALE):
        first = false["begin"]
    elif does == GAP:
        first = first + np.uint64(1)
    else:
        assert does == OVERSIZED, does
    false = false.with_columns(message_begin=first, message_end=np.maximum(false["end"], first))
    return sort_by_stream(concat([honest.filter(~hit), false]))


def alter_messages(messages: Frame, slices: Frame) -> Frame:
    """Apply the alterations of slices (``TAMPERED``) to their messages on arrival.

    Args:
        messages: Rows with ``LANE`` and ``index``, in any order; those beside the slices included.
        slices: The slices. A slice without messages has none to alter, one with a single message none to exchange.

    Returns:
        The messages as they arrive.
    """
    if TAMPERED not in slices or not len(messages):
        return messages
    hit = slices.filter((slices[TAMPERED] != UNTOUCHED) & (slices["message_end"] > slices["message_begin"]))
    if not len(hit):
        return messages
    row = lookup_rows(hit, messages, LANE, ordered=False)
    first = hit["message_begin"][row]
    flipped = (row >= 0) & (hit[TAMPERED][row] == FLIPPED) & (messages["index"] == first)
    if flipped.any():
        payloads = messages["payload"].filter(pa.array(flipped)).to_pylist()
        changed = pa.array([_flipped(payload, 0) for payload in payloads], messages["payload"].type)
        messages = messages.with_columns(payload=pc.replace_with_mask(messages["payload"], pa.array(flipped), changed))
    # Differences, not sums: an index may be the largest that there is.
    exchanged = (row >= 0) & (hit[TAMPERED][row] == EXCHANGED) & (messages["index"] >= first)
    exchanged &= messages["index"] - first < np.minimum(hit["message_end"][row] - first, np.uint64(2))
    # Exchange the contents of two messages a lane; their positions stay.
    rows = np.flatnonzero(exchanged)
    if not len(rows):
        return messages
    order = rows[stable_order(*(messages[name][rows] for name in LANE), messages["index"][rows])]
    lanes = np.stack([messages[name][order].astype(np.uint64) for name in LANE])
    same = (lanes[:, 1:] == lanes[:, :-1]).all(axis=0)
    first, second = order[:-1][same], order[1:][same]
    order_after = np.arange(len(messages))
    order_after[first], order_after[second] = second, first
    positions = {name: messages[name] for name in (*LANE, "index")}
    return messages.take(order_after).with_columns(**positions)


def unaltered_slices(slices: Frame) -> Frame:
    """Mark slices so that their messages stay unaltered."""
    return _marked(slices, UNTOUCHED)


def _marked(slices: Frame, alteration: int) -> Frame:
    return slices.with_columns(**{TAMPERED: np.full(len(slices), alteration, dtype=np.uint8)})


def _flipped(data: bytes, position: int) -> bytes:
    """Flip the lowest bit of one byte; an empty value becomes one byte first."""
    changed = bytearray(data or b"\0")
    changed[position] ^= 1
    return bytes(changed)


_KEPT_ORDER = ("destination", "source", "substream", "source_height")


class Carriers(Interference):
    """The carriers of slices of one network, and its byzantine subnets."""

    passive = (*PASSIVE, NODE, BLOCK_MAKER)

    def oldest(self, tick: int) -> int:
        """Return the maximum age in heights of slices offered or proposed from ``tick`` on.

        It is 0 if none is older.
        """
        coming = [fault for fault in self._faults.rows if fault.last >= tick]
        ages = [int(fault.args[AGE]) for fault in coming if fault.kind == STALE]
        stale = any(fault.kind == BLOCK_MAKER and fault.args[DOES] == STALE for fault in coming)
        return max([*ages, int(stale)])

    def update_headers(self, kept: Frame, view: View, chains: Chains, tick: Tick) -> Frame:
        """Return the stream headers that carriers to ``chains`` keep after a tick.

        Args:
            kept: The headers kept so far (``KEPT_SLICES_SCHEMA``).
            view: The visible state of other chains.
            chains: Positions of the destinations.
            tick: The current tick.

        Returns:
            The headers to offer later (``KEPT_SLICES_SCHEMA``).
        """
        oldest = self.oldest(tick.tick + 1)
        if oldest == 0:
            return kept.filter(np.zeros(len(kept), dtype=bool)) if len(kept) else kept
        new = certified_streams(view, chains, tick.height - 1)
        new = new.with_columns(oldest_reject=_oldest_rejects(new, view)).select(KEPT_SLICES_SCHEMA.names)
        wanted = np.zeros(len(new), dtype=bool)
        for fault in self._faults.rows:
            if fault.kind == STALE and fault.last > tick.tick:
                wanted |= self.hit(fault, new["destination"], new["source"])
        joined = concat([kept, new.filter(wanted)])
        # The next tick offers slices of ``height`` and ``oldest`` heights below.
        joined = joined.filter(joined["source_height"] + np.uint64(oldest) >= np.uint64(tick.height))
        return joined.take(stable_order(*(joined[name] for name in _KEPT_ORDER)))

    def carry(self, slices: Frame, everything: Frame, older: Frame, context: Context) -> Frame:
        """Return the delivered slices, ascending by (destination, source, substream).

        Args:
            slices: The slices with news that honest carriers offer.
            everything: All available slices, for faulty carriers.
            older: Slices of the headers that carriers kept.
            context: The metadata of the round.
        """
        if len(slices):
            slices = slices.filter(~self.skipped(slices["destination"], slices["source"], context.height))
        if len(older):
            # The rejects of the newest ones are in the view.
            slices = slices.with_columns(oldest_reject=slices["signals_end"])
            everything = everything.with_columns(oldest_reject=everything["signals_end"])
        for fault in self.acting(context.tick, DROP, REPLAY, GAP, TAMPER, STALE):
            slices = self._with_fault(slices, everything, older, fault, context)
        return slices

    def carry_certified(
        self, slices: Frame, everything: Frame, older: Callable[[int], Frame], context: Context
    ) -> Frame:
        """Return the delivered certified slices, ascending by (destination, source).

        Args:
            slices: The slices with news that honest carriers offer.
            everything: All available slices, for faulty carriers.
            older: A function from an age in heights to the slices of that height.
            context: The metadata of the round.
        """
        if len(slices):
            slices = slices.filter(~self.skipped(slices["destination"], slices["source"], context.height))
        acting = self.acting(context.tick, DROP, REPLAY, GAP, TAMPER, STALE, ALTER)
        marked = any(fault.kind == ALTER for fault in acting)
        if marked:
            slices = unaltered_slices(slices)
        for fault in acting:
            offered = older(int(fault.args[AGE])) if fault.kind == STALE else everything
            offered = offered.filter(self._hit_substreams(fault, offered))
            slices = slices.filter(~self._hit_substreams(fault, slices))
            if fault.kind == DROP:
                continue
            offered = _falsified(unaltered_slices(offered) if marked else offered, fault, context.options.version)
            slices = sort_by_stream(concat([slices, offered]))
        return slices

    def _hit_substreams(self, fault: FaultRule, slices: Frame) -> npt.NDArray[np.bool_]:
        """Return a mask of the slices that a fault affects, where each shows one substream."""
        hit = self.hit(fault, slices["destination"], slices["source"])
        return hit & (slices["substream"] == np.uint64(fault.args[SUBSTREAM])) if SUBSTREAM in fault.args else hit

    def block_makers(self, context: Context) -> list[tuple[int, str]]:
        """Return the malicious block makers of a round in proposal order: (chain, behaviour)."""
        acting = self.acting(context.tick, BLOCK_MAKER)
        makers = [
            (self.positions[chain], fault.args[DOES]) for fault in acting if (chain := fault.destination) is not None
        ]
        return [(chain, does) for chain, does in makers if chain in context.chains]

    def _with_fault(self, slices: Frame, everything: Frame, older: Frame, fault: FaultRule, context: Context) -> Frame:
        honest = slices.filter(~self.hit(fault, slices["destination"], slices["source"]))
        if fault.kind == DROP:
            return honest
        if fault.kind == STALE:
            certified = older["source_height"] + np.uint64(1 + int(fault.args[AGE])) == np.uint64(context.height)
            reached = np.isin(older["destination"], context.chains)
            hit = certified & reached & self.hit(fault, older["destination"], older["source"])
            return sort_by_stream(concat([honest, older.filter(hit)])) if hit.any() else honest
        altered = everything.filter(self.hit(fault, everything["destination"], everything["source"]))
        if fault.kind == REPLAY:
            base = np.uint64(context.options.index_base)
            altered = altered.with_columns(begin=base, message_begin=base)
        elif fault.kind == GAP:
            # At least one message, even of an empty stream: the first index is what must be refused.
            begin = np.minimum(altered["message_begin"], np.uint64(MAX_INDEX - 2)) + np.uint64(1)
            stop = np.maximum(altered["message_end"], begin + np.uint64(1))
            altered = altered.with_columns(message_begin=begin, message_end=stop, end=np.maximum(altered["end"], stop))
        else:
            altered = altered.with_columns(root=altered["root"] ^ np.uint8(1))
        return sort_by_stream(concat([honest, altered]))

    def reached(self, batch: DecodedBatch, context: Context, log: EventLog) -> DecodedBatch:
        """Refuse ingress to subnets that run no round: splitting, halted or unregistered ones.

        Args:
            batch: The decoded batch.
            context: The metadata of the round.
            log: The log for the events of refusal.

        Returns:
            The batch without the refused messages.
        """
        absent = ~context.registry.has(batch.ingress["chain"])
        ingress = refuse_ingress(batch.ingress, absent, StreamRejectCode.DestinationInvalid, UNKNOWN_SUBNET, log)
        splitting = np.isin(ingress["chain"], context.splitting)
        ingress = refuse_ingress(ingress, splitting, StreamRejectCode.SysTransient, CHAIN_SPLITTING, log)
        halted = ~np.isin(ingress["chain"], context.chains)
        ingress = refuse_ingress(ingress, halted, StreamRejectCode.SysTransient, CHAIN_HALTED, log)
        return replace(batch, ingress=ingress)

    def forged_messages(self, chains: Chains, context: Context, log: EventLog) -> Frame:
        """Return the messages that byzantine subnets append to their streams (``ONWARD_SCHEMA``).

        A message of a subnet that runs no round, or to a canister without a host, is dropped with an event.
        """
        rows = self.forged(chains, context.tick)
        if len(rows) == 0:
            return empty_frame(ONWARD_SCHEMA)
        columns = {name: rows[name] for name in rows.names}
        methods = ["forged" if kind == Kind.REQUEST else "" for kind in rows["kind"].tolist()]
        columns["method"] = pa.array(methods, pa.string()).dictionary_encode()
        forged = blank_messages(len(rows), **columns)
        forged = forged.with_columns(queue_index=np.uint64(FORGED), sent_tick=np.uint64(context.tick))
        forged = forged.select(ONWARD_SCHEMA.names)
        absent = ~context.registry.has(forged["source"])
        at_rest = ~absent & ~np.isin(forged["source"], context.chains)
        splitting = at_rest & np.isin(forged["source"], context.splitting)
        nobody = ~absent & ~at_rest & (context.registry.host_of(forged["receiver"]) < 0)
        for mask, reason in (
            (absent, UNKNOWN_SUBNET),
            (splitting, CHAIN_SPLITTING),
            (at_rest & ~splitting, CHAIN_HALTED),
            (nobody, FORGED_FOR_NOBODY),
        ):
            dropped = forged.filter(mask)
            log.add(event_rows(dropped, Event.DROPPED, chain=dropped["source"], queue_index=FORGED, reason=reason))
        return forged.filter(~absent & ~at_rest & ~nobody)


def _oldest_rejects(streams: Frame, view: View) -> U64:
    """Return the oldest rejected index of each stream, or the end of its signals for none."""
    oldest: U64 = streams["signals_end"].copy()
    rejects = view.tables["rejects"]
    lanes = group_rows(*(rejects[name] for name in ("destination", "source", "substream")))
    first = rejects.take(lanes.starts)
    row = lookup_rows(streams, reverse_lanes(first), LANE, ordered=False)
    oldest[row[row >= 0]] = first["index"][row >= 0]
    return oldest


def _falsified(slices: Frame, fault: FaultRule, version: CertificationVersion) -> Frame:
    """Return certified slices altered by a replaying, gapping, tampering or altering carrier."""
    if fault.kind == REPLAY:
        # Start at the first message in the stream again, although it was delivered before.
        begin, first = slices["begin"], slices["message_begin"]
        return slices.with_columns(message_begin=np.where(slices["end"] > begin, begin, first))
    if fault.kind == GAP:
        # Start one index too high, with at least one message: the first index is what must be refused.
        first = np.minimum(slices["message_begin"], np.uint64(MAX_INDEX - 2)) + np.uint64(1)
        return slices.with_columns(
            message_begin=first, message_end=np.maximum(slices["message_end"], first + np.uint64(1))
        )
    if fault.kind == TAMPER:
        paths = [path[:-1] + bytes([path[-1] ^ 1]) for path in slices["path"].to_pylist()]
        return slices.with_columns(path=pa.array(paths, pa.binary()))
    return alter_slices(slices, fault.args[PART], version) if fault.kind == ALTER else slices


CAPACITY = 16
"""Maximum number of delivered batches that are not executed yet."""


class Ignored(CausewayError):
    """The batch is not the next one: its state exists, or its predecessor's does not yet."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(f"Ignored: batch {actual}, expected {expected}")
        self.expected, self.actual = expected, actual


class QueueIsFull(CausewayError):
    """The queue is full; the batch must be delivered again later."""


@dataclass
class BatchQueue:
    """Pending batches of a subnet, by number.

    Attributes:
        latest_state: The height of the newest state.
        last_delivered: The number of the newest accepted batch.
        waiting: The numbers of the pending batches.
    """

    latest_state: int
    last_delivered: int = 0
    waiting: list[int] = field(default_factory=list)

    @property
    def expected(self) -> int:
        """Return the number of the next batch."""
        return 1 + max(self.last_delivered, self.latest_state)

    def deliver(self, number: int) -> None:
        """Append a batch; on an error nothing changes.

        Raises:
            Ignored: The batch is not the expected one.
            QueueIsFull: The queue is full.
        """
        if number != self.expected:
            raise Ignored(self.expected, number)
        if len(self.waiting) >= CAPACITY:
            raise QueueIsFull(f"QueueIsFull: {CAPACITY} batches wait, batch {number} must be delivered again")
        self.waiting.append(number)
        self.last_delivered = number

    def executed(self) -> int:
        """Remove the oldest batch after its execution and return its number."""
        self.latest_state = self.waiting.pop(0)
        return self.latest_state


_THRESHOLD = (FALSE_SHARE, NO_SHARE)


def find_faulty_nodes(faults: Faults, tick: int, *does: str) -> frozenset[tuple[int, int]]:
    """Return the nodes with one of some behaviours, as (subnet number, node number).

    Args:
        faults: The injected faults.
        tick: The tick.
        does: The behaviours.
    """
    return frozenset(
        (fault.source, node)
        for fault in _acting(faults, tick, NODE, *does)
        for node in fault.args[NODES]
        if fault.source is not None
    )


def find_share_faults(faults: Faults, tick: int) -> ShareFaults:
    """Return the nodes that withhold or falsify signature shares at ``tick``."""
    return ShareFaults(find_faulty_nodes(faults, tick, FALSE_SHARE), find_faulty_nodes(faults, tick, NO_SHARE))


def malicious_block_makers(faults: Faults, tick: int) -> dict[int, list[str]]:
    """Return the behaviours of malicious block makers at ``tick``, by subnet number.

    Those of one subnet are in scenario order.

    An honest block maker follows them.
    """
    found: dict[int, list[str]] = {}
    for fault in _acting(faults, tick, BLOCK_MAKER):
        if fault.destination is not None:
            found.setdefault(fault.destination, []).append(fault.args[DOES])
    return found


def delivered_batches(faults: Faults, tick: int, number: int, chain: int) -> list[int]:
    """Return the numbers of the batches delivered to ``chain`` at ``tick``, in order.

    Args:
        faults: The injected faults.
        tick: The tick.
        number: The number of the round's batch, which is always among them.
        chain: The number of the subnet.
    """
    does = [fault.args[DOES] for fault in _acting(faults, tick, BATCH) if fault.destination == chain]
    ahead = does.count(AHEAD)
    return [number + 1] * ahead + [number] * (1 + len(does) - ahead)


def ignored_batches(faults: Faults, before: State, context: Context) -> EventLog:
    """Return the events of batches that subnets ignore in a round.

    Args:
        faults: The injected faults.
        before: The state before the round.
        context: The metadata of the round.

    Returns:
        Events with the number of the batch in ``index`` and the expected number in ``queue_index``.
    """
    log = EventLog()
    if not any(True for _ in _acting(faults, context.tick, BATCH)):
        return log
    # The number of each running subnet's batch, its own next height if it certifies its state.
    chains = context.chains
    numbers = np.full(len(chains), context.height, dtype=np.uint64)
    if context.options.certified:
        heads = before.heads.filter(np.isin(before.heads["chain"], chains))
        chains, numbers = heads["chain"], heads["number"] + np.uint64(1)
    for chain, number in zip(chains.tolist(), numbers.tolist(), strict=True):
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
    """Check the faults of a scenario against its options and nodes.

    Raises:
        InvalidInput: The options lack the altered part, or a node does not exist.
    """
    for row, fault in enumerate(faults.rows):
        behaviour = fault.args.get(DOES, fault.args.get(PART))
        prefix = f"faults[{row}]: {fault.kind} of {behaviour}"
        if not options.certified and fault.kind in (ALTER, BLOCK_MAKER):
            raise InvalidInput(f'{prefix}: nobody would see it with certification = "off"; allowed: bls, threshold')
        if SUBSTREAM in fault.args and options.flat:
            text = 'streams have no substreams with substreams = "flat"'
            raise InvalidInput(f"{prefix}: substream: {text}; allowed: per_destination, per_source")
        unlimited = not options.payload_bytes and options.limits == "none"
        if fault.kind == BLOCK_MAKER and behaviour == OVERSIZED and unlimited:
            text = "payloads have no limit of size with payload_bytes = 0; allowed: 1 and more"
            raise InvalidInput(f'{prefix}: {text}, or limits = "deployed"')
        if fault.kind == NODE:
            if behaviour in _THRESHOLD and options.certification != "threshold":
                raise InvalidInput(f'{prefix}: nodes give no shares; allowed with certification = "threshold"')
            if fault.source in topology.external:
                raise InvalidInput(f"{prefix}: another lake runs the subnet; its scenario says what its nodes do")
            membership = topology.membership
            count = membership.nodes.get(fault.source or 0, options.nodes)
            count += sum(change.add for change in membership.changes if change.chain == fault.source)
            unknown = [node for node in fault.args[NODES] if node >= count]
            if unknown:
                raise InvalidInput(
                    f"{prefix}: the subnet has no node {unknown[0]}; its nodes have the numbers 0 to {count - 1}"
                )


def _acting(faults: Faults, tick: int, kind: str, *does: str) -> Iterator[FaultRule]:
    for fault in faults.rows:
        if fault.kind == kind and fault.is_active(tick) and (not does or fault.args[DOES] in does):
            yield fault
