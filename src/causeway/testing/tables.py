"""The messages of a network as a small table."""

from __future__ import annotations

import html
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from causeway.model.ledger import Event, Kind
from causeway.model.text import escaped, start_of
from causeway.testing.log import Log, Message, answer_to
from causeway.testing.timeline import Names, shown_payload
from causeway.testing.tracing import Key
from causeway.testing.words import MessageKind, MessageStatus

if TYPE_CHECKING:
    import pandas as pd

SHOWN_ROWS = 60
"""Rows that the table shows when it is printed."""

SHOWN_TEXT = 120
"""Characters of a text that it shows."""


@dataclass(frozen=True)
class Row:
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

COLUMNS = [column.name for column in fields(Row)]

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


class Messages(Sequence[Row]):
    """Messages in the order in which they were made. It is a sequence of ``Row``, and shows itself as a table."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """For ``Network.messages``."""
        self._rows = list(rows)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        """Return one of them, or some as a table."""
        return Messages(self._rows[place]) if isinstance(place, slice) else self._rows[place]

    def __iter__(self) -> Iterator[Row]:
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
        lines = [[name.upper() for name in COLUMNS], *(_cells(row) for row in self._rows[:SHOWN_ROWS])]
        widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        more = len(self) - SHOWN_ROWS
        return "\n".join([*text, *([f"... {more} more"] if more > 0 else [])])

    def _repr_html_(self) -> str:
        """Return the table as HTML, for notebooks."""
        head = "".join(f"<th>{name}</th>" for name in COLUMNS)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in _cells(row))}</tr>" for row in self[:SHOWN_ROWS]
        )
        more = len(self) - SHOWN_ROWS
        rest = f"<p>... {more} more</p>" if more > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _cells(row: Row) -> list[str]:
    cells = []
    for name in COLUMNS:
        value = getattr(row, name)
        cells.append(
            ""
            if value is None
            else shown_payload(value)
            if isinstance(value, bytes)
            else escaped(start_of(str(value), SHOWN_TEXT))
        )
    return cells


def rows_of(
    log: Log,
    names: Names,
    hidden: Collection[Key] = (),
    wanted: Mapping[str, object] = MappingProxyType({}),
    since: int | None = None,
) -> list[Row]:
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
    found.sort(key=lambda one: (2**64 if one[1].tick is None else one[1].tick, log.is_of_protocol(one[0])))
    return [row for _, row in found]


def _chooser(log: Log, names: Names, wanted: Mapping[str, object], since: int | None) -> Callable[[Key, Message], bool]:
    """Return what tells by a few numbers, and before a row is made, that a message cannot be as ``wanted``."""
    kind, method = wanted.get("kind"), wanted.get("method")
    called: dict[int, str] = {}

    def name(number: int) -> str:
        if number not in called:
            called[number] = names.program(number)
        return called[number]

    def passes(key: Key, message: Message) -> bool:
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


def _made_at(message: Message, log: Log) -> int | None:
    """Return the tick in which a message was made, or came in; None where that is not known."""
    cause = None if message.cause is None else log.messages[message.cause]
    return cause.at if cause is not None else min((each.tick for each in message.happened), default=None)


def _row(message: Message, log: Log, names: Names) -> Row:
    key, content = message.key, message.content
    answer = log.answer_of(key)
    said = content if key.kind == Kind.RESPONSE or answer is None else answer.content
    code, text = (0, b"") if said is None else (said.code, said.payload)
    return Row(
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


def _reason(message: Message, log: Log) -> str:
    """Return why a message failed, was lost or rejected, where no answer says so."""
    if message.handled is not None and message.handled.raised is not None:
        return message.handled.raised
    if message.handled is None and message.tried is not None:
        return message.tried.raised
    both = [message, log.messages.get(answer_to(message.key))] if message.key.kind == Kind.REQUEST else [message]
    ends = Event.DROPPED | Event.REJECTED
    found = [each for one in both if one is not None for each in one.happened if each.events & ends]
    return found[-1].reason if found and message.handled is None else ""


def _status(message: Message, log: Log) -> str:
    if message.key.kind == Kind.REQUEST:
        answer = log.answer_of(message.key)
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
