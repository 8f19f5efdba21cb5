"""Headers that wait for their delay, and what relayers know of the states that they show (IBC reference X-11).

With a delay nothing is proved under a header before it has been trusted for so long. So relayers bring headers ahead,
and what they saw at the height of each is kept until a later one can be used: for no more headers than are brought
within the delay, and one. Without a delay nothing is kept.
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
    """Return what relayers can prove in a block: what is shown now, or with a delay what each counterparty's newest
    header shows that has been trusted for so long."""
    if not context.options.delay_ns:
        return seen
    headers, over = _known(state, context)
    return _at(state, seen, _newest(headers.filter(over)))


def newest_known_heights(state: State, seen: RelayerView, context: Context) -> RelayerView:
    """Return what the newest trusted headers show of which relayers know what they show, whether usable or not yet."""
    headers, _ = _known(state, context)
    return _at(state, seen, _newest(headers))


def record_known_headers(state: State, seen: RelayerView, context: Context) -> State:
    """Return the state after a block with what relayers know of trusted headers: those that wait for their delay, and
    the newest of each counterparty that does not; ``seen``: what they were shown in this block."""
    if not context.options.delay_ns:
        return state
    headers, over = _known(state, context)
    waits = headers.filter(~over)
    kept = concat([waits, _newest(headers.filter(over))])
    kept = kept.take(stable_order(*(kept[name] for name in HEADER)))

    def grown(name: str, known: Frame, shown: Frame) -> Frame:
        table = STATE_TABLES[name]
        rows = shown.with_columns(height=repeat_value(np.uint64(context.height - 1), len(shown)))
        rows = concat([known, rows.select(table.schema.names)])
        rows = rows.filter(lookup_rows(kept, _headers_of(rows), HEADER) >= 0)
        return rows.take(stable_order(*(rows[column] for column in table.order)))

    queues = grown("known_queues", state.known_queues, seen.queues)
    return replace(state, known_queues=queues, known_proofs=grown("known_proofs", state.known_proofs, seen.proofs))


def oldest_known_height(state: State) -> int | None:
    """Return the lowest height at which an entry was pushed that relayers may still bring, None where there is none."""
    entries = state.known_proofs["part"] == KeyPart.INDEX
    return int(state.known_proofs["pushed"][entries].min()) if entries.any() else None


def next_usable_tick(state: State, tick: int, tick_ns: int, own: Chains, options: IbcOptions) -> int | None:
    """Return the first tick after ``tick`` at which a header of a zone of another lake can be used that waits for its
    delay now, None where none does: until then a relay process must wait, and the clock has to go on."""
    trust = state.trust
    waits = (trust["height"] > 0) & ~np.isin(trust["counterparty"], own)
    if not options.delay_ns or not waits.any():
        return None
    over = trust["added_time"][waits] + np.uint64(options.delay_ns)
    ticks = (over + np.uint64(tick_ns - 1)) // np.uint64(tick_ns) - np.uint64(1)
    return min((due for due in ticks.tolist() if due > tick), default=None)


def _known(state: State, context: Context) -> tuple[Frame, np.ndarray]:
    """Return the trusted headers of which relayers know what they show, and which of them have waited for long enough.

    Those that are young enough to be used and came in the block after they were made, when relayers saw that state.
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
    """Return what relayers know of the states that ``headers`` show, one a connection at most."""
    tables = []
    for known, name in ((state.known_queues, "queues"), (state.known_proofs, "proofs")):
        rows = known.filter(lookup_rows(headers, _headers_of(known), HEADER) >= 0)
        rows = rows.select(STATE_TABLES[name].schema.names)
        tables.append(rows.take(stable_order(*(rows[column] for column in STATE_TABLES[name].order))))
    return replace(seen, queues=tables[0], proofs=tables[1], under=headers)


def _headers_of(known: Frame) -> Frame:
    """Return the header (``HEADER``) of each row."""
    return Frame({"chain": known["destination"], "counterparty": known["source"], "height": known["height"]})
