"""Arithmetic in the fields GF(2^b), b from 2 to 64, in the representation of minisketch.

An element is the integer whose bits are the coefficients of a polynomial over GF(2); products are reduced by the
irreducible polynomial of degree b with the fewest terms, the first of these in lexicographic order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from causeway.model.errors import InvalidInput

Elements = npt.NDArray[np.uint64]

MIN_BITS, MAX_BITS = 2, 64

# For b = 2, 3, ...: the reducing polynomial without its leading term x^b.
_TAILS = (
    *(0x3, 0x3, 0x3, 0x5, 0x3, 0x3, 0x1B, 0x3, 0x9, 0x5, 0x9, 0x1B, 0x21, 0x3, 0x2B),
    *(0x9, 0x9, 0x27, 0x9, 0x5, 0x3, 0x21, 0x1B, 0x9, 0x1B, 0x27, 0x3, 0x5, 0x3, 0x9, 0x8D),
    *(0x401, 0x81, 0x5, 0x201, 0x53, 0x63, 0x11, 0x39, 0x9, 0x81, 0x59, 0x21, 0x1B, 0x3, 0x21, 0x2D),
    *(0x201, 0x1D, 0x4B, 0x9, 0x47, 0x201, 0x81, 0x95, 0x11, 0x80001, 0x95, 0x3, 0x27, 0x20000001, 0x3, 0x1B),
)

_BITS_APART = int.from_bytes(b"\x01" * MAX_BITS, "big")
_PRODUCT_BYTES = 2 * MAX_BITS
_ODD = int.from_bytes(b"\x01" * _PRODUCT_BYTES, "big")
_DIGITS = int.from_bytes(b"0" * _PRODUCT_BYTES, "big")


@dataclass(frozen=True, slots=True)
class Field:
    """The field of 2^bits elements.

    Attributes:
        bits: b, from 2 to 64.

    Raises:
        InvalidInput: ``bits`` is outside.
    """

    bits: int
    _tail: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not MIN_BITS <= self.bits <= MAX_BITS:
            raise InvalidInput(f"field bits {self.bits}: fields have {MIN_BITS} to {MAX_BITS} bits")
        object.__setattr__(self, "_tail", _TAILS[self.bits - MIN_BITS])

    @property
    def modulus(self) -> int:
        """Return the reducing polynomial, with its leading term."""
        return 1 << self.bits | self._tail

    def reduce(self, product: int) -> int:
        """Return a polynomial of any degree modulo the field's."""
        high = product >> self.bits
        while high:
            product &= (1 << self.bits) - 1
            tail = self._tail
            while tail:
                lowest = tail & -tail
                product ^= high * lowest
                tail ^= lowest
            high = product >> self.bits
        return product

    def multiply(self, left: int, right: int) -> int:
        """Return the product of two elements.

        A bit becomes a byte, so that one product of integers counts, byte by byte, how often each power comes up: at
        most 64 times, and whether that is odd is the coefficient.
        """
        counts = _apart(left) * _apart(right)
        digits = (counts & _ODD | _DIGITS).to_bytes(_PRODUCT_BYTES, "big")
        return self.reduce(int(digits, 2))

    def square(self, element: int) -> int:
        """Return the square: over GF(2) the bits only move apart, which reading them in base 4 does."""
        return self.reduce(int(f"{element:b}", 4))

    def invert(self, element: int) -> int:
        """Return the inverse of an element other than 0, by Euclid's algorithm over GF(2)."""
        rest, other = self.modulus, element
        factor, other_factor = 0, 1
        while other > 1:
            shift = rest.bit_length() - other.bit_length()
            if shift < 0:
                rest, other, factor, other_factor = other, rest, other_factor, factor
                continue
            rest ^= other << shift
            factor ^= other_factor << shift
            if rest < other:
                rest, other, factor, other_factor = other, rest, other_factor, factor
        return self.reduce(other_factor)

    def multiply_all(self, left: Elements, right: Elements) -> Elements:
        """Return the products of elements side by side; the shapes are broadcast, ``left`` is best the smaller one."""
        product = np.zeros(np.broadcast_shapes(left.shape, right.shape), dtype=np.uint64)
        for bit, shifted in enumerate(self.shifts(left)):
            product ^= shifted & self.chosen(right, bit)
        return product

    def shifts(self, elements: Elements) -> list[Elements]:
        """Return the elements times x^0, x^1, ... x^(b-1)."""
        top, rest, tail = np.uint64(self.bits - 1), np.uint64((1 << self.bits - 1) - 1), np.uint64(self._tail)
        one = np.uint64(1)
        shifted = [elements]
        for _ in range(self.bits - 1):
            last = shifted[-1]
            shifted.append(((last & rest) << one) ^ ((last >> top) * tail))
        return shifted

    @staticmethod
    def chosen(elements: Elements, bit: int) -> Elements:
        """Return, for each element, all ones where its coefficient of x^bit is 1, else 0."""
        moved = (elements << np.uint64(MAX_BITS - 1 - bit)).view(np.int64)
        return (moved >> np.int64(MAX_BITS - 1)).view(np.uint64)


def _apart(element: int) -> int:
    return int.from_bytes(f"{element:064b}".encode(), "big") & _BITS_APART
