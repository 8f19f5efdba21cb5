"""Forks of the relay chain and rollbacks of parachains.

A fork splits a leaf of the relay chain into branches, up to ``MAX_CHAIN_HEADS`` leaves in total (``LeafPlan``). Each
leaf makes a block in every tick, except for the leaves of elder branches. A leaf includes the receipts built on its own
chain, and each parachain builds on the leaf that it follows. Parachains that follow a lost leaf return to their state
at the parting from a remaining leaf. No body is dropped while there are several leaves, so messages delivered on a lost
leaf can be delivered again.

A parachain also returns to the state before its last block once the relay chain has refused that block. It does not
return earlier, since a repeated registration may still let the block in. Messages from users are not part of a chain's
state; they return to the pool.

Forks may nest and overlap. The first branch keeps the number of the leaf, the others get the lowest free numbers. At
the end of a fork the leaves of one branch remain, with all their later branches. The other leaves are lost, with the
forks inside them. A single leaf has number 0. Elder branches make no block after their first one; if one of them
remains, the relay chain continues below its highest number.

Changes take effect in the block of a tick: first ends, then beginnings. A halted relay chain delays them to its next
block, and skips a fork that would be over by then.

Reference: ICMP, sections 2.5 and 3.9, G9; hazards 6, 25.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import group_rows, stable_order

from causeway.config.faults import FOR_EVER, FaultRule
from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import REVERTED_SCHEMA
from causeway.protocols.contract import HEIGHTS_SCHEMA, PAST_SCHEMA, Chains, View, earliest
from causeway.protocols.relay_chain.commitment import LeafTries
from causeway.protocols.relay_chain.fault_kinds import (
    CANDIDATE,
    ELDER,
    FOLLOWERS,
    FORK,
    KEPT,
    LEAVES,
    OF,
    WATERMARKS,
    WHAT,
    check_candidate_fault,
)
from causeway.protocols.relay_chain.options import RELAY_POSITION, IcmpOptions
from causeway.protocols.relay_chain.state import (
    MAX_CHAIN_HEADS,
    MOST_ANCESTORS,
    RETURNS_SCHEMA,
    RelayLeaf,
    State,
    parting_height,
    partings_after,
    read_leaves,
)
from causeway.protocols.shared.digests import rows_equal
from causeway.protocols.shared.interference import DROP, HALT, PASSIVE, Interference
from causeway.protocols.shared.random_numbers import DrawPurpose, draw_words

Branches = tuple[frozenset[int], ...]
"""Leaves of each branch of a fork."""


@dataclass(frozen=True)
class LeafStage:
    """Leaves of the relay chain from the block of tick ``first`` on.

    Attributes:
        first: First tick of the stage.
        origins: Each leaf, ascending, with its number in the previous stage, or that of the leaf that it parts from.
        successors: Each lost leaf of the previous stage, with its remaining replacement, by previous numbers.
        forks: Open forks in order of their beginning.
        resting: Leaves that make no block.
        idle_from: Leaves that make no block in the first tick.
    """

    first: int
    origins: Mapping[int, int]
    successors: Mapping[int, int]
    forks: tuple[tuple[FaultRule, Branches], ...]
    resting: frozenset[int]
    idle_from: frozenset[int]

    def rest(self, tick: int) -> frozenset[int]:
        """Return the leaves that make no block in a tick."""
        return self.idle_from if tick == self.first else self.resting

    def followed(self, branch: Callable[[FaultRule], int]) -> int:
        """Return the leaf of a follower that chooses a branch of each fork."""
        left = set(self.origins)
        for fault, branches in self.forks:
            if left.intersection(*[frozenset().union(*branches)]):
                left &= branches[branch(fault)]
        (leaf,) = left
        return leaf


ALONE = LeafStage(-1, {0: 0}, {}, (), frozenset(), frozenset())


class LeafPlan:
    """The leaf stages of a network.

    Args:
        forks: Fork faults of the scenario.
        running_from: First tick from a given one on with a relay block, or None.

    Raises:
        InvalidInput: A fork does not fit the leaves of its block.
    """

    def __init__(self, forks: Sequence[FaultRule], running_from: Callable[[int], int | None]) -> None:
        begins: dict[int, list[FaultRule]] = {}
        over: dict[int, list[FaultRule]] = {}
        for fault in sorted(forks, key=lambda fault: fault.first):
            first, end = running_from(fault.first), running_from(fault.last + 1)
            if first is None or first > fault.last:
                continue
            begins.setdefault(first, []).append(fault)
            if end is not None:
                over.setdefault(end, []).append(fault)
        self.stages = [ALONE]
        since = 0
        for tick in sorted({*begins, *over}):
            growing = _StageBuilder(self.stages[-1], tick)
            for fault in over.get(tick, ()):
                growing.end(fault)
            if len(growing.origins) == 1:
                since = tick
            growing.alone()
            for fault in begins.get(tick, ()):
                # Overlapping forks retain bodies and ancestors from the first beginning to the last end.
                if fault.last - since >= MOST_ANCESTORS:
                    text = f"until = {fault.last}: there are several leaves since tick {since}"
                    raise _fork_error(fault, f"{text}; allowed: at most {MOST_ANCESTORS} ticks from there on")
                growing.begin(fault)
            self.stages.append(growing.stage())
        self._firsts = [stage.first for stage in self.stages]

    def at(self, tick: int) -> LeafStage:
        """Return the leaves after the relay block of a tick."""
        return self.stages[bisect_right(self._firsts, tick) - 1]

    def before(self, tick: int) -> LeafStage:
        """Return the leaves before the relay block of a tick."""
        return self.stages[bisect_left(self._firsts, tick) - 1]

    def next_change(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on with a change of leaves, or None."""
        at = bisect_left(self._firsts, tick)
        return self._firsts[at] if at < len(self._firsts) else None

    @property
    def last_change(self) -> int:
        """Return the last tick with a change of leaves, 0 without any."""
        return max(self._firsts[-1], 0)


