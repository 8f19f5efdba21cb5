"""What a relay process knows of both ends of a connection: one chain's queues for the other, and its client of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from causeway.commitments.tendermint.trust import TrustedHeader

Pushed = dict[int, int | None]
"""Indices of entries, ascending, and the heights at which they were pushed; None: not known any more."""


@dataclass(frozen=True)
class QueueView:
    """A queue at a height.

    Attributes:
        head, tail: where it begins, and the index that comes next.
        entries: ranges (first, count, height at which they were pushed) of what is in it, ascending.
        waiting: indices of receipts that have a place and no value yet.
    """

    head: int
    tail: int
    entries: tuple[tuple[int, int, int | None], ...]
    waiting: tuple[int, ...] = ()

    def pushed(self, begin: int, end: int) -> Pushed:
        """Return the entries with indices ``begin`` to ``end`` - 1."""
        found: Pushed = {}
        for first, count, height in self.entries:
            for index in range(max(first, begin), min(first + count, end)):
                found[index] = height
        return found

    def unbroken(self, begin: int, end: int) -> Pushed:
        """Return the entries from ``begin`` on, below ``end``, up to the first index that has none."""
        found = self.pushed(begin, end)
        for place, index in enumerate(found):
            if index != begin + place:
                return dict(list(found.items())[:place])
        return found


@dataclass(frozen=True)
class LaneView:
    """What a chain keeps for ``remote`` at a height.

    Attributes:
        height, time: of the chain, time in nanoseconds.
        send, receipt: its queues.
        trusted: the newest headers of ``remote`` that it trusts, ascending; one at least.
        state: of its client: active, frozen or disconnecting.
    """

    chain: str
    remote: str
    height: int
    time: int
    send: QueueView
    receipt: QueueView
    trusted: tuple[TrustedHeader, ...]
    state: str = "active"


@dataclass(frozen=True)
class Rules:
    """The options of a network that decide what a relay process has to do.

    Attributes:
        ordered: whether packets are received in their order only.
        inclusive: whether a packet has expired already at its limit.
        timeouts, cleanup: whether packets can expire, and receipts be cleaned up.
        unbonding_ns: how long a header is trusted.
    """

    ordered: bool = True
    inclusive: bool = False
    timeouts: bool = False
    cleanup: bool = False
    unbonding_ns: int = 21 * 86_400 * 10**9


def lane_view(content: Mapping[str, Any]) -> LaneView:
    """Return the lane of a JSON object (``Views.lane``).

    Raises:
        KeyError, ValueError, TypeError: it is none.
    """
    trusted = tuple(
        TrustedHeader(
            height=int(item["height"]),
            time=int(item["time"]),
            root=bytes.fromhex(item["root"]),
            next_validators_hash=bytes.fromhex(item["next_validators_hash"]),
            validators_hash=bytes.fromhex(item["validators_hash"]),
            header_hash=bytes.fromhex(item["header_hash"]),
            added_height=int(item["added"]),
        )
        for item in content["client"]["trusted"]
    )
    if not trusted:
        raise ValueError("a client trusts no header")
    return LaneView(
        chain=str(content["chain"]),
        remote=str(content["remote"]),
        height=int(content["height"]),
        time=int(content["time"]),
        send=_queue_view(content["send"]),
        receipt=_queue_view(content["receipt"]),
        trusted=trusted,
        state=str(content["client"]["state"]),
    )


def _queue_view(content: Mapping[str, Any]) -> QueueView:
    entries = tuple(
        (int(first), int(count), None if height is None else int(height)) for first, count, height in content["entries"]
    )
    waiting = tuple(int(index) for index in content.get("waiting", ()))
    return QueueView(int(content["head"]), int(content["tail"]), entries, waiting)


def rules_of(options: Mapping[str, Any]) -> Rules:
    """Return the rules that the options of a status (``Views.status``) say.

    Raises:
        KeyError, ValueError, TypeError: they are none.
    """
    return Rules(
        ordered=options["order"] == "ordered",
        inclusive=options["expiry"] == "inclusive",
        timeouts=options["timeouts"] == "on",
        cleanup=options["cleanup"] == "on",
        unbonding_ns=int(options["unbonding_ns"]),
    )
