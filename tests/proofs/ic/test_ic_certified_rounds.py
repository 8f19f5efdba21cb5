"""Certified rounds: roots match an independent reading of 2.9, offers match the whole state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.ic.slice import decode_certification, encode_certification, encode_certified_stream_slice
from causeway_proofs.ic.state_columns import CanonicalStates, state_contents
from causeway_proofs.ic.stream_columns import encode_stream_messages
from causeway_proofs.ic.stream_tree import StreamTree

from causeway.config.faults import FaultRule, Faults
from causeway.protocols.contract import Tick, View
from causeway.protocols.ic.commitment import canonical_states
from causeway.protocols.ic.fault_kinds import DOES, FALSE_SHARE, NO_SHARE, NODE, NODES
from causeway.protocols.ic.ids import subnet_id
from causeway.protocols.shared.messages import MESSAGE_COLUMNS
from tests.oracles.ic.certified_streams import CertifiedStreams, StoredStream
from tests.oracles.ic.slice_forms import SliceRow, to_certified_slice
from tests.spec.ic.coordination import certified_state
from tests.spec.ic.tree import FULL, METADATA
from tests.support.ic.ic_harness import Call, KernelRun, OracleRun, Scenario
from tests.support.ic.ic_programs import ACTOR, ops

SUBNETS = (1, 2, 260)
CALLS = {
    1: [Call(1, 10, 9, "do", ops(("call", 20, "echo", b"x", 5, None), ("call", 11, "echo", b"local", 0, None)))],
    2: [Call(2, 20, 9, "do", ops(*(("call", 30, "refuse", bytes([at]) * 40, 0, None) for at in range(5))))],
    4: [Call(260, 30, 9, "do", ops(("call", 10, "echo", b"", 2**70, None)))],
}
EVERY = 2
"""Every second height is certified with full scope."""


def scenario(**options: Any) -> Scenario:
    canisters = {number: (host, ACTOR, 2**80) for number, host in ((10, 1), (11, 1), (20, 2), (30, 260))}
    wanted = {"certification": "bls", "full_hash_every": EVERY, **options}
    return Scenario(subnets=SUBNETS, canisters=canisters, options=wanted, ingress=CALLS)


class Watched:
    """A kernel with the canonical form of its states, row by row in the order of ``numbers``."""

    def __init__(self, played: Scenario) -> None:
        self.run = KernelRun(played, apart=False)
        self.numbers, self.tick = self.run.numbers, 0

    def play(self) -> None:
        self.tick += 1
        self.run.round(Tick(self.tick, self.tick))

    def states(self) -> CanonicalStates:
        context = self.run.kernel.context(self.run.groups[0], Tick(self.tick, self.tick))
        return canonical_states(self.run.state, self.run.state.heads, context)[0]

    def roots(self) -> dict[int, bytes]:
        heads = self.run.state.heads
        return {self.numbers[chain]: heads["root"][row].tobytes() for row, chain in enumerate(heads["chain"].tolist())}

    def ends(self) -> list[list[int]]:
        lanes = self.run.state.streams.counters
        return [lanes[name].tolist() for name in ("source", "destination", "next_index")]

    def stored(self, row: int, states: CanonicalStates) -> dict[bytes, StoredStream]:
        """The streams of a subnet, each hashed anew from all its messages."""
        found = {}
        for at in np.flatnonzero(states.streams.subnets == row).tolist():
            subnet = states.streams.destinations[at].tobytes()
            lanes = self.run.state.streams.counters
            (destination,) = [chain for chain, number in enumerate(self.numbers) if subnet_id(number) == subnet]
            lane = lanes.filter((lanes["source"] == row) & (lanes["destination"] == destination))
            entries = self.run.read(lane.with_columns(end=lane["next_index"]))
            entries = entries.take(np.argsort(entries["index"]))
            messages = encode_stream_messages({name: entries[name] for name in MESSAGE_COLUMNS}, states.version)
            begin = int(lane["begin"][0])
            assert len(messages) == int(lane["next_index"][0]) - begin
            found[subnet] = StoredStream(StreamTree(states.streams.headers[at].as_py(), begin, messages), messages)
        return found


@pytest.mark.parametrize("version", ["V19", "V20", "V23", "V25"])
def test_roots_match_the_state_tree_of_the_oracle(version: str) -> None:
    played = scenario(certification_version=version)
    kernel, oracle = Watched(played), OracleRun(played)
    loopbacks, streams = 0, 0
    previous: Mapping[int, bytes] = {}
    for tick in range(8):
        if tick:
            kernel.play()
            oracle.round(tick)
        states = kernel.states()
        assert states.sections is not None
        for row, number in enumerate(kernel.numbers):
            state = oracle.states[number]
            sections = dict(
                zip(states.sections.labels, (one.tobytes() for one in states.sections.digests[row]), strict=True)
            )
            # The other sections are private; the reference defines this one.
            sections["loopback"] = b""
            scope = FULL if state.number % EVERY == 0 else METADATA
            expected = certified_state(state, previous.get(number), sections, oracle.options, scope)
            assert kernel.roots()[number] == expected.root, (tick, number)
            loopbacks += bool(state.stream(number).msgs) and scope == FULL
            streams += len(expected.tree.get(b"streams", {}))
        previous = kernel.roots()
    assert loopbacks and streams > 20


def test_rounds_offer_the_slices_of_the_whole_state() -> None:
    kernel = Watched(scenario())
    compared = 0
    for tick in range(7):
        if tick:
            kernel.play()
        states, offers, heads = kernel.states(), kernel.run.state.offers, kernel.run.state.heads
        served = []
        for row in range(len(kernel.numbers)):
            contents = {label: part for label, part in state_contents(states, row).items() if label != b"streams"}
            certification = decode_certification(heads["certification"][row].as_py())

            def signed(_: bytes, signature: bytes = certification.signature) -> bytes:
                return signature

            made = CertifiedStreams(kernel.stored(row, states), contents, tick, signed)
            assert made.certification == certification
            served.append(made)
        for at in range(len(offers)):
            source, destination = int(offers["source"][at]), int(offers["destination"][at])
            if int(offers["number"][at]) != tick:
                continue
            subnet = subnet_id(kernel.numbers[destination])
            found = served[source].encode_certified_stream_slice(subnet, msg_begin=int(offers["anchor"][at]))
            if not found.payload.messages:
                continue
            siblings = offers["siblings"][at].as_py() if found.payload.messages_begin != offers["begin"][at] else b""
            row_form = SliceRow(
                subnet,
                offers["header"][at].as_py(),
                int(offers["anchor"][at]),
                found.payload.messages,
                siblings,
                offers["path"][at].as_py(),
            )
            certification = decode_certification(offers["certification"][at].as_py())
            in_columns = to_certified_slice(row_form, certification)
            assert encode_certified_stream_slice(in_columns) == encode_certified_stream_slice(found)
            compared += 1
    assert compared >= 4


@pytest.mark.parametrize(("version", "refused"), [("V23", []), ("V25", ["InvalidStream(DecodeFailed)"])])
def test_height_in_the_state_needs_a_witness(version: str, refused: list[str]) -> None:
    """From version 24 on, an omitted height witness would allow any other height."""
    kernel = Watched(scenario(certification_version=version))
    view = kernel.run.view

    def without_witnesses(group: Any) -> View:
        shown = view(group)
        offers = shown.tables["offers"]
        bare = [
            encode_certification(replace(decode_certification(data), height_witness=None)) if data else data
            for data in offers["certification"].to_pylist()
        ]
        offers = offers.with_columns(certification=pa.array(bare, pa.binary()))
        return View({**shown.tables, "offers": offers}, shown.headers)

    kernel.run.view = without_witnesses  # type: ignore[method-assign]
    kernel.play()
    kernel.play()
    reasons = [reason for events in kernel.run.events for reason in events["reason"].to_pylist() if reason]
    assert reasons == refused


def test_faulty_nodes_are_named_without_effect_while_a_threshold_is_honest() -> None:
    """Node 2 of subnet 1 gives false shares. From tick 3 to 4 two of four nodes of subnet 2 give none: nothing of it is
    certified, and taken, until it has signed again."""
    bls, shared = Watched(scenario()), Watched(scenario(certification="threshold"))
    liar = FaultRule(NODE, 1, None, 2, 6, {DOES: FALSE_SHARE, NODES: [2]})
    shared.run.kernel = replace(shared.run.kernel, faults=Faults.of(liar))
    named: dict[int, list[int]] = {}
    for tick in range(1, 9):
        bls.play()
        shared.play()
        assert shared.roots() == bls.roots()
        named[tick] = [
            index
            for events in shared.run.events
            for index, reason in zip(events["index"].tolist(), events["reason"].to_pylist(), strict=True)
            if reason == "InvalidShare"
        ]
    # Three of four are asked, from node (height mod 4) on: at height 3 those are 3, 0 and 1.
    assert named == {1: [], 2: [2], 3: [], 4: [2], 5: [2], 6: [2], 7: [], 8: []}
    assert bls.run.state.heads["certification"].equals(shared.run.state.heads["certification"])

    silent = Watched(scenario(certification="threshold"))
    missing = FaultRule(NODE, 2, None, 3, 4, {DOES: NO_SHARE, NODES: [0, 1]})
    silent.run.kernel = replace(silent.run.kernel, faults=Faults.of(missing))
    certified = []
    for _ in range(9):
        silent.play()
        heads = silent.run.state.heads
        certified.append(int(heads["certified"][silent.numbers.index(2)]))
        others = [at for at, number in enumerate(silent.numbers) if number != 2]
        assert heads["certified"][others].tolist() == [silent.tick] * 2
    assert certified == [1, 2, 2, 2, 5, 6, 7, 8, 9]
    # All events of a run with all signatures occurred, and all calls are answered.
    for _ in range(4):
        silent.play()
        bls.play()
    assert silent.ends() == bls.ends()
    assert len(silent.run.state.open_calls.rows) == len(bls.run.state.open_calls.rows) == 0


def test_rebuilt_trees_leave_stream_sizes_unchanged() -> None:
    """The builder receives all messages in streams, including those of the loopback stream, which are collected
    before a part of a segment is: they count for no other stream."""
    many = ops(*(("call", 10, "echo", bytes(40), 0, None) for _ in range(6)))
    here = ops(("call", 21, "echo", b"", 0, None))
    played = Scenario(
        subnets=(1, 2),
        canisters={10: (1, ACTOR, 0), 20: (2, ACTOR, 0), 21: (2, ACTOR, 0)},
        options={"certification": "bls", "limits": "deployed", "limit": {"slice_messages": 1}},
        ingress={1: [Call(2, 20, 9, "do", many)], 4: [Call(2, 20, 9, "do", here)]},
    )
    kept, built = KernelRun(played, apart=False), KernelRun(played, apart=False, via_tables=True)
    for tick in range(1, 8):
        for run in (kept, built):
            run.round(Tick(tick, tick))
        sizes = [run.state.streams.counters["stream_bytes"].tolist() for run in (kept, built)]
        assert sizes[0] == sizes[1], tick
    assert kept.roots() == built.roots()
