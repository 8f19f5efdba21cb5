"""What happened to every message of a network in memory: its events, what it says, and what was made for it."""

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
"""The number of both ends of what a protocol sends for itself, such as that a channel opens: no message of programs."""


class IngressPosition(NamedTuple):
    """Where a message from a user came in: the tick, the number of the chain, and its position there, from 1."""

    tick: int
    chain: int
    position: int


@dataclass(frozen=True)
class MessageEvents:
    """What happened to a message at a height. ``chain``: a position; ``events``: a set of ``Event``."""

    height: int
    tick: int
    chain: int
    events: Event
    code: int
    reason: str


class DiscardedHandlings(NamedTuple):
    """Handlings of a message of which nothing counts, because its handler raised and its chain refused it: how often,
    at which tick first and last, and how it ``raised`` then."""

    times: int
    first: int
    last: int
    raised: str


@dataclass
class LoggedMessage:
    """One message. ``content``: None as long as nobody has made or read it; ``cause``: the message for which it was
    made; ``handled``: what came of it once its program has handled it, and ``at`` which tick; ``tried``: how that went
    wrong before."""

    key: TracedKey
    content: TracedContent | None = None
    cause: TracedKey | None = None
    happened: list[MessageEvents] = field(default_factory=list)
    handled: HandledMessage | None = None
    at: int | None = None
    tried: DiscardedHandlings | None = None

    @property
    def is_lost(self) -> bool:
        """Return whether it was dropped, and never handled."""
        return self.handled is None and any(Event.DROPPED in each.events for each in self.happened)


@dataclass(frozen=True)
class RefusedMessage:
    """A message from a user that came into no queue, and why."""

    code: int
    reason: str


