"""Relay process between lakes of zones: passes, progress, metrics (IBC reference X-14).

The backlog is computed from both chains, and the results of submissions come from the fee account on the
chain; neither is lost with the process. The process's own work is counted from its start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from causeway_proofs.errors import InvalidInput
from causeway_proofs.tendermint.trust import time_left
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from causeway.service.ibc import relay_state
from causeway.service.ibc.answers import MAX_RANGES
from causeway.service.ibc.client import ZoneLakeClient
from causeway.service.ibc.relay_plan import RelaySettings
from causeway.service.ibc.relayer import PassState, ZonePass, relay_pass
from causeway.service.journal import SILENT, Journal
from causeway.service.relay import loop
from causeway.service.relay.faults import FaultSettings
from causeway.service.relay.loop import Direction, PassPacing, ProgressCollector, RelayLoop, advance_watermarks

UNKNOWN = -1
"""Marker for a count that exceeds the listed ranges."""

MAY_FALL = frozenset({"header", "listed"})
"""Numbers that a correct target may reduce: its client was recovered, or a listed range was split."""


@dataclass
class DeliveryProgress:
    """Progress of a target in one direction.

    Attributes:
        most: Highest value ever of each number of ``read_delivery_progress``.
        retracts: True if a number fell since one last rose.
        brought: True if the previous pass submitted something.
        time: Latest target time while the direction waited for a delay.
    """

    most: dict[str, int] = field(default_factory=dict)
    retracts: bool = False
    brought: bool = False
    time: int = UNKNOWN

    def stalled(self, before: int, passed: ZonePass) -> int:
        """Return the number of successive passes up to this one without progress of the target.

        A pass counts if it and its predecessor submitted something, if all work was refused, or if a delay is pending
        while time stands still. A target that retracts something counts in every pass, even without work, until a
        number rises.

        Args:
            before: The number up to the previous pass.
            passed: Result of this pass.
        """
        reported = read_delivery_progress(passed.source, passed.target)
        fell = any(UNKNOWN < reported[name] < most for name, most in self.most.items() if name not in MAY_FALL)
        self.most, moved = advance_watermarks(self.most, reported)
        self.retracts = fell or (self.retracts and not moved)
        if passed.state is PassState.DELAYED:
            no_progress = passed.target.time <= self.time
            self.time = max(self.time, passed.target.time)
        elif passed.state is PassState.HELD:
            no_progress = True  # ``brought`` still refers to the last submission
        else:
            no_progress = self.brought and not moved and passed.transactions > 0
            self.brought = passed.transactions > 0
        return before + 1 if no_progress or self.retracts else 0


def read_delivery_progress(source: relay_state.LaneView, target: relay_state.LaneView) -> dict[str, int]:
    """Return a target's progress in rising numbers: queue bounds, counts, trusted header.

    In an unordered queue, packets are received and leave in the middle, which the bounds do not show. If not
    all ranges are listed, the last listed one shows it.

    Args:
        source: View of the source.
        target: View of the target.
    """
    receipt, send = target.receipt, target.send
    gaps, entries = receipt.missing, send.entries
    received = receipt.tail - sum(count for _, count in gaps) if len(gaps) < MAX_RANGES else UNKNOWN
    left = send.tail - sum(count for _, count, _ in entries) if len(entries) < MAX_RANGES else UNKNOWN
    sent = source.send.tail
    return {
        "cleaned up": min(receipt.head, sent),
        "received": min(received, sent),
        "all received": min(receipt.first_missing_index, sent),
        "last received": min(receipt.tail, sent),
        "left": left,
        "all left": send.head,
        "header": min(target.trusted[-1].height, source.height),
        "listed": (gaps[-1][0] if received == UNKNOWN else 0) + (entries[-1][0] if left == UNKNOWN else 0),
    }


MOST_NAMED = 64
"""Maximum number of counted error names from a lake; further ones are summed."""


@dataclass
class ZoneProgress(loop.DirectionProgress):
    """Work of a process in one direction (``relay.loop.DirectionProgress``).

    Attributes:
        headers: Submitted header updates.
        without_header: Passes that needed no header update.
        backlog: Pending packets and receipts.
        oldest_index: Index of the oldest.
        oldest_age: Age of the oldest in blocks.
        refused: Refused calls by error.
        account: Fee account on the target.
        expires_in: Seconds of the target's clock until its client expires.
    """

    hopeless_states = frozenset(state.value for state in (PassState.FROZEN, PassState.EXPIRED, PassState.REFUSED))

    headers: int = 0
    without_header: int = 0
    backlog: int = 0
    oldest_index: int | None = None
    oldest_age: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    account: dict[str, int] = field(default_factory=dict)
    expires_in: float = 0.0

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the status table."""
        numbers = (self.backlog, f"{self.oldest_age} blocks", self.transactions, self.headers, self.messages)
        counts = (self.account.get(name, 0) for name in ("accepted", "redundant", "refused"))
        fees = f"{self.account.get('wasted', 0)} of {self.account.get('fees', 0)}"
        return str(self.direction), self.state, *map(str, (*numbers, *counts)), fees


