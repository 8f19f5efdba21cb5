"""The Internet Computer: streams in the hash tree, slices of them, signatures and certificates."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.ic.bls import (
    DOMAIN_SEPARATION_TAG,
    SecretKey,
    combine,
    deal,
    public_key_to_der,
    seeded_coefficients,
    verify,
)
from causeway_proofs.ic.certificate import certification_message, encode_certificate
from causeway_proofs.ic.certification import SubnetRecord, certify, delegate, state_tree, verify_certificate
from causeway_proofs.ic.digest_columns import stream_digests
from causeway_proofs.ic.hash_tree import build_tree, digest, labeled_digest, leaf_digest
from causeway_proofs.ic.lookup import prune
from causeway_proofs.ic.messages import StreamRequest, decode_stream_message, encode_stream_message
from causeway_proofs.ic.slice import Certification, decode_certified_stream, encode_certified_stream_slice
from causeway_proofs.ic.stream_columns import (
    decode_stream_headers,
    decode_stream_messages,
    encode_stream_headers,
    encode_stream_messages,
)
from causeway_proofs.ic.stream_header import RejectReason, StreamHeader, decode_stream_header, encode_stream_header
from causeway_proofs.ic.stream_tree import StreamTree, index_label
from py_arkworks_bls12381 import GT, G1Point, G2Point

from benchmarks.proofs import ic_streams
from benchmarks.proofs.node import IC, OtherVerifier
from benchmarks.proofs.queues import Measured, Queue, changed_at_a_time, measure_queue
from benchmarks.proofs.timing import OURS, Clocked, Row, compared, require_same, take_turns, timed
from benchmarks.proofs.workload import ONE_BY_ONE, payloads, some_of
from causeway.core.vocabulary import Kind
from tests.oracles.ic.mixed_tree import split_hash_tree
from tests.oracles.ic.slices import build_certified_stream_slice
from tests.oracles.ic.streams import streams_tree, streams_witness

ROOT, SUBNET = SecretKey.derive(b"root"), SecretKey.derive(b"subnet")
SUBNET_ID, OTHER_ID = bytes(8) + b"\xfc\x01", b"\x01" + bytes(7) + b"\xfc\x01"
NOW = 1_700_000_000_000_000_000
STREAMS = b"streams"

MOST_ENCODED_ONE_BY_ONE = 20_000
SLICE_MESSAGES = 100
REJECTS = 5
SIGNATURES = 10
SIGNERS, THRESHOLD = 40, 27

Contenders = dict[str, tuple[Clocked, int]]


def measure(size: int, repeats: int, node: str | None) -> list[Row]:
    """Measure a stream of ``size`` messages, and signatures and certificates."""
    changed = changed_at_a_time(size)
    columns = _columns(size + changed)
    encoded = encode_stream_messages(columns)
    header = encode_stream_header(StreamHeader(changed, size + changed, 0))

    def build(count: int) -> StreamTree:
        return StreamTree(header, 0, encoded[:count])

    def append(stream: StreamTree) -> StreamTree:
        stream.messages.append(encoded[size:])
        return stream

    def trim(stream: StreamTree) -> StreamTree:
        stream.messages.trim(changed)
        return stream

    def one_by_one(count: int) -> bytes:
        messages = {index_label(index): message for index, message in enumerate(encoded[:count].to_pylist())}
        return digest(build_tree({b"header": header, b"messages": messages}))

    stream = Queue("stream", build, lambda stream: stream.root, append, trim, plain=("node by node", one_by_one))
    queue = measure_queue(stream, size, -(-repeats // 2))
    return [
        _encoding(columns, encoded, size, repeats),
        _digests(columns, encoded, size, repeats),
        _decoding(columns, encoded, size, repeats),
        *_headers(size, repeats),
        *queue.rows,
        *ic_streams.measure(size, repeats),
        *_slices(queue, encoded, repeats),
        *_signatures(repeats),
        _certificate(repeats, node),
    ]


def _columns(count: int) -> Mapping[str, Any]:
    numbers = np.arange(count, dtype=np.uint64)
    zeros = np.zeros(count, dtype=np.uint64)
    return {
        "kind": np.full(count, Kind.REQUEST, dtype=np.uint8),
        "sender": numbers % np.uint64(20_000),
        "receiver": numbers % np.uint64(19_997),
        "callback": numbers,
        **dict.fromkeys(("amount_high", "amount_low", "code", "deadline"), zeros),
        "method": pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), ["ping"]),
        "payload": payloads(count),
    }


def _canister(number: int) -> bytes:
    return number.to_bytes(8, "big") + b"\x01\x01"


def _encoding(columns: Mapping[str, Any], encoded: pa.BinaryArray, size: int, repeats: int) -> Row:
    few = min(size, MOST_ENCODED_ONE_BY_ONE)
    senders, receivers = columns["sender"][:few].tolist(), columns["receiver"][:few].tolist()
    requests = [
        StreamRequest(_canister(receiver), _canister(sender), number, 0, "ping", payload)
        for number, (sender, receiver, payload) in enumerate(
            zip(senders, receivers, columns["payload"][:few].to_pylist(), strict=True)
        )
    ]
    require_same(encoded[:few].to_pylist(), [encode_stream_message(each) for each in requests], "encoded messages")
    contenders: Contenders = {
        OURS: (timed(lambda: encode_stream_messages(columns)), len(encoded)),
        "one by one": (timed(lambda: [encode_stream_message(each) for each in requests]), few),
    }
    return compared("commit", f"stream: {len(encoded):,} messages encoded", "messages", contenders, -(-repeats // 2))


def _digests(columns: Mapping[str, Any], encoded: pa.BinaryArray, size: int, repeats: int) -> Row:
    """Measure the nodes of messages in the tree of their stream, from columns, and from encodings one by one."""
    few = min(size, MOST_ENCODED_ONE_BY_ONE)
    indexes = np.arange(len(encoded), dtype=np.uint64)
    values = encoded[:few].to_pylist()

    def one_by_one() -> list[bytes]:
        return [labeled_digest(index_label(index), leaf_digest(value)) for index, value in enumerate(values)]

    found = [row.tobytes() for row in stream_digests(columns, indexes)[:few]]
    require_same(found, one_by_one(), "digests of messages")
    contenders: Contenders = {
        OURS: (timed(lambda: stream_digests(columns, indexes)), len(encoded)),
        "one by one, encodings given": (timed(one_by_one), few),
    }
    what = f"stream: {len(encoded):,} messages encoded and hashed"
    return compared("commit", what, "messages", contenders, -(-repeats // 2))


def _decoding(columns: Mapping[str, Any], encoded: pa.BinaryArray, size: int, repeats: int) -> Row:
    """Measure messages read into columns, and one by one."""
    few = min(size, MOST_ENCODED_ONE_BY_ONE)
    values = encoded[:few].to_pylist()
    found = decode_stream_messages(encoded)
    require_same((found.errors, encode_stream_messages(found.columns).equals(encoded)), ({}, True), "decoded messages")
    contenders: Contenders = {
        OURS: (timed(lambda: decode_stream_messages(encoded)), len(encoded)),
        "one by one": (timed(lambda: [decode_stream_message(value) for value in values]), few),
    }
    return compared("verify", f"stream: {len(encoded):,} messages decoded", "messages", contenders, -(-repeats // 2))


def _headers(size: int, repeats: int) -> list[Row]:
    """Measure headers, each with some reject signals, written and read by columns and one by one."""
    count = max(size // 10, 1)
    few = min(count, MOST_ENCODED_ONE_BY_ONE // 4)
    begin = np.arange(count, dtype=np.uint64)
    rows = np.repeat(np.arange(count), REJECTS)
    signals = np.tile(np.arange(REJECTS, dtype=np.uint64), count)
    reasons = (signals % np.uint64(len(RejectReason) - 1) + np.uint64(1)).astype(np.uint8)
    bounds = begin, begin + np.uint64(1_000), begin + np.uint64(70_000)
    given = *bounds, rows, begin[rows] + signals, reasons
    encoded = encode_stream_headers(*given)
    values = encoded[:few].to_pylist()
    headers = [decode_stream_header(value) for value in values]
    require_same([encode_stream_header(header) for header in headers], values, "encoded headers")
    found = decode_stream_headers(encoded)
    require_same((found.errors, found.reject_index.tolist()), ({}, given[4].tolist()), "decoded headers")
    what = f"{count:,} headers with {REJECTS} reject signals each"
    written: Contenders = {
        OURS: (timed(lambda: encode_stream_headers(*given)), count),
        "one by one": (timed(lambda: [encode_stream_header(header) for header in headers]), few),
    }
    read: Contenders = {
        OURS: (timed(lambda: decode_stream_headers(encoded)), count),
        "one by one": (timed(lambda: [decode_stream_header(value) for value in values]), few),
    }
    return [
        compared("commit", f"stream: {what}, encoded", "headers", written, -(-repeats // 2)),
        compared("verify", f"stream: {what}, decoded", "headers", read, -(-repeats // 2)),
    ]


def _slices(queue: Measured[StreamTree], encoded: pa.BinaryArray, repeats: int) -> list[Row]:
    """Measure witnesses of one message and slices of many: made, and verified with their certification."""
    stream = queue.state
    begin, end = stream.messages.begin, stream.messages.end
    roots = {OTHER_ID: stream.root}
    state = state_tree({STREAMS: streams_tree(roots)}, NOW)
    root = digest(state)
    certification = Certification(1, root, SUBNET.sign(certification_message(root)))
    positions = some_of(begin, end, ONE_BY_ONE).tolist()

    def prove_each() -> None:
        for position in positions:
            stream.witness(position, position + 1, encoded[position : position + 1])

    def made(first: int, last: int) -> bytes:
        shown = streams_witness(roots, OTHER_ID, stream.witness(first, last, encoded[first:last]))
        payload, witness = split_hash_tree(prune(state_tree({STREAMS: shown}, NOW), [[STREAMS]]))
        return encode_certified_stream_slice(build_certified_stream_slice(payload, witness, certification))

    def read(data: bytes) -> object:
        return decode_certified_stream(OTHER_ID, SUBNET_ID, data, SUBNET.public_key())

    proving = take_turns({OURS: timed(prove_each)}, repeats)[OURS]
    rows = [queue.against_rebuild("stream: witness of one message", proving, len(positions))]
    for count in sorted({1, min(SLICE_MESSAGES, end - begin)}):
        first = (begin + end - count) // 2
        data = made(first, first + count)
        works: list[tuple[str, str, Callable[[], object]]] = [
            ("prove", "made and checked", partial(made, first, first + count)),
            ("verify", "decoded and verified, signature included", partial(read, data)),
        ]
        for part, what, work in works:
            name = f"slice of {count} message{'s' * (count > 1)}, {what}"
            rows.append(compared(part, name, "messages", {OURS: (timed(work), count)}, repeats))
    return rows


def _signatures(repeats: int) -> list[Row]:
    message = certification_message(bytes(32))
    key, signature = SUBNET.public_key(), SUBNET.sign(message)
    hashed = -G1Point.hash_to_curve(message, DOMAIN_SEPARATION_TAG)
    points = [G1Point.from_compressed_bytes(signature), hashed], [G2Point(), G2Point.from_compressed_bytes(key)]
    dealing = deal(SUBNET, THRESHOLD, SIGNERS, seeded_coefficients(b"benchmark", THRESHOLD))
    shares = [(index, share.sign(message)) for index, share in enumerate(dealing.secrets[:THRESHOLD], 1)]
    require_same(combine(shares, THRESHOLD), signature, "combined signature")
    require_same(GT.pairing_check(*points), True, "pairing")

    def several(work: Callable[[], object]) -> tuple[Clocked, int]:
        def repeated() -> None:
            for _ in range(SIGNATURES):
                work()

        return timed(repeated), SIGNATURES

    verified: Contenders = {
        OURS: several(lambda: verify(signature, message, key)),
        "its pairing alone": several(lambda: GT.pairing_check(*points)),
    }
    combined: Contenders = {OURS: several(lambda: combine(shares, THRESHOLD))}
    return [
        compared("sign", "BLS: signature", "signatures", {OURS: several(lambda: SUBNET.sign(message))}, repeats),
        compared("sign", f"BLS: {THRESHOLD} shares combined", "signatures", combined, repeats),
        compared("verify", "BLS: signature", "signatures", verified, repeats),
    ]


def _certificate(repeats: int, node: str | None) -> Row:
    """Measure a certificate with a delegation: two signatures."""
    canister = _canister(7)
    contents = {b"canister": {_canister(number): {b"certified_data": bytes(32)} for number in range(100)}}
    shown = prune(state_tree(contents, NOW), [(b"time",), (b"canister", canister, b"certified_data")])
    subnets = {SUBNET_ID: SubnetRecord(SUBNET.public_key(), ((_canister(0), _canister(99)),))}
    delegation = delegate(subnets, SUBNET_ID, NOW, ROOT.sign, canister_id=canister)
    data = encode_certificate(certify(shown, SUBNET.sign, delegation))
    root_key = ROOT.public_key()

    def verified() -> None:
        for _ in range(SIGNATURES):
            verify_certificate(data, root_key, canister_id=canister)

    contenders: Contenders = {OURS: (timed(verified), SIGNATURES)}
    with contextlib.ExitStack() as stack:
        if node is not None:
            work = {
                "certificate": data.hex(),
                "root_key": public_key_to_der(root_key).hex(),
                "canister": canister.hex(),
                "times": SIGNATURES,
            }
            contenders[IC] = (stack.enter_context(OtherVerifier(node, "certificate", work)).measure, SIGNATURES)
        return compared("verify", "certificate with a delegation", "certificates", contenders, repeats)
