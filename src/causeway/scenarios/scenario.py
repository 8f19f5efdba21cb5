"""A scenario: one TOML file that says which network runs, on what traffic, and what goes wrong.

``load_scenario`` reads and checks it; ``Scenario.traffic`` and ``Scenario.topology`` make of it what the pipeline
runs on.

A scenario that runs under several protocols: ``[protocols.NAME]`` has the options under the protocol of that name,
in the place of ``[options]``.
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

from causeway.config.document import (
    first_difference,
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
from causeway.spark.tasks import Session

__all__ = [
    "Scenario",
    "ScenarioDocument",
    "load_scenario",
    "read_scenario_document",
    "recorded_scenario",
    "scenario_from",
]

PROTOCOLS = "protocols"
"""The table with a table for each protocol."""


def select_protocol_options(document: Mapping[str, Any], protocol: str, path: str) -> dict[str, Any]:
    """Return a scenario's tables without those of other protocols; where ``protocol`` has one of its own, that is
    ``options``.

    Raises ``InvalidInput`` for a table of a protocol that nobody knows, and for one that is no table.
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
    changes: list[Any] = Field(default_factory=list)  # with faults of the kinds that the protocol has: see _document_of
    nodes: list[NodesSection] = Field(default_factory=list)
    splits: list[SplitSection] = Field(default_factory=list)
    faults: list[Any] = Field(default_factory=list)  # of the kinds that the protocol has: see _document_of
    traffic: TrafficSection = Field(default_factory=lambda: NoTrafficSection.model_validate({}))

    @property
    def planned_moves(self) -> list[tuple[str, MoveSection]]:
        """Return all moves that are known from the beginning, those of splits among them, each with its key."""
        moves = [(f"moves[{place}]", section) for place, section in enumerate(self.moves)]
        return [*moves, *moves_from_splits(self.splits)]


