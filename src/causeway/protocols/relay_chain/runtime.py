"""The relay chain's runtime: it includes receipts, and keeps which queues are not routed yet (ICMP reference 3.1).

What the relay chain tells senders of queues that nobody will ever consume (ICMP reference D-3, D-12, 5.1 (2)).

Whoever is deregistered, does not want to hear a sender, or has its watermark moved, leaves queues that were posted and
are not routed. Their sender, which keeps the bodies, can tell them neither from those that wait nor from those that
were consumed: so each leaf lists them for some blocks.

Calls to the relay chain that are no receipts: parachains come and go, and censor each other (D-3; 5.1 (2)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import group_rows, stable_order
from causeway_proofs.substrate import EMPTY_ROOT

from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.protocols.relay_chain.errors import DropReason, Inclusion
from causeway.protocols.relay_chain.network import RELAY_POSITION
from causeway.protocols.relay_chain.options import IcmpOptions
from causeway.protocols.relay_chain.state import (
    BLOCKED_SCHEMA,
    DROPPED_SCHEMA,
    PARAS_SCHEMA,
    STATE_TABLES,
    UNROUTED_SCHEMA,
    RelayLeaf,
)
from causeway.protocols.shared.digests import digests, rows_equal

TOLD_BLOCKS = 5
"""A queue is listed in so many blocks at least. Its sender gives up the body in the tick after the first, or where
there were several leaves after the second, which is alone; in that tick it makes no block, so that it never goes back
behind it for one. But for one that it had made before: that is refused by the second block after the one that it saw,
so that it has gone back when there is a third, and gives the body up in the tick after."""


def add_dropped_queues(leaf: RelayLeaf, queues: Frame, why: DropReason, number: int) -> RelayLeaf:
    """Return the leaf that lists ``queues`` (``to``, ``source``, ``issued``), which the block ``number`` lets go."""
    count = len(queues)
    if count == 0:
        return leaf
    columns = {
        "chain": np.full(count, RELAY_POSITION, dtype=np.uint32),
        "leaf": np.full(count, leaf.blocks["leaf"][0], dtype=np.uint8),
        **{name: queues[name] for name in ("to", "source", "issued")},
        "why": np.full(count, why, dtype=np.uint8),
        "until": np.full(count, number + TOLD_BLOCKS - 1, dtype=np.uint64),
    }
    joined = concat([leaf.dropped, Frame(columns, count).select(DROPPED_SCHEMA.names)])
    order = STATE_TABLES["dropped"].order
    return replace(leaf, dropped=joined.take(stable_order(*(joined[name] for name in order))))


def prune_delivered(leaf: RelayLeaf, number: int, *, alone: bool) -> RelayLeaf:
    """Return the leaf as its block ``number`` begins: without what was told long enough. As long as it is not ``alone``
    nobody gives anything up, and nothing is told."""
    dropped = leaf.dropped
    if len(dropped) == 0:
        return leaf
    if not alone:
        until = np.full(len(dropped), number + TOLD_BLOCKS - 1, dtype=np.uint64)
        return replace(leaf, dropped=dropped.with_columns(until=until).select(DROPPED_SCHEMA.names))
    stays = dropped["until"] >= np.uint64(number)
    return leaf if stays.all() else replace(leaf, dropped=dropped.filter(stays))


class ParachainCallKind(Enum):
    """What a call does."""

    REGISTER = "register"
    DEREGISTER = "deregister"
    BLOCK = "block"
    UNBLOCK = "unblock"


@dataclass(frozen=True)
class ParachainCall:
    """A call about the parachain ``para``. ``other``: whom it does, or does not, want to hear; ``head``: of one that is
    registered, the block that it goes on from; None: the one that was included last, or its ``genesis``."""

    kind: ParachainCallKind
    para: int
    other: int = 0
    head: bytes | None = None
    genesis: bytes = bytes(32)


def apply_calls(leaf: RelayLeaf, calls: Sequence[ParachainCall], number: int) -> RelayLeaf:
    """Return the leaf after the calls of the relay block ``number``; those that its state does not allow do nothing:
    who is active cannot be registered, and all else is for active parachains."""
    for call in calls:
        row = np.flatnonzero(leaf.paras["para"] == np.uint32(call.para))
        active = len(row) == 1 and bool(leaf.paras["active"][row[0]])
        if active == (call.kind is ParachainCallKind.REGISTER):
            continue
        if call.kind is ParachainCallKind.REGISTER:
            leaf = _registered(leaf, call, row)
        elif call.kind is ParachainCallKind.DEREGISTER:
            leaf = _deregistered(leaf, call.para, int(row[0]), number)
        else:
            leaf = _censoring(leaf, call, number)
    return leaf


def _registered(leaf: RelayLeaf, call: ParachainCall, row: np.ndarray) -> RelayLeaf:
    """The first registration sets the watermark to genesis, every later one to the parent of its block (D-3)."""
    paras = leaf.paras
    if len(row):
        columns = {name: paras[name].copy() for name in ("active", "watermark", "watermark_hash")}
        columns["active"][row] = 1
        columns["watermark"][row] = leaf.number
        columns["watermark_hash"][row] = digests([leaf.hash])
        if call.head is not None:
            columns["head"] = paras["head"].copy()
            columns["head"][row] = digests([call.head])
        return replace(leaf, paras=paras.with_columns(**columns))
    genesis = leaf.ancestry["hash"][0].tobytes() if len(leaf.ancestry) else leaf.hash
    zero = np.zeros(1, dtype=np.uint64)
    added = Frame(
        {
            "chain": np.array([RELAY_POSITION], dtype=np.uint32),
            "leaf": leaf.blocks["leaf"],
            "para": np.array([call.para], dtype=np.uint32),
            "active": np.ones(1, dtype=np.uint8),
            "number": zero,
            "head": digests([call.genesis if call.head is None else call.head]),
            "watermark": zero,
            "watermark_hash": digests([genesis]),
            "included": zero,
            "refused": np.zeros((1, 32), dtype=np.uint8),
        },
        1,
    )
    joined = concat([paras, added.select(PARAS_SCHEMA.names)])
    return replace(leaf, paras=joined.take(stable_order(joined["para"])))


def _deregistered(leaf: RelayLeaf, para: int, row: int, number: int) -> RelayLeaf:
    """The queues to it go, and those who sent them are told (``dropped``); those from it stay; so does its head, and
    what others do not want to hear of it."""
    active = leaf.paras["active"].copy()
    active[row] = 0
    gone = leaf.unrouted["to"] == np.uint32(para)
    unrouted = leaf.unrouted.filter(~gone)
    blocked = leaf.blocked.filter(leaf.blocked["to"] != np.uint32(para))
    paras = leaf.paras.with_columns(active=active)
    leaf = add_dropped_queues(leaf, leaf.unrouted.filter(gone), DropReason.DestinationDoesNotExist, number)
    return replace(leaf, paras=paras, unrouted=unrouted, blocked=blocked)


def _censoring(leaf: RelayLeaf, call: ParachainCall, number: int) -> RelayLeaf:
    """``block`` and ``unblock`` by ``para`` (5.1 (2)); who is censored already stays so."""
    blocked = leaf.blocked
    pair = (blocked["to"] == np.uint32(call.para)) & (blocked["source"] == np.uint32(call.other))
    if call.kind is ParachainCallKind.UNBLOCK:
        return replace(leaf, blocked=blocked.filter(~pair))
    if pair.any():
        return leaf
    added = Frame(
        {
            "chain": np.array([RELAY_POSITION], dtype=np.uint32),
            "leaf": leaf.blocks["leaf"],
            "to": np.array([call.para], dtype=np.uint32),
            "source": np.array([call.other], dtype=np.uint32),
            "since": np.array([number], dtype=np.uint64),
        },
        1,
    )
    joined = concat([blocked, added.select(BLOCKED_SCHEMA.names)])
    return replace(leaf, blocked=joined.take(stable_order(joined["to"], joined["source"])))


Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CandidateReceipts:
    """Receipts in the order in which they came.

    ``rows``: ``receipt`` (a number of its own, ascending) and ``CANDIDATES_SCHEMA``; ``egress``: their entries of
    egress_queue_roots in order, ``receipt``, ``to``, ``root``.
    """

    rows: Frame
    egress: Frame


@dataclass(frozen=True)
class InclusionResult:
    """A leaf after a relay block, its block, whose hash is not known yet, left out; what the author did with each
    receipt (``codes``, in the order of ``Receipts.rows``)."""

    leaf: RelayLeaf
    codes: Codes


def include(
    leaf: RelayLeaf,
    receipts: CandidateReceipts,
    calls: Sequence[ParachainCall],
    tick: int,
    options: IcmpOptions,
    *,
    alone: bool = True,
) -> InclusionResult:
    """Make a relay block on ``leaf``, which is the only one or not (``alone``), of what is valid of ``calls``, then of
    ``receipts``.

    The rows that it adds to ``unrouted`` have zeros for the hash (``posted_in`` fills them in).
    """
    number = leaf.number + 1
    leaf = apply_calls(prune_delivered(leaf, number, alone=alone), calls, number)
    rows, paras = receipts.rows, leaf.paras
    at = lookup_rows(paras, Frame({"para": rows["source"]}, len(rows)), ("para",))
    # 3.1 step 1: the parachain is active, and the receipt continues its head.
    fits = at >= 0
    fits[fits] = paras["active"][at[fits]] == 1
    fits[fits] = rows_equal(rows["parent"][fits], paras["head"][at[fits]])
    codes = np.where(fits, Inclusion.OK, Inclusion.ParentMismatch).astype(np.int64)
    _check(codes, _queues(receipts, paras))
    if options.watermark_mode == "per_candidate":
        _check(codes, _watermarks(rows, at, leaf, options.watermark_rule))
    codes = _once(codes, rows["source"])
    good = codes == Inclusion.OK
    taken, at_taken = rows.filter(good), at[good]
    if options.watermark_mode == "now_minus_1":
        leaf = add_dropped_queues(leaf, _skipped(leaf.unrouted, taken), DropReason.Skipped, number)
        parent = np.full(len(taken), leaf.number, dtype=np.uint64)
        taken = taken.with_columns(watermark=parent, watermark_hash=digests([leaf.hash] * len(taken)))
    after = _with_receipts(paras, taken, at_taken, number)
    # The parachains with the last of their own blocks that was refused.
    bad = np.flatnonzero((codes != Inclusion.OK) & (codes != Inclusion.DuplicateCandidate) & (at >= 0))
    if len(bad):
        refused = after["refused"].copy()
        refused[at[bad]] = rows["head"][bad]
        after = after.with_columns(refused=refused)
    # 3.1 step 4, second half: return the queues above the watermarks of those they are for.
    if len(leaf.unrouted) == 0:
        unrouted = leaf.unrouted
    else:
        at = lookup_rows(after, Frame({"para": leaf.unrouted["to"]}, len(leaf.unrouted)), ("para",))
        above = leaf.unrouted["number"] > after["watermark"][at]
        unrouted = leaf.unrouted if above.all() else leaf.unrouted.filter(above)
    added, censored = _posted(receipts, taken, leaf.blocked, number, tick)
    leaf = add_dropped_queues(leaf, censored, DropReason.Censored, number)
    if len(added) or len(unrouted) < len(leaf.unrouted):
        added = added.with_columns(leaf=np.full(len(added), int(leaf.blocks["leaf"][0]), dtype=np.uint8))
        unrouted = concat([unrouted, added.select(UNROUTED_SCHEMA.names)])
    return InclusionResult(replace(leaf, paras=after, unrouted=unrouted), codes)


def set_posted_hash(leaf: RelayLeaf, number: int, block_hash: bytes) -> RelayLeaf:
    """Return the leaf in which the queues of the block ``number`` have its hash."""
    unrouted = leaf.unrouted
    posted = unrouted["number"] == np.uint64(number)
    if not posted.any():
        return leaf
    hashes = np.where(posted[:, None], digests([block_hash]), unrouted["hash"])
    return replace(leaf, unrouted=unrouted.with_columns(hash=hashes))


def _check(codes: Codes, found: Codes) -> None:
    """Put what a further check found where nothing was found before."""
    codes[:] = np.where(codes == Inclusion.OK, found, codes)


def _once(codes: Codes, source: npt.NDArray[np.uint32]) -> Codes:
    """A block has one receipt of a parachain at most: those that come after one that is good are too many (3.1)."""
    if len(codes) < 2:
        return codes
    order = stable_order(source)
    groups = group_rows(source[order])
    good = (codes[order] == Inclusion.OK).astype(np.int64)
    before = np.cumsum(good) - good
    before -= groups.spread(before[groups.starts])
    found = codes.copy()
    found[order[before > 0]] = Inclusion.DuplicateCandidate
    return found


def _queues(receipts: CandidateReceipts, paras: Frame) -> Codes:
    """3.1 step 2, pair by pair: roots ascend by ParaId, none is the chain's own, none is of an empty queue, and every
    destination is active."""
    rows, pairs = receipts.rows, receipts.egress
    found = np.zeros(len(rows), dtype=np.int64)
    at = lookup_rows(rows, pairs, ("receipt",))
    pairs, at = pairs.filter(at >= 0), at[at >= 0]
    if len(pairs) == 0:
        return found
    falls = np.zeros(len(pairs), dtype=bool)
    falls[1:] = (at[1:] == at[:-1]) & (pairs["to"][1:] <= pairs["to"][:-1])
    empty = rows_equal(pairs["root"], digests([EMPTY_ROOT] * len(pairs)))
    active = np.isin(pairs["to"], paras["para"][paras["active"] == 1])
    own = pairs["to"] == rows["source"][at]
    wrong = np.select(
        [falls, own, empty, ~active],
        [
            Inclusion.EgressOutOfOrder,
            Inclusion.SelfAddressed,
            Inclusion.EmptyTrieRoot,
            Inclusion.DestinationDoesNotExist,
        ],
        Inclusion.OK,
    )
    bad = np.flatnonzero(wrong)[::-1]
    found[at[bad]] = wrong[bad]
    return found


def is_on_chain(
    leaf: RelayLeaf, number: npt.NDArray[np.uint64], block_hash: npt.NDArray[np.uint8]
) -> npt.NDArray[np.bool_]:
    """Return which blocks, by number and hash, are the leaf's or one that it builds on, as far back as those are
    remembered (``leaves.MOST_ANCESTORS``)."""
    at = lookup_rows(leaf.ancestry, Frame({"number": number}, len(number)), ("number",))
    found: npt.NDArray[np.bool_] = (number == np.uint64(leaf.number)) & rows_equal(block_hash, digests([leaf.hash]))
    past = np.flatnonzero(at >= 0)
    found[past] |= rows_equal(block_hash[past], leaf.ancestry["hash"][at[past]])
    return found


def _watermarks(rows: Frame, at: npt.NDArray[np.int64], leaf: RelayLeaf, rule: str) -> Codes:
    """3.1 step 3: the watermark does not fall, and is a block that this one builds on."""
    count = len(rows)
    if count == 0 or len(leaf.paras) == 0:
        return np.zeros(count, dtype=np.int64)
    paras, unrouted, at = leaf.paras, leaf.unrouted, np.maximum(at, 0)
    wanted, hashes = rows["watermark"], rows["watermark_hash"]
    held = (wanted == paras["watermark"][at]) & rows_equal(hashes, paras["watermark_hash"][at])
    with_ingress = np.zeros(count, dtype=bool)
    if len(unrouted):
        first = unrouted.take(group_rows(unrouted["number"], unrouted["to"]).starts)
        asked = Frame({"number": wanted, "to": rows["source"]}, count)
        found = lookup_rows(first, asked, ("number", "to"))
        with_ingress = (found >= 0) & rows_equal(hashes, first["hash"][np.maximum(found, 0)])
    ancestor = held | with_ingress | is_on_chain(leaf, wanted, hashes)
    lands = held | with_ingress | rows_equal(hashes, rows["relay_hash"])
    return np.select(
        [wanted < paras["watermark"][at], ~ancestor, ~lands & (rule == "has_messages")],
        [Inclusion.WatermarkRegressed, Inclusion.WatermarkNotAncestor, Inclusion.LandsOnBlockWithNoMessages],
        Inclusion.OK,
    ).astype(np.int64)


def _with_receipts(paras: Frame, taken: Frame, at: npt.NDArray[np.int64], number: int) -> Frame:
    """3.1 step 4, first half: the heads and watermarks that the receipts bring."""
    if len(taken) == 0:
        return paras
    columns = {}
    for name, value in (
        ("number", taken["number"]),
        ("head", taken["head"]),
        ("watermark", taken["watermark"]),
        ("watermark_hash", taken["watermark_hash"]),
        ("included", np.full(len(taken), number, dtype=np.uint64)),
    ):
        columns[name] = paras[name].copy()
        columns[name][at] = value
    return paras.with_columns(**columns).select(PARAS_SCHEMA.names)


def _skipped(unrouted: Frame, taken: Frame) -> Frame:
    """Return the queues for parachains with a receipt that were not consumed: above what it says, posted before this
    block (D-12)."""
    at = lookup_rows(taken, Frame({"source": unrouted["to"]}, len(unrouted)), ("source",), ordered=False)
    skipped = at >= 0
    skipped[skipped] = unrouted["number"][skipped] > taken["watermark"][at[skipped]]
    return unrouted.filter(skipped)


def _posted(receipts: CandidateReceipts, taken: Frame, blocked: Frame, number: int, tick: int) -> tuple[Frame, Frame]:
    """After all receipts: the queues that they posted, and those of pairs that are censored (5.1 (2)), each by (to,
    source)."""
    at = lookup_rows(taken, receipts.egress, ("receipt",))
    pairs, at = receipts.egress.filter(at >= 0), at[at >= 0]
    source = taken["source"][at]
    heard = np.ones(len(pairs), dtype=bool)
    if len(blocked):
        heard = lookup_rows(blocked, pairs.with_columns(source=source), ("to", "source")) < 0
    count = len(pairs)
    rows = Frame(
        {
            "chain": np.full(count, RELAY_POSITION, dtype=np.uint32),
            "number": np.full(count, number, dtype=np.uint64),
            "to": pairs["to"],
            "source": source,
            "issued": taken["number"][at],
            "tick": np.full(count, tick, dtype=np.uint64),
            "root": pairs["root"],
            "hash": np.zeros((count, 32), dtype=np.uint8),
        },
        count,
    )
    order = stable_order(rows["to"], rows["source"])
    rows, heard = rows.take(order), heard[order]
    return (rows, rows.filter(~heard)) if heard.all() else (rows.filter(heard), rows.filter(~heard))
