"""SCALE: refusals on reading and writing in both forms, and the notation of types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.substrate.byte_columns import encode_compact
from causeway_proofs.substrate.errors import FailedToDecode
from causeway_proofs.substrate.scale import ScaleTypes, enum, parse_definitions, struct
from causeway_proofs.substrate.scale_columns import ScaleColumns

TYPES = ScaleTypes(
    {
        "Amount": "u16",
        "Named": struct(("amount", "Amount"), ("again", "Amount")),
        "Choice": enum("Nothing", ("Some", "Named")),
        "Pick": enum("Nothing", ("Pair", "(u8, u8)")),
        "Wrapped": enum(("Only", "Amounts")),
        "Amounts": struct(("amount", "u16")),
        "Loop": struct(("next", "Option<Loops>")),
        "Loops": "Vec<Loop>",
        "Twice": struct(("a", "u8"), ("a", "u8")),
    }
)


def require_refused(name: str, data: bytes, reason: str, columns: bool = True) -> None:
    """Compare the verdicts of both forms on an encoding."""
    with pytest.raises(FailedToDecode, match=reason) as refused:
        TYPES.decode(name, data, "it")
    if columns:
        error = ScaleColumns(TYPES, name, "it").decode(pa.array([data])).verdicts.error(0)
        assert str(error) == str(refused.value)


@pytest.mark.parametrize("bits", [8, 16, 32, 64, 128, 256])
def test_compact_integers_are_within_their_type(bits: int) -> None:
    name, most = f"Compact<u{bits}>", (1 << bits) - 1
    assert TYPES.decode(name, encode_compact(most), "it") == most
    require_refused(name, encode_compact(most + 1), f"above those of its type: at byte 0 of .*, {name}")
    with pytest.raises(InvalidInput, match=f"is no {name}"):
        TYPES.encode(name, most + 1)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("BTreeSet<u16>", "080001ff01", ["08ff010001", "0801000100"]),
        ("BTreeSet<[u8; 2]>", "0801ff0200", ["08020001ff", "0802000200"]),
        ("BTreeSet<Vec<u8>>", "0804010402", ["0804020401", "0804010401"]),
        ("BTreeMap<u8, bool>", "0801010200", ["0802000101", "0801000101"]),
        (
            "BTreeMap<H256, u8>",
            "08" + "00" * 31 + "0107" + "01" + "00" * 31 + "07",
            ["08" + ("01" + "00" * 32) + "00" * 33],
        ),
    ],
)
def test_sets_and_maps_ascend(name: str, good: str, bad: list[str]) -> None:
    value = TYPES.decode(name, bytes.fromhex(good), "it")
    assert TYPES.encode(name, value).hex() == good
    read = ScaleColumns(TYPES, name, "it").decode(pa.array([bytes.fromhex(good)])).require_all()
    assert read["value"].to_pylist() == [value]
    for data in bad:
        require_refused(name, bytes.fromhex(data), "does not ascend")
    with pytest.raises(InvalidInput, match="is no list that ascends"):
        TYPES.encode(name, value[::-1])


def test_sets_ascend_in_the_order_of_rust() -> None:
    for name, data in (
        ("BTreeSet<i8>", "08ff01"),
        ("BTreeSet<Compact<u16>>", "08040101"),
        ("BTreeSet<Option<u8>>", "08000100"),
        ("BTreeSet<(u8, u8)>", "0801050200"),
        ("BTreeSet<Pick>", "0800010100"),
    ):
        value = TYPES.decode(name, bytes.fromhex(data), "it")
        assert TYPES.encode(name, value).hex() == data
        with pytest.raises(InvalidInput):
            TYPES.encode(name, value[::-1])


def test_text_is_utf_8_and_unchanged() -> None:
    for text in ("", "héllo", "0x6869", "0xzz"):
        assert TYPES.decode("Str", TYPES.encode("Str", text), "it") == text
    require_refused("Str", b"\x04\xff", "has text that is no UTF-8", columns=False)


def test_bits_keep_their_number() -> None:
    for bits, data in (("0b", "00"), ("0b00101", "1405"), ("0b00000", "1400"), ("0b1" + "0" * 8, "240001")):
        assert TYPES.encode("BitVec", bits).hex() == data
        assert TYPES.decode("BitVec", bytes.fromhex(data), "it") == bits
    require_refused("BitVec", b"\x14\x25", "has bits behind its last one", columns=False)


def test_columns_of_a_type_alias() -> None:
    columns = ScaleColumns(TYPES, "Amount", "an amount")
    assert columns.schema.field("value").type == pa.uint16()
    named = ScaleColumns(TYPES, "Named", "it").decode(pa.array([bytes.fromhex("01000200")]))
    assert named.require_all().to_pylist() == [{"amount": 1, "again": 2}]


def test_list_of_a_type_with_a_renamed_column() -> None:
    columns = ScaleColumns(TYPES, "Vec<Wrapped>", "it")
    data = pa.array([bytes.fromhex("08000100000200")], pa.large_binary())
    assert columns.encode(columns.decode(data).require_all()).equals(data)


@pytest.mark.parametrize("value", [1.5, 1.0, "1", b"\x01", -1, 256])
def test_only_integers_are_encoded_as_numbers(value: Any) -> None:
    with pytest.raises(InvalidInput, match="is no u8"):
        TYPES.encode("u8", value)
    one, many = ScaleColumns(TYPES, "u8", "it"), ScaleColumns(TYPES, "Vec<u16>", "it")
    for columns, given in ((one, [value]), (one, pa.array([value])), (many, pa.array([[value * 256]]))):
        with pytest.raises(InvalidInput, match="the column value is no"):
            columns.encode({"value": given})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Named", {"amount": 1}),
        ("Named", {"amount": 1, "again": 2, "more": 3}),
        ("Choice", "Some"),
        ("Choice", {"Nothing": ()}),
        ("Choice", {"Other": 1}),
        ("Choice", None),
        ("[u16; 2]", [1]),
        ("(u8, u8)", (1, 2, 3)),
        ("H256", bytes(31)),
        ("Vec<u8>", "0x00"),
        ("bool", 1),
        ("Str", b""),
        ("Str", "\ud800"),
        ("BitVec", "0b2"),
        ("BitVec", 5),
        ("Vec<u16>", [0] * 1025),
    ],
)
def test_invalid_values_of_a_type_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^no value of the SCALE type .* is no "):
        TYPES.encode(name, value)


@pytest.mark.parametrize(
    "name",
    ["Other", "Vec<Other>", "Option<Option<u8>>", "Compact<i8>", "Loop", "Twice", "BTreeSet<Named>", "SortedVec<u8>",
     "BTreeMap<u8>", "BTreeSet<BitVec>"],
)  # fmt: skip
def test_invalid_types_are_refused(name: str) -> None:
    for refused in (lambda: TYPES.decode(name, b"", "it"), lambda: ScaleColumns(TYPES, name, "it")):
        with pytest.raises(InvalidInput):
            refused()


@pytest.mark.parametrize("empty", ["[u8; 0]", "Vec<[u8; 0]>", "Option<[u8; 0]>"])
def test_column_values_need_bytes(empty: str) -> None:
    with pytest.raises(InvalidInput, match="no column holds"):
        ScaleColumns(ScaleTypes({"One": struct(("field", empty))}), "One", "it")


def test_definitions_are_read_from_rust() -> None:
    text = "// Two\nstruct One { first: Vec<(u8, bool)>, // a list\n    second: [u8; 4] }\nenum Two { Bare, Some(One) }"
    assert parse_definitions(text) == {
        "One": struct(("first", "Vec<(u8, bool)>"), ("second", "[u8; 4]")),
        "Two": enum("Bare", ("Some", "One")),
    }


@pytest.mark.parametrize(
    "text",
    ["struct One { first: u8", "strukt One { first: u8 }", "enum Two { Bare } Other", "struct One { first u8 }",
     "enum Two { Some(u8 }", "enum Two { Some: u8 }"],
)  # fmt: skip
def test_malformed_definitions_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"not a definition|does not have the form"):
        parse_definitions(text)
