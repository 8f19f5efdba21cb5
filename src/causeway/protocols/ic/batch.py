"""A batch: what a round takes in, once it is agreed, and its decoding (IC reference 2.7, 3.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvariantViolation
from causeway.model.frame import Frame, from_table
from causeway.model.joins import codes, lookup
from causeway.model.ledger import Event, Kind, Via
from causeway.model.order import U64, groups_of, stable_order
from causeway.model.section import U64_MAX
from causeway.protocols.contract import Chains
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ic.messages import MESSAGE_OVERHEAD
from causeway.protocols.ic.remote_subnets import Wired
from causeway.protocols.messages import LANE, LANE_COLUMNS, blank_messages, payload_lengths


@dataclass(frozen=True)
class Brought:
    """Certified slices that were brought, not verified yet, of which a payload is built (``certified_slices``).

    ``candidates``: what carriers offer, one row a lane. ``everything``, ``older``: what endpoints serve, now and of the
    height before, to the subnets with block makers that propose something else; none to all others.
    """

    candidates: Frame
    everything: Frame
    older: Frame

    def without(self, chains: Chains) -> Brought:
        """Return what was not brought to ``chains``."""
        frames = (self.candidates, self.everything, self.older)
        return Brought(*(frame.filter(~np.isin(frame["destination"], chains)) for frame in frames))


@dataclass(frozen=True)
class XNetPlan:
    """What an agreed payload means for a round.

    ``slices``: the accepted slices, one row a lane (``SLICE_COLUMNS``); where they are certified those that may be
    taken, until the round has agreed on ``brought`` (``agreement``).
    ``loopback``: the loopback streams that are inducted, one row a lane (``message_begin``, ``message_end``).
    ``signals``: the REJECT signals in the slices that are about messages still in our streams (``REJECTS_SCHEMA``).
    ``segments``: where canisters have moved, in which round the messages of both were routed (lane, ``first``,
    ``tick``). ``kept``: what carriers keep from now on (``KEPT_SLICES_SCHEMA``). ``wired``: what other lakes' subnets
    brought, None without any.
    """

    slices: Frame
    loopback: Frame
    signals: Frame
    segments: Frame
    kept: Frame
    wired: Wired | None = None
    brought: Brought | None = None

    def without(self, chains: Chains) -> XNetPlan:
        """Return the plan without what ``chains`` would take."""
        slices, loopback, signals = self.slices, self.loopback, self.signals
        return replace(
            self,
            slices=slices.filter(~np.isin(slices["destination"], chains)),
            loopback=loopback.filter(~np.isin(loopback["source"], chains)),
            signals=signals.filter(~np.isin(signals["source"], chains)),
            brought=None if self.brought is None else self.brought.without(chains),
        )


@dataclass(frozen=True)
class DecodedBatch:
    """The input of a round, chains as positions.

    ``slices``, ``messages``: the accepted slices and their messages; ``loopback``, ``loopback_messages``: the loopback
    streams and theirs; both as they were sent, and where canisters have moved with the tick in which they were
    ``routed``. ``signals``: the REJECT signals in the slices about messages still in our streams; ``signalled``: our
    own messages that headers reject, or whose sizes the streams need, with ``reason`` (0: not rejected) and ``size``.
    ``ingress``: messages from users, with their ``chain``.
    """

    slices: Frame
    messages: Frame
    loopback: Frame
    loopback_messages: Frame
    signals: Frame
    signalled: Frame
    ingress: Frame


def decode(plan: XNetPlan, offered: Frame, own: Frame, ingress: pa.Table, subnets: U64) -> DecodedBatch:
    """Return what a round takes in; ``subnets`` gives the numbers of the chains by position.

    ``offered``: the messages of the plan's slices and loopback streams, ``own``: of those that are signalled. Raises
    ``InvariantViolation`` unless the messages are the runs without gaps that the slices announce: they were checked
    before agreement.
    """
    looped = offered["source"] == offered["destination"]
    messages, loopback_messages = offered.filter(~looped), offered.take(np.flatnonzero(looped))
    _ensure_complete(plan.slices, messages)
    _ensure_complete(plan.loopback, loopback_messages)
    if len(plan.segments):
        messages, loopback_messages = (
            rows.with_columns(routed=_routed(rows, plan.segments)) for rows in (messages, loopback_messages)
        )
    # Our own messages with the `reason` of their REJECT signal (0 without one) and their `size`.
    reason = np.zeros(len(own), dtype=np.uint8)
    if len(plan.signals) and len(own):
        rows = lookup(plan.signals, own, LANE_COLUMNS, ordered=False)
        reason[rows >= 0] = plan.signals["reason"][rows[rows >= 0]]
    # The ingress rows as messages (`MESSAGE_COLUMNS`) with the position of their `chain`.
    entered = from_table(ingress)
    order = np.argsort(subnets)
    positions = order[np.searchsorted(subnets[order], entered["chain"])]
    ingress_messages = blank_messages(
        len(entered),
        kind=int(Kind.INGRESS),
        sender=entered["sender"],
        receiver=entered["receiver"],
        method=entered["method"].dictionary_encode(),
        payload=entered["payload"],
        chain=positions.astype(np.uint32),
    )
    return DecodedBatch(
        plan.slices,
        messages,
        plan.loopback,
        loopback_messages,
        plan.signals,
        own.with_columns(reason=reason, size=payload_lengths(own) + np.uint64(MESSAGE_OVERHEAD)),
        ingress_messages,
    )


def refuse_ingress(ingress: Frame, refused: npt.NDArray[np.bool_], code: int, reason: str, log: EventLog) -> Frame:
    """Return the ingress messages without those ``refused``, each of which leaves an event.

    It never gets an index in a queue, so its identity is its position in the payload of its chain, from 1.
    """
    if not refused.any():
        return ingress
    order = stable_order(ingress["chain"])
    positions = np.empty(len(ingress), dtype=np.uint64)
    positions[order] = groups_of(ingress["chain"][order]).ranks() + 1
    rows = ingress.filter(refused).with_columns(callback=positions[refused])
    at = {"chain": rows["chain"], "index": positions[refused], "via": Via.INGRESS}
    log.add(event_rows(rows, Event.REJECTED, code=code, reason=reason, **at))
    return ingress.filter(~refused)


def _routed(messages: Frame, segments: Frame) -> U64:
    """Return the tick in which each message was put into its lane, the last there is where no segment is known: what
    came from another lake, whose programs do not come back to where they were."""
    if len(segments) == 0:
        return np.full(len(messages), U64_MAX, dtype=np.uint64)
    first, asked = codes((*LANE, "first"), segments, messages.select(LANE).with_columns(first=messages["index"]))
    order = np.argsort(first, kind="stable")
    found = segments.take(order[np.searchsorted(first[order], asked, side="right") - 1])
    known = np.logical_and.reduce([found[name] == messages[name] for name in LANE])
    ticks: U64 = np.where(known, found["tick"], np.uint64(U64_MAX))
    return ticks


def _ensure_complete(slices: Frame, messages: Frame) -> None:
    """Raise ``InvariantViolation`` unless the messages are exactly the ranges of the slices, each index once."""
    if _is_complete(slices, messages):
        return
    chains = np.union1d(slices["destination"], messages["destination"])
    parts = ([rows.filter(rows["destination"] == chain) for rows in (slices, messages)] for chain in chains)
    wrong = np.array([not _is_complete(*part) for part in parts])
    raise InvariantViolation("a slice's messages are not a run without gaps", chains[wrong])


def _is_complete(slices: Frame, messages: Frame) -> bool:
    """Return whether the messages are exactly the ranges of the slices, each index once."""
    counts = (slices["message_end"] - slices["message_begin"]).astype(np.int64)
    total = int(counts.sum())
    if total != len(messages):
        return False
    if total == 0:
        return True
    # What was read mostly lies lane by lane: one look-up a run of rows of one lane.
    runs = groups_of(*(messages[name] for name in LANE))
    found = lookup(slices, messages.select(LANE).take(runs.starts), LANE, ordered=False)
    if bool((found >= 0).all()):
        rows = runs.spread(found)
        begin = slices["message_begin"][rows]
        inside = (messages["index"] >= begin) & (messages["index"] < slices["message_end"][rows])
        if bool(inside.all()):
            position = (np.cumsum(counts) - counts)[rows] + (messages["index"] - begin).astype(np.int64)
            seen = np.zeros(total, dtype=bool)
            seen[position] = True
            return bool(seen.all())
    return False
