"""Forks of the relay chain, and parachains that go back (ICMP reference 2.5, 3.9, G9; hazards 6, 25).

Forks give the relay chain up to ``MAX_CHAIN_HEADS`` leaves (``leaf_plan``). Each makes a block in every tick, but for
elder ones, and includes what was built on its own chain; a parachain builds on the leaf that it follows. When a leaf is
lost, the parachains that followed it are again what they were when it parted from what is kept: their tables of that
height take the place of the present ones, and they build on a leaf that is kept. As long as there are several leaves no
body is given up, so that what was delivered on the lost ones is there to be delivered again.

A parachain also goes back, to what it was before its last block, where the relay chain has refused that block: not
before, since one that is registered again meanwhile may still be included.

What users sent since is no state of a chain, and waits in the pool again.

Which leaves the relay chain has when, as forks are planned: they may nest and overlap (ICMP reference 2.5, G9).

A fork parts one leaf into several, its branches. The first branch goes on under the leaf's number, the others get the
lowest numbers that are free. When the fork is over, the leaves of one branch stay, with all that has parted from it
since; the others are lost, and so are the forks inside them. A leaf that is alone has the number 0. The branches that a
fork calls elder make no block after their first: with one of them kept, the relay chain goes on below its highest
number.

All happens in the block of a tick, first what is over, then what begins. Where the relay chain is halted, it happens in
the next tick in which it is not; a fork that would be over by then does not happen.
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
from causeway.protocols.relay_chain.network import RELAY_POSITION
from causeway.protocols.relay_chain.options import IcmpOptions
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
"""The leaves of each branch of a fork."""


@dataclass(frozen=True)
class LeafStage:
    """The leaves from the relay block of the tick ``first`` on.

    ``origins``: each leaf, ascending, with its number in the stage before, or that of the leaf from which it parts.
    ``heirs``: each leaf of the stage before that is lost, with one that is kept in its place, by the numbers of then.
    ``forks``: those that are open, in the order in which they began. ``resting``: the leaves that make no block, and
    in the first tick of the stage ``resting_first``.
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
        """Return the leaf of whoever follows of each fork the branch that ``branch`` says."""
        left = set(self.origins)
        for fault, branches in self.forks:
            if left.intersection(*[frozenset().union(*branches)]):
                left &= branches[branch(fault)]
        (leaf,) = left
        return leaf


ALONE = LeafStage(-1, {0: 0}, {}, (), frozenset(), frozenset())


class LeafPlan:
    """The stages of a network. ``running_from``: the first tick from one on in which the relay chain makes a block,
    None for never. Raises ``InvalidInput``."""

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
            growing = _Growing(self.stages[-1], tick)
            for fault in over.get(tick, ()):
                growing.end(fault)
            if len(growing.origins) == 1:
                since = tick
            growing.alone()
            for fault in begins.get(tick, ()):
                # Bodies are kept, and blocks remembered, from the first of forks that overlap to the end of the
                # last.
                if fault.last - since >= MOST_ANCESTORS:
                    text = f"until = {fault.last}: there are several leaves since tick {since}"
                    raise _refused(fault, f"{text}; allowed: at most {MOST_ANCESTORS} ticks from there on")
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
        """Return the first tick from ``tick`` on in whose block leaves part or are lost, None without one."""
        at = bisect_left(self._firsts, tick)
        return self._firsts[at] if at < len(self._firsts) else None

    @property
    def last_change(self) -> int:
        """Return the last tick in whose block leaves part or are lost, 0 without any."""
        return max(self._firsts[-1], 0)


