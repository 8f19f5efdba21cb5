"""Scenarios: one TOML file for the network, its traffic and its faults.

``load_scenario`` reads and validates a file. ``Scenario.topology`` and ``Scenario.traffic`` convert it to the input of
a run.

A scenario may run under several protocols: ``[protocols.NAME]`` replaces ``[options]`` under protocol NAME.
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from causeway_proofs.errors import InvalidInput
from pydantic import Field, create_model

from causeway.cluster.jobs import Session
from causeway.config.document import (
    first_difference,
    forget_parsed,
    override_key,
    parse_document,
    parse_key,
    read_document,
    validate_document,
)
from causeway.config.faults import Faults
from causeway.config.section import ScenarioSection
from causeway.config.topology import Topology
from causeway.core.text import suggest_known
from causeway.programs.user_modules import ModuleSources
from causeway.protocols.registry import DEFAULT, ProtocolInfo, find_protocol, is_simulation, protocol_names
from causeway.scenarios.changes import (
    NetworkChanges,
    NetworkStage,
    StageProgress,
    installed_programs,
    moves_from_splits,
)
from causeway.scenarios.directory import NameDirectory, declared_topology, merge_topologies
from causeway.scenarios.settings import (
    NOTHING_INSTALLED,
    ChainSection,
    ChangeSection,
    JsonTable,
    MoveSection,
    NetworkSection,
    NodesSection,
    ProgramSection,
    SplitSection,
    TransportSection,
)
from causeway.scenarios.traffic_settings import (
    GeneratedSection,
    NoTrafficSection,
    RecordedSection,
    ScriptSection,
    TrafficSection,
)
from causeway.scenarios.traffic_sources import ScenarioTraffic, open_traffic

__all__ = [
    "Scenario",
    "ScenarioDocument",
    "load_scenario",
    "read_scenario_document",
    "recorded_scenario",
    "scenario_from",
]

PROTOCOLS = "protocols"
"""Key of the table with a table for each protocol."""


def select_protocol_options(document: Mapping[str, Any], protocol: str, path: str) -> dict[str, Any]:
    """Remove the tables of other protocols; that of ``protocol``, if any, becomes ``options``.

    Args:
        document: Tables of the scenario.
        protocol: Name of the protocol.
        path: The file, for errors.

    Raises:
        InvalidInput: A protocol is unknown, or its entry is not a table.
    """
    given = document.get(PROTOCOLS, {})
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{path}: {PROTOCOLS}: must be tables, as [{PROTOCOLS}.{protocol_names()[0]}]")
    for name, options in given.items():
        if name not in protocol_names():
            raise InvalidInput(f"{path}: {PROTOCOLS}.{name}: {suggest_known('protocol', name, protocol_names())}")
        if not isinstance(options, Mapping):
            raise InvalidInput(f"{path}: {PROTOCOLS}.{name}: must be a table of options")
    rest = {key: value for key, value in document.items() if key != PROTOCOLS}
    return rest if protocol not in given else {**rest, "options": dict(given[protocol])}


_PATHS = (("network", "lake"), ("traffic", "path"), ("traffic", "channels", "file"))
_NO_RESULT = {"commit_every", "executor", "master", "spark", "partitions", "lake"}


class ScenarioDocument(ScenarioSection):
    """The whole file."""

    network: NetworkSection = Field(default_factory=lambda: NetworkSection.model_validate({}))
    options: JsonTable = Field(default_factory=dict)
    transport: TransportSection = Field(default_factory=lambda: TransportSection.model_validate({}))
    chains: list[ChainSection] = Field(default_factory=list)
    programs: list[ProgramSection] = Field(default_factory=list)
    moves: list[MoveSection] = Field(default_factory=list)
    changes: list[Any] = Field(default_factory=list)  # typed with the protocol's faults by _document_of
    nodes: list[NodesSection] = Field(default_factory=list)
    splits: list[SplitSection] = Field(default_factory=list)
    faults: list[Any] = Field(default_factory=list)  # typed with the protocol's faults by _document_of
    traffic: TrafficSection = Field(default_factory=lambda: NoTrafficSection.model_validate({}))

    @property
    def planned_moves(self) -> list[tuple[str, MoveSection]]:
        """All moves known from the start, including those of splits, with their keys."""
        moves = [(f"moves[{place}]", section) for place, section in enumerate(self.moves)]
        return [*moves, *moves_from_splits(self.splits)]


@dataclass(frozen=True)
class Scenario:
    """A validated scenario.

    ``topology``, ``faults`` and ``traffic`` resolve the names in moves, faults and sends.

    Attributes:
        path: The file.
        document: Its content.
        sources: Allowed sources of program classes for a scenario from a lake; None: a user named the file, so any
            source.
    """

    path: str
    document: ScenarioDocument
    sources: ModuleSources | None = None

    @property
    def program_sources(self) -> ModuleSources:
        """Allowed sources of program classes."""
        return self.sources or ModuleSources.for_run(self.path)

    @property
    def protocol(self) -> ProtocolInfo:
        """The protocol to run."""
        return find_protocol(self.network.protocol)

    @property
    def network(self) -> NetworkSection:
        """The table ``[network]``."""
        return self.document.network

    @property
    def installed(self) -> dict[str, str]:
        """Program classes named in the file, by key."""
        traffic = self.document.traffic
        installed = {f"programs[{row}].program": section.program for row, section in enumerate(self.document.programs)}
        if isinstance(traffic, RecordedSection | GeneratedSection):
            installed |= {"traffic.caller": traffic.caller, "traffic.echo": traffic.echo}
        return installed | installed_programs(self.document.changes)

    @property
    def options(self) -> dict[str, Any]:
        """The table ``[options]``, validated by the protocol."""
        return self.document.options

    @property
    def transport(self) -> TransportSection:
        """The table ``[transport]``."""
        return self.document.transport

    def traffic(
        self,
        folder: str | os.PathLike[str] | None = None,
        spark: Session | None = None,
        *,
        prepared: bool = False,
    ) -> ScenarioTraffic:
        """Open the traffic.

        Args:
            folder: Path or URI for sorted recorded traffic; created if absent, reused if it holds the same recording.
            spark: Prepares it in parallel; None: this process does.
            prepared: Use the folder without reading the recording.

        Raises:
            InvalidInput: The recording is not as declared, or a name is unknown.
        """
        own, moves = self.declared_topology(), self.document.planned_moves
        if isinstance(self.document.traffic, ScriptSection):  # it may send to programs installed later
            own, moves = self._changes(own).after()
        return open_traffic(self.document.traffic, own, moves, self.network.seed, self.path, folder, spark, prepared)

    def topology(self, traffic: ScenarioTraffic) -> Topology:
        """Return the topology after all changes, including the chains and programs of ``traffic``."""
        return self.stages(traffic)[-1].topology

    def stages(self, traffic: ScenarioTraffic) -> list[NetworkStage]:
        """Return the network before its changes (``[[changes]]``) and after each of them.

        Args:
            traffic: Traffic whose chains and programs are included.
        """
        return self._changes(self._full_topology(traffic)).stages()

    def progress(self, traffic: ScenarioTraffic, count: int, begun: StageProgress | None = None) -> StageProgress:
        """Return the network after its first changes.

        Args:
            traffic: Traffic whose chains and programs are included.
            count: Number of changes.
            begun: The same after fewer changes, to continue from.
        """
        return self._changes(self._full_topology(traffic)).progress(count, begun)

    def _full_topology(self, traffic: ScenarioTraffic) -> Topology:
        whole = merge_topologies(self.declared_topology(), traffic.topology())
        if not whole.chains.num_rows:
            raise InvalidInput(f"{self.path}: chains: missing; a network has at least one chain")
        return whole

    def _changes(self, whole: Topology) -> NetworkChanges:
        document = self.document
        known = (document.changes, document.planned_moves, document.faults, document.transport.skip)
        return NetworkChanges(whole, self.protocol, self.path, *known)

    def faults(self, topology: Topology) -> Faults:
        """Return the faults and ``transport.skip``, with the names of ``topology`` resolved."""
        return NameDirectory(topology, self.path).faults(self.document.faults, self.document.transport.skip)

    def identity(self) -> dict[str, Any]:
        """Return the settings that decide the result of a run, as a JSON object.

        Two runs with equal identity and equal input files have equal roots. Paths, the executor and the number of tasks
        are excluded. A lake stores the identity to reject other scenarios.
        """
        content = self.document.model_dump(mode="json", by_alias=True)
        if isinstance(self.document.traffic, RecordedSection):
            for place in ("path", "channels"):  # file paths; generated traffic has a number of channels
                content["traffic"].pop(place)
        for key in ("changes", "splits"):
            if not content[key]:
                content.pop(key)
        content["network"] = {
            key: value for key, value in content["network"].items() if key not in _NO_RESULT | {"ticks"}
        }
        return content

    def difference(self, made: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
        """Return the first difference from another identity.

        Options that only locate parties (``ProtocolInfo.places``) are ignored.

        Args:
            made: The other identity.

        Returns:
            The key and both values, or None without a difference that decides a result.
        """
        places = self.protocol.places
        return first_difference(_without_places(self.identity(), places), _without_places(made, places))

    def declared_topology(self) -> Topology:
        """Return the chains and programs that the file declares. Raises ``InvalidInput``."""
        document = self.document
        return declared_topology(document.chains, document.programs, document.nodes, self.path, document.splits)


def load_scenario(
    path: str | os.PathLike[str],
    overrides: Mapping[str, str] | None = None,
    *,
    programs: Collection[str] | None = None,
) -> Scenario:
    """Read and validate a scenario file.

    Args:
        path: The TOML file. Paths in it are relative to its folder.
        overrides: TOML values by dotted key (``quote_toml`` encodes a literal text). Paths in them are relative to the
            working folder.
        programs: Registered program names to validate against; None: no validation.

    Raises:
        InvalidInput: One line with file, key, value and allowed values.
    """
    return scenario_from(read_scenario_document(path, overrides), str(path), programs=programs)


def read_scenario_document(
    path: str | os.PathLike[str], overrides: Mapping[str, str] | None = None, text: str | None = None
) -> dict[str, Any]:
    """Read the tables of a scenario file.

    Args:
        path: The file.
        overrides: As in ``load_scenario``.
        text: Text of the file, if read already.

    Raises:
        InvalidInput: The file is invalid, or an override names no key.
    """
    document = read_document(Path(path)) if text is None else parse_document(text, Path(path))
    for keys in _PATHS:
        _resolve_path(document, keys, Path(path).parent)
    for key, text in (overrides or {}).items():
        override_key(document, key, text)
        if tuple(parse_key(key)) in _PATHS:
            _resolve_path(document, tuple(str(step) for step in parse_key(key)), Path.cwd())
    return document


def scenario_from(document: Mapping[str, Any], path: str, *, programs: Collection[str] | None = None) -> Scenario:
    """Validate the tables of a scenario file.

    Args:
        document: The tables.
        path: The file, for errors and to find modules beside it.
        programs: As in ``load_scenario``.

    Raises:
        InvalidInput: The scenario is invalid.
    """
    document = select_protocol_tables(document, path)
    scenario = Scenario(path, validate_document(scenario_model(document, path), dict(document), path))
    _check(scenario, programs)
    forget_parsed()
    return scenario


def select_protocol_tables(document: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return a scenario's tables for its protocol, without the options of others.

    Args:
        document: Tables of the scenario.
        path: The file, for errors.

    Raises:
        InvalidInput: A protocol is unknown.
    """
    return select_protocol_options(document, _protocol_in(document, path), path)


