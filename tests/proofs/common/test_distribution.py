"""The distribution ``causeway-proofs``: the examples of its README, also installed alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3] / "packages" / "causeway-proofs"
README = (PROJECT / "README.md").read_text()
EXAMPLES = dict(re.findall(r"^## ([^\n:]+): [^\n]*\n```python\n(.*?)```", README, re.M | re.S))


def test_readme_has_an_example_of_each_family() -> None:
    assert list(EXAMPLES) == ["IBC", "Internet Computer", "Substrate", "Merkle mountain ranges"]


@pytest.mark.parametrize("family", EXAMPLES)
def test_examples_run(family: str) -> None:
    exec(EXAMPLES[family], {})


@pytest.mark.slow
def test_wheel_alone_verifies_a_proof_of_each_family(tmp_path: Path) -> None:
    """In an environment without the engine, Spark, pandas and numba."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}

    def run(*arguments: str) -> str:
        command = [str(python), *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
        assert not done.returncode, done.stderr
        return done.stdout

    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(PROJECT)]
    subprocess.run(build, env=environment, check=True, capture_output=True, timeout=500)
    (wheel,) = tmp_path.glob("*.whl")
    run("-m", "pip", "install", "--quiet", "--constraint", str(PROJECT.parents[1] / "constraints.txt"), str(wheel))
    for example in EXAMPLES.values():
        run("-I", "-c", example)
    installed = run("-m", "pip", "list", "--format", "freeze")
    assert not {"causeway", "pyspark", "pandas", "numba"} & {line.partition("==")[0] for line in installed.splitlines()}
