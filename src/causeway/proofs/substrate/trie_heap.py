"""The heap of tries: keys and values of entries, one behind the other, in the order in which they came.

What is not held any more leaves holes. Where messages come and go in order, most of them lie side by side: such a
window is used again, and what little is held in it is moved. Where there is none, all is packed into another heap.
"""

from __future__ import annotations

import numpy as np

from causeway.proofs.substrate.trie_arena import HEAP_END, LIVE_BYTES, Arena

SMALL_HEAP = 1 << 20
"""A heap of fewer bytes is packed whole where it is full."""

STRETCHES = 1 << 12
LEAST_WINDOW = 8
"""In a larger one what is held is counted in so many stretches, and a window is at least one of so many parts: all
entries are looked through to find it."""


def with_heap(arena: Arena, stop: int, heap_bytes: int) -> tuple[Arena, int]:
    """Return the arena with room for ``heap_bytes`` more behind ``HEAP_END``, and where that room stops; it did at
    ``stop``."""
    from causeway.proofs.substrate import trie_heap_loops

    if int(arena.counters[HEAP_END]) + heap_bytes <= stop:
        return arena, stop
    if len(arena.heap) >= SMALL_HEAP and (window := _emptied_window(arena, heap_bytes)) is not None:
        return arena, window
    live = int(arena.counters[LIVE_BYTES])
    heap = np.empty(live + live // 2 + heap_bytes + heap_bytes // 2, dtype=np.uint8)
    trie_heap_loops.repack(arena, heap)
    return arena._replace(heap=heap), len(heap)


def _emptied_window(arena: Arena, heap_bytes: int) -> int | None:
    """Let new entries go where most of those that were there are not held any more; return where the window stops, None
    where there is none."""
    from causeway.proofs.substrate import trie_heap_loops

    size = len(arena.heap)
    stretch = size // STRETCHES + 1
    many = -(-max(2 * heap_bytes, size // LEAST_WINDOW) // stretch)
    held = np.zeros(-(-size // stretch), dtype=np.int64)
    if many >= len(held):
        return None
    trie_heap_loops.count_held(arena, stretch, held)
    sums = np.concatenate([[0], np.cumsum(held)])
    first = int(np.argmin(sums[many:] - sums[:-many])) * stretch
    stop = min(first + many * stretch, size)
    found = np.empty(2, dtype=np.int64)
    trie_heap_loops.measure_window(arena, first, stop, found)
    start, count = found.tolist()
    if 2 * count > stop - first or start + count + heap_bytes > stop:
        return None
    trie_heap_loops.pack_window(arena, first, stop, start, np.empty(count, dtype=np.uint8))
    return stop
