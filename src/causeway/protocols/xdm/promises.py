"""What channels promise (XDM reference 1.2, 1.3)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from causeway.model.order import U64
from causeway.protocols.promised import QUEUE, Lanes, Promise, of_lanes
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.state import RESPONSE, is_response


def paired(substreams: U64) -> tuple[U64, npt.NDArray[np.bool_]]:
    """Return the other direction's substream of each channel's, and which are those of responses."""
    return substreams ^ np.uint64(RESPONSE), is_response(substreams)


def promises(lanes: Lanes[XdmOptions]) -> Iterator[Promise]:
    """Yield what channels promise.

    Nonces are given and used up one after the other, of requests and of responses (G1); every request is answered at
    some time (L1), and no channel has more requests without a response than it may (G6). An answer may come later than
    the response, and so in another order. A message of the consensus chain is not proved before its block is K
    deep, one of a domain not before its receipt was not challenged for D blocks besides. Lanes of a chain to itself are
    queues that nobody proves.
    """
    options = lanes.options
    calls = [call.max_outgoing for call in options.channel_calls if call.max_outgoing is not None]
    capacity = max([options.max_outgoing_messages, *calls])
    consensus = {chain for chain, role in lanes.roles.items() if role == "consensus"}
    for substream in lanes.used(own=True):
        names = [*QUEUE, *(("answered",) if substream != RESPONSE else ())]
        yield from of_lanes(names, Promise("", substream, own=True))
    for substream in lanes.used(own=False):
        like = Promise("", substream)
        yield from of_lanes(QUEUE, like)
        if not substream & RESPONSE:
            yield from of_lanes(("answered",), like)
            yield Promise("capacity", substream, number=capacity)
        for chain in lanes.chains:
            blocks = options.archiving_depth + (0 if chain in consensus else options.challenge_period)
            yield Promise("final_after", substream, source=chain, number=blocks * lanes.tick_micros)
