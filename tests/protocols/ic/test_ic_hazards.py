"""The hazards of section 6 of the IC reference by number, on kernel and oracle.

The tests cover outcomes of messages, verdicts on slices, and the kernel's plans and columns. Hazard ``n`` is in the
tests named ``test_hazard_n_...``. Those without the fixture ``engine`` concern the kernel alone, which has heights,
roots and rows where the oracle has values: 3 (rows with a gap), 5 (heights and roots), 7 at induction, 9 (a lane set
by hand), the text of 25, 32 and 33 (reversed plans and rows), 37 of no root, 38 (a plan partitioned by hand), 39
(counters near the end of the word). What the oracle alone has of 1, 3, 5, 7, 9, 12 to 16, 18, 22, 24, 31 to 33, 35,
37, 38 and 39 is in ``test_spec_ic.py``.

Numbers left out belong to encodings (6, 10, 40), to classes of messages that are off (26, 27), to splits
(34), to audits (41), to the driver of batches (31), and to payload building ahead of execution (12, 13: see
``tests/protocols/ic/test_ic_payload.py``). For certified streams, see ``test_ic_certified_hazards.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.ic.messages import StreamRejectCode
from causeway_proofs.ic.stream_header import RejectReason

from causeway.core.frame import Frame, concat
from causeway.core.vocabulary import Event
from causeway.programs.scalar import Context, Program, Reject, Request
from causeway.protocols.contract import Tick, View
from causeway.protocols.ic.ids import canister_texts
from causeway.protocols.ic.messages import NO_ROUTE, REASON_TEXTS, TIMED_OUT, induction_rejects
from causeway.protocols.ic.routing import OVERSIZED
from causeway.protocols.shared.messages import blank_messages
from tests.spec import ic
from tests.spec.ic.messages import reject_of
from tests.support.ic.ic_harness import Call, Forgery, KernelRun, Scenario
from tests.support.ic.ic_network import ACTOR, Network, OracleNetwork, Played, of, rejects_of
from tests.support.ic.ic_programs import ops
from tests.support.ic.ic_views import kernel_view

TWO = {1: (0, ACTOR), 2: (1, ACTOR)}
DEPLOYED = {"vsr": "deployed", "sender_mismatch": "deployed"}
MIGRATIONS = {**DEPLOYED, "migrations": "on"}


def u64(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.uint64)


Engine = Callable[..., Played]


@pytest.fixture(params=["kernel", "oracle"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Create networks, on the kernel and on the oracle in turn; check invariants at the end."""
    made: list[Played] = []

    def network(*args: Any, **scenario: Any) -> Played:
        made.append(Network(*args, **scenario) if request.param == "kernel" else OracleNetwork(*args, **scenario))
        return made[-1]

    yield network
    for net in made:
        net.check()


def after_one_way(options: dict[str, Any] | None = None, calls: int = 3, engine: Engine = Network) -> Any:
    """Create a network with a call from canister 1 of subnet 0 to 2 of subnet 1, not yet inducted."""
    net = engine(TWO, options=options or {})
    for _ in range(calls):
        net.call(1, 2, "hold")
    net.rounds(1)
    return net


def test_hazard_1_replayed_slice_is_rejected_and_nothing_inducted(engine: Engine) -> None:
    net = engine(TWO, carriers=[("replay", 0, 1, 3, 9)])
    net.call(1, 2, "hold")
    net.rounds(2)
    assert len(of(net.happened, 1, "received", "REQUEST")) == 1
    net.call(1, 2, "hold")
    happened = net.rounds(4)
    assert set(of(happened, 1, "slice refused")) == {(1, "slice refused", 0, "UnexpectedMessages")}
    assert of(happened, 1, "received", "REQUEST") == []


def test_hazard_2_one_above_and_one_below_the_expected_index(engine: Engine) -> None:
    net = after_one_way(engine=engine)
    net.rounds(1)
    net.call(1, 2, "hold")
    net.call(1, 2, "hold")
    net.rounds(1)
    assert net.judged(0, 1) == "ACCEPTED"
    for begin in (5, 3):
        assert net.judged(0, 1, begin=1, message_begin=begin) == "UnexpectedMessages"


def stopped_subnets(net: Any) -> list[tuple[Any, ...]]:
    """Return (chain, height, cause) of the stopped subnets."""
    rows = net.state.stopped
    return list(zip(rows["chain"].tolist(), rows["height"].tolist(), rows["cause"].to_pylist(), strict=True))


def test_hazard_3_gap_or_repeated_index_stops_the_receiver() -> None:
    net = after_one_way()
    plan = net.plan()
    messages = net.offered(plan)
    assert len(messages) == 3
    hole = messages.filter(messages["index"] != 2)
    repeated = concat([hole, messages.take(np.array([0]))])
    other = messages.with_columns(index=messages["index"] + np.uint64(1))
    for wrong in (hole, repeated, other):
        result = net.apply(plan, wrong)
        assert stopped_subnets(result) == [(1, 2, "InvariantViolation")]
        expected = result.state.streams.read_counters(
            "expected", Frame({"source": u64(1), "destination": u64(0), "substream": u64(0)})
        )
        assert expected.tolist() == [1], "nothing of the slice is taken"
    assert stopped_subnets(net.apply(plan, messages)) == []


def test_hazard_4_bounds(engine: Engine) -> None:
    net = after_one_way(engine=engine)
    assert net.judged(0, 1, begin=5, end=4) == "InvalidStreamBounds"
    assert net.judged(0, 1, message_end=9) == net.judged(0, 1, message_end=5) == "InvalidSliceBounds"
    # An unseen stream with messages below its begin: also the wrong first index, but this check precedes.
    assert net.judged(0, 1, message_begin=0) == "InvalidSliceBounds"
    net.rounds(1)
    net.call(1, 2, "hold")
    net.rounds(1)
    assert net.judged(0, 1, begin=4, message_begin=3) == "InvalidSliceBounds", "nor below that of a stream we know"


def test_hazard_5_slice_carries_height_and_root_of_its_source() -> None:
    net = after_one_way()
    slices = net.slices()
    assert slices["source_height"].tolist() == [1] * len(slices)
    assert net.errors(slices) == ["ACCEPTED"]
    for height in (0, 2):
        assert net.errors(slices.with_columns(source_height=u64(height))) == ["InvalidStream"]
    assert net.errors(slices.with_columns(root=slices["root"] ^ np.uint8(1))) == ["InvalidStream"]


