"""The traffic of a scenario: none, a script, a recording or a generator.

``open_traffic`` creates it from a section. ``FollowingTraffic`` redirects messages of programs that move. ``last_tick``
finds the end of traffic by bisection.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64

from causeway.cluster.jobs import Session
from causeway.config.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.config.traffic import INGRESS_SCHEMA, Traffic
from causeway.core.ingress_call import encode_calls
from causeway.scenarios import traffic_settings
from causeway.scenarios.directory import NameDirectory, genesis_topology, merge_topologies
from causeway.scenarios.generator import generated_traffic
from causeway.scenarios.prepared_traffic import prepared_traffic
from causeway.scenarios.recorded_traffic import recorded_traffic
from causeway.scenarios.settings import MoveSection

__all__ = ["last_tick", "ticks_with_traffic"]


GenesisChains = Mapping[int, int | None]

_MASK = 2**64 - 1


@dataclass(frozen=True)
class ScriptedTraffic:
    """The messages of a script, one row a ``[[traffic.send]]``.

    Attributes:
        sends: Rows of ``INGRESS_SCHEMA`` after the columns ``tick`` and ``count`` (number of copies), sorted by tick,
            chain and order in the file.
    """

    sends: pa.Table

    def rows(self, tick: int, chains: U64) -> pa.Table:
        """Return the rows of ``tick`` for ``chains``, by chain, then in the order of the file."""
        ticks = self.sends["tick"].to_numpy()
        first, end = (int(np.searchsorted(ticks, np.uint64(tick), side=side)) for side in ("left", "right"))
        part = self.sends.slice(first, end - first)
        places = np.flatnonzero(np.isin(part["chain"].to_numpy(), chains))
        places = np.repeat(places, part["count"].to_numpy()[places].astype(np.int64))
        return part.select(INGRESS_SCHEMA.names).take(pa.array(places)).cast(INGRESS_SCHEMA)

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` with any row, or None."""
        ticks = self.sends["tick"].to_numpy()
        place = int(np.searchsorted(ticks, np.uint64(tick)))
        return int(ticks[place]) if place < len(ticks) else None

    def topology(self) -> Topology:
        """Return an empty topology: a script uses the chains and programs of the file."""
        return empty_topology()

    def rows_a_tick(self) -> float:
        """Return the mean number of rows a tick with traffic."""
        ticks = len(np.unique(self.sends["tick"].to_numpy()))
        return float(self.sends["count"].to_numpy().sum()) / max(ticks, 1)


def genesis_chains(topology: Topology) -> GenesisChains:
    """Return the chain of each program at genesis, by number, or None.

    Args:
        topology: Topology at genesis.
    """
    programs = topology.programs
    return dict(zip(programs["number"].to_pylist(), programs["chain"].to_pylist(), strict=True))


def scripted_traffic(
    section: traffic_settings.ScriptSection, homes: GenesisChains, moves: pa.Table, directory: NameDirectory
) -> ScriptedTraffic:
    """Create the traffic of a script.

    Args:
        section: The script.
        homes: Chains of programs at genesis (``genesis_chains``).
        moves: Moves of programs.
        directory: Names of chains and programs.

    Raises:
        InvalidInput: A program or chain is unknown, or the receiver is on no chain.
    """
    changes = moves.to_pylist()
    rows = []
    for position, send in enumerate(section.send):
        key = f"traffic.send[{position}]"
        receiver = directory.program(send.to, f"{key}.to")
        if send.chain is not None:
            chain = directory.member(send.chain, send.tick, f"{key}.chain")
        else:
            host = homes.get(receiver)
            for change in changes:
                if change["program"] == receiver and change["tick"] <= send.tick:
                    host = change["chain"]
            if host is None:
                text = f"missing; {send.to} is on no chain at tick {send.tick}, so say where the message comes in"
                raise directory.fail(f"{key}.chain", text)
            chain = host
        payload = send.content if send.call is None else _encode_call(send.call, directory, key)
        rows.append(
            {
                "tick": send.tick,
                "count": send.count,
                "chain": chain,
                "receiver": receiver,
                "sender": send.sender,
                "method": send.method_name,
                "payload": payload,
            }
        )
    schema = pa.schema([pa.field("tick", pa.uint64()), pa.field("count", pa.uint64()), *INGRESS_SCHEMA])
    rows.sort(key=lambda row: (row["tick"], row["chain"]))
    return ScriptedTraffic(pa.Table.from_pylist(rows, schema=schema))


def _encode_call(call: traffic_settings.CallSection, directory: NameDirectory, key: str) -> bytes:
    receiver = directory.program(call.receiver, f"{key}.call.receiver")
    high, low = np.array([[call.amount >> 64], [call.amount & _MASK]], dtype=np.uint64)
    body = pa.array([call.content], pa.binary())
    payload: bytes = encode_calls(np.array([receiver], dtype=np.uint64), high, low, call.method, body)[0].as_py()
    return payload


class ScenarioTraffic(Traffic, Protocol):
    """Traffic that may add chains and programs."""

    def topology(self) -> Topology:
        """Return the chains and programs that the traffic adds to those of the scenario file."""

    def rows_a_tick(self) -> float:
        """Return the mean number of rows a tick with traffic."""


