"""SCALE columns under arbitrary bytes: each row has the verdict of a single decoding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
from causeway_proofs.errors import ProofError
from causeway_proofs.substrate.scale_columns import ScaleColumns
from causeway_proofs.xdm.columns import CHANNELS, ENVELOPES, LEAVES, MESSAGES, RECEIPTS
from causeway_proofs.xdm.envelope import CrossDomainMessage, ExecutionReceipt, MmrLeaf
from causeway_proofs.xdm.messages import CONSENSUS, ChainId, EndpointResponse, Message

from tests.fuzz.substrate import CARRIER, ENVELOPE, OPEN, RECEIPT
from tests.oracles.xdm.channels import Channel


def columns(kind: ScaleColumns, decode: Callable[[bytes], Any], beside: bytes, data: bytes) -> None:
    """Read ``data`` between two valid rows, and compare."""
    decoded = kind.decode(pa.array([beside, data, beside], pa.binary()))
    error = decoded.verdicts.error(1)
    expected: ProofError | None = None
    try:
        decode(data)
    except ProofError as refused:
        expected = refused
    assert (type(error), str(error)) == (type(expected), str(expected))
    if error is not None:
        assert decoded.verdicts.refused().tolist() == [1]
        return
    assert kind.encode(decoded.columns).to_pylist() == [beside, data, beside]


CHANNEL = Channel(1, "Open", relay_fee=2, maybe_owner=bytes(20)).encode()
LEAF = MmrLeaf(1, bytes(32), bytes(32), bytes(32)).encode()
TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "scale_messages": (
        partial(columns, MESSAGES, Message.decode, OPEN.encode()),
        [OPEN.encode(), Message(CONSENSUS, ChainId(0), 1 << 200, 3, EndpointResponse(b"held"), 4, 0).encode()],
    ),
    "scale_envelopes": (
        partial(columns, ENVELOPES, CrossDomainMessage.decode, ENVELOPE.encode()),
        [ENVELOPE.encode(), CARRIER.encode()],
    ),
    "scale_receipts": (partial(columns, RECEIPTS, ExecutionReceipt.decode, RECEIPT), [RECEIPT]),
    "scale_channels": (
        partial(columns, CHANNELS[0, 20], partial(Channel.decode, version=0, account_bytes=20), CHANNEL),
        [CHANNEL],
    ),
    "scale_leaves": (partial(columns, LEAVES, MmrLeaf.decode, LEAF), [LEAF]),
}
"""By name: a function that passes only genuine errors, and the seeds to start from."""
