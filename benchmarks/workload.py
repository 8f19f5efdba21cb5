"""The workload of the benchmarks: canisters that play ping-pong, so that every tick carries as many messages.

Half of the rallies start at tick 0 and half at tick 1; from then on half of what is under way are requests, half
responses. All of it is drawn by arithmetic on the rally's number, so that a task makes the rows of its own chains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import binary_rows
from causeway_proofs.order import U64

from causeway.config.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.ingress_call import CALL_METHOD, encode_calls
from causeway.network.deploy import partition_chains
from causeway.programs.runner import Programs
from causeway.protocols.ic.kernel import IcKernel
from causeway.protocols.ic.options import IcOptions
from causeway.storage.table_schemas import TableSchemas
from causeway.tick.deployment import Deployment

Certification = Literal["off", "bls", "threshold"]
CERTIFICATIONS: dict[str, Certification] = {name: name for name in get_args(Certification)}
"""The protocol's option, by its own name."""

START_TICKS = 2
"""Rallies start at the ticks 0 and 1."""

USER = np.uint64(2**40)
"""The number of the user who starts all rallies; no canister has it."""

WORD_BYTES = 8


@dataclass(frozen=True)
class Workload:
    """A steady state: ``messages`` under way at every tick, between ``canisters`` spread evenly over ``subnets``.

    Every canister calls at most ``peers`` others; payloads are ``payload_bytes`` long and differ from rally to rally.
    ``certification``: the protocol's option.
    """

    messages: int
    subnets: int = 40
    canisters: int = 20_000
    payload_bytes: int = 64
    peers: int = 8
    certification: Certification = "off"

    def subnet_of(self, canisters: U64) -> U64:
        """Return the subnet number of each canister: a subnet holds a range of them, as on the Internet Computer."""
        return canisters * np.uint64(self.subnets) // np.uint64(self.canisters)

    def topology(self) -> Topology:
        """Return the subnets and canisters, every canister running the program ``ping_pong``."""
        chains = np.arange(self.subnets, dtype=np.uint64)
        numbers = np.arange(self.canisters, dtype=np.uint64)
        return Topology(
            chains=pa.Table.from_arrays([chains, [f"subnet-{number}" for number in chains]], schema=CHAINS_SCHEMA),
            programs=pa.Table.from_arrays(
                [
                    pa.array(numbers),
                    pa.array([f"canister-{number}" for number in numbers]),
                    pa.array(self.subnet_of(numbers)),
                    pa.array(["ping_pong"] * self.canisters),
                    pa.array(["{}"] * self.canisters),
                    pa.array([0] * self.canisters, pa.decimal128(38, 0)),
                ],
                schema=PROGRAMS_SCHEMA,
            ),
        )

    def deployment(self, partitions: int) -> Deployment:
        """Return the network made ready for an executor, its chains cut into at most ``partitions`` buckets."""
        topology = self.topology()
        options = IcOptions(certification=self.certification)
        kernel = IcKernel(topology=topology, programs=Programs(topology), options=options)
        return Deployment(kernel, SteadyTraffic(self), partition_chains(kernel.weights(), partitions), kernel.numbers())


def description(deployment: Deployment) -> dict[str, Any]:
    """Return what a lake of the workload says of its network."""
    kernel = deployment.kernel
    chains = zip(kernel.numbers().tolist(), kernel.chains(), strict=True)
    return {
        "protocol": "ic",
        "asset": "cycles",
        "scenario": {"network": {"seed": 0}, "options": {}, "traffic": {}},
        "seconds_per_tick": 1.0,
        "buckets": [list(bucket) for bucket in deployment.buckets],
        "chains": [{"number": number, "name": name} for number, name in chains],
        "tables": TableSchemas.of(kernel).encoded(),
    }


@dataclass(frozen=True)
class SteadyTraffic:
    """The ingress messages that start the rallies of a workload."""

    workload: Workload

    def rows(self, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return the ingress rows of ``tick`` for ``chains``: one call a rally, at the canister that plays it."""
        if tick >= START_TICKS:
            return INGRESS_SCHEMA.empty_table()
        work = self.workload
        total, canisters = np.uint64(work.messages), np.uint64(work.canisters)
        rallies = np.arange(tick, work.messages, START_TICKS, dtype=np.uint64)
        # Few rallies are spread over all canisters, many are dealt out in turns.
        caller = rallies * canisters // total if total < canisters else rallies % canisters
        here = np.isin(work.subnet_of(caller), chains)
        rallies, caller = rallies[here], caller[here]
        turn = rallies if total < canisters else rallies // canisters
        callee = peer_of(caller, turn % np.uint64(work.peers), canisters)
        order = np.argsort(caller, kind="stable")
        rallies, caller, callee = rallies[order], caller[order], callee[order]
        length = len(rallies)
        return pa.Table.from_arrays(
            [
                pa.array(work.subnet_of(caller)),
                pa.array(caller),
                pa.array(np.full(length, USER)),
                pa.array([CALL_METHOD], pa.string()).take(pa.array(np.zeros(length, dtype=np.int32))),
                encode_calls(callee, 0, 0, "ping", payloads(rallies, work.payload_bytes)),
            ],
            schema=INGRESS_SCHEMA,
        )

    def next_tick(self, tick: int) -> int | None:
        """Return ``tick`` while rallies are being started, then None."""
        return tick if tick < START_TICKS else None


def peer_of(canister: U64, turn: U64, canisters: np.uint64) -> U64:
    """Return the peer of each canister at a turn: any other canister, always the same."""
    one = np.uint64(1)
    return (canister + one + mixed(canister * np.uint64(1 << 16) + turn) % (canisters - one)) % canisters


def payloads(rallies: U64, width: int) -> pa.BinaryArray:
    """Return a payload of ``width`` bytes for each rally, all different (from 8 bytes on) and without a pattern."""
    words = -(-width // WORD_BYTES)
    # The first word is the rally's number mixed, which is one to one.
    columns = [mixed(rallies + np.uint64(word << 48)) for word in range(words)]
    content = np.stack(columns, axis=1).view(np.uint8)[:, :width] if words else np.empty((len(rallies), 0), np.uint8)
    return binary_rows(content)


def mixed(values: U64) -> U64:
    """Return SplitMix64's finaliser of each value: one to one, and without a pattern."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
