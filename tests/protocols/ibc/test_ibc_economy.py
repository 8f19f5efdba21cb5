"""Relayers paying from accounts: stop, report and resume; options of users and sponsors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput
from pydantic import ValidationError

from causeway.config.faults import FaultRule, Faults
from causeway.network.network import LakeNetwork
from causeway.protocols.ibc.options import IbcOptions
from causeway.service.ibc.summary import summary
from tests.support.ibc.ibc_network import Network
from tests.support.ibc.ibc_programs import ACTOR, ops

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PAGE = (EXAMPLES.parent / "docs" / "how-to" / "relay.md").read_text()
ZONES = {"A": {0: ACTOR}, "B": {7: ACTOR}}
A, B = range(2)
ONE, TWO, COLLECTED = range(3)


def network(relay: dict[str, Any], *faults: FaultRule, **options: Any) -> Network:
    chosen = {"relayers": ("one", "two"), "validators": 1, "relay": relay, **options}
    return Network(ZONES, options=chosen, faults=Faults.of(*faults))


def deposit(chain: int, relayer: str, tick: int, amount: int) -> FaultRule:
    return FaultRule("deposit", chain, None, tick, tick, {"relayer": relayer, "amount": amount})


def call(net: Network, times: int = 1) -> None:
    net.tell(0, "do", ops(*(("call", 7, "echo", b"x", 0, None) for _ in range(times))), user=5)


def account(net: Network, chain: int, relayer: int) -> dict[str, int]:
    funds = net.state.funds
    (row,) = [i for i in range(len(funds)) if (funds["chain"][i], funds["relayer"][i]) == (chain, relayer)]
    return {name: int(funds[name][row]) for name in funds.names[2:]}


def account_events(net: Network) -> list[tuple[str, int, int]]:
    """Return the account events of the last block: reason, zone and relayer."""
    rows = net.events()
    columns = zip(rows["reason"].to_pylist(), rows["chain"].tolist(), rows["sender"].tolist(), strict=True)
    return [row for row in columns if row[0] in ("OutOfFunds", "Funded")]


def test_relayer_without_funds_stops_and_continues_when_paid() -> None:
    accounts = {"accounts": {"balance": 1_000, "balances": {"one": 150}}}
    net = network(accounts, deposit(A, "one", 1, 1_000), deposit(B, "one", 9, 300), relayers=("one",))
    call(net)
    net.block(2)  # send and receipt: a header and a packet cost 120
    assert account(net, B, ONE) | {"balance": 30, "stopped": 0} == account(net, B, ONE)
    call(net, times=2)
    net.block()
    assert account_events(net) == []
    net.block()
    assert account_events(net) == [("OutOfFunds", B, ONE)]
    stopped = net.height
    for _ in range(9 - stopped):
        net.block()
        assert account_events(net) == [] and account(net, B, ONE)["balance"] == 30, "a stopped relayer pays nothing"
    assert account(net, B, ONE)["stopped"] == stopped and account(net, A, ONE)["stopped"] == 0
    net.block()  # tick 9
    assert account_events(net) == [("Funded", B, ONE)]
    assert account(net, B, ONE) == {"balance": 190, "deposited": 450, "earned": 0, "owed": 0, "stopped": 0, "stops": 1}
    assert account(net, B, 1)["balance"] == 260
    net.settle()


def test_relayer_submits_only_affordable_messages() -> None:
    net = network({"accounts": {"balances": {"one": 165}}}, relayers=("one",))
    call(net, times=5)
    net.block(2)
    assert account(net, B, ONE) | {"balance": 5, "stopped": 2, "stops": 1} == account(net, B, ONE)
    relayed = net.state.relayers
    assert relayed["submitted"].tolist() == relayed["accepted"].tolist() == [3] and relayed["fees"].tolist() == [160]


def test_due_rewards_are_paid_up_to_collected_fees() -> None:
    net = network({"accounts": {"balance": 400, "reward": 150, "reward_every": 4}})
    call(net, times=2)
    net.block(3)
    assert account(net, B, ONE) | {"owed": 300, "earned": 0} == account(net, B, ONE)
    assert account(net, B, TWO)["owed"] == 0, "the second brought nothing that took effect"
    net.block()
    found = account(net, B, ONE)
    assert (found["earned"], found["owed"], account(net, B, COLLECTED)["balance"]) == (280, 20, 0)
    assert sum(account(net, B, one)["balance"] for one in (ONE, TWO, COLLECTED)) == 800


def test_sponsor_pays_its_budget_once_per_period_on_every_zone() -> None:
    relay = {"accounts": {}, "sponsored": {"one": {"budget": 50, "every": 3}}}
    net = network(relay, relayers=("one",))
    balances = []
    for _ in range(7):
        net.block()
        balances.append([account(net, chain, ONE)["deposited"] for chain in (A, B)])
    assert balances == [[0, 0]] * 2 + [[50, 50]] * 3 + [[100, 100]] * 2


def test_relayers_without_accounts_are_in_no_root() -> None:
    net, other = (network(relay, relayers=("one",)) for relay in ({}, {"accounts": {"balance": 1_000_000}}))
    for one in (net, other):
        call(one)
        one.settle()
    assert len(net.state.funds) == 0 and len(other.state.funds) == 4
    assert net.roots() != other.roots(), "balances are in the root"


@pytest.mark.parametrize(
    ("relay", "more", "key", "text"),
    [
        ({"users": {"three": ["p0"]}}, {}, "relay.users.three", '"three": no such relayer; there are 2: one, two'),
        ({"accounts": {"balances": {"three": 1}}}, {}, "relay.accounts.balances.three", "no such relayer; there "),
        ({"users": {"one": ["p0"]}, "coordination": "leader"}, {}, "relay.coordination", "'leader' with relay.users"),
        ({"users": {"one": ["p0"]}, "max_packets": 3}, {}, "relay.max_packets", "3 with relay.users"),
        ({"sponsored": {"one": {}}}, {"delay_seconds": 2.0}, "delay_seconds", "2.0 with relay.users"),
        (
            {"sponsored": {"one": {"budget": 5}}},
            {},
            "relay.sponsored.one.budget",
            "5: allowed without relay.accounts: 0",
        ),
        ({"users": {"one": ["p0"]}, "sponsored": {"one": {}}}, {}, "relay.users.one", "sponsored, too (allowed: "),
    ],
)
def test_conflicting_options_are_rejected(relay: dict[str, Any], more: dict[str, Any], key: str, text: str) -> None:
    with pytest.raises(ValidationError) as refused:
        IbcOptions(**{"relayers": ("one", "two"), "relay": relay, **more})
    (error,) = refused.value.errors()
    assert ".".join(map(str, (*error["loc"], error["ctx"]["key"]))) == key
    assert text in error["msg"]


def test_names_in_options_and_deposits_must_exist() -> None:
    with pytest.raises(InvalidInput, match=r"options\.relay\.users\.one: no program or class of programs 'nobody'"):
        network({"users": {"one": ["nobody"]}})
    with pytest.raises(
        InvalidInput, match=r"faults\[0\]: deposit: relayers have no accounts; set options\.relay\.accounts"
    ):
        network({}, deposit(A, "one", 1, 1))
    with pytest.raises(InvalidInput, match=r'faults\[0\]\.relayer: "three": no such relayer; there are 2: one, two'):
        network({"accounts": {}}, deposit(A, "three", 1, 1))


@pytest.mark.parametrize(
    ("names", "text"),
    [(("a", ""), "'': no name"), (("a\n",), r"no name of printable"), (("a", "a"), "have the name 'a'")],
)
def test_relayer_names_are_unique(names: tuple[str, ...], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        IbcOptions(relayers=names)


def test_run_summary_lists_stopped_relayers(tmp_path: Path) -> None:
    """`run` prints these lines of docs/how-to/relay.md."""
    options = {"network.executor": "in_process"}
    with LakeNetwork.from_scenario(EXAMPLES / "relaying.toml", options, lake=str(tmp_path / "lake")) as net:
        net.run(66)
        lines = PAGE.split("--ticks 66 --lake relaying\n", 1)[1].split("```", 1)[0].splitlines()
        assert len(lines) == 4 and summary(net.lake, net.manifest).lines[3:] == lines
        net.run()
        found = summary(net.lake, net.manifest).content["relayer_accounts"]
        assert net.is_finished and net.summary()["pending"] == 0
    assert [(one["name"], one["stops"], one["stopped"]) for one in found] == [
        ("ann", 0, {}),
        ("bob", 0, {}),
        ("public", 2, {}),
    ]