class _Growing:
    """A stage while it is made of the one before."""

    def __init__(self, before: LeafStage, tick: int) -> None:
        self.before, self.tick = before, tick
        self.origins = {leaf: leaf for leaf in before.origins}
        self.successors: dict[int, int] = {}
        self.forks = list(before.forks)
        self.parted: set[int] = set()

    def end(self, fault: FaultRule) -> None:
        """Keep one branch of a fork, unless it went with an earlier one."""
        found = [branches for other, branches in self.forks if other is fault]
        if not found:
            return
        kept = found[0][fault.args[KEPT]]
        lost = frozenset().union(*found[0]) - kept
        heir = min(kept)
        self.successors = {leaf: heir if other in lost else other for leaf, other in self.successors.items()}
        self.successors |= dict.fromkeys(lost, heir)
        self.origins = {leaf: origin for leaf, origin in self.origins.items() if leaf not in lost}
        left = [(other, tuple(own - lost for own in branches)) for other, branches in self.forks if other is not fault]
        self.forks = [(other, branches) for other, branches in left if all(branches)]

    def alone(self) -> None:
        """Give a leaf that is alone the number 0."""
        if len(self.origins) == 1:
            assert not self.forks
            self.origins = dict.fromkeys([0], next(iter(self.origins.values())))

    def begin(self, fault: FaultRule) -> None:
        """Part a leaf. Raises ``InvalidInput``."""
        open_to = [leaf for leaf in self.origins if leaf not in self.parted | self.resting()]
        of = fault.args.get(OF)
        if of is None:
            of = min(open_to, default=None)
        if of not in open_to:
            listed = ", ".join(map(str, open_to)) or "none"
            raise _refused(fault, f"of = {fault.args.get(OF, 'none')}: in its block, leaves that can part are {listed}")
        count = fault.args[LEAVES]
        room = MAX_CHAIN_HEADS - len(self.origins)
        if count - 1 > room:
            allowed = f"at most {room + 1}" if room else "no fork in it"
            text = f"leaves = {count}: there are {len(self.origins)} in its block, {MAX_CHAIN_HEADS} are the most"
            raise _refused(fault, f"{text}; allowed: {allowed}")
        new = [leaf for leaf in range(MAX_CHAIN_HEADS) if leaf not in self.origins][: count - 1]
        self.forks = [
            (other, tuple(own.union(new) if of in own else own for own in branches)) for other, branches in self.forks
        ]
        self.forks.append((fault, tuple(frozenset([leaf]) for leaf in (of, *new))))
        self.origins |= dict.fromkeys(new, self.origins[of])
        self.parted |= {of, *new}

    def resting(self) -> frozenset[int]:
        """Return the leaves of elder branches of the forks that are open."""
        return frozenset().union(*(branches[at] for fault, branches in self.forks for at in fault.args.get(ELDER, ())))

    def stage(self) -> LeafStage:
        """Return what it has become."""
        resting, origins = self.resting(), dict(sorted(self.origins.items()))
        first = resting - self.parted
        return LeafStage(self.tick, origins, self.successors, tuple(self.forks), resting, first)


def _refused(fault: FaultRule, text: str) -> InvalidInput:
    return InvalidInput(f'faults: kind = "{FORK}": tick = {fault.first}: {text}')


_SLACK = 8
"""Blocks of a parachain that are not included yet when a fork begins, and the ticks until a refusal is known."""


