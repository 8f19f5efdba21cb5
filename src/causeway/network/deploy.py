"""Deployment of a scenario: kernel, traffic, and the partition of chains into buckets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import InvalidInput

from causeway.cluster.jobs import Session
from causeway.config.document import validate_document
from causeway.config.section import LAST_TICK
from causeway.config.topology import Topology
from causeway.config.traffic import Traffic
from causeway.programs.catalogue import find_program_class
from causeway.programs.runner import Programs
from causeway.programs.user_modules import ship_to_workers
from causeway.protocols.contract import AnyKernel
from causeway.protocols.registry import protocol_names
from causeway.protocols.shared.option_values import NANOSECONDS
from causeway.protocols.shared.reconfiguration import ChangingKernel
from causeway.protocols.shared.secrets import NONE, Secrets
from causeway.scenarios.changes import NetworkStage
from causeway.scenarios.scenario import Scenario
from causeway.scenarios.settings import NOTHING_INSTALLED
from causeway.storage.external_input import InputRecord
from causeway.storage.lake import Lake
from causeway.storage.layout import TRAFFIC
from causeway.storage.table_schemas import TableSchemas
from causeway.tick.deployment import Deployment

if TYPE_CHECKING:
    from pydantic import BaseModel

MAX_CHAINS = 65_535
"""Maximum number of chains: lane keys pack chain positions into 16 bits."""


@dataclass(frozen=True)
class DeployedScenario:
    """A scenario ready to run.

    Attributes:
        deployment: Kernel, traffic and buckets, for tasks.
        topology: The topology after all changes.
        about: Description of the network, for readers of the lake.
    """

    deployment: Deployment
    topology: Topology
    about: Mapping[str, Any]


def deploy_scenario(
    scenario: Scenario,
    lake: str,
    session: Session | None,
    cores: int,
    buckets: tuple[tuple[int, int], ...] | None = None,
    secrets: Secrets = NONE,
    *,
    prepared: bool = False,
) -> DeployedScenario:
    """Create kernel and traffic of a scenario and partition its chains.

    Args:
        scenario: The scenario.
        lake: The lake; its folder ``traffic`` holds prepared traffic.
        session: Prepares traffic in parallel; None: this process does.
        cores: Number of cores, for the default number of buckets.
        buckets: Buckets of a resumed lake.
        secrets: Keys not derived from the seed.
        prepared: As in ``Scenario.traffic``.

    Raises:
        InvalidInput: The scenario is invalid.
    """
    sources = scenario.program_sources
    sources.allow(scenario.installed.values())
    folder = os.path.join(lake, TRAFFIC) if "://" not in lake else f"{lake.rstrip('/')}/{TRAFFIC}"
    traffic = scenario.traffic(folder, session, prepared=prepared)
    stages = scenario.stages(traffic)
    topology = stages[-1].topology
    if topology.chains.num_rows > MAX_CHAINS:
        count = topology.chains.num_rows
        raise InvalidInput(f"{scenario.path}: chains: {count} chains, at most {MAX_CHAINS} are allowed")
    kernel = build_staged_kernel(scenario, stages, secrets)
    _require_ticks(scenario, traffic, kernel.last_tick)
    installed = topology.programs["program"].drop_null().unique().to_pylist()
    if session is not None and any(":" in name for name in installed):
        for place in sources.folders:
            ship_to_workers(session(), place)
    numbers = kernel.numbers()
    if buckets is None:
        buckets = partition_chains(
            kernel.weights(), scenario.network.partitions or choose_buckets(traffic.rows_a_tick(), cores)
        )
    about = describe_network(scenario, kernel, topology, buckets)
    return DeployedScenario(Deployment(kernel, traffic, buckets, numbers, InputRecord(Lake.at(lake))), topology, about)


def describe_network(
    scenario: Scenario, kernel: AnyKernel, topology: Topology, buckets: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """Describe a network for readers of its lake.

    Args:
        scenario: The scenario.
        kernel: Its kernel.
        topology: Its topology after all changes.
        buckets: Its partition into buckets.

    Returns:
        Content of ``lake.json`` besides its own keys.
    """
    return {
        "protocol": scenario.network.protocol,
        "asset": scenario.protocol.asset,
        "scenario": scenario.identity(),
        "seconds_per_tick": scenario.network.seconds_per_tick,
        "buckets": [list(bucket) for bucket in buckets],
        "chains": [
            {
                "number": int(number),
                "name": name,
                "role": topology.roles.get(int(number), ""),
                "external": int(number) in topology.external,
            }
            for number, name in zip(kernel.numbers(), kernel.chains(), strict=True)
        ],
        "membership": topology.membership.encoded(),
        "past_heights": kernel.past_heights,
        "tables": TableSchemas.of(kernel).encoded(),
    }


def build_kernel(scenario: Scenario, topology: Topology, secrets: Secrets = NONE) -> AnyKernel:
    """Create the kernel of a scenario's protocol before any change.

    Args:
        scenario: The scenario.
        topology: Its topology.
        secrets: Keys not derived from the seed.

    Raises:
        InvalidInput: An option or program is invalid; the text names it.
    """
    return build_staged_kernel(scenario, [NetworkStage(0, topology, scenario.faults(topology))], secrets)


def build_staged_kernel(
    scenario: Scenario,
    stages: Sequence[NetworkStage],
    secrets: Secrets = NONE,
    *,
    known: Sequence[AnyKernel] = (),
    runner: type[Programs] = Programs,
) -> AnyKernel:
    """Create the kernel of a network with stages.

    Args:
        scenario: The scenario.
        stages: The network before and after its changes.
        secrets: Keys not derived from the seed.
        known: Kernels of the first stages, if created before.
        runner: Class that runs the programs.

    Raises:
        InvalidInput: As ``build_kernel``.
    """
    _require_programs(scenario)
    options = validate_document(scenario.protocol.load_options(), scenario.options, str(scenario.path), ("options",))
    kernels: list[AnyKernel] = list(known)
    programs: Programs | None = kernels[-1].programs if kernels else None  # type: ignore[attr-defined]
    for number, stage in enumerate(stages[len(kernels) :], len(kernels)):
        try:
            programs = runner(stage.topology, scenario.protocol.load_semantics().reject_code, programs)
            kernels.append(_kernel(scenario, stage, programs, options, secrets))
        except InvalidInput as error:
            if type(error) is not InvalidInput:
                raise
            change = f"changes[{number - 1}]: " if number else ""
            raise InvalidInput(f"{scenario.path}: {change}{error}") from error
    if len(kernels) == 1:
        return kernels[0]
    return cast(AnyKernel, ChangingKernel(tuple(stage.tick for stage in stages), tuple(kernels)))


def _kernel(
    scenario: Scenario, stage: NetworkStage, programs: Programs, options: BaseModel, secrets: Secrets
) -> AnyKernel:
    made: AnyKernel = scenario.protocol.load_kernel()(
        topology=stage.topology,
        programs=programs,
        options=options,
        seed=scenario.network.seed,
        tick_ns=round(scenario.network.seconds_per_tick * NANOSECONDS),
        faults=stage.faults,
        **({"secrets": secrets} if secrets.has_secrets else {}),
    )
    return made


def _require_programs(scenario: Scenario) -> None:
    """Load the classes of all programs. Raises ``InvalidInput`` with the key of a missing one."""
    for key, name in scenario.installed.items():
        if name == NOTHING_INSTALLED:
            continue
        try:
            found = find_program_class(name)
        except InvalidInput as error:
            raise type(error)(f"{scenario.path}: {key}: {error}") from error
        if found.certifies and not scenario.protocol.certifies_data:
            raise InvalidInput(
                f'{scenario.path}: {key}: program "{name}" certifies data, which chains of the protocol '
                f"{scenario.protocol.name} do not certify; those of {' and '.join(protocol_names('certifies_data'))} do"
            )


def _require_ticks(scenario: Scenario, traffic: Traffic, last: int) -> None:
    """Check that no traffic comes after the protocol's last tick. Raises ``InvalidInput``."""
    tick = traffic.next_tick(last + 1) if last < LAST_TICK else None
    if tick is not None:
        sends = getattr(scenario.document.traffic, "send", [])
        row = next((row for row, send in enumerate(sends) if send.tick == tick), None)
        where = "traffic: a tick" if row is None else f"traffic.send[{row}].tick"
        text = f"allowed with protocol {scenario.protocol.name}: ticks from 0 to {last}"
        raise InvalidInput(f"{scenario.path}: {where} = {tick}: {text}")


