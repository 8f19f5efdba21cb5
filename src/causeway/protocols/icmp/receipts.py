"""The receipts that an author of relay blocks has at hand (ICMP reference 2.2, 3.1)."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.ledger import Event, Kind
from causeway.protocols.contract import View
from causeway.protocols.digests import same
from causeway.protocols.events import EventLog, event_rows, names_column
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.errors import Inclusion
from causeway.protocols.icmp.leaves import Leaf
from causeway.protocols.icmp.runtime import Codes, Receipts, on_chain
from causeway.protocols.messages import blank_messages


def receipts_of(view: View, leaf: Leaf) -> Receipts:
    """Return the receipts that the author of the next block on ``leaf`` has: those of parachains' last blocks that were
    built on its chain, and that it has not included or refused yet."""
    rows, egress, paras = view.tables["candidates"], view.tables["egress"], leaf.paras
    at = lookup(paras, Frame({"para": rows["source"]}, len(rows)), ("para",))
    known = np.flatnonzero(at >= 0)
    fresh = on_chain(leaf, rows["relay_number"], rows["relay_hash"])
    for name in ("head", "refused"):
        fresh[known] &= ~same(rows["head"][known], paras[name][at[known]])
    rows = rows.filter(fresh)
    rows = rows.with_columns(receipt=rows["source"])
    return Receipts(rows, egress.with_columns(receipt=egress["source"]))


def log_refused(
    rows: Frame, codes: Codes, log: EventLog, names: type[IntEnum] = Inclusion, chain: int = RELAY_POSITION
) -> None:
    """Leave an event for every receipt or candidate (``source``) that is refused, by ``chain``, with its error of
    ``names``."""
    bad = codes != 0
    count = int(bad.sum())
    if count == 0:
        return
    control = blank_messages(count, kind=np.full(count, Kind.CONTROL, dtype=np.uint8))
    reasons = names_column([code.name for code in names], codes[bad])
    ends = {"source": rows["source"][bad], "destination": np.full(count, RELAY_POSITION, dtype=np.uint32)}
    zero = np.zeros(count, dtype=np.uint64)
    control = control.with_columns(**ends, substream=zero, index=zero)
    log.add(event_rows(control, Event.REJECTED, chain=chain, on_lane=True, reason=reasons))
