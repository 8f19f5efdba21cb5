"""``xnet``: certified slices over HTTP, from the node that serves them to the pool of the subnet that pulls them.

A node serves a stream at an address of this machine, as ``causeway serve`` lets it, in a thread of this process; one
client asks for slices of several lengths, one after the other. Served is what a request costs with its answer on the
way; pulled is that and reading and verifying what came, as before it waits in a pool.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import uvicorn
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ic.bls import SecretKey
from causeway_proofs.ic.certificate import certification_message
from causeway_proofs.ic.certified_streams import OfferedStreams
from causeway_proofs.ic.messages import StreamRequest, encode_stream_message
from causeway_proofs.ic.primitives import principal_to_text
from causeway_proofs.ic.slice import Certification
from causeway_proofs.ic.state_columns import CanonicalStates, CertifiedData, StreamColumns, state_roots
from causeway_proofs.ic.stream_header import StreamHeader, encode_stream_header
from causeway_proofs.ic.stream_tree import StreamTree

from benchmarks.machine import machine
from benchmarks.rounds import Progress
from causeway.protocols.ic.ids import canister_id, subnet_id
from causeway.protocols.ic.streams.remote_slices import MAX_SLICE_MESSAGES, SliceReader
from causeway.service.http.connections import HttpConnection
from causeway.service.http.listening import bind_socket
from causeway.service.ic.xnet_endpoint import STREAM_PATH, ServingFaults, XNetNode

KEY = SecretKey.derive(b"a benchmark's subnet")
OWN, REMOTE = subnet_id(1), subnet_id(2)
BEGIN = 1


def bench_xnet(
    lengths: Sequence[int], *, seconds: float, payload_bytes: int, progress: Progress = lambda text: None
) -> dict[str, Any]:
    """Measure slices of ``lengths`` messages of ``payload_bytes`` bytes each, ``seconds`` for each kind.

    Raises:
        InvalidInput: a slice of such a length is served by nobody.
    """
    for length in lengths:
        if not 0 <= length <= MAX_SLICE_MESSAGES:
            raise InvalidInput(f"messages: {length}; allowed: 0 to {MAX_SLICE_MESSAGES} in a slice")
    streams = _streams(max([1, *lengths]), payload_bytes)
    found = []
    with _served(streams) as url:
        reader = SliceReader({REMOTE: KEY.public_key()})
        for length in lengths:
            progress(f"slices of {length:,} messages")
            path = f"{url}{STREAM_PATH}{principal_to_text(OWN)}?msg_begin={BEGIN}&msg_limit={length}"
            with httpx.Client() as client:

                def fetch(path: str = path, client: httpx.Client = client) -> bytes:
                    answer = client.get(path)
                    answer.raise_for_status()
                    return answer.content

                def pull(fetch: Callable[[], bytes] = fetch) -> bytes:
                    data = fetch()
                    reader.verify(OWN, REMOTE, reader.decode(data))
                    return data

                row: dict[str, Any] = {"messages": length, "bytes": len(pull())}
                for name, call in (("served", fetch), ("pulled", pull)):
                    rate, processor = _rate(call, seconds)
                    row[f"{name}_per_second"] = round(rate, 1)
                    row[f"{name}_processor_ms"] = round(1e3 * processor, 3)
                found.append(row)
    return {"benchmark": "xnet", "payload_bytes": payload_bytes, "slices": found, "machine": machine()}


def _rate(call: Callable[[], bytes], seconds: float) -> tuple[float, float]:
    """Return how often a second something is done, one after the other, and the processor time of each (s)."""
    begun, used, count = time.perf_counter(), time.process_time(), 0
    while count == 0 or time.perf_counter() - begun < seconds:  # a busy machine may take all seconds before the first
        call()
        count += 1
    return count / (time.perf_counter() - begun), (time.process_time() - used) / count


def _streams(length: int, payload_bytes: int) -> OfferedStreams:
    """Return a stream of so many requests, as a node holds it."""
    ends = canister_id(1), canister_id(2)
    encoded = [
        encode_stream_message(StreamRequest(*ends, index, 0, "method", bytes(payload_bytes))) for index in range(length)
    ]
    messages = pa.array(encoded, pa.binary())
    header = encode_stream_header(StreamHeader(BEGIN, BEGIN + length, BEGIN))
    tree = StreamTree(header, BEGIN, messages)
    found = state_roots(
        CanonicalStates(
            heights=np.array([7], np.uint64),
            previous=np.zeros((1, 32), np.uint8),
            has_previous=np.array([True]),
            times=np.array([10**9], np.uint64),
            sections=None,
            certified_data=CertifiedData(np.empty(0, np.int64), np.empty((0, 10), np.uint8), pa.array([], pa.binary())),
            streams=StreamColumns(
                np.zeros(1, np.int64),
                np.frombuffer(OWN, np.uint8).reshape(1, -1),
                pa.array([header], pa.binary()),
                np.frombuffer(tree.messages.root, np.uint8).reshape(1, -1),
                np.array([length], np.uint64),
            ),
        )
    )
    root = found.roots[0].tobytes()
    witness = found.height_witnesses(np.array([0]))[0]
    certification = Certification(7, root, KEY.sign(certification_message(root)), height_witness=witness)
    streams = OfferedStreams()
    streams.update(OWN, header, messages, found.paths[0].as_py(), certification)
    return streams


@contextmanager
def _served(streams: OfferedStreams) -> Iterator[str]:
    """Let a node serve streams, and give its address."""
    listening = bind_socket("127.0.0.1", 0)
    listening.listen()
    config = uvicorn.Config(
        XNetNode(lambda: ServingFaults(lambda: streams)),
        http=HttpConnection,
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
