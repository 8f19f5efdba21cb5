"""Carriers: delivery of envelopes to chains, and faults of delivery.

Envelopes proved in a block arrive in the next one, if the destination makes it. Otherwise they are lost, and operators
prove them again later. Faults alter deliveries before validation.

Reference: XDM, section 3.10; X-5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import group_rows, stable_order

from causeway.config.faults import FOR_EVER, FaultRule, Faults
from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.protocols.contract import Chains, View
from causeway.protocols.shared.interference import DROP, HALT, PASSIVE, REPLAY, TAMPER, Interference
from causeway.protocols.shared.random_numbers import DrawPurpose, draw_words
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.fault_kinds import (
    ABSENT,
    BLOCKS,
    BUNDLE,
    CHANCE,
    DELAY,
    EVERY,
    FOUND_AFTER,
    FRAUD,
    OF,
    REORDER,
    REORG,
    WHAT,
)
from causeway.protocols.xdm.relay.envelopes import decode_envelopes
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.tables import BASE, LATE_BASES_SCHEMA, LATE_NODES_SCHEMA, LATE_SCHEMA
from causeway.protocols.xdm.validate import DeliveredEnvelopes
from causeway.protocols.xdm.wire import Tag

LATE = ("late", "late_nodes", "late_bases")
"""The tables of late deliveries."""

_ROWS = ("destination", "source", "substream", "index")
_FORGED = 2**62
"""First base number of forged envelopes."""
_TAMPERED, _BUNDLED = 1, 2**61 + 1
"""Offsets of base numbers altered by carriers, and by operators in bundles."""
_CHANGING = (DROP, REPLAY, DELAY, REORDER, TAMPER)
"""Kinds of faults that alter deliveries."""

DELIVERY_BITS = 2**40 - 1
"""Bits of a base number with the block of its first delivery.

