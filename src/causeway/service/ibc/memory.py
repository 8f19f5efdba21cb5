"""What a relay process remembers of a direction from one pass to the next (IBC reference 3.5, X-13).

What there is to relay follows from both chains alone. This is about what is *not* worth doing: submitting again and
again what the target refuses, and reading again a header that was compared or the limits of a packet. A process that
is started again has lost nothing but its patience.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from causeway.service.ibc.lanes import Pushed, QueueView

MOST_BLOCKS = 64
"""So many blocks what was refused waits at most before it is submitted again."""

MOST_TOLD = 8
"""So many of the entries that wait are told."""

MOST_COMPARED = 1_000
"""Headers of which is remembered that they were compared; the last ones."""

Limits = tuple[int, int]
"""The height and the time (ns) of the other chain up to which a packet can be received."""


@dataclass
class Tried:
    """An entry that was handed over and is still due: at which height of the target, how often in vain, and whether it
    waits now: until which height, or for how many more passes where the target makes no blocks."""

    height: int
    refused: int = 0
    waits: bool = False
    until: int = 0
    passes: int = 0


@dataclass
class Memory:
    """The memory of one direction.

    ``held``: of the present pass, what is not submitted though it is due, in words; the first ones. ``limits``: of the
    target's packets that were read, by index.
    """

    held: list[str] = field(default_factory=list)
    limits: dict[int, Limits] = field(default_factory=dict)
    _tried: dict[str, dict[int, Tried]] = field(default_factory=dict)
    _compared: dict[tuple[int, bytes], None] = field(default_factory=dict)

    def due(self, kind: str, entries: Pushed, height: int, *, ordered: bool) -> Pushed:
        """Return which of the entries that are due are to be submitted now; ``height``: the target's.

        What was handed over before a block and is still due after it was refused: the n-th time in a row it waits for
        ``min(2**n, 64)`` blocks, or as many passes. In an ordered queue what is behind it waits with it.
        """
        tried = self._tried.setdefault(kind, {})
        for index in [index for index in tried if index not in entries]:
            del tried[index]
        waiting = {index for index, entry in tried.items() if self._waits(kind, index, entry, height)}
        if not waiting:
            return entries
        if not ordered:
            return {index: pushed for index, pushed in entries.items() if index not in waiting}
        return {index: pushed for index, pushed in entries.items() if index < min(waiting)}

    def _waits(self, kind: str, index: int, entry: Tried, height: int) -> bool:
        if not entry.waits and height > entry.height:
            entry.refused += 1
            blocks = min(2 ** min(entry.refused, 10), MOST_BLOCKS)
            entry.waits, entry.until, entry.passes = True, height + blocks, blocks
        elif entry.waits:
            entry.passes -= 1
        if not entry.waits or height >= entry.until or entry.passes <= 0:
            return False
        if len(self.held) == MOST_TOLD:
            return True
        times = "once" if entry.refused == 1 else f"{entry.refused} times"
        self.held.append(f"{kind} {index} was not taken, {times}: it waits for block {entry.until}")
        return True

    def handed_over(self, kind: str, indices: Collection[int], height: int, *, ordered: bool) -> None:
        """Note what is submitted at a height of the target; of an ordered queue the first decides for all."""
        tried = self._tried.setdefault(kind, {})
        for index in sorted(indices)[:1] if ordered else indices:
            before = tried.get(index)
            tried[index] = Tried(height, before.refused if before is not None else 0)

    def know(self, queue: QueueView, limits: Mapping[int, Limits]) -> None:
        """Note the limits of packets that were read, and forget those of packets that have left ``queue``."""
        here = queue.pushed(queue.head, queue.tail)
        for index in [index for index in self.limits if index not in here]:
            del self.limits[index]
        self.limits.update(limits)

    def is_compared(self, height: int, header_hash: bytes) -> bool:
        """Return whether a header of the source is known to be its own."""
        return (height, header_hash) in self._compared

    def compared(self, height: int, header_hash: bytes) -> None:
        """Note that a header is the source's own."""
        self._compared[height, header_hash] = None
        if len(self._compared) > MOST_COMPARED:
            del self._compared[next(iter(self._compared))]
