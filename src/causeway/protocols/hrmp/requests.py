"""Upward calls of parachains: planned calls, acceptances, and channels for pending messages.

Reference: ICMP, X-6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import group_rows

from causeway.core.frame import Frame
from causeway.protocols.contract import View, earliest
from causeway.protocols.hrmp.acceptance import MOST_CALLS
from causeway.protocols.hrmp.channels import ChannelRequest, UpwardCall, channel_counts, encode_call, present_parachains
from causeway.protocols.hrmp.state import CALLS_SCHEMA
from causeway.protocols.relay_chain.options import RELAY_POSITION, HrmpOptions, ParachainNetwork


@dataclass(frozen=True)
class PlannedHrmpCalls:
    """The planned calls of a scenario by calling parachain: (tick, call), ascending.

    Calls beyond the limit of a block move to the next tick.

    Raises:
        InvalidInput: A call names an unknown chain, or one that cannot make it.
    """

    by_chain: Mapping[int, list[tuple[int, ChannelRequest]]] = field(default_factory=dict)

    @classmethod
    def of(cls, options: HrmpOptions, network: ParachainNetwork) -> PlannedHrmpCalls:
        """Create the planned calls of the options.

        Args:
            options: Options of the protocol.
            network: Fixed properties of the network.

        Raises:
            InvalidInput: A call names an unknown chain, or one that cannot make it.
        """
        paras = {name: at for at, name in enumerate(network.names) if at != RELAY_POSITION}
        by_chain: dict[int, list[tuple[int, ChannelRequest]]] = {}
        for row, call in enumerate(options.channel_calls):
            caller = call.by or (call.recipient if call.do == "accept" else call.sender)
            for key, name in (("sender", call.sender), ("recipient", call.recipient), ("by", caller)):
                if name not in paras:
                    allowed = ", ".join(sorted(paras)) or "none"
                    raise InvalidInput(
                        f"options.channel_calls[{row}].{key}: {name!r} is no parachain; allowed: {allowed}"
                    )
            only = {"open": call.sender, "accept": call.recipient}.get(call.do, caller)
            if caller != only:
                raise InvalidInput(f"options.channel_calls[{row}].by: {caller!r}; allowed with {call.do}: {only!r}")
            request = _channel_request(
                UpwardCall[call.do.upper()], (paras[call.sender], paras[call.recipient]), options
            )
            by_chain.setdefault(paras[caller], []).append((call.tick, request))
        return cls({chain: _spread(sorted(calls)) for chain, calls in by_chain.items()})

    def due(self, chain: int, first: int, last: int) -> tuple[list[ChannelRequest], int]:
        """Return the calls of a chain in a range of ticks, and the first tick after them.

        Only whole ticks within the limit of a block count.
        """
        rows = [row for row in self.by_chain.get(chain, ()) if first <= row[0] <= last]
        if len(rows) > MOST_CALLS:
            last = rows[MOST_CALLS][0] - 1
        return [call for at, call in rows if at <= last], last + 1

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on with a planned call, or None."""
        return earliest(*(at for calls in self.by_chain.values() for at, _ in calls if at >= tick))

    @property
    def last_tick(self) -> int:
        """Return the last tick with a planned call, 0 without any."""
        return max((at for calls in self.by_chain.values() for at, _ in calls), default=0)


def _spread(calls: list[tuple[int, ChannelRequest]]) -> list[tuple[int, ChannelRequest]]:
    """Return calls, ascending by tick, with at most ``MOST_CALLS`` a tick."""
    spread: list[tuple[int, ChannelRequest]] = []
    tick, count = -1, 0
    for at, call in calls:
        if at > tick:
            tick, count = at, 0
        elif count == MOST_CALLS:
            tick, count = tick + 1, 0
        count += 1
        spread.append((tick, call))
    return spread


class RelayRequests(NamedTuple):
    """Upward calls (``CALLS_SCHEMA``), and each chain's first tick with later calls."""

    calls: Frame
    next_tick: npt.NDArray[np.uint64]


def collect_calls(
    view: View, pages: Frame, tips: Frame, tick: int, planned: PlannedHrmpCalls, options: HrmpOptions
) -> RelayRequests:
    """Collect the upward calls of blocks: planned ones, acceptances, channel requests.

    A call that the relay chain would refuse is omitted: for its deposit, the channel limits, or the number of calls.

    Args:
        view: Tables that chains published at the previous height.
        pages: ``PAGES_SCHEMA``.
        tips: ``chain``, ``next_tick`` of the parachains.
        tick: Current tick.
        planned: Planned calls.
        options: Options of the protocol.
    """
    present = present_parachains(view.tables["paras"])
    pages = pages.take(group_rows(pages["source"], pages["destination"]).starts)
    pages = pages.filter(np.isin(pages["destination"], present))
    wanted = set(zip(pages["source"].tolist(), pages["destination"].tolist(), strict=True))
    chains = tips["chain"].tolist()
    calls_of: dict[int, list[ChannelRequest]] = {chain: [] for chain in chains}
    next_tick = np.zeros(len(tips), dtype=np.uint64)
    for row, (chain, first) in enumerate(zip(chains, tips["next_tick"].tolist(), strict=True)):
        calls_of[chain], next_tick[row] = planned.due(chain, first, tick)
    free = dict(zip(view.tables["sovereign"]["para"].tolist(), view.tables["sovereign"]["free"].tolist(), strict=True))
    requests, channels = view.tables["requests"], view.tables["channels"]
    outbound, inbound = channel_counts(requests, channels)

    def ask(
        chain: int, call: UpwardCall, pair: tuple[int, int], deposit: int, counts: Counter[int], limit: int
    ) -> None:
        if chain in calls_of and free[chain] >= deposit and counts[chain] < limit:
            free[chain] -= deposit
            counts[chain] += 1
            calls_of[chain].append(_channel_request(call, pair, options))

    acceptable = requests.filter((requests["confirmed"] == 0) & np.isin(requests["sender"], present))
    for pair in _pairs(acceptable):
        ask(pair[1], UpwardCall.ACCEPT, pair, options.recipient_deposit, inbound, options.max_inbound_channels)
    for pair in sorted(wanted - {*_pairs(requests), *_pairs(channels)}):
        ask(pair[0], UpwardCall.OPEN, pair, options.sender_deposit, outbound, options.max_outbound_channels)
    rows = [
        (chain, position, encode_call(call_item))
        for chain, calls in calls_of.items()
        for position, call_item in enumerate(list(dict.fromkeys(calls))[:MOST_CALLS])
    ]
    fields = [[row[at] for row in rows] for at in range(3)]
    columns = {
        name: np.array(column, dtype=np.uint32) for name, column in zip(("source", "place"), fields, strict=False)
    }
    columns["destination"] = np.full(len(rows), RELAY_POSITION, dtype=np.uint32)
    calls_frame = Frame({**columns, "data": pa.array(fields[2], pa.binary())}, len(rows))
    return RelayRequests(calls_frame.select(CALLS_SCHEMA.names), next_tick)


def _channel_request(call: UpwardCall, pair: tuple[int, int], options: HrmpOptions) -> ChannelRequest:
    """Create a call on a channel with the maximum limits."""
    return ChannelRequest(call, *pair, options.max_capacity, options.max_message_size)


def _pairs(rows: Frame) -> list[tuple[int, int]]:
    return [*zip(rows["sender"].tolist(), rows["recipient"].tolist(), strict=True)]
