"""Set sketches as in minisketch (PinSketch): the difference of two sets from the difference of two short sketches.

A sketch of capacity c holds the odd power sums s1, s3, ... s(2c-1) of a set of elements of GF(2^b), c x b bits. Adding
sketches adds sets: what both have cancels. As long as at most c elements are left, they can be computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import MalformedProof, OverLimit, ProofRefused
from causeway.proofs.sketches.galois import Elements, Field
from causeway.proofs.sketches.polynomials import distinct_roots

MAX_CAPACITY = 4096
"""Largest capacity of a sketch: 32 KiB of 64-bit elements."""

MAX_DECODED = 256
"""Most elements that are decoded unless the caller allows more: the work grows with their square, times b."""

_PIECE = 2048


class NotDecodable(ProofRefused):
    """The sketch holds more elements than its capacity, or than are asked for, or is no sketch of a set at all."""


class Minisketch:
    """A sketch of a set of integers from 1 to 2^bits - 1; an element added twice is gone.

    Attributes:
        bits: b, the width of an element, 2 to 64.
        capacity: c, the number of elements up to which the set can be decoded, 1 to 4096.

    Raises:
        InvalidInput: ``bits`` or ``capacity`` is outside.
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

        Raises:
            InvalidInput: it is not from 1 to 2^bits - 1.
        """
        if not 0 < element < 1 << self.bits:
            raise InvalidInput(f"element {element}: elements are from 1 to 2^{self.bits} - 1")
        self.add_all(np.array([element], dtype=np.uint64))

    def add_all(self, elements: npt.ArrayLike) -> None:
        """Add many elements, an array of unsigned integers; no Python loop over them.

        Raises:
            InvalidInput: one of them is not from 1 to 2^bits - 1.
        """
        given = np.asarray(elements)
        if given.size and given.dtype.kind not in "ui":
            raise InvalidInput(f"elements of the type {given.dtype}: integers are wanted")
        if given.dtype.kind == "i" and given.size and int(given.min()) < 0:
            raise InvalidInput(f"element {int(given.min())}: elements are from 1 to 2^{self.bits} - 1")
        column = given.astype(np.uint64).reshape(-1)
        if len(column) and (int(column.min()) == 0 or int(column.max()) >> self.bits):
            wrong = int(column.min()) or int(column.max())
            raise InvalidInput(f"element {wrong}: elements are from 1 to 2^{self.bits} - 1")
        for start in range(0, len(column), _PIECE):
            self._add_piece(column[start : start + _PIECE])

    def merge(self, other: Minisketch) -> None:
        """Add another sketch's set: what is in both is gone. The capacity becomes the smaller one of the two.

        Raises:
            InvalidInput: its elements have another width.
        """
        if other.bits != self.bits:
            raise InvalidInput(f"a sketch of {other.bits}-bit elements does not merge with one of {self.bits}-bit ones")
        self.capacity = min(self.capacity, other.capacity)
        self._odd_sums = self._odd_sums[: self.capacity] ^ other._odd_sums[: self.capacity]

    def copy(self) -> Minisketch:
        """Return a sketch of the same set that changes on its own."""
        same = Minisketch(self.bits, self.capacity)
        same._odd_sums = self._odd_sums.copy()
        return same

    @property
    def serialized_size(self) -> int:
        """Return the length of the serialised sketch in bytes."""
        return (self.bits * self.capacity + 7) // 8

    def serialize(self) -> bytes:
        """Return the power sums one after the other, b bits each, lowest bit first, filled up with zeros to a byte."""
        bits = np.unpackbits(self._odd_sums.astype("<u8").view(np.uint8), bitorder="little").reshape(-1, 64)
        return np.packbits(bits[:, : self.bits].reshape(-1), bitorder="little").tobytes()

    @classmethod
    def deserialize(cls, bits: int, capacity: int, data: bytes) -> Minisketch:
        """Return the sketch that ``data`` is the serialised form of.

        Raises:
            InvalidInput: ``bits`` or ``capacity`` is outside.
            MalformedProof: the length is not that of such a sketch, or the bits that fill up the last byte are not 0.
        """
        sketch = cls(bits, capacity)
        if len(data) != sketch.serialized_size:
            raise MalformedProof(
                f"the sketch has {len(data)} bytes, {sketch.serialized_size} for {capacity} x {bits} bits are wanted"
            )
        stream = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        if stream[bits * capacity :].any():
            raise MalformedProof("the sketch's last byte is not filled up with zeros")
        sums = np.zeros((capacity, 64), dtype=np.uint8)
        sums[:, :bits] = stream[: bits * capacity].reshape(capacity, bits)
        sketch._odd_sums = np.packbits(sums, axis=1, bitorder="little").view("<u8").reshape(-1).astype(np.uint64)
        return sketch

    def decode(self, max_elements: int = MAX_DECODED) -> list[int]:
        """Return the elements of the set, ascending.

        A set of more elements than the capacity is refused nearly always, but may decode to another one: the chance is
        about 1 in (number of elements)!. Who needs certainty compares a digest of the whole set.

        Args:
            max_elements: refuse sets of more elements; bounds the work, whatever the capacity is.

        Raises:
            NotDecodable: the sketch holds more elements than its capacity, or is of no set.
            OverLimit: the set has more than ``max_elements``.
        """
        locator = self._locator(max_elements)
        # The locator is the product of (1 - m x) over the elements m: reversed, its roots are the elements.
        roots = distinct_roots(self._field, locator[::-1]) if len(locator) > 1 else []
        if roots is None:
            raise NotDecodable(f"the sketch is not that of a set of at most {self.capacity} elements")
        # d <= c different roots that recur through all 2c sums are the set: since every second sum is the square of the
        # one of half its power, each root comes with a factor that is its own square, and the shortest recurrence has
        # none with the factor 0.
        return sorted(roots)

    def _locator(self, max_elements: int) -> list[int]:
        """Return the shortest recurrence of the power sums (Berlekamp and Massey), its constant term 1 first."""
        field = self._field
        sums: list[int] = []
        for position, odd in enumerate(self._odd_sums.tolist()):
            sums.append(odd)
            sums.append(field.square(sums[position]))
        current, before = [1], [1]
        length, since, inverse = 0, 1, 1
        # In characteristic 2 every second sum follows from the one of half its power, and never corrects anything.
        for position in range(0, len(sums), 2):
            discrepancy = _discrepancy(field, sums, current, position, length)
            if discrepancy:
                factor = field.multiply(discrepancy, inverse)
                corrected = current + [0] * (len(before) + since - len(current))
                for at, coefficient in enumerate(before):
                    if coefficient:
                        corrected[at + since] ^= field.multiply(factor, coefficient)
                if 2 * length <= position:
                    length, before, inverse, since = position + 1 - length, current, field.invert(discrepancy), 0
                    if length > self.capacity:
                        break
                    if length > max_elements:
                        raise OverLimit(f"the sketch holds more than {max_elements} elements, more are not decoded")
                current = corrected
            since += 2
        while current[-1] == 0:
            current.pop()
        if len(current) != length + 1:
            raise NotDecodable(f"the sketch is not that of a set of at most {self.capacity} elements")
        return current

    def _add_piece(self, elements: Elements) -> None:
        field = self._field
        squares = field.multiply_all(elements, elements)
        # The multiples of the squares are the same for each of the c products.
        shifted = field.shifts(squares)
        power = elements
        for position in range(self.capacity):
            self._odd_sums[position] ^= np.bitwise_xor.reduce(power)
            if position + 1 == self.capacity:
                break
            product = np.zeros_like(power)
            for bit, shift in enumerate(shifted):
                product ^= shift & field.chosen(power, bit)
            power = product


def _discrepancy(field: Field, sums: Sequence[int], current: Sequence[int], position: int, length: int) -> int:
    """Return by how much the recurrence misses the sum at ``position``."""
    discrepancy = sums[position]
    for back in range(1, min(length, len(current) - 1) + 1):
        if current[back]:
            discrepancy ^= field.multiply(current[back], sums[position - back])
    return discrepancy
