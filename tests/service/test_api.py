"""HTTP endpoints of a served lake, requested without a socket."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ics23.proof_specs import TENDERMINT_SPEC
from causeway_proofs.ics23.verify import verify_membership, verify_non_membership
from causeway_proofs.tendermint.trust import decode_header_update
from causeway_proofs.wire import ibc_queue_pb2 as wire
from starlette.applications import Starlette

from causeway.network.network import LakeNetwork
from causeway.protocols.ibc.keys import QueuePurpose, index_key
from causeway.protocols.shared.limits import MAX_ITEMS, MAX_TRANSACTION_BYTES
from causeway.service.http import bodies, requests
from causeway.service.http.bodies import read_object
from causeway.service.http.requests import Forbidden
from causeway.service.keys.signing import carrier_number, sign_message
from causeway.service.node import mempool
from causeway.service.node.api import create_application
from causeway.service.node.mempool import (
    Mempool,
    MempoolFull,
    MempoolLimits,
    NonceRefused,
    NumberTaken,
    PendingMessage,
    QuotaExceeded,
    Senders,
    block_rows,
)
from causeway.service.node.node import QUIET, Node
from causeway.storage.external_input import InputRecord
from causeway.storage.lake import Lake
from causeway.storage.layout import RECORD
from tests.support.common.lakes import Lakes, both, key_of

SECONDS = 5.0
"""After which a test gives up."""


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakes]:
    with both(tmp_path_factory.mktemp("lakes")) as found:
        found.until_idle()
        found.send("left", {"to": "caller-left", "call": {"receiver": "echo-right", "method": "m"}, "count": 3})
        found.settle()
        yield found


class Http:
    """Client of an application without a socket."""

    def __init__(self, served: Starlette) -> None:
        self._transport = httpx.ASGITransport(served, raise_app_exceptions=False)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> httpx.Response:
        kind = {} if body is None else {"content-type": "application/json"}
        given = {**kind, **{name.replace("_", "-"): value for name, value in headers.items()}}

        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://localhost") as client:
                return await client.request(method, path, content=body, headers=given)

        return asyncio.run(ask())

    def get(self, path: str) -> httpx.Response:
        return self.ask("GET", path)

    def post(self, path: str, content: bytes | str) -> httpx.Response:
        return self.ask("POST", path, content.encode() if isinstance(content, str) else content)


@pytest.fixture(scope="module")
def http(lakes: Lakes) -> Http:
    return Http(create_application(lakes.nodes["left"]))


def test_status_describes_the_network(http: Http, lakes: Lakes) -> None:
    status = http.get("/v1/status").json()
    assert status["chains"] == [{"name": "left", "external": False}, {"name": "right", "external": True}]
    assert status["connections"] == [["left", "right"]]
    assert status["height"] == lakes.nodes["left"].network.height
    assert http.get("/v1/health").json() == {
        "height": status["height"],
        "waiting": 0,
        "waiting_bytes": 0,
    }


def test_proofs_verify_under_the_signed_header(http: Http) -> None:
    height = http.get("/v1/status").json()["height"]
    header = http.get(f"/v1/chains/left/header?height={height}").json()
    signed = decode_header_update(bytes.fromhex(header["signed_header"])).signed_header.header
    assert (signed.app_hash.hex(), signed.height) == (header["root"], height)
    key, none = index_key("right", QueuePurpose.SEND, 6), index_key("right", QueuePurpose.SEND, 99)
    body = {"height": height, "keys": [none.hex(), key.hex()]}
    answer = http.post("/v1/chains/left/proofs", content=json.dumps(body)).json()
    absent = answer["proofs"][0]
    assert (absent["key"], absent["value"]) == (none.hex(), None)
    verify_non_membership(TENDERMINT_SPEC, bytes.fromhex(answer["root"]), bytes.fromhex(absent["proof"]), none)
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
    number = carrier_number(key_of(1).public)
    assert [account["number"] for account in accounts] == [number]
    assert accounts[0]["accepted"] == 10
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    for line in (
        'causeway_queue_length{chain="left",counterparty="right",queue="send"} 3.0',
        'causeway_queue_oldest_index{chain="left",counterparty="right",queue="send"} 5.0',
        f'causeway_relayer_accepted_total{{chain="left",relayer="{number}"}} 10.0',
        'causeway_client_active{chain="left",counterparty="right"} 1.0',
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
        ("/v1/chains/left/header?height=-1", 400, 'height: "-1": allowed: a whole number'),
        ("/v1/chains/left/header?heigth=1", 400, "heigth: no such parameter; allowed: height"),
        ("/v1/chains/left/header?height=1&height=2", 400, "height: given twice"),
        ("/v1/status?height=1", 400, "height: no such parameter; allowed: none here"),
        ("/v1/chains/left/header?height=%D9%A1", 400, "height:"),
        ("/v1/chains/left/queues/left", 400, "counterparty: left is not connected with left"),
        ("/v1/chains/left/queues/right/recv", 400, "queue: recv; allowed: send, receipt"),
        (f"/v1/chains/left/queues/right/send?count={MAX_ITEMS + 1}", 400, f"must be less than or equal to {MAX_ITEMS}"),
        (f"/v1/chains/left/queues/right/send?first={2**64}", 400, 'first: "18446744073709551616": at most 2**64 - 1'),
        (f"/v1/chains/left/queues/right/send?first={2**64 - 1}&height={2**64}", 400, "at most 2**64 - 1"),
        ("/v1/chains/left/refusals", 400, "height: missing"),
        (f"/v1/messages/{'0' * 64}?wait=61", 400, "must be less than or equal to 60"),
        (f"/v1/messages/{'0' * 64}", 404, "no such message is pending"),
        ("/v1/senders/00", 400, "sender: '00'; allowed: a public key, 64 hexadecimal digits"),
    ],
)
def test_unanswerable_requests_are_reported_in_one_line(http: Http, path: str, status: int, text: str) -> None:
    answer = http.get(path)
    assert answer.status_code == status
    assert text in answer.json()["text"]
    assert "\n" not in answer.json()["text"]


TRANSACTIONS = "/v1/chains/left/transactions"


def signed_body(lakes: Lakes, content: Any, path: str = "/v1/messages", sender: int = 0, /, **changed: Any) -> bytes:
    """Return the body of a signed message to the left lake, with changed members."""
    chain = path.split("/")[3] if "chains" in path else ""
    return json.dumps({**lakes.signed("left", content, key_of(sender), chain).body(), **changed}).encode()


@pytest.mark.parametrize(
    ("path", "content", "status", "text"),
    [
        (TRANSACTIONS, {"transaction": "ff"}, 400, "transaction:"),
        (TRANSACTIONS, {"transaction": ""}, 400, "0 calls; allowed: 1 to"),
        (TRANSACTIONS, {"transaction": "0a00" * 201}, 400, "201 calls; allowed: 1 to 200"),
        (TRANSACTIONS, {"transaction": "0a" * (MAX_TRANSACTION_BYTES + 4096)}, 413, "more than"),
        (TRANSACTIONS, {"transaction": "0x"}, 400, "must be hexadecimal digits"),
        (TRANSACTIONS, {}, 400, "content.transaction: missing"),
        ("/v1/chains/right/transactions", {"transaction": "0a00"}, 400, "another lake runs right"),
        ("/v1/messages", {"to": "caller-lef", "method": "x"}, 400, "did you mean caller-left?"),
        ("/v1/messages", {"to": "caller-right", "method": "x"}, 400, "another lake runs"),
        ("/v1/messages", {"tick": 3, "to": "caller-left", "method": "x"}, 400, "content.tick: unknown key"),
        ("/v1/messages", {"sender": 3, "to": "caller-left", "method": "x"}, 400, "content.sender: unknown key"),
        ("/v1/messages", {"to": "caller-left", "method": "x", "count": 2000}, 400, "count: 2000; at most"),
        ("/v1/messages", {"to": "caller-left", "method": "x", "count": 1.5}, 400, "whole number"),
        ("/v1/messages", {"to": "caller-left", "method": "x", "count": 1e300}, 400, "whole number"),
        ("/v1/messages", {"to": "caller-left", "method": "x", "text": 10**4000}, 400, "a number of 4001 characters"),
        ("/v1/messages", {"to": "caller-left", "method": "x", "text": 10**39}, 400, "text"),
        ("/v1/messages", {"to": "caller-left", "method": "x", "list": [0] * 5000}, 400, "more than 4000 names and"),
        ("/v1/messages", [], 400, "content"),
    ],
)
def test_unacceptable_transactions_are_reported_in_one_line(
    http: Http, lakes: Lakes, path: str, content: Any, status: int, text: str
) -> None:
    waiting = len(lakes.nodes["left"].pool)
    try:
        body = signed_body(lakes, content, path)
    except InvalidInput:  # values without a canonical form cannot be signed
        body = signed_body(lakes, {}, path, content=content)
    answer = http.post(path, content=body)
    assert answer.status_code == status, answer.text
    assert text in answer.json()["text"]
    assert len(lakes.nodes["left"].pool) == waiting


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"[" * 3_000, "the body is no JSON"),
        (b"[" * 100_000, "more than 4000 names and values"),
        (b"[]", "the body is no JSON object"),
        (b'{"keys": "6962"}', "keys: "),
        (b'{"keys": ["6x"]}', "must be hexadecimal digits"),
        (b'{"keys": []}', "keys: "),
        (b'{"keys": ["00"], "height": true}', "height: true"),
        (b'{"keys": ["00"], "height": 1' + b"0" * 70 + b"}", "height: 1000"),
        (b'{"keys": ["00"], "height": 1' + b"0" * 5000 + b"}", "a number of 5001 characters"),
        (b'{"keys": ["00"], "height": NaN}', "NaN is no number"),
        (b'{"keys": ["\\ud800"]}', "must be a string"),
        (b'{"keys": ["00"], "keys": ["00"]}', "keys: stands twice"),
        (b'{"keys": ["00"], "\\ud800": 1}', "half of a surrogate pair"),
        (b'{"keys": ["00"], "more": 1}', "more: unknown key"),
        (b'{"keys": ' + b"[" * 90 + b"]" * 90 + b"}", "nested more than"),
        (b"\xff", "the body is no JSON"),
    ],
)
def test_malformed_bodies_are_rejected(http: Http, body: bytes, text: str) -> None:
    answer = http.post("/v1/chains/left/proofs", content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidInput")
    assert text in answer.json()["text"]


def test_duplicate_names_are_found_in_linear_time() -> None:
    """Pairwise comparison would take minutes and block all other requests."""
    compared = 0

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    names = [Name(f"{index:x}") for index in range(1_000)]
    with pytest.raises(InvalidInput, match="3e7: stands twice"):
        bodies._once([(name, 1) for name in [*names, Name("3e7")]])
    assert compared < 10_000


def test_missing_body_times_out(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "LONGEST_BODY", 0.05)

    async def dripping() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    answer = http.post("/v1/chains/left/proofs", dripping())  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["error"]) == (408, "NotServed")


def test_other_requests_are_answered_while_a_long_body_is_read(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(data: bytes) -> dict[str, Any]:
        if len(data) > bodies.SHORT:
            begun.set()
            go.wait(SECONDS)
        return read_object(data)

    monkeypatch.setattr(requests, "read_object", slow)
    long = signed_body(lakes, {"to": "caller-left", "method": "x", "text": "x" * 2 * bodies.SHORT}, signature="0" * 128)
    short = signed_body(lakes, {"to": "caller-left", "method": "x"}, signature="0" * 128)

    async def ask() -> tuple[int, int, bool, int]:
        transport = httpx.ASGITransport(create_application(lakes.nodes["left"]))
        kind = {"content-type": "application/json"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=kind) as client:
            reading = asyncio.create_task(client.post("/v1/messages", content=long))
            assert await asyncio.to_thread(begun.wait, SECONDS)
            health = await client.get("/v1/health")
            other = await client.post("/v1/messages", content=short)
            early = not reading.done()
            go.set()
            return health.status_code, other.status_code, early, (await reading).status_code

    assert asyncio.run(ask()) == (200, 403, True, 403)


def test_another_key_with_a_relayers_number_is_rejected(
    http: Http, lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mempool, "carrier_number", lambda key: carrier_number(key_of(1).public))
    refused = http.post(TRANSACTIONS, signed_body(lakes, {"transaction": "0a00"}, TRANSACTIONS, 55))
    assert (refused.status_code, refused.json()["error"]) == (409, "NumberTaken")


def test_lone_surrogates_are_rejected(http: Http, lakes: Lakes) -> None:
    for content in ('{"to": "caller-left", "method": "\\ud800"}', '{"to": "\\ud800", "method": "x"}'):
        body = signed_body(lakes, {}).replace(b'"content": {}', b'"content": ' + content.encode())
        answer = http.post("/v1/messages", body)
        assert answer.status_code == 400
        assert "surrogate pair" in answer.json()["text"]


def test_only_same_site_json_by_a_known_host_name_is_accepted(http: Http, lakes: Lakes) -> None:
    body = signed_body(lakes, {"to": "caller-left", "method": "x"})
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert http.ask("POST", "/v1/messages", body, content_type=kind).status_code == 415
    for name in ("POST", "GET"):
        refused = http.ask(name, "/v1/messages" if name == "POST" else "/v1/status", origin="http://evil.example")
        assert (refused.status_code, refused.json()["error"]) == (403, "WrongOrigin")
    for host in ("evil.example", "localhost.evil.example:8420", "", "localhost:x"):
        refused = http.ask("POST", "/v1/messages", body, host=host)
        assert (refused.status_code, refused.json()["error"]) == (421, "WrongHost")
    for host in ("127.0.0.1:8420", "[::1]:8420", "LOCALHOST", "10.0.0.7"):
        assert http.ask("GET", "/v1/status", host=host).status_code == 200
    named = Http(create_application(lakes.nodes["left"], ["lake.example"]))
    assert named.ask("GET", "/v1/status", host="lake.example:443").status_code == 200
    assert not len(lakes.nodes["left"].pool)


def test_no_key_sends_as_another_user_or_to_another_lake(http: Http, lakes: Lakes) -> None:
    content = {"to": "caller-left", "method": "x"}
    other = lakes.nodes["right"].opened.lake.identity
    mine = json.loads(signed_body(lakes, content))
    for changed in (
        {"sender": key_of(1).public.hex()},
        {"nonce": mine["nonce"] + 1},
        {"content": {**content, "count": 2}},
        {"signature": "00" * 64},
        {"sender": "ff" * 32},
    ):
        refused = http.post("/v1/messages", json.dumps({**mine, **changed}))
        assert (refused.status_code, refused.json()["error"]) == (403, "NotSigned")
    transaction = {**mine, "content": {"transaction": "0a00"}}
    assert http.post(TRANSACTIONS, json.dumps(transaction)).json()["error"] == "NotSigned"
    refused = http.post("/v1/messages", json.dumps({**mine, "lake": other}))
    assert (refused.status_code, refused.json()["error"]) == (403, "Forbidden")


def test_message_is_accepted_once_and_known_by_hash_after_a_restart(tmp_path: Path) -> None:
    with both(tmp_path, calls=0) as lakes:
        node = lakes.nodes["left"]
        http = Http(create_application(node))
        content = {"to": "caller-left", "method": "x"}
        body = signed_body(lakes, content)
        first = http.post("/v1/messages", body)
        assert (first.status_code, first.json()["state"]) == (202, "waiting")
        assert http.post("/v1/messages", body).json() == first.json()
        assert len(node.pool) == 1
        node.produce()
        taken = {**first.json(), "state": "in_block", "height": node.network.height}
        assert http.post("/v1/messages", body).json() == taken
        assert len(node.pool) == 0
        sender = key_of(0).public.hex()
        assert http.get(f"/v1/senders/{sender}").json()["nonce"] == 1
        # Pending messages at a kill are in no block: the same one may come again.
        lost = signed_body(lakes, {**content, "method": "z"})
        name = http.post("/v1/messages", lost).json()["hash"]
        node.close()
        again = lakes.nodes["left"] = Node(node.scenario, str(tmp_path / "left"), node.pace)
        http = Http(create_application(again))
        assert http.get(f"/v1/messages/{taken['hash']}").json() == taken
        assert http.post("/v1/messages", body).json() == taken
        assert http.get(f"/v1/messages/{name}").status_code == 404
        mine = sign_message(key_of(0), again.opened.lake.identity, "message", "", 1, {**content, "method": "y"})
        refused = http.post("/v1/messages", json.dumps(mine.body()))
        assert (refused.status_code, refused.json()["error"]) == (409, "NonceRefused")
        assert http.post("/v1/messages", lost).json() == {"hash": name, "state": "waiting", "height": None}


def test_repeated_message_in_production_is_answered_as_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with both(tmp_path, calls=0) as lakes:
        node = lakes.nodes["left"]
        message = lakes.signed("left", {"to": "echo-left", "method": "x"}, key_of(0))
        read = node._message

        def slow(again: Any) -> PendingMessage:
            found = read(again)
            monkeypatch.setattr(node, "_message", read)
            node.take(message)
            node.produce()
            return found

        monkeypatch.setattr(node, "_message", slow)
        assert node.take(message).height == 1


def test_senders_survive_snapshots_and_the_oldest_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mempool, "BETWEEN", 3)
    monkeypatch.setattr(mempool, "MOST_SENDERS", 4)
    monkeypatch.setattr(mempool, "LOOKED_AT", 2)
    record = InputRecord(Lake.at(str(tmp_path)))
    known = Senders(record, -1)
    for tick in range(8):
        message = PendingMessage(0, 0, b"", 0, "m", key=key_of(tick).public, nonce=10 + tick, hash=f"{tick:064x}")
        known.check(message.key, message.nonce)
        known.wait(message)
        record.write(tick, **known.rows([message], tick + 1))
        known.record_block([message], tick + 1)
    assert [tick for tick, _ in record.newest("senders")] == [5, 2]
    again = Senders(record, 7)
    for one in (known, again):
        assert [one.last(key_of(tick).public) for tick in range(8)] == [13, 13, 13, 13, 14, 15, 16, 17]
        with pytest.raises(NonceRefused, match="last one is 13"):
            one.check(key_of(0).public, 13)
        one.check(key_of(0).public, 14)
        with pytest.raises(NonceRefused):
            one.check(key_of(0).public, 14 + mempool.MOST_STEP)
    assert again.height_of(f"{7:064x}") == 8
    assert again.height_of(f"{0:064x}") is None
    earlier = Senders(record, 4)
    assert (earlier.last(key_of(4).public), earlier.last(key_of(5).public)) == (14, 10)


class Carrying:
    """Sender record with blocks of messages. ``thief`` has the number of key 0."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.thief, owner = key_of(99).public, key_of(0).public
        number = lambda key: 7 if key in (self.thief, owner) else carrier_number(key)  # noqa: E731
        monkeypatch.setattr(mempool, "carrier_number", number)
        monkeypatch.setattr(mempool, "BETWEEN", 3)
        self.record = InputRecord(Lake.at(str(folder)))
        self.known, self.tick = Senders(self.record, -1), 0

    def put(self, number: int, carries: bool = True) -> None:
        """Make a block with a message of a key with a nonce of the tick plus 10."""
        key, to = key_of(number).public, None if carries else 0
        message = PendingMessage(0, 0, b"", to, key=key, nonce=10 + self.tick, hash=f"{self.tick:064x}")
        if carries:
            self.known.check_carrier(key)
        self.known.check(key, message.nonce)
        self.known.wait(message)
        self.record.write(self.tick, **self.known.rows([message], self.tick + 1))
        self.known.record_block([message], self.tick + 1)
        self.tick += 1


