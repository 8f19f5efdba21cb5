"""What of a scenario is carried over to each protocol, and what is not: the same chains, programs, traffic, faults and
seed; of options, those that the scenario gives for a protocol.

Runs of a scenario, one a protocol, each as a command and a process of its own: so that memory and processor time are
of it alone, and one that fails takes no other with it.
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
"""Protocols that are compared at least; one alone is a column, too."""


@dataclass(frozen=True)
class PlannedRun:
    """What runs in one column. ``overrides``: of the scenario's file, as on a command line; ``note``: what of the
    scenario is left out, None for nothing."""

    protocol: str
    overrides: Mapping[str, str]
    scenario: Scenario
    note: str | None = None


def plan_runs(path: str | os.PathLike[str], protocols: Sequence[str], overrides: Mapping[str, str]) -> list[PlannedRun]:
    """Return what runs in each column, in the order of ``protocols``; ``overrides``: of every column.

    A scenario's ``[options]`` are of the protocol that it names: others run with ``[protocols.NAME]``, or, without
    that, with their defaults. Everything else must be the same in all of them.

    Raises ``InvalidInput``, one line that names the protocol, the key and what is allowed.
    """
    chosen = _chosen(protocols)
    document = read_scenario_document(path, overrides)
    network = document.get("network")
    own = network.get("protocol", DEFAULT) if isinstance(network, Mapping) else DEFAULT
    _refuse_own_faults(document, chosen, str(path))
    return [_planned(path, name, own, document, overrides) for name in chosen]


def _chosen(protocols: Sequence[str]) -> list[str]:
    for name in protocols:
        if name not in protocol_names():
            raise InvalidInput(f"--protocols: {suggest_known('protocol', name, protocol_names())}")
    if len({*protocols}) < len(protocols):
        raise InvalidInput(f"--protocols: {', '.join(protocols)}: names a protocol twice")
    if len(protocols) < MIN_PROTOCOLS:
        raise InvalidInput(f"--protocols: names none; allowed: {', '.join(protocol_names())}")
    return list(protocols)


def _planned(
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
    """Refuse faults that only some of the protocols have. Raises ``InvalidInput``."""
    allowed = sorted(set.intersection(*map(_kinds_of, protocols)))
    faults = document.get("faults", [])
    for row, fault in enumerate(faults if isinstance(faults, list) else []):
        kind = fault.get("kind") if isinstance(fault, Mapping) else None
        if kind is not None and kind not in allowed:
            text = f"not all of {', '.join(protocols)} have it; allowed, since all do: {', '.join(allowed)}"
            raise InvalidInput(f"{path}: faults[{row}].kind: {kind!r}: {text}")


def _kinds_of(name: str) -> set[str]:
    """Return the kinds of faults that a protocol has."""
    sections = find_protocol(name).fault_kinds()
    return {kind for section in sections for kind in get_args(section.model_fields["kind"].annotation)}


GENTLE_SECONDS = 60.0
"""A run that is asked to stop ends after its next commit; longer than this it is not waited for."""

INTERRUPTED_CODE = 130
_WORST = 3
"""The first exit code that says nothing of an outcome; 2 is bad input."""

_MEASURED = ("seconds", "processor_seconds", "peak_memory_bytes")
"""What a run that was continued knows only of its last part."""

_PREFIX = "causeway: "
_MAX_CHARACTERS = 500


@dataclass(frozen=True)
class RunOutcome:
    """What came of a run: what its command printed (``run --json``), or why it failed, in a line."""

    content: Mapping[str, Any] | None
    failed: str | None = None


def run_column(planned: PlannedRun, lake: str, *, resume: bool = False) -> RunOutcome:
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
    if run.returncode in (INTERRUPTED_CODE, -signal.SIGINT):
        raise KeyboardInterrupt
    if run.returncode >= 0 and run.returncode < _WORST - 1:
        with contextlib.suppress(ValueError):
            found = load_json(output)
            return RunOutcome({**found, **dict.fromkeys(_MEASURED)} if resume else found)
    return RunOutcome(None, _reason(run.returncode, errors).removeprefix(f"{planned.scenario.path}: "))


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
        return escape_controls(lines[-1].removeprefix(_PREFIX))[:_MAX_CHARACTERS]
    if code < 0:
        return f"its process was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"its process ended with exit code {code}" + ("" if errors is not None else "; it said why above")


OUTCOME = "outcome"
"""The folder, beside the lakes, with what each run printed."""


def read_outcome(folder: str, planned: PlannedRun) -> Mapping[str, Any] | None:
    """Return what a run printed that ended where it is asked to end; None for one that did not."""
    try:
        found = load_json((Path(folder) / OUTCOME / f"{planned.protocol}.json").read_bytes())
    except FileNotFoundError:
        return None
    if found.get("asked_ticks", -1) != planned.scenario.network.ticks:
        return None
    content: Mapping[str, Any] = found["ran"]
    return content


def write_outcome(folder: str, planned: PlannedRun, content: Mapping[str, Any]) -> None:
    """Keep what a run printed; it is there whole or not at all."""
    place = Path(folder) / OUTCOME
    place.mkdir(parents=True, exist_ok=True)
    written = place / f"{planned.protocol}.json.new"
    written.write_text(json.dumps({"asked_ticks": planned.scenario.network.ticks, "ran": content}))
    os.replace(written, place / f"{planned.protocol}.json")
