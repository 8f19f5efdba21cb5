"""Message log of a network in memory: events, content and causes of every message.

The log is updated height by height. User messages have no identity until they are executed: the log matches them by
content, and undoes the match if a fork reverts the block.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame
from causeway.core.vocabulary import COSTS, REVERTED, Asset, Event, Kind, ValueHolder, ValueReason, Via
from causeway.programs.outputs import WORD
from causeway.testing.tracing import HandledMessage, TracedContent, TracedKey, iterate_messages
from causeway.tick.reading import CommittedHeight

IDENTITY = ("kind", "sender", "receiver", "callback")

PROTOCOL = 2**64 - 1
"""Sender and receiver of a protocol's own messages, such as a channel opening."""


class IngressPosition(NamedTuple):
    """Where a user message entered: tick, number of the chain, and position there, from 1."""

    tick: int
    chain: int
    position: int


@dataclass(frozen=True)
class MessageEvents:
    """Events of a message at a height. ``chain`` is a position."""

    height: int
    tick: int
    chain: int
    events: Event
    code: int
    reason: str


class DiscardedHandlings(NamedTuple):
    """Handlings without effect, since the handler raised and the chain refused the message.

    Attributes:
        times: Number of handlings.
        first: Tick of the first.
        last: Tick of the last.
        raised: Exception of the last.
    """

    times: int
    first: int
    last: int
    raised: str


@dataclass
class LoggedMessage:
    """A message with its history.

    Attributes:
        key: Its identity.
        content: Its content; None until it is created or read.
        cause: The message whose handling created it.
        happened: Its events.
        handled: The outcome of its handling, if any.
        at: Tick of the handling.
        tried: Earlier handlings without effect.
    """

    key: TracedKey
    content: TracedContent | None = None
    cause: TracedKey | None = None
    happened: list[MessageEvents] = field(default_factory=list)
    handled: HandledMessage | None = None
    at: int | None = None
    tried: DiscardedHandlings | None = None

    @property
    def is_lost(self) -> bool:
        """True if it was dropped and never handled."""
        return self.handled is None and any(Event.DROPPED in each.events for each in self.happened)


@dataclass(frozen=True)
class RefusedMessage:
    """A user message that entered no queue, with the reason."""

    code: int
    reason: str


