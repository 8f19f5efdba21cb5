"""Lying lakes: a relay process delivers none of their claims, and honest traffic continues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from causeway.service.xdm.relay_state import ReadAnchor, ReadMessages, Step
from causeway.service.xdm.relayer import PassOutcome
from tests.service.test_domain_strangers import direction, flipped
from tests.support.common.domain_lakes import DomainLakes, both, sending


def alter_answers(lakes: DomainLakes, kind: type, change: Callable[[Any], Any]) -> Callable[[Step, Any], Any]:
    return lambda step, answer: change(answer) if isinstance(step, kind) else answer


def test_process_delivers_no_false_claim_of_a_lake(tmp_path: Path) -> None:
    with both(tmp_path, {"near": sending("alice", "echo-right", 2)}) as lakes:
        way = direction(lakes, "left>right")
        others = [one for one in lakes.ends.directions if one.what != "messages"]
        while True:
            for other in others:
                lakes.relay(other)
            lakes.produce()
            anchor = lakes.views["far"].channels("right", "left", None)["under"]
            if anchor and lakes.views["near"].anchor(anchor["number"], "left")["receipt"]:
                steps = lakes.views["near"].anchor(anchor["number"], "left")["receipt"]["number"]
                if lakes.views["near"].messages("left", "right", steps, [(0, False, 0)], 9)["messages"]:
                    break

        def with_nodes(answer: Any) -> Any:
            nodes = [flipped(node, len(node) - 1) for node in answer.nodes]
            return answer.model_copy(update={"nodes": nodes})

        def with_nonces(answer: Any) -> Any:
            rows = [row.model_copy(update={"nonce": row.nonce + 7_000}) for row in answer.messages]
            return answer.model_copy(update={"messages": rows})

        def swapped(answer: Any) -> Any:
            rows = [row.model_copy(update={"nonce": 1 - row.nonce}) for row in answer.messages]
            return answer.model_copy(update={"messages": rows})

        def with_members(answer: Any) -> Any:
            rows = [row.model_copy(update={"members": [*row.members, 60_000]}) for row in answer.messages]
            return answer.model_copy(update={"messages": rows})

        def with_leaf(answer: Any) -> Any:
            return answer.model_copy(update={"leaf": flipped(answer.leaf, 20)})

        def with_hash(answer: Any) -> Any:
            return answer.model_copy(update={"hash": bytes(32)})

        def without_items(answer: Any) -> Any:
            return answer.model_copy(update={"items": answer.items[:-1]})

        count = len(lakes.submitted)
        for kind, change in (
            (ReadMessages, with_nodes),
            (ReadMessages, with_nonces),
            (ReadMessages, swapped),
            (ReadMessages, with_members),
            (ReadAnchor, with_leaf),
            (ReadAnchor, with_hash),
            (ReadAnchor, without_items),
        ):
            lakes.memories[str(way)].lanes.clear()
            passed = lakes.relay(way, alter_answers(lakes, kind, change))
            assert passed.state is PassOutcome.REFUSED and passed.why, change
        assert len(lakes.submitted) == count
        lakes.memories[str(way)].lanes.clear()
        assert lakes.relay(way).state is PassOutcome.SUBMITTED
        assert rejection_names(lakes) <= {"BlocksFollowed", "ReceiptsFollowed"}


def rejection_names(lakes: DomainLakes) -> set[str]:
    return {*lakes.refusals("near"), *lakes.refusals("far")}
