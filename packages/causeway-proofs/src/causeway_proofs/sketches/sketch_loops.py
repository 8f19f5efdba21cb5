"""Compiled loops over many sketches: arithmetic in GF(2^b), power sums, decoding.

An element is a uint64, ``bits`` is b and ``tail`` the field's reducing polynomial without its leading term. Consecutive
ranges are given by first position (``starts``) and length (``counts``). A polynomial is the list of its coefficients,
constant term first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway_proofs.jit import (
    BYTES,
    BYTES_OUT,
    INT64,
    NOTHING,
    ROWS,
    ROWS_OUT,
    UINT64,
    compile_loop,
    read_only_arrays,
    writable_arrays,
)
from causeway_proofs.sketches.galois import NO_SET, TOO_MANY

ELEMENTS, ELEMENTS_OUT = read_only_arrays("uint64"), writable_arrays("uint64")

ONE, NOUGHT = np.uint64(1), np.uint64(0)


@compile_loop(UINT64, [UINT64, UINT64, INT64, UINT64], allocates=False)
def multiply(left: Any, right: Any, bits: Any, tail: Any) -> Any:
    """Return the product of two elements."""
    top = np.uint64(bits - 1)
    rest = (ONE << top) - ONE
    product = NOUGHT
    while right != NOUGHT:
        product ^= left & (NOUGHT - (right & ONE))
        right >>= ONE
        left = ((left & rest) << ONE) ^ (tail & (NOUGHT - (left >> top)))
    return product


@compile_loop(UINT64, [UINT64, INT64, UINT64], allocates=False)
def invert(element: Any, bits: Any, tail: Any) -> Any:
    """Return the inverse of a nonzero element: its power 2^b - 2."""
    inverse = ONE
    power = element
    for _ in range(bits - 1):
        power = multiply(power, power, bits, tail)
        inverse = multiply(inverse, power, bits, tail)
    return inverse


@compile_loop(NOTHING, [ELEMENTS, ROWS, ROWS, ROWS, INT64, UINT64, ELEMENTS_OUT], allocates=False)
def add_sums(elements: Any, ends: Any, starts: Any, counts: Any, bits: Any, tail: Any, sums: Any) -> None:
    """Add the power sums of each sketch's elements; row ``i`` ends at ``ends[i + 1]``."""
    for row in range(len(counts)):
        for at in range(ends[row], ends[row + 1]):
            power = elements[at]
            square = multiply(power, power, bits, tail)
            for place in range(starts[row], starts[row] + counts[row]):
                sums[place] ^= power
                power = multiply(power, square, bits, tail)


@compile_loop(NOTHING, [ELEMENTS, ROWS, ROWS, INT64, ROWS, BYTES_OUT], allocates=False)
def pack(sums: Any, starts: Any, counts: Any, bits: Any, ends: Any, out: Any) -> None:
    """Write each sketch's sums, ``bits`` bits each, lowest first, to zeros from ``ends[i]`` on."""
    for row in range(len(counts)):
        for number in range(counts[row]):
            word = sums[starts[row] + number]
            for bit in range(bits):
                at = number * bits + bit
                out[ends[row] + (at >> 3)] |= np.uint8((word >> np.uint64(bit) & ONE) << np.uint64(at & 7))


@compile_loop(NOTHING, [BYTES, ROWS, ROWS, ROWS, INT64, ELEMENTS_OUT], allocates=False)
def unpack(data: Any, ends: Any, starts: Any, counts: Any, bits: Any, sums: Any) -> None:
    """Read sums written by ``pack``."""
    for row in range(len(counts)):
        for number in range(counts[row]):
            word = NOUGHT
            for bit in range(bits):
                at = number * bits + bit
                word |= np.uint64(data[ends[row] + (at >> 3)] >> (at & 7) & 1) << np.uint64(bit)
            sums[starts[row] + number] = word


