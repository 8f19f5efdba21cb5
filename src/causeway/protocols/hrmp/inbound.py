"""What a parachain receives: channels merged, held against their heads, and put into queues (ICMP reference X-6).

Messages come by the relay block in which they were sent, and in it by sender. The running message queue chain of every
channel, also of one without new messages, must end at the head that the relay chain's state has.
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
    """What chains see of the relay chain's state: their channels (``CHANNELS_SCHEMA`` with ``chain`` the recipient and
    ``foreign`` the sender, by these), the contents of these in the order in which they are received
    (``CONTENTS_SCHEMA`` with the same), the channel of each message, and the head after it; the heads before, one a
    channel."""

    channels: Frame
    contents: Frame
    of_channel: npt.NDArray[np.int64]
    reached: Digests
    before: Digests

    def of(self, chains: Chains) -> RelayChainView:
        """Return what some of the chains see."""
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
    """Return what the chains of ``tips`` (``chain``, ``watermark``) see, and those for which heads do not agree
    (``HeadMismatch``): of what they see nothing is returned."""
    channels = _received(channels, tips["chain"])
    channels = channels.take(stable_order(*(channels[name] for name in _END)))
    count_proof_bytes(DIGEST_BYTES * len(channels))
    contents = _received(contents, tips["chain"])
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


def _received(rows: Frame, chains: Chains) -> Frame:
    mine = rows.filter(np.isin(rows["recipient"], chains))
    return mine.with_columns(chain=mine["recipient"], foreign=mine["sender"])


class InboundMessages(NamedTuple):
    """What blocks receive: how many of the messages seen are consumed, as a mask; the new watermark of each chain of
    ``tips``; what is left of ``ends`` and ``waiting``; the pages that are executed and those that are dropped
    (``WAITING_SCHEMA``), in their order."""

    consumed: Mask
    watermark: npt.NDArray[np.uint64]
    ends: Frame
    waiting: Frame
    executed: Frame
    dropped: Frame


def receive_messages(
    ends: Frame, waiting: Frame, found: RelayChainView, tips: Frame, relay_parent: int, options: HrmpOptions
) -> InboundMessages:
    """Receive what the chains of ``tips`` see (``seen``), on a relay parent: everything, or with ``overflow = wait``
    whole relay blocks, at least one, up to the first of which a page would find the queue full: a watermark that stays
    would be refused. ``tips``: of chains whose heads agree."""
    contents = found.contents
    signals = np.array(
        [
            int(next((signal for signal, wire in SIGNALS.items() if wire == data), ChannelSignal.NONE))
            for data in contents["data"].to_pylist()
        ],
        dtype=np.uint8,
    )
    # How many pages of its channel wait before each page, if none is dropped; 0 for signals.
    page = signals == ChannelSignal.NONE
    counts = np.zeros(len(page), dtype=np.int64)
    of_channel = found.of_channel[page]
    order = np.argsort(of_channel, kind="stable")
    ranks = np.empty(len(of_channel), dtype=np.int64)
    ranks[order] = group_rows(of_channel[order]).ranks()
    counts[page] = ranks + _waiting_of(waiting, found.channels)[of_channel]
    over = (signals == ChannelSignal.NONE) & (counts >= options.drop_threshold)
    if options.overflow == "wait":
        consumed, over = _prefix(contents, over), np.zeros(len(contents), dtype=bool)
    else:
        consumed, counts = np.ones(len(contents), dtype=bool), np.minimum(counts, options.drop_threshold)
    # The ends with a row for each of `pairs`.
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
    # Of a channel that is no more the head is forgotten, and what was said over it: before one opens anew its recipient
    # makes a block, to accept.
    columns["head"][own] = 0
    unheard = own.copy()
    unheard[at] = False
    columns["suspended_by"][unheard] = 0
    # The head of each channel after what is consumed of it.
    heads = found.before.copy()
    heads[found.of_channel[consumed]] = found.reached[consumed]
    columns["head"][at] = heads
    told_by = consumed & (signals != ChannelSignal.NONE)
    # Assigned in order: the last signal of a channel counts.
    columns["suspended_by"][at[found.of_channel[told_by]]] = signals[told_by] == ChannelSignal.SUSPEND
    full = consumed & (signals == ChannelSignal.NONE) & (counts >= options.suspend_threshold)
    rows = at[np.unique(found.of_channel[full])]
    rows = rows[columns["suspended"][rows] == 0]
    columns["suspended"][rows], columns["signal"][rows] = 1, ChannelSignal.SUSPEND
    came = contents.filter(consumed & (signals == ChannelSignal.NONE)).select(WAITING_SCHEMA.names)
    lost = over[consumed & (signals == ChannelSignal.NONE)]
    queue = concat([waiting, came.filter(~lost)])
    queue = queue.take(stable_order(*(queue[name] for name in ("chain", "sent_at", "sender"))))
    now = np.isin(queue["chain"], tips["chain"])
    if options.pages_per_block:
        now &= _executed(queue, options)
    left = queue.filter(~now)
    calm = own & (columns["suspended"] == 1) & (_waiting_of(left, ends) <= options.resume_threshold)
    columns["suspended"][calm], columns["signal"][calm] = 0, ChannelSignal.RESUME
    ends = drop_silent_ends(Frame(columns, len(ends)))
    # The new watermark of each chain: the relay parent if it consumed everything, else the last block of which it
    # did, else the old one.
    watermark = np.full(len(tips), relay_parent, dtype=np.uint64)
    part = lookup_rows(tips, contents.filter(~consumed), ("chain",))
    watermark[part] = tips["watermark"][part]
    taken = contents.filter(consumed)
    at = lookup_rows(tips, taken, ("chain",))
    last = watermark.copy()
    np.maximum.at(last, at, taken["sent_at"])
    watermark[part] = last[part]
    return InboundMessages(consumed, watermark, ends, left, queue.filter(now), came.filter(lost))


def _executed(queue: Frame, options: HrmpOptions) -> Mask:
    """Return which pages of each chain are executed: the first, as many as a block takes; with ``overflow = wait`` also
    those behind them up to where of no sender more than ``drop_threshold`` wait: of the one relay block that a block
    consumes at least, more may come than it would take."""
    ranks = group_rows(queue["chain"]).ranks()
    now: Mask = ranks < options.pages_per_block
    if options.overflow == "drop" or len(queue) == 0:
        return now
    order = stable_order(*(queue[name].astype(np.uint64) for name in ("chain", "sender")))
    of_sender = group_rows(queue["chain"][order], queue["sender"][order])
    later = np.empty(len(queue), dtype=np.int64)
    later[order] = of_sender.spread(of_sender.counts) - 1 - of_sender.ranks()
    of_chain = group_rows(queue["chain"])
    last = np.maximum.reduceat(np.where(later >= options.drop_threshold, ranks, -1), of_chain.starts)
    return np.asarray(now | (ranks <= of_chain.spread(last)))


def _waiting_of(waiting: Frame, pairs: Frame) -> npt.NDArray[np.int64]:
    """Return how many pages of each pair (``chain``, ``foreign``) wait."""
    at = lookup_rows(pairs, waiting.with_columns(foreign=waiting["sender"]), _END)
    return np.bincount(at[at >= 0], minlength=len(pairs))


def _prefix(contents: Frame, over: Mask) -> Mask:
    """Return which messages are consumed: of each chain those of relay blocks below the first of which one is over."""
    if not over.any():
        return np.ones(len(contents), dtype=bool)
    of_chain = group_rows(contents["chain"])
    first = of_chain.spread(contents["sent_at"][of_chain.starts])
    stop = np.where(over & (contents["sent_at"] > first), contents["sent_at"], np.iinfo(np.uint64).max)
    return np.asarray(contents["sent_at"] < of_chain.spread(np.minimum.reduceat(stop, of_chain.starts)))
