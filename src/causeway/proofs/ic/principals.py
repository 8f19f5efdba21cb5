"""Principals, the ids of the Internet Computer, as text (IC reference 2.9): base32 of checksum and bytes."""

from __future__ import annotations

import base64
import zlib

MAX_PRINCIPAL_BYTES = 29
"""Longest id of a user, canister or subnet."""

ID_RULE = "must be an id as text, such as aaaaa-aa, or hexadecimal digits, at most 29 bytes"

_CHECKSUM_BYTES = 4
_GROUP = 5


def principal_to_text(principal: bytes) -> str:
    """Return the text of a principal: base32 of its CRC-32 and its bytes, lower case, groups joined by dashes."""
    checked = zlib.crc32(principal).to_bytes(_CHECKSUM_BYTES, "big") + principal
    letters = base64.b32encode(checked).decode().rstrip("=").lower()
    return "-".join(letters[start : start + _GROUP] for start in range(0, len(letters), _GROUP))


def principal_from_text(text: str) -> bytes:
    """Return the principal of its text, in any case, as replicas read it.

    Args:
        text: Base32 of checksum and bytes, with its dashes.

    Returns:
        Its bytes, at most ``MAX_PRINCIPAL_BYTES``.

    Raises:
        ValueError: it is no such text, or its checksum is another.
    """
    letters = text.replace("-", "").upper()
    try:
        checked = base64.b32decode(letters + "=" * (-len(letters) % 8))
    except ValueError:
        raise ValueError(ID_RULE) from None
    principal = checked[_CHECKSUM_BYTES:]
    if len(principal) > MAX_PRINCIPAL_BYTES or principal_to_text(principal) != text.lower():
        raise ValueError("is no id: its checksum, its dashes or its letters are not those of one")
    return principal
