"""Plan and run a scenario under several protocols, each in a process of its own.

Chains, programs, traffic, faults and seed are the same in all runs. Options are those that the scenario gives for a
protocol. Separate processes give separate memory and processor time, and isolate failures.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from causeway_proofs.errors import InvalidInput

from causeway.config.document import quote_toml, validate_document
from causeway.core.text import escape_controls, load_json, suggest_known
from causeway.protocols.registry import DEFAULT, find_protocol, protocol_names
from causeway.scenarios.scenario import PROTOCOLS, Scenario, read_scenario_document, scenario_from

MIN_PROTOCOLS = 1
"""Least number of protocols in a comparison; a single one is allowed, too."""


@dataclass(frozen=True)
class PlannedRun:
    """The run of one column.

    ``overrides``: keys of the scenario, as on a command line. ``note``: omitted parts of the scenario, or None.
    """

    protocol: str
    overrides: Mapping[str, str]
    scenario: Scenario
    note: str | None = None


def plan_runs(path: str | os.PathLike[str], protocols: Sequence[str], overrides: Mapping[str, str]) -> list[PlannedRun]:
    """Plan one run a protocol.

    A scenario's ``[options]`` belong to the protocol that it names. Others run with ``[protocols.NAME]`` or their
    defaults.
    Everything else must be equal.

    Args:
        path: the scenario file.
        protocols: names of protocols, in the order of columns.
        overrides: keys of the scenario, for every column.

    Returns:
        The runs, in the order of ``protocols``.

    Raises:
        InvalidInput: one line with the protocol, the key and the allowed values.
    """
    chosen = _select_protocols(protocols)
    document = read_scenario_document(path, overrides)
    network = document.get("network")
    own = network.get("protocol", DEFAULT) if isinstance(network, Mapping) else DEFAULT
    _refuse_own_faults(document, chosen, str(path))
    return [_plan_run(path, name, own, document, overrides) for name in chosen]


def _select_protocols(protocols: Sequence[str]) -> list[str]:
    for name in protocols:
        if name not in protocol_names():
            raise InvalidInput(f"--protocols: {suggest_known('protocol', name, protocol_names())}")
    if len({*protocols}) < len(protocols):
        raise InvalidInput(f"--protocols: {', '.join(protocols)}: names a protocol twice")
    if len(protocols) < MIN_PROTOCOLS:
        raise InvalidInput(f"--protocols: names none; allowed: {', '.join(protocol_names())}")
    return list(protocols)


def _plan_run(
    path: str | os.PathLike[str], name: str, own: str, document: Mapping[str, Any], overrides: Mapping[str, str]
) -> PlannedRun:
    changed = {**overrides, "network.protocol": quote_toml(name)}
    tables = document.get(PROTOCOLS)
    has_own = isinstance(tables, Mapping) and name in tables
    note = None
    if name != own and not has_own and document.get("options"):
        changed["options"] = "{}"
        note = f"runs with its defaults: [options] are those of {own} ([{PROTOCOLS}.{name}] would be its own)"
    try:
        scenario = scenario_from(read_scenario_document(path, changed), str(path))
        where = (PROTOCOLS, name) if has_own else ("options",)
        validate_document(scenario.protocol.load_options(), scenario.options, str(path), where)
    except InvalidInput as error:
        raise InvalidInput(f"{error} (under {name}; compare runs the same under every protocol)") from error
    return PlannedRun(name, changed, scenario, note)


def _refuse_own_faults(document: Mapping[str, Any], protocols: Sequence[str], path: str) -> None:
    """Reject faults specific to some of the protocols.

    Raises:
        InvalidInput: there is such a fault.
    """
    allowed = sorted(set.intersection(*map(_fault_kinds, protocols)))
    faults = document.get("faults", [])
    for row, fault in enumerate(faults if isinstance(faults, list) else []):
        kind = fault.get("kind") if isinstance(fault, Mapping) else None
        if kind is not None and kind not in allowed:
            text = f"not all of {', '.join(protocols)} have it; allowed, since all do: {', '.join(allowed)}"
            raise InvalidInput(f"{path}: faults[{row}].kind: {kind!r}: {text}")


def _fault_kinds(name: str) -> set[str]:
    """Return the kinds of faults of a protocol."""
    sections = find_protocol(name).fault_kinds()
    return {kind for section in sections for kind in get_args(section.model_fields["kind"].annotation)}


GENTLE_SECONDS = 60.0
"""Seconds to wait for a stopped run; it ends after its next commit."""

INTERRUPTED_CODE = 130
_WORST = 3
"""First exit code that is not a verdict; 2 is bad input."""

_MEASURED = ("seconds", "processor_seconds", "peak_memory_bytes")
"""Measurements unknown for resumed runs, since they cover the last part only."""

_PREFIX = "causeway: "
_MAX_CHARACTERS = 500


@dataclass(frozen=True)
class RunOutcome:
    """The output of a run's command (``run --json``), or the reason of its failure in one line."""

    content: Mapping[str, Any] | None
    failed: str | None = None


