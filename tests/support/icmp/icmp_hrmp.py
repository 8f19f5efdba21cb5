"""Random blocks of a relay chain with HRMP, for the oracle and the kernel: what they are given, and what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame, from_table
from causeway.protocols.hrmp.state import CALLS_SCHEMA, HRMP_TABLES, SENT_SCHEMA
from causeway.protocols.shared.state_tables import TableState
from tests.spec.icmp import hrmp as spec


def frame_of(schema: pa.Schema, rows: Sequence[Mapping[str, object]]) -> Frame:
    return from_table(pa.Table.from_pylist([*map(dict, rows)], schema=schema))


def state_of(s: spec.State) -> TableState:
    """The oracle's state as the kernel's tables."""
    requests = [
        {"chain": 0, "sender": x, "recipient": y, **vars(r), "confirmed": int(r.confirmed)}
        for (x, y), r in sorted(s.requests.items())
    ]
    channels = [
        {"chain": 0, "sender": x, "recipient": y, **vars(c), "closing": s.closing.get((x, y), 0)}
        for (x, y), c in sorted(s.channels.items())
    ]
    contents = [
        {"chain": 0, "sender": x, "recipient": y, "sent_at": n, "data": data}
        for (x, y), messages in s.contents.items()
        for n, data in messages
    ]
    contents.sort(key=lambda row: (row["recipient"], row["sent_at"], row["sender"]))
    sovereign = [{"chain": 0, "para": p, "free": s.free[p], "held": s.held[p]} for p in sorted(s.free)]
    paras = [
        {
            "chain": 0,
            "para": p,
            "number": 0,
            "head": bytes(32),
            "watermark": s.watermark[p],
            "active": int(p in s.active),
        }
        | {"leaving": s.leaving.get(p, 0)}
        for p in sorted(s.free)
    ]
    rows = {"paras": paras, "requests": requests, "channels": channels, "contents": contents, "sovereign": sovereign}
    # Who sent the messages of a block the oracle does not keep, and no rule asks for.
    pairs = [(p, n) for p in sorted(s.digests) for n in sorted(s.digests[p])]
    rows["digests"] = [{"chain": 0, "recipient": p, "number": n, "sender": 0} for p, n in pairs]
    frames = {name: frame_of(HRMP_TABLES[name].schema, found) for name, found in rows.items()}
    return TableState.from_frames(frames, HRMP_TABLES, {})


def tables_of(state: TableState) -> dict[str, list[dict[str, object]]]:
    """Rows of the kernel's tables that the oracle has, too; blocks with messages apart."""
    names = ("requests", "channels", "contents", "sovereign", "paras")
    found = {name: state[name].to_table(HRMP_TABLES[name].schema).to_pylist() for name in names}
    return found | {"paras": [{name: row[name] for name in ("para", "active", "leaving")} for row in found["paras"]]}


def digests_of(state: TableState) -> dict[int, set[int]]:
    rows = state["digests"]
    found: dict[int, set[int]] = {}
    for recipient, number in zip(rows["recipient"].tolist(), rows["number"].tolist(), strict=True):
        found.setdefault(recipient, set()).add(number)
    return found


def given(s: spec.State, receipts: list[spec.Receipt]) -> tuple[Frame, Frame, Frame]:
    """Receipts as the kernel has them: with the watermarks before, messages, and calls."""
    receipts = sorted(receipts, key=lambda r: r.para)
    u64 = np.uint64
    frame = Frame(
        {
            "source": np.array([r.para for r in receipts], dtype=np.uint32),
            "parent": np.zeros((len(receipts), 32), dtype=np.uint8),
            "watermark": np.array([r.watermark for r in receipts], dtype=u64),
            "relay_parent": np.array([r.relay_parent for r in receipts], dtype=u64),
            "last": np.array([s.watermark[r.para] for r in receipts], dtype=u64),
        },
        len(receipts),
    )
    sent = [
        {"source": r.para, "destination": 0, "place": at, "to": to, "data": data}
        for r in receipts
        for at, (to, data) in enumerate(r.messages)
    ]
    calls = [
        {"source": r.para, "destination": 0, "place": at, "data": call}
        for r in receipts
        for at, call in enumerate(r.calls)
    ]
    return frame, frame_of(SENT_SCHEMA, sent), frame_of(CALLS_SCHEMA, calls)


def random_receipts(random: Random, s: spec.State, config: spec.Config, number: int) -> list[spec.Receipt]:
    """Receipts of some chains: mostly as they should be, each rule broken now and then."""
    return [_receipt(random, s, config, number, p) for p in sorted(s.active) if random.random() < 0.5]


def _receipt(random: Random, s: spec.State, config: spec.Config, number: int, p: int) -> spec.Receipt:
    parent = max(number - random.choice((1, 1, 1, 2)), 0)
    seen = sorted(n for n in s.digests.get(p, ()) if n < parent)
    choices = [parent, parent, *seen, *seen]
    wrong = [parent + 1, s.watermark[p], max(s.watermark[p] - 1, 0), s.watermark[p] + 1]
    watermark = random.choice(choices if random.random() < 0.9 else wrong)
    others = [y for (x, y), _ in sorted(s.channels.items()) if x == p]
    to = [y for y in others if random.random() < 0.9][: config.max_messages]
    if random.random() < 0.25:
        to = random.choices([*s.free], k=random.choice((1, 2, 2, config.max_messages + 1)))
    sizes = (0, 1, 5, config.max_message_size, *([config.max_message_size + 1] if random.random() < 0.1 else []))
    messages = tuple((y, random.randbytes(random.choice(sizes))) for y in to)
    return spec.Receipt(p, parent, watermark, messages, tuple(_upward(random, _calls(random, s, config, p))))


def _calls(random: Random, s: spec.State, config: spec.Config, p: int) -> list[spec.Call]:
    calls: list[spec.Call] = [spec.Accept(x) for (x, y), r in sorted(s.requests.items()) if y == p and not r.confirmed]
    calls = [call for call in calls if random.random() < 0.6]
    if random.random() < 0.4:
        capacity = random.choice((config.max_capacity, 1, 2, 0, config.max_capacity + 1))
        size = random.choice((config.max_message_size, config.max_message_size, 3, 0, config.max_message_size + 1))
        calls.append(spec.Open(random.choice([*s.free, 99]), capacity, size))
    if random.random() < 0.25:
        mine = [pair for pair in [*s.closing, *s.closing, *s.channels, *s.requests] if p in pair]
        pair = random.choice([*mine, random.choice([*s.channels, *s.requests, (1, 2)])])
        few = spec.Cancel(*pair, open_requests=len(s.requests) - random.choice((0, 1)) if s.requests else 0)
        calls.append(random.choice((spec.Cancel(*pair), spec.Close(*pair), few)))
    if random.random() < 0.25:
        calls.append(spec.Accept(random.choice([*s.free, *(x for x, y in s.requests if y == p)])))
    return calls * 101 if random.random() < 0.02 else calls


def _upward(random: Random, calls: list[spec.Call]) -> list[bytes]:
    """Calls as bytes, among them now and then some that are none, or too many."""
    good = [spec.encode(call) for call in calls]
    if random.random() < 0.1:
        one = random.choice([*good, b"\x3c\x06"])
        bad = (b"", b"\x3c", one[:-1], one + b"\0", one + bytes(4), b"\x3b" + one[1:], b"\x3c\x03" + one[2:])
        good.insert(random.randrange(len(good) + 1), random.choice((*bad, bytes(20_001))))
    if random.random() < 0.03:
        good += [bytes(10_000), bytes(10_000 + random.choice((0, 1)))]
    return good
