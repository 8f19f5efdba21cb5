"""Log of a server or relay process: one line an event, on standard error.

    2026-11-22T07:20:01.204Z info  relay lost direction=left>right why="http://127.0.0.1:8421/v1/status: refused"

A line has time (UTC), level, command, event, and members as ``name=value``. A value with unusual
characters is written as JSON, truncated to ``MAX_VALUE_CHARACTERS``: untrusted text stays on one line.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Protocol

from causeway_proofs.errors import InvalidInput

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
"""Levels by name, as in ``logging``; ``none`` disables the log."""

NONE = "none"
AUTOMATIC = "auto"

MAX_VALUE_CHARACTERS = 300

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:>+,@#*")


class Journal(Protocol):
    """Sink for events: a word, and members."""

    def debug(self, event: str, **members: Any) -> None:
        """Log a detail for developers."""

    def info(self, event: str, **members: Any) -> None:
        """Log normal operation."""

    def warning(self, event: str, **members: Any) -> None:
        """Log a problem that may pass."""

    def error(self, event: str, **members: Any) -> None:
        """Log a problem that needs an operator."""


class LineJournal:
    """Journal on standard error.

    Args:
        who: Name of the command.
        level: Minimum level (``parse_level``).
    """

    def __init__(self, who: str, level: int) -> None:
        self._who, self._level = who, level

    def debug(self, event: str, **members: Any) -> None:
        """Log a detail for developers."""
        self._write("debug", event, members)

    def info(self, event: str, **members: Any) -> None:
        """Log normal operation."""
        self._write("info", event, members)

    def warning(self, event: str, **members: Any) -> None:
        """Log a problem that may pass."""
        self._write("warning", event, members)

    def error(self, event: str, **members: Any) -> None:
        """Log a problem that needs an operator."""
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
            self._level = logging.CRITICAL + 1  # standard error is closed: continue without a log


SILENT = LineJournal("", logging.CRITICAL + 1)
"""Disabled journal."""


def parse_level(name: str, *, terminal: bool) -> int:
    """Parse a log level.

    Args:
        name: Name of the level; ``auto`` means warnings on a terminal, else all but ``debug``.
        terminal: True if standard error is a terminal, which shows progress instead.

    Returns:
        The minimum level.

    Raises:
        InvalidInput: There is no such level.
    """
    if name == NONE:
        return logging.CRITICAL + 1
    if name == AUTOMATIC:
        return logging.WARNING if terminal else logging.INFO
    if name not in LEVELS:
        raise InvalidInput(f"--log-level: {name!r}; allowed: {', '.join([AUTOMATIC, *LEVELS, NONE])}")
    return LEVELS[name]


def format_value(value: Any) -> str:
    """Format a value for a log line."""
    text = str(value)
    if len(text) > MAX_VALUE_CHARACTERS:
        text = text[:MAX_VALUE_CHARACTERS] + "..."
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)
