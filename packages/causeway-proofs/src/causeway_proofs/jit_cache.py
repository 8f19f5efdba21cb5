"""Locate compiled loops on disk without loading the compiler.

Compiled code depends on the processor; on all files of loops, since loops call each other; and on the modules that
these import, since constants are compiled in. The folder's name hashes the sizes and times of all these. It stands
beside this file or, if that is read-only, in the user's cache. A complete folder need not be writable: another user
may have installed it.
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
"""Folder of this package, with loops to compile, beside the engine's if installed."""

_ENGINE = "causeway"

LOOPS = "loops.py"
"""File name suffix of compiled loops."""

DONE_FILE = "done"
"""File that marks a folder of compiled code as complete."""

UNFINISHED = ".new"
"""File name suffix during a write."""

MAX_FOLDERS = 8
"""Folders of compiled code to retain, for different settings, interpreters and sources."""

_MAKERS = ("jit_compiler.py", "jit_code.py")
"""Files beside this one that determine the form of compiled code."""

_SETTINGS = ("NUMBA_BOUNDSCHECK", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
"""Environment variables that change the compiled code."""


@functools.cache
def compiler_file() -> str | None:
    """Return the main file of numba, or None if it is not installed."""
    spec = importlib.util.find_spec("numba")
    return None if spec is None else spec.origin


@functools.cache
def packages() -> Sequence[Path]:
    """Return the folders of the packages with loops."""
    engine = importlib.util.find_spec(_ENGINE)
    found = () if engine is None else map(Path, engine.submodule_search_locations or ())
    return [OWN_PACKAGE, *found]


def loop_files() -> Sequence[Path]:
    """Return the files of loops, package by package, in the order of their paths."""
    # At the start of every command: ``os.walk`` takes half the time of ``Path.rglob``.
    found: list[Path] = []
    for package in packages():
        files: list[Path] = []
        for folder, folders, names in os.walk(package):
            folders[:] = [name for name in folders if name != "__pycache__"]
            files += (Path(folder, name) for name in names if name.endswith(LOOPS))
        found += sorted(files)
    return found


def module_of(file: Path) -> str:
    """Return the module name of a file in a package."""
    package = next(package for package in packages() if file.is_relative_to(package))
    return ".".join([package.name, *file.relative_to(package).with_suffix("").parts])


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder of compiled code, created if needed, or None if none is writable."""
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
    """Return True if compiled code can be stored on disk for other processes."""
    return cache_folder() is not None


def is_prepared() -> bool:
    """Return True if all loops, in their present form, are compiled on this machine."""
    place = cache_folder()
    return place is not None and (place / DONE_FILE).exists()


@contextlib.contextmanager
def exclusive_lock() -> Iterator[None]:
    """Hold the folder's lock, if the system has locks, so that one process compiles at a time."""
    place = cache_folder()
    with contextlib.ExitStack() as open_files:
        if place is not None:
            with contextlib.suppress(OSError):
                lock = open_files.enter_context(open(place / "lock", "wb"))
                if fcntl is not None:
                    fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_stale_folders(present: Path) -> None:
    """Remove leftovers of killed processes, and all but the newest sibling folders."""
    for path in present.glob(f"*{UNFINISHED}"):
        path.unlink(missing_ok=True)
    dated = []
    for path in present.parent.glob("compiled-*"):
        with contextlib.suppress(OSError):
            dated.append((path != present, -path.stat().st_mtime_ns, path))
    for *_, path in sorted(dated)[MAX_FOLDERS:]:
        shutil.rmtree(path, ignore_errors=True)


def _with_imported(files: Sequence[Path]) -> Sequence[Path]:
    """Return ``files`` and the local files that they import, whose constants are compiled in."""
    found, roots = set(files), {package.name: package.parent for package in packages()}
    for file in files:
        package = module_of(file).rpartition(".")[0]
        for base, names, modules in _IMPORTS(file.read_text(encoding="utf-8")):
            base = base and importlib.util.resolve_name(base, package)
            # Any name may be a module; words that are none have no file.
            for module in (base, *(f"{base}.{name}" for name in _WORDS(names)), *_WORDS(modules)):
                root = roots.get(module.partition(".")[0])
                if root is not None:
                    path = root.joinpath(*module.split("."))
                    found |= {path / "__init__.py", path.with_suffix(".py")}
    return sorted(path for path in found if path.exists())


# Parsing with ``ast`` takes twenty times as long, at the start of every command.
_IMPORTS = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]*(\((?:[^)#]|#.*)*\)|.*)|import[ \t]+(.*))", re.MULTILINE
).findall
_WORDS = re.compile(r"[\w.]+").findall


def _places() -> Sequence[Path]:
    origin = compiler_file()
    settings = [os.environ.get(name) for name in _SETTINGS]
    stamp = hashlib.sha256(f"{sys.version} {origin} {settings} {_processor()}".encode())
    makers = [path for path in (Path(__file__).with_name(name) for name in _MAKERS) if path.exists()]
    for file in (*_with_imported(loop_files()), *makers, *([] if origin is None else [Path(origin)])):
        about = file.stat()
        stamp.update(f"{file} {about.st_size} {about.st_mtime_ns}".encode())
    name = f"compiled-{stamp.hexdigest()[:16]}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # Without a home folder, ~ would resolve to a path in the current folder.
    caches = [Path(home, "causeway", name)] if os.path.isabs(home) else []
    return [Path(__file__).parent / "__pycache__" / name, *caches]


def _processor() -> str:
    """Return a description of the processor; the compiler validates cached code more closely."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = [next(file, "") for _ in range(40)]
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    names = ("model name", "flags", "Features", "CPU part")
    return " ".join([platform.machine(), *(line for line in lines if line.startswith(names))])
