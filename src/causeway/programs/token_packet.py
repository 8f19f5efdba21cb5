"""Packets of fungible token transfers as ICS-20 has them, and the denominations that name where a token came from.

A packet's payload is the JSON object FungibleTokenPacketData of ICS-20 version 1: ``denom``, ``amount`` (decimal, as
text), ``sender``, ``receiver``, ``memo`` (left out when empty), members in alphabetical order, without spaces.

A denomination is a path: ``transfer/channel-<peer>/`` for every channel through which the token came, the last one
first, then the denomination that it has at home. A channel's name on a zone is the number of the program at its other
end: ``transfer/channel-7/uatom`` on program 3 is a voucher for ``uatom`` that program 7 holds in escrow.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from causeway.programs.flat_json import NotFlat, read_object

MAX_AMOUNT = 2**256 - 1
MAX_DENOM_BYTES = 2_048
"""ICS-20 has no limit; this is that of a receiver's address, and room for some eighty channels."""
MAX_ADDRESS_BYTES = 2_048
MAX_MEMO_BYTES = 32_768
MAX_PACKET_BYTES = 262_144

SUCCESS = b'{"result":"AQ=="}'
"""What a transfer that was carried out is answered with: the acknowledgement of ICS-20, the byte 1 in base64."""

_HOP = re.compile(r"transfer/channel-(0|[1-9][0-9]{0,19})/")
_BASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9/:._+-]{0,127}")
_AMOUNT = re.compile(r"[1-9][0-9]{0,77}")
_ADDRESS = re.compile(r"0|[1-9][0-9]{0,19}")
_MEMBERS: dict[str, type[str]] = dict.fromkeys(("denom", "amount", "sender", "receiver", "memo"), str)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


class Refused(Exception):
    """A transfer that is not carried out: ``reason`` is its name, the text says what was wrong."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TokenPacket:
    """What a packet says: ``amount`` of ``denom``, as the sending program names it, goes to ``receiver``."""

    denom: str
    amount: int
    sender: str
    receiver: str
    memo: str = ""

    def encode(self) -> bytes:
        """Return the packet's payload."""
        members = {
            "denom": self.denom,
            "amount": str(self.amount),
            "sender": self.sender,
            "receiver": self.receiver,
        }
        return _encode(members | {"memo": self.memo} if self.memo else members).encode()


def decode_packet(payload: bytes) -> TokenPacket:
    """Return the packet of a payload that a stranger sent.

    The order of members, spaces between them and escapes in text may be any; nothing else may be there. Raises
    ``Refused`` (InvalidPacket, InvalidDenom, InvalidAmount, InvalidReceiver, InvalidMemo).
    """
    try:
        found = read_object(payload, _MEMBERS, most_bytes=MAX_PACKET_BYTES)
    except NotFlat as error:
        raise Refused("InvalidPacket", str(error)) from None
    texts = {name: str(value) for name, value in found.items()}
    for name in ("denom", "amount", "sender", "receiver"):
        if name not in texts:
            raise Refused("InvalidPacket", f"{name} is missing")
    require_bytes("InvalidPacket", "sender", texts["sender"], 1, MAX_ADDRESS_BYTES)
    require_bytes("InvalidReceiver", "receiver", texts["receiver"], 1, MAX_ADDRESS_BYTES)
    require_bytes("InvalidMemo", "memo", texts.get("memo", ""), 0, MAX_MEMO_BYTES)
    require_denom(texts["denom"])
    return TokenPacket(**{**texts, "amount": amount_of(texts["amount"])})  # type: ignore[arg-type]


def amount_of(text: str) -> int:
    """Return the amount that a decimal text gives: whole, above 0, below 2**256. Raises ``Refused``."""
    amount = int(text) if _AMOUNT.fullmatch(text) else 0
    if not 0 < amount <= MAX_AMOUNT:
        raise Refused("InvalidAmount", "not a whole decimal number from 1 to 2**256 - 1")
    return amount


def user_of(address: str) -> int:
    """Return the number of the user whose address this is: its decimal form. Raises ``Refused``."""
    user = int(address) if _ADDRESS.fullmatch(address) else 2**64
    if user >= 2**64:
        raise Refused("InvalidReceiver", "not the number of a user")
    return user


def require_bytes(reason: str, name: str, text: str, least: int, most: int) -> None:
    """Raise ``Refused`` unless ``text`` has ``least`` to ``most`` bytes in UTF-8."""
    length = len(text.encode())
    if not least <= length <= most:
        raise Refused(reason, f"{name} has {length} bytes, allowed: {least} to {most}")


def require_denom(denom: str) -> None:
    """Raise ``Refused`` (InvalidDenom) unless ``denom`` is a denomination of bounded length."""
    require_bytes("InvalidDenom", "denom", denom, 1, MAX_DENOM_BYTES)
    if not _BASE.fullmatch(trace_of(denom)[1]):
        raise Refused("InvalidDenom", "the name at home is not 1 to 128 of A-Z a-z 0-9 / : . _ + -")


def hop(peer: int) -> str:
    """Return the beginning of denominations that came from program ``peer``."""
    return f"transfer/channel-{peer}/"


def trace_of(denom: str) -> tuple[list[int], str]:
    """Return the programs through which a token came, the last one first, and its denomination at home."""
    peers, place = [], 0
    while (match := _HOP.match(denom, place)) is not None and int(match[1]) < 2**64:
        peers.append(int(match[1]))
        place = match.end()
    return peers, denom[place:]
