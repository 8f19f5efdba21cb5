"""What goes wrong on purpose between subnets: who carries slices and how, and what byzantine subnets send.

An honest carrier offers the stream's newest certified slice at every tick. A slow one offers nothing at some ticks, by
a draw that depends on seed, destination, source and height alone; a stale one offers what was certified at an older
height, for which it keeps the headers of streams. The scenario's faults are applied on top. All of it
happens before a slice is checked, before the phases of a round and before routing: no rule knows of it.

How faulty carriers and block makers alter slices: functions on columns, so that no rule knows of faults.

Slices are rows as endpoints serve them (``SLICE_COLUMNS`` and, where they are certified, the columns of the table
``offers`` and ``receiver``), messages are rows of the lake. What is altered stays well-formed wherever a decoder would
refuse it, so that what is tested is that it is not certified.

The queue of batches that consensus delivers to a subnet: one of each height, in order (IC reference 3.1, X-1).

Which parties of a network are faulty at a tick: block makers, nodes, and who delivers batches.

What they do stands elsewhere: ``tampering`` alters slices, ``certifying`` signs, the endpoints serve.
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
from causeway_proofs.ic.messages import RejectCode
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
from causeway.protocols.ic.state import KEPT_SLICES_SCHEMA, ONWARD_SCHEMA, reverse_lanes
from causeway.protocols.ic.streams.endpoint import certified_streams, sort_by_stream
from causeway.protocols.ic.subnet_keys import ShareFaults
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.interference import DROP, GAP, PASSIVE, REPLAY, TAMPER, Interference
from causeway.protocols.shared.messages import FORGED, LANE, blank_messages

TAMPERED = "tampered"
"""A column of slices: what happens to their messages when they are read."""

UNTOUCHED, FLIPPED, EXCHANGED = 0, 1, 2
"""Its values: nothing; a bit of the first payload is flipped; the first two are exchanged."""


def alter_slices(slices: Frame, part: str, version: CertificationVersion) -> Frame:
    """Return slices with one ``part`` altered, as a carrier offers them that does so.

    ``payload``: they are marked (``TAMPERED``) for ``altered_messages``. ``sibling``: a bit of the first digest
    beside the messages, of the last one above the stream where none is needed. ``signature``: its last bit.
    ``destination``: another subnet, the one that offers them. ``height``: one higher, in the certification too.
    ``header``: it signals one message more.
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
    """Return the slices that a malicious block maker proposes instead of the ``honest`` ones.

    ``everything``: all that endpoints serve it; ``older``: the same of the height before. It does as
    ``fault_kinds.BlockMakerSection`` says, and leaves a slice as it is where that cannot be done to it: it has no
    certificates but those of endpoints.
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
    """Return the messages of slices as they arrive: altered where a slice says so (``TAMPERED``).

    ``messages``: rows with ``LANE`` and ``index``, in any order, those beside the slices too. A slice without messages
    has none to alter, one with a single message none to exchange.
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
    # The messages with what those at `rows`, two a lane, carry exchanged: all but their positions.
    rows = np.flatnonzero(exchanged)
    if not len(rows):
        return messages
    order = rows[stable_order(*(messages[name][rows] for name in LANE), messages["index"][rows])]
    lanes = np.stack([messages[name][order].astype(np.uint64) for name in LANE])
    same = (lanes[:, 1:] == lanes[:, :-1]).all(axis=0)
    first, second = order[:-1][same], order[1:][same]
    taken = np.arange(len(messages))
    taken[first], taken[second] = second, first
    kept = {name: messages[name] for name in (*LANE, "index")}
    return messages.take(taken).with_columns(**kept)


def unaltered_slices(slices: Frame) -> Frame:
    """Return slices marked so that nothing happens to their messages."""
    return _marked(slices, UNTOUCHED)


def _marked(slices: Frame, what: int) -> Frame:
    return slices.with_columns(**{TAMPERED: np.full(len(slices), what, dtype=np.uint8)})


def _flipped(data: bytes, position: int) -> bytes:
    """Return bytes with the lowest bit of one flipped, empty ones with a byte."""
    changed = bytearray(data or b"\0")
    changed[position] ^= 1
    return bytes(changed)


_KEPT_ORDER = ("destination", "source", "substream", "source_height")


