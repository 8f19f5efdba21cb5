"""Messages of streams as columns, drawn at random, and the same ones one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import ProofError
from causeway_proofs.ic.messages import (
    Data,
    RejectContext,
    RequestMetadata,
    StreamMessage,
    StreamRefund,
    StreamRejectCode,
    StreamRequest,
    StreamResponse,
)
from causeway_proofs.ic.primitives import CertificationVersion

from causeway.core.vocabulary import Kind


def draw_columns(seed: int, length: int, version: CertificationVersion) -> dict[str, Any]:
    random = np.random.default_rng(seed)

    def numbers(share: float = 1) -> np.ndarray:
        """Numbers of every length, a part of them zero."""
        drawn = random.integers(0, 2**64, length, dtype=np.uint64) >> random.integers(0, 64, length, dtype=np.uint64)
        return np.where(random.random(length) < share, drawn, np.uint64(0))

    kinds = [Kind.REQUEST, Kind.RESPONSE] + [Kind.REFUND] * (version >= CertificationVersion.V22)
    lengths = random.choice([0, 1, 23, 24, 255, 256, 300], length)
    names = ["", "a", "transfer", "m" * 30, "é" * 140]
    return {
        "kind": random.choice(kinds, length).astype(np.uint8),
        "sender": numbers(),
        "receiver": numbers(),
        "callback": numbers(),
        "amount_high": numbers(0.3),
        "amount_low": numbers(),
        "code": random.integers(0, 7, length).astype(np.uint8),
        "deadline": (numbers(0.5) & np.uint64(2**32 - 1)).astype(np.uint32),
        "method": pa.array([names[place] for place in random.integers(0, len(names), length)]).dictionary_encode(),
        "payload": pa.array([bytes(random.integers(0, 128, size, dtype=np.uint8)) for size in lengths], pa.binary()),
    }


def canister(number: int) -> bytes:
    return int(number).to_bytes(8, "big") + b"\x01\x01"


def row_message(columns: dict[str, Any], row: int) -> StreamMessage:
    """Return a row as the scalar encoder takes it."""

    def number(name: str) -> int:
        return int(columns[name][row]) if name in columns else 0

    sender, receiver = canister(number("sender")), canister(number("receiver"))
    cycles = number("amount_high") << 64 | number("amount_low")
    payload = columns["payload"][row].as_py()
    match number("kind"):
        case Kind.REQUEST:
            metadata = RequestMetadata(number("call_tree_depth"), number("call_tree_start"))
            method, callback = columns["method"][row].as_py(), number("callback")
            return StreamRequest(receiver, sender, callback, cycles, method, payload, metadata, number("deadline"))
        case Kind.RESPONSE:
            code = number("code")
            answer = RejectContext(StreamRejectCode(code), payload.decode()) if code else Data(payload)
            return StreamResponse(receiver, sender, number("callback"), cycles, answer, number("deadline"))
        case _:
            return StreamRefund(receiver, cycles)


def one_by_one(decode: Any, values: list[bytes], version: CertificationVersion) -> list[Any]:
    """Return what each value is decoded to, or the kind and text of its error."""
    rows = []
    for value in values:
        try:
            rows.append(decode(value, version))
        except ProofError as error:
            rows.append((type(error), str(error)))
    return rows
