"""What the figures were measured on, and how much memory processes took."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("pyspark", "pyarrow", "numpy", "datafusion", "duckdb", "polars")


def machine(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Return what the figures depend on: processor, cores, memory, versions of ``packages``."""
    versions = {}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "processor": _processor(),
        "cores": psutil.cpu_count() or 1,
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": versions,
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def peak_bytes(process: psutil.Process) -> int:
    """Return the largest resident memory a process has had; on systems that do not tell, what it has now."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)


def peaks(exclude: Collection[int] = ()) -> dict[str, int]:
    """Return the sum of the peaks of this process and those below it, Python and Java apart.

    The peaks need not have come at the same time, and memory that processes share is counted in each: an upper bound.
    ``exclude``: processes to leave out, with all below them.
    """
    sums = {"python": 0, "java": 0}
    for process in processes_below(os.getpid(), exclude):
        with contextlib.suppress(psutil.Error):
            sums["java" if "java" in process.name() else "python"] += peak_bytes(process)
    return sums


def processor_seconds(exclude: Collection[int] = (), root: int | None = None) -> float:
    """Return the processor time of a process and those below it, Java too: other work does not change it much.

    Args:
        exclude: processes to leave out, with all below them.
        root: the process; this one by default.
    """
    total = 0.0
    for process in processes_below(os.getpid() if root is None else root, exclude):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            # Those of children that ended, as workers of Spark do, are in their parent's.
            total += times.user + times.system + times.children_user + times.children_system
    return total


def processes_below(root: int, exclude: Collection[int] = ()) -> Iterator[psutil.Process]:
    """Yield a process and those below it, but for ``exclude`` and those below them."""
    waiting = [psutil.Process(root)]
    while waiting:
        process = waiting.pop()
        if process.pid in exclude:
            continue
        with contextlib.suppress(psutil.Error):
            waiting += process.children()
        yield process
