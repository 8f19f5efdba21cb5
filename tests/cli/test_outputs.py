"""Commands with an unusable output: closed, full or missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from causeway.cli.shell import BAD_INPUT, OK, PIPE_CLOSED

COMMAND = f"{sys.executable} -m causeway"
ENOUGH = 60.0


def run(script: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-o", "pipefail", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=ENOUGH, check=False)


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        (f"{COMMAND} key --help | true", PIPE_CLOSED, ""),
        (f"{COMMAND} key --help > /dev/full", BAD_INPUT, "causeway: cannot be written: No space left on device\n"),
        (f"{COMMAND} key --help >&-", OK, ""),
        (f"{COMMAND} audit no-such-place 2>&-", BAD_INPUT, ""),
    ],
    ids=["closed", "full", "never there", "no errors"],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_closed_output_is_no_violated_guarantee(script: str, code: int, said: str) -> None:
    found = run(script)
    assert (found.returncode, found.stderr) == (code, said)
