"""Canonical encodings, witnesses and slices of the Internet Computer under arbitrary bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from causeway_proofs.errors import ProofError
from causeway_proofs.ic.errors import NotInColumns
from causeway_proofs.ic.messages import (
    Data,
    RejectContext,
    StreamRefund,
    StreamRejectCode,
    StreamRequest,
    StreamResponse,
    decode_stream_message,
    encode_stream_message,
)
from causeway_proofs.ic.primitives import CertificationVersion
from causeway_proofs.ic.slice import (
    Certification,
    CertifiedStreamSlice,
    decode_certified_stream_slice,
    encode_certified_stream_slice,
)
from causeway_proofs.ic.slice_payload import payload_tree, read_payload
from causeway_proofs.ic.state_columns import SystemMetadata, encode_system_metadata
from causeway_proofs.ic.stream_columns import decode_stream_headers, decode_stream_messages, encode_stream_messages
from causeway_proofs.ic.stream_header import (
    RejectReason,
    RejectSignal,
    StreamFlags,
    StreamHeader,
    decode_stream_header,
    encode_stream_header,
)
from causeway_proofs.ic.witness import (
    SubTree,
    TreeLeaf,
    decode_labeled_tree,
    decode_witness,
    encode_labeled_tree,
    encode_witness,
    recompute_digest,
)

from tests.oracles.ic.encodings import (
    SubnetMetrics,
    decode_subnet_metrics,
    decode_system_metadata,
    encode_subnet_metrics,
)
from tests.oracles.ic.witness_builder import build_witness, digest_tree

OLDEST, NEWEST = min(CertificationVersion), max(CertificationVersion)

SIGNALS = tuple(RejectSignal(index, reason) for index, reason in enumerate(RejectReason, 100))
HEADER = encode_stream_header(StreamHeader(5, 8, 256, SIGNALS, StreamFlags(1)), NEWEST)
MESSAGES = [
    encode_stream_message(StreamRequest(b"r", b"s", 2**40, 2**100, "call", b"payload", deadline=9)),
    encode_stream_message(StreamResponse(b"o", b"r", 1, 2, RejectContext(StreamRejectCode.CanisterError, "no"))),
    encode_stream_message(StreamResponse(b"o", b"r", 1, 2, Data(bytes(30)), 7)),
    encode_stream_message(StreamRefund(b"c", 2**70)),
    encode_stream_message(StreamRequest(b"r", b"s", 1, 1, "", b""), OLDEST),
]
CANISTER = (7).to_bytes(8, "big") + b"\x01\x01"
ROWS = [
    encode_stream_message(StreamRequest(CANISTER, CANISTER, 2**40, 2**100, "call", b"payload", deadline=9)),
    encode_stream_message(
        StreamResponse(CANISTER, CANISTER, 1, 2, RejectContext(StreamRejectCode.CanisterError, "no"))
    ),
    encode_stream_message(StreamRequest(CANISTER, CANISTER, 1, 2**70, "", b"", deadline=2**31), OLDEST),
    encode_stream_message(StreamRefund(CANISTER, 2**70)),
]
PART = payload_tree(b"subnet", HEADER, dict(enumerate(MESSAGES[1:3], 6)))
FULL = digest_tree(
    SubTree({**payload_tree(b"subnet", HEADER, dict(enumerate(MESSAGES[:3], 5))).children, b"time": TreeLeaf(b"t")})  # type: ignore[union-attr]
)
WITNESS = build_witness(FULL, PART)
SLICE = CertifiedStreamSlice(
    read_payload(PART, NEWEST), WITNESS, Certification(3, FULL.digest, bytes(48), b"\x08\x01", b"")
)


def leaf(encode: Callable[..., bytes], decode: Callable[..., Any], *versions: CertificationVersion) -> Any:
    """Return a target: read values are encoded to exactly the bytes they were read from."""

    def target(data: bytes) -> None:
        for version in versions or (None,):
            given = () if version is None else (version,)
            try:
                value = decode(data, *given)
            except ProofError:
                continue
            assert encode(value, *given) == data

    return target


def one_by_one(decode: Callable[..., Any], data: bytes, version: CertificationVersion) -> Any:
    """Return the decoded value, or the error."""
    try:
        return decode(data, version)
    except ProofError as error:
        return error


def headers_by_columns(data: bytes) -> None:
    """A header among others has its single result: the same values, or the same error."""
    for version in (OLDEST, NEWEST):
        plain = encode_stream_header(StreamHeader(1, 2, 3), version)
        found = decode_stream_headers(pa.array([plain, data, plain], pa.binary()), version)
        assert found.end[[0, 2]].tolist() == [2, 2] and found.errors.keys() <= {1}
        error, header = found.errors.get(1), one_by_one(decode_stream_header, data, version)
        if isinstance(header, ProofError):
            assert (type(error), str(error)) == (type(header), str(header))
            assert not len(found.reject_row)
            continue
        bounds = found.begin[1], found.end[1], found.signals_end[1], found.flags[1]
        assert error is None and bounds == (header.begin, header.end, header.signals_end, header.flags)
        given = zip(found.reject_index.tolist(), found.reject_reason.tolist(), strict=True)
        assert tuple(given) == tuple((signal.index, signal.reason) for signal in header.reject_signals)


def messages_by_columns(data: bytes) -> None:
    """A message among others has its single result: the same bytes, or the same error."""
    for version in (OLDEST, CertificationVersion.V22, NEWEST):
        plain = encode_stream_message(StreamResponse(CANISTER, CANISTER, 1, 2, Data(b"data")), version)
        found = decode_stream_messages(pa.array([plain, data, plain], pa.binary()), version)
        error, message = found.errors.get(1), one_by_one(decode_stream_message, data, version)
        if error is None:
            assert encode_stream_messages(found.columns, version).to_pylist() == [plain, data, plain]
            assert not isinstance(message, ProofError)
            continue
        assert found.columns["payload"].to_pylist() == [b"data", b"", b"data"]
        if isinstance(message, ProofError):
            assert (type(error), str(error)) == (type(message), str(message))
        else:
            assert isinstance(error, NotInColumns)


def labeled_tree(data: bytes) -> None:
    """A read tree is written identically, and passes the witness or is refused."""
    try:
        tree = decode_labeled_tree(data)
    except ProofError:
        return
    assert encode_labeled_tree(tree) == data
    try:
        assert recompute_digest(tree, WITNESS) != FULL.digest or tree == PART
    except ProofError:
        return


def witness(data: bytes) -> None:
    """No other witness leads the tree to the root."""
    try:
        found = decode_witness(data)
        assert encode_witness(found) == data
        assert recompute_digest(PART, found) != FULL.digest or found == WITNESS
    except ProofError:
        return


def certified_slice(data: bytes) -> None:
    """No other payload and witness match the root."""
    for version in (OLDEST, NEWEST):
        try:
            found = decode_certified_stream_slice(data, version)
            assert encode_certified_stream_slice(found) == data
            found.witness_begin()
            found.decode_messages(version)
            for part in found.take_prefix(1):
                assert part is None or part.certification == found.certification
            found.garbage_collect(7, 1)
            found.append(SLICE)
            found.verify_root()
            assert found.certification.root_hash != FULL.digest or found.payload == SLICE.payload
        except ProofError:
            continue


TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "ic_stream_header": (leaf(encode_stream_header, decode_stream_header, OLDEST, NEWEST), [HEADER]),
    "ic_stream_headers": (headers_by_columns, [HEADER]),
    "ic_stream_message": (leaf(encode_stream_message, decode_stream_message, OLDEST, NEWEST), MESSAGES),
    "ic_subnet_metrics": (
        leaf(encode_subnet_metrics, decode_subnet_metrics),
        [encode_subnet_metrics(SubnetMetrics(1, 2**33, 2**80, 4))],
    ),
    "ic_stream_messages": (messages_by_columns, [*MESSAGES, *ROWS]),
    "ic_system_metadata": (
        leaf(encode_system_metadata, decode_system_metadata),
        [encode_system_metadata(SystemMetadata(bytes(range(32))))],
    ),
    "ic_labeled_tree": (labeled_tree, [encode_labeled_tree(PART)]),
    "ic_witness": (witness, [encode_witness(WITNESS)]),
    "ic_certified_slice": (certified_slice, [encode_certified_stream_slice(SLICE)]),
}
