"""Round robin over sources and senders: the closed form against the simulated rule (IC reference X-4)."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.core.frame import Frame, empty_frame
from causeway.protocols.ic.scheduler import NEXT_SOURCES_SCHEMA, TURNS_SCHEMA, move_behind, take_in_turn
from tests.support.ic.ic_network import ACTOR, Network
from tests.tiers import sized

LOCAL_SENDERS = (1, 2, 5)
"""All others live elsewhere."""

USERS = -1


class Line:
    """Queue of one receiver, by the wording of the rule."""

    def __init__(self) -> None:
        self.queues: dict[int, deque[int]] = {}
        self.lines: list[list[int]] = [[], [], []]
        self.next_source = 0

    def push(self, sender: int, name: int) -> None:
        queue = self.queues.setdefault(sender, deque())
        if not queue:
            self.lines[1 if sender == USERS else 0 if sender in LOCAL_SENDERS else 2].append(sender)
        queue.append(name)

    def take(self, limit: int) -> list[tuple[int, int]]:
        taken: list[tuple[int, int]] = []
        while len(taken) < limit and any(self.lines):
            while not self.lines[self.next_source]:
                self.next_source = (self.next_source + 1) % 3
            sender = self.lines[self.next_source].pop(0)
            taken.append((sender, self.queues[sender].popleft()))
            if self.queues[sender]:
                self.lines[self.next_source].append(sender)
            self.next_source = (self.next_source + 1) % 3
        return taken

    def elements(self, users: bool) -> list[tuple[int, int]]:
        return [
            (sender, name)
            for sender in sorted(self.queues)
            if (sender == USERS) == users
            for name in self.queues[sender]
        ]


@settings(max_examples=sized(90, 1000), deadline=None, derandomize=True)
@given(
    st.integers(1, 5),
    st.lists(st.lists(st.tuples(st.integers(0, 1), st.integers(USERS, 6)), max_size=9), min_size=1, max_size=8),
)
def test_closed_form_equals_the_rule(limit: int, rounds: list[list[tuple[int, int]]]) -> None:
    lines = [Line(), Line()]
    turns, next_sources, names = empty_frame(TURNS_SCHEMA), empty_frame(NEXT_SOURCES_SCHEMA), 0
    for pushed in rounds:
        for receiver, sender in pushed:
            names += 1
            lines[receiver].push(sender, names)
        ingress, queued = (
            [(receiver, *row) for receiver, line in enumerate(lines) for row in line.elements(users)]
            for users in (True, False)
        )
        turns = move_behind(turns, queues_of([row for row in pushed if row[1] != USERS]))
        local = np.isin([row[1] for row in queued], LOCAL_SENDERS)
        if not ingress and not queued:
            continue
        queues = queues_of(ingress), queues_of(queued)
        order, turns, next_sources = take_in_turn(*queues, turns, next_sources, local, limit)
        rows = [*ingress, *queued]
        expected = [(receiver, *row) for receiver, line in enumerate(lines) for row in line.take(limit)]
        assert [rows[row] for row in order.tolist()] == expected
        cursors = dict(zip(next_sources["receiver"].tolist(), next_sources["next_source"].tolist(), strict=True))
        assert [cursors.get(receiver, 0) for receiver in (0, 1)] == [line.next_source for line in lines]
        waiting = [(receiver, s) for receiver, line in enumerate(lines) for s in sorted(line.queues) if line.queues[s]]
        found = zip(turns["receiver"].tolist(), turns["sender"].tolist(), strict=True)
        assert list(found) == [row for row in waiting if row[1] != USERS]


def queues_of(rows: list[Any]) -> Frame:
    names = ("receiver", "sender")
    columns = {name: np.array([max(row[at], 0) for row in rows], dtype=np.uint64) for at, name in enumerate(names)}
    return Frame(columns, len(rows))


def test_sender_with_many_messages_starves_no_other() -> None:
    callers = dict.fromkeys(range(1, 6), (0, ACTOR))
    net = Network({**callers, 9: (1, ACTOR)}, options={"messages_per_canister": 1})
    for _ in range(8):
        net.call(1, 9)
    for number in range(2, 6):
        net.call(number, 9)
    net.rounds(12)
    first = [row[0] for row in net.seen(9)][:5]
    assert sorted(first) == [1, 2, 3, 4, 5], "everybody has had one turn before anybody has two"
