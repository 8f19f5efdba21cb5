"""The relay chain's runtime: receipt inclusion, unrouted queues and calls on parachains.

``include`` checks receipts and updates heads, watermarks and unrouted queues (ICMP 3.1).

Some posted queues are never routed: their recipient was deregistered, censors the sender, or moved its watermark past
them. The sender stores the bodies and cannot tell these queues from pending or consumed ones. Each leaf therefore lists
them for some blocks (``dropped``).

Calls register and deregister parachains, and censor senders.

Reference: ICMP, section 3.1; D-3, D-12, section 5.1 (2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import group_rows, stable_order
from causeway_proofs.substrate import EMPTY_ROOT

from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.protocols.relay_chain.errors import DropReason, Inclusion
from causeway.protocols.relay_chain.options import RELAY_POSITION, IcmpOptions
from causeway.protocols.relay_chain.state import (
    DROPPED_SCHEMA,
    PARAS_SCHEMA,
    STATE_TABLES,
    UNROUTED_SCHEMA,
    RelayLeaf,
)
from causeway.protocols.shared.digests import digests, rows_equal
from causeway.protocols.shared.state_tables import blank_rows, sort_table

TOLD_BLOCKS = 5
"""Minimum number of blocks that list a dropped queue.

The sender drops the body in the tick after the first listing, or, after several leaves, after the second one. It makes
no block in that tick, so a rollback of that block cannot restore the body. An earlier block of the sender can still be
refused by the second block after its relay parent. The sender then rolls back before the third block and drops the body
after it.
"""


def add_dropped_queues(leaf: RelayLeaf, queues: Frame, why: DropReason, number: int) -> RelayLeaf:
    """List queues that block ``number`` drops.

    Args:
        leaf: Leaf of the relay chain.
        queues: ``to``, ``source``, ``issued``.
        why: Reason of the drop.
        number: Number of the relay block.
    """
    count = len(queues)
    if count == 0:
        return leaf
    named = {name: queues[name] for name in ("to", "source", "issued")}
    return _add_rows(leaf, "dropped", count, **named, why=why, until=number + TOLD_BLOCKS - 1)


def _add_rows(leaf: RelayLeaf, name: str, count: int, **columns: Any) -> RelayLeaf:
    """Add rows to a table of a leaf; other columns are zero."""
    table = STATE_TABLES[name]
    added = blank_rows(table.schema, count, chain=RELAY_POSITION, leaf=leaf.blocks["leaf"][0], **columns)
    return replace(leaf, **{name: sort_table(table, concat([getattr(leaf, name), added]))})


def prune_delivered(leaf: RelayLeaf, number: int, *, alone: bool) -> RelayLeaf:
    """Remove expired listings at the start of block ``number``.

    Senders drop no bodies while there are several leaves (``alone`` False), so listings do not expire.
    """
    dropped = leaf.dropped
    if len(dropped) == 0:
        return leaf
    if not alone:
        until = np.full(len(dropped), number + TOLD_BLOCKS - 1, dtype=np.uint64)
        return replace(leaf, dropped=dropped.with_columns(until=until).select(DROPPED_SCHEMA.names))
    listed = dropped["until"] >= np.uint64(number)
    return leaf if listed.all() else replace(leaf, dropped=dropped.filter(listed))


class ParachainCallKind(Enum):
    """Kind of a call on a parachain."""

    REGISTER = "register"
    DEREGISTER = "deregister"
    BLOCK = "block"
    UNBLOCK = "unblock"


@dataclass(frozen=True)
class ParachainCall:
    """A call on the parachain ``para``.

    Attributes:
        kind: Kind of the call.
        para: Position of the parachain.
        other: Sender to block or unblock.
        head: Head of a registration, None for the last included one, else ``genesis``.
        genesis: Hash of the parachain's block 0.
    """

    kind: ParachainCallKind
    para: int
    other: int = 0
    head: bytes | None = None
    genesis: bytes = bytes(32)


def apply_calls(leaf: RelayLeaf, calls: Sequence[ParachainCall], number: int) -> RelayLeaf:
    """Apply calls in relay block ``number``; inadmissible calls have no effect.

    An active parachain cannot be registered; all other calls need an active one.

    Args:
        leaf: Leaf of the relay chain.
        calls: Calls in order.
        number: Number of the relay block.
    """
    for call in calls:
        row = np.flatnonzero(leaf.paras["para"] == np.uint32(call.para))
        active = len(row) == 1 and bool(leaf.paras["active"][row[0]])
        if active == (call.kind is ParachainCallKind.REGISTER):
            continue
        if call.kind is ParachainCallKind.REGISTER:
            leaf = _register(leaf, call, row)
        elif call.kind is ParachainCallKind.DEREGISTER:
            leaf = _deregister(leaf, call.para, int(row[0]), number)
        else:
            leaf = _censor(leaf, call, number)
    return leaf


def _register(leaf: RelayLeaf, call: ParachainCall, row: np.ndarray) -> RelayLeaf:
    """Register a parachain.

    The first registration sets the watermark to genesis, a later one to the parent of its block (ICMP D-3).
    """
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
    hashes = {"head": digests([call.genesis if call.head is None else call.head]), "watermark_hash": digests([genesis])}
    return _add_rows(leaf, "paras", 1, para=call.para, active=1, **hashes)


def _deregister(leaf: RelayLeaf, para: int, row: int, number: int) -> RelayLeaf:
    """Deregister a parachain and drop the queues to it.

    Its own queues, its head and other parachains' blocks against it remain.
    """
    active = leaf.paras["active"].copy()
    active[row] = 0
    to_parachain = leaf.unrouted["to"] == np.uint32(para)
    unrouted = leaf.unrouted.filter(~to_parachain)
    blocked = leaf.blocked.filter(leaf.blocked["to"] != np.uint32(para))
    paras = leaf.paras.with_columns(active=active)
    leaf = add_dropped_queues(leaf, leaf.unrouted.filter(to_parachain), DropReason.DestinationDoesNotExist, number)
    return replace(leaf, paras=paras, unrouted=unrouted, blocked=blocked)


def _censor(leaf: RelayLeaf, call: ParachainCall, number: int) -> RelayLeaf:
    """Apply ``block`` or ``unblock`` (ICMP 5.1 (2)); a repeated ``block`` has no effect."""
    blocked = leaf.blocked
    is_pair = (blocked["to"] == np.uint32(call.para)) & (blocked["source"] == np.uint32(call.other))
    if call.kind is ParachainCallKind.UNBLOCK:
        return replace(leaf, blocked=blocked.filter(~is_pair))
    if is_pair.any():
        return leaf
    return _add_rows(leaf, "blocked", 1, to=call.para, source=call.other, since=number)


Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CandidateReceipts:
    """Receipts in order of arrival.

    Attributes:
        rows: ``receipt`` (a unique number, ascending) and ``CANDIDATES_SCHEMA``.
        egress: Entries of egress_queue_roots in order: ``receipt``, ``to``, ``root``.
    """

    rows: Frame
    egress: Frame


@dataclass(frozen=True)
class InclusionResult:
    """A leaf after a relay block, without the block itself, and the result of each receipt.

    ``codes`` are in the order of ``CandidateReceipts.rows``.
    """

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
    """Make a relay block: apply valid calls, then include valid receipts.

    New rows of ``unrouted`` have a zero hash until ``set_posted_hash``.

    Args:
        leaf: Leaf to build on.
        receipts: Available receipts.
        calls: Calls of the block.
        tick: Tick of the block.
        options: Options of the protocol.
        alone: The relay chain has no other leaf.
    """
    number = leaf.number + 1
    leaf = apply_calls(prune_delivered(leaf, number, alone=alone), calls, number)
    rows, paras = receipts.rows, leaf.paras
    at = lookup_rows(paras, Frame({"para": rows["source"]}, len(rows)), ("para",))
    # 3.1 step 1.
    codes = np.where(continues_head(rows, paras, at), Inclusion.OK, Inclusion.ParentMismatch).astype(np.int64)
    # Earlier errors take precedence.
    codes = np.where(codes == Inclusion.OK, _check_queues(receipts, paras), codes)
    if options.watermark_mode == "per_candidate":
        codes = np.where(codes == Inclusion.OK, _check_watermarks(rows, at, leaf, options.watermark_rule), codes)
    # Refuse all but the first valid receipt of each parachain (ICMP 3.1).
    order = stable_order(rows["source"])
    groups = group_rows(rows["source"][order])
    valid = (codes[order] == Inclusion.OK).astype(np.int64)
    before = np.cumsum(valid) - valid
    before -= groups.spread(before[groups.starts])
    codes[order[before > 0]] = Inclusion.DuplicateCandidate
    good = codes == Inclusion.OK
    included, at_included = rows.filter(good), at[good]
    if options.watermark_mode == "now_minus_1":
        # Drop the queues above an included watermark, posted before this block (ICMP D-12).
        unrouted = leaf.unrouted
        row = lookup_rows(included, Frame({"source": unrouted["to"]}, len(unrouted)), ("source",), ordered=False)
        skipped = row >= 0
        skipped[skipped] = unrouted["number"][skipped] > included["watermark"][row[skipped]]
        leaf = add_dropped_queues(leaf, unrouted.filter(skipped), DropReason.Skipped, number)
        parent = np.full(len(included), leaf.number, dtype=np.uint64)
        included = included.with_columns(watermark=parent, watermark_hash=digests([leaf.hash] * len(included)))
    # 3.1 step 4, first half: apply the heads and watermarks of receipts.
    after = paras
    if len(included):
        columns = {}
        for name in ("number", "head", "watermark", "watermark_hash", "included"):
            columns[name] = paras[name].copy()
            columns[name][at_included] = number if name == "included" else included[name]
        after = paras.with_columns(**columns).select(PARAS_SCHEMA.names)
    # Record the last refused block of each parachain.
    refused_rows = np.flatnonzero((codes != Inclusion.OK) & (codes != Inclusion.DuplicateCandidate) & (at >= 0))
    if len(refused_rows):
        refused = after["refused"].copy()
        refused[at[refused_rows]] = rows["head"][refused_rows]
        after = after.with_columns(refused=refused)
    # 3.1 step 4, second half: retain the queues above their recipients' watermarks.
    if len(leaf.unrouted) == 0:
        unrouted = leaf.unrouted
    else:
        at = lookup_rows(after, Frame({"para": leaf.unrouted["to"]}, len(leaf.unrouted)), ("para",))
        above = leaf.unrouted["number"] > after["watermark"][at]
        unrouted = leaf.unrouted if above.all() else leaf.unrouted.filter(above)
    added, censored = _posted_queues(receipts, included, leaf, number, tick)
    leaf = add_dropped_queues(leaf, censored, DropReason.Censored, number)
    if len(added) or len(unrouted) < len(leaf.unrouted):
        unrouted = concat([unrouted, added])
    return InclusionResult(replace(leaf, paras=after, unrouted=unrouted), codes)


def continues_head(receipts: Frame, paras: Frame, at: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return a mask of receipts that continue the last included block of an active parachain.

    Args:
        receipts: ``parent``.
        paras: ``active``, ``head``.
        at: Row of each receipt's parachain in ``paras``, -1 for none.
    """
    found: npt.NDArray[np.bool_] = at >= 0
    found[found] = paras["active"][at[found]] == 1
    found[found] = rows_equal(receipts["parent"][found], paras["head"][at[found]])
    return found


