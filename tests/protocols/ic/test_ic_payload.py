"""Payloads ahead of execution (3.7 to 3.9) and their sizes (2.10): columns against the formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.ic.primitives import CURRENT
from causeway_proofs.order import stable_order
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causeway.core.frame import Frame, concat, empty_frame, from_table
from causeway.core.vocabulary import Kind
from causeway.protocols.contract import Tick
from causeway.protocols.ic.state import LANES_SCHEMA, REJECTS_SCHEMA, State, state_from_tables
from causeway.protocols.ic.streams.endpoint import (
    ContradictoryIndices,
    expected_indexes,
    filter_new,
    get_streams,
    slice_indexes,
)
from causeway.protocols.ic.streams.payload_builder import (
    MessageSizes,
    count_bytes,
    get_xnet_payload,
    header_lengths,
    message_lengths,
    payload_bytes,
    validate_xnet_payload,
)
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, MESSAGE_FIELDS, OUTBOUND_SCHEMA
from tests.spec import ic
from tests.spec.ic import encoding as oracle_encoding
from tests.spec.ic import sizes as oracle_sizes
from tests.spec.ic.messages import Reason
from tests.spec.ic.slices import StreamSlice, expected_signal
from tests.spec.ic.state import CanonicalState, Stream, expected_index
from tests.support.ic.ic_harness import KernelRun, OracleRun, Scenario
from tests.support.ic.ic_strategies import scenarios
from tests.support.ic.ic_views import plain_message
from tests.tiers import sized
from tests.vectors import load_vectors

CALM = settings(max_examples=sized(68, 750), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def u64(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.uint64)


# ---- sizes

NUMBERS = st.one_of(
    st.integers(0, 70_000), st.sampled_from([23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1])
)


def messages(draw: Any) -> ic.Request | ic.Response:
    callback, cycles, deadline = (
        draw(NUMBERS),
        draw(st.integers(0, 2**128 - 1) | NUMBERS),
        draw(st.integers(0, 2**32 - 1)),
    )
    payload = bytes(draw(st.sampled_from([0, 1, 23, 24, 255, 256, 70_000])))
    if draw(st.booleans()):
        method = draw(st.sampled_from(["", "m", "ü" * 12, "x" * 300]))
        return ic.Request(draw(NUMBERS), draw(NUMBERS), callback, cycles, method, payload, deadline)
    answer: dict[str, Any] = {"data": payload}
    if draw(st.booleans()):
        answer = {"reject": (draw(st.integers(1, 6)), draw(st.sampled_from(["", "no", "ü" * 200])))}
    return ic.Response(draw(NUMBERS), draw(NUMBERS), callback, cycles, deadline=deadline, **answer)


def columns(found: list[ic.Request | ic.Response]) -> Frame:
    names = ("kind", "sender", "receiver", "callback", "code", "deadline", "cycles", "method", "payload")
    rows = [dict(zip(names, plain_message(message), strict=True)) for message in found]
    for row in rows:
        row["amount_high"], row["amount_low"] = divmod(row.pop("cycles"), 2**64)
    schema = pa.schema(MESSAGE_FIELDS)
    return from_table(pa.Table.from_pylist(rows, schema=schema)) if rows else empty_frame(schema)


@CALM
@given(st.data())
def test_message_lengths_equal_their_encoding(data: st.DataObject) -> None:
    found = [messages(data.draw) for _ in range(data.draw(st.integers(0, 6)))]
    assert message_lengths(columns(found), CURRENT).tolist() == [len(oracle_encoding.encoded_message(m)) for m in found]


@CALM
@given(st.data())
def test_header_lengths_equal_their_encoding(data: st.DataObject) -> None:
    rows, listed, expected = [], [], []
    for chain in range(data.draw(st.integers(0, 4))):
        begin, end, signals_end = (data.draw(NUMBERS) for _ in range(3))
        indices = data.draw(st.sets(st.integers(0, min(signals_end, 400)), max_size=40))
        rejects = [(signals_end - 1 - i, data.draw(st.sampled_from(list(Reason)))) for i in indices if i < signals_end]
        rejects.sort()
        rows.append((9, chain, 0, begin, end, signals_end))
        listed += [(9, chain, 0, index, int(reason)) for index, reason in rejects]
        expected.append(len(oracle_encoding.encoded_header(begin, end, signals_end, tuple(rejects))))
    names = (*LANE, "begin", "end", "signals_end")
    slices = Frame({name: u64(*(row[place] for row in rows)) for place, name in enumerate(names)}, len(rows))
    given_rejects = Frame(
        {
            item.name: np.array([row[place] for row in listed], dtype=item.type.to_pandas_dtype())
            for place, item in enumerate(REJECTS_SCHEMA)
        },
        len(listed),
    )
    assert header_lengths(slices, given_rejects).tolist() == expected


@CALM
@given(
    st.lists(
        st.tuples(st.integers(0, 2**63), st.integers(0, 5000), st.integers(0, 300), st.integers(0, 5000)), max_size=30
    )
)
def test_witness_sizes_follow_the_formula(streams: list[tuple[int, int, int, int]]) -> None:
    begin = u64(*(row[0] for row in streams))
    first = u64(*(row[0] + row[1] for row in streams))
    counts = u64(*(row[2] for row in streams))
    end = u64(*(sum(row) for row in streams))
    slices = Frame({"begin": begin, "end": end, "message_begin": first}, len(streams))
    zero = np.zeros(len(streams), dtype=np.uint64)
    found = count_bytes(slices, zero, counts, zero).tolist()
    for size, (sb, skipped, n, after) in zip(found, streams, strict=True):
        payload = 49 if n == 0 else 71 + 16 * n
        witness = oracle_sizes.witness_bytes(sb, sb + skipped + n + after, sb + skipped, n)
        assert size == payload + witness + 88


def test_witness_at_the_end_of_the_word() -> None:
    top = 2**64 - 1
    for sb, se, mb, n in ((0, top, 5, 7), (1, top, top - 3, 3), (0, top, 0, 1), (0, 2**63, 2**63 - 1, 1)):
        slices = Frame({"begin": u64(sb), "end": u64(se), "message_begin": u64(mb)})
        (found,) = count_bytes(slices, u64(0), u64(n), u64(0)).tolist()
        assert found == 71 + 16 * n + 88 + oracle_sizes.witness_bytes(sb, se, mb, n)


def test_encodings_equal_the_vectors() -> None:
    vectors = {row["name"]: row for row in load_vectors("ic_encodings")["encodings"]}
    header = vectors["minimal_stream_header"]["value"]
    encoded = oracle_encoding.encoded_header(header["begin"], header["end"], header["signals_end"], ())
    assert encoded.hex() == vectors["minimal_stream_header"]["cbor"]
    cycles = 123456789012345678901234567890
    request = ic.Request(1, 2, 3, cycles, "test", b"\x06")
    assert oracle_encoding.encoded_message(request).hex() == vectors["request_with_u128_cycles"]["cbor"]
    response = ic.Response(5, 4, 3, 2, data=b"\x01", deadline=6)
    assert oracle_encoding.encoded_message(response).hex() == vectors["response"]["cbor"]
    by_reason = (
        "CanisterMigrating",
        "CanisterNotFound",
        "QueueFull",
        "OutOfMemory",
        "CanisterStopping",
        "CanisterStopped",
    )
    rejects = tuple((249 + place, Reason[name]) for place, name in enumerate((*by_reason, "Unknown")))
    # The vector has one more reason and flags; without them its map of reasons is this.
    fields = "05a7008107018106028102038103048105058104068101"
    assert oracle_encoding.encoded_header(23, 25, 256, rejects).hex() == "a4001701181902190100" + fields


# ---- expected indices

LANES = [(own, remote, substream) for own in (0, 1) for remote in (2, 3) for substream in (0, 5)]
"""What is expected on ``own`` of the stream from ``remote``."""


@CALM
@given(st.data())
def test_expected_indices_equal_the_reference(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from([0, 1]))
    drawn = {lane: (base + data.draw(st.integers(0, 5)), base + data.draw(st.integers(0, 3))) for lane in LANES}
    known = {lane: drawn[lane] for lane in data.draw(st.sets(st.sampled_from(LANES)))}
    past = []
    nexts = {lane: known[lane][0] if lane in known else base for lane in LANES}
    for _ in range(data.draw(st.integers(0, 3))):
        payload = []
        for lane in sorted(data.draw(st.sets(st.sampled_from(LANES)))):
            begin = max(base, nexts[lane] + data.draw(st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1])))
            end = begin + data.draw(st.integers(0, 3))
            nexts[lane] = end
            payload.append((*lane, begin, end, base + data.draw(st.integers(0, 9))))
        past.append(payload)
    state = _state(known, base)
    names = ("destination", "source", "substream", "message_begin", "message_end", "signals_end")
    frames = [
        Frame({name: u64(*(row[place] for row in payload)) for place, name in enumerate(names)}, len(payload))
        for payload in past
    ]
    wanted: dict[tuple[int, int, int], tuple[int, int]] = {}
    try:
        for own in (0, 1):
            wanted |= _expected_by_oracle(own, known, past, base)
    except ic.ContradictoryIndices:
        with pytest.raises(ContradictoryIndices):
            expected_indexes(state, frames, base)
        return
    asked = Frame({name: u64(*(lane[place] for lane in LANES)) for place, name in enumerate(names[:3])})
    index, signal = expected_indexes(state, frames, base).of(asked)
    assert dict(zip(LANES, zip(index.tolist(), signal.tolist(), strict=True), strict=True)) == wanted
    if frames:
        made = slice_indexes(concat(frames))
        assert len(made) == len({row[:3] for payload in past for row in payload if row[4] > row[3]})


def _state(known: dict[tuple[int, int, int], tuple[int, int]], base: int) -> State:
    rows = [
        {
            **dict(zip(LANE, lane, strict=True)),
            **{"begin": begin, "next_index": begin, "stream_bytes": 0, "signals_begin": base, "expected": expected},
        }
        for lane, (expected, begin) in sorted(known.items())
    ]
    return state_from_tables(
        {"lanes": from_table(pa.Table.from_pylist(rows, schema=LANES_SCHEMA))} if rows else {}, {}, base
    )


def _expected_by_oracle(own: int, known: Any, past: Any, base: int) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Return m0 and s0 of every lane to ``own`` by the oracle."""
    mine = {lane: value for lane, value in known.items() if lane[0] == own}
    streams: dict[int, Stream] = {}
    for (_, remote, substream), (_, begin) in mine.items():
        stream = streams.get(remote, Stream())
        streams[remote] = Stream(msgs={**stream.msgs, substream: ic.Queue(next_index=begin, elements={})})
    expected = {(remote, (substream, index)) for (_, remote, substream), (index, _) in mine.items() if index > base}
    state = CanonicalState(own=own, streams=streams, expected_xnet_indices=frozenset(expected))
    payloads = []
    for payload in past:
        slices: dict[int, StreamSlice] = {}
        for chain, remote, substream, begin, end, signals_end in payload:
            if chain != own:
                continue
            before = slices.get(remote, StreamSlice(remote, own, 0, frozenset(), frozenset(), frozenset()))
            brought = {(substream, i): ic.Request(0, 0, 0) for i in range(begin, end)}
            slices[remote] = StreamSlice(
                remote,
                own,
                0,
                before.begin | {(substream, begin)},
                before.end | {(substream, end)},
                before.signals_end | {(substream, signals_end)},
                messages={**before.messages, **brought},
            )
        payloads.append(slices)
    found = ic.expected_indexes(own, state, payloads)
    return {
        lane: (
            expected_index(found, lane[1], lane[2], base),
            expected_signal(state, lane[1], lane[2], payloads, base),
        )
        for lane in LANES
        if lane[0] == own
    }


