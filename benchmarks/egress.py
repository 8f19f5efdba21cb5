"""``egress``: messages through egress queues with their roots, by the kernel's functions and nothing else.

One block of every parachain: its messages into queues, the roots of those, a receipt each (2.1, 2.2); the relay block
that includes the receipts, and one without any (3.1); then every recipient's pending list, and its bodies held against
the posted roots and put in order (3.2, 3.4); what was consumed behind the cursors, the recipients' blocks with their
new watermarks, and the relay block that takes the queues off its lists (3.1, 3.3). No program runs, nothing is read or
written.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal
from multiprocessing import get_context
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing.columns import load_engines

from benchmarks.machine import machine
from benchmarks.rounds import Progress
from causeway.config.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.core.frame import Frame, empty_frame
from causeway.programs.runner import Programs
from causeway.protocols.contract import RoundResult, Tick, View
from causeway.protocols.icmp.faults import available_receipts
from causeway.protocols.icmp.forks import ALONE, RelayInterference, chain_positions, leaves_to_build_on
from causeway.protocols.icmp.kernel import IcmpKernel
from causeway.protocols.relay_chain.block import (
    advance_cursors,
    list_ingress,
    locate_bodies,
    send_egress,
    verify_bodies,
)
from causeway.protocols.relay_chain.commitment import LeafTries, commit_parachains, commit_relay
from causeway.protocols.relay_chain.errors import Inclusion
from causeway.protocols.relay_chain.options import add_relay_chain
from causeway.protocols.relay_chain.runtime import include
from causeway.protocols.relay_chain.state import RelayLeaf, State, store_leaves
from causeway.protocols.shared.events import EventLog
from causeway.protocols.shared.messages import MESSAGE_COLUMNS, blank_messages

STEPS = ("queues and roots", "inclusion", "ingress held against roots", "watermarks")
PROGRAMS = 50


def bench_egress(
    messages: int = 40_000,
    *,
    parachains: int = 20,
    payload_bytes: int = 64,
    rounds: int = 15,
    processes: int = 2,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure rounds of ``messages`` between ``parachains`` in one process, then in ``processes`` at once, each with
    parachains of its own; return figures that fit JSON. Raises ``InvalidInput``."""
    if messages < 1 or parachains < 2 or rounds < 1 or processes < 1:
        raise InvalidInput("egress: at least 1 message, 2 parachains, 1 round and 1 process")
    about, figures = machine(("pyarrow", "numpy", "numba")), {}
    work = (messages, parachains, payload_bytes, rounds)
    for count in sorted({1, processes}):
        if progress is not None:
            progress(f"{count} process{'es' if count > 1 else ''}")
        with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
            every = list(pool.map(_measured, [work] * count))
        seconds = {step: statistics.fmean(found[step] for found in every) for step in STEPS}
        whole = sum(messages / sum(found.values()) for found in every)
        rates = {step: round(count * messages / taken) for step, taken in seconds.items()}
        figures[str(count)] = {"messages_per_second": round(whole), "of_steps": rates}
    workload = {"messages": messages, "parachains": parachains, "payload_bytes": payload_bytes}
    return {"benchmark": "egress", "machine": about, "workload": workload, "rounds": rounds, "processes": figures}


def _measured(work: tuple[int, int, int, int]) -> dict[str, float]:
    """Return the median seconds of each step."""
    messages, parachains, payload_bytes, rounds = work
    load_engines()
    one = _Round(messages, parachains, payload_bytes)
    taken: dict[str, list[float]] = {step: [] for step in STEPS}
    for turn in range(rounds + 2):
        for step, seconds in one.run().items():
            if turn >= 2:  # what is loaded once is not measured
                taken[step].append(seconds)
    return {step: statistics.median(seconds) for step, seconds in taken.items()}


