"""Allow lists: the chains that a chain exchanges messages with.

Root changes the list of the consensus chain at once. The owner of a domain changes the domain's list on the consensus
chain. The domain reads the pending update and applies it in its next block, removals first.

Reference: XDM, X-1.
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
from causeway.protocols.shared.state_tables import blank_rows
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import CallFailed, MessengerError
from causeway.protocols.xdm.events import ChainEvent, log_chain_events
from causeway.protocols.xdm.planned_calls import AllowlistPlan, due_calls
from causeway.protocols.xdm.state import State, decode_set, encode_set
from causeway.protocols.xdm.tables import ALLOW_UPDATES_SCHEMA, ALLOWLIST_SCHEMA

_SETS = ("allow", "remove")

ALLOWED, REMOVED = "ChainAllowed", "ChainRemoved"
"""Event names of changes of an allow list."""


def is_allowed(
    allowlist: Frame, chain: npt.NDArray[np.uint32], foreign: npt.NDArray[np.uint32]
) -> npt.NDArray[np.bool_]:
    """Return a mask of pairs with ``foreign`` on the allow list of ``chain``."""
    pairs = Frame({"chain": chain, "foreign": foreign}, len(chain))
    return np.asarray(lookup_rows(allowlist, pairs, ("chain", "foreign")) >= 0)


def apply_allowlists(state: State, view: View, context: Context, log: EventLog) -> State:
    """Apply pending updates and the planned calls to allow lists.

    Domains apply the updates that were pending at the previous height. The consensus chain clears updates of domains
    with a known later block, then executes the calls of this tick.

    Args:
        state: State before the block.
        view: Tables that chains published at the previous height.
        context: Context of the block.
        log: Event log.
    """
    pending = view.tables["allow_updates"]
    calls = due_calls(context.planned.allowlists_by_tick, context.tick, context.chains.tolist(), context.again)
    has_updates = is_pending(pending)
    if not calls and not has_updates:
        return state
    lists = _Lists(state)
    if has_updates:
        lists.apply(pending, context.chains.tolist())
        if context.has_consensus:
            producers = view.headers["chain"][view.headers["height"] == context.height - 1]
            lists.clear(context.height - 2, set(producers.tolist()))
    for call in calls:
        try:
            lists.call(call, context)
        except CallFailed as error:
            lists.notices.append(ChainEvent(call.at, call.foreign, error.name, by=call.by, refused=True))
    log_chain_events(lists.notices, len(context.network.names), log)
    return lists.into(state)


def is_pending(updates: Frame) -> bool:
    """Return True if any update (``ALLOW_UPDATES_SCHEMA``) is pending."""
    return any(value for name in _SETS for value in updates[name].to_pylist())


class _Pending(NamedTuple):
    """The pending update of a domain, and the height of its last call."""

    height: int
    allow: set[int]
    remove: set[int]


class _Lists:
    """The allow lists and pending updates under change by a block."""

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
        """Apply the updates pending at the previous height to the lists of domains."""
        sets = (pending[name].to_pylist() for name in _SETS)
        for domain, added, removed in zip(pending["domain"].tolist(), *sets, strict=True):
            if domain in chains:
                for foreign in decode_set(removed):
                    self._change(domain, foreign, add=False)
                for foreign in decode_set(added):
                    self._change(domain, foreign, add=True)

    def clear(self, height: int, producers: set[int]) -> None:
        """Clear the updates of domains with a block on top of ``height``, except for later ones."""
        for domain, sets in self._pending.items():
            if domain in producers and sets.height <= height:
                self._pending[domain] = _Pending(sets.height, set(), set())

    def _change(self, chain: int, foreign: int, *, add: bool) -> None:
        if ((chain, foreign) in self._allowed) != add:
            (self._allowed.add if add else self._allowed.discard)((chain, foreign))
            self.notices.append(ChainEvent(chain, foreign, ALLOWED if add else REMOVED))

    def call(self, call: AllowlistPlan, context: Context) -> None:
        """Execute one call.

        Raises:
            CallFailed: The call is refused.
        """
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
        foreign_set = {call.foreign}
        # A later opposite update wins.
        allow, remove = (
            (before.allow | foreign_set, before.remove - foreign_set)
            if call.add
            else (before.allow - foreign_set, before.remove | foreign_set)
        )
        self._pending[call.chain] = _Pending(context.height, allow, remove)

    def into(self, state: State) -> State:
        """Return the state with the changed lists."""
        allowed = np.array(sorted(self._allowed), dtype=np.uint32).reshape(-1, 2)
        tables = {"allowlist": Frame({"chain": allowed[:, 0], "foreign": allowed[:, 1]}, len(allowed))}
        if self._pending:
            domains = sorted(self._pending)
            sets = [self._pending[domain] for domain in domains]
            tables["allow_updates"] = blank_rows(
                ALLOW_UPDATES_SCHEMA,
                len(domains),
                chain=CONSENSUS_POSITION,
                domain=np.array(domains, dtype=np.uint32),
                height=np.array([pending.height for pending in sets], dtype=np.uint64),
                allow=pa.array([encode_set(pending.allow) for pending in sets], pa.binary()),
                remove=pa.array([encode_set(pending.remove) for pending in sets], pa.binary()),
            )
        tables["allowlist"] = tables["allowlist"].select(ALLOWLIST_SCHEMA.names)
        return state.with_tables(**tables)


def _only_on_consensus(call: AllowlistPlan) -> None:
    if call.at != CONSENSUS_POSITION:
        raise CallFailed(MessengerError.OperationNotAllowed.name)
