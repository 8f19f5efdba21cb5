"""Operators prove everything that is provable (3.10, X-5), judged by the oracle alone."""

from __future__ import annotations

from typing import Any

from causeway.protocols.xdm.relay.proofs import abandoned_lanes
from tests.spec.xdm.proofs import Kind
from tests.spec.xdm.state import ChannelState
from tests.spec.xdm.values import CONSENSUS, Chain, ChannelClose, ChannelOpen, CrossDomainMessage
from tests.support.xdm.properties.xdm_kernel_rows import chain_of, row_dicts
from tests.support.xdm.properties.xdm_model import Model
from tests.support.xdm.properties.xdm_same import same

Item = tuple[Kind, Chain, Chain, int, int]
"""What is proved: request or response, source, destination, channel, nonce."""


def lanes_given_up(net: Any) -> set[tuple[Chain, Chain, int]]:
    """Source, destination and channel of the requests that operators have given up so far."""
    rows = row_dicts(abandoned_lanes(net.state["relaying"]))
    return {(chain_of(row["source"]), chain_of(row["destination"]), row["substream"] >> 1) for row in rows}


class Proving:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.proved: dict[Item, int] = {}
        """When operators have proved what last, since the last fork."""
        self.moved: dict[tuple[Any, ...], tuple[int, int]] = {}
        """What the destination of each lane expects next, and since when operators have seen it."""
        self.due: set[Item] = set()
        self.expected: dict[tuple[Any, ...], int] = {}

    def check_form(self, x: CrossDomainMessage, own: CrossDomainMessage, kind: Kind, described: int) -> None:
        """What operators prove is of the form that the oracle gives it, and has the tag of the queue (2.5)."""
        state = self.model.snapshot(CONSENSUS, described).state
        if x.src != CONSENSUS:
            state = self.model.snapshot(x.src, state.confirmed[x.src].domain_block_number).state
        tags = state.outbox_tags if kind == "request" else state.response_tags
        where = f"{kind} {x.nonce} of channel {x.channel_id} from {x.src} to {x.dst}"
        same("tag", tags[x.dst, x.channel_id, x.nonce], x.tag, where)
        same("form", own.proof.domain_proof is None, x.proof.domain_proof is None, where)
        same("leaf", own.proof.consensus.proof.leaf_count, x.proof.consensus.proof.leaf_count, where)

    def before(self, tick: int) -> None:
        """Note what is provable in the blocks of a tick: what the best block of the height before shows (X-5)."""
        self.due = set()
        model, scene = self.model, self.model.scene
        halted = scene.halted(tick)
        found = model.confirmed()
        if scene.forks.get(tick) and CONSENSUS not in halted:
            return
        if found is None:
            return
        described, final = found
        for src in scene.chains:
            if src in halted:
                continue
            block = described
            if src != CONSENSUS:
                block = model.snapshot(src, described.state.confirmed[src].domain_block_number)
            for kind, queue in (("request", block.state.outbox), ("response", block.state.inbox_responses)):
                for dst, channel, nonce in queue:
                    made_at = model.view.best if dst == CONSENSUS else final
                    fresh = tick + 1 - made_at < scene.options.mmr_roots
                    expected = self._expected(kind, src, dst, channel)
                    self._look((kind, src, dst, channel), expected, tick + 1)
                    if nonce >= expected and fresh and self._still_there(kind, src, dst, channel, nonce):
                        self.due.add((kind, src, dst, channel, nonce))  # type: ignore[arg-type]

    def _look(self, lane: tuple[Any, ...], expected: int, now: int) -> None:
        self.expected[lane] = expected
        if self.moved.get(lane, (-1, 0))[0] != expected:
            self.moved[lane] = expected, now

    def _still_there(self, kind: str, src: Chain, dst: Chain, channel: int, nonce: int) -> bool:
        state = self.model.chains[src].state
        return (dst, channel, nonce) in (state.outbox if kind == "request" else state.inbox_responses)

    def _expected(self, kind: str, src: Chain, dst: Chain, channel: int) -> int:
        ch = self.model.chains[dst].state.channels.get((src, channel))
        if ch is None:
            return 0
        if kind == "request":
            return ch.next_inbox_nonce
        return 0 if ch.latest_response is None else ch.latest_response + 1

    def check(self, net: Any, tick: int) -> None:
        """Judge what was proved in a tick. What is provable and was not proved must be; what is expected and was proved
        so long ago that it must be lost, too; nothing that was proved lately, and nothing else (X-5, L1)."""
        model = self.model
        if not model.made:
            if model.running:  # a fork: what was proved on it does not count
                self.proved, self.moved = {}, {}
            return
        now, again = tick + 1, model.scene.options.resubmit_after
        ahead = model.scene.options.max_future_nonces + 1
        never = lanes_given_up(net)
        proved: set[Item] = set()
        for row in row_dicts(net.state["envelopes"], "source", "destination", "substream", "index"):
            src, dst = row["source"] - 1, row["destination"] - 1
            if src in model.made:
                kind: Kind = "response" if row["substream"] & 1 else "request"
                proved.add((kind, src, dst, row["substream"] >> 1, row["index"]))
        for item in sorted(self.due, key=str):
            nonce, lane = item[4], item[:4]
            expected, since = self.expected[lane], self.moved[lane][1]
            lost = self.proved.get((*lane, expected))
            if lost is not None and now - max(since, lost) >= again and not self._given_up(item, never):
                # What is proved again begins with what is expected; the others have their turn later.
                assert nonce != expected or item in proved, f"tick {tick}: nobody proves {item} again, proved at {lost}"
            elif item not in self.proved:
                first = max([n + 1 for *at, n in self.proved if (*at,) == lane] + [expected])
                wanted = first <= nonce < min(first + ahead, expected + 2 * ahead)
                assert item in proved or not wanted, f"tick {tick}: nobody proves {item}, which nobody has proved"
        for item in sorted(proved, key=str):
            assert item in self.due, f"tick {tick}: {item} is proved, and is not provable or not expected"
            last = self.proved.get(item)
            late = last is None or now - last >= again
            assert late, f"tick {tick}: {item} is proved again, proved at {last}"
            self.proved[item] = now

    def _given_up(self, item: Item, never: set[tuple[Chain, Chain, int]]) -> bool:
        """Whether operators have given up a lane; only a request that can never be taken is (hazards 9 and 14)."""
        kind, src, dst, channel, _ = item
        if kind == "response" or (src, dst, channel) not in never:
            return False
        asked = self.model.chains[src].state.outbox[dst, channel, self.expected[item[:4]]].payload
        there = self.model.chains[dst].state.channels[src, channel]
        assert isinstance(asked, ChannelOpen) or (
            isinstance(asked, ChannelClose) and there.state == ChannelState.CLOSED
        ), f"{item} is given up"
        return True
