"""Faults of every protocol: halted chains, forgeries, and carriers that skip or misbehave.

Faults change the carried data before a kernel validates it, so no protocol rule knows of them.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64

from causeway.config.faults import FOR_EVER, FaultRule, Faults
from causeway.core.frame import Frame
from causeway.core.vocabulary import Kind
from causeway.protocols.contract import Chains
from causeway.protocols.shared.random_numbers import DrawPurpose, draw_words

FORGE = "forge"
HALT = "halt"
DROP = "drop"
REPLAY = "replay"
GAP = "gap"
TAMPER = "tamper"
"""The fault kinds of every protocol (``shared.faults`` declares their sections)."""

PASSIVE = (HALT, DROP)
"""Fault kinds of every protocol that only prevent activity."""


class Interference:
    """The faults of one network. Chains are positions.

    ``passive`` lists the kinds that only change other activity. All others act on their own at every tick of their
    span.

    Args:
        faults: The faults.
        numbers: The chains' numbers by position.
        seed: The scenario's seed.
    """

    passive: ClassVar[tuple[str, ...]] = PASSIVE

    def __init__(self, faults: Faults, numbers: U64, seed: int) -> None:
        self.positions = {int(number): position for position, number in enumerate(numbers)}
        self._faults = faults
        self._numbers = numbers
        self._seed = seed

    @property
    def last_change(self) -> int:
        """Return the last tick at which a fault begins or ends, except endless ones."""
        spans = [tick for fault in self._faults.rows for tick in (fault.first, fault.last)]
        return max((tick for tick in spans if tick < FOR_EVER), default=0)

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on with an active fault, or None."""
        acting = [fault for fault in self._faults.rows if fault.kind not in self.passive and fault.last >= tick]
        return min((max(tick, fault.first) for fault in acting), default=None)

    def acting(self, tick: int, *kinds: str) -> list[FaultRule]:
        """Return the faults of some kinds that are active at ``tick``, in scenario order."""
        return [fault for fault in self._faults.rows if fault.kind in kinds and fault.is_active(tick)]

    def sources(self, kind: str, tick: int) -> list[int]:
        """Return the chains of the active faults of a kind, ascending, one for each fault."""
        found = [fault.source for fault in self.acting(tick, kind)]
        return sorted(self.positions[number] for number in found if number is not None)

    def running(self, chains: Chains, tick: int) -> Chains:
        """Return the chains that are not halted at ``tick``."""
        halted = self.sources(HALT, tick)
        return chains[~np.isin(chains, halted)] if halted else chains

    def permanently_halted(self, tick: int) -> list[int]:
        """Return the chains that are halted forever at ``tick``."""
        halts = [fault for fault in self.acting(tick, HALT) if fault.last >= FOR_EVER and fault.source is not None]
        return sorted({self.positions[fault.source] for fault in halts if fault.source is not None})

    def forged(self, chains: Chains, tick: int) -> Frame:
        """Return the messages that byzantine chains forge at ``tick``, in scenario order.

        Columns: ``source``, ``sender``, ``receiver``, ``payload``, and optional ones with defaults: ``kind`` (``Kind``;
        REQUEST), ``callback``, ``code``, ``deadline``, ``amount_high``, ``amount_low`` (0). Without rows no columns.
        """
        due = [
            (self.positions[fault.source], fault.args)
            for fault in self.acting(tick, FORGE)
            if fault.source is not None and self.positions[fault.source] in chains
        ]
        if not due:
            return Frame({})
        return Frame(
            {
                "source": np.array([source for source, _ in due], dtype=np.uint32),
                "sender": np.array([args["sender"] for _, args in due], dtype=np.uint64),
                "receiver": np.array([args["receiver"] for _, args in due], dtype=np.uint64),
                "kind": np.array([args.get("kind", int(Kind.REQUEST)) for _, args in due], dtype=np.uint8),
                "callback": np.array([args.get("callback", 0) for _, args in due], dtype=np.uint64),
                "code": np.array([args.get("code", 0) for _, args in due], dtype=np.uint8),
                "deadline": np.array([args.get("deadline", 0) for _, args in due], dtype=np.uint32),
                "amount_high": np.array([args.get("amount", 0) >> 64 for _, args in due], dtype=np.uint64),
                "amount_low": np.array([args.get("amount", 0) % 2**64 for _, args in due], dtype=np.uint64),
                "payload": pa.array([bytes.fromhex(args["payload"]) for _, args in due], pa.binary()),
            },
            len(due),
        )

    def skipped(self, destination: npt.NDArray[Any], source: npt.NDArray[Any], height: int) -> npt.NDArray[np.bool_]:
        """Return a mask of skipped pairs of chains at a height, drawn from the seed.

        Args:
            destination: The destination of each pair.
            source: The source of each pair.
            height: The height.
        """
        skipped = np.zeros(len(destination), dtype=bool)
        if not self._faults.skip:
            return skipped
        for chain in np.unique(destination).tolist():
            words = draw_words(DrawPurpose.SKIPPED, self._seed, int(self._numbers[chain]), height)
            draws = np.random.Generator(words).random(len(self._numbers))
            mine = destination == chain
            skipped[mine] = draws[source[mine]] < self._faults.skip
        return skipped

    def hit(self, fault: FaultRule, destination: npt.NDArray[Any], source: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of the pairs of chains that a fault affects.

        Args:
            fault: The fault.
            destination: The destination of each pair.
            source: The source of each pair.
        """
        hit = np.ones(len(destination), dtype=bool)
        if fault.source is not None:
            hit &= source == self.positions[fault.source]
        if fault.destination is not None:
            hit &= destination == self.positions[fault.destination]
        return hit
