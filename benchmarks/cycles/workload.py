"""The workload of ``cycles``: calls from programs of every zone to programs of every other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64

from benchmarks.workload import USER, mixed, payloads
from causeway.config.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.ingress_call import CALL_METHOD, encode_calls
from causeway.network.deploy import partition_chains
from causeway.programs.runner import Programs
from causeway.protocols.ibc.kernel import IbcKernel
from causeway.protocols.ibc.options import IbcOptions, RelayerOptions
from causeway.tick.deployment import Deployment

METHOD = "ping"

PROOFS = ("range", "single")
"""How relayers prove entries: a run of them with one proof, or each alone."""


@dataclass(frozen=True)
class Cycles:
    """``messages`` calls a tick for ``ticks`` ticks, each from a program to one of another zone, and answered.

    Every call is one cycle. ``programs`` are spread evenly over ``zones``, all of which are connected; bodies are
    ``payload_bytes`` long and all differ. ``proofs``: one of ``PROOFS``.
    """

    messages: int
    ticks: int = 1
    zones: int = 40
    programs: int = 20_000
    payload_bytes: int = 64
    proofs: str = "range"

    def __post_init__(self) -> None:
        """Raise ``InvalidInput`` for numbers that do not fit together."""
        if self.messages < 1 or self.ticks < 1:
            raise InvalidInput(f"messages, ticks: {self.messages}, {self.ticks}; at least 1 is allowed")
        if self.zones < 2 or self.programs < self.zones or self.programs % self.zones:
            raise InvalidInput(
                f"zones, programs: {self.zones}, {self.programs}; allowed: two zones or more, as many programs on each"
            )

    @property
    def cycles(self) -> int:
        """Return how many cycles there are in all."""
        return self.messages * self.ticks

    @property
    def programs_of_zone(self) -> int:
        """Return how many programs a zone has."""
        return self.programs // self.zones

    def topology(self) -> Topology:
        """Return the zones and their programs, every one a ``caller``."""
        zones = np.arange(self.zones, dtype=np.uint64)
        numbers = np.arange(self.programs, dtype=np.uint64)
        return Topology(
            chains=pa.Table.from_arrays([zones, [f"zone-{number}" for number in zones]], schema=CHAINS_SCHEMA),
            programs=pa.Table.from_arrays(
                [
                    pa.array(numbers),
                    pa.array([f"module-{number}" for number in numbers]),
                    pa.array(numbers // np.uint64(self.programs_of_zone)),
                    pa.array(["caller"] * self.programs),
                    pa.array(["{}"] * self.programs),
                    pa.array([0] * self.programs, pa.decimal128(38, 0)),
                ],
                schema=PROGRAMS_SCHEMA,
            ),
        )

    def deployment(self, partitions: int) -> Deployment:
        """Return the network made ready for an executor, its zones cut into at most ``partitions`` buckets."""
        topology = self.topology()
        options = IbcOptions(relay=RelayerOptions(proofs="single" if self.proofs == "single" else "range"))
        kernel = IbcKernel(topology=topology, programs=Programs(topology), options=options)
        return Deployment(kernel, CycleTraffic(self), partition_chains(kernel.weights(), partitions), kernel.numbers())


@dataclass(frozen=True)
class CycleTraffic:
    """The calls that users ask for, drawn by arithmetic on their numbers: a task makes the rows of its own zones."""

    work: Cycles

    def rows(self, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return the ingress rows of ``tick`` for ``chains``, by caller."""
        work = self.work
        if tick >= work.ticks or len(chains) == 0:
            return INGRESS_SCHEMA.empty_table()
        total, programs, own = (np.uint64(value) for value in (work.messages, work.programs, work.programs_of_zone))
        position = np.arange(work.messages, dtype=np.uint64)
        caller = position * programs // total
        here = np.isin(caller // own, chains)
        position, caller = position[here], caller[here]
        call = position + np.uint64(tick) * total
        callee = callee_of(caller, call, work)
        return pa.Table.from_arrays(
            [
                pa.array(caller // own),
                pa.array(caller),
                pa.array(np.full(len(call), USER)),
                pa.array([CALL_METHOD], pa.string()).take(pa.array(np.zeros(len(call), dtype=np.int32))),
                encode_calls(callee, 0, 0, METHOD, payloads(call, work.payload_bytes)),
            ],
            schema=INGRESS_SCHEMA,
        )

    def next_tick(self, tick: int) -> int | None:
        """Return ``tick`` while calls are being asked for, then None."""
        return tick if tick < self.work.ticks else None


def callee_of(caller: U64, call: U64, work: Cycles) -> U64:
    """Return the program that each call is for: any one of any other zone."""
    own, zones = np.uint64(work.programs_of_zone), np.uint64(work.zones)
    drawn = mixed(call ^ np.uint64(1 << 62))
    zone = (caller // own + np.uint64(1) + drawn % (zones - np.uint64(1))) % zones
    return zone * own + mixed(drawn) % own