The lowest bit marks an alteration. The upper bits distinguish deliveries to one block.
"""


class CarrierInterference(Interference):
    """The faults of a network of domains."""

    passive: ClassVar[tuple[str, ...]] = (*PASSIVE, DELAY, REORDER, REPLAY, TAMPER, BUNDLE, ABSENT)

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on with an active fault, or None.

        Random forks happen only in ticks that are executed anyway.
        """
        by_chance = [fault for fault in self._faults.rows if fault.kind == REORG and CHANCE in fault.args]
        if not by_chance:
            return super().next_planned(tick)
        others = Faults.of(*(fault for fault in self._faults.rows if fault not in by_chance))
        return CarrierInterference(others, self._numbers, self._seed).next_planned(tick)

    @cached_property
    def has_forks(self) -> bool:
        """Return True if the scenario has forks of the consensus chain."""
        return any(fault.kind == REORG for fault in self._faults.rows)

    def running(self, chains: Chains, tick: int) -> Chains:
        """Return the chains that make a block at ``tick``: none without the consensus chain."""
        halted = self.sources(HALT, tick)
        if not halted:
            return chains
        return chains[:0] if CONSENSUS_POSITION in halted else super().running(chains, tick)

    def next_resume_tick(self, chains: Chains, tick: int) -> int | None:
        """Return the first tick after ``tick`` with a resumed chain, or None."""
        ends = [fault.last + 1 for fault in self.acting(tick, HALT) if fault.last < FOR_EVER]
        return min(ends, default=None) if len(chains) else None

    def check(self, challenge_period: int) -> None:
        """Check that frauds concern domains, with a proof within the challenge period.

        Args:
            challenge_period: Blocks until the confirmation of a receipt.

        Raises:
            InvalidInput: A fraud does not fit.
        """
        for fault in self._faults.rows:
            if fault.kind not in (FRAUD, BUNDLE) or fault.source is None:
                continue
            if self.positions[fault.source] == CONSENSUS_POSITION:
                text = "chain: the consensus chain has no receipts and bundles of its own; name a domain"
                raise InvalidInput(f'faults: kind = "{fault.kind}": {text}')
            after = fault.args.get(FOUND_AFTER, 0)
            if after > challenge_period:
                text = f"must be at most options.challenge_period = {challenge_period}, when receipts are confirmed"
                raise InvalidInput(f'faults: kind = "fraud": found_after = {after}: {text}')

    @cached_property
    def longest_fraud(self) -> int:
        """Return the maximum number of blocks until a fraud proof."""
        return max((fault.args.get(FOUND_AFTER, 0) for fault in self._faults.rows if fault.kind == FRAUD), default=0)

    @cached_property
    def longest_delay(self) -> int:
        """Return the maximum delay of deliveries, in blocks."""
        return max((int(fault.args.get(BLOCKS, fault.args.get(OF, 0))) for fault in self._faults.rows), default=0)

    def frauds(self, chains: Chains, tick: int, height: int) -> list[tuple[int, FaultRule]]:
        """Return the frauds that begin in a block of ``chains``: position of the chain and fault."""
        found = []
        for number, fault in enumerate(self._faults.rows):
            if fault.kind != FRAUD or not fault.is_active(tick) or fault.source is None:
                continue
            position = self.positions[fault.source]
            words = draw_words(DrawPurpose.FRAUD, self._seed, fault.source, height, number)
            if position in chains and np.random.Generator(words).random() < fault.args[CHANCE]:
                found.append((position, fault))
        return found

    def bundled(self, fault: FaultRule, rows: Frame, context: Context) -> tuple[int, npt.NDArray[np.bool_]]:
        """Return the chain of an unchecked bundle, and a mask of its one altered envelope.

        The envelope is sampled among unaltered ones; the mask is empty without deliveries.
        """
        assert fault.source is not None
        chain = self.positions[fault.source]
        picked = np.zeros(len(rows), dtype=bool)
        at = np.flatnonzero((rows["destination"] == chain) & (rows["base"] % np.uint64(2) == 0))
        if len(at) and chain in context.chains:
            words = draw_words(DrawPurpose.BUNDLE, self._seed, fault.source, context.height)
            picked[at[np.random.Generator(words).integers(len(at))]] = True
        return chain, picked

    def picked(self, fault: FaultRule, rows: Frame, height: int) -> npt.NDArray[np.bool_]:
        """Return a mask of envelopes affected by a fault.

        Every n-th matching envelope of each destination is affected, from a first one sampled at each height.
        """
        hit = self.hit(fault, rows["destination"], rows["source"])
        every = int(fault.args.get(EVERY, 1))
        if every == 1 or not hit.any():
            return hit
        at = np.flatnonzero(hit)
        at = at[stable_order(*(rows[name][at] for name in _ROWS))]
        groups = group_rows(rows["destination"][at])
        first = np.zeros(len(groups), dtype=np.uint64)
        for row, chain in enumerate(rows["destination"][at][groups.starts].tolist()):
            words = draw_words(DrawPurpose.PICKED, self._seed, int(self._numbers[chain]), height)
            first[row] = np.random.Generator(words).integers(every)
        mask = np.zeros(len(rows), dtype=bool)
        mask[at[groups.ranks().astype(np.uint64) % np.uint64(every) == groups.spread(first)]] = True
        return mask


@dataclass(frozen=True)
class CarrierLoad:
    """Deliveries of a block, and the tables of late deliveries (``LATE``)."""

    delivered: DeliveredEnvelopes
    late: dict[str, Frame]


