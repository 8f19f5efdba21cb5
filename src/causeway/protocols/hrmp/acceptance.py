"""Acceptance of receipts by the relay chain: watermarks, messages and calls.

All receipts of a block are checked against the state after ``new_session``. Accepted ones remove consumed messages from
channels, add sent ones, and execute their calls.

Reference: ICMP, X-6.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from causeway_proofs.hashing import Digests
from causeway_proofs.order import group_rows
from causeway_proofs.substrate import QueuedMessage, extend_head

from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.protocols.hrmp.channels import CallResults, execute_calls
from causeway.protocols.hrmp.errors import ReceiptError
from causeway.protocols.hrmp.state import HRMP_TABLES, PAIR
from causeway.protocols.relay_chain.options import RELAY_POSITION, HrmpOptions
from causeway.protocols.relay_chain.runtime import continues_head
from causeway.protocols.shared.digests import digests
from causeway.protocols.shared.state_tables import TableState, sort_table

Codes = npt.NDArray[np.int64]

MOST_CALLS = 100
MOST_CALL_BYTES = 20_000
"""Limits of upward calls a block: number and bytes; a single call may be longer (X-4)."""


def check_watermarks(receipts: Frame, digests: Frame, number: int) -> Codes:
    """Check the watermark of each receipt.

    It must be the relay parent, below relay block ``number`` and not falling, or a later block with messages.

    Args:
        receipts: ``source``, ``watermark``, ``relay_parent``, and ``last``, the previous watermark.
        digests: ``DIGESTS_SCHEMA``.
        number: Number of the relay block.
    """
    watermark, parent = receipts["watermark"], receipts["relay_parent"]
    first = group_rows(digests["recipient"], digests["number"]).starts
    blocks = digests.take(first)
    keys = Frame({"recipient": receipts["source"], "number": watermark}, len(receipts))
    has_messages = lookup_rows(blocks, keys, ("recipient", "number")) >= 0
    found = np.select(
        [
            parent >= np.uint64(number),
            (watermark == parent) & (watermark >= receipts["last"]),
            watermark > parent,
            watermark <= receipts["last"],
            ~has_messages,
        ],
        [
            ReceiptError.AheadRelayParent,
            ReceiptError.OK,
            ReceiptError.AheadRelayParent,
            ReceiptError.AdvancementRule,
            ReceiptError.LandsOnBlockWithNoMessages,
        ],
        ReceiptError.OK,
    )
    return found.astype(np.int64)


def check_outbound(receipts: Frame, sent: Frame, channels: Frame, options: HrmpOptions) -> Codes:
    """Check the messages of each receipt: their number, then each message in order.

    Args:
        receipts: ``source``.
        sent: ``SENT_SCHEMA`` by source and place.
        channels: ``CHANNELS_SCHEMA``.
        options: Options of the protocol.

    Returns:
        First ``ReceiptError`` of each receipt, int64.
    """
    found = np.zeros(len(receipts), dtype=np.int64)
    at = lookup_rows(receipts, sent, ("source",))
    rows = np.flatnonzero(at >= 0)
    if len(rows) == 0:
        return found
    sent, at = sent.take(rows), at[rows]
    names = {"sender": sent["source"], "recipient": sent["to"]}
    row = lookup_rows(channels, Frame(names, len(sent)), PAIR)
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
            ReceiptError.NotSorted,
            ReceiptError.NoSuchChannel,
            ReceiptError.MaxMessageSizeExceeded,
            ReceiptError.TotalSizeExceeded,
            ReceiptError.CapacityExceeded,
        ],
        ReceiptError.OK,
    )
    bad = np.flatnonzero(wrong)[::-1]
    found[at[bad]] = wrong[bad]
    many = np.bincount(at, minlength=len(receipts)) > options.max_messages_per_candidate
    found[many] = ReceiptError.MoreMessagesThanPermitted
    return found


def data_lengths(rows: Frame) -> npt.NDArray[np.int64]:
    """Return the length in bytes of each row's ``data``."""
    data = rows["data"]
    if len(data) == 0:
        return np.empty(0, dtype=np.int64)
    offsets = np.frombuffer(data.buffers()[1], dtype=np.int32)[data.offset : data.offset + len(data) + 1]
    return np.diff(offsets).astype(np.int64)


def consume_messages(state: TableState, receipts: Frame) -> TableState:
    """Remove messages up to the watermarks of receipts from channels.

    Args:
        state: State of the relay chain.
        receipts: ``source``, ``watermark``.
    """
    contents, digests_before, channels = state["contents"], state["digests"], state["channels"]
    consumed = _below(receipts, contents["recipient"], contents["sent_at"])
    obsolete = _below(receipts, digests_before["recipient"], digests_before["number"])
    changed = {}
    if consumed.any():
        removed = contents.filter(consumed)
        counts, sizes = _sums(channels, removed)
        changed["contents"] = contents.filter(~consumed)
        changed["channels"] = channels.with_columns(
            msg_count=channels["msg_count"] - counts, total_size=channels["total_size"] - sizes
        )
    if obsolete.any():
        changed["digests"] = digests_before.filter(~obsolete)
    return state.with_tables(**changed)


