"""SCALE columns against single values: equal values, bytes and refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, OverLimit, ProofError
from causeway_proofs.substrate import scale_shapes
from causeway_proofs.substrate.byte_columns import encode_compact
from causeway_proofs.substrate.errors import FailedToDecode
from causeway_proofs.substrate.scale import ScaleTypes, enum, struct
from causeway_proofs.substrate.scale_columns import ScaleColumns, numbers_column, to_limbs
from causeway_proofs.xdm.columns import CHANNELS, ENVELOPES, LEAVES, MESSAGES, RECEIPTS
from causeway_proofs.xdm.envelope import CrossDomainMessage, ExecutionReceipt, MmrLeaf
from causeway_proofs.xdm.messages import XDM_TYPES, Message

from tests.fuzz.mutations import mutations
from tests.oracles.xdm.channels import Channel
from tests.support.properties import scale_values
from tests.support.properties.scale_values import Row, plain
from tests.tiers import sized


@dataclass(frozen=True)
class Kind:
    """A type, its columns, its decoder for one value, and what the columns hold of that."""

    columns: ScaleColumns
    decode: Callable[[bytes], Any]
    row: Callable[[Any], Row]


KINDS = {
    "message": Kind(MESSAGES, Message.decode, scale_values.of_message),
    "envelope": Kind(ENVELOPES, CrossDomainMessage.decode, scale_values.of_envelope),
    "receipt": Kind(RECEIPTS, ExecutionReceipt.decode, scale_values.of_receipt),
    "leaf": Kind(LEAVES, MmrLeaf.decode, scale_values.of_leaf),
    **{
        f"channel {version} {account}": Kind(
            columns,
            partial(Channel.decode, version=version, account_bytes=account),
            scale_values.of_channel,
        )
        for (version, account), columns in CHANNELS.items()
    },
}

EVERY = pytest.mark.parametrize("name", KINDS)
VALUES, MUTATIONS, MANY_MUTATIONS = 60, 500, sized(20_000, 100_000)


def random_encodings(kind: Kind, count: int) -> list[bytes]:
    """Return encodings of random values."""
    chance, name = Random(kind.columns.type_name), kind.columns.type_name
    return [XDM_TYPES.encode(name, plain(XDM_TYPES, name, chance)) for _ in range(count)]


def column(encodings: Sequence[bytes]) -> pa.Array:
    return pa.array(encodings, pa.large_binary())


def filled(row: Row, kind: pa.DataType | pa.Schema) -> Row:
    """Return a row with all columns: null in absent ones, in the structs of its lists too."""
    full: Row = {}
    for field in kind:
        value = row.get(field.name)
        if value is not None and pa.types.is_large_list(field.type) and pa.types.is_struct(field.type.value_type):
            value = [filled(element, field.type.value_type) for element in value]
        full[field.name] = value
    assert {name for name, value in row.items() if value is not None} <= set(full)
    return full


def verdict(decode: Callable[[bytes], Any], data: bytes) -> Any:
    """Return the decoded value, or its error."""
    try:
        return decode(data)
    except ProofError as error:
        return error


def require_same_verdicts(kind: Kind, tried: list[bytes]) -> set[Any]:
    """Compare columns with single values, row by row; return the codes."""
    decoded = kind.columns.decode(column(tried))
    rows = decoded.columns.to_pylist()
    for number, data in enumerate(tried):
        expected, error = verdict(kind.decode, data), decoded.verdicts.error(number)
        if isinstance(expected, ProofError):
            assert (type(error), str(error)) == (type(expected), str(expected)), data.hex()
            assert set(rows[number].values()) == {None}
        else:
            assert error is None, (data.hex(), error)
            assert rows[number] == filled(kind.row(expected), kind.columns.schema), data.hex()
    good = [data for data, code in zip(tried, decoded.verdicts.codes, strict=True) if not code]
    read = decoded.columns.filter(pa.array(decoded.verdicts.codes == 0))
    assert kind.columns.encode(read).to_pylist() == good
    return set(decoded.verdicts.codes.tolist())


@EVERY
def test_random_values_round_trip_as_single_ones(name: str) -> None:
    kind = KINDS[name]
    encodings = random_encodings(kind, VALUES)
    assert require_same_verdicts(kind, encodings) == {0}
    # The same rows out of the middle of longer columns.
    kept = kind.columns.decode(column([encodings[0], *encodings]).slice(3, 40)).require_all()
    assert kind.columns.encode(kept.slice(7, 20)).to_pylist() == encodings[9:29]
    kept.validate(full=True)


@EVERY
def test_mutations_have_the_same_verdict_row_by_row(name: str) -> None:
    kind = KINDS[name]
    seeds = random_encodings(kind, 12)
    codes = require_same_verdicts(kind, list(mutations(seeds, MUTATIONS, Random(name))))
    assert len(codes) >= 3


@pytest.mark.slow
@EVERY
def test_many_mutations_have_the_same_verdict_row_by_row(name: str) -> None:
    kind = KINDS[name]
    seeds = random_encodings(kind, 200)
    require_same_verdicts(kind, list(mutations(seeds, MANY_MUTATIONS // len(KINDS) + 1, Random(2))))


@EVERY
def test_every_truncation_and_extension_is_refused(name: str) -> None:
    kind = KINDS[name]
    longest = max(random_encodings(kind, 8), key=len)
    decoded = kind.columns.decode(column([longest[:end] for end in range(len(longest))] + [longest + b"\x00", longest]))
    assert decoded.verdicts.refused().tolist() == list(range(len(longest) + 1))
    assert all(isinstance(decoded.verdicts.error(row), FailedToDecode) for row in decoded.verdicts.refused().tolist())
    assert set(decoded.columns.slice(0, len(longest) + 1).to_pylist()[3].values()) == {None}


TYPES = ScaleTypes(
    {
        "Small": enum("No", ("Yes", "u64")),
        "Outcome": enum(("Ok", "Vec<u8>"), ("Err", "Small")),
        "Inner": struct(("name", "Vec<u8>"), ("numbers", "Vec<u64>"), ("outcome", "Outcome")),
        "Outer": struct(
            ("compact", "Compact<u32>"),
            ("wide", "Compact<u128>"),
            ("inners", "Vec<Inner>"),
            ("text", "Option<Vec<u8>>"),
            ("last", "Option<u16>"),
        ),
    },
)
ALONE = [
    "Small", "Outcome", "Outer", "u8", "u64", "u256", "H256", "[u8; 20]", "Vec<u8>", "Vec<H256>", "Vec<Vec<u8>>",
    "BTreeSet<Vec<u8>>", "Vec<u64>", "Vec<Vec<u8>>", "Option<H256>", "Option<u16>", "Compact<u128>",
]  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_any_composition_round_trips_through_columns(name: str) -> None:
    columns, chance = ScaleColumns(TYPES, name, "it"), Random(name)
    encodings = [TYPES.encode(name, plain(TYPES, name, chance)) for _ in range(30)]
    tried = [*encodings, *mutations(encodings, 300, chance)]
    decoded = columns.decode(column(tried))
    for row, data in enumerate(tried):
        expected = verdict(lambda data: TYPES.decode(name, data, "it"), data)
        error = decoded.verdicts.error(row)
        refused = expected if isinstance(expected, ProofError) else None
        assert (type(error), str(error)) == (type(refused), str(refused)), data.hex()
    read = decoded.columns.filter(pa.array(decoded.verdicts.codes == 0))
    good = [data for data, code in zip(tried, decoded.verdicts.codes, strict=True) if not code]
    assert columns.encode(read).to_pylist() == good
    assert decoded.verdicts.codes[:30].sum() == 0


def test_compact_numbers_are_within_their_type() -> None:
    for bits, kind in ((8, "Compact<u8>"), (32, "Compact<u32>"), (128, "Compact<u128>")):
        numbers = [0, 63, 64, 255, 1 << 13, (1 << 14) - 1, 1 << 14, (1 << 30) - 1, 1 << 30, (1 << 32) - 1, 1 << 32]
        numbers += [1 << 100, (1 << 128) - 1, 1 << 128, 1 << 535]
        columns = ScaleColumns(TYPES, kind, "it")
        decoded = columns.decode(column([encode_compact(number) for number in numbers]))
        assert decoded.verdicts.refused().tolist() == [row for row, number in enumerate(numbers) if number >= 1 << bits]
        read = decoded.columns["value"].drop_null().to_pylist()
        found = [int.from_bytes(value, "little") if isinstance(value, bytes) else value for value in read]
        assert found == [number for number in numbers if number < 1 << bits]
        again = columns.encode({"value": decoded.columns["value"].drop_null()}).to_pylist()
        assert again == [encode_compact(number) for number in found]


def test_only_the_shortest_compact_form_is_read() -> None:
    shortest = [0, 63, 64, (1 << 14) - 1, 1 << 14, (1 << 30) - 1, 1 << 30]
    forms = [(number << 2 | 1).to_bytes(2, "little") for number in shortest[:4]]
    forms += [(number << 2 | 2).to_bytes(4, "little") for number in shortest[:6]]
    forms += [b"\x03" + number.to_bytes(4, "little") for number in shortest]
    forms += [b"\x07" + number.to_bytes(5, "little") for number in [*shortest, 1 << 32]]
    for kind, behind in (("Compact<u128>", b""), ("Vec<u8>", bytes(1 << 15)), ("Vec<H256>", b"")):
        tried = [form + behind for form in forms]
        verdicts = ScaleColumns(TYPES, kind, "it").decode(column(tried)).verdicts
        for row, form in enumerate(forms):
            number = int.from_bytes(form, "little") >> 2 if form[0] & 3 < 3 else int.from_bytes(form[1:], "little")
            padded = encode_compact(number) != form
            assert (verdicts.codes[row] == scale_shapes.NOT_SHORTEST) == padded, (kind, form.hex())


def test_sets_hold_each_string_once_and_in_order() -> None:
    columns = ScaleColumns(TYPES, "BTreeSet<Vec<u8>>", "a set")
    sets = [
        [b"", b"\x00", b"\x00\x00", b"\x01"],
        [b"a", b"a"],
        [b"ab", b"a"],
        [b"b", b"a"],
        [b"a", b"ab", b"b"],
        [b"", b""],
    ]
    encodings = [TYPES.encode("Vec<Vec<u8>>", strings) for strings in sets]
    verdicts = columns.decode(column([*encodings, encodings[4][:-1]])).verdicts
    assert verdicts.refused().tolist() == [1, 2, 3, 5, 6]
    assert "ends early: at byte 6 of 7" in str(verdicts.error(6))
    assert "does not ascend: at byte 3 of 5" in str(verdicts.error(1))


LISTS = [("Vec<u64>", 1024, bytes(8)), ("Vec<H256>", 1 << 16, bytes(32)), ("Vec<Vec<u8>>", 1 << 16, b"\x00")]


@pytest.mark.parametrize(("name", "most", "element"), LISTS)
def test_lists_at_and_above_their_limits(name: str, most: int, element: bytes) -> None:
    columns = ScaleColumns(TYPES, name, "a list", limit=16 << 20)
    full, over = (encode_compact(count) + element * count for count in (most, most + 1))
    hostile = [b"\x03" + bytes(3) + b"\x40", b"\xff" * 68, b"\x13" + b"\xff" * 8, b"\x33" + b"\xff" * 16]
    decoded = columns.decode(column([full, over, *hostile, b"\x02\x00\x00", b""]))
    refused = [decoded.verdicts.error(row) for row in range(8)]
    assert refused[0] is None and len(decoded.columns["value"][0]) == most
    assert [type(error) for error in refused[1:]] == [OverLimit] * 5 + [FailedToDecode] * 2
    values = decoded.columns["value"][0].values
    with pytest.raises(InvalidInput, match=f"more than {most} elements"):
        columns.encode({"value": pa.array([[*values.to_pylist(), values[0].as_py()]], columns.schema[0].type)})
    # A length of a byte string without a valid length.
    strings = ScaleColumns(TYPES, "Vec<u8>", "a string")
    assert len(strings.decode(column(hostile)).verdicts.refused()) == 4


def test_rows_above_the_length_limit() -> None:
    columns = ScaleColumns(TYPES, "Vec<u8>", "a string", limit=10)
    decoded = columns.decode(column([encode_compact(9) + bytes(9), encode_compact(10) + bytes(10)]))
    assert decoded.verdicts.refused().tolist() == [1]
    with pytest.raises(OverLimit, match=r"row 1 of 2 .* a string has 11 bytes, at most 10"):
        decoded.require_all()
    with pytest.raises(InvalidInput, match="row 1: a string takes 11 bytes"):
        columns.encode({"value": column([bytes(9), bytes(10)])})


def test_error_names_its_position() -> None:
    good = bytes.fromhex("0101000000" + "0100000000" + "00" * 64 + "0100000019000000" + "00")
    decoded = MESSAGES.decode(column([good, good[:79], good[:77] + b"\x07" + good[78:], good[:-1] + b"\x02"]))
    assert decoded.verdicts.positions.tolist() == [83, 78, 77, 82]
    with pytest.raises(FailedToDecode, match=r"row 1 of 4 \(3 are refused\): a cross-domain message .* ends early: at "
                       r"byte 78 of 79, payload.V1.Protocol.Request.ChannelOpen.max_outgoing_messages"):  # fmt: skip
        decoded.require_all()
    assert "no such variant: at byte 77 of 83, payload.V1.Protocol.Request" in str(decoded.verdicts.error(2))
    assert "neither 0 nor 1: at byte 82 of 83, last_delivered" in str(decoded.verdicts.error(3))


def test_values_are_required_for_their_variant_only() -> None:
    rows = MESSAGES.decode(column(random_encodings(KINDS["message"], 20))).require_all()
    given = dict(zip(rows.schema.names, rows.columns, strict=True))
    spare = given | {"error_token": pa.array([0] * 20, pa.uint8())}
    with pytest.raises(InvalidInput, match=r"of a variant that is not taken, in the column error_token"):
        MESSAGES.encode(spare)
    with pytest.raises(InvalidInput, match=r"row 0 is no Message: it has no value in the column nonce"):
        MESSAGES.encode({name: values for name, values in given.items() if name != "nonce"})
    with pytest.raises(InvalidInput, match="has none of the 2 variants in the column layer"):
        MESSAGES.encode(given | {"layer": pa.array([2] * 20)})
    with pytest.raises(InvalidInput, match="has no column fee"):
        MESSAGES.encode(given | {"fee": given["nonce"]})
    with pytest.raises(InvalidInput, match="the column version is no uint8"):
        MESSAGES.encode(given | {"version": pa.array([256] * 20)})
    with pytest.raises(InvalidInput, match="of one length"):
        MESSAGES.encode(given | {"version": given["version"].slice(1)})
    with pytest.raises(InvalidInput):
        MESSAGES.decode(pa.array([None], pa.binary()))


@EVERY
def test_empty_columns_may_be_omitted(name: str) -> None:
    kind = KINDS[name]
    encodings = random_encodings(kind, 12)
    for data in encodings:
        row = kind.columns.decode(column([data, data])).require_all()
        given = {field.name: row[field.name] for field in row.schema if row[field.name].null_count == 0}
        assert kind.columns.encode(given).to_pylist() == [data, data]


def test_list_elements_have_the_values_of_their_variants() -> None:
    rows = RECEIPTS.decode(column([bytes(256)])).require_all()
    given = dict(zip(rows.schema.names, rows.columns, strict=True))
    valid = {"bundle": 1, "bundle_valid": bytes(32), "extrinsics_root": bytes(32)}
    for second, said in (
        (valid, None),
        (valid | {"bundle_invalid": 0}, "row 0, element 1 of the lists, is no ExecutionReceipt: it has a value, of a"),
        (valid | {"bundle_valid": None}, "has no value in the column bundle_valid"),
        (None, "has no value in the column bundle "),
    ):
        given["inboxed_bundles"] = pa.array([[valid, second]], rows.schema.field("inboxed_bundles").type)
        if said is None:
            assert len(RECEIPTS.encode(given)[0].as_py()) == 256 + 2 * 65
            continue
        with pytest.raises(InvalidInput, match=said):
            RECEIPTS.encode(given)


def test_maps_and_sets_are_written_in_order_only() -> None:
    kind = KINDS["receipt"]
    rows = kind.columns.decode(column([bytes(256)] * 2)).require_all()
    amount = bytes(16)
    entries = [
        {"chain_id": None, "amount": amount},
        {"chain_id": 1, "amount": amount},
        {"chain_id": 256, "amount": amount},
    ]
    given = dict(zip(rows.schema.names, rows.columns, strict=True))
    for listed, good in ((entries, True), (entries[::-1], False), ([*entries, entries[2]], False)):
        given["transfers_out"] = pa.array([[], listed], rows.schema.field("transfers_out").type)
        if good:
            encoded = kind.columns.encode(given)
            assert kind.columns.decode(encoded).require_all()["transfers_out"].to_pylist() == [[], entries]
            continue
        with pytest.raises(InvalidInput, match=r"row 1 of 2 .* does not ascend: .* V0.transfers.transfers_out"):
            kind.columns.encode(given)


def test_numbers_of_256_bits_are_limbs() -> None:
    numbers = [0, 1, (1 << 64) - 1, 1 << 64, (1 << 256) - 1]
    limbs = to_limbs(pa.array([number.to_bytes(32, "little") for number in numbers], pa.binary(32)).slice(1, 4))
    assert [sum(int(limb) << 64 * place for place, limb in enumerate(row)) for row in limbs] == numbers[1:]
    made = numbers_column(limbs[:2, 0].copy(), 32)
    assert [int.from_bytes(value, "little") for value in made.to_pylist()] == numbers[1:3]


def test_empty_table_is_a_table() -> None:
    for kind in KINDS.values():
        decoded = kind.columns.decode(column([]))
        assert decoded.columns.num_rows == 0 and decoded.columns.schema == kind.columns.schema
        assert len(kind.columns.encode(decoded.columns)) == 0


def test_types_without_columns_are_refused() -> None:
    types = ScaleTypes(
        {
            "Pair": struct(("a", "u8"), ("b", "u8")),
            "Deep": struct(("pair", "Option<Pair>")),
            "Same": struct(("a", "u8"), ("rest", "Pair")),
            "Lists": struct(("lists", "Vec<Choice>")),
            "Choice": enum(("A", "u8"), ("B", "u16")),
            "One": enum("A"),
        }
    )
    for name, names, said in (
        ("Deep", {}, "pair: no column holds an option of this"),
        ("Same", {"rest": ""}, "share the column a"),
        ("Lists", {}, "lists: no column holds a list of this"),
        ("Null", {}, "no column holds a SCALE type like this"),
        ("One", {}, "has one value: there is no column of it"),
        ("BTreeSet<i8>", {}, "only byte strings and unsigned numbers ascend in columns"),
        ("BTreeSet<Option<Vec<u8>>>", {}, "only byte strings and unsigned numbers ascend in columns"),
        ("Str", {}, "no column holds a SCALE type like this"),
    ):
        with pytest.raises(InvalidInput, match=said):
            ScaleColumns(types, name, "it", names=names)
