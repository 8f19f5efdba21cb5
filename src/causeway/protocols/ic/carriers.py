"""Who carries slices from subnet to subnet, and what goes wrong on the way: the transport rule with its faults.

An honest carrier offers the stream's newest certified slice at every tick. A slow one offers nothing at some ticks, by
a draw that depends on seed, taker, source and height alone; the scenario's faults are applied on top.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.index import MAX_INDEX
from causeway.model.order import stable_order
from causeway.protocols.ic.context import Context
from causeway.protocols.interference import Interference


class Carriers(Interference):
    """The carriers of slices of one network."""

    def carry(self, slices: Frame, everything: Frame, context: Context) -> Frame:
        """Return the slices that reach their takers, in order of (chain, remote, substream).

        ``slices``: those with news, which honest carriers offer; ``everything``: all that could be offered, which
        others may choose from.
        """
        if len(slices):
            slices = slices.filter(~self.skipped(slices["chain"], slices["remote"], context.height))
        for fault in self.acting(context.tick):
            slices = self._with_fault(slices, everything, fault, context)
        return slices

    def _with_fault(self, slices: Frame, everything: Frame, fault: dict[str, Any], context: Context) -> Frame:
        honest = slices.filter(~self.hit(fault, slices["chain"], slices["remote"]))
        if fault["kind"] == "drop":
            return honest
        altered = everything.filter(self.hit(fault, everything["chain"], everything["remote"]))
        if fault["kind"] == "replay":
            base = np.uint64(context.options.index_base)
            altered = altered.with_columns(begin=base, message_begin=base)
        elif fault["kind"] == "gap":
            # Always at least one message, though there be none, so that what is refused is the first index.
            begin = np.minimum(altered["message_begin"], np.uint64(MAX_INDEX - 2)) + np.uint64(1)
            stop = np.maximum(altered["message_end"], begin + np.uint64(1))
            altered = altered.with_columns(message_begin=begin, message_end=stop, end=np.maximum(altered["end"], stop))
        else:
            altered = altered.with_columns(root=altered["root"] ^ np.uint8(1))
        joined = concat([honest, altered])
        return joined.take(stable_order(joined["chain"], joined["remote"], joined["substream"]))