def _below(receipts: Frame, recipient: np.ndarray, number: np.ndarray) -> np.ndarray:
    at = lookup_rows(receipts, Frame({"source": recipient}, len(recipient)), ("source",))
    below = at >= 0
    below[below] = number[below] <= receipts["watermark"][at[below]]
    return below


def _sums(channels: Frame, rows: Frame) -> tuple[np.ndarray, np.ndarray]:
    """Return the number and bytes of rows per channel."""
    at = lookup_rows(channels, rows, PAIR)
    counts = np.bincount(at, minlength=len(channels)).astype(np.uint32)
    sizes = np.bincount(at, weights=data_lengths(rows), minlength=len(channels)).astype(np.uint32)
    return counts, sizes


def enqueue_messages(state: TableState, sent: Frame, number: int) -> TableState:
    """Add accepted messages (``SENT_SCHEMA``) to their channels in relay block ``number``."""
    if len(sent) == 0:
        return state
    block = {"chain": np.uint32(RELAY_POSITION), "sent_at": np.uint64(number), "number": np.uint64(number)}
    rows = sent.with_columns(sender=sent["source"], recipient=sent["to"], **block)
    channels = state["channels"]
    counts, sizes = _sums(channels, rows)
    at = lookup_rows(channels, rows, PAIR)
    heads = channels["mqc_head"].copy()
    heads[at] = extend_heads(heads[at], rows)
    return state.with_tables(
        channels=channels.with_columns(
            msg_count=channels["msg_count"] + counts, total_size=channels["total_size"] + sizes, mqc_head=heads
        ),
        **{
            name: sort_table(table, concat([state[name], rows.select(table.schema.names)]))
            for name, table in HRMP_TABLES.items()
            if name in ("contents", "digests")
        },
    )


def extend_heads(heads: Digests, messages: Frame) -> Digests:
    """Return the head of a message queue chain after each message (``sent_at``, ``data``)."""
    rows = zip(heads, messages["sent_at"].tolist(), messages["data"].to_pylist(), strict=True)
    return digests([extend_head(head.tobytes(), QueuedMessage(sent_at, data)) for head, sent_at, data in rows])


def check_receipts(
    receipts: Frame, sent: Frame, calls: Frame, state: TableState, number: int, options: HrmpOptions
) -> Codes:
    """Return the first error of each receipt for relay block ``number``.

    Args:
        receipts: ``source`` (ascending), ``parent``, ``watermark``, ``relay_parent``, ``last`` (the previous
            watermark).
        sent: ``SENT_SCHEMA``.
        calls: ``CALLS_SCHEMA``.
        state: State of the relay chain.
        number: Number of the relay block.
        options: Options of the protocol.

    Returns:
        ``ReceiptError`` codes, int64.
    """
    paras = state["paras"]
    at = lookup_rows(paras, Frame({"para": receipts["source"]}, len(receipts)), ("para",))
    found = np.where(continues_head(receipts, paras, at), ReceiptError.OK, ReceiptError.ParentMismatch).astype(np.int64)
    watermarks = check_watermarks(receipts, state["digests"], number)
    at = lookup_rows(receipts, calls, ("source",))
    known = at >= 0
    counts = np.bincount(at[known], minlength=len(receipts))
    sizes = np.bincount(at[known], weights=data_lengths(calls)[known], minlength=len(receipts))
    wrong = [counts > MOST_CALLS, (sizes > MOST_CALL_BYTES) & (counts > 1)]
    for codes in (
        watermarks,
        check_outbound(receipts, sent, state["channels"], options),
        np.select(wrong, [ReceiptError.TooManyCalls, ReceiptError.CallsTooLarge], ReceiptError.OK).astype(np.int64),
    ):
        found = np.where(found == ReceiptError.OK, codes, found)
    return found


def apply_receipts(
    state: TableState, receipts: Frame, sent: Frame, calls: Frame, number: int, options: HrmpOptions
) -> CallResults:
    """Apply accepted receipts with their messages and calls in relay block ``number``.

    Args:
        state: State of the relay chain.
        receipts: ``source``, ``watermark``; rows of other chains in ``sent`` and ``calls`` are ignored.
        sent: ``SENT_SCHEMA``.
        calls: ``CALLS_SCHEMA``.
        number: Number of the relay block.
        options: Options of the protocol.
    """
    sent, calls = (rows.filter(np.isin(rows["source"], receipts["source"])) for rows in (sent, calls))
    return execute_calls(enqueue_messages(consume_messages(state, receipts), sent, number), calls, number, options)