@dataclass(frozen=True)
class NoTraffic:
    """No traffic."""

    def rows(self, tick: int, chains: U64) -> pa.Table:
        """Return no rows."""
        return INGRESS_SCHEMA.empty_table()

    def next_tick(self, tick: int) -> int | None:
        """Return None."""
        return None

    def topology(self) -> Topology:
        """Return an empty topology."""
        return empty_topology()

    def rows_a_tick(self) -> float:
        """Return 0."""
        return 0.0


@dataclass(frozen=True)
class FollowingTraffic:
    """Traffic whose messages enter at the current chain of their receiver.

    Messages for a program on no chain enter at its first chain, which refuses them.

    Attributes:
        inner: The original traffic.
        ticks: Tick of each move.
        programs: Program of each move.
        hosts: Target chain of each move; None: none.
        homes: First chain of the program of each move.
    """

    inner: ScenarioTraffic
    ticks: tuple[int, ...]
    programs: tuple[int, ...]
    hosts: tuple[int | None, ...]
    homes: tuple[int | None, ...]

    def rows(self, tick: int, chains: U64) -> pa.Table:
        """Return the rows of ``tick`` for ``chains``, by chain, then by first chain and order there."""
        locations: dict[int, tuple[int, int]] = {}
        for since, program, host, home in zip(self.ticks, self.programs, self.hosts, self.homes, strict=True):
            if since <= tick and home is not None:
                locations[program] = (home, home if host is None else host)
        away = {program: place for program, place in locations.items() if place[0] != place[1]}
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
        """Return the first tick at or after ``tick`` with any row, or None."""
        return self.inner.next_tick(tick)

    def topology(self) -> Topology:
        """Return the chains and programs of the original traffic."""
        return self.inner.topology()

    def rows_a_tick(self) -> float:
        """Return the mean number of rows a tick with traffic."""
        return self.inner.rows_a_tick()


def empty_topology() -> Topology:
    """Return a topology without chains and programs."""
    return Topology(CHAINS_SCHEMA.empty_table(), PROGRAMS_SCHEMA.empty_table())


def open_traffic(
    section: traffic_settings.TrafficSection,
    own: Topology,
    moves: Sequence[tuple[str, MoveSection]],
    seed: int,
    path: str,
    folder: str | os.PathLike[str] | None,
    spark: Session | None,
    prepared: bool = False,
) -> ScenarioTraffic:
    """Create the traffic of a section.

    Args:
        section: The section ``[traffic]``.
        own: Chains and programs of the scenario file.
        moves: Moves of programs, with their keys.
        seed: Seed of the network.
        path: The scenario file, for errors.
        folder: Folder for sorted recorded traffic.
        spark: Prepares it in parallel; None: this process does.
        prepared: Use the folder without reading the recording.

    Raises:
        InvalidInput: The section is invalid, or recorded traffic has no folder.
    """
    if isinstance(section, traffic_settings.ScriptSection):
        directory = NameDirectory(own, path)
        return scripted_traffic(section, genesis_chains(genesis_topology(own)), directory.moves(moves), directory)
    if isinstance(section, traffic_settings.RecordedSection):
        if folder is None:
            raise InvalidInput(
                f"{path}: traffic: recorded traffic needs a folder to be sorted into; name a lake (--lake DIR)"
            )
        if prepared:
            return _follow_moves(prepared_traffic(os.fspath(folder)), own, moves, path)
        return _follow_moves(recorded_traffic(section, own, os.fspath(folder), path, spark), own, moves, path)
    if isinstance(section, traffic_settings.GeneratedSection):
        return _follow_moves(generated_traffic(section, own, seed, path), own, moves, path)
    return NoTraffic()


def _follow_moves(
    inner: ScenarioTraffic, own: Topology, moves: Sequence[tuple[str, MoveSection]], path: str
) -> ScenarioTraffic:
    """Redirect traffic by the moves of programs, if there are any."""
    if not moves and not own.membership.spans:
        return inner
    whole = merge_topologies(own, inner.topology())
    table = NameDirectory(whole, path).moves(moves)
    home_of = dict(zip(whole.programs["number"].to_pylist(), whole.programs["chain"].to_pylist(), strict=True))
    ticks, programs, hosts = (tuple(table[name].to_pylist()) for name in ("tick", "program", "chain"))
    return FollowingTraffic(inner, ticks, programs, hosts, tuple(home_of.get(program) for program in programs))


def ticks_with_traffic(traffic: Traffic, first: int, end: int | None, most: int) -> list[int] | None:
    """Return the ticks with traffic in a range, or None if there are too many.

    Args:
        traffic: The traffic.
        first: First tick.
        end: End of the range, exclusive; None: none.
        most: Maximum number of ticks.
    """
    found: list[int] = []
    tick = traffic.next_tick(first)
    while tick is not None and (end is None or tick < end):
        if len(found) == most:
            return None
        found.append(tick)
        tick = traffic.next_tick(tick + 1)
    return found


def last_tick(traffic: Traffic) -> int | None:
    """Find the last tick with traffic by doubling and bisection.

    Args:
        traffic: The traffic.

    Returns:
        The tick, or None without traffic.
    """
    known = traffic.next_tick(0)
    if known is None:
        return None
    beyond = known + 1
    while (found := traffic.next_tick(beyond)) is not None:
        known, beyond = found, 2 * found + 1
    # No traffic from ``beyond`` on: bisect for the last tick before it.
    while beyond - known > 1:
        middle = (known + beyond) // 2
        found = traffic.next_tick(middle)
        known, beyond = (known, middle) if found is None else (found, beyond)
    return known
