"""Compiled loops before a command begins: what the set-up has not compiled is compiled now, and not within a tick."""

from __future__ import annotations

import subprocess
import sys

from causeway.cli import shell
from causeway.model.compiled_files import can_be_kept, is_prepared

COMPILER = "causeway.model.compiled"


def compile_first() -> None:
    """Compile all loops if that was never done on this machine, in a process of its own, and say so.

    Where compiled code cannot be kept, nothing is done: what comes afterwards would not find it.
    """
    if is_prepared() or not can_be_kept():
        return
    shell.tell("compiling inner loops for this machine; once, about a minute")
    done = subprocess.run([sys.executable, "-m", COMPILER], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        shell.tell(f"inner loops were not compiled ({last}); this is done when they are needed, and takes longer")
