"""SCALE against parity-scale-codec, the crate of deployed chains: random types and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.substrate.scale import ScaleTypes
from causeway_proofs.substrate.scale_shapes import (
    Array,
    Bits,
    Bool,
    ByteString,
    Compact,
    Enum,
    FixedBytes,
    Number,
    Optional,
    Sequence,
    Shape,
    Struct,
    Tuple,
    parse_shape,
)

from benchmarks.proofs.native import CARGO_FAST, Native, Toolchain, answers
from tests.fuzz.mutations import mutations
from tests.support.properties.scale_encodings import random_encoding, random_types
from tests.tiers import sized
from tests.verifiers.conftest import Build

TOOLCHAIN = Toolchain(
    Path(__file__).parent / "native" / "scale-rust",
    "parity-scale-codec",
    ("Cargo.toml", 'parity-scale-codec = { version = "='),
    *CARGO_FAST,
)
TYPES = sized(1_000, 20_000)
SEEDS, MUTATIONS = 12, 24


def words(shape: Shape) -> str:
    """Return a type in the notation of the decoder in Rust."""
    match shape:
        case Number(name=name):
            return name
        case Compact(width=width):
            return f"c{8 * width}"
        case Bool():
            return "bool"
        case FixedBytes(width=width):
            return f"[ {width} u8"
        case ByteString(text=text):
            return "text" if text else "bytes"
        case Bits():
            return "bits"
        case Optional(inner):
            return f"? {words(inner)}"
        case Sequence(inner=Struct(fields=((_, key), *rest)), ascending=True):
            return f"m {words(key)} {words(rest[0][1])}"
        case Sequence(inner=inner, ascending=ascending):
            return f"{'s' if ascending else 'v'} {words(inner)}"
        case Array(inner, length):
            return f"[ {length} {words(inner)}"
        case Tuple(parts):
            return " ".join([f"t {len(parts)}", *map(words, parts)])
        case Struct(fields=parts):
            return " ".join([f"t {len(parts)}", *(words(part) for _, part in parts)])
        case Enum(variants=parts):
            return " ".join([f"e {len(parts)}", *(words(part) for _, part in parts)])


def reencodings(native: Native, encodings: Iterable[tuple[str, bytes]]) -> list[bytes | None]:
    """Return the crate's encodings of decoded ones (type in words, bytes); None if it refuses one."""
    said = answers(native, (part for told, data in encodings for part in (told.encode(), data)))
    return [None if word == "refused" else bytes.fromhex(word[2:]) for word in said]


@pytest.fixture(scope="module")
def rust(native_build: Build) -> Native:
    """Return the crate in Rust."""
    (built,) = native_build([TOOLCHAIN])
    return built


def accepts(types: ScaleTypes, name: str, data: bytes) -> bool:
    try:
        types.decode(name, data, "it")
    except ProofError:
        return False
    return True


def test_accepted_values_are_those_the_crate_accepts_and_would_write(rust: Native) -> None:
    chance = Random(35)
    told, tried, own = [], [], []
    for drawn in random_types(chance, TYPES):
        shape = drawn.shape
        seeds = [random_encoding(shape, chance) for _ in range(SEEDS)]
        for data in (*seeds, *mutations(seeds, MUTATIONS, chance)):
            told.append((words(shape), data))
            tried.append((drawn.name, drawn.types.definitions, data))
            own.append(accepts(drawn.types, drawn.name, data))
    theirs = reencodings(rust, told)
    odd = [
        (case, again, accepted)
        for case, again, accepted in zip(tried, theirs, own, strict=True)
        if accepted != (again == case[2])
    ]
    assert odd == []
    kinds = Counter(
        "refused" if again is None else again == data for (_, data), again in zip(told, theirs, strict=True)
    )
    assert min(kinds[True], kinds["refused"]) > len(told) // 10
    assert kinds[False] > TYPES // 10, "what it accepts and writes in another form"


def test_non_canonical_values_accepted_by_the_crate_are_refused(rust: Native) -> None:
    """As docs/reference/other-verifiers.md says."""
    cases = {
        ("BTreeSet<u8>", b"\x08\x02\x01"): b"\x08\x01\x02",
        ("BTreeSet<u8>", b"\x08\x01\x01"): b"\x04\x01",
        ("BTreeMap<u8, bool>", b"\x08\x02\x00\x01\x01"): b"\x08\x01\x01\x02\x00",
        ("BTreeMap<u8, bool>", b"\x08\x01\x00\x01\x01"): b"\x04\x01\x01",
        ("BitVec", b"\x14\xff"): b"\x14\x1f",
        ("Compact<u32>", b"\x01\x00"): None,
        ("Option<u8>", b"\x02\x00"): None,
        ("bool", b"\x02"): None,
        ("Str", b"\x04\xff"): None,
    }
    types = ScaleTypes({})
    told = [(words(parse_shape({}, name)), data) for name, data in cases]
    assert reencodings(rust, told) == list(cases.values())
    assert not any(accepts(types, name, data) for name, data in cases)
