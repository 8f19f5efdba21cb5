"""What the relay chain accepts of a receipt: its watermark and its messages (ICMP reference X-6).

All receipts of a block are checked against the state that the block begins with.

The contents of channels: what the relay chain takes in, and what their recipients have consumed (ICMP reference
X-6).

HRMP in a block of the relay chain (ICMP reference X-6): the session first, then what was accepted, then calls.

All receipts are checked against the state that ``new_session`` leaves; ``apply`` is for those that no check refused.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from causeway_proofs.hashing import Digests
from causeway_proofs.order import group_rows, stable_order
from causeway_proofs.substrate import QueuedMessage, extend_head

from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.protocols.hrmp.channels import CallResults, execute_calls
from causeway.protocols.hrmp.errors import ReceiptError
from causeway.protocols.hrmp.state import CONTENTS_SCHEMA, DIGESTS_SCHEMA, HRMP_TABLES, PAIR
from causeway.protocols.relay_chain.network import RELAY_POSITION
from causeway.protocols.relay_chain.options import HrmpOptions
from causeway.protocols.shared.digests import digests, rows_equal
from causeway.protocols.shared.state_tables import TableState

Codes = npt.NDArray[np.int64]

MOST_CALLS = 100
MOST_CALL_BYTES = 20_000
"""Of a chain in a block: upward messages, and their bytes; a single one may have more (X-4)."""


def check_parents(receipts: Frame, paras: Frame) -> Codes:
    """Return which receipts (``source``, ``parent``) are of no registered parachain or do not go on from its last block
    that was included."""
    at = lookup_rows(paras, Frame({"para": receipts["source"]}, len(receipts)), ("para",))
    follows = at >= 0
    follows[follows] = paras["active"][at[follows]] == 1
    follows[follows] = rows_equal(receipts["parent"][follows], paras["head"][at[follows]])
    return np.where(follows, ReceiptError.OK, ReceiptError.ParentMismatch).astype(np.int64)


def check_watermarks(receipts: Frame, digests: Frame, number: int) -> Codes:
    """Return what is wrong with each watermark (``Acceptance``), OK where nothing is.

    ``receipts``: ``source``, ``watermark``, ``relay_parent``, and ``last``: the watermark before. It is the relay
    parent, which is below the relay block ``number`` that is being made, and never falls, or it is above the last one a
    block with messages.
    """
    wanted, parent = receipts["watermark"], receipts["relay_parent"]
    first = group_rows(digests["recipient"], digests["number"]).starts
    blocks = digests.take(first)
    asked = Frame({"recipient": receipts["source"], "number": wanted}, len(receipts))
    lands = lookup_rows(blocks, asked, ("recipient", "number")) >= 0
    found = np.select(
        [
            parent >= np.uint64(number),
            (wanted == parent) & (wanted >= receipts["last"]),
            wanted > parent,
            wanted <= receipts["last"],
            ~lands,
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
    """Return what is wrong with the messages of each receipt (``source``), OK where nothing is: too many of them, else
    the first error of the first message that has one.

    ``sent``: ``SENT_SCHEMA``, by source and place.
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
    """Return the state in which all at or below the watermarks of receipts (``source``, ``watermark``) has left its
    channels, and made room in them."""
    contents, seen, channels = state["contents"], state["digests"], state["channels"]
    done = _below(receipts, contents["recipient"], contents["sent_at"])
    forgotten = _below(receipts, seen["recipient"], seen["number"])
    changed = {}
    if done.any():
        gone = contents.filter(done)
        counts, sizes = _sums(channels, gone)
        changed["contents"] = contents.filter(~done)
        changed["channels"] = channels.with_columns(
            msg_count=channels["msg_count"] - counts, total_size=channels["total_size"] - sizes
        )
    if forgotten.any():
        changed["digests"] = seen.filter(~forgotten)
    return state.with_tables(**changed)


def _below(receipts: Frame, recipient: np.ndarray, number: np.ndarray) -> np.ndarray:
    at = lookup_rows(receipts, Frame({"source": recipient}, len(recipient)), ("source",))
    below = at >= 0
    below[below] = number[below] <= receipts["watermark"][at[below]]
    return below