class Carriers(Interference):
    """The carriers of slices of one network, and its byzantine subnets."""

    passive = (*PASSIVE, NODE, BLOCK_MAKER)

    def oldest(self, tick: int) -> int:
        """Return by how many heights what carriers offer, or block makers propose, from ``tick`` on is older than the
        newest; 0: by none."""
        coming = [fault for fault in self._faults.rows if fault.last >= tick]
        ages = [int(fault.args[AGE]) for fault in coming if fault.kind == STALE]
        stale = any(fault.kind == BLOCK_MAKER and fault.args[DOES] == STALE for fault in coming)
        return max([*ages, int(stale)])

    def kept(self, kept: Frame, view: View, chains: Chains, tick: Tick) -> Frame:
        """Return what carriers to ``chains`` keep after a tick, to offer it later (``KEPT_SLICES_SCHEMA``).

        ``kept``: what they have; ``view``: what they see.
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
        """Return the slices that reach their destinations, in order of (destination, source, substream).

        ``slices``: those with news, which honest carriers offer; ``everything``: all that could be offered, which
        others may choose from; ``older``: what could be offered of what carriers have kept.
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
        """Return the certified slices that reach their destinations, in order of (destination, source).

        ``slices``, ``everything``: as of ``carry``; ``older``: the slices of so many heights before the newest.
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
        """Return which slices a fault is about, of those that show one substream each."""
        hit = self.hit(fault, slices["destination"], slices["source"])
        return hit & (slices["substream"] == np.uint64(fault.args[SUBSTREAM])) if SUBSTREAM in fault.args else hit

    def block_makers(self, context: Context) -> list[tuple[int, str]]:
        """Return the malicious block makers of a round, in the order in which they propose: chain, and what it does."""
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
            # Always at least one message, though there be none, so that what is refused is the first index.
            begin = np.minimum(altered["message_begin"], np.uint64(MAX_INDEX - 2)) + np.uint64(1)
            stop = np.maximum(altered["message_end"], begin + np.uint64(1))
            altered = altered.with_columns(message_begin=begin, message_end=stop, end=np.maximum(altered["end"], stop))
        else:
            altered = altered.with_columns(root=altered["root"] ^ np.uint8(1))
        return sort_by_stream(concat([honest, altered]))

    def reached(self, batch: DecodedBatch, context: Context, log: EventLog) -> DecodedBatch:
        """Return the batch without what users send to subnets that run no round: those that are split now, halted ones,
        and those that are not in the registry."""
        absent = ~context.registry.has(batch.ingress["chain"])
        ingress = refuse_ingress(batch.ingress, absent, RejectCode.DestinationInvalid, UNKNOWN_SUBNET, log)
        splitting = np.isin(ingress["chain"], context.splitting)
        ingress = refuse_ingress(ingress, splitting, RejectCode.SysTransient, CHAIN_SPLITTING, log)
        halted = ~np.isin(ingress["chain"], context.chains)
        ingress = refuse_ingress(ingress, halted, RejectCode.SysTransient, CHAIN_HALTED, log)
        return replace(batch, ingress=ingress)

    def forged_messages(self, chains: Chains, context: Context, log: EventLog) -> Frame:
        """Return what byzantine subnets among ``chains`` append to their streams in this round (``ONWARD_SCHEMA``).

        One that runs no round appends nothing, nor is anything appended for a canister on no subnet; each leaves an
        event.
        """
        rows = self.forged(chains, context.tick)
        if len(rows) == 0:
            return empty_frame(ONWARD_SCHEMA)
        given = {name: rows[name] for name in rows.names}
        methods = ["forged" if kind == Kind.REQUEST else "" for kind in rows["kind"].tolist()]
        given["method"] = pa.array(methods, pa.string()).dictionary_encode()
        forged = blank_messages(len(rows), **given)
        forged = forged.with_columns(queue_index=np.uint64(FORGED), sent_tick=np.uint64(context.tick))
        forged = forged.select(ONWARD_SCHEMA.names)
        absent = ~context.registry.has(forged["source"])
        at_rest = ~absent & ~np.isin(forged["source"], context.chains)
        splitting = at_rest & np.isin(forged["source"], context.splitting)
        nobody = ~absent & ~at_rest & (context.host_of(forged["receiver"]) < 0)
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
    """Return the oldest message that each stream rejects, the end of its signals where it rejects none."""
    oldest: U64 = streams["signals_end"].copy()
    rejects = view.tables["rejects"]
    lanes = group_rows(*(rejects[name] for name in ("destination", "source", "substream")))
    first = rejects.take(lanes.starts)
    row = lookup_rows(streams, reverse_lanes(first), LANE, ordered=False)
    oldest[row[row >= 0]] = first["index"][row >= 0]
    return oldest


def _falsified(slices: Frame, fault: FaultRule, version: CertificationVersion) -> Frame:
    """Return certified slices as a carrier offers them that replays, leaves a gap, tampers or alters."""
    if fault.kind == REPLAY:
        # Slices from the first message on that is in their streams, though it was taken before.
        begin, first = slices["begin"], slices["message_begin"]
        return slices.with_columns(message_begin=np.where(slices["end"] > begin, begin, first))
    if fault.kind == GAP:
        # Slices from one index above the expected on, and with one message at least, though there be none: so what
        # is refused is their first index.
        first = np.minimum(slices["message_begin"], np.uint64(MAX_INDEX - 2)) + np.uint64(1)
        return slices.with_columns(
            message_begin=first, message_end=np.maximum(slices["message_end"], first + np.uint64(1))
        )
    if fault.kind == TAMPER:
        paths = [path[:-1] + bytes([path[-1] ^ 1]) for path in slices["path"].to_pylist()]
        return slices.with_columns(path=pa.array(paths, pa.binary()))
    return alter_slices(slices, fault.args[PART], version) if fault.kind == ALTER else slices


CAPACITY = 16
"""Batches that are delivered and not yet executed at most."""


class Ignored(CausewayError):
    """A batch that is not the next one: its state exists already, or that of the batch before it does not yet."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(f"Ignored: batch {actual}, expected {expected}")
        self.expected, self.actual = expected, actual


