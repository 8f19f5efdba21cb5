"""Ctrl-C and SIGTERM: a running network stops after a commit, everything else immediately."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

from causeway.cli.shell import tell

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Takes both signals while the body of a ``with`` statement runs; ``asked`` counts how often.

    Spark's own handler closes the connection to Java in the middle of a call. ``gentle``: the first signal is only
    counted, and the run loop checks ``asked`` after each commit; a second one stops immediately.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.gentle = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self.take()
        return self

    def __exit__(self, *failure: object) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, before in self._before.items():
                signal.signal(number, before or signal.SIG_DFL)

    def take(self) -> None:
        """Install the handler (again): starting Spark replaces it."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self._received)

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        if self.gentle and self.asked == 1:
            tell("stopping after this commit (press Ctrl-C again to stop immediately)")
            return
        raise KeyboardInterrupt
