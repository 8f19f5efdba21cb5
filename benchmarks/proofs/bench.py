"""``proofs``: every family in a process of its own."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import psutil
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import columns

from benchmarks.machine import machine, peak_bytes
from benchmarks.process import call
from benchmarks.proofs.native import Native, build
from benchmarks.proofs.node import NodeMissing, install
from benchmarks.proofs.timing import clock

FAMILIES = ("hashing", "ic", "ics23", "tendermint", "substrate", "tries", "storage", "mmr", "scale")

WITH_NATIVE = ("ics23",)
"""Families whose proofs others verify in compiled programs too."""

PACKAGES = (
    "pyarrow",
    "numpy",
    "numba",
    "datafusion",
    "cryptography",
    "py-arkworks-bls12381",
    "pycryptodome",
    "protobuf",
)

LEAST_SIZE = 20
MOST_SIZE = 10_000_000

Progress = Callable[[str], None]


def bench_proofs(
    size: int = 1_000_000,
    *,
    repeats: int = 5,
    families: Sequence[str] = FAMILIES,
    others: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure commitments to queues of ``size`` messages and proofs out of them; return figures that fit JSON.

    Args:
        size: messages of a queue.
        repeats: how often each is measured; what takes the whole queue, half as often, rounded up.
        families: some of ``FAMILIES``.
        others: whether other people's verifiers are installed (npm) and built (cargo, go) for this run, and take turns
            with ours.
        progress: told what is being measured.

    Raises:
        InvalidInput: a number is out of range, or a family unknown.
        BenchmarkFailed: a process dies, or contenders come to different results.
    """
    if not LEAST_SIZE <= size <= MOST_SIZE:
        raise InvalidInput(f"size: {size} messages, {LEAST_SIZE} to {MOST_SIZE:,} are allowed")
    if repeats < 1:
        raise InvalidInput(f"repeats: {repeats}, at least 1 is allowed")
    for name in families:
        if name not in FAMILIES:
            raise InvalidInput(f'family "{name}" is unknown; allowed: {", ".join(FAMILIES)}')
    about = machine(PACKAGES)
    tell = progress if progress is not None else lambda text: None
    folder = tempfile.mkdtemp(prefix="causeway-bench-") if others else None
    node: str | None = None
    native: list[Native] = []
    left_out = [] if others else ["--others installs and builds them for a run and lets them take turns with ours"]
    try:
        if folder is not None:
            tell("installing other verifiers")
            node_folder = os.path.join(folder, "node")
            try:
                about["packages"].update(install(node_folder))
                node = node_folder
            except NodeMissing as missing:
                left_out.append(str(missing))
            native, missing_native = build(os.path.join(folder, "native"))
            left_out += missing_native
            about["packages"].update({each.name: each.version for each in native})
        measured = []
        for name in families:
            tell(name)
            measured.append({"family": name, **call(_measure, name, size, repeats, node, native)})
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    return {
        "benchmark": "proofs",
        "machine": about,
        "load_after": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "size": size,
        "repeats": repeats,
        "others_left_out": "; ".join(left_out) or None,
        "families": measured,
    }


def _measure(name: str, size: int, repeats: int, node: str | None, native: list[Native]) -> dict[str, Any]:
    columns.load_engines()
    module = importlib.import_module(f"benchmarks.proofs.{name}")
    more = (native,) if name in WITH_NATIVE else ()
    rows, (seconds, _) = clock(module.measure, size, repeats, node, *more)
    return {"seconds": round(seconds, 1), "peak_bytes": peak_bytes(psutil.Process()), "rows": rows}
