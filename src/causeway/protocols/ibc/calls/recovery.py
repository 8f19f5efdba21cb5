"""Recovery: a zone decides to continue a connection from a header of its choice.

See IBC reference X-3, X-11.

A frozen or expired connection then has one trusted header, the counterparty's of the previous height; both forks are
never followed. The queues stay, and a disconnecting connection stays so. Relayers retry entries in back-off.
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
"""(zone, counterparty, its signed header of the previous height, empty for none)."""


def recover(state: State, decisions: Decisions, context: Context, log: EventLog) -> State:
    """Apply the zones' own decisions, in order, with an event each."""
    for chain, counterparty, header in decisions:
        ends = {"chain": np.array([chain], dtype=np.uint32), "counterparty": np.array([counterparty], dtype=np.uint32)}
        if not header:
            reason = Refusal.MissingHeader.name
            log.add(zone_event_rows([ZoneEvent(chain, counterparty, context.height - 1, reason, event=Event.REJECTED)]))
            continue
        row = trust_row(chain, counterparty, header, context)
        own, removed = encode_keys(CONNECTION, state.trust, Frame(ends))
        trust = concat([state.trust.filter(own != removed[0]), row])
        trust = trust.take(stable_order(*(trust[name] for name in (*CONNECTION, "height"))))
        at = connection_rows(state.connections, ends["chain"], ends["counterparty"])
        frozen, latest = state.connections["frozen"].copy(), state.connections["latest"].copy()
        frozen[at] &= ~np.uint8(FROZEN)
        latest[at] = row["height"]
        connections = state.connections.with_columns(frozen=frozen, latest=latest)
        state = replace(state, trust=trust, connections=connections)
        rows = state.backoffs
        state = replace(state, backoffs=rows.filter((rows["chain"] != chain) | (rows["source"] != counterparty)))
        log.add(zone_event_rows([ZoneEvent(chain, counterparty, int(row["height"][0]), RECOVERED)]))
    return state
