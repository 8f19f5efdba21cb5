"""The subnets of the network in a lake: their ids and keys, and what a round of theirs knew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from causeway.model.errors import InvalidInput
from causeway.model.order import U64
from causeway.network.opened import OpenedLake
from causeway.pipeline.lake import Manifest
from causeway.programs.runner import Programs
from causeway.protocols.ic.certifying import Certifier, listed_keys
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.ids import subnet_id
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.registry import registry_at, splitting_at, subnet_positions

KEPT = 16
"""Lakes of which they are kept in memory."""


@dataclass(frozen=True, eq=False)
class Subnets:
    """The subnets of a lake that certifies, by position."""

    opened: OpenedLake
    options: IcOptions

    @cached_property
    def numbers(self) -> U64:
        """Return the subnets' numbers."""
        return subnet_positions(self.opened.topology)

    def id_of(self, position: int) -> bytes:
        """Return the id of the subnet at a position."""
        return subnet_id(int(self.numbers[position]))

    def key_of(self, position: int) -> bytes:
        """Return the public key under which the subnet at a position certifies, 96 bytes."""
        listed = listed_keys(self.options, self.opened.names)
        return Certifier(self.numbers, self.opened.seed, self.options, listed=listed).public_key(position)

    def context(self, position: int, manifest: Manifest) -> Context:
        """Return what the round of a height knew, of the subnet at a position alone; no program can be run by it."""
        opened = self.opened
        nothing = Programs(replace(opened.topology, programs=opened.topology.programs.slice(0, 0)))
        chains = np.array([position], dtype=np.uint32)
        tick = manifest.tick
        registry, before = (registry_at(opened.topology, at, self.options.nodes) for at in (tick, max(tick, 1) - 1))
        clock = (manifest.height, tick, opened.tick_ns)
        splitting = splitting_at(opened.topology, self.numbers, tick)
        return Context(*clock, opened.seed, chains, registry, self.options, nothing, before, splitting)


@lru_cache(maxsize=KEPT)
def subnets_of(opened: OpenedLake) -> Subnets:
    """Return the subnets of a network under ``ic`` that certify their states.

    Raises:
        InvalidInput: the network has another protocol, or ``certification = off``.
    """
    where = opened.lake.storage.uri
    if opened.protocol != "ic":
        raise InvalidInput(f"lake: {where} is of the protocol {opened.protocol}; only one of ic has subnets")
    options = IcOptions(**opened.options)
    if not options.certified:
        raise InvalidInput(
            f'lake: {where}: its subnets certify nothing (certification = "off"); there are certificates of runs '
            'with certification = "bls" or "threshold"'
        )
    return Subnets(opened, options)


__all__ = ["Subnets", "subnets_of"]
