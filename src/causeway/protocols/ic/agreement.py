"""What a subnet agrees on where streams are certified: slices are brought, verified, built into a payload, which every
notary validates, and executed, ``blocks_ahead`` of its heights later (IC reference 3.7 to 3.9).

The next honest block maker proposes what ``get_xnet_payload`` gives. Malicious ones propose before it, of the same
slices, and are refused whole; a proposal of theirs in which nothing is wrong is the payload.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from causeway.model.errors import InvariantViolation
from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.joins import lookup
from causeway.model.ledger import EVENTS_SCHEMA
from causeway.model.order import groups_of, stable_order
from causeway.proofs.ic.versions import CertificationVersion
from causeway.protocols.contract import Inputs, Plan, View
from causeway.protocols.ic.agreed_payloads import agreed_after, due, expected_after
from causeway.protocols.ic.batch import Brought, XNetPlan
from causeway.protocols.ic.certified_slices import (
    Checked,
    beside,
    check_certified,
    rejects_in,
    served,
    with_reads,
)
from causeway.protocols.ic.certifying import Certifier
from causeway.protocols.ic.check_slice import SliceError, refusals, refused_payload
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.endpoint import SLICE_COLUMNS, by_stream, with_news
from causeway.protocols.ic.expected_indexes import Expected
from causeway.protocols.ic.faults import Carriers
from causeway.protocols.ic.payload_builder import MessageSizes, get_xnet_payload, turns, validate_xnet_payload
from causeway.protocols.ic.planning import brought, held, make_plan, seen_again, signals_about_ours
from causeway.protocols.ic.remote_subnets import READ_COLUMNS, Wired, all_rejects
from causeway.protocols.ic.sizes import message_lengths
from causeway.protocols.ic.state import REJECTS_ORDER, State, opposite
from causeway.protocols.ic.tampering import altered_messages, proposed
from causeway.protocols.messages import LANE, LANE_COLUMNS

_CERTIFIED = [*SLICE_COLUMNS, "number", "anchor", "header", "siblings", "messages", "path", "certification", "receiver"]
"""The columns of a certified slice; ``with_reads`` adds what is read to check it."""


# ---- planning


def plan_certified(
    state: State, local: State, view: View, carriers: Carriers, context: Context, wired: Wired | None
) -> Plan[XNetPlan]:
    """Return what is brought to ``context.chains``, what they execute, and what is read for both.

    ``local``: the state of these chains; ``state``: of them and of those of the call that run no round; ``wired``: what
    other lakes' subnets brought.
    """
    expected, builders = expected_after(state, context)
    building = context if len(builders) == len(context.chains) else replace(context, chains=builders)
    everything, older = served(view, expected, building), partial(served, view, expected, building)
    candidates = carriers.carry_certified(with_news(expected, everything, building), everything, older, building)
    candidates = with_reads(candidates)
    makers = np.array(sorted({chain for chain, _ in carriers.block_makers(building)}), dtype=np.uint32)
    everything = everything.filter(np.isin(everything["destination"], makers))
    before = older(1) if len(makers) else everything
    before = before.filter(np.isin(before["destination"], makers))
    ahead = context.options.blocks_ahead > 0
    taken = due(local, context.chains) if ahead else candidates
    wanted = _reads(candidates)
    if ahead or len(makers):
        parts = [
            wanted,
            *(
                _reads(with_reads(slices.with_columns(message_begin=slices["begin"], message_end=slices["end"])))
                for slices in (everything, before)
            ),
        ]
        # Ranges (lane, `begin`, `end`) that cover the same, none of which overlap.
        ranges = concat(
            [*parts, taken.select(LANE).with_columns(begin=taken["message_begin"], end=taken["message_end"])]
        )
        ranges = ranges.filter(ranges["end"] > ranges["begin"])
        ranges = ranges.take(stable_order(*(ranges[name] for name in (*LANE, "begin"))))
        lanes = groups_of(*(ranges[name] for name in LANE))
        begins, ends = ranges["begin"].copy(), ranges["end"]
        for start, count in zip(lanes.starts.tolist(), lanes.counts.tolist(), strict=True):
            if count > 1:
                # Each begins where those before it have ended; one of which nothing is left goes.
                rows = slice(start + 1, start + count)
                begins[rows] = np.maximum(begins[rows], np.maximum.accumulate(ends[start : start + count - 1]))
        wanted = ranges.with_columns(begin=begins).filter(ends > begins)
    rejects, events = rejects_in(taken, context), empty_frame(EVENTS_SCHEMA)
    if wired is not None:
        # What a plan needs to know of the slices of the lake's own subnets and of those from a wire.
        columns = [*SLICE_COLUMNS, *READ_COLUMNS]
        both = concat([taken.select(columns), wired.slices.select(columns)])
        taken, rejects, events = (
            both.take(stable_order(both["destination"], both["source"], both["substream"])),
            all_rejects(rejects, wired),
            wired.events,
        )
    plan = make_plan(local, taken, rejects, view, state.kept_slices, events, context, wanted)
    reads = plan.reads
    if not (state.trees is not None and (state.trees.forest.version == state.trees.version)):
        # Whoever has to build the trees of streams anew reads all that is in them.
        reads = replace(reads, own=held(state))
    elif len(makers):
        # What they propose has other signals.
        ours = held(local)
        ours = ours.filter(np.isin(ours["source"], makers))
        reads = replace(reads, own=concat([reads.own.filter(~np.isin(reads.own["source"], makers)), ours]))
    content = replace(plan.content, brought=Brought(candidates, everything, before), wired=wired)
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
    checked: Checked
    slices: Frame
    causes: list[str]
    messages: Frame
    rejects: Frame
    sizes: MessageSizes | None

    def invalid(self, payload: Frame) -> npt.NDArray[np.bool_]:
        """Return which slices of a payload made of these are not what their source has certified."""
        wrong = np.array([bool(cause) for cause in self.causes], dtype=bool)
        return wrong[lookup(self.slices, payload, LANE, ordered=False)]

    def certified_of(self, payload: Frame) -> Frame:
        """Return a payload's slices of this lake's subnets with the columns that certify them."""
        row = lookup(payload, self.certified, LANE, ordered=False)
        taken = self.certified.filter(row >= 0)
        row = row[row >= 0]
        ends = {name: payload[name][row] for name in ("message_begin", "message_end")}
        return taken.with_columns(**ends)

    def agreed(self, payload: Frame) -> Frame:
        """Return a payload as it is kept until it is executed: with the digests beside its messages."""
        slices = self.certified_of(payload)
        return slices.with_columns(
            beside=beside(slices, lookup(self.certified, slices, LANE, ordered=False), self.checked)
        )


@dataclass(frozen=True)
class Notary:
    """Whoever judges slices and payloads in a round: every node of each subnet alike."""

    state: State
    expected: Expected
    certifier: Certifier
    context: Context

    def look(self, certified: Frame, messages: Frame, wired: Wired | None = None) -> Proposal:
        """Verify slices from the bytes that came with them; those from a wire were."""
        messages = altered_messages(messages, certified)
        checked = check_certified(certified, messages, self.context, self.certifier)
        slices, causes, rejects = certified, checked.causes, rejects_in(certified, self.context)
        if wired is not None:
            # The slices of the lake's own subnets, of each the cause that makes it invalid, and those from a wire,
            # in the order of payloads (destination, source).
            both = concat([slices.select(SLICE_COLUMNS), wired.slices.select(SLICE_COLUMNS)])
            order = stable_order(both["destination"], both["source"], both["substream"])
            named = [*causes, *[""] * len(wired.slices)]
            slices, causes = both.take(order), [named[row] for row in order.tolist()]
            messages, rejects = concat([messages, wired.messages]), all_rejects(rejects, wired)
        options = self.context.options
        sizes = _sizes(messages, options.version) if options.payload_bytes else None
        return Proposal(certified, checked, slices, causes, messages, rejects, sizes)

    def build(self, seen: Proposal) -> tuple[Frame, np.ndarray]:
        """Return the honest block maker's payload of slices that were seen, and the error of each."""
        context = self.context
        given = seen.slices, seen.rejects, seen.invalid(seen.slices), context
        limit = context.options.payload_bytes
        turn = turns(seen.slices, context) if limit else None
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
    expected, _ = expected_after(state, context)
    notary = Notary(state, expected, certifier, context)
    seen = notary.look(served.candidates, offered, content.wired)
    payload, errors = notary.build(seen)
    wrong = notary.validate(payload, seen) > 0
    _ensure(~wrong, payload, "notaries refuse the payload of an honest block maker")
    # What does not fit stays for a later block.
    errors = np.where(errors == SliceError.PayloadTooLarge, SliceError.ACCEPTED, errors)
    refused = [refusals(seen.slices, errors, context.options, seen.causes)]
    agreed, settled = [(payload, seen)], set[int]()
    for chain, does in carriers.block_makers(context):
        honest = seen.certified_of(payload.filter(_to(chain, payload))).select(_CERTIFIED)
        if chain in settled or not len(honest):
            continue
        false = with_reads(proposed(honest, served.everything, served.older, does))
        proposal = notary.look(false, offered.filter(_to(chain, offered)))
        failed = notary.validate(false, proposal)
        if failed.any():
            refused.append(refused_payload(false, failed, proposal.causes))
        else:
            # What is valid is agreed, whoever proposes it.
            settled.add(chain)
            agreed.append((false, proposal))
    others = ~np.isin(payload["destination"], sorted(settled))
    agreed[0] = payload if others.all() else payload.filter(others), seen
    if context.options.blocks_ahead:
        waiting = [of.agreed(slices) for slices, of in agreed]
        now = due(state, context.chains)
        verified = check_certified(now, offered, context, certifier)
        _ensure(~verified.invalid, now, "an agreed slice is not valid any more")
        agreed = [(now, Proposal(now, verified, now, verified.causes, offered, rejects_in(now, context), None))]
        state = replace(state, agreed=agreed_after(state, waiting, context))
    taken = [brought(state, payload, context) for payload, _ in agreed]
    # The messages that a round takes of those that were `offered`: those of slices, each with the `messages` that
    # were read for them, and those of loopback streams.
    messages = [of.messages for _, of in agreed]
    looped, found = offered["source"] == offered["destination"], []
    for payload, arrived in zip(taken, messages, strict=True):
        # Which messages are in slices, of those that were read to check them.
        if len(arrived) == 0 or len(payload) == 0:
            wanted: npt.NDArray[np.bool_] = np.zeros(len(arrived), dtype=bool)
        else:
            runs, index = groups_of(*(arrived[name] for name in LANE)), arrived["index"]
            row = lookup(payload, arrived.select(LANE).take(runs.starts), LANE, ordered=False)
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
        [of.rejects.filter(lookup(payload, opposite(of.rejects), LANE, ordered=False) >= 0) for payload, of in agreed]
    )
    signals = signals_about_ours(state, rejects.take(stable_order(*(rejects[name] for name in REJECTS_ORDER))))
    content = replace(content, slices=by_stream(slices), signals=signals)
    own = seen_again(state, inputs.own, content.slices, signals, context)
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
