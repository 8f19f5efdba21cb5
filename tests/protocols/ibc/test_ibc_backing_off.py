"""Relayer backoff after rejections: ever longer waits, and no permanent cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from causeway.core.vocabulary import Event
from causeway.protocols.ibc.keys import QueuePurpose
from causeway.protocols.ibc.relayer_view import SubmissionKind
from tests.support.ibc.ibc_calls import SILENT, A, B, C, Net

PAUSES = [2, 4, 8, 16, 32]


def attempt_heights(net: Any, blocks: int, reason: str, call: SubmissionKind, relayer: int = 0) -> list[int]:
    """Play blocks; return the heights of a relayer's calls rejected for a reason."""
    found = []
    for _ in range(blocks):
        net.play(net.height + 1)
        rows = net.events()
        rows = rows.filter((rows["events"] & np.uint16(Event.REJECTED)) > 0)
        rows = rows.filter((rows["sender"] == relayer) & (rows["receiver"] == call))
        if reason in rows["reason"].to_pylist():
            found.append(net.height)
    return found


def pauses(heights: list[int]) -> list[int]:
    return np.diff(heights).tolist()


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_raising_reply_handler_backs_off_exponentially(order: str) -> None:
    """The second relayer backs off too: each has its own memory and pays for its own attempts."""
    net = Net({"order": order, "relayers": ("r0", "r1")}, blocks=80).ask(note="boom").next(2)
    paid = net.state.relayers["fees"].sum()
    assert pauses(attempt_heights(net, 66, "HandlerFault", SubmissionKind.RECEIPT)) == PAUSES
    assert net.state.relayers["fees"].sum() - paid == 2 * 6 * (100 + 20), "six tries, each with a header"
    assert len(net.state.backoffs) == 2 and net.queue("A", "B", QueuePurpose.SEND) == (0, 1)


def test_backoff_is_at_most_64_blocks() -> None:
    net = Net(blocks=80).ask(note="boom").next(3)
    (state,) = net.states
    often = state.backoffs.with_columns(refusals=np.array([40], dtype=np.uint64))
    net.states = [replace(state, backoffs=often)]
    net.next(2)
    assert (net.state.backoffs["refusals"].tolist(), net.state.backoffs["until"].tolist()) == ([41], [5 + 64])


def test_ordered_queue_backs_off_as_a_whole_and_progress_resets_it() -> None:
    net = Net(blocks=80).ask(note="boom").ask(note="boom").ask().next(2)
    assert pauses(attempt_heights(net, 20, "HandlerFault", SubmissionKind.RECEIPT)) == PAUSES[:3]
    assert net.state.backoffs["first"].tolist() == [0] and net.state.backoffs["stop"].tolist() == [1]
    # The program is repaired, and accepts the first reply when it is repeated.
    net.say("A", A, ("calm",)).next(16)
    assert net.queue("A", "B", QueuePurpose.SEND) == (3, 3) and len(net.state.backoffs) == 0
    net.ask().next(3)
    assert net.queue("A", "B", QueuePurpose.SEND) == (4, 4), "nobody waits for what is new"


def test_packets_behind_a_stalled_queue_back_off_too() -> None:
    """Later packets have their turn once the first one is accepted."""
    net = Net({"relayers": ("r0", "r1"), "relay": {"coordination": "partition"}}, blocks=80)
    net.ask(note="boom").ask().ask().ask().next(2)
    assert pauses(attempt_heights(net, 20, "OutOfOrder", SubmissionKind.RECEIPT, relayer=1)) == PAUSES[:3]
    net.say("A", A, ("calm",))
    while net.queue("A", "B", QueuePurpose.SEND)[0] == 0:
        net.next()
    net.next(3)
    assert net.queue("A", "B", QueuePurpose.SEND) == (4, 4) and len(net.state.backoffs) == 0


def test_unordered_queue_continues_past_a_failing_packet() -> None:
    net = Net({"order": "unordered"}, blocks=80).ask().ask(note="boom").ask().next(3)
    assert net.state.backoffs["first"].tolist() == [1] and len(net.seen(A)) == 2
    net.ask().next(3)
    assert len(net.seen(A)) == 3 and len(net.state.backoffs) == 1
    # Another relayer delivers it after the repair: rejected relayers have nothing left to wait for.
    net.say("A", A, ("calm",)).next()
    assert net.bring("A", net.update("B"), net.receipt(1)) == []
    assert len(net.state.backoffs) == 0 and len(net.seen(A)) == 4