class _StageBuilder:
    """A leaf stage under construction from the previous one."""

    def __init__(self, before: LeafStage, tick: int) -> None:
        self.before, self.tick = before, tick
        self.origins = {leaf: leaf for leaf in before.origins}
        self.successors: dict[int, int] = {}
        self.forks = list(before.forks)
        self.parted: set[int] = set()

    def end(self, fault: FaultRule) -> None:
        """Keep one branch of a fork, unless an earlier end removed the fork."""
        matching = [branches for other, branches in self.forks if other is fault]
        if not matching:
            return
        kept_leaves = matching[0][fault.args[KEPT]]
        lost = frozenset().union(*matching[0]) - kept_leaves
        successor = min(kept_leaves)
        self.successors = {leaf: successor if other in lost else other for leaf, other in self.successors.items()}
        self.successors |= dict.fromkeys(lost, successor)
        self.origins = {leaf: origin for leaf, origin in self.origins.items() if leaf not in lost}
        remaining = [
            (other, tuple(own - lost for own in branches)) for other, branches in self.forks if other is not fault
        ]
        self.forks = [(other, branches) for other, branches in remaining if all(branches)]

    def alone(self) -> None:
        """Renumber a single leaf to 0."""
        if len(self.origins) == 1:
            assert not self.forks
            self.origins = dict.fromkeys([0], next(iter(self.origins.values())))

    def begin(self, fault: FaultRule) -> None:
        """Split a leaf.

        Raises:
            InvalidInput: The leaf does not exist, or there are too many leaves.
        """
        candidates = [leaf for leaf in self.origins if leaf not in self.parted | self.resting()]
        parent = fault.args.get(OF)
        if parent is None:
            parent = min(candidates, default=None)
        if parent not in candidates:
            listed = ", ".join(map(str, candidates)) or "none"
            raise _fork_error(
                fault, f"of = {fault.args.get(OF, 'none')}: in its block, leaves that can part are {listed}"
            )
        count = fault.args[LEAVES]
        capacity = MAX_CHAIN_HEADS - len(self.origins)
        if count - 1 > capacity:
            allowed = f"at most {capacity + 1}" if capacity else "no fork in it"
            text = f"leaves = {count}: there are {len(self.origins)} in its block, {MAX_CHAIN_HEADS} are the most"
            raise _fork_error(fault, f"{text}; allowed: {allowed}")
        new = [leaf for leaf in range(MAX_CHAIN_HEADS) if leaf not in self.origins][: count - 1]
        self.forks = [
            (other, tuple(own.union(new) if parent in own else own for own in branches))
            for other, branches in self.forks
        ]
        self.forks.append((fault, tuple(frozenset([leaf]) for leaf in (parent, *new))))
        self.origins |= dict.fromkeys(new, self.origins[parent])
        self.parted |= {parent, *new}

    def resting(self) -> frozenset[int]:
        """Return the leaves of elder branches of open forks."""
        return frozenset().union(*(branches[at] for fault, branches in self.forks for at in fault.args.get(ELDER, ())))

    def stage(self) -> LeafStage:
        """Return the finished stage."""
        resting, origins = self.resting(), dict(sorted(self.origins.items()))
        first = resting - self.parted
        return LeafStage(self.tick, origins, self.successors, tuple(self.forks), resting, first)


