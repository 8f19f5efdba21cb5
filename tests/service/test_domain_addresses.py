"""Public endpoints of domain lakes, fuzzed from the OpenAPI document, without server errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis

from causeway.network.opened_lake import OpenedLake
from causeway.service.node.api import create_application
from causeway.service.xdm import consensus_views
from tests.service.test_api import Http
from tests.service.test_schemathesis import ask
from tests.support.common.domain_lakes import DomainLakes, both, sending


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DomainLakes]:
    with both(tmp_path_factory.mktemp("addresses"), {"near": sending("alice", "echo-right", 2)}) as found:
        for _ in range(8):
            found.around()
        yield found


@pytest.mark.parametrize("lake", ["near", "far"])
def test_responses_conform_to_the_openapi_document(lakes: DomainLakes, lake: str) -> None:
    served = create_application(lakes.nodes[lake], ["testserver"])
    document: Any = schemathesis.openapi.from_asgi("/openapi.json", served)
    every = (found.ok() for found in document.get_all_operations())
    own = [one for one in every if one.path.startswith("/v1/chains") and not one.path.endswith("transactions")]
    assert len(own) == {"near": 5, "far": 4}[lake]
    for operation in own:
        ask(operation, schemathesis.GenerationMode.POSITIVE)
        ask(operation, schemathesis.GenerationMode.NEGATIVE)


def test_integers_are_accepted_in_any_notation(lakes: DomainLakes) -> None:
    """RFC 8785 writes 3 for both; fractions are rejected by key."""
    http = Http(create_application(lakes.nodes["near"]))
    body = '{"counterparty": "right", "lanes": [{"channel": 0}], "block": %s}'

    def ask(block: str) -> Any:
        return http.post("/v1/chains/left/messages", body % block)

    one, *others = (ask(block) for block in ("3", "3.0", "30e-1"))
    assert one.status_code == 200 and one.json()["block"] == 3
    assert [other.json() for other in others] == [one.json()] * 2
    for block in ("3.5", "1e300", "true", '"3"'):
        answer = ask(block)
        assert answer.status_code == 400 and answer.json()["text"].startswith("body: block: "), block


def test_lanes_are_found_by_every_name(lakes: DomainLakes) -> None:
    views = lakes.views["near"]
    block = lakes.views["far"].channels("right", "left", None)["best"] - 5

    def found(*lanes: tuple[int, bool, int], most: int = 10) -> list[tuple[int, bool, int]]:
        shown = views.messages("left", "right", block, list(lanes), most)["messages"]
        return [(one["channel"], one["response"], one["nonce"]) for one in shown]

    both_of_it = [(0, False, 0), (0, False, 1)]
    assert found((0, False, 0)) == found((7, True, 0), (0, False, 0), (3, False, 0)) == both_of_it
    assert found((0, False, 1)) == both_of_it[1:] and found((0, False, 2)) == found((0, True, 0)) == []
    # A name given twice is searched twice.
    assert found((0, False, 1), (0, False, 0), most=1) == both_of_it


def test_metrics_values_are_read_once(lakes: DomainLakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of many chain pairs is read once, not once per pair."""
    views, node = lakes.views["near"], lakes.nodes["near"]
    reads: list[str] = []
    read = OpenedLake.chosen_rows

    def counted(opened: OpenedLake, manifest: Any, table: str, *rest: Any) -> Any:
        reads.append(table)
        return read(opened, manifest, table, *rest)

    expected = {
        (chain, other, str(row["channel"])): row["count"]
        for chain in views.own()
        for other in views.opened.names
        if other != chain
        for row in views.channels(chain, other, None)["channels"]
    }
    assert len(expected) == 6 and expected["left", "right", "0"] == 2
    monkeypatch.setattr(OpenedLake, "chosen_rows", counted)
    waiting, best = node.endpoint.metrics(views.height())
    labels = ("chain", "counterparty", "channel")
    assert {tuple(one.labels[name] for name in labels): one.value for one in waiting.samples} == expected
    assert {one.labels["chain"] for one in best.samples} == set(views.own())
    assert sorted(reads) == ["blocks", "channels"]


def test_slow_reads_are_answered_partially(lakes: DomainLakes, monkeypatch: pytest.MonkeyPatch) -> None:
    views: dict[str, Callable[[int | None], dict[str, Any]]] = {
        "headers": lakes.views["near"].blocks,
        "receipts": functools.partial(lakes.views["far"].receipts, "right"),
    }
    whole = {name: view(None) for name, view in views.items()}
    monkeypatch.setattr(consensus_views, "LONGEST_SCAN", -1.0)
    for name, view in views.items():
        shown: list[Any] = []
        answer: Any = None
        while len(shown) < len(whole[name][name]):
            answer = view(shown[-1]["number"] if shown else None)
            assert answer[name], "each answer goes on"
            shown += answer[name]
        assert len(shown) > 2 > len(answer[name])
        assert shown == whole[name][name] and answer.get("signature") == whole[name].get("signature")


def test_chain_without_new_blocks_is_not_read(lakes: DomainLakes, monkeypatch: pytest.MonkeyPatch) -> None:
    receipts = lakes.views["far"].receipts("right", None)["receipts"]
    blocks = lakes.views["near"].blocks(None)["headers"]
    assert len(receipts) > 5 and len(blocks) > 5
    assert lakes.views["far"].receipts("right", receipts[-3]["number"])["receipts"] == receipts[-2:]
    assert lakes.views["near"].blocks(blocks[-3]["number"])["headers"] == blocks[-2:]
    newest = blocks[-1]["number"]
    monkeypatch.setattr(OpenedLake, "log_rows", lambda *_, **__: pytest.fail("a height is read"))
    assert lakes.views["near"].blocks(newest)["headers"] == []
    last = lakes.views["far"].table(lakes.views["far"].height(), 2, "tips")["number"][0]
    assert lakes.views["far"].receipts("right", int(last))["receipts"] == []
