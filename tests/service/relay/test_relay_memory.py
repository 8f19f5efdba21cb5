"""Memory of a relay process: backoff of rejected items, and one comparison per header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.protocols.contract import Tick
from causeway.protocols.ibc.client import conflicting_header
from causeway.protocols.ibc.packets import Packet
from causeway.service.ibc.relay_plan import RelaySettings, RelayWork, expired_packets
from causeway.service.ibc.relay_state import (
    MOST_BLOCKS,
    LaneView,
    PacketRelayMemory,
    QueueView,
    ReadHeader,
    ReadPackets,
    RelayRules,
    Step,
    SubmitWithHeaders,
)
from causeway.service.ibc.relayer import PassState
from causeway.service.ibc.transactions import RelayTransaction
from causeway.service.relay.loop import Direction
from tests.support.common.lakes import Lakes, both


def count_wait(memory: PacketRelayMemory, height: int, index: int = 5, blocks: int = 1_000) -> int:
    """Submit an entry at a height, and count the blocks until it is due again."""
    memory.handed_over("receipt", [index], height, ordered=True)
    for count in range(blocks):
        if memory.due("receipt", {index: None, index + 1: None}, height + 1 + count, ordered=True):
            return count
    raise AssertionError("it waits for ever")


def test_rejected_items_back_off_exponentially_up_to_a_limit() -> None:
    memory, height, found = PacketRelayMemory(), 10, []
    for _ in range(8):
        found.append(count_wait(memory, height))
        height += 1 + found[-1]
    assert found == [2, 4, 8, 16, 32, 64, 64, 64] and max(found) == MOST_BLOCKS
    assert memory.held[0] == "receipt 5 was not taken, once: it waits for block 13"
    assert memory.due("receipt", {6: None}, height, ordered=True) == {6: None}, "progress"
    assert count_wait(memory, height) == 2


def test_chain_without_new_blocks_is_retried_after_as_many_passes() -> None:
    memory = PacketRelayMemory()
    memory.handed_over("receive", [0], 3, ordered=True)
    tries = [bool(memory.due("receive", {0: None}, 4, ordered=True)) for _ in range(4)]
    assert tries == [False, False, True, True]
    assert memory.due("receive", {0: None}, 4, ordered=True), "another transaction may have made the block"


@pytest.mark.parametrize(("ordered", "due"), [(True, [3]), (False, [3, 5])])
def test_later_packets_back_off_together_where_ordered(ordered: bool, due: list[int]) -> None:
    memory = PacketRelayMemory()
    memory.handed_over("receive", [4], 1, ordered=ordered)
    assert list(memory.due("receive", dict.fromkeys([3, 4, 5]), 2, ordered=ordered)) == due
    assert memory.due("receipt", {4: None}, 2, ordered=ordered), "other calls go on"


def lose_transaction(submit: SubmitWithHeaders) -> None:
    """Return a transaction that no block includes."""


def test_pass_skips_and_reports_rejected_items(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        memory = PacketRelayMemory()
        assert lakes.relay("right", submit=lose_transaction, memory=memory).transactions == 1
        assert lakes.relay("right", submit=lose_transaction, memory=memory).transactions == 1, "no block has been since"
        lakes.nodes["right"].produce()
        passed = lakes.relay("right", memory=memory)
        assert (passed.state, passed.transactions) == (PassState.HELD, 0)
        assert passed.held == (passed.why,) and passed.why.startswith("receive 0 was not taken, once")
        lakes.nodes["right"].produce()
        lakes.nodes["right"].produce()
        assert lakes.relay("right", memory=memory).messages == 5
        assert lakes.lane("right")["receipt"]["tail"] == 5
        assert lakes.relay("right", memory=memory).state is PassState.IDLE


# ---- forks


def fork_of(lakes: Lakes, height: int) -> bytes:
    """Return another header of the left zone for a height, signed by its validators."""
    left = lakes.nodes["left"]
    kernel: Any = left.network.deployment.kernel
    signed = bytes.fromhex(lakes.views["left"].header("left", height)["signed_header"])
    tick = Tick(height, left.network.lake.manifest(height).tick)
    return conflicting_header(signed, left.opened.position("left"), kernel.context(kernel.zones.own, tick))


def transaction(header: bytes) -> bytes:
    call = wire.Call(update=wire.UpdateHeader(remote="left", header=header))
    return wire.Transaction(calls=[call]).SerializeToString()


def test_header_the_source_never_made_is_submitted_as_fork_evidence(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        height = lakes.views["left"].height()
        lakes.submit("right", 9, transaction(fork_of(lakes, height)))
        lakes.settle()
        assert lakes.lane("right")["client"]["latest"] == height, "its validators have signed it"
        passed = lakes.relay("right")
        assert (passed.state, passed.headers, passed.messages) == (PassState.ACCUSED, 1, 0)
        assert passed.why == f"left has signed another header {height} than right trusts"
        assert lakes.lane("right")["client"]["state"] == "frozen"
        assert lakes.relay("right").state is PassState.FROZEN


def test_unsigned_source_headers_are_no_evidence(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        lakes.relay("right")
        other = lakes.views["right"].header("right", 1)["signed_header"]

        def altered(step: Step, answer: Any) -> Any:
            return bytes.fromhex(other) if isinstance(step, ReadHeader) else answer

        passed = lakes.relay("right", altered=altered)
        assert (passed.state, passed.transactions) == (PassState.REFUSED, 0)
        assert "right trusts another header" in passed.why


def test_headers_are_compared_once(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        asked: list[int] = []

        def noted(step: Step, answer: Any) -> Any:
            asked.extend([step.height] if isinstance(step, ReadHeader) else [])
            return answer

        memory = PacketRelayMemory()
        lakes.relay("right", memory=memory, altered=noted)
        (brought,) = asked
        lakes.relay("right", memory=memory, altered=noted)
        assert asked == [brought], "what it has brought itself it knows"
        lakes.relay("right", memory=PacketRelayMemory(), altered=noted)
        assert asked == [brought, brought], "another process compares it"


def test_repeated_trusted_header_is_redundant_and_a_different_one_is_not(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        lakes.relay("right")
        height = lakes.lane("right")["client"]["latest"]
        same = bytes.fromhex(lakes.views["left"].header("left", height)["signed_header"])
        for header, redundant in ((same, True), (fork_of(lakes, height), False)):
            read = RelayTransaction.read(lakes.views["right"], "right", 3, transaction(header))
            assert read.nothing_left() is redundant
        both_headers = wire.SubmitMisbehaviour(remote="left", misbehaviour=same)
        encoded = wire.Transaction(calls=[wire.Call(misbehaviour=both_headers)]).SerializeToString()
        assert not RelayTransaction.read(lakes.views["right"], "right", 3, encoded).nothing_left()


ROTATING = "validators = 6\nrotation = { every = 1, replace = 1 }"


def test_client_follows_validator_changes_through_intermediate_headers(tmp_path: Path) -> None:
    with both(tmp_path, options=ROTATING) as lakes:
        for _ in range(11):
            lakes.nodes["left"].produce()
        passed = lakes.relay("right")
        assert passed.headers > 3, "those between are brought, too"
        assert (passed.state, passed.messages) == (PassState.SUBMITTED, 5)
        lakes.until_idle()
        lakes.check(5)
        assert lakes.account("right")["wasted"] == lakes.account("left")["wasted"] == 0, "none that would be unknown"


def test_unordered_packets_time_out_by_receipt_absence(tmp_path: Path) -> None:
    options = 'order = "unordered"\ntimeouts = "on"\ntimeout_blocks = 5\nacknowledgements = "synchronous"'
    with both(tmp_path, calls=3, options=options) as lakes:
        for _ in range(10):
            lakes.nodes["right"].produce()
        late = lakes.relay("right")
        assert (late.messages, lakes.received("right")) == (0, []), "the right would refuse all three"
        assert lakes.relay("left").messages == 6, "three packets of the right, three absences"
        assert lakes.account("left")["accepted"] == 6 and lakes.account("left")["wasted"] == 0
        assert lakes.lane("left")["send"] == {"head": 3, "tail": 3, "entries": []}
        lakes.relay("right")
        assert lakes.lane("right")["send"]["head"] == 3 and lakes.account("right")["wasted"] == 0


LIMITS = [50] * 4 + [20, 50, 50, 20, 30, 50]
"""The last heights of packets 0 to 9: a client was recovered, and knew a lower height, when 4 and 7 were sent."""


def find_expired(
    height: int, memory: PacketRelayMemory, gone: int = 0, chunk: int = 4, **rules: Any
) -> tuple[list[int], list[int]]:
    """Return expired packets of the target at a source height, and those read to find them.

    The first ``gone`` packets have left the queue.
    """
    nothing = QueueView(0, 0, 0, ())
    send = QueueView(gone, len(LIMITS), 0, ((gone, len(LIMITS) - gone, None),))
    source = LaneView("s", "t", height, 0, nothing, nothing, ())
    target = LaneView("t", "s", 5, 0, send, nothing, ())
    settings = RelaySettings(chunk=chunk)
    steps = expired_packets(
        Direction("a", "s", "t"), source, target, RelayRules(**rules), RelayWork(), settings, memory
    )
    read: list[int] = []
    answer: list[bytes] | None = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            return list(end.value), read
        assert isinstance(step, ReadPackets)
        asked = range(step.first, min(step.first + step.count, len(LIMITS)))
        read += asked
        answer = [Packet("t", b"", max_height=LIMITS[index], limited=True).encode() for index in asked]


def test_unordered_packets_time_out_at_any_index_and_are_read_once() -> None:
    assert find_expired(25, PacketRelayMemory(), chunk=10, ordered=False) == ([4, 7], list(range(10)))
    memory = PacketRelayMemory()
    found = [find_expired(height, memory, ordered=False) for height in (25, 25, 25, 31)]
    assert found == [([], [0, 1, 2, 3]), ([4, 7], [4, 5, 6, 7]), ([4, 7], [8, 9]), ([4, 7, 8], [])]
    assert find_expired(51, memory, gone=8, ordered=False) == ([8, 9], [])
    assert find_expired(51, PacketRelayMemory(), gone=4, chunk=10) == ([4, 5, 6, 7, 8, 9], [4, 5, 6, 7, 8, 9])


def test_ordered_packets_wait_behind_an_unexpired_packet() -> None:
    memory = PacketRelayMemory()
    assert find_expired(25, memory) == ([], [0, 1, 2, 3])
    assert find_expired(25, memory, gone=4) == ([4], [4, 5, 6, 7])
    assert find_expired(25, memory, gone=7) == ([7], [8, 9])
    assert find_expired(51, memory, gone=7) == ([7, 8, 9], [])
