"""The topology of a recording: channel ends become programs, their chains become chains, numbered by name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.json_text import loads
from causeway.model.topology import CHAINS_SCHEMA, Topology
from causeway.network.directory import programs_table
from causeway.network.recording import file_system
from causeway.network.traffic_settings import RecordedSection

End = tuple[str, str, str | None]
"""Chain, channel and, when a column says it, destination chain, as recorded."""


@dataclass(frozen=True)
class Route:
    """Where the packets of an end enter (chain and program, as numbers) and which program they call."""

    chain: int
    caller: int
    callee: int


class Registry:
    """Which channel ends belong together, by chain and channel."""

    def __init__(self, channels: list[Any], file: str) -> None:
        """``channels``: objects with chain_1, channel_1, chain_2, channel_2; ``file``: for error lines.

        Records with the channel ``*`` stand for many channels and are passed over.
        """
        self.chains: set[str] = set()
        self.counterparty: dict[tuple[str, str], tuple[str, str]] = {}
        for place, record in enumerate(channels):
            keys = ("chain_1", "channel_1", "chain_2", "channel_2")
            if not isinstance(record, Mapping) or not all(isinstance(record.get(key), str) for key in keys):
                raise InvalidInput(f"{file}: record {place + 1}: must be an object with the texts {', '.join(keys)}")
            chain_1, channel_1, chain_2, channel_2 = (record[key] for key in keys)
            if "*" in (channel_1, channel_2):
                continue
            self.chains |= {chain_1, chain_2}
            self.counterparty.setdefault((chain_1, channel_1), (chain_2, channel_2))
            self.counterparty.setdefault((chain_2, channel_2), (chain_1, channel_1))

    def canonical(self, chain: str) -> str:
        """Return the registry's name of a chain: ``cosmoshub-4`` is ``cosmoshub`` if only that is known there."""
        shorter = re.sub(r"-[0-9]+$", "", chain)
        return shorter if chain not in self.chains and shorter in self.chains else chain


def read_registry(file: str | None) -> Registry:
    """Return the registry of a JSON file; without a file, one that knows no channel."""
    if file is None:
        return Registry([], "")
    system, inside = file_system(file)
    try:
        with system.open_input_stream(inside) as stream:
            records = loads(stream.read())
    except FileNotFoundError:
        raise InvalidInput(f"{file}: no such channels file (traffic.channels.file)") from None
    except (ValueError, OSError) as error:
        raise InvalidInput(f"{file}: cannot be read as JSON: {' '.join(str(error).split())}") from None
    if not isinstance(records, list):
        raise InvalidInput(f"{file}: must be a JSON array of channels")
    return Registry(records, file)


def route_ends(
    ends: Collection[End], registry: Registry, own: Topology, section: RecordedSection, path: str
) -> tuple[Topology, dict[End, Route]]:
    """Return what the ends add to the topology ``own`` of the file, and the route of each end.

    A chain or program that the file declares under the same name is used as it is there. New ones get the numbers
    after the largest of the file, in the order of their names; ``section`` says which programs they are. ``path``:
    the scenario file, for error lines.
    """
    names = _Names(path)
    pairs = {end: _pair(end, registry, names) for end in ends}
    callers = {caller for caller, _ in pairs.values()}
    hosts = {program: chain for pair in pairs.values() for chain, program in pair}
    own_chains = dict(zip(own.chains["name"].to_pylist(), own.chains["number"].to_pylist(), strict=True))
    own_programs = dict(zip(own.programs["name"].to_pylist(), own.programs["number"].to_pylist(), strict=True))
    own_hosts = dict(zip(own.programs["name"].to_pylist(), own.programs["chain"].to_pylist(), strict=True))
    new_chains = sorted(set(hosts.values()) - set(own_chains))
    new_programs = sorted(set(hosts) - set(own_programs))
    chain_of = own_chains | _numbered(new_chains, own_chains)
    number_of = own_programs | _numbered(new_programs, own_programs)
    chains = pa.Table.from_arrays(
        [pa.array([chain_of[name] for name in new_chains], pa.uint64()), pa.array(new_chains, pa.string())],
        schema=CHAINS_SCHEMA,
    )
    calling = {program for _, program in callers}
    programs = programs_table(
        np.array([number_of[name] for name in new_programs], dtype=np.uint64),
        new_programs,
        [chain_of[hosts[name]] for name in new_programs],
        [section.caller if name in calling else section.echo for name in new_programs],
        [section.balance if name in calling else 0 for name in new_programs],
    )
    routes = {}
    for end, ((chain, caller), (_, callee)) in pairs.items():
        host = own_hosts.get(caller)
        routes[end] = Route(chain_of[chain] if host is None else host, number_of[caller], number_of[callee])
    return Topology(chains, programs), routes


class _Names:
    """Recorded names as names of chains and programs; two that would become the same are refused."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._original: dict[str, str] = {}

    def clean(self, text: str, forbidden: str) -> str:
        name = re.sub(rf"[\s{forbidden}]", "_", text)
        if self._original.setdefault(name, text) != text:
            both = f'"{self._original[name]}" and "{text}"'
            raise InvalidInput(
                f"{self._path}: traffic: {both} would both be called {name}; rename one in the recording"
            )
        return name


def _pair(end: End, registry: Registry, names: _Names) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return (chain, program) of the end itself and of its counterparty."""
    recorded_chain, channel, recorded_destination = end
    chain = registry.canonical(recorded_chain)
    known = registry.counterparty.get((chain, channel))
    destination = None if recorded_destination is None else registry.canonical(recorded_destination)
    if known is not None and destination in (None, known[0]):
        other_chain, other_channel = known
    elif destination is not None:
        other_chain, other_channel = destination, f"{chain}.{channel}"
    else:
        other_chain, other_channel = f"unknown-{chain}-{channel}", f"{chain}.{channel}"

    def named(chain: str, channel: str) -> tuple[str, str]:
        clean = names.clean(chain, "/>#")
        return clean, f"{clean}/{names.clean(channel, '>#')}"

    return named(chain, channel), named(other_chain, other_channel)


def _numbered(names: list[str], taken: Mapping[str, int]) -> dict[str, int]:
    first = max(taken.values(), default=-1) + 1
    return {name: first + place for place, name in enumerate(names)}