def test_carrier_number_is_exclusive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mempool, "MOST_SENDERS", 2)
    monkeypatch.setattr(mempool, "MOST_CARRIERS", 3)
    lake = Carrying(tmp_path, monkeypatch)
    lake.known.check_carrier(lake.thief)  # while it belongs to nobody
    # One user with a relayed message, then many that evict all other senders, two of them carriers.
    for tick, carries in enumerate([False, True, False, False, True, False, False, True, False, False, False]):
        lake.put(0 if tick < 2 else tick, carries)
    for one in (lake.known, Senders(lake.record, 10)):
        assert [one.last(key_of(number).public) for number in (0, 4, 7, 9, 10)] == [11, 14, 17, 19, 20]
        assert one.last(key_of(2).public) == one.floor == 18
        one.check_carrier(key_of(0).public)
        with pytest.raises(NumberTaken):
            one.check_carrier(lake.thief)


def test_carrier_finds_a_slot_however_many_keys_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mempool, "MOST_CARRIERS", 4)
    monkeypatch.setattr(mempool, "GIVEN_UP", 2)
    lake = Carrying(tmp_path, monkeypatch)
    lake.put(0)
    lake.put(0)
    for number in range(1, 20):
        lake.put(number)  # each relays once
        with pytest.raises(NumberTaken):
            lake.known.check_carrier(lake.thief)
        assert len(lake.known._carriers) == len(lake.known._owners) == len(lake.known._carried) <= 4
    newest = Senders(lake.record, lake.tick - 1)
    for one in (lake.known, newest):
        # Former carriers are still senders: accepted messages are not accepted again.
        assert [one.last(key_of(number).public) for number in range(20)] == [11, *range(12, 31)]
        with pytest.raises(NonceRefused):
            one.check(key_of(3).public, 14)
    assert len(newest._carriers) <= 4