def deliver(state: State, view: View, interference: CarrierInterference, context: Context) -> CarrierLoad:
    """Deliver envelopes to the running chains of a block.

    Bases with even numbers are as proved, with odd numbers altered.

    Args:
        state: State before the block.
        view: Tables that chains published at the previous height.
        interference: Faults of the scenario.
        context: Context of the block.
    """
    headers = view.headers
    producers = headers["chain"][headers["height"] == context.height - 1]
    tables = []
    for name in ("envelopes", "nodes", "bases"):
        frame = view.tables[name]
        proved_comes = np.isin(frame["source"], producers) & np.isin(frame["destination"], context.chains)
        proved_comes &= ~interference.skipped(frame["destination"], frame["source"], context.height)
        frame = frame if bool(proved_comes.all()) else frame.filter(proved_comes)
        tables.append(frame.with_columns(base=np.full(len(frame), 2 * context.number, dtype=np.uint64)))
    if not len(view.tables["forged"]):
        rows, nodes, bases = tables[0], tables[1], tables[2]
    else:
        forged_rows = view.tables["forged"].filter(
            np.isin(view.tables["forged"]["source"], producers)
            & np.isin(view.tables["forged"]["destination"], context.chains)
        )
        delivered, _ = decode_envelopes(
            forged_rows["envelope"].cast(pa.large_binary()), np.zeros(len(forged_rows), dtype=bool)
        )
        # Odd base numbers distinguish them from honest proofs.
        base = np.uint64(_FORGED + 2 * context.number + 1)
        frames = (delivered.envelopes, delivered.nodes, delivered.bases)
        forged = DeliveredEnvelopes(*(frame.with_columns(base=np.full(len(frame), base)) for frame in frames))
        rows, nodes, bases = (
            concat([tables[0], forged.envelopes.select(tables[0].names)]),
            sort_rows(concat([tables[1], forged.nodes.select(tables[1].names)]), (*BASE, "number")),
            sort_rows(concat([tables[2], forged.bases.select(tables[2].names)]), BASE),
        )
    acting = {kind: interference.acting(context.tick, kind) for kind in (*_CHANGING, BUNDLE)}
    late_before = tuple(
        (state[name].filter(np.isin(state[name]["destination"], context.chains)) if len(state[name]) else state[name])
        for name in LATE
    )
    if not any(acting.values()) and not len(late_before[0]):
        return CarrierLoad(DeliveredEnvelopes(rows, nodes, bases), {})
    for fault in acting[DROP]:
        rows = rows.filter(~interference.picked(fault, rows, context.height))
    now = np.uint64(context.number)
    due = np.full(len(rows), now, dtype=np.uint64)
    copies = []
    for fault in acting[REPLAY]:
        replayed = rows.filter(interference.picked(fault, rows, context.height))
        copies.append(replayed.with_columns(due=np.full(len(replayed), now + np.uint64(fault.args[BLOCKS]))))
    for fault in acting[DELAY]:
        due[interference.picked(fault, rows, context.height)] += np.uint64(fault.args[BLOCKS])
    for fault in acting[REORDER]:
        count = np.uint64(fault.args[OF])
        hit = interference.hit(fault, rows["destination"], rows["source"])
        due[hit] += (rows["index"][hit] + np.uint64(1)) % count
    rows = rows.with_columns(due=due)
    fresh = concat([rows, *copies]).select(LATE_SCHEMA.names)
    rows = concat([late_before[0], fresh])
    nodes = concat([late_before[1], nodes.select(LATE_NODES_SCHEMA.names)])
    bases = concat([late_before[2], bases.select(LATE_BASES_SCHEMA.names)])
    nodes, bases = (sort_rows(frame, keys) for frame, keys in ((nodes, (*BASE, "number")), (bases, BASE)))
    is_due = rows["due"] <= now
    late, rows = rows.filter(~is_due), rows.filter(is_due)
    late_after = late_tables(late, nodes, bases)
    for fault in acting[TAMPER]:
        picked = interference.picked(fault, rows, context.height) & (rows["base"] % np.uint64(2) == 0)
        rows, nodes, bases = _altered(fault.args[WHAT], picked, _TAMPERED, (rows, nodes, bases), context)
    unchecked = []
    for fault in acting[BUNDLE]:
        chain, picked = interference.bundled(fault, rows, context)
        if picked.any():
            unchecked.append(chain)
            rows, nodes, bases = _altered(fault.args[WHAT], picked, _BUNDLED, (rows, nodes, bases), context)
    return CarrierLoad(DeliveredEnvelopes(rows, nodes, bases, unchecked=tuple(sorted(set(unchecked)))), late_after)


def sort_rows(frame: Frame, keys: tuple[str, ...]) -> Frame:
    """Return rows sorted by their keys."""
    return frame.take(stable_order(*(frame[key] for key in keys)))