def recorded_scenario(identity: Mapping[str, Any], uri: str, sources: ModuleSources) -> Scenario:
    """Restore the scenario whose ``identity`` a lake stores.

    Args:
        identity: The stored identity.
        uri: Path or URI of the lake.
        sources: Allowed sources of its program classes.

    Raises:
        InvalidInput: This version does not know a setting.
    """
    return Scenario(uri, validate_document(scenario_model(identity, uri), dict(identity), uri), sources)


def scenario_model(document: Mapping[str, Any], path: str) -> type[ScenarioDocument]:
    """Return the pydantic model of a scenario for the protocol of a document.

    Args:
        document: Tables of the scenario.
        path: The file, for errors.

    Raises:
        InvalidInput: The protocol is unknown.
    """
    return _document_of(_protocol_in(document, path))


def _protocol_in(document: Mapping[str, Any], path: str) -> str:
    """Return the protocol of a document; it decides the kinds of faults."""
    network = document.get("network")
    name = network.get("protocol", DEFAULT) if isinstance(network, Mapping) else DEFAULT
    if isinstance(name, str) and name not in protocol_names() and not is_simulation(name):
        raise InvalidInput(f"{path}: network.protocol: {suggest_known('protocol', name, protocol_names())}")
    return name if isinstance(name, str) else DEFAULT


