"""What a server or relay process says of itself: one line an event, on standard error.

    2026-11-22T07:20:01.204Z info  relay lost direction=left>right why="http://127.0.0.1:8421/v1/status: refused"

Time (UTC), level, who, event, then members as ``name=value``. A value with anything but letters, digits and the usual
marks is written as a JSON text, cut to ``MAX_VALUE_CHARACTERS``: whatever a stranger answers stays on one line.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Protocol

from causeway_proofs.errors import InvalidInput

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
"""Names of levels, and what they are to ``logging``; ``none`` says nothing at all."""

NONE = "none"
AUTOMATIC = "auto"

MAX_VALUE_CHARACTERS = 300

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:>+,@#*")


class Journal(Protocol):
    """Takes what happened: a word, and members."""

    def debug(self, event: str, **members: Any) -> None:
        """Note what only a developer wants to know."""
        ...

    def info(self, event: str, **members: Any) -> None:
        """Note what is as it should be."""
        ...

    def warning(self, event: str, **members: Any) -> None:
        """Note what is not, and may pass."""
        ...

    def error(self, event: str, **members: Any) -> None:
        """Note what somebody must look at."""
        ...


class LineJournal:
    """A journal that writes lines to standard error as it is then. ``who``: the command; ``level``: see
    ``level_of``."""

    def __init__(self, who: str, level: int) -> None:
        self._who, self._level = who, level

    def debug(self, event: str, **members: Any) -> None:
        """Note what only a developer wants to know."""
        self._write("debug", event, members)

    def info(self, event: str, **members: Any) -> None:
        """Note what is as it should be."""
        self._write("info", event, members)

    def warning(self, event: str, **members: Any) -> None:
        """Note what is not, and may pass."""
        self._write("warning", event, members)

    def error(self, event: str, **members: Any) -> None:
        """Note what somebody must look at."""
        self._write("error", event, members)

    def _write(self, level: str, event: str, members: dict[str, Any]) -> None:
        if LEVELS[level] < self._level:
            return
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        pairs = "".join(f" {name}={format_value(value)}" for name, value in members.items())
        try:
            sys.stderr.write(f"{stamp} {level:<7} {self._who} {event}{pairs}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            self._level = logging.CRITICAL + 1  # nobody reads any more: carrying messages goes on


SILENT = LineJournal("", logging.CRITICAL + 1)
"""A journal that nobody reads."""


def parse_level(name: str, *, terminal: bool) -> int:
    """Return the least level that is written. ``terminal``: whether a person watches, who is shown progress otherwise:
    ``auto`` then leaves warnings and errors, else all but ``debug``.

    Raises:
        InvalidInput: there is no such level.
    """
    if name == NONE:
        return logging.CRITICAL + 1
    if name == AUTOMATIC:
        return logging.WARNING if terminal else logging.INFO
    if name not in LEVELS:
        raise InvalidInput(f"--log-level: {name!r}; allowed: {', '.join([AUTOMATIC, *LEVELS, NONE])}")
    return LEVELS[name]


def format_value(value: Any) -> str:
    """Return how a line shows a value."""
    text = str(value)
    if len(text) > MAX_VALUE_CHARACTERS:
        text = text[:MAX_VALUE_CHARACTERS] + "..."
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)
