"""The relay chain's runtime: it includes receipts, and keeps which queues are not routed yet (ICMP reference 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.order import groups_of, stable_order
from causeway.proofs.substrate import EMPTY_ROOT
from causeway.protocols.digests import digests, same
from causeway.protocols.icmp.calls import Call, apply_calls
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.errors import Gone, Inclusion
from causeway.protocols.icmp.gone import told, with_gone
from causeway.protocols.icmp.leaves import Leaf
from causeway.protocols.icmp.options import IcmpOptions
from causeway.protocols.icmp.tables import PARAS_SCHEMA, UNROUTED_SCHEMA

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Receipts:
    """Receipts in the order in which they came.

    ``rows``: ``receipt`` (a number of its own, ascending) and ``CANDIDATES_SCHEMA``; ``egress``: their entries of
    egress_queue_roots in order, ``receipt``, ``to``, ``root``.
    """

    rows: Frame
    egress: Frame


@dataclass(frozen=True)
class Included:
    """A leaf after a relay block, its block, whose hash is not known yet, left out; what the author did with each
    receipt (``codes``, in the order of ``Receipts.rows``)."""

    leaf: Leaf
    codes: Codes


def include(
    leaf: Leaf, receipts: Receipts, calls: Sequence[Call], tick: int, options: IcmpOptions, *, alone: bool = True
) -> Included:
    """Make a relay block on ``leaf``, which is the only one or not (``alone``), of what is valid of ``calls``, then of
    ``receipts``.

    The rows that it adds to ``unrouted`` have zeros for the hash (``posted_in`` fills them in).
    """
    number = leaf.number + 1
    leaf = apply_calls(told(leaf, number, alone=alone), calls, number)
    rows, paras = receipts.rows, leaf.paras
    at = lookup(paras, Frame({"para": rows["source"]}, len(rows)), ("para",))
    # 3.1 step 1: the parachain is active, and the receipt continues its head.
    fits = at >= 0
    fits[fits] = paras["active"][at[fits]] == 1
    fits[fits] = same(rows["parent"][fits], paras["head"][at[fits]])
    codes = np.where(fits, Inclusion.OK, Inclusion.ParentMismatch).astype(np.int64)
    _check(codes, _queues(receipts, paras))
    if options.watermark_mode == "per_candidate":
        _check(codes, _watermarks(rows, at, leaf, options.watermark_rule))
    codes = _once(codes, rows["source"])
    good = codes == Inclusion.OK
    taken, at_taken = rows.filter(good), at[good]
    if options.watermark_mode == "now_minus_1":
        leaf = with_gone(leaf, _skipped(leaf.unrouted, taken), Gone.Skipped, number)
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
        at = lookup(after, Frame({"para": leaf.unrouted["to"]}, len(leaf.unrouted)), ("para",))
        above = leaf.unrouted["number"] > after["watermark"][at]
        unrouted = leaf.unrouted if above.all() else leaf.unrouted.filter(above)
    added, censored = _posted(receipts, taken, leaf.blocked, number, tick)
    leaf = with_gone(leaf, censored, Gone.Censored, number)
    if len(added) or len(unrouted) < len(leaf.unrouted):
        added = added.with_columns(leaf=np.full(len(added), int(leaf.blocks["leaf"][0]), dtype=np.uint8))
        unrouted = concat([unrouted, added.select(UNROUTED_SCHEMA.names)])
    return Included(replace(leaf, paras=after, unrouted=unrouted), codes)


def posted_in(leaf: Leaf, number: int, block_hash: bytes) -> Leaf:
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
    groups = groups_of(source[order])
    good = (codes[order] == Inclusion.OK).astype(np.int64)
    before = np.cumsum(good) - good
    before -= groups.spread(before[groups.starts])
    found = codes.copy()
    found[order[before > 0]] = Inclusion.DuplicateCandidate
    return found


def _queues(receipts: Receipts, paras: Frame) -> Codes:
    """3.1 step 2, pair by pair: roots ascend by ParaId, none is the chain's own, none is of an empty queue, and every
    destination is active."""
    rows, pairs = receipts.rows, receipts.egress
    found = np.zeros(len(rows), dtype=np.int64)
    at = lookup(rows, pairs, ("receipt",))
    pairs, at = pairs.filter(at >= 0), at[at >= 0]
    if len(pairs) == 0:
        return found
    falls = np.zeros(len(pairs), dtype=bool)
    falls[1:] = (at[1:] == at[:-1]) & (pairs["to"][1:] <= pairs["to"][:-1])
    empty = same(pairs["root"], digests([EMPTY_ROOT] * len(pairs)))
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


def on_chain(leaf: Leaf, number: npt.NDArray[np.uint64], block_hash: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return which blocks, by number and hash, are the leaf's or one that it builds on, as far back as those are
    remembered (``leaves.MOST_ANCESTORS``)."""
    at = lookup(leaf.ancestry, Frame({"number": number}, len(number)), ("number",))
    found: npt.NDArray[np.bool_] = (number == np.uint64(leaf.number)) & same(block_hash, digests([leaf.hash]))
    past = np.flatnonzero(at >= 0)
    found[past] |= same(block_hash[past], leaf.ancestry["hash"][at[past]])
    return found


def _watermarks(rows: Frame, at: npt.NDArray[np.int64], leaf: Leaf, rule: str) -> Codes:
    """3.1 step 3: the watermark does not fall, and is a block that this one builds on."""
    count = len(rows)
    if count == 0 or len(leaf.paras) == 0:
        return np.zeros(count, dtype=np.int64)
    paras, unrouted, at = leaf.paras, leaf.unrouted, np.maximum(at, 0)
    wanted, hashes = rows["watermark"], rows["watermark_hash"]
    held = (wanted == paras["watermark"][at]) & same(hashes, paras["watermark_hash"][at])
    with_ingress = np.zeros(count, dtype=bool)
    if len(unrouted):
        first = unrouted.take(groups_of(unrouted["number"], unrouted["to"]).starts)
        asked = Frame({"number": wanted, "to": rows["source"]}, count)
        found = lookup(first, asked, ("number", "to"))
        with_ingress = (found >= 0) & same(hashes, first["hash"][np.maximum(found, 0)])
    ancestor = held | with_ingress | on_chain(leaf, wanted, hashes)
    lands = held | with_ingress | same(hashes, rows["relay_hash"])
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
    at = lookup(taken, Frame({"source": unrouted["to"]}, len(unrouted)), ("source",), ordered=False)
    skipped = at >= 0
    skipped[skipped] = unrouted["number"][skipped] > taken["watermark"][at[skipped]]
    return unrouted.filter(skipped)


def _posted(receipts: Receipts, taken: Frame, blocked: Frame, number: int, tick: int) -> tuple[Frame, Frame]:
    """After all receipts: the queues that they posted, and those of pairs that are censored (5.1 (2)), each by (to,
    source)."""
    at = lookup(taken, receipts.egress, ("receipt",))
    pairs, at = receipts.egress.filter(at >= 0), at[at >= 0]
    source = taken["source"][at]
    heard = np.ones(len(pairs), dtype=bool)
    if len(blocked):
        heard = lookup(blocked, pairs.with_columns(source=source), ("to", "source")) < 0
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
