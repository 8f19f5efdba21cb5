"""The registry at one version: subnets, and the host of each canister; round metadata.

See IC reference 2.7.

Chains are *positions* here and in every column of the kernel: rows of the subnets sorted by id bytes. So ascending
positions are the reference's ascending subnet ids, and a position fits 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64, find_positions

from causeway.config.topology import Topology
from causeway.core.frame import Frame
from causeway.core.joins import encode_keys
from causeway.protocols.contract import NO_HOST, Chains, Hosts
from causeway.protocols.ic.ids import subnet_order
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.shared.execution import ProgramRunner
from causeway.protocols.shared.option_values import NANOSECONDS

SYSTEM, NNS = "system", "nns"
"""Roles of subnets: system subnets, and the one of them that governs the network."""

NO_CHAINS: Chains = np.empty(0, dtype=np.uint32)

WITH_SPLITS = {"splitting": "on", "vsr": "deployed", "sender_mismatch": "deployed", "migrations": "on"}
"""Options required in a network with splits of subnets.

With others, messages of and for moving canisters would be dropped and calls would stay unanswered.
"""

DENSE_LIMIT = 1 << 24
"""Canister numbers below this are looked up in an array, larger ones by bisection."""


@dataclass(frozen=True)
class Registry:
    """One version of the registry. Positions are the same in all versions.

    Attributes:
        version: The number of the version.
        subnets: Numbers of the subnets by position.
        canisters: Known canisters, ascending.
        hosts: The position of each canister's subnet; ``NO_HOST`` if ``subnet_assignment`` does not map it.
        trace_canisters: For every moved canister, one row for each of its hosts, from first to present.
        trace_hosts: The hosts of these rows.
        newcomers: Canisters without a host at genesis, and hosted without a break since.
        moved: Canisters that changed their host, ascending.
        move_ticks: The tick of each one's last move.
        members: Mask of the subnets in the registry, by position.
        nodes: Numbers of each subnet's nodes, ascending, by position.
        system: Mask of system subnets, ``nns`` included.
        nns: Mask of the governing subnet.
        endpoints: Node addresses of member subnets of other lakes.
    """

    version: int
    subnets: U64
    canisters: U64
    hosts: Hosts
    trace_canisters: U64
    trace_hosts: Hosts
    newcomers: U64
    moved: U64
    move_ticks: U64
    members: npt.NDArray[np.bool_]
    nodes: tuple[tuple[int, ...], ...]
    system: npt.NDArray[np.bool_]
    nns: npt.NDArray[np.bool_]
    endpoints: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def has_ended(self) -> bool:
        """Return True if any canister that had a host has none now."""
        return bool((self.host_of(self.trace_canisters) == NO_HOST).any())

    @cached_property
    def _dense(self) -> Hosts | None:
        if len(self.canisters) == 0 or int(self.canisters[-1]) >= DENSE_LIMIT:
            return None
        table = np.full(int(self.canisters[-1]) + 2, NO_HOST, dtype=np.int32)
        table[self.canisters] = self.hosts
        return table

    @cached_property
    def _dense_since(self) -> U64 | None:
        if len(self.moved) == 0 or int(self.moved[-1]) >= DENSE_LIMIT:
            return None
        table = np.zeros(int(self.moved[-1]) + 2, dtype=np.uint64)
        table[self.moved] = self.move_ticks
        return table

    def has(self, chains: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of ``chains`` (positions) in the registry; invalid positions are not."""
        known: npt.NDArray[np.bool_] = chains < len(self.members)
        return known & self.members[np.where(known, chains, 0)] if len(self.members) else known

    def nodes_of(self, chain: int) -> tuple[int, ...]:
        """Return the nodes of the subnet at position ``chain``, ascending; none if it is no member."""
        return self.nodes[chain] if self.members[chain] else ()

    def host_of(self, canisters: U64) -> Hosts:
        """Return the position of each canister's subnet (``subnet_assignment``), or ``NO_HOST``."""
        dense = self._dense
        if dense is not None:
            hosts: Hosts = dense[np.minimum(canisters, np.uint64(len(dense) - 1))]
            return hosts
        if len(self.canisters) == 0:
            return np.full(len(canisters), NO_HOST, dtype=np.int32)
        rows = np.minimum(np.searchsorted(self.canisters, canisters), len(self.canisters) - 1)
        return np.where(self.canisters[rows] == canisters, self.hosts[rows], NO_HOST).astype(np.int32)

    def hosted_since(self, canisters: U64) -> U64:
        """Return the tick of each canister's last move, 0 if it never moved."""
        dense = self._dense_since
        if dense is not None:
            since: U64 = dense[np.minimum(canisters, np.uint64(len(dense) - 1))]
            return since
        found = find_positions(self.moved, canisters)
        return np.where(found >= 0, np.append(self.move_ticks, np.uint64(0))[found], np.uint64(0))

    def position_on_trace(
        self, canisters: U64, chains: npt.NDArray[Any], *, last: bool = False
    ) -> npt.NDArray[np.int64]:
        """Return the first (or ``last``) index of each chain on its canister's trace, or -1.

        Args:
            canisters: Numbers of canisters.
            chains: A position of a chain for each.
            last: True for the last occurrence.
        """
        if len(self.trace_canisters) == 0 or len(canisters) == 0:
            return np.full(len(canisters), -1, dtype=np.int64)
        trace = Frame({"program": self.trace_canisters, "chain": self.trace_hosts.view(np.uint32)})
        trace_keys, keys = encode_keys(
            ("program", "chain"), trace, Frame({"program": canisters, "chain": chains.astype(np.uint32, copy=False)})
        )
        order = np.argsort(trace_keys, kind="stable")
        ordered = trace_keys[order]
        rows = np.searchsorted(ordered, keys, side="right") - 1 if last else np.searchsorted(ordered, keys)
        rows = np.clip(rows, 0, len(ordered) - 1)
        return np.where(ordered[rows] == keys, order[rows], -1)

    def last_hosts(self, canisters: U64) -> Hosts:
        """Return the current or last host of each canister; ``NO_HOST`` if it never had one."""
        hosts = self.host_of(canisters)
        if len(self.trace_canisters):
            rows = np.searchsorted(self.trace_canisters, canisters, side="right") - 1
            is_removed = (hosts == NO_HOST) & (rows >= 0) & (self.trace_canisters[np.maximum(rows, 0)] == canisters)
            hosts[is_removed] = self.trace_hosts[rows[is_removed]]
        return hosts


