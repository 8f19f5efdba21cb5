"""Certificates of a served lake of subnets, under the keys in its status, during block production."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from causeway_proofs.documents.trust import parse_trust_object
from causeway_proofs.documents.verification import build_document, verify_document
from causeway_proofs.ic.messages import StreamRequest, decode_stream_message
from causeway_proofs.ic.stream_header import decode_stream_header
from starlette.applications import Starlette

from causeway.service.node.api import create_application
from tests.support.common.subnet_lakes import both

PATH = "/v1/chains/left/certificate"


def get(served: Starlette, path: str, **query: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(served, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path, params=query)

    return asyncio.run(ask())


def value(document: dict[str, Any], key: str) -> bytes:
    """Return the value proved by a document under a subnet's key."""
    trust = parse_trust_object({"kind": "ic_public_key", "key": key, "subnet_id": document["subnet_id"]}, "status")
    verdict = verify_document(build_document(document, "answer"), trust)
    assert verdict.valid, verdict.error
    (shown,) = document["paths"]
    return bytes.fromhex(shown["value"])


def test_streams_are_certified_under_the_key_in_the_status(tmp_path: Path) -> None:
    with both(tmp_path, calls=5, more=CERTIFYING) as lakes:
        lakes.settle("left")
        served = create_application(lakes.nodes["left"])
        key = get(served, "/v1/status").json()["chains"][0]["public_key"]
        found = get(served, PATH, counterparty="right")
        assert found.status_code == 200
        header = decode_stream_header(value(found.json(), key))
        assert (header.begin, header.end) == (1, 6)
        for index in range(1, 6):
            shown = get(served, PATH, counterparty="right", index=index).json()
            message = decode_stream_message(value(shown, key))
            assert isinstance(message, StreamRequest) and message.method_payload == b"from the left"
        data = value(get(served, PATH, program="map-left").json(), key)
        assert len(data) == 32
        lakes.until_idle()
        later = decode_stream_header(value(get(served, PATH, counterparty="right").json(), key))
        assert (later.begin, later.end, later.signals_end) == (11, 11, 11)
        before = get(served, PATH, counterparty="right", index=5, height=1)
        assert decode_stream_message(value(before.json(), key)) == message
        for query, status, told in WRONG:
            refused = get(served, PATH, **query)
            assert refused.status_code == status, refused.text
            assert told in refused.text
        assert "is run by another lake" in get(served, PATH.replace("left", "right"), counterparty="left").text


CERTIFYING = """
[[programs]]
name = "map-left"
chain = "left"
program = "certified_map"
[[traffic.send]]
tick = 0
to = "map-left"
method = "put"
text = "apple=12"
"""

WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({}, 400, "give either counterparty (and index) or program"),
    ({"counterparty": "right", "program": "map-left"}, 400, "give either counterparty (and index) or program"),
    ({"program": "map-left", "index": 1}, 400, "index: is of a message in a stream"),
    ({"counterparty": "right", "index": 1}, 400, "index: 1: is not in the stream"),
    ({"counterparty": "right", "index": -1}, 400, "index"),
    ({"counterparty": "nobody"}, 400, "nobody"),
    ({"program": "caller-left"}, 400, "program: caller-left: has set no certified data"),
    ({"counterparty": "right", "height": 999}, 404, "999"),
    ({"counterparty": "right", "depth": 1}, 400, "depth: no such parameter"),
]