class RelayInterference(Interference):
    """The faults of a network of parachains."""

    passive = (*PASSIVE, CANDIDATE)

    def check(self, options: IcmpOptions, relay: str) -> None:
        """Check that forks part leaves that there are, and that candidates are what they are to be; ``relay``: the name
        of the relay chain. Raises ``InvalidInput``."""
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
        """Return which leaves the relay chain has when."""
        return LeafPlan(self._forks, self._running_from)

    def _running_from(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on in which the relay chain is not halted, None if there is none."""
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
        """Return how far back parachains go, at most."""
        forks = [fault.last - fault.first + 1 for fault in self._forks]
        halts = [fault for fault in self._faults.rows if fault.kind == HALT and fault.last < FOR_EVER]
        return max(forks, default=0) + sum(fault.last - fault.first + 1 for fault in halts) + _SLACK

    @property
    def has_forks(self) -> bool:
        """Return whether the relay chain ever has several leaves."""
        return bool(self._forks)

    @property
    def last_change(self) -> int:
        """Return the last tick at which a fault begins or ends, or leaves part or are lost."""
        return max(super().last_change, self.leaves.last_change)

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on at which a fault acts of itself or the leaves change."""
        return earliest(super().next_planned(tick), self.leaves.next_change(tick))

    def fetched(self, listed: Frame, tick: int) -> npt.NDArray[np.bool_]:
        """Return which bodies of ``ingress(B, p)`` their recipients have fetched up to ``tick``: in one of the ticks
        after that of the relay block in which nobody kept them from it. What was fetched once stays.

        That is so where the last such tick of a pair of chains is after the block. It is looked for from ``tick`` back
        to the oldest block, at most, of which the pair's bodies are asked for.
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
        left = np.arange(len(pairs))
        while len(left):
            to, source, at = pairs["to"][left], pairs["source"][left], last[left]
            for fault in sorted(drops, key=lambda fault: fault.last, reverse=True):
                inside = (at >= fault.first) & (at <= min(fault.last, FOR_EVER - 1))
                at[inside & self.hit(fault, to, source)] = fault.first - 1
            skipped = at > oldest[left]
            for when in np.unique(at[skipped]).tolist():
                rows = np.flatnonzero(skipped & (at == when))
                skipped[rows] = self.skipped(to[rows], source[rows], when)
            last[left] = at - skipped
            left = left[skipped]
        found = np.empty(len(listed), dtype=bool)
        found[order] = groups.spread(last) > posted[order]
        return found

    def followed(self, chains: Chains, stage: LeafStage) -> npt.NDArray[np.uint8]:
        """Return the leaf that each parachain follows of those of a stage."""
        if self._followed is None or self._followed[0] is not stage:
            leaves = [stage.followed(partial(self._branch, int(number))) for number in self._numbers]
            self._followed = stage, np.array(leaves, dtype=np.uint8)
        return self._followed[1][chains]

    _followed: tuple[LeafStage, npt.NDArray[np.uint8]] | None = None
    """The leaf that each chain follows of the stage that was asked about last."""

    def _branch(self, number: int, fault: FaultRule) -> int:
        """Return the branch of a fork that a parachain follows, by its number."""
        named = fault.args[FOLLOWERS].get(str(number))
        if named is not None:
            return int(named)
        words = draw_words(DrawPurpose.FOLLOWED, self._seed, number, fault.first)
        return int(np.random.Generator(words).integers(int(fault.args[LEAVES])))


@dataclass(frozen=True)
class ChainPositions:
    """Where the relay chain and parachains stand, as those see it that make a block.

    ``rows``, one a parachain by ``chain``: ``leaf``, the leaf that it follows, ``relay_number`` and ``relay_hash``,
    its block; ``number``, the parachain's last block; ``watermark`` and ``watermark_hash`` at that leaf;
    ``registered``; ``included``, whether the last block is. ``back``: those that go back, to a ``height``
    (``PAST_SCHEMA``). ``forked``: whether there are several leaves.
    """

    rows: Frame
    back: Frame
    forked: bool


def chain_positions(
    tips: Frame, returns: Frame, view: View, interference: RelayInterference, tick: int
) -> ChainPositions:
    """Return where parachains stand; ``tips``: their last blocks; ``returns``: where they went back before."""
    blocks, paras, chains = view.tables["blocks"], view.tables["paras"], tips["chain"]
    count, stage = len(tips), interference.leaves.before(tick)
    assert blocks["leaf"].tolist() == [*stage.origins], (tick, blocks["leaf"], stage)
    leaf = interference.followed(chains, stage)
    if len(paras) == 0:
        at = np.full(count, -1, dtype=np.int64)
    else:
        at = lookup_rows(paras, Frame({"leaf": leaf, "para": chains}, count), ("leaf", "para"))
    known, row = at >= 0, np.maximum(at, 0)
    registered, included, dead = known.copy(), known.copy(), known.copy()
    registered[known] = paras["active"][at[known]] == 1
    included[known] = rows_equal(tips["head"][known], paras["head"][at[known]])
    dead[known] = ~included[known] & rows_equal(tips["head"][known], paras["refused"][at[known]])
    # Which of the leaves that parachains follow are lost in a tick, and the height at which each parted from the
    # one that is kept in its place.
    stage = interference.leaves.at(tick)
    lost, parted = np.zeros(len(leaf), dtype=bool), np.zeros(len(leaf), dtype=np.uint64)
    if stage.first == tick:
        for gone, heir in stage.successors.items():
            mine = leaf == np.uint8(gone)
            lost |= mine
            parted[mine] = parting_height(view.tables["partings"], gone, heir)
    for chain, at_height, past in zip(*(returns[name].tolist() for name in RETURNS_SCHEMA.names), strict=True):
        parted[(chains == chain) & (past < parted) & (parted < at_height)] = at_height
    goes = lost | dead
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
    back = Frame({"chain": chains[goes], "height": height[goes]}, int(goes.sum())).select(PAST_SCHEMA.names)
    return ChainPositions(Frame(columns, count), back, len(blocks) > 1)


def leaves_to_build_on(
    state: State, stage: LeafStage, tick: int, height: int
) -> tuple[State, list[RelayLeaf], LeafTries]:
    """Return the leaves of the relay chain in a tick, as they are before its block, with their tries, in the order of
    their numbers; the state with the ``height`` at which each parted from others."""
    leaves, tries = read_leaves(state.tables), state.kept.tries
    if not isinstance(tries, LeafTries):
        tries = LeafTries.of(leaves)
    if stage.first != tick:
        return state, leaves, tries
    place = {int(leaf.blocks["leaf"][0]): row for row, leaf in enumerate(leaves)}
    tries.arrange_leaves([place[origin] for origin in stage.origins.values()])
    state = state.with_tables(partings=partings_after(state["partings"], stage.origins, height))
    return state, [leaves[place[origin]].named(leaf) for leaf, origin in stage.origins.items()], tries


def apply_returns(returns: Frame, back: Frame, height: int, reach: int) -> Frame:
    """Return where parachains went back, as far as one can go back, with those that do so at ``height``."""
    kept = returns.filter(returns["height"] + np.uint64(reach) >= np.uint64(height))
    added = Frame(
        {"chain": back["chain"], "height": np.full(len(back), height, dtype=np.uint64), "past": back["height"]},
        len(back),
    )
    joined = concat([kept, added])
    return joined.take(stable_order(joined["chain"], joined["height"]))


def recalled_heights(back: Frame, height: int) -> Frame:
    """Return of which heights the messages from users are wanted again by parachains that go back (``HEIGHTS_SCHEMA``),
    ``height`` being the one that is made."""
    last = np.full(len(back), height - 1, dtype=np.uint64)
    rows = Frame({"chain": back["chain"], "first": back["height"] + np.uint64(1), "last": last}, len(back))
    return rows.filter(rows["first"] <= last).select(HEIGHTS_SCHEMA.names)


def reverted_rows(back: Frame, height: int) -> Frame:
    """Return the heights that parachains abandon (``REVERTED_SCHEMA``)."""
    return recalled_heights(back, height).select(REVERTED_SCHEMA.names)


def partition_users(ingress: pa.Table, numbers: npt.NDArray[np.uint64]) -> tuple[pa.Table, pa.Table]:
    """Return the messages from users to chains with these numbers, and the others."""
    mine = np.isin(ingress["chain"].to_numpy(), numbers)
    return ingress.filter(pa.array(mine)), ingress.filter(pa.array(~mine))
