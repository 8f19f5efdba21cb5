"""ICS-20 token packets, denominations, and the conservation of tokens.

A payload is the JSON object FungibleTokenPacketData of ICS-20 version 1: ``denom``, ``amount`` (decimal text),
``sender``, ``receiver``, ``memo``. ``read_object`` parses such flat objects from untrusted input in one pass. Deployed
libraries encode the same packet in different bytes (``PacketDialect``), and a commitment covers the bytes that were
sent. So a decoded packet is never encoded again to compare or prove it.

A denomination is a path: ``transfer/channel-<peer>/`` for every channel that the token came through, last one first,
then the denomination at its home zone. A channel's name on a zone is the number of the program at its other end:
``transfer/channel-7/uatom`` on program 3 is a voucher for ``uatom`` that program 7 holds in escrow.

``token_supply`` verifies from the books alone that a network conserves tokens. At every height at which all zones have
made a block, whatever is in transit:

1. On each program, accounts and escrow of a denomination add up to its supply there.
2. Vouchers are covered. The escrow of program Q for program P, less P's vouchers for it, is the amount in transit
between the two: at least 0, and at most the amount of their open transfers.
3. Globally, accounts on all zones, amounts in transit and escrow for unknown programs add up to the supply at home.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import cbor2

from causeway.core.text import format_value

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
    """Bytes that are not a flat JSON object of the expected members."""


def read_object(data: bytes, members: Mapping[str, type[str] | type[int]], *, most_bytes: int) -> dict[str, Value]:
    """Parse a flat JSON object.

    Args:
        data: UTF-8 bytes of untrusted input.
        members: Allowed members and their types: text, or a whole number from 0 to 10**20 - 1.
        most_bytes: Maximum length.

    Returns:
        The members present.

    Raises:
        NotFlat: Another or a repeated member, another value, invalid UTF-8, half a surrogate pair, or trailing data.
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
        found[key] = int(number) if raw is None else _unescape(key, raw)
        place = match.end()
    if text[place:].strip(_WHITE):
        raise NotFlat(f"something follows the object at character {place}")
    return found


def _unescape(key: str, raw: str) -> str:
    if "\\" not in raw:
        return raw
    text: str = json.loads(f'"{raw}"')
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise NotFlat(f"{key} has half a surrogate pair")
    return text


MAX_AMOUNT = 2**256 - 1
MAX_DENOM_BYTES = 2_048
"""ICS-20 sets no limit; this equals the limit of an address, and fits some eighty channels."""
MAX_ADDRESS_BYTES = 2_048
MAX_MEMO_BYTES = 32_768
MAX_PACKET_BYTES = 262_144

SUCCESS = b'{"result":"AQ=="}'
"""Acknowledgement of an executed transfer in ICS-20: the byte 1 in base64."""

_HOP = re.compile(r"transfer/channel-(0|[1-9][0-9]{0,19})/")
_BASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9/:._+-]{0,127}")
_AMOUNT = re.compile(r"[1-9][0-9]{0,77}")
_ADDRESS = re.compile(r"0|[1-9][0-9]{0,19}")
_FOREIGN_HOP = re.compile(r"[^/]+/(?:\w[\w-]*-\+?[0-9]{1,20}|09-localhost)(?:/|$)", re.ASCII)
"""A hop as some releases of ibc-go, or ibc-rs (which takes a sign), parse it.

It is a port followed by the id of a channel or a client.
"""

_MEMBERS: dict[str, type[str]] = dict.fromkeys(("denom", "amount", "sender", "receiver", "memo"), str)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_GO_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
"""Characters that Go's encoding/json escapes beyond JSON; they occur within text only."""


class PacketDialect(StrEnum):
    r"""The library whose encoding a packet uses.

    Reference:
        FungibleTokenPacketData.GetBytes of ibc-go, which writes as ``IBC_GO_10`` since release 9; PacketData of ibc-rs.
        Checked with ibc-go 10.7.0 and 8.8.0 and ibc-rs 0.57.0. Go before 1.22 writes backspace and form feed as \u0008
        and \u000c, later releases and serde_json as \b and \f, as here.
    """

    IBC_GO_10 = "ibc-go-10"
    """Members in the order of ``TokenPacket``, without an empty memo, with Go's escapes."""
    IBC_GO_8 = "ibc-go-8"
    """As ``IBC_GO_10``, with members in alphabetical order."""
    IBC_RS = "ibc-rs"
    """Members in the order of ``TokenPacket``, with an empty memo, with JSON's own escapes only."""


