"""Messages as text: one line a message and height, in the order in which it happened.

The messages of a network as a small table.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from causeway.core.text import escape_controls, shorten_name, truncate_text
from causeway.core.vocabulary import Event, Kind, PortableCode, RejectCode
from causeway.testing.declarations import MessageKind, MessageStatus
from causeway.testing.log import LoggedMessage, MessageEvents, MessageLog, RefusedMessage, answer_key
from causeway.testing.tracing import TracedContent, TracedKey

if TYPE_CHECKING:
    import pandas as pd

MAX_PAYLOAD_BYTES = 48
"""Bytes of a payload that a line shows."""

WIDEST = 100
"""Characters of a message up to which what happened stands in one column."""

DEEPEST = 10
"""So far calls inside calls are indented; of deeper ones a number says how deep they are."""

MAX_LINES = 400
"""Lines of a timeline; of longer ones the last."""

MOVED_TEXT = 3
"""Messages that are named of those that move on and on."""


@dataclass(frozen=True)
class TimelineNames:
    """What numbers are called. ``programs``: by number; ``chains``: by position; ``meaning``: of reject codes."""

    programs: Mapping[int, str]
    chains: Sequence[str]
    meaning: PortableCode

    def sender(self, key: TracedKey) -> str:
        """Return who sent a message."""
        return f"user {key.sender}" if key.kind == Kind.INGRESS else self.program(key.sender)

    def program(self, number: int) -> str:
        """Return the name of a program, its number where it has none."""
        return shorten_name(self.programs.get(number, f"program {number}"))

    def timeline(
        self, messages: Iterable[tuple[int, LoggedMessage]], log: MessageLog, changes: Iterable[tuple[int, str]] = ()
    ) -> str:
        """Return what happened to messages, as ``timeline`` says it."""
        return format_timeline(messages, log, self, changes)

    def refusal(self, refused: MessageEvents | RefusedMessage) -> RejectCode:
        """Return what it means that a message from a user came into no queue."""
        return self.meaning(refused.code, refused.reason.encode())

    def describe_user_message(self, user: int, receiver: int, method: str, payload: bytes) -> str:
        """Return a message from a user in a few words."""
        return self.message(TracedKey(int(Kind.INGRESS), user, receiver, 0), TracedContent(method, payload, 0, 0))

    def call(self, caller: int, receiver: int, method: str, payload: bytes, amount: int) -> str:
        """Return a call in a few words."""
        return self.message(
            TracedKey(int(Kind.REQUEST), caller, receiver, 0), TracedContent(method, payload, amount, 0)
        )

    def message(self, key: TracedKey, content: TracedContent | None) -> str:
        """Return a message in a few words."""
        if key.kind == Kind.RESPONSE:
            text = f"{self.program(key.receiver)} <- {self.program(key.sender)}"
            return text if content is None else f"{text} {self._answer(content)}"
        text = f"{self.sender(key)} -> {self.program(key.receiver)}"
        if content is None:
            return text
        said = [format_payload(content.payload)] if content.payload else []
        said += [f"amount {content.amount}"] if content.amount else []
        return f"{text} {shorten_name(content.method)}({', '.join(said)})"

    def find_cause(self, messages: Iterable[LoggedMessage]) -> str:
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
        return f"{self.program(program)} raised {truncate_text(error)} ({place}"

    def describe_last(self, messages: Iterable[LoggedMessage]) -> str:
        """Return what happened last to the last of some messages that anything happened to; empty for none."""
        of = list(messages)
        found = [(each, message) for message in of for each in message.happened[-1:]]
        if of and (tried := of[-1].tried) is not None and of[-1].handled is None:
            return f"last at tick {tried.last}: refused, raised {truncate_text(tried.raised)}"
        if not found:
            return ""
        happened, message = found[-1]
        return f"last at tick {happened.tick} on {self.chains[happened.chain]}: {_said(happened, message, self)}"

    def last_active_messages(self, log: MessageLog) -> str:
        """Return the messages to which something happened at the last height, in a few words."""
        last = max((each.height for message in log.messages.values() for each in message.happened[-1:]), default=0)
        moved = [
            self.message(message.key, message.content)
            for message in log.messages.values()
            if message.happened and message.happened[-1].height == last
        ]
        more = f" and {len(moved) - MOVED_TEXT} more" if len(moved) > MOVED_TEXT else ""
        return f"what moved last: {'; '.join(moved[:MOVED_TEXT])}{more}" if moved else "no message moves"

    def _answer(self, content: TracedContent) -> str:
        back = f", {content.amount} back" if content.amount else ""
        if content.code == 0:
            return f"{format_payload(content.payload)}{back}"
        text = truncate_text(content.payload.decode(errors="backslashreplace"))
        return f"{self.meaning(content.code, content.payload).name} (code {content.code}): {text}{back}"


def format_payload(payload: bytes) -> str:
    """Return a payload as a short literal."""
    if len(payload) <= MAX_PAYLOAD_BYTES:
        return repr(payload)
    return f"{payload[:MAX_PAYLOAD_BYTES]!r}... {len(payload)} bytes"


def is_number_name(name: str) -> bool:
    """Return whether a name is what who has none is called by: a user, or a program of a number alone."""
    return re.fullmatch(r"(user|program) \d+", name) is not None


def format_timeline(
    messages: Iterable[tuple[int, LoggedMessage]],
    log: MessageLog,
    names: TimelineNames,
    changes: Iterable[tuple[int, str]] = (),
) -> str:
    """Return what happened to messages as lines: tick, chain, message, events. ``messages``: each with how far it is
    indented; ``log``: that they are of; ``changes``: what changed at which tick."""
    rows: list[tuple[tuple[int, int, int], tuple[str, str, str, str]]] = []
    for place, (depth, message) in enumerate(messages):
        what = _indented(depth) + names.message(message.key, message.content)
        for step, happened in enumerate(_joined(message.happened)):
            said = _said(happened, message, names)
            if log.is_reverted(happened):
                said += " (taken back by a fork)"
            row = (str(happened.tick), names.chains[happened.chain], what, said)
            rows.append(((happened.tick, place, step), row))
        if message.tried is not None:
            rows.append(((message.tried.first, place, len(message.happened)), _tried(message, log, names, what)))
        if not message.happened:
            rows.append(((2**62, place, 0), ("", "", what, "made, and not sent yet")))
    rows += [
        ((tick, -1, place), (str(tick), "", truncate_text(what), "")) for place, (tick, what) in enumerate(changes)
    ]
    lines = [row for _, row in sorted(rows)]
    left_out = len(lines) - MAX_LINES
    lines = lines[-MAX_LINES:]
    widths = [min(max((len(line[column]) for line in lines), default=0), WIDEST) for column in range(3)]
    text = [
        f"tick {tick:>{widths[0]}}  {chain:<{widths[1]}}  {what:<{widths[2]}}  {said}".rstrip()
        for tick, chain, what, said in lines
    ]
    return "\n".join(([f"... {left_out} lines before"] if left_out > 0 else []) + text) or "no messages"


def _indented(depth: int) -> str:
    return "  " * depth if depth <= DEEPEST else f"{'  ' * DEEPEST}[{depth}] "


def _tried(message: LoggedMessage, log: MessageLog, names: TimelineNames, what: str) -> tuple[str, str, str, str]:
    """Return the line of handlings that were refused. A chain refuses answers alone, so it is that of the request."""
    assert message.tried is not None, "asked of a message that was tried"
    times, first, last, raised = message.tried
    asked = log.find_request(message.key)
    sent = [] if asked is None or asked not in log.messages else log.messages[asked].happened
    chain = names.chains[sent[0].chain] if sent else ""
    again = f", {times} times up to tick {last}" if times > 1 else ""
    return str(first), chain, what, f"refused{again}: raised {truncate_text(raised)}"


def _joined(happened: Sequence[MessageEvents]) -> list[MessageEvents]:
    """Return what happened at one height on one chain as one."""
    found: dict[tuple[int, int], MessageEvents] = {}
    for each in happened:
        known = found.get((each.height, each.chain))
        if known is None:
            found[each.height, each.chain] = each
        else:
            events, code, reason = known.events | each.events, known.code or each.code, known.reason or each.reason
            found[each.height, each.chain] = replace(known, events=events, code=code, reason=reason)
    return list(found.values())


_SENT = Event.SENT | Event.COMMITTED


def _said(happened: MessageEvents, message: LoggedMessage, names: TimelineNames) -> str:
    events = happened.events
    words = ["sent"] if events & _SENT else []
    words += [(event.name or "").lower().replace("_", " ") for event in Event if event in events & ~_SENT]
    handled = message.handled
    if handled is not None and handled.raised is not None and message.at == happened.tick:
        words = [word for word in words if word not in ("executed", "rejected")]
        return ", ".join([*words, f"raised {truncate_text(handled.raised)}"])
    text = ", ".join(words)
    reason = truncate_text(happened.reason)
    refused = Event.REJECTED in events and happened.code and message.key.kind != Kind.RESPONSE
    if refused:
        reason = f"{reason} (code {happened.code})".strip()
    return f"{text}: {reason}" if reason else text


MAX_ROWS = 60
"""Rows that the table shows when it is printed."""

MAX_TEXT = 120
"""Characters of a text that it shows."""


@dataclass(frozen=True)
class MessageRow:
    """One message.

    Attributes:
        tick: when it was made, or came in; None where that is not known.
        kind: ``ingress`` (from a user), ``request`` or ``response``.
        sender, receiver: names of programs; of a user ``user N``.
        method, payload: of an answer the method is empty; the payload of a reject is its text.
        amount: attached to a request, given back with an answer.
        status: ``waiting``, ``executed``, ``failed`` (its handler raised, and may be called again) or ``lost``; of a
            request also ``answered`` or ``rejected``, of a message from a user also ``refused``: it came into no queue.
        code: of an answer, and of the request that it is for; 0 for data, and without an answer.
        reject: what that code means, empty for data; of a message from a user that was refused, why.
        ended: when it was handled.
        reason: why it failed, was lost, refused or rejected, or the text of the reject; else empty.
    """

    tick: int | None
    kind: str
    sender: str
    receiver: str
    method: str
    payload: bytes
    amount: int
    status: str
    code: int
    reject: str
    ended: int | None
    reason: str


KINDS: tuple[MessageKind, ...] = get_args(MessageKind)
STATUSES: tuple[MessageStatus, ...] = get_args(MessageStatus)

COLUMNS = [column.name for column in fields(MessageRow)]

SCHEMA = pa.schema(
    [
        ("tick", pa.uint64()),
        ("kind", pa.string()),
        ("sender", pa.string()),
        ("receiver", pa.string()),
        ("method", pa.string()),
        ("payload", pa.binary()),
        ("amount", pa.string()),
        ("status", pa.string()),
        ("code", pa.uint8()),
        ("reject", pa.string()),
        ("ended", pa.uint64()),
        ("reason", pa.string()),
    ]
)
"""``amount`` as decimal digits: it has up to 128 bits."""


class Messages(Sequence[MessageRow]):
    """Messages in the order in which they were made. It is a sequence of ``Row``, and shows itself as a table."""

    def __init__(self, rows: Sequence[MessageRow]) -> None:
        """For ``Network.messages``."""
        self._rows = list(rows)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        """Return one of them, or some as a table."""
        return Messages(self._rows[place]) if isinstance(place, slice) else self._rows[place]

    def __iter__(self) -> Iterator[MessageRow]:
        """Yield them."""
        return iter(self._rows)

    def arrow(self) -> pa.Table:
        """Return them as an Arrow table (``SCHEMA``)."""
        columns = {
            name: [str(row.amount) if name == "amount" else getattr(row, name) for row in self] for name in COLUMNS
        }
        return pa.table(columns, schema=SCHEMA)

    def pandas(self) -> pd.DataFrame:
        """Return them as a DataFrame of pandas."""
        frame: pd.DataFrame = self.arrow().to_pandas()
        return frame

    def __repr__(self) -> str:
        """Return the table as text."""
        lines = [[name.upper() for name in COLUMNS], *(_cells(row) for row in self._rows[:MAX_ROWS])]
        widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        more = len(self) - MAX_ROWS
        return "\n".join([*text, *([f"... {more} more"] if more > 0 else [])])

    def _repr_html_(self) -> str:
        """Return the table as HTML, for notebooks."""
        head = "".join(f"<th>{name}</th>" for name in COLUMNS)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in _cells(row))}</tr>" for row in self[:MAX_ROWS]
        )
        more = len(self) - MAX_ROWS
        rest = f"<p>... {more} more</p>" if more > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _cells(row: MessageRow) -> list[str]:
    cells = []
    for name in COLUMNS:
        value = getattr(row, name)
        cells.append(
            ""
            if value is None
            else format_payload(value)
            if isinstance(value, bytes)
            else escape_controls(truncate_text(str(value), MAX_TEXT))
        )
    return cells


def build_rows(
    log: MessageLog,
    names: TimelineNames,
    hidden: Collection[TracedKey] = (),
    wanted: Mapping[str, object] = MappingProxyType({}),
    since: int | None = None,
) -> list[MessageRow]:
    """Return the messages of a log but those that are ``hidden``, by the tick in which they were made: those whose
    columns are as ``wanted``, made at the tick ``since`` or later. Rows are made of those alone."""
    passes = _chooser(log, names, wanted, since)
    found = [(key, _row(message, log, names)) for key, message in log.messages.items() if passes(key, message)]
    found = [one for one in found if one[0] not in hidden]
    for message in log.refused:
        first = message.happened[0]
        why = names.refusal(first).name
        found.append(
            (message.key, replace(_row(message, log, names), status="refused", reject=why, reason=first.reason))
        )
    found = [one for one in found if all(getattr(one[1], name) == value for name, value in wanted.items())]
    if since is not None:
        found = [one for one in found if one[1].tick is not None and one[1].tick >= since]
    # An answer that no program made has its request before it.
    found.sort(key=lambda one: (2**64 if one[1].tick is None else one[1].tick, log.is_protocol_answer(one[0])))
    return [row for _, row in found]


def _chooser(
    log: MessageLog, names: TimelineNames, wanted: Mapping[str, object], since: int | None
) -> Callable[[TracedKey, LoggedMessage], bool]:
    """Return what tells by a few numbers, and before a row is made, that a message cannot be as ``wanted``."""
    kind, method = wanted.get("kind"), wanted.get("method")
    called: dict[int, str] = {}

    def name(number: int) -> str:
        if number not in called:
            called[number] = names.program(number)
        return called[number]

    def passes(key: TracedKey, message: LoggedMessage) -> bool:
        if kind is not None and _KINDS[key.kind] != kind:
            return False
        if since is not None and (tick := _made_at(message, log)) is not None and tick < since:
            return False
        if "receiver" in wanted and name(key.receiver) != wanted["receiver"]:
            return False
        if "sender" in wanted and key.kind != Kind.INGRESS and name(key.sender) != wanted["sender"]:
            return False
        if method and (message.content is None or key.kind == Kind.RESPONSE or message.content.method != method):
            return False
        return "status" not in wanted or _status(message, log) == wanted["status"]

    return passes


_KINDS = {int(kind): kind.name.lower() for kind in Kind}


def _made_at(message: LoggedMessage, log: MessageLog) -> int | None:
    """Return the tick in which a message was made, or came in; None where that is not known."""
    cause = None if message.cause is None else log.messages[message.cause]
    return cause.at if cause is not None else min((each.tick for each in message.happened), default=None)


def _row(message: LoggedMessage, log: MessageLog, names: TimelineNames) -> MessageRow:
    key, content = message.key, message.content
    answer = log.find_answer(key)
    said = content if key.kind == Kind.RESPONSE or answer is None else answer.content
    code, text = (0, b"") if said is None else (said.code, said.payload)
    return MessageRow(
        tick=_made_at(message, log),
        kind=_KINDS[key.kind],
        sender=names.sender(key),
        receiver=names.program(key.receiver),
        method="" if content is None or key.kind == Kind.RESPONSE else content.method,
        payload=b"" if content is None else content.payload,
        amount=0 if content is None else content.amount,
        status=_status(message, log),
        code=code,
        reject=names.meaning(code, text).name if code else "",
        ended=message.at,
        reason=text.decode(errors="backslashreplace") if code else _reason(message, log),
    )


def _reason(message: LoggedMessage, log: MessageLog) -> str:
    """Return why a message failed, was lost or rejected, where no answer says so."""
    if message.handled is not None and message.handled.raised is not None:
        return message.handled.raised
    if message.handled is None and message.tried is not None:
        return message.tried.raised
    both = [message, log.messages.get(answer_key(message.key))] if message.key.kind == Kind.REQUEST else [message]
    ends = Event.DROPPED | Event.REJECTED
    found = [each for one in both if one is not None for each in one.happened if each.events & ends]
    return found[-1].reason if found and message.handled is None else ""


def _status(message: LoggedMessage, log: MessageLog) -> str:
    if message.key.kind == Kind.REQUEST:
        answer = log.find_answer(message.key)
        if answer is not None and answer.content is not None:
            return "rejected" if answer.content.code else "answered"
        if log.is_lost(message.key):
            return "lost"
    if message.handled is not None:
        return "executed" if message.handled.raised is None else "failed"
    if message.is_lost:
        return "lost"
    if message.tried is not None:
        return "failed"
    refused = any(Event.REJECTED in each.events for each in message.happened)
    return "rejected" if refused and message.key.kind == Kind.REQUEST else "waiting"
