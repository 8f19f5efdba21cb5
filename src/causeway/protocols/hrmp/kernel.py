"""HRMP behind the kernel contract: one block of the relay chain and of any set of parachains as a pure function."""

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
from causeway.core.vocabulary import VALUE_SCHEMA, Event, Kind
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
from causeway.protocols.hrmp.inbound import RelayChainView, read_relay_chain, receive_messages
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
from causeway.protocols.relay_chain.block import chains_to_change, pool_messages, process_block, refuse_stranded
from causeway.protocols.relay_chain.commitment import genesis_hash, para_roots
from causeway.protocols.relay_chain.network import RELAY_POSITION
from causeway.protocols.relay_chain.parachains import ParachainKernel, table_owners
from causeway.protocols.relay_chain.parachains import PlannedParachainCalls as PlannedParas
from causeway.protocols.relay_chain.state import State, blank_rows
from causeway.protocols.shared.block_numbers import check_faults
from causeway.protocols.shared.contents import encode_contents
from causeway.protocols.shared.digests import digests, rows_equal
from causeway.protocols.shared.events import LEDGER_LOGS, EventLog, event_rows, names_column
from causeway.protocols.shared.messages import OUTBOUND_SCHEMA, blank_messages, locate_ranges, oldest_height
from causeway.protocols.shared.state_tables import change_programs

LEAST_MESSAGE_SIZE = 256
"""Of a channel: rejects, which chains make themselves, fit into a page."""


@dataclass(frozen=True)
class HrmpPlan:
    """What chains will do: those that are not halted; the parachains that are registered; of those whose last block is
    included, what they see of the relay chain; those whose heads do not agree, which make no block; the messages that
    are lost."""

    running: Chains
    view: View
    active: Chains
    tips: Frame
    found: RelayChainView
    mismatched: Chains
    lost: Frame

    @cached_property
    def on_leaf(self) -> Frame:
        """Return the parachains that are registered as those of the relay chain's only leaf (``leaf``, ``para``)."""
        return Frame({"leaf": np.zeros(len(self.active), dtype=np.uint8), "para": self.active}, len(self.active))

    @cached_property
    def channels(self) -> Frame:
        """Return the channels as parachains see them: those to and from chains that leave are closing."""
        return usable_channels(self.view.tables["channels"], self.view.tables["paras"])


