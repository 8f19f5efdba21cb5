"""A relay process: passes of the relay loop over HTTP, each direction at its own pace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.proofs.tendermint.trust import time_left
from causeway.service import passes
from causeway.service.faults import FaultSettings
from causeway.service.ibc.client import LakeClient
from causeway.service.ibc.lanes import Rules, rules_of
from causeway.service.ibc.memory import Memory
from causeway.service.ibc.relay_plan import RelaySettings
from causeway.service.ibc.relayer import Passed, State, relay
from causeway.service.ibc.standing import Standing
from causeway.service.ibc.steps import ReadHeader, ReadLane, ReadPackets, ReadProofs, Step, Submit
from causeway.service.journal import SILENT, Journal
from causeway.service.passes import Pacing, Passes
from causeway.service.relay_steps import Direction

MOST_NAMED = 64
"""Names that a lake gives of which count is kept; further ones are counted together."""


@dataclass
class Progress(passes.Progress):
    """What a process did in one direction, and what it last saw there (``passes.Progress``).

    ``headers``: handed over; ``without_header``: passes that needed none; ``backlog``: what was to be brought, with the
    index of the oldest and its age in blocks; ``refused``: calls that the target refused, by the error's name;
    ``account``: the fee account there; ``expires_in``: seconds of the target's clock until its client expires.
    """

    hopeless_states = frozenset(state.value for state in (State.FROZEN, State.EXPIRED, State.REFUSED))

    headers: int = 0
    without_header: int = 0
    backlog: int = 0
    oldest_index: int | None = None
    oldest_age: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    account: dict[str, int] = field(default_factory=dict)
    expires_in: float = 0.0

    def cells(self) -> tuple[str, ...]:
        """Return what the table for a person says of it: the columns of ``relay_process``."""
        numbers = (self.backlog, f"{self.oldest_age} blocks", self.transactions, self.headers, self.messages)
        counts = (self.account.get(name, 0) for name in ("accepted", "redundant", "refused"))
        fees = f"{self.account.get('wasted', 0)} of {self.account.get('fees', 0)}"
        return str(self.direction), self.state, *map(str, (*numbers, *counts)), fees


async def directions_between(
    a: LakeClient, b: LakeClient, only: Collection[str] = (), side: str = "both"
) -> tuple[list[Direction], dict[str, Rules]]:
    """Return the directions in which two lakes can be relayed, and the rules at each end.

    ``only``: connections as ``CHAIN/COUNTERPARTY``, either way round; without any, all. ``side``: ``both``, or what
    goes to ``a`` or to ``b`` alone.

    Raises:
        InvalidInput: there is no direction, or the networks' options do not go together.
        ServiceError: a lake does not answer.
    """
    status = {"a": await a.status(), "b": await b.status()}
    rules = {end: rules_of(content.options) for end, content in status.items()}
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


class Relaying(Passes[Progress, Passed]):
    """A relay process over its directions. The clients' keys decide the fee accounts.

    ``report`` is called after every pass.
    """

    def __init__(
        self,
        clients: Mapping[str, LakeClient],
        directions: Sequence[Direction],
        rules: Mapping[str, Rules],
        settings: RelaySettings | None = None,
        pacing: Pacing | None = None,
        faults: FaultSettings | None = None,
        seed: int = 0,
        report: Callable[[Progress], None] | None = None,
        journal: Journal = SILENT,
    ) -> None:
        super().__init__([Progress(direction) for direction in directions], pacing, faults, seed, report, journal)
        self._clients, self._rules = clients, rules
        self._settings = settings or RelaySettings()
        self._memories = {str(way): Memory() for way in directions}
        self._standings = {str(way): Standing() for way in directions}

    def account(self, direction: Direction) -> str:
        """Return the number of the fee account on a direction's target."""
        return str(self._clients[direction.other].number)

    def _waits(self, progress: Progress) -> bool:
        return progress.state == State.DELAYED.value

    def _left(self, passed: Passed) -> int:
        return passed.work.backlog

    def _remark(self, progress: Progress, passed: Passed, why: str) -> None:
        if passed.held and progress.why != why:
            self._journal.warning("lane-backs-off", direction=progress.direction, why=progress.why)
        if passed.state is State.ACCUSED:
            self._journal.error("fork", direction=progress.direction, why=progress.why)
        if progress.stalled:
            self._journal.warning("no-progress", direction=progress.direction, passes=progress.stalled)

    async def _pass(self, progress: Progress) -> Passed:
        """Make one pass in one direction, and note what came of it."""
        direction = progress.direction
        steps = relay(direction, self._rules[direction.other], self._settings, self._memories[str(direction)])
        passed, committed = await self._carried_out(progress, self._clients, steps)
        await self._note(progress, passed, committed)
        return passed

    def _answered(self, step: Step) -> Awaitable[Any]:
        client = self._clients[step.end]
        match step:
            case ReadLane():
                begin = step.packets_from, step.receipts_from
                if step.height is None:
                    return client.lane(step.chain, step.counterparty, *begin)
                return client.lane_at(step.chain, step.counterparty, step.height, *begin)
            case ReadHeader():
                return client.header(step.chain, step.height)
            case ReadProofs():
                return client.proofs(step.chain, step.height, step.keys)
            case ReadPackets():
                return client.packets(step.chain, step.counterparty, step.height, step.first, step.count)
            case Submit():
                raise AssertionError("a transaction is submitted, not asked for")

    async def _note(self, progress: Progress, passed: Passed, committed: int | None) -> None:
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
