"""Progress of a running network: a bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

if TYPE_CHECKING:
    from causeway.storage.lake import Manifest

PIPE_WIDTH = 200
"""Width of a table that is written to a pipe or a file."""

SPAN_SECONDS = 5.0
"""The rate shown is the mean over this time."""


def stderr_console() -> Console:
    """Return the console for everything but results: standard error."""
    return Console(stderr=True, highlight=False, emoji=False)


def stdout_console() -> Console:
    """Return the console for results: standard output, as wide as it needs to be where no terminal limits it."""
    console = Console(highlight=False, emoji=False)
    return console if console.is_terminal else Console(highlight=False, emoji=False, width=PIPE_WIDTH)


@contextmanager
def show_spinner(text: str) -> Iterator[None]:
    """Show ``text`` with a spinner while the body runs."""
    console = stderr_console()
    if not console.is_terminal:
        yield
        return
    with console.status(text, spinner="dots"):
        yield


def bar_is_shown() -> bool:
    """Return whether there is a terminal for a bar."""
    return stderr_console().is_terminal


class RunProgress:
    """Shows the ticks of a run as they are committed, and counts the messages that they routed.

    A line has the tick and the time that is left, one below it the height, the messages of this process and how many a
    second, and how many calls are open. All of it is in the manifest of the commit: what was before costs nothing.
    ``end``: the tick after the last one with traffic, if known. ``title``: what is running. ``busy``: the ticks with
    traffic, if known: those between them cost nothing, and are no part of what is left. ``counts``: show the messages.
    """

    def __init__(
        self, title: str, first: int, end: int | None, busy: Sequence[int] = (), *, counts: bool = True
    ) -> None:
        self._counts = counts
        self.heights = 0
        self.messages = 0
        self._first, self._end, self._busy = first, end, busy
        self._past: list[tuple[float, int]] = [(time.monotonic(), 0)]
        console = stderr_console()
        self._progress = _Below(
            SpinnerColumn("dots"),
            TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")),
            BarColumn(bar_width=None),
            _Count("tick", "of"),
            _Clock(),
            console=console,
            disable=not bar_is_shown(),
            transient=True,
            expand=True,
        )
        total = len(busy) or (None if end is None else max(end - first, 1))
        self._task = self._progress.add_task(title, total=total, below=(), tick=first, of=end)

    def __enter__(self) -> RunProgress:
        self._progress.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._progress.stop()

    def __call__(self, manifest: Manifest) -> None:
        """Take notice of a commit."""
        from causeway.tick.deployment import count_open_calls

        self.heights += len(manifest.lines)
        self.messages += sum(line.rows.get("outbound", 0) for line in manifest.lines)
        now = time.monotonic()
        self._past.append((now, self.messages))
        while len(self._past) > 2 and now - self._past[0][0] > SPAN_SECONDS:
            self._past.pop(0)
        seconds, moved = now - self._past[0][0], self.messages - self._past[0][1]
        rate = f"{moved / seconds:,.0f}" if seconds > 0 else ""
        if self._busy:
            done = bisect_right(self._busy, manifest.tick)
        else:
            done = manifest.tick + 1 - self._first
            if self._end is not None:
                done = min(done, self._end - self._first)
        height = f"height {manifest.height:,}"
        said = [height]
        if self._counts:
            is_open = count_open_calls(manifest.work, manifest.totals)
            calls = [] if is_open is None else [f"{is_open:,}"]
            long = [height, f"{self.messages:,} messages{f', {rate} per second' if rate else ''}"]
            said = ["; ".join([*long, *(f"{count} calls open" for count in calls)])]
            short = [height, *([f"{rate}/s"] if rate else []), *(f"{count} open" for count in calls)]
            said += ["; ".join(short[:many]) for many in range(len(short), 0, -1)]
        self._progress.update(self._task, completed=done, tick=manifest.tick, below=said)


class _Below(Progress):
    """A bar with a line below it: of several texts the first that fits."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bar, and what its task says below it."""
        yield from super().get_renderables()
        for task in self.tasks:
            said = [f"  {text}" for text in task.fields.get("below") or ()]
            if task.visible and said:
                text = next((text for text in said if cell_len(text) <= self.console.width), said[-1])
                yield Text(text, no_wrap=True, overflow="ellipsis")


class _Count(ProgressColumn):
    """The current tick, and the last one if it is known."""

    def __init__(self, count: str, of: str) -> None:
        super().__init__(Column(no_wrap=True))
        self._count, self._of = count, of

    def render(self, task: Task) -> Text:
        last = task.fields[self._of]
        tick = task.fields[self._count]
        if last is None:
            return Text(f"tick {tick:,}")
        return Text(f"tick {tick:,} of {last - 1:,}" if tick < last else f"tick {tick:,}, last answers")


class _Clock(ProgressColumn):
    """The time since the first tick and, where the last one is known and the pace too, the time that is left."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        said = "" if left is None or task.finished else f", {_minutes(left)} left"
        return Text(f"{_minutes(task.elapsed or 0.0)}{said}")


def _minutes(seconds: float) -> str:
    """Return a time as a clock has it: 0:07, 12:30, 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
