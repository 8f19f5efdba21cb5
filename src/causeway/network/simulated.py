"""Simulations: scenarios of nodes that run on the tick engine, one chain a node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from causeway.network.document import override, read_document, validated
from causeway.network.scenario import Scenario, ScenarioDocument
from causeway.protocols.registry import protocol

_NETWORK = ("seed", "executor", "master", "spark", "partitions", "commit_every", "lake")


def load_simulation(name: str, path: str | os.PathLike[str], overrides: Mapping[str, str] | None = None) -> Scenario:
    """Return the scenario of the simulation ``name`` that a TOML file describes: ``[network]`` as in every scenario,
    but for its protocol and its time, which follow from the rest; all other sections are the simulation's.

    ``overrides``: dotted keys to TOML values. Raises ``InvalidInput``, one line that names file, key, value and what is
    allowed.
    """
    document = read_document(Path(path))
    for key, text in (overrides or {}).items():
        override(document, key, text)
    network = document.pop("network", {})
    options: Any = validated(protocol(name).load_options(), document, str(path))
    given = {"network": network}
    if isinstance(network, Mapping):
        refused = [key for key in network if key not in _NETWORK]
        model = {"network": {key: network[key] for key in network}}
        if refused:
            from causeway.model.errors import InvalidInput

            text = f"unknown key; Keys here: {', '.join(_NETWORK)}"
            raise InvalidInput(f"{path}: network.{refused[0]}: {text}")
        given = {"network": {**model["network"], "protocol": name, "seconds_per_tick": options.slice / 1000}}
    nodes = {"count": options.nodes.count, "prefix": "node-"}
    return Scenario(str(path), validated(ScenarioDocument, {**given, "options": document, "chains": [nodes]}, str(path)))
