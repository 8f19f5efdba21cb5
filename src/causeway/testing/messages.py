"""Messages of a test network as text: timelines and tables.

A timeline has one line a message and height. ``build_rows`` filters before it builds rows, since a long test has many
messages and asks for few.
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
"""Maximum width of a timeline column before the last."""

DEEPEST = 10
"""Maximum indentation of nested calls; deeper ones show their depth as a number."""

MAX_LINES = 400
"""Maximum number of lines of a timeline; the last ones are shown."""

MOVED_TEXT = 3
"""Number of messages named when a network does not come to rest."""


@dataclass(frozen=True)
class TimelineNames:
    """Names for the numbers in a timeline.

    Attributes:
        programs: Names by program number.
        chains: Names by chain position.
        meaning: Maps reject codes to portable codes.
    """

    programs: Mapping[int, str]
    chains: Sequence[str]
    meaning: PortableCode

    def sender(self, key: TracedKey) -> str:
        """Return the name of a message's sender."""
        return f"user {key.sender}" if key.kind == Kind.INGRESS else self.program(key.sender)

    def program(self, number: int) -> str:
        """Return the name of a program, or its number if it has none."""
        return shorten_name(self.programs.get(number, f"program {number}"))

    def timeline(
        self, messages: Iterable[tuple[int, LoggedMessage]], log: MessageLog, changes: Iterable[tuple[int, str]] = ()
    ) -> str:
        """Format messages as ``format_timeline`` does."""
        return format_timeline(messages, log, self, changes)

    def refusal(self, refused: MessageEvents | RefusedMessage) -> RejectCode:
        """Return the reject code for a user message that entered no queue."""
        return self.meaning(refused.code, refused.reason.encode())

    def describe_user_message(self, user: int, receiver: int, method: str, payload: bytes) -> str:
        """Describe a user message in one phrase."""
        return self.message(TracedKey(int(Kind.INGRESS), user, receiver, 0), TracedContent(method, payload, 0, 0))

    def call(self, caller: int, receiver: int, method: str, payload: bytes, amount: int) -> str:
        """Describe a call in one phrase."""
        return self.message(
            TracedKey(int(Kind.REQUEST), caller, receiver, 0), TracedContent(method, payload, amount, 0)
        )

    def message(self, key: TracedKey, content: TracedContent | None) -> str:
        """Describe a message in one phrase."""
        if key.kind == Kind.RESPONSE:
            text = f"{self.program(key.receiver)} <- {self.program(key.sender)}"
            return text if content is None else f"{text} {self._describe_answer(content)}"
        text = f"{self.sender(key)} -> {self.program(key.receiver)}"
        if content is None:
            return text
        arguments = [format_payload(content.payload)] if content.payload else []
        arguments += [f"amount {content.amount}"] if content.amount else []
        return f"{text} {shorten_name(content.method)}({', '.join(arguments)})"

    def find_cause(self, messages: Iterable[LoggedMessage]) -> str:
        """Return the first exception of a handler among messages, with its program; empty for none."""
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
        """Describe the last event of the last message that has any; empty for none."""
        candidates = list(messages)
        found = [(each, message) for message in candidates for each in message.happened[-1:]]
        if candidates and (tried := candidates[-1].tried) is not None and candidates[-1].handled is None:
            return f"last at tick {tried.last}: refused, raised {truncate_text(tried.raised)}"
        if not found:
            return ""
        happened, message = found[-1]
        return (
            f"last at tick {happened.tick} on {self.chains[happened.chain]}: {_describe_event(happened, message, self)}"
        )

    def last_active_messages(self, log: MessageLog) -> str:
        """Name the messages with an event at the last height."""
        last = max((each.height for message in log.messages.values() for each in message.happened[-1:]), default=0)
        moved = [
            self.message(message.key, message.content)
            for message in log.messages.values()
            if message.happened and message.happened[-1].height == last
        ]
        more = f" and {len(moved) - MOVED_TEXT} more" if len(moved) > MOVED_TEXT else ""
        return f"what moved last: {'; '.join(moved[:MOVED_TEXT])}{more}" if moved else "no message moves"

    def _describe_answer(self, content: TracedContent) -> str:
        """Describe an answer: its payload or reject, and the refund."""
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
    """Return True for the fallback name of a user or of an unnamed program."""
    return re.fullmatch(r"(user|program) \d+", name) is not None


