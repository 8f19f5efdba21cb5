"""The parachain side of HRMP (X-6): the kernel's columns against the oracle, on networks of both."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from causeway.core.frame import Frame, from_table
from causeway.protocols.hrmp.inbound import InboundMessages, read_relay_chain, receive_messages
from causeway.protocols.hrmp.pages import ChannelSignal, add_to_pages, read_pages, take_outbound
from causeway.protocols.hrmp.state import HRMP_TABLES, SENT_SCHEMA, WAITING_SCHEMA
from causeway.protocols.relay_chain.options import HrmpOptions
from causeway.protocols.shared.state_tables import TableState
from tests.spec.icmp import hrmp as relay
from tests.spec.icmp import hrmp_queues as spec
from tests.support.icmp.icmp_hrmp import state_of

PARAS = (1, 2, 3, 4, 5)
SMALL = relay.Config(
    session_blocks=3, max_capacity=12, max_total_size=150, max_message_size=30, max_messages=2, sender_deposit=1
)
SIGNALS = {spec.SUSPEND: ChannelSignal.SUSPEND, spec.RESUME: ChannelSignal.RESUME}


def options_of(limits: spec.Limits) -> HrmpOptions:
    return HrmpOptions(
        channels="hrmp",
        max_message_size=limits.max_message_size,
        max_messages_per_candidate=limits.max_messages,
        suspend_threshold=limits.suspend,
        drop_threshold=limits.drop,
        resume_threshold=limits.resume,
        pages_per_block=limits.pages_per_block,
        overflow=limits.overflow,
    )


def empty_state() -> TableState:
    return TableState.from_frames({}, HRMP_TABLES, {})


def rows_of(frame: Frame, schema: pa.Schema, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in frame.to_table(schema).to_pylist()]


def state_from_oracle(chains: dict[int, spec.Parachain]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the oracle's chains as rows of the kernel's tables."""
    pages = [(p.para, y, n, page) for p in chains.values() for y, held in sorted(p.pages.items()) for n, page in held]
    ends = []
    for p in chains.values():
        for x in sorted({*p.heads, *p.suspended, *p.suspended_by, *p.signals}):
            head = p.heads.get(x, relay.FIRST_HEAD)
            flags = int(x in p.suspended), int(x in p.suspended_by), int(SIGNALS[p.signals[x]]) if x in p.signals else 0
            if head != relay.FIRST_HEAD or any(flags):
                ends.append((p.para, x, head, *flags))
    waiting = [(p.para, *row) for p in chains.values() for row in p.waiting]
    return {"pages": pages, "ends": ends, "waiting": waiting}


def kernel_state(state: TableState) -> dict[str, list[tuple[Any, ...]]]:
    names = {
        "pages": ("source", "destination", "number", "data"),
        "ends": ("chain", "foreign", "head", "suspended", "suspended_by", "signal"),
        "waiting": ("chain", "sent_at", "sender", "data"),
    }
    return {name: rows_of(state[name], HRMP_TABLES[name].schema, *columns) for name, columns in names.items()}


def tips_of(chains: dict[int, spec.Parachain], building: list[int]) -> Frame:
    marks = [chains[p].watermark for p in building]
    return Frame(
        {"chain": np.array(building, dtype=np.uint32), "watermark": np.array(marks, dtype=np.uint64)}, len(building)
    )


