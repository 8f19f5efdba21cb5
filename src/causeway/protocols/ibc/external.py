"""Transactions of relayers from outside: processes of their own that carry headers and single proofs (IBC reference
3.1, 3.3, 3.4, X-1, X-2).

A transaction is a message from a user to ``RELAY_PORT``; its calls run one after the other behind those of the relayers
in the block, each with the reference's checks in its order. Nothing is believed but what is proved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.frame import Frame, from_table
from causeway.model.ledger import Kind
from causeway.proofs.errors import ProofError
from causeway.proofs.ics23.proof_specs import TENDERMINT_SPEC
from causeway.proofs.ics23.verify import verify_membership
from causeway.proofs.protobuf import parse_canonical
from causeway.proofs.wire import ibc_queue_pb2 as wire
from causeway.protocols.ibc.client import Clients, height_in
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.envelope import decode_answer, decode_call, without_result
from causeway.protocols.ibc.errors import IbcError, Refusal
from causeway.protocols.ibc.fees import Fees
from causeway.protocols.ibc.inputs import Code, is_expired
from causeway.protocols.ibc.judge import Judging
from causeway.protocols.ibc.keys import MAX_INDEX, Key, Part, Purpose, parse_key
from causeway.protocols.ibc.options import DISCONNECT_TYPE
from causeway.protocols.ibc.pushing import ENTRIES_SCHEMA
from causeway.protocols.ibc.seen import Call
from causeway.protocols.ibc.state import RECEIPT, SEND, State, lane_positions
from causeway.protocols.ibc.values import decode_packet, decode_position, decode_receipt

RELAY_PORT = 2**64 - 1
"""The receiver of transactions; no program has this number."""

OUTSIDER = 2**31
"""Relayers from outside have this added to their user's number in the fee accounts, so that they are no scenario's."""

LARGEST_CODE = 255
"""A receipt's code above this, or below 0, reaches a program as this."""


def relayed(ingress: pa.Table, context: Context) -> Any:
    """Return which messages from users are transactions of relayers that a zone takes: one that makes a block now."""
    running = pa.array(context.zones.numbers[context.chains], pa.uint64())
    to_port = pc.equal(ingress["receiver"], pa.scalar(RELAY_PORT, pa.uint64()))
    return pc.and_(to_port, pc.is_in(ingress["chain"], running))


def transactions(ingress: pa.Table, context: Context) -> Iterator[tuple[int, int, wire.Transaction | None]]:
    """Yield (zone, user, transaction) of each transaction in the order of the payload, None for an unreadable one."""
    rows = from_table(ingress.filter(relayed(ingress, context)).select(["chain", "sender", "payload"]))
    numbers = {int(number): position for position, number in enumerate(context.zones.numbers)}
    columns = rows["chain"].tolist(), rows["sender"].tolist(), rows["payload"].to_pylist()
    for chain, user, payload in zip(*columns, strict=True):
        try:
            yield numbers[chain], user, parse_canonical(wire.Transaction, payload, "a transaction")
        except ProofError:
            yield numbers[chain], user, None