def run_column(planned: PlannedRun, lake: str, *, resume: bool = False) -> RunOutcome:
    """Run a scenario under one protocol; progress goes to standard error.

    Args:
        planned: the run.
        lake: folder of its lake.
        resume: continue an existing lake; then time and memory are unknown.

    Returns:
        The outcome.

    Raises:
        KeyboardInterrupt: the user stopped it; committed heights stay.
    """
    command = [sys.executable, "-m", "causeway", "run", planned.scenario.path, "--lake", lake, "--json"]
    for key, value in planned.overrides.items():
        command += ["--set", f"{key}={value}"]
    if resume:
        command.append("--resume")
    # Without a terminal, runs show no progress and only report failures.
    errors_to = None if sys.stderr.isatty() else subprocess.PIPE
    # A process group of its own: only this process interrupts it, and once.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors_to, process_group=0) as run:
        try:
            output, errors = run.communicate()
        except KeyboardInterrupt:
            _stop(run)
            raise
    if run.returncode in (INTERRUPTED_CODE, -signal.SIGINT):
        raise KeyboardInterrupt
    if run.returncode >= 0 and run.returncode < _WORST - 1:
        with contextlib.suppress(ValueError):
            found = load_json(output)
            return RunOutcome({**found, **dict.fromkeys(_MEASURED)} if resume else found)
    return RunOutcome(None, _failure_reason(run.returncode, errors).removeprefix(f"{planned.scenario.path}: "))


def _stop(run: subprocess.Popen[bytes]) -> None:
    """Ask a run to end after its next commit; kill it after a grace period or a second interrupt."""
    with contextlib.suppress(ProcessLookupError):
        run.send_signal(signal.SIGTERM)
    try:
        run.wait(GENTLE_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        run.kill()
        run.wait()


def _failure_reason(code: int, errors: bytes | None) -> str:
    """Return the reason of a failed run in one line."""
    lines = [line.strip() for line in (errors or b"").decode(errors="replace").splitlines() if line.strip()]
    if lines:
        return escape_controls(lines[-1].removeprefix(_PREFIX))[:_MAX_CHARACTERS]
    if code < 0:
        return f"its process was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"its process ended with exit code {code}" + ("" if errors is not None else "; it said why above")


OUTCOME = "outcome"
"""The folder, beside the lakes, with the output of each run."""


def read_outcome(folder: str, planned: PlannedRun) -> Mapping[str, Any] | None:
    """Return the output of a run that reached its planned end; None for others.

    Args:
        folder: folder of the comparison.
        planned: the run.

    Returns:
        The JSON output, or None.
    """
    try:
        found = load_json((Path(folder) / OUTCOME / f"{planned.protocol}.json").read_bytes())
    except FileNotFoundError:
        return None
    if found.get("asked_ticks", -1) != planned.scenario.network.ticks:
        return None
    content: Mapping[str, Any] = found["ran"]
    return content


def write_outcome(folder: str, planned: PlannedRun, content: Mapping[str, Any]) -> None:
    """Store the output of a run atomically.

    Args:
        folder: folder of the comparison.
        planned: the run.
        content: the JSON output.
    """
    place = Path(folder) / OUTCOME
    place.mkdir(parents=True, exist_ok=True)
    written = place / f"{planned.protocol}.json.new"
    written.write_text(json.dumps({"asked_ticks": planned.scenario.network.ticks, "ran": content}))
    os.replace(written, place / f"{planned.protocol}.json")
