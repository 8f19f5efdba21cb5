"""A served lake of parachains with HRMP channels: public endpoints and their proofs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from causeway_proofs.documents.verification import build_document, verify_document

from causeway.scenarios.scenario import load_scenario
from causeway.service.icmp import routes
from causeway.service.icmp.summary import summary
from causeway.service.node.api import create_application
from causeway.service.node.node import BlockPace, Node
from tests.service.test_api import Http
from tests.service.test_parachains_served import proved
from tests.service.test_schemathesis import ask
from tests.support.common.small_lakes import user_calls
from tests.support.icmp.icmp_lake import SCENARIO, SENDS, TICKS

OPTIONS = """
[options]
channels = "hrmp"
session_blocks = 2
"""

HEIGHT = 8
"""After it ``far``, which is halted, has a message of ``left`` in its channel."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("channels")
    path = folder / "scenario.toml"
    path.write_text(SCENARIO.format(commit_every=1) + user_calls(range(0, TICKS, 2), SENDS) + OPTIONS)
    with Node(load_scenario(path), str(folder / "lake"), BlockPace(0, on_demand=True)) as found:
        for _ in range(HEIGHT):
            found.produce()
        yield found


@pytest.fixture
def http(node: Node) -> Http:
    return Http(create_application(node))


@pytest.mark.slow
def test_responses_conform_to_the_openapi_document(node: Node) -> None:
    served = create_application(node, ["testserver"])
    document: Any = schemathesis.openapi.from_asgi("/openapi.json", served)
    every = (found.ok() for found in document.get_all_operations())
    own = [one for one in every if one.path.startswith("/v1/chains") and not one.path.endswith("transactions")]
    assert len(own) == 6
    for operation in (one for one in own if "queued" in one.path):  # it has all parameters
        ask(operation, schemathesis.GenerationMode.POSITIVE)
        ask(operation, schemathesis.GenerationMode.NEGATIVE)


@pytest.mark.parametrize(
    "path", ["far/watermark", "far/ingress", "far/channels", "left/channel/far", "left/queued/far?index=0"]
)
def test_answers_are_proved_under_the_head_root(http: Http, path: str) -> None:
    answer = http.get(f"/v1/chains/{path}")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert proved(found)
    head = http.get(f"/v1/chains/relay/head?height={found['height']}").json()
    assert found["trust"] == {"kind": "root", "root": head["root"]}
    earlier = http.get("/v1/chains/relay/head?height=1").json()["root"]
    assert not proved(found | {"trust": {"kind": "root", "root": earlier}})


def test_channel_messages_lead_to_its_head_in_the_channel_list(http: Http) -> None:
    listed = http.get("/v1/chains/far/channels").json()["channels"]
    mine = {(row["sender"], row["recipient"]): row for row in listed}
    found = http.get("/v1/chains/left/channel/far").json()
    queue = found["queue"]
    assert verify_document(build_document(queue, "answer"), self_consistent=True).valid
    assert queue["trust"]["root"] == mine["left", "far"]["mqc_head"]
    assert len(queue["messages"]) == mine["left", "far"]["msg_count"] > 0
    assert mine["left", "far"]["total_size"] == sum(len(row["data"]) // 2 for row in queue["messages"])


def test_missing_items_are_reported(http: Http) -> None:
    for path, status in (
        ("left/queued/far?index=99", 404),
        ("left/queued/far?index=0&height=1", 404),
        ("left/channel/far?height=1", 404),
        ("left/channel/relay", 404),
        ("relay/watermark", 400),
        ("far/head", 400),
        ("far/channels?height=99", 404),
        ("relay/heads", 404),
    ):
        answer = http.get(f"/v1/chains/{path}")
        assert answer.status_code == status, (path, answer.text)


def test_oversized_answers_are_rejected(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_ANSWER_BYTES", routes.ANSWER_MARGIN + 1_300)
    assert http.get("/v1/chains/far/watermark").status_code == 200
    answer = http.get("/v1/chains/far/ingress")
    assert answer.status_code == 400 and "an answer at most" in answer.json()["text"]


def test_state_of_a_height_is_built_once_for_all_requests(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    http.get("/v1/chains/far/ingress?height=6")
    monkeypatch.setattr("causeway.proving.icmp.channels.storage_changes", None)
    assert [http.get(f"/v1/chains/{chain}/ingress?height=6").status_code for chain in ("far", "left")] == [200, 200]


def test_pending_queues_are_reported(node: Node, http: Http) -> None:
    text = http.get("/metrics").text
    assert f'causeway_relay_block{{leaf="0"}} {HEIGHT}.0' in text and 'causeway_queues_waiting{chain="far"} ' in text
    manifest = node.opened.manifest(HEIGHT)
    assert summary(node.opened.lake, manifest).content["relay_blocks"] == HEIGHT
