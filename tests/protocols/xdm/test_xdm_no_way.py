"""Late answers between chains without a channel: each call ends once, and no value stays behind.

The rules are in docs/explanation/protocols/xdm.md, "No way left".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from causeway.core.vocabulary import Event, Kind
from causeway.protocols.xdm.state import ChannelState
from tests.protocols.xdm.test_xdm_value import balance
from tests.support.xdm.properties.xdm_checks import Sums
from tests.support.xdm.properties.xdm_value import Replay
from tests.support.xdm.xdm_network import Network

CLOSED_BY = {
    # closer, tick: the caller's share of the 70 attached, the callee's share, rejections on each side
    ("A", 2): (0, 70, {"A": "NoOpenChannel", "B": "NoOpenChannel"}),
    ("A", 8): (0, 70, {"A": "NoOpenChannel", "B": "NoOpenChannel"}),
    ("A", 18): (0, 70, {"A": "NoOpenChannel", "B": "InvalidChannelState"}),
    ("B", 2): (70, 0, {"A": "", "B": "InvalidChannelState"}),
    ("B", 13): (0, 70, {"A": "NoOpenChannel", "B": "NoOpenChannel"}),
    ("B", 18): (0, 70, {"A": "NoOpenChannel", "B": "NoOpenChannel"}),
    ("B", 26): (70, 0, {"A": "", "B": ""}),
}
QUICK = (("A", 18), ("B", 2), ("B", 26))
"""What is not among the slow tests: an answer given up on each side for another reason, one that came for none."""


def _play_closing(
    closer: str,
    tick: int,
    *calls: dict[str, object],
    cuts: int = 1,
    faults: tuple[Any, ...] = (),
    last: int | None = None,
    **options: object,
) -> Network:
    """Play one late-answered call and a channel closed meanwhile, until the network rests.

    ``last``: the tick in which a program of B sends a message before the channel is closed.
    """
    closing = {"tick": tick, "chain": closer, "foreign": "A" if closer == "B" else "B", "do": "close"}
    net = Network(
        {"A": {1: "caller", 4: "echo"}, "B": {2: ("faulty", {"late_every": 1, "late_by": 10}), 3: "caller"}},
        options={"endowment": 1_000, "channel_calls": [closing, *calls], **options},
        cuts=cuts,
        faults=faults,
        balance=100,
    )
    sums, replay = Sums(net), Replay(net)
    net.call(1, 2, b"hello", amount=70)
    net.block()
    for _ in range(300):
        sums.check()
        replay.check()
        wakes = [result.wake for result in net.results if result.wake is not None]
        if last is not None and net.tick < last:
            wakes.append(last)
        if not wakes:
            break
        if last is not None and min(wakes) == last:
            net.call(3, 4, b"takes the room", amount=5)
        net.sleep(max(net.tick + 1, min(wakes)))
    assert net.idle(), "nothing is kept of the call: neither answer nor open call, nor value in a message"
    return net


def _final_balances(net: Network) -> tuple[int, int, int, int]:
    """Return the gains of caller and callee, and the numbers of answers and rejects."""
    callers = net.state.programs["caller"]
    mine = callers["program"] == 1
    counts = (int(callers[name][mine].sum()) for name in ("answered", "rejected"))
    answered, rejected = counts
    return balance(net, 1) - (1_100 - 4 - 70), balance(net, 2) - 1_100, answered, rejected


@pytest.mark.parametrize(
    ("closer", "tick"), [pytest.param(*by, marks=[] if by in QUICK else pytest.mark.slow) for by in CLOSED_BY]
)
def test_late_answer_without_a_channel_is_given_up_on_both_sides(closer: str, tick: int) -> None:
    back, kept, told = CLOSED_BY[closer, tick]
    net = _play_closing(closer, tick)
    answered = int(back > 0 and told["B"] == "")
    assert _final_balances(net) == (back, kept, answered, 1 - answered), "exactly one reply"
    refused = net.refusals()
    for chain, reason in told.items():
        assert refused.count((chain, "NoOpenChannel")) == int(reason == "NoOpenChannel")
        assert not reason or (chain, reason) in refused
    reasons = net.events()["reason"].to_pylist()
    given_up = net.events().filter(np.array(reasons) == "NoOpenChannel")
    assert not (given_up["events"] & np.uint16(Event.SENT)).any(), "a call that is given up is not made a second time"
    assert _play_closing(closer, tick, cuts=3).roots() == net.roots()


@pytest.mark.parametrize("cuts", [1, 3])
@pytest.mark.parametrize("tick", [16, pytest.param(20, marks=pytest.mark.slow)])
def test_silently_closed_channel_ends_once_everything_passed_through(tick: int, cuts: int) -> None:
    """Root may close a channel with a full outbox (D-10): the other side keeps its own open forever."""
    net = _play_closing("B", tick, cuts=cuts, last=tick - 3, force_close="on", max_outgoing_messages=1)
    assert net.state["channels"]["state"].tolist() == [ChannelState.OPEN, ChannelState.CLOSED]
    assert _final_balances(net)[2:] == (0, 1), "a reject, once"
    assert net.state.programs["caller"]["answered"].sum() == 1, "what was under way is answered"


def test_close_rejected_for_its_tag_still_ends_the_channel() -> None:
    """``trust_tag``: the carrier alters the tag of the close request, and the other side keeps its own open."""
    altered = ("tamper", "B", "A", 20, 44, {"what": "tag"})
    net = _play_closing("B", 19, faults=(altered,), trust_tag="on")
    assert ("A", "WeightTagNotMatch") in net.refusals()
    assert net.state["channels"]["state"].tolist() == [ChannelState.OPEN, ChannelState.CLOSED]
    assert _final_balances(net) == (0, 70, 0, 1)


PLANNED = {"chain": "A", "foreign": "B", "do": "initiate"}


@pytest.mark.parametrize(
    ("planned", "faults", "back"),
    [
        ({**PLANNED, "tick": 90}, (), 70),
        pytest.param({**PLANNED, "tick": 90, "chain": "B", "foreign": "A"}, (), 70, marks=pytest.mark.slow),
        # The planned one is never made: its chain makes no block in that tick.
        pytest.param({**PLANNED, "tick": 90}, (("halt", "A", None, 85, 95, {}),), 0, marks=pytest.mark.slow),
        ({**PLANNED, "tick": 90, "chain": "B", "foreign": "A"}, (("halt", "B", None, 85, 95, {}),), 0),
        # It is rejected (BadOrigin), which the other chain knows in the block after.
        ({**PLANNED, "tick": 90, "chain": "B", "foreign": "A", "by": "p3"}, (), 0),
    ],
)
def test_answers_wait_for_a_planned_channel(planned: dict[str, object], faults: tuple[Any, ...], back: int) -> None:
    for closer, tick in (("A", 2), ("B", 13)):
        net = _play_closing(closer, tick, planned, faults=faults)
        assert _final_balances(net) == (back, 70 - back, int(back > 0), int(back == 0)), "exactly one reply"
        assert (("A", "NoOpenChannel") in net.refusals()) == (back == 0)


@pytest.mark.parametrize("tick", [18, 30, 46])
def test_fork_reverts_given_up_answers(tick: int) -> None:
    """At any fork, answer and call end once in the surviving chain."""
    net = _play_closing("B", 13, faults=(("reorg", None, None, tick, tick, {"depth": 4}),), archiving_depth=5)
    assert net.logs["reverted"], "chains went back"
    assert _final_balances(net) == (0, 70, 0, 1)


def test_answer_delayed_by_an_allow_list_is_retained() -> None:
    """The other chain may be allowed again: then the answer is sent."""
    removed = {"tick": 13, "chain": "B", "foreign": "A", "do": "remove"}
    net = Network(
        {"A": {1: "caller"}, "B": {2: ("faulty", {"late_every": 1, "late_by": 10})}},
        options={
            "endowment": 1_000,
            "allowlist": "on",
            "allowlist_calls": [removed, {**removed, "tick": 60, "do": "add"}],
        },
        balance=100,
    )
    net.call(1, 2, b"hello", amount=70)
    net.block(60)
    assert net.state["waiting"]["kind"].tolist() == [int(Kind.RESPONSE)]
    assert len(net.state["open_calls"]) == 1
    net.settle()
    assert _final_balances(net) == (70, 0, 1, 0)
