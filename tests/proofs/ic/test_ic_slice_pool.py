"""The slice pool: retained, returned, requested and refused slices (IC reference X-15)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from causeway_proofs.ic.bls import SecretKey
from causeway_proofs.ic.errors import (
    DifferentSubnet,
    IndexMismatch,
    InvalidDestination,
    InvalidSignature,
    RootHashMismatch,
    SignalsEndRegresses,
    TakeBeforeSliceBegin,
)
from causeway_proofs.ic.slice import CertifiedStreamSlice, decode_certified_stream_slice, encode_certified_stream_slice

from causeway.protocols.ic.ids import subnet_id
from causeway.protocols.ic.streams.remote_slices import SliceReader
from causeway.protocols.ic.streams.slice_pool import SlicePool, SliceRequest, StreamPosition, prefix_sizes
from tests.support.ic.ic_streams import BEGIN, END, KEY, OTHER, OWN, REMOTE, certified

READER = SliceReader({REMOTE: KEY.public_key(), OTHER: SecretKey.derive(b"another").public_key()})


def pool(position: int = BEGIN, signal: int = 1, **sizes: Any) -> SlicePool:
    made = SlicePool(lambda remote, slice_: READER.verify(OWN, remote, slice_), **sizes)
    made.garbage_collect({REMOTE: StreamPosition(position, signal), OTHER: StreamPosition(1, 1)})
    return made


def cut(begin: int = BEGIN, count: int | None = None, witness: int | None = None, signals: int = 9, end: int = END):
    return certified(signals, end).encode_certified_stream_slice(
        OWN, msg_begin=begin, msg_limit=count, witness_begin=witness
    )


def run(found: tuple[CertifiedStreamSlice, int] | None) -> tuple[int, int]:
    assert found is not None
    slice_, size = found
    READER.verify(OWN, REMOTE, slice_)  # a part of a slice is a slice
    assert size == prefix_sizes(slice_)[-1]
    begin, end = slice_.payload.messages_begin, slice_.payload.messages_end
    return (-1, -1) if begin is None or end is None else (begin, end)


def test_pooled_slice_is_taken_in_verifiable_parts() -> None:
    one = pool()
    one.put(REMOTE, cut())
    assert run(one.take(REMOTE, msg_limit=3)) == (BEGIN, BEGIN + 3)
    assert run(one.take(REMOTE, StreamPosition(BEGIN + 3, 9), msg_limit=2)) == (BEGIN + 3, BEGIN + 5)
    rest = one.pooled(REMOTE)
    assert rest is not None
    limit = int(prefix_sizes(rest)[4])
    found = one.take(REMOTE, StreamPosition(BEGIN + 5, 9), byte_limit=limit)
    assert run(found) == (BEGIN + 5, BEGIN + 9) and found is not None and found[1] == limit
    assert run(one.take(REMOTE, StreamPosition(BEGIN + 9, 9))) == (BEGIN + 9, END)
    assert one.take(REMOTE) is None and len(one) == 0


def test_header_alone_is_taken_once_for_its_signals() -> None:
    one = pool(END, 4)
    one.put(REMOTE, cut(END))
    assert run(one.take(REMOTE)) == (-1, -1)
    one.garbage_collect({REMOTE: StreamPosition(END, 9)})
    one.put(REMOTE, cut(END))
    assert one.take(REMOTE) is None and one.pooled(REMOTE) is None
    one = pool(BEGIN, 9)
    one.put(REMOTE, cut())
    assert one.take(REMOTE, msg_limit=0) is None, "neither messages nor signals would be new"
    assert one.take(REMOTE, byte_limit=10) is None, "not even the header fits"
    assert run(one.take(REMOTE)) == (BEGIN, END), "and nothing was lost by that"


def test_continuation_is_appended_under_the_later_header() -> None:
    one = pool()
    one.append(REMOTE, cut(count=3))
    asked = one.ask(REMOTE)
    assert asked is not None and (asked.witness_begin, asked.msg_begin, asked.is_suffix) == (BEGIN, BEGIN + 3, True)
    one.append(REMOTE, cut(BEGIN + 3, 4, witness=BEGIN, signals=12))
    found = one.take(REMOTE)
    assert run(found) == (BEGIN, BEGIN + 7) and found is not None and found[0].payload.header.signals_end == 12


def test_suffix_is_trimmed_by_messages_taken_meanwhile() -> None:
    one = pool()
    one.put(REMOTE, cut(count=4))
    asked = one.ask(REMOTE)
    assert asked is not None
    assert run(one.take(REMOTE)) == (BEGIN, BEGIN + 4)
    one.append(REMOTE, cut(BEGIN + 4, 3, witness=BEGIN), asked.pooled)
    assert run(one.take(REMOTE)) == (BEGIN + 4, BEGIN + 7)


def test_discontinuous_suffix_is_refused_by_name_and_pooled_slices_remain() -> None:
    one = pool()
    one.put(REMOTE, cut(count=3))
    held = one.pooled(REMOTE)
    with pytest.raises(IndexMismatch):
        one.append(REMOTE, cut(BEGIN + 4, 2, witness=BEGIN))
    with pytest.raises(IndexMismatch):
        one.append(REMOTE, cut(BEGIN + 3, 2))
    with pytest.raises(SignalsEndRegresses):
        one.append(REMOTE, cut(BEGIN + 3, 2, witness=BEGIN, signals=8))
    other = certified(9, END).encode_certified_stream_slice(OTHER, msg_begin=BEGIN + 3, witness_begin=BEGIN)
    with pytest.raises(DifferentSubnet):
        one.append(REMOTE, other)
    forged = cut(BEGIN + 3, 2, witness=BEGIN)
    forged = replace(forged, payload=replace(forged.payload, messages=forged.payload.messages[::-1]))
    with pytest.raises(RootHashMismatch):
        one.append(REMOTE, forged)
    with pytest.raises(InvalidDestination):
        one.put(REMOTE, certified(9, END).encode_certified_stream_slice(OTHER))
    with pytest.raises(InvalidSignature):
        one.put(OTHER, cut())
    assert one.pooled(REMOTE) is held and one.pooled(OTHER) is None


def test_slice_that_begins_too_late_is_not_retained() -> None:
    one = pool(BEGIN + 2)
    with pytest.raises(TakeBeforeSliceBegin):
        one.put(REMOTE, cut(BEGIN + 3))
    assert one.pooled(REMOTE) is None
    one.put(REMOTE, cut())
    pooled = one.pooled(REMOTE)
    assert pooled is not None and pooled.payload.messages_begin == BEGIN + 2, "trimmed to what is expected"
    with pytest.raises(TakeBeforeSliceBegin):
        one.take(REMOTE, StreamPosition(BEGIN, 1))
    assert one.pooled(REMOTE) is None, "dropped: a better one is pulled"
    one.put(REMOTE, cut())
    one.garbage_collect({REMOTE: StreamPosition(BEGIN, 1)})
    assert one.pooled(REMOTE) is None
    one.put(REMOTE, cut())
    one.garbage_collect({})
    assert one.pooled(REMOTE) is None, "a subnet that is gone"


def test_pooled_and_requested_slices_are_bounded() -> None:
    whole = cut()
    size = int(prefix_sizes(whole)[-1])
    one = pool(slice_bytes=size - 1)
    one.put(REMOTE, whole)
    assert run(one.take(REMOTE)) == (BEGIN, END - 1)
    one = pool(slice_messages=4)
    assert one.ask(REMOTE) == SliceRequest(BEGIN, BEGIN, 4, ((4 << 20) - 350) * 98 // 100)
    one.put(REMOTE, whole)
    assert run(one.take(REMOTE)) == (BEGIN, BEGIN + 4)
    asked = one.ask(REMOTE)
    assert asked is not None and (asked.msg_begin, asked.is_suffix) == (BEGIN + 4, False), "what was taken is expected"
    one = pool(slice_messages=4)
    one.put(REMOTE, cut(count=3))
    asked = one.ask(REMOTE)
    assert asked is not None and asked.msg_limit == 1
    one.put(REMOTE, whole)
    assert one.ask(REMOTE) is None, "there is no room for a further message"
    one = pool(pool_bytes=size + 1000)
    one.put(REMOTE, whole)
    assert one.size == size and one.ask(REMOTE) is None
    tiny = pool(slice_bytes=1)
    tiny.put(REMOTE, whole)
    assert run(tiny.take(REMOTE)) == (BEGIN, BEGIN + 1), "a message that is too long is taken alone"


def test_replay_with_fewer_signals_than_seen_is_refused() -> None:
    one = pool(BEGIN + 2, 9)
    with pytest.raises(SignalsEndRegresses):
        one.put(REMOTE, cut(signals=8))
    assert one.pooled(REMOTE) is None, "a block would refuse it, and its subnet would not be asked for a while"
    one.put(REMOTE, cut())
    assert run(one.take(REMOTE)) == (BEGIN + 2, END)


def test_slices_that_no_block_takes_do_not_exclude_other_subnets() -> None:
    size, third = int(prefix_sizes(cut())[-1]), subnet_id(4)
    one = SlicePool(lambda remote, slice_: READER.verify(OWN, REMOTE, slice_), pool_bytes=2 * size)
    one.garbage_collect(
        {REMOTE: StreamPosition(BEGIN, 1), third: StreamPosition(BEGIN, 1), OTHER: StreamPosition(1, 1)}
    )
    for hostile in (REMOTE, third):
        one.put(hostile, cut())
        assert one.take(hostile, byte_limit=10) is None, "it stays, and no block can take it"
    assert one.ask(REMOTE) is None and one.ask(third) is None
    asked = one.ask(OTHER)
    assert asked is not None and asked.byte_limit == (2 * size // 3 - 350) * 98 // 100


def test_pooled_slices_are_unchanged_from_the_wire() -> None:
    one = pool()
    one.put(REMOTE, READER.decode(encode_certified_stream_slice(cut())))
    found = one.take(REMOTE, msg_limit=5)
    assert found is not None
    assert decode_certified_stream_slice(encode_certified_stream_slice(found[0])) == found[0]


def test_subnet_with_a_refused_slice_is_retried_with_growing_delay() -> None:
    now = 0.0
    one = SlicePool(lambda remote, slice_: READER.verify(OWN, remote, slice_), clock=lambda: now)
    expected = {REMOTE: StreamPosition(BEGIN, 1), OTHER: StreamPosition(1, 1)}
    one.garbage_collect(expected)
    waited = []
    for _ in range(12):
        one.put(REMOTE, cut())
        assert run(one.take(REMOTE, msg_limit=3)) == (BEGIN, BEGIN + 3)
        one.garbage_collect(expected)
        assert len(one) == 0, "what follows on it goes with it"
        assert one.ask(REMOTE) is None and one.ask(OTHER) is not None
        before = now
        while one.ask(REMOTE) is None:
            now += 0.01
        waited.append(now - before)
    assert waited[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8], abs=0.02) and waited[-1] < 60.1
    one.put(REMOTE, cut())
    assert one.take(REMOTE, msg_limit=3) is not None
    one.garbage_collect({**expected, REMOTE: StreamPosition(BEGIN + 3, 9)})
    assert one.ask(REMOTE) is not None and len(one) == 1, "it was not refused this time"
