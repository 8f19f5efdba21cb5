"""Runs of a scenario, one a protocol, each as a command and a process of its own: so that memory and processor time are
of it alone, and one that fails takes no other with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causeway.comparing.plan import Planned
from causeway.model.json_text import loads
from causeway.model.text import escaped

GENTLE_SECONDS = 60.0
"""A run that is asked to stop ends after its next commit; longer than this it is not waited for."""

INTERRUPTED = 130
_WORST = 3
"""The first exit code that says nothing of an outcome; 2 is bad input."""

_MEASURED = ("seconds", "processor_seconds", "peak_memory_bytes")
"""What a run that was continued knows only of its last part."""

_PREFIX = "causeway: "
_MOST_CHARACTERS = 500


@dataclass(frozen=True)
class Ran:
    """What came of a run: what its command printed (``run --json``), or why it failed, in a line."""

    content: Mapping[str, Any] | None
    failed: str | None = None


def run_column(planned: Planned, lake: str, *, resume: bool = False) -> Ran:
    """Run a scenario under one protocol into ``lake``; what it shows of its progress goes to standard error.

    ``resume``: continue what is there; then nothing is said of time and memory, for another process had a part in it.
    Raises ``KeyboardInterrupt`` when the user stops it; what is committed stays.
    """
    command = [sys.executable, "-m", "causeway", "run", planned.scenario.path, "--lake", lake, "--json"]
    for key, value in planned.overrides.items():
        command += ["--set", f"{key}={value}"]
    if resume:
        command.append("--resume")
    errors_to = subprocess.PIPE if _is_quiet() else None
    # In a group of its own it is not interrupted by the terminal, but by this process, and once.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors_to, process_group=0) as run:
        try:
            output, errors = run.communicate()
        except KeyboardInterrupt:
            _stop(run)
            raise
    if run.returncode in (INTERRUPTED, -signal.SIGINT):
        raise KeyboardInterrupt
    if run.returncode >= 0 and run.returncode < _WORST - 1:
        with contextlib.suppress(ValueError):
            found = loads(output)
            return Ran({**found, **dict.fromkeys(_MEASURED)} if resume else found)
    return Ran(None, _reason(run.returncode, errors).removeprefix(f"{planned.scenario.path}: "))


def _is_quiet() -> bool:
    """Return whether nobody watches: a run then shows no progress, and what it says is why it failed."""
    return not sys.stderr.isatty()


def _stop(run: subprocess.Popen[bytes]) -> None:
    """Ask a run to end after its next commit; end it if it does not."""
    with contextlib.suppress(ProcessLookupError):
        run.send_signal(signal.SIGTERM)
    try:
        run.wait(GENTLE_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        run.kill()
        run.wait()


def _reason(code: int, errors: bytes | None) -> str:
    """Return why a run failed, in one line."""
    lines = [line.strip() for line in (errors or b"").decode(errors="replace").splitlines() if line.strip()]
    if lines:
        return escaped(lines[-1].removeprefix(_PREFIX))[:_MOST_CHARACTERS]
    if code < 0:
        return f"its process was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"its process ended with exit code {code}" + ("" if errors is not None else "; it said why above")


OUTCOME = "outcome"
"""The folder, beside the lakes, with what each run printed."""


def kept_outcome(folder: str, planned: Planned) -> Mapping[str, Any] | None:
    """Return what a run printed that ended where it is asked to end; None for one that did not."""
    try:
        found = loads((Path(folder) / OUTCOME / f"{planned.protocol}.json").read_bytes())
    except FileNotFoundError:
        return None
    if found.get("asked_ticks", -1) != planned.scenario.network.ticks:
        return None
    content: Mapping[str, Any] = found["ran"]
    return content


def keep_outcome(folder: str, planned: Planned, content: Mapping[str, Any]) -> None:
    """Keep what a run printed; it is there whole or not at all."""
    place = Path(folder) / OUTCOME
    place.mkdir(parents=True, exist_ok=True)
    written = place / f"{planned.protocol}.json.new"
    written.write_text(json.dumps({"asked_ticks": planned.scenario.network.ticks, "ran": content}))
    os.replace(written, place / f"{planned.protocol}.json")
