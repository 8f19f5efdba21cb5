"""The shape of a base-16 Patricia trie over sorted keys, found by columns.

Two neighbouring keys part in a branch at the depth of their common prefix. All gaps between neighbours that have the
same depth are turned into branches at once, the deepest first: what lies left and right of a gap is then already one
node. A key that is a prefix of the next one is the value of the branch at its end. The whole is a forest: one trie for
each group of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.order import Rows
from causeway.proofs.substrate.byte_columns import Bytes, data_of, ends_of, offsets_of

_WORD = 8
_NIBBLE_BITS = 4
_HALF, _LOW_NIBBLE = np.uint8(4), np.uint8(0x0F)


@dataclass(frozen=True, slots=True)
class Structure:
    """The nodes of the tries over ``n`` keys: 0 to n - 1 are the keys' leaves, n and above the branches.

    Attributes:
        starts: for each node, the nibble of its keys at which its partial key starts; -1 for a key that has no leaf
            because its value sits on a branch.
        depths: for each branch, the nibble at which its keys part: where its partial key stops.
        first_keys, last_keys: for each node, the first and last row of the keys below it.
        values: for each branch, the row of the key whose value sits on it, -1 where there is none.
        child_ends: offsets of the branches' children in the next two (number of branches + 1).
        children: node numbers, ascending by nibble in each branch.
        child_nibbles: the nibble that leads to each of them.
        heights: for each branch, one more than the highest of its children (leaves have height 0).
        roots: the top node of each group.
    """

    starts: Rows
    depths: Rows
    first_keys: Rows
    last_keys: Rows
    values: Rows
    child_ends: Rows
    children: Rows
    child_nibbles: Bytes
    heights: Rows
    roots: Rows


def build_structure(keys: pa.LargeBinaryArray, group_starts: Rows) -> Structure:
    """Return the shape of the tries over ``keys``, sorted and unique in each group; no group is empty."""
    offsets, data = offsets_of(keys), data_of(keys)
    count = len(keys)
    key_nibbles = 2 * np.diff(offsets)
    common = _common_prefixes(data, offsets)
    common[group_starts[1:] - 1] = -1
    gaps = np.flatnonzero(common >= 0)
    # Sixteen bits are sorted by radix.
    gaps = gaps[np.argsort((0xFFFF - common[gaps]).astype(np.uint16), kind="stable")]
    edges = np.append(np.flatnonzero(np.diff(common[gaps], prepend=-1)), len(gaps))
    first_keys = np.empty(2 * count, dtype=np.int64)
    last_keys = np.empty(2 * count, dtype=np.int64)
    first_keys[:count] = last_keys[:count] = np.arange(count)
    starts = np.full(2 * count, -1, dtype=np.int64)
    heights = np.zeros(2 * count, dtype=np.int64)
    starting, ending = np.arange(count), np.arange(count)
    none = np.empty(0, dtype=np.int64)
    depths, values, counts, children = [none], [none], [none], [none]
    nibbles = [np.empty(0, dtype=np.uint8)]
    top = count
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        here = gaps[begin:end]
        depth = int(common[here[0]])
        left, right = ending[here], starting[here + 1]
        opens = np.ones(len(here), dtype=bool)
        opens[1:] = left[1:] != right[:-1]
        run_starts = np.flatnonzero(opens)
        runs = len(run_starts)
        leftmost = left[run_starts]
        has_value = (leftmost < count) & (key_nibbles[np.minimum(leftmost, count - 1)] == depth)
        below = np.empty(len(here) + runs, dtype=np.int64)
        below[np.arange(len(here)) + np.cumsum(opens)] = right
        first_places = run_starts + np.arange(runs)
        below[first_places] = leftmost
        kept = np.ones(len(below), dtype=bool)
        kept[first_places[has_value]] = False
        below = below[kept]
        sizes = np.diff(np.append(run_starts, len(here))) + 1 - has_value
        numbers = np.arange(top, top + runs)
        first_keys[numbers] = first_keys[leftmost]
        last_keys[numbers] = last_keys[right[np.append(run_starts[1:], len(here)) - 1]]
        starting[first_keys[numbers]] = numbers
        ending[last_keys[numbers]] = numbers
        heights[numbers] = 1 + np.maximum.reduceat(heights[below], ends_of(sizes)[:-1])
        starts[below] = depth + 1
        byte = data[offsets[first_keys[below]] + depth // 2]
        depths.append(np.full(runs, depth, dtype=np.int64))
        values.append(np.where(has_value, leftmost, -1))
        counts.append(sizes)
        children.append(below)
        nibbles.append(byte & _LOW_NIBBLE if depth % 2 else byte >> _HALF)
        top += runs
    roots = starting[group_starts]
    starts[roots] = 0
    return Structure(
        starts[:top],
        np.concatenate(depths),
        first_keys[:top],
        last_keys[:top],
        np.concatenate(values),
        ends_of(np.concatenate(counts)),
        np.concatenate(children),
        np.concatenate(nibbles),
        heights[count:top],
        roots,
    )


def _common_prefixes(data: Bytes, offsets: Rows) -> Rows:
    """Return how many nibbles each key has in common with the next one: n - 1 numbers."""
    lengths = np.diff(offsets)
    shorter = np.minimum(lengths[:-1], lengths[1:])
    common = 2 * shorter
    padded = np.concatenate([data, np.zeros(_WORD, dtype=np.uint8)])
    words = np.ndarray(shape=(len(data) + 1,), dtype=">u8", buffer=padded, strides=(1,))
    active = np.arange(len(shorter))
    done = 0
    while len(active):
        first = offsets[active] + done
        second = offsets[active + 1] + done
        difference = words[first].astype(np.uint64) ^ words[second].astype(np.uint64)
        differs = difference != 0
        found = active[differs]
        # What lies behind the shorter key's end is no part of it.
        common[found] = np.minimum(common[found], 2 * done + _leading_zeros(difference[differs]) // _NIBBLE_BITS)
        done += _WORD
        active = active[~differs]
        active = active[shorter[active] > done]
    return common


def _leading_zeros(words: npt.NDArray[np.uint64]) -> Rows:
    """Return the number of leading zero bits of each word, none of which is zero."""
    upper = words >> np.uint64(32)
    in_upper = upper != 0
    # Numbers of 32 bits are exact in floating point.
    bits = np.frexp(np.where(in_upper, upper, words & np.uint64(0xFFFF_FFFF)).astype(np.float64))[1]
    return np.where(in_upper, 32, 64) - bits
