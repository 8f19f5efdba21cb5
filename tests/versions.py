"""Run the tests of what touches Spark under older releases of PySpark than the installed one.

    python -m tests.versions            # all releases
    python -m tests.versions 4.1        # one

Each release is installed into a temporary folder that comes first on the path.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

RELEASES = ("4.1", "4.2")
"""Series before the one that constraints.txt names."""

TESTS = ("tests/cluster", "tests/dataframes", "tests/spark", "tests/tick", "tests/storage/test_run.py")


def run_release(release: str, folder: str) -> int:
    """Run the tests under the newest PySpark of a series; return the exit code.

    Args:
        release: The series.
        folder: Folder for the package.
    """
    install = ["-m", "pip", "install", "--quiet", "--target", folder, f"pyspark=={release}.*"]
    subprocess.run([sys.executable, *install], check=True)
    path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    tests = ["-m", "pytest", "-m", "slow or not slow", "-p", "no:cacheprovider", *TESTS]
    return subprocess.run([sys.executable, *tests], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}).returncode


def main(releases: Sequence[str]) -> int:
    """Run the releases one after the other; return the first exit code that is not zero."""
    codes = []
    for release in releases or RELEASES:
        with tempfile.TemporaryDirectory() as folder:
            codes.append(run_release(release, folder))
        print(f"versions: PySpark {release}: {'failed' if codes[-1] else 'passed'}", flush=True)
    return next(filter(None, codes), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
