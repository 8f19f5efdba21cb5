"""How a worker process keeps the memory of one tick for the next."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import sys

import pyarrow as pa

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""

KEPT_BYTES = 1 << 30
"""Blocks up to this size are taken from kept memory, and that much may stay unused at its end."""


@functools.cache
def keep_memory(arrow: bool = True) -> None:
    """Let this process keep what it frees, where the C library can: for those that do the same again and again, such as
    workers every tick.

    By default large blocks go back to the system when they are freed and come back as pages to be cleared, which took a
    fifth of the time of a round of a million messages.

    Args:
        arrow: whether Arrow's columns are among the blocks that are kept. In a process that keeps a small result of
            each bucket, these lie between the blocks and hold them apart: an audit of 1e8 rows took 4.7 GiB, not 1.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        if mallopt(MMAP_THRESHOLD, KEPT_BYTES) and mallopt(TRIM_THRESHOLD, KEPT_BYTES) and arrow:
            pa.set_memory_pool(pa.system_memory_pool())
    if not arrow:
        with contextlib.suppress(NotImplementedError):
            pa.set_memory_pool(pa.mimalloc_memory_pool())


_modules = 0
"""How many modules were loaded when ``spare_modules`` did something last."""


def spare_modules() -> None:
    """Exempt what is loaded by now from the collection of garbage, where modules were loaded since the last call.

    PySpark lets a worker collect garbage after every task, and modules never are any: looking at those that a certified
    round imports took 45 ms, of a task of 600 for half a million messages.
    """
    global _modules
    if len(sys.modules) != _modules:
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
