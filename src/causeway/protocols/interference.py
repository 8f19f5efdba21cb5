"""What goes wrong between chains on purpose, whatever the protocol: halted chains, forgeries, carriers that skip or
misbehave.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.faults import Faults
from causeway.model.frame import Frame
from causeway.model.order import U64

FOR_EVER = 2**63
"""A fault whose last tick is at or past this has no end."""


class Interference:
    """The faults of one network. Chains are positions; ``numbers`` gives their numbers."""

    def __init__(self, faults: Faults, numbers: U64, seed: int) -> None:
        self._faults = faults
        self._positions = {int(number): position for position, number in enumerate(numbers)}
        self._numbers = numbers
        self._seed = seed
        self._carriers = faults.carriers.to_pylist()
        self._halts = faults.halts.to_pylist()
        self._forks = faults.forks.to_pylist()
        self._disconnects = faults.disconnects.to_pylist()

    @property
    def last_change(self) -> int:
        """Return the last tick at which a fault begins or ends; faults that last for ever have no end."""
        spans = [tick for row in (*self._carriers, *self._halts) for tick in (row["from"], row["until"])]
        forged = self._faults.forged["tick"].to_pylist()
        single = [row["tick"] for row in (*self._forks, *self._disconnects)]
        return max((tick for tick in (*spans, *forged, *single) if tick < FOR_EVER), default=0)

    def planned(self, tick: int) -> list[int]:
        """Return ticks from ``tick`` on at which a fault acts of itself: all but halts and dropped offers."""
        forged = [due for due in self._faults.forged["tick"].to_pylist() if due >= tick]
        acting = [row for row in self._carriers if row["kind"] != "drop" and row["until"] >= tick]
        single = [row["tick"] for row in (*self._forks, *self._disconnects) if row["tick"] >= tick]
        return [*forged, *single, *(max(tick, row["from"]) for row in acting)]

    def forking(self, tick: int) -> list[int]:
        """Return the chains of which a second header is shown at ``tick``."""
        return sorted(self._positions[row["chain"]] for row in self._forks if row["tick"] == tick)

    def disconnecting(self, chains: npt.NDArray[np.uint32], tick: int) -> Frame:
        """Return the connections that chains among ``chains`` end at ``tick``: ``chain``, ``remote``."""
        due = [row for row in self._disconnects if row["tick"] == tick]
        ends = [(self._positions[row["chain"]], self._positions[row["remote"]]) for row in due]
        columns = np.array(ends, dtype=np.uint32).reshape(-1, 2)
        rows = Frame({"chain": columns[:, 0], "remote": columns[:, 1]}, len(columns))
        return rows.filter(np.isin(rows["chain"], chains))

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

    def skipped(self, taker: npt.NDArray[Any], source: npt.NDArray[Any], height: int) -> npt.NDArray[np.bool_]:
        """Return which takers take nothing from which sources at a height, by draws of the seed, taker and height."""
        skipped = np.zeros(len(taker), dtype=bool)
        if not self._faults.skip:
            return skipped
        for chain in np.unique(taker).tolist():
            key = np.array([self._seed, int(self._numbers[chain])], dtype=np.uint64)
            generator = np.random.Generator(np.random.Philox(key=key, counter=[height, 1, 0, 0]))
            draws = generator.random(len(self._numbers))
            mine = taker == chain
            skipped[mine] = draws[source[mine]] < self._faults.skip
        return skipped

    def acting(self, tick: int) -> list[dict[str, Any]]:
        """Return the carriers' faults at ``tick``, in the order of the scenario."""
        return [fault for fault in self._carriers if fault["from"] <= tick <= fault["until"]]

    def hit(self, fault: dict[str, Any], taker: npt.NDArray[Any], source: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return which pairs of chains a carriers' fault is about."""
        hit = np.ones(len(taker), dtype=bool)
        if fault["source"] is not None:
            hit &= source == self._positions[fault["source"]]
        if fault["destination"] is not None:
            hit &= taker == self._positions[fault["destination"]]
        return hit
