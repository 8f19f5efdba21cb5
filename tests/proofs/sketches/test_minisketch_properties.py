"""Sketches of random sets against schoolbook arithmetic for every width; invalid sketches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput, MalformedProof, OverLimit, ProofError
from causeway_proofs.hashing import keccak256
from causeway_proofs.sketches.galois import NO_SET, TOO_MANY, Field
from causeway_proofs.sketches.pin_sketch import (
    MAX_CAPACITY,
    Minisketch,
    NotDecodable,
    decode_sketches,
    pack_sketches,
    power_sums,
    unpack_sketches,
)
from causeway_proofs.sketches.sketch_loops import find_roots, invert, multiply
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import sized

EXAMPLES = settings(deadline=None, max_examples=sized(18, 200), derandomize=True)
WIDTHS = range(2, 65)


def product(left: int, right: int, bits: int) -> int:
    """Multiply, one bit at a time."""
    modulus, result = Field(bits).modulus, 0
    while right:
        if right & 1:
            result ^= left
        right >>= 1
        left <<= 1
        if left >> bits:
            left ^= modulus
    return result


def times(left: int, right: int, bits: int) -> int:
    return int(multiply(np.uint64(left), np.uint64(right), bits, Field(bits).tail))


def inverse(element: int, bits: int) -> int:
    return int(invert(np.uint64(element), bits, Field(bits).tail))


def roots_of(polynomial: list[int], bits: int) -> list[int] | None:
    """Return the roots of a monic polynomial, None if it has fewer different ones than its degree."""
    degrees, roots = np.array([len(polynomial) - 1]), np.zeros(len(polynomial), dtype=np.uint64)
    polynomials, first = np.array(polynomial, dtype=np.uint64), np.ones(1, dtype=np.uint64)
    find_roots(polynomials, np.zeros(1, dtype=np.int64), degrees, first, bits, Field(bits).tail, roots)
    return sorted(roots[: degrees[0]].tolist()) if degrees[0] >= 0 else None


def sketch_of(bits: int, capacity: int, elements: set[int]) -> Minisketch:
    sketch = Minisketch(bits, capacity)
    sketch.add_all(np.array(sorted(elements), dtype=np.uint64))
    return sketch


@st.composite
def sets(draw: st.DrawFn, most: int = 12) -> tuple[int, int, set[int]]:
    bits = draw(st.integers(2, 64))
    capacity = min(draw(st.integers(1, most)), (1 << bits) - 1)
    return bits, capacity, draw(st.sets(st.integers(1, (1 << bits) - 1), max_size=capacity))


def test_published_example() -> None:
    sketch = Minisketch(12, 4)
    sketch.add_all(range(3000, 3010))
    assert sketch.serialize().hex() == "01e0d2f97469"


@pytest.mark.parametrize("bits", WIDTHS)
def test_polynomials_are_irreducible(bits: int) -> None:
    """x^(2^b) = x, and x^(2^(b/p)) - x has an inverse for every prime p that divides b."""
    field = Field(bits)
    assert field.modulus.bit_length() == bits + 1
    powers = [2]
    for _ in range(bits):
        powers.append(times(powers[-1], powers[-1], bits))
    assert powers[bits] == 2
    for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61):
        if bits % prime == 0:
            difference = powers[bits // prime] ^ 2
            assert difference and times(difference, inverse(difference, bits), bits) == 1


def test_polynomials_match_the_library() -> None:
    """Fewest terms, then the smallest exponents: a search over all widths found these, and no earlier ones."""
    tails = [Field(bits).modulus ^ 1 << bits for bits in WIDTHS]
    assert {tail.bit_count() for tail in tails} == {2, 4}
    assert (
        keccak256(b"".join([tail.to_bytes(8, "big") for tail in tails])).hex()
        == "1a0bf2f2ab9a6438d75a0548781c7d60e098e96ac2590c36799db484ab405819"
    )


@EXAMPLES
@given(st.integers(2, 64), st.data())
def test_field_arithmetic(bits: int, data: st.DataObject) -> None:
    elements = st.integers(0, (1 << bits) - 1)
    left, right = data.draw(elements), data.draw(elements)
    assert times(left, right, bits) == product(left, right, bits)
    assert times(left, 1, bits) == left and times(0, right, bits) == 0
    if left:
        assert product(left, inverse(left, bits), bits) == 1


@EXAMPLES
@given(sets())
def test_power_sums_and_their_bytes(made: tuple[int, int, set[int]]) -> None:
    bits, capacity, elements = made
    sums = [0] * capacity
    for element in elements:
        power, square = element, product(element, element, bits)
        for place in range(capacity):
            sums[place] ^= power
            power = product(power, square, bits)
    sketch = sketch_of(bits, capacity, elements)
    assert list(sketch.odd_sums) == sums
    packed = sum(value << (bits * place) for place, value in enumerate(sums))
    assert sketch.serialize() == packed.to_bytes((bits * capacity + 7) // 8, "little")
    assert Minisketch.deserialize(bits, capacity, sketch.serialize()) == sketch


@EXAMPLES
@given(sets())
def test_set_within_the_capacity_is_decoded(made: tuple[int, int, set[int]]) -> None:
    bits, capacity, elements = made
    assert sketch_of(bits, capacity, elements).decode() == sorted(elements)


@EXAMPLES
@given(sets(most=8), st.data())
def test_merged_sketches_yield_the_difference(made: tuple[int, int, set[int]], data: st.DataObject) -> None:
    bits, capacity, difference = made
    every = st.integers(1, (1 << bits) - 1)
    common = data.draw(st.sets(every, max_size=30)) - difference
    ours = {element for element in difference if data.draw(st.booleans())}
    mine = sketch_of(bits, capacity + 3, common | ours)
    theirs = sketch_of(bits, capacity, common | (difference - ours))
    joined = bytes(left ^ right for left, right in zip(mine.serialize(), theirs.serialize(), strict=False))
    whole = mine.copy()
    mine.merge(theirs)
    assert mine.capacity == capacity
    assert mine.decode() == sorted(difference)
    assert whole == sketch_of(bits, capacity + 3, common | ours)
    if bits * capacity % 8 == 0:
        assert mine.serialize() == joined


@pytest.mark.parametrize("bits", WIDTHS)
def test_full_sketches_of_every_width(bits: int) -> None:
    capacity = min(16, (1 << bits) - 1)
    random = np.random.default_rng(bits)
    elements: set[int] = set()
    while len(elements) < capacity:
        elements.add(int(random.integers(1, (1 << bits) - 1, endpoint=True, dtype=np.uint64)))
    assert sketch_of(bits, capacity, elements).decode() == sorted(elements)


def test_sketch_of_a_hundred_elements() -> None:
    elements = {int(element) for element in np.random.default_rng(1).integers(1, 1 << 63, 100, dtype=np.uint64)}
    assert sketch_of(64, 100, elements).decode() == sorted(elements)
    with pytest.raises(OverLimit, match="more than 99"):
        sketch_of(64, 100, elements).decode(max_elements=99)


@EXAMPLES
@given(st.sampled_from((8, 13, 32, 64)), st.integers(1, 10), st.data())
def test_any_bytes_decode_to_their_set_or_not_at_all(bits: int, capacity: int, data: st.DataObject) -> None:
    length = (bits * capacity + 7) // 8
    given_bytes = data.draw(st.binary(min_size=length, max_size=length))
    try:
        sketch = Minisketch.deserialize(bits, capacity, given_bytes)
        elements = sketch.decode()
    except ProofError:
        return
    assert len(elements) <= capacity
    assert sketch_of(bits, capacity, set(elements)).serialize() == given_bytes


def test_too_many_elements_are_not_decoded() -> None:
    random = np.random.default_rng(3)
    for bits in (32, 48, 64):
        sketch = Minisketch(bits, 12)
        sketch.add_all(random.integers(1, 1 << bits - 1, 13, dtype=np.uint64))
        with pytest.raises(NotDecodable):
            sketch.decode()


def test_garbage_of_the_largest_capacity_costs_bounded_work() -> None:
    garbage = np.random.default_rng(4).bytes(8 * MAX_CAPACITY)
    sketch = Minisketch.deserialize(64, MAX_CAPACITY, garbage)
    with pytest.raises(OverLimit):
        sketch.decode(max_elements=16)


def test_repeated_root_is_no_set() -> None:
    # (x - 5)(x - 5)(x - 7); and x^2 + x + c, which has no roots where the trace of c is 1, as for some power of x.
    assert roots_of([product(5, 7, 16), 5 ^ 7, 1], 16) == [5, 7]
    assert roots_of([product(product(5, 5, 16), 7, 16), product(5, 5, 16), 7, 1], 16) is None
    without = [c for c in (1 << place for place in range(16)) if roots_of([c, 1, 1], 16) is None]
    assert 0 < len(without) < 16


def test_sketches_of_many_sets_equal_those_of_each() -> None:
    """One empty, one too large for its capacity, one above its limit, one not a set."""
    chance, field = np.random.default_rng(9), Field(33)
    sizes, counts = np.array([3, 0, 20, 9, 40, 1]), np.array([5, 2, 24, 9, 12, 1])
    limits = np.array([5, 2, 24, 8, 12, 1])
    elements = chance.integers(1, 1 << 33, sizes.sum(), dtype=np.uint64)
    sets = np.split(elements, np.cumsum(sizes)[:-1])
    sums = power_sums(field, elements, sizes, counts)
    single = [sketch_of(33, count, {*some.tolist()}) for some, count in zip(sets, counts.tolist(), strict=True)]
    assert sums.tolist() == [value for sketch in single for value in sketch.odd_sums]
    content, ends = pack_sketches(field, sums, counts)
    assert [content[a:b].tobytes() for a, b in pairwise(ends)] == [s.serialize() for s in single]
    moved = np.concatenate([np.full(3, 255, dtype=np.uint8), content])
    assert (unpack_sketches(field, moved, ends + 3, counts) == sums).all()
    found, roots = decode_sketches(field, sums, counts, limits)
    assert found.tolist() == [3, 0, 20, TOO_MANY, NO_SET, 1]
    assert roots.tolist() == [element for row in (0, 2, 5) for element in sorted(sets[row].tolist())]


def test_invalid_sketches_are_refused() -> None:
    for bits, capacity in ((1, 4), (65, 4), (8, 0), (8, MAX_CAPACITY + 1)):
        with pytest.raises(InvalidInput):
            Minisketch(bits, capacity)
    sketch = Minisketch(12, 3)
    for element in (0, -1, 4096, 1 << 70):
        with pytest.raises(InvalidInput):
            sketch.add(element)
    for elements in ([1, 0], [-1], [4096], [1.5], ["1"]):
        with pytest.raises(InvalidInput):
            sketch.add_all(elements)
    sketch.add_all([])
    assert sketch.odd_sums == (0, 0, 0)
    with pytest.raises(InvalidInput):
        sketch.merge(Minisketch(13, 3))
    for data in (bytes(4), bytes(6), bytes(4) + b"\x10"):
        with pytest.raises(MalformedProof):
            Minisketch.deserialize(12, 3, data)
