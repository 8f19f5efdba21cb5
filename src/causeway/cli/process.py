"""What commands make of a process that is theirs alone. What is loaded without need is most of a small one's time.

Compiled loops before a command begins: what the set-up has not compiled is compiled now, and not within a tick.

Ctrl-C and SIGTERM: a running network stops after a commit, everything else immediately.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import Any, Self

from causeway_proofs.jit_cache import is_cacheable, is_prepared

from causeway.cli import shell
from causeway.cli.shell import print_line

_GARBAGE = (100_000, 20, 50)
"""How many objects are made before a look for garbage in circles. Of modules, which are most of what a command makes at
its beginning, nothing is garbage; looking at them again and again took a fifth of a second."""

_POOL = ("ARROW_DEFAULT_MEMORY_POOL", "system")
"""The variable by which Arrow is told at its start where to take memory from: ``allocator.keep_memory`` can tell only
what is in Python. With its own pool a tenth of an ingest's time went to pages that were cleared."""

_own = False


def begin_command() -> None:
    """Say that this process runs one command and ends."""
    global _own
    _own = True
    gc.set_threshold(*_GARBAGE)


def skip_jit_import() -> None:
    """Spare a command that calls few loops, each for many rows, the compiler, and Arrow pandas, each of which takes
    longer to load than such a command otherwise takes; in a process that is its own."""
    if _own:
        gc.set_threshold(10 * _GARBAGE[0], *_GARBAGE[1:])
        if "pyarrow" not in sys.modules:
            os.environ.setdefault(*_POOL)
        from causeway_proofs import jit_code

        jit_code.use_cached_code()
        _without_pandas()


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Find no pandas."""
        if fullname == "pandas":
            raise ImportError(fullname)


def _without_pandas() -> None:
    """Let Arrow think that there is no pandas, for which it looks at the first array that it makes. Others find it."""
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


COMPILER = "causeway_proofs.jit"


def compile_before_use() -> None:
    """Compile all loops if that was never done on this machine, in a process of its own, and say so.

    Where compiled code cannot be kept, nothing is done: what comes afterwards would not find it.
    """
    if is_prepared() or not is_cacheable():
        return
    shell.print_line("compiling inner loops for this machine; once, about a minute")
    done = subprocess.run([sys.executable, "-m", COMPILER], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        shell.print_line(f"inner loops were not compiled ({last}); this is done when they are needed, and takes longer")


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptHandler:
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
            print_line("stopping after this commit (press Ctrl-C again to stop immediately)")
            return
        raise KeyboardInterrupt
