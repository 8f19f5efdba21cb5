"""Simulations: scenarios of nodes that run on the tick engine, one chain a node."""

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
"""The log tables of a simulation that its results are made of."""

_NETWORK = ("seed", "executor", "master", "spark", "partitions", "commit_every", "lake")


def load_simulation(name: str, path: str | os.PathLike[str], overrides: Mapping[str, str] | None = None) -> Scenario:
    """Return the scenario of the simulation ``name`` that a TOML file describes: ``[network]`` as in every scenario,
    but for its protocol and its time, which follow from the rest; all other sections are the simulation's.

    ``overrides``: dotted keys to TOML values. Raises ``InvalidInput``, one line that names file, key, value and what is
    allowed.
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
    whole = {"network": network, "options": document, "chains": [nodes]}
    return Scenario(str(path), validate_document(ScenarioDocument, whole, str(path)))


class SimulationResult(Protocol):
    """What a simulation found: ``summary``, one JSON object; ``lines``, the same for a person; ``tables``; ``plot``, an
    SVG; whether all ``holds`` that must."""

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
    """Return what a simulation found, at the height that it has reached, and write its tables into the lake's folder
    ``results``, over those of an earlier height."""
    kernel, lake = network.deployment.kernel, network.lake
    logs = {}
    for name in SUMMED_COLUMNS:
        rows = [lake.sealed_table(path, seal) for path, seal in lake.log_files(name).items()]
        logs[name] = pa.concat_tables([stamped_schema(kernel.logs[name]).empty_table(), *rows])
    found: SimulationResult = network.scenario.protocol.part("results")(kernel, logs)
    lake.storage.make_folder(RESULTS)
    for name, table in found.tables.items():
        lake.storage.write_table(f"{RESULTS}/{name}.parquet", table)
    lake.storage.put(f"{RESULTS}/summary.json", json.dumps(dict(found.summary), indent=1).encode())
    lake.storage.put(f"{RESULTS}/coverage.svg", found.plot.encode())
    return found
