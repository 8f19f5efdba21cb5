"""Reconcile sets with PinSketch, as in minisketch, by exchanging short sketches.

A sketch of capacity c holds the odd power sums s1, s3, ... s(2c-1) of a set of elements of GF(2^b), c x b bits. Adding
sketches adds sets, and common elements cancel. Up to c remaining elements can be decoded.

``Minisketch`` is one sketch. The functions process many sketches at once, stored consecutively: ``counts`` are the sums
(the capacity) of each sketch, ``field`` is the field of their elements.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway_proofs.errors import InvalidInput, MalformedProof, NotProven, OverLimit
from causeway_proofs.hashing import HashFunction, digest_slices
from causeway_proofs.order import Rows
from causeway_proofs.sketches.galois import NO_SET, TOO_MANY, Elements, Field

Bytes = npt.NDArray[np.uint8]

_WORD = 8


def range_ends(sizes: Rows) -> Rows:
    """Return the start of each of many consecutive ranges and, last, the end of the last one."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])


def power_sums(field: Field, elements: Elements, sizes: Rows, counts: Rows) -> Elements:
    """Return odd power sums, shape (sum of counts,); set ``i`` has ``sizes[i]`` elements.

    Raises:
        InvalidInput: an element is outside of 1..2^bits - 1.
    """
    from causeway_proofs.sketches import sketch_loops

    if len(elements) and (int(elements.min()) == 0 or int(elements.max()) >> field.bits):
        wrong = int(elements.min()) and int(elements.max())
        raise InvalidInput(f"element {wrong}: elements are from 1 to 2^{field.bits} - 1")
    starts = range_ends(counts)
    sums = np.zeros(int(starts[-1]), dtype=np.uint64)
    sketch_loops.add_sums(elements, range_ends(sizes), starts[:-1], counts, field.bits, field.tail, sums)
    return sums


def sketch_sizes(field: Field, counts: Rows) -> Rows:
    """Return the serialized size of each sketch in bytes."""
    return (field.bits * counts + 7) // 8


def pack_sketches(field: Field, sums: Elements, counts: Rows) -> tuple[Bytes, Rows]:
    """Serialize sketches: b bits a sum, lowest bit first, zero-padded to a byte.

    Returns:
        The bytes, and the start of each sketch in them with, last, the end.
    """
    from causeway_proofs.sketches import sketch_loops

    ends = range_ends(sketch_sizes(field, counts))
    out = np.zeros(int(ends[-1]), dtype=np.uint8)
    sketch_loops.pack(sums, range_ends(counts)[:-1], counts, field.bits, ends, out)
    return out, ends


def unpack_sketches(field: Field, content: Bytes, ends: Rows, counts: Rows) -> Elements:
    """Parse the sums of sketches written by ``pack_sketches``; ``ends`` need not begin with 0.

    Raises:
        MalformedProof: a length is wrong, or padding bits are not 0.
    """
    from causeway_proofs.sketches import sketch_loops

    sizes, given = sketch_sizes(field, counts), np.diff(ends)
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
    sketch_loops.unpack(content, ends, range_ends(counts)[:-1], counts, field.bits, sums)
    return sums


def decode_sketches(field: Field, sums: Elements, counts: Rows, limits: Rows) -> tuple[Rows, Elements]:
    """Return the number of elements of each sketch, and all elements, ascending in each sketch.

    In place of a number: ``TOO_MANY`` for more than ``limits``; ``NO_SET`` if no set of at most as many elements as
    sums fits.

    d <= c distinct roots that recur through all 2c sums are the set. Every second sum is the square of the one of half
    its power, so each root comes with a factor that is its own square; the shortest recurrence has none with factor 0.
    """
    from causeway_proofs.sketches import sketch_loops

    starts = range_ends(counts)[:-1]
    polynomials = np.zeros(len(sums) + len(counts), dtype=np.uint64)
    found = np.zeros(len(counts), dtype=np.int64)
    sketch_loops.locators(sums, starts, counts, limits, field.bits, field.tail, polynomials, found)
    begins = starts + np.arange(len(counts))
    roots = np.zeros(len(polynomials), dtype=np.uint64)
    sketch_loops.find_roots(
        polynomials, begins, found, _first(field, polynomials, begins, found), field.bits, field.tail, roots
    )
    sizes = np.maximum(found, 0)
    rank = np.arange(sizes.sum()) - range_ends(sizes)[:-1].repeat(sizes)
    elements = roots[begins.repeat(sizes) + rank]
    return found, elements[np.lexsort((elements, np.arange(len(sizes)).repeat(sizes)))]


def _first(field: Field, polynomials: Elements, begins: Rows, degrees: Rows) -> Elements:
    """Return for each polynomial a nonzero element that an attacker cannot foresee.

    With a fixed basis, a chosen set could split one element a round, the slowest case.
    """
    ends = begins + np.maximum(degrees, -1) + 1
    content = polynomials.astype("<u8").view(np.uint8)
    digests = digest_slices(HashFunction.KECCAK_256, content, _WORD * begins, _WORD * ends)
    numbers = [int.from_bytes(digest.tobytes(), "little") for digest in digests]
    return np.array([number % ((1 << field.bits) - 1) + 1 for number in numbers], dtype=np.uint64)


MAX_CAPACITY = 4096
"""Largest capacity of a sketch: 32 KiB of 64-bit elements."""

