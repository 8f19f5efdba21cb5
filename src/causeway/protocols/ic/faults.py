"""What goes wrong on purpose between subnets: who carries slices and how, and what byzantine subnets send.

An honest carrier offers the stream's newest certified slice at every tick. A slow one offers nothing at some ticks, by
a draw that depends on seed, destination, source and height alone; a stale one offers what was certified at an older
height, for which it keeps the headers of streams. The scenario's faults are applied on top. All of it
happens before a slice is checked, before the phases of a round and before routing: no rule knows of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.faults import Fault
from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.joins import lookup
from causeway.model.ledger import Event, Kind
from causeway.model.order import U64, groups_of, stable_order
from causeway.model.queues import MAX_INDEX
from causeway.proofs.ic.messages import RejectCode
from causeway.proofs.ic.versions import CertificationVersion
from causeway.protocols.contract import Chains, Tick, View
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ic.batch import DecodedBatch, refuse_ingress
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.endpoint import by_stream, certified_streams
from causeway.protocols.ic.fault_kinds import AGE, ALTER, BLOCK_MAKER, DOES, NODE, PART, STALE, SUBSTREAM
from causeway.protocols.ic.messages import CHAIN_HALTED, CHAIN_SPLITTING, FORGED_FOR_NOBODY, UNKNOWN_SUBNET
from causeway.protocols.ic.state import KEPT_SLICES_SCHEMA, opposite
from causeway.protocols.ic.step import ONWARD_SCHEMA
from causeway.protocols.ic.tampering import altered, untouched
from causeway.protocols.interference import DROP, GAP, PASSIVE, REPLAY, TAMPER, Interference
from causeway.protocols.messages import FORGED, LANE, blank_messages

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
            slices = untouched(slices)
        for fault in acting:
            offered = older(int(fault.args[AGE])) if fault.kind == STALE else everything
            offered = offered.filter(self._hit_substreams(fault, offered))
            slices = slices.filter(~self._hit_substreams(fault, slices))
            if fault.kind == DROP:
                continue
            offered = _falsified(untouched(offered) if marked else offered, fault, context.options.version)
            slices = by_stream(concat([slices, offered]))
        return slices

    def _hit_substreams(self, fault: Fault, slices: Frame) -> npt.NDArray[np.bool_]:
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

    def _with_fault(self, slices: Frame, everything: Frame, older: Frame, fault: Fault, context: Context) -> Frame:
        honest = slices.filter(~self.hit(fault, slices["destination"], slices["source"]))
        if fault.kind == DROP:
            return honest
        if fault.kind == STALE:
            certified = older["source_height"] + np.uint64(1 + int(fault.args[AGE])) == np.uint64(context.height)
            reached = np.isin(older["destination"], context.chains)
            hit = certified & reached & self.hit(fault, older["destination"], older["source"])
            return by_stream(concat([honest, older.filter(hit)])) if hit.any() else honest
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
        return by_stream(concat([honest, altered]))

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
    lanes = groups_of(*(rejects[name] for name in ("destination", "source", "substream")))
    first = rejects.take(lanes.starts)
    row = lookup(streams, opposite(first), LANE, ordered=False)
    oldest[row[row >= 0]] = first["index"][row >= 0]
    return oldest


def _falsified(slices: Frame, fault: Fault, version: CertificationVersion) -> Frame:
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
    return altered(slices, fault.args[PART], version) if fault.kind == ALTER else slices
