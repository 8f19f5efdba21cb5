"""What a subnet agrees on where streams are certified: slices are brought, verified, built into a payload, which every
notary validates, and executed, ``blocks_ahead`` of its heights later (IC reference 3.7 to 3.9).

The next honest block maker proposes what ``get_xnet_payload`` gives. Malicious ones propose before it, of the same
slices, and are refused whole; a proposal of theirs in which nothing is wrong is the payload.

Payloads that a subnet has agreed on and not yet executed: blocks run ``blocks_ahead`` heights ahead of the state (IC
reference 3.7, 3.8).

What is kept of a slice is all that is needed to verify it again when it is executed, whatever its source has collected
since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import InvariantViolation
from causeway_proofs.ic.primitives import CertificationVersion
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
from causeway.protocols.ic.faults import Carriers, alter_messages, propose_slices
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
    """Return the payloads that are agreed and not yet executed, in order of height."""
    agreed = state.agreed
    return [agreed.filter(agreed["executed"] == height) for height in np.unique(agreed["executed"])]


def due_slices(state: State, chains: Chains) -> Frame:
    """Return the agreed slices that ``chains`` execute in this round, at the height after that of the state."""
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
    """Return what is expected after the payloads that are agreed, and which of ``context.chains`` can build one.

    Those cannot whose payloads contradict their state, as no honest network's do: their payload is empty (3.8 (1)).
    """
    base = context.options.index_base
    try:
        return expected_indexes(state, past_payloads(state), base), context.chains
    except ContradictoryIndices as error:
        wrong = error.chains
    agreed = state.agreed.filter(~np.isin(state.agreed["destination"], wrong))
    chains = context.chains[~np.isin(context.chains, wrong)]
    return expected_indexes(state, past_payloads(replace(state, agreed=agreed)), base), chains


def pending_payloads(state: State, payloads: Sequence[Frame], context: Context) -> Frame:
    """Return what is agreed and not yet executed when a round is over in which ``payloads`` were agreed
    (``AGREED_SCHEMA``)."""
    ahead = np.uint64(1 + context.options.blocks_ahead)
    kept = [state.agreed.filter(~_due_now(state))]
    for payload in payloads:
        new = payload.with_columns(executed=_numbers(state, payload["destination"]) + ahead)
        kept.append(new.select(AGREED_SCHEMA.names))
    agreed = concat(kept)
    return agreed.take(stable_order(*(agreed[name] for name in AGREED_ORDER)))


_CERTIFIED = [*SLICE_COLUMNS, "number", "anchor", "header", "siblings", "messages", "path", "certification", "receiver"]
"""The columns of a certified slice; ``with_reads`` adds what is read to check it."""


# ---- planning


def plan_certified(
    state: State, local: State, view: View, carriers: Carriers, context: Context, wired: WireInput | None
) -> Plan[XNetPlan]:
    """Return what is brought to ``context.chains``, what they execute, and what is read for both.

    ``local``: the state of these chains; ``state``: of them and of those of the call that run no round; ``wired``: what
    other lakes' subnets brought.
    """
    expected, builders = advance_expected(state, context)
    building = context if len(builders) == len(context.chains) else replace(context, chains=builders)
    everything, older = serve_slices(view, expected, building), partial(serve_slices, view, expected, building)
    candidates = carriers.carry_certified(filter_new(expected, everything, building), everything, older, building)
    candidates = add_read_ranges(candidates)
    makers = np.array(sorted({chain for chain, _ in carriers.block_makers(building)}), dtype=np.uint32)
    everything = everything.filter(np.isin(everything["destination"], makers))
    before = older(1) if len(makers) else everything
    before = before.filter(np.isin(before["destination"], makers))
    ahead = context.options.blocks_ahead > 0
    taken = due_slices(local, context.chains) if ahead else candidates
    wanted = _reads(candidates)
    if ahead or len(makers):
        parts = [
            wanted,
            *(
                _reads(add_read_ranges(slices.with_columns(message_begin=slices["begin"], message_end=slices["end"])))
                for slices in (everything, before)
            ),
        ]
        # Ranges (lane, `begin`, `end`) that cover the same, none of which overlap.
        ranges = concat(
            [*parts, taken.select(LANE).with_columns(begin=taken["message_begin"], end=taken["message_end"])]
        )
        ranges = ranges.filter(ranges["end"] > ranges["begin"])
        ranges = ranges.take(stable_order(*(ranges[name] for name in (*LANE, "begin"))))
        lanes = group_rows(*(ranges[name] for name in LANE))
        begins, ends = ranges["begin"].copy(), ranges["end"]
        for start, count in zip(lanes.starts.tolist(), lanes.counts.tolist(), strict=True):
            if count > 1:
                # Each begins where those before it have ended; one of which nothing is left goes.
                rows = slice(start + 1, start + count)
                begins[rows] = np.maximum(begins[rows], np.maximum.accumulate(ends[start : start + count - 1]))
        wanted = ranges.with_columns(begin=begins).filter(ends > begins)
    rejects, events = read_rejects(taken, context), empty_frame(EVENTS_SCHEMA)
    if wired is not None:
        # What a plan needs to know of the slices of the lake's own subnets and of those from a wire.
        columns = [*SLICE_COLUMNS, *READ_COLUMNS]
        both = concat([taken.select(columns), wired.slices.select(columns)])
        taken, rejects, events = (
            both.take(stable_order(both["destination"], both["source"], both["substream"])),
            merge_rejects(rejects, wired),
            wired.events,
        )
    plan = make_plan(local, taken, rejects, view, state.kept_slices, events, context, wanted)
    reads = plan.reads
    if not (state.trees is not None and (state.trees.forest.version == state.trees.version)):
        # Whoever has to build the trees of streams anew reads all that is in them.
        reads = replace(reads, own=stream_ranges(state))
    elif len(makers):
        # What they propose has other signals.
        ours = stream_ranges(local)
        ours = ours.filter(np.isin(ours["source"], makers))
        reads = replace(reads, own=concat([reads.own.filter(~np.isin(reads.own["source"], makers)), ours]))
    content = replace(plan.content, brought=UnverifiedSlices(candidates, everything, before), wired=wired)
    return replace(plan, reads=reads, content=content)


def _reads(slices: Frame) -> Frame:
    return slices.select(LANE).with_columns(begin=slices["read_begin"], end=slices["read_end"])


# ---- a round


@dataclass(frozen=True)
class Agreement:
    """What a round executes (``content``), the messages of its slices (``offered``) and those of ours that it looks at
    (``own``); ``state``: with what is agreed from now on; ``refused``: the events of what was refused."""

    content: XNetPlan
    offered: Frame
    own: Frame
    state: State
    refused: Frame


@dataclass(frozen=True)
class Proposal:
    """Slices that are proposed, as whoever judges them sees them.

    ``certified``: those of this lake's subnets, and ``checked`` what is wrong with them. ``slices``: all, in the order
    of payloads, and ``causes`` what is wrong with each. Then their messages as they arrived (all that were read), the
    REJECT signals in them, and the sizes of messages, where there is a limit.
    """

    certified: Frame
    checked: SliceCheck
    slices: Frame
    causes: list[str]
    messages: Frame
    rejects: Frame
    sizes: MessageSizes | None

    def invalid(self, payload: Frame) -> npt.NDArray[np.bool_]:
        """Return which slices of a payload made of these are not what their source has certified."""
        wrong = np.array([bool(cause) for cause in self.causes], dtype=bool)
        return wrong[lookup_rows(self.slices, payload, LANE, ordered=False)]

    def select_certified(self, payload: Frame) -> Frame:
        """Return a payload's slices of this lake's subnets with the columns that certify them."""
        row = lookup_rows(payload, self.certified, LANE, ordered=False)
        taken = self.certified.filter(row >= 0)
        row = row[row >= 0]
        ends = {name: payload[name][row] for name in ("message_begin", "message_end")}
        return taken.with_columns(**ends)

    def agreed(self, payload: Frame) -> Frame:
        """Return a payload as it is kept until it is executed: with the digests beside its messages."""
        slices = self.select_certified(payload)
        return slices.with_columns(
            beside=proof_digests(slices, lookup_rows(self.certified, slices, LANE, ordered=False), self.checked)
        )


@dataclass(frozen=True)
class Notary:
    """Whoever judges slices and payloads in a round: every node of each subnet alike."""

    state: State
    expected: ExpectedIndexes
    certifier: Certifier
    context: Context

    def look(self, certified: Frame, messages: Frame, wired: WireInput | None = None) -> Proposal:
        """Verify slices from the bytes that came with them; those from a wire were."""
        messages = alter_messages(messages, certified)
        checked = check_certified(certified, messages, self.context, self.certifier)
        slices, causes, rejects = certified, checked.causes, read_rejects(certified, self.context)
        if wired is not None:
            # The slices of the lake's own subnets, of each the cause that makes it invalid, and those from a wire,
            # in the order of payloads (destination, source).
            both = concat([slices.select(SLICE_COLUMNS), wired.slices.select(SLICE_COLUMNS)])
            order = stable_order(both["destination"], both["source"], both["substream"])
            named = [*causes, *[""] * len(wired.slices)]
            slices, causes = both.take(order), [named[row] for row in order.tolist()]
            messages, rejects = concat([messages, wired.messages]), merge_rejects(rejects, wired)
        options = self.context.options
        sizes = _sizes(messages, options.version) if options.payload_bytes else None
        return Proposal(certified, checked, slices, causes, messages, rejects, sizes)

    def build(self, seen: Proposal) -> tuple[Frame, np.ndarray]:
        """Return the honest block maker's payload of slices that were seen, and the error of each."""
        context = self.context
        given = seen.slices, seen.rejects, seen.invalid(seen.slices), context
        limit = context.options.payload_bytes
        turn = source_turns(seen.slices, context) if limit else None
        return get_xnet_payload(
            self.state, *given, size_limit=limit, sizes=seen.sizes, expected=self.expected, turn=turn
        )

    def validate(self, payload: Frame, seen: Proposal) -> np.ndarray:
        """Return the error of each slice of payloads made of what was seen."""
        given = payload, seen.rejects, seen.invalid(payload), self.context
        limit = self.context.options.payload_bytes
        return validate_xnet_payload(self.state, *given, size_limit=limit, sizes=seen.sizes, expected=self.expected)


