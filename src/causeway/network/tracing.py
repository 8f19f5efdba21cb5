"""One message of a ledger with all that belongs to it: what a user names, found and followed over lanes and hops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from causeway.audit.lives import Life, Step, lives_of
from causeway.ledger.schema import LANE
from causeway.model.errors import InvalidInput
from causeway.model.text import readable, shown
from causeway.pipeline.ledger_search import (
    CONTINUATIONS,
    Condition,
    Like,
    MessageKey,
    Place,
    find,
    headers_at,
    related,
    rows_of,
)
from causeway.pipeline.ledger_store import Ledger

FOLLOWED = 64
"""Messages of one journey that are looked at."""

TOGETHER = 8
"""Messages of one transaction that are shown; more are several."""

MOST_INDEX = (1 << 64) - 1

LEAST_BEGIN = 6
"""So many characters of a name are enough, where they are of one message only."""

SHORTENED = "…"
"""What stands for the middle of a long name (``model.text``)."""

_NARROWING = ("lane", "source", "destination", "sender", "index")

Roots = Mapping[Place, Sequence[Mapping[str, Any]]]
"""Headers that chains made where something happened."""


class SeveralMessages(InvalidInput):
    """Several messages that do not belong together are meant; ``keys`` are those."""

    def __init__(self, text: str, keys: Sequence[MessageKey]) -> None:
        super().__init__(text)
        self.keys = tuple(keys)


@dataclass(frozen=True)
class Traced:
    """Messages that belong together, those first that began first. ``headers``: of the blocks in which something
    happened to them, as far as the ledger has them; ``more``: how many more belong to them."""

    lives: tuple[Life, ...]
    headers: Roots
    more: int

    def roots(self, step: Step) -> list[str]:
        """Return the roots (or hashes) that the ledger has of the block of a step."""
        found = {row["root"] or row["hash"] for place in _place(step) for row in self.headers.get(place, ())}
        return sorted(root for root in found if root)


NAMED_BY = "its id, lane and index, journey, or the hash of a transaction"
"""The ways to name a message, for error messages."""


def trace(ledger: Ledger, message: str | None = None, **narrowing: str | int | None) -> Traced:
    """Find a message by what names it, and follow it.

    Args:
        ledger: as of a commit.
        message: its ``message_id``, its lane (or source) and index as in ``channel-141/123``, its journey, or the hash
            of a transaction; of these but the lane also the beginning, of ``LEAST_BEGIN`` characters, or a shortened
            form as a terminal shows it (``0x7ca6c18aa678d735…0b46``).
        narrowing: ``lane``, ``source``, ``destination``, ``sender``, ``index``; without ``message`` these name it.

    Raises:
        InvalidInput: nothing is named, or no such message is there.
        SeveralMessages: several are meant.
        LedgerDamaged: a file is not what was written.
    """
    narrowed = {name: (value,) for name, value in narrowing.items() if value is not None}
    for name in narrowed:
        if name not in _NARROWING:
            raise InvalidInput(f"{name}: must be one of {', '.join(_NARROWING)}")
    for name, value in {"message": message, **narrowing}.items():
        whole = type(value) is int and 0 <= value <= MOST_INDEX
        if value is not None and not (whole if name == "index" else isinstance(value, str)):
            wanted = f"a whole number from 0 to {MOST_INDEX}" if name == "index" else "a text"
            raise InvalidInput(f"{name}: {shown(value)}: must be {wanted}")
    found: list[MessageKey] = []
    for conditions in _conditions(message, narrowed):
        found = found or find(ledger, conditions)
    if not found:
        said = [f"{name} {values[0]}" for name, values in narrowed.items()]
        sought = readable(", ".join([*([] if message is None else [message]), *said]))
        raise InvalidInput(f"{sought}: no such message; allowed: {NAMED_BY}, as the command ledger lists them")
    rows = rows_of(ledger, found[:FOLLOWED])
    if len(found) > 1 and not _belong_together(rows, message, len(found)):
        raise SeveralMessages(f"{len(found):,} messages are meant", found)
    keys = dict.fromkeys([*found, *related(ledger, rows, FOLLOWED)])
    new = [*keys]
    while new and len(keys) < FOLLOWED:
        carried = related(ledger, rows_of(ledger, new[:FOLLOWED]), FOLLOWED, CONTINUATIONS)
        new = [key for key in carried if key not in keys]
        keys |= dict.fromkeys(new)
    found_lives = lives_of(rows_of(ledger, [*keys][:FOLLOWED]), ledger.table("promises"))
    headers = headers_at(ledger, _places(found_lives))
    return Traced(tuple(found_lives), headers, len(keys) - len(found_lives))


def lives(ledger: Ledger, messages: Sequence[MessageKey]) -> Traced:
    """Return the lives of messages that are known by their keys, in no search, without those that belong to them.

    Raises ``LedgerDamaged``.
    """
    found = lives_of(rows_of(ledger, messages), ledger.table("promises"))
    return Traced(tuple(found), headers_at(ledger, _places(found)), 0)


def _places(found: Sequence[Life]) -> set[Place]:
    return {place for life in found for step in life.steps for place in _place(step)}


def _place(step: Step) -> list[Place]:
    """Return where a step happened; nothing where that was not seen."""
    if step.chain is None or step.height is None:
        return []
    return [Place(step.chain, step.height, step.row["tick"])]


def life_as_dict(life: Life, found: Traced) -> dict[str, Any]:
    """Return a life as JSON: the message, what it came to, and a dict for each step."""
    names = dict(zip((*LANE, "index", "message_id"), (*life.lane, life.index, life.message_id), strict=True))
    return {
        **names,
        **{name: getattr(life, name) for name in ("answers", "journey", "continues")},
        **{name: getattr(life, name) for name in ("kind", "sender", "receiver", "asset")},
        "amount": life.amount,
        "outcome": life.outcome,
        "open": life.is_open,
        "seconds": None if life.took is None else life.took.total_seconds(),
        "foreign_receipts": life.remarks.get("foreign receipt", 0),
        "repeated_receipts": life.remarks.get("repeated receipt", 0),
        "events": [_step_as_dict(step, found) for step in life.steps],
    }


def _step_as_dict(step: Step, found: Traced) -> dict[str, Any]:
    row = step.row
    hashed = row["payload_hash"]
    return {
        "event": step.event,
        "chain": step.chain,
        "height": step.height,
        "position": row["position"],
        "tick": row["tick"],
        "time": None if step.time is None else step.time.isoformat(),
        "seconds": None if step.since is None else step.since.total_seconds(),
        "transaction": row["transaction"],
        "payload_hash": None if hashed is None else hashed.hex(),
        "amount": row["amount"],
        "code": row["code"],
        "detail": row["detail"],
        "notes": [*step.notes],
        "roots": found.roots(step),
        "stated_by": row["stated_by"],
        "source_file": row["source_file"],
        "source_row": row["source_row"],
    }


def _conditions(message: str | None, narrowed: Mapping[str, tuple[str | int, ...]]) -> Iterator[list[Condition]]:
    """Yield conditions of which a row of the message fulfils one; later ones count if nothing fulfils the earlier.
    Raises ``InvalidInput``."""
    if message is None:
        if "index" not in narrowed and "sender" not in narrowed:
            raise InvalidInput("message: missing; name it, or give an index with its lane, sender or source")
        yield [narrowed]
        return
    before, _, number = message.rpartition("/")
    if before and number.isascii() and number.isdecimal() and len(number) <= 20 and int(number) <= MOST_INDEX:
        yield [{**narrowed, name: (before,), "index": (int(number),)} for name in ("lane", "source")]
    yield [{**narrowed, name: (message,)} for name in ("message_id", "transaction", "journey")]
    like = _like(message)
    if len(like.begin) >= LEAST_BEGIN:
        yield [{**narrowed, name: like} for name in ("message_id", "transaction", "journey")]


def _like(message: str) -> Like:
    """Return what begins as a name of a message does; of a shortened one, as a terminal shows it, what ends so, too."""
    begin, _, end = message.partition(SHORTENED)
    return Like(begin, end)


def _belong_together(rows: pa.Table, message: str | None, count: int) -> bool:
    """Return whether messages belong to one journey, to one rerouted answer, or (if few) to one transaction."""
    journeys = set(rows["journey"].to_pylist())
    if len(journeys) == 1 and None not in journeys:
        return True
    answers = set(zip(rows["message_id"].to_pylist(), rows["answers"].to_pylist(), strict=True))
    if len(answers) == 1 and None not in answers.pop():
        return True
    if count > TOGETHER or message is None:
        return False
    of_messages: dict[tuple[Any, ...], set[str]] = {}
    like = _like(message)
    for row in rows.select([*LANE, "index", "message_id", "transaction"]).to_pylist():
        key = (*(row[name] for name in LANE), row["message_id"] if row["index"] is None else row["index"])
        of_messages.setdefault(key, set()).update({row["transaction"]} if like.matches(row["transaction"]) else ())
    return bool(set.intersection(*of_messages.values()))


__all__ = ["FOLLOWED", "MOST_INDEX", "NAMED_BY", "SeveralMessages", "Traced", "life_as_dict", "lives", "trace"]
