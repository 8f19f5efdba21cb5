"""Compiled loops that number distinct slices."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway_proofs.jit import BYTES, INT64, ROWS, ROWS_OUT, compile_loop, writable_arrays

MOST_STEPS = 32
"""Most probed slots for one slice.

In a table at most half full, slices without chosen collisions need more about once in a million times.
"""

_FIRST = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)


@compile_loop(allocates=False)
def word_at(data: Any, at: Any) -> Any:
    """Return the eight bytes at ``at`` as a little-endian number."""
    # With an index known to be non-negative, the compiler merges the eight loads.
    begin = np.uint64(at)
    word = np.uint64(0)
    for position in range(np.uint64(8)):
        word |= np.uint64(data[begin + position]) << (np.uint64(8) * position)
    return word


@compile_loop(allocates=False)
def copy_bytes(source: Any, start: Any, to: Any, at: Any, count: Any) -> None:
    """Copy ``count`` bytes, possibly 0, from ``start`` to ``at`` of another array."""
    # Known non-negative positions let the compiler copy whole words.
    first, target = np.uint64(start), np.uint64(at)
    for index in range(np.uint64(count)):
        to[target + index] = source[first + index]


@compile_loop(allocates=False)
def mix_word(state: Any, word: Any) -> Any:
    """Mix a word into a hash state; fast, and not collision-resistant."""
    state = (state ^ word) * _FIRST
    return state ^ (state >> _HALF)


@compile_loop(allocates=False)
def weak_hash(data: Any, start: Any, stop: Any) -> Any:
    """Return a weak hash of a slice."""
    first = np.uint64(stop - start)
    second, third, fourth = _FIRST, _SECOND, first ^ _SECOND
    at = start
    while at + 32 <= stop:
        # Four independent states, so that multiplications overlap.
        first = mix_word(first, word_at(data, at))
        second = mix_word(second, word_at(data, at + 8))
        third = mix_word(third, word_at(data, at + 16))
        fourth = mix_word(fourth, word_at(data, at + 24))
        at += 32
    while at + 8 <= stop:
        first = mix_word(first, word_at(data, at))
        at += 8
    while at < stop:
        second = mix_word(second, np.uint64(data[at]))
        at += 1
    return mix_word(mix_word(mix_word(first, second), third), fourth)


@compile_loop(allocates=False)
def same_bytes(data: Any, start: Any, other: Any, length: Any) -> Any:
    """Return True if ``length`` bytes at two positions of ``data`` are equal."""
    done = 0
    while done + 32 <= length:
        differ = np.uint64(0)
        for part in range(0, 32, 8):
            differ |= word_at(data, start + done + part) ^ word_at(data, other + done + part)
        if differ != np.uint64(0):
            return False
        done += 32
    while done < length:
        if data[start + done] != data[other + done]:
            return False
        done += 1
    return True


@compile_loop(INT64, [BYTES, ROWS, ROWS, ROWS_OUT, ROWS_OUT, ROWS_OUT, writable_arrays("uint64")], allocates=False)
def number_slices(data: Any, starts: Any, stops: Any, table: Any, number_of: Any, firsts: Any, hashes: Any) -> int:
    """Assign numbers to distinct slices in order of first row; return their count.

    ``table``: -1 in every slot; its size is a power of two, at least twice the number of slices. Writes
    ``number_of[row]``, the number of a row's slice; ``firsts[number]``, its first row; ``hashes[number]``, its weak
    hash.
    """
    mask = len(table) - 1
    count = 0
    for row in range(len(starts)):
        start, length = starts[row], stops[row] - starts[row]
        own = weak_hash(data, start, stops[row])
        slot = np.int64(own & np.uint64(mask))
        found = -1
        for _ in range(MOST_STEPS):
            number = table[slot]
            if number < 0:
                table[slot] = count
                break
            other = firsts[number]
            same_length = hashes[number] == own and stops[other] - starts[other] == length
            if same_length and same_bytes(data, start, starts[other], length):
                found = number
                break
            slot = (slot + 1) & mask
        if found < 0:
            found = count
            firsts[count] = row
            hashes[count] = own
            count += 1
        number_of[row] = found
    return count
