"""A subnet ``REMOTE`` with a certified stream to ``OWN`` of requests, responses and rejects, and one to ``OTHER``."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
from causeway_proofs.ic.bls import SecretKey
from causeway_proofs.ic.hash_tree import NestedTree
from causeway_proofs.ic.messages import (
    Data,
    RejectContext,
    StreamMessage,
    StreamRejectCode,
    StreamRequest,
    StreamResponse,
    encode_stream_message,
)
from causeway_proofs.ic.primitives import encode_leb128
from causeway_proofs.ic.stream_header import RejectReason, RejectSignal, StreamHeader, encode_stream_header
from causeway_proofs.ic.stream_tree import StreamTree

from causeway.protocols.ic.ids import canister_id, subnet_id
from tests.oracles.ic.certified_streams import CertifiedStreams, StoredStream

KEY = SecretKey.derive(b"a subnet that serves slices")
OWN, REMOTE, OTHER = map(subnet_id, (1, 2, 3))
BEGIN, END, HEIGHT = 250, 261, 300


def message(index: int) -> StreamMessage:
    """Return the message at an index: requests, answers with data and with a reject in turn."""
    here, there = canister_id(7), canister_id(2**40 + index)
    if index % 3 == 0:
        return StreamRequest(there, here, index, 2**70 + index, f"method {index % 2}", b"p" * index)
    payload = Data(b"") if index % 3 == 1 else RejectContext(StreamRejectCode.CanisterError, f"no {index}")
    return StreamResponse(there, here, index, index, payload)


@lru_cache
def certified(
    signals: int = 9, end: int = END, height: int = HEIGHT, begin: int = BEGIN, rejected: int = 5
) -> CertifiedStreams:
    """Return the certified streams: [``begin``, ``end``) each, with signals below ``signals`` of which one rejects."""
    header = StreamHeader(begin, end, signals, (RejectSignal(rejected, RejectReason.QueueFull),))
    messages = pa.array([encode_stream_message(message(index)) for index in range(begin, end)], pa.binary())
    held = StoredStream(StreamTree(encode_stream_header(header), begin, messages), messages)
    contents: NestedTree = {
        b"metadata": {b"height": encode_leb128(height), b"prev_state_hash": bytes(32)},
        b"time": b"\x01",
    }
    return CertifiedStreams({OWN: held, OTHER: held}, contents, height, KEY.sign)
