"""Columns of slices against the scalar form: equal roots and witnesses, and detected alterations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, OverLimit, ProofError
from causeway_proofs.hashing import Digests
from causeway_proofs.ic.digest_columns import indexed_digests, leaf_digests
from causeway_proofs.ic.errors import MissingHeader, MissingStream, MissingStreams, WitnessPruningFailed
from causeway_proofs.ic.slice import CertifiedStreamSlice, encode_certified_stream_slice
from causeway_proofs.ic.slice_columns import MAX_STEPS, SliceFault, decode_path, slice_roots
from causeway_proofs.ic.state_columns import CanonicalStates, CertifiedData, StreamColumns, state_contents, state_roots
from causeway_proofs.ic.stream_header import StreamHeader, decode_stream_header, encode_stream_header
from causeway_proofs.ic.stream_tree import StreamForest, StreamTree
from causeway_proofs.ic.witness import KNOWN, Witness, WitnessFork, WitnessNode, WitnessPruned
from causeway_proofs.order import U64, Rows
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.protocols.ic.ids import subnet_id
from tests.oracles.ic.certified_streams import CertifiedStreams, StoredStream
from tests.oracles.ic.faults import slice_error
from tests.oracles.ic.paths import encode_path
from tests.oracles.ic.slice_forms import SliceRow, from_certified_slice, to_certified_slice
from tests.tiers import sized

SIZES = (0, 1, 2, 3, 11, 37)
IDS = [subnet_id(number) for number in range(2, 2 + len(SIZES))]
BEGINS = [250 + 3 * number for number in range(len(SIZES))]
ENDS = [begin + size for begin, size in zip(BEGINS, SIZES, strict=True)]
HEADERS = [encode_stream_header(StreamHeader(begin, end, 9)) for begin, end in zip(BEGINS, ENDS, strict=True)]
MESSAGES = [[f"{begin} {at}".encode() for at in range(size)] for begin, size in zip(BEGINS, SIZES, strict=True)]
HEIGHT = 300


def _u64(values: list[int]) -> U64:
    return np.array(values, dtype=np.uint64)


def _binary(values: list[bytes]) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def _leaves(begin: int, messages: list[bytes] | tuple[bytes, ...]) -> Digests:
    indexes = np.arange(len(messages), dtype=np.uint64) + np.uint64(begin)
    return indexed_digests(indexes, leaf_digests(_binary(list(messages))))


@dataclass(frozen=True)
class Sender:
    """Subnet with six streams: a forest with its canonical state, and certified one by one."""

    forest: StreamForest
    paths: list[bytes]
    root: bytes
    certified: CertifiedStreams


@pytest.fixture(scope="module")
def sender() -> Sender:
    forest = StreamForest()
    keys = np.arange(len(SIZES), dtype=np.uint64)
    leaves = [_leaves(begin, messages) for begin, messages in zip(BEGINS, MESSAGES, strict=True)]
    forest.update(keys, _u64(BEGINS), _u64(ENDS), np.concatenate(leaves))
    streams = StreamColumns(
        np.zeros(len(SIZES), dtype=np.int64),
        np.frombuffer(b"".join(IDS), dtype=np.uint8).reshape(-1, 10),
        _binary(HEADERS),
        forest.roots(keys),
        _u64(list(SIZES)),
    )
    data = CertifiedData(np.empty(0, dtype=np.int64), np.empty((0, 10), dtype=np.uint8), _binary([]))
    states = CanonicalStates(
        _u64([HEIGHT]), np.zeros((1, 32), dtype=np.uint8), np.array([True]), _u64([5]), None, data, streams
    )
    found = state_roots(states)
    contents = state_contents(states, 0)
    del contents[b"streams"]
    stored = {}
    for subnet, header, begin, messages in zip(IDS, HEADERS, BEGINS, MESSAGES, strict=True):
        column = _binary(messages)
        stored[subnet] = StoredStream(StreamTree(header, begin, column), column)
    certified = CertifiedStreams(stored, contents, HEIGHT, lambda message: bytes(48))
    return Sender(forest, found.paths.to_pylist(), found.roots[0].tobytes(), certified)


def _row(sender: Sender, stream: int, first: int, stop: int) -> SliceRow:
    """Return messages [first, stop), counted from the stream's begin, in columns."""
    begin = BEGINS[stream]
    digests, _ = sender.forest.sides(_u64([stream]), _u64([begin + first]), _u64([begin + stop]))
    messages = tuple(MESSAGES[stream][first:stop])
    return SliceRow(IDS[stream], HEADERS[stream], begin + first, messages, digests.tobytes(), sender.paths[stream])


