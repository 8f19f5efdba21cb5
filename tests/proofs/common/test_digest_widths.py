"""Vectors of all widths give equal digests, and no loop accesses memory out of bounds.

Each runs the tests of digests once more, in a process whose compiler is told of a lesser processor or checks bounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from causeway_proofs.jit_cache import packages
from llvmlite.binding import get_host_cpu_features

TESTS = Path(__file__).with_name("test_digests.py")

LANES = "from causeway_proofs.hashing import vector_instructions; print(vector_instructions.vector_bytes())"


def without(*instructions: str) -> str:
    """Return the features of this processor except those with these prefixes."""
    features = dict(get_host_cpu_features())
    if not features.get("sse2"):
        pytest.skip("vectors of this processor have one width")
    return ",".join(
        f"{'+' if has and not name.startswith(instructions) else '-'}{name}" for name, has in sorted(features.items())
    )


def run(*arguments: str, **environ: str) -> str:
    path = os.pathsep.join([*(str(package.parent) for package in packages()), str(TESTS.parents[3])])
    done = subprocess.run(
        [sys.executable, *arguments], env={**os.environ, "PYTHONPATH": path, **environ}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "missing"), [(32, ("avx512", "avx10")), (16, ("avx", "sha", "vaes", "vpclmulqdq", "fma", "f16c", "gfni"))]
)
def test_digests_in_narrower_vectors(width: int, missing: tuple[str, ...]) -> None:
    environ = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": without(*missing)}
    assert int(run("-c", LANES, **environ)) == width
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", str(TESTS), **environ)


@pytest.mark.slow
def test_digests_with_bounds_checked() -> None:
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", str(TESTS), NUMBA_BOUNDSCHECK="1")