@compile_loop(NOTHING, [ELEMENTS, ROWS, ROWS, ROWS, INT64, UINT64, ELEMENTS_OUT, ROWS_OUT])
def locators(
    odd: Any, starts: Any, counts: Any, limits: Any, bits: Any, tail: Any, polynomials: Any, degrees: Any
) -> None:
    """Find the shortest recurrence of each sketch's power sums (Berlekamp-Massey).

    Writes it to ``polynomials``, from ``starts[i] + i`` on, as the monic polynomial with the elements as roots, and its
    degree: ``TOO_MANY`` above the limit, ``NO_SET`` above the number of sums.
    """
    most = 0
    for row in range(len(counts)):
        most = max(most, counts[row])
    sums = np.empty(2 * most, dtype=np.uint64)
    current, before, corrected = (
        np.empty(4 * most + 4, dtype=np.uint64),
        np.empty(4 * most + 4, dtype=np.uint64),
        np.empty(4 * most + 4, dtype=np.uint64),
    )
    for row in range(len(counts)):
        count = counts[row]
        for position in range(count):
            # In characteristic 2 every second sum is the square of the one of half its power, so it never
            # needs a correction.
            sums[2 * position] = odd[starts[row] + position]
            sums[2 * position + 1] = multiply(sums[position], sums[position], bits, tail)
        current[0] = before[0] = ONE
        size = before_size = 1
        length, since = 0, 1
        inverse = ONE
        fault = 0
        for position in range(0, 2 * count, 2):
            discrepancy = sums[position]
            for back in range(1, min(length, size - 1) + 1):
                discrepancy ^= multiply(current[back], sums[position - back], bits, tail)
            if discrepancy != NOUGHT:
                factor = multiply(discrepancy, inverse, bits, tail)
                new = max(size, before_size + since)
                for at in range(new):
                    corrected[at] = current[at] if at < size else NOUGHT
                for at in range(before_size):
                    corrected[at + since] ^= multiply(factor, before[at], bits, tail)
                if 2 * length <= position:
                    length = position + 1 - length
                    if length > count:
                        fault = NO_SET
                        break
                    if length > limits[row]:
                        fault = TOO_MANY
                        break
                    for at in range(size):
                        before[at] = current[at]
                    before_size, since = size, 0
                    inverse = invert(discrepancy, bits, tail)
                for at in range(new):
                    current[at] = corrected[at]
                size = new
            since += 2
        while size > 1 and current[size - 1] == NOUGHT:
            size -= 1
        if fault == 0 and size != length + 1:
            fault = NO_SET
        degrees[row] = fault if fault else length
        if fault == 0:
            # The recurrence is the product of (1 - m x) over the elements m; reversed, it has them as roots.
            for at in range(size):
                polynomials[starts[row] + row + at] = current[length - at]


@compile_loop(allocates=False)
def reduce_by(rest: Any, size: Any, monic: Any, degree: Any, quotient: Any, bits: Any, tail: Any) -> Any:
    """Reduce ``rest``, of ``size`` coefficients, by a monic polynomial; return the new size."""
    for position in range(size - 1, degree - 1, -1):
        term = rest[position]
        quotient[position - degree] = term
        if term != NOUGHT:
            for at in range(degree):
                rest[position - degree + at] ^= multiply(term, monic[at], bits, tail)
    size = min(size, degree)
    while size > 0 and rest[size - 1] == NOUGHT:
        size -= 1
    return size


@compile_loop()
def frobenius_powers(monic: Any, degree: Any, bits: Any, tail: Any, powers: Any) -> Any:
    """Write x, x^2, ... x^(2^(b-1)) modulo the polynomial; return True if it splits.

    It has as many distinct roots as its degree exactly if x^(2^b) = x, since every field element is a root of that.
    """
    # x^degree, x^(degree + 1), ... modulo the polynomial.
    over = np.zeros((degree, degree), dtype=np.uint64)
    over[0] = monic[:degree]
    for row in range(1, degree):
        for at in range(degree):
            below = over[row - 1, at - 1] if at else NOUGHT
            over[row, at] = below ^ multiply(over[row - 1, degree - 1], monic[at], bits, tail)
    powers[:] = NOUGHT
    powers[0, 1] = ONE
    squared = np.empty(degree, dtype=np.uint64)
    for row in range(1, bits + 1):
        squared[:] = NOUGHT
        for at in range(degree):
            square = multiply(powers[row - 1, at], powers[row - 1, at], bits, tail)
            if 2 * at < degree:
                squared[2 * at] ^= square
            elif square != NOUGHT:
                for place in range(degree):
                    squared[place] ^= multiply(over[2 * at - degree, place], square, bits, tail)
        if row < bits:
            powers[row] = squared
    for at in range(degree):  # noqa: SIM110
        if squared[at] != powers[0, at]:
            return False
    return True


