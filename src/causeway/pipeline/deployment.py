"""What a task knows of a network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.traffic import Traffic
from causeway.pipeline.record import SCHEMAS, Outside, Record
from causeway.protocols.contract import AnyKernel, Chains

_NOTHING = {kind: schema.empty_table() for kind, schema in SCHEMAS.items()}


@dataclass(frozen=True)
class Deployment:
    """A network, ready to be run: its kernel, its traffic, and how its chains are cut into buckets. Picklable.

    ``buckets``: positions [first, end) of each bucket's chains. ``numbers``: the chains' numbers by position, as the
    traffic knows them. ``record``: of what comes from outside beside the traffic, None where nothing
    does.
    """

    kernel: AnyKernel
    traffic: Traffic
    buckets: tuple[tuple[int, int], ...]
    numbers: npt.NDArray[np.uint64]
    record: Record | None = None

    def ingress(self, tick: int, outside: Outside, chains: Chains) -> pa.Table:
        """Return the messages of users to ``chains`` (positions) in ``tick``: the traffic's, then the record's."""
        rows = self.traffic.rows(tick, self.numbers[chains])
        return pa.concat_tables([rows, self._recorded(outside, "ingress", chains)]) if outside else rows

    def carried(self, outside: Outside, chains: Chains) -> pa.Table:
        """Return the wire bytes that were carried to ``chains`` (positions)."""
        return self._recorded(outside, "carried", chains)

    def _recorded(self, outside: Outside, kind: str, chains: Chains) -> pa.Table:
        if self.record is None or kind not in outside:
            return _NOTHING[kind]
        return self.record.rows(outside, kind, self.numbers[chains])

    def chains(self, bucket: int) -> Chains:
        """Return the positions of a bucket's chains."""
        first, end = self.buckets[bucket]
        return np.arange(first, end, dtype=np.uint32)

    def names(self, chains: Iterable[int]) -> tuple[str, ...]:
        """Return the names of chains by their positions; a position of no chain, which only an altered lake has, is
        named as such."""
        known = self.kernel.chains()
        return tuple(known[chain] if chain < len(known) else f"chain {chain}" for chain in chains)

    def buckets_of(self, chains: Chains) -> npt.NDArray[np.int64]:
        """Return the bucket of each chain."""
        ends = np.array([end for _, end in self.buckets])
        return np.searchsorted(ends, chains, side="right")
