"""Which packets of a target can be shown to have expired (IBC reference X-1, X-6)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from causeway.model.joins import stretches
from causeway.protocols.ibc.errors import IbcError
from causeway.protocols.ibc.expiry import is_expired
from causeway.protocols.ibc.values import NO_LIMIT, decode_packet
from causeway.service.ibc.lanes import LaneView, Rules
from causeway.service.ibc.memory import Limits, Memory
from causeway.service.ibc.relay_plan import RelaySettings, Work, not_received
from causeway.service.ibc.steps import ReadPackets, Step
from causeway.service.relay_steps import Direction


def expired_packets(
    direction: Direction,
    source: LaneView,
    target: LaneView,
    rules: Rules,
    work: Work,
    settings: RelaySettings,
    memory: Memory,
) -> Generator[Step, Any, tuple[int, ...]]:
    """Return the target's packets that have expired by the source's header, and that it has not received, ascending.

    In an ordered queue the first ones, up to one that has not expired: those behind it wait for it. In any order all,
    wherever they are: once a client was recovered, later packets have earlier limits. ``memory`` has the limits that
    were read before; of the packets that it does not know, the first ``chunk`` are read.
    """
    waiting: Sequence[int]
    if rules.ordered:
        first = max(target.send.head + len(work.receipts), source.receipt.tail)
        waiting = range(first, min(first + settings.chunk, target.send.tail))
    else:
        waiting = not_received(source, target)
    limits = memory.limits
    unknown = [index for index in waiting if index not in limits][: settings.chunk]
    _, begin, end = stretches(np.array(unknown, dtype=np.uint64))
    for first, stop in zip(begin.tolist(), end.tolist(), strict=True):
        place = (direction.other, direction.target, direction.source)
        values = yield ReadPackets(*place, target.height, first, stop - first)
        memory.know(target.send, {index: _limits(value) for index, value in enumerate(values, start=first)})

    def has_expired(index: int) -> bool:
        if index not in limits:
            return False
        return bool(is_expired(*limits[index], source.height, source.time, rules.expiry))

    return tuple((takewhile if rules.ordered else filter)(has_expired, waiting))


def _limits(value: bytes) -> Limits:
    """Return the limits of a packet; bytes that are none have no end that could be shown."""
    try:
        packet = decode_packet(value)
    except IbcError:
        return NO_LIMIT, NO_LIMIT
    return packet.max_height, packet.max_time
