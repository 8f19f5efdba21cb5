"""Completeness of the state root: each change alters the root of its chain and of no other."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from causeway.core.frame import Frame
from causeway.core.vocabulary import Kind
from causeway.protocols.contract import Tick
from causeway.protocols.ic.state import STATE_TABLES, State
from causeway.protocols.shared.messages import LANE
from tests.support.ic.ic_network import ACTOR, Network


def busy() -> Network:
    """Create a network with data in every table of its state."""
    canisters = {1: (0, ACTOR), 2: (1, ACTOR), 3: (1, "caller"), 4: (2, ACTOR), 5: (0, "echo")}
    net = Network(
        canisters,
        options={
            "receiver_check": "off",
            "reject_every": 3,
            "limits": "deployed",
            "limit": {"stream_messages": 2},
            "messages_per_canister": 1,
        },
        moves=[(2, 4, 0)],
    )
    for receiver in (2, 3, 4, 2, 5, 2):
        net.tell(1, *[("call", receiver, "echo", b"body", 1, None)] * 3)
        net.tell(2, ("call", 4, "echo", b"x", 0, None), ("call", 1, "echo", b"x", 0, None))
    net.rounds(5)
    return net


def network_with_pending() -> Network:
    """Create a network in which a canister has pending requests."""
    net = Network({1: (0, ACTOR), 2: (1, ACTOR)})
    for cycles in (7, 8):
        net.call(1, 2, "hold", cycles=cycles)
    net.rounds(2)
    return net


def roots(net: Network, state: Any) -> list[bytes]:
    tick = Tick(net.height, net.height)
    return [bytes(root) for root in net.run.kernel.headers(state, net.run.groups[0], tick)["root"]]


def with_first_value(column: Any) -> Any:
    """Return the column with another first value."""
    if isinstance(column, np.ndarray):
        other = column.copy()
        if other.ndim > 1:
            other[0, 0] ^= 1
        else:
            other[0] ^= np.asarray(1).astype(other.dtype)
        return other
    values = column.to_pylist()
    values[0] = values[0] + ("x" if isinstance(values[0], str) else b"x")
    made = pa.array(values, pa.string() if isinstance(values[0], str) else pa.binary())
    return made.dictionary_encode() if pa.types.is_dictionary(column.type) else made


PARTS = [
    *("lanes", "rejects", "runs", "misrouted", "accounts", "open_calls", "in_hand", "turns", "next_sources"),
    *("ingress_queues", "input_queues", "output_queues"),
]


def with_frame(net: Network, state: State, name: str, frame: Frame) -> State:
    return net.run.kernel.state({**state.frames(), name: frame})


@pytest.mark.parametrize("part", PARTS)
def test_every_value_of_every_table_is_in_the_root(part: str) -> None:
    net = network_with_pending() if part == "in_hand" else busy()
    state, before = net.state, roots(net, net.state)
    frame: Frame = state.frames()[part]
    assert len(frame), f"nothing in {part}: this test shows nothing"
    table = STATE_TABLES[part]
    for name in table.schema.names:
        if name == table.owner:
            continue  # the owner of a row decides its root
        after = roots(net, with_frame(net, state, part, frame.with_columns(**{name: with_first_value(frame[name])})))
        assert sum(one != two for one, two in zip(before, after, strict=True)) == 1, f"{part}.{name}"


@pytest.mark.parametrize("part", ["ingress_counters", "input_counters", "output_counters"])
def test_rolling_indices_are_in_the_root(part: str) -> None:
    net = busy()
    state, before = net.state, roots(net, net.state)
    frame = state.frames()[part]
    for name in STATE_TABLES[part].schema.names[1:]:
        after = roots(net, with_frame(net, state, part, frame.with_columns(**{name: with_first_value(frame[name])})))
        assert sum(one != two for one, two in zip(before, after, strict=True)) == 1, name


def test_program_states_are_in_the_root() -> None:
    net = busy()
    for name, frame in net.state.programs.items():
        for column in frame.names[1:]:
            other = {**net.state.programs, name: frame.with_columns(**{column: with_first_value(frame[column])})}
            after = roots(net, replace(net.state, programs=other))
            assert sum(one != two for one, two in zip(roots(net, net.state), after, strict=True)) == 1, (name, column)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def leaf(row: dict[str, Any]) -> bytes:
    """Compute the leaf of a message by hand: 00, fixed fields big-endian, method, payload."""
    method = row["method"].encode()
    fixed = struct.pack(
        ">BBBIIQQQQQ",
        *(0, row["kind"], row["code"], len(method), row["deadline"], row["sender"], row["receiver"], row["callback"]),
        *(row["amount_high"], row["amount_low"]),
    )
    return sha256(fixed + method + row["payload"])


def tree(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    left = 1 << ((len(leaves) - 1).bit_length() - 1)
    return sha256(b"\x01" + tree(leaves[:left]) + tree(leaves[left:]))


def test_message_range_has_its_merkle_root() -> None:
    net = busy()
    messages = [row for frame in net.run.outbound for row in frame.to_table(net.run.kernel.outbound).to_pylist()]
    assert {row["kind"] for row in messages} == {Kind.REQUEST, Kind.RESPONSE}
    runs = net.state.runs.to_table(STATE_TABLES["runs"].schema).to_pylist()
    assert len(runs) > 3
    for run in runs:
        lane = [run[name] for name in LANE]
        indices = range(run["first"], run["first"] + run["count"])
        mine = [row for row in messages if [row[name] for name in LANE] == lane]
        leaves = [leaf(row) for row in sorted(mine, key=lambda row: int(row["index"])) if row["index"] in indices]
        assert len(leaves) == run["count"]
        assert run["root"] == tree(leaves)