def recalled_for(ingress: pa.Table, recalled: Frame, state: State, context: Context) -> Frame:
    """Return the ranges of our own packets that transactions in ``ingress`` may end (``Plan.recalled``).

    ``recalled``: those that the relayers before them may end.
    """
    before: dict[tuple[int, int], int] = {}
    for *pair, stop in zip(*(recalled[name].tolist() for name in ("chain", "remote", "end")), strict=True):
        before[pair[0], pair[1]] = max(stop, before.get((pair[0], pair[1]), 0))
    named: dict[tuple[int, int], list[int]] = {}
    late: dict[tuple[int, int], int] = {}
    for chain, _, transaction in transactions(ingress, context):
        for call in transaction.calls if transaction is not None else ():
            kind = call.WhichOneof("call")
            if kind not in ("receipt", "timeout"):
                continue
            submit = getattr(call, kind)
            lane = (chain, context.zones.positions.get(submit.remote, chain))
            named.setdefault(lane, []).append(_index_in(submit.key))
            late[lane] = late.get(lane, 0) + (kind == "timeout")
    pairs = np.array(list(named), dtype=np.uint32).reshape(-1, 2)
    rows = lane_positions(state.queues, pairs[:, 0], pairs[:, 1], SEND)
    begins, ends = state.queues["begin"][rows], state.queues["next_index"][rows]
    found: list[tuple[int, int, int, int]] = []
    for lane, row, begin, end in zip(named, rows.tolist(), begins.tolist(), ends.tolist(), strict=True):
        if row < 0 or lane[0] == lane[1]:
            continue
        found += [(*lane, index, index + 1) for index in set(named[lane]) if begin <= index < end]
        if late[lane]:
            # A time-out ends the packet that is then at the head: each call before it may have moved it on by one.
            stop = min(end, max(begin, before.get(lane, 0)) + len(named[lane]))
            found += [(*lane, begin, stop)] if stop > begin else []
    places = np.array(sorted(found), dtype=np.uint64).reshape(-1, 4)
    columns = {"chain": places[:, 0].astype(np.uint32), "remote": places[:, 1].astype(np.uint32)}
    lanes = Frame({**columns, "substream": np.full(len(places), SEND, dtype=np.uint64)}, len(places))
    return lanes.with_columns(begin=places[:, 2], end=places[:, 3])


def _index_in(key: bytes) -> int:
    """Return the index that a key names, 0 for a head, a tail, and what is no key."""
    try:
        return parse_key(key).index
    except IbcError:
        return 0


def _known(remote: int, chain: int) -> int:
    """Return the zone that a refusal is about: the one that a call named, ours where there is none of that name."""
    return remote if remote >= 0 else chain


class _Refused(Exception):
    """Carries the refusal of one call."""

    def __init__(self, why: Refusal) -> None:
        super().__init__(why.name)
        self.why = why


