"""Replay of node process traces in the state machine of all nodes at once.

Steps run in order of time; steps of several nodes at one time are one call. The replay checks three
properties: each step yields the recorded queues; each received packet is the next one that the
sender's state machine sends on that connection; each hashed body has its root. The form of single
records is validated on reading (``trace``).
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from causeway_proofs.substrate.egress import GossipedQueue, decode_gossip, egress_root

from causeway.core.frame import concat
from causeway.gossip.options import GossipOptions
from causeway.gossip.processes import step_trace
from causeway.gossip.processes.connection import message_limit
from causeway.gossip.processes.trace import InvalidRecord, ProcessRun, RecordedStep, RecordErrors, Trace
from causeway.gossip.queues import needs_hashing
from causeway.gossip.state import GossipState, start_nodes, state_from_tables, state_to_tables
from causeway.gossip.step import StepInputs, step
from causeway.gossip.step_io import merge_outputs
from causeway.protocols.shared.digests import list_digests

MOST_TOLD = 10
"""Maximum number of listed differences; all are counted."""

Link = tuple[int, int, bytes]
"""Sender, recipient and session."""


@dataclass
class ReplayResult:
    """Result of a replay.

    Attributes:
        closed: True if the files are unchanged since all processes ended.
        lives: Process runs.
        steps: Steps.
        got: Queues that nodes got, in all process runs.
        received: Packets received from nodes of the trace.
        hashed: Hashed bodies.
        different: Number of differences.
        differences: Text of the first differences.
    """

    closed: bool = False
    lives: int = 0
    steps: int = 0
    got: int = 0
    received: int = 0
    hashed: int = 0
    different: int = 0
    differences: list[str] = field(default_factory=list)

    def differs(self, text: str) -> None:
        """Count a difference."""
        self.different += 1
        if len(self.differences) < MOST_TOLD:
            self.differences.append(text)


@dataclass(order=True)
class _Event:
    """Step of a process run, or its start (``step`` is None).

    Events are ordered by time, node, run, position.
    """

    time: int
    node: int
    life: int
    place: int
    step: RecordedStep | None = field(compare=False)


class Replay:
    """Replay of one trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self._options = trace, trace.options
        nodes = np.array(trace.nodes, dtype=np.uint32)
        self._state, _ = step(start_nodes(nodes, self._options), StepInputs(), 0, self._options)
        self._life: dict[int, int] = {}
        self._session: dict[tuple[int, int], bytes] = {}
        self._sent: dict[Link, list[tuple[int, step_trace.Packet]]] = defaultdict(list)
        self._came: dict[Link, list[tuple[int, step_trace.Packet]]] = defaultdict(list)
        self.result = ReplayResult(trace.closed)

    def run(self) -> ReplayResult:
        """Replay the whole trace.

        Raises:
            InvalidInput: A file is no valid trace.
        """
        waiting: list[_Event] = []
        time = 0
        for event in heapq.merge(*(self._events(life, steps) for life, steps in self._trace.lives())):
            if event.time != time:
                self._run_rounds(time, waiting)
                time, waiting = event.time, []
            waiting.append(event)
        self._run_rounds(time, waiting)
        for link in sorted(self._came):
            self._compare(link)
        return self.result

    def _events(self, life: ProcessRun, steps: Iterator[RecordedStep]) -> Iterator[_Event]:
        self.result.lives += 1
        yield _Event(life.time, life.node, life.life, 0, None)
        for place, recorded in enumerate(steps, 1):
            yield _Event(recorded.taken.time, life.node, life.life, place, recorded)

    def _run_rounds(self, time: int, events: Sequence[_Event]) -> None:
        """Replay the events of one time: sequentially a node, in parallel across nodes."""
        rounds: list[dict[int, _Event]] = []
        counts: Counter[int] = Counter()
        for event in events:
            if counts[event.node] == len(rounds):
                rounds.append({})
            rounds[counts[event.node]][event.node] = event
            counts[event.node] += 1
        for some in rounds:
            begins = [event for event in some.values() if event.step is None]
            if begins:
                self._begin(time, begins)
            self._step(time, {node: event for node, event in some.items() if event.step is not None})

    def _begin(self, time: int, events: Sequence[_Event]) -> None:
        nodes = [event.node for event in events]
        interval = self._options.purge_interval
        self._state = start_replayed_nodes(self._state, nodes, time - time % interval + interval, self._options)
        for event in events:
            self._life[event.node] = event.life
            for pair in [pair for pair in self._session if pair[0] == event.node]:
                del self._session[pair]

    def _step(self, time: int, events: Mapping[int, _Event]) -> None:
        steps = {node: event.step for node, event in events.items() if event.step is not None}
        for node, event in events.items():
            if self._life[node] != event.life:
                with RecordErrors(self._trace.folder / ProcessRun(node, event.life, 0).file, event.place):
                    raise InvalidRecord(f"time: {time} ms, when life {self._life[node]} had begun")
        inputs = [(node, recorded.taken) for node, recorded in steps.items()]
        for node, one in inputs:
            for peer in one.left:
                self._session.pop((node, peer), None)
            self._session |= {(node, peer): session for peer, session in one.came}
            self._note(time, node, one)
        # As in a node: the input before the queues decides which bodies are hashed.
        self._state, out = step(
            self._state,
            step_trace.step_inputs([(node, replace(one, arrived=())) for node, one in inputs], self._options),
            time,
            self._options,
        )
        rows = [(node, row) for node, one in inputs for row in one.arrived]
        columns = step_trace.queue_arrivals(rows)
        if columns is not None:
            for (node, row), hashed in zip(
                rows, needs_hashing(self._state, columns, self._options).tolist(), strict=True
            ):
                if row.found != (row.root if hashed else step_trace.NO_DIGEST):
                    self.result.differs(f"{time} ms: {_wrong_body(node, row, hashed)}")
            self._state, then = step(self._state, StepInputs(queues=columns), time, self._options)
            out = merge_outputs([out, then])
        for node, peer, packet in step_trace.outgoing_packets(out):
            session = self._session.get((node, peer))
            if session is not None:
                self._sent[node, peer, session].append((time, packet))
        got: dict[int, list[step_trace.Got]] = defaultdict(list)
        for node, *queue in zip(
            out.got["node"].tolist(), list_digests(out.got["topic"]), list_digests(out.got["root"]), strict=True
        ):
            got[node].append((queue[0], queue[1]))
        for node, recorded in steps.items():
            self.result.steps += 1
            self.result.got += len(recorded.got)
            self._hash(node, recorded)
            if got[node] != [*recorded.got]:
                self._differs_in_got(time, node, {*recorded.got}, {*got[node]})

    def _note(self, time: int, node: int, inputs: step_trace.StepTrace) -> None:
        """Record the packets that a step received from nodes of the trace."""
        for row in inputs.declared:
            self._received(time, node, row.peer, row.heads)
        for queue in inputs.arrived:
            self._received(time, node, queue.peer, (step_trace.QUEUE, queue.topic, queue.root))

    def _received(self, time: int, node: int, peer: int, packet: step_trace.Packet) -> None:
        self.result.received += 1
        self._came[peer, node, self._session[node, peer]].append((time, packet))

    def _compare(self, link: Link) -> None:
        """Compare the packets received over a connection with the sender's output.

        Of each kind they must be a prefix of the sent packets, none earlier than its sending. A step
        processes declarations before queues, so the two kinds are compared separately.
        """
        source, destination, _ = link
        for queues in (False, True):
            came = [
                (time, packet) for time, packet in self._came[link] if (packet[:1] == (step_trace.QUEUE,)) == queues
            ]
            sent = [
                (time, packet) for time, packet in self._sent[link] if (packet[:1] == (step_trace.QUEUE,)) == queues
            ]
            for place, (time, packet) in enumerate(came):
                if place >= len(sent) or sent[place][1] != packet or sent[place][0] > time:
                    kind = "queue" if queues else "declaration"
                    self.result.differs(
                        f"{time} ms: node {destination} received as {kind} {place} of node {source} what that did not"
                        f" send: {packet[-1].hex() if packet else 'no heads'}"
                    )
                    break

    def _hash(self, node: int, recorded: RecordedStep) -> None:
        """Verify the roots of the bodies that a step added to the pool."""
        limit = message_limit(self._options)
        for root, packet in recorded.bodies.items():
            self.result.hashed += 1
            queue = decode_gossip(packet, limit)
            if not isinstance(queue, GossipedQueue) or egress_root(queue.messages) != root:
                self.result.differs(
                    f"{recorded.taken.time} ms: node {node} took a body as {root.hex()}, which it is not"
                )

    def _differs_in_got(self, time: int, node: int, theirs: set[step_trace.Got], ours: set[step_trace.Got]) -> None:
        for side, queues in (("its process alone", theirs - ours), ("the state machine alone", ours - theirs)):
            for _, root in sorted(queues):
                life = self._life.get(node, 0)
                self.result.differs(f"{time} ms: node {node}, life {life}: {root.hex()} was got by {side}")
        if theirs == ours:
            self.result.differs(f"{time} ms: node {node} got queues twice, or in another order")


