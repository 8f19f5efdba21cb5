"""Relay process between lakes of domains: passes over HTTP, and metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from causeway_proofs.errors import InvalidInput

from causeway.service.journal import SILENT, Journal
from causeway.service.relay import loop
from causeway.service.relay.faults import FaultSettings
from causeway.service.relay.loop import PassPacing, ProgressCollector, RelayLoop
from causeway.service.xdm import relay_state
from causeway.service.xdm.answers import DomainStatusAnswer
from causeway.service.xdm.client import DomainLakeClient
from causeway.service.xdm.relayer import DomainPass, PassOutcome, RelayPlacement, relay_direction

MOST_NAMED = 8
"""Maximum number of chains named in an error."""


@dataclass
class DomainProgress(loop.DirectionProgress):
    """Work of a process in one direction (``relay.loop.DirectionProgress``).

    Attributes:
        left: Pending messages, blocks or receipts.
        in_vain: Successive passes whose awaited work is overdue.
    """

    hopeless_states = frozenset((PassOutcome.REFUSED.value,))

    direction: relay_state.ChainPair
    left: int = 0
    in_vain: int = 0

    @property
    def vain(self) -> int:
        """Successive passes without effect; overdue waits count separately, without a longer pause."""
        return max(self.fruitless, self.in_vain)

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the status table."""
        return str(self.direction), self.state, *map(str, (self.left, self.transactions, self.messages))


@dataclass(frozen=True)
class LakeDirections:
    """Directions between two lakes.

    Attributes:
        directions: The directions.
        place: Placement of the chains.
        domains: Domains of the lake that follows the consensus chain.
    """

    directions: tuple[relay_state.ChainPair, ...]
    place: RelayPlacement
    domains: tuple[str, ...]


async def find_directions(
    a: DomainLakeClient, b: DomainLakeClient, only: Collection[str] = (), side: str = "both"
) -> LakeDirections:
    """Return the directions between two lakes.

    Args:
        a: Client of the first lake.
        b: Client of the second lake.
        only: Pairs of chains as ``CHAIN/COUNTERPARTY`` in either direction; empty for all.
        side: ``both``, or the single target lake ``a`` or ``b``.

    Raises:
        InvalidInput: The lakes are not parts of one network, or neither runs the consensus chain.
        ServiceError: A lake does not answer.
    """
    status = {"a": await a.status(), "b": await b.status()}
    return directions_from_status(status, {"a": a.url, "b": b.url}, only, side)


def directions_from_status(
    status: Mapping[str, DomainStatusAnswer], urls: Mapping[str, str], only: Collection[str] = (), side: str = "both"
) -> LakeDirections:
    """Return the directions between two lakes by their statuses; errors as ``find_directions``.

    Args:
        status: Statuses by end.
        urls: Addresses by end.
        only: As in ``find_directions``.
        side: As in ``find_directions``.
    """
    one, two = status["a"], status["b"]
    names = {end: tuple(chain.name for chain in content.chains) for end, content in status.items()}
    own = {end: {chain.name for chain in content.chains if not chain.external} for end, content in status.items()}
    both_urls = f"{urls['a']} and {urls['b']}"
    if own["a"] & own["b"]:
        shared = ", ".join(sorted(own["a"] & own["b"])[:MOST_NAMED])
        raise InvalidInput(f"both lakes run {shared}: it must be external in one of them")
    if names["a"] != names["b"] or one.consensus != two.consensus or one.consensus not in names["a"]:
        raise InvalidInput(f"{both_urls} do not have the same chains: the scenarios declare them in the same order")
    for name, value in one.options:
        if value != (other := getattr(two.options, name)):
            text = f"options.{name}: {value} in the lake of {urls['a']}, {other} in that of {urls['b']}"
            raise InvalidInput(f"{text}: both scenarios declare the same")
    if one.agreed != two.agreed:
        raise InvalidInput(f"{both_urls} differ in their options, seed or programs: both scenarios declare the same")
    home = next((end for end in ("a", "b") if one.consensus in own[end]), None)
    if home is None:
        text = "neither runs the consensus chain: a relay process carries between the lake that does and another"
        raise InvalidInput(f"{both_urls}: {text}")
    far = "b" if home == "a" else "a"
    domains = tuple(name for name in names["a"] if name in own[far])
    if not domains:
        raise InvalidInput(f"{urls[far]} runs no chain")
    pairs = [(near, other) for near in names["a"] if near in own[home] for other in domains]
    if only:
        pairs = [(near, other) for near, other in pairs if f"{near}/{other}" in only or f"{other}/{near}" in only]
        if not pairs:
            raise InvalidInput(f"{both_urls} have no such pair of chains: {', '.join(only)}")
    found = [relay_state.ChainPair(home, one.consensus, one.consensus, "blocks")]
    found += [relay_state.ChainPair(far, domain, one.consensus, "receipts") for domain in domains]
    for near, other in pairs:
        found += [relay_state.ChainPair(home, near, other), relay_state.ChainPair(far, other, near)]
    options = one.options
    limits = relay_state.RelayLimits(
        nonces=options.max_future_nonces + 1,
        channels=options.channels_per_block,
        resubmit_after=options.resubmit_after,
        confirmed_after=options.archiving_depth + options.challenge_period,
    )
    place = RelayPlacement(one.consensus, home, names["a"], limits)
    return LakeDirections(tuple(way for way in found if side in ("both", way.other)), place, domains)


