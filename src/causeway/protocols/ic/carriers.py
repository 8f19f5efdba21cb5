"""Who carries slices from subnet to subnet, and what goes wrong on the way: the transport rule with its faults.

An honest carrier offers the stream's newest certified slice at every tick. A slow one offers nothing at some ticks, by
a draw that depends on seed, taker, source and height alone; the scenario's faults are applied on top.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.faults import Faults
from causeway.model.frame import Frame, concat
from causeway.model.index import MAX_INDEX
from causeway.model.order import U64, stable_order
from causeway.protocols.ic.context import Context

FOR_EVER = 2**63
"""A fault whose last tick is at or past this has no end."""


class Carriers:
    """The carriers of one network. Chains are positions; ``subnets`` gives their numbers."""

    def __init__(self, faults: Faults, subnets: U64, seed: int) -> None:
        self._faults = faults
        self._positions = {int(number): position for position, number in enumerate(subnets)}
        self._subnets = subnets
        self._seed = seed
        self._carriers = faults.carriers.to_pylist()
        self._halts = faults.halts.to_pylist()

    @property
    def last_change(self) -> int:
        """Return the last tick at which a fault begins or ends; faults that last for ever have no end."""
        spans = [tick for row in (*self._carriers, *self._halts) for tick in (row["from"], row["until"])]
        forged = self._faults.forged["tick"].to_pylist()
        return max((tick for tick in (*spans, *forged) if tick < FOR_EVER), default=0)

    def planned(self, tick: int) -> list[int]:
        """Return ticks from ``tick`` on at which a fault acts of itself, the next of each: forgery, false slice."""
        forged = [due for due in self._faults.forged["tick"].to_pylist() if due >= tick]
        acting = [row for row in self._carriers if row["kind"] != "drop" and row["until"] >= tick]
        return [*forged, *(max(tick, row["from"]) for row in acting)]

    def running(self, chains: npt.NDArray[np.uint32], tick: int) -> npt.NDArray[np.uint32]:
        """Return the chains that run a round at ``tick``."""
        halted = [self._positions[row["chain"]] for row in self._halts if row["from"] <= tick <= row["until"]]
        return chains[~np.isin(chains, halted)] if halted else chains

    def forged(self, chains: npt.NDArray[np.uint32], tick: int) -> Frame:
        """Return the messages that byzantine chains among ``chains`` put into their streams at ``tick``."""
        table = self._faults.forged
        rows = table.filter(pc.equal(table["tick"], pa.scalar(tick, pa.uint64()))) if table.num_rows else table
        positions = np.array([self._positions[number] for number in rows["chain"].to_pylist()], dtype=np.uint32)
        here = np.flatnonzero(np.isin(positions, chains))
        return Frame(
            {
                "chain": positions[here],
                "sender": rows["sender"].to_numpy().astype(np.uint64)[here],
                "receiver": rows["receiver"].to_numpy().astype(np.uint64)[here],
                "payload": rows["payload"].combine_chunks().take(pa.array(here)),
            },
            len(here),
        )

    def carry(self, slices: Frame, everything: Frame, context: Context) -> Frame:
        """Return the slices that reach their takers, in order of (chain, remote, substream).

        ``slices``: those with news, which honest carriers offer; ``everything``: all that could be offered, which
        others may choose from.
        """
        if self._faults.skip and len(slices):
            slices = slices.filter(~self._skipped(slices, context))
        for fault in self._carriers:
            if fault["from"] <= context.tick <= fault["until"]:
                slices = self._with_fault(slices, everything, fault, context)
        return slices

    def _skipped(self, slices: Frame, context: Context) -> npt.NDArray[np.bool_]:
        skipped = np.zeros(len(slices), dtype=bool)
        for taker in np.unique(slices["chain"]).tolist():
            key = np.array([self._seed, int(self._subnets[taker])], dtype=np.uint64)
            generator = np.random.Generator(np.random.Philox(key=key, counter=[context.height, 1, 0, 0]))
            draws = generator.random(len(self._subnets))
            mine = slices["chain"] == taker
            skipped[mine] = draws[slices["remote"][mine]] < self._faults.skip
        return skipped

    def _with_fault(self, slices: Frame, everything: Frame, fault: dict[str, Any], context: Context) -> Frame:
        honest = slices.filter(~self._hit(slices, fault))
        if fault["kind"] == "drop":
            return honest
        altered = everything.filter(self._hit(everything, fault))
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

    def _hit(self, slices: Frame, fault: dict[str, Any]) -> npt.NDArray[np.bool_]:
        hit = np.ones(len(slices), dtype=bool)
        if fault["source"] is not None:
            hit &= slices["remote"] == self._positions[fault["source"]]
        if fault["destination"] is not None:
            hit &= slices["chain"] == self._positions[fault["destination"]]
        return hit
