"""The state machine of a relay chain and its parachains with HRMP channels.

``HrmpKernel`` implements the kernel contract: one call makes one block of any set of chains. ``plan`` reads the
channels of each parachain from the relay chain's state. ``round`` makes the relay block and a block of each busy
parachain.

Reference: ICMP, X-6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import stable_order

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import VALUE_SCHEMA, Event
from causeway.protocols.contract import (
    HEADERS_SCHEMA,
    QUIET_TICKS,
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
from causeway.protocols.hrmp import acceptance
from causeway.protocols.hrmp.channels import (
    apply_membership_calls,
    genesis_value_rows,
    new_session,
    present_parachains,
    usable_channels,
)
from causeway.protocols.hrmp.commitment import commit_parachain_blocks, commit_relay_block, relay_trie
from causeway.protocols.hrmp.errors import ReceiptError, UpwardCallError
from causeway.protocols.hrmp.faults import CONSUMED, HrmpInterference, forge_receipt, mismatched_chains
from causeway.protocols.hrmp.inbound import InboundMessages, RelayChainView, read_relay_chain, receive_messages
from causeway.protocols.hrmp.pages import (
    add_to_pages,
    drop_consumed,
    drop_lost,
    lost_lanes,
    page_bodies,
    page_entries,
    take_outbound,
)
from causeway.protocols.hrmp.requests import PlannedHrmpCalls, collect_calls
from causeway.protocols.hrmp.state import (
    ALL_TABLES,
    BLOCKS_SCHEMA,
    PARAS_SCHEMA,
    SECTIONS,
    SOVEREIGN_SCHEMA,
    TIPS_SCHEMA,
    WAITING_SCHEMA,
)
from causeway.protocols.relay_chain.block import (
    chains_to_change,
    local_ranges,
    log_control,
    pool_messages,
    process_block,
    refuse_stranded,
)
from causeway.protocols.relay_chain.commitment import genesis_hash, para_roots
from causeway.protocols.relay_chain.options import RELAY_POSITION, HrmpOptions
from causeway.protocols.relay_chain.parachains import Context, ParachainKernel, PlannedParachainCalls, table_owners
from causeway.protocols.relay_chain.state import State
from causeway.protocols.shared.contents import encode_contents
from causeway.protocols.shared.digests import digests, rows_equal
from causeway.protocols.shared.events import LEDGER_LOGS, EventLog, event_rows
from causeway.protocols.shared.limits import check_faults
from causeway.protocols.shared.messages import OUTBOUND_SCHEMA, locate_ranges, oldest_height
from causeway.protocols.shared.state_tables import blank_rows, change_programs

LEAST_MESSAGE_SIZE = 256
"""Minimum ``max_message_size`` of a channel: a chain's own rejects fit into a page."""


@dataclass(frozen=True)
class HrmpPlan:
    """The input of a block: running chains and their view of the relay chain.

    Attributes:
        running: Positions of the chains that are not halted.
        view: Tables that chains published at the previous height.
        active: Registered parachains, ascending.
        tips: Parachains whose last block is included.
        found: Channels and messages of the parachains in ``tips``.
        mismatched: Parachains with a wrong channel head; they make no block.
        lost: Lanes with messages that a closed channel lost.
    """

    running: Chains
    view: View
    active: Chains
    tips: Frame
    found: RelayChainView
    mismatched: Chains
    lost: Frame

    @cached_property
    def on_leaf(self) -> Frame:
        """Return the registered parachains at the relay chain's only leaf (``leaf``, ``para``)."""
        return Frame({"leaf": np.zeros(len(self.active), dtype=np.uint8), "para": self.active}, len(self.active))

    @cached_property
    def channels(self) -> Frame:
        """Return the channels; those of a leaving parachain are closing."""
        return usable_channels(self.view.tables["channels"], self.view.tables["paras"])


