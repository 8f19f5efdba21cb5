"""``causeway relay`` between lakes of domains: what a person reads of it, and how it is put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from causeway.protocols.command_options import CommandOption

if TYPE_CHECKING:
    from causeway.service.journal import Journal
    from causeway.service.relay import RelayOptions
    from causeway.service.xdm.relaying import Relaying


class XdmRelay:
    """Carries between a lake with the consensus chain and one with domains (``service.relay.Relay``)."""

    about = "blocks of the consensus chain, receipts of domains, and messages with their responses."
    options: tuple[CommandOption, ...] = ()
    columns = ("direction", "state", "left", "transactions", "carried")

    @asynccontextmanager
    async def between(
        self, a: str, b: str, wanted: RelayOptions, report: Callable[[Any], None], journal: Journal
    ) -> AsyncIterator[Relaying]:
        """Give the process between two lakes, as ``service.relay.Relay`` says."""
        from causeway.service.http_client import ServiceError
        from causeway.service.metrics_port import serving
        from causeway.service.passes import Pacing
        from causeway.service.relay import LakeDown, require_two_lakes
        from causeway.service.xdm.client import LakeClient
        from causeway.service.xdm.relay_metrics import RelayCollector
        from causeway.service.xdm.relaying import Relaying, ends_between

        async with (
            LakeClient(a, key=wanted.key_a, ca=wanted.ca) as at_a,
            LakeClient(b, key=wanted.key_b, ca=wanted.ca) as at_b,
        ):
            try:
                await require_two_lakes(at_a, at_b)
                ends = await ends_between(at_a, at_b, wanted.only, wanted.to)
            except ServiceError as error:
                raise LakeDown(str(error)) from None
            clients = {"a": at_a, "b": at_b}
            pacing = Pacing(poll=wanted.poll)
            relaying = Relaying(clients, ends, pacing, wanted.faults, wanted.seed, report=report, journal=journal)
            ways = ",".join(str(direction) for direction in ends.directions)
            journal.info("connected", a=at_a.url, b=at_b.url, directions=ways)
            with serving(RelayCollector(relaying), wanted.metrics_port):
                yield relaying


RELAY = XdmRelay()
