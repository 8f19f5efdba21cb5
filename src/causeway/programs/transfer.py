"""Fungible token transfer between zones: escrow, mint, burn and refund, after ICS-20; one instance a zone.

Ingress methods, payloads as flat JSON objects with amounts as decimal text:

- ``mint`` {"denom", "amount"}: new units for the user, where option ``faucet`` is on.
- ``send`` {"denom", "amount", "receiver": address}: to another user on this zone.
- ``transfer`` {"denom", "amount", "receiver": address, "to": program number, "memo": optional}: to a user of another
  zone's transfer program.

The address of a user is its number in decimal. A transfer is a call ``transfer`` to the other program, whose payload is
the packet data of ICS-20 (``token_packet``); it leaves the account at once, and its outcome is final: data = delivered;
any reject, a time-out included = refunded. What users ask for in vain changes nothing and is counted by its reason in
``refused``; what a peer asks for in vain is rejected.

A program's books are one value a program, read and written once a block, however many messages the block has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, repeated_text
from causeway.model.ledger import Kind
from causeway.model.order import groups_of
from causeway.programs.flat_json import NotFlat, Value, read_object
from causeway.programs.scalar import MAX_NUMBER
from causeway.programs.token_book import NO_BOOKS, TokenBook
from causeway.programs.token_packet import (
    MAX_ADDRESS_BYTES,
    MAX_MEMO_BYTES,
    MAX_PACKET_BYTES,
    SUCCESS,
    Dialect,
    Refused,
    TokenPacket,
    amount_of,
    decode_packet,
    require_bytes,
    user_of,
)
from causeway.programs.vector import Effects, VectorProgram
from causeway.protocols.execution import REJECTED_BY_PROGRAM

METHOD = "transfer"
ORDERS: Mapping[str, Mapping[str, type[str] | type[int]]] = {
    "mint": {"denom": str, "amount": str},
    "send": {"denom": str, "amount": str, "receiver": str},
    METHOD: {"denom": str, "amount": str, "receiver": str, "to": int, "memo": str},
}
"""Ingress methods and the members of their payloads; all must be there but ``memo``."""


MAX_ORDER_BYTES = MAX_PACKET_BYTES
OPTIONS = {"faucet", "peers", "blocked_users", "dialect"}


class Transfer(VectorProgram):
    """The transfer module of a zone.

    Options: ``faucet``: whether users may mint (no, if absent); ``peers``: numbers of the programs whose packets are
    taken (all, if absent); ``blocked_users``: who may not be credited; ``dialect``: in whose bytes packets are written
    (``Dialect``).
    """

    schema: ClassVar[pa.Schema] = pa.schema(
        [
            pa.field("program", pa.uint64(), nullable=False),
            pa.field("calls", pa.uint64(), nullable=False),
            pa.field("books", pa.binary(), nullable=False),
        ]
    )
    """``calls``: how many were made, which is the next call's callback id. ``books``: canonical CBOR (``NO_BOOKS``)."""

    def initial_state(self, instances: npt.NDArray[np.uint64]) -> Frame:
        """Return empty books. Raises ``ValueError`` for an unknown option or dialect."""
        for options in self.options.values():
            unknown = sorted(set(options) - OPTIONS)
            if unknown:
                raise ValueError(f"no option {unknown[0]}; allowed: {', '.join(sorted(OPTIONS))}")
            if (dialect := options.get("dialect", Dialect.IBC_GO_10)) not in [*Dialect]:
                raise ValueError(f"dialect: {dialect!r}: must be one of {', '.join(Dialect)}")
        empty = TokenBook(0, NO_BOOKS).encode()
        books = pa.array([empty] * len(instances), pa.binary())
        return Frame(
            {"program": instances, "calls": np.zeros(len(instances), dtype=np.uint64), "books": books}, len(instances)
        )

    def handle(self, batch: Frame, state: Frame) -> Effects:
        """Carry out what users, peers and answers ask for, one after the other."""
        groups = groups_of(batch["receiver"])
        numbers = batch["receiver"][groups.starts]
        places = np.searchsorted(state["program"], numbers)
        calls, books = state["calls"].copy(), state["books"].to_pylist()
        names = ("kind", "sender", "callback", "code")
        columns = [*(batch[name].tolist() for name in names), batch["method"].to_pylist(), batch["payload"].to_pylist()]
        turns = _Turns()
        for number, place, start, count in zip(
            numbers.tolist(), places.tolist(), groups.starts.tolist(), groups.counts.tolist(), strict=True
        ):
            options = self.options.get(number, {})
            book = TokenBook.decode(number, books[place], frozenset(options.get("blocked_users", ())))
            turn = _Turn(book, options, int(calls[place]), turns)
            for row in range(start, start + count):
                turn.take(row, *(column[row] for column in columns))
            calls[place], books[place] = turn.calls, book.encode()
        return Effects(
            state.with_columns(calls=calls, books=pa.array(books, pa.binary())), turns.answers(), turns.requests()
        )


