"""Compiled loops that sort columns of byte strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway_proofs.jit import (
    BOOL,
    BYTES,
    INT64,
    NOTHING,
    ROWS,
    ROWS_OUT,
    compile_loop,
    read_only_arrays,
    writable_arrays,
)

WORDS, WORDS_OUT = read_only_arrays("uint64"), writable_arrays("uint64")
WORD = 8


@compile_loop(allocates=False)
def common_prefix(data: Any, first: Any, second: Any, known: Any, limit: Any) -> Any:
    """Return the length of two strings' common prefix, at most ``limit``, at least ``known``."""
    while known < limit and data[first + known] == data[second + known]:
        known += 1
    return known


@compile_loop(allocates=False)
def is_less(data: Any, offsets: Any, first: Any, second: Any, known: Any) -> Any:
    """Return True if one string sorts before another; their first ``known`` bytes are equal."""
    lengths = offsets[first + 1] - offsets[first], offsets[second + 1] - offsets[second]
    shorter = min(lengths[0], lengths[1])
    known = common_prefix(data, offsets[first], offsets[second], min(known, shorter), shorter)
    if known == shorter:
        return lengths[0] < lengths[1]
    return data[offsets[first] + known] < data[offsets[second] + known]


@compile_loop(BOOL, [ROWS, BYTES, ROWS], allocates=False)
def is_ascending(groups: Any, data: Any, offsets: Any) -> Any:
    """Return True if the rows ascend by group and then by string."""
    for row in range(1, len(groups)):
        if groups[row] < groups[row - 1]:
            return False
        if groups[row] == groups[row - 1] and is_less(data, offsets, row, row - 1, 0):
            return False
    return True


@compile_loop(NOTHING, [ROWS, BYTES, ROWS, ROWS, ROWS_OUT, WORDS_OUT], allocates=False)
def read_next_words(groups: Any, data: Any, offsets: Any, order: Any, known: Any, words: Any) -> None:
    """Find each run's common prefix, and read the next eight bytes of each string."""
    first = 0
    while first < len(order):
        last = first + 1
        same = offsets[order[first] + 1] - offsets[order[first]]
        while last < len(order) and groups[order[last]] == groups[order[first]]:
            length = offsets[order[last] + 1] - offsets[order[last]]
            same = common_prefix(data, offsets[order[first]], offsets[order[last]], 0, min(same, length))
            last += 1
        for row in order[first:last]:
            word = np.uint64(0)
            for index in range(WORD):
                at = offsets[row] + same + index
                byte = data[at] if at < offsets[row + 1] else 0
                word = word << np.uint64(WORD) | np.uint64(byte)
            words[row] = word
            known[row] = same
        first = last


@compile_loop(INT64, [ROWS, WORDS, ROWS, ROWS_OUT], allocates=False)
def number_runs(groups: Any, words: Any, order: Any, runs: Any) -> Any:
    """Assign numbers to runs of rows with equal group and word; return their count."""
    count = 0
    for index in range(len(order)):
        row, before = order[index], order[index - 1]
        if index == 0 or groups[row] != groups[before] or words[row] != words[before]:
            count += 1
        runs[row] = count - 1
    return count


@compile_loop(NOTHING, [ROWS, BYTES, ROWS, ROWS, ROWS_OUT, ROWS_OUT], allocates=False)
def merge_runs(groups: Any, data: Any, offsets: Any, known: Any, order: Any, spare: Any) -> None:
    """Sort the rows of each group by their strings (stable); ``order`` has ascending groups."""
    first = 0
    while first < len(order):
        last = first + 1
        while last < len(order) and groups[order[last]] == groups[order[first]]:
            last += 1
        width = 1
        while width < last - first:
            at = first
            while at + width < last:
                middle, end = at + width, min(at + 2 * width, last)
                for index in range(at, middle):
                    spare[index] = order[index]
                left, right, to = at, middle, at
                while left < middle and right < end:
                    if is_less(data, offsets, order[right], spare[left], known[order[right]]):
                        order[to] = order[right]
                        right += 1
                    else:
                        order[to] = spare[left]
                        left += 1
                    to += 1
                while left < middle:
                    order[to] = spare[left]
                    left += 1
                    to += 1
                at = end
            width *= 2
        first = last