async def find_directions(
    a: ZoneLakeClient, b: ZoneLakeClient, only: Collection[str] = (), side: str = "both"
) -> tuple[list[Direction], dict[str, relay_state.RelayRules]]:
    """Return the directions between two lakes, and the rules at each end.

    Args:
        a: Client of the first lake.
        b: Client of the second lake.
        only: Connections as ``CHAIN/COUNTERPARTY`` in either direction; empty for all.
        side: ``both``, or the single target lake ``a`` or ``b``.

    Raises:
        InvalidInput: There is no direction, or the networks' options contradict.
        ServiceError: A lake does not answer.
    """
    status = {"a": await a.status(), "b": await b.status()}
    rules = {end: relay_state.read_rules(content.options) for end, content in status.items()}
    own = {end: {chain.name for chain in content.chains if not chain.external} for end, content in status.items()}
    back = {(other, one) for one, other in status["b"].connections}
    pairs = [pair for pair in dict.fromkeys(status["a"].connections) if pair[0] in own["a"] and pair[1] in own["b"]]
    if own["a"] & own["b"]:
        shared = ", ".join(sorted(own["a"] & own["b"])[:MOST_NAMED])
        raise InvalidInput(f"both lakes run {shared}: it must be external in one of them")
    if rules["a"] != rules["b"]:
        raise InvalidInput(f"the options of the two networks differ: {rules['a']} and {rules['b']}")
    pairs = [pair for pair in pairs if pair in back]
    if only:
        pairs = [(one, other) for one, other in pairs if f"{one}/{other}" in only or f"{other}/{one}" in only]
    if not pairs:
        raise InvalidInput(f"{a.url} and {b.url} have no such connection: no chain of one is external in the other")
    found = [Direction("a", one, other) for one, other in pairs] + [Direction("b", other, one) for one, other in pairs]
    return [direction for direction in found if side in ("both", direction.other)], rules


