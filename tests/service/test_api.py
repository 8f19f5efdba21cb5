"""The HTTP endpoints of a served lake, asked without a socket."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette

from causeway.network.network import Network
from causeway.pipeline.record import FOLDER, Record
from causeway.proofs.ics23.proof_specs import TENDERMINT_SPEC
from causeway.proofs.ics23.verify import verify_membership
from causeway.proofs.tendermint.update import decode_header_update
from causeway.proofs.wire import ibc_queue_pb2 as wire
from causeway.protocols.ibc.keys import Purpose, index_key
from causeway.protocols.limits import MAX_ITEMS, MAX_TRANSACTION_BYTES
from causeway.service.api import application
from causeway.service.mempool import MOST_WAITING, Message, rows_of
from causeway.service.node import NOTHING_LEFT, QUIET
from tests.service.lakes import Lakes, both


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakes]:
    with both(tmp_path_factory.mktemp("lakes")) as found:
        found.until_idle()
        found.nodes["left"].send({"to": "caller-left", "call": {"receiver": "echo-right", "method": "m"}, "count": 3})
        found.settle()
        yield found


class Http:
    """Asks an application without a socket."""

    def __init__(self, served: Starlette) -> None:
        self._transport = httpx.ASGITransport(served, raise_app_exceptions=False)

    def ask(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://lake") as client:
                return await client.request(method, path, content=body)

        return asyncio.run(ask())

    def get(self, path: str) -> httpx.Response:
        return self.ask("GET", path)

    def post(self, path: str, content: bytes | str) -> httpx.Response:
        return self.ask("POST", path, content.encode() if isinstance(content, str) else content)


@pytest.fixture(scope="module")
def http(lakes: Lakes) -> Http:
    return Http(application(lakes.nodes["left"]))


def test_status_says_what_the_network_is(http: Http, lakes: Lakes) -> None:
    status = http.get("/v1/status").json()
    assert status["chains"] == [{"name": "left", "external": False}, {"name": "right", "external": True}]
    assert status["connections"] == [["left", "right"]]
    assert status["height"] == lakes.nodes["left"].network.height
    assert http.get("/v1/health").json() == {"height": status["height"], "waiting": 0}


def test_proofs_verify_under_the_signed_header(http: Http) -> None:
    height = http.get("/v1/status").json()["height"]
    header = http.get(f"/v1/chains/left/header?height={height}").json()
    signed = decode_header_update(bytes.fromhex(header["signed_header"])).signed_header.header
    assert (signed.app_hash.hex(), signed.height) == (header["root"], height)
    key, none = index_key("right", Purpose.SEND, 6), index_key("right", Purpose.SEND, 99)
    body = {"height": height, "keys": [none.hex(), key.hex()]}
    answer = http.post("/v1/chains/left/proofs", content=json.dumps(body)).json()
    assert answer["proofs"][0] == {"key": none.hex(), "value": None, "proof": None}
    proof, value = (bytes.fromhex(answer["proofs"][1][name]) for name in ("proof", "value"))
    verify_membership(TENDERMINT_SPEC, signed.app_hash, proof, key, value)
    entries = http.get(f"/v1/chains/left/queues/right/send?first=6&height={height}").json()["entries"]
    assert [entry["index"] for entry in entries] == [6, 7]
    assert entries[0] == {"index": 6, "key": key.hex(), "value": value.hex()}


def test_queues_and_clients_at_any_height(http: Http) -> None:
    lane = http.get("/v1/chains/left/queues/right").json()
    assert lane["send"]["head"], lane["send"]["tail"] == (5, 8)
    assert sum(count for _, count, _ in lane["send"]["entries"]) == 3
    assert lane["client"]["state"] == "active"
    assert http.get("/v1/chains/left/queues/right?height=0").json()["send"] == {"head": 0, "tail": 0, "entries": []}


def test_accounts_and_metrics(http: Http) -> None:
    accounts = http.get("/v1/chains/left/relayers").json()["relayers"]
    assert [account["number"] for account in accounts] == [1]
    assert accounts[0]["accepted"] == 10
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    for line in (
        'causeway_queue_length{chain="left",queue="send",remote="right"} 3.0',
        'causeway_queue_oldest_index{chain="left",queue="send",remote="right"} 5.0',
        'causeway_relayer_accepted_total{chain="left",relayer="1"} 10.0',
        'causeway_client_active{chain="left",remote="right"} 1.0',
    ):
        assert line in answer.text
    assert re.search(r"^causeway_client_expires_seconds\{.*\} [0-9.e+]+$", answer.text, re.M)


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v1/nothing", 404, "/v1/nothing: Not Found"),
        ("/v1/chains/lefd/header", 400, 'chain: "lefd": no such chain; did you mean left?'),
        ("/v1/chains/right/header", 400, "chain: another lake runs right; ask it there"),
        ("/v1/chains/left/header?height=999999", 404, "height: 999999 is not committed; committed are 0 to"),
        ("/v1/chains/left/header?height=-1", 400, "height: '-1'; allowed: a whole number"),
        ("/v1/chains/left/header?height=%D9%A1", 400, "height:"),
        ("/v1/chains/left/queues/left", 400, "remote: left is not connected with left"),
        ("/v1/chains/left/queues/right/recv", 400, "queue: recv; allowed: send, receipt"),
        (f"/v1/chains/left/queues/right/send?count={MAX_ITEMS + 1}", 400, f"allowed: 1 to {MAX_ITEMS}"),
        (f"/v1/chains/left/queues/right/send?first={2**64}", 400, "first: 18446744073709551616; at most 2**64 - 1"),
        (f"/v1/chains/left/queues/right/send?first={2**64 - 1}&height={2**64}", 400, "at most 2**64 - 1"),
        ("/v1/chains/left/refusals", 400, "height: missing"),
        ("/v1/tickets/1?wait=61", 400, "wait: 61; at most 60 seconds are allowed"),
    ],
)
def test_what_cannot_be_answered_is_told_in_one_line(http: Http, path: str, status: int, text: str) -> None:
    answer = http.get(path)
    assert answer.status_code == status
    assert text in answer.json()["text"]
    assert "\n" not in answer.json()["text"]


TRANSACTIONS = "/v1/chains/left/transactions?relayer=5"


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        (TRANSACTIONS, b"\xff", 400, "transaction:"),
        (TRANSACTIONS, b"", 400, "0 calls; allowed: 1 to"),
        (TRANSACTIONS, b"\x0a\x00" * 201, 400, "201 calls; allowed: 1 to 200"),
        (TRANSACTIONS, b"\x0a" * (MAX_TRANSACTION_BYTES + 1), 413, "more than"),
        ("/v1/chains/right/transactions?relayer=5", b"\x0a\x00", 400, "another lake runs right"),
        ("/v1/chains/left/transactions", b"\x0a\x00", 400, "relayer: missing"),
        (f"/v1/chains/left/transactions?relayer={2**31}", b"\x0a\x00", 400, "allowed are numbers from 0 to"),
        ("/v1/chains/left/proofs", b"[" * 100_000, 400, "the body is no JSON"),
        ("/v1/chains/left/proofs", b"[]", 400, "the body is no JSON object"),
        ("/v1/chains/left/proofs", b'{"keys": "6962"}', 400, "keys: must be a list"),
        ("/v1/chains/left/proofs", b'{"keys": ["6x"]}', 400, "is not hexadecimal"),
        ("/v1/chains/left/proofs", b'{"keys": []}', 400, "keys: 0; allowed: 1 to"),
        ("/v1/chains/left/proofs", b'{"keys": ["00"], "height": true}', 400, "height: True"),
        ("/v1/messages", b'{"to": "caller-lef", "method": "x"}', 400, "did you mean caller-left?"),
        ("/v1/messages", b'{"to": "caller-right", "method": "x"}', 400, "another lake runs"),
        ("/v1/messages", b'{"tick": 3, "to": "caller-left", "method": "x"}', 400, "leave it out"),
        ("/v1/messages", b'{"to": "caller-left", "method": "x", "count": 2000}', 400, "count: 2000; at most"),
        ("/v1/messages", b'{"to": "caller-left", "method": "\\ud800"}', 400, "half of a surrogate pair"),
        ("/v1/messages", b'{"to": "\\ud800", "method": "x"}', 400, "no such program"),
    ],
)
def test_what_cannot_be_taken_is_told_in_one_line(
    http: Http, lakes: Lakes, path: str, body: bytes, status: int, text: str
) -> None:
    waiting = len(lakes.nodes["left"].pool)
    answer = http.post(path, content=body)
    assert answer.status_code == status
    assert text in answer.json()["text"]
    assert len(lakes.nodes["left"].pool) == waiting


def test_a_full_mempool_says_so_and_empties(tmp_path: Path) -> None:
    with both(tmp_path, calls=0) as lakes:
        http = Http(application(lakes.nodes["left"]))
        message: dict[str, Any] = {"to": "caller-left", "method": "nothing", "count": MOST_WAITING}
        assert http.post("/v1/messages", content=json.dumps(message)).status_code == 202
        full = http.post("/v1/messages", content=json.dumps({**message, "count": 1}))
        assert (full.status_code, full.json()["error"]) == (503, "MempoolFull")
        lakes.settle()
        taken = http.post("/v1/messages", content=json.dumps({**message, "count": 1})).json()
        lakes.nodes["left"].produce()
        height = lakes.nodes["left"].network.height
        assert http.get(f"/v1/tickets/{taken['ticket']}").json() == {"ticket": taken["ticket"], "height": height}


def test_what_a_killed_server_had_not_committed_is_forgotten(tmp_path: Path) -> None:
    with both(tmp_path, calls=1) as lakes:
        node = lakes.nodes["left"]
        number = node.chains["left"]
        ingress, carried = rows_of([Message(number, 0, b"", receiver=0, method="call"), Message(number, 1, b"")])
        Record(node.network.lake.storage).write(node.network.tick + 1, ingress=ingress, carried=carried)
        assert len(node.network.lake.storage.list(FOLDER)) == 2
        node.close()
        again = type(node)(node.scenario, str(tmp_path / "left"), node.pace)
        lakes.nodes["left"] = again
        assert again.network.lake.storage.list(FOLDER) == []
        lakes.until_idle()
        lakes.check(1)


def test_a_plain_run_forgets_the_record_of_a_block_that_was_not_made(tmp_path: Path) -> None:
    with both(tmp_path, calls=1) as lakes:
        node = lakes.nodes["left"]
        ingress, _ = rows_of([Message(node.chains["left"], 0, b"", receiver=0, method="call")])
        Record(node.network.lake.storage).write(node.network.tick + 1, ingress=ingress)
        node.close()
        with Network(node.scenario, str(tmp_path / "left"), resume=True) as network:
            assert network.lake.storage.list(FOLDER) == []


def test_a_block_can_be_made_again_from_its_record(tmp_path: Path) -> None:
    with both(tmp_path, calls=1) as lakes:
        lakes.relay("left", settle=False)
        node = lakes.nodes["left"]
        tick = node.network.tick + 1
        manifest = node.produce()
        recorded = node.network.deployment.carried(tick, np.arange(len(node.chains), dtype=np.uint32))
        assert (recorded.num_rows, manifest.tick) == (1, tick)
        assert recorded["payload"][0].as_py() == lakes.submitted[-1].transaction


def test_what_has_happened_already_is_not_taken_where_the_server_says_so(tmp_path: Path) -> None:
    with both(tmp_path, calls=2, options='cleanup = "on"') as lakes:
        for name, node in list(lakes.nodes.items()):
            node.close()
            lakes.nodes[name] = type(node)(node.scenario, str(tmp_path / name), node.pace, drop_redundant=True)
        lakes.until_idle()
        lakes.until_idle(cleanup_after=1)
        heights = {name: node.network.height for name, node in lakes.nodes.items()}
        for step in list(lakes.submitted):
            node = lakes.nodes[step.chain]
            assert node.submit(step.chain, 2, step.transaction) == NOTHING_LEFT
            assert node.height_of(NOTHING_LEFT) == heights[step.chain]
        assert {name: len(node.pool) for name, node in lakes.nodes.items()} == {"left": 0, "right": 0}
        assert lakes.account("left", 2) == {}
        unknown = wire.Transaction(calls=[wire.Call(receive=wire.Submit(remote="nobody"))]).SerializeToString()
        assert lakes.nodes["left"].submit("left", 2, unknown) != NOTHING_LEFT


def test_on_demand_a_lake_that_nothing_moves_makes_no_more_blocks(tmp_path: Path) -> None:
    with both(tmp_path, calls=0) as lakes:
        node = lakes.nodes["left"]
        height = node.network.height
        lakes.settle()
        assert node.network.height == height
        assert QUIET > 0
