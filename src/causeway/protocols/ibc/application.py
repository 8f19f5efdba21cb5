"""What zones commit to besides their queues (IBC reference 2.6): one entry a table, ``app/<table>``, a digest of the
zone's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.protocols.execution import PROGRAM_TABLE
from causeway.protocols.ibc.entries import leaf_of
from causeway.protocols.ibc.state import STATE_TABLES, State
from causeway.protocols.ibc.zones import Zones
from causeway.protocols.sections import Section, hashed_rows

APPLICATION_PREFIX = b"app/"

COMMITTED = {
    "canisters": "accounts",
    "connections": "connections",
    "funds": "funds",
    "relayers": "relayers",
    "slots": "slots",
    "trust": "trust",
}
"""By its name in the keys of a store: the state table, besides queues and programs, that is committed under it."""

NOT_COMMITTED = {
    "connections": ("peer_received", "peer_done"),
    "funds": ("stopped", "stops"),
    "trust": ("added_time",),
}
"""Columns of tables that are not: of ``connections`` and ``funds`` what is the relayers' knowledge, not the zone's; of
``trust`` that on which something depends only where headers have a delay."""


class Committing(Protocol):
    """What a commitment needs to know; a block's ``Context`` says it."""

    @property
    def chains(self) -> npt.NDArray[np.uint32]:
        """Return the positions of the zones whose stores are committed, ascending."""
        ...

    @property
    def zones(self) -> Zones:
        """Return the fixed parts of the network."""
        ...


@dataclass(frozen=True)
class Application:
    """The entries of zones' stores that belong to no queue.

    ``tables``: by name, keys ascending, what each digest is of; ``sections``: the digests. ``leaves``: the hashes of
    the entries' leaves, shape (zones, tables, 32).
    """

    tables: Mapping[str, Frame]
    sections: Mapping[str, Section]
    leaves: Digests

    def entries(self) -> list[dict[bytes, bytes]]:
        """Return the entries of each zone's store, keys ascending."""
        zones = zip(*(section.digests for section in self.sections.values()), strict=True)
        return [dict(zip(map(_key, self.sections), digests, strict=True)) for digests in zones]


def application_of(state: State, context: Committing, before: Application | None = None) -> Application:
    """Return what the zones of a block commit to besides their queues.

    ``before``: what the same zones committed to earlier; what is the same is not hashed again.
    """
    tables: dict[str, Frame] = {key: getattr(state, name) for key, name in COMMITTED.items()}
    if context.zones.options.relay.accounts is None:
        del tables["funds"]
    tables |= {PROGRAM_TABLE + name: frame for name, frame in state.programs.items()}
    tables = {name: tables[name] for name in sorted(tables, key=str.encode)}
    if before is None or list(before.tables) != list(tables):
        before = None
    if before is not None and all(before.tables[name] is frame for name, frame in tables.items()):
        return before
    shape = len(context.chains), len(tables), DIGEST_BYTES
    leaves = np.empty(shape, dtype=np.uint8) if before is None else before.leaves.copy()
    sections: dict[str, Section] = {}
    for place, (name, frame) in enumerate(tables.items()):
        known = None if before is None else before.sections[name]
        if before is not None and known is not None and before.tables[name] is frame:
            sections[name] = known
            continue
        # The digests of the zones' rows of a table.
        owner = STATE_TABLES[COMMITTED[name]].owner if name in COMMITTED else "program"
        own = context.zones.host_of(frame[owner]).view(np.uint32) if owner == "program" else frame[owner]
        left_out = NOT_COMMITTED.get(name, ())
        if name == "trust" and context.zones.options.delay_ns:
            left_out = ()
        committed = frame.select([column for column in frame.names if column not in left_out])
        section = sections[name] = hashed_rows(committed, own, context.chains, known)
        changed = range(len(context.chains)) if known is None else section.changed.tolist()
        for zone in changed:
            leaf = leaf_of(_key(name), section.digests[zone])
            leaves[zone, place] = np.frombuffer(leaf, dtype=np.uint8)
    return Application(tables, sections, leaves)


def _key(name: str) -> bytes:
    return APPLICATION_PREFIX + name.encode()


__all__ = ["Application", "Committing", "application_of"]