def test_hazard_7_impossible_signals(engine: Engine) -> None:
    net = after_one_way(engine=engine)
    net.rounds(1)
    assert net.judged(1, 0) == net.judged(1, 0, signals_end=4) == "ACCEPTED"
    assert net.judged(1, 0, signals_end=5) == "UnexpectedSignals", "beyond our stream"
    net.rounds(1)
    assert net.judged(1, 0, signals_end=2) == "UnexpectedSignals", "below what we know"


def test_hazard_7_impossible_signals_stop_the_receiver_at_induction() -> None:
    net = after_one_way({"validate_signals": "off"})
    net.rounds(1)
    rows = net.state.streams.counters
    wrong = np.where((rows["source"] == 1) & (rows["destination"] == 0), np.uint64(7), rows["expected"])
    plan = net.plan(net.shown(lanes=rows.with_columns(expected=wrong)))
    assert stopped_subnets(net.apply(plan)) == [(0, 3, "InvariantViolation")]
    for beyond in (4, 2**64 - 1):
        plan = net.plan(net.shown(rejects=rejects_of(0, 1, beyond)))
        assert stopped_subnets(net.apply(plan)) == [(0, 3, "InvariantViolation")], "a reject beyond the signals"
    assert stopped_subnets(net.apply(net.plan())) == []


@pytest.mark.parametrize(
    ("indices", "outcome"),
    [((2,), "ACCEPTED"), ((1, 3), "ACCEPTED"), ((4,), "UnexpectedSignals"), ((3, 1), "UnexpectedSignals"),
     ((2, 2), "UnexpectedSignals"), ((2**64 - 1,), "UnexpectedSignals")],
)  # fmt: skip
def test_hazard_8_reject_signals_ascend_below_signals_end(
    engine: Engine, indices: tuple[int, ...], outcome: str
) -> None:
    net = after_one_way(DEPLOYED, engine=engine)
    net.rounds(1)
    assert net.judged(1, 0, indices) == outcome


def test_hazard_9_first_reject_signal_too_old() -> None:
    limits = {"limits": "deployed", "limit": {"max_signals": 1}}
    for options, outcome in (({**DEPLOYED, **limits}, "UnexpectedSignals"), (DEPLOYED, "ACCEPTED")):
        net = after_one_way(options)
        net.rounds(6)
        assert int(net.state.streams.counters["expected"].max()) >= 4
        shown, slices = net.shown(rejects=rejects_of(0, 1, 1)), net.slices()
        back = slices.filter(slices["destination"] == 0).with_columns(signals_end=u64(4))
        net.with_lane(0, 1, begin=1)
        found = net.errors(back, shown)
        assert found == [outcome]


def test_decision_16_reject_without_a_rejecting_rule(engine: Engine) -> None:
    net = after_one_way(engine=engine)
    net.rounds(1)
    assert net.judged(1, 0, [2]) == "UnexpectedSignals"


def test_hazard_11_header_only_slices(engine: Engine) -> None:
    net = after_one_way(engine=engine)
    happened = net.rounds(1)
    assert of(happened, 1, "included") == [(1, "included", 0, ((0, 1, 4, 1, 1, 4),))]
    happened = net.rounds(1)
    # Signals are news: the slice has no messages and only advances the signals.
    assert of(happened, 0, "included") == [(0, "included", 1, ((0, 1, 1, 4, None, None),))]
    assert len(of(happened, 0, "collected")) == 3
    happened = net.rounds(1)
    # Without news it is not offered, and rejected if offered. Garbage collection is no news.
    assert of(happened, 1, "included") == []
    assert net.judged(0, 1) == net.judged(1, 0) == "EmptySlice"
    assert net.judged(0, 1, begin=5, end=6) == "UnexpectedMessages", "it begins beyond what is expected"
    assert net.judged(0, 1, begin=1, end=2) == "UnexpectedMessages", "it ends before it"
    allowed = after_one_way({"empty_slice": "allow"}, engine=engine)
    allowed.rounds(3)
    assert allowed.judged(0, 1) == allowed.judged(1, 0) == "ACCEPTED"


def test_hazard_14_own_subnet(engine: Engine) -> None:
    net = engine({1: (0, ACTOR), 2: (0, ACTOR)})
    net.call(1, 2, "echo")
    net.rounds(4)
    assert net.answers(1) == [(0, 0)]
    assert net.view(0)["lanes"] == {(0, 0): (3, {}, 3, {})}, "messages and signals are gone, the indices stay"
    assert {event[6] for kind in ("REQUEST", "RESPONSE") for event in of(net.happened, 0, "received", kind)} == {
        "LOOPBACK"
    }
    assert len(of(net.happened, 0, "received", "REQUEST", ..., ..., ..., "LOOPBACK")) == 1


def test_hazard_14_slice_of_the_own_subnet_is_rejected() -> None:
    other = after_one_way()
    own = other.slices().with_columns(source=np.array([1], dtype=np.uint32))
    assert other.errors(own) == ["LoopbackSlice"]


def test_hazard_15_sender_hosted_elsewhere(engine: Engine) -> None:
    three = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, ACTOR)}
    for options, outcome in (({}, "dropped"), (DEPLOYED, "judged")):
        net = engine(three, options=options, forged=[Forgery(1, 0, 3, 2, b"lie")])
        net.rounds(6)
        (event,) = of(net.happened, 1, outcome, "REQUEST", 3, 2)
        assert event[-1] == ("sender_mismatch" if outcome == "dropped" else "CanisterMigrating")
        assert of(net.happened, 1, "received") == []
        assert of(net.happened, 2, "received", "RESPONSE") == [], "its reject goes to nobody that did not ask"


def test_hazard_16_receiver_without_code_gives_one_synthetic_reject(engine: Engine) -> None:
    net = engine({1: (0, ACTOR), 2: (1, None)}, options=DEPLOYED)
    net.call(1, 2, cycles=7)
    net.rounds(6)
    assert net.answers(1) == [(0, 3)]
    assert len(of(net.happened, ..., "received", "RESPONSE")) == 1
    assert of(net.happened, 0, "received", "RESPONSE", 2, 1, 0, "SYNTHETIC")
    assert net.balances() == {1: 1_000}