class Refused(Exception):
    """A transfer is refused: ``reason`` is its stable name, the text gives the details."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TokenPacket:
    """A transfer of ``amount`` of ``denom``, as the sending program names it, to ``receiver``."""

    denom: str
    amount: int
    sender: str
    receiver: str
    memo: str = ""

    def encode(self, dialect: PacketDialect = PacketDialect.IBC_GO_10) -> bytes:
        """Encode the packet byte for byte as a library does.

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
        if self.memo or dialect is PacketDialect.IBC_RS:
            members["memo"] = self.memo
        if dialect is PacketDialect.IBC_GO_8:
            members = dict(sorted(members.items()))
        text = _encode(members)
        return (text if dialect is PacketDialect.IBC_RS else text.translate(_GO_ESCAPES)).encode()


def decode_packet(payload: bytes) -> TokenPacket:
    """Decode the packet of an untrusted payload.

    Members may be in any order, with any spaces and escapes; nothing else is allowed.

    Args:
        payload: UTF-8 bytes.

    Raises:
        Refused: InvalidPacket, InvalidDenom, InvalidAmount, InvalidReceiver or InvalidMemo.
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
    return TokenPacket(**{**texts, "amount": parse_amount(texts["amount"])})  # type: ignore[arg-type]


def parse_amount(text: str) -> int:
    """Parse a decimal amount from 1 to 2**256 - 1. Raises ``Refused``."""
    amount = int(text) if _AMOUNT.fullmatch(text) else 0
    if not 0 < amount <= MAX_AMOUNT:
        raise Refused("InvalidAmount", "not a whole decimal number from 1 to 2**256 - 1")
    return amount


def parse_user(address: str) -> int:
    """Parse the address of a user, its decimal number. Raises ``Refused``."""
    user = int(address) if _ADDRESS.fullmatch(address) else 2**64
    if user >= 2**64:
        raise Refused("InvalidReceiver", "not the number of a user")
    return user


def require_bytes(reason: str, name: str, text: str, least: int, most: int) -> None:
    """Raise ``Refused`` unless a text has ``least`` to ``most`` bytes in UTF-8."""
    length = len(text.encode())
    if not least <= length <= most:
        raise Refused(reason, f"{name} has {length} bytes, allowed: {least} to {most}")


def require_denom(denom: str) -> None:
    """Raise ``Refused`` (InvalidDenom) unless a denomination is bounded and unambiguous."""
    require_bytes("InvalidDenom", "denom", denom, 1, MAX_DENOM_BYTES)
    home = split_denom(denom)[1]
    if not _BASE.fullmatch(home):
        raise Refused("InvalidDenom", "the name at home is not 1 to 128 of A-Z a-z 0-9 / : . _ + -")
    # It would be a native token here and a voucher elsewhere: docs/reference/one-text-several-values.md.
    if (hop_like := _FOREIGN_HOP.match(home)) is not None:
        raise Refused(
            "InvalidDenom",
            f"the name at home begins with {format_value(hop_like[0])}, which deployed libraries read as a hop",
        )


def denom_prefix(peer: int) -> str:
    """Return the prefix of denominations that came from program ``peer``."""
    return f"transfer/channel-{peer}/"


def split_denom(denom: str) -> tuple[list[int], str]:
    """Return the programs that a token came through, last one first, and its home denomination."""
    peers, place = [], 0
    while (match := _HOP.match(denom, place)) is not None and int(match[1]) < 2**64:
        peers.append(int(match[1]))
        place = match.end()
    return peers, denom[place:]


Books = Mapping[str, Any]


class SupplyBroken(Exception):
    """Tokens were lost or created."""


@dataclass(frozen=True)
class TokenSupply:
    """The distribution of a denomination, by its program at home.

    Attributes:
        total: Supply at home.
        home: In accounts at home.
        abroad: Vouchers in accounts on other zones.
        under_way: In packets, or in receipts that will refund them.
        beyond: In escrow for programs outside the given books.
    """

    total: int
    home: int
    abroad: int
    under_way: int
    beyond: int = 0


def token_books(row: Mapping[str, Any]) -> dict[str, Any]:
    """Decode the books in a transfer program's state row (from ``Network.program_state``)."""
    books: dict[str, Any] = cbor2.loads(row["books"])
    return books


