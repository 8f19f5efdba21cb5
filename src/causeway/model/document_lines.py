"""On which lines of a TOML file its keys stand: what reads TOML gives values and no lines."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right

from causeway.model.document import Key

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"[ \t]*")
_BETWEEN = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_PLAIN = re.compile(r"[^,\]}\n#]*")
_STRINGS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r'"""(?:\\.|[^\\])*?"""(?:""?(?!"))?',
        r"'''.*?'''(?:''?(?!'))?",
        r'"(?:\\.|[^"\\\n])*"',
        r"'[^'\n]*'",
    )
)


def lines_of(text: str) -> dict[tuple[Key, ...], int]:
    """Return the line, from 1, of each key, table and element of a list of a TOML text that can be read as such."""
    return _Lines(text).found


class _Lines:
    """Walks over a text. ``found``: lines by the steps that lead to what stands there."""

    def __init__(self, text: str) -> None:
        self.found: dict[tuple[Key, ...], int] = {}
        self._text, self._at = text, 0
        self._starts = [0, *(place.end() for place in re.finditer("\n", text))]
        self._sizes: dict[tuple[Key, ...], int] = {}
        table: tuple[Key, ...] = ()
        while self._skip(_BETWEEN) and self._at < len(text):
            begin = self._at
            if text.startswith("[[", begin):
                table = self._header(2)
                number = self._sizes.get(table, 0)
                self._sizes[table] = number + 1
                self._note(table, begin)
                table = (*table, number)
                self._note(table, begin)
            elif text[begin] == "[":
                table = self._header(1)
                self._note(table, begin)
            else:
                self._pair(table)

    def _header(self, brackets: int) -> tuple[Key, ...]:
        self._at += brackets
        names = self._names()
        self._skip(_SPACE)
        self._at += brackets
        steps: tuple[Key, ...] = ()
        for place, name in enumerate(names):
            steps = (*steps, name)
            if steps in self._sizes and (place < len(names) - 1 or brackets == 1):
                steps = (*steps, self._sizes[steps] - 1)
        return steps

    def _pair(self, table: tuple[Key, ...]) -> None:
        begin = self._at
        steps = table
        for name in self._names():
            steps = (*steps, name)
            self._note(steps, begin)
        self._skip(_SPACE)
        self._at += 1  # the sign =
        self._value(steps)

    def _names(self) -> list[str]:
        names = []
        while True:
            self._skip(_SPACE)
            bare = _BARE.match(self._text, self._at)
            if bare is not None:
                names.append(bare[0])
                self._at = bare.end()
            else:
                begin = self._at
                self._string()
                names.append(str(tomllib.loads(f"text = {self._text[begin : self._at]}")["text"]))
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return names
            self._at += 1

    def _value(self, steps: tuple[Key, ...]) -> None:
        self._skip(_SPACE)
        first = self._text[self._at : self._at + 1]
        if first in ("[", "{"):
            end, number = "]" if first == "[" else "}", 0
            self._at += 1
            while self._skip(_BETWEEN) and not self._text.startswith(end, self._at):
                if first == "{":
                    self._pair(steps)
                else:
                    self._note((*steps, number), self._at)
                    self._value((*steps, number))
                    number += 1
                self._skip(_BETWEEN)
                if self._text.startswith(",", self._at):
                    self._at += 1
            self._at += 1
        elif not self._string():
            self._skip(_PLAIN)

    def _string(self) -> bool:
        for kind in _STRINGS:
            found = kind.match(self._text, self._at)
            if found is not None:
                self._at = found.end()
                return True
        return False

    def _skip(self, what: re.Pattern[str]) -> bool:
        found = what.match(self._text, self._at)
        self._at = self._at if found is None else found.end()
        return True

    def _note(self, steps: tuple[Key, ...], place: int) -> None:
        line = bisect_right(self._starts, place)
        for end in range(1, len(steps) + 1):  # tables on the way need no header of their own
            self.found.setdefault(steps[:end], line)


__all__ = ["lines_of"]
