"""Primitive encodings of the Internet Computer (IC reference 2.9).

- Unsigned LEB128: seven bits a byte, lowest first, in the fewest bytes (the leaf ``time``).
- Principals as text: base32 of checksum and bytes.
- Certification versions: the encoding of the canonical state that a subnet certifies.
"""

from __future__ import annotations

import base64
import zlib
from enum import IntEnum

from causeway_proofs.ic.errors import MalformedTime
from causeway_proofs.varints import uvarint

_MAX_BYTES = 10
_LIMIT = 1 << 64


def encode_leb128(value: int) -> bytes:
    """Encode an unsigned number in LEB128."""
    if value < 0:
        raise OverflowError(f"{value} is not unsigned")
    return uvarint(value)


def decode_leb128(data: bytes) -> int:
    """Decode an unsigned 64-bit number from its complete, shortest LEB128 form.

    Raises:
        MalformedTime: ``data`` is not such an encoding.
    """
    value = 0
    for at, byte in enumerate(data[:_MAX_BYTES]):
        value |= (byte & 0x7F) << (7 * at)
    if not 1 <= len(data) <= _MAX_BYTES or value >= _LIMIT or encode_leb128(value) != data:
        raise MalformedTime(
            f"{data[: 2 * _MAX_BYTES].hex()} is not an unsigned 64-bit number in its shortest LEB128 form"
        )
    return value


MAX_PRINCIPAL_BYTES = 29
"""Longest id of a user, canister or subnet."""

ID_RULE = "must be an id as text, such as aaaaa-aa, or hexadecimal digits, at most 29 bytes"

_CHECKSUM_BYTES = 4
_GROUP = 5


def principal_to_text(principal: bytes) -> str:
    """Format a principal: base32 of CRC-32 and bytes, lower case, in groups.

    Args:
        principal: at most ``MAX_PRINCIPAL_BYTES``.

    Returns:
        The text.
    """
    checked = zlib.crc32(principal).to_bytes(_CHECKSUM_BYTES, "big") + principal
    letters = base64.b32encode(checked).decode().rstrip("=").lower()
    return "-".join(letters[start : start + _GROUP] for start in range(0, len(letters), _GROUP))


def principal_from_text(text: str) -> bytes:
    """Parse a principal's text in any case, as replicas do.

    Args:
        text: base32 of checksum and bytes, with its dashes.

    Returns:
        The principal, at most ``MAX_PRINCIPAL_BYTES``.

    Raises:
        ValueError: ``text`` is not of this form, or its checksum is wrong.
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


class CertificationVersion(IntEnum):
    """Version of the canonical state's encoding.

    The comments list each version's changes; only changes of encodings matter here.
    """

    V19 = 19  # seven kinds of reject signals
    V20 = 20  # the loopback stream is not certified
    V21 = 21  # canister_ranges
    V22 = 22  # refunds in streams
    V23 = 23  # cycles of requests and responses in fields of their own
    V24 = 24  # metadata as a subtree
    V25 = 25  # leaf with the subnet's type
    V26 = 26  # a reject signal for engines that are not allowed


CURRENT = CertificationVersion.V25
"""Version of the deployed networks."""

LOOPBACK_NOT_CERTIFIED = CertificationVersion.V20
REFUNDS = CertificationVersion.V22
CYCLES_FIELDS = CertificationVersion.V23
METADATA_SUBTREE = CertificationVersion.V24
ENGINE_SIGNALS = CertificationVersion.V26
