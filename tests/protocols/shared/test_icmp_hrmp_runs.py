"""Networks of parachains with HRMP channels (X-6), block by block and end to end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from pydantic import ValidationError

from causeway.config.faults import FaultRule, Faults
from causeway.config.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.core.frame import empty_frame
from causeway.core.vocabulary import Event, Kind
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.network.run_records import carrier_summary
from causeway.protocols.contract import SEEN_HEADERS_SCHEMA, Inputs, Tick, View
from causeway.protocols.hrmp.commitment import item_key
from causeway.protocols.relay_chain.options import IcmpOptions
from causeway.protocols.shared.messages import OUTBOUND_SCHEMA
from causeway.proving.icmp.messages import relay_leaves
from causeway.scenarios.scenario import load_scenario
from tests.shown import shown_to
from tests.support.icmp.icmp_hrmp_network import Hrmp

TWO = Path(__file__).parents[3] / "examples" / "two_subnets.toml"

CHAINS = {"a": {1: "caller"}, "b": {2: "caller", 12: "echo"}, "c": {3: "caller", 13: "echo"}, "d": {14: "echo"}}
TARGETS = (12, 13, 14)


def random_network(seed: int, cuts: int, **options: Any) -> Hrmp:
    halts = [("d", 6, 15), ("relay", 9, 11)]
    net = Hrmp(CHAINS, cuts, halts, oracle=cuts < 3, session_blocks=3, **options)
    random = Random(seed)
    for _ in range(14):
        for _ in range(random.randrange(3)):
            net.tell(
                random.choice((1, 2, 3)),
                random.choice(TARGETS),
                random.randrange(1, 6),
                random.randbytes(random.randrange(90)),
            )
        net.step()
    net.settle()
    return net


def check_all_came(net: Hrmp) -> None:
    calls = net.count(Event.EXECUTED, Kind.INGRESS)
    assert calls > 0
    assert net.count(Event.EXECUTED, Kind.REQUEST) == net.count(Event.EXECUTED, Kind.RESPONSE) == calls
    for indices in net.received().values():
        assert indices == [*range(len(indices))]
    assert all(not net.table(name) for name in ("contents", "waiting", "pages", "requests", "runs"))
    assert net.count(Event.DROPPED) == 0


def test_everything_arrives_once_in_order_and_roots_are_independent_of_buckets() -> None:
    options = {"max_message_size": 256, "max_total_size": 600, "max_capacity": 2, "max_messages_per_candidate": 1}
    nets = [random_network(3, cuts, pages_per_block=1, **options) for cuts in (1, 2, 5)]
    check_all_came(nets[0])
    assert nets[0].reasons() == {}
    assert nets[0].headers == nets[1].headers == nets[2].headers
    assert nets[0].tick == nets[1].tick == nets[2].tick


def test_everything_arrives_without_limits_too() -> None:
    check_all_came(random_network(4, 2))


def test_overloaded_chain_suspends_and_resumes_its_senders() -> None:
    net = Hrmp(
        {"a": {1: "caller"}, "b": {2: "echo"}},
        halts=[("b", 11, 17)],
        session_blocks=2,
        pages_per_block=1,
        max_message_size=256,
        max_total_size=25_600,
    )
    seen = set()
    net.tell(1, 2)
    for tick in range(60):
        if tick in range(10, 13):
            net.tell(1, 2, 12, bytes(60))
        if tick in range(14, 20):
            net.tell(1, 2, 2, bytes(60))
        net.step()
        seen |= {(row["chain"], row["suspended"], row["suspended_by"]) for row in net.table("ends")}
        assert max(sum(page["chain"] == p for page in net.table("waiting")) for p in (1, 2)) <= 6
    net.settle()
    check_all_came(net)
    assert {(2, 1, 0), (1, 0, 1)} <= seen
    assert all(not row["suspended"] and not row["suspended_by"] for row in net.table("ends"))


def test_messages_to_a_full_queue_are_dropped_where_configured() -> None:
    options: dict[str, Any] = {
        "session_blocks": 2,
        "pages_per_block": 1,
        "max_message_size": 256,
        "max_total_size": 25_600,
    }
    net = Hrmp({"a": {1: "caller"}, "b": {2: "echo"}}, halts=[("b", 8, 20)], overflow="drop", **options)
    net.tell(1, 2)
    for _ in range(24):
        net.tell(1, 2, 3, bytes(60))
        net.step()
    net.settle()
    assert net.reasons()["QueueOverflown"] == net.count(Event.DROPPED) > 0
    assert net.count(Event.EXECUTED, Kind.REQUEST) + net.count(Event.DROPPED) == net.count(Event.EXECUTED, Kind.INGRESS)
    for indices in net.received().values():
        assert indices == sorted(set(indices))


def calls(*rows: tuple[int, str, str, str, str]) -> list[dict[str, Any]]:
    return [{"tick": t, "do": do, "sender": x, "recipient": y, "by": by} for t, do, x, y, by in rows]


def test_closing_channel_drops_its_messages_and_reopens_on_demand() -> None:
    closing = calls((30, "close", "a", "b", "b"))
    net = Hrmp({"a": {1: "caller"}, "b": {2: "echo"}}, halts=[("b", 32, 44)], session_blocks=4, channel_calls=closing)
    net.tell(1, 2)
    while net.tick < 30:
        net.step()
    assert net.count(Event.EXECUTED, Kind.RESPONSE) == 1
    net.tell(1, 2, 4)
    while net.tick < 40:
        net.step()
    assert net.reasons() == {"ChannelClosed": 4}
    assert [(row["sender"], row["recipient"]) for row in net.table("channels")] == [(2, 1)]
    net.tell(1, 2, 2)
    net.settle()
    assert (1, 2) in {(row["sender"], row["recipient"]) for row in net.table("channels")}
    assert net.received()[1, 2] == [0, 5, 6]
    assert net.count(Event.EXECUTED, Kind.RESPONSE) == 3
    assert not net.table("runs")


@pytest.mark.parametrize("limit", ["max_outbound_channels", "max_inbound_channels"])
def test_channel_above_the_limits_opens_once_another_closes(limit: str) -> None:
    chains = {"a": {1: "caller"}, "b": {2: "echo"}, "c": {3: "echo"}}
    closing = calls((30, "close", "a", "b", "a"), (30, "close", "b", "a", "a"))
    limits: dict[str, Any] = {limit: 1}
    net = Hrmp(chains, session_blocks=2, channel_calls=closing, **limits)
    net.tell(1, 2)
    while net.tick < 16:
        net.step()
    net.tell(1, 3)
    while net.tick < 30:
        net.step()
    there = {(row["sender"], row["recipient"]) for row in net.table("channels")}
    waits = [(row["sender"], row["recipient"], row["confirmed"]) for row in net.table("requests")]
    if limit == "max_outbound_channels":
        assert (there, waits) == ({(1, 2), (2, 1)}, [])
    else:
        assert (there, waits) == ({(1, 2), (2, 1), (1, 3)}, [(3, 1, 0)])
    net.settle()
    check_all_came(net)
    assert net.reasons() == {}


def test_channel_without_funds_opens_once_another_closes() -> None:
    chains = {"a": {1: "caller"}, "b": {2: "echo"}, "c": {3: "echo"}}
    closing = calls((40, "close", "a", "b", "a"))
    net = Hrmp(chains, session_blocks=2, endowment=30, sender_deposit=10, recipient_deposit=10, channel_calls=closing)
    net.tell(1, 2)
    while net.tick < 16:
        net.step()
    net.tell(1, 3)
    while net.tick < 40:
        net.step()
    assert {(row["sender"], row["recipient"]) for row in net.table("channels")} == {(1, 2), (1, 3), (2, 1)}
    assert [(row["sender"], row["recipient"], row["confirmed"]) for row in net.table("requests")] == [(3, 1, 0)]
    net.settle()
    check_all_came(net)
    assert net.reasons() == {}


def test_rejected_calls_are_named_and_change_nothing() -> None:
    planned = calls((1, "accept", "a", "b", "b"), (1, "close", "a", "b", "a"), (1, "cancel", "a", "b", "c"))
    planned += calls((1, "open", "b", "b", "b"), (1, "close", "b", "b", "b"))
    net = Hrmp({"a": {1: "caller"}, "b": {2: "echo"}, "c": {3: "echo"}}, channel_calls=planned)
    net.settle()
    names = {"AcceptHrmpChannelDoesntExist": 1, "CloseHrmpChannelDoesntExist": 2}
    names |= {"CancelHrmpOpenChannelUnauthorized": 1, "OpenHrmpChannelToSelf": 1}
    assert net.reasons() == names
    assert not net.table("channels")


def test_planned_calls_beyond_block_capacity_move_to_later_blocks() -> None:
    """Execute all of 230 in one tick, and some more meanwhile, each once and in order."""
    chains = {name: {number: "echo"} for number, name in enumerate("abcdefghijklmnop", 1)}
    pairs = [(x, y) for x in chains for y in chains if x != y][:230]
    planned = calls(*((3, "cancel", x, y, "a") for x, y in pairs), *((4, "close", x, "a", "a") for x in "bcd"))
    net = Hrmp(chains, channel_calls=planned)
    shown: dict[int, int] = {}
    while net.tick < 20:
        net.step()
        (number,) = (row["number"] for row in net.table("tips") if row["chain"] == 1)
        shown[number] = len(net.table("calls"))
    assert [count for count in shown.values() if count] == [100, 100, 33]
    assert sum(net.reasons().values()) == 233
    assert net.reasons()["CloseHrmpChannelDoesntExist"] == 3


def test_calls_larger_than_a_page_are_rejected_and_larger_answers_truncated() -> None:
    net = Hrmp({"a": {1: "caller"}, "b": {2: "echo"}}, max_message_size=300, max_total_size=300, session_blocks=2)
    net.tell(1, 2, body=bytes(400))
    net.tell(1, 2, body=bytes(200))
    net.settle()
    assert net.reasons() == {"MaxMessageSizeExceeded": 1}
    assert net.count(Event.EXECUTED, Kind.REQUEST) == 1


def test_keys_are_those_of_deployed_relay_chains() -> None:
    """Check the well-known prefixes of relay chain clients."""
    pallet = "6a0da05ca59913bc38a8630590f2627c"
    known = {
        "HrmpChannels": "b6604cff828a6e3f579ca6c59ace013d",
        "HrmpIngressChannelsIndex": "1d3719f5b0b12c7105c073c507445948",
        "HrmpEgressChannelsIndex": "f12b746dcf32e843354583c9702cc020",
    }
    for item, digest in known.items():
        assert item_key(item, 1).hex().startswith(pallet + digest)
    paras = "cd710b30bd2eab0352ddcc26417aa194" + "1b3c252fcb29d88eff4f3de5de4476c3"
    assert item_key("Heads", 1).hex().startswith(paras)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_message_size": 255}, "options.max_message_size: 255; allowed: 256 to"),
        ({"max_message_size": 500, "max_total_size": 499}, "options.max_message_size: 500; allowed: 256 to"),
        ({"channel_calls": calls((1, "open", "a", "x", "a"))}, "channel_calls[0].recipient: 'x' is no parachain"),
        ({"channel_calls": calls((1, "open", "relay", "b", "a"))}, "channel_calls[0].sender: 'relay' is no parachain"),
        ({"channel_calls": calls((1, "open", "a", "b", "z"))}, "channel_calls[0].by: 'z' is no parachain"),
        ({"channel_calls": calls((1, "open", "a", "b", "b"))}, "channel_calls[0].by: 'b'; allowed with open: 'a'"),
        ({"channel_calls": calls((1, "accept", "a", "b", "a"))}, "channel_calls[0].by: 'a'; allowed with accept: 'b'"),
    ],
)
def test_conflicting_options_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        Hrmp({"a": {1: "caller"}, "b": {2: "echo"}}, **options)
    assert said in str(error.value)


def test_lake_roots_are_independent_of_buckets_and_unproved_tables_reported(tmp_path: Path) -> None:
    keys = {"network.protocol": "icmp", "network.executor": "in_process", "options.channels": '"hrmp"'}
    roots = set()
    for partitions in (1, 2):
        lake = str(tmp_path / f"lake{partitions}")
        scenario = load_scenario(TWO, {**keys, "network.partitions": str(partitions)})
        with LakeNetwork(scenario, lake) as net:
            net.run()
            counts = net.summary()
            roots.add(net.root())
        assert (counts["sent"], counts["received"], counts["answered"]) == (5, 3, 3)
        assert counts["duplicates"] == counts["out_of_order"] == counts["pending"] == 0
    assert len(roots) == 1
    with LakeNetwork(load_scenario(TWO, keys), str(tmp_path / "short")) as net:
        net.run(12)
        assert carrier_summary(net.lake, net.manifest).content["waiting_queues"] == {"right": 1}
    with pytest.raises(InvalidInput, match='channels = "hrmp", which has no egress queues'):
        relay_leaves(open_lake(lake))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"endowment": 5}, "left has 5 units, sender_deposit is 10"),
        ({"endowment": 50, "recipient_deposit": 60}, "right has 50 units, recipient_deposit is 60"),
        ({"session_blocks": 1000}, "it opens with the next session"),
    ],
)
def test_messages_without_an_open_channel_report_the_reason(options: dict[str, int], why: str, tmp_path: Path) -> None:
    keys = {"network.protocol": "icmp", "network.executor": "in_process", "options.channels": '"hrmp"'}
    keys |= {f"options.{key}": str(value) for key, value in options.items()}
    with LakeNetwork(load_scenario(TWO, keys), str(tmp_path / "lake")) as net:
        net.run(12)
        told = carrier_summary(net.lake, net.manifest)
    (closed,) = told.content["closed_channels"]
    assert closed.pop("pages") > 0 and closed == {"sender": "left", "recipient": "right", "why": why}
    assert told.lines[-1].endswith(f" wait, is not open: {why}.")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"session_blocks": 3}, 'it does nothing with channels = "egress"; it needs channels = "hrmp"'),
        ({"channels": "hrmp", "bodies": "drawn"}, 'it does nothing with channels = "hrmp"'),
        ({"channels": "hrmp", "watermark_rule": "any_ancestor", "profile": "deployed"}, "it does nothing"),
    ],
)
def test_options_of_the_other_channel_kind_are_rejected(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as error:
        IcmpOptions(**options)
    assert said in str(error.value)


def test_deployed_profile_supports_either_channel_kind() -> None:
    for channels in ("egress", "hrmp"):
        assert IcmpOptions(profile="deployed", channels=channels).watermark_rule == "has_messages"


@pytest.mark.parametrize("wrong", ["changed", "missing", "none"])
def test_parachain_makes_no_block_on_contents_that_miss_the_head(wrong: str) -> None:
    net = Hrmp({"a": {1: "caller"}, "b": {2: "echo"}}, cuts=3, session_blocks=2)
    net.tell(1, 2)
    while not net.table("contents"):
        net.step()
    tables = shown_to(net.kernel, net.states, net.groups[2])
    contents = tables["contents"]
    if wrong == "changed":
        tables["contents"] = contents.with_columns(data=pa.array([b"\x01\x00"], pa.binary()))
    elif wrong == "missing":
        tables["contents"] = contents.slice(0, 0)
    nothing = INGRESS_SCHEMA.empty_table(), CARRIED_SCHEMA.empty_table()
    tick = Tick(net.tick + 1, net.tick)
    view = View(tables, empty_frame(SEEN_HEADERS_SCHEMA))
    plan = net.kernel.plan(net.states[2], net.groups[2], view, *nothing, tick)
    rows = empty_frame(OUTBOUND_SCHEMA)
    made = net.kernel.round(net.states[2], net.groups[2], plan, Inputs(*nothing, rows, rows), tick)
    reasons = made.logs["events"]["reason"].to_pylist()
    assert (len(made.headers), "HeadMismatch" in reasons) == ((1, False) if wrong == "none" else (0, True))


def test_faults_of_egress_queues_are_rejected() -> None:
    made = Hrmp({"a": {1: "caller"}, "b": {2: "echo"}}).kernel
    with pytest.raises(InvalidInput, match="'fork' is not for channels = \"hrmp\"; allowed: 'halt', 'candidate'"):
        replace(made, faults=Faults.of(FaultRule("halt", 1), FaultRule("fork")))
