"""What the relay chain accepts of a receipt: its watermark and its messages (ICMP reference X-6).

All receipts of a block are checked against the state that the block begins with.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.order import groups_of
from causeway.protocols.digests import same
from causeway.protocols.icmp.channel_options import HrmpOptions
from causeway.protocols.icmp.hrmp.errors import Acceptance
from causeway.protocols.icmp.hrmp.tables import PAIR

Codes = npt.NDArray[np.int64]

MOST_CALLS = 100
MOST_CALL_BYTES = 20_000
"""Of a chain in a block: upward messages, and their bytes; a single one may have more (X-4)."""


def check_parents(receipts: Frame, paras: Frame) -> Codes:
    """Return which receipts (``source``, ``parent``) are of no registered parachain or do not go on from its last block
    that was included."""
    at = lookup(paras, Frame({"para": receipts["source"]}, len(receipts)), ("para",))
    follows = at >= 0
    follows[follows] = paras["active"][at[follows]] == 1
    follows[follows] = same(receipts["parent"][follows], paras["head"][at[follows]])
    return np.where(follows, Acceptance.OK, Acceptance.ParentMismatch).astype(np.int64)


def check_watermarks(receipts: Frame, digests: Frame, number: int) -> Codes:
    """Return what is wrong with each watermark (``Acceptance``), OK where nothing is.

    ``receipts``: ``source``, ``watermark``, ``relay_parent``, and ``last``: the watermark before. It is the relay
    parent, which is below the relay block ``number`` that is being made, and never falls, or it is above the last one a
    block with messages.
    """
    wanted, parent = receipts["watermark"], receipts["relay_parent"]
    first = groups_of(digests["recipient"], digests["number"]).starts
    blocks = digests.take(first)
    asked = Frame({"recipient": receipts["source"], "number": wanted}, len(receipts))
    lands = lookup(blocks, asked, ("recipient", "number")) >= 0
    found = np.select(
        [
            parent >= np.uint64(number),
            (wanted == parent) & (wanted >= receipts["last"]),
            wanted > parent,
            wanted <= receipts["last"],
            ~lands,
        ],
        [
            Acceptance.AheadRelayParent,
            Acceptance.OK,
            Acceptance.AheadRelayParent,
            Acceptance.AdvancementRule,
            Acceptance.LandsOnBlockWithNoMessages,
        ],
        Acceptance.OK,
    )
    return found.astype(np.int64)


def check_outbound(receipts: Frame, sent: Frame, channels: Frame, options: HrmpOptions) -> Codes:
    """Return what is wrong with the messages of each receipt (``source``), OK where nothing is: too many of them, else
    the first error of the first message that has one.

    ``sent``: ``SENT_SCHEMA``, by source and place.
    """
    found = np.zeros(len(receipts), dtype=np.int64)
    at = lookup(receipts, sent, ("source",))
    rows = np.flatnonzero(at >= 0)
    if len(rows) == 0:
        return found
    sent, at = sent.take(rows), at[rows]
    names = {"sender": sent["source"], "recipient": sent["to"]}
    row = lookup(channels, Frame(names, len(sent)), PAIR)
    known = np.maximum(row, 0)
    falls = np.zeros(len(sent), dtype=bool)
    falls[1:] = (sent["source"][1:] == sent["source"][:-1]) & (sent["to"][1:] <= sent["to"][:-1])

    def of_channel(name: str) -> npt.NDArray[np.int64]:
        column = channels[name].astype(np.int64)
        return column[known] if len(column) else np.zeros(len(sent), dtype=np.int64)

    size = data_lengths(sent)
    wrong = np.select(
        [
            falls,
            row < 0,
            size > of_channel("max_message_size"),
            of_channel("total_size") + size > of_channel("max_total_size"),
            of_channel("msg_count") + 1 > of_channel("max_capacity"),
        ],
        [
            Acceptance.NotSorted,
            Acceptance.NoSuchChannel,
            Acceptance.MaxMessageSizeExceeded,
            Acceptance.TotalSizeExceeded,
            Acceptance.CapacityExceeded,
        ],
        Acceptance.OK,
    )
    bad = np.flatnonzero(wrong)[::-1]
    found[at[bad]] = wrong[bad]
    many = np.bincount(at, minlength=len(receipts)) > options.max_messages_per_candidate
    found[many] = Acceptance.MoreMessagesThanPermitted
    return found


def data_lengths(rows: Frame) -> npt.NDArray[np.int64]:
    """Return the length in bytes of each row's ``data``."""
    data = rows["data"]
    if len(data) == 0:
        return np.empty(0, dtype=np.int64)
    offsets = np.frombuffer(data.buffers()[1], dtype=np.int32)[data.offset : data.offset + len(data) + 1]
    return np.diff(offsets).astype(np.int64)