@pytest.mark.parametrize(("options", "cause"), [(DEPLOYED, "response_induction_failed"), ({}, "NonMatchingResponse")])
def test_hazard_17_response_for_a_deleted_canister_is_lost(engine: Engine, options: dict[str, Any], cause: str) -> None:
    net = engine(TWO, options=options, moves=[(3, 1, None), (4, 1, 0)], withheld=frozenset({(3, 1, 0)}))
    net.call(1, 2, "take", cycles=40)
    happened = net.rounds(5)
    assert [event[-1] for event in of(happened, 0, "dropped", "RESPONSE", 2, 1)] == [cause]
    assert net.balances() == {2: 1_020}, "and the refund with it"
    assert not of(happened, 1, "committed", "RESPONSE")[1:], "nobody sends it again"
    assert of(happened, 0, "ended") == [(0, "ended", 1)]
    assert net.listed(1, 0) == {}, "its signal is ACCEPT"


def test_hazard_18_no_route(engine: Engine) -> None:
    net = engine({1: (0, ACTOR), 2: (None, ACTOR)})
    net.call(1, 2, cycles=7)
    happened = net.rounds(1)
    assert of(happened, 0, "rejected") == [(0, "rejected", "REQUEST", 1, 2, 0, 1, 3, "NON_EXISTENT_CANISTER")]
    (reply,) = net.view(0)["input_queues"][2, 1][1].values()
    assert reply[-1] == b"No route to canister ryjl3-tyaaa-aaaaa-aaaba-cai"
    net.rounds(1)
    assert (net.answers(1), net.balances()) == ([(0, 3)], {1: 1_000})


@pytest.mark.parametrize("rule", ["requests_only", "seed_literal"])
def test_hazard_18_unroutable_response_is_lost_and_answered_by_literal_rule_only(engine: Engine, rule: str) -> None:
    net = engine(TWO, options={"dead_destination": rule}, moves=[(3, 1, None)])
    net.call(1, 2, "hold", cycles=40)
    net.rounds(2)
    net.tell(2, ("flush", 2))
    happened = net.rounds(2)
    (lost,) = of(happened, 1, "dropped", "RESPONSE", 2, 1)
    assert lost[-1] == "unroutable_response"
    answered = of(happened, 1, "dropped", "RESPONSE", 1, 2)
    assert [event[-1] for event in answered] == ["NonMatchingResponse"] * (rule == "seed_literal"), "nobody asked"
    assert net.answers(2) == []


def test_hazard_19_canister_moves_while_its_request_is_in_flight(engine: Engine) -> None:
    three = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, "echo")}
    net = engine(three, options=MIGRATIONS, moves=[(2, 1, 2)], withheld=frozenset({(2, 0, 1)}))
    net.call(1, 2, "take", b"first", cycles=10)
    net.rounds(1)
    net.hosts[1] = 2
    net.call(1, 2, "take", b"second", cycles=10)
    net.rounds(9)
    assert [event[-1] for event in of(net.happened, 1, "judged", "REQUEST")] == ["CanisterMigrating"]
    assert net.balances()[2] == 1_005
    assert sorted(net.answers(1)) == [(0, 2), (1, 0)], "the first is rejected, so the second cannot come before it"
    assert [event[5] for event in of(net.happened, 1, "received", "REQUEST")] == [1]


def test_hazard_19_response_is_forwarded_and_delivered_once(engine: Engine) -> None:
    three = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, "echo")}
    net = engine(three, options=MIGRATIONS, moves=[(3, 1, 2)])
    net.call(1, 2, "take", cycles=100)
    net.rounds(9)
    assert net.answers(1) == [(0, 0)]
    assert len(of(net.happened, 2, "received", "RESPONSE", 2, 1)) == 1
    assert [event[-1] for event in of(net.happened, 0, "judged", "RESPONSE")] == ["CanisterMigrating"]
    assert of(net.happened, 1, "committed", "RESPONSE", 2, 1, 0, (2, 0, 1), None), "sent on by who sent it"
    assert net.balances() == {1: 950, 2: 1_050, 3: 1_000}


@pytest.mark.parametrize("options", [MIGRATIONS, DEPLOYED, {}])
def test_hazard_19_returned_receiver_takes_no_earlier_request(engine: Engine, options: dict[str, Any]) -> None:
    three = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, "echo")}
    moves = [(2, 2, 2), (5, 2, 1)]
    net = engine(three, options=options, moves=moves, withheld=frozenset({(at, 0, 1) for at in range(2, 6)}))
    net.call(1, 2, "take", b"first", cycles=10)
    net.rounds(1)  # routed to subnet 1, which accepts nothing for a while
    net.call(1, 2, "take", b"second", cycles=10)
    net.rounds(3)
    net.rounds(6)
    assert [row[1] for row in net.seen(2)] == [1], "the first would come after the second"
    if options:
        assert [event[-1] for event in of(net.happened, 1, "judged", "REQUEST", 1, 2, 0)] == ["CanisterMigrating"]
        assert sorted(net.answers(1)) == [(0, 2), (1, 0)]
        assert net.balances()[1] == 995, "what the first carried came back"
    else:
        (lost,) = of(net.happened, 1, "dropped", "REQUEST", 1, 2, 0)
        assert lost[-1] == "receiver_mismatch"


@pytest.mark.parametrize("options", [MIGRATIONS, DEPLOYED, {}])
def test_hazard_19_returned_sender_has_no_earlier_request_accepted(engine: Engine, options: dict[str, Any]) -> None:
    three = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, "echo")}
    moves = [(2, 1, 2), (4, 1, 0)]
    net = engine(three, options=options, moves=moves, withheld=frozenset({(at, 0, 1) for at in range(2, 5)}))
    net.call(1, 2, "take", b"first", cycles=10)
    net.rounds(1)
    net.hosts[1] = 2
    net.call(1, 2, "take", b"second", cycles=10)
    net.rounds(9)
    assert [row[1] for row in net.seen(2)] == [1]
    if options:
        assert [event[-1] for event in of(net.happened, 1, "judged", "REQUEST", 1, 2, 0)] == ["CanisterMigrating"]
        assert (0, 2) in net.answers(1)
    else:
        (lost,) = of(net.happened, 1, "dropped", "REQUEST", 1, 2, 0)
        assert lost[-1] == "sender_mismatch"


