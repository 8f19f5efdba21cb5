"""The relay chain's runtime: it includes receipts, and keeps which queues are not routed yet (ICMP reference 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.order import U64, stable_order
from causeway.proofs.substrate import EMPTY_ROOT
from causeway.protocols.contract import View
from causeway.protocols.digests import digests, same
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.context import Context
from causeway.protocols.icmp.errors import Inclusion
from causeway.protocols.icmp.state import State
from causeway.protocols.icmp.tables import PARAS_SCHEMA, UNROUTED_SCHEMA

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Included:
    """The state after a relay block, which chains' receipts were refused (``source``), and why (``Inclusion``)."""

    state: State
    refused: npt.NDArray[np.uint32]
    codes: Codes


def include(state: State, view: View, number: int, context: Context) -> Included:
    """Include the receipts that parachains show, in the relay block ``number``, whose hash is not known yet.

    The rows that it adds to ``unrouted`` have zeros for the hash (``posted_in`` fills them in).
    """
    receipts, egress = view.tables["candidates"], view.tables["egress"]
    paras = state["paras"]
    row = lookup(paras, Frame({"para": receipts["source"]}, len(receipts)), ("para",))
    # What was included before stays shown until its chain makes the next block.
    fresh = (row < 0) | ~same(receipts["head"], paras["head"][row])
    receipts, row = receipts.filter(fresh), row[fresh]
    codes = _parents(receipts, row, paras)
    _check(codes, _queues(receipts, egress, paras))
    _check(codes, _watermarks(receipts, row, state, number, context.options.watermark_rule))
    good = codes == Inclusion.OK
    taken, rows = receipts.filter(good), row[good]
    after = _with_receipts(paras, taken, rows, number)
    unrouted = _above(state["unrouted"], after)
    mine = egress.filter(np.isin(egress["source"], taken["source"]))
    count = len(mine)
    added = Frame(
        {
            "chain": np.full(count, RELAY_POSITION, dtype=np.uint32),
            "number": np.full(count, number, dtype=np.uint64),
            "to": mine["to"],
            "source": mine["source"],
            "root": mine["root"],
            "hash": np.zeros((count, 32), dtype=np.uint8),
        },
        count,
    )
    added = added.take(stable_order(added["to"], added["source"]))
    changed = {"paras": after}
    if count or len(unrouted) < len(state["unrouted"]):
        changed["unrouted"] = concat([unrouted, added.select(UNROUTED_SCHEMA.names)])
    return Included(state.with_tables(**changed), receipts["source"][~good], codes[~good])


def posted_in(state: State, number: int, block_hash: bytes) -> State:
    """Return the state in which the queues of the block ``number`` have its hash."""
    unrouted = state["unrouted"]
    posted = unrouted["number"] == np.uint64(number)
    if not posted.any():
        return state
    hashes = np.where(posted[:, None], digests([block_hash]), unrouted["hash"])
    return state.with_tables(unrouted=unrouted.with_columns(hash=hashes))


def _check(codes: Codes, found: Codes) -> None:
    """Put what a further check found where nothing was found before."""
    codes[:] = np.where(codes == Inclusion.OK, found, codes)


def _parents(receipts: Frame, row: npt.NDArray[np.int64], paras: Frame) -> Codes:
    """3.1 step 1: the parachain is active, and the receipt continues its head."""
    known = row >= 0
    fits = known.copy()
    fits[known] = same(receipts["parent"][known], paras["head"][row[known]])
    return np.where(fits, Inclusion.OK, Inclusion.ParentMismatch).astype(np.int64)


def _queues(receipts: Frame, egress: Frame, paras: Frame) -> Codes:
    """3.1 step 2, pair by pair: roots ascend by ParaId, none is the chain's own, none is of an empty queue, and every
    destination is active."""
    found = np.zeros(len(receipts), dtype=np.int64)
    at = lookup(receipts, egress, ("source",))
    rows = np.flatnonzero(at >= 0)
    if len(rows) == 0:
        return found
    pairs, at = egress.take(rows), at[rows]
    first = np.ones(len(pairs), dtype=bool)
    first[1:] = pairs["source"][1:] != pairs["source"][:-1]
    falls = ~first
    falls[1:] &= pairs["to"][1:] <= pairs["to"][:-1]
    empty = same(pairs["root"], digests([EMPTY_ROOT] * len(pairs)))
    active = np.isin(pairs["to"], paras["para"])
    own = pairs["to"] == pairs["source"]
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


def _watermarks(receipts: Frame, row: npt.NDArray[np.int64], state: State, number: int, rule: str) -> Codes:
    """3.1 step 3: the watermark does not fall, and is a block that this one builds on."""
    count = len(receipts)
    found = np.zeros(count, dtype=np.int64)
    if count == 0:
        return found
    paras, unrouted, ancestry = state["paras"], state["unrouted"], state["ancestry"]
    row = np.maximum(row, 0)
    wanted = receipts["watermark"]
    held = (wanted == paras["watermark"][row]) & same(receipts["watermark_hash"], paras["watermark_hash"][row])
    asked = Frame({"number": wanted}, count)
    past = lookup(ancestry, asked, ("number",))
    ancestor = held | ((past >= 0) & same(receipts["watermark_hash"], ancestry["hash"][np.maximum(past, 0)]))
    with_ingress = np.zeros(count, dtype=bool)
    if len(unrouted):
        keys = Frame({"to": receipts["source"], "number": wanted}, count)
        order = stable_order(unrouted["to"], unrouted["number"])
        rows = unrouted.take(order)
        first = np.ones(len(rows), dtype=bool)
        first[1:] = (rows["to"][1:] != rows["to"][:-1]) | (rows["number"][1:] != rows["number"][:-1])
        rows = rows.filter(first)
        at = lookup(rows, keys, ("to", "number"))
        with_ingress = (at >= 0) & same(receipts["watermark_hash"], rows["hash"][np.maximum(at, 0)])
    ancestor |= with_ingress
    lands = held | with_ingress | (wanted == np.uint64(number - 1))
    return np.select(
        [
            wanted < paras["watermark"][row],
            ~ancestor | (wanted >= np.uint64(number)),
            ~lands & (rule == "has_messages"),
        ],
        [Inclusion.WatermarkRegressed, Inclusion.WatermarkNotAncestor, Inclusion.LandsOnBlockWithNoMessages],
        Inclusion.OK,
    ).astype(np.int64)


def _with_receipts(paras: Frame, taken: Frame, rows: npt.NDArray[np.int64], number: int) -> Frame:
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
        columns[name][rows] = value
    return paras.with_columns(**columns).select(PARAS_SCHEMA.names)


def _above(unrouted: Frame, paras: Frame) -> Frame:
    """3.1 step 4: return the queues above the watermarks of those they are for."""
    if len(unrouted) == 0:
        return unrouted
    at = lookup(paras, Frame({"para": unrouted["to"]}, len(unrouted)), ("para",))
    watermark: U64 = paras["watermark"][at]
    return unrouted.filter(unrouted["number"] > watermark)