@dataclass(frozen=True)
class Scenario:
    """A checked scenario. Names in moves, faults and sends are resolved by ``topology``, ``faults`` and ``traffic``.

    ``sources``: where its programs may come from, where a lake told it; None: a user named its file, and they may come
    from anywhere.
    """

    path: str
    document: ScenarioDocument
    sources: ModuleSources | None = None

    @property
    def program_sources(self) -> ModuleSources:
        """Return where its programs may come from."""
        return self.sources or ModuleSources.for_run(self.path)

    @property
    def protocol(self) -> ProtocolInfo:
        """Return the protocol that runs."""
        return find_protocol(self.network.protocol)

    @property
    def network(self) -> NetworkSection:
        """Return ``[network]``."""
        return self.document.network

    @property
    def installed(self) -> dict[str, str]:
        """Return which programs the file names, by their keys."""
        traffic = self.document.traffic
        named = {f"programs[{row}].program": section.program for row, section in enumerate(self.document.programs)}
        if isinstance(traffic, RecordedSection | GeneratedSection):
            named |= {"traffic.caller": traffic.caller, "traffic.echo": traffic.echo}
        return named | installed_programs(self.document.changes)

    @property
    def options(self) -> dict[str, Any]:
        """Return ``[options]``, which the protocol checks."""
        return self.document.options

    @property
    def transport(self) -> TransportSection:
        """Return ``[transport]``."""
        return self.document.transport

    def traffic(
        self,
        folder: str | os.PathLike[str] | None = None,
        spark: Session | None = None,
        *,
        prepared: bool = False,
    ) -> ScenarioTraffic:
        """Return the traffic, ready to be asked for rows.

        ``folder``: where recorded traffic is sorted and kept (a path or URI; made when absent, used again when it
        already holds the same recording). ``spark``: prepares it in parallel; without it this process does.
        ``prepared``: the recording itself is not looked at, the folder has it. Raises ``InvalidInput`` when the
        recording is not as declared, or a name is unknown.
        """
        own, moves = self.declared_topology(), self.document.planned_moves
        if isinstance(self.document.traffic, ScriptSection):  # it may send to programs that come later
            own, moves = self._changes(own).after()
        return open_traffic(self.document.traffic, own, moves, self.network.seed, self.path, folder, spark, prepared)

    def topology(self, traffic: ScenarioTraffic) -> Topology:
        """Return chains, programs and moves: those of the file and those that ``traffic`` brings; after all changes."""
        return self.stages(traffic)[-1].topology

    def stages(self, traffic: ScenarioTraffic) -> list[NetworkStage]:
        """Return the network before its changes (``[[changes]]``), and after each; ``traffic``: as of ``topology``."""
        return self._changes(self._whole(traffic)).stages()

    def progress(self, traffic: ScenarioTraffic, count: int, begun: StageProgress | None = None) -> StageProgress:
        """Return the network after its first ``count`` changes. ``begun``: the same of fewer, to go on from."""
        return self._changes(self._whole(traffic)).progress(count, begun)

    def _whole(self, traffic: ScenarioTraffic) -> Topology:
        whole = merge_topologies(self.declared_topology(), traffic.topology())
        if not whole.chains.num_rows:
            raise InvalidInput(f"{self.path}: chains: missing; a network has at least one chain")
        return whole

    def _changes(self, whole: Topology) -> NetworkChanges:
        document = self.document
        known = (document.changes, document.planned_moves, document.faults, document.transport.skip)
        return NetworkChanges(whole, self.protocol, self.path, *known)

    def faults(self, topology: Topology) -> Faults:
        """Return the faults, ``transport.skip`` among them, with the names of ``topology`` resolved."""
        return NameDirectory(topology, self.path).faults(self.document.faults, self.document.transport.skip)

    def identity(self) -> dict[str, Any]:
        """Return, as a JSON object, all that decides the result of a run: not where and with how many tasks it runs.

        Two runs with equal identity and equal input files (their paths are left out) have the same roots; a lake
        keeps it to refuse another scenario.
        """
        content = self.document.model_dump(mode="json", by_alias=True)
        if isinstance(self.document.traffic, RecordedSection):
            for place in ("path", "channels"):  # files; of generated traffic, channels is a number
                content["traffic"].pop(place)
        for key in ("changes", "splits"):
            if not content[key]:
                content.pop(key)
        content["network"] = {
            key: value for key, value in content["network"].items() if key not in _NO_RESULT | {"ticks"}
        }
        return content

    def difference(self, made: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
        """Return the key under which this scenario's identity and another one (``made``) differ first, and both values;
        None where nothing that decides a result differs: options may say where parties are (``ProtocolInfo.places``).
        """
        places = self.protocol.places
        return first_difference(_placed_anywhere(self.identity(), places), _placed_anywhere(made, places))

    def declared_topology(self) -> Topology:
        """Return the chains and programs that the file itself declares. Raises ``InvalidInput``."""
        document = self.document
        return declared_topology(document.chains, document.programs, document.nodes, self.path, document.splits)


def load_scenario(
    path: str | os.PathLike[str],
    overrides: Mapping[str, str] | None = None,
    *,
    programs: Collection[str] | None = None,
) -> Scenario:
    """Return the scenario of a TOML file.

    ``overrides``: dotted keys to TOML values, as given on a command line (``quoted`` makes one of a literal text);
    paths in them are relative to the working folder, paths in the file to the file's folder. ``programs``: the
    registered program names, when they shall be checked here.

    Raises ``InvalidInput``, one line that names the file, the key, the value and what is allowed.
    """
    return scenario_from(read_scenario_document(path, overrides), str(path), programs=programs)


def read_scenario_document(
    path: str | os.PathLike[str], overrides: Mapping[str, str] | None = None, text: str | None = None
) -> dict[str, Any]:
    """Return the tables of a scenario's file; ``overrides`` and errors as of ``load_scenario``. ``text``: what is in
    the file, where it was read before."""
    document = read_document(Path(path)) if text is None else parse_document(text, Path(path))
    for keys in _PATHS:
        _from_folder(document, keys, Path(path).parent)
    for key, text in (overrides or {}).items():
        override_key(document, key, text)
        if tuple(parse_key(key)) in _PATHS:
            _from_folder(document, tuple(str(step) for step in parse_key(key)), Path.cwd())
    return document


def scenario_from(document: Mapping[str, Any], path: str, *, programs: Collection[str] | None = None) -> Scenario:
    """Return the scenario of the tables that a file has; ``path``: of the file, for errors, and to find modules beside
    it. ``programs``: as of ``load_scenario``. Raises ``InvalidInput``."""
    document = select_protocol_tables(document, path)
    scenario = Scenario(path, validate_document(scenario_model(document, path), dict(document), path))
    _check(scenario, programs)
    return scenario


def select_protocol_tables(document: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the tables of a scenario under the protocol that it asks for: without the options of others. Raises
    ``InvalidInput``."""
    return select_protocol_options(document, _protocol_in(document, path), path)


def recorded_scenario(identity: Mapping[str, Any], uri: str, sources: ModuleSources) -> Scenario:
    """Return the scenario whose ``identity`` the lake at a path or URI keeps. ``sources``: of its programs.

    Raises ``InvalidInput`` when this Causeway does not know what it says.
    """
    return Scenario(uri, validate_document(scenario_model(identity, uri), dict(identity), uri), sources)


def scenario_model(document: Mapping[str, Any], path: str) -> type[ScenarioDocument]:
    """Return the model of a scenario under the protocol that a document asks for. Raises ``InvalidInput`` for one that
    nobody knows."""
    return _document_of(_protocol_in(document, path))


def _protocol_in(document: Mapping[str, Any], path: str) -> str:
    """Return the name of the protocol that a document asks for; it decides which kinds of faults there are."""
    network = document.get("network")
    name = network.get("protocol", DEFAULT) if isinstance(network, Mapping) else DEFAULT
    if isinstance(name, str) and name not in protocol_names() and not is_simulation(name):
        raise InvalidInput(f"{path}: network.protocol: {suggest_known('protocol', name, protocol_names())}")
    return name if isinstance(name, str) else DEFAULT


@functools.cache
def _document_of(name: str) -> type[ScenarioDocument]:
    """Return the model of a scenario under a protocol."""
    kinds = find_protocol(name).fault_kinds()
    section: Any = Annotated[functools.reduce(operator.or_, kinds), Field(discriminator="kind")]
    faults: Any = (list[section], Field(default_factory=list))
    change = create_model("ChangeSection", __base__=ChangeSection, __doc__=ChangeSection.__doc__, inject=faults)
    changes: Any = (list[change], Field(default_factory=list))  # type: ignore[valid-type]
    return create_model("ScenarioDocument", __base__=ScenarioDocument, faults=faults, changes=changes)


def _check(scenario: Scenario, programs: Collection[str] | None) -> None:
    """Check what needs more than one key or knowledge from outside."""
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
    """Refuse what a scenario says of the registry under a protocol that has none."""
    if scenario.protocol.membership:
        return
    said = [
        f"chains[{place}].{key}"
        for place, section in enumerate(scenario.document.chains)
        for key, given in (
            ("from", section.from_tick > 0),
            ("until", section.until is not None),
            ("nodes", section.nodes is not None),
        )
        if given
    ]
    said += [f"nodes[{place}]" for place in range(len(scenario.document.nodes))]
    said += [f"splits[{place}]" for place in range(len(scenario.document.splits))]
    if said:
        allowed = ", ".join(name for name in protocol_names() if find_protocol(name).membership)
        text = f"under {scenario.protocol.name} chains neither come nor go, and have no nodes; allowed under: {allowed}"
        raise InvalidInput(f"{scenario.path}: {said[0]}: {text}")


def _placed_anywhere(identity: Mapping[str, Any], places: Iterable[str]) -> dict[str, Any]:
    """Return an identity without the options that are named."""

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
        # A section that has nothing else is as good as none.
        options = {name: value for name, value in options.items() if value != {}}
    return {**identity, "options": options}


def _from_folder(document: dict[str, Any], keys: tuple[str, ...], folder: Path) -> None:
    """Make the path under ``keys``, if there is one, start from ``folder``."""
    node: Any = document
    for key in keys[:-1]:
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        return
    text = node.get(keys[-1])
    if isinstance(text, str) and text and "://" not in text:
        node[keys[-1]] = str(folder / Path(text).expanduser())
