"""Other people's verifiers: installed once a session, run as processes of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
INSTALL_SECONDS = 300
RUN_SECONDS = 300

Node = Callable[[str, Any], Any]
"""Run a script of this folder with a JSON value on its standard input; what it prints is JSON, too."""


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Return a way to run Node scripts with the packages of package.json; skip the test where there is no Node."""
    npm, binary = shutil.which("npm"), shutil.which("node")
    if npm is None or binary is None:
        pytest.skip("independent verifiers need node and npm on PATH")
    folder = tmp_path_factory.mktemp("node")
    shutil.copy(HERE / "package.json", folder)
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    try:
        installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm could not install the independent verifiers within {INSTALL_SECONDS} s")
    if installed.returncode != 0:
        last = installed.stderr.strip().splitlines()[-1:] or ["no reason given"]
        pytest.skip(f"npm could not install the independent verifiers: {last[0]}")

    def run(script: str, value: Any) -> Any:
        # A script finds its packages from where it lies.
        shutil.copy(HERE / script, folder)
        done = subprocess.run(
            [binary, script], cwd=folder, input=json.dumps(value), capture_output=True, text=True, timeout=RUN_SECONDS
        )
        assert done.returncode == 0, f"{script} failed:\n{done.stderr}"
        return json.loads(done.stdout)

    return run
