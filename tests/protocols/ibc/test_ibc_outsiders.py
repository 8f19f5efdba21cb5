"""Slow, duplicated or hostile external relayers, and hostile stores: no block stops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from causeway_proofs.ics23.simple_store import SimpleStore
from causeway_proofs.wire import ibc_queue_pb2 as wire
from hypothesis import given
from hypothesis import strategies as st

from causeway.core.frame import Frame
from causeway.core.vocabulary import Event
from causeway.protocols.contract import Tick
from causeway.protocols.ibc.client import _signed
from causeway.protocols.ibc.keys import MAX_INDEX, KeyPart, QueueKey, QueuePurpose, index_key
from causeway.protocols.ibc.packets import Packet, Receipt, encode_position
from causeway.protocols.ibc.program_inputs import ReceiptCode
from causeway.protocols.ibc.relay import accounts
from causeway.protocols.ibc.relay.accounts import OUTSIDER
from causeway.protocols.ibc.relay.submissions import merge_ranges
from tests.support.ibc.ibc_calls import SILENT, A, B, Net, columns


def with_sent_packets(count: int, options: dict[str, Any] | None = None, **more: Any) -> Net:
    """Create a network with packets from A to B and only external relayers."""
    net = Net(options, carriers=SILENT, **more)
    for _ in range(count):
        net.ask()
    return net.next()


class Hostile:
    """False store signed by a zone's validators: ``entries``, in the latest block."""

    def __init__(self, net: Net, zone: str, entries: dict[bytes, bytes]) -> None:
        self.zone, self.height, self.entries = zone, net.height, {b"a": b"anything", **entries}
        self.tree = SimpleStore.of(*columns(self.entries))
        context = net.kernel.context(np.arange(len(net.names), dtype=np.uint32), Tick(net.height, net.tick.tick))
        header = _signed(list(net.names).index(zone), net.height, context.time, self.tree.root, context)
        self.update = wire.Call(update=wire.UpdateHeader(remote=zone, header=header))

    def proof(self, kind: str, key: bytes) -> wire.Call:
        shown: dict[str, Any] = {"remote": self.zone, "key": key, "value": self.entries[key]}
        call: dict[str, Any] = {kind: wire.Submit(**shown, proof=self.tree.prove(key), height=self.height)}
        return wire.Call(**call)


def rejection_rows(net: Net) -> list[tuple[Any, ...]]:
    """Return (chain, source, substream, index, sender, reason) of the last block's rejections."""
    rows = net.events()
    refused = (rows["events"] & np.uint16(Event.REJECTED)) > 0
    rows = rows.filter((rows["kind"] == 4) & refused)
    assert (rows["chain"] == rows["destination"]).all()
    names = ("chain", "source", "substream", "index", "sender")
    return list(zip(*(rows[name].tolist() for name in names), rows["reason"].to_pylist(), strict=True))


def test_halted_zone_accepts_no_transactions() -> None:
    net = with_sent_packets(1, halts=[("B", 1, 2)])
    for _ in range(2):
        net.put("B", net.update("A"))
        net.next()
        assert net.refusals() == [("B", "ChainHalted")]
        assert len(net.state.relayers) == 0
    assert net.bring("B", net.update("A"), net.packet(0, height=3)) == []
    assert net.state.relayers["relayer"].tolist() == [OUTSIDER + 7]


def test_message_index_counts_all_messages_of_a_block() -> None:
    net = with_sent_packets(1)
    net.put("A", net.update("B"))
    net.say("A", 99, "nobody is there")
    net.next()
    rows = net.events()
    assert rows.filter(rows["receiver"] == 99)["index"].tolist() == [2]


def prove_tail(zone: str, net: Net) -> wire.Call:
    return net.proof("timeout", zone, QueueKey("A", QueuePurpose.RECEIPT, KeyPart.TAIL).encode())


