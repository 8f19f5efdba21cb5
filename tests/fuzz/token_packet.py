"""Token transfer packets under arbitrary bytes: the decoder, and the books of a receiving program."""

from __future__ import annotations

import json
from collections.abc import Callable

from causeway.programs.bundled.tokens import Refused, TokenPacket, decode_packet, denom_prefix, token_supply
from causeway.programs.bundled.transfer import NO_BOOKS, TokenBook

ME, PEER = 3, 7

_SEEDS = [
    TokenPacket("uatom", 5, "1", "2").encode(),
    TokenPacket(denom_prefix(ME) + "gold", 2**256 - 1, "1", "2", 'memo "é" \\ \n').encode(),
    TokenPacket(denom_prefix(ME) + denom_prefix(9) + "gold", 1, "1", "66").encode(),
    b' { "receiver" : "2", "sender":"\\u0031" ,\n"denom":"u\\u0061tom","amount":"5"\t} ',
]


def token_packet(data: bytes) -> None:
    try:
        packet = decode_packet(data)
    except Refused:
        return
    assert decode_packet(packet.encode()) == packet
    members = json.loads(data)
    assert {name: members[name] for name in ("denom", "amount")} == {
        "denom": packet.denom, "amount": str(packet.amount),
    }  # fmt: skip


def token_received(data: bytes) -> None:
    """No input of a peer takes more out of our books than its escrow."""
    book = TokenBook.decode(ME, TokenBook(ME, NO_BOOKS).encode(), frozenset({66}))
    book.mint(1, "gold", 100)
    book.begin(0, 1, PEER, TokenPacket("gold", 10, "1", "5"))
    book.end(0, delivered=True)
    before = book.encode()
    try:
        book.receive(PEER, decode_packet(data))
    except Refused:
        assert book.encode() == before
    assert token_supply({ME: book.books})[ME, "gold"].total == 100
    assert book.balance(1, "gold") >= 90


TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "token_packet": (token_packet, _SEEDS),
    "token_received": (token_received, _SEEDS),
}
