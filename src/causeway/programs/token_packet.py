"""Packets of fungible token transfers as ICS-20 has them, and the denominations that name where a token came from.

A packet's payload is the JSON object FungibleTokenPacketData of ICS-20 version 1: ``denom``, ``amount`` (decimal, as
text), ``sender``, ``receiver``, ``memo``. Deployed libraries write one packet in different bytes (``Dialect``), and a
commitment is made over the bytes that were sent: a decoded packet is never encoded again to compare or prove it.

A denomination is a path: ``transfer/channel-<peer>/`` for every channel through which the token came, the last one
first, then the denomination that it has at home. A channel's name on a zone is the number of the program at its other
end: ``transfer/channel-7/uatom`` on program 3 is a voucher for ``uatom`` that program 7 holds in escrow.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from causeway.model.text import shown
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
_FOREIGN_HOP = re.compile(r"[^/]+/(?:\w[\w-]*-\+?[0-9]{1,20}|09-localhost)(?:/|$)", re.ASCII)
"""What ibc-go in some release, or ibc-rs (which takes a sign), reads as a hop: a port, then the id of a channel or of a
client."""

_MEMBERS: dict[str, type[str]] = dict.fromkeys(("denom", "amount", "sender", "receiver", "memo"), str)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_GO_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
"""Characters that Go's encoding/json escapes, and JSON need not; in JSON they occur within texts only."""


class Dialect(StrEnum):
    """The library whose bytes a packet is written in.

    Reference:
        FungibleTokenPacketData.GetBytes of ibc-go, which writes as ``IBC_GO_10`` since release 9; PacketData of ibc-rs.
        Checked with ibc-go 10.7.0 and 8.8.0 and ibc-rs 0.57.0. Go before 1.22 writes backspace and form feed as
        \\u0008 and \\u000c, later releases and serde_json as \\b and \\f, as is done here.
    """

    IBC_GO_10 = "ibc-go-10"
    """Members in the order of ``TokenPacket``, an empty memo left out, Go's escapes."""
    IBC_GO_8 = "ibc-go-8"
    """As ``IBC_GO_10``, but members in alphabetical order."""
    IBC_RS = "ibc-rs"
    """Members in the order of ``TokenPacket``, an empty memo written, no escapes beyond those of JSON."""


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

    def encode(self, dialect: Dialect = Dialect.IBC_GO_10) -> bytes:
        """Return the packet's payload, byte for byte as a library writes it.

        Args:
            dialect: The library.

        Returns:
            UTF-8 without spaces between members.
        """
        members = {
            "denom": self.denom,
            "amount": str(self.amount),
            "sender": self.sender,
            "receiver": self.receiver,
        }
        if self.memo or dialect is Dialect.IBC_RS:
            members["memo"] = self.memo
        if dialect is Dialect.IBC_GO_8:
            members = dict(sorted(members.items()))
        text = _encode(members)
        return (text if dialect is Dialect.IBC_RS else text.translate(_GO_ESCAPES)).encode()


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
    """Raise ``Refused`` (InvalidDenom) unless ``denom`` is a denomination of bounded length with one reading."""
    require_bytes("InvalidDenom", "denom", denom, 1, MAX_DENOM_BYTES)
    home = trace_of(denom)[1]
    if not _BASE.fullmatch(home):
        raise Refused("InvalidDenom", "the name at home is not 1 to 128 of A-Z a-z 0-9 / : . _ + -")
    # It would be a native token here, and a voucher elsewhere: docs/one-text-several-values.md.
    if (hop_like := _FOREIGN_HOP.match(home)) is not None:
        raise Refused(
            "InvalidDenom", f"the name at home begins with {shown(hop_like[0])}, which deployed libraries read as a hop"
        )


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
