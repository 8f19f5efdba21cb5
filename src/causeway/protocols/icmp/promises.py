"""What egress queues and channels promise (ICMP reference 1.2)."""

from __future__ import annotations

from collections.abc import Iterator

from causeway.protocols.icmp.errors import NO_DESTINATION, Gone
from causeway.protocols.icmp.hrmp.lanes import CLOSED
from causeway.protocols.icmp.options import IcmpOptions
from causeway.protocols.promised import QUEUE, Lanes, Promise, may_drop, of_lanes


def promises(lanes: Lanes[IcmpOptions]) -> Iterator[Promise]:
    """Yield what lanes promise: messages are numbered, and come in order, none before all that were sent before it (G1,
    G2). Nothing promises an answer: it is a message as any other, and what is sent to a parachain that leaves, or does
    not want to hear it, is dropped, and so is what a watermark passes that moves with the clock (D-3, 5.1 (2), D-12).
    A channel that is closed drops what is in it (X-6). A queue that overflows loses messages: that is no promise."""
    for substream, own in lanes.substreams:
        yield from of_lanes(QUEUE, Promise("", substream, own=own))
    yield from may_drop((NO_DESTINATION, CLOSED) if lanes.options.channels == "hrmp" else (gone.name for gone in Gone))
