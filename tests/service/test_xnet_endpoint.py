"""The endpoint of a node: paths, parameters, statuses, content types and limits of deployed replicas (X-9)."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import httpx
import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.ic.primitives import principal_to_text
from causeway_proofs.ic.slice import decode_certified_stream_slice

from causeway.network.replay import ReplayBusy
from causeway.protocols.ic.ids import subnet_id
from causeway.protocols.ic.streams.remote_slices import SliceReader
from causeway.service.ic.xnet_endpoint import LIES, MOST_RUNNING, ServingFaults, SliceTamperer, XNetNode, answer_request
from causeway.service.node.server import PortRouter
from tests.support.ic.ic_streams import BEGIN, END, KEY, OTHER, OWN, REMOTE, certified

STREAM = f"/api/v1/stream/{principal_to_text(OWN)}"


def test_streams_are_listed_by_textual_ids() -> None:
    found = answer_request(certified(), "/api/v1/streams", "")
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    assert json.loads(found.body) == [principal_to_text(OWN), principal_to_text(OTHER)]
    assert answer_request(None, "/api/v1/streams", "").body == b"[]"


@pytest.mark.parametrize(
    ("query", "first", "count", "witness"),
    [
        ("", BEGIN, END - BEGIN, BEGIN),
        (f"msg_begin={BEGIN + 2}", BEGIN + 2, END - BEGIN - 2, BEGIN + 2),
        (f"index={BEGIN + 2}&msg_limit=3", BEGIN + 2, 3, BEGIN + 2),
        (f"msg_begin={BEGIN + 5}&witness_begin={BEGIN + 2}&msg_limit=2", BEGIN + 5, 2, BEGIN + 2),
        (f"msg_begin={BEGIN}&byte_limit=1", BEGIN, 1, BEGIN),
        (f"msg_begin={END}", None, 0, None),
        ("msg_limit=0", None, 0, None),
        (f"msg_limit={2**64 - 1}&byte_limit={2**64 - 1}", BEGIN, END - BEGIN, BEGIN),
    ],
)
def test_slice_matches_its_request(query: str, first: int | None, count: int, witness: int | None) -> None:
    found = answer_request(certified(), STREAM, query)
    assert (found.status, found.headers["content-type"]) == (200, "application/x-protobuf")
    assert found.headers["x-protobuf-message"] == "xnet.v1.CertifiedStreamSlice"
    held = decode_certified_stream_slice(found.body)
    assert (held.payload.messages_begin, len(held.payload.messages)) == (first, count)
    assert held.witness_begin() == witness


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        (f"/api/v1/stream/{principal_to_text(subnet_id(9))}", "", 204),
        (STREAM, f"msg_begin={BEGIN - 1}", 416),
        (STREAM, f"msg_begin={END + 1}", 416),
        (STREAM, f"msg_begin={BEGIN}&witness_begin={BEGIN - 1}", 416),
        (STREAM, f"msg_begin={BEGIN}&witness_begin={BEGIN + 1}", 400),
        (STREAM, f"witness_begin={BEGIN}", 400),
        (STREAM, "msg_begin=", 400),
        (STREAM, "msg_begin=-1", 400),
        (STREAM, "msg_begin=1e3", 400),
        (STREAM, "msg_begin=\u0664", 400),
        (STREAM, f"msg_begin={2**64}", 400),
        (STREAM, "msg_begin=" + "1" * 5000, 400),
        (STREAM, "something=1", 400),
        ("/api/v1/stream/", "", 400),
        ("/api/v1/stream/abc", "", 400),
        (STREAM + "a", "", 400),
        ("/api/v1/stream/" + "a" * 100_000, "", 400),
        ("/api/v1/stream", "", 404),
        ("/", "", 404),
    ],
)
def test_each_unserved_request_has_its_own_status(path: str, query: str, status: int) -> None:
    found = answer_request(certified(), path, query)
    assert found.status == status and len(found.body) < 300
    assert (found.body == b"") == (status == 204)


def test_node_without_a_certified_state_has_no_streams() -> None:
    assert answer_request(None, STREAM, "").status == 204
    assert answer_request(None, STREAM, "x=1").status == 400


def test_every_serving_fault_is_detected_and_none_is_a_valid_slice() -> None:
    reader, liar = SliceReader({REMOTE: KEY.public_key()}), SliceTamperer.create()
    causes = []
    for _ in LIES:
        found = answer_request(certified(), STREAM, f"msg_begin={BEGIN}&msg_limit=4", liar)
        with pytest.raises(ProofError) as refused:
            reader.verify(OWN, REMOTE, reader.decode(found.body))
        causes.append(type(refused.value).__name__)
    mismatch = "RootHashMismatch"
    assert causes == [mismatch, mismatch, "InvalidSignature", "InvalidDestination", mismatch]
    for _ in LIES:
        found = answer_request(certified(), STREAM, f"msg_begin={END}", liar)
        with pytest.raises(ProofError):
            reader.verify(OWN, REMOTE, reader.decode(found.body))


def client(app: Any, port: int = 80) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://127.0.0.1:{port}")


def test_node_fault_is_logged_and_answered_without_its_text() -> None:
    told: list[tuple[str, str]] = []
    faults: list[Exception] = [IndexError("nobody thought of this"), ReplayBusy("come again")]

    def broken() -> Any:
        raise faults.pop(0)

    async def ask() -> list[tuple[int, str]]:
        node = XNetNode(lambda: ServingFaults(broken), lambda path, error: told.append((path, str(error))))
        async with client(node) as asking:
            found = [await asking.get(STREAM) for _ in range(2)]
            return [(one.status_code, one.text) for one in found]

    assert asyncio.run(ask()) == [(500, "Internal Server Error"), (503, "come again")]
    assert told == [(STREAM, "nobody thought of this")]


def test_node_answers_four_requests_at_a_time() -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slowly() -> Any:
        begun.release()
        go_on.wait(10)
        return certified()

    async def ask() -> list[int]:
        async with client(XNetNode(lambda: ServingFaults(slowly))) as asking:
            running = [asyncio.create_task(asking.get(STREAM)) for _ in range(MOST_RUNNING)]
            for _ in running:
                await asyncio.to_thread(begun.acquire, timeout=10)
            refused = await asking.get(STREAM)
            go_on.set()
            found = [refused.status_code, *[(await one).status_code for one in running]]
            return [*found, (await asking.get(STREAM)).status_code]

    assert asyncio.run(ask()) == [503, 200, 200, 200, 200, 200]


def test_stopped_node_answers_nothing_and_a_slow_one_later() -> None:
    conduct = [ServingFaults(certified, down=True), ServingFaults(certified, delay=0.01), ServingFaults(certified)]

    async def ask() -> list[int]:
        async with client(XNetNode(lambda: conduct.pop(0))) as asking:
            return [(await asking.get(STREAM)).status_code for _ in range(3)]

    assert asyncio.run(ask()) == [503, 200, 200]


def test_nodes_share_a_server_and_answer_at_their_ports() -> None:
    async def main(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask() -> list[int]:
        app = PortRouter(
            main,
            {9001: XNetNode(lambda: ServingFaults(certified)), 9002: XNetNode(lambda: ServingFaults(lambda: None))},
        )
        found = []
        for port in (9000, 9001, 9002):
            async with client(app, port) as asking:
                found.append((await asking.get(STREAM)).status_code)
        async with client(app, 9001) as asking:
            head = await asking.head(STREAM)
            assert head.content == b"" and int(head.headers["content-length"]) > 1000
            found += [head.status_code, (await asking.post(STREAM)).status_code]
        return found

    assert asyncio.run(ask()) == [418, 200, 204, 200, 405]