class _Round:
    """A network at genesis, and the messages of the first block of each of its parachains."""

    def __init__(self, messages: int, parachains: int, payload_bytes: int) -> None:
        self.kernel = IcmpKernel(_topology(parachains), Programs(_topology(parachains)))
        everything = np.arange(parachains + 1, dtype=np.uint32)
        made: RoundResult[State] = self.kernel.genesis(everything)
        self.state, self.chains = made.state, everything[1:]
        draws = np.random.default_rng(1)
        source = draws.integers(0, parachains, messages)
        to = (source + draws.integers(1, parachains, messages)) % parachains
        row = draws.integers(0, PROGRAMS, (2, messages))
        self.messages = blank_messages(
            messages,
            kind=1,
            sender=(source * PROGRAMS + row[0]).astype(np.uint64),
            receiver=(to * PROGRAMS + row[1]).astype(np.uint64),
            callback=np.arange(messages, dtype=np.uint64),
            method="call",
            payload=pa.array([draws.bytes(payload_bytes) for _ in range(messages)], pa.binary()),
        )

    def run(self) -> dict[str, float]:
        """Return the seconds of each step; whatever is wrong with it raises."""
        clock, log, tick = _Clock(), EventLog(), Tick(1, 0)
        active = Frame({"leaf": np.zeros(len(self.chains), dtype=np.uint8), "para": self.chains}, len(self.chains))
        context = self.kernel.context(self.chains, active, tick)
        bases = self._bases(self.state, tick)
        nobody = self.messages.slice(0, 0).select(MESSAGE_COLUMNS).with_columns(chain=np.empty(0, dtype=np.uint32))
        state, outbound = send_egress(self.state, self.messages, nobody, bases, context, log)
        state = self._committed(state, bases, _NONE, tick)
        clock.stop(STEPS[0])
        state, (leaf,), tries = leaves_to_build_on(state, ALONE, tick.tick, tick.height)
        leaf = self._included(state, leaf, tries, tick)
        # A block lists what blocks before it posted: the next one, without receipts.
        leaf = self._included(state, leaf, tries, Tick(2, 1))
        assert len(leaf.unrouted) == len(state["egress"])
        clock.stop(STEPS[1])
        bases = self._bases(store_leaves(state, [leaf]), Tick(3, 2))
        listed = list_ingress(leaf.unrouted, leaf.number, self.kernel.options)
        entries = locate_bodies(listed, state["runs"])
        entries, bodies = verify_bodies(entries, outbound, log)
        assert len(bodies) == len(self.messages)
        clock.stop(STEPS[2])
        state = self._committed(advance_cursors(state, entries, bases), bases, entries, Tick(3, 2))
        leaf = self._included(state, leaf, tries, Tick(4, 3))
        assert len(leaf.unrouted) == 0
        clock.stop(STEPS[3])
        return clock.seconds

    def _committed(self, state: State, bases: Frame, entries: Frame, tick: Tick) -> State:
        """Return the state after a block of every parachain, which consumes ``entries``."""
        owners = {name: frame[self.kernel.tables()[name].owner] for name, frame in state.frames().items()}
        return commit_parachains(state, bases, entries, owners, tick.height)[0]

    def _included(self, state: State, leaf: RelayLeaf, tries: LeafTries, tick: Tick) -> RelayLeaf:
        """Return the leaf after the relay block that includes the receipts of all parachains."""
        receipts = available_receipts(View({name: state[name] for name in ("candidates", "egress")}, _NONE), leaf)
        included = include(leaf, receipts, [], tick.tick, self.kernel.options)
        assert (included.codes == Inclusion.OK).all()
        heads = [head.tobytes() for head in receipts.rows["head"]]
        return commit_relay(leaf, included.leaf, 0, tries, heads, tick.tick)[0]

    def _bases(self, state: State, tick: Tick) -> Frame:
        view = View({name: state[name] for name in ("blocks", "paras", "partings")}, _NONE)
        interference: RelayInterference = self.kernel.interference
        return chain_positions(state["tips"], state["returns"], view, interference, tick.tick).rows


_NONE = empty_frame(pa.schema([("to", pa.uint32()), ("number", pa.uint64()), ("hash", pa.binary(32))]))


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.perf_counter()

    def stop(self, step: str) -> None:
        now = time.perf_counter()
        self.seconds[step], self._began = now - self._began, now


def _topology(parachains: int) -> Topology:
    names = [f"para-{number}" for number in range(parachains)]
    chains = pa.table({"number": pa.array(range(parachains), pa.uint64()), "name": names}, schema=CHAINS_SCHEMA)
    rows = [
        (chain * PROGRAMS + place, f"p{chain}-{place}", chain, None, "{}", Decimal(0))
        for chain in range(parachains)
        for place in range(PROGRAMS)
    ]
    records = [dict(zip(PROGRAMS_SCHEMA.names, row, strict=True)) for row in rows]
    return add_relay_chain(Topology(chains, pa.Table.from_pylist(records, schema=PROGRAMS_SCHEMA)))