def kernel_block(
    state: TableState,
    s: relay.State,
    tips: Frame,
    sends: list[tuple[int, int, int, bytes]],
    parent: int,
    number: int,
    limits: spec.Limits,
) -> tuple[TableState, InboundMessages, Frame]:
    """Run blocks of the chains of ``tips``: they receive, pack their messages, and send."""
    seen_state, options = state_of(s), options_of(limits)
    found, wrong = read_relay_chain(state["ends"], seen_state["contents"], seen_state["channels"], tips)
    assert len(wrong) == 0
    got = receive_messages(state["ends"], state["waiting"], found, tips, parent, options)
    names = ("source", "destination", "index", "number")
    rows = [dict(zip(names, (x, y, at, number), strict=True)) for x, y, at, _ in sorted(sends)]
    schema = pa.schema(
        [("source", pa.uint32()), ("destination", pa.uint32()), ("index", pa.uint64()), ("number", pa.uint64())]
    )
    messages = pa.array([message for *_, message in sorted(sends, key=lambda row: row[:3])], pa.large_binary())
    frame = from_table(pa.Table.from_pylist(rows, schema=schema))
    pages = add_to_pages(state["pages"], frame, messages, limits.max_message_size)
    out = take_outbound(pages, got.ends, seen_state["channels"], tips["chain"], options)
    return state.with_tables(pages=out.pages, ends=out.ends, waiting=got.waiting), got, out.sent


@pytest.mark.parametrize("overflow", ["wait", "drop"])
def test_columns_equal_the_oracle_after_every_block(overflow: Any) -> None:
    """Sent messages arrive once and in order unless dropped; every event occurs."""
    seen_events: Counter[str] = Counter()
    for seed in (0, 1):
        random = Random(seed)
        limits = spec.Limits(
            max_message_size=30, max_messages=2, suspend=2, drop=3, pages_per_block=1, overflow=overflow
        )
        s = relay.genesis(PARAS, 100)
        for x in PARAS:
            for y in PARAS[:3]:
                if x != y:
                    s.channels[x, y] = relay.Channel(12, 150, 30, 1, 0)
                    s.held[x], s.free[x] = s.held[x] + 1, s.free[x] - 1
        chains = {p: spec.Parachain(p) for p in PARAS}
        state, sent, came = empty_state(), Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        receipts: dict[int, relay.Receipt] = {}
        for number in range(1, 110):
            said = relay.step(s, SMALL, number, list(receipts.values()))
            assert said.receipts == {}
            receipts = {}
            building = [p for p in PARAS if random.random() < (0.3 if p == 1 else 0.8)]
            tips = tips_of(chains, building)
            sends, due_sent, due = [], [], {}
            for p in building:
                chain = chains[p]
                block = spec.receive(chain, number, s.contents, s.channels, limits)
                due[p] = block
                for y in [y for (x, y) in s.channels if x == p and random.random() < 0.4]:
                    for _ in range(random.choice((1, 2))):
                        text = f"{p}>{y}:{sent[p, y]}".encode().ljust(random.choice((6, 9, 16)), b".")
                        sent[p, y] += 1
                        sends.append((p, y, chain.sent[y], text))
                        spec.send(chain, number, y, text, limits)
                messages = spec.take_outbound(chain, s.channels, s.closing, limits)
                due_sent += [(p, at, y, data) for at, (y, data) in enumerate(messages)]
                closes: tuple[relay.Call, ...] = tuple(
                    relay.Close(x, y) for (x, y) in s.channels if x == p and random.random() < 0.04
                )
                opens = tuple(relay.Open(y, 12, 30) for y in PARAS[:3] if y != p and (p, y) not in s.channels)
                accepts = tuple(relay.Accept(x) for x, y in s.requests if y == p)
                calls = (*closes, *opens, *accepts)
                receipts[p] = relay.Receipt(
                    p, number, chain.watermark, tuple(messages), tuple(map(relay.encode, calls))
                )
            sends.sort(key=lambda row: row[:3])
            state, got, out = kernel_block(state, s, tips, sends, number, number, limits)
            assert kernel_state(state) == state_from_oracle(chains), (seed, number)
            assert rows_of(out, SENT_SCHEMA, "source", "place", "to", "data") == due_sent
            assert got.watermark.tolist() == [chains[p].watermark for p in building]
            names = ("chain", "sent_at", "sender", "data")
            for frame, name in ((got.executed, "executed"), (got.dropped, "dropped")):
                rows = [(p, *row) for p in building for row in getattr(due[p], name)]
                assert rows_of(frame, WAITING_SCHEMA, *names) == rows, name
                seen_events[name] += len(rows)
            seen_events["prefix"] += sum(chains[p].watermark < number for p in building)
            seen_events.update(signal for p in building for signal in map(repr, chains[p].signals.values()))
            seen_events["silent"] += sum(len(chains[p].suspended_by) for p in building)
            for p in building:
                held = Counter(sender for _, sender, _ in chains[p].waiting)
                assert all(count <= limits.drop for count in held.values()), (seed, number, held)
                seen_events["more"] += len(due[p].executed) > limits.pages_per_block
            if overflow == "wait":
                _check_order(got.executed, came, s, seen_events)
    wanted = {"executed", "silent", repr(spec.SUSPEND), repr(spec.RESUME)}
    wanted |= {"dropped"} if overflow == "drop" else {"prefix", "skipped", "more"}
    assert all(seen_events[name] for name in wanted), seen_events
    assert overflow == "drop" or seen_events["dropped"] == 0


