"""Third-party verifiers: installed once a session, run as separate processes.

Tests that need them carry the marker ``verifiers`` and run only when it is asked for: ``-m verifiers``. Then a machine
without Node, or without a way to the registries, fails them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from benchmarks.proofs.native import ICS23, Native, Toolchain, build
from tests.tiers import current_tier

HERE = Path(__file__).resolve().parent
INSTALL_SECONDS = 300
RUN_SECONDS = 300

FROM_REGISTRIES = {"node", "folder", "native_build"}
"""Fixtures of this folder that install packages of a registry."""

Build = Callable[[Sequence[Toolchain]], list[Native]]

Node = Callable[[str, Any], Any]
"""Run a script of this folder with a JSON value on its standard input; what it prints is JSON, too."""


def to_hex(data: bytes) -> str:
    """Format bytes as a hexadecimal number."""
    return "0x" + data.hex()


def missing(reason: str) -> NoReturn:
    """Skip a test without its tool; fail it if no test may be skipped."""
    if current_tier() == "test":
        pytest.skip(reason)
    pytest.fail(reason)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need a registry, and leave them out of a run that does not name the marker."""
    others, marked = [], []
    for item in items:
        fixtures = FROM_REGISTRIES.intersection(getattr(item, "fixturenames", ()))
        if fixtures and HERE in item.path.parents:
            item.add_marker("verifiers")
            marked.append(item)
        else:
            others.append(item)
    if marked and "verifiers" not in config.option.markexpr:
        config.hook.pytest_deselected(items=marked)
        items[:] = others


@pytest.fixture(scope="session")
def native_build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that builds programs over packages of Cargo and Go."""

    def built(toolchains: Sequence[Toolchain]) -> list[Native]:
        made, left_out = build(str(tmp_path_factory.mktemp("native") / "verifiers"), toolchains)
        if left_out:
            missing("; ".join(left_out))
        return made

    return built


@pytest.fixture(scope="session")
def native(native_build: Build) -> list[Native]:
    """Return the verifiers of ICS-23 proofs in Rust and Go."""
    return native_build(ICS23)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Return a function that runs Node scripts with the packages of package.json."""
    npm, binary = shutil.which("npm"), shutil.which("node")
    if npm is None or binary is None:
        missing("independent verifiers need node and npm on PATH")
    folder = tmp_path_factory.mktemp("node")
    shutil.copy(HERE / "package.json", folder)
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    try:
        installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        missing(f"npm could not install the independent verifiers within {INSTALL_SECONDS} s")
    if installed.returncode != 0:
        last = installed.stderr.strip().splitlines()[-1:] or ["no reason given"]
        missing(f"npm could not install the independent verifiers: {last[0]}")

    def run(script: str, value: Any) -> Any:
        # A script finds its packages relative to its own path.
        shutil.copy(HERE / script, folder)
        done = subprocess.run(
            [binary, script], cwd=folder, input=json.dumps(value), capture_output=True, text=True, timeout=RUN_SECONDS
        )
        assert done.returncode == 0, f"{script} failed:\n{done.stderr}"
        return json.loads(done.stdout)

    return run
