"""Deliveries of a relay process between domain lakes: bounds of nonces, channels and blocks."""

from __future__ import annotations

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.service.http.answers import ChainAnswer
from causeway.service.xdm.answers import ChannelAnswer, ChannelsAnswer, DomainOptionsAnswer, DomainStatusAnswer
from causeway.service.xdm.relay_runner import directions_from_status
from causeway.service.xdm.relay_state import LaneRelayMemory, LaneRequest, RelayLimits
from causeway.service.xdm.relayer import due_lanes

LIMITS = RelayLimits(nonces=257, channels=15, resubmit_after=15, confirmed_after=8)


def test_delivery_is_repeated_after_several_blocks_without_progress() -> None:
    memory = LaneRelayMemory()
    due = {(0, False): (3, 10)}
    assert memory.wanted(due, 100, LIMITS) == [LaneRequest(0, False, 3)]
    memory.handed_over((0, False), range(3, 8), 3, 100)
    assert memory.wanted(due, 101, LIMITS) == [LaneRequest(0, False, 8)]
    memory.handed_over((0, False), range(8, 10), 3, 101)
    assert memory.wanted(due, 114, LIMITS) == []
    assert memory.wanted(due, 115, LIMITS) == [LaneRequest(0, False, 3)]
    memory.handed_over((0, False), range(3, 8), 3, 115)
    assert memory.wanted(due, 116, LIMITS) == [LaneRequest(0, False, 8)]
    memory.handed_over((0, False), range(8, 10), 3, 116)
    # The target continues: it has twice as many blocks.
    assert memory.wanted({(0, False): (5, 10)}, 130, LIMITS) == []
    assert memory.wanted({(0, False): (5, 10)}, 144, LIMITS) == []
    assert memory.wanted({(0, False): (5, 10)}, 145, LIMITS) == [LaneRequest(0, False, 5)]
    assert memory.wanted({}, 146, LIMITS) == [] and not memory.lanes


def test_lost_message_is_repeated_in_time_without_recent_deliveries() -> None:
    """One message per block; the first is lost. Later ones neither delay it nor are repeated with it."""
    memory, last, key = LaneRelayMemory(), dict[int, int](), (0, False)
    for height in range(100, 140):
        (lane,) = memory.wanted({key: (0, height - 99)}, height, LIMITS)
        nonces = [nonce for nonce in range(lane.first, height - 99) if not memory.rests(key, nonce, height, LIMITS)]
        assert height - 100 in nonces, "what is new is not kept waiting"
        assert all(height - last.get(nonce, 0) >= LIMITS.resubmit_after for nonce in nonces)
        last |= dict.fromkeys(nonces, height)
        memory.handed_over(key, nonces, 0, height)
        assert last[0] == 100 + (height - 100) // LIMITS.resubmit_after * LIMITS.resubmit_after
    # Reverted messages are not repeated earlier; long accepted ones are forgotten.
    assert memory.wanted({key: (40, 41)}, 140, LIMITS) == [LaneRequest(0, False, 40)]
    assert memory.wanted({key: (39, 40)}, 141, LIMITS) == []
    memory.wanted({key: (40, 41)}, 160, LIMITS)
    assert not memory.lanes[key].at


def test_deliveries_are_limited_to_the_target_capacity() -> None:
    memory = LaneRelayMemory()
    memory.handed_over((0, True), range(2 * LIMITS.nonces - 1), 0, 1)
    assert memory.wanted({(0, True): (0, 10_000)}, 2, LIMITS) == [LaneRequest(0, True, 2 * LIMITS.nonces - 1)]
    memory.handed_over((0, True), [2 * LIMITS.nonces - 1], 0, 1)
    assert memory.wanted({(0, True): (0, 10_000)}, 2, LIMITS) == []


def test_every_channel_has_its_turn() -> None:
    memory = LaneRelayMemory()
    due = {(channel, response): (0, 1) for channel in range(40) for response in (False, True)}
    seen: list[int] = []
    for _ in range(3):
        channels = sorted({lane.channel for lane in memory.wanted(due, 1, LIMITS)})
        assert len(channels) == LIMITS.channels
        seen += channels
    assert set(seen) == set(range(40))


def channels(*rows: tuple[int, int, int, int]) -> ChannelsAnswer:
    """Return an answer with (channel, next_inbox, next_outbox, next_response) each."""
    shown = [
        ChannelAnswer(channel=row[0], state=1, next_inbox=row[1], next_outbox=row[2], next_response=row[3], count=0)
        for row in rows
    ]
    return ChannelsAnswer(chain="left", counterparty="right", height=1, best=None, under=None, channels=shown)


def test_due_lanes_follow_from_the_channels_of_both_sides() -> None:
    ours = channels((0, 7, 12, 4), (1, 0, 3, 0), (2, 5, 5, 5))
    theirs = channels((0, 9, 8, 2), (2, 5, 5, 5))
    assert due_lanes(ours, theirs) == {(0, False): (9, 12), (0, True): (2, 7), (1, False): (0, 3)}
    assert due_lanes(theirs, ours) == {(0, False): (7, 8), (0, True): (4, 9)}


def status(own: str, chains: str = "main left right", agreed: int = 1, depth: int = 2) -> DomainStatusAnswer:
    numbers = {"archiving_depth": depth, "challenge_period": 3, "max_future_nonces": 256}
    options = DomainOptionsAnswer(**numbers, channels_per_block=15, resubmit_after=15)
    named = [ChainAnswer(name=name, external=name not in own.split()) for name in chains.split()]
    lake = {"protocol": "xdm", "lake": own, "height": 0, "tick": 0, "time": 0, "tick_ns": 1}
    return DomainStatusAnswer.model_validate(
        {**lake, "chains": named, "consensus": "main", "agreed": f"{agreed:064x}", "options": options}
    )


URLS = {"a": "http://a", "b": "http://b"}


def test_directions_between_two_lakes() -> None:
    found = directions_from_status({"a": status("right"), "b": status("main left")}, URLS)
    ways = ["blocks of main", "receipts of right", "main>right", "right>main", "left>right", "right>left"]
    assert [str(way) for way in found.directions] == ways
    assert [way.end for way in found.directions] == ["b", "a", "b", "a", "b", "a"]
    assert found.place.home == "b" and found.domains == ("right",)
    some = directions_from_status({"a": status("right"), "b": status("main left")}, URLS, ["right/left"], "a")
    assert [str(way) for way in some.directions] == ["blocks of main", "left>right"]


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (status("main left"), status("main right"), "both lakes run main"),
        (status("left"), status("right"), "neither runs the consensus chain"),
        (status("main left"), status("right", "main right left"), "do not have the same chains"),
        (status("main left"), status("right", agreed=2), "differ in their options"),
        (
            status("main left"),
            status("right", agreed=2, depth=7),
            "options.archiving_depth: 2 in the lake of http://a, 7 in that of http://b",
        ),
    ],
)
def test_mismatched_lakes_are_rejected(a: DomainStatusAnswer, b: DomainStatusAnswer, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        directions_from_status({"a": a, "b": b}, URLS)
