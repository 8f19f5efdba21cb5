"""Messages as text: one line a message and height, in the order in which it happened."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from causeway.model.ledger import Event, Kind
from causeway.model.reject_codes import PortableCode, RejectCode
from causeway.model.text import name_of, start_of
from causeway.testing.log import Happened, Log, Message, Refused
from causeway.testing.tracing import Content, Key

SHOWN_BYTES = 48
"""Bytes of a payload that a line shows."""

WIDEST = 100
"""Characters of a message up to which what happened stands in one column."""

DEEPEST = 10
"""So far calls inside calls are indented; of deeper ones a number says how deep they are."""

SHOWN_LINES = 400
"""Lines of a timeline; of longer ones the last."""

MOVED = 3
"""Messages that are named of those that move on and on."""


@dataclass(frozen=True)
class Names:
    """What numbers are called. ``programs``: by number; ``chains``: by position; ``meaning``: of reject codes."""

    programs: Mapping[int, str]
    chains: Sequence[str]
    meaning: PortableCode

    def sender(self, key: Key) -> str:
        """Return who sent a message."""
        return f"user {key.sender}" if key.kind == Kind.INGRESS else self.program(key.sender)

    def program(self, number: int) -> str:
        """Return the name of a program, its number where it has none."""
        return name_of(self.programs.get(number, f"program {number}"))

    def timeline(
        self, messages: Iterable[tuple[int, Message]], log: Log, changes: Iterable[tuple[int, str]] = ()
    ) -> str:
        """Return what happened to messages, as ``timeline`` says it."""
        return timeline(messages, log, self, changes)

    def refusal(self, refused: Happened | Refused) -> RejectCode:
        """Return what it means that a message from a user came into no queue."""
        return self.meaning(refused.code, refused.reason.encode())

    def message_of_user(self, user: int, receiver: int, method: str, payload: bytes) -> str:
        """Return a message from a user in a few words."""
        return self.message(Key(int(Kind.INGRESS), user, receiver, 0), Content(method, payload, 0, 0))

    def call(self, caller: int, receiver: int, method: str, payload: bytes, amount: int) -> str:
        """Return a call in a few words."""
        return self.message(Key(int(Kind.REQUEST), caller, receiver, 0), Content(method, payload, amount, 0))

    def message(self, key: Key, content: Content | None) -> str:
        """Return a message in a few words."""
        if key.kind == Kind.RESPONSE:
            text = f"{self.program(key.receiver)} <- {self.program(key.sender)}"
            return text if content is None else f"{text} {self._answer(content)}"
        text = f"{self.sender(key)} -> {self.program(key.receiver)}"
        if content is None:
            return text
        said = [shown_payload(content.payload)] if content.payload else []
        said += [f"amount {content.amount}"] if content.amount else []
        return f"{text} {name_of(content.method)}({', '.join(said)})"

    def cause_in(self, messages: Iterable[Message]) -> str:
        """Return which handler raised first on some messages, what, and where; empty where none did."""
        found = [
            (message.at or 0, message.key.receiver, message.handled.raised)
            for message in messages
            if message.handled is not None and message.handled.raised is not None
        ]
        found += [
            (message.tried.first, message.key.receiver, message.tried.raised)
            for message in messages
            if message.tried is not None and message.handled is None
        ]
        if not found:
            return ""
        _, program, raised = min(found, key=lambda each: each[0])
        error, _, place = raised.rpartition(" (")
        return f"{self.program(program)} raised {start_of(error)} ({place}"

    def last_of(self, messages: Iterable[Message]) -> str:
        """Return what happened last to the last of some messages that anything happened to; empty for none."""
        of = list(messages)
        found = [(each, message) for message in of for each in message.happened[-1:]]
        if of and (tried := of[-1].tried) is not None and of[-1].handled is None:
            return f"last at tick {tried.last}: refused, raised {start_of(tried.raised)}"
        if not found:
            return ""
        happened, message = found[-1]
        return f"last at tick {happened.tick} on {self.chains[happened.chain]}: {_said(happened, message, self)}"

    def moved_last(self, log: Log) -> str:
        """Return the messages to which something happened at the last height, in a few words."""
        last = max((each.height for message in log.messages.values() for each in message.happened[-1:]), default=0)
        moved = [
            self.message(message.key, message.content)
            for message in log.messages.values()
            if message.happened and message.happened[-1].height == last
        ]
        more = f" and {len(moved) - MOVED} more" if len(moved) > MOVED else ""
        return f"what moved last: {'; '.join(moved[:MOVED])}{more}" if moved else "no message moves"

    def _answer(self, content: Content) -> str:
        back = f", {content.amount} back" if content.amount else ""
        if content.code == 0:
            return f"{shown_payload(content.payload)}{back}"
        text = start_of(content.payload.decode(errors="backslashreplace"))
        return f"{self.meaning(content.code, content.payload).name} (code {content.code}): {text}{back}"


def shown_payload(payload: bytes) -> str:
    """Return a payload as a short literal."""
    if len(payload) <= SHOWN_BYTES:
        return repr(payload)
    return f"{payload[:SHOWN_BYTES]!r}... {len(payload)} bytes"


def is_numbered(name: str) -> bool:
    """Return whether a name is what who has none is called by: a user, or a program of a number alone."""
    return re.fullmatch(r"(user|program) \d+", name) is not None


def timeline(
    messages: Iterable[tuple[int, Message]], log: Log, names: Names, changes: Iterable[tuple[int, str]] = ()
) -> str:
    """Return what happened to messages as lines: tick, chain, message, events. ``messages``: each with how far it is
    indented; ``log``: that they are of; ``changes``: what changed at which tick."""
    rows: list[tuple[tuple[int, int, int], tuple[str, str, str, str]]] = []
    for place, (depth, message) in enumerate(messages):
        what = _indented(depth) + names.message(message.key, message.content)
        for step, happened in enumerate(_joined(message.happened)):
            said = _said(happened, message, names)
            if log.is_undone(happened):
                said += " (taken back by a fork)"
            row = (str(happened.tick), names.chains[happened.chain], what, said)
            rows.append(((happened.tick, place, step), row))
        if message.tried is not None:
            rows.append(((message.tried.first, place, len(message.happened)), _tried(message, log, names, what)))
        if not message.happened:
            rows.append(((2**62, place, 0), ("", "", what, "made, and not sent yet")))
    rows += [((tick, -1, place), (str(tick), "", start_of(what), "")) for place, (tick, what) in enumerate(changes)]
    lines = [row for _, row in sorted(rows)]
    left_out = len(lines) - SHOWN_LINES
    lines = lines[-SHOWN_LINES:]
    widths = [min(max((len(line[column]) for line in lines), default=0), WIDEST) for column in range(3)]
    text = [
        f"tick {tick:>{widths[0]}}  {chain:<{widths[1]}}  {what:<{widths[2]}}  {said}".rstrip()
        for tick, chain, what, said in lines
    ]
    return "\n".join(([f"... {left_out} lines before"] if left_out > 0 else []) + text) or "no messages"


def _indented(depth: int) -> str:
    return "  " * depth if depth <= DEEPEST else f"{'  ' * DEEPEST}[{depth}] "


def _tried(message: Message, log: Log, names: Names, what: str) -> tuple[str, str, str, str]:
    """Return the line of handlings that were refused. A chain refuses answers alone, so it is that of the request."""
    assert message.tried is not None, "asked of a message that was tried"
    times, first, last, raised = message.tried
    asked = log.asked_by(message.key)
    sent = [] if asked is None or asked not in log.messages else log.messages[asked].happened
    chain = names.chains[sent[0].chain] if sent else ""
    again = f", {times} times up to tick {last}" if times > 1 else ""
    return str(first), chain, what, f"refused{again}: raised {start_of(raised)}"


def _joined(happened: Sequence[Happened]) -> list[Happened]:
    """Return what happened at one height on one chain as one."""
    found: dict[tuple[int, int], Happened] = {}
    for each in happened:
        known = found.get((each.height, each.chain))
        if known is None:
            found[each.height, each.chain] = each
        else:
            events, code, reason = known.events | each.events, known.code or each.code, known.reason or each.reason
            found[each.height, each.chain] = replace(known, events=events, code=code, reason=reason)
    return list(found.values())


_SENT = Event.SENT | Event.COMMITTED


def _said(happened: Happened, message: Message, names: Names) -> str:
    events = happened.events
    words = ["sent"] if events & _SENT else []
    words += [(event.name or "").lower().replace("_", " ") for event in Event if event in events & ~_SENT]
    handled = message.handled
    if handled is not None and handled.raised is not None and message.at == happened.tick:
        words = [word for word in words if word not in ("executed", "rejected")]
        return ", ".join([*words, f"raised {start_of(handled.raised)}"])
    text = ", ".join(words)
    reason = start_of(happened.reason)
    refused = Event.REJECTED in events and happened.code and message.key.kind != Kind.RESPONSE
    if refused:
        reason = f"{reason} (code {happened.code})".strip()
    return f"{text}: {reason}" if reason else text
