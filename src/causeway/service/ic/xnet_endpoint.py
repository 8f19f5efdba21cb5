"""XNetEndpoint: HTTP server of a subnet's certified streams (IC reference 3.10, X-9).

    GET /api/v1/streams                                ids of the subnets with a stream
    GET /api/v1/stream/{SubnetId}?msg_begin=&witness_begin=&msg_limit=&byte_limit=    a certified slice

``answer_request`` is sans I/O; ``XNetNode`` is the ASGI application. Paths, parameters, status codes and content
types are those of deployed replicas. Unlike there, an answer is bounded by the messages and bytes that a slice
pool accepts. Faulty nodes serve late, stale, or altered slices (IC reference, hazard 5).
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import parse_qsl

from causeway_proofs.ic.bls import SecretKey
from causeway_proofs.ic.certified_streams import InvalidSliceBegin, InvalidSliceIndices, NoStreamForSubnet
from causeway_proofs.ic.primitives import principal_from_text, principal_to_text
from causeway_proofs.ic.slice import CertifiedStreamSlice, encode_certified_stream_slice
from causeway_proofs.ic.witness import Witness, WitnessFork, WitnessNode, WitnessPruned
from starlette.types import Receive, Scope, Send

from causeway.config.section import U64_MAX
from causeway.network.replay import ReplayBusy
from causeway.protocols.ic.streams.remote_slices import MAX_SLICE_MESSAGES
from causeway.protocols.ic.streams.slice_pool import SLICE_BYTES
from causeway.service.http.connections import CONNECTION

STREAMS_PATH = "/api/v1/streams"
STREAM_PATH = "/api/v1/stream/"

PROTOBUF = "application/x-protobuf"

MOST_RUNNING = 4
"""Maximum number of concurrent requests of a node."""

MAX_ID_TEXT = 63
"""Maximum length of a subnet id."""

MAX_VALUE_TEXT = 64
"""Maximum length of a parameter's value."""

PARAMETERS = {
    "witness_begin": "witness_begin",
    "msg_begin": "msg_begin",
    "index": "msg_begin",
    "msg_limit": "msg_limit",
    "byte_limit": "byte_limit",
}
"""Meaning of each query parameter."""


class StreamStore(Protocol):
    """Certified state that serves slices, such as ``OfferedStreams``."""

    def subnets_with_certified_streams(self) -> Sequence[bytes]:
        """Return the ids of the subnets with a stream."""

    def encode_certified_stream_slice(
        self,
        dst_subnet: bytes,
        witness_begin: int | None = None,
        msg_begin: int | None = None,
        msg_limit: int | None = None,
        byte_limit: int | None = None,
    ) -> CertifiedStreamSlice:
        """Return a slice.

        Raises:
            SliceRequestError: The request cannot be met.
        """


Altered = Callable[[CertifiedStreamSlice], CertifiedStreamSlice]
"""Alteration of a slice by a faulty node."""