@dataclass(frozen=True)
class HrmpKernel(ParachainKernel):
    """The state machine of a relay chain and its parachains with HRMP channels.

    Raises:
        InvalidInput: Options contradict each other, a call names an unknown chain, or a fault is not available.
    """

    logs: ClassVar[Mapping[str, pa.Schema]] = {**LEDGER_LOGS, "value": VALUE_SCHEMA}
    own_tables: ClassVar[Mapping[str, StateTable]] = ALL_TABLES
    past_heights: ClassVar[int] = 0
    retained_heights: ClassVar[int] = 0

    def __post_init__(self) -> None:
        options = self.options
        if not LEAST_MESSAGE_SIZE <= options.max_message_size <= options.max_total_size:
            allowed = f"{LEAST_MESSAGE_SIZE} to max_total_size = {options.max_total_size}"
            raise InvalidInput(f"options.max_message_size: {options.max_message_size}; allowed: {allowed}")
        check_faults(self.faults.rows)
        self.interference.check()
        _ = self.planned, self.planned_paras

    @cached_property
    def planned(self) -> PlannedHrmpCalls:
        """Return the planned calls on channels."""
        return PlannedHrmpCalls.of(self.options, self.network)

    @cached_property
    def planned_paras(self) -> PlannedParachainCalls:
        """Return the planned registrations."""
        return PlannedParachainCalls(self.options, self.network)

    @cached_property
    def interference(self) -> HrmpInterference:
        """Return the scenario's faults."""
        return HrmpInterference(self.faults, self.network.numbers, self.seed)

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state at height 0, with an endowment for each parachain.

        Parachains with a later registration are not registered.

        Args:
            chains: Positions of the chains, ascending.
            coming: Ignored; part of the kernel contract.
        """
        tables: dict[str, Frame] = {}
        value = empty_frame(VALUE_SCHEMA)
        hashes = digests([genesis_hash(name) for name in self.network.names])
        if RELAY_POSITION in chains:
            paras = np.arange(1, len(self.network.names), dtype=np.uint32)
            active = (~np.isin(paras, [*self.planned_paras.late])).astype(np.uint8)
            tables["blocks"] = blank_rows(BLOCKS_SCHEMA, 1, hash=hashes[:1])
            tables["paras"] = blank_rows(PARAS_SCHEMA, len(paras), para=paras, head=hashes[paras], active=active)
            free = np.full(len(paras), self.options.endowment, dtype=np.uint64)
            tables["sovereign"] = blank_rows(SOVEREIGN_SCHEMA, len(paras), para=paras, free=free)
            value = genesis_value_rows(tables["sovereign"])
        local = chains[chains != RELAY_POSITION]
        tables["tips"] = blank_rows(TIPS_SCHEMA, len(local), chain=local, head=hashes[local])
        return self.complete_genesis(chains, tables, {"value": value})

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Compute the storage root of each chain.

        Args:
            state: State of ``chains``.
            chains: Positions of the chains, ascending.
            tick: Height and tick of the state.
            committed: Ignored; part of the kernel contract.

        Returns:
            ``chain``, ``root``.
        """
        rows = np.zeros((len(chains), 32), dtype=np.uint8)
        paras = chains != RELAY_POSITION
        rows[paras] = para_roots(state, chains[paras], table_owners(self, state, tick), SECTIONS)
        if not paras.all():
            rows[~paras] = relay_trie(None, state).roots(np.zeros(1, dtype=np.int64))
        return Frame({"chain": chains, "root": rows}, len(chains))

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[HrmpPlan]:
        """Read the channels of each parachain from the relay chain's state.

        Args:
            state: State of ``chains`` before the block.
            chains: Positions of the chains, ascending.
            view: Tables that chains published at the previous height.
            ingress: Messages from users.
            carried: Ignored; part of the kernel contract.
            tick: Height and tick of the block.

        Returns:
            The ranges to read, and the input of ``round``.
        """
        running = self.interference.running(chains, tick.tick)
        tips, paras = state["tips"], view.tables["paras"]
        active = present_parachains(paras)
        is_active = np.isin(tips["chain"], active)
        at = lookup_rows(paras, Frame({"para": tips["chain"]}, len(tips)), ("para",))
        included = rows_equal(tips["head"], paras["head"][at])
        lost = lost_lanes(state, view, tips["chain"][included])
        tips = tips.filter(included & is_active & np.isin(tips["chain"], running))
        found, mismatched = read_relay_chain(state["ends"], view.tables["contents"], view.tables["channels"], tips)
        tips = tips.filter(~np.isin(tips["chain"], mismatched))
        reads = Reads(offered=local_ranges(state, tips["chain"]), own=locate_ranges(lost, state["runs"]))
        content = HrmpPlan(running, view, active, tips, found, mismatched, lost)
        return Plan(reads, content, EventLog().logs()["events"])

    def round(
        self, state: State, chains: Chains, plan: Plan[HrmpPlan], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Make a relay block and a block of each busy parachain.

        A parachain makes no block before its last one is included.

        Args:
            state: State of ``chains`` before the block.
            chains: Positions of the chains, ascending.
            plan: Result of ``plan``.
            inputs: Messages that the plan requested.
            tick: Height and tick of the block.

        Returns:
            The new state, outbound messages, logs and headers.
        """
        log, content = EventLog(), plan.content
        context = self.context(chains, content.on_leaf, tick)
        state = pool_messages(inputs.ingress, state, context, log)
        state = refuse_stranded(state, self.interference.permanently_halted(tick.tick), log)
        state = drop_consumed(state, content.view, log)
        state = drop_lost(state, content.lost, inputs.own, content.view, log)
        self._log_mismatched(state, content, tick, log)
        headers, value, moved = [empty_frame(HEADERS_SCHEMA)], [empty_frame(VALUE_SCHEMA)], False
        if RELAY_POSITION in content.running:
            before = state
            state, relay_headers, value = self._relay_block(state, content, tick, log)
            moved = any(state[name] is not before[name] for name in ("paras", "channels", "requests"))
            headers.append(relay_headers)
        outbound = empty_frame(OUTBOUND_SCHEMA)
        tips = self._busy_tips(state, content, inputs, context)
        if len(tips):
            state, outbound, para_headers = self._para_blocks(state, tips, content, inputs.offered, tick, log)
            headers.append(para_headers)
        joined = concat(headers)
        logs = {**log.logs(), "value": concat(value)}
        settled = max(self.interference.last_change, self.planned.last_tick, self.planned_paras.last_tick)
        end = idle_limit_tick(tick, settled=settled, idle_limit=QUIET_TICKS + self.options.session_blocks)
        return RoundResult(
            state,
            outbound,
            logs,
            joined.take(np.argsort(joined["chain"], kind="stable")),
            self._wake(state, content, moved or bool(len(tips)), tick),
            oldest_height(state["runs"]),
            end,
        )

    def _log_mismatched(self, state: State, content: HrmpPlan, tick: Tick, log: EventLog) -> None:
        """Log parachains with a wrong channel head, and refused false candidates."""
        malicious = self.interference.malicious(tick.tick)
        refused = mismatched_chains(state["ends"], content.view, content.tips, malicious)
        log_control(np.concatenate([content.mismatched, np.array(refused, dtype=np.uint32)]), "HeadMismatch", log)

    def _busy_tips(self, state: State, content: HrmpPlan, inputs: Inputs[State], context: Context) -> Frame:
        """Select the tips of parachains with messages, pages, calls or changed programs."""
        tips = content.tips
        calls = collect_calls(content.view, state["pages"], tips, context.tick, self.planned, self.options).calls
        sends = take_outbound(state["pages"], state["ends"], content.channels, tips["chain"], self.options).sent
        busy = [content.found.contents["chain"], state["waiting"]["chain"], state["pool"]["chain"]]
        busy += [calls["source"], sends["source"], inputs.offered["destination"], chains_to_change(state, context)]
        return tips.filter(np.isin(tips["chain"], np.concatenate(busy)))

    def _relay_block(
        self, state: State, content: HrmpPlan, tick: Tick, log: EventLog
    ) -> tuple[State, Frame, list[Frame]]:
        """Make a relay block: session, registrations, receipts with messages and calls."""
        before, tables, options = state, content.view.tables, self.options
        number = int(state["blocks"]["number"][-1]) + 1
        value = [empty_frame(VALUE_SCHEMA)]
        if number % options.session_blocks == 0:
            session = new_session(state, number)
            state, value = State(session.state.tables, state.programs, state.kept), [session.value]
        membership_calls = self.planned_paras.between(int(before["blocks"]["next_tick"][0]), tick.tick)
        state = State(apply_membership_calls(state, membership_calls, number).tables, state.programs, state.kept)
        receipts, paras = tables["candidates"], state["paras"]
        row = lookup_rows(paras, Frame({"para": receipts["source"]}, len(receipts)), ("para",))
        # An included receipt stays published until its chain makes the next block.
        fresh = (row >= 0) & ~rows_equal(receipts["head"], paras["head"][row])
        receipts, row = receipts.filter(fresh), row[fresh]
        receipts = receipts.with_columns(last=paras["watermark"][row])
        self._refuse_forged(state, receipts, number, tick, log)
        codes = acceptance.check_receipts(receipts, tables["sent"], tables["calls"], state, number, options)
        for code in np.unique(codes[codes != ReceiptError.OK]).tolist():
            log_control(receipts["source"][codes == code], ReceiptError(code).name, log)
        good = codes == ReceiptError.OK
        receipts, row = receipts.filter(good), row[good]
        executed = acceptance.apply_receipts(state, receipts, tables["sent"], tables["calls"], number, options)
        calls = tables["calls"].filter(np.isin(tables["calls"]["source"], receipts["source"]))
        for code in np.unique(executed.codes[executed.codes != UpwardCallError.OK]).tolist():
            log_control(calls["source"][executed.codes == code], UpwardCallError(code).name, log)
        state = State(executed.state.tables, state.programs, state.kept)
        if len(receipts):
            columns = {name: paras[name].copy() for name in ("number", "head", "watermark")}
            for name, column in columns.items():
                column[row] = receipts[name]
            state = state.with_tables(paras=paras.with_columns(**columns))
        state, header = commit_relay_block(before, state, [head.tobytes() for head in receipts["head"]], tick.tick)
        return state, header, [*value, executed.value]

    def _refuse_forged(self, state: State, receipts: Frame, number: int, tick: Tick, log: EventLog) -> None:
        """Check the receipts of malicious collators; the relay chain refuses and logs each."""
        for para, flaw in self.interference.malicious(tick.tick):
            honest = receipts.filter(receipts["source"] == np.uint32(para))
            if flaw in CONSUMED or len(honest) == 0:
                continue
            forged = forge_receipt(honest, flaw, state, self.options)
            if forged is not None:
                (code,) = acceptance.check_receipts(*forged, state, number, self.options)
                assert code != ReceiptError.OK, f"a receipt of a malicious collator was accepted: {flaw}"
                log_control(forged.receipt["source"], ReceiptError(code).name, log)

    def _para_blocks(
        self, state: State, tips: Frame, content: HrmpPlan, local: Frame, tick: Tick, log: EventLog
    ) -> tuple[State, Frame, Frame]:
        """Make a block of each parachain of ``tips``: receive, execute, send, commit."""
        chains, cache, options = tips["chain"], state.kept, self.options
        found = content.found.of(chains)
        parent = int(content.view.tables["blocks"]["number"][-1])
        inbound = receive_messages(state["ends"], state["waiting"], found, tips, parent, options)
        state = state.with_tables(ends=inbound.ends, waiting=inbound.waiting)
        bodies = _read_bodies(inbound, log)
        consumed = found.contents.filter(inbound.consumed).select(WAITING_SCHEMA.names)
        context = self.context(chains, content.on_leaf, tick)
        bases = tips.with_columns(leaf=np.zeros(len(tips), dtype=np.uint8))
        state = change_programs(state, context.network, context.programs, context.chains)
        state, outbound = process_block(state, page_entries(consumed), bodies, local, bases, context, log)
        pages = _pack(state["pages"], outbound, tips, options)
        out = take_outbound(pages, state["ends"], content.channels, chains, options)
        calls, next_tick = collect_calls(content.view, pages, tips, tick.tick, self.planned, options)
        state = state.with_tables(pages=out.pages, ends=out.ends)
        roots = para_roots(state, chains, table_owners(self, state, tick), SECTIONS)
        state, headers = commit_parachain_blocks(
            state, tips, roots, out.sent, calls, inbound.watermark, parent, next_tick
        )
        return State(state.tables, state.programs, cache), outbound, headers

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick with a planned event, or None.

        Args:
            tick: First tick to consider.
        """
        return earliest(
            self.interference.next_planned(tick), self.planned.next_tick(tick), self.planned_paras.next_tick(tick)
        )

    def _wake(self, state: State, content: HrmpPlan, moved: bool, tick: Tick) -> int | None:
        """Return the next tick with pending work, or None."""
        queues = state["queues"]
        full = queues["source"][queues["next_index"] > queues["begin"]]
        pending = np.concatenate([state["pool"]["chain"], state["waiting"]["chain"], full])
        # Messages of an unregistered parachain wait for its registration.
        waits = bool(np.isin(pending, content.active).any())
        waits = waits or any(len(state[name]) for name in ("contents", "requests"))
        waits = waits or any((state[name][column] > 0).any() for name, column in _ENDING)
        return tick.tick + 1 if waits or moved else self.next_planned(tick.tick + 1)


_ENDING = (("channels", "closing"), ("paras", "leaving"))
"""Columns with the relay block that requested an end; the end comes with a session."""

OVERFLOWN = "QueueOverflown"
"""Reason for dropping a page from a full queue."""


def _read_bodies(inbound: InboundMessages, log: EventLog) -> Frame:
    """Return the messages of the pages to execute; log malformed pages and dropped messages."""
    bodies, malformed = page_bodies(inbound.executed)
    for row in range(len(malformed)):
        log_control(malformed["chain"][row : row + 1], "Malformed", log)
    dropped, _ = page_bodies(inbound.dropped)
    log.add(event_rows(dropped, Event.DROPPED, chain=dropped["destination"], on_lane=True, reason=OVERFLOWN))
    return bodies


def _pack(pages: Frame, outbound: Frame, tips: Frame, options: HrmpOptions) -> Frame:
    """Return the pages with the outbound messages to other chains."""
    away = outbound.filter(outbound["source"] != outbound["destination"])
    away = away.take(stable_order(away["source"], away["destination"], away["index"]))
    rows = away.select(["source", "destination", "index"])
    rows = rows.with_columns(number=tips["number"][np.searchsorted(tips["chain"], rows["source"])] + np.uint64(1))
    return add_to_pages(pages, rows, encode_contents(away), options.max_message_size)
