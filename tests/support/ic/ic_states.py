"""Generated canonical states of many subnets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from causeway_proofs.hashing import Digests
from causeway_proofs.ic.primitives import CertificationVersion
from causeway_proofs.ic.state_columns import CanonicalStates, CertifiedData, SectionColumns, StreamColumns

from causeway.protocols.ic.ids import canister_ids, subnet_id


def generated(
    seed: int, subnets: int, version: CertificationVersion, labels: tuple[str, ...] | None
) -> CanonicalStates:
    """Return states of which some have no streams, no canisters, no state before, no messages in a stream."""
    draw = np.random.default_rng(seed)

    def bytes_of(*shape: int) -> Digests:
        return draw.integers(0, 256, shape, dtype=np.uint8)

    streams = draw.integers(0, 41, subnets) * (draw.random(subnets) < 0.8)
    numbers = [np.sort(draw.choice(2**20, count, replace=False)) for count in streams]
    ids = [np.array(sorted(subnet_id(int(number)) for number in some), dtype="V10") for some in numbers]
    canisters = draw.integers(0, 4, subnets)
    return CanonicalStates(
        heights=draw.integers(0, 2**40, subnets, dtype=np.uint64) >> draw.integers(0, 40, subnets, dtype=np.uint64),
        previous=bytes_of(subnets, 32),
        has_previous=draw.random(subnets) < 0.7,
        times=draw.integers(0, 2**63, subnets, dtype=np.uint64),
        sections=None
        if labels is None
        else SectionColumns(labels, bytes_of(subnets, len(labels), 32), draw.random(subnets) < 0.6),
        certified_data=CertifiedData(
            np.repeat(np.arange(subnets), canisters),
            canister_ids(
                np.array(
                    [number for count in canisters for number in sorted(draw.integers(0, 2**63, count))], np.uint64
                )
            ),
            pa.array([draw.bytes(length) for length in draw.integers(0, 33, canisters.sum())], pa.binary()),
        ),
        streams=StreamColumns(
            np.repeat(np.arange(subnets), streams),
            np.frombuffer(b"".join(one.tobytes() for one in ids), dtype=np.uint8).reshape(-1, 10),
            pa.array([draw.bytes(length) for length in draw.integers(8, 40, streams.sum())], pa.binary()),
            bytes_of(int(streams.sum()), 32),
            draw.integers(0, 3, int(streams.sum()), dtype=np.uint64),
        ),
        version=version,
    )
