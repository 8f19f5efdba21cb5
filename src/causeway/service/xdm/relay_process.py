"""``causeway relay`` between lakes of domains: status table and assembly."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from causeway.protocols.shared.command_options import CommandOption

if TYPE_CHECKING:
    from causeway.service.journal import Journal
    from causeway.service.relay.process import RelayOptions
    from causeway.service.xdm.relay_runner import DomainRelay


class XdmRelay:
    """Relay between lakes with the consensus chain and with domains.

    See ``service.relay.process.Relay``.
    """

    about = "blocks of the consensus chain, receipts of domains, and messages with their responses."
    options: tuple[CommandOption, ...] = ()
    columns = ("direction", "state", "left", "transactions", "carried")

    @asynccontextmanager
    async def between(
        self, a: str, b: str, wanted: RelayOptions, report: Callable[[Any], None], journal: Journal
    ) -> AsyncIterator[DomainRelay]:
        """Create the process between two lakes; see ``service.relay.process.Relay``."""
        from causeway.service.http.client import ServiceError
        from causeway.service.http.metrics_port import serve_metrics
        from causeway.service.relay.loop import PassPacing
        from causeway.service.relay.process import LakeDown, require_two_lakes
        from causeway.service.xdm.client import DomainLakeClient
        from causeway.service.xdm.relay_runner import DomainRelay, DomainRelayCollector, find_directions

        async with (
            DomainLakeClient(a, key=wanted.key_a, ca=wanted.ca) as at_a,
            DomainLakeClient(b, key=wanted.key_b, ca=wanted.ca) as at_b,
        ):
            try:
                await require_two_lakes(at_a, at_b)
                ends = await find_directions(at_a, at_b, wanted.only, wanted.to)
            except ServiceError as error:
                raise LakeDown(str(error)) from None
            clients = {"a": at_a, "b": at_b}
            pacing = PassPacing(poll=wanted.poll)
            relaying = DomainRelay(clients, ends, pacing, wanted.faults, wanted.seed, report=report, journal=journal)
            ways = ",".join(str(direction) for direction in ends.directions)
            journal.info("connected", a=at_a.url, b=at_b.url, directions=ways)
            with serve_metrics(DomainRelayCollector(relaying), wanted.metrics_port):
                yield relaying


RELAY = XdmRelay()