@pytest.mark.parametrize("again", [False, True])
def test_number_used_by_two_keys_belongs_to_the_last(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mempool, "MOST_CARRIERS", 4)
    monkeypatch.setattr(mempool, "GIVEN_UP", 2)
    lake = Carrying(tmp_path, monkeypatch)
    monkeypatch.setattr(mempool, "BETWEEN", 100)
    numbers = [0, *range(1, 7), 99, *range(7, 13), *([0, *range(13, 19)] if again else [])]
    for number in numbers:
        lake.put(number)  # the next six replace each other
    after = Senders(lake.record, lake.tick - 1)
    for one in (lake.known, after):
        nonces = [one.last(key_of(number).public) for number in numbers]
        assert nonces == [24 if again and number == 0 else 10 + tick for tick, number in enumerate(numbers)]
    assert len(after._carriers) == len(after._owners) <= 4
    assert {carrier for carrier in after._carriers if carrier in (key_of(0).public, lake.thief)} <= {
        key_of(0 if again else 99).public
    }


def test_frequent_carrier_keeps_its_slot_over_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mempool, "MOST_CARRIERS", 4)
    monkeypatch.setattr(mempool, "GIVEN_UP", 2)
    lake = Carrying(tmp_path, monkeypatch)
    monkeypatch.setattr(mempool, "BETWEEN", 100)
    for number in [0, 0, *range(1, 20)]:
        lake.put(number)
    for one in (lake.known, Senders(lake.record, lake.tick - 1)):
        assert key_of(0).public in one._carriers
        with pytest.raises(NumberTaken):
            one.check_carrier(lake.thief)


