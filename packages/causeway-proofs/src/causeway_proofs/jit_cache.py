"""Where compiled loops are kept on disk, and whether they are there; asked without loading the compiler.

What is compiled depends on the processor and on all files of loops, since one may call another's; on the vector
instructions in files named ``...vectors.py``; and on what these import, since constants are compiled in. The folder is
named by the sizes and times of all these; it stands beside this file or, where that cannot be written, in the user's
cache. One in which all loops are need not be writable: whoever set this up may have been another user.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

try:
    import fcntl
except ImportError:  # there are none on Windows
    fcntl = None  # type: ignore[assignment]

OWN_PACKAGE = Path(__file__).parent
"""The folder of this package, whose loops are compiled, and those of the engine where it is installed."""

_ENGINE = "causeway"

LOOPS, VECTORS = "loops.py", "vectors.py"
"""How names of files end that are compiled, and of those that they are made of."""

DONE_FILE = "done"
"""File in the folder of compiled code that says that all of it is there."""

UNFINISHED = ".new"
"""How names of files end that are being written."""

MAX_FOLDERS = 8
"""Folders of compiled code that are left beside each other: for settings, interpreters, texts of the loops."""

_MAKERS = ("jit_compiler.py", "jit_code.py")
"""Files beside this one that say how code is made and kept."""

_SETTINGS = ("NUMBA_BOUNDSCHECK", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
"""Variables of the environment that make other code."""


@functools.cache
def packages() -> Sequence[Path]:
    """Return the folders of the packages that have loops."""
    engine = importlib.util.find_spec(_ENGINE)
    found = () if engine is None else map(Path, engine.submodule_search_locations or ())
    return [OWN_PACKAGE, *found]


def loop_files() -> Sequence[Path]:
    """Return the files of loops, package by package, in the order of their paths."""
    return [path for path in _sources() if path.name.endswith(LOOPS)]


def module_of(file: Path) -> str:
    """Return the name of the module in a file of the package."""
    package = next(package for package in packages() if file.is_relative_to(package))
    return ".".join([package.name, *file.relative_to(package).with_suffix("").parts])


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder of compiled code, made if need be, None where none can be written."""
    places = _places()
    for place in places:
        if (place / DONE_FILE).exists():
            return place
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            return place
    return None


def is_cacheable() -> bool:
    """Return whether compiled code can be kept on disk, for other processes to load."""
    return cache_folder() is not None


def is_prepared() -> bool:
    """Return whether all loops were compiled on this machine, as their files are now."""
    place = cache_folder()
    return place is not None and (place / DONE_FILE).exists()


@contextlib.contextmanager
def exclusive_lock() -> Iterator[None]:
    """Wait until no other process compiles into the folder, and keep others from it, where there are locks."""
    place = cache_folder()
    with contextlib.ExitStack() as open_files:
        if place is not None:
            with contextlib.suppress(OSError):
                lock = open_files.enter_context(open(place / "lock", "wb"))
                if fcntl is not None:
                    fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_stale_folders(present: Path) -> None:
    """Remove what a process that was killed left in the folder, and all folders beside it but the newest."""
    for path in present.glob(f"*{UNFINISHED}"):
        path.unlink(missing_ok=True)
    dated = []
    for path in present.parent.glob("compiled-*"):
        with contextlib.suppress(OSError):
            dated.append((path != present, -path.stat().st_mtime_ns, path))
    for *_, path in sorted(dated)[MAX_FOLDERS:]:
        shutil.rmtree(path, ignore_errors=True)


def _sources() -> Sequence[Path]:
    return [
        path for package in packages() for path in sorted(package.rglob("*.py")) if path.name.endswith((LOOPS, VECTORS))
    ]


def _with_imported(files: Sequence[Path]) -> Sequence[Path]:
    """Return files and those of our own that they import, whose constants are compiled in."""
    found = set(files)
    for file in files:
        for name in _IMPORTED(file.read_text(encoding="utf-8")):
            package = next((package for package in packages() if package.name == name.partition(".")[0]), OWN_PACKAGE)
            path = package.parent.joinpath(*name.split("."))
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            found.add(path)
    return sorted(path for path in found if path.exists())


_IMPORTED = re.compile(rf"^from ((?:{OWN_PACKAGE.name}|{_ENGINE})(?:\.\w+)*) import", re.MULTILINE).findall


def _places() -> Sequence[Path]:
    compiler = importlib.util.find_spec("numba")
    origin = None if compiler is None else compiler.origin
    settings = [os.environ.get(name) for name in _SETTINGS]
    stamp = hashlib.sha256(f"{sys.version} {origin} {settings} {_processor()}".encode())
    makers = [path for path in (Path(__file__).with_name(name) for name in _MAKERS) if path.exists()]
    for file in (*_with_imported(_sources()), *makers, *([] if origin is None else [Path(origin)])):
        about = file.stat()
        stamp.update(f"{file} {about.st_size} {about.st_mtime_ns}".encode())
    name = f"compiled-{stamp.hexdigest()[:16]}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # Of a user without a home, ~ is no path of the user's, but one in whatever folder this is run in.
    caches = [Path(home, "causeway", name)] if os.path.isabs(home) else []
    return [Path(__file__).parent / "__pycache__" / name, *caches]


def _processor() -> str:
    """Return what tells one kind of processor from another; the compiler looks closer at what it takes from disk."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = [next(file, "") for _ in range(40)]
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    names = ("model name", "flags", "Features", "CPU part")
    return " ".join([platform.machine(), *(line for line in lines if line.startswith(names))])
