"""Contract of protocols with a relay process between two served lakes."""

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
    """Work of a process in one direction, and its last observed state.

    Attributes:
        direction: The direction.
        transactions: Submitted transactions.
        failures: Successive failed passes up to the last.
        state: State in a word.
        why: Reason for missing progress.
    """

    direction: Any
    transactions: int
    failures: int
    state: str
    why: str

    @property
    def hopeless(self) -> bool:
        """True if the process can make no more progress in this direction."""

    def as_json(self) -> dict[str, Any]:
        """Return the object for ``--json``."""

    def cells(self) -> Sequence[str]:
        """Return the cells of ``Relay.columns``."""


class RelayProcess(Protocol):
    """Process between two served lakes."""

    @property
    def progress(self) -> Sequence[RelayProgress]:
        """Progress of each direction."""

    def stop(self) -> None:
        """End the process after its current work."""

    async def forever(self) -> None:
        """Relay messages until ``stop``."""

    async def until_idle(self) -> None:
        """Relay messages until there is no more work, or none can be done."""


@dataclass(frozen=True)
class RelayOptions:
    """Protocol-independent options of a relay process.

    Attributes:
        key_a: Signing key and fee account at the first lake; a new one by default.
        key_b: Signing key and fee account at the second lake; a new one by default.
        ca: File of trusted certificates instead of the system's.
        only: Connections as ``CHAIN/COUNTERPARTY``; empty for all.
        to: ``both``, or the single target lake ``a`` or ``b``.
        poll: Poll interval in seconds.
        metrics_port: Port for Prometheus metrics.
        faults: Fault rates of its own transactions.
        seed: Seed of the faults.
        options: Options of the protocol by name.
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
    """Relay of one protocol, named in the registry and used by ``causeway relay``.

    Attributes:
        about: Description in the command's help.
        options: Options of the protocol.
        columns: Columns of the status table; the first two are text, the others numbers.
    """

    about: str
    options: tuple[CommandOption, ...]
    columns: tuple[str, ...]

    def between(
        self, a: str, b: str, wanted: RelayOptions, report: Callable[[RelayProgress], None], journal: Journal
    ) -> AbstractAsyncContextManager[RelayProcess]:
        """Create the process between two served lakes.

        Args:
            a: Address of the first lake.
            b: Address of the second lake.
            wanted: Options of the process.
            report: Callback after every pass.
            journal: Log of events.

        Raises:
            LakeDown: A lake does not answer, or not as expected.
            InvalidInput: There is nothing to relay between them.
        """


class LakeDown(InvalidInput):
    """Lake that does not answer, or not as expected; may pass."""


async def find_relay(a: str, b: str, ca: Path | None = None) -> tuple[str, Relay]:
    """Return the protocol of two served lakes and its relay.

    Args:
        a: Address of the first lake.
        b: Address of the second lake.
        ca: File of trusted certificates instead of the system's.

    Raises:
        LakeDown: A lake does not answer, or not as expected.
        InvalidInput: The protocols differ, or the protocol has no relay.
    """
    protocols: list[str] = []
    for url in (a, b):
        async with ServiceClient(url, ca=ca) as client:
            try:
                protocols.append(await client.protocol())
            except ServiceError as error:
                raise LakeDown(str(error)) from None
    if protocols[0] != protocols[1]:
        raise InvalidInput(
            f"{a} is of the protocol {protocols[0]}, {b} of {protocols[1]}: nothing can be carried between them"
        )
    relay: Relay | None = find_protocol(protocols[0]).part("relay")
    reason = find_protocol(protocols[0]).apart
    if reason is not None:
        raise InvalidInput(f"{a}, {b}: lakes of {protocols[0]} exchange nothing: {reason}")
    if relay is None:
        raise InvalidInput(
            f"{a}: the lake is of the protocol {protocols[0]}; a process carries messages of "
            f"{' and '.join(protocol_names('relay'))}"
        )
    return protocols[0], relay


async def require_two_lakes(a: ServiceClient, b: ServiceClient) -> None:
    """Verify that two addresses belong to different lakes.

    A message signed for one address of a lake is valid at the other.

    Args:
        a: Client of the first lake.
        b: Client of the second lake.

    Raises:
        ServiceError: A lake does not answer, or not as expected.
        InvalidInput: They are one lake.
    """
    identity, other = await a.identity(), await b.identity()
    if identity == other:
        raise InvalidInput(
            f"{a.url} and {b.url} say that they are one lake, {identity}: the relay signs no messages for them"
        )
