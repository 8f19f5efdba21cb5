"""What a task knows of a network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.traffic import CARRIED_SCHEMA, Traffic
from causeway.pipeline.record import Record
from causeway.protocols.contract import AnyKernel, Chains


@dataclass(frozen=True)
class Deployment:
    """A network, ready to be run: its kernel, its traffic, and how its chains are cut into buckets. Picklable.

    ``buckets``: positions [first, end) of each bucket's chains. ``numbers``: the chains' numbers by position, as the
    traffic knows them. ``record``: where it is written down what came from outside, None for a network to which nothing
    comes but its traffic.
    """

    kernel: AnyKernel
    traffic: Traffic
    buckets: tuple[tuple[int, int], ...]
    numbers: npt.NDArray[np.uint64]
    record: Record | None = None

    def ingress(self, tick: int, chains: Chains) -> pa.Table:
        """Return the messages of users to ``chains`` (positions) in ``tick``: the traffic's, then the record's."""
        numbers = self.numbers[chains]
        rows = self.traffic.rows(tick, numbers)
        return rows if self.record is None else pa.concat_tables([rows, self.record.ingress(tick, numbers)])

    def carried(self, tick: int, chains: Chains) -> pa.Table:
        """Return the wire bytes that were carried to ``chains`` (positions) in ``tick``."""
        if self.record is None:
            return CARRIED_SCHEMA.empty_table()
        return self.record.carried(tick, self.numbers[chains])

    def chains(self, bucket: int) -> Chains:
        """Return the positions of a bucket's chains."""
        first, end = self.buckets[bucket]
        return np.arange(first, end, dtype=np.uint32)

    def buckets_of(self, chains: Chains) -> npt.NDArray[np.int64]:
        """Return the bucket of each chain."""
        ends = np.array([end for _, end in self.buckets])
        return np.searchsorted(ends, chains, side="right")
