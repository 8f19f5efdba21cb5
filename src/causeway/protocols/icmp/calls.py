"""Calls to the relay chain that are no receipts: parachains come and go, and censor each other (D-3; 5.1 (2))."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.order import stable_order
from causeway.protocols.digests import digests
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.errors import Gone
from causeway.protocols.icmp.gone import with_gone
from causeway.protocols.icmp.leaves import Leaf
from causeway.protocols.icmp.tables import BLOCKED_SCHEMA, PARAS_SCHEMA


class CallKind(Enum):
    """What a call does."""

    REGISTER = "register"
    DEREGISTER = "deregister"
    BLOCK = "block"
    UNBLOCK = "unblock"


@dataclass(frozen=True)
class Call:
    """A call about the parachain ``para``. ``other``: whom it does, or does not, want to hear; ``head``: of one that is
    registered, the block that it goes on from; None: the one that was included last, or its ``genesis``."""

    kind: CallKind
    para: int
    other: int = 0
    head: bytes | None = None
    genesis: bytes = bytes(32)


def apply_calls(leaf: Leaf, calls: Sequence[Call], number: int) -> Leaf:
    """Return the leaf after the calls of the relay block ``number``; those that its state does not allow do nothing:
    who is active cannot be registered, and all else is for active parachains."""
    for call in calls:
        row = np.flatnonzero(leaf.paras["para"] == np.uint32(call.para))
        active = len(row) == 1 and bool(leaf.paras["active"][row[0]])
        if active == (call.kind is CallKind.REGISTER):
            continue
        if call.kind is CallKind.REGISTER:
            leaf = _registered(leaf, call, row)
        elif call.kind is CallKind.DEREGISTER:
            leaf = _deregistered(leaf, call.para, int(row[0]), number)
        else:
            leaf = _censoring(leaf, call, number)
    return leaf


def _registered(leaf: Leaf, call: Call, row: np.ndarray) -> Leaf:
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


def _deregistered(leaf: Leaf, para: int, row: int, number: int) -> Leaf:
    """The queues to it go, and those who sent them are told (``dropped``); those from it stay; so does its head, and
    what others do not want to hear of it."""
    active = leaf.paras["active"].copy()
    active[row] = 0
    gone = leaf.unrouted["to"] == np.uint32(para)
    unrouted = leaf.unrouted.filter(~gone)
    blocked = leaf.blocked.filter(leaf.blocked["to"] != np.uint32(para))
    paras = leaf.paras.with_columns(active=active)
    leaf = with_gone(leaf, leaf.unrouted.filter(gone), Gone.DestinationDoesNotExist, number)
    return replace(leaf, paras=paras, unrouted=unrouted, blocked=blocked)


def _censoring(leaf: Leaf, call: Call, number: int) -> Leaf:
    """``block`` and ``unblock`` by ``para`` (5.1 (2)); who is censored already stays so."""
    blocked = leaf.blocked
    pair = (blocked["to"] == np.uint32(call.para)) & (blocked["source"] == np.uint32(call.other))
    if call.kind is CallKind.UNBLOCK:
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