def _check_order(executed: Frame, came: Counter[tuple[int, int]], s: relay.State, events: Counter[str]) -> None:
    """Check that messages of a lane arrive in sending order; drops of closed channels are skipped."""
    opened = read_pages(executed)
    assert not opened.malformed.any()
    columns = opened.messages.to_pylist(), opened.page.tolist(), opened.indices.tolist()
    for message, row, index in zip(*columns, strict=True):
        lane, number = message.decode().rstrip(".").split(":")
        assert int(number) == index
        pair = int(executed["sender"][row]), int(executed["chain"][row])
        assert lane == f"{pair[0]}>{pair[1]}"
        assert int(number) >= came[pair]
        events["skipped"] += int(number) > came[pair]
        came[pair] = int(number) + 1


def _read_contents(s: relay.State, chain: spec.Parachain) -> tuple[int, int]:
    state = state_of(s)
    found, wrong = read_relay_chain(
        empty_state()["ends"], state["contents"], state["channels"], tips_of({chain.para: chain}, [chain.para])
    )
    return len(found.contents), len(wrong)


@pytest.mark.parametrize("wrong", ["head of a quiet channel", "missing", "changed", "turned", "no channel"])
def test_mismatched_heads_are_detected(wrong: str) -> None:
    s, chain = relay.genesis((1, 2, 3), 0), spec.Parachain(1)
    for x in (2, 3):
        s.channels[x, 1] = relay.Channel(9, 99, 99, 0, 0)
    for number, data in ((1, b"a"), (2, b"b")):
        relay.queue_message(s, number, (2, 1), data)
    assert _read_contents(s, chain) == (2, 0)
    spec.receive(spec.Parachain(1), 2, s.contents, s.channels, spec.Limits())
    if wrong == "head of a quiet channel":
        s.channels[3, 1] = relay.Channel(9, 99, 99, 0, 0, mqc_head=bytes(31) + b"1")
    elif wrong == "missing":
        s.contents[2, 1].pop()
    elif wrong == "changed":
        s.contents[2, 1][0] = (1, b"c")
    elif wrong == "turned":
        s.contents[2, 1] = [(1, b"b"), (2, b"a")]
    else:
        del s.channels[2, 1]
    assert _read_contents(s, chain) == (0, 1)
    with pytest.raises(spec.HeadMismatch):
        spec.receive(chain, 2, s.contents, s.channels, spec.Limits())


def test_malformed_pages_give_no_messages() -> None:
    good = b"\x01\x14\x08ab\x00"
    last = b"\x01\x13" + (2**64 - 1).to_bytes(8, "little") + b"\x00"
    rows = [good, b"", b"\x00", b"\x02\x00", good + b"\x08a", good + b"\x03", b"\x01\x00", b"\x01", last]
    schema = pa.schema([("data", pa.binary())])
    found, page, index, malformed = read_pages(from_table(pa.Table.from_pydict({"data": rows}, schema=schema)))
    assert (found.to_pylist(), page.tolist(), index.tolist()) == ([b"ab", b""], [0, 0], [5, 6])
    assert malformed.tolist() == [False, True, True, True, True, True, False, True, True]
