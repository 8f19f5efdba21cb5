"""Transactions of relay processes, as bytes: headers and single proofs, all verified.

See IBC reference 3.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import ProofError
from causeway_proofs.ics23.proof_specs import TENDERMINT_SPEC
from causeway_proofs.ics23.verify import verify_membership, verify_non_membership
from causeway_proofs.protobuf import parse_canonical
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.core.frame import Frame
from causeway.protocols.contract import UINT8, table_schema
from causeway.protocols.ibc.calls import receipt
from causeway.protocols.ibc.calls.call import CallContext, CallRun
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import IbcError
from causeway.protocols.ibc.expiry import is_expired
from causeway.protocols.ibc.keys import QueueKey, parse_key
from causeway.protocols.ibc.packets import Packet, Receipt, decode_packet, decode_position, decode_receipt
from causeway.protocols.ibc.progress import Pair, Span
from causeway.protocols.ibc.queue_entries import ENTRIES_SCHEMA
from causeway.protocols.ibc.state import SEND, State, lanes_of

ANSWERING = ("receipt", "timeout")
"""Calls that end packets of the called zone."""


@dataclass(frozen=True)
class Transaction:
    """A transaction of ``user`` to the zone ``chain``; ``content`` is None if it is malformed."""

    chain: int
    user: int
    content: wire.Transaction | None

    def calls(self) -> Iterator[tuple[str, Any]]:
        """Yield the calls: kind and submission."""
        for call in self.content.calls if self.content is not None else ():
            kind = call.WhichOneof("call")
            if kind is not None:
                yield kind, getattr(call, kind)


def transactions(carried: pa.Table, context: Context) -> tuple[Transaction, ...]:
    """Return the transactions to zones that make a block, in order of arrival."""
    chain = context.zones.positions_of(carried["chain"].to_numpy())
    columns = chain.tolist(), carried["carrier"].to_pylist(), carried["payload"].to_pylist()
    running = set(context.chains.tolist())
    rows = zip(*columns, strict=True)
    return tuple(Transaction(zone, user, _read(payload)) for zone, user, payload in rows if zone in running)


def _read(payload: bytes) -> wire.Transaction | None:
    try:
        return parse_canonical(wire.Transaction, payload, "a transaction")
    except ProofError:
        return None


@dataclass(frozen=True)
class SingleSubmission(CallRun):
    """One call with a proof: a run of one."""

    chain: int
    counterparty: int
    submit: wire.Submit

    @property
    def pair(self) -> Pair:  # type: ignore[override]
        """Return the connection of the call."""
        return self.chain, self.counterparty

    @property
    def height(self) -> int:  # type: ignore[override]
        """Return the height of the header of the proof."""
        height: int = self.submit.height
        return height

    @cached_property
    def key(self) -> QueueKey | None:  # type: ignore[override]
        """Return the proved key, or None if it is malformed."""
        try:
            return parse_key(self.submit.key)
        except IbcError:
            return None

    @property
    def index(self) -> int:
        """Return the index in the key, 0 for a head, a tail or a malformed key."""
        return self.key.index if self.key is not None else 0

    def entries(self) -> Span:
        """Return the submitted index as a range."""
        return self.index, self.index + 1

    def count(self) -> int:
        """Return 1."""
        return 1

    def proven_until(self, first: int, stop: int, root: bytes) -> int:
        """Return ``stop`` if the proof leads to ``root``, else ``first``."""
        try:
            verify_membership(TENDERMINT_SPEC, root, self.submit.proof, self.submit.key, self.submit.value)
        except ProofError:
            return first
        return stop

    def absent_until(self, first: int, stop: int, root: bytes) -> int:
        """Return ``stop`` if the proof shows under ``root`` that the key is absent, else ``first``.

        An absence is submitted with an empty value.
        """
        if self.submit.value:
            return first
        try:
            verify_non_membership(TENDERMINT_SPEC, root, self.submit.proof, self.submit.key)
        except ProofError:
            return first
        return stop

    def is_late(self, block: CallContext) -> bool:
        """Return True if the value is a packet that has timed out at this block."""
        if self.packet is None or not self.packet.limited:
            return False
        limits, context = (self.packet.max_height, self.packet.max_time), block.context
        return bool(is_expired(*limits, context.height, context.time, context.options.expiry))

    @cached_property
    def packet(self) -> Packet | None:
        """Return the packet that the value encodes, or None."""
        try:
            return decode_packet(self.submit.value)
        except IbcError:
            return None

    @cached_property
    def receipt(self) -> Receipt | None:
        """Return the receipt that the value encodes, or None."""
        try:
            return decode_receipt(self.submit.value)
        except IbcError:
            return None

    def has_packet(self, *, limited: bool) -> bool:
        """Return True if the value is a packet; ``limited`` allows packets with limits."""
        return self.packet is not None and (limited or not self.packet.limited)

    def has_receipt(self) -> bool:
        """Return True if the value is a receipt of this network's programs."""
        if self.receipt is None:
            return False
        try:
            receipt.receipt_row(self.receipt)
        except IbcError:
            return False
        return True

    def position(self) -> int | None:
        """Return the head or tail that the value encodes, or None."""
        try:
            return decode_position(self.submit.value)
        except IbcError:
            return None


