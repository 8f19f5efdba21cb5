"""What becomes of submissions: ``IBCreceive``, ``IBCreceipt`` over runs of entries, ``IBCtimeout``, ``IBCcleanup`` (IBC
reference 3.3, 3.4, X-1, X-2, X-6, X-10).

The checks of the reference in its order, for a whole run at once where its entries share the answer. What a run's first
refused entry is refused for is said once; the entries behind it in an ordered queue are out of order by that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from causeway.model.frame import Frame
from causeway.model.intervals import Intervals
from causeway.model.order import U64
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.evidence import Evidence
from causeway.protocols.ibc.seen import Alteration, Call
from causeway.protocols.ibc.state import (
    RECEIPT,
    SEND,
    State,
    keys_of,
    lane_keys,
)


@dataclass
class Verdicts:
    """What was accepted and refused, in the order of processing: (submission, begin, end) and, refused, why."""

    accepted: list[tuple[int, int, int]] = field(default_factory=list)
    refused: list[tuple[int, int, int, Refusal]] = field(default_factory=list)

    def accept(self, submission: int, begin: int, end: int) -> None:
        """Note that entries of a submission take effect."""
        if end > begin:
            self.accepted.append((submission, begin, end))

    def refuse(self, submission: int, begin: int, end: int, why: Refusal) -> None:
        """Note that entries of a submission have no effect, for the reason ``why``."""
        if end > begin:
            self.refused.append((submission, begin, end, why))


Roots = Callable[[int, int, int], bytes | None]
"""(chain, remote, height) -> the root of the trusted header, None where none is trusted."""

Frozen = Callable[[int, int], bool]
"""(chain, remote) -> whether the connection is frozen by now."""

Expired = Callable[[int, int, int], int]
"""(chain, remote, height) -> the end of our packets in that queue that have expired by that trusted remote header."""

Lane = tuple[int, int]
Parts = list[tuple[int, int, Refusal]]


def judge(judging: Judging, rows: Frame, proofs: Frame, context: Context) -> Verdicts:
    """Return what becomes of submissions (``SUBMISSIONS_SCHEMA``), which are in their order."""
    value = proofs["first"] if len(proofs) else np.zeros(1, dtype=np.uint64)
    shown = value[np.maximum(rows["proof"], 0)].tolist()
    columns = [rows[name].tolist() for name in ("chain", "remote", "call", "begin", "end", "alteration")]
    for submission, (chain, remote, call, begin, end, alteration) in enumerate(zip(*columns, strict=True)):
        if call == Call.UPDATE:
            continue
        lane = (chain, remote)
        why = judging.connection_refused(lane)
        if why is not None:
            judging.verdicts.refuse(submission, begin, end, why)
        else:
            height = context.height - 1 - int(alteration == Alteration.STALE_HEADER)
            if call <= Call.RECEIPT:
                judging.decide(submission, call, lane, begin, end, height)
            elif call == Call.TIMEOUT:
                judging.time_out(submission, lane, end - begin, height, shown[submission])
            else:
                judging.clean_up(submission, lane, height, shown[submission])
    return judging.verdicts


class Judging:
    """The progress of a block's queues as submissions move them on."""

    def __init__(
        self, state: State, evidence: Evidence, roots: Roots, frozen: Frozen, expired: Expired, context: Context
    ) -> None:
        self.verdicts = Verdicts()
        self._state = state
        self._evidence = evidence
        self._roots = roots
        self._frozen = frozen
        self.expired = expired
        self._ordered = context.options.order == "ordered"
        self._again = Refusal.NoOp if context.options.redundant == "noop" else Refusal.OutOfOrder
        self._next: dict[tuple[Lane, int], int] = {}
        self._processed: dict[tuple[Lane, int], Intervals] = {}
        self._cleaned: dict[Lane, int] = {}
        self._leaf_keys: U64 | None = None
        named = (state.queues[name].tolist() for name in ("chain", "remote", "substream"))
        self._queue_rows = {queue: row for row, queue in enumerate(zip(*named, strict=True))}
        self._connected = set(zip(*(state.connections[name].tolist() for name in ("chain", "remote")), strict=True))

    def connection_refused(self, lane: Lane) -> Refusal | None:
        """Return why nothing that concerns a connection is taken: it does not exist, or it is frozen."""
        if lane not in self._connected:
            return Refusal.UnregisteredSender
        return Refusal.ConnectionFrozen if self._frozen(*lane) else None

    def accept(self, submission: int, lane: Lane, call: int, begin: int, end: int) -> None:
        """Note that entries of a submission take effect, and move the queue on."""
        self.verdicts.accept(submission, begin, end)
        self._next[lane, call] = end
        if not self._ordered:
            self._processed_of(lane, call).add(begin, end)

    def decide(self, submission: int, call: int, lane: Lane, begin: int, end: int, height: int) -> None:
        """Judge one run; remember what of it was accepted."""
        receive = call == Call.RECEIVE
        refuse = self.verdicts.refuse
        root = self._roots(*lane, height)
        if not receive:
            # A receipt is looked at only once its proof holds.
            if root is None:
                return refuse(submission, begin, end, Refusal.MissingHeader)
            proven = begin + self._evidence.proven_until(submission, 0, end - begin, root)
            refuse(submission, proven, end, Refusal.InvalidProof)
            end = proven
        for first, stop, why in self.in_order(lane, call, begin, end):
            if why != Refusal.ACCEPTED:
                refuse(submission, first, stop, why)
                continue
            if receive and root is None:
                refuse(submission, first, stop, Refusal.MissingHeader)
                continue
            proven = stop
            if receive and root is not None:
                proven = first + self._evidence.proven_until(submission, first - begin, stop - first, root)
                refuse(submission, proven, stop, Refusal.InvalidProof)
            if proven > first:
                self.accept(submission, lane, call, first, proven)
        return None

    def time_out(self, submission: int, lane: Lane, calls: int, height: int, tail: int) -> None:
        """Judge ``calls`` time-outs of packets at the head of a queue, by the ``tail`` of the remote receipt queue."""
        head = self.expected(lane, Call.RECEIPT)
        why = self._position_refused(submission, lane, height)
        if why is None and tail > head:
            why = Refusal.ReceiptExists
        if why is not None:
            return self.verdicts.refuse(submission, head, head + calls, why)
        stop = max(head, min(head + calls, self.expired(*lane, height)))
        self.verdicts.accept(submission, head, stop)
        self.verdicts.refuse(submission, stop, head + calls, Refusal.TimeoutNotReached)
        self._next[lane, Call.RECEIPT] = stop
        return None

    def clean_up(self, submission: int, lane: Lane, height: int, head: int) -> None:
        """Judge a cleanup of a receipt queue, by the ``head`` of the remote send queue."""
        own = self.cleaned(lane)
        why = self._position_refused(submission, lane, height)
        if why is None and head <= own:
            why = Refusal.CleanupBackwards
        if why is not None:
            return self.verdicts.refuse(submission, own, own + 1, why)
        self.clean(submission, lane, own, head)
        return None

    def cleaned(self, lane: Lane) -> int:
        """Return the head of a receipt queue by now."""
        if lane not in self._cleaned:
            self._cleaned[lane] = int(self._state.queues["begin"][self._queue(lane, RECEIPT)])
        return self._cleaned[lane]

    def clean(self, submission: int, lane: Lane, own: int, head: int) -> None:
        """Move the head of a receipt queue from ``own`` to ``head``, and its tail with it where that is lower."""
        self.verdicts.accept(submission, own, head)
        self._cleaned[lane] = head
        if not self._ordered:
            self._processed_of(lane, Call.RECEIVE).add(0, head)
        self._next[lane, Call.RECEIVE] = max(self.expected(lane, Call.RECEIVE), head)

    def _position_refused(self, submission: int, lane: Lane, height: int) -> Refusal | None:
        root = self._roots(*lane, height)
        if root is None:
            return Refusal.MissingHeader
        proven = self._evidence.position_roots.get(submission) == root
        return None if proven else Refusal.InvalidProof

    def in_order(self, lane: Lane, call: int, begin: int, end: int) -> Parts:
        """Cut a run at what is expected: what was processed before, what can be now, what comes too early."""
        if not self._ordered:
            return self._unseen(lane, call, begin, end)
        expected = self.expected(lane, call)
        if begin > expected:
            return [(begin, end, Refusal.OutOfOrder)]
        parts = [(begin, min(end, expected), self._again), (max(begin, expected), end, Refusal.ACCEPTED)]
        return [part for part in parts if part[1] > part[0]]

    def expected(self, lane: Lane, call: int) -> int:
        """Return the index that comes next: the tail of a receipt queue (RECEIVE), the head of a send queue."""
        found = self._next.get((lane, call))
        if found is None:
            substream, column = (RECEIPT, "next_index") if call == Call.RECEIVE else (SEND, "begin")
            row = self._queue(lane, substream)
            found = self._next[lane, call] = int(self._state.queues[column][row])
        return found

    def _queue(self, lane: Lane, substream: int) -> int:
        return self._queue_rows.get((*lane, substream), -1)

    def _unseen(self, lane: Lane, call: int, begin: int, end: int) -> Parts:
        """Cut a run of an unordered queue: into what was processed before, and what was not (X-6)."""
        processed = self._processed_of(lane, call)
        tail = end if call == Call.RECEIVE else int(self._state.queues["next_index"][self._queue(lane, SEND)])
        parts: Parts = []
        for first, stop, done in processed.cut(begin, end):
            if done:
                parts.append((first, stop, self._again))
                continue
            if first < min(stop, tail):
                parts.append((first, min(stop, tail), Refusal.ACCEPTED))
            if max(first, tail) < stop:
                parts.append((max(first, tail), stop, Refusal.OutOfOrder))
        return parts

    def _processed_of(self, lane: Lane, call: int) -> Intervals:
        """Return the indices of an unordered queue that were processed: received, or acknowledged."""
        found = self._processed.get((lane, call))
        if found is None:
            substream = RECEIPT if call == Call.RECEIVE else SEND
            row = self._queue(lane, substream)
            head, tail = (int(self._state.queues[name][row]) for name in ("begin", "next_index"))
            held = Intervals.of(self._held(lane, substream))
            if call == Call.RECEIVE:
                held.add(0, head)
                found = held
            else:
                found = held.without(0, tail)
            self._processed[lane, call] = found
        return found

    def _held(self, lane: Lane, substream: int) -> U64:
        """Return the indices that a queue holds entries or unanswered places of, ascending."""
        leaves, slots = self._state.leaves, self._state.slots
        chain, remote = (np.array([position]) for position in lane)
        key = lane_keys(chain, remote, substream)[0]
        if self._leaf_keys is None:
            self._leaf_keys = keys_of(leaves)
        start = int(np.searchsorted(self._leaf_keys, key))
        own: U64 = leaves["index"][start : int(np.searchsorted(self._leaf_keys, key, side="right"))]
        if substream == RECEIPT and len(slots):
            mine = (slots["chain"] == lane[0]) & (slots["remote"] == lane[1])
            own = np.sort(np.concatenate([own, slots["index"][mine]]))
        return own
