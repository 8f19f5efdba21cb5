"""The command line: ``causeway``. One file a command; what they share is in ``shell``, ``watch`` and ``memory``.

``shell.CODES`` has the exit codes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

__all__ = ["main"]

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code.

    Commands take the signals that end them in ways of their own, once what these need is imported, which takes a
    second. Until the commands are there, a signal ends the process at once, since nothing has been done; from then on
    each is an interrupt, which leaves nothing open.
    """
    if arguments is None:
        from causeway.cli import process

        process.begin_command()
    given = sys.argv[1:] if arguments is None else arguments
    taken = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: found for number in taken if (found := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, _end)

    def built(asked: str | None) -> Callable[..., object]:
        from causeway.cli.app import build_app

        commands = build_app(asked)
        for number, found in before.items():
            # Spark gives way to nothing but Python's own handler of SIGINT.
            signal.signal(number, _interrupt if number == signal.SIGTERM else found)
        return commands

    try:
        from causeway.cli.shell import execute

        code = execute(given, built, "causeway")
    finally:
        for number, found in before.items():
            # What is done is done: a signal while the process ends changes nothing, and has no text of its own.
            signal.signal(number, signal.SIG_IGN if arguments is None else found)
    sys.exit(code)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"causeway: interrupted\n")
    os._exit(_INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
