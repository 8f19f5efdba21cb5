"""Channels of cross-domain messaging: opened, closed, their deposits and allow lists (reference 3.1, 3.7, X-1, X-2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from causeway.model.errors import InvalidInput
from causeway.protocols.tabled_state import KeptTries
from causeway.protocols.xdm.state import MAX_NONCE, Asked, ChannelState, chains_of_set
from tests.unit.xdm_network import Network, Placed

CHAINS: dict[str, Placed] = {"consensus": {9: "caller"}, "A": {1: "caller"}, "B": {2: "echo", 3: "caller", 4: None}}
A, B = 1, 2
RESERVE = 100


def initiate(tick: int, chain: str = "A", foreign: str = "B", **more: Any) -> dict[str, Any]:
    return {"tick": tick, "chain": chain, "foreign": foreign, **more}


def close(tick: int, chain: str = "A", foreign: str = "B", **more: Any) -> dict[str, Any]:
    return {"tick": tick, "chain": chain, "foreign": foreign, "do": "close", **more}


def network(*calls: dict[str, Any], allow: list[dict[str, Any]] | None = None, **more: Any) -> Network:
    options = {"channels": "initiate", "channel_calls": list(calls), "allowlist_calls": allow or []}
    given = {name: more.pop(name) for name in ("balance", "cuts", "forgetful", "faults") if name in more}
    given.setdefault("balance", 1_000)
    return Network(CHAINS, options={"endowment": 0, **options, **more}, **given)


SIGNED: dict[str, Any] = {"initiate_by": "signed", "close_by": "owner_or_root"}


def channel(net: Network, chain: int, foreign: int, number: int = 0) -> dict[str, int]:
    rows = net.state["channels"]
    found = (rows["chain"] == chain) & (rows["foreign"] == foreign) & (rows["channel"] == number)
    (row,) = np.flatnonzero(found).tolist()
    return {name: int(rows[name][row]) for name in rows.names}


def states(net: Network, number: int = 0) -> tuple[ChannelState, ChannelState]:
    return ChannelState(channel(net, A, B, number)["state"]), ChannelState(channel(net, B, A, number)["state"])


def balance(net: Network, program: int) -> int:
    accounts = net.state["accounts"]
    (row,) = np.flatnonzero(accounts["program"] == program).tolist()
    return int(accounts["balance_high"][row]) * 2**64 + int(accounts["balance_low"][row])


def money(net: Network, chain: int, name: str) -> int:
    rows = net.state["money"]
    (row,) = np.flatnonzero(rows["chain"] == chain).tolist()
    return int(rows[f"{name}_low"][row])


def notices(net: Network) -> list[tuple[str, str]]:
    events = net.events()
    names = zip(events["chain"].tolist(), events["reason"].to_pylist(), strict=True)
    return [(net.names[chain], reason) for chain, reason in names if reason]


def outcome(net: Network, program: int = 1) -> tuple[int, int]:
    rows = net.state.programs["caller"]
    (row,) = np.flatnonzero(rows["program"] == program).tolist()
    return int(rows["answered"][row]), int(rows["rejected"][row])


def run(net: Network, ticks: int) -> Network:
    """Run so many ticks, the next one and those for which the network wakes."""
    stop = net.tick + ticks
    net.block()
    while net.tick < stop:
        wakes = [result.wake for result in net.results if result.wake is not None]
        net.sleep(min(stop, max(net.tick + 1, min(wakes, default=stop))))
    return net


def settled(net: Network, limit: int = 60) -> Network:
    """Run until no request waits for its response."""
    for _ in range(limit):
        run(net, 4)
        if not len(net.state["outbox"]) and net.kernel.planned.next_tick(net.tick + 1) is None:
            return net
    raise AssertionError("requests still wait")


# ---- initiate_channel (3.1)


@pytest.mark.parametrize(
    ("options", "call", "error"),
    [
        ({}, {"by": "p1"}, "BadOrigin"),
        (SIGNED, {}, "BadOrigin"),
        ({**SIGNED, "balance": RESERVE}, {"by": "p1"}, "InsufficientBalance"),
        ({**SIGNED, "balance": RESERVE}, {"by": "p1", "foreign": "A", "max_outgoing": 0}, "InsufficientBalance"),
        (SIGNED, {"by": "p2"}, "InsufficientBalance"),  # a program of another chain has nothing here
        (SIGNED, {"by": "p1", "foreign": "A", "max_outgoing": 0}, "InvalidChain"),
        ({**SIGNED, "channel_reserve_fee": 0}, {"by": "p1", "max_outgoing": 0}, "InvalidMaxOutgoingMessages"),
        ({**SIGNED, "channel_reserve_fee": 0, "allowlist": "on"}, {"by": "p1"}, "InvalidChannelReserveFee"),
        ({**SIGNED, "allowlist": "on"}, {"by": "p1"}, "ChainNotAllowed"),
    ],
)
def test_initiate_fails_whole_and_by_the_first_error(options: dict[str, Any], call: dict[str, Any], error: str) -> None:
    net = run(network(initiate(0, **call), **options), 2)
    assert notices(net) == [("A", error)]
    assert not any(len(net.state[name]) for name in ("channels", "next_channels", "outbox"))
    assert balance(net, 1) == options.get("balance", 1_000)
    assert money(net, A, "reserved") == 0


def test_a_channel_opens_on_both_sides_and_takes_nonce_0() -> None:
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


def test_who_pays_a_deposit_stays_alive() -> None:
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


def test_an_open_request_two_numbers_ahead_is_of_no_channel() -> None:
    """Hazard 10; the second is proved again when the first is there."""
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
def test_calls_of_what_there_is_not_are_told_at_the_start(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        Network(CHAINS, options=options)


# ---- close_channel (3.7)


def test_an_open_channel_gives_the_whole_deposit_back() -> None:
    net = settled(network(initiate(0, by="p1"), close(40, by="p1"), **SIGNED))
    assert states(net) == (ChannelState.CLOSED, ChannelState.CLOSED)
    assert balance(net, 1) == 1_000
    assert [money(net, A, name) for name in ("reserved", "burned")] == [0, 0]


def test_a_channel_that_the_other_side_closes_gives_the_whole_deposit_back() -> None:
    net = settled(network(initiate(0, by="p1"), close(40, chain="B", foreign="A"), **SIGNED))
    assert states(net) == (ChannelState.CLOSED, ChannelState.CLOSED)
    assert balance(net, 1) == 1_000
    assert money(net, A, "reserved") == 0


@pytest.mark.parametrize(("reserve", "percent", "burnt"), [(101, 20, 20), (103, 20, 21), (10, 25, 2), (10, 26, 3)])
def test_a_channel_closed_before_it_is_open_loses_a_share_to_the_nearest_unit_and_the_books_say_so(
    reserve: int, percent: int, burnt: int
) -> None:
    """A half goes down: 2.5 of 10."""
    options: dict[str, Any] = {"channel_reserve_fee": reserve, "reserve_portion_percent": percent, "root_balance": 0}
    net = run(network(initiate(0, by="p1"), close(1, by="p1"), **options, **SIGNED), 40)
    assert balance(net, 1) == 1_000 - burnt
    assert [money(net, A, name) for name in ("reserved", "burned")] == [0, burnt]
    assert money(net, A, "issuance") == 1_000 - burnt
    books = net.state["books"]
    (row,) = np.flatnonzero((books["what"] == 0) & (books["source"] == A)).tolist()
    assert int(books["amount_low"][row]) == 1_000 - burnt


def test_root_leaves_a_deposit_from_its_own_account() -> None:
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
def test_close_is_refused_by_the_first_error(options: dict[str, Any], call: dict[str, Any], error: str) -> None:
    net = settled(network(initiate(0, by="p1"), close(40, **call), **{**SIGNED, **options}))
    assert notices(net)[-1][1] == error
    assert states(net) == (ChannelState.OPEN, ChannelState.OPEN)
    assert balance(net, 1) == 1_000 - RESERVE


def test_a_closed_channel_is_not_closed_again() -> None:
    net = settled(network(initiate(0, by="p1"), close(40), close(41), **SIGNED))
    assert ("A", "InvalidChannelState") in notices(net)
    assert balance(net, 1) == 1_000


def test_a_full_outbox_cannot_be_closed_unless_by_force() -> None:
    """Hazard 15."""
    calls = initiate(0, max_outgoing=1), close(1)
    net = run(network(*calls), 2)
    assert notices(net)[-1] == ("A", "OutboxFull")
    assert channel(net, A, B)["state"] == ChannelState.INITIATED
    forced = run(network(*calls, force_close="on"), 2)
    assert channel(forced, A, B)["state"] == ChannelState.CLOSED
    assert len(forced.state["outbox"]) == 1, "nothing is sent"


@pytest.mark.parametrize(("inbox", "refused"), [("stored", False), ("pool", True)])
def test_a_close_behind_the_opening_waits_for_its_turn_where_early_messages_are_kept(inbox: str, refused: bool) -> None:
    """D-3: its kind is judged then, and not as it comes, when the channel is not there."""
    net = settled(network(initiate(0), close(0), inbox=inbox))
    assert states(net) == (ChannelState.CLOSED, ChannelState.CLOSED)
    assert (("B", "InvalidCall") in notices(net)) == refused


# ---- hazards of both sides


def test_both_sides_initiate_at_once_and_may_close_with_the_penalty() -> None:
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
def test_an_open_request_that_the_allow_list_refuses_leaves_the_channel_initiated(closing: dict[str, Any]) -> None:
    """Hazard 11; whichever side closes it, who asked for it loses the share (G9)."""
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


def test_calls_in_flight_when_the_other_side_closes_are_refused_and_their_value_comes_back() -> None:
    """Hazard 13: fees are not given back."""
    net = run(network(initiate(0), close(33, chain="B", foreign="A")), 30)
    for _ in range(3):
        net.call(1, 2, amount=10)
    settled(net)
    assert outcome(net) == (0, 3)
    assert ("B", "InvalidChannelState") in notices(net)
    fee = 2 + 2  # of the message and of the response: one of weight, one for the relayer
    assert balance(net, 1) == 1_000 - 3 * fee
    net.call(1, 2)
    run(net, 2)
    assert outcome(net) == (0, 4), "a closed channel sends nothing more"
    assert ("A", "NoOpenChannel") in notices(net)


def test_both_sides_close_at_once() -> None:
    """Hazard 14: each request to close meets a closed channel."""
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


def test_a_request_on_an_initiated_channel_uses_up_no_nonce() -> None:
    """Hazard 12: of a chain that takes its channel for open though the other side has refused it."""
    allow = [{"tick": 0, "chain": "A", "foreign": "B"}]
    net = run(network(initiate(3), allow=allow, allowlist="on"), 39)
    rows = net.states[0]["channels"]
    opened = np.where(rows["chain"] == A, ChannelState.OPEN, rows["state"]).astype(np.uint8)
    net.states[0] = net.states[0].with_tables(channels=rows.with_columns(state=opened))
    net.call(1, 2)
    run(net, 12)
    assert notices(net)[-1] == ("B", "InvalidCall")
    assert channel(net, B, A)["next_inbox"] == 1


# ---- back-pressure


def test_one_message_at_a_time_where_max_outgoing_is_1() -> None:
    """Hazard 23; the others wait, in their order."""
    net = run(network(initiate(0, max_outgoing=1)), 20)
    for _ in range(2):
        net.call(1, 2)
    for _ in range(60):
        net.block()
        assert channel(net, A, B)["count"] <= 1
    assert outcome(net) == (2, 0)


def test_an_older_channel_is_used_when_the_newest_is_full() -> None:
    """Hazard 24."""
    net = settled(network(initiate(0), initiate(25, max_outgoing=2)))
    for _ in range(3):
        net.call(1, 2)
    run(net, 2)
    assert [channel(net, A, B, number)["count"] for number in (0, 1)] == [1, 2]


@pytest.mark.parametrize(
    ("waits", "balance", "said"),
    [
        # Fees are 4 a call, and a unit stays: the first pays for none, the second for one, the third for all.
        ("off", (4, 5, 100), ["FundsUnavailable", "", "FundsUnavailable", "", "NoOpenChannel"]),
        ("on", (4, 5, 100), ["FundsUnavailable", "", "FundsUnavailable", "", "waits"]),
        ("off", (100, 5, 100), ["", "", "NoOpenChannel", "NoOpenChannel", "NoOpenChannel"]),
        ("off", (4, 4, 4), ["FundsUnavailable"] * 5),
    ],
)
def test_a_call_that_cannot_be_paid_takes_no_room(waits: str, balance: tuple[int, ...], said: list[str]) -> None:
    """3.3: each call is one of its own, and what fails has no channel. There is room for two."""
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


def test_fees_are_taken_in_the_order_of_calls_whatever_chain_they_go_to() -> None:
    chains: dict[str, Placed] = {"A": {1: "caller"}, "B": {2: "echo"}, "C": {3: "echo"}}
    net = Network(chains, options={"endowment": 0, "calls_wait": "off"}, balance=5)
    net.call(1, 3)
    net.call(1, 2)
    net.block()
    assert net.state["outbox"]["receiver"].tolist() == [3]
    assert [reason for _, reason in net.refusals()] == ["FundsUnavailable"]


def test_calls_wait_for_a_channel_that_is_to_come_from_either_side() -> None:
    net = network(initiate(10, chain="B", foreign="A"))
    net.call(1, 2)
    run(net, 9)
    assert len(net.state["waiting"]) == 1
    settled(net)
    net.settle()
    assert outcome(net) == (1, 0)


def test_calls_are_refused_when_no_channel_is_to_come() -> None:
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
def test_calls_are_refused_when_the_other_side_does_not_initiate(by: str, faults: Any, refused: list[str]) -> None:
    """Its call fails, or is never made, or a fork takes it back and it fails again; nothing else wakes the network."""
    net = network(initiate(10, chain="B", foreign="A", by=by), faults=faults)
    net.call(1, 2)
    net.block()
    while outcome(net) == (0, 0):
        wake = net.results[0].wake
        assert wake is not None and wake < 20, "the network sleeps, and the call waits"
        net.sleep(wake)
    assert outcome(net) == (0, 1) and len(net.state["waiting"]) == 0
    assert [reason for _, reason in net.refusals()] == refused


def test_calls_wait_for_a_channel_that_a_fork_took_back_from_a_chain_that_has_halted_since() -> None:
    """It is initiated again when its chain goes on, long after the tick that was planned."""
    faults = [("reorg", None, None, 11, 11, {"depth": 1}), ("halt", "B", None, 11, 20, {})]
    net = network(initiate(10, chain="B", foreign="A"), faults=faults)
    net.call(1, 2)
    net.settle()
    assert len(net.logs["reverted"]) and net.tick > 20
    assert outcome(net) == (1, 0) and ("A", "NoOpenChannel") not in notices(net)


def test_calls_are_refused_when_operators_give_the_opening_up() -> None:
    """Both sides initiate at once (hazard 9), and no call waits for ever for what can never open."""
    both = initiate(0, by="p1"), initiate(0, chain="B", foreign="A", by="p3")
    net = network(*both, **SIGNED)
    net.call(1, 2)
    run(net, 9)
    assert outcome(net) == (0, 0) and len(net.state["waiting"]) == 1
    run(net, 60)
    assert outcome(net) == (0, 1) and len(net.state["waiting"]) == 0
    assert ("A", "NoOpenChannel") in notices(net)


# ---- allow lists


def allowed(net: Network) -> set[tuple[int, int]]:
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
def test_updates_of_allow_lists_are_refused_by_the_first_error(call: dict[str, Any], error: str) -> None:
    net = run(network(allow=[{"tick": 0, **call}]), 3)
    assert [why for _, why in notices(net)] == [error]
    assert not allowed(net)
    assert not len(net.state["allow_updates"])


def test_the_consensus_chain_changes_its_list_at_once_and_a_domain_in_its_next_block() -> None:
    both = [{"tick": 0, "chain": "consensus", "foreign": 0}, {"tick": 0, "chain": "A", "foreign": "B", "by": "p9"}]
    net = run(network(allow=both, domain_owners={"A": "p9"}), 1)
    assert allowed(net) == {(0, A)}
    assert chains_of_set(net.state["allow_updates"]["allow"][0].as_py()) == [B]
    assert net.results[0].wake == 1
    run(net, 1)
    assert allowed(net) == {(0, A), (A, B)}
    run(net, 1)
    assert net.state["allow_updates"]["allow"].to_pylist() == [b""], "empty, and still there"


def test_a_later_opposite_update_wins_and_removals_come_first() -> None:
    calls = [
        {"tick": 0, "chain": "A", "foreign": "B"},
        {"tick": 0, "chain": "A", "foreign": "consensus"},
        {"tick": 0, "chain": "A", "foreign": "B", "do": "remove"},
        {"tick": 1, "chain": "A", "foreign": "B"},
        {"tick": 2, "chain": "A", "foreign": "consensus", "do": "remove"},
    ]
    net = run(network(allow=calls), 2)
    assert allowed(net) == {(A, 0)}
    run(net, 1)
    assert allowed(net) == {(A, 0), (A, B)}
    run(net, 1)
    assert allowed(net) == {(A, B)}


def test_a_call_to_a_chain_that_is_taken_off_the_list_is_refused() -> None:
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


# ---- weight tags (D-9)


@pytest.mark.parametrize(("trust", "back", "wrong"), [("off", 1, 0), ("on", 0, 1)])
def test_a_tag_altered_on_a_response_loses_a_refund_only_where_it_is_trusted(trust: str, back: int, wrong: int) -> None:
    """Hazard 16."""
    tampered = [("tamper", "B", "A", 30, 10**6, {"what": "tag", "every": 1})]
    net = run(network(initiate(0), trust_tag=trust, faults=tampered), 30)
    assert states(net) == (ChannelState.OPEN, ChannelState.OPEN)
    net.call(1, 4, amount=10)
    settled(net)
    assert outcome(net) == (0, back)
    assert balance(net, 1) == 1_000 - 4 - (0 if back else 10)
    assert notices(net).count(("A", "WeightTagNotMatch")) == wrong


def test_a_tag_altered_on_an_open_request_or_its_response_leaves_the_channel_initiated() -> None:
    for source, destination, theirs in (("A", "B", ChannelState.INITIATED), ("B", "A", ChannelState.OPEN)):
        tampered = [("tamper", source, destination, 0, 10**6, {"what": "tag", "every": 1})]
        net = settled(network(initiate(0), trust_tag="on", faults=tampered))
        assert states(net) == (ChannelState.INITIATED, theirs)
        assert "WeightTagNotMatch" in {why for _, why in notices(net)}


# ---- all of it together


def test_roots_do_not_depend_on_cuts_or_kept_tries() -> None:
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


def test_an_acknowledgement_ends_the_responses_below_it_up_to_a_gap() -> None:
    """Hazard 21: one of a response that is not there ends none; what a gap leaves behind is told."""
    net = Network({"A": {1: "caller"}, "B": {2: "echo"}}, options={"resubmit_after": 1_000}, balance=1_000)
    for _ in range(4):
        net.call(1, 2)
    net.block(10)
    left, right = net.names.index("A"), net.names.index("B")

    def stored() -> list[int]:
        responses = net.state["responses"]
        return sorted(responses["index"][responses["source"] == right].tolist())

    def acknowledging(following: int) -> None:
        """Send a call whose message acknowledges ``following`` - 1, and let it arrive; no response comes meanwhile."""
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


def test_calls_past_the_last_nonce_are_refused_by_name() -> None:
    net = Network({"A": {1: "caller"}, "B": {2: "echo"}}, balance=1_000)
    left, right = net.names.index("A"), net.names.index("B")
    state = net.states[0]
    channels = state["channels"]
    mine = (channels["chain"] == left) & (channels["foreign"] == right)
    theirs = (channels["chain"] == right) & (channels["foreign"] == left)
    first = np.uint64(MAX_NONCE - 2)
    claimed = {name: np.where(mine, first, channels[name]) for name in ("next_outbox", "next_response")}
    claimed["next_inbox"] = np.where(theirs, first, channels["next_inbox"])
    net.states[0] = state.with_tables(channels=channels.with_columns(**claimed))
    for _ in range(5):
        net.call(1, 2)
    net.settle()
    assert [text for _, text in notices(net)] == ["Overflow"] * 2
    assert outcome(net) == (3, 2)
    net.call(1, 2)
    net.block()
    assert [text for _, text in notices(net)] == ["Overflow"] * 3


def test_a_call_of_what_is_not_installed_is_refused_whatever_runs_beside_it() -> None:
    """Within a chain as between chains, and value comes back."""
    net = Network({"A": {1: "caller", 4: None, 5: "faulty"}, "B": {2: "echo", 3: None}}, balance=1_000)
    before = balance(net, 1)
    net.call(1, 4, amount=5)
    net.call(1, 3, amount=5)
    net.settle()
    assert sorted(text for _, text in notices(net)) == ["NoMessageHandler"] * 2
    assert outcome(net) == (0, 2)
    fees = net.kernel.fees
    left = net.names.index("A")
    assert before - balance(net, 1) == int(fees.src[left]) + int(fees.dst[left])


def test_a_channel_with_room_for_anything_takes_no_memory_for_it() -> None:
    net = Network({"A": {1: "caller"}, "B": {2: "echo"}}, options={"max_outgoing_messages": 2**32 - 1})
    net.call(1, 2)
    net.settle()
    assert outcome(net) == (1, 0)


@pytest.mark.parametrize(("asked", "error"), [(None, "MissingMessage"), (Asked.ENDPOINT, "InvalidMessagePayload")])
def test_a_response_to_no_request_or_one_of_another_kind_does_nothing(asked: Asked | None, error: str) -> None:
    """It uses up its nonce, is told by name, and neither opens a channel nor pays a fee (3.5)."""
    net = run(network(initiate(0)), 12)
    assert states(net)[0] == ChannelState.INITIATED and len(net.state["responses"]) == 1
    state = net.states[0]
    outbox = state["outbox"]
    one = outbox.with_columns(asked=np.full(len(outbox), asked or 0, dtype=np.uint8))
    before = replace(state.with_tables(outbox=outbox.slice(0, 0) if asked is None else one), kept=KeptTries())
    net.states[0] = before
    run(net, 20)
    assert notices(net)[-1] == ("A", error)
    assert states(net)[0] == ChannelState.INITIATED and channel(net, A, B)["next_response"] == 1
    assert net.state["operators"]["balance_low"].tolist() == before["operators"]["balance_low"].tolist()
