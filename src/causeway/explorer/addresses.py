"""Build and parse the addresses of pages.

Names are untrusted: they are encoded, and an overlong address is omitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from causeway_proofs.errors import InvalidInput
from starlette.datastructures import QueryParams

from causeway.ledger.schema import LANE
from causeway.ledger.search import MessageKey

MAX_ADDRESS = 6_000
"""Maximum characters of an address; longer ones are shown without a link."""

MAX_VALUE = 4_096
"""Maximum characters of a value in an address, equal to the bytes of a name in an ingested ledger."""

MAX_NUMBER = (1 << 64) - 1

LaneNames = Sequence[str | None]
"""Protocol, source, destination and lane; None: unknown."""


def page_address(path: str, values: Mapping[str, object] | None = None) -> str | None:
    """Return the address of a page; None if it, or a value in it, is too long.

    Args:
        path: path of the page.
        values: query parameters; None is omitted.

    Returns:
        The address, or None.
    """
    given = {name: str(value) for name, value in (values or {}).items() if value is not None}
    if any(len(value) > MAX_VALUE for value in given.values()):
        return None
    found = f"{path}?{urlencode(given)}" if given else path
    return found if len(found) <= MAX_ADDRESS else None


def lane_address(lane: LaneNames, **more: object) -> str | None:
    """Return the address of a lane's page; None for a lane without any name.

    Args:
        lane: protocol, source, destination and lane.
        more: further query parameters.

    Returns:
        The address, or None.
    """
    if not any(name is not None for name in lane[1:]):
        return None
    return page_address("/lane", {**dict(zip(LANE, lane, strict=True)), **more})


def message_values(key: MessageKey) -> dict[str, object]:
    """Return the query parameters of a message.

    Args:
        key: the key of the message.

    Returns:
        Query parameters by name.
    """
    return {**dict(zip(LANE, key.lane, strict=True)), "index": key.index, "id": key.message_id}


def message_address(key: MessageKey) -> str | None:
    """Return the address of a message's page; None for one without name and number.

    Args:
        key: the key of the message.

    Returns:
        The address, or None.
    """
    if key.index is None and key.message_id is None:
        return None
    return page_address("/message", message_values(key))


def chain_address(chain: str | None) -> str | None:
    """Return the address of the page of a chain.

    Args:
        chain: name of a chain, or None.

    Returns:
        The address, or None.
    """
    return None if chain is None else page_address("/chain", {"name": chain})


def height_address(height: int | None, chain: str | None = None) -> str | None:
    """Return the address of a height's page, of all chains or of one.

    Args:
        height: the height, or None.
        chain: only this chain; None: all.

    Returns:
        The address, or None.
    """
    return None if height is None or height > MAX_NUMBER else page_address("/height", {"n": height, "chain": chain})


class PageLinks:
    """Links from findings to pages of the explorer (``FindingLinks``)."""

    _FIGURES: Mapping[str, str] = {"messages": "/lanes", "pending": "/lanes?sort=pending", "delays": "#time"}

    def check(self, name: str) -> str | None:
        """Return the address of the findings of a check."""
        return page_address("/findings", {"check": name})

    def message(self, row: Mapping[str, Any]) -> str | None:
        """Return the address of a row's message; of a missing number its position in the lane."""
        if row.get("check") == "watermarks":
            return self.lane(row)
        if row.get("check") == "gaps":
            return lane_address(_lane_of(row), **{"from": row["index"]})
        return message_address(row_key(row))

    def lane(self, row: Mapping[str, Any]) -> str | None:
        """Return the address of a row's lane."""
        return lane_address(_lane_of(row))

    def chain(self, chain: str | None) -> str | None:
        """Return the address of a chain."""
        return chain_address(chain)

    def block(self, row: Mapping[str, Any]) -> str | None:
        """Return the address of a row's height."""
        return height_address(row["height"])

    def figure(self, name: str) -> str | None:
        """Return the address of the details of a key figure."""
        return self._FIGURES.get(name)


LINKS = PageLinks()


def row_key(row: Mapping[str, Any]) -> MessageKey:
    """Return the key of a row's message."""
    return MessageKey(_lane_of(row), row["index"], row["message_id"] if row["index"] is None else None)


def _lane_of(row: Mapping[str, Any]) -> tuple[str | None, ...]:
    return tuple(row[name] for name in LANE)


class PageRequest:
    """The query parameters of a request: known, unique and within the length limit."""

    def __init__(self, query: QueryParams, allowed: Sequence[str]) -> None:
        """Parse the parameters.

        Raises:
            InvalidInput: a parameter is unknown, repeated or too long.
        """
        self._values: dict[str, str] = {}
        for name, value in query.multi_items():
            if name not in allowed:
                raise InvalidInput(f"{name[:40]}: no such value; allowed: {', '.join(allowed) or 'none'}")
            if name in self._values:
                raise InvalidInput(f"{name}: given twice")
            if len(value) > MAX_VALUE:
                raise InvalidInput(f"{name}: {len(value):,} characters; at most {MAX_VALUE:,} are read")
            self._values[name] = value

    def text(self, name: str) -> str | None:
        """Return a value as given, or None."""
        return self._values.get(name)

    def required(self, name: str) -> str:
        """Return a value.

        Raises:
            InvalidInput: it is missing.
        """
        found = self._values.get(name)
        if found is None:
            raise InvalidInput(f"{name}: missing")
        return found

    def number(self, name: str, most: int = MAX_NUMBER) -> int | None:
        """Return a value as an integer from 0 to ``most``, or None.

        Raises:
            InvalidInput: it is not such a number.
        """
        found = self._values.get(name)
        if found is None or found == "":
            return None
        digits = found.replace(",", "")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 20 and int(digits) <= most):
            raise InvalidInput(f"{name}: {found[:40]}: must be a whole number from 0 to {most:,}")
        return int(digits)

    def word(self, name: str, allowed: Sequence[str]) -> str:
        """Return a value among some words, by default the first.

        Raises:
            InvalidInput: it is another word.
        """
        found = self._values.get(name, allowed[0])
        if found not in allowed:
            raise InvalidInput(f"{name}: {found[:40]}: must be one of {', '.join(allowed)}")
        return found

    def lane(self) -> tuple[str | None, ...]:
        """Return the lane of the request."""
        return tuple(self._values.get(name) for name in LANE)

    def message(self) -> MessageKey:
        """Return the message of the request.

        Raises:
            InvalidInput: it names none.
        """
        index, ident = self.number("index"), self._values.get("id")
        if index is None and ident is None:
            raise InvalidInput("index, id: missing; a message has one of them")
        return MessageKey(self.lane(), index, ident if index is None else None)

    def values(self) -> dict[str, str]:
        """Return all values."""
        return dict(self._values)


MESSAGE = (*LANE, "index", "id")
"""Query parameters of a message."""

__all__ = [
    "LANE",
    "LINKS",
    "MESSAGE",
    "LaneNames",
    "PageRequest",
    "chain_address",
    "height_address",
    "lane_address",
    "message_address",
    "message_values",
    "page_address",
]  # fmt: skip
