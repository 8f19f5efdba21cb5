"""What streams promise (IC reference 1.2, 1.3)."""

from __future__ import annotations

from collections.abc import Iterator

from causeway.protocols.ic.options import IcOptions
from causeway.protocols.promised import Lanes, Promise, of_lanes


def promises(lanes: Lanes[IcOptions]) -> Iterator[Promise]:
    """Yield what streams promise, those of a subnet to itself too.

    Indices are given and judged one after the other (G6), what is enqueued has the value that it was sent with (G2,
    G9), and every call is answered at some time (L2: all are guaranteed). Messages are sent in the order of their
    indices only where none waits in an output queue for room in a stream (X-6). Answers come in any order.
    """
    names = ["numbered", "ordered_receives", "answered", "conserved"]
    if lanes.options.limits == "none":
        names.append("ordered_sends")
    for chain in lanes.chains:
        yield from of_lanes(names, Promise("", source=chain))
