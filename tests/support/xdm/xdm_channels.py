"""Networks whose channels are opened and closed by calls, and what stands in their state."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.protocols.xdm.state import ChannelState
from tests.support.xdm.xdm_network import Network, Placed

CHAINS: dict[str, Placed] = {"consensus": {9: "caller"}, "A": {1: "caller"}, "B": {2: "echo", 3: "caller", 4: None}}
A, B = 1, 2
RESERVE = 100


def initiate(tick: int, chain: str = "A", foreign: str = "B", **more: Any) -> dict[str, Any]:
    return {"tick": tick, "chain": chain, "foreign": foreign, **more}


def close(tick: int, chain: str = "A", foreign: str = "B", **more: Any) -> dict[str, Any]:
    return {"tick": tick, "chain": chain, "foreign": foreign, "do": "close", **more}


def network(*calls: dict[str, Any], allow: list[dict[str, Any]] | None = None, **more: Any) -> Network:
    options = {"channels": "initiate", "channel_calls": list(calls), "allowlist_calls": allow or []}
    given = {name: more.pop(name) for name in ("balance", "cuts", "forgetful", "faults") if name in more}
    given.setdefault("balance", 1_000)
    return Network(CHAINS, options={"endowment": 0, **options, **more}, **given)


SIGNED: dict[str, Any] = {"initiate_by": "signed", "close_by": "owner_or_root"}


def channel(net: Network, chain: int, foreign: int, number: int = 0) -> dict[str, int]:
    rows = net.state["channels"]
    found = (rows["chain"] == chain) & (rows["foreign"] == foreign) & (rows["channel"] == number)
    (row,) = np.flatnonzero(found).tolist()
    return {name: int(rows[name][row]) for name in rows.names}


def states(net: Network, number: int = 0) -> tuple[ChannelState, ChannelState]:
    return ChannelState(channel(net, A, B, number)["state"]), ChannelState(channel(net, B, A, number)["state"])


def balance(net: Network, program: int) -> int:
    accounts = net.state["accounts"]
    (row,) = np.flatnonzero(accounts["program"] == program).tolist()
    return int(accounts["balance_high"][row]) * 2**64 + int(accounts["balance_low"][row])


def money(net: Network, chain: int, name: str) -> int:
    rows = net.state["money"]
    (row,) = np.flatnonzero(rows["chain"] == chain).tolist()
    return int(rows[f"{name}_low"][row])


def notices(net: Network) -> list[tuple[str, str]]:
    events = net.events()
    names = zip(events["chain"].tolist(), events["reason"].to_pylist(), strict=True)
    return [(net.names[chain], reason) for chain, reason in names if reason]


def outcome(net: Network, program: int = 1) -> tuple[int, int]:
    rows = net.state.programs["caller"]
    (row,) = np.flatnonzero(rows["program"] == program).tolist()
    return int(rows["answered"][row]), int(rows["rejected"][row])


def run(net: Network, ticks: int) -> Network:
    """Run so many ticks, the next one and those for which the network wakes."""
    stop = net.tick + ticks
    net.block()
    while net.tick < stop:
        wakes = [result.wake for result in net.results if result.wake is not None]
        net.sleep(min(stop, max(net.tick + 1, min(wakes, default=stop))))
    return net


def settled(net: Network, limit: int = 60) -> Network:
    """Run until no request waits for its response."""
    for _ in range(limit):
        run(net, 4)
        if not len(net.state["outbox"]) and net.kernel.planned.next_tick(net.tick + 1) is None:
            return net
    raise AssertionError("requests still wait")
