"""The state machine of a relay chain and its parachains with egress queues (ICMP).

``IcmpKernel`` implements the kernel contract: one call makes one block of any set of chains. ``plan`` determines the
leaf of each parachain and the bodies that it may consume. ``round`` makes a block on each leaf of the relay chain and a
block of each busy parachain.

Reference: ICMP, sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
from causeway_proofs.order import stable_order

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import REVERTED, REVERTED_SCHEMA
from causeway.protocols.contract import (
    HEADERS_SCHEMA,
    Chains,
    Inputs,
    Plan,
    Reads,
    RoundResult,
    StateTable,
    Tick,
    View,
    earliest,
    idle_limit_tick,
)
from causeway.protocols.icmp.bodies import body_arrivals, body_ranges, drop_bodies, find_finished_bodies
from causeway.protocols.icmp.faults import (
    add_forged_receipts,
    available_receipts,
    log_refused,
    validate_forged_consumption,
    validate_forged_roots,
)
from causeway.protocols.icmp.forks import (
    ChainPositions,
    RelayInterference,
    apply_returns,
    chain_positions,
    leaves_to_build_on,
    partition_users,
    recalled_heights,
    reverted_rows,
)
from causeway.protocols.relay_chain.block import (
    chains_to_change,
    complete_prefix,
    list_ingress,
    local_ranges,
    locate_bodies,
    pool_messages,
    process_block,
    refuse_stranded,
    verify_bodies,
)
from causeway.protocols.relay_chain.commitment import (
    LeafTries,
    commit_parachains,
    commit_relay,
    genesis_hash,
    para_roots,
)
from causeway.protocols.relay_chain.errors import Inclusion
from causeway.protocols.relay_chain.options import NEVER, RELAY_POSITION
from causeway.protocols.relay_chain.parachains import Context, ParachainKernel, PlannedParachainCalls, table_owners
from causeway.protocols.relay_chain.runtime import include
from causeway.protocols.relay_chain.state import (
    BLOCKS_SCHEMA,
    PARAS_SCHEMA,
    STATE_TABLES,
    TIPS_SCHEMA,
    State,
    read_leaves,
    store_leaves,
)
from causeway.protocols.shared.digests import digests
from causeway.protocols.shared.events import LEDGER_LOGS, EventLog
from causeway.protocols.shared.limits import check_faults
from causeway.protocols.shared.messages import OUTBOUND_SCHEMA, oldest_height
from causeway.protocols.shared.state_tables import TrieCache, blank_rows, change_programs, merge_states, select_chains


@dataclass(frozen=True)
class IcmpPlan:
    """The input of a block: chain positions, offered queues, bodies to drop.

    Attributes:
        running: Positions of the chains that are not halted.
        view: Tables that chains published at the previous height.
        standing: Leaf, last block and rollback height of each parachain.
        bases: Parachains that may make a block, with the blocks that they build on.
        listed: ``ingress(B, p)`` of these parachains.
        entries: Queues of ``listed`` with available bodies, up to the first gap.
        active: Registered parachains at each leaf (``leaf``, ``para``).
        consumed: Consumed queues that senders drop (rows of ``runs``).
        gone: Queues without a recipient that senders drop (rows of ``runs``, with ``why``).
        coming: Last tick with a pending body, 0 if there is none.
    """

    running: Chains
    view: View
    standing: ChainPositions
    bases: Frame
    listed: Frame
    entries: Frame
    active: Frame
    consumed: Frame
    gone: Frame
    coming: int


@dataclass(frozen=True)
class IcmpKernel(ParachainKernel):
    """The state machine of a relay chain and its parachains with egress queues."""

    logs: ClassVar[Mapping[str, pa.Schema]] = {**LEDGER_LOGS, REVERTED: REVERTED_SCHEMA}
    own_tables: ClassVar[Mapping[str, StateTable]] = STATE_TABLES

    def __post_init__(self) -> None:
        """Validate planned calls and forks.

        Raises:
            InvalidInput: A call or fork does not fit the network.
        """
        check_faults(self.faults.rows)
        self.interference.check(self.options, self.network.names[RELAY_POSITION])
        assert self.planned is not None

    @property
    def past_heights(self) -> int:
        """Return the maximum depth (heights) of a rollback."""
        return self.retained_heights

    @cached_property
    def retained_heights(self) -> int:
        """Return the maximum depth (heights) of a rollback, 0 if none can occur."""
        return self.interference.reach if self.interference.has_forks or self.planned.changes_parachains else 0

    @cached_property
    def planned(self) -> PlannedParachainCalls:
        """Return the planned calls."""
        return PlannedParachainCalls(self.options, self.network)

    @cached_property
    def interference(self) -> RelayInterference:
        """Return the scenario's faults."""
        return RelayInterference(self.faults, self.network.numbers, self.seed)

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state at height 0, with all watermarks at genesis (D-3).

        Parachains with a later registration are not registered.

        Args:
            chains: Positions of the chains, ascending.
            coming: Ignored; part of the kernel contract.
        """
        tables: dict[str, Frame] = {}
        names = self.network.names
        relay = genesis_hash(names[RELAY_POSITION])
        paras = np.array([para for para in range(1, len(names)) if para not in self.planned.late], dtype=np.uint32)
        if RELAY_POSITION in chains:
            tables["blocks"] = blank_rows(BLOCKS_SCHEMA, 1, hash=digests([relay]))
            heads = digests([genesis_hash(names[para]) for para in paras.tolist()])
            active = np.ones(len(paras), dtype=np.uint8)
            hashes = {"head": heads, "watermark_hash": digests([relay] * len(paras))}
            tables["paras"] = blank_rows(PARAS_SCHEMA, len(paras), para=paras, active=active, **hashes)
        local = chains[chains != RELAY_POSITION]
        heads = digests([genesis_hash(names[para]) for para in local.tolist()])
        tables["tips"] = blank_rows(TIPS_SCHEMA, len(local), chain=local, head=heads)
        return self.complete_genesis(chains, tables, {REVERTED: empty_frame(REVERTED_SCHEMA)})

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Compute the storage root of each chain; the relay chain has one a leaf.

        Args:
            state: State of ``chains``.
            chains: Positions of the chains, ascending.
            tick: Height and tick of the state.
            committed: Ignored; part of the kernel contract.

        Returns:
            ``chain``, ``root``.
        """
        paras = chains[chains != RELAY_POSITION]
        found = Frame({"chain": paras, "root": para_roots(state, paras, table_owners(self, state, tick))}, len(paras))
        if len(paras) == len(chains):
            return found
        roots = LeafTries.of(read_leaves(state.tables)).roots()
        relay = Frame({"chain": np.full(len(roots), RELAY_POSITION, dtype=np.uint32), "root": roots}, len(roots))
        return concat([relay, found])

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[IcmpPlan]:
        """Determine the position of each chain and the queues that its next block may consume.

        Args:
            state: State of ``chains`` before the block.
            chains: Positions of the chains, ascending.
            view: Tables that chains published at the previous height.
            ingress: Messages from users.
            carried: Ignored; part of the kernel contract.
            tick: Height and tick of the block.

        Returns:
            The ranges and snapshots to read, and the input of ``round``.
        """
        running = self.interference.running(chains, tick.tick)
        standing = chain_positions(state["tips"], state["returns"], view, self.interference, tick.tick)
        consumed, dropped = find_finished_bodies(state, view, standing)
        bases = _select_bases(standing, running, dropped)
        listed, entries, coming = self._offered(bases, view, tick)
        reads = Reads(
            offered=concat([body_ranges(entries), local_ranges(state, bases["chain"])]),
            own=body_ranges(dropped),
            past=standing.rollbacks,
            ingress=recalled_heights(standing.rollbacks, tick.height),
        )
        paras = view.tables["paras"]
        active = paras.filter(paras["active"] == 1).select(("leaf", "para"))
        content = IcmpPlan(running, view, standing, bases, listed, entries, active, consumed, dropped, coming)
        return Plan(reads, content, EventLog().logs()["events"])

    def _offered(self, bases: Frame, view: View, tick: Tick) -> tuple[Frame, Frame, int]:
        """Return the listed and the available ingress, and the last tick with a pending body.

        The tick is 0 if no body is pending.
        """
        unrouted, blocks = view.tables["unrouted"], view.tables["blocks"]
        row = lookup_rows(bases, Frame({"chain": unrouted["to"]}, len(unrouted)), ("chain",))
        on_leaf = row >= 0
        on_leaf[on_leaf] = bases["leaf"][row[on_leaf]] == unrouted["leaf"][on_leaf]
        leaves = zip(blocks["leaf"], blocks["number"].tolist(), strict=True)
        lists = [
            list_ingress(unrouted.filter(on_leaf & (unrouted["leaf"] == leaf)), now, self.options)
            for leaf, now in leaves
        ]
        listed = lists[0] if len(lists) == 1 else concat(lists)
        listed = listed if len(lists) == 1 else listed.take(stable_order(listed["to"]))
        arrivals = body_arrivals(listed, self.seed, self.tick_ns, self.options)
        segments = view.tables["runs"]
        segments = segments.filter(segments["source"] != segments["destination"])
        entries = locate_bodies(listed, segments)
        available = (arrivals < tick.tick) & (entries["count"] > 0)
        available &= self.interference.fetched(listed, tick.tick)
        coming = int(arrivals[(arrivals >= tick.tick) & (arrivals < NEVER)].max(initial=-1)) + 1
        return listed.with_columns(held=available), complete_prefix(entries, ~available), coming

    def round(
        self, state: State, chains: Chains, plan: Plan[IcmpPlan], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Make a block on each leaf of the relay chain and of each busy parachain.

        A parachain makes no block before its last one is included, nor while it rolls back.

        Args:
            state: State of ``chains`` before the block.
            chains: Positions of the chains, ascending.
            plan: Result of ``plan``.
            inputs: Messages and snapshots that the plan requested.
            tick: Height and tick of the block.

        Returns:
            The new state, outbound messages, logs and headers.
        """
        log, content = EventLog(), plan.content
        context = self.context(chains, content.active, tick)
        rollbacks = content.standing.rollbacks
        to_reverted, ingress = partition_users(inputs.ingress, self.network.numbers[rollbacks["chain"]])
        state = pool_messages(ingress, state, context, log)
        state = refuse_stranded(state, self.interference.permanently_halted(tick.tick), log)
        state = drop_bodies(state, content.consumed, content.gone, inputs.own, log)
        headers, paras = [empty_frame(HEADERS_SCHEMA)], state["paras"]
        if RELAY_POSITION in content.running:
            state, relay_headers = self._relay_block(state, content, tick, log)
            headers.append(relay_headers)
        relay_moved = state["paras"] is not paras
        state, outbound, para_headers = self._busy_para_blocks(state, content, inputs, context, tick, log)
        headers.append(para_headers)
        if len(rollbacks):
            state = self._roll_back(state, rollbacks, inputs, to_reverted, context, log)
        joined = concat(headers)
        joined = joined.take(np.argsort(joined["chain"], kind="stable"))
        moved = bool(len(para_headers)) or relay_moved or bool(len(rollbacks))
        logs = {**log.logs(), REVERTED: reverted_rows(rollbacks, tick.height)}
        settled = max(self.interference.last_change, self.planned.last_tick, content.coming)
        wake, end = self._wake(state, content, moved, tick), idle_limit_tick(tick, settled=settled)
        return RoundResult(state, outbound, logs, joined, wake, oldest_height(state["runs"]), end)

    def _relay_block(self, state: State, content: IcmpPlan, tick: Tick, log: EventLog) -> tuple[State, Frame]:
        """Make a block on each leaf of the relay chain that does not rest."""
        stage = self.interference.leaves.at(tick.tick)
        state, leaves, tries = leaves_to_build_on(state, stage, tick.tick, tick.height)
        stored, headers, resting = [], [empty_frame(HEADERS_SCHEMA)], stage.rest(tick.tick)
        for position, leaf in enumerate(leaves):
            if int(leaf.blocks["leaf"][0]) in resting:
                stored.append(leaf)
                continue
            calls = self.planned.between(int(leaf.blocks["next_tick"][0]), tick.tick)
            receipts = add_forged_receipts(available_receipts(content.view, leaf), leaf, self.interference, tick.tick)
            included = include(leaf, receipts, calls, tick.tick, self.options, alone=len(leaves) == 1)
            log_refused(receipts.rows, included.codes, log)
            heads = [head.tobytes() for head in receipts.rows["head"][included.codes == Inclusion.OK]]
            leaf, header = commit_relay(leaf, included.leaf, position, tries, heads, tick.tick)
            stored.append(leaf)
            headers.append(header)
        state = store_leaves(state, stored)
        return State(state.tables, state.programs, TrieCache(tries)), concat(headers)

    def _busy_para_blocks(
        self, state: State, content: IcmpPlan, inputs: Inputs[State], context: Context, tick: Tick, log: EventLog
    ) -> tuple[State, Frame, Frame]:
        """Make a block of each parachain with messages or changed programs."""
        is_local = inputs.offered["source"] == inputs.offered["destination"]
        local = inputs.offered.filter(is_local)
        entries, bodies = verify_bodies(content.entries, inputs.offered.filter(~is_local), log)
        faults, listed = self.interference, content.listed
        validate_forged_consumption(content.bases, listed, entries, faults, tick.tick, self.options, log)
        busy = [entries["to"], local["destination"], state["pool"]["chain"], chains_to_change(state, context)]
        bases = content.bases.filter(np.isin(content.bases["chain"], np.concatenate(busy)))
        if len(bases) == 0:
            return state, empty_frame(OUTBOUND_SCHEMA), empty_frame(HEADERS_SCHEMA)
        return self._para_blocks(state, bases, entries, bodies, local, content, tick, log)

    def _para_blocks(
        self,
        state: State,
        bases: Frame,
        entries: Frame,
        bodies: Frame,
        local: Frame,
        content: IcmpPlan,
        tick: Tick,
        log: EventLog,
    ) -> tuple[State, Frame, Frame]:
        """Make and commit a block of each parachain of ``bases``."""
        context = self.context(bases["chain"], content.active, tick)
        cache = state.kept
        state = change_programs(state, context.network, context.programs, context.chains)
        state, outbound = process_block(state, entries, bodies, local, bases, context, log)
        state, headers = commit_parachains(state, bases, entries, table_owners(self, state, tick), tick.height)
        validate_forged_roots(bases["chain"], state["egress"], self.interference, tick.tick, log)
        return State(state.tables, state.programs, cache), outbound, headers

    def _roll_back(
        self, state: State, rollbacks: Frame, inputs: Inputs[State], now: pa.Table, context: Context, log: EventLog
    ) -> State:
        """Restore rolled-back parachains; ``now``: messages from users of this tick."""
        others = np.setdiff1d(context.chains, rollbacks["chain"])
        states = [select_chains(self, state, others, context.tick)]
        for height in np.unique(rollbacks["height"]).tolist():
            reverted = rollbacks["chain"][rollbacks["height"] == height]
            states.append(select_chains(self, inputs.past[height], reverted, context.tick))
        joined = merge_states(self, states)
        reach = self.interference.reach
        joined = joined.with_tables(returns=apply_returns(joined["returns"], rollbacks, context.height, reach))
        joined = pool_messages(pa.concat_tables([inputs.again, now]), joined, context, log)
        return State(joined.tables, joined.programs, state.kept)

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick with a planned event, or None.

        Args:
            tick: First tick to consider.
        """
        return earliest(self.interference.next_planned(tick), self.planned.next_tick(tick))

    def _wake(self, state: State, content: IcmpPlan, moved: bool, tick: Tick) -> int | None:
        """Return the next tick with pending work, or None."""
        queues = state["queues"]
        waits = bool(np.isin(state["pool"]["chain"], content.active["para"]).any()) or len(state["unrouted"])
        waits = waits or bool((queues["next_index"] > queues["begin"]).any())
        return tick.tick + 1 if waits or moved or len(content.entries) else self.next_planned(tick.tick + 1)


def _select_bases(standing: ChainPositions, running: Chains, dropped: Frame) -> Frame:
    """Select the parachains that may make a block (rows of ``standing``).

    A sender of dropped queues makes none: a rollback to before its block must not restore their bodies.
    """
    rows = standing.rows
    reverted = np.isin(rows["chain"], standing.rollbacks["chain"])
    drops = np.isin(rows["chain"], dropped["source"])
    return rows.filter(rows["included"] & rows["registered"] & np.isin(rows["chain"], running) & ~reverted & ~drops)
