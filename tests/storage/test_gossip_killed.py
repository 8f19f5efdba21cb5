"""A killed simulation on Spark resumes to the root of an in-process one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from causeway.storage.lake import Lake
from tests.gossip.test_gossip_simulation import ROUGH, SMALL

COMMAND = [sys.executable, "-m", "causeway", "gossip", "simulate"]

LONGEST = 300.0
"""Seconds after which a process without a new height counts as hanging."""


def finished(*arguments: str) -> dict[str, object]:
    done = subprocess.run([*COMMAND, *arguments, "--json"], capture_output=True, text=True, timeout=LONGEST)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return {key: value for key, value in found.items() if key not in ("seconds", "peak_memory_bytes", "lake")}


def killed_at(lake: Path, height: int, *arguments: str) -> None:
    """Start a simulation and kill it once it has committed a height."""
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        begun = time.monotonic()
        while not (lake / "lake.json").exists() or Lake.at(str(lake)).last_height() < height:
            assert process.poll() is None and time.monotonic() < begun + LONGEST
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_simulation_killed_on_spark_resumes_to_equal_results(tmp_path: Path) -> None:
    path, lake = tmp_path / "scenario.toml", tmp_path / "lake"
    path.write_text(SMALL + ROUGH)
    whole = finished(str(path))
    spark = ["--set", "network.executor=spark", "--set", "network.master=local[2]", "--set", "network.partitions=2"]
    asked = [str(path), "--out", str(lake), *spark]
    killed_at(lake, 8, *asked)
    stopped = Lake.at(str(lake)).last_height()
    killed_at(lake, stopped + 4, *asked, "--resume")
    assert stopped < Lake.at(str(lake)).last_height() < 30
    assert finished(*asked, "--resume") == whole
