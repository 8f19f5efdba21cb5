"""``causeway relay`` between lakes of zones: options, status table, assembly."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from causeway.protocols.shared.command_options import CommandOption

if TYPE_CHECKING:
    from causeway.service.ibc.relay_runner import ZoneRelay
    from causeway.service.journal import Journal
    from causeway.service.relay.process import RelayOptions


class IbcRelay:
    """Relay of packets and receipts between lakes of zones (``service.relay.process.Relay``)."""

    about = "packets, receipts, time-outs and cleanups, and the headers that prove them."
    options = (
        CommandOption("min_batch", "Wait until so many packets and receipts are there ...", int, 1, least=1),
        CommandOption("max_wait", "... but at most so many blocks.", int, 0, least=0),
        CommandOption("max_packets", "Most packets to carry in one pass; 0: all.", int, 0, least=0),
        CommandOption("proofs_per_header", "Most proofs per header update; 0: no limit.", int, 0, least=0),
        CommandOption("max_calls", "Most calls in one transaction.", int, 30, least=2, most=200),
        CommandOption("cleanup_after", "Clean up once so many receipts can be removed.", int, 100, least=1),
    )
    columns = (
        "direction",
        "state",
        "left",
        "oldest",
        "transactions",
        "headers",
        "messages",
        "accepted",
        "redundant",
        "refused",
        "fees wasted",
    )

    @asynccontextmanager
    async def between(
        self, a: str, b: str, wanted: RelayOptions, report: Callable[[Any], None], journal: Journal
    ) -> AsyncIterator[ZoneRelay]:
        """Create the process between two lakes; see ``service.relay.process.Relay``."""
        from causeway.service.http.client import ServiceError
        from causeway.service.http.metrics_port import serve_metrics
        from causeway.service.ibc.client import ZoneLakeClient
        from causeway.service.ibc.relay_plan import RelaySettings
        from causeway.service.ibc.relay_runner import ZoneRelay, ZoneRelayCollector, find_directions
        from causeway.service.relay.loop import PassPacing
        from causeway.service.relay.process import LakeDown, require_two_lakes

        settings = RelaySettings(**{option.name: wanted.options[option.name] for option in self.options})
        async with (
            ZoneLakeClient(a, key=wanted.key_a, ca=wanted.ca) as at_a,
            ZoneLakeClient(b, key=wanted.key_b, ca=wanted.ca) as at_b,
        ):
            try:
                await require_two_lakes(at_a, at_b)
                directions, rules = await find_directions(at_a, at_b, wanted.only, wanted.to)
            except ServiceError as error:
                raise LakeDown(str(error)) from None
            relaying = ZoneRelay(
                {"a": at_a, "b": at_b},
                directions,
                rules,
                settings,
                PassPacing(poll=wanted.poll),
                wanted.faults,
                wanted.seed,
                report=report,
                journal=journal,
            )
            ways = ",".join(str(direction) for direction in directions)
            journal.info("connected", a=at_a.url, b=at_b.url, directions=ways)
            with serve_metrics(ZoneRelayCollector(relaying), wanted.metrics_port):
                yield relaying


RELAY = IbcRelay()
