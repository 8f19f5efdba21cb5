"""How relayers bring headers to zones: where too much has changed since the one that is trusted, those between first
(IBC reference 3.5, X-4). And whom they accuse of having signed two for one height (X-3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from causeway.model.frame import Frame, empty_frame
from causeway.model.order import groups_of
from causeway.protocols.contract import PAST_SCHEMA
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.messages.call import Block
from causeway.protocols.ibc.messages.update_header import Offer
from causeway.protocols.ibc.seen import CallKind, Seen
from causeway.protocols.ibc.state import State, connection_rows, is_frozen
from causeway.protocols.ibc.validator_sets import headers_between

Certifications = Mapping[tuple[int, int], bytes]
"""Signed headers by zone and height."""


Accused = tuple[tuple[int, int, int], ...]
"""(zone, relayer, counterparty): who shows which zone that which other contradicts itself."""


def accused(forks: Sequence[int], state: State, seen: Seen, context: Context) -> Accused:
    """Return whom relayers accuse, ascending: zones of which they have seen two headers of the height before.

    To every zone that is connected with them and not frozen; partners share the remote zones.
    """
    connections, options = state.connections.filter(~is_frozen(state.connections)), context.options
    watching = range(1 if options.relay.coordination == "leader" else len(options.relayers))
    found: set[tuple[int, int, int]] = set()
    for counterparty in forks:
        chains = connections["chain"][connections["counterparty"] == counterparty]
        shared = options.relay.coordination == "partition"
        found |= {
            (chain, relayer, counterparty)
            for chain in chains[np.isin(chains, context.chains)].tolist()
            for relayer in watching
            if seen.signed_headers.get(counterparty) and (not shared or counterparty % len(options.relayers) == relayer)
        }
    return tuple(sorted(found))


def with_headers(rows: Frame, context: Context) -> Frame:
    """Return the submissions (``SUBMISSIONS_SCHEMA``) that bring the newest header: all, but with a delay, after which
    it can be used, those that are nothing else."""
    return rows.filter(rows["call"] == CallKind.UPDATE) if context.options.delay_ns else rows


def wanted_headers(rows: Frame, accused: Accused, state: State, context: Context) -> Frame:
    """Return the headers that relayers may want besides the newest, to bring that to zones: ``PAST_SCHEMA``.

    ``rows``: what they submit (``SUBMISSIONS_SCHEMA``).
    """
    rows = with_headers(rows, context)
    if not context.options.rotation.every or not (len(rows) or accused):
        return empty_frame(PAST_SCHEMA)
    groups = groups_of(rows["destination"], rows["source"])
    first = rows.select(("destination", "source")).take(groups.starts)
    pairs = {(chain, counterparty) for chain, _, counterparty in accused}
    pairs |= set(zip(first["destination"].tolist(), first["source"].tolist(), strict=True))
    chain, counterparty = (np.array(column, dtype=np.uint32) for column in zip(*pairs, strict=True))
    latest = state.connections["latest"][connection_rows(state.connections, chain, counterparty)]
    wanted = {
        (source, height)
        for source, trusted in set(zip(counterparty.tolist(), latest.tolist(), strict=True))
        for height in headers_between(source, trusted, context.height - 1, context)
    }
    columns = np.array(sorted(wanted), dtype=np.uint64).reshape(-1, 2)
    return Frame({"chain": columns[:, 0].astype(np.uint32), "height": columns[:, 1]}, len(columns))


def bring(
    offer: Offer, between: Certifications, block: Block, submit: Callable[[Offer], Refusal | None]
) -> Refusal | None:
    """Offer a header, and where it is unknown the one in the middle first; return what came of it.

    ``submit``: makes one call, and returns None where it cannot be made. ``between``: the headers that there are.
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