class _Turns:
    """What all instances answered and called in one block."""

    def __init__(self) -> None:
        self.answered: list[tuple[int, int, bytes]] = []
        self.called: list[tuple[int, int, bytes]] = []

    def answers(self) -> Frame:
        rows, codes, payloads = zip(*self.answered, strict=True) if self.answered else ((), (), ())
        return Frame(
            {
                "row": np.array(rows, dtype=np.int64),
                "code": np.array(codes, dtype=np.uint8),
                "payload": pa.array(payloads, pa.binary()),
            },
            len(rows),
        )

    def requests(self) -> Frame:
        rows, receivers, payloads = zip(*self.called, strict=True) if self.called else ((), (), ())
        return Frame(
            {
                "row": np.array(rows, dtype=np.int64),
                "receiver": np.array(receivers, dtype=np.uint64),
                "method": repeated_text(METHOD, len(rows)),
                "payload": pa.array(payloads, pa.binary()),
            },
            len(rows),
        )


class _Turn:
    """One instance's messages of a block. ``calls``: how many calls it has made, this block's included."""

    def __init__(self, book: TokenBook, options: Mapping[str, Any], calls: int, turns: _Turns) -> None:
        self.calls = calls
        self._book = book
        self._faucet = bool(options.get("faucet", False))
        self._dialect = Dialect(options.get("dialect", Dialect.IBC_GO_10))
        self._peers = frozenset(options["peers"]) if "peers" in options else None
        self._turns = turns

    def take(self, row: int, kind: int, sender: int, callback: int, code: int, method: str, payload: bytes) -> None:
        """Handle one message."""
        if kind == Kind.REQUEST:
            try:
                self._packet(sender, method, payload)
            except Refused as refused:
                self._turns.answered.append((row, REJECTED_BY_PROGRAM, str(refused).encode()))
            else:
                self._turns.answered.append((row, 0, SUCCESS))
        elif kind == Kind.RESPONSE:
            self._book.end(callback, delivered=code == 0)
        else:
            try:
                self._order(row, sender, method, payload)
            except Refused as refused:
                self._book.count_refusal(refused.reason)

    def _packet(self, peer: int, method: str, payload: bytes) -> None:
        if method != METHOD:
            raise Refused("UnknownMethod", "only transfers are taken")
        if self._peers is not None and peer not in self._peers:
            raise Refused("InvalidPeer", f"no channel to program {peer}")
        self._book.receive(peer, decode_packet(payload))

    def _order(self, row: int, user: int, method: str, payload: bytes) -> None:
        """Do what a user asks for."""
        order = _decode_order(method, payload)
        denom, amount = str(order["denom"]), amount_of(str(order["amount"]))
        if method == "mint":
            if not self._faucet:
                raise Refused("NoFaucet", "users may not mint here")
            self._book.mint(user, denom, amount)
        elif method == "send":
            self._book.send(user, user_of(str(order["receiver"])), denom, amount)
        else:
            receiver, memo = str(order["receiver"]), str(order.get("memo", ""))
            require_bytes("InvalidReceiver", "receiver", receiver, 1, MAX_ADDRESS_BYTES)
            require_bytes("InvalidMemo", "memo", memo, 0, MAX_MEMO_BYTES)
            packet = TokenPacket(denom, amount, str(user), receiver, memo)
            peer = int(order["to"])
            if peer > MAX_NUMBER:
                raise Refused("InvalidPeer", "not the number of a program")
            if self._peers is not None and peer not in self._peers:
                raise Refused("InvalidPeer", f"no channel to program {peer}")
            self._book.begin(self.calls, user, peer, packet)
            self._turns.called.append((row, peer, packet.encode(self._dialect)))
            self.calls += 1


def _decode_order(method: str, payload: bytes) -> dict[str, Value]:
    members = ORDERS.get(method)
    if members is None:
        raise Refused("UnknownMethod", "no such method")
    try:
        order = read_object(payload, members, most_bytes=MAX_ORDER_BYTES)
    except NotFlat as error:
        raise Refused("InvalidPayload", str(error)) from None
    if len(order) < len(members) - ("memo" in members and "memo" not in order):
        raise Refused("InvalidPayload", "a member is missing")
    return order