class QueueIsFull(CausewayError):
    """The queue holds as many batches as it may; the batch must be delivered again later."""


@dataclass
class BatchQueue:
    """Batches on their way to the state machine, by their numbers.

    ``latest_state``: the height of the newest state; ``last_delivered``: of the newest batch that was taken.
    """

    latest_state: int
    last_delivered: int = 0
    waiting: list[int] = field(default_factory=list)

    @property
    def expected(self) -> int:
        """Return the number of the batch that comes next."""
        return 1 + max(self.last_delivered, self.latest_state)

    def deliver(self, number: int) -> None:
        """Take a batch.

        Raises:
            Ignored: it is not the expected one; nothing changes.
            QueueIsFull: there is no room for it; nothing changes.
        """
        if number != self.expected:
            raise Ignored(self.expected, number)
        if len(self.waiting) >= CAPACITY:
            raise QueueIsFull(f"QueueIsFull: {CAPACITY} batches wait, batch {number} must be delivered again")
        self.waiting.append(number)
        self.last_delivered = number

    def executed(self) -> int:
        """Return the number of the oldest batch, which has been executed: its state exists now."""
        self.latest_state = self.waiting.pop(0)
        return self.latest_state


_THRESHOLD = (FALSE_SHARE, NO_SHARE)


def find_faulty_nodes(faults: Faults, tick: int, *does: str) -> frozenset[tuple[int, int]]:
    """Return the nodes that do one of ``does`` at ``tick``, each by the numbers of its subnet and of its own."""
    return frozenset(
        (fault.source, node)
        for fault in _acting(faults, tick, NODE, *does)
        for node in fault.args[NODES]
        if fault.source is not None
    )


def find_share_faults(faults: Faults, tick: int) -> ShareFaults:
    """Return the nodes that do not sign as they should at ``tick``."""
    return ShareFaults(find_faulty_nodes(faults, tick, FALSE_SHARE), find_faulty_nodes(faults, tick, NO_SHARE))


def malicious_block_makers(faults: Faults, tick: int) -> dict[int, list[str]]:
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


def _acting(faults: Faults, tick: int, kind: str, *does: str) -> Iterator[FaultRule]:
    for fault in faults.rows:
        if fault.kind == kind and fault.is_active(tick) and (not does or fault.args[DOES] in does):
            yield fault