def test_time_outs_in_as_many_transactions_as_packets() -> None:
    net = with_sent_packets(3, {"timeouts": "on", "timeout_blocks": 1}).next(3)
    assert net.bring("A", net.update("B")) == []
    late = net.proof("timeout", "B", QueueKey("A", QueuePurpose.RECEIPT, KeyPart.TAIL).encode(), height=net.height - 1)
    for user in range(3):
        net.put("A", late, user=user)
    net.next()
    assert net.refusals() == [] and net.queue("A", "B", QueuePurpose.SEND) == (3, 3)
    assert [note[:2] for note in net.seen(A)] == [[0, 2], [1, 2], [2, 2]]


def test_time_out_after_messages_of_scenario_relayers() -> None:
    # B gets only the first packet, and its receipt stays there until the second has expired.
    drop: Any = (("drop", "A", "B", 2, 10**6, None), ("drop", "B", "A", 0, 7, None))
    options = {"timeouts": "on", "timeout_blocks": 2, "relay": {"max_packets": 1}}
    net = Net(options, carriers=drop).ask().next(2).ask().next(6)
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (0, 1) and net.queue("A", "B", QueuePurpose.SEND) == (0, 2)
    net.put("A", prove_tail("B", net))
    net.next()
    assert net.queue("A", "B", QueuePurpose.SEND) == (2, 2)
    assert [note[:2] for note in net.seen(A)] == [[0, 0], [1, 2]]


def test_impossible_heads_and_indices_are_rejected() -> None:
    head = QueueKey("B", QueuePurpose.SEND, KeyPart.HEAD).encode()
    for index in (MAX_INDEX + 1, 2**63, 2**64 - 1):
        net = with_sent_packets(1, {"cleanup": "on"})
        hostile = Hostile(net, "A", {head: encode_position(index)})
        assert net.bring("B", hostile.update, hostile.proof("cleanup", head)) == ["InvalidPacket"]
        assert net.queue("B", "A", QueuePurpose.RECEIPT) == (0, 0)
    for order in ("ordered", "unordered"):
        for index in (MAX_INDEX, 2**63, 2**64 - 1):
            net = with_sent_packets(1, {"order": order})
            key = index_key("B", QueuePurpose.SEND, index)
            hostile = Hostile(net, "A", {key: Packet("call", b"").encode()})
            assert net.bring("B", hostile.update, hostile.proof("receive", key)) == ["OutOfOrder"]
            assert rejection_rows(net) == [(1, 0, 1, index, 7, "OutOfOrder")]
            assert net.queue("B", "A", QueuePurpose.RECEIPT) == (0, 0)


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_receipt_of_an_unsent_packet(order: str) -> None:
    net = with_sent_packets(1, {"order": order}).next()
    assert net.bring("B", net.update("A"), net.packet(0)) == []
    assert net.bring("A", net.update("B"), net.receipt(0)) == []
    key = index_key("A", QueuePurpose.RECEIPT, 1)
    hostile = Hostile(net, "B", {key: Receipt(0, b"").encode()})
    assert net.bring("A", hostile.update, hostile.proof("receipt", key)) == ["OutOfOrder"]
    assert net.queue("A", "B", QueuePurpose.SEND) == (1, 1) and len(net.seen(A)) == 1


def test_headers_for_unconnected_or_frozen_chains() -> None:
    net = Net({"connections": (("A", "B"),)}, carriers=SILENT, forks=(("B", 2),)).next(2)
    nonsense = [wire.Call(update=wire.UpdateHeader(remote=remote, header=b"\xff")) for remote in ("C", "B")]
    assert net.bring("A", *nonsense)[-2:] == ["UnregisteredSender", "ConnectionFrozen"]


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_features_the_network_lacks_are_rejected_for_external_senders(order: str) -> None:
    net = with_sent_packets(1, {"order": order})
    assert net.bring("B", net.update("A"), net.packet(0)) == []
    assert net.bring("A", net.update("B"), net.receipt(0)) == []
    late = prove_tail("B", net) if order == "ordered" else net.missing(0)
    assert net.bring("A", net.update("B"), late) == ["CallNotOffered"]
    assert net.bring("B", net.update("A"), net.cleanup()) == ["CallNotOffered"]
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (0, 1) and net.codes("B", "A") == [0]


