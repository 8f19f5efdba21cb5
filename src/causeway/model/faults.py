"""What goes wrong on purpose in a network: the faults of a scenario, by tick and chain."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

FORGED_SCHEMA = pa.schema(
    [
        pa.field("tick", pa.uint64(), nullable=False),
        pa.field("chain", pa.uint64(), nullable=False),
        pa.field("sender", pa.uint64(), nullable=False),
        pa.field("receiver", pa.uint64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""A byzantine chain puts a message into its outbound queue whose sender it does not own."""

CARRIER_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("source", pa.uint64()),
        pa.field("destination", pa.uint64()),
        pa.field("from", pa.uint64(), nullable=False),
        pa.field("until", pa.uint64(), nullable=False),
        pa.field("relayer", pa.string()),
    ]
)
"""What carriers do to the messages from ``source`` to ``destination`` (null: any) in the ticks ``from`` to ``until``,
both included: ``drop`` (nothing is offered), ``replay`` (old messages are offered again), ``gap`` (the offer starts
one too high), ``tamper`` (the offer's root, or its proof, is altered); under ``ibc`` also ``stale`` (proofs are for a
header of the height before), ``foreign`` (proofs are another chain's). ``relayer``: who does it (null: all)."""

FORKS_SCHEMA = pa.schema(
    [pa.field("chain", pa.uint64(), nullable=False), pa.field("tick", pa.uint64(), nullable=False)]
)
"""The validators of a chain sign a second header for its height before ``tick``, and it is shown to all others."""

DISCONNECTS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint64(), nullable=False),
        pa.field("remote", pa.uint64(), nullable=False),
        pa.field("tick", pa.uint64(), nullable=False),
    ]
)
"""``chain`` ends its connection with ``remote`` at ``tick``: it sends a final packet."""

HALTS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint64(), nullable=False),
        pa.field("from", pa.uint64(), nullable=False),
        pa.field("until", pa.uint64(), nullable=False),
    ]
)
"""A chain runs no rounds in the ticks ``from`` to ``until``, both included."""


@dataclass(frozen=True)
class Faults:
    """All faults of a scenario, chains as numbers. ``skip``: the probability that a destination takes nothing from one
    source at one tick (a slow block maker)."""

    forged: pa.Table = field(default_factory=FORGED_SCHEMA.empty_table)
    carriers: pa.Table = field(default_factory=CARRIER_SCHEMA.empty_table)
    halts: pa.Table = field(default_factory=HALTS_SCHEMA.empty_table)
    forks: pa.Table = field(default_factory=FORKS_SCHEMA.empty_table)
    skip: float = 0.0
    disconnects: pa.Table = field(default_factory=DISCONNECTS_SCHEMA.empty_table)