def _fork_error(fault: FaultRule, text: str) -> InvalidInput:
    return InvalidInput(f'faults: kind = "{FORK}": tick = {fault.first}: {text}')


_SLACK = 8
"""Bound on the unincluded blocks of a parachain at a fork, and on the delay of refusals (ticks)."""


class RelayInterference(Interference):
    """The faults of a network of parachains."""

    passive = (*PASSIVE, CANDIDATE)

    def check(self, options: IcmpOptions, relay: str) -> None:
        """Validate forks and candidates.

        Args:
            options: Options of the protocol.
            relay: Name of the relay chain.

        Raises:
            InvalidInput: A fault does not fit.
        """
        number = int(self._numbers[RELAY_POSITION])
        for row, fault in enumerate(self._faults.rows):
            if fault.kind == FORK and str(number) in fault.args[FOLLOWERS]:
                text = "is the relay chain; allowed: names of parachains"
                raise InvalidInput(f"faults[{row}].{FOLLOWERS}.{relay}: {text}")
        assert self.leaves is not None
        for row, fault in enumerate(self._faults.rows):
            if fault.kind != CANDIDATE:
                continue
            check_candidate_fault(fault, row, number, "egress")
            if fault.args[WHAT] in WATERMARKS and options.watermark_mode == "now_minus_1":
                text = 'with watermark_mode = "now_minus_1" nobody looks at the watermark of a receipt'
                raise InvalidInput(f'faults[{row}].{WHAT}: "{fault.args[WHAT]}": {text}')

    @cached_property
    def leaves(self) -> LeafPlan:
        """Return the leaf stages of the relay chain."""
        return LeafPlan(self._forks, self._running_from)

    def _running_from(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on with a running relay chain, or None."""
        relay = int(self._numbers[RELAY_POSITION])
        halts = [fault for fault in self._faults.rows if fault.kind == HALT and fault.source == relay]
        for fault in sorted(halts, key=lambda fault: fault.first):
            if fault.is_active(tick):
                if fault.last >= FOR_EVER:
                    return None
                tick = fault.last + 1
        return tick

    @property
    def _forks(self) -> list[FaultRule]:
        return [fault for fault in self._faults.rows if fault.kind == FORK]

    @property
    def reach(self) -> int:
        """Return the maximum depth (heights) of a rollback."""
        forks = [fault.last - fault.first + 1 for fault in self._forks]
        halts = [fault for fault in self._faults.rows if fault.kind == HALT and fault.last < FOR_EVER]
        return max(forks, default=0) + sum(fault.last - fault.first + 1 for fault in halts) + _SLACK

    @property
    def has_forks(self) -> bool:
        """Return True if the relay chain ever has several leaves."""
        return bool(self._forks)

    @property
    def last_change(self) -> int:
        """Return the last tick with a change of faults or leaves."""
        return max(super().last_change, self.leaves.last_change)

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on with an active fault or a change of leaves."""
        return earliest(super().next_planned(tick), self.leaves.next_change(tick))

    def fetched(self, listed: Frame, tick: int) -> npt.NDArray[np.bool_]:
        """Return a mask of queues in ``ingress(B, p)`` that their recipients fetched by ``tick``.

        A recipient fetches a body in the first tick after its relay block without an active fault. A body is thus
        fetched if the last fault-free tick of its pair of chains is after the block. The search starts at ``tick`` and
        stops at the oldest block of the pair.

        Args:
            listed: Listed queues.
            tick: Current tick.
        """
        drops = [fault for fault in self._faults.rows if fault.kind == DROP]
        if len(listed) == 0 or (not drops and not self._faults.skip):
            return np.ones(len(listed), dtype=bool)
        order = stable_order(listed["to"], listed["source"])
        groups = group_rows(listed["to"][order], listed["source"][order])
        pairs = listed.take(order[groups.starts])
        posted = listed["tick"].astype(np.int64)
        oldest = np.minimum.reduceat(posted[order], groups.starts)
        last = np.full(len(pairs), tick, dtype=np.int64)
        pending = np.arange(len(pairs))
        while len(pending):
            to, source, at = pairs["to"][pending], pairs["source"][pending], last[pending]
            for fault in sorted(drops, key=lambda fault: fault.last, reverse=True):
                inside = (at >= fault.first) & (at <= min(fault.last, FOR_EVER - 1))
                at[inside & self.hit(fault, to, source)] = fault.first - 1
            skipped = at > oldest[pending]
            for at_tick in np.unique(at[skipped]).tolist():
                rows = np.flatnonzero(skipped & (at == at_tick))
                skipped[rows] = self.skipped(to[rows], source[rows], at_tick)
            last[pending] = at - skipped
            pending = pending[skipped]
        is_fetched = np.empty(len(listed), dtype=bool)
        is_fetched[order] = groups.spread(last) > posted[order]
        return is_fetched

    def followed(self, chains: Chains, stage: LeafStage) -> npt.NDArray[np.uint8]:
        """Return the leaf of a stage that each parachain follows."""
        if self._followed is None or self._followed[0] is not stage:
            leaves = [stage.followed(partial(self._branch, int(number))) for number in self._numbers]
            self._followed = stage, np.array(leaves, dtype=np.uint8)
        return self._followed[1][chains]

    _followed: tuple[LeafStage, npt.NDArray[np.uint8]] | None = None
    """Cache of ``followed``: the last stage, with the leaf of each chain."""

    def _branch(self, number: int, fault: FaultRule) -> int:
        """Return the branch of a fork that a parachain follows, by its number."""
        named = fault.args[FOLLOWERS].get(str(number))
        if named is not None:
            return int(named)
        words = draw_words(DrawPurpose.FOLLOWED, self._seed, number, fault.first)
        return int(np.random.Generator(words).integers(int(fault.args[LEAVES])))


@dataclass(frozen=True)
class ChainPositions:
    """Positions of the parachains on the relay chain.

    Attributes:
        rows: One row a parachain: ``chain``, followed ``leaf``, ``relay_number`` and ``relay_hash`` of its block,
            ``number`` of the last block, ``watermark`` and ``watermark_hash`` at the leaf, ``registered``, and
            ``included`` for the last block.
        rollbacks: Parachains to roll back, with the ``height`` (``PAST_SCHEMA``).
        forked: The relay chain has several leaves.
    """

    rows: Frame
    rollbacks: Frame
    forked: bool


def chain_positions(
    tips: Frame, returns: Frame, view: View, interference: RelayInterference, tick: int
) -> ChainPositions:
    """Determine the positions of the parachains.

    Args:
        tips: Last blocks of the parachains.
        returns: Earlier rollbacks (``RETURNS_SCHEMA``).
        view: Tables that chains published at the previous height.
        interference: Faults of the scenario.
        tick: Current tick.
    """
    blocks, paras, chains = view.tables["blocks"], view.tables["paras"], tips["chain"]
    count, stage = len(tips), interference.leaves.before(tick)
    assert blocks["leaf"].tolist() == [*stage.origins], (tick, blocks["leaf"], stage)
    leaf = interference.followed(chains, stage)
    if len(paras) == 0:
        at = np.full(count, -1, dtype=np.int64)
    else:
        at = lookup_rows(paras, Frame({"leaf": leaf, "para": chains}, count), ("leaf", "para"))
    known, row = at >= 0, np.maximum(at, 0)
    registered, included, is_refused = known.copy(), known.copy(), known.copy()
    registered[known] = paras["active"][at[known]] == 1
    included[known] = rows_equal(tips["head"][known], paras["head"][at[known]])
    is_refused[known] = ~included[known] & rows_equal(tips["head"][known], paras["refused"][at[known]])
    # Followers of a lost leaf return to its parting from the replacement.
    stage = interference.leaves.at(tick)
    lost, parted = np.zeros(len(leaf), dtype=bool), np.zeros(len(leaf), dtype=np.uint64)
    if stage.first == tick:
        for lost_leaf, successor in stage.successors.items():
            on_leaf = leaf == np.uint8(lost_leaf)
            lost |= on_leaf
            parted[on_leaf] = parting_height(view.tables["partings"], lost_leaf, successor)
    for chain, at_height, past in zip(*(returns[name].tolist() for name in RETURNS_SCHEMA.names), strict=True):
        parted[(chains == chain) & (past < parted) & (parted < at_height)] = at_height
    rolls_back = lost | is_refused
    height = np.where(lost, parted, np.maximum(tips["height"], 1) - np.uint64(1)).astype(np.uint64)
    block = np.searchsorted(blocks["leaf"], leaf)
    columns = {
        "chain": chains,
        "leaf": leaf,
        "relay_number": blocks["number"][block],
        "relay_hash": blocks["hash"][block],
        "number": tips["number"],
        "watermark": paras["watermark"][row] if len(paras) else np.zeros(count, dtype=np.uint64),
        "watermark_hash": paras["watermark_hash"][row] if len(paras) else np.zeros((count, 32), dtype=np.uint8),
        "registered": registered,
        "included": included,
    }
    rollbacks = Frame({"chain": chains[rolls_back], "height": height[rolls_back]}, int(rolls_back.sum())).select(
        PAST_SCHEMA.names
    )
    return ChainPositions(Frame(columns, count), rollbacks, len(blocks) > 1)


def leaves_to_build_on(
    state: State, stage: LeafStage, tick: int, height: int
) -> tuple[State, list[RelayLeaf], LeafTries]:
    """Return the leaves before this tick's block, with their tries.

    Args:
        state: State of the relay chain.
        stage: Leaf stage after the block.
        tick: Current tick.
        height: Height of the block, for new partings.

    Returns:
        The state with new partings, the leaves by number, and their tries.
    """
    leaves, tries = read_leaves(state.tables), state.kept.tries
    if not isinstance(tries, LeafTries):
        tries = LeafTries.of(leaves)
    if stage.first != tick:
        return state, leaves, tries
    position_of = {int(leaf.blocks["leaf"][0]): row for row, leaf in enumerate(leaves)}
    tries.arrange_leaves([position_of[origin] for origin in stage.origins.values()])
    state = state.with_tables(partings=partings_after(state["partings"], stage.origins, height))
    return state, [leaves[position_of[origin]].named(leaf) for leaf, origin in stage.origins.items()], tries


def apply_returns(returns: Frame, rollbacks: Frame, height: int, reach: int) -> Frame:
    """Add the rollbacks at ``height``, and remove those beyond ``reach``."""
    recent = returns.filter(returns["height"] + np.uint64(reach) >= np.uint64(height))
    added = Frame(
        {
            "chain": rollbacks["chain"],
            "height": np.full(len(rollbacks), height, dtype=np.uint64),
            "past": rollbacks["height"],
        },
        len(rollbacks),
    )
    joined = concat([recent, added])
    return joined.take(stable_order(joined["chain"], joined["height"]))


def recalled_heights(rollbacks: Frame, height: int) -> Frame:
    """Return the heights with messages from users to repeat (``HEIGHTS_SCHEMA``)."""
    last = np.full(len(rollbacks), height - 1, dtype=np.uint64)
    rows = Frame(
        {"chain": rollbacks["chain"], "first": rollbacks["height"] + np.uint64(1), "last": last}, len(rollbacks)
    )
    return rows.filter(rows["first"] <= last).select(HEIGHTS_SCHEMA.names)


def reverted_rows(rollbacks: Frame, height: int) -> Frame:
    """Return the abandoned heights of parachains (``REVERTED_SCHEMA``)."""
    return recalled_heights(rollbacks, height).select(REVERTED_SCHEMA.names)


def partition_users(ingress: pa.Table, numbers: npt.NDArray[np.uint64]) -> tuple[pa.Table, pa.Table]:
    """Split messages from users into those to chains with these numbers and the others."""
    chosen = np.isin(ingress["chain"].to_numpy(), numbers)
    return ingress.filter(pa.array(chosen)), ingress.filter(pa.array(~chosen))
