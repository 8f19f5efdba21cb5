"""Agreement on certified slices: build, validate and execute payloads.

Every notary validates the payload. A subnet executes it ``blocks_ahead`` of its heights later (IC reference 3.7 to
3.9), so a stored slice includes all data to verify it again, whatever its source has collected since (IC reference 3.7,
3.8).

The next honest block maker proposes the result of ``get_xnet_payload``. Malicious block makers propose first, from the
same slices. A proposal with an invalid slice is refused whole; a valid one becomes the payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import InvariantViolation
from causeway_proofs.order import U64, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import EVENTS_SCHEMA
from causeway.protocols.contract import Chains, Inputs, Plan, View
from causeway.protocols.ic.batch import (
    UnverifiedSlices,
    XNetPlan,
    accepted_columns,
    filter_own_signals,
    make_plan,
    revisited_messages,
    stream_ranges,
)
from causeway.protocols.ic.faults import TAMPERED, Carriers, alter_messages, propose_slices
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import AGREED_ORDER, AGREED_SCHEMA, REJECTS_ORDER, State, reverse_lanes
from causeway.protocols.ic.streams.certified_slices import (
    SliceCheck,
    add_read_ranges,
    check_certified,
    proof_digests,
    read_rejects,
    serve_slices,
)
from causeway.protocols.ic.streams.check_slice import SliceError, refusal_events, refused_payload_event
from causeway.protocols.ic.streams.endpoint import (
    SLICE_COLUMNS,
    ContradictoryIndices,
    ExpectedIndexes,
    expected_indexes,
    filter_new,
    sort_by_stream,
)
from causeway.protocols.ic.streams.payload_builder import (
    MessageSizes,
    get_xnet_payload,
    message_lengths,
    source_turns,
    validate_xnet_payload,
)
from causeway.protocols.ic.streams.remote_slices import READ_COLUMNS, WireInput, merge_rejects
from causeway.protocols.ic.subnet_keys import Certifier
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS


def past_payloads(state: State) -> list[Frame]:
    """Return the pending payloads, ascending by height."""
    agreed = state.agreed
    return [agreed.filter(agreed["executed"] == height) for height in np.unique(agreed["executed"])]


def due_slices(state: State, chains: Chains) -> Frame:
    """Return the agreed slices that ``chains`` execute at the height after the state's."""
    slices = state.agreed.filter(_due_now(state) & np.isin(state.agreed["destination"], chains))
    return add_read_ranges(slices.with_columns(receiver=slices["destination"]))


def _due_now(state: State) -> npt.NDArray[np.bool_]:
    agreed = state.agreed
    found: npt.NDArray[np.bool_] = agreed["executed"] == _numbers(state, agreed["destination"]) + np.uint64(1)
    return found


def _numbers(state: State, chains: Chains) -> U64:
    """Return the height of each chain."""
    found: U64 = state.heads["number"][find_positions(state.heads["chain"].astype(np.uint64), chains.astype(np.uint64))]
    return found


def advance_expected(state: State, context: Context) -> tuple[ExpectedIndexes, Chains]:
    """Return the expected indexes after pending payloads, and the chains that can build one.

    A chain of ``context.chains`` cannot if its pending payloads contradict its state, as in no honest network. Its
    payload is empty (3.8 (1)).
    """
    base = context.options.index_base
    if len(state.agreed) == 0:
        return expected_indexes(state, (), base), context.chains
    try:
        return expected_indexes(state, past_payloads(state), base), context.chains
    except ContradictoryIndices as error:
        wrong = error.chains
    agreed = state.agreed.filter(~np.isin(state.agreed["destination"], wrong))
    chains = context.chains[~np.isin(context.chains, wrong)]
    return expected_indexes(state, past_payloads(replace(state, agreed=agreed)), base), chains


def pending_payloads(state: State, payloads: Sequence[Frame], context: Context) -> Frame:
    """Return the pending slices after a round that agreed on ``payloads`` (``AGREED_SCHEMA``)."""
    ahead = np.uint64(1 + context.options.blocks_ahead)
    pending = [state.agreed.filter(~_due_now(state))]
    for payload in payloads:
        new = payload.with_columns(executed=_numbers(state, payload["destination"]) + ahead)
        pending.append(new.select(AGREED_SCHEMA.names))
    agreed = concat(pending)
    return agreed.take(stable_order(*(agreed[name] for name in AGREED_ORDER)))


