"""Why messages of parachains wait for HRMP channels that are not open (ICMP reference X-6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from causeway.model.frame import Frame, concat, empty_frame, from_table
from causeway.pipeline.lake import Lake, Manifest
from causeway.protocols.icmp.channel_options import HrmpOptions
from causeway.protocols.icmp.hrmp.channels import channel_counts
from causeway.protocols.icmp.hrmp.membership import present
from causeway.protocols.icmp.hrmp.tables import HRMP_TABLES, PAIR

SHOWN = 4
"""Channels that a person is told of."""


@dataclass(frozen=True)
class Closed:
    """A channel that is not open though messages wait for it; ``pages``: how many pages of them; ``why``."""

    sender: str
    recipient: str
    pages: int
    why: str


def closed_channels(lake: Lake, manifest: Manifest, names: Sequence[str], given: Mapping[str, Any]) -> list[Closed]:
    """Return the channels for which pages wait and that are not open at a height, by sender and recipient.

    ``names``: of the chains, by position; ``given``: the options of the scenario.
    """
    options = HrmpOptions.model_validate({key: given[key] for key in HrmpOptions.model_fields if key in given})
    pages, channels = _rows(lake, manifest, "pages"), _rows(lake, manifest, "channels")
    waiting: dict[tuple[int, int], int] = {}
    for pair in zip(pages["source"].tolist(), pages["destination"].tolist(), strict=True):
        waiting[pair] = waiting.get(pair, 0) + 1
    closed = sorted(waiting.keys() - {*_pairs(channels)})
    if not closed:
        return []
    requests, sovereign = _rows(lake, manifest, "requests"), _rows(lake, manifest, "sovereign")
    there = present(_rows(lake, manifest, "paras")).tolist()
    confirmed = dict(zip(_pairs(requests), requests["confirmed"].tolist(), strict=True))
    free = dict(zip(sovereign["para"].tolist(), sovereign["free"].tolist(), strict=True))
    outbound, inbound = channel_counts(requests, channels)

    def why(sender: int, recipient: int) -> str:
        for chain in (sender, recipient):
            if chain not in there:
                return f"{names[chain]} is not registered"
        if confirmed.get((sender, recipient)) == 1:
            return "it opens with the next session"
        if (sender, recipient) in confirmed:
            end, what, held, limit = recipient, "accepted", inbound, "max_inbound_channels"
        else:
            end, what, held, limit = sender, "asked for", outbound, "max_outbound_channels"
        side = "recipient" if end == recipient else "sender"
        deposit = getattr(options, f"{side}_deposit")
        if free.get(end, 0) < deposit:
            return f"{names[end]} has {free.get(end, 0):,} units, {side}_deposit is {deposit:,}"
        if held[end] >= getattr(options, limit):
            return f"{names[end]} has {held[end]:,} channels, as many as {limit} allows"
        return f"it is not {what} yet"

    return [Closed(names[x], names[y], waiting[x, y], why(x, y)) for x, y in closed]


def lines_on(closed: Sequence[Closed]) -> Iterator[str]:
    """Yield what a person reads of channels that are not open."""
    for one in closed[:SHOWN]:
        pages = f"{one.pages:,} page{'s' if one.pages > 1 else ''}"
        yield f"The channel from {one.sender} to {one.recipient}, for which {pages} wait, is not open: {one.why}."
    if len(closed) > SHOWN:
        yield f"... and {len(closed) - SHOWN:,} more channels that are not open."


def _rows(lake: Lake, manifest: Manifest, table: str) -> Frame:
    names = HRMP_TABLES[table].schema.names
    wanted = [name for name in names if name != "data"]
    parts = [from_table(part) for part in lake.state(manifest, table, wanted)]
    return concat(parts) if parts else empty_frame(HRMP_TABLES[table].schema).select(wanted)


def _pairs(rows: Frame) -> list[tuple[int, int]]:
    sender, recipient = (rows[name].tolist() for name in PAIR)
    return [*zip(sender, recipient, strict=True)]
