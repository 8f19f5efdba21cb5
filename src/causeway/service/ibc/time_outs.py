"""Which packets of a target can be shown to have expired (IBC reference X-1, X-6)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from causeway.protocols.ibc.errors import IbcError
from causeway.protocols.ibc.expiry import is_expired
from causeway.protocols.ibc.values import decode_packet
from causeway.service.ibc.lanes import LaneView, Rules
from causeway.service.ibc.relay_plan import RelaySettings, Work, not_received
from causeway.service.ibc.steps import Direction, ReadPackets, Step


def expired_packets(
    direction: Direction, source: LaneView, target: LaneView, rules: Rules, work: Work, settings: RelaySettings
) -> Generator[Step, Any, tuple[int, ...]]:
    """Return the target's packets that have expired by the source's header, and that it has not received.

    The first ones: those behind one that has not expired have not either.
    """
    if rules.ordered:
        first = max(target.send.head + len(work.receipts), source.receipt.tail)
        found, _ = yield from _late(direction, source, target, rules, first, settings.chunk)
        return found
    everything: tuple[int, ...] = ()
    for first, count in _stretches(not_received(source, target)[: settings.chunk]):
        found, rest = yield from _late(direction, source, target, rules, first, count)
        everything += found
        if rest:
            break
    return everything


def _stretches(indices: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return ascending indices as stretches of neighbours: (first, count)."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and sum(found[-1]) == index:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((index, 1))
    return found


def _late(
    direction: Direction, source: LaneView, target: LaneView, rules: Rules, first: int, count: int
) -> Generator[Step, Any, tuple[tuple[int, ...], bool]]:
    """Return which of the target's packets from ``first`` on have expired, and whether one of ``count`` has not."""
    place = (direction.other, direction.target, direction.source)
    values = yield ReadPackets(*place, target.height, first, count)
    found: list[int] = []
    for index, value in enumerate(values, start=first):
        try:
            packet = decode_packet(value)
        except IbcError:
            break
        if not is_expired(packet.max_height, packet.max_time, source.height, source.time, rules.expiry):
            break
        found.append(index)
    return tuple(found), len(found) < count
