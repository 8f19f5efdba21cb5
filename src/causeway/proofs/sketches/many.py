"""Sketches of many sets at once: their power sums, one sketch's behind the other's, their bytes, what they decode to.

``counts`` are the sums of each sketch, which is its capacity; ``field`` is that of their elements.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.model.errors import InvalidInput
from causeway.model.order import Rows
from causeway.proofs.errors import MalformedProof
from causeway.proofs.hashing import HashFunction, digest_slices
from causeway.proofs.sketches.galois import Elements, Field

Bytes = npt.NDArray[np.uint8]

_WORD = 8


def ends_of(sizes: Rows) -> Rows:
    """Return where each of many begins that lie one behind the other and, last, where the last one ends."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])


def power_sums(field: Field, elements: Elements, sizes: Rows, counts: Rows) -> Elements:
    """Return the odd power sums of sets, shape (sum of counts): of set ``i`` the next ``sizes[i]`` elements.

    Raises:
        InvalidInput: an element is not from 1 to 2^bits - 1.
    """
    from causeway.proofs.sketches import sketch_loops

    if len(elements) and (int(elements.min()) == 0 or int(elements.max()) >> field.bits):
        wrong = int(elements.min()) and int(elements.max())
        raise InvalidInput(f"element {wrong}: elements are from 1 to 2^{field.bits} - 1")
    starts = ends_of(counts)
    sums = np.zeros(int(starts[-1]), dtype=np.uint64)
    sketch_loops.add_sums(elements, ends_of(sizes), starts[:-1], counts, field.bits, field.tail, sums)
    return sums


def packed_sizes(field: Field, counts: Rows) -> Rows:
    """Return how many bytes sketches have."""
    return (field.bits * counts + 7) // 8


def packed(field: Field, sums: Elements, counts: Rows) -> tuple[Bytes, Rows]:
    """Return the bytes of sketches, and where each one's begin and, last, where the last one's end: the sums one after
    the other, b bits each, lowest bit first, filled up with zeros to a byte."""
    from causeway.proofs.sketches import sketch_loops

    ends = ends_of(packed_sizes(field, counts))
    out = np.zeros(int(ends[-1]), dtype=np.uint8)
    sketch_loops.pack(sums, ends_of(counts)[:-1], counts, field.bits, ends, out)
    return out, ends


def unpacked(field: Field, content: Bytes, ends: Rows, counts: Rows) -> Elements:
    """Return the sums that ``packed`` made the bytes of; ``ends`` need not begin with 0.

    Raises:
        MalformedProof: the length is not that of such a sketch, or the bits that fill up the last byte are not 0.
    """
    from causeway.proofs.sketches import sketch_loops

    sizes, given = packed_sizes(field, counts), np.diff(ends)
    wrong = np.flatnonzero(given != sizes)
    if len(wrong):
        row = wrong[0]
        raise MalformedProof(
            f"the sketch has {given[row]} bytes, {sizes[row]} for {counts[row]} x {field.bits} bits are wanted"
        )
    used = (field.bits * counts) % 8
    part = np.flatnonzero(used)
    if (content[ends[1:][part] - 1] >> used[part]).any():
        raise MalformedProof("the sketch's last byte is not filled up with zeros")
    sums = np.empty(int(counts.sum()), dtype=np.uint64)
    sketch_loops.unpack(content, ends, ends_of(counts)[:-1], counts, field.bits, sums)
    return sums


def decoded(field: Field, sums: Elements, counts: Rows, limits: Rows) -> tuple[Rows, Elements]:
    """Return how many elements each sketch has, and the elements of all, those of one ascending.

    In place of a number: ``TOO_MANY``, more than ``limits``; ``NO_SET``, it is not that of a set of at most as many
    elements as it has sums.

    d <= c different roots that recur through all 2c sums are the set: since every second sum is the square of the one
    of half its power, each root comes with a factor that is its own square, and the shortest recurrence has none with
    the factor 0.
    """
    from causeway.proofs.sketches import sketch_loops

    starts = ends_of(counts)[:-1]
    made = np.zeros(len(sums) + len(counts), dtype=np.uint64)
    found = np.zeros(len(counts), dtype=np.int64)
    sketch_loops.locators(sums, starts, counts, limits, field.bits, field.tail, made, found)
    begins = starts + np.arange(len(counts))
    roots = np.zeros(len(made), dtype=np.uint64)
    sketch_loops.find_roots(made, begins, found, _first(field, made, begins, found), field.bits, field.tail, roots)
    sizes = np.maximum(found, 0)
    rank = np.arange(sizes.sum()) - ends_of(sizes)[:-1].repeat(sizes)
    elements = roots[begins.repeat(sizes) + rank]
    return found, elements[np.lexsort((elements, np.arange(len(sizes)).repeat(sizes)))]


def _first(field: Field, polynomials: Elements, begins: Rows, degrees: Rows) -> Elements:
    """Return for each polynomial an element other than 0 that follows from it and cannot be foreseen.

    With a basis known beforehand, a set could be made whose elements come apart one round at a time, the slowest way.
    """
    ends = begins + np.maximum(degrees, -1) + 1
    content = polynomials.astype("<u8").view(np.uint8)
    digests = digest_slices(HashFunction.KECCAK_256, content, _WORD * begins, _WORD * ends)
    numbers = [int.from_bytes(digest.tobytes(), "little") for digest in digests]
    return np.array([number % ((1 << field.bits) - 1) + 1 for number in numbers], dtype=np.uint64)