def test_hazard_19_self_calling_program_moves_away_and_back(engine: Engine) -> None:
    net = engine({1: (0, ACTOR), 3: (1, "echo")}, options=MIGRATIONS, moves=[(2, 1, 1), (3, 1, 0)], halts=[(0, 2, 2)])
    net.call(1, 1, "echo")
    net.rounds(9)
    assert [event[-1] for event in of(net.happened, 0, "judged", "REQUEST", 1, 1)] == ["CanisterMigrating"], "loopback"
    assert net.answers(1) == [(0, 2)]


def test_hazard_19_messages_sent_after_the_last_move_are_accepted(engine: Engine) -> None:
    three = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, "echo")}
    net = engine(three, options=MIGRATIONS, moves=[(2, 2, 2), (3, 2, 1)], withheld=frozenset({(4, 0, 1), (5, 0, 1)}))
    net.rounds(2)
    net.call(1, 2, "echo")
    net.rounds(1)
    net.call(1, 2, "echo")
    net.rounds(6)
    assert net.answers(1) == [(0, 0), (1, 0)] and of(net.happened, 1, "judged") == []


def test_hazard_20_reject_response_follows_a_moved_caller(engine: Engine) -> None:
    three = {1: (0, ACTOR), 2: (1, None), 3: (2, "echo")}
    net = engine(three, options=MIGRATIONS, moves=[(3, 1, 2)])
    net.call(1, 2, cycles=9)
    net.rounds(9)
    assert net.answers(1) == [(0, 3)]
    assert len(of(net.happened, ..., "received", "RESPONSE")) == 1
    assert of(net.happened, 2, "received", "RESPONSE", 2, 1)


def test_hazard_20_reject_without_a_rule_follows_too(engine: Engine) -> None:
    three = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, "echo")}
    net = engine(three, options={**MIGRATIONS, "reject_every": 1}, moves=[(3, 1, 2)])
    net.call(1, 2, cycles=10)
    net.rounds(2)
    happened = net.rounds(1)
    assert [event[0] for event in of(happened, ..., "committed", "RESPONSE", 2, 1)] == [0], "by who knew the caller"
    happened = net.rounds(1)
    assert [event[0] for event in of(happened, ..., "received", "RESPONSE", 2, 1)] == [2], "0 is on its path before 2"
    assert net.answers(1) == [(0, 1)] and net.balances()[1] == 1_000


def test_hazard_20_reject_response_is_lost_without_migrations(engine: Engine) -> None:
    three = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, "echo")}
    net = engine(three, options={**DEPLOYED, "reject_every": 1}, moves=[(3, 1, 2)])
    net.call(1, 2, cycles=10)
    net.rounds(7)
    (lost,) = of(net.happened, ..., "dropped")
    assert (lost[0], lost[-1]) == (2, "sender_mismatch")
    assert net.answers(1) == [] and net.balances()[1] == 990


def test_hazard_21_reject_signal_for_a_response_forwards_it_for_any_reason(engine: Engine) -> None:
    net = engine(TWO, options=DEPLOYED)
    net.call(1, 2, "echo")
    net.rounds(3)
    # Subnet 0 claims it rejected the response at index 1 of the stream from subnet 1.
    net.lie(0, 1, 1)
    happened = net.rounds(1)
    assert of(happened, 1, "committed", "RESPONSE", 2, 1, 0, (0, 0, 2), None)


def test_hazard_22_reject_signal_in_two_slices_is_handled_once(engine: Engine) -> None:
    net = engine(
        {1: (0, ACTOR), 2: (1, None), 3: (1, ACTOR)}, options=DEPLOYED, withheld=frozenset({(4, 0, 1), (5, 0, 1)})
    )
    net.call(1, 2)
    net.rounds(3)
    # Subnet 1 has not seen the message's collection; it continues to list the signal, and has news.
    net.call(3, 1)
    net.hosts[3] = 1
    net.rounds(1)
    assert list(net.listed(0, 1)) == [1]
    net.rounds(4)
    assert net.answers(1).count((0, 3)) == 1
    assert len(of(net.happened, 0, "included", 1)) >= 2


def test_hazard_23_full_stream_delays_while_others_continue(engine: Engine) -> None:
    three = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, ACTOR)}
    options = {"limits": "deployed", "limit": {"stream_messages": 2}}
    net = engine(three, options=options, halts=[(1, 1, 6)])
    for payload in (b"a", b"b", b"c", b"d"):
        net.call(1, 2, "hold", payload)
    net.call(1, 3, "echo")
    net.call(1, 1, "echo")
    net.rounds(3)
    assert [len(queue[1]) for name, queue in net.view(0)["output_queues"].items() if name == (1, 2)] == [2]
    assert net.answers(1) == [(5, 0), (4, 0)], "other destinations go on, our own too"
    # The stream is full from the start of the round.
    net.call(1, 3, "echo")
    net.rounds(3)
    assert net.answers(1)[2:] == [(6, 0)]
    net.rounds(8)
    assert [row[1] for row in net.seen(2)] == [0, 1, 2, 3], "and the pair keeps its order"
    net.tell(2, ("flush", 1))
    net.rounds(6)
    assert net.answers(1)[3:] == [(callback, 0) for callback in range(4)]


def test_hazard_23_forwarded_messages_take_their_slots_first(engine: Engine) -> None:
    three = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, "echo")}
    options = {**MIGRATIONS, "limits": "deployed", "limit": {"stream_messages": 1}}
    net = engine(three, options=options, moves=[(3, 1, 2)])
    net.call(1, 2, "echo")
    net.rounds(3)
    # Subnet 1 learns that its answer was rejected, and forwards it to subnet 2, where canister 2 has a call.
    net.call(2, 3, "echo")
    happened = net.rounds(1)
    assert of(happened, 1, "committed") == [(1, "committed", "RESPONSE", 2, 1, 0, (2, 0, 1), None)]
    assert len(net.view(1)["output_queues"][2, 3][1]) == 1, "the stream is full with what was sent on"