def subnet_positions(topology: Topology) -> U64:
    """Return the numbers of a topology's subnets by position, the order of their id bytes."""
    numbers: U64 = topology.chains["number"].to_numpy().astype(np.uint64)
    return numbers[np.argsort(subnet_order(numbers), kind="stable")]


def splitting_subnets(topology: Topology, subnets: U64, tick: int) -> Chains:
    """Return the positions of the subnets with a splitting batch at ``tick`` (X-14).

    Args:
        topology: The network.
        subnets: The numbers of all subnets by position.
        tick: The tick.
    """
    numbers = np.array(topology.membership.splitting(tick), dtype=np.uint64)
    return np.flatnonzero(np.isin(subnets, numbers)).astype(np.uint32) if len(numbers) else NO_CHAINS


def change_ticks(topology: Topology) -> list[int]:
    """Return the ticks with a new registry version, ascending."""
    return sorted({*topology.moves["tick"].to_pylist(), *topology.membership.ticks})


def registry_at(topology: Topology, tick: int, nodes: int = 1) -> Registry:
    """Return the registry version in force in the round of ``tick``.

    It applies all moves and changes of subnets and nodes up to that tick. The changes of one tick make one version; the
    last move of a canister at a tick counts.

    Args:
        topology: The network.
        tick: The tick.
        nodes: The default number of nodes of a subnet.
    """
    subnets = subnet_positions(topology)
    by_number = np.argsort(subnets)
    canisters = topology.programs["number"].to_numpy().astype(np.uint64)
    order = np.argsort(canisters, kind="stable")
    canisters = canisters[order]
    hosts = _positions(topology.programs["chain"].combine_chunks().take(pa.array(order)), subnets, by_number)
    moves = topology.moves.sort_by([("tick", "ascending")])
    ticks = moves["tick"].to_numpy()
    applied = int(np.searchsorted(ticks, tick, side="right"))
    moved = moves["program"].to_numpy().astype(np.uint64)[:applied]
    targets = _positions(moves["chain"].combine_chunks()[:applied], subnets, by_number)
    traces: dict[int, list[int]] = {}
    newcomers: dict[int, bool] = {}
    since: dict[int, int] = {}
    rows = zip(ticks[:applied].tolist(), moved.tolist(), targets.tolist(), strict=True)
    last = {(at, canister): target for at, canister, target in rows}
    for (at, canister), target in last.items():
        row = int(np.searchsorted(canisters, canister))
        if hosts[row] == target:
            continue
        if hosts[row] != NO_HOST or traces.get(canister):
            newcomers[canister] = newcomers.get(canister, False) and target != NO_HOST
        elif target != NO_HOST:
            newcomers[canister] = True
        trace = traces.setdefault(canister, [int(hosts[row])] if hosts[row] != NO_HOST else [])
        hosts[row] = target
        since[canister] = at
        if target != NO_HOST:
            trace.append(target)
    passed = [(canister, host) for canister in sorted(traces) for host in traces[canister]]
    return Registry(
        version=1 + sum(changed <= tick for changed in change_ticks(topology)),
        subnets=subnets,
        canisters=canisters,
        hosts=hosts,
        trace_canisters=np.array([canister for canister, _ in passed], dtype=np.uint64),
        trace_hosts=np.array([host for _, host in passed], dtype=np.int32),
        moved=np.array(sorted(since), dtype=np.uint64),
        move_ticks=np.array([since[canister] for canister in sorted(since)], dtype=np.uint64),
        newcomers=np.array(sorted(canister for canister, new in newcomers.items() if new), dtype=np.uint64),
        members=topology.membership.members(subnets, tick),
        nodes=_nodes(topology, subnets, tick, nodes),
        system=_with_role(topology, subnets, SYSTEM, NNS),
        nns=_with_role(topology, subnets, NNS),
    )


