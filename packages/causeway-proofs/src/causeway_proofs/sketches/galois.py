"""The fields GF(2^b), b from 2 to 64, in minisketch's representation.

An element is the integer with the polynomial's coefficients over GF(2) as bits. Products (``sketch_loops``) are reduced
by the irreducible polynomial of degree b with the fewest terms, the lexicographically first of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from causeway_proofs.errors import InvalidInput

Elements = npt.NDArray[np.uint64]

MIN_BITS, MAX_BITS = 2, 64

# For b = 2, 3, ...: the reducing polynomial without its leading term x^b.
_TAILS = (
    *(0x3, 0x3, 0x3, 0x5, 0x3, 0x3, 0x1B, 0x3, 0x9, 0x5, 0x9, 0x1B, 0x21, 0x3, 0x2B),
    *(0x9, 0x9, 0x27, 0x9, 0x5, 0x3, 0x21, 0x1B, 0x9, 0x1B, 0x27, 0x3, 0x5, 0x3, 0x9, 0x8D),
    *(0x401, 0x81, 0x5, 0x201, 0x53, 0x63, 0x11, 0x39, 0x9, 0x81, 0x59, 0x21, 0x1B, 0x3, 0x21, 0x2D),
    *(0x201, 0x1D, 0x4B, 0x9, 0x47, 0x201, 0x81, 0x95, 0x11, 0x80001, 0x95, 0x3, 0x27, 0x20000001, 0x3, 0x1B),
)

TOO_MANY, NO_SET = -2, -1
"""Codes in place of an element count: above the limit; not a sketch of a set of that size."""


@dataclass(frozen=True, slots=True)
class Field:
    """The field of 2^bits elements.

    Attributes:
        bits: b, from 2 to 64.
        tail: the reducing polynomial without its leading term.

    Raises:
        InvalidInput: ``bits`` is out of range.
    """

    bits: int
    tail: np.uint64 = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not MIN_BITS <= self.bits <= MAX_BITS:
            raise InvalidInput(f"field bits {self.bits}: fields have {MIN_BITS} to {MAX_BITS} bits")
        object.__setattr__(self, "tail", np.uint64(_TAILS[self.bits - MIN_BITS]))

    @property
    def modulus(self) -> int:
        """Return the reducing polynomial with its leading term."""
        return 1 << self.bits | int(self.tail)