_CERTIFIED = [*SLICE_COLUMNS, "number", "anchor", "header", "siblings", "messages", "path", "certification", "receiver"]
"""The columns of a certified slice.

``add_read_ranges`` adds the ranges to read for its check.
"""


# ---- planning


def plan_certified(
    state: State, local: State, view: View, carriers: Carriers, context: Context, wired: WireInput | None
) -> Plan[XNetPlan]:
    """Plan a round of certified subnets.

    The plan holds candidate slices, slices to execute, and the rows to read for both.

    Args:
        state: The state of all chains of the call.
        local: The state of ``context.chains``, which run the round.
        view: The visible state of other chains.
        carriers: The carriers of slices.
        context: The metadata of the round.
        wired: Slices from subnets of other lakes.
    """
    expected, builders = advance_expected(state, context)
    building = context if len(builders) == len(context.chains) else replace(context, chains=builders)
    available, older = serve_slices(view, expected, building), partial(serve_slices, view, expected, building)
    candidates = carriers.carry_certified(filter_new(expected, available, building), available, older, building)
    candidates = add_read_ranges(candidates)
    makers = np.array(sorted({chain for chain, _ in carriers.block_makers(building)}), dtype=np.uint32)
    available = available.filter(np.isin(available["destination"], makers))
    before = older(1) if len(makers) else available
    before = before.filter(np.isin(before["destination"], makers))
    ahead = context.options.blocks_ahead > 0
    due = due_slices(local, context.chains) if ahead else candidates
    reading = [candidates]
    if ahead or len(makers):
        # The whole streams too.
        for slices in (available, before):
            whole = slices.with_columns(message_begin=slices["begin"], message_end=slices["end"])
            reading.append(add_read_ranges(whole))
    wanted = concat(
        [rows.select(LANE).with_columns(begin=rows["read_begin"], end=rows["read_end"]) for rows in reading]
    )
    if ahead or len(makers):
        executed = due.select(LANE).with_columns(begin=due["message_begin"], end=due["message_end"])
        wanted = _disjoint(concat([wanted, executed]))
    rejects, events = read_rejects(due, context), empty_frame(EVENTS_SCHEMA)
    if wired is not None:
        # Merge local and remote slices.
        columns = [*SLICE_COLUMNS, *READ_COLUMNS]
        both = concat([due.select(columns), wired.slices.select(columns)])
        due, rejects, events = (
            both.take(stable_order(both["destination"], both["source"], both["substream"])),
            merge_rejects(rejects, wired),
            wired.events,
        )
    plan = make_plan(local, due, rejects, view, state.kept_slices, events, context, wanted)
    reads = plan.reads
    if not state.has_current_trees:
        # Rebuilding the trees of streams needs all their messages.
        reads = replace(reads, own=stream_ranges(state))
    elif len(makers):
        # Malicious proposals contain other signals.
        ours = stream_ranges(local)
        ours = ours.filter(np.isin(ours["source"], makers))
        reads = replace(reads, own=concat([reads.own.filter(~np.isin(reads.own["source"], makers)), ours]))
    content = replace(plan.content, brought=UnverifiedSlices(candidates, available, before), wired=wired)
    return replace(plan, reads=reads, content=content)


def _disjoint(ranges: Frame) -> Frame:
    """Return disjoint ranges (lane, ``begin``, ``end``) of the same messages, in lane order."""
    ranges = ranges.filter(ranges["end"] > ranges["begin"])
    ranges = ranges.take(stable_order(*(ranges[name] for name in (*LANE, "begin"))))
    lanes = group_rows(*(ranges[name] for name in LANE))
    begins, ends = ranges["begin"].copy(), ranges["end"]
    for start, count in zip(lanes.starts.tolist(), lanes.counts.tolist(), strict=True):
        if count > 1:
            # Start each range after the ends of the previous ones; drop empty ranges.
            rows = slice(start + 1, start + count)
            begins[rows] = np.maximum(begins[rows], np.maximum.accumulate(ends[start : start + count - 1]))
    return ranges.with_columns(begin=begins).filter(ends > begins)


# ---- a round


