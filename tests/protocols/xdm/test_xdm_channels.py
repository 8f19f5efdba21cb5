"""Channels of cross-domain messaging: opened and closed, by one side or both, and their deposits (3.1, 3.7, X-2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.protocols.xdm.state import ChannelState
from tests.support.xdm.xdm_channels import (
    CHAINS,
    RESERVE,
    SIGNED,
    A,
    B,
    balance,
    channel,
    close,
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

# ---- initiate_channel (3.1)


@pytest.mark.parametrize(
    ("options", "call", "error"),
    [
        ({}, {"by": "p1"}, "BadOrigin"),
        (SIGNED, {}, "BadOrigin"),
        ({**SIGNED, "balance": RESERVE}, {"by": "p1"}, "InsufficientBalance"),
        ({**SIGNED, "balance": RESERVE}, {"by": "p1", "foreign": "A", "max_outgoing": 0}, "InsufficientBalance"),
        (SIGNED, {"by": "p2"}, "InsufficientBalance"),  # a program of another chain has no account here
        (SIGNED, {"by": "p1", "foreign": "A", "max_outgoing": 0}, "InvalidChain"),
        ({**SIGNED, "channel_reserve_fee": 0}, {"by": "p1", "max_outgoing": 0}, "InvalidMaxOutgoingMessages"),
        ({**SIGNED, "channel_reserve_fee": 0, "allowlist": "on"}, {"by": "p1"}, "InvalidChannelReserveFee"),
        ({**SIGNED, "allowlist": "on"}, {"by": "p1"}, "ChainNotAllowed"),
    ],
)
def test_initiate_fails_atomically_with_the_first_error(
    options: dict[str, Any], call: dict[str, Any], error: str
) -> None:
    net = run(network(initiate(0, **call), **options), 2)
    assert notices(net) == [("A", error)]
    assert not any(len(net.state[name]) for name in ("channels", "next_channels", "outbox"))
    assert balance(net, 1) == options.get("balance", 1_000)
    assert money(net, A, "reserved") == 0


def test_channel_opens_on_both_sides_and_uses_nonce_0() -> None:
    net = run(network(initiate(0, by="p1", max_outgoing=7), **SIGNED), 1)
    own = channel(net, A, B)
    assert (own["state"], own["next_outbox"], own["count"], own["max_outgoing"]) == (ChannelState.INITIATED, 1, 1, 7)
    assert (own["has_owner"], own["owner"], own["reserve"]) == (1, 1, RESERVE)
    assert balance(net, 1) == 1_000 - RESERVE
    assert money(net, A, "reserved") == RESERVE
    settled(net)
    assert states(net) == (ChannelState.OPEN, ChannelState.OPEN)
    theirs = channel(net, B, A)
    assert (theirs["has_owner"], theirs["reserve"], theirs["max_outgoing"]) == (0, 0, 7)
    assert notices(net) == [
        ("A", "ChannelInitiated"),
        ("B", "ChannelInitiated"),
        ("B", "ChannelOpen"),
        ("A", "ChannelOpen"),
    ]


def test_deposit_payer_keeps_the_existential_balance() -> None:
    net = run(network(initiate(0, by="p1"), balance=RESERVE + 1, **SIGNED), 1)
    assert balance(net, 1) == 1


def test_channels_are_numbered_by_pair() -> None:
    net = network(
        initiate(0), initiate(0, foreign="consensus"), initiate(30), initiate(60, chain="B", foreign="A"), balance=0
    )
    settled(net, 200)
    rows = net.state["channels"]
    numbers = zip(rows["chain"].tolist(), rows["foreign"].tolist(), rows["channel"].tolist(), strict=True)
    assert sorted(numbers) == [
        (0, 1, 0), (1, 0, 0), (1, 2, 0), (1, 2, 1), (1, 2, 2), (2, 1, 0), (2, 1, 1), (2, 1, 2),
    ]  # fmt: skip
    assert set(rows["state"].tolist()) == {ChannelState.OPEN}


def test_open_request_two_numbers_ahead_belongs_to_no_channel() -> None:
    """Hazard 10; the second is proved again once the first exists."""
    net = settled(network(initiate(0), initiate(0)))
    assert ("B", "INVALID_CHANNEL") in notices(net)
    assert states(net, 1) == (ChannelState.OPEN, ChannelState.OPEN)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"channel_calls": [initiate(0, foreign="C")]}, "options.channel_calls.0.foreign: no chain is called 'C'"),
        ({"channel_calls": [initiate(0, by="p7")]}, "options.channel_calls.0.by: no program is called 'p7'"),
        ({"domain_owners": {"consensus": 9}}, "options.domain_owners.consensus: the consensus chain has no owner"),
    ],
)
def test_calls_of_unknown_channels_are_reported_at_the_start(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        Network(CHAINS, options=options)


# ---- close_channel (3.7)


def test_open_channel_returns_the_whole_deposit() -> None:
    net = settled(network(initiate(0, by="p1"), close(40, by="p1"), **SIGNED))
    assert states(net) == (ChannelState.CLOSED, ChannelState.CLOSED)
    assert balance(net, 1) == 1_000
    assert [money(net, A, name) for name in ("reserved", "burned")] == [0, 0]


def test_channel_closed_by_the_other_side_returns_the_whole_deposit() -> None:
    net = settled(network(initiate(0, by="p1"), close(40, chain="B", foreign="A"), **SIGNED))
    assert states(net) == (ChannelState.CLOSED, ChannelState.CLOSED)
    assert balance(net, 1) == 1_000
    assert money(net, A, "reserved") == 0


@pytest.mark.parametrize(("reserve", "percent", "burnt"), [(101, 20, 20), (103, 20, 21), (10, 25, 2), (10, 26, 3)])
def test_channel_closed_before_opening_loses_a_rounded_recorded_share(reserve: int, percent: int, burnt: int) -> None:
    """Half is rounded down: 2.5 of 10."""
    options: dict[str, Any] = {"channel_reserve_fee": reserve, "reserve_portion_percent": percent, "root_balance": 0}
    net = run(network(initiate(0, by="p1"), close(1, by="p1"), **options, **SIGNED), 40)
    assert balance(net, 1) == 1_000 - burnt
    assert [money(net, A, name) for name in ("reserved", "burned")] == [0, burnt]
    assert money(net, A, "issuance") == 1_000 - burnt
    books = net.state["books"]
    (row,) = np.flatnonzero((books["what"] == 0) & (books["source"] == A)).tolist()
    assert int(books["amount_low"][row]) == 1_000 - burnt


def test_root_deposits_from_its_own_account() -> None:
    net = network(initiate(0), initiate(1, max_outgoing=3), close(2, channel=1), root_balance=2 * RESERVE)
    run(net, 3)
    assert [money(net, A, name) for name in ("root", "reserved", "burned")] == [RESERVE, RESERVE, 0]
    assert [name for _, name in notices(net)] == ["ChannelInitiated", "InsufficientBalance", "MissingChannel"]
    net = settled(network(initiate(0), close(40), root_balance=2 * RESERVE))
    assert [money(net, A, name) for name in ("root", "reserved", "burned")] == [2 * RESERVE, 0, 0]
    net = settled(network(initiate(0), close(1), root_balance=2 * RESERVE))
    assert [money(net, A, name) for name in ("root", "reserved", "burned")] == [2 * RESERVE - 20, 0, 20]


@pytest.mark.parametrize(
    ("options", "call", "error"),
    [
        ({"close_by": "root"}, {"by": "p1"}, "BadOrigin"),
        ({}, {"by": "p3", "chain": "B", "foreign": "A"}, "ChannelOwner"),
        ({}, {"by": "p1", "channel": 5}, "ChannelOwner"),
        ({}, {"channel": 5}, "MissingChannel"),
    ],
)
def test_close_is_rejected_by_the_first_error(options: dict[str, Any], call: dict[str, Any], error: str) -> None:
    net = settled(network(initiate(0, by="p1"), close(40, **call), **{**SIGNED, **options}))
    assert notices(net)[-1][1] == error
    assert states(net) == (ChannelState.OPEN, ChannelState.OPEN)
    assert balance(net, 1) == 1_000 - RESERVE


def test_closed_channel_is_not_closed_again() -> None:
    net = settled(network(initiate(0, by="p1"), close(40), close(41), **SIGNED))
    assert ("A", "InvalidChannelState") in notices(net)
    assert balance(net, 1) == 1_000


def test_full_outbox_can_only_be_closed_by_force() -> None:
    """Hazard 15."""
    calls = initiate(0, max_outgoing=1), close(1)
    net = run(network(*calls), 2)
    assert notices(net)[-1] == ("A", "OutboxFull")
    assert channel(net, A, B)["state"] == ChannelState.INITIATED
    forced = run(network(*calls, force_close="on"), 2)
    assert channel(forced, A, B)["state"] == ChannelState.CLOSED
    assert len(forced.state["outbox"]) == 1, "nothing is sent"


@pytest.mark.parametrize(("inbox", "refused"), [("stored", False), ("pool", True)])
def test_close_behind_the_opening_waits_its_turn_if_early_messages_are_retained(inbox: str, refused: bool) -> None:
    """D-3: its kind is validated then, and not at arrival, when the channel does not exist."""
    net = settled(network(initiate(0), close(0), inbox=inbox))
    assert states(net) == (ChannelState.CLOSED, ChannelState.CLOSED)
    assert (("B", "InvalidCall") in notices(net)) == refused


# ---- hazards of both sides


def test_simultaneously_initiating_sides_may_close_with_the_penalty() -> None:
    """Hazard 9."""
    both = initiate(0, by="p1"), initiate(0, chain="B", foreign="A", by="p3")
    net = run(network(*both, close(30, by="p1"), close(30, chain="B", foreign="A", by="p3"), **SIGNED), 29)
    assert states(net) == (ChannelState.INITIATED, ChannelState.INITIATED)
    assert {("A", "InvalidCall"), ("B", "InvalidCall")} <= set(notices(net))
    run(net, 40)
    assert states(net) == (ChannelState.CLOSED, ChannelState.CLOSED)
    assert [balance(net, program) for program in (1, 3)] == [980, 980]
    assert [channel(net, *ends)["next_inbox"] for ends in ((A, B), (B, A))] == [0, 0]
    assert sorted(net.state["outbox"]["index"].tolist()) == [0, 0, 1, 1]


@pytest.mark.parametrize("closing", [{"by": "p1"}, {"chain": "B", "foreign": "A"}])
def test_open_request_rejected_by_the_allow_list_leaves_the_channel_initiated(closing: dict[str, Any]) -> None:
    """Hazard 11; whichever side closes it, the requester loses the share (G9)."""
    allow = [{"tick": 0, "chain": "A", "foreign": "B"}]
    calls = initiate(3, by="p1"), close(40, **closing)
    net = run(network(*calls, allow=allow, allowlist="on", **SIGNED), 39)
    assert states(net) == (ChannelState.INITIATED, ChannelState.INITIATED)
    assert [one for one in notices(net) if one[1] == "ChainNotAllowed"] == [
        ("B", "ChainNotAllowed"),
        ("A", "ChainNotAllowed"),
    ]
    assert not len(net.state["outbox"])
    run(net, 30)
    assert states(net) == (ChannelState.CLOSED, ChannelState.CLOSED)
    assert balance(net, 1) == 1_000 - RESERVE // 5


def test_in_flight_calls_at_a_remote_close_are_rejected_and_refunded() -> None:
    """Hazard 13: fees are not refunded."""
    net = run(network(initiate(0), close(33, chain="B", foreign="A")), 30)
    for _ in range(3):
        net.call(1, 2, amount=10)
    settled(net)
    assert outcome(net) == (0, 3)
    assert ("B", "InvalidChannelState") in notices(net)
    fee = 2 + 2  # of message and response: one for weight, one for the relayer
    assert balance(net, 1) == 1_000 - 3 * fee
    net.call(1, 2)
    run(net, 2)
    assert outcome(net) == (0, 4), "a closed channel sends nothing more"
    assert ("A", "NoOpenChannel") in notices(net)


def test_both_sides_close_at_once() -> None:
    """Hazard 14: each close request meets a closed channel."""
    net = run(network(initiate(0), close(30), close(30, chain="B", foreign="A")), 60)
    assert states(net) == (ChannelState.CLOSED, ChannelState.CLOSED)
    refused = [(chain, why) for chain, why in notices(net) if why == "InvalidCall"]
    assert sorted(refused[:2]) == [("A", "InvalidCall"), ("B", "InvalidCall")]
    assert net.state["outbox"]["asked"].tolist() == [1, 1]
    assert [one for one in notices(net) if one[1] == "RequestAbandoned"] == [
        ("A", "RequestAbandoned"),
        ("B", "RequestAbandoned"),
    ]
    assert net.results[0].wake is None, "nothing is proved again and again"


def test_request_on_an_initiated_channel_consumes_no_nonce() -> None:
    """Hazard 12: a chain considers its channel open although the other side rejected it."""
    allow = [{"tick": 0, "chain": "A", "foreign": "B"}]
    net = run(network(initiate(3), allow=allow, allowlist="on"), 39)
    rows = net.states[0]["channels"]
    opened = np.where(rows["chain"] == A, ChannelState.OPEN, rows["state"]).astype(np.uint8)
    net.states[0] = net.states[0].with_tables(channels=rows.with_columns(state=opened))
    net.call(1, 2)
    run(net, 12)
    assert notices(net)[-1] == ("B", "InvalidCall")
    assert channel(net, B, A)["next_inbox"] == 1


# ---- whole networks


@pytest.mark.slow
def test_roots_are_independent_of_partitions_and_cached_tries() -> None:
    allow = [{"tick": 0, "chain": "A", "foreign": "B"}, {"tick": 1, "chain": "B", "foreign": "A"}]
    calls = initiate(3, by="p1"), initiate(4, by="p1"), close(45, by="p1"), close(46, chain="B", foreign="A", channel=1)
    made = []
    for more in ({}, {"cuts": 3}, {"forgetful": True}):
        net = network(*calls, allow=allow, allowlist="on", **SIGNED, **more)
        net.call(1, 2, amount=5)
        run(net, 42)
        net.call(1, 2, amount=5)
        made.append(run(net, 20).roots())
    assert made[0] == made[1] == made[2]
