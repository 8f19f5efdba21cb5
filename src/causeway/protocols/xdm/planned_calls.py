"""Calls that a scenario plans: channels opened and closed, allow lists changed, by tick."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

from causeway_proofs.errors import InvalidInput

from causeway.protocols.xdm.chains import CONSENSUS_POSITION, DomainNetwork
from causeway.protocols.xdm.options import ROOT, AllowlistCallOptions, ChannelCallOptions, XdmOptions
from causeway.protocols.xdm.state import FeeModel


@dataclass(frozen=True)
class ChannelPlan:
    """A call about a channel. ``chain``, ``foreign``: positions; ``by``: a program, None for root; ``initiate``:
    whether it opens one, else it closes the one of number ``channel``."""

    tick: int
    chain: int
    foreign: int
    initiate: bool
    by: int | None
    channel: int
    max_outgoing: int
    fee_model: FeeModel = FeeModel.V0
    relay_fee: int = 0

    @classmethod
    def close(cls, tick: int, chain: int, foreign: int, channel: int) -> ChannelPlan:
        """Create the call by which root closes a channel."""
        return cls(tick, chain, foreign, initiate=False, by=None, channel=channel, max_outgoing=0)


@dataclass(frozen=True)
class AllowlistPlan:
    """A call about the allow list of ``chain``, made on the chain ``at``. ``foreign``: a position, that of no chain for
    a domain that is not registered."""

    tick: int
    at: int
    chain: int
    foreign: int
    add: bool
    by: int | None


Again: TypeAlias = Mapping[int, Sequence[int]]
NONE_AGAIN: Again = MappingProxyType({})


def _due(tick: int, chains: Iterable[int], again: Again) -> list[tuple[int, set[int]]]:
    """Return for which ticks calls are made in a tick, ascending, each with the chains that make them."""
    mine = set(chains)
    earlier = sorted({at for chain in mine for at in again.get(chain, ()) if at < tick})
    return [*((at, {chain for chain in mine if at in again.get(chain, ())}) for at in earlier), (tick, mine)]


class PlannedCalls:
    """The calls of a scenario's options. Raises ``InvalidInput`` for chains and programs that there are not."""

    def __init__(self, options: XdmOptions, network: DomainNetwork) -> None:
        self._positions = {name: position for position, name in enumerate(network.names)}
        table = network.topology.programs
        self._programs = dict(zip(table["name"].to_pylist(), table["number"].to_pylist(), strict=True))
        self._numbers = set(self._programs.values())
        self.channels = tuple(
            self._channel(f"options.channel_calls.{row}", call, options)
            for row, call in enumerate(options.channel_calls)
        )
        self.allowlists = tuple(
            self._allowlist(f"options.allowlist_calls.{row}", call) for row, call in enumerate(options.allowlist_calls)
        )
        self.owners = self._owners(options.domain_owners)
        """The owner of each domain, by position; root where there is none."""

    def _chain(self, where: str, name: str) -> int:
        if name not in self._positions:
            raise InvalidInput(f"{where}: no chain is called {name!r}; there are {', '.join(self._positions)}")
        return self._positions[name]

    def _program(self, where: str, given: int | str) -> int | None:
        if given == ROOT:
            return None
        found = self._programs.get(given) if isinstance(given, str) else given
        if found not in self._numbers:
            raise InvalidInput(f'{where}: no program is called {given!r}; allowed: "{ROOT}", or a program')
        return found

    def _channel(self, where: str, call: ChannelCallOptions, options: XdmOptions) -> ChannelPlan:
        model = FeeModel[(call.fee_model or options.fee_model).upper()]
        if model == FeeModel.V1 and call.relay_fee is not None:
            raise InvalidInput(f'{where}.relay_fee: {call.relay_fee}; allowed: none with fee_model = "v1"')
        fee = options.relay_fee if call.relay_fee is None else call.relay_fee
        return ChannelPlan(
            call.tick,
            self._chain(f"{where}.chain", call.chain),
            self._chain(f"{where}.foreign", call.foreign),
            call.do == "initiate",
            self._program(f"{where}.by", call.by),
            call.channel,
            options.max_outgoing_messages if call.max_outgoing is None else call.max_outgoing,
            model,
            fee if model == FeeModel.V0 else 0,
        )

    def _allowlist(self, where: str, call: AllowlistCallOptions) -> AllowlistPlan:
        named = isinstance(call.foreign, str)
        return AllowlistPlan(
            call.tick,
            CONSENSUS_POSITION if call.at is None else self._chain(f"{where}.at", call.at),
            self._chain(f"{where}.chain", call.chain),
            self._chain(f"{where}.foreign", str(call.foreign)) if named else int(call.foreign) + 1,
            call.do == "add",
            self._program(f"{where}.by", call.by),
        )

    def _owners(self, given: Mapping[str, int | str]) -> dict[int, int | None]:
        found = {}
        for name, program in given.items():
            where = f"options.domain_owners.{name}"
            position = self._chain(where, name)
            if position == CONSENSUS_POSITION:
                raise InvalidInput(f"{where}: the consensus chain has no owner; allowed: domains")
            found[position] = self._program(where, program)
        return found

    @cached_property
    def _by_tick(self) -> tuple[dict[int, list[ChannelPlan]], dict[int, list[AllowlistPlan]]]:
        channels: dict[int, list[ChannelPlan]] = {}
        allowlists: dict[int, list[AllowlistPlan]] = {}
        for channel in self.channels:
            channels.setdefault(channel.tick, []).append(channel)
        for update in self.allowlists:
            allowlists.setdefault(update.tick, []).append(update)
        return channels, allowlists

    @cached_property
    def _ticks(self) -> list[int]:
        return sorted({*self._by_tick[0], *self._by_tick[1]})

    @cached_property
    def _last_initiations(self) -> dict[tuple[int, int], int]:
        last: dict[tuple[int, int], int] = {}
        for call in self.channels:
            if call.initiate:
                last[call.chain, call.foreign] = max(call.tick, last.get((call.chain, call.foreign), 0))
        return last

    def channel_calls(self, tick: int, chains: Iterable[int], again: Again = NONE_AGAIN) -> list[ChannelPlan]:
        """Return the calls about channels that are made in a tick on some chains, by the ticks that they were planned
        for, then in the order of the scenario. ``again``: of chains the earlier ticks whose calls are made again."""
        due = _due(tick, chains, again)
        return [call for at, some in due for call in self._by_tick[0].get(at, []) if call.chain in some]

    def allowlist_calls(self, tick: int, chains: Iterable[int], again: Again = NONE_AGAIN) -> list[AllowlistPlan]:
        """Return the calls about allow lists that are made in a tick on some chains; as ``channels_at``."""
        due = _due(tick, chains, again)
        return [call for at, some in due for call in self._by_tick[1].get(at, []) if call.at in some]

    def ticks_between(self, first: int, last: int) -> list[int]:
        """Return the ticks from ``first`` to ``last`` for which calls are planned."""
        return self._ticks[bisect_left(self._ticks, first) : bisect_right(self._ticks, last)]

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on in which a call is made, None if there is none."""
        at = bisect_left(self._ticks, tick)
        return self._ticks[at] if at < len(self._ticks) else None

    @property
    def last_tick(self) -> int:
        """Return the last tick in which a call is made, 0 without any."""
        return self._ticks[-1] if self._ticks else 0

    @cached_property
    def _closes(self) -> dict[tuple[int, int], list[int]]:
        found: dict[tuple[int, int], list[int]] = {}
        for call in sorted(self.channels, key=lambda call: call.tick):
            if not call.initiate:
                found.setdefault((call.chain, call.foreign), []).append(call.tick)
        return found

    def closes(self, chain: int, foreign: int, first: int, last: int) -> bool:
        """Return whether ``chain`` is to close a channel with ``foreign`` in a tick from ``first`` to ``last``."""
        ticks = self._closes.get((chain, foreign), [])
        return bisect_left(ticks, first) < bisect_right(ticks, last)

    def initiates(self, chain: int, foreign: int, tick: int) -> bool:
        """Return whether ``chain`` is to initiate a channel with ``foreign`` in ``tick`` or later."""
        return self._last_initiations.get((chain, foreign), -1) >= tick
