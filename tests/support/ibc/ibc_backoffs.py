"""What relayers leave alone for a while, because it was refused to them: a dictionary by entry.

A refusal that does not pass by itself is n = 1 + what the first entry of the same stretch had before: the entries are
brought again ``min(2**n, 64)`` blocks later. In order it is the first alone that is noted, and nothing behind it is
brought; nothing at all where it is the header. In order it is a lasting reason, too, that something has to come first,
in a block in which nothing of the queue was taken; and all is forgotten when something is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.spec import ibc
from tests.spec.ibc.network import UNPAID
from tests.spec.ibc.queue import Queue

KINDS = ("IBCreceive", "IBCreceipt", "IBCtimeout", "IBCcleanup", "updateHeader")
CLEANUP, HEADER = KINDS.index("IBCcleanup"), KINDS.index("updateHeader")

PASSING = {
    "Success",
    "MissingHeader",
    "OutOfOrder",
    "NoOp",
    "NeedIntermediateHeader",
    "DelayNotElapsed",
    "TimeoutNotReached",
    "CleanupBackwards",
}
"""What becomes of calls, where waiting would be of no use."""

Lane = tuple[str, str, str, int]
"""(zone, remote, relayer, kind of call)."""


@dataclass
class BackOffs:
    """The memory of all relayers."""

    net: Any
    lanes: defaultdict[Lane, dict[int, tuple[int, int]]] = field(default_factory=lambda: defaultdict(dict))
    """Index -> (how often it was refused in a row, the height at which it is brought again)."""

    def waits(self, lane: Lane, height: int) -> set[int]:
        """The indices that are left alone at a height."""
        return {index for index, (_, until) in self.lanes.get(lane, {}).items() if height < until}

    def shuns(self, zone: str, remote: str, relayer: str, height: int) -> bool:
        """Whether nothing of a remote is brought."""
        return bool(self.waits((zone, remote, relayer, HEADER), height))

    def left(self, run: Any, relayer: str, height: int) -> Iterator[Any]:
        """What is left of a run that would be brought at a height."""
        waiting = self.waits((run.zone, run.remote, relayer, run.call), height)
        if self.shuns(run.zone, run.remote, relayer, height):
            return
        if run.call == CLEANUP:
            if run.begin not in waiting:
                yield run
            return
        ordered, begin = self.net.options.order == "ordered", None
        for index in range(run.begin, run.end + 1):
            stop = index == run.end or index in waiting or (ordered and any(other <= index for other in waiting))
            if not stop and begin is None:
                begin = index
            elif stop and begin is not None:
                yield replace(run, begin=begin, end=index)
                begin = None

    def decided(self, zone: str, remote: str) -> None:
        """A zone goes on with a connection: all may be tried again."""
        for lane in [lane for lane in self.lanes if lane[:2] == (zone, remote)]:
            del self.lanes[lane]

    def learn(self, height: int, relayers: set[str], frozen: set[tuple[str, str, int]]) -> None:
        """Take in the outcomes of a block; ``frozen``: (zone, remote, height) of headers that were evidence."""
        ordered = self.net.options.order == "ordered"
        moved = {(one.zone, one.remote, KINDS.index(one.call)) for one, outcome, _ in self.net.outcomes
                 if outcome == "Success" and one.call in KINDS}  # fmt: skip
        for lane in self.lanes:
            if ordered and lane[3] != HEADER and (*lane[:2], lane[3]) in moved:
                self.lanes[lane].clear()
        before = {lane: dict(entries) for lane, entries in self.lanes.items()}
        last: tuple[Any, str] | None = None
        count, headers = 0, set()
        behind: Any = None
        for submission, outcome, head in self.net.outcomes:
            if outcome == UNPAID:
                continue
            if submission.call not in KINDS:
                last = None
                continue
            lane = submission.zone, submission.remote, submission.relayer, KINDS.index(submission.call)
            run = getattr(submission, "run", None)
            taken = lane[3] == HEADER and outcome == "Success"
            if taken and (*lane[:2], submission.argument.height) not in frozen:
                headers.add(lane[:2])
            if lane[2] not in relayers:
                last = None
                continue
            if ordered and run is not None and run is behind and lane[3] != HEADER:
                continue  # in order, what is behind a refused entry has its fate
            stuck = ordered and outcome == "OutOfOrder" and (*lane[:2], lane[3]) not in moved
            stuck = stuck and not self._done(lane, self._index(lane[3], submission, head), set())
            if stuck or outcome not in ("Success", "NoOp", "OutOfOrder"):
                behind = run
            if outcome in PASSING and not stuck:
                last = None
                continue
            index = self._index(lane[3], submission, head)
            if last is None or last[0] is not run or last[1] != outcome or lane[3] == HEADER:
                count = 1 + before.get(lane, {}).get(index, (0, 0))[0]
            last = run, outcome
            noted = self.lanes[lane].get(index)
            until = height + min(2**count, 64)
            if noted is None or noted == before.get(lane, {}).get(index) or noted[0] < count:
                self.lanes[lane][index] = count, until
        for lane, entries in self.lanes.items():
            for index, (_, until) in list(entries.items()):
                if until + 64 <= height or self._done(lane, index, headers):
                    del entries[index]

    def _index(self, call: int, submission: Any, head: int) -> int:
        if call == HEADER:
            return 0
        if call == CLEANUP or (call == KINDS.index("IBCtimeout") and self.net.options.order == "ordered"):
            return head
        index: int = submission.run.begin + submission.number
        return index

    def _done(self, lane: Lane, index: int, headers: set[tuple[str, str]]) -> bool:
        """Whether somebody has brought it meanwhile, or it is not there any more."""
        zone, remote, _, call = lane
        own = self.net.zones[zone]
        sent, received = Queue(own.store, remote, "send"), Queue(own.store, remote, "receipt")
        if call == HEADER:
            return (zone, remote) in headers
        if call == CLEANUP:
            return index < received.head()
        if KINDS[call] != "IBCreceive":
            return sent.get(index) is None
        if self.net.options.order == "ordered":
            return index < received.tail()
        unwritten = own.connections[remote].unwritten
        return index < received.head() or received.get(index) is not None or index in unwritten

    def view(self) -> dict[tuple[str, str, str, int, int], tuple[int, int]]:
        """(zone, remote, relayer, call, index) -> (refusals, until), by names."""
        return {(*lane, index): said for lane, entries in self.lanes.items() for index, said in entries.items()}


def frozen_by_headers(rows: list[Any]) -> set[tuple[str, str, int]]:
    """(zone, remote, height) of the headers by which connections froze in a block."""
    return {(row.chain, row.remote, row.remote_height or 0) for row in rows if isinstance(row, ibc.Frozen)}