class MessageLog:
    """The messages of a network, height by height."""

    def __init__(self, positions: Mapping[int, int]) -> None:
        """``positions``: of chains, by their numbers."""
        self._positions = positions
        self.messages: dict[TracedKey, LoggedMessage] = {}
        self._owned: set[TracedKey] = set()
        self.issued: dict[int, int] = {}
        self._costs: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.users: dict[IngressPosition, TracedKey | RefusedMessage] = {}
        self.refused: list[LoggedMessage] = []
        self.undone: list[tuple[int, int, int]] = []
        self._waiting: dict[_Said, list[IngressPosition]] = {}
        self._taken: list[tuple[IngressPosition, _Said, int, int]] = []

    def take(self, made: CommittedHeight, ingress: pa.Table, handled: Mapping[TracedKey, HandledMessage]) -> None:
        """Take a height: what was made, what users sent in its tick, and what programs handled."""
        events = made.logs["events"]
        rows = list(_events(events, made))
        self._outbound(made)
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
            self._wait_again(chain, first, last)
        for chain, why, giver, taker, amount in _movements(made):
            if why in COSTS:
                paid = self._costs.setdefault((chain, made.tick.height), [])
                paid += [(giver[1], amount)] if giver[0] == ValueHolder.ACCOUNT else []
                paid += [(taker[1], -amount)] if taker[0] == ValueHolder.ACCOUNT else []
        self._users(made.tick.tick, ingress, rows)
        for key, happened, _ in rows:
            if key.kind == Kind.INGRESS and key in handled and Event.EXECUTED in happened.events:
                self._user(key, handled[key].content, happened)

    def copy(self) -> MessageLog:
        """Return a log of the same heights that takes others by itself. Messages are shared until something happens to
        them."""
        other = MessageLog(self._positions)
        other.messages, other.users = dict(self.messages), dict(self.users)
        other.issued, other.refused, other.undone = dict(self.issued), list(self.refused), list(self.undone)
        other._costs = {place: list(paid) for place, paid in self._costs.items()}
        other._waiting = {said: list(places) for said, places in self._waiting.items()}
        other._taken = list(self._taken)
        self._owned, other._owned = set[TracedKey](), set[TracedKey]()
        return other

    def begin(self, made: CommittedHeight) -> None:
        """Take what was made at genesis: what accounts of programs were issued, where the protocol says so."""
        for _, why, _, taker, amount in _movements(made):
            if why == ValueReason.ISSUED and taker[0] == ValueHolder.ACCOUNT:
                self.issued[taker[1]] = self.issued.get(taker[1], 0) + amount

    def program_costs(self, program: int) -> int:
        """Return what a program has paid for messages and holds as deposits, less what it got back."""
        return sum(
            amount
            for (chain, height), paid in self._costs.items()
            if not self._is_abandoned(chain, height)
            for payer, amount in paid
            if payer == program
        )

    def is_reverted(self, happened: MessageEvents) -> bool:
        """Return whether a fork took back what happened."""
        return self._is_abandoned(happened.chain, happened.height)

    def _is_abandoned(self, chain: int, height: int) -> bool:
        return any(chain == other and first <= height <= last for other, first, last in self.undone)

    def find_answer(self, key: TracedKey) -> LoggedMessage | None:
        """Return the answer to a request, None as long as there is none that its program has handled."""
        message = self.messages.get(answer_key(key))
        return message if message is not None and message.handled is not None else None

    def is_lost(self, key: TracedKey) -> bool:
        """Return whether a request, or its answer, was dropped."""
        both = (key, answer_key(key))
        return any(self.messages[each].is_lost for each in both if each in self.messages)

    def roots(self, hidden: Collection[TracedKey] = ()) -> list[TracedKey]:
        """Return the messages that were made for no other; in the place of those that are ``hidden`` those that were
        made for them."""
        found = [
            key
            for key, message in self.messages.items()
            if message.cause is None and key not in hidden and self.find_request(key) not in self.messages
        ]
        handled = [self.messages[key].handled for key in hidden if key in self.messages]
        return found + [key for one in handled if one is not None for key, _ in one.made]

    def tree(self, root: TracedKey) -> Iterator[tuple[int, LoggedMessage]]:
        """Yield a message and all that were made for it, and so on, each with its depth."""
        stack, seen = [(0, root)], set[TracedKey]()
        while stack:
            depth, key = stack.pop()
            message = self.messages.get(key)
            if message is None or key in seen:
                continue
            seen.add(key)
            yield depth, message
            made = [] if message.handled is None else [other for other, _ in message.handled.made]
            answer = answer_key(key)
            if answer in self.messages and self.messages[answer].cause is None:
                made.append(answer)  # the protocol's own
            stack += [(depth + 1, other) for other in reversed(made)]

    def is_protocol_answer(self, key: TracedKey) -> bool:
        """Return whether a message is an answer that no program made."""
        message = self.messages.get(key)
        return key.kind == Kind.RESPONSE and message is not None and message.cause is None

    def find_request(self, key: TracedKey) -> TracedKey | None:
        """Return the request that a response answers."""
        if key.kind != Kind.RESPONSE:
            return None
        return TracedKey(int(Kind.REQUEST), key.receiver, key.sender, key.callback)

    def _message(self, key: TracedKey) -> LoggedMessage:
        """Return a message to which something happens: one that no copy of the log has."""
        if key not in self._owned:
            known = self.messages.get(key)
            fresh = LoggedMessage(key) if known is None else replace(known, happened=list(known.happened))
            self.messages[key] = fresh
            self._owned.add(key)
        return self.messages[key]

    def _outbound(self, made: CommittedHeight) -> None:
        """Take the messages that came into lanes."""
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

    def _users(self, tick: int, ingress: pa.Table, rows: Sequence[_Row]) -> None:
        """Take what users sent: refused messages are named by their position among what came to the chain, the others
        wait to be executed."""
        refused = {
            (happened.chain, position): (happened, key) for key, happened, position in rows if position is not None
        }
        place: dict[int, int] = {}
        columns = (ingress[name].to_pylist() for name in ("chain", "receiver", "sender", "method", "payload"))
        for chain, *said in zip(*columns, strict=True):
            place[chain] = place.get(chain, 0) + 1
            where = IngressPosition(tick, chain, place[chain])
            found = refused.get((self._positions[chain], place[chain]))
            if found is not None:
                happened, key = found
                self.users[where] = RefusedMessage(happened.code, happened.reason)
                self.refused.append(LoggedMessage(key, TracedContent(said[2], said[3], 0, 0), happened=[happened]))
            else:
                self._waiting.setdefault(tuple(said), []).append(where)

    def _user(self, key: TracedKey, content: TracedContent, happened: MessageEvents) -> None:
        """Find out which message from a user was executed: of those that say the same, the first that waits."""
        said = key.receiver, key.sender, content.method, content.payload
        waiting = self._waiting.get(said)
        if waiting:
            place = waiting.pop(0)
            self.users[place] = key
            self._taken.append((place, said, happened.chain, happened.height))

    def _wait_again(self, chain: int, first: int, last: int) -> None:
        """Let messages from users that were executed in blocks that a fork took back wait again, in their order."""
        for taken in [taken for taken in self._taken if taken[2] == chain and first <= taken[3] <= last]:
            place, said, _, _ = taken
            self._taken.remove(taken)
            del self.users[place]
            insort(self._waiting[said], place)


def answer_key(key: TracedKey) -> TracedKey:
    """Return what names the answer to a request; to what is none, nothing."""
    kind = Kind.RESPONSE if key.kind == Kind.REQUEST else Kind.CONTROL
    return TracedKey(int(kind), key.receiver, key.sender, key.callback)


_Said = tuple[Any, ...]
"""What a message from a user says: receiver, sender, method, payload."""

_Row = tuple[TracedKey, MessageEvents, int | None]


def _events(rows: Frame, made: CommittedHeight) -> Iterator[_Row]:
    """Yield the event rows of a height: whose message, what happened, and of a user's message that came into no queue
    its position among what came to the chain."""
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


_Purse = tuple[int, int]


def _movements(made: CommittedHeight) -> Iterator[tuple[int, int, _Purse, _Purse, int]]:
    """Yield the movements of value of a height, where its protocol logs them: chain, why, from whom, to whom, how
    much."""
    ends = ("from_holder", "from_number", "to_holder", "to_number")
    names = ("chain", "why", *ends, "amount_high", "amount_low", "asset")
    for chain, why, *purses, high, low, asset in zip(*_columns(made.logs.get("value"), *names), strict=True):
        if asset == Asset.UNITS:
            yield chain, why, (purses[0], purses[1]), (purses[2], purses[3]), high * WORD + low


def _columns(rows: Frame | None, *names: str) -> list[list[Any]]:
    if rows is None or not len(rows):
        return [[] for _ in names]
    return [np.asarray(rows[name]).tolist() for name in names]