@dataclass
class Outsiders:
    """The transactions of a block, call by call, on what the relayers before them left.

    ``entries``: accepted packets and receipts as message columns; ``ranges``: packets that timed out and receipt queues
    that were cleaned, as (chain, remote, call, begin, end, sequence); ``refused``: what is not, as (chain, remote,
    substream, index, why).
    """

    clients: Clients
    judging: Judging
    fees: Fees
    context: Context
    sequence: int
    entries: list[dict[str, Any]] = field(default_factory=list)
    ranges: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    refused: list[tuple[int, int, int, int, Refusal]] = field(default_factory=list)

    def run(self, chain: int, user: int, transaction: wire.Transaction) -> None:
        """Run the calls of one transaction; one that is refused does not stop those behind it."""
        relayer = OUTSIDER + user % OUTSIDER
        for call in transaction.calls:
            kind = call.WhichOneof("call")
            if kind is None:
                continue
            submit = getattr(call, kind)
            remote = self.context.zones.positions.get(submit.remote, -1)
            if kind == "update":
                self._update(chain, remote, relayer, submit.header)
                continue
            substream = SEND if kind in ("receive", "cleanup") else RECEIPT
            why = Refusal.ACCEPTED
            try:
                if remote < 0:
                    raise _Refused(Refusal.UnregisteredSender)
                getattr(self, f"_{kind}")((chain, remote), submit)
            except _Refused as refused:
                why = refused.why
            except IbcError as error:
                why = error.refusal
            self.fees.message(chain, relayer, why)
            if why != Refusal.ACCEPTED:
                self.refused.append((chain, _known(remote, chain), substream, _index_in(submit.key), why))

    def _update(self, chain: int, remote: int, relayer: int, header: bytes) -> None:
        why, height = Refusal.UnregisteredSender, 0
        if remote >= 0:
            try:
                height = height_in(header)
                why = self.clients.update(chain, remote, header)
            except ProofError:
                why = Refusal.InvalidHeader
        self.fees.header(chain, relayer, why)
        if why not in (Refusal.ACCEPTED, Refusal.NoOp):
            self.refused.append((chain, _known(remote, chain), RECEIPT, height, why))

    def _open(self, lane: tuple[int, int], submit: wire.Submit, purpose: Purpose, otherwise: Refusal) -> Key:
        """Return the parsed key, after checks 1 to 3 of every call with a proof."""
        why = self.judging.connection_refused(lane)
        if why is not None:
            raise _Refused(why)
        key = parse_key(submit.key)
        if key.purpose != purpose:
            raise _Refused(otherwise)
        if key.remote != self.context.zones.names[lane[0]]:
            raise _Refused(Refusal.WrongChain)
        return key

    def _prove(self, lane: tuple[int, int], submit: wire.Submit) -> None:
        root = self.clients.root(*lane, submit.height)
        if root is None:
            raise _Refused(Refusal.MissingHeader)
        try:
            verify_membership(TENDERMINT_SPEC, root, submit.proof, submit.key, submit.value)
        except ProofError:
            raise _Refused(Refusal.InvalidProof) from None

    def _in_turn(self, lane: tuple[int, int], call: Call, index: int) -> None:
        why = self.judging.in_order(lane, call, index, index + 1)[0][2]
        if why != Refusal.ACCEPTED:
            raise _Refused(why)

    def _receive(self, lane: tuple[int, int], submit: wire.Submit) -> None:
        key = self._open(lane, submit, Purpose.SEND, Refusal.MustBeSend)
        if key.part != Part.INDEX:
            raise _Refused(Refusal.OnlyMessageProofs)
        if key.index >= MAX_INDEX:  # a zone that no kernel runs may have written it; no receipt could have its index
            raise _Refused(Refusal.OutOfOrder)
        self._in_turn(lane, Call.RECEIVE, key.index)
        self._prove(lane, submit)
        packet = decode_packet(submit.value)
        if packet.limited and self.context.options.timeouts == "off":
            raise _Refused(Refusal.InvalidPacket)
        forced, message, final = Code.SUCCESS, _nothing(), packet.type == DISCONNECT_TYPE
        try:
            message |= {} if final else decode_call(packet.data)
        except IbcError:
            forced = Code.MALFORMED
        types = self.context.zones.types
        if packet.type not in types and not final:
            forced = Code.UNKNOWN_TYPE
        elif not final and packet.type != (message["method"] if message["method"] in types[1:] else types[0]):
            forced = Code.MALFORMED
        limits = np.uint64(packet.max_height), np.uint64(packet.max_time)
        now = np.uint64(self.context.height), np.uint64(self.context.time)
        if packet.limited and bool(is_expired(*limits, *now, self.context)):
            forced = Code.TIMEOUT
        self.judging.accept(-1, lane, Call.RECEIVE, key.index, key.index + 1)
        kind = Kind.CONTROL if final else Kind.REQUEST
        self._entry(lane, SEND, key.index, {**message, "kind": kind, "forced": forced})

    def _receipt(self, lane: tuple[int, int], submit: wire.Submit) -> None:
        key = self._open(lane, submit, Purpose.RECEIPT, Refusal.MustBeReceipt)
        self._prove(lane, submit)
        if key.part != Part.INDEX:
            raise _Refused(Refusal.OnlyMessageProofs)
        self._in_turn(lane, Call.RECEIPT, key.index)
        receipt = decode_receipt(submit.value)
        code = receipt.code if 0 <= receipt.code <= LARGEST_CODE else LARGEST_CODE
        # The receipt of a final packet is empty, too, and nothing comes back with it.
        empty = without_result(code) or not receipt.result
        high, low, payload = (0, 0, b"") if empty else decode_answer(receipt.result)
        answer = {"code": code, "amount_high": high, "amount_low": low, "payload": payload, "kind": Kind.RESPONSE}
        self.judging.accept(-1, lane, Call.RECEIPT, key.index, key.index + 1)
        self._entry(lane, RECEIPT, key.index, _nothing() | answer)

    def _timeout(self, lane: tuple[int, int], submit: wire.Submit) -> None:
        key = self._open(lane, submit, Purpose.RECEIPT, Refusal.MustBeReceipt)
        self._prove(lane, submit)
        if key.part != Part.TAIL:
            raise _Refused(Refusal.NotATailProof)
        head = self.judging.expected(lane, Call.RECEIPT)
        if decode_position(submit.value) > head:
            raise _Refused(Refusal.ReceiptExists)
        if self.judging.expired(*lane, submit.height) <= head:
            raise _Refused(Refusal.TimeoutNotReached)
        self.judging.accept(-1, lane, Call.RECEIPT, head, head + 1)
        self._range(lane, Call.TIMEOUT, head, head + 1)

    def _cleanup(self, lane: tuple[int, int], submit: wire.Submit) -> None:
        key = self._open(lane, submit, Purpose.SEND, Refusal.MustBeSendQueue)
        if key.part != Part.HEAD:
            raise _Refused(Refusal.NotAHeadProof)
        self._prove(lane, submit)
        own, head = self.judging.cleaned(lane), decode_position(submit.value)
        if head <= own:
            raise _Refused(Refusal.CleanupBackwards)
        if head > MAX_INDEX:
            raise _Refused(Refusal.InvalidPacket)
        self.judging.clean(-1, lane, own, head)
        self._range(lane, Call.CLEANUP, own, head)

    def _entry(self, lane: tuple[int, int], substream: int, index: int, message: dict[str, Any]) -> None:
        place = {"chain": lane[0], "remote": lane[1], "substream": substream, "index": index}
        sent = {"sent_tick": self.context.tick, "sent_height": self.context.height, "queue_index": index}
        self.entries.append({**message, **place, **sent, "sequence": self.sequence})
        self.sequence += 1

    def entry_rows(self) -> Frame:
        """Return the accepted entries as message columns with their lane, ``forced`` and ``sequence``."""
        columns: dict[str, Any] = {
            item.name: _column([entry[item.name] for entry in self.entries], item.type) for item in _ENTRY_SCHEMA
        }
        return Frame(columns, len(self.entries))

    def range_rows(self, call: Call) -> Frame:
        """Return the ranges of a kind of call: lane, ``call``, ``begin``, ``end``, ``sequence``."""
        rows = np.array([row for row in self.ranges if row[2] == call], dtype=np.int64).reshape(-1, 6)
        substream = RECEIPT if call == Call.TIMEOUT else SEND
        return Frame(
            {
                "chain": rows[:, 0].astype(np.uint32),
                "remote": rows[:, 1].astype(np.uint32),
                "substream": np.full(len(rows), substream, dtype=np.uint64),
                "call": rows[:, 2].astype(np.uint8),
                "begin": rows[:, 3].astype(np.uint64),
                "end": rows[:, 4].astype(np.uint64),
                "sequence": rows[:, 5],
            },
            len(rows),
        )

    def _range(self, lane: tuple[int, int], call: Call, begin: int, end: int) -> None:
        self.ranges.append((*lane, call, begin, end, self.sequence))
        self.sequence += 1


_ENTRY_SCHEMA = pa.schema(
    [
        *ENTRIES_SCHEMA,
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("forced", pa.uint8(), nullable=False),
    ]
)


def _column(values: list[Any], kind: pa.DataType) -> Any:
    """Return values as a frame's column of an Arrow type."""
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind) if pa.types.is_binary(kind) else np.array(values, dtype=kind.to_pandas_dtype())


def _nothing() -> dict[str, Any]:
    """Return the columns of a message that says nothing."""
    numbers = ("sender", "receiver", "callback", "amount_high", "amount_low", "code", "deadline", "forced")
    return {**dict.fromkeys(numbers, 0), "method": "", "payload": b""}