def partition_chains(weights: npt.NDArray[np.float64], count: int) -> tuple[tuple[int, int], ...]:
    """Partition chains into contiguous groups of similar weight.

    Args:
        weights: Weight of each chain, by position.
        count: Maximum number of groups.

    Returns:
        First and end position of each group.
    """
    chains = len(weights)
    count = max(1, min(count, chains))
    ends = np.searchsorted(np.cumsum(weights), np.arange(1, count + 1) * weights.sum() / count)
    ends = np.maximum(np.minimum(ends + 1, chains), np.arange(1, count + 1))
    ends = np.minimum(ends, chains - np.arange(count - 1, -1, -1))
    ends[-1] = chains
    starts = np.concatenate([[0], ends[:-1]])
    return tuple((int(start), int(end)) for start, end in zip(starts, ends, strict=True) if end > start)


ROWS_A_BUCKET = 10_000
"""User messages a tick that justify another bucket: several buckets need a job a tick."""


def choose_buckets(rows_a_tick: float, cores: int) -> int:
    """Choose the number of buckets, at most one a core.

    Args:
        rows_a_tick: Mean number of user messages a tick.
        cores: Number of cores.
    """
    return max(1, min(cores, int(rows_a_tick // ROWS_A_BUCKET)))


__all__ = ["DeployedScenario", "choose_buckets", "deploy_scenario", "partition_chains"]
