"""Hazards of section 6 of the IC reference with certified streams.

Receivers reject slices that a faulty source, carrier or block maker could forge, and induct none of their messages.
Hazards of sizes (13) are in ``test_ic_payload.py``; byte by byte alterations (5) also in ``test_ic_agreement.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from causeway.core.frame import Frame
from causeway.core.vocabulary import Event, Kind
from causeway.protocols.contract import Tick
from causeway.protocols.ic.agreement import advance_expected, past_payloads
from causeway.protocols.ic.streams.certified_slices import add_read_ranges
from tests.support.ic.ic_harness import Call, KernelRun, Scenario
from tests.support.ic.ic_programs import ACTOR, ops

ASKS = {tick: [Call(0, 1, 9, "do", ops(*[("call", 2, "echo", b"hello", 0, None)] * 3))] for tick in (1, 2, 3)}


class Network:
    """Subnets 0 and 1; a canister of 0 calls one of 1, three times in each of the first three ticks."""

    def __init__(self, **options: Any) -> None:
        canisters = {1: (0, ACTOR, 2**80), 2: (1, ACTOR, 2**80)}
        wanted = {"certification": "bls", **options}
        self.run = KernelRun(Scenario((0, 1), canisters, options=wanted, ingress=ASKS), apart=False)
        self.tick = 0
        carriers = self.run.kernel.carriers
        self.honest = carriers.carry_certified
        self.falsify: Callable[[Frame], Frame] = lambda slices: slices
        carriers.carry_certified = lambda *given: self.falsify(self.honest(*given))  # type: ignore[method-assign]

    def rounds(self, count: int = 1) -> None:
        for _ in range(count):
            self.tick += 1
            self.run.round(Tick(self.tick, self.tick))

    def offer(self, **columns: Callable[[Frame], Any]) -> None:
        """Falsify the slices from 0 to 1 from now on."""

        def falsify(slices: Frame) -> Frame:
            mine = slices["destination"] == 1
            for name, change in columns.items():
                value = change(slices)
                if isinstance(value, pa.Array):
                    found = [new if hit else old for hit, new, old in zip(mine, value, slices[name], strict=True)]
                    slices = slices.with_columns(**{name: pa.array([item.as_py() for item in found], value.type)})
                else:
                    slices = slices.with_columns(**{name: np.where(mine, value, slices[name])})
            return slices

        self.falsify = falsify

    def refused(self) -> list[str]:
        """Return the rejections of the last round."""
        (events,) = self.run.events
        control = (events["kind"] == Kind.CONTROL) & (events["events"] == Event.REJECTED)
        return [str(reason) for reason in events.filter(control)["reason"].to_pylist()]

    def expected(self) -> int:
        """Return the index of the next message from 0 expected by 1."""
        lanes = self.run.state.streams.counters
        here = (lanes["source"] == 1) & (lanes["destination"] == 0)
        return int(lanes["expected"][here][0]) if here.any() else 1

    def refuses(self, reason: str) -> None:
        """Assert that the next round rejects the offer whole, and that honest slices follow."""
        before = self.expected()
        self.rounds()
        assert self.refused() == [reason]
        assert self.expected() == before
        self.falsify = lambda slices: slices
        self.rounds(12)
        assert self.run.kernel.idle(self.run.state)
        assert self.expected() == 10


def test_hazard_1_replayed_slice() -> None:
    net = Network()
    net.rounds(2)
    net.offer(message_begin=lambda slices: np.uint64(1))
    assert net.expected() == 4
    net.refuses("UnexpectedMessages")


@pytest.mark.parametrize("step", [1, 2**64 - 1])
def test_hazard_2_one_above_and_one_below(step: int) -> None:
    net = Network()
    net.rounds(2)
    net.offer(message_begin=lambda slices: slices["message_begin"] + np.uint64(step))
    net.refuses("UnexpectedMessages")


def test_hazard_4_messages_outside_the_stream_cannot_be_certified() -> None:
    net = Network()
    net.rounds(2)
    net.offer(message_end=lambda slices: slices["message_end"] + np.uint64(1))
    net.refuses("InvalidStream(MissingMessages)")


def test_hazard_5_certified_by_another_subnet() -> None:
    net = Network()
    net.rounds(2)

    def of_another(slices: Frame) -> pa.Array:
        offers = net.run.state.offers
        (row,) = np.flatnonzero(offers["source"] == 1)[-1:]
        return pa.array([offers["certification"][int(row)].as_py()] * len(slices), pa.binary())

    net.rounds(1)
    net.offer(certification=of_another)
    net.refuses("InvalidStream(RootHashMismatch)")


def test_hazard_7_impossible_signals_certified_by_a_source() -> None:
    net = Network()
    net.rounds(2)
    (state,) = net.run.states
    lanes = state.streams.counters
    theirs = (lanes["source"] == 0) & (lanes["destination"] == 1)
    more = np.where(theirs, lanes["expected"] + np.uint64(7), lanes["expected"])
    net.run.states = [replace(state, streams=state.streams.with_counters(expected=more))]
    net.rounds()
    before = net.expected()
    net.rounds()
    assert "UnexpectedSignals" in net.refused()
    assert net.expected() == before


@pytest.mark.parametrize("ahead", [0, 2])
def test_hazard_11_header_without_news(ahead: int) -> None:
    net = Network(blocks_ahead=ahead)
    net.rounds(20)
    carriers = net.run.kernel.carriers
    carriers.carry_certified = lambda slices, everything, *rest: add_read_ranges(everything)  # type: ignore[method-assign]
    net.rounds()
    assert net.refused() == ["EmptySlice", "EmptySlice"]
    assert len(net.run.state.agreed) == 0


def test_hazard_12_agreed_payloads_advance_the_expected_indices() -> None:
    net = Network(blocks_ahead=2, payload_bytes=0)
    net.rounds(4)
    (state,) = net.run.states
    context = net.run.kernel.context(net.run.groups[0], Tick(5, 5))
    past = past_payloads(state)
    assert [payload["message_end"].max() for payload in past] == [7, 10], "two past payloads of one subnet"
    expected, chains = advance_expected(state, context)
    assert expected.of(past[0].filter(past[0]["destination"] == 1))[0].tolist() == [10]
    assert chains.tolist() == [0, 1]
    # An older one than the state: after agreement an empty payload is built, the other continues.
    agreed = state.agreed
    ends = {
        name: np.where(agreed["destination"] == 1, np.uint64(index), agreed[name])
        for name, index in (("message_begin", 1), ("message_end", 3))
    }
    wrong = replace(state, agreed=agreed.with_columns(**ends))
    expected, chains = advance_expected(wrong, context)
    assert chains.tolist() == [0]


def test_hazard_14_slice_of_the_own_subnet() -> None:
    net = Network()
    net.rounds(2)
    net.offer(source=lambda slices: slices["destination"])
    net.refuses("LoopbackSlice")


def test_agreed_slice_is_verified_again_before_use() -> None:
    """Its messages are decoded again: an alteration in between stops the subnet, and nothing is inducted."""
    net = Network(blocks_ahead=2)
    net.rounds(3)
    before = net.expected()

    def flipped(frame: Frame) -> Frame:
        payloads = [b"x" + payload for payload in frame["payload"].to_pylist()]
        return frame.with_columns(payload=pa.array(payloads, frame["payload"].type))

    assert len(net.run.state.agreed)
    net.run.outbound = [flipped(frame) if len(frame) else frame for frame in net.run.outbound]
    net.rounds(2)
    assert net.run.state.stopped["cause"].to_pylist() == ["InvariantViolation"]
    assert net.run.state.stopped["chain"].tolist() == [1]
    assert net.expected() == before
    last = int(net.run.state.stopped["height"][0]) - 1
    assert net.run.state.heads["number"][1] == last, "a round that failed commits nothing, and certifies nothing"
