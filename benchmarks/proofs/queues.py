"""A queue that is committed to, appended to and trimmed: what each costs, and what doing it all anew would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.proofs.timing import OURS, Row, Samples, clock, require_same, row

MOST_CHANGED = 1_000
"""Messages appended or trimmed at a time, unless that would be more than a tenth of the queue."""

MOST_PLAIN = 20_000
"""Messages that plain Python commits to, unless the queue has fewer."""

REBUILD = "rebuild"

State = TypeVar("State")


def changed_at_a_time(size: int) -> int:
    """Return how many messages are appended to, or trimmed from, a queue of ``size`` at a time."""
    return max(1, min(MOST_CHANGED, size // 10))


@dataclass(frozen=True)
class Queue(Generic[State]):
    """A way to commit to a queue.

    Attributes:
        name: of the structure.
        build: commits to the first so many messages.
        root: the root of a state.
        append: puts the next ``changed_at_a_time`` messages behind; None where a structure can only be built anew.
        trim: takes as many away where ``trimmed`` says.
        plain: name of another way to the same root, and what returns that root of the first so many messages.
    """

    name: str
    build: Callable[[int], State]
    root: Callable[[State], bytes]
    append: Callable[[State], State] | None = None
    trim: Callable[[State], State] | None = None
    trimmed: str = "trimmed at the front"
    plain: tuple[str, Callable[[int], bytes]] | None = None


@dataclass(frozen=True)
class Measured(Generic[State]):
    """A measured queue: its rows, its state after append and trim, and how long committing to it took."""

    rows: list[Row]
    state: State
    commit: Samples

    def against_rebuild(self, what: str, samples: Samples, items: int) -> Row:
        """Return the row of proofs made out of the queue one by one, beside committing anew for a proof."""
        return row("prove", what, "proofs", {OURS: (samples, items), REBUILD: (self.commit, 1)})


def measure_queue(queue: Queue[State], size: int, repeats: int) -> Measured[State]:
    """Measure a queue of ``size`` messages, every change up to the new root."""

    def committed(count: int) -> State:
        state = queue.build(count)
        queue.root(state)
        return state

    def changed(change: Callable[[State], State], state: State) -> State:
        state = change(state)
        queue.root(state)
        return state

    few, plain_samples = min(size, MOST_PLAIN), Samples()
    if queue.plain is not None:
        require_same(queue.root(queue.build(few)), queue.plain[1](few), queue.name)
    count = changed_at_a_time(size)
    changes = {f"{count:,} appended": queue.append, f"{count:,} {queue.trimmed}": queue.trim}
    samples: dict[str, Samples] = {what: [] for what, change in changes.items() if change is not None}
    commit: Samples = []
    state: State | None = None
    for _ in range(repeats):
        state = None  # so that there is one at a time in memory
        state, took = clock(committed, size)
        commit.append(took)
        for what, change in changes.items():
            if change is not None:
                state, took = clock(changed, change, state)
                samples[what].append(took)
        if queue.plain is not None:
            plain_samples.append(clock(queue.plain[1], few)[1])
    assert state is not None
    contenders = {OURS: (commit, size)}
    if queue.plain is not None:
        contenders[queue.plain[0]] = (plain_samples, few)
    rows = [row("commit", f"{queue.name}: {size:,} committed", "messages", contenders)]
    for what, measured in samples.items():
        beside = {OURS: (measured, count), REBUILD: (commit, count)}
        rows.append(row("commit", f"{queue.name}: {what}", "messages", beside))
    return Measured(rows, state, commit)
