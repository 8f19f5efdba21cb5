"""Fungible token transfer between zones after ICS-20: escrow, mint, burn, refund.

One instance a zone.

Ingress methods, with payloads as flat JSON objects and amounts as decimal text:

- ``mint`` {"denom", "amount"}: new units for the user, if option ``faucet`` is on.
- ``send`` {"denom", "amount", "receiver": address}: to another user on this zone.
- ``transfer`` {"denom", "amount", "receiver": address, "to": program number, "memo": optional}: to a user of another
  zone's transfer program.

The address of a user is its number in decimal. A transfer is a call ``transfer`` to the other program, with ICS-20
packet data as payload (``TokenPacket``). The amount leaves the account at once, and the outcome is final: data means
delivered; any reject, including a timeout, means refunded. A refused user message changes nothing and is counted by
reason in ``refused``; a refused packet is rejected.

The books of a program are one value: balances, escrow and open transfers. They are read and written once a block,
however many messages the block has. Every operation validates first and writes last, so a refused one changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import cbor2
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import group_rows

from causeway.core.frame import Frame, repeat_text
from causeway.core.vocabulary import Kind
from causeway.programs.bundled.tokens import (
    MAX_ADDRESS_BYTES,
    MAX_AMOUNT,
    MAX_MEMO_BYTES,
    MAX_PACKET_BYTES,
    SUCCESS,
    NotFlat,
    PacketDialect,
    Refused,
    TokenPacket,
    Value,
    decode_packet,
    denom_prefix,
    parse_amount,
    parse_user,
    read_object,
    require_bytes,
    require_denom,
    split_denom,
)
from causeway.programs.scalar import MAX_NUMBER
from causeway.programs.vector import Effects, VectorProgram
from causeway.protocols.shared.execution import REJECTED_BY_PROGRAM

NO_BOOKS: dict[str, Any] = {
    "accounts": {},
    "escrow": {},
    "supply": {},
    "open": {},
    "delivered": 0,
    "refunded": 0,
    "received": 0,
    "refused": {},
}
"""The books of a new program. Zero entries are removed.

