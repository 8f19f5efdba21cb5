"""Program calls over full, planned or exhausted channels: waiting or rejection (3.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from causeway.protocols.xdm.state import MAX_NONCE, ChannelState, RequestKind
from tests.support.xdm.xdm_channels import SIGNED, A, B, channel, initiate, network, notices, outcome, run, settled
from tests.support.xdm.xdm_network import Network, Placed


def test_one_message_at_a_time_with_max_outgoing_1() -> None:
    """Hazard 23; the others wait, in their order."""
    net = run(network(initiate(0, max_outgoing=1)), 20)
    for _ in range(2):
        net.call(1, 2)
    for _ in range(60):
        net.block()
        assert channel(net, A, B)["count"] <= 1
    assert outcome(net) == (2, 0)


def test_older_channel_is_used_when_the_newest_is_full() -> None:
    """Hazard 24."""
    net = settled(network(initiate(0), initiate(25, max_outgoing=2)))
    for _ in range(3):
        net.call(1, 2)
    run(net, 2)
    assert [channel(net, A, B, number)["count"] for number in (0, 1)] == [1, 2]


@pytest.mark.parametrize(
    ("waits", "balance", "said"),
    [
        # Fees are 4 per call, and a unit remains: the first pays for none, the second for one, the third for all.
        ("off", (4, 5, 100), ["FundsUnavailable", "", "FundsUnavailable", "", "NoOpenChannel"]),
        ("on", (4, 5, 100), ["FundsUnavailable", "", "FundsUnavailable", "", "waits"]),
        ("off", (100, 5, 100), ["", "", "NoOpenChannel", "NoOpenChannel", "NoOpenChannel"]),
        ("off", (4, 4, 4), ["FundsUnavailable"] * 5),
    ],
)
def test_unaffordable_call_takes_no_capacity(waits: str, balance: tuple[int, ...], said: list[str]) -> None:
    """3.3: each call is separate, and a failed one has no channel. The capacity is two."""
    chains: dict[str, Placed] = {"A": {1: "caller", 2: "caller", 3: "caller"}, "B": {4: "echo"}}
    options = {"calls_wait": waits, "max_outgoing_messages": 2, "endowment": 0}
    net = Network(chains, options=options, balances=dict(zip((1, 2, 3), balance, strict=True)))
    calls = ((1, 0), (2, 0), (2, 1), (3, 0), (3, 1))
    for caller, _ in calls:
        net.call(caller, 4)
    net.block()
    events = net.events()
    names = zip(events["sender"].tolist(), events["callback"].tolist(), events["reason"].to_pylist(), strict=True)
    refused = {(sender, callback): reason for sender, callback, reason in names if reason}
    kept = set(zip(*(net.state["waiting"][name].tolist() for name in ("sender", "callback")), strict=True))
    outbox = set(zip(*(net.state["outbox"][name].tolist() for name in ("sender", "callback")), strict=True))
    assert [refused.get(call, "waits" if call in kept else "") for call in calls] == said
    assert outbox == {call for call, reason in zip(calls, said, strict=True) if not reason}


def test_fees_are_charged_in_call_order_regardless_of_destination() -> None:
    chains: dict[str, Placed] = {"A": {1: "caller"}, "B": {2: "echo"}, "C": {3: "echo"}}
    net = Network(chains, options={"endowment": 0, "calls_wait": "off"}, balance=5)
    net.call(1, 3)
    net.call(1, 2)
    net.block()
    assert net.state["outbox"]["receiver"].tolist() == [3]
    assert [reason for _, reason in net.refusals()] == ["FundsUnavailable"]


def test_calls_wait_for_a_channel_planned_by_either_side() -> None:
    net = network(initiate(10, chain="B", foreign="A"))
    net.call(1, 2)
    run(net, 9)
    assert len(net.state["waiting"]) == 1
    settled(net)
    net.settle()
    assert outcome(net) == (1, 0)


def test_calls_are_rejected_without_a_planned_channel() -> None:
    net = network()
    net.call(1, 2)
    run(net, 2)
    assert outcome(net) == (0, 1)
    assert notices(net) == [("A", "NoOpenChannel")]


@pytest.mark.parametrize(
    ("by", "faults", "refused"),
    [
        ("p3", [], ["BadOrigin", "NoOpenChannel"]),
        ("root", [("halt", "B", None, 10, 30, {})], ["NoOpenChannel"]),
        ("p3", [("reorg", None, None, 11, 11, {"depth": 1})], ["BadOrigin", "BadOrigin", "NoOpenChannel"]),
    ],
)
def test_calls_are_rejected_if_the_other_side_does_not_initiate(by: str, faults: Any, refused: list[str]) -> None:
    """Its call fails, is never made, or fails again after a fork; nothing else wakes the network."""
    net = network(initiate(10, chain="B", foreign="A", by=by), faults=faults)
    net.call(1, 2)
    net.block()
    while outcome(net) == (0, 0):
        wake = net.results[0].wake
        assert wake is not None and wake < 20, "the network sleeps, and the call waits"
        net.sleep(wake)
    assert outcome(net) == (0, 1) and len(net.state["waiting"]) == 0
    assert [reason for _, reason in net.refusals()] == refused


def test_calls_wait_for_a_channel_reverted_by_a_fork_of_a_since_halted_chain() -> None:
    """It is initiated again when its chain resumes, long after the planned tick."""
    faults = [("reorg", None, None, 11, 11, {"depth": 1}), ("halt", "B", None, 11, 20, {})]
    net = network(initiate(10, chain="B", foreign="A"), faults=faults)
    net.call(1, 2)
    net.settle()
    assert len(net.logs["reverted"]) and net.tick > 20
    assert outcome(net) == (1, 0) and ("A", "NoOpenChannel") not in notices(net)


def test_calls_are_rejected_once_operators_give_up_the_opening() -> None:
    """Both sides initiate at once (hazard 9), and no call waits forever for an impossible opening."""
    both = initiate(0, by="p1"), initiate(0, chain="B", foreign="A", by="p3")
    net = network(*both, **SIGNED)
    net.call(1, 2)
    run(net, 9)
    assert outcome(net) == (0, 0) and len(net.state["waiting"]) == 1
    run(net, 60)
    assert outcome(net) == (0, 1) and len(net.state["waiting"]) == 0
    assert ("A", "NoOpenChannel") in notices(net)


def test_each_call_pays_the_fees_of_its_channel() -> None:
    """The newest channel has capacity for two calls, at 1 + 1 for weight times 5; the older one charges 2 + 1 twice."""
    newest = initiate(25, max_outgoing=2, fee_model="v1")
    net = settled(network(initiate(0, relay_fee=2), newest))
    before = net.state["accounts"]["balance_low"].copy()
    for _ in range(4):
        net.call(1, 2)
    net.block()
    outbox = net.state["outbox"]
    calls = outbox.filter(outbox["asked"] == RequestKind.ENDPOINT)
    columns = (calls["substream"] >> np.uint64(1), calls["src_fee"], calls["dst_fee"])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    assert sorted(rows) == [(0, 3, 3), (0, 3, 3), (1, 5, 5), (1, 5, 5)]
    assert int((before - net.state["accounts"]["balance_low"]).sum()) == 32


def test_sent_messages_are_independent_of_chains_in_the_same_task() -> None:
    """On A a late answer waits behind an unaffordable call; on C a sender cannot pay, in the same blocks."""
    late = "tests.support.xdm.properties.xdm_programs:Special"
    chains: dict[str, Placed] = {"A": {11: "caller", 12: late}, "B": {21: "caller", 22: late}, "C": {31: "caller"}}
    options = {
        **{"fee_model": "v1", "weight_per_unit": 1, "message_weight": 1, "response_weight": 1, "endowment": 0},
        **{"weights": {"A": {"message": 2**62, "response": 2**62}}, "max_outgoing_messages": 1},
        **{"archiving_depth": 1, "challenge_period": 1},
    }

    def roots(poor: bool, cuts: int) -> list[bytes]:
        net = Network(chains, options=options, balances={11: 1_000, 21: 1_000, 31: 1}, cuts=cuts)
        found = []
        for block in range(32):
            for at, caller, receiver, body in ((0, 21, 12, b"~9"), (8, 21, 12, b"~1"), (18, 11, 22, b"x")):
                if block == at:
                    net.call(caller, receiver, body)
            if poor:
                net.call(31, 22)
            net.block()
            found.append(net.roots()["A"])
        return found

    assert roots(True, 1) == roots(False, 1) == roots(True, 4)


def _with_few_nonces_left(left: int, **options: Any) -> Network:
    """Create two chains with a channel that has few nonces left."""
    net = Network({"A": {1: "caller"}, "B": {2: "echo"}}, balance=1_000, options=options)
    one, other = net.names.index("A"), net.names.index("B")
    state = net.states[0]
    channels = state["channels"]
    mine = (channels["chain"] == one) & (channels["foreign"] == other)
    theirs = (channels["chain"] == other) & (channels["foreign"] == one)
    first = np.uint64(net.kernel.options.max_messages - left)
    claimed = {name: np.where(mine, first, channels[name]) for name in ("next_outbox", "next_response")}
    claimed["next_inbox"] = np.where(theirs, first, channels["next_inbox"])
    net.states[0] = state.with_tables(channels=channels.with_columns(**claimed))
    return net


def _channels_between(net: Network, chain: str, foreign: str) -> list[tuple[int, int]]:
    """Return the state and the next nonce of the channels between two chains."""
    channels = net.state["channels"]
    mine = (channels["chain"] == net.names.index(chain)) & (channels["foreign"] == net.names.index(foreign))
    return list(zip(channels["state"][mine].tolist(), channels["next_outbox"][mine].tolist(), strict=True))


@pytest.mark.parametrize("most", [MAX_NONCE + 1, 100])
def test_last_message_of_a_channel_closes_it(most: int) -> None:
    net = _with_few_nonces_left(3, max_messages=most)
    for _ in range(5):
        net.call(1, 2)
    net.block()
    assert _channels_between(net, "A", "B") == [(ChannelState.CLOSED, most)], "two calls and the close request"
    net.settle()
    net.block(12)
    assert _channels_between(net, "B", "A")[0][0] == ChannelState.CLOSED
    assert outcome(net) == (2, 3)
    assert [text for _, text in notices(net) if text == "NoOpenChannel"] == ["NoOpenChannel"] * 3


def test_channel_with_a_full_outbox_closes_after_a_response() -> None:
    net = _with_few_nonces_left(3, max_messages=100, max_outgoing_messages=2)
    net.call(1, 2)
    net.call(1, 2)
    net.block()
    assert _channels_between(net, "A", "B") == [(ChannelState.OPEN, 99)]
    net.call(1, 2)  # consumes no nonce: the last one is for the close request
    net.settle()
    net.block(12)
    assert _channels_between(net, "A", "B") == [(ChannelState.CLOSED, 100)]
    assert outcome(net) == (2, 1)


def test_channel_with_maximum_capacity_allocates_no_memory_for_it() -> None:
    net = Network({"A": {1: "caller"}, "B": {2: "echo"}}, options={"max_outgoing_messages": 2**32 - 1})
    net.call(1, 2)
    net.settle()
    assert outcome(net) == (1, 0)