def agree(
    plan: Plan[XNetPlan],
    inputs: Inputs[State],
    state: State,
    carriers: Carriers,
    certifier: Certifier,
    context: Context,
) -> Agreement:
    """Agree on a payload for each chain of the round, and return what is executed in it.

    Raises ``InvariantViolation`` for chains whose notaries refuse what their honest block maker builds, and for those
    that find an agreed slice to be invalid when it is executed.
    """
    content, offered, served = plan.content, inputs.offered, plan.content.brought
    assert served is not None
    expected, _ = advance_expected(state, context)
    notary = Notary(state, expected, certifier, context)
    seen = notary.look(served.candidates, offered, content.wired)
    payload, errors = notary.build(seen)
    wrong = notary.validate(payload, seen) > 0
    _ensure(~wrong, payload, "notaries refuse the payload of an honest block maker")
    # What does not fit stays for a later block.
    errors = np.where(errors == SliceError.PayloadTooLarge, SliceError.ACCEPTED, errors)
    refused = [refusal_events(seen.slices, errors, context.options, seen.causes)]
    agreed, settled = [(payload, seen)], set[int]()
    for chain, does in carriers.block_makers(context):
        honest = seen.select_certified(payload.filter(_to(chain, payload))).select(_CERTIFIED)
        if chain in settled or not len(honest):
            continue
        false = add_read_ranges(propose_slices(honest, served.everything, served.older, does))
        proposal = notary.look(false, offered.filter(_to(chain, offered)))
        failed = notary.validate(false, proposal)
        if failed.any():
            refused.append(refused_payload_event(false, failed, proposal.causes))
        else:
            # What is valid is agreed, whoever proposes it.
            settled.add(chain)
            agreed.append((false, proposal))
    others = ~np.isin(payload["destination"], sorted(settled))
    agreed[0] = payload if others.all() else payload.filter(others), seen
    if context.options.blocks_ahead:
        waiting = [of.agreed(slices) for slices, of in agreed]
        now = due_slices(state, context.chains)
        verified = check_certified(now, offered, context, certifier)
        _ensure(~verified.invalid, now, "an agreed slice is not valid any more")
        agreed = [(now, Proposal(now, verified, now, verified.causes, offered, read_rejects(now, context), None))]
        state = replace(state, agreed=pending_payloads(state, waiting, context))
    taken = [accepted_columns(state, payload, context) for payload, _ in agreed]
    # The messages that a round takes of those that were `offered`: those of slices, each with the `messages` that
    # were read for them, and those of loopback streams.
    messages = [of.messages for _, of in agreed]
    looped, found = offered["source"] == offered["destination"], []
    for payload, arrived in zip(taken, messages, strict=True):
        # Which messages are in slices, of those that were read to check them.
        if len(arrived) == 0 or len(payload) == 0:
            wanted: npt.NDArray[np.bool_] = np.zeros(len(arrived), dtype=bool)
        else:
            runs, index = group_rows(*(arrived[name] for name in LANE)), arrived["index"]
            row = lookup_rows(payload, arrived.select(LANE).take(runs.starts), LANE, ordered=False)
            first, stop = payload["message_begin"][row], payload["message_end"][row]
            least, most = (of.reduceat(index, runs.starts) for of in (np.minimum, np.maximum))
            known = row >= 0
            wanted = runs.spread(known)
            if not ((least >= first) & (most < stop))[known].all():
                wanted &= (index >= runs.spread(first)) & (index < runs.spread(stop))
        if arrived is offered:
            # Most rounds take everything as it was read: nothing is put together.
            wanted, looped = wanted | looped, np.zeros(len(offered), dtype=bool)
        found.append(arrived.filter(wanted))
    slices, arrived = concat(taken), concat([*found, offered.filter(looped)])
    rejects = concat(
        [
            of.rejects.filter(lookup_rows(payload, reverse_lanes(of.rejects), LANE, ordered=False) >= 0)
            for payload, of in agreed
        ]
    )
    signals = filter_own_signals(state, rejects.take(stable_order(*(rejects[name] for name in REJECTS_ORDER))))
    content = replace(content, slices=sort_by_stream(slices), signals=signals)
    own = revisited_messages(state, inputs.own, content.slices, signals, context)
    return Agreement(content, arrived, own, state, concat(refused))


def _to(chain: int, rows: Frame) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = rows["destination"] == chain
    return found


def _ensure(valid: npt.NDArray[np.bool_], slices: Frame, text: str) -> None:
    if not valid.all():
        raise InvariantViolation(text, np.unique(slices["destination"][~valid]))


def _sizes(messages: Frame, version: CertificationVersion) -> MessageSizes:
    """Return the lengths of messages of other subnets, in the order of lanes."""
    messages = messages.filter(messages["source"] != messages["destination"])
    ordered = messages.take(stable_order(*(messages[name] for name in LANE_COLUMNS)))
    return MessageSizes(ordered, message_lengths(ordered, version))
