"""Forks of the relay chain, and parachains that go back (ICMP reference 2.5, 3.9, G9; hazards 6, 25).

A fork gives the relay chain up to ``MAX_CHAIN_HEADS`` leaves. Each makes a block in every tick, and includes what was
built on its own chain; a parachain builds on the leaf that it follows. When the fork is over one leaf is kept, and the
parachains that followed another are again what they were when the leaves parted: their tables of that height take the
place of the present ones, and they build on the leaf that is kept. As long as there are several leaves no body is given
up, so that what was delivered on the lost ones is there to be delivered again.

A parachain also goes back, to what it was before its last block, where the relay chain has refused that block: not
before, since one that is registered again meanwhile may still be included.

What users sent since is no state of a chain, and waits in the pool again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.faults import FOR_EVER, Fault
from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.ledger import REVERTED_SCHEMA
from causeway.protocols.contract import HEIGHTS_SCHEMA, PAST_SCHEMA, Chains, View
from causeway.protocols.digests import same
from causeway.protocols.draws import Draw, drawn
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.fault_kinds import CANDIDATE, FOLLOWERS, FORK, KEPT, LEAVES, WATERMARKS, WHAT
from causeway.protocols.icmp.leaves import Leaf, leaves_of
from causeway.protocols.icmp.options import IcmpOptions
from causeway.protocols.icmp.state import State
from causeway.protocols.icmp.storage import LeafTries
from causeway.protocols.interference import DROP, HALT, PASSIVE, Interference

TRIES = 64
"""Ticks in which a body may be fetched: with one that is skipped in all of them nobody waits for another."""

_SLACK = 8
"""Blocks of a parachain that are not included yet when a fork begins, and the ticks until a refusal is known."""


class RelayInterference(Interference):
    """The faults of a network of parachains."""

    passive = (*PASSIVE, CANDIDATE)

    def check(self, options: IcmpOptions) -> None:
        """Check that a fork is over a tick before the next one begins, and that candidates are what they are to be.
        Raises ``InvalidInput``."""
        relay = int(self._numbers[RELAY_POSITION])
        for before, fork in pairwise(self._forks):
            over = self._running_from(before.last + 1)
            if over is None or fork.first <= over:
                allowed = "allowed: no other fork" if over is None else f"allowed: at least {over + 1}"
                text = "is over in the next tick in which the relay chain makes a block"
                text = f"tick = {fork.first}: the fork before lasts until {before.last}, and {text}"
                raise InvalidInput(f'faults: kind = "{FORK}": {text}; {allowed}')
        if any(str(relay) in fault.args[FOLLOWERS] for fault in self._forks):
            text = "followers: one is the relay chain; allowed: names of parachains"
            raise InvalidInput(f'faults: kind = "{FORK}": {text}')
        for fault in self._faults.rows:
            if fault.kind != CANDIDATE:
                continue
            if fault.source == relay:
                raise InvalidInput(f'faults: kind = "{CANDIDATE}": chain: it is the relay chain; allowed: a parachain')
            if fault.args[WHAT] in WATERMARKS and options.watermark_mode == "now_minus_1":
                text = 'with watermark_mode = "now_minus_1" nobody looks at the watermark of a receipt'
                raise InvalidInput(f'faults: kind = "{CANDIDATE}": what = "{fault.args[WHAT]}": {text}')

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
        return sorted((fault for fault in self._faults.rows if fault.kind == FORK), key=lambda fault: fault.first)

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

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on at which a fault acts of itself or a fork is over."""
        over = [fault.last + 1 for fault in self._forks if fault.last + 1 >= tick]
        return min([*over, *([] if (found := super().next_planned(tick)) is None else [found])], default=None)

    def fork(self, tick: int) -> Fault | None:
        """Return the fork that acts at ``tick``."""
        return next(iter(self.acting(tick, FORK)), None)

    def fetched(self, listed: Frame, tick: int) -> npt.NDArray[np.bool_]:
        """Return which bodies of ``ingress(B, p)`` their recipients have fetched up to ``tick``: in one of the ticks
        after that of the relay block in which nobody kept them from it. What was fetched once stays.

        Looked at are the last ``TRIES`` ticks in which no fault acted.
        """
        found = np.ones(len(listed), dtype=bool)
        drops = [fault for fault in self._faults.rows if fault.kind == DROP]
        if not drops and not self._faults.skip:
            return found
        found[:] = False
        at = np.full(len(listed), tick, dtype=np.int64)
        posted = listed["tick"].astype(np.int64)
        for _ in range(TRIES):
            for fault in sorted(drops, key=lambda fault: fault.last, reverse=True):
                inside = (at >= fault.first) & (at <= min(fault.last, FOR_EVER - 1))
                at[inside & self.hit(fault, listed["to"], listed["source"])] = fault.first - 1
            left = np.flatnonzero(~found & (at > posted))
            if len(left) == 0:
                break
            for when in np.unique(at[left]).tolist():
                rows = left[at[left] == when]
                found[rows] = ~self.skipped(listed["to"][rows], listed["source"][rows], when)
            at -= 1
        return found

    def begun(self, tick: int) -> Fault:
        """Return the last fork that began before ``tick``."""
        return [fault for fault in self._forks if fault.first < tick][-1]

    def followed(self, chains: Chains, tick: int) -> npt.NDArray[np.uint8]:
        """Return the leaf that each parachain follows of those that there were before ``tick``."""
        fault = self.begun(tick)
        found = np.zeros(len(chains), dtype=np.uint8)
        for at, number in enumerate(self._numbers[chains].tolist()):
            named = fault.args[FOLLOWERS].get(str(number))
            if named is None:
                words = drawn(Draw.FOLLOWED, self._seed, number, fault.first)
                named = int(np.random.Generator(words).integers(int(fault.args[LEAVES])))
            found[at] = named
        return found


