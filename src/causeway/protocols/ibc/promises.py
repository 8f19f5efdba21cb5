"""What queues promise (IBC reference 1.2, 1.3)."""

from __future__ import annotations

from collections.abc import Iterator

from causeway.protocols.ibc.inputs import Code
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.state import RECEIPT, SEND
from causeway.protocols.promised import QUEUE, Lanes, Promise, may_drop, of_lanes


def promises(lanes: Lanes[IbcOptions]) -> Iterator[Promise]:
    """Yield what queues promise.

    Packets are numbered and sent in that order; ordered queues are received and acknowledged in it (G1), and keep the
    causal order of the zones (C1 to C5); their receipts are what acknowledges the packets. A receipt has
    the index of its packet, and is written when the answer is there: its queue is numbered by the packets, and the
    receipts of an ordered one are taken in order as long as no packet times out, which leaves its receipt behind (X-1).
    Every packet gets a receipt or times out at some time (L1). With a delay (X-11) nothing is proved under a header
    that is not older. Lanes of a zone to itself are queues without relayers. A receipt for a program that is gone, or
    that never was, as that of a forged packet, is taken and given to nobody.
    """
    options = lanes.options
    ordered = options.order == "ordered"
    for substream in lanes.used(own=True):
        names = [*QUEUE, *(("answered",) if substream == SEND else ())]
        yield from of_lanes(names, Promise("", substream, own=True))
    for substream in lanes.used(own=False):
        like = Promise("", substream)
        if substream == SEND:
            yield from of_lanes(("numbered", "ordered_sends", "conserved", "answered"), like)
            if ordered:
                yield from of_lanes(("ordered_receives", "ordered_acknowledgements", "causal"), like)
        elif substream == RECEIPT:
            yield from of_lanes(("conserved",), like)
            if ordered and not options.limited:
                yield from of_lanes(("ordered_receives",), like)
        if options.delay_ns:
            yield Promise("final_after", substream, number=options.delay_ns // 1_000)
    yield from may_drop((Code.NO_PROGRAM.name,))
