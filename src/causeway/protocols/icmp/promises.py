"""What egress queues and channels promise (ICMP reference 1.2)."""

from __future__ import annotations

from collections.abc import Iterator

from causeway.protocols.icmp.options import IcmpOptions
from causeway.protocols.promised import QUEUE, Lanes, Promise, of_lanes


def promises(lanes: Lanes[IcmpOptions]) -> Iterator[Promise]:
    """Yield what lanes promise: messages are numbered, and come in order, none before all that were sent before it (G1,
    G2). Nothing promises an answer: it is a message as any other, and what is sent to a parachain that leaves, or does
    not want to hear it, is dropped."""
    for substream, own in lanes.substreams:
        yield from of_lanes(QUEUE, Promise("", substream, own=own))
