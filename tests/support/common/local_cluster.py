"""A Spark cluster of several processes on this machine, to try out or test what will run on a real one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from causeway_proofs.errors import InvalidInput

from causeway.cluster.java import SPARK_FOLDER, check_memory, find_java, java_home

_START_SECONDS = 60
_END_SECONDS = 10

_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options for processes that only coordinate: they should start at once and take nothing from the executors."""

_WATCHED = """
exec 3<&0
"$@" </dev/null & watched=$!
(cat <&3 >/dev/null; kill $watched 2>/dev/null) & watcher=$!
trap 'kill $watched' TERM
wait $watched
kill $watcher 2>/dev/null
"""
"""A shell script that runs a command until it ends or standard input closes. Spark's masters and workers would outlive
a Python process that is killed; its end of a pipe does not."""


class LocalCluster:
    """A standalone Spark cluster on the loopback interface: one master process, and workers that start executors.

    Use it as a context manager; inside, ``master_url`` is what ``open_session`` takes. All its files are in a temporary
    folder, and all its processes end with the block, or with this process.

    Args:
        workers: how many worker processes.
        cores: how many tasks each runs at once.
        memory: how much memory each gives to executors. By default an executor takes 1g.
        hosts: each worker has an address of its own, so that Spark takes it for another host, and runs speculative
            copies of tasks there.

    Raises:
        InvalidInput: an argument is wrong, or the cluster does not start within a minute; the message says why.
    """

    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1g", *, hosts: bool = False) -> None:
        if workers < 1 or cores < 1:
            raise InvalidInput(f"a cluster needs at least one worker with one core, not {workers} with {cores}")
        self.workers = workers
        self.cores = cores
        self.memory = check_memory(memory)
        self.hosts = hosts
        self.master_url = ""
        self._status_url = ""
        self._open = ExitStack()

    def __enter__(self) -> LocalCluster:
        """Start the processes, and wait until all workers have joined."""
        try:
            folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="causeway-cluster-")))
            home = java_home(find_java())
            master, status = _free_ports(2)
            self.master_url = f"spark://127.0.0.1:{master}"
            self._status_url = f"http://127.0.0.1:{status}/json/"
            started = [
                self._start(
                    home,
                    folder / "master",
                    "org.apache.spark.deploy.master.Master",
                    ["--host", "127.0.0.1", "--port", str(master), "--webui-port", str(status)],
                )
            ]
            # A worker that finds no master tries again only after some seconds.
            self._await_workers(0, started, folder)
            for number in range(self.workers):
                place = folder / f"worker-{number}"
                limits = ["--cores", str(self.cores), "--memory", self.memory]
                host = f"127.0.0.{2 + number if self.hosts else 1}"
                where = ["--host", host, "--webui-port", "0", "--work-dir", str(place / "work")]
                started.append(
                    self._start(
                        home,
                        place,
                        "org.apache.spark.deploy.worker.Worker",
                        [*where, *limits, self.master_url],
                    )
                )
            self._await_workers(self.workers, started, folder)
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes, workers first, and remove their files."""
        self._open.close()

    def _start(self, home: Path, place: Path, main_class: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        place.mkdir()
        command = [str(SPARK_FOLDER / "bin" / "spark-class"), main_class, *arguments]
        environment = {
            **os.environ,
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(SPARK_FOLDER),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": _QUICK,
        }
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=place,
                env=environment,
                process_group=0,  # Ctrl-C is for Python, which then ends the cluster in order
            )
        self._open.callback(_stop, process)
        return process

    def _await_workers(self, count: int, started: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
        """Wait until the master knows ``count`` workers."""
        deadline = time.monotonic() + _START_SECONDS
        while self._joined_workers() < count:
            if any(process.poll() is not None for process in started):
                raise InvalidInput(f"a process of the local cluster ended: {_last_words(folder)}")
            if time.monotonic() > deadline:
                raise InvalidInput(
                    f"the local cluster did not start in {_START_SECONDS} seconds: {_last_words(folder)}"
                )
            time.sleep(0.1)

    def _joined_workers(self) -> int:
        """Return how many workers the master knows, -1 while it does not answer."""
        try:
            with urllib.request.urlopen(self._status_url, timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (urllib.error.URLError, OSError, ValueError, KeyError):
            return -1


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _last_words(folder: Path) -> str:
    """Return the last line with something to say in the logs of a cluster that does not start."""
    for log in sorted(folder.glob("*/log"), reverse=True):
        lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
        errors = [line for line in lines if "ERROR" in line or "Exception" in line or line.startswith("Error")]
        if errors:
            return errors[0]
    return "its logs say nothing"