def set_posted_hash(leaf: RelayLeaf, number: int, block_hash: bytes) -> RelayLeaf:
    """Set the relay block hash of the queues posted in block ``number``."""
    unrouted = leaf.unrouted
    posted = unrouted["number"] == np.uint64(number)
    if not posted.any():
        return leaf
    hashes = np.where(posted[:, None], digests([block_hash]), unrouted["hash"])
    return replace(leaf, unrouted=unrouted.with_columns(hash=hashes))


def _check_queues(receipts: CandidateReceipts, paras: Frame) -> Codes:
    """Check egress queues (ICMP 3.1 step 2).

    Roots ascend by ParaId; none is for the chain itself or of an empty queue; every destination is active.
    """
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
    errors = [Inclusion.EgressOutOfOrder, Inclusion.SelfAddressed, Inclusion.EmptyTrieRoot]
    wrong = np.select([falls, own, empty, ~active], [*errors, Inclusion.DestinationDoesNotExist], Inclusion.OK)
    bad = np.flatnonzero(wrong)[::-1]
    found[at[bad]] = wrong[bad]
    return found


def is_on_chain(
    leaf: RelayLeaf, number: npt.NDArray[np.uint64], block_hash: npt.NDArray[np.uint8]
) -> npt.NDArray[np.bool_]:
    """Return a mask of blocks on the leaf's chain, as far as ``MOST_ANCESTORS`` blocks back.

    Args:
        leaf: Leaf of the relay chain.
        number: Block numbers, uint64.
        block_hash: Block hashes, uint8, shape (n, 32).
    """
    at = lookup_rows(leaf.ancestry, Frame({"number": number}, len(number)), ("number",))
    found: npt.NDArray[np.bool_] = (number == np.uint64(leaf.number)) & rows_equal(block_hash, digests([leaf.hash]))
    past = np.flatnonzero(at >= 0)
    found[past] |= rows_equal(block_hash[past], leaf.ancestry["hash"][at[past]])
    return found