def test_hazard_24_one_canister_cannot_crowd_out_the_others(engine: Engine) -> None:
    crowd = {1: (0, ACTOR), 4: (0, ACTOR), 5: (0, ACTOR), 2: (1, ACTOR)}
    net = engine(crowd, options={"limits": "deployed", "limit": {"stream_messages": 3}})
    for _ in range(6):
        net.call(1, 2, "hold")
    net.call(4, 2, "hold")
    net.call(5, 2, "hold")
    happened = net.rounds(1)
    assert sorted(event[3] for event in of(happened, 0, "committed")) == [1, 4, 5]


SMALL_MESSAGES = {"limits": "deployed", "limit": {"message_bytes": 20}}


def test_hazard_25_request_too_large_for_another_subnet_is_rejected_locally(engine: Engine) -> None:
    net = engine({1: (0, ACTOR), 2: (1, ACTOR), 3: (0, ACTOR)}, options=SMALL_MESSAGES)
    net.call(1, 2, "hold", bytes(16), cycles=5)  # the method name counts too
    net.call(1, 2, "hold", bytes(17), cycles=5)
    net.call(1, 3, "hold", bytes(21), cycles=5)
    happened = net.rounds(1)
    assert of(happened, 0, "rejected", "REQUEST", 1, 2) == [
        (0, "rejected", "REQUEST", 1, 2, 1, 2, 5, "PayloadTooLarge")
    ]
    assert len(of(happened, 0, "received", "RESPONSE", 2, 1, 1, "SYNTHETIC")) == 1
    assert len(of(happened, 0, "committed", "REQUEST")) == 2, "the one for its own subnet goes on"
    net.rounds(3)
    assert net.answers(1) == [(1, 5)] and net.balances()[1] == 990
    assert {row[1] for row in net.seen(2) + net.seen(3)} == {0, 2}


def test_long_method_name_does_not_block_its_stream(engine: Engine) -> None:
    """No block would ever accept the message or later ones."""
    limited = {"limits": "deployed", "limit": {"message_bytes": 300}}
    net = engine(TWO, options={**limited, "certification": "bls", "payload_bytes": 1200})
    net.call(1, 2, "m" * 1200, b"x", cycles=5)
    net.call(1, 2, "echo", b"x")
    net.rounds(6)
    assert net.answers(1) == [(0, 5), (1, 0)] and net.balances()[1] == 1000


def test_hazard_25_oversized_response_becomes_a_reject(engine: Engine) -> None:
    net = engine(TWO, options=SMALL_MESSAGES)
    net.call(1, 1, "take", bytes(20), cycles=8)
    net.rounds(3)
    assert net.answers(1) == [(0, 0)]
    net.call(1, 1, "take", bytes(21), cycles=8)
    happened = net.rounds(3)
    assert of(happened, 0, "rejected", "RESPONSE") == [(0, "rejected", "RESPONSE", 1, 1, 1, 4, 5, "PayloadTooLarge")], (
        "whatever its destination: the limit is that of answers"
    )
    assert net.answers(1)[1:] == [(1, 5)]
    assert net.balances() == {1: 1000, 2: 1000}, "what it accepted stays accepted, the refund comes back"


class Verbose(Program):
    """Program that rejects with a very long text."""

    def on_request(self, request: Request, context: Context) -> bytes:
        if request.method == "raise":
            raise ValueError("x" + 5000 * "ü")
        raise Reject("x" + 5000 * "ü")


@pytest.mark.parametrize("options", [{}, SMALL_MESSAGES, {"limits": "deployed"}])
@pytest.mark.parametrize(("method", "code", "prefix"), [("no", 4, ""), ("raise", 5, "ValueError: ")])
def test_hazard_25_oversized_text_is_truncated(options: dict[str, Any], method: str, code: int, prefix: str) -> None:
    net = Network({1: (0, ACTOR), 2: (1, f"{__name__}:Verbose")}, options=options)
    net.call(1, 2, method)
    happened = net.rounds(2)
    assert of(happened, 1, "rejected", "RESPONSE") == []
    texts = [text for frame in net.run.outbound for text in frame.filter(frame["source"] == 1)["payload"].to_pylist()]
    net.rounds(1)
    assert net.answers(1) == [(0, code)]
    assert texts == [(prefix + "x" + 5000 * "ü").encode()[:8191]], "8 KiB, and no half a character"


def test_texts_of_routing_and_queues_are_short() -> None:
    size = len(canister_texts(u64(2**64 - 1))[0])
    most = 2**64 - 1
    made = [*REASON_TEXTS.values(), NO_ROUTE, TIMED_OUT, OVERSIZED.format("Response", most, most)]
    assert max(len(text.replace("{}", "c" * max(size, len(str(most))))) for text in made) < 255


def test_hazard_28_full_input_queue_rejects_requests_and_takes_responses(engine: Engine) -> None:
    options = {**DEPLOYED, "limits": "deployed", "limit": {"queue_capacity": 2}, "messages_per_canister": 1}
    net = engine(TWO, options=options)
    net.tell(1, *[("call", 2, "echo", b"x", 0, None)] * 4)
    net.rounds(2)
    judged = of(net.happened, 1, "judged", "REQUEST")
    assert [(event[5], event[-1]) for event in judged] == [(2, "QueueFull"), (3, "QueueFull")]
    net.rounds(9)
    assert sorted(net.answers(1)) == [(0, 0), (1, 0), (2, 2), (3, 2)], "answers enter, however many wait"


@pytest.mark.parametrize("reason", ["CanisterStopping", "CanisterStopped", "OutOfMemory"])
def test_hazards_29_and_30_rejects_by_another_subnet_are_answered(engine: Engine, reason: str) -> None:
    """Here no canister stops and no memory is counted; on remote subnets they are."""
    net = engine(TWO, options=DEPLOYED)
    net.call(1, 2, "hold", cycles=10)
    net.rounds(2)
    net.lie(1, 0, 1, reason)
    happened = net.rounds(1)
    assert of(happened, 0, "acknowledged", "REQUEST", 1, 2, 0)[0][-2:] == (StreamRejectCode.CanisterError, reason)
    assert net.answers(1) == [(0, StreamRejectCode.CanisterError)] and net.balances()[1] == 1_000


