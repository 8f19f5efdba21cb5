"""Undeliverable messages between domain lakes: a terminating relay process ends and reports its stalls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.xdm.envelope import ExecutionReceipt

from causeway.protocols.xdm.transactions import Receipts, SignedReceipt, encode_transaction
from causeway.service.relay.loop import NOTHING_MOVES, PassPacing
from causeway.service.xdm.answers import ChannelAnswer, ChannelsAnswer
from causeway.service.xdm.relay_runner import DomainProgress, DomainRelay, LakeDirections
from causeway.service.xdm.relay_state import ChainPair, LaneRelayMemory, ReadBlocks, ReadChannels, RelayLimits, Step
from causeway.service.xdm.relayer import RelayPlacement
from tests.support.common.domain_lakes import ENDS, Altered, DomainLakes, both, sending
from tests.support.common.hostile_domain import DRAWN

QUICK = "resubmit_after = 1"
"""So that the longest wait is K + D + 2 + 16 = 23 blocks."""

LONGEST = 23
LIMITS = RelayLimits(nonces=257, channels=15, resubmit_after=1, confirmed_after=5)
TRIES = 4


class Local:
    """Client of one of two lakes in this process (``service.xdm.client.DomainLakeClient``)."""

    def __init__(self, lakes: DomainLakes, lake: str, altered: Altered) -> None:
        self.lakes, self.lake, self._altered = lakes, lake, altered

    async def _asked(self, step: Step) -> Any:
        return self._altered(step, self.lakes.answer(step))

    followed = blocks = anchor = receipted = receipts = channels = messages = _asked

    async def submit(self, chain: str, transaction: bytes, wait: int) -> tuple[str, int | None]:
        self.lakes.submit(self.lake, chain, transaction)
        return "00" * 32, 1


def relay_until_idle(lakes: DomainLakes, altered: Altered = lambda step, answer: answer) -> dict[str, DomainProgress]:
    """Relay until nothing is left; return the results by direction."""
    passes = 0

    def report(progress: DomainProgress) -> None:
        nonlocal passes
        passes += 1
        assert passes < 100 * len(relaying.progress), "it does not end"
        if passes % len(relaying.progress) == 0:
            lakes.produce()

    clients: Any = {ENDS[lake]: Local(lakes, lake, altered) for lake in ENDS}
    relaying = DomainRelay(clients, lakes.ends, PassPacing(poll=0.0, longest_pause=0.0, tries=TRIES), report=report)
    asyncio.run(relaying.until_idle())
    return {str(progress.direction): progress for progress in relaying.progress}


@pytest.mark.parametrize("grows", [pytest.param(False, marks=pytest.mark.slow), True])
def test_lake_claiming_a_missing_message_is_given_up(tmp_path: Path, grows: bool) -> None:
    """All other messages of the direction are delivered first; growing claims are not awaited."""
    looked = 0

    def one_more(step: Step, answer: Any) -> Any:
        nonlocal looked
        if not isinstance(step, ReadChannels) or step.chain != "right" or step.counterparty != "left":
            return answer
        looked += 1
        (row,) = answer.channels
        said = row.model_copy(update={"next_outbox": row.next_outbox + (looked if grows else 1)})
        return answer.model_copy(update={"channels": [said]})

    with both(tmp_path, {"far": sending("bob", "echo-left", 2)}, options=QUICK) as lakes:
        found = relay_until_idle(lakes, one_more)
        assert lakes.program("bob")["answered"] == 2
        hopeless = {name for name, progress in found.items() if progress.hopeless}
        assert hopeless == {"right>left"}
        why = found["right>left"].why
        waited = f"left has taken nothing in {LONGEST} blocks of what right says that there is"
        assert why == f"{waited}: channel 0, requests from nonce 2 on"
        assert found["right>left"].fruitless == 0, "the pauses become no longer"


@pytest.mark.slow
def test_domain_without_further_confirmed_receipts_is_given_up(tmp_path: Path) -> None:
    """The operator exported value it never had; its answers are proved nowhere."""
    with both(tmp_path, {"near": sending("alice", "echo-right", 2)}, options=QUICK) as lakes:
        lakes.produce(2)
        (first, *_) = lakes.views["far"].receipts("right", None)["receipts"]
        honest = ExecutionReceipt.decode(bytes.fromhex(first["receipt"]))
        (out,) = [{"chain_id": "Consensus", "amount": 10**12}]
        fields = {**honest.fields, "transfers": {**honest.fields["transfers"], "transfers_out": [out]}}
        data = replace(honest, fields=fields).encode()
        signed = SignedReceipt(lakes.ends.place.domain("right"), data, DRAWN.receipt("right", data))
        lakes.submit("near", "main", encode_transaction(Receipts((signed,))))
        found = relay_until_idle(lakes)
        assert lakes.program("alice")["answered"] == 0
        hopeless = {name: progress.why for name, progress in found.items() if progress.hopeless}
        assert set(hopeless) == {"receipts of right", "right>left"}
        number = honest.domain_block_number
        assert f"the books of main refused the receipt of block {number}" in hopeless["receipts of right"]
        assert hopeless["right>left"].endswith("channel 0, responses from nonce 0 on")


def test_lake_repeating_itself_is_given_up_with_a_reason(tmp_path: Path) -> None:
    """Only its first blocks ever arrive, and the other lake knows them."""
    first: list[Any] = []

    def same(step: Step, answer: Any) -> Any:
        if not isinstance(step, ReadBlocks):
            return answer
        if answer.headers and not first:
            first.append(answer)
        return first[0] if first else answer

    with both(tmp_path, {"near": sending("alice", "echo-right", 1)}, options=QUICK) as lakes:
        lakes.produce(2)
        found = relay_until_idle(lakes, same)
        blocks = found["blocks of main"]
        assert blocks.given_up and blocks.why == NOTHING_MOVES


def stall_lengths(*looks: tuple[dict[Any, Any], int | None, int]) -> list[int]:
    """Return the stall lengths of a memory over successive observations of a target.

    Each observation has the expected and existing index per lane, the latest known consensus block, and the height.
    """
    memory = LaneRelayMemory()
    return [
        memory.waited(
            {lane: min(pair) for lane, pair in lanes.items()},
            best,
            height,
            due=any(expected < end for expected, end in lanes.values()),
        )
        for lanes, best, height in looks
    ]


def test_only_target_progress_resets_the_stall_timeout() -> None:
    lane, other = (0, False), (1, False)
    # Count blocks of the consensus chain; while it stalls, blocks of the target.
    assert stall_lengths(({lane: (3, 4)}, 10, 1), ({lane: (3, 9)}, 30, 2), ({lane: (3, 9)}, 30, 60)) == [0, 20, 58]
    assert stall_lengths(({lane: (3, 4)}, 10, 1), ({lane: (4, 5)}, 30, 2), ({lane: (4, 5)}, 33, 3)) == [0, 0, 3]
    # While one lane progresses, all are awaited; a new lane is no progress.
    both_lanes = {lane: (3, 4), other: (0, 2)}
    assert stall_lengths((both_lanes, 10, 1), (both_lanes | {other: (1, 2)}, 30, 2), (both_lanes, 31, 3)) == [0, 0, 1]
    assert stall_lengths(({lane: (3, 4)}, 10, 1), (both_lanes, 30, 2)) == [0, 20]
    # Before the consensus chain is known, its numbers have no meaning.
    assert stall_lengths(({lane: (0, 1)}, None, 1), ({lane: (0, 1)}, 900, 2), ({lane: (0, 1)}, 905, 3)) == [0, 0, 5]
    # All was accepted in between: later messages are awaited anew.
    assert stall_lengths(({lane: (3, 4)}, 10, 1), ({lane: (4, 4)}, 20, 2), ({lane: (4, 5)}, 30, 3)) == [0, 0, 0]


def test_reverted_progress_does_not_reset_the_stall_timeout() -> None:
    lane = (0, False)
    # The target reverts its progress, or its height.
    looks = [({lane: (expected, 2)}, 10 * at, 1) for at, expected in enumerate((0, 1, 2, 0, 1, 2, 0))]
    assert stall_lengths(*looks) == [0, 0, 0, 0, 10, 20, 30]
    assert stall_lengths(*[({lane: (3, 4)}, best, height) for best, height in ((9, 9), (8, 8), (9, 9), (12, 8))]) == [
        0
    ] * 3 + [3]
    # The source reverts its claims.
    assert stall_lengths(({lane: (3, 4)}, 10, 1), ({}, 20, 2), ({lane: (3, 4)}, 30, 3)) == [0, 10, 20]


class ScriptedClients:
    """Clients of two lakes that only list their channels, with requests from left to right."""

    def __init__(self, sent: Sequence[int], taken: Sequence[int], heights: Sequence[int] = ()) -> None:
        self._sent, self._taken, self._heights = cycle(sent), cycle(taken), cycle(heights)
        self._height = 0
        self.passes = 0

    async def channels(self, step: ReadChannels) -> ChannelsAnswer:
        """Return the channels listed by the lakes of left and right."""
        outbox = inbox = 0
        if step.chain == "left":
            outbox = next(self._sent)
        else:
            self.passes += 1
            inbox, self._height = next(self._taken), next(self._heights, self._height + 1)
            assert self.passes < 300, "it does not end"
        row = ChannelAnswer(channel=0, state=1, next_inbox=inbox, next_outbox=outbox, next_response=inbox, count=0)
        names = {"chain": step.chain, "counterparty": step.counterparty}
        return ChannelsAnswer(**names, height=self._height, best=self._height, under=None, channels=[row])


@pytest.mark.parametrize(
    "said",
    [
        ScriptedClients(sent=[2], taken=[0, 1, 2]),
        ScriptedClients(sent=[2], taken=[0, 1]),
        ScriptedClients(sent=[2, 1, 3], taken=[1]),
        ScriptedClients(sent=[2], taken=[0], heights=[7, 8, 9]),
    ],
    ids=["taken, and then not", "taken in part, and then not", "sent, and then not", "blocks made, and then not"],
)
def test_direction_with_reverting_claims_is_given_up(said: ScriptedClients) -> None:
    clients: Any = {"a": said, "b": said}
    place = RelayPlacement("main", "a", ("main", "left", "right"), LIMITS)
    ends = LakeDirections((ChainPair("a", "left", "right"),), place, ("right",))
    relaying = DomainRelay(clients, ends, PassPacing(poll=0.0, longest_pause=0.0, tries=TRIES))
    # The only direction ends where nothing is left; other ones would ask again.
    while not relaying.progress[0].given_up:
        asyncio.run(relaying.until_idle())
    why = relaying.progress[0].why
    assert why == NOTHING_MOVES or why.startswith(f"right has taken nothing in {LONGEST} blocks")
