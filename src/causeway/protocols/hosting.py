"""Where programs live in a network in which they never move, and what a kernel of such a network says of it.

Chains are positions here and in every column of a kernel; each protocol has its own order of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.order import U64, positions_in
from causeway.model.topology import CHAINS_SCHEMA, Topology
from causeway.protocols.contract import NO_HOST, Chains, Hosts


def with_role(topology: Topology, role: str, title: str) -> Topology:
    """Return the topology with one chain that has ``role``, added by the name of the role where there is none.

    ``title``: what that chain is called in a sentence. Raises ``InvalidInput`` for two of them.
    """
    having = [number for number, given in topology.roles.items() if given == role]
    names = topology.chains["name"].to_pylist()
    if len(having) > 1:
        named = dict(zip(topology.chains["number"].to_pylist(), names, strict=True))
        both = " and ".join(repr(named[number]) for number in sorted(having)[:2])
        raise InvalidInput(f"chains: {both} have the role {role!r}; allowed: one chain")
    if having:
        return topology
    if topology.external:
        text = f"a network in several lakes has one {role} chain"
        raise InvalidInput(f"chains: {text}: name it in every scenario, with role = {role!r}")
    if role in names:
        text = f"say role = {role!r} if it is {title}, or call it otherwise"
        raise InvalidInput(f"chains: {role!r} is a chain without a role; {text}")
    number = max(topology.chains["number"].to_pylist(), default=-1) + 1
    added = pa.table({"number": [number], "name": [role]}, schema=CHAINS_SCHEMA)
    chains = pa.concat_tables([topology.chains, added])
    return replace(topology, chains=chains, roles={**topology.roles, number: role})


@dataclass(frozen=True)
class Hosting(ABC):
    """The chains of a topology by position, and the chain of each program."""

    topology: Topology

    @abstractmethod
    def _rank(self, name: str, number: int) -> Any:
        """Return what chains are put in order by; ``number``: the chain's in the topology."""

    @cached_property
    def _order(self) -> list[tuple[str, int]]:
        rows = zip(self.topology.chains["name"].to_pylist(), self.topology.chains["number"].to_pylist(), strict=True)
        return sorted(rows, key=lambda row: self._rank(*row))

    @cached_property
    def names(self) -> list[str]:
        """Return the chains' names by position."""
        return [name for name, _ in self._order]

    @cached_property
    def numbers(self) -> U64:
        """Return the chains' numbers in the topology by position."""
        return np.array([number for _, number in self._order], dtype=np.uint64)

    def positions_of(self, numbers: U64) -> Chains:
        """Return the position of each chain, given by its number."""
        order = np.argsort(self.numbers, kind="stable")
        positions: Chains = order[np.searchsorted(self.numbers[order], numbers)].astype(np.uint32)
        return positions

    @cached_property
    def _programs(self) -> tuple[U64, Hosts]:
        numbers: U64 = self.topology.programs["number"].to_numpy().astype(np.uint64)
        by_number = {int(number): position for position, number in enumerate(self.numbers)}
        chains = self.topology.programs["chain"].to_pylist()
        hosts = [NO_HOST if chain is None else by_number[chain] for chain in chains]
        order = np.argsort(numbers, kind="stable")
        return numbers[order], np.array(hosts, dtype=np.int32)[order]

    @property
    def programs(self) -> U64:
        """Return the numbers of all programs, ascending."""
        return self._programs[0]

    def host_of(self, programs: U64) -> Hosts:
        """Return the chain of each program, ``NO_HOST`` for one that is on none."""
        known, hosts = self._programs
        if len(known) == 0:
            return np.full(len(programs), NO_HOST, dtype=np.int32)
        rows = positions_in(known, programs)
        return np.where(rows >= 0, hosts[rows], np.int32(NO_HOST))

    def programs_on(self, chains: Chains) -> U64:
        """Return the numbers of the programs on ``chains``, ascending."""
        programs, hosts = self._programs
        return programs[np.isin(hosts, chains.astype(np.int32))]

    @property
    def hosting_chains(self) -> Chains:
        """Return the chains that host programs, ascending."""
        _, hosts = self._programs
        return np.unique(hosts[hosts >= 0]).astype(np.uint32)


class HostedForGood(ABC):
    """The part of a kernel (``contract.Kernel``) that says which chains there are and where programs live."""

    @property
    @abstractmethod
    def hosting(self) -> Hosting:
        """Return the chains, and where programs live."""

    def chains(self) -> Sequence[str]:
        """Return the chains' names by position."""
        return self.hosting.names

    def numbers(self) -> U64:
        """Return the chains' numbers in the topology by position."""
        return self.hosting.numbers

    def weights(self) -> npt.NDArray[np.float64]:
        """Return how much work each chain is: one more than it has programs."""
        hosts = self.hosting.host_of(self.hosting.programs)
        return np.bincount(hosts[hosts >= 0], minlength=len(self.hosting.names)).astype(np.float64) + 1

    def registry_version(self, tick: int) -> int:
        """Return 0: programs stay on their chains."""
        return 0

    def hosts(self, programs: U64, tick: int) -> Hosts:
        """Return the chain of each program, at any tick."""
        return self.hosting.host_of(programs)