@dataclass(frozen=True)
class HrmpKernel(ParachainKernel):
    """The state machine of a relay chain and its parachains with HRMP channels. ``faults``: what goes wrong on purpose.

    Raises ``InvalidInput`` for options that do not go together, calls of unknown chains, and faults other than halts.
    """

    logs: ClassVar[Mapping[str, pa.Schema]] = {**LEDGER_LOGS, "value": VALUE_SCHEMA}
    own_tables: ClassVar[Mapping[str, StateTable]] = ALL_TABLES
    past_heights: ClassVar[int] = 0
    held_heights: ClassVar[int] = 0

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
        """Return the calls about channels that the scenario plans."""
        return PlannedHrmpCalls.of(self.options, self.network)

    @cached_property
    def planned_paras(self) -> PlannedParas:
        """Return the registrations that the scenario plans."""
        return PlannedParas(self.options, self.network)

    @cached_property
    def interference(self) -> HrmpInterference:
        """Return the scenario's faults."""
        return HrmpInterference(self.faults, self.network.numbers, self.seed)

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state of ``chains`` at height 0: an endowment for each parachain, all registered but for those
        that are registered later."""
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
        mine = chains[chains != RELAY_POSITION]
        tables["tips"] = blank_rows(TIPS_SCHEMA, len(mine), chain=mine, head=hashes[mine])
        return self.begun(chains, tables, {"value": value})

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each chain's storage (``chain``, ``root``)."""
        rows = np.zeros((len(chains), 32), dtype=np.uint8)
        paras = chains != RELAY_POSITION
        rows[paras] = para_roots(state, chains[paras], table_owners(self, state, tick), SECTIONS)
        if not paras.all():
            rows[~paras] = relay_trie(None, state).roots(np.zeros(1, dtype=np.int64))
        return Frame({"chain": chains, "root": rows}, len(chains))

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[HrmpPlan]:
        """Let collators look what is in the channels to their chains."""
        running = self.interference.running(chains, tick.tick)
        tips, paras = state["tips"], view.tables["paras"]
        active = present_parachains(paras)
        there = np.isin(tips["chain"], active)
        at = lookup_rows(paras, Frame({"para": tips["chain"]}, len(tips)), ("para",))
        included = rows_equal(tips["head"], paras["head"][at])
        gone = lost_lanes(state, view, tips["chain"][included])
        tips = tips.filter(included & there & np.isin(tips["chain"], running))
        found, mismatched = read_relay_chain(state["ends"], view.tables["contents"], view.tables["channels"], tips)
        tips = tips.filter(~np.isin(tips["chain"], mismatched))
        queues = state["queues"]
        local = queues.filter((queues["source"] == queues["destination"]) & np.isin(queues["source"], tips["chain"]))
        offered = locate_ranges(local.with_columns(end=local["next_index"]), state["runs"])
        reads = Reads(offered=offered, own=locate_ranges(gone, state["runs"]))
        content = HrmpPlan(running, view, active, tips, found, mismatched, gone)
        return Plan(reads, content, EventLog().logs()["events"])

    def round(
        self, state: State, chains: Chains, plan: Plan[HrmpPlan], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Make a relay block, and a block of each parachain that has something to do and whose last one is included."""
        log, content = EventLog(), plan.content
        context = self.context(chains, content.on_leaf, tick)
        state = pool_messages(inputs.ingress, state, context, log)
        state = refuse_stranded(state, self.interference.permanently_halted(tick.tick), log)
        state = drop_consumed(state, content.view, log)
        state = drop_lost(state, content.lost, inputs.own, content.view, log)
        malicious = self.interference.malicious(tick.tick)
        wrong = mismatched_chains(state["ends"], content.view, content.tips, malicious)
        _log_control(np.concatenate([content.mismatched, np.array(wrong, dtype=np.uint32)]), "HeadMismatch", log)
        made, value, moved = [empty_frame(HEADERS_SCHEMA)], [empty_frame(VALUE_SCHEMA)], False
        if RELAY_POSITION in content.running:
            before = state
            state, header, value = self._relay_block(state, content, tick, log)
            moved = any(state[name] is not before[name] for name in ("paras", "channels", "requests"))
            made.append(header)
        outbound = empty_frame(OUTBOUND_SCHEMA)
        # The tips of the parachains that have something to do; `changing`: those that change programs.
        changing = chains_to_change(state, context)
        tips, channels = content.tips, content.channels
        calls = collect_calls(content.view, state["pages"], tips, tick.tick, self.planned, self.options).calls
        sends = take_outbound(state["pages"], state["ends"], channels, tips["chain"], self.options).sent
        busy = [content.found.contents["chain"], state["waiting"]["chain"], state["pool"]["chain"]]
        busy += [calls["source"], sends["source"], inputs.offered["destination"], changing]
        tips = tips.filter(np.isin(tips["chain"], np.concatenate(busy)))
        if len(tips):
            state, outbound, header = self._para_blocks(state, tips, content, inputs.offered, tick, log)
            made.append(header)
        joined = concat(made)
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

    def _relay_block(
        self, state: State, content: HrmpPlan, tick: Tick, log: EventLog
    ) -> tuple[State, Frame, list[Frame]]:
        """Make a relay block: the session, parachains that come and go, the receipts that are shown, with their
        messages and calls."""
        before, tables, options = state, content.view.tables, self.options
        number = int(state["blocks"]["number"][-1]) + 1
        value = [empty_frame(VALUE_SCHEMA)]
        if number % options.session_blocks == 0:
            session = new_session(state, number)
            state, value = State(session.state.tables, state.programs, state.kept), [session.value]
        calls = self.planned_paras.between(int(before["blocks"]["next_tick"][0]), tick.tick)
        state = State(apply_membership_calls(state, calls, number).tables, state.programs, state.kept)
        receipts, paras = tables["candidates"], state["paras"]
        row = lookup_rows(paras, Frame({"para": receipts["source"]}, len(receipts)), ("para",))
        # What was included before stays shown until its chain makes the next block.
        fresh = (row >= 0) & ~rows_equal(receipts["head"], paras["head"][row])
        receipts, row = receipts.filter(fresh), row[fresh]
        receipts = receipts.with_columns(last=paras["watermark"][row])
        for para, what in self.interference.malicious(tick.tick):
            one = None
            if what not in CONSUMED and para in receipts["source"]:
                one = forge_receipt(receipts.filter(receipts["source"] == np.uint32(para)), what, state, options)
            if one is not None:
                (code,) = acceptance.check_receipts(one.receipt, one.sent, one.calls, state, number, options)
                assert code != ReceiptError.OK, f"a receipt of a malicious collator was accepted: {what}"
                _log_control(one.receipt["source"], ReceiptError(code).name, log)
        codes = acceptance.check_receipts(receipts, tables["sent"], tables["calls"], state, number, options)
        for code in np.unique(codes[codes != ReceiptError.OK]).tolist():
            _log_control(receipts["source"][codes == code], ReceiptError(code).name, log)
        good = codes == ReceiptError.OK
        receipts, row = receipts.filter(good), row[good]
        executed = acceptance.apply_receipts(state, receipts, tables["sent"], tables["calls"], number, options)
        asked = tables["calls"].filter(np.isin(tables["calls"]["source"], receipts["source"]))
        for code in np.unique(executed.codes[executed.codes != UpwardCallError.OK]).tolist():
            _log_control(asked["source"][executed.codes == code], UpwardCallError(code).name, log)
        state = State(executed.state.tables, state.programs, state.kept)
        if len(receipts):
            columns = {name: paras[name].copy() for name in ("number", "head", "watermark")}
            for name, column in columns.items():
                column[row] = receipts[name]
            state = state.with_tables(paras=paras.with_columns(**columns))
        state, header = commit_relay_block(before, state, [head.tobytes() for head in receipts["head"]], tick.tick)
        return state, header, [*value, executed.value]

    def _para_blocks(
        self, state: State, tips: Frame, content: HrmpPlan, local: Frame, tick: Tick, log: EventLog
    ) -> tuple[State, Frame, Frame]:
        """Make a block of each parachain of ``tips``: receive, execute, pack into pages, send, ask, commit."""
        chains, kept, options = tips["chain"], state.kept, self.options
        channels, found = content.channels, content.found.of(chains)
        parent = int(content.view.tables["blocks"]["number"][-1])
        got = receive_messages(state["ends"], state["waiting"], found, tips, parent, options)
        state = state.with_tables(ends=got.ends, waiting=got.waiting)
        bodies, malformed = page_bodies(got.executed)
        for row in range(len(malformed)):
            _log_control(malformed["chain"][row : row + 1], "Malformed", log)
        dropped, _ = page_bodies(got.dropped)
        log.add(event_rows(dropped, Event.DROPPED, chain=dropped["destination"], on_lane=True, reason=OVERFLOWN))
        taken = found.contents.filter(got.consumed).select(WAITING_SCHEMA.names)
        context = self.context(chains, content.on_leaf, tick)
        bases = tips.with_columns(leaf=np.zeros(len(tips), dtype=np.uint8))
        state = change_programs(state, context.network, context.programs, context.chains)
        state, outbound = process_block(state, page_entries(taken), bodies, local, bases, context, log)
        away = outbound.filter(outbound["source"] != outbound["destination"])
        away = away.take(stable_order(away["source"], away["destination"], away["index"]))
        rows = away.select(["source", "destination", "index"])
        rows = rows.with_columns(number=tips["number"][np.searchsorted(chains, rows["source"])] + np.uint64(1))
        pages = add_to_pages(state["pages"], rows, encode_contents(away), options.max_message_size)
        out = take_outbound(pages, state["ends"], channels, chains, options)
        calls, next_tick = collect_calls(content.view, pages, tips, tick.tick, self.planned, options)
        state = state.with_tables(pages=out.pages, ends=out.ends)
        roots = para_roots(state, chains, table_owners(self, state, tick), SECTIONS)
        state, made = commit_parachain_blocks(state, tips, roots, out.sent, calls, got.watermark, parent, next_tick)
        return State(state.tables, state.programs, kept), outbound, made

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` at which the scenario has planned something, None if none is."""
        return earliest(
            self.interference.next_planned(tick), self.planned.next_tick(tick), self.planned_paras.next_tick(tick)
        )

    def _wake(self, state: State, content: HrmpPlan, moved: bool, tick: Tick) -> int | None:
        """Return the next tick at which something happens of itself."""
        queues = state["queues"]
        full = queues["source"][queues["next_index"] > queues["begin"]]
        own = np.concatenate([state["pool"]["chain"], state["waiting"]["chain"], full])
        # What a parachain has that is not registered waits until it is.
        waits = bool(np.isin(own, content.active).any()) or any(len(state[name]) for name in ("contents", "requests"))
        waits = waits or any((state[name][column] > 0).any() for name, column in _ENDING)
        return tick.tick + 1 if waits or moved else self.next_planned(tick.tick + 1)


_ENDING = (("channels", "closing"), ("paras", "leaving"))
"""Columns that say since when something ends with a session."""

OVERFLOWN = "QueueOverflown"
"""Why a page is dropped that finds too many others."""


def _log_control(chains: Chains, reason: str, log: EventLog) -> None:
    """Leave an event about the block of each of some parachains."""
    count = len(chains)
    zero = np.zeros(count, dtype=np.uint64)
    relay_end = np.full(count, RELAY_POSITION, dtype=np.uint32)
    rows = blank_messages(count, kind=np.full(count, Kind.CONTROL, dtype=np.uint8))
    rows = rows.with_columns(source=chains, destination=relay_end, substream=zero, index=zero)
    names = names_column([reason], np.zeros(count, dtype=np.int64))
    log.add(event_rows(rows, Event.REJECTED, chain=chains, on_lane=True, reason=names))
