"""Allow lists of cross-domain messaging: their updates and rejections (X-1)."""

from __future__ import annotations

from typing import Any

import pytest

from causeway.protocols.xdm.state import decode_set
from tests.support.xdm.xdm_channels import A, B, initiate, network, notices, outcome, run
from tests.support.xdm.xdm_network import Network


def allowed_pairs(net: Network) -> set[tuple[int, int]]:
    rows = net.state["allowlist"]
    return set(zip(rows["chain"].tolist(), rows["foreign"].tolist(), strict=True))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({"chain": "consensus", "foreign": "A", "by": "p9"}, "BadOrigin"),
        ({"chain": "consensus", "foreign": "consensus", "at": "A"}, "OperationNotAllowed"),
        ({"chain": "consensus", "foreign": "consensus"}, "InvalidAllowedChain"),
        ({"chain": "consensus", "foreign": 7}, "InvalidChain"),
        ({"chain": "A", "foreign": "A", "at": "A", "by": "p9"}, "NotDomainOwner"),
        ({"chain": "A", "foreign": "A", "at": "A"}, "OperationNotAllowed"),
        ({"chain": "A", "foreign": "A"}, "InvalidAllowedChain"),
        ({"chain": "A", "foreign": 7}, "InvalidChain"),
    ],
)
def test_allow_list_updates_are_rejected_by_the_first_error(call: dict[str, Any], error: str) -> None:
    net = run(network(allow=[{"tick": 0, **call}]), 3)
    assert [why for _, why in notices(net)] == [error]
    assert not allowed_pairs(net)
    assert not len(net.state["allow_updates"])


def test_consensus_changes_its_list_at_once_and_a_domain_in_its_next_block() -> None:
    both = [{"tick": 0, "chain": "consensus", "foreign": 0}, {"tick": 0, "chain": "A", "foreign": "B", "by": "p9"}]
    net = run(network(allow=both, domain_owners={"A": "p9"}), 1)
    assert allowed_pairs(net) == {(0, A)}
    assert decode_set(net.state["allow_updates"]["allow"][0].as_py()) == [B]
    assert net.results[0].wake == 1
    run(net, 1)
    assert allowed_pairs(net) == {(0, A), (A, B)}
    run(net, 1)
    assert net.state["allow_updates"]["allow"].to_pylist() == [b""], "empty, and still there"


def test_later_opposite_update_wins_and_removals_precede() -> None:
    calls = [
        {"tick": 0, "chain": "A", "foreign": "B"},
        {"tick": 0, "chain": "A", "foreign": "consensus"},
        {"tick": 0, "chain": "A", "foreign": "B", "do": "remove"},
        {"tick": 1, "chain": "A", "foreign": "B"},
        {"tick": 2, "chain": "A", "foreign": "consensus", "do": "remove"},
    ]
    net = run(network(allow=calls), 2)
    assert allowed_pairs(net) == {(A, 0)}
    run(net, 1)
    assert allowed_pairs(net) == {(A, 0), (A, B)}
    run(net, 1)
    assert allowed_pairs(net) == {(A, B)}


def test_call_to_a_delisted_chain_is_rejected() -> None:
    allow = [{"tick": 0, "chain": "A", "foreign": "B"}, {"tick": 0, "chain": "B", "foreign": "A"}]
    off = [
        {"tick": 40, "chain": "B", "foreign": "A", "do": "remove"},
        {"tick": 60, "chain": "A", "foreign": "B", "do": "remove"},
    ]
    net = run(network(initiate(3), allow=allow + off, allowlist="on"), 39)
    net.call(1, 2)
    run(net, 23)
    assert outcome(net) == (0, 1), "the other side does not take it"
    assert ("B", "ChainNotAllowed") in notices(net)
    net.call(1, 2)
    run(net, 2)
    assert outcome(net) == (0, 2)
    assert notices(net)[-1] == ("A", "ChainNotAllowed")
