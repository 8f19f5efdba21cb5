"""Forks of the relay chain, and parachains that go back (ICMP reference 2.5, 3.9, G9; hazards 6, 25).

Forks give the relay chain up to ``MAX_CHAIN_HEADS`` leaves (``leaf_plan``). Each makes a block in every tick, but for
elder ones, and includes what was built on its own chain; a parachain builds on the leaf that it follows. When a leaf is
lost, the parachains that followed it are again what they were when it parted from what is kept: their tables of that
height take the place of the present ones, and they build on a leaf that is kept. As long as there are several leaves no
body is given up, so that what was delivered on the lost ones is there to be delivered again.

A parachain also goes back, to what it was before its last block, where the relay chain has refused that block: not
before, since one that is registered again meanwhile may still be included.

What users sent since is no state of a chain, and waits in the pool again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.faults import FOR_EVER, Fault
from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.ledger import REVERTED_SCHEMA
from causeway.model.order import groups_of, stable_order
from causeway.protocols.contract import HEIGHTS_SCHEMA, PAST_SCHEMA, Chains, View
from causeway.protocols.digests import same
from causeway.protocols.draws import Draw, drawn
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.fault_kinds import CANDIDATE, FOLLOWERS, FORK, LEAVES, WATERMARKS, WHAT, check_what
from causeway.protocols.icmp.leaf_plan import LeafPlan, Stage
from causeway.protocols.icmp.leaves import Leaf, leaves_of, parted_at, partings_after
from causeway.protocols.icmp.options import IcmpOptions
from causeway.protocols.icmp.state import State
from causeway.protocols.icmp.storage import LeafTries
from causeway.protocols.icmp.tables import RETURNS_SCHEMA
from causeway.protocols.interference import DROP, HALT, PASSIVE, Interference
from causeway.protocols.waking import earliest

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
            check_what(fault, row, number, "egress")
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
            if fault.acts(tick):
                if fault.last >= FOR_EVER:
                    return None
                tick = fault.last + 1
        return tick

    @property
    def _forks(self) -> list[Fault]:
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
        groups = groups_of(listed["to"][order], listed["source"][order])
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

    def followed(self, chains: Chains, stage: Stage) -> npt.NDArray[np.uint8]:
        """Return the leaf that each parachain follows of those of a stage."""
        if self._followed is None or self._followed[0] is not stage:
            leaves = [stage.followed(partial(self._branch, int(number))) for number in self._numbers]
            self._followed = stage, np.array(leaves, dtype=np.uint8)
        return self._followed[1][chains]

    _followed: tuple[Stage, npt.NDArray[np.uint8]] | None = None
    """The leaf that each chain follows of the stage that was asked about last."""

    def _branch(self, number: int, fault: Fault) -> int:
        """Return the branch of a fork that a parachain follows, by its number."""
        named = fault.args[FOLLOWERS].get(str(number))
        if named is not None:
            return int(named)
        words = drawn(Draw.FOLLOWED, self._seed, number, fault.first)
        return int(np.random.Generator(words).integers(int(fault.args[LEAVES])))


@dataclass(frozen=True)
class Standing:
    """Where the relay chain and parachains stand, as those see it that make a block.

    ``rows``, one a parachain by ``chain``: ``leaf``, the leaf that it follows, ``relay_number`` and ``relay_hash``,
    its block; ``number``, the parachain's last block; ``watermark`` and ``watermark_hash`` at that leaf;
    ``registered``; ``included``, whether the last block is. ``back``: those that go back, to a ``height``
    (``PAST_SCHEMA``). ``forked``: whether there are several leaves.
    """

    rows: Frame
    back: Frame
    forked: bool


def standing(tips: Frame, returns: Frame, view: View, interference: RelayInterference, tick: int) -> Standing:
    """Return where parachains stand; ``tips``: their last blocks; ``returns``: where they went back before."""
    blocks, paras, chains = view.tables["blocks"], view.tables["paras"], tips["chain"]
    count, stage = len(tips), interference.leaves.before(tick)
    assert blocks["leaf"].tolist() == [*stage.origins], (tick, blocks["leaf"], stage)
    leaf = interference.followed(chains, stage)
    if len(paras) == 0:
        at = np.full(count, -1, dtype=np.int64)
    else:
        at = lookup(paras, Frame({"leaf": leaf, "para": chains}, count), ("leaf", "para"))
    known, row = at >= 0, np.maximum(at, 0)
    registered, included, dead = known.copy(), known.copy(), known.copy()
    registered[known] = paras["active"][at[known]] == 1
    included[known] = same(tips["head"][known], paras["head"][at[known]])
    dead[known] = ~included[known] & same(tips["head"][known], paras["refused"][at[known]])
    # Which of the leaves that parachains follow are lost in a tick, and the height at which each parted from the
    # one that is kept in its place.
    stage = interference.leaves.at(tick)
    lost, parted = np.zeros(len(leaf), dtype=bool), np.zeros(len(leaf), dtype=np.uint64)
    if stage.first == tick:
        for gone, heir in stage.heirs.items():
            mine = leaf == np.uint8(gone)
            lost |= mine
            parted[mine] = parted_at(view.tables["partings"], gone, heir)
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
    return Standing(Frame(columns, count), back, len(blocks) > 1)


def leaves_to_build_on(state: State, stage: Stage, tick: int, height: int) -> tuple[State, list[Leaf], LeafTries]:
    """Return the leaves of the relay chain in a tick, as they are before its block, with their tries, in the order of
    their numbers; the state with the ``height`` at which each parted from others."""
    leaves, tries = leaves_of(state.tables), state.kept.tries
    if not isinstance(tries, LeafTries):
        tries = LeafTries.of(leaves)
    if stage.first != tick:
        return state, leaves, tries
    place = {int(leaf.blocks["leaf"][0]): row for row, leaf in enumerate(leaves)}
    tries.arrange([place[origin] for origin in stage.origins.values()])
    state = state.with_tables(partings=partings_after(state["partings"], stage.origins, height))
    return state, [leaves[place[origin]].named(leaf) for leaf, origin in stage.origins.items()], tries


def with_returns(returns: Frame, back: Frame, height: int, reach: int) -> Frame:
    """Return where parachains went back, as far as one can go back, with those that do so at ``height``."""
    kept = returns.filter(returns["height"] + np.uint64(reach) >= np.uint64(height))
    added = Frame(
        {"chain": back["chain"], "height": np.full(len(back), height, dtype=np.uint64), "past": back["height"]},
        len(back),
    )
    joined = concat([kept, added])
    return joined.take(stable_order(joined["chain"], joined["height"]))


def told_since(back: Frame, height: int) -> Frame:
    """Return of which heights the messages from users are wanted again by parachains that go back (``HEIGHTS_SCHEMA``),
    ``height`` being the one that is made."""
    last = np.full(len(back), height - 1, dtype=np.uint64)
    rows = Frame({"chain": back["chain"], "first": back["height"] + np.uint64(1), "last": last}, len(back))
    return rows.filter(rows["first"] <= last).select(HEIGHTS_SCHEMA.names)


def reverted_rows(back: Frame, height: int) -> Frame:
    """Return the heights that parachains abandon (``REVERTED_SCHEMA``)."""
    return told_since(back, height).select(REVERTED_SCHEMA.names)


def to_some(ingress: pa.Table, numbers: npt.NDArray[np.uint64]) -> tuple[pa.Table, pa.Table]:
    """Return the messages from users to chains with these numbers, and the others."""
    mine = np.isin(ingress["chain"].to_numpy(), numbers)
    return ingress.filter(pa.array(mine)), ingress.filter(pa.array(~mine))
