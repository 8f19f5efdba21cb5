"""What the block that has a carried transaction refused of it: by the error's name, and of which of its items (XDM
reference 3.4, 3.5, 3.10).

Events of a block name messages, not who carried them. So a message that somebody else carried in the same block, too,
is told of to both, and of blocks and receipts all that was refused on the chain in that block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.ledger import NO_CHAIN, Event, Kind
from causeway.network.opened import Mask, OpenedLake
from causeway.protocols.messages import LANE_COLUMNS
from causeway.protocols.xdm.carried import Messages, Receipts, Transaction
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.envelopes import decode_envelopes
from causeway.protocols.xdm.errors import MessengerError
from causeway.protocols.xdm.state import channel_of, is_response

COLUMNS = ("chain", "kind", "events", *LANE_COLUMNS, "reason")

OF_REQUESTS = MessengerError.FailedToNoteTransferIn.name
"""What a chain says of a request of another in the lane of its own requests; all else there is of responses to them."""

Lane = tuple[int, int, int, int]
"""Source, destination, substream and index of a message."""


def refused_items(opened: OpenedLake, height: int, position: int, content: Transaction) -> Counter[tuple[str, str]]:
    """Return why, of what, and how often something of a transaction was refused in the block of a height.

    ``position``: of the chain that it was carried to.
    """
    rows = _refusals(opened, height, position)
    if isinstance(content, Messages):
        found = Counter(_of_messages(rows, position, content, opened.names))
    elif isinstance(content, Receipts):
        found = Counter(_of_receipts(rows, content, opened.names))
    else:
        found = Counter()
    found.update((why, "") for (_, end, _, _), why in rows if end == NO_CHAIN)
    return found


def _refusals(opened: OpenedLake, height: int, position: int) -> list[tuple[Lane, str]]:
    """Return what the block of a chain refused, with the lane and index that it says."""

    def chosen(batch: pa.RecordBatch) -> Mask:
        mask: Mask = (batch["chain"].to_numpy() == position) & (batch["kind"].to_numpy() == Kind.CONTROL)
        mask &= (batch["events"].to_numpy() & int(Event.REJECTED)) > 0
        return mask

    rows = opened.log_rows("events", height, position, list(COLUMNS), chosen)
    if rows is None:
        return []
    lanes = zip(*(rows[name].to_pylist() for name in LANE_COLUMNS), strict=True)
    return list(zip(lanes, rows["reason"].to_pylist(), strict=True))


def _of_messages(
    rows: list[tuple[Lane, str]], position: int, content: Messages, names: list[str]
) -> Iterator[tuple[str, str]]:
    brought, _ = decode_envelopes(pa.array(content.envelopes, pa.large_binary()), np.array(content.responses))
    envelopes = brought.envelopes
    carried: set[Lane] = set(zip(*(envelopes[name].tolist() for name in LANE_COLUMNS), strict=True))
    for (source, destination, substream, index), why in rows:
        lane = source, destination, substream, index
        if source == position and destination != NO_CHAIN:
            # What the chain says in the lane of its own requests is about a response to one, or a request with its fee.
            lane = destination, source, substream | int(why != OF_REQUESTS), index
        if lane in carried:
            number = np.array([lane[2]], dtype=np.uint64)
            kind = "response" if is_response(number)[0] else "request"
            yield why, f"{kind} {index} of channel {channel_of(number)[0]} from {names[lane[0]]}"


def _of_receipts(rows: list[tuple[Lane, str]], content: Receipts, names: list[str]) -> Iterator[tuple[str, str]]:
    # A domain that there is not is named by the consensus chain itself.
    domains = {one.domain + 1 if one.domain + 1 < len(names) else CONSENSUS_POSITION for one in content.receipts}
    for (source, destination, substream, index), why in rows:
        if source == CONSENSUS_POSITION and destination in domains and not substream and not index:
            yield why, "receipt" if destination == CONSENSUS_POSITION else f"receipt of {names[destination]}"


def faults_of(found: Counter[tuple[str, str]], chain: str) -> list[dict[str, Any]]:
    """Return refusals as what an outcome says (``service.lake_views.LakeViews.outcome``)."""
    told = []
    for (why, item), count in sorted(found.items()):
        where = f"{chain}: {item}" if item else chain
        told.append({"program": "", "what": "refused", "why": why, "count": count, "where": where})
    return told