@dataclass(frozen=True)
class Agreement:
    """The agreed input of a round.

    Attributes:
        content: The slices to execute.
        offered: The messages of these slices.
        own: The own messages that the slices refer to.
        state: The state with the pending payloads.
        refused: The events of refusal.
    """

    content: XNetPlan
    offered: Frame
    own: Frame
    state: State
    refused: Frame


@dataclass(frozen=True)
class Proposal:
    """Proposed slices with the results of their verification.

    Attributes:
        certified: The slices of local subnets.
        checked: The results of their check.
        slices: All slices, in payload order.
        causes: The error of each slice, empty if it is valid.
        invalid: A mask of the slices that their source has not certified.
        messages: All messages read for the slices, as they arrived.
        rejects: The REJECT signals in the slices.
        sizes: The sizes of messages, if there is a limit.
    """

    certified: Frame
    checked: SliceCheck
    slices: Frame
    causes: list[str]
    invalid: npt.NDArray[np.bool_]
    messages: Frame
    rejects: Frame
    sizes: MessageSizes | None

    def select_certified(self, payload: Frame) -> Frame:
        """Return a payload's slices of local subnets, with the certification columns."""
        row = lookup_rows(payload, self.certified, LANE, ordered=False)
        certified = self.certified.filter(row >= 0)
        row = row[row >= 0]
        ends = {name: payload[name][row] for name in ("message_begin", "message_end")}
        return certified.with_columns(**ends)

    def agreed(self, payload: Frame) -> Frame:
        """Return a payload as stored until its execution: with the digests beside its messages."""
        slices = self.select_certified(payload)
        return slices.with_columns(
            beside=proof_digests(slices, lookup_rows(self.certified, slices, LANE, ordered=False), self.checked)
        )


@dataclass(frozen=True)
class Notary:
    """Validator of slices and payloads in a round; all nodes of a subnet decide alike."""

    state: State
    expected: ExpectedIndexes
    certifier: Certifier
    context: Context

    def look(self, certified: Frame, messages: Frame, wired: WireInput | None = None) -> Proposal:
        """Verify slices from their bytes; those from a wire are verified already."""
        if TAMPERED in certified:
            messages = alter_messages(messages, certified)
        checked = check_certified(certified, messages, self.context, self.certifier)
        slices, causes, rejects = certified, checked.causes, read_rejects(certified, self.context)
        if wired is not None:
            # Merge local and remote slices in payload order (destination, source).
            both = concat([slices.select(SLICE_COLUMNS), wired.slices.select(SLICE_COLUMNS)])
            order = stable_order(both["destination"], both["source"], both["substream"])
            named = [*causes, *[""] * len(wired.slices)]
            slices, causes = both.take(order), [named[row] for row in order.tolist()]
            messages, rejects = concat([messages, wired.messages]), merge_rejects(rejects, wired)
        options = self.context.options
        sizes = None
        if options.payload_bytes:
            # The lengths of messages of other subnets, in lane order.
            rows = messages.filter(messages["source"] != messages["destination"])
            rows = rows.take(stable_order(*(rows[name] for name in LANE_COLUMNS)))
            sizes = MessageSizes(rows, message_lengths(rows, options.version))
        invalid = np.array([bool(cause) for cause in causes], dtype=bool)
        return Proposal(certified, checked, slices, causes, invalid, messages, rejects, sizes)

    def validate(self, payload: Frame, proposal: Proposal) -> np.ndarray:
        """Return the error of each slice of payloads made from a proposal."""
        invalid = proposal.invalid[lookup_rows(proposal.slices, payload, LANE, ordered=False)]
        limit = self.context.options.payload_bytes
        return validate_xnet_payload(
            self.state,
            payload,
            proposal.rejects,
            invalid,
            self.context,
            self.expected,
            size_limit=limit,
            sizes=proposal.sizes,
        )