def test_full_mempool_reports_it_and_drains(tmp_path: Path) -> None:
    with both(tmp_path, calls=0) as lakes:
        node = lakes.nodes["left"]
        http = Http(create_application(node))
        most = node.pool.limits
        message: dict[str, Any] = {"to": "caller-left", "method": "nothing"}
        for sender in range(most.user_messages // most.sender_messages):
            body = signed_body(lakes, {**message, "count": most.sender_messages}, "/v1/messages", sender)
            assert http.post("/v1/messages", body).status_code == 202
        again = http.post("/v1/messages", signed_body(lakes, message, "/v1/messages", 0))
        assert (again.status_code, again.json()["error"]) == (429, "QuotaExceeded")
        full = http.post("/v1/messages", signed_body(lakes, message, "/v1/messages", 7))
        assert (full.status_code, full.json()["error"]) == (503, "MempoolFull")
        # Relayers still find a slot.
        body = signed_body(lakes, {"transaction": "0a00"}, TRANSACTIONS, 8)
        assert http.post(TRANSACTIONS, body).status_code == 202
        lakes.settle()
        assert (len(node.pool), node.pool.size) == (0, 0)
        taken = http.post("/v1/messages", signed_body(lakes, message, "/v1/messages", 7)).json()
        node.produce()
        found = http.get(f"/v1/messages/{taken['hash']}").json()
        assert found == {"hash": taken["hash"], "state": "in_block", "height": node.network.height}


def test_pending_bytes_are_bounded() -> None:
    pool = Mempool(MempoolLimits(size=3000, sender_size=2000, user_size=2500))
    pool.add(PendingMessage(0, 0, bytes(1000), 0, "m", key=b"a"))
    with pytest.raises(QuotaExceeded):
        pool.add(PendingMessage(0, 0, bytes(1000), 0, "m", key=b"a"))
    with pytest.raises(MempoolFull, match="the rest is for relayers"):
        pool.add(PendingMessage(0, 0, bytes(1000), 0, "m", key=b"b"))
    pool.add(PendingMessage(0, 0, bytes(1000), key=b"b"))
    with pytest.raises(MempoolFull):
        pool.add(PendingMessage(0, 0, bytes(1000), key=b"c"))
    assert len(pool.take(0)) == 2
    assert (len(pool), pool.size) == (0, 0)


def test_unproven_relayers_exclude_neither_users_nor_relayers() -> None:
    pool, most, names = Mempool(), MempoolLimits(), iter(range(10_000))

    def add(**more: Any) -> None:
        pool.add(PendingMessage(0, 0, b"", key=next(names).to_bytes(4, "big"), **more))

    for _ in range(most.new_messages):
        add(new=True)
    with pytest.raises(MempoolFull, match=r"^375 messages, 96000 bytes of new relayers wait for a block; "):
        add(new=True)
    for _ in range(most.carried_messages - most.new_messages):
        add()
    with pytest.raises(MempoolFull, match=r"^750 messages, 192000 bytes of relayers .* the rest is for users"):
        add()
    for _ in range(most.messages - most.carried_messages):
        add(receiver=1)
    with pytest.raises(MempoolFull, match=r"^1000 messages"):
        add(receiver=1)
    assert len(pool.take(0)) == most.messages and not pool.size
    for _ in range(most.new_messages):
        add(new=True)


def test_relayer_is_new_until_a_block_includes_its_message(tmp_path: Path) -> None:
    with both(tmp_path, calls=0) as lakes:
        node = lakes.nodes["left"]
        for number, expected in ((0, True), (1, False)):
            lakes.submit("left", 3, b"\x0a\x00")
            (waiting,) = node.pool.take(2**62)
            assert (number, waiting.new) == (number, expected)
            node.pool.add(waiting)
            node.produce()
        assert Senders(InputRecord(node.network.lake), node.network.tick).is_new(key_of(3).public) is False


def test_only_listed_keys_relay_where_the_server_requires_it(tmp_path: Path) -> None:
    with both(tmp_path, calls=0) as lakes:
        node = lakes.nodes["left"]
        node.close()
        own = Node(node.scenario, str(tmp_path / "left"), node.pace, carriers=[key_of(1).public])
        lakes.nodes["left"] = own
        with pytest.raises(Forbidden, match="only relayers that are named"):
            lakes.submit("left", 2, b"\x0a\x00")
        assert lakes.submit("left", 1, b"\x0a\x00").state == "waiting"


def record_files(lake: Lake) -> list[str]:
    return [path for path in lake.storage.walk() if path.startswith(f"{RECORD}/")]


def test_uncommitted_input_of_a_killed_server_is_dropped(tmp_path: Path) -> None:
    with both(tmp_path, calls=1) as lakes:
        node = lakes.nodes["left"]
        number = node.chains["left"]
        ingress, carried = block_rows(
            [PendingMessage(number, 0, b"", receiver=0, method="call"), PendingMessage(number, 1, b"")]
        )
        InputRecord(node.network.lake).write(node.network.tick + 1, ingress=ingress, carried=carried)
        assert len(record_files(node.network.lake)) == 2
        node.close()
        again = type(node)(node.scenario, str(tmp_path / "left"), node.pace)
        lakes.nodes["left"] = again
        assert record_files(again.network.lake) == []
        lakes.until_idle()
        lakes.check(1)


def test_plain_run_discards_the_record_of_an_unmade_block(tmp_path: Path) -> None:
    with both(tmp_path, calls=1) as lakes:
        node = lakes.nodes["left"]
        ingress, _ = block_rows([PendingMessage(node.chains["left"], 0, b"", receiver=0, method="call")])
        InputRecord(node.network.lake).write(node.network.tick + 1, ingress=ingress)
        node.close()
        with LakeNetwork(node.scenario, str(tmp_path / "left"), resume=True) as network:
            assert record_files(network.lake) == []


def test_block_can_be_reproduced_from_its_record(tmp_path: Path) -> None:
    with both(tmp_path, calls=1) as lakes:
        lakes.relay("left", settle=False)
        node = lakes.nodes["left"]
        tick = node.network.tick + 1
        manifest = node.produce()
        outside = node.network.lake.outside(manifest)
        recorded = node.network.deployment.carried(outside, np.arange(len(node.chains), dtype=np.uint32))
        assert (recorded.num_rows, manifest.tick) == (1, tick)
        assert recorded["payload"][0].as_py() == lakes.submitted[-1].transaction


def test_redundant_messages_are_rejected_where_the_server_requires_it(tmp_path: Path) -> None:
    with both(tmp_path, calls=2, options='cleanup = "on"') as lakes:
        for name, node in list(lakes.nodes.items()):
            node.close()
            lakes.nodes[name] = type(node)(node.scenario, str(tmp_path / name), node.pace, drop_redundant=True)
        lakes.until_idle()
        lakes.until_idle(cleanup_after=1)
        heights = {name: node.network.height for name, node in lakes.nodes.items()}
        for step in list(lakes.submitted):
            node = lakes.nodes[step.chain]
            taken = lakes.submit(step.chain, 2, step.transaction)
            assert (taken.state, taken.height) == ("redundant", heights[step.chain])
            assert node.senders.last(key_of(2).public) == 0
        assert {name: len(node.pool) for name, node in lakes.nodes.items()} == {"left": 0, "right": 0}
        assert lakes.account("left", 2) == {}
        unknown = wire.Transaction(calls=[wire.Call(receive=wire.Submit(remote="nobody"))]).SerializeToString()
        assert lakes.submit("left", 2, unknown).state == "waiting"


def test_on_demand_idle_lake_makes_no_more_blocks(tmp_path: Path) -> None:
    with both(tmp_path, calls=0) as lakes:
        node = lakes.nodes["left"]
        height = node.network.height
        lakes.settle()
        assert node.network.height == height
        assert QUIET > 0
