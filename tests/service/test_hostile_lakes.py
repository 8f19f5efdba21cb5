"""Served lakes with false or excessive answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from causeway.service.ibc.relay_plan import RelaySettings, plan_work
from causeway.service.ibc.relay_state import MOST_LISTED, ReadHeader, ReadProofs, RelayRules, Step, lane_view
from causeway.service.ibc.relayer import PassState
from tests.support.common.lakes import Lakes, both

ROOTS = dict.fromkeys(("root", "validators_hash", "next_validators_hash", "header_hash"), "00" * 32)


def rejection_reason(lakes: Lakes, altered: Any) -> str:
    """Return the reason of a pass to the right without a transaction."""
    passed = lakes.relay("right", altered=altered)
    assert (passed.state, passed.transactions, lakes.submitted) == (PassState.REFUSED, 0, [])
    return passed.why


def test_invalid_proofs_are_not_paid_for(tmp_path: Path) -> None:
    def another_value(step: Step, answer: Any) -> Any:
        if isinstance(step, ReadProofs):
            value, proof = answer[2]
            answer[2] = (value + b"x", proof)
        return answer

    with both(tmp_path) as lakes:
        assert "a proof of left is none" in rejection_reason(lakes, another_value)
        lakes.until_idle()
        lakes.check(5)


def test_header_of_another_chain_is_not_paid_for(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        other = bytes.fromhex(lakes.views["right"].header("right", lakes.views["left"].height())["signed_header"])
        why = rejection_reason(lakes, lambda step, answer: other if isinstance(step, ReadHeader) else answer)
        assert "trusted validators hash to" in why


def test_invalid_header_is_not_paid_for(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        why = rejection_reason(lakes, lambda step, answer: answer[:-1] if isinstance(step, ReadHeader) else answer)
        assert "header update" in why


def test_header_of_another_height_is_not_paid_for(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        old = bytes.fromhex(lakes.views["left"].header("left", 1)["signed_header"])
        lakes.nodes["left"].produce()
        why = rejection_reason(lakes, lambda step, answer: old if isinstance(step, ReadHeader) else answer)
        assert "height 1" in why


def test_lake_naming_endless_ranges_costs_little() -> None:
    content: dict[str, Any] = {"head": 0, "tail": 2**60, "entries": [[0, 2**60, 1]]}
    late = {**content, "ready": 2**60, "missing": [], "waiting": []}
    none = {"head": 0, "tail": 0, "entries": [], "ready": 0, "missing": [], "waiting": []}
    header = dict.fromkeys(("height", "time", "added", "added_time"), 5) | ROOTS
    client = {"state": "active", "latest": 5, "expires_in": 9, "trusted": [header]}
    ends = {"chain": "left", "counterparty": "right", "height": 9, "time": 9}
    source = lane_view({**ends, "send": content, "receipt": late, "client": client})
    target = lane_view({**ends, "send": content, "receipt": none, "client": client})
    for rules in (RelayRules(), RelayRules(ordered=False)):
        work = plan_work(source, target, rules, RelaySettings())
        assert len(work.packets) == len(work.receipts) == MOST_LISTED
    assert plan_work(source, target, RelayRules(), RelaySettings()).backlog == 2**61
