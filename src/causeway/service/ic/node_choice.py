"""Which node of a remote subnet is asked: near ones more often, bad ones not for a while (IC reference X-9).

Sans I/O: the caller says what time it is. A choice is a function of the seed and of what happened before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LEAST_RTT, MOST_RTT = 1e-6, 1.0
"""Between these (seconds) round-trip times count."""

NEWEST = 0.2
"""How much the newest round-trip time counts in the average."""

UNREACHABLE_SECONDS = 0.5
LYING_SECONDS = 60.0
"""For so long a node is left alone that did not answer in time, or served what does not hold; twice as long each time
in a row, up to ``LONGEST`` times as long."""

FAULT_SECONDS = 2.0
"""For so long a node is left alone whose answer led to a fault of this side: others are asked first."""

LONGEST = 16


@dataclass
class _Node:
    rtt: float | None = None
    bad_until: float = 0.0
    failures: int = 0


class NodeChoice:
    """The nodes of one remote subnet, as they answered so far. ``seed``: of the draws."""

    def __init__(self, nodes: Sequence[str], seed: int) -> None:
        self._nodes = {node: _Node() for node in nodes}
        self._draw = random.Random(seed)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that may be asked."""
        return tuple(self._nodes)

    def renew(self, nodes: Sequence[str]) -> None:
        """Ask other nodes from now on; those that stay are as they answered so far."""
        self._nodes = {node: self._nodes.get(node) or _Node() for node in nodes}

    def order(self, now: float) -> Iterator[str]:
        """Yield the nodes to ask, one after the other until one answers.

        Each is drawn with the weight 1000 / average round-trip time (milliseconds) among those left; those that are
        left alone are not asked, even if all are: the first one is when its time is over.
        """
        left = [name for name, node in self._nodes.items() if node.bad_until <= now]
        while left:
            found = self._draw.choices(left, [self._weight(name) for name in left])[0]
            left.remove(found)
            yield found

    def _weight(self, name: str) -> float:
        known = [node.rtt for node in self._nodes.values() if node.rtt is not None]
        rtt = self._nodes[name].rtt
        # One of which nothing is known counts as the nearest: else it would never be known.
        rtt = min(known, default=MOST_RTT) if rtt is None else rtt
        return 1000.0 / (1000.0 * rtt)

    def answered(self, name: str, seconds: float) -> None:
        """Take notice that a node answered after so many seconds, and that what it served holds."""
        node = self._nodes[name]
        seconds = min(max(seconds, LEAST_RTT), MOST_RTT)
        node.rtt = seconds if node.rtt is None else node.rtt + NEWEST * (seconds - node.rtt)
        node.failures, node.bad_until = 0, 0.0

    def failed(self, name: str, now: float, seconds: float) -> None:
        """Take notice that a node failed; it is left alone for ``seconds``, longer if it failed before, too."""
        node = self._nodes[name]
        node.bad_until = now + seconds * min(2**node.failures, LONGEST)
        node.failures = min(node.failures + 1, LONGEST)
        node.rtt = MOST_RTT

    def pause(self, now: float) -> float:
        """Return for how many seconds more nobody is asked, 0 if somebody is now."""
        return max(min((node.bad_until for node in self._nodes.values()), default=now) - now, 0.0)

    def bad(self, now: float) -> list[str]:
        """Return the nodes that are left alone now."""
        return [name for name, node in self._nodes.items() if node.bad_until > now]
