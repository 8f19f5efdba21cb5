"""SCALE by whole columns, beside one value at a time: messages, channels, envelopes, receipts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.substrate.scale_columns import ScaleColumns
from causeway_proofs.xdm.columns import CHANNELS, ENVELOPES, MESSAGES, RECEIPTS
from causeway_proofs.xdm.envelope import ConsensusChainMmrProof, CrossDomainMessage, EnvelopeProof, ExecutionReceipt
from causeway_proofs.xdm.messages import (
    ChainId,
    CollectedFee,
    EndpointRequest,
    EndpointResponse,
    Message,
    ProtocolResponse,
    WeightTag,
)

from benchmarks.proofs.timing import OURS, Row, compared, require_same, timed
from benchmarks.proofs.workload import ONE_BY_ONE, random_rows
from tests.oracles.xdm.channels import Channel

BY_ONE = "one by one"

MOST_VALUES = 200_000
MOST_LARGE_VALUES = 20_000
"""Envelopes and receipts that are measured: of some 1,500 and 700 bytes each."""

NODES, NODE_BYTES = 4, 300
"""Nodes of the proof in an envelope, and their bytes."""

BUNDLES, TRACE = 4, 8
"""Bundles and steps of the trace in a receipt."""


@dataclass(frozen=True)
class _Kind:
    """A type: its columns, its values, and how one of them is read."""

    name: str
    columns: ScaleColumns
    most: int
    value: Callable[[int], Any]
    decode: Callable[[bytes], Any]


def measure(size: int, repeats: int, node: str | None) -> list[Row]:
    """Measure ``size`` values of each type, or as many as the type is given at most."""
    kinds = (
        _Kind("messages", MESSAGES, MOST_VALUES, _message, Message.decode),
        _Kind("channels", CHANNELS[1, 32], MOST_VALUES, _channel, Channel.decode),
        _Kind("envelopes", ENVELOPES, MOST_LARGE_VALUES, _envelope, CrossDomainMessage.decode),
        _Kind("execution receipts", RECEIPTS, MOST_LARGE_VALUES, _receipt, ExecutionReceipt.decode),
    )
    return [row for kind in kinds for row in _measure(kind, min(size, kind.most), repeats)]


def _measure(kind: _Kind, size: int, repeats: int) -> list[Row]:
    values = [kind.value(number) for number in range(min(size, ONE_BY_ONE))]
    plain = [value.encode() for value in values]
    encodings = pa.array(plain, pa.large_binary()).take(pa.array(np.arange(size) % len(plain)))
    columns = kind.columns.decode(encodings).require_all()
    require_same(kind.columns.encode(columns).equals(encodings), True, kind.name)
    what = f"{kind.name} of {sum(map(len, plain)) // len(plain)} bytes"

    def encode_each() -> None:
        for value in values:
            value.encode()

    def decode_each() -> None:
        for data in plain:
            kind.decode(data)

    encode = {OURS: (timed(lambda: kind.columns.encode(columns)), size), BY_ONE: (timed(encode_each), len(plain))}
    decode = {
        OURS: (timed(lambda: kind.columns.decode(encodings).require_all()), size),
        BY_ONE: (timed(decode_each), len(plain)),
    }
    return [
        compared("encode", what, kind.name, encode, repeats),
        compared("decode", what, kind.name, decode, repeats),
    ]


def _message(number: int) -> Message:
    """Return a message: in ten, six requests, three answers of an endpoint and one of the protocol."""
    chains, channel = (ChainId(number % 7), ChainId()), number % 5
    data = random_rows(1, 64, number).tobytes()
    if number % 10 < 6:
        request = EndpointRequest(number, 2, data, CollectedFee(10**18 + number, 10**17))
        return Message(*chains, channel, number, request, number // 2)
    payload = EndpointResponse(data) if number % 10 < 9 else ProtocolResponse()
    return Message(*chains, channel, number, payload)


def _channel(number: int) -> Channel:
    return Channel(number, "Open", number, number + 1, number // 2 or None, 100, None, bytes(32), 10**18)


def _envelope(number: int) -> CrossDomainMessage:
    nodes = sorted(row.tobytes() for row in random_rows(NODES, NODE_BYTES, number))
    items = tuple(row.tobytes() for row in random_rows(8, 32, number))
    mmr = ConsensusChainMmrProof(number, items[0], bytes(101), (number,), 2 * number + 1, items)
    return CrossDomainMessage(
        ChainId(), ChainId(number), 0, number, EnvelopeProof(mmr, tuple(nodes)), WeightTag("EndpointRequest", number)
    )


def _receipt(number: int) -> ExecutionReceipt:
    digests = [row.tobytes() for row in random_rows(TRACE, 32, number)]
    amounts = [{"chain_id": {"Domain": domain}, "amount": 10**18 + domain} for domain in range(3)]
    fields = ExecutionReceipt.decode(bytes(256)).fields
    bundle = {"bundle": {"Valid": digests[0]}, "extrinsics_root": digests[1]}
    fields |= {"domain_block_number": number, "execution_trace": digests, "inboxed_bundles": [bundle] * BUNDLES}
    fields["transfers"] |= {"transfers_in": amounts, "transfers_out": amounts}
    return ExecutionReceipt(number, bytes(32), 0, bytes(32), bytes(32), fields)