def format_timeline(
    messages: Iterable[tuple[int, LoggedMessage]],
    log: MessageLog,
    names: TimelineNames,
    changes: Iterable[tuple[int, str]] = (),
) -> str:
    """Format messages as lines of tick, chain, message and events.

    Args:
        messages: Indentation depth and message, in order.
        log: Log that holds the messages.
        names: Names for numbers.
        changes: Tick and description of changes to the network.

    Returns:
        At most ``MAX_LINES`` lines, sorted by tick.
    """
    rows: list[tuple[tuple[int, int, int], tuple[str, str, str, str]]] = []
    for position, (depth, message) in enumerate(messages):
        label = _indent(depth) + names.message(message.key, message.content)
        for step, event in enumerate(_merge_events(message.happened)):
            text = _describe_event(event, message, names)
            if log.is_reverted(event):
                text += " (taken back by a fork)"
            row = (str(event.tick), names.chains[event.chain], label, text)
            rows.append(((event.tick, position, step), row))
        if message.tried is not None:
            rows.append(
                ((message.tried.first, position, len(message.happened)), _refused_row(message, log, names, label))
            )
        if not message.happened:
            rows.append(((2**62, position, 0), ("", "", label, "made, and not sent yet")))
    rows += [
        ((tick, -1, position), (str(tick), "", truncate_text(label), ""))
        for position, (tick, label) in enumerate(changes)
    ]
    lines = [row for _, row in sorted(rows)]
    left_out = len(lines) - MAX_LINES
    lines = lines[-MAX_LINES:]
    widths = [min(max((len(line[column]) for line in lines), default=0), WIDEST) for column in range(3)]
    rendered = [
        f"tick {tick:>{widths[0]}}  {chain:<{widths[1]}}  {label:<{widths[2]}}  {text}".rstrip()
        for tick, chain, label, text in lines
    ]
    return "\n".join(([f"... {left_out} lines before"] if left_out > 0 else []) + rendered) or "no messages"


def _indent(depth: int) -> str:
    return "  " * depth if depth <= DEEPEST else f"{'  ' * DEEPEST}[{depth}] "


def _refused_row(
    message: LoggedMessage, log: MessageLog, names: TimelineNames, label: str
) -> tuple[str, str, str, str]:
    """Return the line of refused handlings, on the request's chain: chains refuse only answers."""
    assert message.tried is not None, "asked of a message that was tried"
    times, first, last, raised = message.tried
    request = log.find_request(message.key)
    sent = [] if request is None or request not in log.messages else log.messages[request].happened
    chain = names.chains[sent[0].chain] if sent else ""
    repeats = f", {times} times up to tick {last}" if times > 1 else ""
    return str(first), chain, label, f"refused{repeats}: raised {truncate_text(raised)}"


def _merge_events(happened: Sequence[MessageEvents]) -> list[MessageEvents]:
    """Merge the events of one height and chain."""
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


def _describe_event(happened: MessageEvents, message: LoggedMessage, names: TimelineNames) -> str:
    """Describe an event: its flags, and the reason for a refusal."""
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
"""Maximum number of rows that the printed table shows."""

MAX_TEXT = 120
"""Maximum number of characters of a cell."""