class DomainRelay(RelayLoop[DomainProgress, DomainPass]):
    """Relay process over its directions.

    Args:
        clients: Clients by end.
        ends: The directions.
        pacing: Timing of passes.
        faults: Fault rates of its transactions.
        seed: Seed of the faults.
        report: Callback after every pass.
        journal: Log of events.
    """

    def __init__(
        self,
        clients: Mapping[str, DomainLakeClient],
        ends: LakeDirections,
        pacing: PassPacing | None = None,
        faults: FaultSettings | None = None,
        seed: int = 0,
        report: Callable[[DomainProgress], None] | None = None,
        journal: Journal = SILENT,
    ) -> None:
        super().__init__(
            [DomainProgress(direction) for direction in ends.directions], pacing, faults, seed, report, journal
        )
        self._clients, self._ends = clients, ends
        self._memories = {str(way): relay_state.LaneRelayMemory() for way in ends.directions}
        self._seen: dict[str, Any] = {}

    def _is_counted(self, progress: DomainProgress) -> bool:
        """Return True for messages: blocks and receipts are endless while chains make blocks."""
        return progress.direction.what == "messages"

    def _waits(self, progress: DomainProgress) -> bool:
        return self._is_counted(progress) and progress.state in (PassOutcome.WAITING.value, PassOutcome.BROUGHT.value)

    def _left(self, passed: DomainPass) -> int:
        return passed.left

    def _remark(self, progress: DomainProgress, passed: DomainPass, why: str) -> None:
        if progress.stalled > 1:
            self._journal.debug("no-progress", direction=progress.direction, passes=progress.stalled)

    async def _pass(self, progress: DomainProgress) -> DomainPass:
        """Run one pass in one direction and update its progress."""
        direction = progress.direction
        steps = relay_direction(direction, self._ends.place, self._memories[str(direction)], self._ends.domains)
        passed, _ = await self._carried_out(progress, self._clients, steps)
        progress.left = passed.left
        # There is work, but the target made no progress since the previous pass, or for too long.
        no_progress = passed.state is not PassOutcome.IDLE and self._seen.get(str(direction)) == passed.mark
        if passed.in_vain and passed.state is PassOutcome.WAITING:
            progress.in_vain += 1
        elif no_progress or (passed.in_vain and passed.state in (PassOutcome.SUBMITTED, PassOutcome.BROUGHT)):
            progress.stalled += 1
        elif not passed.in_vain:  # an idle pass alone is no proof of delivery
            progress.in_vain = progress.stalled = 0
        self._seen[str(direction)] = passed.mark
        return passed

    def _answered(self, step: relay_state.Step) -> Awaitable[Any]:
        client = self._clients[step.end]
        match step:
            case relay_state.ReadFollowed():
                return client.followed(step)
            case relay_state.ReadBlocks():
                return client.blocks(step)
            case relay_state.ReadAnchor():
                return client.anchor(step)
            case relay_state.ReadReceipted():
                return client.receipted(step)
            case relay_state.ReadReceipts():
                return client.receipts(step)
            case relay_state.ReadChannels():
                return client.channels(step)
            case relay_state.ReadMessages():
                return client.messages(step)
            case loop.Submit():
                raise AssertionError("a transaction is submitted, not requested")


GAUGES = {
    "left": "Messages, blocks or receipts that are to be brought, by both chains.",
    "moved_at": "Height of the last block of the target that has what this process submitted.",
}
COUNTERS = {
    "passes": "Looks at both chains.",
    "transactions": "Transactions handed over.",
    "messages": "Messages, blocks or receipts handed over.",
}
BY_NAME = {"errors": "Errors of requests."}


class DomainRelayCollector(ProgressCollector):
    """Metrics of a relay process."""

    def __init__(self, relaying: DomainRelay) -> None:
        super().__init__(relaying.progress, GAUGES, COUNTERS, BY_NAME)