def own_packets_for(found: tuple[Transaction, ...], own: Frame, state: State, context: Context) -> Frame:
    """Return the ranges of own packets that transactions may end: lane, ``begin``, ``end``.

    ``own``: the ranges that earlier relayers may end.
    """
    before: dict[tuple[int, int], int] = {}
    for source, destination, stop in zip(
        *(own[name].tolist() for name in ("source", "destination", "end")), strict=True
    ):
        before[source, destination] = max(stop, before.get((source, destination), 0))
    named: dict[tuple[int, int], list[int]] = {}
    late: dict[tuple[int, int], int] = {}
    for transaction in found:
        for kind, submit in transaction.calls():
            if kind not in ANSWERING:
                continue
            pair = (transaction.chain, context.zones.positions.get(submit.remote, transaction.chain))
            named.setdefault(pair, []).append(SingleSubmission(*pair, submit).index)
            late[pair] = late.get(pair, 0) + (kind == "timeout")
    pairs = np.array(list(named), dtype=np.uint32).reshape(-1, 2)
    lanes = lanes_of(pairs[:, 0], pairs[:, 1], SEND)
    begins, ends = (state.queues.read_counters(name, lanes).tolist() for name in ("begin", "next_index"))
    ranges: list[tuple[int, int, int, int]] = []
    for pair, begin, end in zip(named, begins, ends, strict=True):
        if pair[0] == pair[1]:
            continue
        ranges += [(*pair, index, index + 1) for index in set(named[pair]) if begin <= index < end]
        if late[pair] and context.options.order == "ordered":
            # A timeout ends the packet at the head, which each earlier call may have advanced by one.
            stop = min(end, max(begin, before.get(pair, 0)) + len(named[pair]))
            ranges += [(*pair, begin, stop)] if stop > begin else []
    columns = np.array(sorted(ranges), dtype=np.uint64).reshape(-1, 4)
    return lanes_of(columns[:, 0], columns[:, 1], SEND).with_columns(begin=columns[:, 2], end=columns[:, 3])


def entry_frame(rows: list[dict[str, Any]]) -> Frame:
    """Convert rows of entries to columns.

    These are messages, lane, ``index``, ``sequence`` and ``forced``.

    Missing numbers and texts are 0 and empty.
    """
    columns: dict[str, Any] = {}
    for item in _ENTRY_SCHEMA:
        if pa.types.is_dictionary(item.type):
            columns[item.name] = pa.array([row.get(item.name, "") for row in rows], pa.string()).dictionary_encode()
        elif pa.types.is_binary(item.type):
            columns[item.name] = pa.array([row.get(item.name, b"") for row in rows], pa.binary())
        else:
            values = [row.get(item.name, 0) for row in rows]
            columns[item.name] = np.array(values, dtype=item.type.to_pandas_dtype())
    return Frame(columns, len(rows))


_ENTRY_SCHEMA = table_schema(*ENTRIES_SCHEMA, sequence=pa.int64(), forced=UINT8)
