"""Headers within their delay, and the relayers' knowledge of the states that they show.

With a delay, a header must be trusted for some time before it serves proofs. So relayers deliver headers in advance and
store their view at each height until a later header is usable. The number of stored views is bounded by the headers
delivered within the delay, plus one. Without a delay nothing is stored.

Reference:
    IBC reference X-11.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from causeway_proofs.order import group_rows, stable_order
from causeway_proofs.tendermint.trust import is_period_over

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.joins import lookup_rows
from causeway.protocols.contract import Chains
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.keys import KeyPart
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.relayer_view import RelayerView
from causeway.protocols.ibc.state import CONNECTION, STATE_TABLES, State

HEADER = (*CONNECTION, "height")


def usable_headers(state: State, seen: RelayerView, context: Context) -> RelayerView:
    """Return the view that relayers can prove in a block.

    It is the current view, or with a delay that of each counterparty's newest usable header.
    """
    if not context.options.delay_ns:
        return seen
    headers, over = _known(state, context)
    return _at(state, seen, _newest(headers.filter(over)))


def newest_known_heights(state: State, seen: RelayerView, context: Context) -> RelayerView:
    """Return the view at the newest trusted headers with a known view, usable or not."""
    headers, _ = _known(state, context)
    return _at(state, seen, _newest(headers))


def record_known_headers(state: State, seen: RelayerView, context: Context) -> State:
    """Update the stored views after a block.

    They are of headers within their delay, and of the newest usable ones.

    ``seen`` is the view of this block.
    """
    if not context.options.delay_ns:
        return state
    headers, over = _known(state, context)
    delayed = headers.filter(~over)
    remaining = concat([delayed, _newest(headers.filter(over))])
    remaining = remaining.take(stable_order(*(remaining[name] for name in HEADER)))

    def grown(name: str, known: Frame, visible: Frame) -> Frame:
        table = STATE_TABLES[name]
        rows = visible.with_columns(height=repeat_value(np.uint64(context.height - 1), len(visible)))
        rows = concat([known, rows.select(table.schema.names)])
        rows = rows.filter(lookup_rows(remaining, _headers_of(rows), HEADER) >= 0)
        return rows.take(stable_order(*(rows[column] for column in table.order)))

    queues = grown("known_queues", state.known_queues, seen.queues)
    return replace(state, known_queues=queues, known_proofs=grown("known_proofs", state.known_proofs, seen.proofs))


def oldest_known_height(state: State) -> int | None:
    """Return the lowest height of a pushed entry that relayers may still deliver, or None."""
    entries = state.known_proofs["part"] == KeyPart.INDEX
    return int(state.known_proofs["pushed"][entries].min()) if entries.any() else None


def next_usable_tick(state: State, tick: int, tick_ns: int, own: Chains, options: IbcOptions) -> int | None:
    """Return the first tick after ``tick`` with a newly usable delayed header, or None.

    Only headers of zones of other lakes count.

    A relay process waits until then, so the clock must advance.
    """
    trust = state.trust
    waits = (trust["height"] > 0) & ~np.isin(trust["counterparty"], own)
    if not options.delay_ns or not waits.any():
        return None
    over = trust["added_time"][waits] + np.uint64(options.delay_ns)
    ticks = (over + np.uint64(tick_ns - 1)) // np.uint64(tick_ns) - np.uint64(1)
    return min((due for due in ticks.tolist() if due > tick), default=None)


def _known(state: State, context: Context) -> tuple[Frame, np.ndarray]:
    """Return the trusted headers with a known view, and a mask of those past their delay.

    They have not expired, and were added in the block after their own, when relayers saw that state.
    """
    trust, options, now = state.trust, context.options, np.uint64(context.time)
    seen = trust["added"] == trust["height"] + np.uint64(1)
    seen &= ~is_period_over(trust["time"], np.uint64(options.trusting_ns), now)
    rows = np.flatnonzero(seen & np.isin(trust["chain"], context.chains))
    headers = trust.select([*HEADER, "time", "added_time"]).take(rows)
    return headers, headers["added_time"] + np.uint64(options.delay_ns) <= now


def _newest(headers: Frame) -> Frame:
    """Return the highest header of each connection."""
    groups = group_rows(*(headers[name] for name in CONNECTION))
    return headers.take(groups.starts + groups.counts - 1)


def _at(state: State, seen: RelayerView, headers: Frame) -> RelayerView:
    """Return the view at ``headers``, at most one a connection."""
    tables = []
    for known, name in ((state.known_queues, "queues"), (state.known_proofs, "proofs")):
        rows = known.filter(lookup_rows(headers, _headers_of(known), HEADER) >= 0)
        rows = rows.select(STATE_TABLES[name].schema.names)
        tables.append(rows.take(stable_order(*(rows[column] for column in STATE_TABLES[name].order))))
    return replace(seen, queues=tables[0], proofs=tables[1], under=headers)


def _headers_of(known: Frame) -> Frame:
    """Return the header (``HEADER``) of each row."""
    return Frame({"chain": known["destination"], "counterparty": known["source"], "height": known["height"]})
