"""Every fuzz target with its seeds and hundreds of mutations; guided by coverage in the slow test."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.mutations import mutations
from tests.fuzz.targets import all_targets
from tests.tiers import sized

TARGETS = all_targets()
MUTATIONS = sized(200, 400)
RUNS, SECONDS = sized(4_000, 20_000), sized(1, 20)

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_seeds_raise_only_proof_errors(name: str) -> None:
    target, seeds = TARGETS[name]
    for seed in seeds:
        target(seed)
    for data in mutations(seeds, MUTATIONS, Random(name)):
        try:
            target(data)
        except Exception as error:
            error.add_note(f"{name}: {data.hex()}")
            raise


@pytest.fixture(scope="module")
def fuzzed(request: pytest.FixtureRequest) -> dict[str, tuple[int, str]]:
    """Return the exit and the output of each requested target: the modules are instrumented once for all of them,
    which takes as long as one target runs."""
    items = (item for item in request.session.items if isinstance(item, pytest.Function))
    names = [str(item.callspec.params["name"]) for item in items if "fuzzed" in item.fixturenames]
    ended = _run(Path(__file__).parents[2], *names, f"--at-once={min(os.cpu_count() or 1, 4)}")
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("[")]
    assert len(lines) == len(names), ended.stderr[-4000:]
    return {name: (code, text) for name, code, text in lines}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize("name", TARGETS)
def test_coverage_guided_inputs_raise_only_proof_errors(name: str, fuzzed: dict[str, tuple[int, str]]) -> None:
    code, text = fuzzed[name]
    assert code == 0, text


def test_mutations_replace_single_bytes_deterministically() -> None:
    tried = list(mutations([bytes(8)], 2_000, Random(1)))
    assert any(len(data) == 8 and data[3] == 0xFF for data in tried)
    assert tried == list(mutations([bytes(8)], 2_000, Random(1)))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_driver_prints_the_failing_input(tmp_path: Path) -> None:
    """One planted in a copy of the tests, behind a byte that only coverage or luck finds."""
    folder = tmp_path / "tests" / "fuzz"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    for name in ("__init__.py", "run.py", "targets.py"):
        (folder / name).write_bytes((Path(__file__).parent / name).read_bytes())
    (folder / "mistaken.py").write_text(
        "def mistaken(data):\n    if data[:2] == b'no':\n        raise IndexError\n\n"
        "TARGETS = {'mistaken': (mistaken, [b'nn']), 'right': (len, [b'nn'])}\n"
    )
    ended = _run(tmp_path, "mistaken")
    assert ended.returncode != 0
    assert "mistaken.py" in ended.stdout + ended.stderr
    assert "mistaken: IndexError: 6e6f" in ended.stderr
    both = _run(tmp_path, "mistaken", "right", "--at-once=2")
    told = {name: (code, text) for name, code, text in map(json.loads, both.stdout.splitlines()[-2:])}
    assert both.returncode == told["mistaken"][0] != 0 == told["right"][0]
    assert "mistaken: IndexError: 6e6f" in told["mistaken"][1] and "mistaken.py" in told["mistaken"][1]


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.run", *arguments, f"--runs={RUNS}", f"--seconds={SECONDS}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
