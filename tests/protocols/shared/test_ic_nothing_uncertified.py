"""No induction of uncertified messages.

An alteration between plan and round gives the round without the altered message or slice.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.ic.stream_columns import encode_stream_headers
from causeway_proofs.ic.stream_header import MAX_HEADER_BYTES

from causeway.config.traffic import CARRIED_SCHEMA
from causeway.core.frame import Frame, concat
from causeway.core.vocabulary import Kind
from causeway.protocols.contract import Inputs, Plan, Tick
from causeway.protocols.ic.streams.certified_slices import read_rejects
from tests.support.ic.ic_harness import Call, KernelRun, Scenario
from tests.support.ic.ic_programs import ACTOR, ops

SUBNETS = (1, 2, 260)
HOSTS = {10: 1, 11: 1, 20: 2, 21: 2, 30: 260}


def calls(*receivers: int, method: str = "echo") -> bytes:
    return ops(*(("call", to, method, bytes([at]) * 30, at, None) for at, to in enumerate(receivers)))


def scenario(**options: Any) -> Scenario:
    """Create requests, answers and rejects between all subnets in every round."""
    told = [
        Call(1, 10, 9, "do", calls(20, 20, 20, 30, 11)),
        Call(2, 20, 9, "do", calls(30, 30, 10, method="refuse")),
        Call(260, 30, 9, "do", calls(10, 21)),
    ]
    canisters = {number: (host, ACTOR, 2**80) for number, host in HOSTS.items()}
    wanted = {"certification": "bls", "reject_every": 3, **options}
    return Scenario(subnets=SUBNETS, canisters=canisters, options=wanted, ingress=dict.fromkeys(range(1, 9), told))


class RepeatableRound:
    """One repeatable round, with other slices and other messages."""

    def __init__(self, run: KernelRun, tick: Tick) -> None:
        self.run, self.tick, self.group = run, tick, run.groups[0]
        # Trees are changed in place: a state without trees builds them.
        self.state = replace(run.states[0], trees=None)
        self.ingress, self.carried = run._ingress(tick.tick, self.group), CARRIED_SCHEMA.empty_table()
        self.plan = run.kernel.plan(self.state, self.group, run.view(self.group), self.ingress, self.carried, tick)
        self.offered, self.own = run.read(self.plan.reads.offered), run.read(self.plan.reads.own)
        assert self.plan.content.brought is not None
        self.slices = self.plan.content.brought.candidates

    def with_slices(self, slices: Frame) -> Plan[Any]:
        content = self.plan.content
        assert content.brought is not None
        return replace(self.plan, content=replace(content, brought=replace(content.brought, candidates=slices)))

    def roots(self, plan: Plan[Any] | None = None, offered: Frame | None = None) -> tuple[bytes, tuple[str, ...]]:
        """Return the roots after the round, and the rejection reasons."""
        inputs: Inputs[Any] = Inputs(self.ingress, self.carried, self.offered if offered is None else offered, self.own)
        result = self.run.kernel.round(self.state, self.group, plan or self.plan, inputs, self.tick)
        assert not len(result.state.stopped)
        events = result.logs["events"]
        refused = events["reason"].filter(pa.array(events["kind"] == Kind.CONTROL))
        return result.headers["root"].tobytes(), tuple(sorted(set(refused.to_pylist())))

    @cached_property
    def honest(self) -> bytes:
        roots, refused = self.roots()
        assert not refused
        return roots

    def without(self, row: int) -> bytes:
        """Return the roots without one slice."""
        return self.roots(self.with_slices(self.slices.filter(np.arange(len(self.slices)) != row)))[0]

    def shorter(self, row: int) -> set[bytes]:
        """Return the roots with one truncated slice: anybody may take less of certified data."""
        ends, found = self.slices["message_end"], set()
        for end in range(int(self.slices["message_begin"][row]), int(ends[row])):
            cut = ends.copy()
            cut[row] = end
            found.add(self.roots(self.with_slices(self.slices.with_columns(message_end=cut)))[0])
        return found


def alter_column(column: Any, row: int, draw: random.Random) -> Any:
    """Return the column with one altered value."""
    if isinstance(column, np.ndarray):
        column = column.copy()
        if column.ndim == 2:
            column[row, draw.randrange(column.shape[1])] ^= np.uint8(1 << draw.randrange(8))
            return column
        value, bits = int(column[row]), 8 * column.dtype.itemsize
        near = [value + 1, value - 1, value ^ (1 << draw.randrange(bits)), 2**bits - 1, draw.randrange(2 * value + 4)]
        column[row] = draw.choice(near) % 2**bits
        return column
    values = column.to_pylist()
    value = values[row]
    if isinstance(value, str):
        values[row] = draw.choice([value + "x", value[:-1], "other"])
        return pa.array(values, pa.string()).dictionary_encode()
    at = draw.randrange(len(value) or 1)
    flipped = value[:at] + bytes([value[at] ^ 1 << draw.randrange(8)]) + value[at + 1 :] if value else b"\1"
    values[row] = draw.choice([flipped, flipped, value[:at], value + b"\0", b"\0" + value, draw.choice(values)])
    return pa.array(values, column.type)


KEYS = {"source", "destination", "substream"}
"""What names a row: where it was asked for, and by whom."""

BESIDE = {"queue_index", "sent_tick"}
"""Columns of messages of which the log alone speaks."""


NETWORKS: list[dict[str, Any]] = [
    {"messages_per_canister": 1, "certification_delay": 1, "full_hash_every": 2},
    {"limits": "deployed", "vsr": "deployed", "limit": {"slice_messages": 2}, "certification_version": "V22"},
]


def test_altered_message_is_not_inducted_and_affects_no_other() -> None:
    draw, causes = random.Random(3), Counter[str]()
    for options in NETWORKS:
        run = KernelRun(scenario(**options), apart=False)
        for tick in range(1, 5):
            run.round(Tick(tick, tick))
        played = RepeatableRound(run, Tick(5, 5))
        for row in draw.sample(range(len(played.slices)), 2):
            _attack(played, row, draw, causes)
    assert sum(causes.values()) > 60
    known = {"RootHashMismatch", "MissingMessages", "DecodeFailed", "WitnessPruningFailed", "InvalidDestination"}
    assert {"UnexpectedMessages", *(f"InvalidStream({cause})" for cause in known)} <= set(causes), causes


def test_signals_beyond_the_wire_limit_of_a_slice_are_read() -> None:
    """Without limits a subnet may reject a million messages in a round, and their sender must learn it."""
    count = MAX_HEADER_BYTES + 1
    one, rows = np.ones(1, dtype=np.uint64), np.zeros(count, dtype=np.int64)
    indexes, reasons = np.arange(1, count + 1, dtype=np.uint64), np.full(count, 7, dtype=np.uint8)
    header = encode_stream_headers(one, one, one + np.uint64(count), rows, indexes, reasons)
    lane = {name: np.zeros(1, dtype=np.uint32) for name in ("source", "destination")}
    slices = Frame({**lane, "substream": one, "header": header}, 1)
    run = KernelRun(scenario(), apart=False)
    assert len(read_rejects(slices, run.kernel.context(run.groups[0], Tick(1, 1)))) == count


def test_subnet_stopping_during_a_tree_rebuild_stops_alone() -> None:
    """Its messages are excluded from the inputs of others, and its trees are rebuilt later."""
    told = Call(1, 10, 9, "do", calls(20, 20))
    played = replace(scenario(reject_every=0), ingress={tick: [told] for tick in (1, 8, 9)}, worn=((7, 1, 2),))
    kept = KernelRun(played, apart=False, via_tables=True)
    for tick in range(1, 12):
        kept.round(Tick(tick, tick))
    assert kept.state.stopped["cause"].to_pylist() == ["IndexOverflow"]
    # The failed round made no height.
    assert kept.state.heads["number"].tolist() == [8, 11, 11]


def _attack(played: RepeatableRound, row: int, draw: random.Random, causes: Counter[str]) -> None:
    """Alter every column of a slice and of one of its messages; omit a message, and duplicate one."""
    slices, offered = played.slices, played.offered
    without, shorter = played.without(row), played.shorter(row)
    attempts: list[tuple[str, Any, Any]] = []
    for name in slices.names:
        if name not in KEYS:
            changed = slices.with_columns(**{name: alter_column(slices[name], row, draw)})
            attempts.append((name, played.with_slices(changed), None))
    mine = np.logical_and.reduce([offered[name] == slices[name][row] for name in sorted(KEYS)])
    rows = np.flatnonzero(mine).tolist()
    if rows:
        at = draw.choice(rows)
        for name in offered.names:
            if name not in KEYS | BESIDE:
                changed = offered.with_columns(**{name: alter_column(offered[name], at, draw)})
                attempts.append(("message " + name, None, changed))
        attempts.append(("left out", None, offered.filter(np.arange(len(offered)) != at)))
        attempts.append(("twice", None, concat([offered, offered.slice(at, at + 1)])))
    for name, plan, messages in attempts:
        roots, refused = played.roots(plan, messages)
        allowed = {played.honest, without} | (shorter if name in ("message_begin", "message_end") else set())
        assert roots in allowed, (name, refused)
        assert len(refused) <= 1, (name, refused)
        causes.update(refused)