def first_delivery(base: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the block of each base's first delivery, from its number."""
    found: npt.NDArray[np.int64] = ((base & np.uint64(DELIVERY_BITS)) >> np.uint64(1)).astype(np.int64)
    return found


def late_tables(late: Frame, nodes: Frame, bases: Frame) -> dict[str, Frame]:
    """Return the tables of late deliveries: rows, with their nodes and bases."""
    nodes, bases = sort_rows(nodes, (*BASE, "number")), sort_rows(bases, BASE)
    used = bases.filter(lookup_rows(_distinct(late), bases, BASE) >= 0)
    return {
        "late": sort_rows(late, (*_ROWS, "base", "due")).select(LATE_SCHEMA.names),
        "late_nodes": nodes.filter(lookup_rows(used, nodes, BASE) >= 0).select(LATE_NODES_SCHEMA.names),
        "late_bases": used.select(LATE_BASES_SCHEMA.names),
    }


def _distinct(rows: Frame) -> Frame:
    """Return the distinct bases of rows."""
    keys = sort_rows(rows.select(BASE), BASE)
    return keys.take(group_rows(*(keys[key] for key in BASE)).starts)


def _altered(
    alteration: str, picked: npt.NDArray[np.bool_], shift: int, delivered: tuple[Frame, Frame, Frame], context: Context
) -> tuple[Frame, Frame, Frame]:
    """Return deliveries (envelopes, nodes, bases) with some rows altered by a fault.

    ``shift`` is the offset of new base numbers.
    """
    rows, nodes, bases = delivered
    if not picked.any():
        return delivered
    honest, bad = rows.filter(~picked), rows.filter(picked)
    if alteration == "tag":
        changed = np.where(bad["tag"] == np.uint64(Tag.NONE), np.uint64(Tag.CHANNEL_OPEN), np.uint64(Tag.NONE))
        return concat([honest, bad.with_columns(tag=changed)]), nodes, bases
    if alteration == "nonce":
        return concat([honest, bad.with_columns(index=bad["index"] + np.uint64(1))]), nodes, bases
    # Altered rows get their own base and nodes; those of honest messages remain unchanged.
    own = _distinct(bad)
    more_bases = bases.filter(lookup_rows(own, bases, BASE) >= 0)
    more_nodes = nodes.filter(lookup_rows(own, nodes, BASE) >= 0)
    if alteration == "source":
        bad, more_bases, more_nodes = (_other_source(frame, context) for frame in (bad, more_bases, more_nodes))
    elif alteration == "node":
        # Alter the last byte of the first node of each proof.
        members = bad["members"].to_pylist()
        first = np.array([int.from_bytes(packed[:4], "little") for packed in members], dtype=np.uint32)
        at = np.unique(lookup_rows(more_nodes, bad.select(BASE).with_columns(number=first), (*BASE, "number")))
        at = at[at >= 0]
        values = more_nodes["node"].take(pa.array(at))
        mask = np.zeros(len(more_nodes), dtype=bool)
        mask[at] = True
        more_nodes = more_nodes.with_columns(
            node=pa.compute.replace_with_mask(more_nodes["node"], pa.array(mask), _flipped(values))
        )
    else:
        more_bases = more_bases.with_columns(leaf=_flipped(more_bases["leaf"]))
    bad, more_bases, more_nodes = (
        frame.with_columns(base=frame["base"] + np.uint64(shift)) for frame in (bad, more_bases, more_nodes)
    )
    return (
        concat([honest, bad]),
        sort_rows(concat([nodes, more_nodes]), (*BASE, "number")),
        sort_rows(concat([bases, more_bases]), BASE),
    )


def _other_source(frame: Frame, context: Context) -> Frame:
    """Return rows with another source: the next chain that is neither end, else the destination."""
    count = len(context.network.names)
    source, destination = frame["source"].astype(np.int64), frame["destination"].astype(np.int64)
    other = (source + 1) % count
    other = np.where(other == destination, (other + 1) % count, other)
    other = np.where(other == source, destination, other)
    # One base for each false source: of two true sources the first supplies it.
    changed = frame.with_columns(source=other.astype(np.uint32))
    if "index" in frame:
        return changed
    keys = (*BASE, "number") if "number" in frame else BASE
    changed = sort_rows(changed, keys)
    return changed.take(group_rows(*(changed[key] for key in keys)).starts)


def _flipped(values: pa.BinaryArray) -> pa.BinaryArray:
    """Return values with the last byte altered."""
    return pa.array(
        [value[:-1] + bytes([value[-1] ^ 1]) if value else b"\0" for value in values.to_pylist()], pa.binary()
    )
