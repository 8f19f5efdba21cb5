"""How relayers bring headers to zones: where too much has changed since the one that is trusted, those between first
(IBC reference 3.5, X-4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from causeway.model.frame import Frame, empty_frame
from causeway.model.order import groups_of
from causeway.protocols.contract import PAST_SCHEMA
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.messages.call import Block
from causeway.protocols.ibc.messages.update_header import Offer
from causeway.protocols.ibc.state import State, connection_rows
from causeway.protocols.ibc.validator_sets import headers_between

Certifications = Mapping[tuple[int, int], bytes]
"""Signed headers by zone and height."""


def wanted_headers(rows: Frame, state: State, context: Context) -> Frame:
    """Return the headers that relayers may want besides the newest, to bring that to zones: ``PAST_SCHEMA``.

    ``rows``: what they submit (``SUBMISSIONS_SCHEMA``).
    """
    if not context.options.rotation.every or not len(rows):
        return empty_frame(PAST_SCHEMA)
    groups = groups_of(rows["destination"], rows["source"])
    pairs = rows.select(("destination", "source")).take(groups.starts)
    latest = state.connections["latest"][
        connection_rows(state.connections, pairs["destination"], pairs["source"])
    ].tolist()
    wanted = {
        (source, height)
        for source, trusted in set(zip(pairs["source"].tolist(), latest, strict=True))
        for height in headers_between(source, trusted, context.height - 1, context)
    }
    columns = np.array(sorted(wanted), dtype=np.uint64).reshape(-1, 2)
    return Frame({"chain": columns[:, 0].astype(np.uint32), "height": columns[:, 1]}, len(columns))


def certifications(headers: Frame) -> Certifications:
    """Return the signed headers of a frame (``SEEN_HEADERS_SCHEMA``) by zone and height."""
    keys = zip(headers["chain"].tolist(), headers["height"].tolist(), strict=True)
    return {key: data for key, data in zip(keys, headers["certification"].to_pylist(), strict=True) if data}


def bring(offer: Offer, between: Certifications, block: Block, submit: Callable[[Offer], Refusal]) -> Refusal:
    """Offer a header, and where it is unknown the one in the middle first; return what came of it.

    ``submit``: makes one call. ``between``: the headers that there are.
    """
    trusted = block.clients.trusted_below(offer.chain, offer.counterparty, offer.height)
    why = submit(offer)
    if why != Refusal.NeedIntermediateHeader or trusted is None:
        return why
    middle = between.get((offer.counterparty, (trusted + offer.height) // 2))
    if middle is None:
        return why
    first = bring(offer._replace(header=middle), between, block, submit)
    if first not in (Refusal.ACCEPTED, Refusal.NoOp):
        return first
    return bring(offer, between, block, submit)
