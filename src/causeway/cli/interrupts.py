"""Ctrl-C: a running network stops between two ticks, everything else at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

from causeway.cli.shell import tell


class Interrupts:
    """Takes SIGINT while the body of a ``with`` statement runs; ``asked`` says how often it came.

    Spark's own handler tears down the connection to Java in the middle of a call. ``gentle``: the first SIGINT only
    leaves a note, and who runs the ticks looks at ``asked``; a second one stops at once.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.gentle = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        self.take()
        return self

    def __exit__(self, *failure: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._before or signal.SIG_DFL)

    def take(self) -> None:
        """Take SIGINT (again): starting Spark has given it to somebody else."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._came)

    def _came(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        if self.gentle and self.asked == 1:
            tell("stopping after this tick (Ctrl-C again stops at once)")
            return
        raise KeyboardInterrupt
