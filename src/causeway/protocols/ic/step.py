"""What a step of a round gives: the state after it, and what it leaves to the steps that follow."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from causeway.model.frame import Frame, empty_frame
from causeway.protocols.events import EventLog
from causeway.protocols.ic.state import State
from causeway.protocols.messages import LANE_COLUMNS, MESSAGE_COLUMNS, OUTBOUND_SCHEMA

ARRIVALS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        *(OUTBOUND_SCHEMA.field(name) for name in [*LANE_COLUMNS, *MESSAGE_COLUMNS]),
        pa.field("via", pa.uint8(), nullable=False),
        pa.field("queue_index", pa.uint64(), nullable=False),
    ]
)
"""A push to an input queue on ``chain``: the message and its place there, by which way it came, and where it was in a
lane (``source`` and ``destination`` are ``NO_CHAIN`` when in none)."""

INGRESS_ARRIVALS_SCHEMA = pa.schema(
    [ARRIVALS_SCHEMA.field(name) for name in ["chain", *MESSAGE_COLUMNS, "queue_index"]]
)
"""A push to an ingress queue."""

ONWARD_SCHEMA = pa.schema(
    [OUTBOUND_SCHEMA.field(name) for name in ["source", *MESSAGE_COLUMNS, "queue_index", "sent_tick"]]
)
"""A message that routing appends to a stream of ``source`` whatever the limits say; ``queue_index``: where it was in an
output queue, ``NO_QUEUE`` or ``FORGED`` if in none."""


@dataclass(frozen=True)
class Step:
    """``arrivals``: what was pushed to input queues (``ARRIVALS_SCHEMA``), ``ingress``: to ingress queues
    (``INGRESS_ARRIVALS_SCHEMA``); their events are written after execution, which knows what was consumed.
    ``onward``: what routing is to append to streams (``ONWARD_SCHEMA``). ``log``: the events of the step.
    """

    state: State
    log: EventLog = field(default_factory=EventLog)
    arrivals: Frame = field(default_factory=lambda: empty_frame(ARRIVALS_SCHEMA))
    ingress: Frame = field(default_factory=lambda: empty_frame(INGRESS_ARRIVALS_SCHEMA))
    onward: Frame = field(default_factory=lambda: empty_frame(ONWARD_SCHEMA))


@dataclass(frozen=True)
class Halted:
    """What a round leaves of chains that do not run it."""

    state: State
    outbound: Frame
    log: EventLog
