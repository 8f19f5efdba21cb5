"""Every fuzz target takes its seeds and a few hundred mutations of them; the slow test lets coverage choose them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.mutations import mutations
from tests.fuzz.targets import all_targets

TARGETS = all_targets()
MUTATIONS = 400
RUNS, SECONDS = 20_000, 5

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_seeds_raise_nothing_but_proof_errors(name: str) -> None:
    target, seeds = TARGETS[name]
    for seed in seeds:
        target(seed)
    for data in mutations(seeds, MUTATIONS, Random(name)):
        try:
            target(data)
        except Exception as error:
            error.add_note(f"{name}: {data.hex()}")
            raise


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize("name", TARGETS)
def test_inputs_chosen_by_coverage_raise_nothing_but_proof_errors(name: str) -> None:
    ended = _run(name, Path(__file__).parents[2])
    assert ended.returncode == 0, ended.stderr[-4000:]


def test_mutations_get_past_a_changed_byte() -> None:
    tried = list(mutations([bytes(8)], 2_000, Random(1)))
    assert any(len(data) == 8 and data[3] == 0xFF for data in tried)
    assert tried == list(mutations([bytes(8)], 2_000, Random(1)))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_the_driver_shows_the_input_of_a_mistake(tmp_path: Path) -> None:
    """One that is put into a copy of the tests, behind a byte that only coverage or luck finds."""
    folder = tmp_path / "tests" / "fuzz"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    for name in ("__init__.py", "run.py", "targets.py"):
        (folder / name).write_bytes((Path(__file__).parent / name).read_bytes())
    (folder / "mistaken.py").write_text(
        "def mistaken(data):\n    if data[:2] == b'no':\n        raise IndexError\n\n"
        "TARGETS = {'mistaken': (mistaken, [b'nn'])}\n"
    )
    ended = _run("mistaken", tmp_path)
    assert ended.returncode != 0
    assert "mistaken.py" in ended.stdout + ended.stderr
    assert "mistaken: IndexError: 6e6f" in ended.stderr


def _run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.run", name, f"--runs={RUNS}", f"--seconds={SECONDS}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