def _roots(rows: list[SliceRow], bounds: list[tuple[int, int]] | None = None) -> tuple[list[bytes], list[int]]:
    """Return the roots and errors of slices; ``bounds``: the claims of their headers, if known."""
    if bounds is None:
        headers = [decode_stream_header(row.header) for row in rows]
        bounds = [(header.begin, header.end) for header in headers]
    begins, ends = (_u64(list(column)) for column in zip(*bounds, strict=True))
    roots, faults = slice_roots(
        _binary([row.header for row in rows]),
        [row.destination for row in rows],
        np.concatenate([_leaves(row.begin, row.messages) for row in rows]),
        np.array([len(row.messages) for row in rows]),
        _u64([row.begin for row in rows]) - begins,
        ends - begins,
        _binary([row.siblings for row in rows]),
        _binary([row.path for row in rows]),
    )
    return [root.tobytes() for root in roots], faults.tolist()


def _all_ranges() -> list[tuple[int, int, int]]:
    sizes = enumerate(SIZES[:5])
    runs = [(at, first, stop) for at, size in sizes for first in range(size + 1) for stop in range(first, size + 1)]
    return runs + [(5, first, stop) for first, stop in ((0, 37), (0, 0), (36, 37), (32, 36), (7, 30), (20, 37))]


def test_every_range_gives_the_certified_root_and_equal_slices_in_both_forms(sender: Sender) -> None:
    rows = [_row(sender, *run) for run in _all_ranges()]
    roots, faults = _roots(rows)
    assert set(roots) == {sender.root} == {sender.certified.certification.root_hash}
    assert set(faults) == {SliceFault.NONE}
    for row, (stream, first, stop) in zip(rows, _all_ranges(), strict=True):
        expected = sender.certified.encode_certified_stream_slice(
            IDS[stream], msg_begin=BEGINS[stream] + first, msg_limit=stop - first
        )
        made = to_certified_slice(row, sender.certified.certification)
        assert encode_certified_stream_slice(made) == encode_certified_stream_slice(expected)
        found = from_certified_slice(expected)
        assert found == (row if row.messages else replace(row, begin=0))


def test_no_slice_byte_can_be_altered(sender: Sender) -> None:
    for run in ((4, 3, 7), (4, 5, 11), (4, 4, 4), (1, 0, 1), (0, 0, 0)):
        row = _row(sender, *run)
        altered = [replace(row, header=_flip_bit(row.header, at)) for at in range(len(row.header))]
        altered += [replace(row, siblings=_flip_bit(row.siblings, at)) for at in range(len(row.siblings))]
        altered += [replace(row, path=_flip_bit(row.path, at)) for at in range(len(row.path))]
        altered += [replace(row, destination=_flip_bit(row.destination, at)) for at in range(len(row.destination))]
        for number, message in enumerate(row.messages):
            parts = list(row.messages)
            parts[number] = _flip_bit(message, number % len(message))
            altered.append(replace(row, messages=tuple(parts)))
        if row.messages:
            altered.append(replace(row, begin=row.begin + 1))
        header = decode_stream_header(row.header)
        # Unaltered ones between them keep their root.
        mixed = [one for pair in zip(altered, [row] * len(altered), strict=True) for one in pair]
        roots, faults = _roots(mixed, [(header.begin, header.end)] * len(mixed))
        assert set(zip(roots[1::2], faults[1::2], strict=True)) == {(sender.root, 0)}
        assert sender.root not in roots[::2]


def _flip_bit(value: bytes, at: int) -> bytes:
    return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]


NUMBERS = st.integers(0, 40) | st.sampled_from([2**31, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1])


