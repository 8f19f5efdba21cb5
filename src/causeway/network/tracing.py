"""One message of a ledger with all that belongs to it: what a user names, found and followed over lanes and hops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from causeway.audit.lives import Life, Step, lives_of
from causeway.model.errors import InvalidInput
from causeway.model.text import readable
from causeway.pipeline.ledger_search import Condition, MessageKey, find, headers_at, related, rows_of
from causeway.pipeline.ledger_store import Ledger

FOLLOWED = 64
"""Messages of one journey that are looked at."""

TOGETHER = 8
"""Messages of one transaction that are shown; more are several."""

MOST_INDEX = (1 << 64) - 1

_NARROWING = ("lane", "source", "destination", "sender", "index")

Roots = Mapping[tuple[str, int], Sequence[Mapping[str, Any]]]
"""Headers of a chain at a height."""


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
        if step.chain is None or step.height is None:
            return []
        found = {row["root"] or row["hash"] for row in self.headers.get((step.chain, step.height), ())}
        return sorted(root for root in found if root)


def trace(ledger: Ledger, message: str | None = None, **narrowing: str | int | None) -> Traced:
    """Find a message by what names it, and follow it.

    Args:
        ledger: as of a commit.
        message: its ``message_id``, its lane (or source) and index as in ``channel-141/123``, its journey, or the hash
            of a transaction.
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
    conditions = _conditions(message, narrowed)
    found = find(ledger, conditions)
    if not found:
        said = [f"{name} {values[0]}" for name, values in narrowed.items()]
        sought = readable(", ".join([*([] if message is None else [message]), *said]))
        raise InvalidInput(f"{ledger.storage.uri}: {sought}: no such message")
    rows = rows_of(ledger, found[:FOLLOWED])
    if len(found) > 1 and not _belong_together(rows, message, len(found)):
        raise SeveralMessages(f"{len(found):,} messages are meant", found)
    keys = dict.fromkeys([*found, *related(ledger, rows, FOLLOWED)])
    lives = lives_of(rows_of(ledger, [*keys][:FOLLOWED]))
    places = {
        (step.chain, step.height)
        for life in lives
        for step in life.steps
        if step.chain is not None and step.height is not None
    }
    return Traced(tuple(lives), headers_at(ledger, places), len(keys) - len(lives))


def _conditions(message: str | None, narrowed: Mapping[str, tuple[str | int, ...]]) -> list[Condition]:
    """Return the conditions of which a row of the message fulfils one. Raises ``InvalidInput``."""
    if message is None:
        if "index" not in narrowed and "sender" not in narrowed:
            raise InvalidInput("message: missing; name it, or give an index with its lane, sender or source")
        return [narrowed]
    conditions: list[Condition] = [{**narrowed, name: (message,)} for name in ("message_id", "transaction", "journey")]
    before, _, number = message.rpartition("/")
    if before and number.isascii() and number.isdecimal() and len(number) <= 20 and int(number) <= MOST_INDEX:
        conditions += [{**narrowed, name: (before,), "index": (int(number),)} for name in ("lane", "source")]
    return conditions


def _belong_together(rows: pa.Table, message: str | None, count: int) -> bool:
    """Return whether messages are of one journey, or a few of one transaction."""
    journeys = set(rows["journey"].to_pylist())
    if len(journeys) == 1 and None not in journeys:
        return True
    return count <= TOGETHER and message is not None and message in rows["transaction"].to_pylist()


__all__ = ["FOLLOWED", "MOST_INDEX", "SeveralMessages", "Traced", "trace"]
