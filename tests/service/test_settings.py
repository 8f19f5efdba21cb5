"""Scenarios with external chains, settings of relay processes, and mismatched lakes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.protocols.registry import find_protocol, register_protocol
from causeway.scenarios.scenario import load_scenario
from causeway.service.http.client import RequestRefused, ServiceClient, ServiceError
from causeway.service.ibc.client import ZoneLakeClient
from causeway.service.ibc.relay_runner import find_directions
from causeway.service.keys.signing import TRANSACTION, SignedMessage
from causeway.service.relay.faults import FaultSettings, TransactionFaults
from causeway.service.relay.loop import Submit
from causeway.service.relay.process import find_relay, require_two_lakes
from tests.support.common.lakes import scenario_text


def test_external_chains_need_a_supporting_protocol(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(scenario_text("left").replace('"ibc"', '"alone"'))
    with (
        register_protocol(replace(find_protocol("ibc"), name="alone", external=False)),
        pytest.raises(InvalidInput, match=r"chains\[1\]\.external: under alone no chain .* allowed under: ibc, ic"),
    ):
        load_scenario(path)


def test_lake_runs_at_least_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(scenario_text("neither"))
    with pytest.raises(InvalidInput, match="chains: all are external"):
        load_scenario(path)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("los=0.1", "fault: 'los'; allowed: loss, delay, duplicate"),
        ("loss=x", "'x' is no number"),
        ("loss=1.5", "allowed: 0 to 1"),
        ("delay=1.5", "allowed: 0 to 1000, whole"),
    ],
)
def test_invalid_faults(text: str, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        FaultSettings.parse(text)


def test_faults_follow_from_the_seed() -> None:
    settings = FaultSettings.parse("loss=0.3,delay=3,duplicate=0.4")
    assert settings == FaultSettings(0.3, 3, 0.4)
    sent = [Submit("a", "left", bytes([number]), 1, False) for number in range(100)]

    def run(seed: str) -> list[list[int]]:
        faults: TransactionFaults[Submit] = TransactionFaults(settings, seed)
        return [[copy.transaction[0] for copy in faults.applied(one)] for one in sent]

    assert run("1") == run("1") != run("2")
    everything = [number for copies in run("1") for number in copies]
    assert len(set(everything)) < 90
    assert len(everything) > len(set(everything))
    assert everything != sorted(everything)


STATUS: dict[str, Any] = {"protocol": "ibc", "lake": "one", "height": 0, "tick": 0, "time": 0, "tick_ns": 1}
"""What a served lake of any protocol says of itself."""


def status_of(*chains: tuple[str, bool], **options: Any) -> dict[str, Any]:
    known = {
        "order": "ordered",
        "expiry": "strict",
        "timeouts": "off",
        "cleanup": "off",
        "unbonding_ns": 10,
        "delay_ns": 0,
        "redundant": "refuse",
        "header_fee": 0,
        "proof_fee": 0,
    }
    named = [{"name": name, "external": external} for name, external in chains]
    pairs = [[one, other] for one, outside in chains for other, _ in chains if one != other and not outside]
    return {**STATUS, "chains": named, "connections": pairs, "options": {**known, **options}}


def test_two_addresses_of_one_lake_are_rejected_before_signing() -> None:
    async def ask(*lakes: str) -> None:
        named = dict(zip("ab", lakes, strict=True))
        transport = httpx.MockTransport(
            lambda request: httpx.Response(200, json={**STATUS, "lake": named[request.url.host]})
        )
        async with (
            ServiceClient("http://a", transport=transport) as a,
            ServiceClient("http://b", transport=transport) as b,
        ):
            await require_two_lakes(a, b)

    asyncio.run(ask("one", "two"))
    with pytest.raises(InvalidInput, match="http://a and http://b say that they are one lake, one: the relay signs no"):
        asyncio.run(ask("one", "one"))


def derive_directions(
    a: dict[str, Any], b: dict[str, Any], only: tuple[str, ...] = (), side: str = "both"
) -> list[str]:
    async def find() -> list[str]:
        served = {"a": a, "b": b}
        transport = httpx.MockTransport(lambda request: httpx.Response(200, json=served[request.url.host]))
        async with (
            ZoneLakeClient("http://a", transport=transport) as one,
            ZoneLakeClient("http://b", transport=transport) as other,
        ):
            directions, _ = await find_directions(one, other, only, side)
            return [str(direction) for direction in directions]

    return asyncio.run(find())


A = status_of(("one", False), ("two", False), ("three", True))
B = status_of(("one", True), ("two", True), ("three", False))


def test_directions_are_derived_from_external_chains() -> None:
    assert derive_directions(A, B) == ["one>three", "two>three", "three>one", "three>two"]
    assert derive_directions(A, B, ("three/two",)) == ["two>three", "three>two"]
    assert derive_directions(A, B, ("one/three",), "b") == ["one>three"]


@pytest.mark.parametrize(
    ("other", "error"),
    [
        (A, "both lakes run one, two"),
        (status_of(("one", True), ("three", False), cleanup="on"), "the options of the two networks differ"),
        (status_of(("four", False), ("one", True)), "have no such connection"),
    ],
)
def test_mismatched_lakes_are_rejected(other: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        derive_directions(A, other)


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        (
            "ic",
            {"protocol": "ibc"},
            "http://a is of the protocol ic, http://b of ibc: nothing can be carried between them",
        ),
        ("ic", {"protocol": "ic"}, "http://a: the lake is of the protocol ic; a process carries messages of ibc"),
        ("ic", {}, "http://b/v1/status: .* not the answer that was to come: protocol: Field required"),
        ("icmp", {"protocol": "icmp"}, "lakes of icmp exchange nothing: parachains share one relay chain"),
    ],
)
def test_lakes_with_unrelayable_messages_are_rejected(
    a: str, b: dict[str, Any], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = {"a": {"protocol": a}, "b": b}
    served = {end: {**STATUS, **status} if status else {} for end, status in served.items()}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=served[request.url.host]))
    monkeypatch.setattr("causeway.service.relay.process.ServiceClient", partial(ServiceClient, transport=transport))
    with pytest.raises(InvalidInput, match=error):
        asyncio.run(find_relay("http://a", "http://b"))


def submit_result(respond: Any, tries: int = 3) -> Any:
    """Return the result of a transaction answered by ``respond``; earlier requests get normal answers."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            sender = {"sender": "0" * 64, "number": 0, "carrier": 0, "nonce": 7}
            return httpx.Response(200, json=sender if "/senders/" in request.url.path else STATUS)
        found: httpx.Response = respond(request)
        return found

    async def ask() -> Any:
        async with ZoneLakeClient("http://a", tries=tries, transport=httpx.MockTransport(answer)) as client:
            return await client.submit("left", b"x", 0)

    return asyncio.run(ask())


