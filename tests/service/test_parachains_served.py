"""A served lake of parachains: public endpoints and their proofs at each leaf of a fork."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from causeway_proofs.documents.trust import parse_trust_object
from causeway_proofs.documents.verification import build_document, verify_document

from causeway.programs.user_modules import NOWHERE
from causeway.scenarios.scenario import load_scenario, recorded_scenario
from causeway.service.icmp import routes
from causeway.service.keys.signing import MESSAGE, TRANSACTION, sign_message
from causeway.service.node.api import create_application
from causeway.service.node.node import BlockPace, Node
from causeway.storage.lake import Lake
from tests.service.test_api import Http
from tests.service.test_schemathesis import ask
from tests.support.common.lakes import key_of
from tests.support.common.small_lakes import user_calls
from tests.support.icmp.icmp_lake import FORK, SCENARIO, SENDS, TICKS, make_lake

KEY = key_of(1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Serve a lake in the middle of a fork: ``left`` follows leaf 0, ``right`` and ``far`` leaf 1."""
    folder = tmp_path_factory.mktemp("parachains")
    path = folder / "scenario.toml"
    path.write_text(SCENARIO.format(commit_every=1) + user_calls(range(0, TICKS, 2), SENDS) + FORK)
    with Node(load_scenario(path), str(folder / "lake"), BlockPace(0, on_demand=True)) as found:
        for _ in range(8):
            found.produce()
        yield found


@pytest.fixture
def http(node: Node) -> Http:
    return Http(create_application(node))


def proved(answer: Any) -> bool:
    """Return whether an answer's proof holds under its header."""
    trust = parse_trust_object(answer["trust"], "trust")
    return verify_document(build_document(answer["proof"], "answer"), trust).valid


def test_responses_conform_to_the_openapi_document(node: Node) -> None:
    served = create_application(node, ["testserver"])
    document: Any = schemathesis.openapi.from_asgi("/openapi.json", served)
    every = (found.ok() for found in document.get_all_operations())
    own = [one for one in every if one.path.startswith("/v1/chains") and not one.path.endswith("transactions")]
    assert len(own) == 4
    for operation in (one for one in own if "queued" in one.path):  # it has all parameters
        ask(operation, schemathesis.GenerationMode.POSITIVE)
        ask(operation, schemathesis.GenerationMode.NEGATIVE)


def test_every_leaf_proves_its_lists_under_a_named_head(http: Http) -> None:
    heads = http.get("/v1/chains/relay/heads").json()["heads"]
    assert [head["leaf"] for head in heads] == [0, 1] and heads[0]["hash"] != heads[1]["hash"]
    found = {}
    for what in ("watermark", "ingress"):
        for head in heads:
            by_number, by_hash = (
                http.get(f"/v1/chains/right/{what}?leaf={leaf}").json() for leaf in (head["leaf"], head["hash"])
            )
            assert by_number == by_hash and proved(by_hash)
            assert by_hash["trust"]["hash"] == head["hash"] and by_hash["trust"]["root"] == head["root"]
            found[what, head["leaf"]] = by_hash
    assert found["ingress", 0]["proof"]["entries"] != found["ingress", 1]["proof"]["entries"]
    assert not proved(found["ingress", 0] | {"trust": found["ingress", 1]["trust"]})


def test_message_is_proved_at_the_leaf_that_lists_it(http: Http) -> None:
    """Messages that ``right`` sends after the fork are listed at leaf 1 alone."""
    shown = http.get("/v1/chains/right/queued/left?index=0&height=7")
    assert shown.status_code == 200 and shown.json()["leaf"] == 1 and proved(shown.json())
    for query in ("index=0&height=7&leaf=0", "index=99", "index=0&leaf=4"):
        answer = http.get(f"/v1/chains/right/queued/left?{query}")
        assert (answer.status_code, answer.json()["error"]) == (404, "NotFound"), query
        assert "--" not in answer.text, "an option is nothing to whoever asks over HTTP"


def test_oversized_answers_are_rejected(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_ANSWER_BYTES", routes.ANSWER_MARGIN + 2_000)
    assert http.get("/v1/chains/far/watermark").status_code == 200
    answer = http.get("/v1/chains/far/ingress")
    assert answer.status_code == 400 and "an answer at most" in answer.json()["text"]


def test_state_of_a_height_is_built_once_for_all_requests(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    http.get("/v1/chains/far/ingress?height=6")
    monkeypatch.setattr("causeway.proving.icmp.messages._relay_state", None)
    assert [http.get(f"/v1/chains/{chain}/ingress?height=6").status_code for chain in ("far", "left")] == [200, 200]


def test_finished_lake_is_served_without_its_scenario_at_replayed_heights(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, commit_every=8)
    content = Lake.at(lake).about()["scenario"]
    content["network"]["executor"] = "in_process"
    with Node(recorded_scenario(content, lake, NOWHERE), lake, BlockPace(0, on_demand=True)) as found:
        http = Http(create_application(found))
        answer = http.get("/v1/chains/right/watermark?height=3")
        assert answer.status_code == 200 and proved(answer.json()), answer.text
        for path in Path(lake).glob("heights/*/outbound-*"):
            path.write_bytes(b"other bytes")
        answer = http.get("/v1/chains/right/queued/left?index=0&height=5")
        assert (answer.status_code, answer.json()["error"]) == (503, "LakeDamaged"), answer.text


def test_users_send_and_relayers_are_rejected(node: Node, http: Http) -> None:
    def post(kind: str, chain: str, content: dict[str, Any], path: str) -> httpx.Response:
        return http.post(path, json.dumps(sign_message(KEY, node.opened.lake.identity, kind, chain, 1, content).body()))

    good = {"to": "alice", "call": {"receiver": "bob", "method": "echo"}}
    for wrong, why in ({**good, "to": "bob", "chain": "left"}, "content: to:"), ({**good, "to": 99}, "chain: missing"):
        answer = post(MESSAGE, "", wrong, "/v1/messages")
        assert answer.status_code == 400 and why in answer.json()["text"]
    assert post(MESSAGE, "", good, "/v1/messages").status_code in (200, 202)
    carried = post(TRANSACTION, "left", {"transaction": "00"}, "/v1/chains/left/transactions")
    assert carried.status_code >= 400 and "transaction" in carried.json()["text"]


def test_metrics_report_leaves_and_pending_queues(http: Http) -> None:
    text = http.get("/metrics").text
    assert 'causeway_relay_block{leaf="1"} ' in text and 'causeway_queues_waiting{chain="far"} ' in text
