"""Recovery (IBC reference X-3, X-11): by its own decision a zone goes on from a header that it chooses itself.

A connection that was frozen, or whose client has expired, has one trusted header from then on: the counterparty's of
the height before. Both forks are never followed. The queues stay as they are, and a connection that was disconnecting
goes on disconnecting. What relayers had left alone they try again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from causeway_proofs.order import stable_order

from causeway.core.frame import Frame, concat
from causeway.core.joins import encode_keys
from causeway.core.vocabulary import Event
from causeway.protocols.ibc.client import trust_row
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.events import RECOVERED, ZoneEvent, zone_event_rows
from causeway.protocols.ibc.state import CONNECTION, FROZEN, State, connection_rows
from causeway.protocols.shared.events import EventLog

Decisions = tuple[tuple[int, int, bytes], ...]
"""(zone, counterparty, its signed header of the height before, empty where there is none)."""


def recover(state: State, decisions: Decisions, context: Context, log: EventLog) -> State:
    """Return the state after the zones' own decisions, in their order; each leaves an event."""
    for chain, counterparty, header in decisions:
        here = {"chain": np.array([chain], dtype=np.uint32), "counterparty": np.array([counterparty], dtype=np.uint32)}
        if not header:
            why = Refusal.MissingHeader.name
            log.add(zone_event_rows([ZoneEvent(chain, counterparty, context.height - 1, why, event=Event.REJECTED)]))
            continue
        row = trust_row(chain, counterparty, header, context)
        own, gone = encode_keys(CONNECTION, state.trust, Frame(here))
        trust = concat([state.trust.filter(own != gone[0]), row])
        trust = trust.take(stable_order(*(trust[name] for name in (*CONNECTION, "height"))))
        at = connection_rows(state.connections, here["chain"], here["counterparty"])
        frozen, latest = state.connections["frozen"].copy(), state.connections["latest"].copy()
        frozen[at] &= ~np.uint8(FROZEN)
        latest[at] = row["height"]
        connections = state.connections.with_columns(frozen=frozen, latest=latest)
        # The state without what relayers leave alone of a connection.
        state = replace(state, trust=trust, connections=connections)
        rows = state.backoffs
        state = replace(state, backoffs=rows.filter((rows["chain"] != chain) | (rows["source"] != counterparty)))
        log.add(zone_event_rows([ZoneEvent(chain, counterparty, int(row["height"][0]), RECOVERED)]))
    return state
