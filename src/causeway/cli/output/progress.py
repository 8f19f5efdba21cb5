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
"""Width of a table in a pipe or a file."""

SPAN_SECONDS = 5.0
"""Seconds of the moving average of the rate."""


def stderr_console() -> Console:
    """Return the console for everything except results: standard error."""
    return Console(stderr=True, highlight=False, emoji=False)


def stdout_console() -> Console:
    """Return the console for results: standard output, of unlimited width without a terminal."""
    console = Console(highlight=False, emoji=False)
    return console if console.is_terminal else Console(highlight=False, emoji=False, width=PIPE_WIDTH)


@contextmanager
def show_spinner(text: str) -> Iterator[None]:
    """Show a spinner while the body runs.

    Args:
        text: the text beside it.
    """
    console = stderr_console()
    if not console.is_terminal:
        yield
        return
    with console.status(text, spinner="dots"):
        yield


def bar_is_shown() -> bool:
    """Return True if standard error is a terminal."""
    return stderr_console().is_terminal


class RunProgress:
    """The progress of a run by committed ticks, with its rate of messages.

    One line has the tick and the remaining time. A line below has height, messages of this process, rate and open
    calls.
    All values are in the manifest of the commit.

    Args:
        title: name of the run.
        first: the first tick.
        end: the tick after the last one with traffic, or None.
        busy: the ticks with traffic, if known; idle ticks do not count as remaining work.
        counts: show the messages.
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
        self._progress = _TwoLineProgress(
            SpinnerColumn("dots"),
            TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")),
            BarColumn(bar_width=None),
            _TickColumn("tick", "of"),
            _TimeColumn(),
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
        """Update the progress after a commit."""
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
        candidates = [height]
        if self._counts:
            is_open = count_open_calls(manifest.work, manifest.totals)
            calls = [] if is_open is None else [f"{is_open:,}"]
            long = [height, f"{self.messages:,} messages{f', {rate} per second' if rate else ''}"]
            candidates = ["; ".join([*long, *(f"{count} calls open" for count in calls)])]
            short = [height, *([f"{rate}/s"] if rate else []), *(f"{count} open" for count in calls)]
            candidates += ["; ".join(short[:many]) for many in range(len(short), 0, -1)]
        self._progress.update(self._task, completed=done, tick=manifest.tick, below=candidates)


class _TwoLineProgress(Progress):
    """A bar with a line below it: the first of several texts that fits."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bar, and the line below it."""
        yield from super().get_renderables()
        for task in self.tasks:
            lines = [f"  {text}" for text in task.fields.get("below") or ()]
            if task.visible and lines:
                text = next((text for text in lines if cell_len(text) <= self.console.width), lines[-1])
                yield Text(text, no_wrap=True, overflow="ellipsis")


class _TickColumn(ProgressColumn):
    """The current tick, and the last one if known."""

    def __init__(self, count: str, of: str) -> None:
        super().__init__(Column(no_wrap=True))
        self._count, self._of = count, of

    def render(self, task: Task) -> Text:
        last = task.fields[self._of]
        tick = task.fields[self._count]
        if last is None:
            return Text(f"tick {tick:,}")
        return Text(f"tick {tick:,} of {last - 1:,}" if tick < last else f"tick {tick:,}, last answers")


class _TimeColumn(ProgressColumn):
    """The elapsed time and, if known, the remaining time."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        remaining = "" if left is None or task.finished else f", {_minutes(left)} left"
        return Text(f"{_minutes(task.elapsed or 0.0)}{remaining}")


def _minutes(seconds: float) -> str:
    """Format a duration like a clock: 0:07, 12:30, 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
