"""Reception: a parachain reads its channels, verifies their heads, and queues pages.

Messages arrive by relay block, within a block by sender. The running message queue chain of every channel, even without
new messages, must end at the head in the relay chain's state.

Reference: ICMP, X-6.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from causeway_proofs.hashing import DIGEST_BYTES, Digests
from causeway_proofs.order import group_rows, stable_order
from causeway_proofs.substrate import QueuedMessage, extend_head
from causeway_proofs.work import count_proof_bytes

from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.protocols.contract import Chains
from causeway.protocols.hrmp.pages import SIGNALS, ChannelSignal, drop_silent_ends
from causeway.protocols.hrmp.state import ENDS_SCHEMA, WAITING_SCHEMA
from causeway.protocols.relay_chain.options import HrmpOptions
from causeway.protocols.shared.digests import digests, rows_equal

Mask = npt.NDArray[np.bool_]

_END = ("chain", "foreign")


class RelayChainView(NamedTuple):
    """The channels and messages of parachains in the relay chain's state.

    Attributes:
        channels: ``CHANNELS_SCHEMA`` with ``chain`` (recipient) and ``foreign`` (sender), by these.
        contents: Messages in order of reception (``CONTENTS_SCHEMA`` with the same columns).
        of_channel: Channel of each message.
        reached: Head after each message.
        before: Head of each channel before the messages.
    """

    channels: Frame
    contents: Frame
    of_channel: npt.NDArray[np.int64]
    reached: Digests
    before: Digests

    def of(self, chains: Chains) -> RelayChainView:
        """Select the view of some chains."""
        channels, contents = (np.isin(rows["chain"], chains) for rows in (self.channels, self.contents))
        moved = np.cumsum(channels) - 1
        return RelayChainView(
            self.channels.filter(channels),
            self.contents.filter(contents),
            moved[self.of_channel[contents]],
            self.reached[contents],
            self.before[channels],
        )


def read_relay_chain(ends: Frame, contents: Frame, channels: Frame, tips: Frame) -> tuple[RelayChainView, Chains]:
    """Read the channels of parachains and verify their heads.

    Args:
        ends: ``ENDS_SCHEMA``.
        contents: ``CONTENTS_SCHEMA``.
        channels: ``CHANNELS_SCHEMA``.
        tips: ``chain``, ``watermark`` of the parachains.

    Returns:
        The view of the chains with correct heads, and the chains with a wrong one (``HeadMismatch``).
    """
    channels = _received_rows(channels, tips["chain"])
    channels = channels.take(stable_order(*(channels[name] for name in _END)))
    count_proof_bytes(DIGEST_BYTES * len(channels))
    contents = _received_rows(contents, tips["chain"])
    contents = contents.take(stable_order(contents["chain"], contents["sent_at"], contents["foreign"]))
    at = lookup_rows(ends, channels, _END)
    known = at >= 0
    before = np.zeros((len(channels), 32), dtype=np.uint8)
    before[known] = ends["head"][at[known]]
    of_channel = lookup_rows(channels, contents, _END)
    running = [head.tobytes() for head in before]
    reached = []
    rows = zip(of_channel.tolist(), contents["sent_at"].tolist(), contents["data"].to_pylist(), strict=True)
    for channel, sent_at, data in rows:
        if channel >= 0:
            running[channel] = extend_head(running[channel], QueuedMessage(sent_at, data))
        reached.append(running[channel] if channel >= 0 else bytes(32))
    wrong = ~rows_equal(digests(running), channels["mqc_head"])
    mismatched = np.unique(np.concatenate([channels["chain"][wrong], contents["chain"][of_channel < 0]]))
    found = RelayChainView(channels, contents, of_channel, digests(reached), before)
    return found.of(np.setdiff1d(tips["chain"], mismatched)), mismatched.astype(np.uint32)


def _received_rows(rows: Frame, chains: Chains) -> Frame:
    received = rows.filter(np.isin(rows["recipient"], chains))
    return received.with_columns(chain=received["recipient"], foreign=received["sender"])


class InboundMessages(NamedTuple):
    """Result of a reception.

    Attributes:
        consumed: Mask of consumed messages.
        watermark: New watermark of each parachain.
        ends: Peers after (``ENDS_SCHEMA``).
        waiting: Remaining queue (``WAITING_SCHEMA``).
        executed: Pages to execute, in order (``WAITING_SCHEMA``).
        dropped: Pages that a full queue drops (``WAITING_SCHEMA``).
    """

    consumed: Mask
    watermark: npt.NDArray[np.uint64]
    ends: Frame
    waiting: Frame
    executed: Frame
    dropped: Frame


def receive_messages(
    ends: Frame, waiting: Frame, found: RelayChainView, tips: Frame, relay_parent: int, options: HrmpOptions
) -> InboundMessages:
    """Receive messages on a relay parent.

    A block consumes all messages. With ``overflow = wait`` it consumes whole relay blocks up to the first with a page
    for a full queue, but at least one: the relay chain would refuse a constant watermark.

    Args:
        ends: ``ENDS_SCHEMA``.
        waiting: ``WAITING_SCHEMA``.
        found: View of parachains with correct heads.
        tips: These parachains.
        relay_parent: Number of the relay parent.
        options: Options of the protocol.
    """
    contents = found.contents
    signals = np.array(
        [
            int(next((signal for signal, wire in SIGNALS.items() if wire == data), ChannelSignal.NONE))
            for data in contents["data"].to_pylist()
        ],
        dtype=np.uint8,
    )
    # Queue position of each page if none is dropped; 0 for signals.
    is_page = signals == ChannelSignal.NONE
    counts = np.zeros(len(is_page), dtype=np.int64)
    of_channel = found.of_channel[is_page]
    order = np.argsort(of_channel, kind="stable")
    ranks = np.empty(len(of_channel), dtype=np.int64)
    ranks[order] = group_rows(of_channel[order]).ranks()
    counts[is_page] = ranks + _count_waiting(waiting, found.channels)[of_channel]
    overflows = (signals == ChannelSignal.NONE) & (counts >= options.drop_threshold)
    if options.overflow == "wait":
        consumed, overflows = _consumable_prefix(contents, overflows), np.zeros(len(contents), dtype=bool)
    else:
        consumed, counts = np.ones(len(contents), dtype=bool), np.minimum(counts, options.drop_threshold)
    pairs = found.channels.select(_END)
    new = pairs.filter(lookup_rows(ends, pairs, _END) < 0)
    if len(new):
        zero = np.zeros(len(new), dtype=np.uint8)
        added = new.with_columns(
            head=np.zeros((len(new), 32), dtype=np.uint8), suspended=zero, suspended_by=zero, signal=zero
        )
        joined = concat([ends, added.select(ENDS_SCHEMA.names)])
        ends = joined.take(stable_order(*(joined[name] for name in _END)))
    at = lookup_rows(ends, found.channels, _END)
    columns = {name: ends[name].copy() for name in ENDS_SCHEMA.names}
    own = np.isin(ends["chain"], tips["chain"])
    # Forget the head and signals of a closed channel. Its recipient makes a block, to accept, before it reopens.
    columns["head"][own] = 0
    without_channel = own.copy()
    without_channel[at] = False
    columns["suspended_by"][without_channel] = 0
    heads = found.before.copy()
    heads[found.of_channel[consumed]] = found.reached[consumed]
    columns["head"][at] = heads
    signals_read = consumed & (signals != ChannelSignal.NONE)
    # Assigned in order: the last signal of a channel counts.
    columns["suspended_by"][at[found.of_channel[signals_read]]] = signals[signals_read] == ChannelSignal.SUSPEND
    over_threshold = consumed & (signals == ChannelSignal.NONE) & (counts >= options.suspend_threshold)
    rows = at[np.unique(found.of_channel[over_threshold])]
    rows = rows[columns["suspended"][rows] == 0]
    columns["suspended"][rows], columns["signal"][rows] = 1, ChannelSignal.SUSPEND
    pages_received = contents.filter(consumed & (signals == ChannelSignal.NONE)).select(WAITING_SCHEMA.names)
    is_dropped = overflows[consumed & (signals == ChannelSignal.NONE)]
    queue = concat([waiting, pages_received.filter(~is_dropped)])
    queue = queue.take(stable_order(*(queue[name] for name in ("chain", "sent_at", "sender"))))
    now = np.isin(queue["chain"], tips["chain"])
    if options.pages_per_block:
        now &= _pages_to_execute(queue, options)
    left = queue.filter(~now)
    can_resume = own & (columns["suspended"] == 1) & (_count_waiting(left, ends) <= options.resume_threshold)
    columns["suspended"][can_resume], columns["signal"][can_resume] = 0, ChannelSignal.RESUME
    ends = drop_silent_ends(Frame(columns, len(ends)))
    # New watermark: the relay parent after full consumption, else the last consumed block, else the old one.
    watermark = np.full(len(tips), relay_parent, dtype=np.uint64)
    partial = lookup_rows(tips, contents.filter(~consumed), ("chain",))
    watermark[partial] = tips["watermark"][partial]
    consumed_rows = contents.filter(consumed)
    at = lookup_rows(tips, consumed_rows, ("chain",))
    last = watermark.copy()
    np.maximum.at(last, at, consumed_rows["sent_at"])
    watermark[partial] = last[partial]
    return InboundMessages(consumed, watermark, ends, left, queue.filter(now), pages_received.filter(is_dropped))


def _pages_to_execute(queue: Frame, options: HrmpOptions) -> Mask:
    """Return a mask of pages to execute, up to the limit of a block.

    With ``overflow = wait`` further pages follow until at most ``drop_threshold`` of each sender remain. A single relay
    block may bring more pages than a block executes.
    """
    ranks = group_rows(queue["chain"]).ranks()
    executed: Mask = ranks < options.pages_per_block
    if options.overflow == "drop" or len(queue) == 0:
        return executed
    order = stable_order(*(queue[name].astype(np.uint64) for name in ("chain", "sender")))
    of_sender = group_rows(queue["chain"][order], queue["sender"][order])
    later = np.empty(len(queue), dtype=np.int64)
    later[order] = of_sender.spread(of_sender.counts) - 1 - of_sender.ranks()
    of_chain = group_rows(queue["chain"])
    last = np.maximum.reduceat(np.where(later >= options.drop_threshold, ranks, -1), of_chain.starts)
    return np.asarray(executed | (ranks <= of_chain.spread(last)))


def _count_waiting(waiting: Frame, pairs: Frame) -> npt.NDArray[np.int64]:
    """Return the number of waiting pages of each pair (``chain``, ``foreign``)."""
    at = lookup_rows(pairs, waiting.with_columns(foreign=waiting["sender"]), _END)
    return np.bincount(at[at >= 0], minlength=len(pairs))


def _consumable_prefix(contents: Frame, over: Mask) -> Mask:
    """Return a mask of the messages of each chain before the first relay block with an overflow."""
    if not over.any():
        return np.ones(len(contents), dtype=bool)
    of_chain = group_rows(contents["chain"])
    first = of_chain.spread(contents["sent_at"][of_chain.starts])
    stop = np.where(over & (contents["sent_at"] > first), contents["sent_at"], np.iinfo(np.uint64).max)
    return np.asarray(contents["sent_at"] < of_chain.spread(np.minimum.reduceat(stop, of_chain.starts)))