@compile_loop(NOTHING, [ELEMENTS, ROWS, ROWS_OUT, ELEMENTS, INT64, UINT64, ELEMENTS_OUT])
def find_roots(polynomials: Any, starts: Any, degrees: Any, first: Any, bits: Any, tail: Any, roots: Any) -> None:
    """Write the roots of each monic polynomial over itself (Berlekamp's trace algorithm).

    Sets the degree to ``NO_SET`` if the polynomial has fewer distinct roots than its degree.

    ``first``: for each polynomial the first, nonzero element s of the basis s, sx, sx^2, ... For any two distinct
    roots, some element of the basis has multiples with different traces.

    Work: b products of d^2 elements for the powers of x, then at most b rounds over factors of total degree d.
    """
    for row in range(len(degrees)):
        degree = degrees[row]
        if degree < 1:
            continue
        monic = polynomials[starts[row] : starts[row] + degree + 1]
        if degree == 1:
            roots[starts[row]] = monic[0]
            continue
        powers = np.empty((bits, degree), dtype=np.uint64)
        if not frobenius_powers(monic, degree, bits, tail, powers):
            degrees[row] = NO_SET
            continue
        # Factors are stored consecutively; d factors of degree 1 take the most space.
        factors, parts = np.empty(2 * degree, dtype=np.uint64), np.empty(2 * degree, dtype=np.uint64)
        factors[: degree + 1] = monic
        ends, part_ends = np.zeros(degree + 1, dtype=np.int64), np.zeros(degree + 1, dtype=np.int64)
        ends[1] = degree + 1
        count = 1
        trace = np.empty(degree, dtype=np.uint64)
        rest, common, swap = (
            np.empty(degree + 1, dtype=np.uint64),
            np.empty(degree + 1, dtype=np.uint64),
            np.empty(degree + 1, dtype=np.uint64),
        )
        quotient = np.empty(degree + 1, dtype=np.uint64)
        multiple = first[row]
        for _ in range(bits):
            if count == degree:
                break
            trace[:] = NOUGHT
            conjugate = multiple
            for power in range(bits):
                for at in range(degree):
                    trace[at] ^= multiply(powers[power, at], conjugate, bits, tail)
                conjugate = multiply(conjugate, conjugate, bits, tail)
            part_count = 0
            for number in range(count):
                factor = factors[ends[number] : ends[number + 1]]
                own = len(factor) - 1
                size = 0
                if own > 1:
                    rest[:degree] = trace
                    size = reduce_by(rest, degree, factor, own, quotient, bits, tail)
                begin = part_ends[part_count]
                if size <= 1:
                    parts[begin : begin + own + 1] = factor
                    part_count += 1
                    part_ends[part_count] = begin + own + 1
                    continue
                # Split by trace: the greatest common divisor (trace 0), and the quotient by it (trace 1).
                common[: own + 1] = factor
                common_size = own + 1
                while size > 0:
                    inverse = invert(rest[size - 1], bits, tail)
                    for at in range(size):
                        swap[at] = multiply(rest[at], inverse, bits, tail)
                    left = reduce_by(common, common_size, swap, size - 1, quotient, bits, tail)
                    for at in range(left):
                        rest[at] = common[at]
                    for at in range(size):
                        common[at] = swap[at]
                    common_size, size = size, left
                rest[: own + 1] = factor
                reduce_by(rest, own + 1, common, common_size - 1, quotient, bits, tail)
                parts[begin : begin + common_size] = common[:common_size]
                part_ends[part_count + 1] = begin + common_size
                begin += common_size
                parts[begin : begin + own + 2 - common_size] = quotient[: own + 2 - common_size]
                part_ends[part_count + 2] = begin + own + 2 - common_size
                part_count += 2
            factors, parts, ends, part_ends, count = parts, factors, part_ends, ends, part_count
            # Multiply by x for the next element of the basis.
            multiple = multiply(multiple, np.uint64(2), bits, tail)
        for number in range(degree):
            roots[starts[row] + number] = factors[2 * number]
