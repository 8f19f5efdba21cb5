"""A parachain's side of HRMP (X-6): pages to other chains, what is received, queue states and their signals.

Decisions where X-6 is silent.
- The data of an HRMP message are a page: a byte 1, the index of its first message among all to this recipient
  (Compact), and messages as Vec<u8> each; or a byte 2 and a signal, 0 (suspend) or 1 (resume). All that is no signal
  counts as a page. A message goes into the last page to its recipient if it still fits, else it begins a new one.
- In a block a recipient gets the signal that is due to it, else the first page, if the channel has room and (for a
  page) it has not suspended its sender. Of more than ten recipients those with the oldest pages come first, a page
  being as old as the block that began it; signals count as older than all pages; of equals the lower ParaId.
- Queue states count pages that wait before a page is added: one that finds 2 suspends the channel, one that finds 5 is
  dropped; after execution a suspended channel with at most 1 is resumed. A new signal replaces one that was not sent.
- `overflow = wait`: a candidate consumes whole relay blocks, at least one (a watermark that stays is refused), then
  up to one in which a page would find 5 waiting, and its watermark is the last of them; nothing is dropped. `drop`: it
  consumes everything. With everything consumed the watermark is the relay parent.
- Pages are executed in the order in which they came, at most `pages_per_block` of them (0: all); with
  `overflow = wait` as many more as leave at most 5 of each sender: that one relay block may bring more.
- The head of a channel that is no more is forgotten, and a suspension that came over it: it may have held the signal
  that ends it. Before one opens anew its recipient makes a block, to accept it.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.spec.icmp.hrmp import FIRST_HEAD, Channel, Pair, ParaId, next_head
from tests.spec.icmp.trie import compact, scale_bytes

MESSAGES = b"\x01"
SUSPEND, RESUME = b"\x02\x00", b"\x02\x01"


@dataclass(frozen=True)
class Limits:
    max_message_size: int = 102_400
    max_messages: int = 10
    suspend: int = 2
    drop: int = 5
    resume: int = 1
    pages_per_block: int = 0
    overflow: Literal["wait", "drop"] = "wait"


@dataclass
class Parachain:
    para: ParaId
    watermark: int = 0
    pages: dict[ParaId, list[tuple[int, bytes]]] = field(default_factory=dict)
    """By recipient: the block that began the page, and the page."""
    sent: Counter[ParaId] = field(default_factory=Counter)
    suspended_by: set[ParaId] = field(default_factory=set)
    signals: dict[ParaId, bytes] = field(default_factory=dict)
    heads: dict[ParaId, bytes] = field(default_factory=dict)
    waiting: list[tuple[int, ParaId, bytes]] = field(default_factory=list)
    """Pages that came and were not executed: sent_at, sender, page."""
    suspended: set[ParaId] = field(default_factory=set)


class HeadMismatch(Exception):
    pass


def send(p: Parachain, number: int, to: ParaId, message: bytes, limits: Limits) -> None:
    pages = p.pages.setdefault(to, [])
    fragment = scale_bytes(message)
    if pages and len(pages[-1][1]) + len(fragment) <= limits.max_message_size:
        pages[-1] = (pages[-1][0], pages[-1][1] + fragment)
    else:
        pages.append((number, MESSAGES + compact(p.sent[to]) + fragment))
    p.sent[to] += 1


def take_outbound(
    p: Parachain, channels: Mapping[Pair, Channel], closing: Collection[Pair], limits: Limits
) -> list[tuple[ParaId, bytes]]:
    """The messages of a candidate; they leave the queues."""
    ready: list[tuple[int, ParaId, bytes]] = []
    for to in sorted({*p.pages, *p.signals}):
        pair = p.para, to
        if pair not in channels or pair in closing:
            continue
        if to in p.signals:
            age, data = -1, p.signals[to]
        elif p.pages.get(to) and (to not in p.suspended_by or (to, p.para) not in channels):
            age, data = p.pages[to][0]
        else:
            continue
        c = channels[pair]
        small = len(data) <= c.max_message_size and c.total_size + len(data) <= c.max_total_size
        if small and c.msg_count < c.max_capacity:
            ready.append((age, to, data))
    chosen = sorted(ready)[: limits.max_messages]
    for _, to, _ in chosen:
        if to in p.signals:
            del p.signals[to]
        else:
            p.pages[to].pop(0)
            if not p.pages[to]:
                del p.pages[to]
    return sorted((to, data) for _, to, data in chosen)


def check_heads(
    p: Parachain, merged: Sequence[tuple[int, ParaId, bytes]], channels: Mapping[Pair, Channel]
) -> dict[ParaId, bytes]:
    """The running heads over all that is new, held against the proven head of every channel to this chain."""
    mine = {x: channel for (x, y), channel in channels.items() if y == p.para}
    running = {x: p.heads.get(x, FIRST_HEAD) for x in mine}
    for sent_at, sender, data in merged:
        if sender not in running:
            raise HeadMismatch
        running[sender] = next_head(running[sender], sent_at, data)
    if running != {x: channel.mqc_head for x, channel in mine.items()}:
        raise HeadMismatch
    return running


@dataclass(frozen=True)
class Block:
    consumed: list[tuple[int, ParaId, bytes]]
    dropped: list[tuple[int, ParaId, bytes]]
    executed: list[tuple[int, ParaId, bytes]]


def receive(
    p: Parachain,
    relay_parent: int,
    contents: Mapping[Pair, Sequence[tuple[int, bytes]]],
    channels: Mapping[Pair, Channel],
    limits: Limits,
) -> Block:
    """What a candidate on a relay parent consumes, and executes."""
    merged = sorted(
        ((sent_at, x, data) for (x, y), messages in contents.items() if y == p.para for sent_at, data in messages),
        key=lambda row: row[:2],
    )
    check_heads(p, merged, channels)
    consumed = merged if limits.overflow == "drop" else prefix(p, merged, limits)
    mark = relay_parent if len(consumed) == len(merged) else consumed[-1][0] if consumed else p.watermark
    heads = {x: p.heads.get(x, FIRST_HEAD) for (x, y) in channels if y == p.para}
    p.suspended_by &= heads.keys()
    dropped = []
    for sent_at, sender, data in consumed:
        heads[sender] = next_head(heads[sender], sent_at, data)
        if data in (SUSPEND, RESUME):
            (p.suspended_by.add if data == SUSPEND else p.suspended_by.discard)(sender)
            continue
        count = sum(1 for row in p.waiting if row[1] == sender)
        if count >= limits.suspend and sender not in p.suspended:
            p.suspended.add(sender)
            p.signals[sender] = SUSPEND
        if count >= limits.drop and limits.overflow == "drop":
            dropped.append((sent_at, sender, data))
        else:
            p.waiting.append((sent_at, sender, data))
    p.heads, p.watermark = heads, mark
    number = limits.pages_per_block or len(p.waiting)
    if limits.overflow == "wait":
        number = max(number, too_many(p, limits))
    executed, p.waiting = p.waiting[:number], p.waiting[number:]
    for sender in sorted(p.suspended):
        if sum(1 for row in p.waiting if row[1] == sender) <= limits.resume:
            p.suspended.remove(sender)
            p.signals[sender] = RESUME
    return Block(consumed, dropped, executed)


def too_many(p: Parachain, limits: Limits) -> int:
    """How many of the first pages must be executed so that of no sender more wait than may: a block that takes one
    relay block may be given more than it would take."""
    later: dict[ParaId, int] = {}
    for number in range(len(p.waiting), 0, -1):
        sender = p.waiting[number - 1][1]
        if later.get(sender, 0) >= limits.drop:
            return number
        later[sender] = later.get(sender, 0) + 1
    return 0


def prefix(
    p: Parachain, merged: Sequence[tuple[int, ParaId, bytes]], limits: Limits
) -> list[tuple[int, ParaId, bytes]]:
    counts = {x: sum(1 for row in p.waiting if row[1] == x) for _, x, _ in merged}
    for sent_at, sender, data in merged:
        if data not in (SUSPEND, RESUME):
            if counts[sender] >= limits.drop and sent_at > merged[0][0]:
                return [row for row in merged if row[0] < sent_at]
            counts[sender] += 1
    return list(merged)
