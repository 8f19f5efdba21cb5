"""What of a scenario is carried over to each protocol, and what is not: the same chains, programs, traffic, faults and
seed; of options, those that the scenario gives for a protocol.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from causeway.model.document import quoted, validated
from causeway.model.errors import InvalidInput
from causeway.model.text import unknown
from causeway.network.per_protocol import PROTOCOLS
from causeway.network.scenario import Scenario, document_of, scenario_from
from causeway.protocols.registry import DEFAULT, names, protocol

LEAST = 1
"""Protocols that are compared at least; one alone is a column, too."""


@dataclass(frozen=True)
class Planned:
    """What runs in one column. ``overrides``: of the scenario's file, as on a command line; ``note``: what of the
    scenario is left out, None for nothing."""

    protocol: str
    overrides: Mapping[str, str]
    scenario: Scenario
    note: str | None = None


def plan(path: str | os.PathLike[str], protocols: Sequence[str], overrides: Mapping[str, str]) -> list[Planned]:
    """Return what runs in each column, in the order of ``protocols``; ``overrides``: of every column.

    A scenario's ``[options]`` are of the protocol that it names: others run with ``[protocols.NAME]``, or, without
    that, with their defaults. Everything else must be the same in all of them.

    Raises ``InvalidInput``, one line that names the protocol, the key and what is allowed.
    """
    chosen = _chosen(protocols)
    document = document_of(path, overrides)
    network = document.get("network")
    own = network.get("protocol", DEFAULT) if isinstance(network, Mapping) else DEFAULT
    _refuse_own_faults(document, chosen, str(path))
    return [_planned(path, name, own, document, overrides) for name in chosen]


def _chosen(protocols: Sequence[str]) -> list[str]:
    for name in protocols:
        if name not in names():
            raise InvalidInput(f"--protocols: {unknown('protocol', name, names())}")
    if len({*protocols}) < len(protocols):
        raise InvalidInput(f"--protocols: {', '.join(protocols)}: names a protocol twice")
    if len(protocols) < LEAST:
        raise InvalidInput(f"--protocols: names none; allowed: {', '.join(names())}")
    return list(protocols)


def _planned(
    path: str | os.PathLike[str], name: str, own: str, document: Mapping[str, Any], overrides: Mapping[str, str]
) -> Planned:
    changed = {**overrides, "network.protocol": quoted(name)}
    tables = document.get(PROTOCOLS)
    has_own = isinstance(tables, Mapping) and name in tables
    note = None
    if name != own and not has_own and document.get("options"):
        changed["options"] = "{}"
        note = f"runs with its defaults: [options] are those of {own} ([{PROTOCOLS}.{name}] would be its own)"
    try:
        scenario = scenario_from(document_of(path, changed), str(path))
        where = (PROTOCOLS, name) if has_own else ("options",)
        validated(scenario.protocol.load_options(), scenario.options, str(path), where)
    except InvalidInput as error:
        raise InvalidInput(f"{error} (under {name}; compare runs the same under every protocol)") from error
    return Planned(name, changed, scenario, note)


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
    sections = protocol(name).fault_kinds()
    return {kind for section in sections for kind in get_args(section.model_fields["kind"].annotation)}
