"""The traffic of a scenario, whatever its source: none, a script, a recording or a generator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.model.traffic import INGRESS_SCHEMA, Traffic
from causeway.network.directory import Directory, merged
from causeway.network.generator import generated_traffic
from causeway.network.membership import at_genesis
from causeway.network.prepared import prepared_traffic
from causeway.network.recorded import recorded_traffic
from causeway.network.script import homes_of, scripted_traffic
from causeway.network.settings import MoveSection
from causeway.network.tasks import Session
from causeway.network.traffic_settings import GeneratedSection, RecordedSection, ScriptSection, TrafficSection

U64Array = npt.NDArray[np.uint64]


class SourcedTraffic(Traffic, Protocol):
    """Traffic that may bring chains and programs of its own."""

    def topology(self) -> Topology:
        """Return the chains and programs that the traffic adds to those of the scenario file."""
        ...

    def rows_a_tick(self) -> float:
        """Return how many rows a tick with any has on average."""
        ...


@dataclass(frozen=True)
class NoTraffic:
    """Nothing comes from outside."""

    def rows(self, tick: int, chains: U64Array) -> pa.Table:
        """Return no rows."""
        return INGRESS_SCHEMA.empty_table()

    def next_tick(self, tick: int) -> int | None:
        """Return None: there is never any row."""
        return None

    def topology(self) -> Topology:
        """Return no chains and no programs."""
        return no_topology()

    def rows_a_tick(self) -> float:
        """Return how many rows a tick with any has on average."""
        return 0.0


@dataclass(frozen=True)
class MovedTraffic:
    """Traffic whose messages come in where the program they are for is at that tick.

    A program that is on no chain keeps getting its messages at its first chain, which refuses them.
    """

    inner: SourcedTraffic
    ticks: tuple[int, ...]
    programs: tuple[int, ...]
    hosts: tuple[int | None, ...]
    homes: tuple[int | None, ...]

    def rows(self, tick: int, chains: U64Array) -> pa.Table:
        """Return the rows of ``tick`` for ``chains``, by chain, within it by first chain and order there."""
        now: dict[int, tuple[int, int]] = {}
        for since, program, host, home in zip(self.ticks, self.programs, self.hosts, self.homes, strict=True):
            if since <= tick and home is not None:
                now[program] = (home, home if host is None else host)
        away = {program: place for program, place in now.items() if place[0] != place[1]}
        if not away:
            return self.inner.rows(tick, chains)
        moved = np.array(sorted(away), dtype=np.uint64)
        homes = np.array([away[program][0] for program in sorted(away)], dtype=np.uint64)
        hosts = np.array([away[program][1] for program in sorted(away)], dtype=np.uint64)
        table = self.inner.rows(tick, np.union1d(chains, homes[np.isin(hosts, chains)]))
        receivers = table["receiver"].to_numpy()
        places = np.minimum(np.searchsorted(moved, receivers), len(moved) - 1)
        chain = np.where(moved[places] == receivers, hosts[places], table["chain"].to_numpy())
        order = np.argsort(chain, kind="stable")
        order = order[np.isin(chain[order], chains)]
        column = pa.array(chain, pa.uint64())
        return table.set_column(0, INGRESS_SCHEMA.field("chain"), column).take(pa.array(order))

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` with any row."""
        return self.inner.next_tick(tick)

    def topology(self) -> Topology:
        """Return what the traffic itself brings."""
        return self.inner.topology()

    def rows_a_tick(self) -> float:
        """Return how many rows a tick with any has on average."""
        return self.inner.rows_a_tick()


def no_topology() -> Topology:
    """Return a topology of nothing."""
    return Topology(CHAINS_SCHEMA.empty_table(), PROGRAMS_SCHEMA.empty_table())


def open_traffic(
    section: TrafficSection,
    own: Topology,
    moves: Sequence[tuple[str, MoveSection]],
    seed: int,
    path: str,
    folder: str | os.PathLike[str] | None,
    spark: Session | None,
    prepared: bool = False,
) -> SourcedTraffic:
    """Return the traffic that ``section`` describes, for a file that itself declares ``own`` and ``moves``.

    ``prepared``: of a recording only the ``folder`` that holds it prepared is looked at.
    """
    if isinstance(section, ScriptSection):
        directory = Directory(own, path)
        return scripted_traffic(section, homes_of(at_genesis(own)), directory.moves(moves), directory)
    if isinstance(section, RecordedSection):
        if folder is None:
            raise InvalidInput(
                f"{path}: traffic: recorded traffic needs a folder to be sorted into; name a lake (--lake DIR)"
            )
        if prepared:
            return _moved(prepared_traffic(os.fspath(folder)), own, moves, path)
        return _moved(recorded_traffic(section, own, os.fspath(folder), path, spark), own, moves, path)
    if isinstance(section, GeneratedSection):
        return _moved(generated_traffic(section, own, seed, path), own, moves, path)
    return NoTraffic()


def _moved(inner: SourcedTraffic, own: Topology, moves: Sequence[tuple[str, MoveSection]], path: str) -> SourcedTraffic:
    if not moves and not own.membership.spans:
        return inner
    whole = merged(own, inner.topology())
    table = Directory(whole, path).moves(moves)
    home_of = dict(zip(whole.programs["number"].to_pylist(), whole.programs["chain"].to_pylist(), strict=True))
    ticks, programs, hosts = (tuple(table[name].to_pylist()) for name in ("tick", "program", "chain"))
    return MovedTraffic(inner, ticks, programs, hosts, tuple(home_of.get(program) for program in programs))