@functools.cache
def _document_of(name: str) -> type[ScenarioDocument]:
    """Create the pydantic model of a scenario for a protocol."""
    kinds = find_protocol(name).fault_kinds()
    section: Any = Annotated[functools.reduce(operator.or_, kinds), Field(discriminator="kind")]
    faults: Any = (list[section], Field(default_factory=list))
    change = create_model("ChangeSection", __base__=ChangeSection, __doc__=ChangeSection.__doc__, inject=faults)
    changes: Any = (list[change], Field(default_factory=list))  # type: ignore[valid-type]
    return create_model("ScenarioDocument", __base__=ScenarioDocument, faults=faults, changes=changes)


def _check(scenario: Scenario, programs: Collection[str] | None) -> None:
    """Validate rules over several keys, and those that need outside knowledge."""
    traffic = scenario.document.traffic
    for key, program in scenario.installed.items():
        if programs is not None and ":" not in program and program not in (*programs, NOTHING_INSTALLED):
            raise InvalidInput(f"{scenario.path}: {key}: {suggest_known('program', program, sorted(programs))}")
    if isinstance(traffic, RecordedSection) and traffic.path is None:
        raise InvalidInput(f"{scenario.path}: traffic.path: missing; name the recording there or with --traffic FILE")
    if not scenario.document.chains and not isinstance(traffic, RecordedSection):
        what = "generated traffic needs" if isinstance(traffic, GeneratedSection) else "a network has"
        raise InvalidInput(f"{scenario.path}: chains: missing; {what} at least one chain, as [[chains]]")
    _check_chains(scenario)
    scenario.declared_topology()