def _check_watermarks(rows: Frame, at: npt.NDArray[np.int64], leaf: RelayLeaf, rule: str) -> Codes:
    """Check watermarks (ICMP 3.1 step 3): they do not fall, and name an ancestor of this block."""
    count = len(rows)
    if count == 0 or len(leaf.paras) == 0:
        return np.zeros(count, dtype=np.int64)
    paras, unrouted, at = leaf.paras, leaf.unrouted, np.maximum(at, 0)
    watermark, hashes = rows["watermark"], rows["watermark_hash"]
    unchanged = (watermark == paras["watermark"][at]) & rows_equal(hashes, paras["watermark_hash"][at])
    with_ingress = np.zeros(count, dtype=bool)
    if len(unrouted):
        first = unrouted.take(group_rows(unrouted["number"], unrouted["to"]).starts)
        keys = Frame({"number": watermark, "to": rows["source"]}, count)
        found = lookup_rows(first, keys, ("number", "to"))
        with_ingress = (found >= 0) & rows_equal(hashes, first["hash"][np.maximum(found, 0)])
    ancestor = unchanged | with_ingress | is_on_chain(leaf, watermark, hashes)
    has_messages = unchanged | with_ingress | rows_equal(hashes, rows["relay_hash"])
    return np.select(
        [watermark < paras["watermark"][at], ~ancestor, ~has_messages & (rule == "has_messages")],
        [Inclusion.WatermarkRegressed, Inclusion.WatermarkNotAncestor, Inclusion.LandsOnBlockWithNoMessages],
        Inclusion.OK,
    ).astype(np.int64)


def _posted_queues(
    receipts: CandidateReceipts, included: Frame, leaf: RelayLeaf, number: int, tick: int
) -> tuple[Frame, Frame]:
    """Return the posted queues, and the censored ones (ICMP 5.1 (2)), by (to, source)."""
    at = lookup_rows(included, receipts.egress, ("receipt",))
    pairs, at = receipts.egress.filter(at >= 0), at[at >= 0]
    source = included["source"][at]
    is_routed = np.ones(len(pairs), dtype=bool)
    if len(leaf.blocked):
        is_routed = lookup_rows(leaf.blocked, pairs.with_columns(source=source), ("to", "source")) < 0
    posted = {"to": pairs["to"], "source": source, "issued": included["number"][at], "root": pairs["root"]}
    at_block = {"chain": RELAY_POSITION, "leaf": leaf.blocks["leaf"][0], "number": number, "tick": tick}
    rows = blank_rows(UNROUTED_SCHEMA, len(pairs), **at_block, **posted)
    order = stable_order(rows["to"], rows["source"])
    rows, is_routed = rows.take(order), is_routed[order]
    return (rows, rows.filter(~is_routed)) if is_routed.all() else (rows.filter(is_routed), rows.filter(~is_routed))