def agree(
    plan: Plan[XNetPlan],
    inputs: Inputs[State],
    state: State,
    carriers: Carriers,
    certifier: Certifier,
    context: Context,
) -> Agreement:
    """Agree on a payload for each chain of the round and return the input to execute.

    Raises:
        InvariantViolation: Notaries refuse a chain's honest payload, or an agreed slice is invalid at its execution.
    """
    content, offered, served = plan.content, inputs.offered, plan.content.brought
    assert served is not None
    expected, _ = advance_expected(state, context)
    notary = Notary(state, expected, certifier, context)
    proposal = notary.look(served.candidates, offered, content.wired)
    limit = context.options.payload_bytes
    payload, errors = get_xnet_payload(
        state,
        proposal.slices,
        proposal.rejects,
        proposal.invalid,
        context,
        expected,
        size_limit=limit,
        sizes=proposal.sizes,
        turn=source_turns(proposal.slices, context) if limit else None,
    )
    wrong = notary.validate(payload, proposal) > 0
    if wrong.any():
        chains = np.unique(payload["destination"][wrong])
        raise InvariantViolation("notaries refuse the payload of an honest block maker", chains)
    # Slices that do not fit stay for a later block.
    errors = np.where(errors == SliceError.PayloadTooLarge, SliceError.ACCEPTED, errors)
    refused = [empty_frame(EVENTS_SCHEMA)]
    if errors.any():
        refused.append(refusal_events(proposal.slices, errors, context.options, proposal.causes))
    agreed, settled = [(payload, proposal)], set[int]()
    for chain, behaviour in carriers.block_makers(context):
        honest = proposal.select_certified(payload.filter(payload["destination"] == chain)).select(_CERTIFIED)
        if chain in settled or not len(honest):
            continue
        false = add_read_ranges(propose_slices(honest, served.everything, served.older, behaviour))
        other = notary.look(false, offered.filter(offered["destination"] == chain))
        failed = notary.validate(false, other)
        if failed.any():
            refused.append(refused_payload_event(false, failed, other.causes))
        else:
            # A valid proposal is agreed, whoever makes it.
            settled.add(chain)
            agreed.append((false, other))
    others = ~np.isin(payload["destination"], sorted(settled))
    agreed[0] = payload if others.all() else payload.filter(others), proposal
    if context.options.blocks_ahead:
        pending = [of.agreed(slices) for slices, of in agreed]
        now = due_slices(state, context.chains)
        verified = check_certified(now, offered, context, certifier)
        if any(verified.causes):
            chains = np.unique(now["destination"][[bool(cause) for cause in verified.causes]])
            raise InvariantViolation("an agreed slice is not valid any more", chains)
        valid = np.zeros(len(now), dtype=bool)
        rejects = read_rejects(now, context)
        agreed = [(now, Proposal(now, verified, now, verified.causes, valid, offered, rejects, None))]
        state = replace(state, agreed=pending_payloads(state, pending, context))
    payloads = [accepted_columns(state, payload, context) for payload, _ in agreed]
    messages = _accepted_messages(payloads, [of.messages for _, of in agreed], offered)
    rejects = concat(
        [
            of.rejects.filter(lookup_rows(payload, reverse_lanes(of.rejects), LANE, ordered=False) >= 0)
            for payload, of in agreed
        ]
    )
    signals = rejects.take(stable_order(*(rejects[name] for name in REJECTS_ORDER)))
    if len(signals):
        signals = filter_own_signals(state, signals)
    content = replace(content, slices=sort_by_stream(concat(payloads)), signals=signals)
    own = inputs.own
    if len(own):
        own = revisited_messages(state, own, content.slices, signals, context)
    return Agreement(content, messages, own, state, concat(refused))


def _accepted_messages(payloads: list[Frame], arrived: list[Frame], offered: Frame) -> Frame:
    """Return the messages of payloads, and those of loopback streams."""
    looped, accepted = offered["source"] == offered["destination"], []
    for payload, messages in zip(payloads, arrived, strict=True):
        mask = np.zeros(len(messages), dtype=bool)
        if len(messages) and len(payload):
            # The messages in the slices of the payload.
            runs, index = group_rows(*(messages[name] for name in LANE)), messages["index"]
            row = lookup_rows(payload, messages.select(LANE).take(runs.starts), LANE, ordered=False)
            first, stop = payload["message_begin"][row], payload["message_end"][row]
            least, most = (reduction.reduceat(index, runs.starts) for reduction in (np.minimum, np.maximum))
            known = row >= 0
            mask = runs.spread(known)
            if not ((least >= first) & (most < stop))[known].all():
                mask &= (index >= runs.spread(first)) & (index < runs.spread(stop))
        if messages is offered:
            # The usual case: one filter for both, no concatenation.
            mask, looped = mask | looped, np.zeros(len(offered), dtype=bool)
        accepted.append(messages.filter(mask))
    return concat([*accepted, offered.filter(looped)])
