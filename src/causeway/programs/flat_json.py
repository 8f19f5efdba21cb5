"""JSON objects of text and whole numbers, without nesting, as users and strangers send them: read in one pass."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

Value = str | int

# A key, and a text or an unsigned number; the groups are the key, the text's raw form, the number, what follows. The
# possessive repeats never go back, so time is linear whatever comes.
_MEMBER = re.compile(
    r"[ \t\n\r]*+"
    r'"([a-z_]++)"'
    r"[ \t\n\r]*+:[ \t\n\r]*+"
    r'(?:"([^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+)"|(0|[1-9][0-9]{0,19}+))'
    r"[ \t\n\r]*+([,}])"
)
_WHITE = " \t\n\r"


class NotFlat(ValueError):
    """Bytes that are no JSON object of the members asked for."""


def read_object(data: bytes, members: Mapping[str, type[str] | type[int]], *, most_bytes: int) -> dict[str, Value]:
    """Return the members of a JSON object of at most ``most_bytes``.

    ``members``: every member that may be there, each at most once, and whether it is text or a whole number from 0 to
    10**20 - 1. Absent ones are absent in the result. Raises ``NotFlat`` for anything else: other members, other values,
    bytes that are no UTF-8, text with half a surrogate pair, anything after the object.
    """
    if len(data) > most_bytes:
        raise NotFlat(f"{len(data)} bytes, at most {most_bytes} are allowed")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NotFlat(f"byte {error.start} is no UTF-8") from None
    place = len(text) - len(text.lstrip(_WHITE))
    if text[place : place + 1] != "{":
        raise NotFlat("this is no JSON object")
    place, more = place + 1, ","
    found: dict[str, Value] = {}
    while more == ",":
        match = _MEMBER.match(text, place)
        if match is None:
            raise NotFlat(f"no member of text or a whole number at character {place}")
        key, raw, number, more = match.groups()
        wanted = members.get(key)
        if wanted is None or key in found:
            raise NotFlat(f"{key[:32]} is {'given twice' if key in found else 'no member of this object'}")
        if (raw is None) != (wanted is int):
            raise NotFlat(f"{key} is not {'a whole number' if wanted is int else 'text'}")
        found[key] = int(number) if raw is None else _unescaped(key, raw)
        place = match.end()
    if text[place:].strip(_WHITE):
        raise NotFlat(f"something follows the object at character {place}")
    return found


def _unescaped(key: str, raw: str) -> str:
    if "\\" not in raw:
        return raw
    text: str = json.loads(f'"{raw}"')
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise NotFlat(f"{key} has half a surrogate pair")
    return text
