"""Texts that others wrote, made fit for one line of a terminal."""

from __future__ import annotations

import re

_HEAD = 16
_TAIL = 4
_LONG_HEX = re.compile(rf"[0-9a-f]{{{_HEAD + _TAIL + 4},}}")


def short(digits: str) -> str:
    """Return hexadecimal digits, the middle of long ones left out."""
    return digits if len(digits) <= _HEAD + _TAIL else f"{digits[:_HEAD]}…{digits[-_TAIL:]}"


def readable(text: str) -> str:
    """Return a text on one line: long digests shortened, nothing in it that a terminal would act on."""
    shortened = _LONG_HEX.sub(lambda found: short(found[0]), text)
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in shortened)
