"""Planned calls of a scenario: channels and allow lists, by tick."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from causeway_proofs.errors import InvalidInput

from causeway.protocols.xdm.chains import CONSENSUS_POSITION, DomainNetwork
from causeway.protocols.xdm.options import ROOT, AllowlistCallOptions, ChannelCallOptions, XdmOptions
from causeway.protocols.xdm.state import FeeModel


@dataclass(frozen=True)
class ChannelPlan:
    """A planned call on a channel.

    Attributes:
        tick: Tick of the call.
        chain: Position of the calling chain.
        foreign: Position of the channel's other end.
        initiate: Open a channel, else close ``channel``.
        by: Calling program, or None for root.
        channel: Number of the channel to close.
        max_outgoing: Capacity of a new channel.
        fee_model: Fee model of a new channel.
        relay_fee: Relay fee of a new channel, in units.
    """

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
        """Create root's call to close a channel."""
        return cls(tick, chain, foreign, initiate=False, by=None, channel=channel, max_outgoing=0)


@dataclass(frozen=True)
class AllowlistPlan:
    """A planned call on the allow list of ``chain``, made on the chain ``at``.

    ``foreign`` is a position; an unregistered domain has one beyond the network.
    """

    tick: int
    at: int
    chain: int
    foreign: int
    add: bool
    by: int | None


RepeatedTicks: TypeAlias = Mapping[int, Sequence[int]]
NO_REPEATS: RepeatedTicks = MappingProxyType({})


class PlannedCalls:
    """The planned calls of a scenario.

    Args:
        options: Options of the protocol.
        network: Fixed properties of the network.

    Raises:
        InvalidInput: A call names an unknown chain or program.
    """

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
        """The owner of each domain by position, root by default."""
        self.channels_by_tick: dict[int, list[tuple[int, ChannelPlan]]] = {}
        self.allowlists_by_tick: dict[int, list[tuple[int, AllowlistPlan]]] = {}
        """Planned calls by tick, each with its calling chain, in scenario order."""
        for channel in self.channels:
            self.channels_by_tick.setdefault(channel.tick, []).append((channel.chain, channel))
        for update in self.allowlists:
            self.allowlists_by_tick.setdefault(update.tick, []).append((update.at, update))
        self._ticks = sorted({*self.channels_by_tick, *self.allowlists_by_tick})
        self.last_tick = self._ticks[-1] if self._ticks else 0
        """The last tick with a planned call, 0 without any."""
        self._closes: dict[tuple[int, int], list[int]] = {}
        self._last_initiations: dict[tuple[int, int], int] = {}
        for call in sorted(self.channels, key=lambda call: call.tick):
            if call.initiate:
                self._last_initiations[call.chain, call.foreign] = call.tick
            else:
                self._closes.setdefault((call.chain, call.foreign), []).append(call.tick)

    def _chain(self, key: str, name: str) -> int:
        if name not in self._positions:
            raise InvalidInput(f"{key}: no chain is called {name!r}; there are {', '.join(self._positions)}")
        return self._positions[name]

    def _program(self, key: str, value: int | str) -> int | None:
        if value == ROOT:
            return None
        number = self._programs.get(value) if isinstance(value, str) else value
        if number not in self._numbers:
            raise InvalidInput(f'{key}: no program is called {value!r}; allowed: "{ROOT}", or a program')
        return number

    def _channel(self, key: str, call: ChannelCallOptions, options: XdmOptions) -> ChannelPlan:
        model = FeeModel[(call.fee_model or options.fee_model).upper()]
        if model == FeeModel.V1 and call.relay_fee is not None:
            raise InvalidInput(f'{key}.relay_fee: {call.relay_fee}; allowed: none with fee_model = "v1"')
        fee = options.relay_fee if call.relay_fee is None else call.relay_fee
        return ChannelPlan(
            call.tick,
            self._chain(f"{key}.chain", call.chain),
            self._chain(f"{key}.foreign", call.foreign),
            call.do == "initiate",
            self._program(f"{key}.by", call.by),
            call.channel,
            options.max_outgoing_messages if call.max_outgoing is None else call.max_outgoing,
            model,
            fee if model == FeeModel.V0 else 0,
        )

    def _allowlist(self, key: str, call: AllowlistCallOptions) -> AllowlistPlan:
        named = isinstance(call.foreign, str)
        return AllowlistPlan(
            call.tick,
            CONSENSUS_POSITION if call.at is None else self._chain(f"{key}.at", call.at),
            self._chain(f"{key}.chain", call.chain),
            self._chain(f"{key}.foreign", str(call.foreign)) if named else int(call.foreign) + 1,
            call.do == "add",
            self._program(f"{key}.by", call.by),
        )

    def _owners(self, options: Mapping[str, int | str]) -> dict[int, int | None]:
        owners = {}
        for name, program in options.items():
            key = f"options.domain_owners.{name}"
            position = self._chain(key, name)
            if position == CONSENSUS_POSITION:
                raise InvalidInput(f"{key}: the consensus chain has no owner; allowed: domains")
            owners[position] = self._program(key, program)
        return owners

    def ticks_between(self, first: int, last: int) -> list[int]:
        """Return the ticks with planned calls from ``first`` to ``last``."""
        return self._ticks[bisect_left(self._ticks, first) : bisect_right(self._ticks, last)]

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on with a planned call, or None."""
        at = bisect_left(self._ticks, tick)
        return self._ticks[at] if at < len(self._ticks) else None

    def closes(self, chain: int, foreign: int, first: int, last: int) -> bool:
        """Return True if ``chain`` plans to close a channel with ``foreign`` in the range of ticks."""
        ticks = self._closes.get((chain, foreign), [])
        return bisect_left(ticks, first) < bisect_right(ticks, last)

    def initiates(self, chain: int, foreign: int, tick: int) -> bool:
        """Return True if ``chain`` plans to open a channel with ``foreign`` from ``tick`` on."""
        return self._last_initiations.get((chain, foreign), -1) >= tick


Call = TypeVar("Call")


def due_calls(
    planned: Mapping[int, list[tuple[int, Call]]], tick: int, chains: Iterable[int], again: RepeatedTicks
) -> list[Call]:
    """Return the calls of chains in a tick, by planned tick, then in scenario order.

    Args:
        planned: Planned calls by tick, with their calling chains.
        tick: Tick of the block.
        chains: Positions of the chains.
        again: By chain, earlier ticks with calls to repeat.
    """
    callers = set(chains)
    earlier = sorted({at for chain in callers for at in again.get(chain, ()) if at < tick})
    due: list[tuple[int, set[int]]] = [
        *((at, {chain for chain in callers if at in again.get(chain, ())}) for at in earlier),
        (tick, callers),
    ]
    return [call for at, own in due for caller, call in planned.get(at, ()) if caller in own]
