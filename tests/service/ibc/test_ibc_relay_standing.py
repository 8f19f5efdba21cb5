"""Stalled directions of a relay process between zones: progress counts against the target's maximum."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from causeway_proofs.tendermint.trust import TrustedHeader

from causeway.service.ibc.relay_runner import DeliveryProgress, ZoneProgress, ZoneRelay
from causeway.service.ibc.relay_state import LaneView, QueueView
from causeway.service.ibc.relayer import PassState, ZonePass
from causeway.service.relay.loop import Direction, PassPacing

SENT = 9
TRIES = 4

Gaps = tuple[tuple[int, int], ...]


def pass_result(
    state: PassState, tail: int = 0, gaps: Gaps = (), left: int = 0, time: int = 0, header: int = 1, sent: int = SENT
) -> ZonePass:
    """Build a pass result by received packets, gaps and packets popped out of order.

    The target has received packets below ``tail`` but for ``gaps``, and ``left`` of its own packets have left the
    middle of the queue.
    """
    nothing = QueueView(0, 0, 0, ())
    send = QueueView(0, SENT, SENT, ((0, 1, None), (1 + left, SENT - 1 - left, None)))
    trusted = (TrustedHeader(header, 1, b"", b"", b"", b"", 1, 1),)
    source = LaneView("s", "t", 50, 0, QueueView(0, sent, sent, ((0, sent, None),)), nothing, ())
    target = LaneView("t", "s", 7, time, send, QueueView(0, tail, tail, (), gaps), trusted)
    return ZonePass(state, source, target, transactions=int(state is PassState.SUBMITTED))


def stalled_counts(*passes: ZonePass) -> list[int]:
    standing, counts = DeliveryProgress(), [0]
    for one in passes:
        counts.append(standing.stalled(counts[-1], one))
    return counts[1:]


def test_delivery_within_a_queue_counts_as_progress() -> None:
    submitted = PassState.SUBMITTED
    assert stalled_counts(*[pass_result(submitted, 3)] * 3) == [0, 1, 2]
    assert stalled_counts(*[pass_result(submitted, tail) for tail in (1, 2, 3)]) == [0, 0, 0]
    assert stalled_counts(*[pass_result(submitted, 9, ((0, 1), (2, count))) for count in (6, 5, 4)]) == [0, 0, 0]
    assert stalled_counts(*[pass_result(submitted, left=left) for left in (0, 1, 2)]) == [0, 0, 0]
    assert stalled_counts(*[pass_result(submitted, header=header) for header in (1, 2, 3)]) == [0, 0, 0]
    assert stalled_counts(*[pass_result(submitted, header=header) for header in (9, 2, 3)]) == [0, 1, 2], (
        "a client was recovered"
    )


def test_idle_passes_do_not_count_as_stalled() -> None:
    idle, submitted = pass_result(PassState.IDLE, 3), pass_result(PassState.SUBMITTED, 3)
    assert stalled_counts(submitted, submitted, idle, submitted, submitted) == [0, 1, 0, 0, 1]
    assert stalled_counts(submitted, pass_result(PassState.HELD, 3), submitted) == [0, 1, 2]


@pytest.mark.parametrize(
    "looks",
    [
        [pass_result(PassState.SUBMITTED, 0), pass_result(PassState.SUBMITTED, 1)],
        [pass_result(PassState.SUBMITTED, 0), pass_result(PassState.IDLE, SENT)],
        [pass_result(PassState.SUBMITTED, 9, ((0, 1), (2, 6))), pass_result(PassState.IDLE, 9, ((0, 1), (2, 1)))],
        [pass_result(PassState.SUBMITTED, left=0), pass_result(PassState.IDLE, left=3)],
        [pass_result(PassState.DELAYED, 0, time=5), pass_result(PassState.DELAYED, 0, time=4)],
        [pass_result(PassState.DELAYED, 0, time=5), pass_result(PassState.DELAYED, 1, time=6)],
        [pass_result(PassState.SUBMITTED, 0, sent=0), pass_result(PassState.SUBMITTED, 2**40, sent=0)],
    ],
    ids=["taken in part", "all taken", "amid the received", "amid the sent", "time", "time goes on", "never sent"],
)
def test_directions_with_reverting_targets_are_given_up(looks: Sequence[ZonePass]) -> None:
    """Use two directions, so that one always has work."""
    process = ScriptedRelay(lambda made: looks[made % len(looks)])
    asyncio.run(process.until_idle())
    assert all(progress.given_up for progress in process.progress)


class ScriptedRelay(ZoneRelay):
    """Relay process with scripted passes, by the number of earlier ones in the direction."""

    def __init__(self, play: Callable[[int], ZonePass]) -> None:
        directions = [Direction("a", "left", "right"), Direction("a", "left", "third")]
        super().__init__({}, directions, {}, pacing=PassPacing(poll=0.0, longest_pause=0.0, tries=TRIES))
        self._play = play

    async def _pass(self, progress: ZoneProgress) -> ZonePass:
        found = self._play(progress.passes)
        progress.passes += 1
        if progress.passes == 100:
            self.stop()
        progress.state, progress.transactions = found.state.value, progress.transactions + found.transactions
        progress.stalled = self._standings[str(progress.direction)].stalled(progress.stalled, found)
        return found