MAX_DECODED = 256
"""Default limit of decoded elements: the work grows with their square, times b."""


class NotDecodable(NotProven):
    """The sketch exceeds its capacity or the requested limit, or is of no set."""


class Minisketch:
    """A sketch of a set of integers from 1 to 2^bits - 1; an element added twice is removed.

    Args:
        bits: b, the width of an element, 2 to 64.
        capacity: c, the largest decodable number of elements, 1 to 4096.

    Raises:
        InvalidInput: ``bits`` or ``capacity`` is out of range.
    """

    def __init__(self, bits: int, capacity: int) -> None:
        if not 1 <= capacity <= MAX_CAPACITY:
            raise InvalidInput(f"capacity {capacity}: sketches have a capacity from 1 to {MAX_CAPACITY}")
        self._field = Field(bits)
        self.bits = bits
        self.capacity = capacity
        self._odd_sums: Elements = np.zeros(capacity, dtype=np.uint64)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Minisketch):
            return NotImplemented
        return self.bits == other.bits and np.array_equal(self._odd_sums, other._odd_sums)

    __hash__ = None  # type: ignore[assignment]

    @property
    def odd_sums(self) -> tuple[int, ...]:
        """Return the power sums s1, s3, ... s(2c-1)."""
        return tuple(self._odd_sums.tolist())

    def add(self, element: int) -> None:
        """Add one element.

        Args:
            element: an integer from 1 to 2^bits - 1.

        Raises:
            InvalidInput: ``element`` is out of range.
        """
        if not 0 < element < 1 << self.bits:
            raise InvalidInput(f"element {element}: elements are from 1 to 2^{self.bits} - 1")
        self.add_all(np.array([element], dtype=np.uint64))

    def add_all(self, elements: npt.ArrayLike) -> None:
        """Add many elements without a Python loop.

        Args:
            elements: array of unsigned integers.

        Raises:
            InvalidInput: an element is outside of 1..2^bits - 1.
        """
        given = np.asarray(elements)
        if given.size and given.dtype.kind not in "ui":
            raise InvalidInput(f"elements of the type {given.dtype}: integers are wanted")
        if given.dtype.kind == "i" and given.size and int(given.min()) < 0:
            raise InvalidInput(f"element {int(given.min())}: elements are from 1 to 2^{self.bits} - 1")
        column = np.ascontiguousarray(given.astype(np.uint64).reshape(-1))
        self._odd_sums ^= power_sums(self._field, column, np.array([len(column)]), self._counts)

    def merge(self, other: Minisketch) -> None:
        """Add another sketch's set; common elements cancel, and the smaller capacity remains.

        Args:
            other: a sketch with elements of the same width.

        Raises:
            InvalidInput: the widths differ.
        """
        if other.bits != self.bits:
            raise InvalidInput(f"a sketch of {other.bits}-bit elements does not merge with one of {self.bits}-bit ones")
        self.capacity = min(self.capacity, other.capacity)
        self._odd_sums = self._odd_sums[: self.capacity] ^ other._odd_sums[: self.capacity]

    def copy(self) -> Minisketch:
        """Return an independent copy."""
        same = Minisketch(self.bits, self.capacity)
        same._odd_sums = self._odd_sums.copy()
        return same

    @property
    def serialized_size(self) -> int:
        """Return the length of the serialized sketch in bytes."""
        return int(sketch_sizes(self._field, self._counts)[0])

    def serialize(self) -> bytes:
        """Return the power sums, b bits each, lowest bit first, zero-padded to a byte."""
        return pack_sketches(self._field, self._odd_sums, self._counts)[0].tobytes()

    @classmethod
    def deserialize(cls, bits: int, capacity: int, data: bytes) -> Minisketch:
        """Parse a serialized sketch.

        Args:
            bits: width of an element.
            capacity: capacity of the sketch.
            data: the serialized sketch.

        Returns:
            The sketch.

        Raises:
            InvalidInput: ``bits`` or ``capacity`` is out of range.
            MalformedProof: the length is wrong, or padding bits are not 0.
        """
        sketch = cls(bits, capacity)
        sketch._odd_sums = unpack_sketches(
            sketch._field, np.frombuffer(data, dtype=np.uint8), np.array([0, len(data)]), sketch._counts
        )
        return sketch

    def decode(self, max_elements: int = MAX_DECODED) -> list[int]:
        """Return the elements of the set, ascending.

        A set above the capacity is rejected nearly always, but may decode to another set with a chance of about 1 in
        (number of elements)!. Compare a digest of the whole set for certainty.

        Args:
            max_elements: reject larger sets; bounds the work whatever the capacity.

        Returns:
            The elements.

        Raises:
            NotDecodable: the set exceeds the capacity, or the sketch is of no set.
            OverLimit: the set has more than ``max_elements``.
        """
        found, elements = decode_sketches(self._field, self._odd_sums, self._counts, np.array([max_elements]))
        if found[0] == TOO_MANY:
            raise OverLimit(f"the sketch holds more than {max_elements} elements, more are not decoded")
        if found[0] == NO_SET:
            raise NotDecodable(f"the sketch is not that of a set of at most {self.capacity} elements")
        return [int(element) for element in elements]

    @property
    def _counts(self) -> Rows:
        return np.array([self.capacity])