@dataclass(frozen=True)
class HttpReply:
    """HTTP answer: status, body, header fields."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def refused(cls, status: int, text: str) -> HttpReply:
        """Create a refusal with its reason."""
        return cls(status, text.encode(errors="replace"), {"content-type": "text/plain; charset=utf-8"})


def answer_request(certified: StreamStore | None, path: str, query: str, altered: Altered | None = None) -> HttpReply:
    """Answer a request.

    Args:
        certified: The node's newest certified state, if any.
        path: Path of the request.
        query: Query string.
        altered: Alteration by a lying node.
    """
    if path == STREAMS_PATH:
        ids = [] if certified is None else certified.subnets_with_certified_streams()
        texts = [principal_to_text(subnet) for subnet in ids]
        body = json.dumps(texts, separators=(",", ":")).encode()
        return HttpReply(200, body, {"content-type": "application/json"})
    if not path.startswith(STREAM_PATH):
        return HttpReply.refused(404, "Not Found")
    name = path.removeprefix(STREAM_PATH)
    try:
        subnet = principal_from_text(name[: MAX_ID_TEXT + 1])
    except ValueError:
        return HttpReply.refused(400, f"Invalid subnet ID: {name[:MAX_ID_TEXT]}")
    request: dict[str, int] = {}
    for parameter, value in parse_qsl(query, keep_blank_values=True):
        if not (0 < len(value) <= MAX_VALUE_TEXT and value.isascii() and value.isdigit() and int(value) <= U64_MAX):
            return HttpReply.refused(400, f"Invalid query param: {parameter[:MAX_VALUE_TEXT]}")
        if parameter not in PARAMETERS:
            return HttpReply.refused(400, f"Unexpected query param: {parameter[:MAX_VALUE_TEXT]}")
        request[PARAMETERS[parameter]] = int(value)
    return _stream(certified, subnet, request, altered)


def _stream(
    certified: StreamStore | None, subnet: bytes, request: dict[str, int], altered: Altered | None
) -> HttpReply:
    if certified is None:
        return HttpReply(204)
    request["msg_limit"] = min(request.get("msg_limit", MAX_SLICE_MESSAGES), MAX_SLICE_MESSAGES)
    request["byte_limit"] = min(request.get("byte_limit", SLICE_BYTES), SLICE_BYTES)
    try:
        found = certified.encode_certified_stream_slice(subnet, **request)
    except NoStreamForSubnet:
        return HttpReply(204)
    except InvalidSliceBegin as error:
        return HttpReply.refused(416, str(error))
    except InvalidSliceIndices as error:
        return HttpReply.refused(400, str(error))
    if altered is not None:
        found = altered(found)
    headers = {
        "content-type": PROTOBUF,
        "x-protobuf-schema": "certified_stream_slice.proto",
        "x-protobuf-message": "xnet.v1.CertifiedStreamSlice",
    }
    return HttpReply(200, encode_certified_stream_slice(found), headers)


@dataclass(frozen=True)
class ServingFaults:
    """Faults of a node.

    Attributes:
        certified: Source of the certified state to serve from; None before there is one.
        altered: Alteration of slices.
        delay: Additional delay in seconds.
        down: True if it serves nothing.
    """

    certified: Callable[[], StreamStore | None]
    altered: Altered | None = None
    delay: float = 0.0
    down: bool = False


def _raise(path: str, error: Exception) -> None:
    raise error


class XNetNode:
    """Node of a subnet as an ASGI application.

    Args:
        conduct: Source of the current faults.
        failed: Handler of errors with the requested path; by default they are raised.
    """

    def __init__(self, conduct: Callable[[], ServingFaults], failed: Callable[[str, Exception], None] = _raise) -> None:
        self._conduct, self._failed = conduct, failed
        self._running = 0
        self._workers = ThreadPoolExecutor(MOST_RUNNING, "xnet")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        connection = scope.get("state", {}).get(CONNECTION)
        try:
            conduct = self._conduct()
            if conduct.down and connection is not None:
                connection.cut()
                return
            reply = HttpReply.refused(503, "down") if conduct.down else await self._reply(scope, conduct)
        except ReplayBusy as error:
            reply = HttpReply.refused(503, str(error))
        except Exception as error:
            self._failed(scope["path"], error)
            reply = HttpReply.refused(500, "Internal Server Error")
        headers = {**reply.headers, "content-length": str(len(reply.body))} if reply.status != 204 else {}
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        body = b"" if scope["method"] == "HEAD" else reply.body
        await send({"type": "http.response.start", "status": reply.status, "headers": fields})
        await send({"type": "http.response.body", "body": body})

    async def _reply(self, scope: Scope, conduct: ServingFaults) -> HttpReply:
        if scope["method"] not in ("GET", "HEAD"):
            return HttpReply(405, b"", {"allow": "GET, HEAD"})
        if self._running >= MOST_RUNNING:
            return HttpReply.refused(503, "Queue full")
        self._running += 1
        try:
            if conduct.delay:
                await asyncio.sleep(conduct.delay)
            path, query = scope["path"], scope["query_string"].decode("latin-1")
            return await asyncio.get_running_loop().run_in_executor(self._workers, self._answer, path, query, conduct)
        finally:
            self._running -= 1

    @staticmethod
    def _answer(path: str, query: str, conduct: ServingFaults) -> HttpReply:
        return answer_request(conduct.certified(), path, query, conduct.altered)


SLOW_SECONDS = 7.0
"""Delay of a slow node, beyond all deadlines."""

STALE_HEIGHTS = 5
"""Heights by which a stale node is behind."""

_LIAR = SecretKey.derive(b"a node that lies")


def altered_message(certified: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Alter the last byte of the last message; without messages, the root."""
    messages = certified.payload.messages
    if not messages:
        root = certified.certification.root_hash
        return replace(
            certified, certification=replace(certified.certification, root_hash=bytes([root[0] ^ 1]) + root[1:])
        )
    last = messages[-1][:-1] + bytes([messages[-1][-1] ^ 1])
    return replace(certified, payload=replace(certified.payload, messages=(*messages[:-1], last)))


def altered_sibling(certified: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Alter the digest of the witness's first pruned node, if any."""
    return replace(certified, witness=_altered(certified.witness))


def _altered(witness: Witness) -> Witness:
    match witness:
        case WitnessPruned(digest):
            return WitnessPruned(bytes([digest[0] ^ 1]) + digest[1:])
        case WitnessFork(left, right):
            changed = _altered(left)
            return WitnessFork(changed, right) if changed is not left else WitnessFork(left, _altered(right))
        case WitnessNode(label, below):
            changed = _altered(below)
            return WitnessNode(label, changed) if changed is not below else witness
        case _:
            return witness


def forged_signature(certified: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Replace the signature by another signer's."""
    certification = certified.certification
    return replace(certified, certification=replace(certification, signature=_LIAR.sign(certification.signed_bytes())))


def other_destination(certified: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Alter the destination of the stream."""
    subnet = certified.payload.subnet_id
    return replace(certified, payload=replace(certified.payload, subnet_id=bytes([subnet[0] ^ 1]) + subnet[1:]))


def other_height(certified: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Increment the certified height."""
    certification = certified.certification
    return replace(certified, certification=replace(certification, height=certification.height + 1))


LIES: Mapping[str, Callable[[CertifiedStreamSlice], CertifiedStreamSlice]] = {
    "message": altered_message,
    "sibling": altered_sibling,
    "signature": forged_signature,
    "destination": other_destination,
    "height": other_height,
}


@dataclass
class SliceTamperer:
    """Tamperer that alters every slice, cycling through ``LIES``."""

    _turns: Iterator[str]

    @classmethod
    def create(cls) -> SliceTamperer:
        """Create a tamperer."""
        return cls(itertools.cycle(LIES))

    def __call__(self, certified: CertifiedStreamSlice) -> CertifiedStreamSlice:
        """Return an altered slice."""
        return LIES[next(self._turns)](certified)
