"""Subspace cross-domain messaging behind the kernel contract: one block of any set of chains as a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.faults import Faults
from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.order import U64
from causeway.model.topology import Topology
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.substrate import EMPTY_ROOT, ordered_root, prove_storage
from causeway.proofs.xdm import receipt_storage_key
from causeway.protocols.contract import (
    HEADERS_SCHEMA,
    RANGES_SCHEMA,
    Chains,
    Hosts,
    Inputs,
    Plan,
    Reads,
    RoundResult,
    StateTable,
    Tick,
    View,
)
from causeway.protocols.events import LEDGER_LOGS, EventLog
from causeway.protocols.execution import ProgramRunner
from causeway.protocols.interference import Interference
from causeway.protocols.messages import OUTBOUND_SCHEMA
from causeway.protocols.partition import part
from causeway.protocols.segments import located, oldest
from causeway.protocols.waking import earliest, gives_up
from causeway.protocols.xdm.block import process_block
from causeway.protocols.xdm.chain_tries import ChainTries
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, Network
from causeway.protocols.xdm.consensus import (
    TAKEN_SCHEMA,
    Ranges,
    add_block,
    anchor_number,
    block_hash,
    confirm,
    digests,
    due_heights,
    receipts,
)
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.genesis import genesis_tables
from causeway.protocols.xdm.money import Money
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.proof_lists import encode_lists
from causeway.protocols.xdm.relay import next_move, provable_number, prove
from causeway.protocols.xdm.state import (
    ANCHOR_SCHEMA,
    ANCHORED_SCHEMA,
    HISTORY_SCHEMA,
    TIPS_SCHEMA,
    KeptTries,
    State,
    state_of_frames,
    state_tables,
)
from causeway.protocols.xdm.storage import STORAGE_SCHEMA, changes
from causeway.protocols.xdm.validate import Brought


@dataclass(frozen=True)
class XdmPlan:
    """What a round of the chains begins with: what is brought to them, and the blocks that they prove under now."""

    brought: Brought
    view: View
    provable: Mapping[int, int]
    due: int | None
    rebuilt: Mapping[int, int]


@dataclass(frozen=True)
class XdmKernel:
    """The state machine of a consensus chain and its domains.

    ``programs``: what runs on the chains; ``faults``: what goes wrong on purpose.
    """

    topology: Topology
    programs: ProgramRunner
    options: XdmOptions = field(default_factory=XdmOptions)
    seed: int = 0
    tick_ns: int = 1_000_000_000
    faults: Faults = field(default_factory=Faults)

    name: ClassVar[str] = "xdm"
    outbound: ClassVar[pa.Schema] = OUTBOUND_SCHEMA
    logs: ClassVar[Mapping[str, pa.Schema]] = {**LEDGER_LOGS, "storage": STORAGE_SCHEMA, "receipts": TAKEN_SCHEMA}
    header_heights: ClassVar[int] = 1
    past_heights: ClassVar[int] = 2**31

    @cached_property
    def network(self) -> Network:
        """Return the fixed parts of the network."""
        return Network(self.topology)

    @cached_property
    def interference(self) -> Interference:
        """Return the scenario's faults."""
        return Interference(self.faults, self.network.numbers, self.seed)

    def context(self, chains: Chains, tick: Tick) -> Context:
        """Return what a block of ``chains`` at ``tick`` may know."""
        return Context(tick.height, tick.tick, self.seed, chains, self.network, self.options, self.programs)

    def chains(self) -> Sequence[str]:
        """Return the chains' names by position."""
        return self.network.names

    def numbers(self) -> U64:
        """Return the chains' numbers in the topology by position."""
        return self.network.numbers

    def weights(self) -> npt.NDArray[np.float64]:
        """Return how much work each chain is: one more than it has programs."""
        hosts = self.network.host_of(self.network.programs)
        return np.bincount(hosts[hosts >= 0], minlength=len(self.network.names)).astype(np.float64) + 1

    def tables(self) -> Mapping[str, StateTable]:
        """Return every table that a state has, those of the programs in use included, by name."""
        return state_tables(self.programs.schemas())

    def registry_version(self, tick: int) -> int:
        """Return 0: programs stay on their chains."""
        return 0

    def hosts(self, programs: U64, tick: int) -> Hosts:
        """Return the chain of each program, at any tick."""
        return self.network.host_of(programs)

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Return the state that has these tables; one that is absent is empty."""
        return state_of_frames(frames, self.programs.schemas())

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state of ``chains`` at height 0, in which the channels between all that host programs are open."""
        own = self.network.programs[np.isin(self.network.host_of(self.network.programs), chains.astype(np.int32))]
        accounts, programs = self.programs.genesis(own[self.programs.installed(own)])
        context = replace(self.context(chains, Tick(0, -1)), height=0)
        state = replace(self.state(genesis_tables(chains, accounts, context)), programs=programs)
        return self._committed(None, state, None, empty_frame(OUTBOUND_SCHEMA), {}, context, coming)

    def committed(self, state: State) -> Frame:
        """Return no entries: all that is committed to is in tables."""
        return empty_frame(RANGES_SCHEMA)

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each chain's storage (``chain``, ``root``)."""
        if len(chains) == 0:
            return empty_frame(HEADERS_SCHEMA).select(["chain", "root"])
        tries = ChainTries.of(chains)
        tries.change(changes(None, state, self.context(chains, tick)))
        return Frame({"chain": chains, "root": tries.roots(chains)}, len(chains))

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[XdmPlan]:
        """Let operators look at what is proved to their chains, and say under which blocks they prove now."""
        context = self.context(chains, tick)
        provable, due, rows, past = {}, None, {}, []
        history = state["history"]
        heights = {
            (chain, number): height
            for chain, number, height in zip(*(history[name].tolist() for name in HISTORY_SCHEMA.names), strict=True)
        }
        tries = cast("ChainTries | None", state.kept.tries)
        rebuilt: dict[int, int] = {}
        spans = []
        for chain in chains.tolist():
            number = self._next_provable(chain, view, state, context)
            if number is None:
                continue
            known = -1 if tries is None else tries.number[chain]
            provable[chain] = number
            if tries is None or known < 0:
                rebuilt[chain] = heights[(chain, number)]
                past.append((chain, heights[(chain, number)]))
            elif number > known:
                spans.append((chain, heights[(chain, known)] + 1, heights[(chain, number)]))
        if spans:
            rows["storage"] = _heights(spans)
        if context.has_consensus:
            due, taken = due_heights(state, context)
            rows["receipts"] = _heights([(CONSENSUS_POSITION, first, last) for first, last in taken])
        brought = Brought(*(view.tables[name] for name in ("envelopes", "nodes", "bases")))
        queues = state["queues"]
        local = queues.filter(queues["next_index"] > queues["begin"])
        ranges = local.with_columns(end=local["next_index"])
        columns = np.array(past, dtype=np.int64).reshape(-1, 2)
        wanted = Frame({"chain": columns[:, 0].astype(np.uint32), "height": columns[:, 1].astype(np.uint64)}, len(past))
        reads = Reads(offered=located(ranges, state["runs"]), rows=rows, past=wanted)
        return Plan(reads, XdmPlan(brought, view, provable, due, rebuilt), EventLog().logs()["events"])

    def _next_provable(self, chain: int, view: View, state: State, context: Context) -> int | None:
        """Return the number of the block under which a chain's operators prove in this round; of the consensus chain
        that which it shows from now on."""
        if chain != CONSENSUS_POSITION:
            return provable_number(chain, view)
        found = anchor_number(state["blocks"], context.number, self.options.archiving_depth)
        return None if found is None else int(state["blocks"]["number"][found[1]])

    def round(
        self, state: State, chains: Chains, plan: Plan[XdmPlan], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Run one block of ``chains`` and commit their storage."""
        log, content = EventLog(), plan.content
        context = self.context(chains, tick)
        if len(chains) == 0:
            return RoundResult(state, empty_frame(OUTBOUND_SCHEMA), log.logs(), empty_frame(HEADERS_SCHEMA))
        before, tables = state, dict[str, Frame]()
        if context.has_consensus:
            tables["receipts"], known = receipts(content.view, state, context)
            assert content.due is not None
            state, _ = confirm(state.with_tables(receipted=known), inputs.rows["receipts"], content.due)
        tries = self._tries(before, chains, content, inputs, context)
        money = Money(state)
        state, outbound = process_block(
            state, content.brought, content.view.tables["blocks"], inputs, money, context, log
        )
        proved = prove(state, tries, content.view, context)
        state = state.with_tables(**proved.tables)
        return self._committed(
            before, state, tries, outbound, {**log.logs(), **tables}, context, None, tick, content.view, proved.more
        )

    def _tries(
        self, state: State, chains: Chains, plan: XdmPlan, inputs: Inputs[State], context: Context
    ) -> ChainTries:
        """Return the tries of chains, those that operators prove under moved on to what is provable now."""
        tries = cast("ChainTries | None", state.kept.tries)
        if tries is None:
            tries = ChainTries.of(chains)
            tries.change(changes(None, state, context))
        for chain, height in plan.rebuilt.items():
            past = inputs.past[height]
            one = replace(context, chains=np.array([chain], dtype=np.uint32))
            tries.move(changes(None, self._only(past, chain), one), {})
        if "storage" in inputs.rows:
            tries.move(inputs.rows["storage"], {})
        tries.number |= plan.provable
        return tries

    def _only(self, state: State, chain: int) -> State:
        """Return the rows of a state that are one chain's."""
        return part(self, state, np.array([chain], dtype=np.uint32), 0)

    def _committed(
        self,
        before: State | None,
        state: State,
        tries: ChainTries | None,
        outbound: Frame,
        logs: Mapping[str, Frame],
        context: Context,
        coming: int | None,
        tick: Tick | None = None,
        view: View | None = None,
        more: bool = False,
    ) -> RoundResult[State]:
        """Commit a block: storage, headers, the consensus chain's block and what operators prove under from now on."""
        chains = context.chains
        storage = changes(before, state, context)
        tries = ChainTries.of(chains) if tries is None else tries
        tries.change(storage)
        roots = tries.roots(chains)
        number = context.number
        parents = _parents(before, chains)
        extrinsics = _extrinsics(outbound, logs, chains)
        own = [
            block_hash(parent, number, root.tobytes(), extrinsic)
            for parent, root, extrinsic in zip(parents, roots, extrinsics, strict=True)
        ]
        consensus = _consensus_tip(view)
        count = len(chains)
        tips = Frame(
            {
                "chain": chains,
                "number": np.full(count, number, dtype=np.uint64),
                "hash": digests(own),
                "extrinsics_root": digests(extrinsics),
                "consensus_number": np.full(count, consensus[0], dtype=np.uint64),
                "consensus_hash": digests([consensus[1]] * count),
            },
            count,
        )
        state = state.with_tables(tips=tips.select(TIPS_SCHEMA.names))
        if context.has_consensus:
            ranges = None if before is None else Ranges.of(before)
            state = add_block(state, ranges, roots[0].tobytes(), extrinsics[0], parents[0], context)
            state = self._anchored(state, tries, context)
        state = state.with_tables(history=_history(state, tries, context))
        headers = Frame(
            {
                "chain": chains,
                "number": np.full(count, number, dtype=np.uint64),
                "hash": pa.array(own, pa.binary()),
                "parent": pa.array(parents, pa.binary()),
                "root": roots,
                "certification": pa.array([b""] * count, pa.binary()),
            },
            count,
        )
        state = replace(state, kept=KeptTries(tries))
        wake, end = None, None
        if tick is not None:
            wake = self._wake(state, context, tick, more)
            end = gives_up(tick, settled=self.interference.last_change, idle_limit=self._idle_limit())
        elif coming is not None:
            wake = None
        all_logs = {**EventLog().logs(), **logs, "storage": storage}
        all_logs.setdefault("receipts", empty_frame(TAKEN_SCHEMA))
        return RoundResult(state, outbound, all_logs, headers, wake, oldest(state["runs"]), end)

    def _idle_limit(self) -> int:
        return 1_000 + 2 * (self.options.archiving_depth + self.options.challenge_period)

    def _wake(self, state: State, context: Context, tick: Tick, more: bool) -> int | None:
        """Return the next tick at which something happens of itself."""
        planned = self.interference.next_planned(tick.tick + 1)
        queues = state["queues"]
        if more or bool((queues["next_index"] > queues["begin"]).any()) or len(state["envelopes"]):
            return tick.tick + 1
        return earliest(planned, next_move(state, context))

    def _anchored(self, state: State, tries: ChainTries, context: Context) -> State:
        """Return the state with what operators prove under from the next block on (X-5)."""
        found = anchor_number(state["blocks"], context.number, self.options.archiving_depth)
        if found is None:
            return state
        final, at = found
        ranges = Ranges.of(state)
        blocks = ranges.blocks
        leaf_index = int(blocks["leaf_count"][at])
        final_leaves, best_leaves = int(blocks["leaf_count"][final]), int(blocks["leaf_count"][-1])
        anchor = Frame(
            {
                "chain": np.zeros(1, dtype=np.uint32),
                "number": blocks["number"][at : at + 1],
                "best": blocks["number"][-1:],
                "final": blocks["number"][final : final + 1],
                "block_hash": blocks["hash"][final : final + 1],
                "leaf": pa.array([ranges.leaves[at].as_py()], pa.binary()),
                "leaf_index": np.array([leaf_index], dtype=np.uint64),
                "best_hash": blocks["hash"][-1:],
                "best_leaves": np.array([best_leaves], dtype=np.uint64),
                "best_items": pa.array([b"".join(ranges.window.prove(leaf_index, best_leaves).items)], pa.binary()),
                "final_leaves": np.array([final_leaves], dtype=np.uint64),
                "final_items": pa.array([b"".join(ranges.window.prove(leaf_index, final_leaves).items)], pa.binary()),
            },
            1,
        )
        domains = list(range(1, len(self.network.names)))
        keys = [receipt_storage_key(domain - 1) for domain in domains]
        trie = tries.provable[CONSENSUS_POSITION]
        held = tries.tries.get(np.full(len(keys), trie, dtype=np.int64), keys)
        there = [domain for domain, value in zip(domains, held.is_valid().to_pylist(), strict=True) if value]
        shown = [keys[domain - 1] for domain in there]
        proofs = prove_storage(tries.tries, np.full(len(shown), trie, dtype=np.int64), shown)
        numbers = [int.from_bytes(held[domain - 1].as_py()[1:5], "little") for domain in there]
        anchored = Frame(
            {
                "chain": np.zeros(len(there), dtype=np.uint32),
                "domain": np.array(there, dtype=np.uint32),
                "number": np.array(numbers, dtype=np.uint64),
                "domain_proof": encode_lists([proofs.nodes_of(row) for row in range(len(there))]).cast(pa.binary()),
            },
            len(there),
        )
        return state.with_tables(
            anchor=anchor.select(ANCHOR_SCHEMA.names), anchored=anchored.select(ANCHORED_SCHEMA.names)
        )


def _heights(spans: Sequence[tuple[int, int, int]]) -> Frame:
    columns = np.array(spans, dtype=np.int64).reshape(-1, 3)
    frame = {"chain": columns[:, 0].astype(np.uint32), "first": columns[:, 1].astype(np.uint64)}
    return Frame({**frame, "last": columns[:, 2].astype(np.uint64)}, len(spans))


def _parents(before: State | None, chains: Chains) -> list[bytes]:
    if before is None:
        return [bytes(DIGEST_BYTES)] * len(chains)
    known = dict(zip(before["tips"]["chain"].tolist(), before["tips"]["hash"], strict=True))
    return [known[chain].tobytes() for chain in chains.tolist()]


def _consensus_tip(view: View | None) -> tuple[int, bytes]:
    if view is None:
        return 0, bytes(DIGEST_BYTES)
    blocks = view.tables["blocks"]
    return int(blocks["number"][-1]), blocks["hash"][-1].tobytes()


def _extrinsics(outbound: Frame, logs: Mapping[str, Frame], chains: Chains) -> list[bytes]:
    """Return the root of what each chain's block has taken in: the receipts on the consensus chain."""
    found = [EMPTY_ROOT] * len(chains)
    taken = logs.get("receipts")
    if taken is not None and len(taken) and len(chains) and int(chains[0]) == CONSENSUS_POSITION:
        found[0] = ordered_root(taken["receipt"].to_pylist())
    return found


def _history(state: State, tries: ChainTries, context: Context) -> Frame:
    """Return the blocks of which the storage changes, or the receipts, are still wanted, and this one."""
    history = state["history"]
    count = len(context.chains)
    added = Frame(
        {
            "chain": context.chains,
            "number": np.full(count, context.number, dtype=np.uint64),
            "height": np.full(count, context.height, dtype=np.uint64),
        },
        count,
    )
    least = np.zeros(len(context.network.names), dtype=np.int64)
    for chain in context.chains.tolist():
        least[chain] = tries.number[chain]
    if context.has_consensus:
        least[CONSENSUS_POSITION] = min(least[CONSENSUS_POSITION], int(state["range"]["confirmed_to"][0]) + 1)
    kept = history.filter(history["number"].astype(np.int64) >= least[history["chain"]])
    joined = concat([kept, added]).select(HISTORY_SCHEMA.names)
    return joined.take(np.lexsort((joined["number"], joined["chain"])))