@settings(deadline=None, max_examples=sized(68, 750))
@given(
    siblings=st.lists(st.binary(max_size=100) | st.integers(0, 9).map(lambda count: bytes(32 * count)), max_size=5),
    path=st.binary(max_size=140)
    | st.tuples(st.integers(0, 255), st.integers(0, 255)).map(
        lambda counts: bytes(counts) + bytes([0, *bytes(32)]) * sum(counts)
    ),
    count=st.integers(0, 40),
    first=NUMBERS,
    size=NUMBERS,
)
def test_arbitrary_input_is_a_fault_of_its_slice_alone(
    sender: Sender, siblings: list[bytes], path: bytes, count: int, first: int, size: int
) -> None:
    honest = _row(sender, 4, 2, 9)
    good = len(siblings) % 3
    strange = [honest] * 3
    leaves = [_leaves(honest.begin, honest.messages)] * 3
    leaves[good:good] = [np.zeros((count, 32), dtype=np.uint8)] * len(siblings)
    strange[good:good] = [replace(honest, siblings=one, path=path, header=one) for one in siblings]
    own = np.zeros(len(strange), dtype=bool)
    own[good : good + len(siblings)] = True
    roots, faults = slice_roots(
        _binary([row.header for row in strange]),
        [row.destination for row in strange],
        np.concatenate(leaves),
        np.where(own, count, 7),
        np.where(own, np.uint64(first), np.uint64(2)),
        np.where(own, np.uint64(size), np.uint64(11)),
        _binary([row.siblings for row in strange]),
        _binary([row.path for row in strange]),
    )
    assert {root.tobytes() for root in roots[~own]} == {sender.root} and not faults[~own].any()
    assert not roots[faults > 0].any()
    for fault in set(faults[own].tolist()) - {0}:
        assert str(slice_error(fault)).startswith("WitnessPruningFailed: the")


def test_each_fault_is_reported_by_name(sender: Sender) -> None:
    row, empty = _row(sender, 4, 2, 9), _row(sender, 4, 3, 3)
    none = _row(sender, 0, 0, 0)
    many = encode_path([], [(1, bytes(32))] * MAX_STEPS)
    for wrong, fault in (
        (replace(row, begin=row.begin + 3), SliceFault.OUTSIDE),
        (replace(row, begin=row.begin - 3), SliceFault.OUTSIDE),
        (replace(row, siblings=row.siblings[:-1]), SliceFault.SIBLING_BYTES),
        (replace(row, siblings=row.siblings[:-32]), SliceFault.SIBLING_COUNT),
        (replace(row, siblings=row.siblings + bytes(32)), SliceFault.SIBLING_COUNT),
        (replace(empty, siblings=b""), SliceFault.SIBLING_COUNT),
        (replace(none, siblings=bytes(32)), SliceFault.SIBLING_COUNT),
        (replace(row, path=b""), SliceFault.PATH_LENGTH),
        (replace(row, path=b"\0"), SliceFault.PATH_LENGTH),
        (replace(row, path=row.path + b"\0"), SliceFault.PATH_LENGTH),
        (replace(row, path=row.path[:2] + b"\2" + row.path[3:]), SliceFault.PATH_SIDES),
        (replace(row, path=b"\1" + many[1:] + bytes(33)), SliceFault.PATH_STEPS),
    ):
        assert _roots([row, wrong])[1] == [0, fault]
        with pytest.raises(WitnessPruningFailed) as told:
            to_certified_slice(wrong, sender.certified.certification)
        assert str(told.value) == str(slice_error(fault))
    for size in (2**62 + 1, 2**63, 2**64 - 1):
        for far in (replace(row, begin=0, siblings=b""), empty):
            assert _roots([far, row], [(0, size), (BEGINS[4], ENDS[4])])[1] == [SliceFault.OUTSIDE, 0]
    nothing: Rows = np.zeros(1, dtype=np.int64)
    null = pa.array([None], pa.binary())
    no_leaves = np.empty((0, 32), dtype=np.uint8)
    path = _binary([none.path])
    assert slice_roots(null, [IDS[0]], no_leaves, nothing, nothing, nothing, null, path)[1] == [SliceFault.NO_HEADER]
    with pytest.raises(InvalidInput, match="1 headers are given with columns of"):
        slice_roots(null, [IDS[0]], no_leaves, nothing + 1, nothing, nothing, null, path)


def test_paths_round_trip() -> None:
    below, above = [(0, b"a" * 32), (1, b"b" * 32)], [(1, b"c" * 32)]
    assert encode_path(below, above) == b"\2\1\0" + b"a" * 32 + b"\1" + b"b" * 32 + b"\1" + b"c" * 32
    assert decode_path(encode_path(below, above)) == (below, above)
    with pytest.raises(OverLimit, match="129 forks, at most 128"):
        encode_path(below, [(0, bytes(32))] * 127)


