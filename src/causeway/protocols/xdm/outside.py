"""What relay processes carried to the chains of a lake in a block: read, and given to whom it is for.

Blocks of the consensus chain and confirmed receipts go to a lake that follows it, receipts of other lakes' domains to
the consensus chain, envelopes to their destination. Nothing is verified here: that is done where it is taken in.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import concat
from causeway.model.ledger import NO_CHAIN
from causeway.model.order import stable_order
from causeway.protocols.contract import Chains
from causeway.protocols.xdm.carried import Blocks, Confirmed, Messages, Receipts, decode_transaction
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.envelopes import decode_envelopes
from causeway.protocols.xdm.notices import Notice
from causeway.protocols.xdm.tables import BASE
from causeway.protocols.xdm.validate import Brought

FIRST_BASE = 1 << 40
"""The bases of carried envelopes have numbers from here on: those of a lake's own operators follow block numbers, which
have 32 bits."""


@dataclass(frozen=True)
class Outside:
    """What was carried in a block. ``followed``: to the consensus chain that another lake runs; ``receipts``: to the
    one that runs here; ``brought``: envelopes; ``notices``: what cannot be read, or is for no chain that takes it."""

    followed: tuple[Blocks | Confirmed, ...] = ()
    receipts: tuple[Receipts, ...] = ()
    brought: Brought | None = None
    notices: list[Notice] = field(default_factory=list)


def read_carried(carried: pa.Table, chains: Chains, running: Chains, context: Context) -> Outside:
    """Return what was carried (``CARRIED_SCHEMA``) to ``chains``; ``running``: those that make a block now."""
    if carried.num_rows == 0:
        return Outside()
    followed: list[Blocks | Confirmed] = []
    receipts: list[Receipts] = []
    envelopes: list[bytes] = []
    responses: list[bool] = []
    owners: list[int] = []
    notices: list[Notice] = []
    positions = context.network.positions_of(carried["chain"].to_numpy()).tolist()
    own, makes = set(context.network.own(chains).tolist()), set(running.tolist())
    for position, payload in zip(positions, carried["payload"].to_pylist(), strict=True):
        try:
            found = decode_transaction(payload)
        except InvalidInput:
            notices.append(_refused(position, "FailedToDecode"))
            continue
        follows = position == CONSENSUS_POSITION and position not in own
        if isinstance(found, Blocks | Confirmed) and follows:
            followed.append(found)
        elif position in own and position not in makes:
            notices.append(_refused(position, "ChainHalted"))
        elif isinstance(found, Receipts) and position == CONSENSUS_POSITION and position in own:
            receipts.append(found)
        elif isinstance(found, Messages) and position in own:
            envelopes += found.envelopes
            responses += found.responses
            owners += [position] * len(found.envelopes)
        else:
            notices.append(_refused(position, "InvalidCall"))
    brought = _brought(envelopes, responses, owners, notices, context) if envelopes else None
    return Outside(tuple(followed), tuple(receipts), brought, notices)


def _refused(position: int, name: str) -> Notice:
    return Notice(position, NO_CHAIN, name, refused=True)


def _brought(
    envelopes: list[bytes], responses: list[bool], owners: list[int], notices: list[Notice], context: Context
) -> Brought | None:
    """Return envelopes as tables; those that are none, or name chains that they are not between, leave an event."""
    found, unread = decode_envelopes(pa.array(envelopes, pa.large_binary()), np.array(responses))
    to = np.array(owners, dtype=np.uint32)
    notices += [_refused(position, "FailedToDecode") for position in to[unread].tolist()]
    rows, to = found.envelopes, to[~unread]
    if len(rows) == 0:
        return None
    between = (rows["destination"] == to) & (rows["source"] != rows["destination"])
    between &= rows["source"] < np.uint32(len(context.network.names))
    notices += [_refused(position, "InvalidChain") for position in to[~between].tolist()]
    numbered = [
        frame.with_columns(base=np.uint64(FIRST_BASE) + frame["base"]) for frame in (rows, found.nodes, found.bases)
    ]
    return Brought(numbered[0].filter(between), numbered[1], numbered[2])


def joined(first: Brought, second: Brought | None) -> Brought:
    """Return what both bring."""
    if second is None:
        return first
    envelopes = concat([first.envelopes, second.envelopes.select(first.envelopes.names)])
    nodes = concat([first.nodes, second.nodes.select(first.nodes.names)])
    bases = concat([first.bases, second.bases.select(first.bases.names)])
    nodes = nodes.take(stable_order(*(nodes[name] for name in (*BASE, "number"))))
    return Brought(envelopes, nodes, bases.take(stable_order(*(bases[name] for name in BASE))))
