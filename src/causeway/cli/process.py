"""Process-wide set-up of short-lived commands.

Unneeded imports take most of the time of a short command. Loops not compiled by the installation are compiled before a
command, not during a tick. Ctrl-C and SIGTERM stop a running network after a commit, everything else at once.
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

_GC_THRESHOLDS = (100_000, 20, 50)
"""Thresholds of the cyclic garbage collector.

Modules, the bulk of early objects, are never garbage; with default thresholds repeated scans took 0.2 seconds.
"""

_MEMORY_POOL = ("ARROW_DEFAULT_MEMORY_POOL", "system")
"""Environment variable with Arrow's memory pool, read when Arrow starts.

``allocator.keep_memory`` affects Python's memory only. With Arrow's own pool an ingest spent a tenth of its time on
cleared pages.
"""

_own = False


def begin_command() -> None:
    """Mark the process as one that runs a single command."""
    global _own
    _own = True
    gc.set_threshold(*_GC_THRESHOLDS)


def skip_jit_import() -> None:
    """Skip the import of the compiler, and of pandas by Arrow, in a process of its own.

    For commands that call few loops, each for many rows: both imports take longer than such a command.
    """
    if _own:
        gc.set_threshold(10 * _GC_THRESHOLDS[0], *_GC_THRESHOLDS[1:])
        if "pyarrow" not in sys.modules:
            os.environ.setdefault(*_MEMORY_POOL)
        from causeway_proofs import jit_code

        jit_code.use_cached_code()
        _hide_pandas()


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raise for pandas."""
        if fullname == "pandas":
            raise ImportError(fullname)


def _hide_pandas() -> None:
    """Hide pandas from Arrow, which searches it with its first array; others still find it."""
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
    """Compile all loops in a child process, if never done on this machine, and print a note.

    Without a writable cache nothing is done, since later processes would not find the code.
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
    """A context manager that handles both signals; ``asked`` is their number.

    Spark's own handler would close the connection to Java during a call. ``gentle``: the first signal is only counted,
    and
    the run loop checks ``asked`` after each commit; a second one stops at once.
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
        """Install the handler (again): Spark replaces it when it starts."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        if self.gentle and self.asked == 1:
            print_line("stopping after this commit (press Ctrl-C again to stop immediately)")
            return
        raise KeyboardInterrupt
