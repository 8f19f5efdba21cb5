"""Plan of a scenario before any tick: what would run, and settings without effect.

Traffic is sampled within limits, so that a plan takes seconds whatever the scenario.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from causeway.config.faults import FaultRule
from causeway.config.topology import Topology
from causeway.core.ingress_call import CALL_METHOD, decode_calls
from causeway.network.deploy import DeployedScenario
from causeway.scenarios.scenario import Scenario
from causeway.scenarios.settings import NOTHING_INSTALLED
from causeway.scenarios.traffic_settings import GeneratedSection, ScriptSection, SendSection
from causeway.scenarios.traffic_sources import ScenarioTraffic, last_tick, ticks_with_traffic

MAX_TICKS = 5_000
"""Maximum number of ticks with traffic to count; beyond it only the last is found."""

MAX_GENERATED = 2_000_000
"""Maximum number of (tick, chain) counts sampled to find the ticks with traffic."""

MAX_ROWS = 200_000
"""Maximum number of user messages read to find which programs call each other."""

_DIRECTED = {"caller", "certified_map", "echo", "ping_pong", "scalar_echo", NOTHING_INSTALLED}
"""Programs that call only the receivers named in user messages."""

_ROW_BYTES = 100
_USUAL_BYTES = 64
_MIN_BYTES = 80_000
_LATE = 20
"""Ticks after the last traffic in which messages are still likely in flight."""


@dataclass(frozen=True)
class ScenarioPlan:
    """What would run.

    Attributes:
        protocol: Name of the protocol.
        chains: Roles by chain name.
        external: Number of chains run by other lakes.
        programs: Number of programs by class.
        traffic: Source of the traffic.
        ticks: First and last tick with traffic; None: none.
        messages: Number of user messages, approximate unless ``exact``.
        exact: True if ``messages`` is exact.
        limit: Maximum number of ticks; None: until nothing is left.
        heights: Number of heights with traffic; None: too many to count.
        lake_bytes: Approximate size of the lake.
        faults: Number of faults by kind.
        moves: Number of moves.
        splits: Number of splits.
        changes: Number of changes.
        buckets: Tasks a tick.
        executor: ``spark`` or ``in_process``.
    """

    protocol: str
    chains: Mapping[str, str]
    external: int
    programs: Mapping[str, int]
    traffic: str
    ticks: tuple[int, int] | None
    messages: int
    exact: bool
    limit: int | None
    heights: int | None
    lake_bytes: int
    faults: Mapping[str, int]
    moves: int
    splits: int
    changes: int
    buckets: int
    executor: str


def plan_scenario(scenario: Scenario, deployed: DeployedScenario) -> tuple[ScenarioPlan, list[str]]:
    """Plan a run.

    Args:
        scenario: The scenario.
        deployed: Its network.

    Returns:
        The plan, and a line ``key: problem`` for each setting without effect.
    """
    topology, sourced = deployed.topology, cast(ScenarioTraffic, deployed.deployment.traffic)
    limit = scenario.network.ticks
    ticks: list[int] | None = None
    first: int | None = 0
    last = is_long_traffic(scenario, topology.chains.num_rows)
    if last is None:
        ticks = ticks_with_traffic(sourced, 0, limit, MAX_TICKS)
        first, last = sourced.next_tick(0), last_tick(sourced)
    span = None if first is None or last is None else (first, last if limit is None else min(last, limit - 1))
    if span is not None and span[1] < span[0]:
        span = None
    if ticks is not None:
        span = (ticks[0], ticks[-1]) if ticks else None
    messages, exact = _count_messages(scenario, sourced, ticks, span, last)
    names = topology.chains["name"].to_pylist()
    numbers = topology.chains["number"].to_pylist()
    installed = Counter(name or NOTHING_INSTALLED for name in topology.programs["program"].to_pylist())
    document = scenario.document
    plan = ScenarioPlan(
        protocol=scenario.network.protocol,
        chains={name: topology.roles.get(number, "") for name, number in zip(names, numbers, strict=True)},
        external=len(topology.external),
        programs=dict(sorted(installed.items(), key=lambda item: (-item[1], item[0]))),
        traffic=document.traffic.source,
        ticks=span,
        messages=messages,
        exact=exact,
        limit=limit,
        heights=None if ticks is None else len(ticks),
        lake_bytes=_MIN_BYTES + 2 * messages * (_ROW_BYTES + _payload_bytes(scenario)),
        faults=dict(sorted(Counter(section.kind for section in document.faults).items())),
        moves=len(document.moves),
        splits=len(document.splits),
        changes=len(document.changes),
        buckets=len(deployed.deployment.buckets),
        executor=scenario.network.executor,
    )
    return plan, [*_settings_without_effect(scenario, deployed, sourced, ticks, last)]


def is_long_traffic(scenario: Scenario, chains: int) -> int | None:
    """Return the last tick of generated traffic that is too long to sample.

    Args:
        scenario: The scenario.
        chains: Number of chains.

    Returns:
        The tick, or None for other traffic.
    """
    section = scenario.document.traffic
    drawn = isinstance(section, GeneratedSection) and section.ticks * chains > MAX_GENERATED
    return section.ticks - 1 if drawn and isinstance(section, GeneratedSection) else None


def _count_messages(
    scenario: Scenario,
    traffic: ScenarioTraffic,
    ticks: list[int] | None,
    span: tuple[int, int] | None,
    last: int | None,
) -> tuple[int, bool]:
    """Return the number of user messages, and True if it is exact."""
    section, end = scenario.document.traffic, scenario.network.ticks
    if isinstance(section, ScriptSection):
        return sum(send.count for send in section.send if end is None or send.tick < end), True
    whole = last is None or end is None or last < end
    if isinstance(section, GeneratedSection) and section.messages is not None and whole:
        return section.messages, True
    busy = len(ticks) if ticks is not None else 0 if span is None else span[1] - span[0] + 1
    return round(traffic.rows_a_tick() * busy), whole and not isinstance(section, GeneratedSection)


def _payload_bytes(scenario: Scenario) -> int:
    section = scenario.document.traffic
    if isinstance(section, GeneratedSection):
        return int(sum(section.payload_bytes) // 2)
    if isinstance(section, ScriptSection) and section.send:
        sizes = [len(send.content if send.call is None else send.call.content) for send in section.send]
        return sum(sizes) // len(sizes)
    return _USUAL_BYTES


def _settings_without_effect(
    scenario: Scenario, deployed: DeployedScenario, traffic: ScenarioTraffic, ticks: list[int] | None, last: int | None
) -> Iterator[str]:
    """Yield settings without effect."""
    topology = deployed.topology
    yield from _idle_network_settings(scenario, topology.chains.num_rows)
    if last is None and not topology.external:
        yield "traffic: nothing comes from users, so the run ends after the first height"
    yield from _too_late(scenario)
    # All programs ever on each chain, by number.
    hosts: dict[int, set[int]] = {}
    for table, program in ((topology.programs, "number"), (topology.moves, "program")):
        for number, chain in zip(table[program].to_pylist(), table["chain"].to_pylist(), strict=True):
            if chain is not None:
                hosts.setdefault(chain, set()).add(number)
    yield from _empty_chains(scenario, topology, hosts)
    if not scenario.document.changes:  # changes may add and end faults and programs
        used = None if ticks is None else _communicating_pairs(topology, traffic, ticks, hosts)
        yield from _idle_faults(scenario, topology, last, used)


def _too_late(scenario: Scenario) -> Iterator[str]:
    document, end = scenario.document, scenario.network.ticks
    if end is None:
        return
    planned = [(f"traffic.send[{place}].tick", send.tick) for place, send in enumerate(_sends(scenario))]
    for name, sections in (
        ("moves", document.moves),
        ("changes", document.changes),
        ("nodes", document.nodes),
        ("splits", document.splits),
    ):
        planned += [(f"{name}[{place}].tick", section.tick) for place, section in enumerate(sections)]
    for key, tick in planned:
        if tick >= end:
            yield f"{key}: {tick}: the run ends before, at tick {end - 1} (network.ticks)"


def _empty_chains(scenario: Scenario, topology: Topology, hosts: Mapping[int, set[int]]) -> Iterator[str]:
    for name, number in _named_chains(topology):
        if number not in hosts and number not in topology.external and not topology.roles.get(number):
            yield f"{_section_of(scenario, name)}: {name}: no program is ever on it, so it sends and receives nothing"
    if topology.chains.num_rows == 1 and not topology.external:
        yield "chains: there is one, so no message goes between chains"


def _idle_faults(
    scenario: Scenario, topology: Topology, last: int | None, used: set[tuple[int, int]] | None
) -> Iterator[str]:
    end, names = scenario.network.ticks, {number: name for name, number in _named_chains(topology)}
    for place, (section, fault) in enumerate(
        zip(scenario.document.faults, scenario.faults(topology).rows, strict=True)
    ):
        keys = section.keys()
        when = f"faults[{place}].{'from' if 'from' in keys else 'tick'}"
        if end is not None and fault.first >= end:
            yield f"{when}: {fault.first}: the run ends before, at tick {end - 1} (network.ticks)"
        elif end is None and last is not None and fault.first > last + _LATE and not topology.external:
            yield f"{when}: {fault.first}: traffic ends at tick {last}; a run that is done by then never comes to it"
        elif used is not None and _is_unused(fault, used):
            yield f"faults[{place}]: {fault.kind}: {_between(fault, names)}, so it concerns none"


def _idle_network_settings(scenario: Scenario, chains: int) -> Iterator[str]:
    network = scenario.network
    if network.partitions > chains:
        yield f"network.partitions: {network.partitions}: there are {chains} chains, and a bucket has one at least"
    if network.executor == "in_process" and network.spark:
        yield "network.spark: without effect: network.executor is in_process"
    if network.executor == "in_process" and "master" in network.model_fields_set:
        yield f"network.master: {network.master}: without effect: network.executor is in_process"
    if chains == 1 and scenario.transport.skip:
        yield f"transport.skip: {scenario.transport.skip}: without effect: there is one chain"


def _sends(scenario: Scenario) -> list[SendSection]:
    section = scenario.document.traffic
    return [*section.send] if isinstance(section, ScriptSection) else []


def _named_chains(topology: Topology) -> list[tuple[str, int]]:
    return list(zip(topology.chains["name"].to_pylist(), topology.chains["number"].to_pylist(), strict=True))


def _section_of(scenario: Scenario, name: str) -> str:
    for place, section in enumerate(scenario.document.chains):
        if section.name == name or (section.count is not None and name.startswith(section.prefix)):
            return f"chains[{place}]"
    return "chains"


def _communicating_pairs(
    topology: Topology, traffic: ScenarioTraffic, ticks: list[int], hosts: Mapping[int, set[int]]
) -> set[tuple[int, int]] | None:
    """Return the pairs of chains with messages, in both directions, or None if unknown."""
    classes = {*topology.programs["program"].to_pylist()}
    if {name or NOTHING_INSTALLED for name in classes} - _DIRECTED or topology.external or topology.roles:
        return None
    chains = topology.chains["number"].to_numpy()
    hosts_of: dict[int, list[int]] = {}
    for chain, programs in hosts.items():
        for program in programs:
            hosts_of.setdefault(program, []).append(chain)
    pairs: set[tuple[int, int]] = set()
    seen = 0
    for tick in ticks:
        rows = traffic.rows(tick, chains)
        seen += rows.num_rows
        if seen > MAX_ROWS:
            return None
        call_rows = rows.filter(np.asarray(rows["method"].to_numpy(zero_copy_only=False) == CALL_METHOD))
        calls = decode_calls(call_rows["payload"].combine_chunks())
        ends = np.stack([call_rows["receiver"].to_numpy(), calls.receivers], axis=1)[calls.valid]
        for caller, called in np.unique(ends, axis=0).tolist():
            pairs |= {
                (source, destination) for source in hosts_of.get(caller, ()) for destination in hosts_of.get(called, ())
            }
    return pairs | {(destination, source) for source, destination in pairs}


def _is_unused(fault: FaultRule, used: set[tuple[int, int]]) -> bool:
    """Return True if no message passes between the chains of a fault about lanes."""
    if fault.source is None and fault.destination is None:
        return not any(source != destination for source, destination in used)
    if fault.destination is None and fault.args:
        return False  # its arguments restrict it further
    return not any(
        source != destination and fault.source in (None, source) and fault.destination in (None, destination)
        for source, destination in used
    )


def _between(fault: FaultRule, names: Mapping[int, str]) -> str:
    if fault.source is not None and fault.destination is None:
        return f"no message of the traffic goes from {names[fault.source]} to another chain"
    source, destination = (
        "any chain" if number is None else names.get(number, str(number))
        for number in (fault.source, fault.destination)
    )
    return f"no message of the traffic goes from {source} to {destination}"


__all__ = ["ScenarioPlan", "is_long_traffic", "plan_scenario"]