``accounts``: amount by denomination and user. ``escrow``: amount by peer and denomination. ``supply``: local supply by
denomination. ``open``: [user, peer, denomination, amount] by callback id of transfers without an outcome. ``refused``:
number of refused user messages by reason.
"""


class TokenBook:
    """The books of program ``number``: operations on a mapping as in ``NO_BOOKS``, in place."""

    def __init__(self, number: int, books: dict[str, Any], blocked: frozenset[int] = frozenset()) -> None:
        self.number = number
        self.books = books
        self._blocked = blocked
        self._accounts: dict[str, dict[int, int]] = books["accounts"]
        self._escrow: dict[int, dict[str, int]] = books["escrow"]
        self._supply: dict[str, int] = books["supply"]

    @classmethod
    def decode(cls, number: int, encoded: bytes, blocked: frozenset[int] = frozenset()) -> TokenBook:
        """Decode the books that ``encode`` returned."""
        return cls(number, cbor2.loads(encoded), blocked)

    def encode(self) -> bytes:
        """Encode the books as canonical CBOR: equal books give equal bytes."""
        return cbor2.dumps(self.books, canonical=True)

    def balance(self, user: int, denom: str) -> int:
        """Return the balance of a user in a denomination."""
        return self._accounts.get(denom, {}).get(user, 0)

    # ---- within one zone

    def mint(self, user: int, denom: str, amount: int) -> None:
        """Mint units of a local denomination for a user. Raises ``Refused``."""
        require_denom(denom)
        if split_denom(denom)[0]:
            raise Refused("InvalidDenom", "vouchers come from their channel only")
        self._require_room(denom, amount)
        self._require_creditable(user)
        self._supply[denom] = self._supply.get(denom, 0) + amount
        self._credit(user, denom, amount)

    def send(self, user: int, receiver: int, denom: str, amount: int) -> None:
        """Move units between users of this zone. Raises ``Refused``."""
        self._require_funds(user, denom, amount)
        self._require_creditable(receiver)
        self._debit(user, denom, amount)
        self._credit(receiver, denom, amount)

    # ---- between zones

    def begin(self, callback: int, user: int, peer: int, packet: TokenPacket) -> None:
        """Begin the transfer of the call ``callback`` to ``peer``: debit the user.

        A voucher from this peer is burnt; any other token goes into the escrow for the peer. Raises ``Refused``.
        """
        denom, amount = packet.denom, packet.amount
        if peer == self.number:
            raise Refused("InvalidPeer", "a transfer goes to another program")
        self._require_funds(user, denom, amount)
        self._debit(user, denom, amount)
        if denom.startswith(denom_prefix(peer)):
            _add(self._supply, denom, -amount)
        else:
            _add(self._escrow.setdefault(peer, {}), denom, amount)
        self.books["open"][callback] = [user, peer, denom, amount]

    def receive(self, peer: int, packet: TokenPacket) -> None:
        """Credit the amount of a packet from ``peer``.

        A token native to this zone, or that came through it, is released from the escrow for that peer. The escrow
        never pays more than its balance, so a peer cannot create local tokens. Any other token becomes a voucher.
        Raises ``Refused``.
        """
        if peer == self.number:
            raise Refused("InvalidPeer", "a transfer comes from another program")
        receiver, amount = parse_user(packet.receiver), packet.amount
        self._require_creditable(receiver)
        if packet.denom.startswith(denom_prefix(self.number)):
            denom = packet.denom.removeprefix(denom_prefix(self.number))
            escrowed = self._escrow.get(peer, {}).get(denom, 0)
            if amount > escrowed:
                raise Refused("InsufficientEscrow", f"{amount} asked, {escrowed} held for this peer")
            self._release(peer, denom, amount)
        else:
            denom = denom_prefix(peer) + packet.denom
            require_denom(denom)
            self._require_room(denom, amount)
            _add(self._supply, denom, amount)
        self._credit(receiver, denom, amount)
        self.books["received"] += 1

    def end(self, callback: int, *, delivered: bool) -> bool:
        """End a transfer with its outcome, and refund it if it was not delivered.

        A refund succeeds even above the supply limit and for a blocked user: the value was the user's own.

        Returns:
            True if the transfer was open; each ends once.
        """
        transfer = self.books["open"].pop(callback, None)
        if transfer is None:
            return False
        if delivered:
            self.books["delivered"] += 1
            return True
        user, peer, denom, amount = transfer
        if denom.startswith(denom_prefix(peer)):
            _add(self._supply, denom, amount)
        else:
            self._release(peer, denom, amount)
        self._credit(user, denom, amount)
        self.books["refunded"] += 1
        return True

    def count_refusal(self, reason: str) -> None:
        """Count a refused user message."""
        refused = self.books["refused"]
        refused[reason] = refused.get(reason, 0) + 1

    # ---- checks and updates

    def _require_funds(self, user: int, denom: str, amount: int) -> None:
        balance = self.balance(user, denom)
        if amount > balance:
            raise Refused("InsufficientFunds", f"{amount} asked, {balance} held")

    def _require_creditable(self, user: int) -> None:
        if user in self._blocked:
            raise Refused("BlockedReceiver", f"user {user} may not be credited")

    def _require_room(self, denom: str, amount: int) -> None:
        if self._supply.get(denom, 0) + amount > MAX_AMOUNT:
            raise Refused("SupplyOverflow", "more than 2**256 - 1 of one denomination")

    def _credit(self, user: int, denom: str, amount: int) -> None:
        _add(self._accounts.setdefault(denom, {}), user, amount)

    def _debit(self, user: int, denom: str, amount: int) -> None:
        accounts = self._accounts[denom]
        _add(accounts, user, -amount)
        if not accounts:
            del self._accounts[denom]

    def _release(self, peer: int, denom: str, amount: int) -> None:
        _add(self._escrow[peer], denom, -amount)
        if not self._escrow[peer]:
            del self._escrow[peer]


def _add(amounts: dict[Any, int], key: Any, amount: int) -> None:
    after = amounts.get(key, 0) + amount
    if after:
        amounts[key] = after
    else:
        del amounts[key]


METHOD = "transfer"
ORDERS: Mapping[str, Mapping[str, type[str] | type[int]]] = {
    "mint": {"denom": str, "amount": str},
    "send": {"denom": str, "amount": str, "receiver": str},
    METHOD: {"denom": str, "amount": str, "receiver": str, "to": int, "memo": str},
}
"""Ingress methods and the members of their payloads; all but ``memo`` are required."""


MAX_ORDER_BYTES = MAX_PACKET_BYTES
OPTIONS = {"faucet", "peers", "blocked_users", "dialect"}


class Transfer(VectorProgram):
    """The transfer module of a zone.

    Options: ``faucet``: users may mint (default: no). ``peers``: numbers of the programs whose packets are accepted
    (default: all). ``blocked_users``: users that may not be credited. ``dialect``: encoding of packets
    (``PacketDialect``).
    """

    schema: ClassVar[pa.Schema] = pa.schema(
        [
            pa.field("program", pa.uint64(), nullable=False),
            pa.field("calls", pa.uint64(), nullable=False),
            pa.field("books", pa.binary(), nullable=False),
        ]
    )
    """``calls``: number of calls made, the next callback id; ``books``: CBOR of ``NO_BOOKS``."""

    def initial_state(self, instances: npt.NDArray[np.uint64]) -> Frame:
        """Return empty books. Raises ``ValueError`` for an unknown option or dialect."""
        for options in self.options.values():
            unknown = sorted(set(options) - OPTIONS)
            if unknown:
                raise ValueError(f"no option {unknown[0]}; allowed: {', '.join(sorted(OPTIONS))}")
            if (dialect := options.get("dialect", PacketDialect.IBC_GO_10)) not in [*PacketDialect]:
                raise ValueError(f"dialect: {dialect!r}: must be one of {', '.join(PacketDialect)}")
        empty = TokenBook(0, NO_BOOKS).encode()
        books = pa.array([empty] * len(instances), pa.binary())
        return Frame(
            {"program": instances, "calls": np.zeros(len(instances), dtype=np.uint64), "books": books}, len(instances)
        )

    def handle(self, batch: Frame, state: Frame) -> Effects:
        """Process packets, outcomes and user messages in order."""
        groups = group_rows(batch["receiver"])
        numbers = batch["receiver"][groups.starts]
        places = np.searchsorted(state["program"], numbers)
        calls, books = state["calls"].copy(), state["books"].to_pylist()
        names = ("kind", "sender", "callback", "code")
        columns = [*(batch[name].tolist() for name in names), batch["method"].to_pylist(), batch["payload"].to_pylist()]
        outputs = _BlockOutputs()
        for number, place, start, count in zip(
            numbers.tolist(), places.tolist(), groups.starts.tolist(), groups.counts.tolist(), strict=True
        ):
            options = self.options.get(number, {})
            book = TokenBook.decode(number, books[place], frozenset(options.get("blocked_users", ())))
            block = _InstanceBlock(book, options, int(calls[place]), outputs)
            for row in range(start, start + count):
                block.handle_message(row, *(column[row] for column in columns))
            calls[place], books[place] = block.calls, book.encode()
        return Effects(
            state.with_columns(calls=calls, books=pa.array(books, pa.binary())), outputs.answers(), outputs.requests()
        )


class _BlockOutputs:
    """Answers and calls of all instances in a block."""

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
                "method": repeat_text(METHOD, len(rows)),
                "payload": pa.array(payloads, pa.binary()),
            },
            len(rows),
        )


class _InstanceBlock:
    """The messages of an instance in a block. ``calls``: number of calls so far."""

    def __init__(self, book: TokenBook, options: Mapping[str, Any], calls: int, outputs: _BlockOutputs) -> None:
        self.calls = calls
        self._book = book
        self._faucet = bool(options.get("faucet", False))
        self._dialect = PacketDialect(options.get("dialect", PacketDialect.IBC_GO_10))
        self._peers = frozenset(options["peers"]) if "peers" in options else None
        self._outputs = outputs

    def handle_message(
        self, row: int, kind: int, sender: int, callback: int, code: int, method: str, payload: bytes
    ) -> None:
        """Process one message."""
        if kind == Kind.REQUEST:
            try:
                self._receive_packet(sender, method, payload)
            except Refused as refused:
                self._outputs.answered.append((row, REJECTED_BY_PROGRAM, str(refused).encode()))
            else:
                self._outputs.answered.append((row, 0, SUCCESS))
        elif kind == Kind.RESPONSE:
            self._book.end(callback, delivered=code == 0)
        else:
            try:
                self._execute_order(row, sender, method, payload)
            except Refused as refused:
                self._book.count_refusal(refused.reason)

    def _receive_packet(self, peer: int, method: str, payload: bytes) -> None:
        if method != METHOD:
            raise Refused("UnknownMethod", "only transfers are taken")
        if self._peers is not None and peer not in self._peers:
            raise Refused("InvalidPeer", f"no channel to program {peer}")
        self._book.receive(peer, decode_packet(payload))

    def _execute_order(self, row: int, user: int, method: str, payload: bytes) -> None:
        """Execute a user message."""
        order = _decode_order(method, payload)
        denom, amount = str(order["denom"]), parse_amount(str(order["amount"]))
        if method == "mint":
            if not self._faucet:
                raise Refused("NoFaucet", "users may not mint here")
            self._book.mint(user, denom, amount)
        elif method == "send":
            self._book.send(user, parse_user(str(order["receiver"])), denom, amount)
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
            self._outputs.called.append((row, peer, packet.encode(self._dialect)))
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
