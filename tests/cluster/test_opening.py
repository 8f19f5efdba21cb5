"""A session being started: refusals do not wait for Java and leave no process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import columns
from pyspark.sql import SparkSession

from causeway.cluster import session as session_module
from causeway.cluster.masters import default_tasks_on
from causeway.network.network import HASHING

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """Return the home of a Java that never starts; its process id is in the file ``started``."""
    executable = tmp_path / "home" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/started\nexec sleep 600\n")
    executable.chmod(0o755)
    (tmp_path / "home" / "release").write_text('JAVA_VERSION="17"\n')
    return tmp_path / "home"


WAITING = """
import pathlib, time
STARTED = pathlib.Path('{java}').parent / "started"
def wait():
    while not STARTED.exists(): time.sleep(0.01)
"""
"""The beginning of a program that waits until Java was started."""


def run(java: Path, *arguments: str, code: str = "from causeway.cli import main; main()") -> subprocess.Popen[str]:
    environ = {**os.environ, "JAVA_HOME": str(java), "CAUSEWAY_CACHE": "off"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_java(java: Path) -> int:
    """Wait until Java was started; return its process id."""
    file = java.parent / "started"
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(file.read_text())


def has_ended(number: int) -> bool:
    """Wait until the process with this id has ended."""
    deadline = time.monotonic() + 20
    while psutil.pid_exists(number) and time.monotonic() < deadline:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(number).status() == psutil.STATUS_ZOMBIE:
                return True  # its parent was killed too
        time.sleep(0.02)
    return not psutil.pid_exists(number)


@pytest.mark.parametrize("wrong", ["network.seed=no", "network.master=local[0]", "network.spark.x=1", "network=1"])
def test_refused_scenario_starts_no_java_and_leaves_none(java: Path, wrong: str) -> None:
    process = run(java, "run", str(EXAMPLES / "two_subnets.toml"), "--set", wrong)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 2 and len(said.splitlines()) == 1
    assert "network" in said or "master" in said
    file = java.parent / "started"
    assert not file.exists() or has_ended(wait_for_java(java))


def test_recording_is_refused_while_java_starts_and_java_ends(java: Path, tmp_path: Path) -> None:
    (tmp_path / "packets.csv").write_text("channel_id,sequence,send_height\nchannel-0,1,soon\n")
    lake, packets = str(tmp_path / "lake"), str(tmp_path / "packets.csv")
    process = run(java, "run", str(EXAMPLES / "recorded.toml"), "--traffic", packets, "--lake", lake)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 2 and "soon" in said and len(said.splitlines()) == 1
    assert has_ended(wait_for_java(java))


def test_java_ends_with_a_process_that_ends_during_its_start(java: Path) -> None:
    code = "from causeway.cluster.session import start_session\nstart_session('local[1]')\nwait()\n"
    process = run(java, code=WAITING.format(java=java) + code)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0 and not said
    assert has_ended(wait_for_java(java))


def test_ctrl_c_during_the_start_of_java_ends_both(java: Path, tmp_path: Path) -> None:
    process = run(java, "run", str(EXAMPLES / "two_subnets.toml"), "--lake", str(tmp_path / "lake"))
    begun = wait_for_java(java)
    deadline = time.monotonic() + 60
    while not (tmp_path / "lake" / "lake.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)  # everything without Java is done
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and said == "causeway: stopped before the first tick\n"
    assert has_ended(begun)


def test_failed_start_is_reported_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> SparkSession:
        raise InvalidInput("no")

    monkeypatch.setattr(session_module, "_build", refused)
    start = session_module._Start("local[1]", None, {})
    start.prepare(2, ["json"])
    start.join()
    with pytest.raises(InvalidInput, match="no"):
        start.session.result()


def test_workers_prepared_during_session_shutdown_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C prints one line, and no failure of PySpark without its Java."""

    class Gone:
        def range(self, *arguments: int) -> SparkSession:
            asked.set()
            ending.wait(60)
            raise ConnectionRefusedError

    complaints: list[object] = []
    monkeypatch.setattr(threading, "excepthook", complaints.append)
    monkeypatch.setattr(session_module, "_build", lambda *_: Gone())
    for ends in (True, False):
        asked, ending = threading.Event(), threading.Event()
        start = session_module._Start("local[1]", None, {})
        start.prepare(1, ["json"])
        assert asked.wait(60)
        start.ending = ends
        ending.set()
        start.join()
        assert len(complaints) == (0 if ends else 1)


def test_requested_session_replaces_one_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        def __init__(self, options: dict[str, str], environment: dict[str, str]) -> None:
            self.master = options["spark.master"]

        def stop(self) -> None:
            stopped.append(self.master)

    stopped: list[str] = []
    monkeypatch.setattr(session_module, "_build", Fake)
    monkeypatch.setattr(session_module, "active_session", lambda: None)
    monkeypatch.setattr(session_module, "_start", None)
    session_module.start_session("local[1]")
    opened = session_module.open_session("local[2]")
    assert vars(opened) == {"master": "local[2,4]"} and stopped == ["local[1,4]"]
    session_module.close_session()
    assert stopped == ["local[1,4]", "local[2,4]"]


@pytest.mark.parametrize(
    ("master", "settings", "tasks"),
    [
        ("local[3]", {}, 3),
        ("local[3, 2]", {}, 3),
        ("local[3]", {"spark.default.parallelism": "5"}, 5),
        ("yarn", {}, 16),
        ("yarn", {"spark.cores.max": "8"}, 8),
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
    ],
)
def test_default_number_of_tasks_before_a_session_exists(master: str, settings: dict[str, str], tasks: int) -> None:
    assert default_tasks_on(master, settings) == tasks


def test_invalid_number_of_tasks_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"spark\.default\.parallelism is 'many': give a whole number from 1"):
        default_tasks_on("local[2]", {"spark.default.parallelism": "many"})


def test_workers_load_hash_code_before_their_first_task(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(columns, "load_engines", lambda: called.append(1))
    assert list(session_module._import([HASHING, "json", "no.such.module:prepare"], iter([]))) == []
    assert called == [1]
