"""What goes wrong on purpose between subnets: who carries slices and how, and what byzantine subnets send.

An honest carrier offers the stream's newest certified slice at every tick. A slow one offers nothing at some ticks, by
a draw that depends on seed, destination, source and height alone; the scenario's faults are applied on top. All of it
happens before a slice is checked, before the phases of a round and before routing: no rule knows of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from causeway.model.faults import Fault
from causeway.model.frame import Frame, concat
from causeway.model.ledger import Event, Kind
from causeway.model.queues import MAX_INDEX
from causeway.proofs.ic.messages import RejectCode
from causeway.protocols.contract import Chains
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ic.batch import DecodedBatch, refuse_ingress
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.endpoint import by_stream
from causeway.protocols.ic.messages import CHAIN_HALTED, FORGED_FOR_NOBODY
from causeway.protocols.ic.step import ONWARD_SCHEMA
from causeway.protocols.interference import DROP, GAP, REPLAY, TAMPER, Interference
from causeway.protocols.messages import NO_QUEUE, blank_messages


class Carriers(Interference):
    """The carriers of slices of one network, and its byzantine subnets."""

    def carry(self, slices: Frame, everything: Frame, context: Context) -> Frame:
        """Return the slices that reach their destinations, in order of (destination, source, substream).

        ``slices``: those with news, which honest carriers offer; ``everything``: all that could be offered, which
        others may choose from.
        """
        if len(slices):
            slices = slices.filter(~self.skipped(slices["destination"], slices["source"], context.height))
        for fault in self.acting(context.tick, DROP, REPLAY, GAP, TAMPER):
            slices = self._with_fault(slices, everything, fault, context)
        return slices

    def _with_fault(self, slices: Frame, everything: Frame, fault: Fault, context: Context) -> Frame:
        honest = slices.filter(~self.hit(fault, slices["destination"], slices["source"]))
        if fault.kind == DROP:
            return honest
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
        """Return the batch without what users send to halted subnets, which refuse it."""
        halted = ~np.isin(batch.ingress["chain"], context.chains)
        ingress = refuse_ingress(batch.ingress, halted, RejectCode.SysTransient, CHAIN_HALTED, log)
        return replace(batch, ingress=ingress)

    def forged_messages(self, chains: Chains, context: Context, log: EventLog) -> Frame:
        """Return what byzantine subnets among ``chains`` append to their streams in this round (``ONWARD_SCHEMA``).

        A halted one appends nothing, and nothing is appended for a canister on no subnet: both leave an event.
        """
        rows = self.forged(chains, context.tick)
        given = {name: rows[name] for name in rows.names}
        methods = ["forged" if kind == Kind.REQUEST else "" for kind in rows["kind"].tolist()]
        given["method"] = pa.array(methods, pa.string()).dictionary_encode()
        forged = blank_messages(len(rows), **given)
        forged = forged.with_columns(queue_index=np.uint64(NO_QUEUE), sent_tick=np.uint64(context.tick))
        forged = forged.select(ONWARD_SCHEMA.names)
        halted = ~np.isin(forged["source"], context.chains)
        nobody = ~halted & (context.host_of(forged["receiver"]) < 0)
        for mask, reason in ((halted, CHAIN_HALTED), (nobody, FORGED_FOR_NOBODY)):
            dropped = forged.filter(mask)
            log.add(event_rows(dropped, Event.DROPPED, chain=dropped["source"], reason=reason))
        return forged.filter(~halted & ~nobody)
