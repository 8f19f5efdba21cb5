"""The compiled loops of ``slices``."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway_proofs.jit import BYTES, INT64, ROWS, ROWS_OUT, compile_loop, writable_arrays

MOST_STEPS = 32
"""Slots that are looked at for one slice. In a table that is at most half full, slices that nobody has chosen to
collide need more of them about once in a million times."""

_FIRST = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)


@compile_loop(allocates=False)
def word_at(data: Any, at: Any) -> Any:
    """Return the eight bytes at ``at`` as a number, little-endian."""
    # With an index that cannot be negative, the eight loads become one.
    begin = np.uint64(at)
    word = np.uint64(0)
    for position in range(np.uint64(8)):
        word |= np.uint64(data[begin + position]) << (np.uint64(8) * position)
    return word


@compile_loop(allocates=False)
def copy_bytes(source: Any, start: Any, to: Any, at: Any, count: Any) -> None:
    """Copy ``count`` bytes, 0 or more, from ``start`` on to ``at`` of another array."""
    # A position that may be negative, which would count from the end, is what a processor cannot copy in words.
    first, target = np.uint64(start), np.uint64(at)
    for index in range(np.uint64(count)):
        to[target + index] = source[first + index]


@compile_loop(allocates=False)
def mix_word(state: Any, word: Any) -> Any:
    """Return a state into which a word is mixed; fast, and no obstacle for somebody who looks for collisions."""
    state = (state ^ word) * _FIRST
    return state ^ (state >> _HALF)


@compile_loop(allocates=False)
def weak_hash(data: Any, start: Any, stop: Any) -> Any:
    """Return a hash of a slice that is the same for equal bytes, and mostly another one for others."""
    first = np.uint64(stop - start)
    second, third, fourth = _FIRST, _SECOND, first ^ _SECOND
    at = start
    while at + 32 <= stop:
        # Four states, so that one multiplication need not wait for the one before.
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
    """Return whether ``length`` bytes at two places of ``data`` are the same."""
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
    """Number the distinct slices in the order of their first rows, and return how many there are.

    ``table``: -1 in every slot, a power of two of them, at least twice as many as slices. ``number_of[row]`` becomes
    the number of a row's slice, ``firsts[number]`` the first row that has it,
    ``hashes[number]`` the weak hash of its bytes.
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