@pytest.mark.parametrize("reason", list(REASON_TEXTS))
@pytest.mark.parametrize("size", [7, 2**21 + 1])
def test_answers_to_rejected_messages_equal_the_oracle(reason: RejectReason, size: int) -> None:
    request = blank_messages(1, receiver=u64(300), payload=pa.array([bytes(size)], pa.binary()))
    made = induction_rejects(request, reason)
    code, text = reject_of(ic.Reason(int(reason)), ic.Request(300, 1, 0, payload=bytes(size)))
    assert (made["code"][0], made["payload"][0].as_py().decode()) == (code, text)


def test_hazards_32_and_33_round_is_a_pure_function_of_row_sets() -> None:
    net = Network({1: (0, ACTOR), 2: (1, ACTOR), 3: (2, ACTOR)}, options={**DEPLOYED, "reject_every": 2})
    for receiver in (2, 3, 2, 3):
        net.call(1, receiver, "echo", cycles=3)
        net.call(2, receiver, "echo")
    net.rounds(3)
    plan = net.plan()
    messages = net.offered(plan)
    first = net.apply(plan, messages)
    again = net.apply(net.plan(), messages)
    assert (first.headers["root"] == again.headers["root"]).all(), "applied again after a crash"

    def turned(frame: Frame) -> Frame:
        return frame.take(np.arange(len(frame))[::-1])

    content, reads = plan.content, plan.reads
    other = replace(
        plan,
        content=replace(
            content,
            slices=turned(content.slices),
            loopback=turned(content.loopback),
            signals=turned(content.signals),
            segments=turned(content.segments),
        ),
        reads=replace(reads, offered=turned(reads.offered), own=turned(reads.own)),
    )
    shuffled = net.apply(other, turned(messages))
    assert (first.headers["root"] == shuffled.headers["root"]).all()
    assert not (first.headers["root"][0] == first.headers["root"][1]).all()


def test_hazard_35_subnet_halts_permanently(engine: Engine) -> None:
    three = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, "echo")}
    options = {
        "timeouts": "on",
        "request_lifetime_seconds": 4,
        "limits": "deployed",
        "limit": {"stream_messages": 1},
    }
    net = engine(three, options=options, halts=[(1, 1, 99)])
    net.call(1, 2, "echo", cycles=5)
    net.call(1, 2, "echo", cycles=6)
    net.call(1, 3, "echo")
    net.rounds(12)
    assert sorted(net.answers(1)) == [(1, 2), (2, 0)], (
        "what waited in the output queue times out, what was sent stays open"
    )
    assert len(of(net.happened, 0, "timed out")) == 1
    assert net.balances()[1] == 995
    assert of(net.happened, 1, "executed") == []


@pytest.mark.parametrize("base", [0, 1])
def test_hazard_36_unseen_subnet_starts_at_the_base(engine: Engine, base: int) -> None:
    net = after_one_way({"index_base": base}, engine=engine)
    assert net.view(0)["lanes"][1, 0][0] == base + 3
    assert net.judged(0, 1) == net.judged(0, 1, message_begin=base) == "ACCEPTED"
    assert net.judged(0, 1, begin=base + 1, message_begin=base + 1) == "UnexpectedMessages"
    assert [event[6] for event in of(net.happened, 0, "committed")] == [(1, 0, base + at) for at in range(3)]
    net.call(1, 2, "echo")
    net.rounds(3)
    assert net.answers(1) == [(3, 0)]


def test_hazard_37_unknown_subnet(engine: Engine) -> None:
    net = after_one_way(engine=engine)
    assert net.judged(0, 1, source=7) == "UnknownSubnet"


def test_slice_of_any_certified_height_is_validated_by_its_contents() -> None:
    net = after_one_way({"reject_every": 2})
    older = net.run.headers.with_columns(height=np.uint64(net.height))
    net.rounds(1)
    now = net.shown()
    seen = View(now.tables, concat([older, now.headers]))
    (back,) = (slices.filter(slices["source"] == 1) for slices in [net.slices()])
    assert net.errors(back, seen) == ["ACCEPTED"]
    root = older["root"][older["chain"] == 1]
    from_before = {"source_height": u64(1), "root": root, "end": u64(1), "signals_end": u64(1)}
    assert net.errors(back.with_columns(**from_before), seen) == ["EmptySlice"], "as old as it is, it says nothing new"
    cut = {**from_before, "signals_end": u64(2)}
    assert net.errors(back.with_columns(**cut), seen) == ["ACCEPTED"], "without the reject of 2, which came later"
    same_height = {"signals_end": u64(2)}
    assert net.errors(back.with_columns(**same_height), seen) == ["UnexpectedSignals"], "a reject beyond its signals"
    for wrong in ({"source_height": u64(7)}, {"root": root ^ np.uint8(1)}):
        assert net.errors(back.with_columns(**{**cut, **wrong}), seen) == ["InvalidStream"]


def test_hazard_37_slice_with_an_unknown_root() -> None:
    net = after_one_way()
    tampered = net.slices().with_columns(root=net.slices()["root"] ^ np.uint8(1))
    assert net.errors(tampered) == ["InvalidStream"]


def test_hazard_38_substreams_advance_independently() -> None:
    four = {1: (0, ACTOR), 2: (1, ACTOR), 3: (1, ACTOR)}
    net = Network(four, options={"substreams": "per_destination", "limits": "deployed", "limit": {"slice_messages": 1}})
    net.call(1, 2, "hold")
    net.call(1, 2, "hold")
    net.call(1, 3, "hold")
    net.rounds(2)
    lanes = {remote_and_name: lane[2] for remote_and_name, lane in net.view(1)["lanes"].items()}
    assert lanes == {(0, 2): 2, (0, 3): 2}
    plan = net.plan()
    slices, offered = plan.content.slices, plan.reads.offered
    only = replace(
        plan,
        content=replace(plan.content, slices=slices.filter(slices["substream"] == 2)),
        reads=replace(plan.reads, offered=offered.filter(offered["substream"] == 2)),
    )
    asked = Frame({"source": u64(1, 1), "destination": u64(0, 0), "substream": u64(2, 3)})
    expected = net.apply(only).state.streams.read_counters("expected", asked)
    assert expected.tolist() == [3, 2], "a slice without one of them leaves its index"