def test_witness_of_another_shape_is_rejected_by_name(sender: Sender) -> None:
    serve = sender.certified.encode_certified_stream_slice
    stream, begin = 4, BEGINS[4]
    honest = serve(IDS[stream], msg_begin=begin + 3, msg_limit=4)
    with pytest.raises(WitnessPruningFailed, match="not the least one of messages"):
        from_certified_slice(serve(IDS[stream], witness_begin=begin + 2, msg_begin=begin + 3, msg_limit=4))
    with pytest.raises(WitnessPruningFailed, match="the slice has none"):
        from_certified_slice(replace(honest, payload=serve(IDS[stream], msg_limit=0).payload))
    with pytest.raises(WitnessPruningFailed, match="more or less"):
        from_certified_slice(replace(serve(IDS[stream], msg_limit=0), payload=honest.payload))
    with pytest.raises(MissingStream, match="not to"):
        from_certified_slice(replace(honest, payload=serve(IDS[3], msg_limit=0).payload))
    run = _message_witness(honest.witness)
    assert isinstance(run, WitnessFork) and isinstance(run.right, WitnessPruned)
    known = WitnessNode((begin + 3).to_bytes(8, "big"), KNOWN)
    split, renamed = WitnessFork(run.left, WitnessFork(run.right, run.right)), replace(known, label=bytes(8))
    for other, text in (
        (split, "not the least"),
        (_replace_node(run, known, renamed), "0000000000000000 where message 3"),
    ):
        with pytest.raises(WitnessPruningFailed, match=text):
            from_certified_slice(replace(honest, witness=_replace_node(honest.witness, run, other)))
    for witness, error in (
        (WitnessPruned(bytes(32)), WitnessPruningFailed),
        (WitnessFork(WitnessPruned(bytes(32)), WitnessPruned(bytes(32))), WitnessPruningFailed),
        (WitnessFork(WitnessNode(b"a", KNOWN), WitnessNode(b"b", KNOWN)), WitnessPruningFailed),
        (KNOWN, WitnessPruningFailed),
        (WitnessNode(b"time", KNOWN), MissingStreams),
        (WitnessNode(b"streams", WitnessNode(IDS[stream], KNOWN)), MissingHeader),
        (WitnessNode(b"streams", WitnessNode(IDS[stream], WitnessNode(b"messages", KNOWN))), MissingHeader),
    ):
        with pytest.raises(error):
            from_certified_slice(replace(honest, witness=witness))


def _message_witness(witness: Witness) -> Witness:
    """Return the message part of a slice's witness."""
    match witness:
        case WitnessNode(b"messages", run):
            return run
        case WitnessNode(_, below):
            return _message_witness(below)
        case WitnessFork(left, right):
            return (
                _message_witness(right)
                if isinstance(left, WitnessPruned) or left == WitnessNode(b"header", KNOWN)
                else _message_witness(left)
            )
    raise AssertionError(witness)


def _replace_node(witness: Witness, one: Witness, other: Witness) -> Witness:
    """Return a witness with ``one`` replaced by ``other`` everywhere."""
    if witness == one:
        return other
    match witness:
        case WitnessFork(left, right):
            return WitnessFork(_replace_node(left, one, other), _replace_node(right, one, other))
        case WitnessNode(label, below):
            return WitnessNode(label, _replace_node(below, one, other))
    return witness


@settings(deadline=None, max_examples=sized(68, 750))
@given(choices=st.lists(st.integers(0, 3), min_size=1, max_size=40), where=st.integers(0, 200))
def test_accepted_witness_has_equal_roots_in_both_forms(sender: Sender, choices: list[int], where: int) -> None:
    honest = sender.certified.encode_certified_stream_slice(IDS[4], msg_begin=BEGINS[4] + 3, msg_limit=4)
    altered = replace(honest, witness=_alter_node(honest.witness, choices, [where]))
    try:
        row = from_certified_slice(altered)
    except ProofError:
        return
    _assert_equal_roots(altered, row)


def _assert_equal_roots(certified: CertifiedStreamSlice, row: SliceRow) -> None:
    assert to_certified_slice(row, certified.certification) == certified
    assert _roots([row]) == ([certified.root_digest()], [0])


def _alter_node(witness: Witness, choices: list[int], left: list[int]) -> Witness:
    """Return a witness with another node at the position that ``left`` counts down to."""
    left[0] -= 1
    if left[0] == 0:
        choice = choices[0]
        return (
            WitnessFork(witness, WitnessPruned(bytes(32))),
            WitnessPruned(bytes(32)),
            KNOWN,
            WitnessNode(b"x", witness),
        )[choice]
    match witness:
        case WitnessFork(one, other):
            return WitnessFork(_alter_node(one, choices, left), _alter_node(other, choices, left))
        case WitnessNode(label, below):
            return WitnessNode(label, _alter_node(below, choices, left))
    return witness
