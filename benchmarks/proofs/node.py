"""Other people's verifiers in Node: installed for a run of the benchmark, each in a process that stays warm."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any, Self

from benchmarks.process import BenchmarkFailed

SCRIPT = "verifiers.mjs"
PACKAGES = "package.json"
INSTALL_SECONDS = 300

ICS23 = "@confio/ics23"
IC = "@icp-sdk/core"
SUBSTRATE = "@acala-network/chopsticks-executor"


class NodeMissing(Exception):
    """The other verifiers cannot run here; the text says why."""


def install(folder: str) -> dict[str, str]:
    """Install the other verifiers into a folder, made if need be, and return their versions, Node's among them.

    Raises:
        NodeMissing: there is no Node, or the packages cannot be had.
    """
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise NodeMissing("node and npm are not on PATH")
    files = resources.files("benchmarks.proofs")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in (SCRIPT, PACKAGES):
        Path(folder, name).write_text(files.joinpath(name).read_text())
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise NodeMissing(f"npm could not install them within {INSTALL_SECONDS} s") from None
    if done.returncode:
        raise NodeMissing(f"npm could not install them: {[*done.stderr.strip().splitlines(), 'no reason given'][0]}")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    packages = json.loads(Path(folder, PACKAGES).read_text())["dependencies"]
    return {"node": version.removeprefix("v"), **packages}


class OtherVerifier:
    """One kind of work in a Node process; ``measure`` does it once.

    Args:
        folder: where ``install`` has put the packages.
        kind: one of those in the script.
        work: what it is given, as the script takes it.
    """

    def __init__(self, folder: str, kind: str, work: dict[str, Any]) -> None:
        self._kind = kind
        self._process = subprocess.Popen(
            [shutil.which("node") or "node", SCRIPT],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            self._asked({"kind": kind, "work": work})
        except BenchmarkFailed:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def measure(self) -> tuple[float, float]:
        """Do the work once and return the seconds it took by Node's own clock, and of the processor.

        Raises:
            BenchmarkFailed: something was not accepted.
        """
        answer = self._asked({})
        return answer["seconds"], answer["processor"]

    def _asked(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"refused": "the process ended"}
        if "refused" in answer:
            raise BenchmarkFailed(f"{self._kind} in Node: {answer['refused']}")
        return answer
