"""Allow lists: with which chains a chain exchanges messages (XDM reference X-1).

Root changes the list of the consensus chain at once. That of a domain is changed by its owner, on the consensus chain:
what is pending is shown to the domain, which applies it in its next block, removals first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.core.frame import Frame
from causeway.core.joins import lookup_rows
from causeway.protocols.contract import View
from causeway.protocols.shared.events import EventLog
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import CallFailed, MessengerError
from causeway.protocols.xdm.events import ChainEvent, log_chain_events
from causeway.protocols.xdm.planned_calls import AllowlistPlan
from causeway.protocols.xdm.state import State, decode_set, encode_set
from causeway.protocols.xdm.tables import ALLOW_UPDATES_SCHEMA, ALLOWLIST_SCHEMA

_SETS = ("allow", "remove")

ALLOWED, REMOVED = "ChainAllowed", "ChainRemoved"
"""What a notice says of a change of an allow list."""


def is_allowed(
    allowlist: Frame, chain: npt.NDArray[np.uint32], foreign: npt.NDArray[np.uint32]
) -> npt.NDArray[np.bool_]:
    """Return of each pair of chains whether ``foreign`` is in the allow list of ``chain``."""
    asked = Frame({"chain": chain, "foreign": foreign}, len(chain))
    return np.asarray(lookup_rows(allowlist, asked, ("chain", "foreign")) >= 0)


def apply_allowlists(state: State, view: View, context: Context, log: EventLog) -> State:
    """Return the state of a block's chains after allow lists were changed.

    Domains apply what the consensus chain showed as pending at the height before. The consensus chain takes what it
    showed to a block of the domain that it knows of as applied; then come the calls of this tick.
    """
    pending = view.tables["allow_updates"]
    calls = context.planned.allowlist_calls(context.tick, context.chains.tolist(), context.again)
    some = is_pending(pending)
    if not calls and not some:
        return state
    lists = _Lists(state)
    if some:
        lists.apply(pending, context.chains.tolist())
        if context.has_consensus:
            made = view.headers["chain"][view.headers["height"] == context.height - 1]
            lists.clear(context.height - 2, set(made.tolist()))
    for call in calls:
        try:
            lists.call(call, context)
        except CallFailed as error:
            lists.notices.append(ChainEvent(call.at, call.foreign, error.name, by=call.by, refused=True))
    log_chain_events(lists.notices, len(context.network.names), log)
    return lists.into(state)


def is_pending(updates: Frame) -> bool:
    """Return whether any update (``ALLOW_UPDATES_SCHEMA``) is to be applied."""
    return any(value for name in _SETS for value in updates[name].to_pylist())


class _Pending(NamedTuple):
    """What is pending for a domain, and the height of the last call about it."""

    height: int
    allow: set[int]
    remove: set[int]


class _Lists:
    """The allow lists of a state, and what is pending, while a block changes them."""

    def __init__(self, state: State) -> None:
        rows = state["allowlist"]
        self._allowed = set(zip(rows["chain"].tolist(), rows["foreign"].tolist(), strict=True))
        updates = state["allow_updates"]
        columns = updates["domain"].tolist(), updates["height"].tolist(), *(updates[name].to_pylist() for name in _SETS)
        self._pending = {
            domain: _Pending(height, set(decode_set(allow)), set(decode_set(remove)))
            for domain, height, allow, remove in zip(*columns, strict=True)
        }
        self.notices: list[ChainEvent] = []

    def apply(self, pending: Frame, chains: list[int]) -> None:
        """Apply what was pending at the height before to the lists of domains."""
        sets = (pending[name].to_pylist() for name in _SETS)
        for domain, added, removed in zip(pending["domain"].tolist(), *sets, strict=True):
            if domain in chains:
                for foreign in decode_set(removed):
                    self._change(domain, foreign, add=False)
                for foreign in decode_set(added):
                    self._change(domain, foreign, add=True)

    def clear(self, height: int, made: set[int]) -> None:
        """Empty the sets of domains that made a block on top of ``height``, if nothing has come since."""
        for domain, sets in self._pending.items():
            if domain in made and sets.height <= height:
                self._pending[domain] = _Pending(sets.height, set(), set())

    def _change(self, chain: int, foreign: int, *, add: bool) -> None:
        if ((chain, foreign) in self._allowed) != add:
            (self._allowed.add if add else self._allowed.discard)((chain, foreign))
            self.notices.append(ChainEvent(chain, foreign, ALLOWED if add else REMOVED))

    def call(self, call: AllowlistPlan, context: Context) -> None:
        """Run one call. Raises ``CallError``."""
        registered = call.foreign < len(context.network.names)
        if call.chain == CONSENSUS_POSITION:
            if call.by is not None:
                raise CallFailed("BadOrigin")
            _only_on_consensus(call)
            if call.foreign == CONSENSUS_POSITION:
                raise CallFailed(MessengerError.InvalidAllowedChain.name)
            if call.add and not registered:
                raise CallFailed(MessengerError.InvalidChain.name)
            self._change(CONSENSUS_POSITION, call.foreign, add=call.add)
            return
        if call.by != context.planned.owners.get(call.chain):
            raise CallFailed(MessengerError.NotDomainOwner.name)
        _only_on_consensus(call)
        if call.foreign == call.chain:
            raise CallFailed(MessengerError.InvalidAllowedChain.name)
        if not registered:
            raise CallFailed(MessengerError.InvalidChain.name)
        before = self._pending.get(call.chain, _Pending(0, set(), set()))
        one = {call.foreign}
        # A later opposite update wins.
        allow, remove = (
            (before.allow | one, before.remove - one) if call.add else (before.allow - one, before.remove | one)
        )
        self._pending[call.chain] = _Pending(context.height, allow, remove)

    def into(self, state: State) -> State:
        """Return the state with the lists after."""
        allowed = np.array(sorted(self._allowed), dtype=np.uint32).reshape(-1, 2)
        tables = {"allowlist": Frame({"chain": allowed[:, 0], "foreign": allowed[:, 1]}, len(allowed))}
        if self._pending:
            domains = sorted(self._pending)
            sets = [self._pending[domain] for domain in domains]
            tables["allow_updates"] = Frame(
                {
                    "chain": np.full(len(domains), CONSENSUS_POSITION, dtype=np.uint32),
                    "domain": np.array(domains, dtype=np.uint32),
                    "height": np.array([one.height for one in sets], dtype=np.uint64),
                    "allow": pa.array([encode_set(one.allow) for one in sets], pa.binary()),
                    "remove": pa.array([encode_set(one.remove) for one in sets], pa.binary()),
                },
                len(domains),
            ).select(ALLOW_UPDATES_SCHEMA.names)
        tables["allowlist"] = tables["allowlist"].select(ALLOWLIST_SCHEMA.names)
        return state.with_tables(**tables)


def _only_on_consensus(call: AllowlistPlan) -> None:
    if call.at != CONSENSUS_POSITION:
        raise CallFailed(MessengerError.OperationNotAllowed.name)
