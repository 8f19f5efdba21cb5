"""The contents of channels: what the relay chain takes in, and what their recipients have consumed (ICMP reference
X-6)."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.order import stable_order
from causeway.proofs.hashing import Digests
from causeway.proofs.substrate import QueuedMessage, extend_head
from causeway.protocols.digests import digests
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.hrmp.checks import data_lengths
from causeway.protocols.icmp.hrmp.tables import CONTENTS_SCHEMA, DIGESTS_SCHEMA, HRMP_TABLES, PAIR
from causeway.protocols.tabled_state import TabledState


def consume(state: TabledState, receipts: Frame) -> TabledState:
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
    at = lookup(receipts, Frame({"source": recipient}, len(recipient)), ("source",))
    below = at >= 0
    below[below] = number[below] <= receipts["watermark"][at[below]]
    return below


def _sums(channels: Frame, rows: Frame) -> tuple[np.ndarray, np.ndarray]:
    """Return how many of the rows are each channel's, and their bytes."""
    at = lookup(channels, rows, PAIR)
    counts = np.bincount(at, minlength=len(channels)).astype(np.uint32)
    sizes = np.bincount(at, weights=data_lengths(rows), minlength=len(channels)).astype(np.uint32)
    return counts, sizes


def queue(state: TabledState, sent: Frame, number: int) -> TabledState:
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
    at = lookup(channels, rows, PAIR)
    heads = channels["mqc_head"].copy()
    heads[at] = extended(heads[at], rows)
    return state.with_tables(
        channels=channels.with_columns(
            msg_count=channels["msg_count"] + counts, total_size=channels["total_size"] + sizes, mqc_head=heads
        ),
        contents=_added(state, "contents", rows.select(CONTENTS_SCHEMA.names)),
        digests=_added(state, "digests", rows.select(DIGESTS_SCHEMA.names)),
    )


def _added(state: TabledState, name: str, rows: Frame) -> Frame:
    joined = concat([state[name], rows])
    return joined.take(stable_order(*(joined[key] for key in HRMP_TABLES[name].order)))


def extended(heads: Digests, messages: Frame) -> Digests:
    """Return the head of a message queue chain after each message (``sent_at``, ``data``), one head a message."""
    rows = zip(heads, messages["sent_at"].tolist(), messages["data"].to_pylist(), strict=True)
    return digests([extend_head(head.tobytes(), QueuedMessage(sent_at, data)) for head, sent_at, data in rows])
