"""What is asked of a protocol that has a process which carries messages between two served lakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from causeway_proofs.errors import InvalidInput

from causeway.protocols.registry import find_protocol, protocol_names
from causeway.protocols.shared.command_options import CommandOption
from causeway.service.http.client import ServiceClient, ServiceError
from causeway.service.journal import Journal
from causeway.service.keys.key_files import AccountKey
from causeway.service.relay.faults import FaultSettings


class RelayProgress(Protocol):
    """What a process did in one direction, and what it last saw there.

    ``transactions``: how many it submitted; ``failures``: passes that failed, one after the other, up to the last.
    ``state``, ``why``: in a word, and what keeps it from going on.
    """

    direction: Any
    transactions: int
    failures: int
    state: str
    why: str

    @property
    def hopeless(self) -> bool:
        """Return whether nothing that the process can do will move this direction."""
        ...

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        ...

    def cells(self) -> Sequence[str]:
        """Return what ``Relay.columns`` say of it."""
        ...


class RelayProcess(Protocol):
    """A process between two served lakes."""

    @property
    def progress(self) -> Sequence[RelayProgress]:
        """Return what it did, a direction each."""
        ...

    def stop(self) -> None:
        """Let it end after what it is doing."""
        ...

    async def forever(self) -> None:
        """Carry messages until ``stop``."""
        ...

    async def until_idle(self) -> None:
        """Carry messages until there is nothing to do, or nothing that can be done."""
        ...


@dataclass(frozen=True)
class RelayOptions:
    """What a user says of a process, whatever the protocol.

    ``key_a``, ``key_b``: sign what is submitted to each lake, and decide the fee account; new ones if not given;
    ``ca``: a file of certificates that are believed instead of the system's; ``only``: connections as
    ``CHAIN/COUNTERPARTY``, without any all; ``to``: ``both``, or what goes to ``a`` or ``b`` alone; ``poll``: seconds
    between two polls; ``metrics_port``: where Prometheus is answered; ``faults``, ``seed``: what happens to its own
    transactions; ``options``: those of the protocol, by name.
    """

    key_a: AccountKey | None = None
    key_b: AccountKey | None = None
    ca: Path | None = None
    only: Sequence[str] = ()
    to: str = "both"
    poll: float = 0.5
    metrics_port: int | None = None
    faults: FaultSettings = field(default_factory=FaultSettings)
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


class Relay(Protocol):
    """Carries messages between lakes of one protocol. The registry names it; ``causeway relay`` asks it.

    ``about``: what it carries, as the command's help says it. ``options``: those that the protocol adds. ``columns``:
    of the table that a person reads, the first one text, the second too, others numbers.
    """

    about: str
    options: tuple[CommandOption, ...]
    columns: tuple[str, ...]

    def between(
        self, a: str, b: str, wanted: RelayOptions, report: Callable[[RelayProgress], None], journal: Journal
    ) -> AbstractAsyncContextManager[RelayProcess]:
        """Give the process between the lakes served at two addresses; ``report`` is called after every pass,
        ``journal`` is told what happens.

        Raises:
            LakeDown: one cannot be reached now, or does not answer as it should.
            InvalidInput: there is nothing between them to relay.
        """
        ...


class LakeDown(InvalidInput):
    """A lake cannot be reached now, or does not answer as it should: that may pass."""


async def find_relay(a: str, b: str, ca: Path | None = None) -> tuple[str, Relay]:
    """Return the protocol of the lakes served at two addresses, and what carries messages between them.

    Raises:
        LakeDown: one cannot be reached now, or does not answer as it should.
        InvalidInput: they have different protocols, or one whose messages no process carries.
    """
    found: list[str] = []
    for url in (a, b):
        async with ServiceClient(url, ca=ca) as client:
            try:
                found.append(await client.protocol())
            except ServiceError as error:
                raise LakeDown(str(error)) from None
    if found[0] != found[1]:
        raise InvalidInput(f"{a} is of the protocol {found[0]}, {b} of {found[1]}: nothing can be carried between them")
    relay: Relay | None = find_protocol(found[0]).part("relay")
    why = find_protocol(found[0]).apart
    if why is not None:
        raise InvalidInput(f"{a}, {b}: lakes of {found[0]} exchange nothing: {why}")
    if relay is None:
        raise InvalidInput(
            f"{a}: the lake is of the protocol {found[0]}; a process carries messages of "
            f"{' and '.join(protocol_names('relay'))}"
        )
    return found[0], relay


async def require_two_lakes(a: ServiceClient, b: ServiceClient) -> None:
    """Refuse to carry between two addresses of one lake: what is signed for one of them would be good at the other.

    Raises:
        ServiceError: one cannot be reached now, or does not answer as it should.
        InvalidInput: they are one lake.
    """
    identity, other = await a.identity(), await b.identity()
    if identity == other:
        raise InvalidInput(f"{a.url} and {b.url} say that they are one lake, {identity}: nothing is signed for them")