def _sums(channels: Frame, rows: Frame) -> tuple[np.ndarray, np.ndarray]:
    """Return how many of the rows are each channel's, and their bytes."""
    at = lookup_rows(channels, rows, PAIR)
    counts = np.bincount(at, minlength=len(channels)).astype(np.uint32)
    sizes = np.bincount(at, weights=data_lengths(rows), minlength=len(channels)).astype(np.uint32)
    return counts, sizes


def enqueue_messages(state: TableState, sent: Frame, number: int) -> TableState:
    """Return the state in which messages (``SENT_SCHEMA``, all of them accepted) are in their channels, sent in the
    relay block ``number``."""
    count = len(sent)
    if count == 0:
        return state
    block = np.full(count, number, dtype=np.uint64)
    rows = sent.with_columns(
        chain=np.full(count, RELAY_POSITION, dtype=np.uint32),
        sender=sent["source"],
        recipient=sent["to"],
        sent_at=block,
        number=block,
    )
    channels = state["channels"]
    counts, sizes = _sums(channels, rows)
    at = lookup_rows(channels, rows, PAIR)
    heads = channels["mqc_head"].copy()
    heads[at] = extend_heads(heads[at], rows)
    return state.with_tables(
        channels=channels.with_columns(
            msg_count=channels["msg_count"] + counts, total_size=channels["total_size"] + sizes, mqc_head=heads
        ),
        contents=_added(state, "contents", rows.select(CONTENTS_SCHEMA.names)),
        digests=_added(state, "digests", rows.select(DIGESTS_SCHEMA.names)),
    )


def _added(state: TableState, name: str, rows: Frame) -> Frame:
    joined = concat([state[name], rows])
    return joined.take(stable_order(*(joined[key] for key in HRMP_TABLES[name].order)))


def extend_heads(heads: Digests, messages: Frame) -> Digests:
    """Return the head of a message queue chain after each message (``sent_at``, ``data``), one head a message."""
    rows = zip(heads, messages["sent_at"].tolist(), messages["data"].to_pylist(), strict=True)
    return digests([extend_head(head.tobytes(), QueuedMessage(sent_at, data)) for head, sent_at, data in rows])


def check_receipts(
    receipts: Frame, sent: Frame, calls: Frame, state: TableState, number: int, options: HrmpOptions
) -> Codes:
    """Return the first error (``Acceptance``) of each receipt for the relay block ``number``: ``source`` (ascending),
    ``parent``, ``watermark``, ``relay_parent``, ``last`` (the watermark before)."""
    found = check_parents(receipts, state["paras"])
    watermarks = check_watermarks(receipts, state["digests"], number)
    # Which receipts bring too many calls, or too many bytes of them.
    at = lookup_rows(receipts, calls, ("source",))
    mine = at >= 0
    counts = np.bincount(at[mine], minlength=len(receipts))
    sizes = np.bincount(at[mine], weights=data_lengths(calls)[mine], minlength=len(receipts))
    wrong = [counts > MOST_CALLS, (sizes > MOST_CALL_BYTES) & (counts > 1)]
    for later in (
        watermarks,
        check_outbound(receipts, sent, state["channels"], options),
        np.select(wrong, [ReceiptError.TooManyCalls, ReceiptError.CallsTooLarge], ReceiptError.OK).astype(np.int64),
    ):
        found = np.where(found == ReceiptError.OK, later, found)
    return found


def apply_receipts(
    state: TableState, receipts: Frame, sent: Frame, calls: Frame, number: int, options: HrmpOptions
) -> CallResults:
    """Return the state after the receipts (``source``, ``watermark``) of the relay block ``number``, with their
    messages and their calls; what other chains sent and asked for stays aside."""
    state = enqueue_messages(consume_messages(state, receipts), _of(receipts, sent), number)
    return execute_calls(state, _of(receipts, calls), number, options)


def _of(receipts: Frame, rows: Frame) -> Frame:
    return rows.filter(np.isin(rows["source"], receipts["source"]))