class MessageLog:
    """The messages of a network."""

    def __init__(self, positions: Mapping[int, int]) -> None:
        """Create an empty log. ``positions``: chain positions by number."""
        self._positions = positions
        self.messages: dict[TracedKey, LoggedMessage] = {}
        self._owned: set[TracedKey] = set()
        self.issued: dict[int, int] = {}
        self._costs: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.users: dict[IngressPosition, TracedKey | RefusedMessage] = {}
        self.refused: list[LoggedMessage] = []
        self.undone: list[tuple[int, int, int]] = []
        self._unmatched: dict[_Content, list[IngressPosition]] = {}
        self._matched: list[tuple[IngressPosition, _Content, int, int]] = []

    def take(self, made: CommittedHeight, ingress: pa.Table, handled: Mapping[TracedKey, HandledMessage]) -> None:
        """Add a height.

        Args:
            made: Outputs of the height.
            ingress: User messages of its tick (``INGRESS_SCHEMA``).
            handled: Messages handled by programs.
        """
        events = made.logs["events"]
        rows = list(_events(events, made))
        self._add_outbound(made)
        for key, happened, refused in rows:
            if refused is None:
                self._message(key).happened.append(happened)
        seen = {key for key, _, _ in rows}
        for key, one in handled.items():
            message = self._message(key)
            if one.raised is not None and key not in seen:
                tick, before = made.tick.tick, message.tried
                times, first = (0, tick) if before is None else before[:2]
                message.tried = DiscardedHandlings(times + 1, first, tick, one.raised)
                continue
            message.content, message.handled, message.at = one.content, one, made.tick.tick
            for other, content in one.made:
                child = self._message(other)
                child.content, child.cause = content, key
        for chain, first, last in zip(*_columns(made.logs.get(REVERTED), "chain", "first", "last"), strict=True):
            self.undone.append((chain, first, last))
            self._undo_matches(chain, first, last)
        for chain, reason, payer, payee, amount in _movements(made):
            if reason in COSTS:
                paid = self._costs.setdefault((chain, made.tick.height), [])
                paid += [(payer[1], amount)] if payer[0] == ValueHolder.ACCOUNT else []
                paid += [(payee[1], -amount)] if payee[0] == ValueHolder.ACCOUNT else []
        self._add_users(made.tick.tick, ingress, rows)
        for key, happened, _ in rows:
            if key.kind == Kind.INGRESS and key in handled and Event.EXECUTED in happened.events:
                self._match_user(key, handled[key].content, happened)

    def copy(self) -> MessageLog:
        """Return an independent copy; messages are shared until they change."""
        other = MessageLog(self._positions)
        other.messages, other.users = dict(self.messages), dict(self.users)
        other.issued, other.refused, other.undone = dict(self.issued), list(self.refused), list(self.undone)
        other._costs = {place: list(paid) for place, paid in self._costs.items()}
        other._unmatched = {content: list(places) for content, places in self._unmatched.items()}
        other._matched = list(self._matched)
        self._owned, other._owned = set[TracedKey](), set[TracedKey]()
        return other

    def begin(self, made: CommittedHeight) -> None:
        """Add genesis: the balances issued to programs, where the protocol logs them."""
        for _, reason, _, payee, amount in _movements(made):
            if reason == ValueReason.ISSUED and payee[0] == ValueHolder.ACCOUNT:
                self.issued[payee[1]] = self.issued.get(payee[1], 0) + amount

    def program_costs(self, program: int) -> int:
        """Return the fees and deposits that a program has paid, less refunds."""
        return sum(
            amount
            for (chain, height), paid in self._costs.items()
            if not self._is_abandoned(chain, height)
            for payer, amount in paid
            if payer == program
        )

    def is_reverted(self, happened: MessageEvents) -> bool:
        """Return True if a fork reverted the event."""
        return self._is_abandoned(happened.chain, happened.height)

    def _is_abandoned(self, chain: int, height: int) -> bool:
        return any(chain == other and first <= height <= last for other, first, last in self.undone)

    def find_answer(self, key: TracedKey) -> LoggedMessage | None:
        """Return the handled answer to a request, or None."""
        message = self.messages.get(answer_key(key))
        return message if message is not None and message.handled is not None else None

    def is_lost(self, key: TracedKey) -> bool:
        """Return True if a request or its answer was dropped."""
        both = (key, answer_key(key))
        return any(self.messages[each].is_lost for each in both if each in self.messages)

    def roots(self, hidden: Collection[TracedKey] = ()) -> list[TracedKey]:
        """Return the messages without a cause; ``hidden`` ones are replaced by those they caused."""
        found = [
            key
            for key, message in self.messages.items()
            if message.cause is None and key not in hidden and self.find_request(key) not in self.messages
        ]
        handled = [self.messages[key].handled for key in hidden if key in self.messages]
        return found + [key for one in handled if one is not None for key, _ in one.made]

    def tree(self, root: TracedKey) -> Iterator[tuple[int, LoggedMessage]]:
        """Yield a message and all that it caused, depth first, each with its depth."""
        stack, seen = [(0, root)], set[TracedKey]()
        while stack:
            depth, key = stack.pop()
            message = self.messages.get(key)
            if message is None or key in seen:
                continue
            seen.add(key)
            yield depth, message
            children = [] if message.handled is None else [other for other, _ in message.handled.made]
            answer = answer_key(key)
            if answer in self.messages and self.messages[answer].cause is None:
                children.append(answer)  # an answer of the protocol
            stack += [(depth + 1, other) for other in reversed(children)]

    def is_protocol_answer(self, key: TracedKey) -> bool:
        """Return True for an answer of the protocol rather than of a program."""
        message = self.messages.get(key)
        return key.kind == Kind.RESPONSE and message is not None and message.cause is None

    def find_request(self, key: TracedKey) -> TracedKey | None:
        """Return the key of the request that a response answers, or None."""
        if key.kind != Kind.RESPONSE:
            return None
        return TracedKey(int(Kind.REQUEST), key.receiver, key.sender, key.callback)

    def _message(self, key: TracedKey) -> LoggedMessage:
        """Return a message to be changed, copied first if another log shares it."""
        if key not in self._owned:
            known = self.messages.get(key)
            fresh = LoggedMessage(key) if known is None else replace(known, happened=list(known.happened))
            self.messages[key] = fresh
            self._owned.add(key)
        return self.messages[key]

    def _add_outbound(self, made: CommittedHeight) -> None:
        """Add the messages that entered lanes."""
        rows = made.outbound
        if not len(rows):
            return
        source = rows["source"].tolist()
        for (key, content), chain in zip(iterate_messages(rows), source, strict=True):
            if key.sender == key.receiver == PROTOCOL:
                continue
            message = self._message(key)
            message.content = content if message.content is None else message.content
            tick = made.tick
            message.happened.append(MessageEvents(tick.height, tick.tick, chain, Event.COMMITTED, content.code, ""))

    def _add_users(self, tick: int, ingress: pa.Table, rows: Sequence[_Row]) -> None:
        """Add user messages: refused ones by position, others as unmatched."""
        refused = {
            (happened.chain, position): (happened, key) for key, happened, position in rows if position is not None
        }
        counts: dict[int, int] = {}
        columns = (ingress[name].to_pylist() for name in ("chain", "receiver", "sender", "method", "payload"))
        for chain, *content in zip(*columns, strict=True):
            counts[chain] = counts.get(chain, 0) + 1
            position = IngressPosition(tick, chain, counts[chain])
            found = refused.get((self._positions[chain], counts[chain]))
            if found is not None:
                happened, key = found
                self.users[position] = RefusedMessage(happened.code, happened.reason)
                self.refused.append(
                    LoggedMessage(key, TracedContent(content[2], content[3], 0, 0), happened=[happened])
                )
            else:
                self._unmatched.setdefault(tuple(content), []).append(position)

    def _match_user(self, key: TracedKey, content: TracedContent, happened: MessageEvents) -> None:
        """Match an executed user message to the first unmatched one with equal content."""
        key_content = key.receiver, key.sender, content.method, content.payload
        candidates = self._unmatched.get(key_content)
        if candidates:
            position = candidates.pop(0)
            self.users[position] = key
            self._matched.append((position, key_content, happened.chain, happened.height))

    def _undo_matches(self, chain: int, first: int, last: int) -> None:
        """Make user messages of reverted blocks unmatched again, in order."""
        for match in [match for match in self._matched if match[2] == chain and first <= match[3] <= last]:
            position, content, _, _ = match
            self._matched.remove(match)
            del self.users[position]
            insort(self._unmatched[content], position)


