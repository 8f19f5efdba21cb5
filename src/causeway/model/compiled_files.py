"""Where compiled loops are kept on disk, and whether they are there; asked without loading the compiler.

What is compiled depends on the processor and on all files of loops, since one may call another's, and on the vector
instructions in files named ``...vectors.py``. The folder is named by the sizes and times of all these; it stands beside
this file or, where that cannot be written, in the user's cache.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
"""The folder of all rooms."""

LOOPS, VECTORS = "loops.py", "vectors.py"
"""How names of files end that are compiled, and of those that they are made of."""

DONE = "done"
"""File in the folder of compiled code that says that all of it is there."""

_SETTINGS = ("NUMBA_BOUNDSCHECK", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
"""Variables of the environment that make other code."""


def loop_files() -> Sequence[Path]:
    """Return the files of loops, in the order of their paths."""
    return [path for path in _sources() if path.name.endswith(LOOPS)]


def module_of(file: Path) -> str:
    """Return the name of the module in a file of the package."""
    return ".".join([PACKAGE.name, *file.relative_to(PACKAGE).with_suffix("").parts])


@functools.cache
def folder() -> Path | None:
    """Return the folder of compiled code, made if need be, None where none can be written."""
    for place in _places():
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            return place
    return None


def can_be_kept() -> bool:
    """Return whether compiled code can be kept on disk, for other processes to load."""
    return folder() is not None


def is_prepared() -> bool:
    """Return whether all loops were compiled on this machine, as their files are now."""
    place = folder()
    return place is not None and (place / DONE).exists()


def _sources() -> Sequence[Path]:
    found = os.walk(PACKAGE)
    return sorted(Path(place, name) for place, _, names in found for name in names if name.endswith((LOOPS, VECTORS)))


def _places() -> Sequence[Path]:
    compiler = importlib.util.find_spec("numba")
    origin = None if compiler is None else compiler.origin
    settings = [os.environ.get(name) for name in _SETTINGS]
    stamp = hashlib.sha256(f"{sys.version} {origin} {settings} {_processor()}".encode())
    for file in (*_sources(), *([] if origin is None else [Path(origin)])):
        about = file.stat()
        stamp.update(f"{file} {about.st_size} {about.st_mtime_ns}".encode())
    name = f"compiled-{stamp.hexdigest()[:16]}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return [Path(__file__).parent / "__pycache__" / name, Path(home, "causeway", name)]


def _processor() -> str:
    """Return what tells one kind of processor from another; the compiler looks closer at what it takes from disk."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = [next(file, "") for _ in range(40)]
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    names = ("model name", "flags", "Features", "CPU part")
    return " ".join([platform.machine(), *(line for line in lines if line.startswith(names))])
