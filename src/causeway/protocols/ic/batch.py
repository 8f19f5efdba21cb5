"""A batch: what a round takes in, once it is agreed, and its decoding (IC reference 2.7, 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvariantViolation
from causeway.model.frame import Frame
from causeway.model.order import U64, lane_codes, pair_codes, positions_in
from causeway.protocols.contract import Plan
from causeway.protocols.ic.messages import message_sizes

DENSE_LANES = 1 << 22
"""Below this code of (chain, remote), flat lanes are looked up in an array instead of by bisection."""


@dataclass(frozen=True)
class DecodedBatch:
    """The input of a round, chains as positions.

    ``headers``: the accepted lanes' headers (``Plan.headers``), those of loopback streams among them; ``messages``:
    their messages, seen from the taker (``chain`` takes, ``remote`` sent); ``recalled``: our own messages that headers
    reject, or that the stream size needs, with their ``reason`` and ``size``; ``ingress``: rows of ``INGRESS_SCHEMA``.
    """

    headers: Frame
    messages: Frame
    recalled: Frame
    ingress: pa.Table


def decode(plan: Plan, messages: Frame, recalled: Frame, ingress: pa.Table, subnets: U64) -> DecodedBatch:
    """Return what a round takes in; ``subnets`` gives the numbers of the chains by position.

    Raises ``InvariantViolation`` unless the messages are the runs without gaps that the headers announce: they were
    checked before agreement.
    """
    taken = messages.with_columns(chain=messages["remote"], remote=messages["chain"])
    _ensure_complete(plan.headers, taken)
    return DecodedBatch(plan.headers, taken, _signalled(recalled, plan.details), _positioned(ingress, subnets))


def _positioned(ingress: pa.Table, subnets: U64) -> pa.Table:
    """Return the ingress rows with chains as positions."""
    if ingress.num_rows == 0:
        return ingress
    order = np.argsort(subnets)
    numbers = ingress["chain"].to_numpy()
    positions = order[np.searchsorted(subnets[order], numbers)].astype(np.uint64)
    return ingress.set_column(ingress.schema.get_field_index("chain"), "chain", pa.array(positions))


def _signalled(recalled: Frame, rejects: Frame) -> Frame:
    """Return our recalled messages with the ``reason`` of their reject signal (0 without one) and their ``size``."""
    reason = np.zeros(len(recalled), dtype=np.uint8)
    if len(rejects) and len(recalled):
        lane_own, lane_asked = pair_codes(
            (lane_codes(rejects["chain"], rejects["remote"]), rejects["substream"]),
            (lane_codes(recalled["chain"], recalled["remote"]), recalled["substream"]),
        )
        own, asked = pair_codes((lane_own, rejects["index"]), (lane_asked, recalled["index"]))
        order = np.argsort(own)
        place = positions_in(own[order], asked)
        reason[place >= 0] = rejects["reason"][order[place[place >= 0]]]
    return recalled.with_columns(reason=reason, size=message_sizes(recalled))


def _ensure_complete(headers: Frame, messages: Frame) -> None:
    """Raise ``InvariantViolation`` unless the messages are exactly the ranges of the headers, each index once."""
    counts = (headers["message_end"] - headers["message_begin"]).astype(np.int64)
    total = int(counts.sum())
    if total != len(messages):
        raise InvariantViolation(f"the slices hold {len(messages)} messages, their headers say {total}")
    if total == 0:
        return
    rows = _header_rows(headers, messages)
    begin = headers["message_begin"][rows]
    inside = (messages["index"] >= begin) & (messages["index"] < headers["message_end"][rows])
    if bool(inside.all()):
        place = (np.cumsum(counts) - counts)[rows] + (messages["index"] - begin).astype(np.int64)
        seen = np.zeros(total, dtype=bool)
        seen[place] = True
        if bool(seen.all()):
            return
    raise InvariantViolation("a slice's messages are not a run without gaps")


def _header_rows(headers: Frame, messages: Frame) -> np.ndarray:
    """Return the row of each message's lane among the headers."""
    own = lane_codes(headers["chain"], headers["remote"])
    asked = lane_codes(messages["chain"], messages["remote"])
    if not headers["substream"].any() and len(own) and int(own.max()) < DENSE_LANES and not messages["substream"].any():
        table = np.zeros(int(own.max()) + 2, dtype=np.int64)
        table[own] = np.arange(len(own))
        return table[np.minimum(asked, np.uint64(len(table) - 1))]
    own, asked = pair_codes((own, headers["substream"]), (asked, messages["substream"]))
    order = np.argsort(own)
    return order[np.maximum(positions_in(own[order], asked), 0)]