def answer_key(key: TracedKey) -> TracedKey:
    """Return the key of the answer to a request; for another message a key without a message."""
    kind = Kind.RESPONSE if key.kind == Kind.REQUEST else Kind.CONTROL
    return TracedKey(int(kind), key.receiver, key.sender, key.callback)


_Content = tuple[Any, ...]
"""Content of a user message: receiver, sender, method, payload."""

_Row = tuple[TracedKey, MessageEvents, int | None]


def _events(rows: Frame, made: CommittedHeight) -> Iterator[_Row]:
    """Yield the events of a height: key, events, and the position of a refused user message."""
    reasons = rows["reason"].to_pylist()
    columns = [rows[name].tolist() for name in (*IDENTITY, "chain", "events", "code", "index", "via")]
    tick = made.tick
    for kind, sender, receiver, callback, chain, events, code, index, via, reason in zip(
        *columns, reasons, strict=True
    ):
        if kind == Kind.CONTROL or sender == receiver == PROTOCOL:
            continue
        happened = MessageEvents(tick.height, tick.tick, chain, Event(events), code, reason)
        refused = kind == Kind.INGRESS and via == Via.INGRESS and Event.REJECTED in happened.events
        yield TracedKey(kind, sender, receiver, callback), happened, index if refused else None


_Holder = tuple[int, int]


def _movements(made: CommittedHeight) -> Iterator[tuple[int, int, _Holder, _Holder, int]]:
    """Yield the logged value movements of a height: chain, reason, payer, payee, amount."""
    ends = ("from_holder", "from_number", "to_holder", "to_number")
    names = ("chain", "why", *ends, "amount_high", "amount_low", "asset")
    for chain, reason, *holders, high, low, asset in zip(*_columns(made.logs.get("value"), *names), strict=True):
        if asset == Asset.UNITS:
            yield chain, reason, (holders[0], holders[1]), (holders[2], holders[3]), high * WORD + low


def _columns(rows: Frame | None, *names: str) -> list[list[Any]]:
    if rows is None or not len(rows):
        return [[] for _ in names]
    return [np.asarray(rows[name]).tolist() for name in names]
