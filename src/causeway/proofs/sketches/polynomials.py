"""Roots of polynomials over GF(2^b), for decoding sketches (the trace algorithm of Berlekamp).

A polynomial is the list of its coefficients, the constant term first, without zeros at the end.
"""

from __future__ import annotations

import numpy as np

from causeway.proofs.hashing import keccak256
from causeway.proofs.sketches.galois import Elements, Field

Polynomial = list[int]


def distinct_roots(field: Field, polynomial: Polynomial) -> list[int] | None:
    """Return the roots of a polynomial of degree d >= 1 that has d different ones, in no order; None if it has not.

    Work: b products of d^2 elements for the powers of x, then at most b rounds over factors of together degree d.
    """
    monic = _monic(field, polynomial)
    degree = len(monic) - 1
    if degree == 1:
        return [monic[0]]
    powers = _frobenius_powers(field, monic)
    if powers is None:
        return None
    factors = [monic]
    # Of two different roots, some element of the basis s, sx, sx^2, ... has multiples with different traces.
    multiple = _start(field, monic)
    for _ in range(field.bits):
        if all(len(factor) == 2 for factor in factors):
            break
        trace = _trace(field, powers, multiple)
        factors = [part for factor in factors for part in _split(field, factor, trace)]
        multiple = field.reduce(multiple << 1)
    return [factor[0] for factor in factors]


def _start(field: Field, monic: Polynomial) -> int:
    """Return an element other than 0 that follows from the polynomial and cannot be foreseen.

    With a basis known beforehand, a set could be made whose elements come apart one round at a time, the slowest way.
    """
    digest = keccak256(b"".join([coefficient.to_bytes(8, "little") for coefficient in monic]))
    return int.from_bytes(digest, "little") % ((1 << field.bits) - 1) + 1


def _monic(field: Field, polynomial: Polynomial) -> Polynomial:
    if polynomial[-1] == 1:
        return polynomial
    inverse = field.invert(polynomial[-1])
    return [field.multiply(inverse, coefficient) for coefficient in polynomial]


def _frobenius_powers(field: Field, monic: Polynomial) -> Elements | None:
    """Return x, x^2, x^4, ... x^(2^(b-1)) modulo the polynomial, shape (b, degree); None if it has not all roots.

    It has them, each once, exactly if x^(2^b) = x: every element of the field is a root of that.
    """
    degree = len(monic) - 1
    tail = np.array(monic[:-1], dtype=np.uint64)
    # x^degree, x^(degree + 1), ... modulo the polynomial.
    overflows = np.empty((degree, degree), dtype=np.uint64)
    overflows[0] = tail
    for row in range(1, degree):
        last = overflows[row - 1]
        overflows[row, 1:] = last[:-1]
        overflows[row, 0] = 0
        overflows[row] ^= field.multiply_all(last[-1:], tail)
    first_over = (degree + 1) // 2
    over = overflows[np.arange(first_over, degree) * 2 - degree]
    powers = np.zeros((field.bits, degree), dtype=np.uint64)
    powers[0, 1] = 1
    for row in range(1, field.bits + 1):
        last = powers[row - 1]
        squares = field.multiply_all(last, last)
        squared = np.zeros(degree, dtype=np.uint64)
        squared[0::2] = squares[:first_over]
        squared ^= np.bitwise_xor.reduce(field.multiply_all(squares[first_over:, None], over), axis=0)
        if row < field.bits:
            powers[row] = squared
    return powers if np.array_equal(squared, powers[0]) else None


def _trace(field: Field, powers: Elements, multiple: int) -> Polynomial:
    """Return the trace of multiple * x modulo the polynomial that the powers are of."""
    conjugates = [multiple]
    for _ in range(field.bits - 1):
        conjugates.append(field.square(conjugates[-1]))
    products = field.multiply_all(np.array(conjugates, dtype=np.uint64)[:, None], powers)
    return _trimmed(np.bitwise_xor.reduce(products, axis=0).tolist())


def _split(field: Field, factor: Polynomial, trace: Polynomial) -> list[Polynomial]:
    """Return the factor in two: where the trace is 0, and where it is 1; or whole, if it is the same everywhere."""
    if len(factor) == 2:
        return [factor]
    _, rest = _divide(field, trace, factor)
    if len(rest) <= 1:
        return [factor]
    common = factor
    while rest:
        divisor = _monic(field, rest)
        (_, rest), common = _divide(field, common, divisor), divisor
    quotient, _ = _divide(field, factor, common)
    return [common, quotient]


def _divide(field: Field, dividend: Polynomial, monic: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Return quotient and remainder of the division by a monic polynomial."""
    degree = len(monic) - 1
    rest = list(dividend)
    quotient = [0] * max(len(rest) - degree, 0)
    for position in range(len(rest) - 1, degree - 1, -1):
        term = rest.pop()
        quotient[position - degree] = term
        if term:
            for at in range(degree):
                rest[position - degree + at] ^= field.multiply(term, monic[at])
    return quotient, _trimmed(rest)


def _trimmed(polynomial: Polynomial) -> Polynomial:
    while polynomial and polynomial[-1] == 0:
        polynomial.pop()
    return polynomial