def test_unordered_cleanups_wait_regardless_of_other_deliveries() -> None:
    lies = (("tamper", "A", "B", 3, 60, None),)
    net = Net({"order": "unordered", "cleanup": "on"}, carriers=lies, blocks=60).ask().next(3)
    found: list[int] = []
    for _ in range(17):
        net.say("C", C, ("call", A, "echo", b"x", 0, None))
        found += attempt_heights(net, 1, "InvalidProof", SubmissionKind.CLEANUP)
    assert pauses(found) == PAUSES[:3] and net.queue("B", "A", QueuePurpose.RECEIPT) == (0, 1)


def test_unordered_backoff_occupies_no_relay_slot() -> None:
    options = {"order": "unordered", "relay": {"max_packets": 1}}
    net = Net(options, blocks=80).ask(note="boom").ask().next(6)
    assert [row[0] for row in net.seen(A)] == [1] and net.state.backoffs["first"].tolist() == [0]


def test_late_headers_are_not_paid_for_indefinitely() -> None:
    """Their messages wait too: without a header no message of that zone is tried."""
    drop = (("drop", "A", "B", 2, 12, None),)
    net = Net({"unbonding_seconds": 3.0}, carriers=drop, blocks=80).ask().next(2)
    net.ask().next(10)
    assert pauses(attempt_heights(net, 40, "ClientExpired", SubmissionKind.UPDATE)) == PAUSES[:4]
    assert net.state.backoffs["call"].tolist() == [SubmissionKind.UPDATE]
    mine = net.state.relayers.filter(net.state.relayers["chain"] == 1)
    assert mine["refused"].tolist()[0] <= 8, "the packets that came with the headers"


def test_recovery_ends_all_backoff() -> None:
    drop = (("drop", "A", "B", 2, 12, None),)
    late = (("B", "A", 40),)
    net = Net({"unbonding_seconds": 3.0}, carriers=drop, recoveries=late, blocks=60).ask().next(2)
    net.ask().next(38)
    assert net.state.backoffs["until"].tolist()[0] == 44
    net.next(3)
    assert len(net.state.backoffs) == 0 and len(net.seen(B)) == 2


def test_misbehaving_relayer_backs_off_and_is_forgotten() -> None:
    """An honest relayer beside it is not delayed, so nothing is remembered."""
    lies = (("tamper", "A", "B", 0, 60, "r1"),)
    net = Net({"relayers": ("r0", "r1"), "order": "unordered"}, carriers=lies, blocks=100)
    for _ in range(10):
        net.ask().next()
    assert len(net.seen(B)) == 9 and len(net.state.backoffs) == 0
    net = Net({"order": "unordered"}, carriers=(("tamper", "A", "B", 0, 60, None),), blocks=80).ask()
    assert pauses(attempt_heights(net, 70, "InvalidProof", SubmissionKind.RECEIVE)) == PAUSES[:4]
    assert len(net.seen(B)) == 1 and len(net.state.backoffs) == 0


def test_abandoned_items_are_forgotten() -> None:
    lies = (("tamper", "A", "B", 0, 1, None), *(("drop", "A", "B", 2, 10**6, None),))
    net = Net(carriers=lies, blocks=90).ask().next(2)
    assert net.state.backoffs["until"].tolist() == [4]
    net.next(65)
    assert len(net.state.backoffs) == 1
    net.next()
    assert len(net.state.backoffs) == 0


def test_relayer_losing_a_race_does_not_back_off() -> None:
    options = {"relayers": ("r0", "r1"), "cleanup": "on", "timeouts": "on", "timeout_blocks": 3}
    net = Net(options, carriers=(("drop", "A", "B", 4, 8, None),), blocks=40)
    reasons: set[str] = set()
    for _ in range(20):
        net.ask().next()
        assert len(net.state.backoffs) == 0
        reasons |= {reason for _, reason in net.refused()}
    assert {"OutOfOrder", "CleanupBackwards", "TimeoutNotReached"} <= reasons


def test_external_senders_may_pay_indefinitely() -> None:
    net = Net(carriers=SILENT, blocks=20).ask().next()
    for _ in range(3):
        assert net.bring("B", net.update("A"), net.packet(0, value=b"no")) == ["InvalidProof"]
    assert len(net.state.backoffs) == 0