def test_maximum_index() -> None:
    head = QueueKey("B", QueuePurpose.SEND, KeyPart.HEAD).encode()
    net = with_sent_packets(1, {"cleanup": "on"})
    hostile = Hostile(net, "A", {head: encode_position(MAX_INDEX - 1)})
    assert net.bring("B", hostile.update, hostile.proof("cleanup", head)) == []
    last = index_key("B", QueuePurpose.SEND, MAX_INDEX - 1)
    hostile = Hostile(net, "A", {last: Packet("call", b"").encode()})
    assert net.bring("B", hostile.update, hostile.proof("receive", last)) == []
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (MAX_INDEX - 1, MAX_INDEX)
    assert net.next(2).codes("B", "A") == [ReceiptCode.MALFORMED]


def test_rejections_name_the_queue_and_the_index() -> None:
    net = with_sent_packets(1, {"cleanup": "on", "timeouts": "on"})
    calls = [
        net.packet(3),
        net.receipt(2**64 - 1, zone="A", to="C"),
        wire.Call(update=wire.UpdateHeader(remote="A", header=b"\xff")),
        wire.Call(cleanup=wire.Submit(remote="nowhere")),
        wire.Call(timeout=wire.Submit(remote="A", key=b"no key")),
    ]
    # B's queue for A begins at 1, which no call has named.
    net.say("B", B, ("call", A, "echo", b"x", 0, None)).next()
    assert net.bring("A", net.update("B"), net.packet(0, zone="B", to="A")) == []
    assert net.bring("B", net.update("A"), net.receipt(0, zone="A", to="B")) == []
    net.bring("B", *calls)
    assert rejection_rows(net) == [
        (1, 0, 1, 3, 7, "OutOfOrder"),
        (1, 0, 0, 2**64 - 1, 7, "WrongChain"),
        (1, 0, 0, 0, 7, "InvalidHeader"),
        (1, 1, 1, 0, 7, "UnregisteredSender"),
        (1, 0, 0, 0, 7, "MalformedKey"),
    ]


def test_old_packet_and_a_cleanup_past_it_in_one_block() -> None:
    net = with_sent_packets(1, {"timeouts": "on", "timeout_blocks": 1, "cleanup": "on"}).next(3)
    header, packet = net.update("A"), net.packet(0)
    assert net.bring("A", net.update("B"), prove_tail("B", net)) == []
    popped = net.proof("cleanup", "A", QueueKey("B", QueuePurpose.SEND, KeyPart.HEAD).encode())
    assert net.bring("B", header, packet, net.update("A"), popped) == []
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (1, 1)
    assert net.codes("B", "A") == [], "what a cleanup has passed is not written"
    assert net.seen(A) == [[0, 2, b"", 0]] and net.seen(B) == []


def test_header_below_all_trusted_ones() -> None:
    net = Net({"unbonding_seconds": 4.0}, carriers=SILENT).next()
    old = net.update("B")
    for _ in range(6):
        net.next()
        assert net.bring("A", net.update("B")) == []
    assert min(height for height in trusted_heights(net, "A", "B")) > 1
    # C's trust set follows A's: its trusted headers mean nothing to A.
    assert net.bring("A", old) == ["InvalidHeader"]


def test_headers_in_any_order_build_on_the_highest_lower_one() -> None:
    net = Net({"unbonding_seconds": 6.0}, carriers=SILENT)
    updates = [net.next().update("B") for _ in range(8)]
    assert net.bring("A", updates[3], updates[0]) == ["ClientExpired", "ClientExpired"]
    net = Net({"unbonding_seconds": 6.0}, carriers=SILENT)
    updates = [net.next().update("B") for _ in range(3)]
    assert net.bring("A", updates[2], updates[0], updates[1]) == []
    assert trusted_heights(net, "A", "B") == [0, 1, 2, 3]


def trusted_heights(net: Net, zone: str, remote: str) -> list[int]:
    trust, names = net.state.trust, list(net.names)
    mine = (trust["chain"] == names.index(zone)) & (trust["counterparty"] == names.index(remote))
    found: list[int] = trust["height"][mine].tolist()
    return found