class ZoneRelay(RelayLoop[ZoneProgress, ZonePass]):
    """Relay process over its directions; the clients' keys determine the fee accounts.

    Args:
        clients: Clients by end.
        directions: The directions.
        rules: Rules by end.
        settings: Settings of the process.
        pacing: Timing of passes.
        faults: Fault rates of its transactions.
        seed: Seed of the faults.
        report: Callback after every pass.
        journal: Log of events.
    """

    def __init__(
        self,
        clients: Mapping[str, ZoneLakeClient],
        directions: Sequence[Direction],
        rules: Mapping[str, relay_state.RelayRules],
        settings: RelaySettings | None = None,
        pacing: PassPacing | None = None,
        faults: FaultSettings | None = None,
        seed: int = 0,
        report: Callable[[ZoneProgress], None] | None = None,
        journal: Journal = SILENT,
    ) -> None:
        super().__init__([ZoneProgress(direction) for direction in directions], pacing, faults, seed, report, journal)
        self._clients, self._rules = clients, rules
        self._settings = settings or RelaySettings()
        self._memories = {str(way): relay_state.PacketRelayMemory() for way in directions}
        self._standings = {str(way): DeliveryProgress() for way in directions}

    def account(self, direction: Direction) -> str:
        """Return the number of the fee account on a direction's target."""
        return str(self._clients[direction.other].number)

    def _waits(self, progress: ZoneProgress) -> bool:
        return progress.state == PassState.DELAYED.value

    def _left(self, passed: ZonePass) -> int:
        return passed.work.backlog

    def _remark(self, progress: ZoneProgress, passed: ZonePass, why: str) -> None:
        if passed.held and progress.why != why:
            self._journal.warning("lane-backs-off", direction=progress.direction, why=progress.why)
        if passed.state is PassState.ACCUSED:
            self._journal.error("fork", direction=progress.direction, why=progress.why)
        if progress.stalled:
            self._journal.warning("no-progress", direction=progress.direction, passes=progress.stalled)

    async def _pass(self, progress: ZoneProgress) -> ZonePass:
        """Run one pass in one direction and update its progress."""
        direction = progress.direction
        steps = relay_pass(direction, self._rules[direction.other], self._settings, self._memories[str(direction)])
        passed, committed = await self._carried_out(progress, self._clients, steps)
        await self._note(progress, passed, committed)
        return passed

    def _answered(self, step: relay_state.Step) -> Awaitable[Any]:
        client = self._clients[step.end]
        match step:
            case relay_state.ReadLane():
                begin = step.packets_from, step.receipts_from
                if step.height is None:
                    return client.lane(step.chain, step.counterparty, *begin)
                return client.lane_at(step.chain, step.counterparty, step.height, *begin)
            case relay_state.ReadHeader():
                return client.header(step.chain, step.height)
            case relay_state.ReadProofs():
                return client.proofs(step.chain, step.height, step.keys)
            case relay_state.ReadPackets():
                return client.packets(step.chain, step.counterparty, step.height, step.first, step.count)
            case relay_state.SubmitWithHeaders():
                raise AssertionError("a transaction is submitted, not asked for")

    async def _note(self, progress: ZoneProgress, passed: ZonePass, committed: int | None) -> None:
        direction, work = progress.direction, passed.work
        progress.headers += passed.headers
        progress.without_header += bool(passed.messages and not passed.headers)
        progress.backlog = work.backlog
        progress.oldest_index = work.oldest[1] if work.oldest else None
        pushed = work.oldest[2] if work.oldest else None
        progress.oldest_age = 0 if pushed is None else passed.source.height - pushed
        latest = passed.target.trusted[-1].time
        period = self._rules[direction.other].unbonding_ns
        progress.expires_in = time_left(latest, period, passed.target.time) / 1e9
        progress.stalled = self._standings[str(direction)].stalled(progress.stalled, passed)
        if passed.transactions and committed is not None:
            client = self._clients[direction.other]
            progress.account = await client.account(direction.target, client.number)
            for name, count in (await client.refusals(direction.target, committed, client.number)).items():
                known = name if name in progress.refused or len(progress.refused) < MOST_NAMED else "others"
                progress.refused[known] = progress.refused.get(known, 0) + count


GAUGES = {
    "backlog": "Packets and receipts that are to be brought, by both chains.",
    "oldest_age": "Age of the oldest of them in blocks of the chain it is from.",
    "moved_at": "Height of the last block of the target that has what this process submitted.",
    "expires_in": "Block time until the target's client expires, in seconds.",
}
COUNTERS = {
    "passes": "Looks at both chains.",
    "transactions": "Transactions handed over.",
    "messages": "Messages with proofs handed over.",
    "headers": "Header updates handed over.",
    "without_header": "Passes that needed no header update of their own.",
}
BY_NAME = {"errors": "Errors of requests.", "refused": "Calls that the target refused."}


class ZoneRelayCollector(ProgressCollector):
    """Metrics of a relay process."""

    def __init__(self, relaying: ZoneRelay) -> None:
        super().__init__(relaying.progress, GAUGES, COUNTERS, BY_NAME)
        self._relaying = relaying

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        yield from super().collect()
        everything = [(str(item.direction), item) for item in self._relaying.progress]
        oldest = GaugeMetricFamily("causeway_relay_oldest_index", "Index of the oldest of them.", labels=["direction"])
        for way, item in everything:
            if item.oldest_index is not None:
                oldest.add_metric([way], item.oldest_index)
        yield oldest
        account = CounterMetricFamily(
            "causeway_relay_account", "The fee account on the target.", labels=["direction", "relayer", "what"]
        )
        for way, item in everything:
            for name, count in item.account.items():
                account.add_metric([way, self._relaying.account(item.direction), name], count)
        yield account
