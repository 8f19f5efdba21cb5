"""The notebook of docs runs in a session that another process started, and shows what its stored outputs show."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs/how-to/spark-connect.ipynb"

SERVER = """
import sys
from causeway.cluster.session import open_session
plugin = {"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin"}
open_session("local[2]", extra={**plugin, "spark.connect.grpc.binding.port": sys.argv[1]})
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server() -> Iterator[str]:
    """Yield the address of a Connect server in another process, which ends with its standard input."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SERVER, str(port)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield f"sc://127.0.0.1:{port}"
        process.communicate(timeout=60)


def outputs(notebook: Any) -> list[list[Any]]:
    """Return the text of each output, by cell; printed texts that follow each other may have come as one."""
    found: list[list[Any]] = []
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        texts: list[Any] = []
        for output in cell.outputs:
            text = output.get("text") or output.get("data") or output
            if texts and isinstance(texts[-1], str) and isinstance(text, str):
                text = texts.pop() + text
            texts.append(text)
        found.append(texts)
    return found


@pytest.mark.slow
def test_notebook_shows_its_outputs_in_a_session_of_somebody_else(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat  # half a second, which other runs need not wait for
    from nbclient import NotebookClient

    monkeypatch.setenv("SPARK_REMOTE", server)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    stored = outputs(notebook)
    NotebookClient(notebook, timeout=280, kernel_name="python3").execute()
    assert outputs(notebook) == stored
    assert {"text/plain": "causeway: audit: done"} in stored[2] and "FAILED" in str(stored[2])