def test_expired_client_is_reported_for_any_header() -> None:
    net = Net({"unbonding_seconds": 4.0}, carriers=SILENT)
    updates = [net.next().update("B") for _ in range(3)]
    assert net.bring("A", updates[2]) == []
    # The genesis is still trusted, but too old to build on; the client is not.
    stranger = wire.Call(update=wire.UpdateHeader(remote="B", header=net.next().update("C").update.header))
    earlier = net.past_headers[2]["certification"][list(net.names).index("C")].as_py()
    stranger_below = wire.Call(update=wire.UpdateHeader(remote="B", header=earlier))
    assert trusted_heights(net, "A", "B") == [0, 3]
    assert net.bring("A", stranger, stranger_below, updates[1]) == ["InvalidHeader", "InvalidHeader", "ClientExpired"]
    assert net.bring("A", net.update("B")) == [] and trusted_heights(net, "A", "B") == [3, 6]
    net.next(5)
    assert net.bring("A", updates[0], stranger, updates[2]) == ["ClientExpired"] * 3


def test_overlapping_ranges_are_read_once() -> None:
    rows = [(0, 1, 5, 9), (0, 1, 0, 6), (0, 1, 2, 3), (0, 1, 9, 10), (0, 1, 12, 12), (0, 2, 1, 2), (1, 0, 0, 4)]
    source, destination, begin, end = (np.array(column, dtype=np.uint64) for column in zip(*rows, strict=True))
    lanes = {"source": source.astype(np.uint32), "destination": destination.astype(np.uint32)}
    found = merge_ranges(Frame({**lanes, "substream": source * 0 + 1, "begin": begin, "end": end}, len(rows)))
    names = ("source", "destination", "begin", "end")
    assert list(zip(*(found[name].tolist() for name in names), strict=True)) == [
        (0, 1, 0, 10),
        (0, 2, 1, 2),
        (1, 0, 0, 4),
    ]


def test_external_receipt_among_those_of_scenario_relayers() -> None:
    net = Net()
    for _ in range(5):
        net.ask()
    net.next(2)
    net.put("A", net.receipt(2))
    plans: list[Any] = []
    plan = type(net.kernel).plan

    def remembered(*arguments: Any) -> Any:
        plans.append(plan(*arguments))
        return plans[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(net.kernel), "plan", remembered)
        net.next()
    frame = plans[0].reads.own
    assert list(zip(frame["begin"].tolist(), frame["end"].tolist(), strict=True)) == [(0, 5)]
    assert net.refusals() == [("A", "OutOfOrder")] and len(net.seen(A)) == 5


ACCOUNT = st.tuples(
    st.integers(0, 2),
    st.integers(0, 3) | st.integers(OUTSIDER, OUTSIDER + 9) | st.just(accounts.OTHERS),
    st.integers(0, 3),
)


@given(st.lists(ACCOUNT, max_size=30, unique_by=lambda one: one[:2]), st.integers(0, 4))
def test_excess_accounts_of_least_use_are_aggregated(rows: list[tuple[int, int, int]], most: int) -> None:
    rows.sort()
    columns: dict[str, Any] = {
        "chain": np.array([row[0] for row in rows], np.uint32),
        "relayer": np.array([row[1] for row in rows], np.uint32),
        **{name: np.arange(len(rows), dtype=np.uint64) + 1 for name in accounts.COUNTS},
        "accepted": np.array([row[2] for row in rows], np.uint64),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "MOST_ACCOUNTS", most)
        found = accounts.limit_accounts(Frame(columns))
    expected: dict[tuple[int, int], list[int]] = {}
    for row, (chain, relayer, accepted) in enumerate(rows):
        outside = [(-one[2], one[1]) for one in rows if one[0] == chain and OUTSIDER <= one[1] != accounts.OTHERS]
        kept = (-accepted, relayer) in sorted(outside)[:most] or relayer < OUTSIDER
        sums = expected.setdefault((chain, relayer if kept else accounts.OTHERS), [0, 0])
        sums[0] += row + 1
        sums[1] += accepted
    names = ("chain", "relayer", "fees", "accepted")
    assert list(zip(*(found[name].tolist() for name in names), strict=True)) == [
        (*key, *sums) for key, sums in sorted(expected.items())
    ]
