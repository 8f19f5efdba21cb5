"""Responses of cross-domain messaging: tags, completion, and responses without effect (3.5, D-9)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from causeway.protocols.shared.state_tables import TrieCache
from causeway.protocols.xdm.state import ChannelState, RequestKind
from tests.support.xdm.xdm_channels import (
    A,
    B,
    balance,
    channel,
    initiate,
    money,
    network,
    notices,
    outcome,
    run,
    settled,
    states,
)
from tests.support.xdm.xdm_network import Network


@pytest.mark.parametrize(("trust", "back", "wrong"), [("off", 1, 0), ("on", 0, 1)])
def test_altered_response_tag_loses_a_refund_only_where_trusted(trust: str, back: int, wrong: int) -> None:
    """Hazard 16."""
    tampered = [("tamper", "B", "A", 30, 10**6, {"what": "tag", "every": 1})]
    net = run(network(initiate(0), trust_tag=trust, faults=tampered), 30)
    assert states(net) == (ChannelState.OPEN, ChannelState.OPEN)
    net.call(1, 4, amount=10)
    settled(net)
    assert outcome(net) == (0, back)
    assert balance(net, 1) == 1_000 - 4 - (0 if back else 10)
    assert notices(net).count(("A", "WeightTagNotMatch")) == wrong


def test_altered_tag_of_an_opening_leaves_the_channel_initiated() -> None:
    for source, destination, theirs in (("A", "B", ChannelState.INITIATED), ("B", "A", ChannelState.OPEN)):
        tampered = [("tamper", source, destination, 0, 10**6, {"what": "tag", "every": 1})]
        net = settled(network(initiate(0), trust_tag="on", faults=tampered))
        assert states(net) == (ChannelState.INITIATED, theirs)
        assert "WeightTagNotMatch" in {why for _, why in notices(net)}


def test_acknowledgement_ends_lower_responses_up_to_a_gap() -> None:
    """Hazard 21: one of a missing response ends none; responses behind a gap are reported."""
    net = Network({"A": {1: "caller"}, "B": {2: "echo"}}, options={"resubmit_after": 1_000}, balance=1_000)
    for _ in range(4):
        net.call(1, 2)
    net.block(10)
    left, right = net.names.index("A"), net.names.index("B")

    def stored() -> list[int]:
        responses = net.state["responses"]
        return sorted(responses["index"][responses["source"] == right].tolist())

    def acknowledging(following: int) -> None:
        """Send a call that acknowledges ``following`` - 1 and deliver it; no response arrives meanwhile."""
        state = net.states[0]
        channels = state["channels"]
        mine = (channels["chain"] == left) & (channels["foreign"] == right)
        claimed = np.where(mine, np.uint64(following), channels["next_response"])
        net.states[0] = state.with_tables(channels=channels.with_columns(next_response=claimed))
        net.call(1, 2)
        net.block()
        state = net.states[0]
        back = state["channels"].with_columns(next_response=channels["next_response"])
        net.states[0] = state.with_tables(channels=back)
        net.block(9)

    assert stored() == [0, 1, 2, 3]
    held = money(net, right, "inbox_held")
    acknowledging(78)
    assert stored() == [0, 1, 2, 3, 4] and money(net, right, "inbox_held") > held
    responses = net.states[0]["responses"]
    gap = (responses["source"] == right) & (responses["index"] == 1)
    net.states[0] = net.states[0].with_tables(responses=responses.filter(~gap))
    acknowledging(4)
    assert stored() == [0, 4, 5]
    assert [text for _, text in notices(net)].count("ResponsesLeft") == 1


def test_call_to_an_uninstalled_program_is_rejected_regardless_of_others() -> None:
    """Calls within a chain and between chains are equal, and value is returned."""
    net = Network({"A": {1: "caller", 4: None, 5: "faulty"}, "B": {2: "echo", 3: None}}, balance=1_000)
    before = balance(net, 1)
    net.call(1, 4, amount=5)
    net.call(1, 3, amount=5)
    net.settle()
    assert sorted(text for _, text in notices(net)) == ["NoMessageHandler"] * 2
    assert outcome(net) == (0, 2)
    channels = net.state["channels"]
    src, dst, _ = net.kernel.fees.of_requests(channels, np.flatnonzero(channels["chain"] == net.names.index("A"))[:1])
    assert before - balance(net, 1) == int(src[0]) + int(dst[0]) > 0


@pytest.mark.parametrize(
    ("asked", "error"), [(None, "MissingMessage"), (RequestKind.ENDPOINT, "InvalidMessagePayload")]
)
def test_response_to_no_request_or_of_another_kind_has_no_effect(asked: RequestKind | None, error: str) -> None:
    """It consumes its nonce, is reported by name, and neither opens a channel nor pays a fee (3.5)."""
    net = run(network(initiate(0)), 12)
    assert states(net)[0] == ChannelState.INITIATED and len(net.state["responses"]) == 1
    state = net.states[0]
    outbox = state["outbox"]
    one = outbox.with_columns(asked=np.full(len(outbox), asked or 0, dtype=np.uint8))
    before = replace(state.with_tables(outbox=outbox.slice(0, 0) if asked is None else one), kept=TrieCache())
    net.states[0] = before
    run(net, 20)
    assert notices(net)[-1] == ("A", error)
    assert states(net)[0] == ChannelState.INITIATED and channel(net, A, B)["next_response"] == 1
    assert net.state["operators"]["balance_low"].tolist() == before["operators"]["balance_low"].tolist()