def accept_response(request: httpx.Request) -> httpx.Response:
    """Return a lake's answer to an accepted transaction."""
    body = json.loads(request.content)
    sender, content = bytes.fromhex(body["sender"]), body["content"]
    name = SignedMessage(body["lake"], TRANSACTION, "left", sender, body["nonce"], content).hash
    return httpx.Response(202, json={"hash": name, "state": "waiting", "height": None})


def test_busy_lake_is_asked_again() -> None:
    answers = iter(
        [
            httpx.Response(503, json={"error": "MempoolFull", "text": "full"}),
            httpx.Response(429, json={"error": "QuotaExceeded", "text": "too much"}),
        ]
    )
    assert submit_result(lambda request: next(answers, None) or accept_response(request))[1] is None


def test_possibly_delivered_transaction_is_resent_unchanged() -> None:
    tried: list[dict[str, Any]] = []

    def broken(request: httpx.Request) -> httpx.Response:
        tried.append(json.loads(request.content))
        if len(tried) < 3:
            raise httpx.ReadTimeout("no answer", request=request)
        return accept_response(request)

    assert submit_result(broken)[1] is None
    assert tried[0] == tried[1] == tried[2]
    assert (tried[0]["nonce"], tried[0]["lake"]) == (8, "one")


def test_nonce_used_by_another_process_is_requested_again() -> None:
    tried: list[int] = []

    def used(request: httpx.Request) -> httpx.Response:
        tried.append(json.loads(request.content)["nonce"])
        return (
            accept_response(request)
            if len(tried) > 1
            else httpx.Response(409, json={"error": "NonceRefused", "text": "used"})
        )

    assert submit_result(used)[1] is None
    assert tried == [8, 8]


@pytest.mark.parametrize(
    ("response", "error", "text"),
    [
        (httpx.Response(400, json={"error": "InvalidInput", "text": "not a one"}), RequestRefused, "not a one"),
        (httpx.Response(200, text="<html>"), ServiceError, "no served lake"),
        (httpx.Response(200, json=[1]), ServiceError, "no served lake"),
        (httpx.Response(200, json={"hash": "many"}), ServiceError, "not the answer that was to come"),
        (
            httpx.Response(200, json={"hash": "0" * 64, "state": "in_block", "height": 1}),
            ServiceError,
            "about another message",
        ),
    ],
)
def test_invalid_answers(response: httpx.Response, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        submit_result(lambda request: response)


def test_invalid_address() -> None:
    with pytest.raises(InvalidInput, match="write it as http://HOST:PORT"):
        ZoneLakeClient("localhost:8421")
