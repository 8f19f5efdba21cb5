"""What parachains ask the relay chain for: channels that their messages need, those that others ask them for, and what
the scenario plans (ICMP reference X-6)."""

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
from causeway.protocols.relay_chain.network import RELAY_POSITION, ParachainNetwork
from causeway.protocols.relay_chain.options import HrmpOptions


@dataclass(frozen=True)
class PlannedHrmpCalls:
    """The calls that a scenario plans, by the parachain (its position) that makes them: tick and call, ascending by
    tick; of more in a tick than a block may have, the others are those of the next tick.

    Raises ``InvalidInput`` for chains that are not there, and for calls that only another one can make.
    """

    by_chain: Mapping[int, list[tuple[int, ChannelRequest]]] = field(default_factory=dict)

    @classmethod
    def of(cls, options: HrmpOptions, network: ParachainNetwork) -> PlannedHrmpCalls:
        """Return what the options plan."""
        paras = {name: at for at, name in enumerate(network.names) if at != RELAY_POSITION}
        found: dict[int, list[tuple[int, ChannelRequest]]] = {}
        for row, call in enumerate(options.channel_calls):
            who = call.by or (call.recipient if call.do == "accept" else call.sender)
            for key, name in (("sender", call.sender), ("recipient", call.recipient), ("by", who)):
                if name not in paras:
                    allowed = ", ".join(sorted(paras)) or "none"
                    raise InvalidInput(
                        f"options.channel_calls[{row}].{key}: {name!r} is no parachain; allowed: {allowed}"
                    )
            only = {"open": call.sender, "accept": call.recipient}.get(call.do, who)
            if who != only:
                raise InvalidInput(f"options.channel_calls[{row}].by: {who!r}; allowed with {call.do}: {only!r}")
            asked = _asked(UpwardCall[call.do.upper()], (paras[call.sender], paras[call.recipient]), options)
            found.setdefault(paras[who], []).append((call.tick, asked))
        return cls({chain: _spread(sorted(calls)) for chain, calls in found.items()})

    def due(self, chain: int, first: int, last: int) -> tuple[list[ChannelRequest], int]:
        """Return the calls of a chain for the ticks ``first`` to ``last``, of as many whole ticks as a block may have
        calls, and the first tick after these."""
        rows = [row for row in self.by_chain.get(chain, ()) if first <= row[0] <= last]
        if len(rows) > MOST_CALLS:
            last = rows[MOST_CALLS][0] - 1
        return [asked for at, asked in rows if at <= last], last + 1

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` for which a call is planned."""
        return earliest(*(at for calls in self.by_chain.values() for at, _ in calls if at >= tick))

    @property
    def last_tick(self) -> int:
        """Return the last tick for which a call is planned, 0 without any."""
        return max((at for calls in self.by_chain.values() for at, _ in calls), default=0)


def _spread(calls: list[tuple[int, ChannelRequest]]) -> list[tuple[int, ChannelRequest]]:
    """Return calls (ascending by tick) with at most ``MOST_CALLS`` in a tick."""
    found: list[tuple[int, ChannelRequest]] = []
    tick, count = -1, 0
    for at, asked in calls:
        if at > tick:
            tick, count = at, 0
        elif count == MOST_CALLS:
            tick, count = tick + 1, 0
        count += 1
        found.append((tick, asked))
    return found


class RelayRequests(NamedTuple):
    """What chains ask for (``CALLS_SCHEMA``), and the first tick of each whose planned calls are not among it."""

    calls: Frame
    next_tick: npt.NDArray[np.uint64]


def collect_calls(
    view: View, pages: Frame, tips: Frame, tick: int, planned: PlannedHrmpCalls, options: HrmpOptions
) -> RelayRequests:
    """Return what the chains of ``tips`` (``chain``, ``next_tick``) ask for in a block: what is planned, acceptances,
    and channels for pages that have none. Nothing is asked for that would be refused: a deposit that the account does
    not cover, a channel above the limits, more calls than a block may have."""
    there = present_parachains(view.tables["paras"])
    pages = pages.take(group_rows(pages["source"], pages["destination"]).starts)
    pages = pages.filter(np.isin(pages["destination"], there))
    wanted = set(zip(pages["source"].tolist(), pages["destination"].tolist(), strict=True))
    chains = tips["chain"].tolist()
    asked: dict[int, list[ChannelRequest]] = {chain: [] for chain in chains}
    next_tick = np.zeros(len(tips), dtype=np.uint64)
    for row, (chain, first) in enumerate(zip(chains, tips["next_tick"].tolist(), strict=True)):
        asked[chain], next_tick[row] = planned.due(chain, first, tick)
    free = dict(zip(view.tables["sovereign"]["para"].tolist(), view.tables["sovereign"]["free"].tolist(), strict=True))
    requests, channels = view.tables["requests"], view.tables["channels"]
    outbound, inbound = channel_counts(requests, channels)

    def ask(chain: int, call: UpwardCall, pair: tuple[int, int], deposit: int, held: Counter[int], limit: int) -> None:
        if chain in asked and free[chain] >= deposit and held[chain] < limit:
            free[chain] -= deposit
            held[chain] += 1
            asked[chain].append(_asked(call, pair, options))

    open_to = requests.filter((requests["confirmed"] == 0) & np.isin(requests["sender"], there))
    for pair in _pairs(open_to):
        ask(pair[1], UpwardCall.ACCEPT, pair, options.recipient_deposit, inbound, options.max_inbound_channels)
    for pair in sorted(wanted - {*_pairs(requests), *_pairs(channels)}):
        ask(pair[0], UpwardCall.OPEN, pair, options.sender_deposit, outbound, options.max_outbound_channels)
    rows = [
        (chain, place, encode_call(one))
        for chain, calls in asked.items()
        for place, one in enumerate(list(dict.fromkeys(calls))[:MOST_CALLS])
    ]
    names = [[row[at] for row in rows] for at in range(3)]
    columns = {
        name: np.array(column, dtype=np.uint32) for name, column in zip(("source", "place"), names, strict=False)
    }
    columns["destination"] = np.full(len(rows), RELAY_POSITION, dtype=np.uint32)
    made = Frame({**columns, "data": pa.array(names[2], pa.binary())}, len(rows))
    return RelayRequests(made.select(CALLS_SCHEMA.names), next_tick)


def _asked(call: UpwardCall, pair: tuple[int, int], options: HrmpOptions) -> ChannelRequest:
    """Return a call about a channel, which is asked for as large as it may be."""
    return ChannelRequest(call, *pair, options.max_capacity, options.max_message_size)


def _pairs(rows: Frame) -> list[tuple[int, int]]:
    return [*zip(rows["sender"].tolist(), rows["recipient"].tolist(), strict=True)]
