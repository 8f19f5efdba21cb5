"""The command line ``causeway``.

``commands`` has one file a command. ``shell`` has the exit codes and error lines, ``process`` the set-up of the
process,
``output`` the terminal output.
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

    Commands handle the signals that end them, after an import of about one second. Before that a signal ends the
    process at
    once; then each is an interrupt that closes everything.

    Args:
        arguments: the command line; default: that of the process.
    """
    if arguments is None:
        from causeway.cli import process

        process.begin_command()
    given = sys.argv[1:] if arguments is None else arguments
    signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: found for number in signals if (found := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, _end)

    def built(command: str | None) -> Callable[..., object]:
        from causeway.cli.app import build_app

        commands = build_app(command)
        for number, found in before.items():
            # Spark only replaces Python's own handler of SIGINT.
            signal.signal(number, _interrupt if number == signal.SIGTERM else found)
        return commands

    try:
        from causeway.cli.shell import execute

        code = execute(given, built, "causeway")
    finally:
        for number, found in before.items():
            # The work is complete: a signal during the exit changes nothing and prints nothing.
            signal.signal(number, signal.SIG_IGN if arguments is None else found)
    sys.exit(code)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"causeway: interrupted\n")
    os._exit(_INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
