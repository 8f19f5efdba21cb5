"""What the calls about a light client have in common: tables of checks, and the first of them, that the connection is
there and open (IBC reference 3.1, X-3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.messages.call import Block


class ClientCall(Protocol):
    """What is brought to ``chain`` about ``counterparty``, which is below 0 for an unknown chain."""

    @property
    def chain(self) -> int:
        """Return the zone that is called."""
        ...

    @property
    def counterparty(self) -> int:
        """Return the chain whose client it is."""
        ...


Brought = TypeVar("Brought", bound=ClientCall)


class Check(NamedTuple, Generic[Brought]):
    """A step of the call, and the refusal where it does not hold."""

    refusal: Refusal
    section: str
    holds: Callable[[Brought, Block], bool]


def opening(kind: type[Brought]) -> tuple[Check[Brought], ...]:
    """Return the checks of a kind of call that the connection is registered and not frozen."""

    def is_connected(brought: Brought, block: Block) -> bool:
        return block.progress.is_connected((brought.chain, brought.counterparty))

    def is_open(brought: Brought, block: Block) -> bool:
        return not block.clients.frozen(brought.chain, brought.counterparty)

    return (
        Check(Refusal.UnregisteredSender, "3.1", is_connected),
        Check(Refusal.ConnectionFrozen, "3.1, X-3", is_open),
    )


def validate(checks: tuple[Check[Brought], ...], brought: Brought, block: Block) -> Refusal:
    """Return the first check that fails, ``ACCEPTED`` where it is the light client's turn. Changes nothing."""
    for check in checks:
        if not check.holds(brought, block):
            return check.refusal
    return Refusal.ACCEPTED
