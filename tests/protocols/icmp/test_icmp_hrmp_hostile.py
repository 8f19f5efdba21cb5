"""Faults between the ends of HRMP channels (X-6): the network survives each, and every call ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.core.frame import from_table
from causeway.core.vocabulary import Event, Kind
from causeway.protocols.hrmp import acceptance
from causeway.protocols.hrmp.commitment import item_key, storage_changes
from causeway.protocols.hrmp.errors import ReceiptError, UpwardCallError
from causeway.protocols.hrmp.faults import forge_receipt
from causeway.protocols.hrmp.pages import take_outbound
from causeway.protocols.hrmp.state import PAGES_SCHEMA
from causeway.protocols.relay_chain.options import HrmpOptions
from tests.spec.icmp import hrmp as spec
from tests.support.icmp.icmp_hrmp import given, state_of
from tests.support.icmp.icmp_hrmp_network import Hrmp

CHAINS = {"a": {1: "caller"}, "b": {2: "echo"}}


def with_a_resume(halts: list[tuple[str, int, int]], closes: int | None) -> tuple[Hrmp, int]:
    """Return a network in which "b" suspends and resumes "a", and the tick after which the signal is sent."""
    calls = [] if closes is None else [{"tick": closes, "do": "close", "sender": "b", "recipient": "a"}]
    small: dict[str, Any] = {"max_message_size": 256, "max_total_size": 25_600, "pages_per_block": 1}
    net = Hrmp(CHAINS, halts=[("b", 11, 21), *halts], session_blocks=2, channel_calls=calls, **small)
    net.tell(1, 2)
    found = 0
    while net.tick < 50 and not (found and closes is None):
        if 10 <= net.tick < 26:
            net.tell(1, 2, 3, bytes(60))
        net.step()
        found = found or net.tick * any(row["data"] == b"\x02\x01" for row in net.table("contents"))
    return net, found


def test_sender_whose_resume_was_lost_with_a_closed_channel_continues() -> None:
    _, tick = with_a_resume([], None)
    net, _ = with_a_resume([("a", tick, tick + 14)], tick)
    assert net.reasons()["ChannelClosed"] > 0
    net.settle()
    made = net.count(Event.EXECUTED, Kind.INGRESS)
    assert made == 49 == net.count(Event.EXECUTED, Kind.RESPONSE) + net.count(Event.DROPPED)
    assert not net.table("pages")


REFUSED = {
    "parent": "ParentMismatch",
    "ahead": "AheadRelayParent",
    "watermark_back": "AdvancementRule",
    "no_messages": "LandsOnBlockWithNoMessages",
    "many": "MoreMessagesThanPermitted",
    "unsorted": "NotSorted",
    "unknown": "NoSuchChannel",
    "oversized": "MaxMessageSizeExceeded",
    "total_size": "TotalSizeExceeded",
    "capacity": "CapacityExceeded",
    "calls": "TooManyCalls",
    "call_bytes": "CallsTooLarge",
    "partial": "HeadMismatch",
    "skipped": "HeadMismatch",
    "sender": "HeadMismatch",
    "body": "HeadMismatch",
}


def with_malicious(*faults: str) -> Hrmp:
    small: dict[str, Any] = {"max_message_size": 256, "max_total_size": 520, "max_capacity": 2}
    chains = {"a": {1: "caller"}, "b": {2: "echo", 3: "caller"}, "c": {4: "echo"}}
    malicious = [(name, what) for what in faults for name in chains]
    net = Hrmp(chains, 2, [("c", 12, 22)], oracle=False, malicious=malicious, session_blocks=3, **small)
    for tick in range(24):
        if tick % 3 == 0:
            net.tell(1, 2, 2, bytes(60))
            net.tell(1, 4, 2, bytes(60))
            net.tell(3, 4, 1)
        net.step()
    net.settle()
    return net


def test_malicious_candidates_are_rejected_by_name_without_effect() -> None:
    honest, hostile = with_malicious(), with_malicious(*REFUSED)
    assert honest.reasons() == {}
    assert hostile.headers == honest.headers and hostile.tick == honest.tick
    counts = hostile.reasons()
    assert set(counts) == set(REFUSED.values())
    # Always possible forgeries occur once per block; consumed messages can be falsified in four ways.
    made = sum(map(len, (roots for chain, roots in honest.headers.items() if chain))) - 3
    always = {name for what, name in REFUSED.items() if what in ("parent", "ahead", "many", "unknown", "calls")}
    assert {name: counts[name] for name in always} == dict.fromkeys(always, made)
    assert counts["HeadMismatch"] % 4 == 0


FORGED = {what: name for what, name in REFUSED.items() if name != "HeadMismatch"}


@pytest.mark.parametrize("what", FORGED)
def test_forged_receipt_is_rejected_for_its_error(what: str) -> None:
    """Errors that cannot occur are not forged."""
    s = spec.genesis((1, 2), 0)
    s.channels[1, 2] = spec.Channel(3, 30, 20, 0, 0, msg_count=3 * (what == "capacity"), total_size=15)
    options = HrmpOptions(channels="hrmp", max_messages_per_candidate=2)
    honest, _, _ = given(s, [spec.Receipt(1, 9, 9)])
    found = forge_receipt(honest, what, state_of(s), options)
    assert found is not None
    assert [ReceiptError(code).name for code in acceptance.check_receipts(*found, state_of(s), 10, options)] == [
        FORGED[what]
    ]
    s.channels[1, 2] = spec.Channel(3, 60, 20, 0, 0)
    s.watermark[1] = 8
    honest, _, _ = given(s, [spec.Receipt(1, 9, 9)])
    made = forge_receipt(honest, what, state_of(s), options) is not None
    assert made == (what not in ("capacity", "total_size", "no_messages"))


@pytest.mark.parametrize(
    ("malicious", "said"),
    [
        (("a", "root"), 'faults[0].what: "root": it does nothing with channels = "hrmp"'),
        (("relay", "many"), "it is the relay chain"),
    ],
)
def test_ineffective_candidates_are_rejected(malicious: tuple[str, str], said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        Hrmp(CHAINS, malicious=[malicious])
    assert said in str(error.value)


def receipt_verdicts(
    messages: tuple[tuple[int, bytes], ...], watermark: int = 9, parent: int = 9, **channel: Any
) -> str:
    """Return verdicts of relay chain and oracle in block 10 on a receipt of 1, with its only channel to 2."""
    s = spec.genesis((1, 2), 0)
    s.watermark[1] = 4
    s.digests[1] = {6}
    s.channels[1, 2] = replace(spec.Channel(3, 30, 20, 0, 0), **channel)
    receipt = spec.Receipt(1, parent, watermark, messages)
    said = spec.check(s, spec.Config(max_messages=2), 10, receipt) or "OK"
    options = HrmpOptions(channels="hrmp", max_messages_per_candidate=2)
    (code,) = acceptance.check_receipts(*given(s, [receipt]), state_of(s), 10, options)
    assert ReceiptError(code).name == said
    return said


@pytest.mark.parametrize(
    ("size", "channel", "due"),
    [
        (0, {}, "OK"),
        (20, {}, "OK"),
        (21, {}, "MaxMessageSizeExceeded"),
        (20, {"total_size": 10}, "OK"),
        (20, {"total_size": 11}, "TotalSizeExceeded"),
        (0, {"total_size": 30}, "OK"),
        (1, {"total_size": 30}, "TotalSizeExceeded"),
        (0, {"msg_count": 2}, "OK"),
        (0, {"msg_count": 3}, "CapacityExceeded"),
        (1, {"max_total_size": 2**31 + 2**30, "total_size": 2**31 + 2**30 - 1}, "OK"),
    ],
)
def test_messages_exactly_at_the_bounds_of_a_channel(size: int, channel: dict[str, int], due: str) -> None:
    assert receipt_verdicts(((2, bytes(size)),), **channel) == due


@pytest.mark.parametrize(
    ("watermark", "due"),
    [
        (9, "OK"),
        (10, "AheadRelayParent"),
        (2**32, "AheadRelayParent"),
        (4, "AdvancementRule"),
        (3, "AdvancementRule"),
        (6, "OK"),
        (5, "LandsOnBlockWithNoMessages"),
        (8, "LandsOnBlockWithNoMessages"),
    ],
)
def test_watermarks_that_repeat_skip_or_run_ahead(watermark: int, due: str) -> None:
    assert receipt_verdicts((), watermark) == due


@pytest.mark.parametrize(
    ("parent", "watermark", "due"),
    [
        (10, 10, "AheadRelayParent"),
        (2**32, 2**32, "AheadRelayParent"),
        (2**32, 6, "AheadRelayParent"),
        (4, 4, "OK"),
        (3, 3, "AdvancementRule"),
        (0, 0, "AdvancementRule"),
        (6, 6, "OK"),
    ],
)
def test_relay_parent_is_an_existing_block_and_never_goes_back(parent: int, watermark: int, due: str) -> None:
    assert receipt_verdicts((), watermark, parent) == due


def test_stalled_recipient_only_fills_its_own_channel() -> None:
    """The sender waits with the rest, other channels continue, and nothing is lost on its return."""
    small: dict[str, Any] = {"max_message_size": 256, "max_total_size": 700, "max_capacity": 3}
    chains = {"a": {1: "caller"}, "b": {2: "echo"}, "c": {3: "echo"}}
    net = Hrmp(chains, halts=[("b", 14, 60)], session_blocks=3, **small)
    net.tell(1, 2)
    while net.tick < 60:
        if 14 <= net.tick < 30:
            net.tell(1, 2, 2, bytes(90))
            net.tell(1, 3)
        net.step()
    (stuck,) = (row for row in net.table("channels") if (row["sender"], row["recipient"]) == (1, 2))
    assert stuck["msg_count"] == len(net.table("contents")) == 3
    assert 0 < stuck["total_size"] <= 700
    # All calls to "c"; "b" has not answered its first one yet.
    assert net.count(Event.EXECUTED, Kind.RESPONSE) == 16
    net.settle()
    assert net.count(Event.EXECUTED, Kind.RESPONSE) == net.count(Event.EXECUTED, Kind.INGRESS) == 49
    assert net.reasons() == {}


def test_reopened_channel_drops_only_its_own_messages() -> None:
    """Both ends request, together and separately, also for closing and missing channels."""
    calls = [
        {"tick": tick, "do": "close", "sender": "a", "recipient": "b", "by": "ab"[tick // 5 % 2]}
        for tick in range(12, 48, 5)
    ]
    calls += [{"tick": tick, "do": "close", "sender": "b", "recipient": "a"} for tick in range(20, 48, 11)]
    small: dict[str, Any] = {"max_message_size": 256, "max_total_size": 600}
    halts = [(name, tick, tick + 4) for name, tick in (("b", 21), ("a", 33))]
    net = Hrmp(CHAINS, 2, halts, session_blocks=2, channel_calls=calls, **small)
    for _ in range(46):
        net.tell(1, 2, 1, bytes(70))
        net.step()
    net.settle()
    assert net.count(Event.EXECUTED, Kind.RESPONSE) + net.count(Event.DROPPED) == 46
    assert 0 < net.reasons()["ChannelClosed"] == net.count(Event.DROPPED) < 40
    for indices in net.received().values():
        assert indices == sorted(set(indices))


def test_withdrawn_request_frees_its_slot_in_the_same_block() -> None:
    """Limits count as calls execute; the relay chain commits to nonzero counts."""
    s = spec.genesis((1, 2, 3), 100)
    config = spec.Config(max_outbound_channels=1, max_inbound_channels=1)
    options = HrmpOptions(channels="hrmp", max_outbound_channels=1, max_inbound_channels=1)
    calls: list[spec.Call] = [spec.Open(2, 9, 9), spec.Cancel(1, 2), spec.Open(3, 9, 9), spec.Open(2, 9, 9)]
    receipts = [
        spec.Receipt(1, 1, 1, calls=tuple(map(spec.encode, calls))),
        spec.Receipt(2, 1, 1, calls=(spec.encode(spec.Open(3, 9, 9)),)),
        spec.Receipt(3, 1, 1, calls=tuple(map(spec.encode, (spec.Accept(1), spec.Accept(2))))),
    ]
    rows, state = given(s, receipts), state_of(s)
    said = spec.step(s, config, 2, receipts)
    executed = acceptance.apply_receipts(state, *rows, 2, options)
    names = [UpwardCallError(code).name for code in executed.codes.tolist()]
    assert names == ["OK", "OK", "OK", "OpenHrmpChannelLimitExceeded", "OK", "OK", "AcceptHrmpChannelLimitExceeded"]
    assert {*said.calls.values()} == {*names} - {"OK"}
    entries = storage_changes(None, executed.state)
    counts = {
        (item, p): entries.get(item_key(item, p))
        for item in ("HrmpOpenChannelRequestCount", "HrmpAcceptedChannelRequestCount")
        for p in (1, 2, 3)
    }
    one = (1).to_bytes(4, "little")
    assert list(counts.values()) == [one, one, None, None, None, one]


@pytest.mark.parametrize("back", [True, False])
def test_suspension_ends_with_its_channel(back: bool) -> None:
    net = Hrmp(CHAINS, session_blocks=2)
    net.tell(1, 2)
    while net.count(Event.EXECUTED, Kind.RESPONSE) == 0:
        net.step()
    state = net.states[0]
    channels = state["channels"] if back else state["channels"].filter(state["channels"]["sender"] == 1)
    flags = (state["ends"]["chain"] == 1).astype(np.uint8)
    ends = state["ends"].with_columns(suspended_by=flags)
    columns: dict[str, Any] = {"source": 1, "destination": 2, "number": 9, "first": 1, "count": 1, "data": b"\x01\x04"}
    page = from_table(pa.Table.from_pylist([{"place": 0, **columns}], schema=PAGES_SCHEMA))
    sent = take_outbound(page, ends, channels, np.array([1], dtype=np.uint32), net.kernel.options).sent
    assert len(sent) == (0 if back else 1)
