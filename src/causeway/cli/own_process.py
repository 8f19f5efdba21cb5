"""What commands make of a process that is theirs alone. What is loaded without need is most of a small one's time."""

from __future__ import annotations

import gc
import os
import sys
from importlib.abc import MetaPathFinder

_GARBAGE = (100_000, 20, 50)
"""How many objects are made before a look for garbage in circles. Of modules, which are most of what a command makes at
its beginning, nothing is garbage; looking at them again and again took a fifth of a second."""

_POOL = ("ARROW_DEFAULT_MEMORY_POOL", "system")
"""The variable by which Arrow is told at its start where to take memory from: ``allocator.keep_memory`` can tell only
what is in Python. With its own pool a tenth of an ingest's time went to pages that were cleared."""

_own = False


def begin() -> None:
    """Say that this process runs one command and ends."""
    global _own
    _own = True
    gc.set_threshold(*_GARBAGE)


def begin_small() -> None:
    """Spare a command that calls few loops, each for many rows, the compiler, and Arrow pandas, each of which takes
    longer to load than such a command otherwise takes; in a process that is its own."""
    if _own:
        gc.set_threshold(10 * _GARBAGE[0], *_GARBAGE[1:])
        if "pyarrow" not in sys.modules:
            os.environ.setdefault(*_POOL)
        from causeway.model import compiled_ready

        compiled_ready.use()
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