def _check_chains(scenario: Scenario) -> None:
    sections, info = scenario.document.chains, scenario.protocol
    for place, section in enumerate(sections):
        if section.external and not info.external:
            allowed = ", ".join(name for name in protocol_names() if find_protocol(name).external)
            why = f" ({info.apart})" if info.apart else ""
            text = f"under {info.name} no chain can be another lake's{why}; allowed under: {allowed}"
            raise InvalidInput(f"{scenario.path}: chains[{place}].external: {text}")
        if section.role and section.role not in info.roles:
            known = ", ".join(info.roles) or f"none under {info.name}"
            raise InvalidInput(f"{scenario.path}: chains[{place}].role: {section.role!r}; allowed: {known}")
    _check_membership(scenario)
    if sections and all(section.external for section in sections):
        raise InvalidInput(f"{scenario.path}: chains: all are external; a lake runs at least one chain of its own")


def _check_membership(scenario: Scenario) -> None:
    """Reject registry settings under a protocol without a registry."""
    if scenario.protocol.membership:
        return
    keys = [
        f"chains[{place}].{key}"
        for place, section in enumerate(scenario.document.chains)
        for key, given in (
            ("from", section.from_tick > 0),
            ("until", section.until is not None),
            ("nodes", section.nodes is not None),
        )
        if given
    ]
    keys += [f"nodes[{place}]" for place in range(len(scenario.document.nodes))]
    keys += [f"splits[{place}]" for place in range(len(scenario.document.splits))]
    if keys:
        allowed = ", ".join(name for name in protocol_names() if find_protocol(name).membership)
        text = f"under {scenario.protocol.name} chains neither come nor go, and have no nodes; allowed under: {allowed}"
        raise InvalidInput(f"{scenario.path}: {keys[0]}: {text}")


def _without_places(identity: Mapping[str, Any], places: Iterable[str]) -> dict[str, Any]:
    """Return an identity without the options at some paths."""

    def without(node: Any, steps: Sequence[str]) -> Any:
        if not isinstance(node, Mapping):
            return node
        step, *below = steps
        if not below:
            return {name: value for name, value in node.items() if step not in (name, "*")}
        return {name: without(value, below) if step in (name, "*") else value for name, value in node.items()}

    options = identity.get("options", {})
    for place in places:
        options = without(options, place.split("."))
        # A section left empty equals a missing one.
        options = {name: value for name, value in options.items() if value != {}}
    return {**identity, "options": options}


def _resolve_path(document: dict[str, Any], keys: tuple[str, ...], folder: Path) -> None:
    """Resolve the path under ``keys``, if there is one, relative to ``folder``."""
    node: Any = document
    for key in keys[:-1]:
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        return
    text = node.get(keys[-1])
    if isinstance(text, str) and text and "://" not in text:
        node[keys[-1]] = str(folder / Path(text).expanduser())
