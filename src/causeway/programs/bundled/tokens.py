"""JSON objects of text and whole numbers, without nesting, as users and strangers send them: read in one pass.

Packets of fungible token transfers as ICS-20 has them, and the denominations that name where a token came from.

A packet's payload is the JSON object FungibleTokenPacketData of ICS-20 version 1: ``denom``, ``amount`` (decimal, as
text), ``sender``, ``receiver``, ``memo``. Deployed libraries write one packet in different bytes (``Dialect``), and a
commitment is made over the bytes that were sent: a decoded packet is never encoded again to compare or prove it.

A denomination is a path: ``transfer/channel-<peer>/`` for every channel through which the token came, the last one
first, then the denomination that it has at home. A channel's name on a zone is the number of the program at its other
end: ``transfer/channel-7/uatom`` on program 3 is a voucher for ``uatom`` that program 7 holds in escrow.

Whether tokens are conserved over all transfer programs of a network, from their books alone.

Rules, at every height at which all zones have made a block, whatever is under way:

1. On each program, accounts and escrow of a denomination are its supply there.
2. Vouchers are covered: what program Q holds in escrow for program P, less the vouchers that P has made for it, is
   what is under way between the two: at least nothing, and at most what their open transfers are about.
3. So is the whole: accounts on all zones, what is under way and what is in escrow for strangers are together the supply
   at home.
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


class PacketDialect(StrEnum):
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

    def encode(self, dialect: PacketDialect = PacketDialect.IBC_GO_10) -> bytes:
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
        if self.memo or dialect is PacketDialect.IBC_RS:
            members["memo"] = self.memo
        if dialect is PacketDialect.IBC_GO_8:
            members = dict(sorted(members.items()))
        text = _encode(members)
        return (text if dialect is PacketDialect.IBC_RS else text.translate(_GO_ESCAPES)).encode()


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
    return TokenPacket(**{**texts, "amount": parse_amount(texts["amount"])})  # type: ignore[arg-type]


def parse_amount(text: str) -> int:
    """Return the amount that a decimal text gives: whole, above 0, below 2**256. Raises ``Refused``."""
    amount = int(text) if _AMOUNT.fullmatch(text) else 0
    if not 0 < amount <= MAX_AMOUNT:
        raise Refused("InvalidAmount", "not a whole decimal number from 1 to 2**256 - 1")
    return amount


def parse_user(address: str) -> int:
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
    home = split_denom(denom)[1]
    if not _BASE.fullmatch(home):
        raise Refused("InvalidDenom", "the name at home is not 1 to 128 of A-Z a-z 0-9 / : . _ + -")
    # It would be a native token here, and a voucher elsewhere: docs/one-text-several-values.md.
    if (hop_like := _FOREIGN_HOP.match(home)) is not None:
        raise Refused(
            "InvalidDenom",
            f"the name at home begins with {format_value(hop_like[0])}, which deployed libraries read as a hop",
        )


def denom_prefix(peer: int) -> str:
    """Return the beginning of denominations that came from program ``peer``."""
    return f"transfer/channel-{peer}/"


def split_denom(denom: str) -> tuple[list[int], str]:
    """Return the programs through which a token came, the last one first, and its denomination at home."""
    peers, place = [], 0
    while (match := _HOP.match(denom, place)) is not None and int(match[1]) < 2**64:
        peers.append(int(match[1]))
        place = match.end()
    return peers, denom[place:]


Books = Mapping[str, Any]


class SupplyBroken(Exception):
    """Tokens were lost or made."""


@dataclass(frozen=True)
class TokenSupply:
    """Where the tokens of one denomination are, by its program at home.

    ``total``: the supply at home; ``home``: in accounts at home; ``abroad``: vouchers in accounts on other zones;
    ``under_way``: in packets, or in receipts that are still to bring it back. ``beyond``: in escrow for programs whose
    books are not among those seen.
    """

    total: int
    home: int
    abroad: int
    under_way: int
    beyond: int = 0


def token_books(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the books of a transfer program from its row of state (as ``Network.program_state`` gives it)."""
    books: dict[str, Any] = cbor2.loads(row["books"])
    return books


def token_supply(books: Mapping[int, Books]) -> dict[tuple[int, str], TokenSupply]:
    """Return where all tokens are, by (program at home, denomination).

    ``books``: of every transfer program of the network, by its number. Vouchers of a program that is not among them are
    left out: nobody can say what they stand for. Raises ``SupplyBroken`` with the program and the denomination.
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
    held: dict[str, int] = defaultdict(int)
    for denom, accounts in own["accounts"].items():
        held[denom] += sum(accounts.values())
    for escrow in own["escrow"].values():
        for denom, amount in escrow.items():
            held[denom] += amount
    for denom in held.keys() | own["supply"].keys():
        if held[denom] != own["supply"].get(denom, 0):
            stated = own["supply"].get(denom, 0)
            raise SupplyBroken(f"program {number}, {denom}: accounts and escrow {held[denom]}, supply {stated}")


def _gaps(books: Mapping[int, Books]) -> Iterator[tuple[int, int, str, int]]:
    """Yield (holder, peer, denomination at the holder, escrow less vouchers); raise where it cannot be."""
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
    """Return where a token that program ``number`` keeps is at home; None when that program's books are not here."""
    peers, base = split_denom(denom)
    if any(peer not in books for peer in peers):
        return None
    return (peers[-1] if peers else number), base
