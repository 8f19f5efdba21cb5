"""Answers that travel over lanes of their own: responses name the request that they answer in column ``answers``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.spec.audit.ledger import Ledger, Message, Row, place

RESPONSES = ("response", "reject", "refund")
Request = tuple[str, str, str]
"""What names a request: its protocol, the chain that sent it, its ``message_id``."""


class Answer(NamedTuple):
    """A response as the chain that asked saw it; ``row`` is its first row there."""

    message: Message
    request: Request
    row: Row


def asked(message: Message) -> Request | None:
    """What names a message that is a request."""
    sent = message.first("sent")
    if not sent or sent["kind"] != "request":
        return None
    protocol, source, *_ = message.lane
    name = (protocol, sent["chain"] if source is None else source, sent["message_id"])
    return None if None in name else name  # type: ignore[return-value]


def names_asked(message: Message) -> set[Request]:
    """Under what names a request is known: where it was sent, and where its end was shown, since who asked may move."""
    name = asked(message)
    if name is None:
        return set()
    ends = [row["chain"] for event in ("acknowledged", "timed_out") for row in message.all(event)]
    return {name, *((name[0], chain, name[2]) for chain in ends if chain is not None)}


def responses(ledger: Ledger) -> list[Answer]:
    """The responses that the chains that asked took in: one of each message and request, in the order of the ledger."""
    return [answer for message in ledger.messages for answer in _answers(message)]


def _answers(message: Message) -> Iterator[Answer]:
    protocol, _, caller, _ = message.lane
    rows = [
        row
        for row in message.rows
        if row["event"] in ("received", "answered")
        and row["kind"] in RESPONSES
        and row["answers"] is not None
        and row["chain"] in (caller, None)
        and not (row["event"] == "received" and message.forged(row))
    ]
    if protocol is None or caller is None:
        return
    for name in sorted({row["answers"] for row in rows}):
        first = min((row for row in rows if row["answers"] == name), key=place)
        yield Answer(message, (protocol, caller, name), first)


def first_answers(answers: Iterable[Answer]) -> dict[Request, Row]:
    """Of each request the first row of a response to it."""
    found: dict[Request, Row] = {}
    for answer in answers:
        row = found.get(answer.request, answer.row)
        found[answer.request] = min(row, answer.row, key=place)
    return found


def earlier(one: Row, other: Row) -> bool:
    """Whether a row of a chain is before another of it: by height where both have one, else by time."""
    for kind in ("height", "time"):
        if one[kind] is not None and other[kind] is not None:
            return bool(one[kind] < other[kind])
    return False
