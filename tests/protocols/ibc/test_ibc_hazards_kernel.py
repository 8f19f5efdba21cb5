"""Hazards of the IBC reference that only the kernel can express (the others: ``test_ibc_hazards.py``).

Bytes other than headers and methods longer than an envelope: the oracle has both as values. Relayers that refresh
clients by themselves, and counts of duplicate headers: the oracle has neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.core.vocabulary import Event, Kind
from causeway.protocols.ibc.errors import TEXTS, IbcError
from causeway.protocols.ibc.keys import QueuePurpose
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.relayer_view import SubmissionKind
from tests.support.ibc.ibc_calls import SILENT, B, Net


def test_23_header_building_on_one_past_the_unbonding_period() -> None:
    # For five blocks no relayer delivers a header of A to B; other headers are kept fresh.
    net = Net({"unbonding_seconds": 3.0}, blocks=12, carriers=(("drop", "A", "B", 2, 6, None),)).ask().next(2)
    assert net.view()["B"]["trust"]["A"] == [0, 1]
    net.next(5)
    net.ask().next(2)
    assert ("B", "ClientExpired") in net.refusals() and len(net.seen(B)) == 1


def test_24_bytes_other_than_headers() -> None:
    net = Net(carriers=SILENT).ask().next()
    assert net.bring("B", wire.Call(update=wire.UpdateHeader(remote="A", header=b"\x01"))) == ["InvalidHeader"]
    assert net.view()["B"]["trust"]["A"] == [0]


def test_26_waste_of_racing_relayers() -> None:
    net = Net({"relayers": tuple(f"r{n}" for n in range(20))}).ask().ask().next(3)
    accounts = net.state.relayers
    assert accounts["accepted"].sum() == 4 and accounts["redundant"].sum() == 4 * 19
    assert accounts["fees"].sum() == 20 * (2 * 100 + 4 * 20)
    # All deliver the same header of a height: one is added, and nobody pays less.
    assert accounts["wasted"].sum() == 19 * (2 * 100 + 4 * 20)


def last_submissions(net: Net) -> list[tuple[Any, ...]]:
    """Return (zone, relayer or user, call, first, count, fees, reason, rejected) of the last submissions."""
    rows = net.events()
    rows = rows.filter(rows["kind"] == Kind.CONTROL)
    names = ("sender", "receiver", "index", "queue_index", "callback")
    columns = zip(*(rows[name].tolist() for name in names), rows["reason"].to_pylist(), strict=True)
    zones = [net.names[chain] for chain in rows["chain"].tolist()]
    refused = ((rows["events"] & np.uint16(Event.REJECTED)) > 0).tolist()
    return [(zone, *row, bad) for zone, row, bad in zip(zones, columns, refused, strict=True)]


def test_log_records_relayer_and_cost_of_each_message() -> None:
    net = Net({"relayers": ("r0", "r1")}).ask(note="boom").ask().next(2)
    assert last_submissions(net) == [
        ("B", 0, SubmissionKind.UPDATE, 1, 1, 100, "HeaderAdded", False),
        ("B", 1, SubmissionKind.UPDATE, 1, 1, 100, "NoOp", False),
        ("B", 0, SubmissionKind.RECEIVE, 0, 2, 40, "", False),
        ("B", 1, SubmissionKind.RECEIVE, 0, 2, 40, "OutOfOrder", True),
    ]
    # The handler of the first reply raises for every relayer: the second reply never has its turn.
    assert [row for row in last_submissions(net.next()) if row[2] == SubmissionKind.RECEIPT] == [
        ("A", 0, SubmissionKind.RECEIPT, 0, 2, 40, "HandlerFault", True),
        ("A", 1, SubmissionKind.RECEIPT, 0, 2, 40, "HandlerFault", True),
    ]
    accounts = net.state.relayers
    rows = accounts.filter(accounts["chain"] == 0)
    assert rows["accepted"].tolist() == [0, 0] and rows["refused"].tolist() == [2, 2]
    assert rows["wasted"].tolist() == [40, 140]


def test_log_records_users_of_rejected_messages() -> None:
    net = Net(carriers=SILENT).ask().next()
    net.put_bytes("B", b"\xff", user=9).bring("B", net.packet(0), user=9)
    assert last_submissions(net) == [
        ("B", 9, SubmissionKind.UPDATE, 0, 0, 0, "InvalidPacket", True),
        ("B", 9, SubmissionKind.RECEIVE, 0, 1, 20, "MissingHeader", True),
    ]


def test_32_methods_have_a_length_limit() -> None:
    net = Net().ask(method="m" * 256).ask(method="m" * 255).next()
    assert net.refusals() == [("A", "InvalidPacket")] and net.queue("A", "B", QueuePurpose.SEND) == (0, 1)


def test_errors_with_a_detail() -> None:
    for refusal, text in TEXTS.items():
        assert str(IbcError(refusal, "why", height=7)) == f"{text.format(height=7)}: why"


def test_unordered_queues_reject_time_outs_with_asynchronous_acknowledgements() -> None:
    with pytest.raises(ValueError, match="use acknowledgements = synchronous"):
        IbcOptions(order="unordered", timeouts="on")
    assert IbcOptions(order="unordered", timeouts="on", timeout_blocks=1, acknowledgements="synchronous").absence