def start_replayed_nodes(state: GossipState, nodes: Sequence[int], purge: int, options: GossipOptions) -> GossipState:
    """Reset nodes to their start: no leaves, peers or pool.

    Args:
        state: State of all nodes.
        nodes: Numbers of the nodes.
        purge: Time of their next purge in ms.
        options: Options of gossip.
    """
    old, new = state_to_tables(state), state_to_tables(start_nodes(np.array(nodes, dtype=np.uint32), options))
    new["nodes"] = new["nodes"].with_columns(purge=np.full(len(nodes), purge, dtype=np.uint64))
    other_rows = {
        name: frame.filter(~np.isin(frame["node"], nodes)) if "node" in frame else frame for name, frame in old.items()
    }
    return state_from_tables(
        {name: concat([other_rows[name], new[name]]) if "node" in new[name] else other_rows[name] for name in new}
    )


def replay_trace(trace: Trace) -> ReplayResult:
    """Replay a trace.

    Raises:
        InvalidInput: A file is no valid trace.
    """
    return Replay(trace).run()


def _wrong_body(node: int, row: step_trace.ArrivedQueue, hashed: bool) -> str:
    """Describe a wrong digest of an arrived body; ``hashed``: it had to be hashed."""
    if not hashed:
        return f"node {node} hashed what node {row.peer} sent as {row.root.hex()}, which nobody need hash"
    if row.found == step_trace.NO_DIGEST:
        return f"node {node} did not hash what node {row.peer} sent as {row.root.hex()}"
    return f"node {row.peer} sent node {node} as {row.root.hex()} a body that has the root {row.found.hex()}"