# ---- payloads


@settings(max_examples=sized(18, 200), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scenarios(max_rounds=6), st.integers(0, 3000))
def test_payloads_equal_the_reference_and_pass_validation(scenario: Scenario, size_limit: int) -> None:
    """G12: the built payload is valid, with equal size, and within the limit."""
    size_limit += 1
    oracle, run = OracleRun(scenario), KernelRun(scenario, apart=False)
    for height in range(1, scenario.rounds + 1):
        _compare_payloads(oracle, run, Tick(height, height), size_limit)
        oracle.round(height)
        run.round(Tick(height, height))


def _compare_payloads(oracle: OracleRun, run: KernelRun, tick: Tick, size_limit: int) -> None:
    kernel, (state,) = run.kernel, run.states
    context = kernel.context(run.groups[0], tick)
    expected = expected_indexes(state, (), kernel.options.index_base)
    view = run.view(run.groups[0])
    slices = filter_new(expected, get_streams(expected, view, context), context)
    sizes, rejects = _message_sizes(run), view.tables["rejects"]

    def refused(payload: Frame, limit: int) -> Any:
        invalid = np.zeros(len(payload), dtype=bool)
        return validate_xnet_payload(state, payload, rejects, invalid, context, expected, limit, sizes)

    invalid = np.zeros(len(slices), dtype=bool)
    built, errors = get_xnet_payload(state, slices, rejects, invalid, context, expected, size_limit, sizes)
    assert (errors == 0).sum() == len(built)
    payload = payload_bytes(built, rejects, sizes)
    found: dict[int, dict[int, set[tuple[int, int, int]]]] = {number: {} for number in run.numbers}
    total = dict.fromkeys(run.numbers, 0)
    for row in range(len(built)):
        own, remote = run.numbers[built["destination"][row]], run.numbers[built["source"][row]]
        begin, end = int(built["message_begin"][row]), int(built["message_end"][row])
        brought = {(int(built["substream"][row]), i, 0) for i in range(begin, end)}
        found[own].setdefault(remote, set()).update(brought)
        total[own] += int(payload[row])
    assert all(size <= size_limit for size in total.values())
    assert not refused(built, size_limit).any()
    for own, theirs in oracle.states.items():

        def endpoint(sn: int) -> Any:
            return lambda asker, expected: ic.slice_for(oracle.states[sn], asker, expected, oracle.options)

        wanted = ic.get_xnet_payload(
            own, oracle.registry, theirs, (), size_limit, endpoint, oracle.options, oracle_sizes.count_bytes
        )
        assert sum(map(oracle_sizes.count_bytes, wanted.values())) == total[own]
        flat = {sn: {(0 if name == () else name, i, 0) for name, i in css.messages} for sn, css in wanted.items()}
        assert flat == found[own]
        if total[own] and size_limit > 1:
            chain = run.numbers.index(own)
            one = built.filter(built["destination"] == chain)
            assert (refused(one, total[own] - 1) == 13).all(), "hazard 13: one byte more is PayloadTooLarge"
            assert not refused(one, total[own]).any()


def _message_sizes(run: KernelRun) -> MessageSizes:
    """Return the lengths of all messages in streams, in the order of lanes."""
    sent = concat([empty_frame(OUTBOUND_SCHEMA), *run.outbound])
    taken = sent.take(stable_order(*(sent[name] for name in LANE_COLUMNS)))
    return MessageSizes(taken, message_lengths(taken, CURRENT))


def test_kinds_have_the_numbers_that_lengths_rely_on() -> None:
    assert (int(Kind.REQUEST), int(Kind.RESPONSE)) == (1, 2)
