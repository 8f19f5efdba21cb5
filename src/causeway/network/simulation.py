"""Simulations: networks of nodes on the tick engine, one chain a node."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.config.document import override_key, read_document, validate_document
from causeway.network.network import LakeNetwork
from causeway.protocols.registry import find_protocol
from causeway.scenarios.scenario import Scenario, ScenarioDocument
from causeway.storage.layout import RESULTS
from causeway.storage.table_schemas import stamped_schema

SUMMED_COLUMNS = ("got", "samples", "disconnected", "purse_samples", "claims")
"""Log tables from which the results of a simulation are computed."""

_NETWORK = ("seed", "executor", "master", "spark", "partitions", "commit_every", "lake")


def load_simulation(name: str, path: str | os.PathLike[str], overrides: Mapping[str, str] | None = None) -> Scenario:
    """Load the scenario of a simulation.

    ``[network]`` is as in every scenario, except protocol and time, which follow from the other sections.

    Args:
        name: Name of the simulation.
        path: The TOML file.
        overrides: TOML values by dotted key of the file.

    Raises:
        InvalidInput: One line with file, key, value and allowed values.
    """
    document = read_document(Path(path))
    for key, text in (overrides or {}).items():
        override_key(document, key, text)
    network = document.pop("network", {})
    options: Any = validate_document(find_protocol(name).load_options(), document, str(path))
    if isinstance(network, Mapping):
        for key in network:
            if key not in _NETWORK:
                raise InvalidInput(f"{path}: network.{key}: unknown key; Keys here: {', '.join(_NETWORK)}")
        network = {**network, "protocol": name, "seconds_per_tick": options.slice / 1000}
    nodes = {"count": options.nodes.count, "prefix": "node-"}
    content = {"network": network, "options": document, "chains": [nodes]}
    return Scenario(str(path), validate_document(ScenarioDocument, content, str(path)))


class SimulationResult(Protocol):
    """Results of a simulation.

    ``summary`` is a JSON object, ``lines`` the same for people, ``tables`` the data, ``plot`` an SVG. ``holds`` is True
    if all requirements are met.
    """

    @property
    def summary(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def lines(self) -> Sequence[tuple[str, str]]: ...  # noqa: D102
    @property
    def tables(self) -> Mapping[str, pa.Table]: ...  # noqa: D102
    @property
    def plot(self) -> str: ...  # noqa: D102
    @property
    def holds(self) -> bool: ...  # noqa: D102


def summarize_simulation(network: LakeNetwork) -> SimulationResult:
    """Compute the results of a simulation so far, and write them to the folder ``results``.

    Args:
        network: The network of the simulation.
    """
    kernel, lake = network.deployment.kernel, network.lake
    logs = {}
    for name in SUMMED_COLUMNS:
        rows = [lake.sealed_table(path, seal) for path, seal in lake.log_files(name).items()]
        logs[name] = pa.concat_tables([stamped_schema(kernel.logs[name]).empty_table(), *rows])
    result: SimulationResult = network.scenario.protocol.part("results")(kernel, logs)
    lake.storage.make_folder(RESULTS)
    for name, table in result.tables.items():
        lake.storage.write_table(f"{RESULTS}/{name}.parquet", table)
    lake.storage.put(f"{RESULTS}/summary.json", json.dumps(dict(result.summary), indent=1).encode())
    lake.storage.put(f"{RESULTS}/coverage.svg", result.plot.encode())
    return result