@dataclass(frozen=True)
class Standing:
    """Where the relay chain and parachains stand, as those see it that make a block.

    ``rows``, one a parachain by ``chain``: ``leaf``, the leaf that it follows, ``relay_number`` and ``relay_hash``,
    its block; ``number``, the parachain's last block; ``watermark`` and ``watermark_hash`` at that leaf;
    ``registered``; ``included``, whether the last block is. ``back``: those that go back, to a ``height``
    (``PAST_SCHEMA``). ``kept``: the leaf that is kept in this tick, where a fork is over; ``forked``: whether there
    were several leaves.
    """

    rows: Frame
    back: Frame
    kept: int | None
    forked: bool


def standing(tips: Frame, view: View, interference: RelayInterference, tick: int, *, relay_runs: bool) -> Standing:
    """Return where parachains stand; ``tips``: their last blocks; ``relay_runs``: whether the relay chain makes a
    block in ``tick``, without which no fork is over."""
    blocks, paras, chains = view.tables["blocks"], view.tables["paras"], tips["chain"]
    count, forked = len(tips), len(blocks) > 1
    leaf = interference.followed(chains, tick) if forked else np.zeros(count, dtype=np.uint8)
    kept = (
        int(interference.begun(tick).args[KEPT]) if forked and relay_runs and interference.fork(tick) is None else None
    )
    if len(paras) == 0:
        at = np.full(count, -1, dtype=np.int64)
    else:
        at = lookup(paras, Frame({"leaf": leaf, "para": chains}, count), ("leaf", "para"))
    known, row = at >= 0, np.maximum(at, 0)
    registered, included, dead = known.copy(), known.copy(), known.copy()
    registered[known] = paras["active"][at[known]] == 1
    included[known] = same(tips["head"][known], paras["head"][at[known]])
    dead[known] = ~included[known] & same(tips["head"][known], paras["refused"][at[known]])
    lost = leaf != kept if kept is not None else np.zeros(count, dtype=bool)
    goes = lost | dead
    height = np.where(lost, blocks["parted"][0], np.maximum(tips["height"], 1) - np.uint64(1)).astype(np.uint64)
    columns = {
        "chain": chains,
        "leaf": leaf,
        "relay_number": blocks["number"][leaf],
        "relay_hash": blocks["hash"][leaf],
        "number": tips["number"],
        "watermark": paras["watermark"][row] if len(paras) else np.zeros(count, dtype=np.uint64),
        "watermark_hash": paras["watermark_hash"][row] if len(paras) else np.zeros((count, 32), dtype=np.uint8),
        "registered": registered,
        "included": included,
    }
    back = Frame({"chain": chains[goes], "height": height[goes]}, int(goes.sum())).select(PAST_SCHEMA.names)
    return Standing(Frame(columns, count), back, kept, forked)


def leaves_to_build_on(state: State, kept: int | None, count: int, height: int) -> tuple[list[Leaf], LeafTries]:
    """Return the leaves on which blocks are made at ``height``, with their tries.

    ``kept``: the one that is kept, where a fork is over; ``count``: how many there are to be, where there is one.
    """
    leaves, tries = leaves_of(state.tables), state.kept.tries
    if not isinstance(tries, LeafTries):
        tries = LeafTries.of(leaves)
    if kept is not None:
        tries.keep(kept)
        return [leaves[kept].named(0).parted(0)], tries
    if len(leaves) == 1 and count > 1:
        tries.part(count)
        return [leaves[0].named(leaf).parted(height) for leaf in range(count)], tries
    return leaves, tries


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
