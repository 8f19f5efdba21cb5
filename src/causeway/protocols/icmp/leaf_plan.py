"""Which leaves the relay chain has when, as forks are planned: they may nest and overlap (ICMP reference 2.5, G9).

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

from causeway.model.errors import InvalidInput
from causeway.model.faults import Fault
from causeway.protocols.icmp.fault_kinds import ELDER, FORK, KEPT, LEAVES, OF
from causeway.protocols.icmp.leaves import MAX_CHAIN_HEADS, MOST_ANCESTORS

Branches = tuple[frozenset[int], ...]
"""The leaves of each branch of a fork."""


@dataclass(frozen=True)
class Stage:
    """The leaves from the relay block of the tick ``first`` on.

    ``origins``: each leaf, ascending, with its number in the stage before, or that of the leaf from which it parts.
    ``heirs``: each leaf of the stage before that is lost, with one that is kept in its place, by the numbers of then.
    ``forks``: those that are open, in the order in which they began. ``resting``: the leaves that make no block, and
    in the first tick of the stage ``resting_first``.
    """

    first: int
    origins: Mapping[int, int]
    heirs: Mapping[int, int]
    forks: tuple[tuple[Fault, Branches], ...]
    resting: frozenset[int]
    resting_first: frozenset[int]

    def rest(self, tick: int) -> frozenset[int]:
        """Return the leaves that make no block in a tick."""
        return self.resting_first if tick == self.first else self.resting

    def followed(self, branch: Callable[[Fault], int]) -> int:
        """Return the leaf of whoever follows of each fork the branch that ``branch`` says."""
        left = set(self.origins)
        for fault, branches in self.forks:
            if left.intersection(*[frozenset().union(*branches)]):
                left &= branches[branch(fault)]
        (leaf,) = left
        return leaf


ALONE = Stage(-1, {0: 0}, {}, (), frozenset(), frozenset())


class LeafPlan:
    """The stages of a network. ``running_from``: the first tick from one on in which the relay chain makes a block,
    None for never. Raises ``InvalidInput``."""

    def __init__(self, forks: Sequence[Fault], running_from: Callable[[int], int | None]) -> None:
        begins: dict[int, list[Fault]] = {}
        over: dict[int, list[Fault]] = {}
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

    def at(self, tick: int) -> Stage:
        """Return the leaves after the relay block of a tick."""
        return self.stages[bisect_right(self._firsts, tick) - 1]

    def before(self, tick: int) -> Stage:
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

    def __init__(self, before: Stage, tick: int) -> None:
        self.before, self.tick = before, tick
        self.origins = {leaf: leaf for leaf in before.origins}
        self.heirs: dict[int, int] = {}
        self.forks = list(before.forks)
        self.parted: set[int] = set()

    def end(self, fault: Fault) -> None:
        """Keep one branch of a fork, unless it went with an earlier one."""
        found = [branches for other, branches in self.forks if other is fault]
        if not found:
            return
        kept = found[0][fault.args[KEPT]]
        lost = frozenset().union(*found[0]) - kept
        heir = min(kept)
        self.heirs = {leaf: heir if other in lost else other for leaf, other in self.heirs.items()}
        self.heirs |= dict.fromkeys(lost, heir)
        self.origins = {leaf: origin for leaf, origin in self.origins.items() if leaf not in lost}
        left = [(other, tuple(own - lost for own in branches)) for other, branches in self.forks if other is not fault]
        self.forks = [(other, branches) for other, branches in left if all(branches)]

    def alone(self) -> None:
        """Give a leaf that is alone the number 0."""
        if len(self.origins) == 1:
            assert not self.forks
            self.origins = dict.fromkeys([0], next(iter(self.origins.values())))

    def begin(self, fault: Fault) -> None:
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

    def stage(self) -> Stage:
        """Return what it has become."""
        resting, origins = self.resting(), dict(sorted(self.origins.items()))
        first = resting - self.parted
        return Stage(self.tick, origins, self.heirs, tuple(self.forks), resting, first)


def _refused(fault: Fault, text: str) -> InvalidInput:
    return InvalidInput(f'faults: kind = "{FORK}": tick = {fault.first}: {text}')
