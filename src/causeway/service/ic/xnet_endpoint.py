"""XNetEndpoint: what one node of a subnet serves of the subnet's certified streams (IC reference 3.10, X-9).

    GET /api/v1/streams                                       the ids of the subnets that streams lead to
    GET /api/v1/stream/{SubnetId}?msg_begin=&witness_begin=&msg_limit=&byte_limit=      a certified slice

``answer`` is sans I/O; ``XNetNode`` is the ASGI application around it. Paths, parameters, status codes and content
types are those of deployed replicas. Ours is the bound of an answer: as many messages and bytes as a pool of slices
takes, so that no request costs more than others may make of it.

What faulty nodes serve: too late, what is old, or slices altered in every way that certification must find (IC
reference, hazard 5).
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
"""Requests that one node answers at a time; further ones are told to come again."""

MAX_ID_TEXT = 63
"""Longest text of a subnet's id."""

MAX_VALUE_TEXT = 64
"""Longest text of a parameter's value that is looked at."""

PARAMETERS = {
    "witness_begin": "witness_begin",
    "msg_begin": "msg_begin",
    "index": "msg_begin",
    "msg_limit": "msg_limit",
    "byte_limit": "byte_limit",
}
"""What each parameter of a query means."""


class StreamStore(Protocol):
    """A certified state that serves slices, such as ``OfferedStreams``."""

    def subnets_with_certified_streams(self) -> Sequence[bytes]:
        """Return the ids of the subnets that a stream leads to."""
        ...

    def encode_certified_stream_slice(
        self,
        dst_subnet: bytes,
        witness_begin: int | None = None,
        msg_begin: int | None = None,
        msg_limit: int | None = None,
        byte_limit: int | None = None,
    ) -> CertifiedStreamSlice:
        """Return a slice; raises ``SliceRequestError``."""
        ...


Altered = Callable[[CertifiedStreamSlice], CertifiedStreamSlice]
"""What a faulty node serves instead of a slice."""


@dataclass(frozen=True)
class HttpReply:
    """An answer: its status, its body, and its header fields."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def refused(cls, status: int, text: str) -> HttpReply:
        """Return a refusal that says why."""
        return cls(status, text.encode(errors="replace"), {"content-type": "text/plain; charset=utf-8"})


def answer_request(certified: StreamStore | None, path: str, query: str, altered: Altered | None = None) -> HttpReply:
    """Return what a node answers to a request for a path with a query string.

    ``certified``: its newest certified state, None before there is one. ``altered``: of a node that lies.
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
    asked: dict[str, int] = {}
    for parameter, value in parse_qsl(query, keep_blank_values=True):
        if not (0 < len(value) <= MAX_VALUE_TEXT and value.isascii() and value.isdigit() and int(value) <= U64_MAX):
            return HttpReply.refused(400, f"Invalid query param: {parameter[:MAX_VALUE_TEXT]}")
        if parameter not in PARAMETERS:
            return HttpReply.refused(400, f"Unexpected query param: {parameter[:MAX_VALUE_TEXT]}")
        asked[PARAMETERS[parameter]] = int(value)
    return _stream(certified, subnet, asked, altered)


def _stream(certified: StreamStore | None, subnet: bytes, asked: dict[str, int], altered: Altered | None) -> HttpReply:
    if certified is None:
        return HttpReply(204)
    asked["msg_limit"] = min(asked.get("msg_limit", MAX_SLICE_MESSAGES), MAX_SLICE_MESSAGES)
    asked["byte_limit"] = min(asked.get("byte_limit", SLICE_BYTES), SLICE_BYTES)
    try:
        found = certified.encode_certified_stream_slice(subnet, **asked)
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
    """How a node serves.

    Attributes:
        certified: returns the certified state that it serves from, None before there is one.
        altered: of a node that lies, what it serves instead of a slice.
        delay: seconds that it takes on top.
        down: whether it serves nothing.
    """

    certified: Callable[[], StreamStore | None]
    altered: Altered | None = None
    delay: float = 0.0
    down: bool = False


def _raised(path: str, error: Exception) -> None:
    raise error


class XNetNode:
    """One node of a subnet as an ASGI application. ``conduct``: returns how it serves now; ``failed``: is told of
    faults, with the path that was asked for; without it they are raised."""

    def __init__(
        self, conduct: Callable[[], ServingFaults], failed: Callable[[str, Exception], None] = _raised
    ) -> None:
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
"""A slow node takes so much longer: more than anybody waits."""

STALE_HEIGHTS = 5
"""A node that is behind serves what was certified so many heights ago."""

_LIAR = SecretKey.derive(b"a node that lies")


def altered_message(held: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Return the slice with another last byte of its last message; of a slice without messages, another root."""
    messages = held.payload.messages
    if not messages:
        root = held.certification.root_hash
        return replace(held, certification=replace(held.certification, root_hash=bytes([root[0] ^ 1]) + root[1:]))
    last = messages[-1][:-1] + bytes([messages[-1][-1] ^ 1])
    return replace(held, payload=replace(held.payload, messages=(*messages[:-1], last)))


def altered_sibling(held: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Return the slice with another digest of the first pruned node of its witness; of one without any, as it is."""
    return replace(held, witness=_altered(held.witness))


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


def forged_signature(held: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Return the slice signed by somebody else."""
    certification = held.certification
    return replace(held, certification=replace(certification, signature=_LIAR.sign(certification.signed_bytes())))


def other_destination(held: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Return the slice as one of a stream to another subnet."""
    subnet = held.payload.subnet_id
    return replace(held, payload=replace(held.payload, subnet_id=bytes([subnet[0] ^ 1]) + subnet[1:]))


def other_height(held: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Return the slice as one that was certified at a later height."""
    certification = held.certification
    return replace(held, certification=replace(certification, height=certification.height + 1))


LIES: Mapping[str, Callable[[CertifiedStreamSlice], CertifiedStreamSlice]] = {
    "message": altered_message,
    "sibling": altered_sibling,
    "signature": forged_signature,
    "destination": other_destination,
    "height": other_height,
}


@dataclass
class SliceTamperer:
    """Alters every slice, each in the next of the ways in ``LIES``."""

    _turns: Iterator[str]

    @classmethod
    def made(cls) -> SliceTamperer:
        """Return one that has not lied yet."""
        return cls(itertools.cycle(LIES))

    def __call__(self, held: CertifiedStreamSlice) -> CertifiedStreamSlice:
        """Return what is served instead of a slice."""
        return LIES[next(self._turns)](held)