def test_hazard_39_64_and_128_bit_numbers_are_exact() -> None:
    high = 2**64 - 1
    net = Network({1: (0, ACTOR), high: (1, ACTOR)}, balance=2**100 + 1, options={"index_base": 0})
    accounts = net.state.accounts
    net.state = replace(net.state, accounts=accounts.with_columns(next_callback=u64(2**53 + 1, high - 1)))
    net.call(1, high, "take", cycles=2**70 + 3)
    net.rounds(4)
    assert net.seen(high) == [[1, 2**53 + 1, 2**70 + 3]]
    assert net.seen(1) == [[high, 2**53 + 1, 0, 2**69 + 2]]
    assert net.balances() == {1: 2**100 + 1 - 2**69 - 1, high: 2**100 + 1 + 2**69 + 1}


@pytest.mark.parametrize("options", [{}, {"limits": "deployed"}, {**DEPLOYED, "reject_every": 2}])
def test_hazard_39_indices_up_to_the_end_of_the_word(options: dict[str, Any]) -> None:
    near = 2**64 - 3
    net = Network(TWO, options={**options, "index_base": 0})
    net.call(1, 2, "echo")
    net.rounds(4)
    net.happened.clear()
    net.with_lane(0, 1, begin=near, next_index=near)
    net.with_lane(1, 0, expected=near, signals_begin=near)
    queues = net.state.input_queues
    net.state = replace(net.state, input_queues=queues.with_counters(next_index=u64(near, near)))
    net.call(1, 2, "echo")
    net.rounds(1)
    net.call(1, 2, "echo")
    net.rounds(4)
    committed = [event[6] for event in of(net.happened, 0, "committed", "REQUEST")]
    assert committed == [(1, 0, near), (1, 0, near + 1)]
    judged_or_received = [*of(net.happened, 1, "received", "REQUEST"), *of(net.happened, 1, "judged", "REQUEST")]
    assert len(judged_or_received) == 2
    assert len(net.answers(1)) == 3
    assert stopped_subnets(net) == []
    net.call(1, 2, "echo")
    net.rounds(1)
    assert [row[2] for row in stopped_subnets(net)] == ["IndexOverflow"]


def about_to_overflow(run: KernelRun) -> None:
    """Create a network whose stream from subnet 0 to 1 has no capacity for another message."""
    for place, state in enumerate(run.states):
        lanes = state.streams.counters
        full = (lanes["source"] == 0) & (lanes["destination"] == 1)
        ends = {name: np.where(full, np.uint64(2**64 - 1), lanes[name]) for name in ("begin", "next_index")}
        heard = (lanes["source"] == 1) & (lanes["destination"] == 0)
        ends |= {name: np.where(heard, np.uint64(2**64 - 1), lanes[name]) for name in ("expected", "signals_begin")}
        run.states[place] = replace(state, streams=state.streams.with_counters(**ends))


def test_subnet_violating_an_invariant_stops_alone() -> None:
    canisters = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, ACTOR)}
    ingress = {1: [(1, 2)], 5: [(1, 2), (2, 3), (3, 2)], 6: [(1, 3), (2, 1)], 7: [(2, 3)]}
    told = {
        tick: [Call(canisters[one][0], one, 9, "do", ops(("call", two, "echo", b"x", 5, None))) for one, two in calls]
        for tick, calls in ingress.items()
    }
    scenario = Scenario((0, 1, 2), {n: (host, p, 1_000) for n, (host, p) in canisters.items()}, ingress=told)
    runs = [KernelRun(scenario, apart=False), KernelRun(scenario, apart=True, via_tables=True)]
    events: list[Any] = []
    for tick in range(1, 15):
        if tick == 5:
            for run in runs:
                about_to_overflow(run)
        before = runs[0].state.frames()
        for run in runs:
            run.round(Tick(tick, tick))
        assert runs[0].roots() == runs[1].roots()
        logged = concat(runs[0].events)
        rows = logged.filter(logged["events"] == Event.STOPPED)
        events += [(tick, *row) for row in zip(rows["chain"].tolist(), rows["reason"].to_pylist(), strict=True)]
        if tick >= 5:
            for run in runs:
                assert stopped_subnets(run) == [(0, 5, "IndexOverflow")]
            after = runs[0].state.frames()
            for name in ("accounts", "output_queues", "input_queues", "program_" + ACTOR):
                owner = runs[0].kernel.tables()[name].owner
                assert rows_of(before[name], owner, 1) == rows_of(after[name], owner, 1), "as before the round"
    assert events == [(5, 0, "IndexOverflow")], "said once"
    found = {n: balance for view in kernel_view(runs[0]).values() for n, (balance, _) in view["accounts"].items()}
    assert found[2] == 995 and found[3] == 1_000, "the others go on; what was sent to the stopped one stays open"


def rows_of(frame: Frame, owner: str, program: int) -> list[Any]:
    mine = frame.filter(frame[owner] == program)
    return [
        mine[name].tolist() if isinstance(mine[name], np.ndarray) else mine[name].to_pylist() for name in mine.names
    ]


# ---- removed canisters


def all_cycles(net: Network) -> int:
    """Return all cycles: balances, in-flight amounts, and those attached to pending requests."""
    state = net.state
    queues = (state.ingress_queues, state.input_queues, state.output_queues)
    in_hand = state.in_hand.take(np.repeat(np.arange(len(state.in_hand)), state.in_hand["count"].astype(np.int64)))
    streams = (
        frame.filter(frame["index"] >= state.streams.read_counters("begin", frame)) for frame in net.run.outbound
    )
    carried = [*(queue.elements for queue in queues), in_hand, *streams]
    words = [(frame["amount_high"], frame["amount_low"]) for frame in carried]
    words.append((state.accounts["balance_high"], state.accounts["balance_low"]))
    return sum((int(h) << 64) + int(low) for high, part in words for h, low in zip(high, part, strict=True))


