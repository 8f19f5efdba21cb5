"""Calls to the relay chain that a scenario plans, by tick (``IcmpOptions.para_calls``)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property

from causeway.model.errors import InvalidInput
from causeway.protocols.icmp.calls import Call, CallKind
from causeway.protocols.icmp.chains import RELAY_POSITION, Network
from causeway.protocols.icmp.committing import genesis_hash
from causeway.protocols.icmp.options import IcmpOptions, ParaCall


class Planned:
    """The calls of a scenario's options. Raises ``InvalidInput`` for chains that there are not."""

    def __init__(self, options: IcmpOptions, network: Network) -> None:
        self._names = network.names
        self._positions = {name: position for position, name in enumerate(network.names)}
        calls = [(call.tick, self._call(row, call)) for row, call in enumerate(options.para_calls)]
        self._calls = sorted(calls, key=lambda entry: entry[0])
        self._ticks = [tick for tick, _ in self._calls]

    def _chain(self, key: str, name: str) -> int:
        position = self._positions.get(name, RELAY_POSITION)
        if position == RELAY_POSITION:
            allowed = ", ".join(name for name in self._names if self._positions[name] != RELAY_POSITION)
            raise InvalidInput(f"{key}: {name!r} is no parachain; allowed: {allowed}")
        return position

    def _call(self, row: int, call: ParaCall) -> Call:
        key = f"options.para_calls[{row}]"
        para, other = self._chain(f"{key}.chain", call.chain), 0
        kind = CallKind(call.do)
        if kind in (CallKind.BLOCK, CallKind.UNBLOCK):
            if call.other is None or call.other == call.chain:
                allowed = "the name of the parachain that it does not want to hear, another one"
                given = "missing" if call.other is None else repr(call.other)
                raise InvalidInput(f"{key}.other: {given}; allowed with {call.do}: {allowed}")
            other = self._chain(f"{key}.other", call.other)
        elif call.other is not None:
            raise InvalidInput(f"{key}.other: {call.other!r}; allowed with block and unblock only")
        return Call(kind, para, other, genesis=genesis_hash(call.chain))

    @cached_property
    def late(self) -> set[int]:
        """Return the parachains that are not registered at genesis: those whose first call registers them."""
        first: dict[int, CallKind] = {}
        for _, call in self._calls:
            if call.kind in (CallKind.REGISTER, CallKind.DEREGISTER):
                first.setdefault(call.para, call.kind)
        return {para for para, kind in first.items() if kind is CallKind.REGISTER}

    def between(self, first: int, last: int) -> Sequence[Call]:
        """Return the calls of the ticks ``first`` to ``last``, by tick, then in the order of the scenario."""
        found = slice(bisect_left(self._ticks, first), bisect_right(self._ticks, last))
        return [call for _, call in self._calls[found]]

    @property
    def changes_paras(self) -> bool:
        """Return whether parachains come or go."""
        return any(call.kind in (CallKind.REGISTER, CallKind.DEREGISTER) for _, call in self._calls)

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on in which a call is made, None if there is none."""
        at = bisect_left(self._ticks, tick)
        return self._ticks[at] if at < len(self._ticks) else None

    @property
    def last_tick(self) -> int:
        """Return the last tick in which a call is made, 0 without any."""
        return self._ticks[-1] if self._ticks else 0