def token_supply(books: Mapping[int, Books]) -> dict[tuple[int, str], TokenSupply]:
    """Verify the books of a network and return the distribution of all tokens.

    Vouchers of a program without books are ignored: their backing is unknown.

    Args:
        books: Books of every transfer program by number.

    Returns:
        The distribution by (program at home, denomination).

    Raises:
        SupplyBroken: The books do not add up; the text names program and denomination.
    """
    home: dict[tuple[int, str], int] = defaultdict(int)
    abroad: dict[tuple[int, str], int] = defaultdict(int)
    under_way: dict[tuple[int, str], int] = defaultdict(int)
    beyond: dict[tuple[int, str], int] = defaultdict(int)
    for number, own in books.items():
        _require_balanced(number, own)
        for denom, accounts in own["accounts"].items():
            origin = _origin(number, denom, books)
            if origin is not None:
                (abroad if split_denom(denom)[0] else home)[origin] += sum(accounts.values())
    for holder, peer, denom, gap in _gaps(books):
        origin = _origin(holder, denom, books)
        if origin is not None:
            (under_way if peer in books else beyond)[origin] += gap
    found = {}
    for number, own in books.items():
        for denom, total in own["supply"].items():
            if split_denom(denom)[0]:
                continue
            key = number, denom
            found[key] = TokenSupply(total, home[key], abroad[key], under_way[key], beyond[key])
            if total != home[key] + abroad[key] + under_way[key] + beyond[key]:
                raise SupplyBroken(f"program {number}, {denom}: {found[key]} does not add up")
    return found


def _require_balanced(number: int, own: Books) -> None:
    sums: dict[str, int] = defaultdict(int)
    for denom, accounts in own["accounts"].items():
        sums[denom] += sum(accounts.values())
    for escrow in own["escrow"].values():
        for denom, amount in escrow.items():
            sums[denom] += amount
    for denom in sums.keys() | own["supply"].keys():
        if sums[denom] != own["supply"].get(denom, 0):
            stated = own["supply"].get(denom, 0)
            raise SupplyBroken(f"program {number}, {denom}: accounts and escrow {sums[denom]}, supply {stated}")


def _gaps(books: Mapping[int, Books]) -> Iterator[tuple[int, int, str, int]]:
    """Yield (holder, peer, denomination at the holder, escrow less vouchers).

    Raises ``SupplyBroken``.
    """
    open_amounts: dict[tuple[int, int, str], int] = defaultdict(int)
    pairs: set[tuple[int, int, str]] = set()
    for number, own in books.items():
        for _, peer, denom, amount in own["open"].values():
            if denom.startswith(denom_prefix(peer)):
                open_amounts[peer, number, denom.removeprefix(denom_prefix(peer))] += amount
            else:
                open_amounts[number, peer, denom] += amount
        pairs |= {(number, peer, denom) for peer, escrow in own["escrow"].items() for denom in escrow}
        for denom in own["supply"]:
            peers, _ = split_denom(denom)
            if peers and peers[0] in books:
                pairs.add((peers[0], number, denom.removeprefix(denom_prefix(peers[0]))))
    for holder, peer, denom in sorted(pairs):
        escrow = books[holder]["escrow"].get(peer, {}).get(denom, 0)
        if peer not in books:
            yield holder, peer, denom, escrow
            continue
        vouchers = books[peer]["supply"].get(denom_prefix(holder) + denom, 0)
        most = open_amounts[holder, peer, denom]
        if not 0 <= escrow - vouchers <= most:
            text = f"program {holder}, {denom}: escrow for {peer} {escrow}, vouchers there {vouchers}, open {most}"
            raise SupplyBroken(text)
        yield holder, peer, denom, escrow - vouchers


def _origin(number: int, denom: str, books: Mapping[int, Books]) -> tuple[int, str] | None:
    """Return the home program and denomination of a token on program ``number``.

    None if the books of the home program are missing.
    """
    peers, base = split_denom(denom)
    if any(peer not in books for peer in peers):
        return None
    return (peers[-1] if peers else number), base
