"""Try faults under each protocol, one at a time, against a run without faults.

The traffic is small and the same in all trials. Only faults common to all protocols are tried. A fault acts between the
two chains with most calls, while the first half of these calls would arrive. These ticks differ between protocols,
because delivery times do.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import CausewayError

from causeway.analysis.run_summary import summarize_run
from causeway.analysis.stored_figures import read_messages
from causeway.compare.comparison import REQUESTS
from causeway.compare.runs import PlannedRun
from causeway.config.document import quote_toml
from causeway.core.text import count_noun
from causeway.core.vocabulary import Event, Kind
from causeway.ledger.lake.ingest import open_or_derive_ledger
from causeway.network.network import LakeNetwork
from causeway.protocols.registry import ProtocolInfo, find_protocol
from causeway.protocols.shared.semantics import TRIES, FaultWindow
from causeway.scenarios.scenario import read_scenario_document
from causeway.storage.lake import Lake, Manifest
from causeway.storage.reorgs import find_reverted

FEW_CALLS = 500
"""Limit of user messages up to which a scenario itself is tried."""

COMMIT_EVERY = 32
"""Heights of a commit in a trial."""

STALL_TICKS = 3
"""Height limit of a trial, as a multiple of the heights of the run without faults."""


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial, from its lake.

    Calls by outcome; ``delays``: ticks from call to answer, by message; ``refused``: counts of refusals by kind and
    reason;
    ``sentence``: verdict of the audit; ``violated``: failed checks; ``heights``: number of heights; ``at_rest``:
    nothing
    was left to do.
    """

    calls: Mapping[str, int]
    delays: Mapping[str, int]
    refused: Mapping[tuple[str, str], int]
    sentence: str
    violated: tuple[str, ...]
    heights: int
    at_rest: bool


