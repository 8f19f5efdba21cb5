"""Whose entries a relayer carries: users relay their own packets, sponsored relayers what is left (IBC reference 3.5).

A user's process carries the packets that its programs sent, their receipts and their time-outs, and nothing else: no
header alone, and no cleanup. A sponsored relayer carries what waits for at least ``min_age`` blocks. In an ordered
queue both submit what comes before the first entry that they leave to others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup, over, stretches
from causeway.model.order import groups_of, stable_order
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.disconnecting import is_final
from causeway.protocols.ibc.seen import CallKind
from causeway.protocols.ibc.state import SEND, answering
from causeway.protocols.messages import LANE_COLUMNS

Mask = npt.NDArray[np.bool_]

VISIT = ("destination", "relayer", "source")
"""What names all submissions of a relayer to a zone about a counterparty."""


def own_share(rows: Frame, offered: Frame, own: Frame, context: Context) -> Frame:
    """Return the submissions (``SUBMISSIONS_SCHEMA``) without what their relayers leave to others, in their order.

    ``offered``: the entries that the proofs cover, by lane and index; ``own``: the zones' packets that are answered.
    """
    relay, names = context.options.relay, context.options.relayers
    users = np.array([name in relay.users for name in names])
    choosy = users | np.array([name in relay.sponsored for name in names])
    if not len(rows) or not choosy[rows["relayer"]].any():
        return rows
    by_entry = rows["call"] < CallKind.CLEANUP
    chosen = choosy[rows["relayer"]] & by_entry
    rest = rows.filter(~choosy[rows["relayer"]] | ~(by_entry | users[rows["relayer"]]))
    mine = rows.filter(chosen)
    row, index = over(mine["begin"], mine["end"])
    entries = mine.take(row).with_columns(index=index)
    kept = _is_carried(entries, offered, own, context)
    if context.options.order == "ordered":
        kept = _before_the_first_gap(entries, kept)
    at, begin, end = stretches(index[kept], row[kept])
    mine = mine.take(row[kept][at]).with_columns(begin=begin, end=end)
    rows = concat([rest, mine])
    return rows.take(stable_order(*(rows[name] for name in (*VISIT, "call", "begin"))))


def _is_carried(entries: Frame, offered: Frame, own: Frame, context: Context) -> Mask:
    """Return which entries their relayers carry: those of its programs, or those that are old enough."""
    relay = context.options.relay
    packets = answering(entries, SEND).with_columns(index=entries["index"])
    received, timed_out = (entries["call"] == kind for kind in (CallKind.RECEIVE, CallKind.TIMEOUT))
    sender = _first_of("sender", (entries, _of_programs(offered), received), (packets, _of_programs(own), ~received))
    pushed = _first_of("sent_height", (entries, offered, ~timed_out), (packets, own, timed_out))
    kept = np.zeros(len(entries), dtype=bool)
    for number, name in enumerate(context.options.relayers):
        mine = entries["relayer"] == number
        if name in relay.users:
            kept |= mine & sender[0] & np.isin(sender[1], context.zones.users[name])
        elif name in relay.sponsored:
            latest = context.height - relay.sponsored[name].min_age
            kept |= mine & pushed[0] & (pushed[1] < np.uint64(max(latest, 0)))
    return kept


def _of_programs(table: Frame) -> Frame:
    """Return the entries of a table without final packets, which no program sent."""
    return table.filter(~is_final(table))


def _first_of(name: str, *tables: tuple[Frame, Frame, Mask]) -> tuple[Mask, Any]:
    """Return which entries are known, and a column of them, 0 of the others.

    ``tables``: entries, a table of entries, and of which of the entries it is asked.
    """
    known, values = np.zeros(len(tables[0][0]), dtype=bool), np.zeros(len(tables[0][0]), dtype=np.uint64)
    for asked, table, of in tables:
        at = np.flatnonzero(of)
        found = lookup(table, asked.take(at), LANE_COLUMNS, ordered=False)
        at, found = at[found >= 0], found[found >= 0]
        known[at], values[at] = True, table[name][found]
    return known, values


def _before_the_first_gap(entries: Frame, kept: Mask) -> Mask:
    """Return which entries come before the first of their queue that is left to others.

    Where receipts are left to others, so are time-outs, which are about what comes behind all receipts.
    """
    groups = groups_of(*(entries[name] for name in (*VISIT, "call")))
    left = np.add.accumulate(~kept)
    before = left - groups.spread(left[groups.starts] - ~kept[groups.starts])
    kept = kept & (before == 0)
    timed_out = entries["call"] == CallKind.TIMEOUT
    if timed_out.any():
        receipts = entries.filter((entries["call"] == CallKind.RECEIPT) & ~kept)
        if len(receipts):
            first = receipts.take(groups_of(*(receipts[name] for name in VISIT)).starts)
            kept &= ~(timed_out & (lookup(first, entries, VISIT) >= 0))
    return kept


__all__ = ["VISIT", "own_share"]