def check_registry(topology: Topology, options: IcOptions) -> None:
    """Check the subnets of a topology.

    There is one NNS at most, only existing nodes are removed, and splits need suitable options.

    Raises:
        InvalidInput: A check fails.
    """
    names = dict(zip(topology.chains["number"].to_pylist(), topology.chains["name"].to_pylist(), strict=True))
    governing = [names[number] for number, role in topology.roles.items() if role == NNS]
    if len(governing) > 1:
        raise InvalidInput(f'chains: {", ".join(governing)} have role = "{NNS}"; allowed: one')
    if topology.membership.splits:
        for name, value in WITH_SPLITS.items():
            if (found := getattr(options, name)) != value:
                raise InvalidInput(f'options.{name}: "{found}": allowed with splits: "{value}"')
    mistake = topology.membership.first_invalid_change(options.nodes)
    if mistake is not None:
        change = topology.membership.changes[mistake[0]]
        raise InvalidInput(f"nodes of {names[change.chain]}: {mistake[1]}")


def _with_role(topology: Topology, subnets: U64, *roles: str) -> npt.NDArray[np.bool_]:
    having = [number for number, role in topology.roles.items() if role in roles]
    return np.isin(subnets, np.array(having, dtype=np.uint64))


def _nodes(topology: Topology, subnets: U64, tick: int, default: int) -> tuple[tuple[int, ...], ...]:
    membership = topology.membership
    if not membership.nodes and not membership.changes:
        return (tuple(range(default)),) * len(subnets)
    return tuple(membership.nodes_of(chain, tick, default) for chain in subnets.tolist())


def _positions(chains: Any, subnets: U64, by_number: npt.NDArray[np.intp]) -> Hosts:
    if isinstance(chains, pa.ChunkedArray):
        chains = chains.combine_chunks()
    mapped = chains.is_valid().to_numpy(zero_copy_only=False)
    numbers = chains.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    if len(numbers) == 0:
        return np.empty(0, dtype=np.int32)
    rows = np.minimum(np.searchsorted(subnets[by_number], numbers), len(subnets) - 1)
    return np.where(mapped, by_number[rows], NO_HOST).astype(np.int32)


def lifetime_ticks(options: IcOptions, tick_ns: int) -> int:
    """Return the lifetime of a request in ticks, rounded up."""
    return -(-options.request_lifetime_seconds * NANOSECONDS // tick_ns)


@dataclass(frozen=True)
class Context:
    """The metadata of a round.

    Attributes:
        height: The height of the lake.
        tick: The tick.
        tick_ns: Nanoseconds a tick; the batch time is ``tick * tick_ns``, from the scenario and not from a clock.
        seed: The scenario's seed.
        chains: The positions of the chains that run the round.
        registry: The registry version in force.
        options: The protocol options.
        programs: The canisters' programs.
        before: The registry version of the previous round.
        splitting: The positions of the chains with a splitting batch (X-14), which run no round.
    """

    height: int
    tick: int
    tick_ns: int
    seed: int
    chains: Chains
    registry: Registry
    options: IcOptions
    programs: ProgramRunner
    before: Registry
    splitting: Chains