def try_faults(
    planned: Sequence[PlannedRun],
    path: str,
    tries: Sequence[str] = tuple(TRIES),
    report: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Try each fault under each protocol.

    Args:
        planned: the runs.
        path: the scenario to try; its own faults are disabled.
        tries: names of the faults.
        report: receives the name of the current step.

    Returns:
        JSON: ``between`` (two chains), ``tries`` (name and description), ``found`` (effects on calls by protocol and
        fault, in figures and as ``text``).
    """
    found: dict[str, dict[str, Any]] = {}
    ends: tuple[str, str] | None = None
    for one in planned:
        found[one.protocol] = {}
        report(f"{one.protocol}: without a fault")
        with tempfile.TemporaryDirectory(prefix="causeway-trial-") as folder:
            try:
                before, programs = _run(one, path, "[]", str(Path(folder) / "none"))
                ends = ends or _busiest_pair(str(Path(folder) / "none"))
                where = None if ends is None else _fault_window(str(Path(folder) / "none"), ends, programs)
            except Exception as error:
                found[one.protocol] = {name: _failed_trial(error) for name in tries}
                continue
            for place, name in enumerate(tries):
                report(f"{one.protocol}: {name}")
                found[one.protocol][name] = _try_fault(one, path, name, where, before, str(Path(folder) / str(place)))
    between = None if ends is None else list(ends)
    return {"between": between, "tries": {name: TRIES[name] for name in tries}, "found": found}


def _try_fault(
    one: PlannedRun, path: str, name: str, where: FaultWindow | None, before: TrialResult, lake: str
) -> dict[str, Any]:
    fault = None if where is None else _fault(find_protocol(one.protocol), name, where)
    if fault is None:
        return {"text": "not tried: no call goes from one chain to another", "failed": True}
    try:
        after, _ = _run(one, path, f"[{fault}]", lake, STALL_TICKS * before.heights + COMMIT_EVERY)
    except Exception as error:
        return _failed_trial(error)
    return fault_effect(before, after)


def _failed_trial(error: Exception) -> dict[str, Any]:
    """Return the report of a failed trial; ``internal_error``: not caused by input."""
    if isinstance(error, CausewayError):
        return {"text": f"not tried: {error}", "failed": True}
    return {"text": f"failed: unexpected {type(error).__name__}: {error}", "failed": True, "internal_error": True}


def _run(
    one: PlannedRun, path: str, faults: str, lake: str, most: int | None = None
) -> tuple[TrialResult, Mapping[int, str | None]]:
    """Run a trial up to a number of heights; return its result and the chains of its programs."""
    overrides = {
        "network.protocol": quote_toml(one.protocol),
        "network.executor": quote_toml("in_process"),
        "network.partitions": "1",
        "network.commit_every": str(COMMIT_EVERY),
        "faults": faults,
    }
    if path == one.scenario.path:
        overrides = {**one.overrides, **overrides, **_changes_without_faults(one)}
    with LakeNetwork.from_scenario(path, overrides, lake=lake) as network:
        _run_until_idle(network, most)
        at_rest, heights = network.is_finished, network.height
        topology = network.topology
        chains = dict(zip(topology.chains["number"].to_pylist(), topology.chains["name"].to_pylist(), strict=True))
        rows = zip(topology.programs["number"].to_pylist(), topology.programs["chain"].to_pylist(), strict=True)
        programs = {number: chains.get(chain) for number, chain in rows}
    with summarize_run(Lake.at(lake)) as (ledger, summary):
        delays: dict[str, int] = {}
        for found in read_messages(ledger, REQUESTS):
            found = found.filter(pc.is_valid(found["round_trip_ticks"]))
            delays.update(zip(found["message_id"].to_pylist(), found["round_trip_ticks"].to_pylist(), strict=True))
    calls = {name: summary.counts[name] for name in ("sent", "answered", "rejected", "pending", "dropped")}
    violated = tuple(name for name, check in summary.audit.checks.items() if check.violated)
    result = TrialResult(calls, delays, _refused(lake), summary.audit.sentence(), violated, heights, at_rest)
    return result, programs


def _changes_without_faults(one: PlannedRun) -> dict[str, str]:
    """Return an override with the scenario's changes that neither inject nor heal faults."""
    changes = read_scenario_document(one.scenario.path, one.overrides).get("changes", [])
    rest = [{key: each[key] for key in each if key not in ("inject", "heal")} for each in changes]
    return {"changes": format_toml_value([each for each in rest if each.keys() > {"tick"}])} if changes else {}


class _HeightLimit(Exception):
    """The trial reached its height limit."""


def _run_until_idle(network: LakeNetwork, most: int | None) -> None:
    """Run a network until it is idle, or shortly after it reached the height limit."""

    def committed(manifest: Manifest) -> None:
        if most is not None and manifest.height >= most:
            raise _HeightLimit

    with contextlib.suppress(_HeightLimit):
        network.run(progress=committed)


def format_toml_value(value: Any) -> str:
    """Format an option value as TOML on one line.

    Args:
        value: the value.

    Returns:
        TOML.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote_toml(value)
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{quote_toml(str(key))} = {format_toml_value(each)}" for key, each in value.items()) + "}"
        )
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(format_toml_value, value)) + "]"
    return repr(value)


_WHAT = {Kind.INGRESS: "message of a user", Kind.CONTROL: "offer"}


def _refused(place: str) -> dict[tuple[str, str], int]:
    """Count the refused, dropped and timed-out messages of a lake by kind and reason."""
    lake = Lake.at(place)
    undone = find_reverted(lake, lake.last_manifest())
    counted: Counter[tuple[str, str]] = Counter()
    bits = np.uint16(Event.REJECTED | Event.DROPPED | Event.TIMED_OUT)
    for path, seal in lake.log_files("events").items():
        rows = lake.sealed_table(path, seal, ["height", "chain", "events", "kind", "reason"])
        if undone is not None:
            rows = rows.filter(pa.array(~undone.hits(rows, "chain")))
        rows = rows.filter(pa.array(rows["events"].to_numpy() & bits > 0))
        for row in rows.group_by(["kind", "reason"]).aggregate([([], "count_all")]).to_pylist():
            if row["reason"]:
                counted[_WHAT.get(Kind(row["kind"]), "message"), row["reason"]] += row["count_all"]
    return dict(counted)


def _busiest_pair(place: str) -> tuple[str, str] | None:
    """Return the two chains with most calls between them."""
    counted: Counter[tuple[str, str]] = Counter()
    for rows in _between_chains(place):
        found = rows.group_by(["source", "destination"]).aggregate([([], "count_all")]).to_pylist()
        counted.update({(row["source"], row["destination"]): row["count_all"] for row in found})
    return min(counted, key=lambda pair: (-counted[pair], pair), default=None)


def _between_chains(place: str) -> Iterator[pa.Table]:
    with open_or_derive_ledger(place) as ledger:
        for rows in read_messages(ledger, REQUESTS):
            apart = pc.and_(pc.is_valid(rows["lane"]), pc.not_equal(rows["source"], rows["destination"]))
            yield rows.filter(pc.fill_null(apart, False))


def _fault_window(place: str, ends: tuple[str, str], programs: Mapping[int, str | None]) -> FaultWindow | None:
    """Return the chains and ticks of a trial's fault; None without arriving calls."""
    source, destination = ends
    came: list[int] = []
    sent: list[int] = []
    for rows in _between_chains(place):
        mine = pc.and_(pc.equal(rows["source"], source), pc.equal(rows["destination"], destination))
        rows = rows.filter(mine)
        came += rows["received_tick"].drop_null().to_pylist()
        sent += rows["sent_tick"].drop_null().to_pylist()
    if not came or not sent:
        return None
    came.sort()
    away = [number for number, chain in sorted(programs.items()) if chain is not None and chain != source]
    there = [number for number, chain in sorted(programs.items()) if chain == destination]
    sender, receiver = (numbers[0] if numbers else None for numbers in (away, there))
    return FaultWindow(source, destination, min(sent), came[0], came[len(came) // 2], sender, receiver)


def _fault(info: ProtocolInfo, name: str, between: FaultWindow) -> str | None:
    """Return a fault as TOML on one line; None if it is not possible."""
    keys = info.load_semantics().trial(name, between)
    return None if keys is None else format_toml_value(keys)


def fault_effect(before: TrialResult, after: TrialResult) -> dict[str, Any]:
    """Return the effect of a fault in figures and as a sentence.

    It has the outcomes of calls, delays, new refusals and violations.

    Args:
        before: the run without faults.
        after: the run with the fault.

    Returns:
        JSON.
    """
    later = [after.delays[name] - ticks for name, ticks in before.delays.items() if name in after.delays]
    late = [ticks for ticks in later if ticks > 0]
    refused = {
        f"{what}: {reason}": count - before.refused.get((what, reason), 0)
        for (what, reason), count in sorted(after.refused.items())
        if count > before.refused.get((what, reason), 0)
    }
    changed = {name: after.calls[name] - before.calls[name] for name in after.calls}
    found = {
        "calls": dict(after.calls),
        "changed": {name: count for name, count in changed.items() if count},
        "late": len(late),
        "latest_by_ticks": max(late, default=0),
        "refused": refused,
        "audit": after.sentence,
        "at_rest": after.at_rest,
        "violated": list(after.violated),
        "failed": False,
    }
    return {**found, "text": describe_effect(found)}


_MAX_REASONS = 3


def describe_effect(found: Mapping[str, Any]) -> str:
    """Describe the effect of a fault in a sentence.

    Args:
        found: the effect.

    Returns:
        The sentence.
    """
    parts = []
    reasons = Counter[str]()
    for name, count in found["refused"].items():
        reasons[name.partition(": ")[2]] += count
    if reasons:
        first = ", ".join(f"{count:,} {name}" for name, count in reasons.most_common(_MAX_REASONS))
        more = len(reasons) - _MAX_REASONS
        parts.append(f"refused: {first}" + (f" and {more} more reasons" if more > 0 else ""))
    if found["late"]:
        parts.append(
            f"{count_noun(found['late'], 'answer')} up to {count_noun(found['latest_by_ticks'], 'tick')} later"
        )
    words = {"pending": "without an answer", "dropped": "dropped", "rejected": "rejected"}
    changed = found["changed"]
    parts += [f"{count_noun(changed[name], 'call')} {text}" for name, text in words.items() if changed.get(name, 0) > 0]
    if changed.get("sent", 0) < 0:
        parts.append(f"{count_noun(-changed['sent'], 'call')} not made")
    if not found["at_rest"]:
        parts.append("still trying when the trial was ended")
    return "; ".join([*(parts or ["no effect"]), found["audit"]])


__all__ = ["FEW_CALLS", "describe_effect", "fault_effect", "try_faults"]