@dataclass(frozen=True)
class MessageRow:
    """A message as a row of the table.

    Attributes:
        tick: Tick at which it was created, or entered; None if unknown.
        kind: ``ingress`` (from a user), ``request`` or ``response``.
        sender: Name of the sending program, or ``user N``.
        receiver: Name of the receiving program.
        method: Called method; empty for an answer.
        payload: Payload in bytes; for a reject its text.
        amount: Amount attached to a request, or refunded with an answer.
        status: ``waiting``, ``executed``, ``failed`` (its handler raised, and may run again) or ``lost``; for a request
            also ``answered`` or ``rejected``; for a user message also ``refused`` (it entered no queue).
        code: Reject code of an answer, and of its request; 0 for data, and without an answer.
        reject: Meaning of that code, empty for data; for a refused user message the reason.
        ended: Tick at which it was handled.
        reason: Why it failed, or was lost, refused or rejected; else empty.
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
"""Arrow schema of the table. ``amount`` is decimal text: it has up to 128 bits."""


class Messages(Sequence[MessageRow]):
    """Messages in order of creation: a sequence of ``MessageRow`` that prints as a table."""

    def __init__(self, rows: Sequence[MessageRow]) -> None:
        """For ``Network.messages``."""
        self._rows = list(rows)

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        """Return a row, or a table for a slice."""
        return Messages(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __iter__(self) -> Iterator[MessageRow]:
        """Iterate over the rows."""
        return iter(self._rows)

    def arrow(self) -> pa.Table:
        """Return an Arrow table with schema ``SCHEMA``."""
        columns = {
            name: [str(row.amount) if name == "amount" else getattr(row, name) for row in self] for name in COLUMNS
        }
        return pa.table(columns, schema=SCHEMA)

    def pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame."""
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
    """Build the rows of messages, sorted by the tick of creation.

    Args:
        log: Log of the network.
        names: Names for numbers.
        hidden: Keys of messages to omit.
        wanted: Required column values.
        since: Earliest tick of creation; None: any.
    """
    matches = _create_prefilter(log, names, wanted, since)
    found = [(key, _row(message, log, names)) for key, message in log.messages.items() if matches(key, message)]
    found = [one for one in found if one[0] not in hidden]
    for message in log.refused:
        first = message.happened[0]
        reject = names.refusal(first).name
        found.append(
            (message.key, replace(_row(message, log, names), status="refused", reject=reject, reason=first.reason))
        )
    found = [one for one in found if all(getattr(one[1], name) == value for name, value in wanted.items())]
    if since is not None:
        found = [one for one in found if one[1].tick is not None and one[1].tick >= since]
    # Answers of the protocol sort after their requests of the same tick.
    found.sort(key=lambda one: (2**64 if one[1].tick is None else one[1].tick, log.is_protocol_answer(one[0])))
    return [row for _, row in found]


def _create_prefilter(
    log: MessageLog, names: TimelineNames, wanted: Mapping[str, object], since: int | None
) -> Callable[[TracedKey, LoggedMessage], bool]:
    """Create a cheap predicate that excludes messages before their rows are built."""
    kind, method = wanted.get("kind"), wanted.get("method")
    cached_names: dict[int, str] = {}

    def name(number: int) -> str:
        if number not in cached_names:
            cached_names[number] = names.program(number)
        return cached_names[number]

    def passes(key: TracedKey, message: LoggedMessage) -> bool:
        if kind is not None and _KINDS[key.kind] != kind:
            return False
        if since is not None and (tick := _creation_tick(message, log)) is not None and tick < since:
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


def _creation_tick(message: LoggedMessage, log: MessageLog) -> int | None:
    """Return the tick at which a message was created, or entered; None if unknown."""
    cause = None if message.cause is None else log.messages[message.cause]
    return cause.at if cause is not None else min((each.tick for each in message.happened), default=None)


def _row(message: LoggedMessage, log: MessageLog, names: TimelineNames) -> MessageRow:
    """Build the row of a message."""
    key, content = message.key, message.content
    answer = log.find_answer(key)
    response = content if key.kind == Kind.RESPONSE or answer is None else answer.content
    code, text = (0, b"") if response is None else (response.code, response.payload)
    return MessageRow(
        tick=_creation_tick(message, log),
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
    """Return why a message failed, or was lost or rejected, if no answer states it."""
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