@pytest.mark.parametrize("options", [{}, DEPLOYED, MIGRATIONS])
def test_hazard_16_open_requests_of_a_removed_canister_are_answered(engine: Engine, options: dict[str, Any]) -> None:
    net = engine({1: (0, ACTOR), 2: (1, ACTOR), 3: (1, ACTOR)}, options=options, moves=[(4, 2, None)])
    net.call(1, 2, "hold", cycles=40)
    net.call(3, 2, "hold", cycles=7)
    net.rounds(3)
    happened = net.rounds(1)
    rejected = of(happened, 1, "rejected", "REQUEST")
    assert [(event[3], event[4], event[6:]) for event in rejected] == [
        (1, 2, (None, 3, "canister_removed")),
        (3, 2, (None, 3, "canister_removed")),
    ]
    assert of(happened, 1, "received", "RESPONSE", 2, 3, 0, "SYNTHETIC"), "its caller is here"
    assert of(happened, 1, "committed", "RESPONSE", 2, 1, 0)
    net.rounds(4)
    assert net.answers(1) == net.answers(3) == [(0, 3)]
    assert net.balances() == {1: 1_000, 3: 1_000}, "with its cycles"
    assert of(net.happened, 1, "ended") == [(1, "ended", 2)]


def test_hazard_16_queued_requests_of_a_removed_canister_are_answered(engine: Engine) -> None:
    options = {**DEPLOYED, "messages_per_canister": 1}
    net = engine({1: (0, ACTOR), 2: (1, ACTOR)}, options=options, moves=[(3, 2, None)])
    net.tell(1, *[("call", 2, "take", b"x", 10, None)] * 3)
    net.rounds(2)
    happened = net.rounds(1)
    queued = [(event[5], event[6]) for event in of(happened, 1, "rejected", "REQUEST", 1, 2)]
    assert queued == [(1, 2), (2, 3)], "in the order of the queue"
    net.rounds(6)
    assert net.answers(1) == [(0, 0), (1, 3), (2, 3)], "the answer that was under way, then the rejects"
    assert net.balances() == {1: 995}
    assert of(net.happened, 0, "dropped") == []


@pytest.mark.parametrize("options", [{}, DEPLOYED])
def test_hazard_17_in_flight_answer_of_a_removed_canister_is_accepted(engine: Engine, options: dict[str, Any]) -> None:
    net = engine(TWO, options=options, moves=[(3, 2, None)], withheld=frozenset({(3, 1, 0), (4, 1, 0)}))
    net.call(1, 2, "take", cycles=40)
    net.rounds(6)
    assert net.answers(1) == [(0, 0)] and net.balances() == {1: 980}
    assert of(net.happened, 0, "dropped") == of(net.happened, 0, "judged") == []


def test_hazard_17_answers_delayed_by_a_full_stream_are_sent_at_removal(engine: Engine) -> None:
    options = {**DEPLOYED, "limits": "deployed", "limit": {"stream_messages": 1}}
    net = engine(TWO, options=options, moves=[(4, 2, None)], withheld=frozenset({(at, 1, 0) for at in (2, 3, 4, 5)}))
    net.call(2, 1, "hold")
    net.call(1, 2, "take", cycles=40)
    net.rounds(3)
    assert len(net.view(1)["output_queues"][2, 1][1]) == 1, "it waits: the stream is full"
    happened = net.rounds(1)
    assert [event[5:] for event in of(happened, 1, "committed", "RESPONSE", 2, 1)] == [(0, (0, 0, 2), 2)]
    net.rounds(4)
    assert net.answers(1) == [(0, 0)] and net.balances() == {1: 980}


def test_hazard_16_halted_chain_releases_a_removed_canister_too(engine: Engine) -> None:
    net = engine({1: (0, ACTOR), 2: (1, ACTOR), 3: (1, ACTOR)}, moves=[(4, 2, None)], halts=[(1, 4, 6)])
    net.call(1, 2, "hold", cycles=40)
    net.call(3, 2, "hold", cycles=7)
    net.rounds(3)
    happened = net.rounds(1)
    assert of(happened, 1, "received", "RESPONSE", 2, 3, 0, "SYNTHETIC") and of(happened, 1, "ended")
    net.rounds(2)
    assert net.answers(1) == [(0, 3)] and net.answers(3) == [], "its stream is served, and nothing runs there"
    net.rounds(2)
    assert net.answers(3) == [(0, 3)]


def test_hazard_17_calls_and_cycles_of_a_removed_canister_are_lost(engine: Engine) -> None:
    net = engine({1: (0, ACTOR), 2: (1, ACTOR), 3: (1, "echo")}, options=DEPLOYED, moves=[(3, 2, None)])
    net.call(2, 3, "echo", cycles=5)
    net.call(2, 1, "hold", cycles=6)
    net.rounds(2)
    happened = net.rounds(1)
    assert of(happened, 1, "ended") == [(1, "ended", 2)]
    net.tell(1, ("flush", 1))
    net.rounds(6)
    assert net.balances() == {1: 1_006, 3: 1_000}
    assert {event[-1] for event in of(net.happened, ..., "dropped")} <= {"canister_removed", "unroutable_response"}


def test_removed_canister_leaves_nothing_and_creates_no_cycles() -> None:
    net = Network({1: (0, ACTOR), 2: (1, ACTOR), 3: (1, ACTOR)}, options=MIGRATIONS, moves=[(5, 2, None), (7, 2, 0)])
    for cycles in (3, 4):
        net.call(1, 2, "hold", cycles=cycles)
        net.call(3, 2, "hold", cycles=cycles)
        net.call(2, 1, "hold", cycles=cycles)
        net.rounds(1)
    net.rounds(2)
    assert all_cycles(net) == 3_000
    mine = net.balances()[2]
    net.rounds(1)
    for name in ("accounts", "open_calls", "in_hand", "input_counters", "output_counters", "ingress_counters"):
        table = net.state.frames()[name]
        assert 2 not in table[net.run.kernel.tables()[name].owner], name
    assert all_cycles(net) == 3_000 - mine
    net.rounds(8)
    assert len(net.state.in_hand) == 2 and all_cycles(net) == 3_000 - mine, "what 1 has of 2 is in hand"
    net.tell(1, ("flush", 2))
    net.rounds(3)
    assert sorted(net.answers(1)) == sorted(net.answers(3)) == [(0, 3), (1, 3)]
    assert len(net.state.in_hand) == 0
