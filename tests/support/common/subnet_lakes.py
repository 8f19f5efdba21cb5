"""Two lakes of subnets, each of which declares the other's subnet as external: pulls without sockets, blocks on demand.

    with both(tmp_path, calls=5) as lakes:
        lakes.until_idle()                 # pull and make blocks until nothing is new
        lakes.received("right"), lakes.answered("left")

Requests go to the very applications that HTTP serves; which node is asked, the client decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from causeway.core.vocabulary import Event, Kind
from causeway.network.network import program_state
from causeway.protocols.ic.subnet_keys import derive_public_key
from causeway.scenarios.scenario import load_scenario
from causeway.service.ic.exchange import XNetExchange
from causeway.service.keys.validators import add_chain_keys
from causeway.service.node.node import BlockPace, Node

ENDS = ("left", "right")
OTHER = {"left": "right", "right": "left"}
SEEDS = {"left": 11, "right": 12}
FIRST_PORT = {"left": 9100, "right": 9200}


def scenario_text(
    own: str,
    calls: int = 5,
    ports: Mapping[str, list[int]] | None = None,
    options: str = "",
    tick_seconds: float = 1.0,
    more: str = "",
    per_tick: int = 0,
) -> str:
    """Return the scenario of one lake; both call each other ``calls`` times, ``per_tick`` at a time if not at once."""
    ports = ports or {end: [FIRST_PORT[end], FIRST_PORT[end] + 1] for end in ENDS}
    other = OTHER[own]
    lines = ["[network]", 'protocol = "ic"', 'executor = "in_process"', f"seed = {SEEDS[own]}"]
    lines += ["partitions = 1", f"seconds_per_tick = {tick_seconds}", "[options]", options]
    urls = ", ".join(f'"http://127.0.0.1:{port}"' for port in ports[other])
    key = derive_public_key(SEEDS[other], ENDS.index(other)).hex()
    lines += [f"[options.remote.{other}]", f'public_key = "{key}"', f"endpoints = [{urls}]"]
    where = ", ".join(f'"127.0.0.1:{port}"' for port in ports[own])
    lines += ["[options.listen]", f"{own} = [{where}]"]
    for chain in ENDS:
        lines += ["[[chains]]", f'name = "{chain}"', f"external = {'false' if chain == own else 'true'}"]
    for chain in ENDS:
        for program in ("caller", "echo"):
            lines += ["[[programs]]", f'name = "{program}-{chain}"', f'chain = "{chain}"', f'program = "{program}"']
    lines += ["[traffic]", 'source = "script"']
    step = per_tick or calls
    for tick, first in enumerate(range(0, calls, step or 1)):
        call = f'{{receiver = "echo-{other}", method = "hello", text = "from the {own}"}}'
        count = min(step, calls - first)
        lines += ["[[traffic.send]]", f"tick = {tick}", f'to = "caller-{own}"', f"count = {count}", f"call = {call}"]
    return "\n".join([*lines, more]) + "\n"


class Ports(httpx.AsyncBaseTransport):
    """Requests to applications by their port; ``altered``: of a port, returns another answer instead."""

    def __init__(self) -> None:
        self.apps: dict[int, Any] = {}
        self.altered: dict[int, Callable[[httpx.Response], httpx.Response]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        port = request.url.port
        if port not in self.apps:
            raise httpx.ConnectError(f"nobody listens at {port}")
        response = await httpx.ASGITransport(self.apps[port]).handle_async_request(request)
        return self.altered[port](response) if port in self.altered else response


class Lakes:
    """Both lakes; chains are named by the side they are on. ``keys``: key files of their subnets, if not drawn."""

    def __init__(self, folder: Path, scenarios: Mapping[str, str], keys: Mapping[str, Path] | None = None) -> None:
        self.transport, self.nodes = Ports(), {}
        for own, text in scenarios.items():
            path = folder / f"{own}.toml"
            path.write_text(text)
            given = [f"{own}={keys[own]}"] if keys else []
            scenario, found = add_chain_keys(load_scenario(path), given)
            self.nodes[own] = Node(scenario, str(folder / own), BlockPace(0, on_demand=True), keys=found)
            for address in self.exchange(own).addresses():
                self.transport.apps[address.port] = address.app

    def exchange(self, own: str) -> XNetExchange:
        """Return the exchange of a lake."""
        found = self.nodes[own].endpoint.exchange
        assert isinstance(found, XNetExchange)
        return found

    def settle(self, own: str, most: int = 1_000) -> int:
        """Make blocks on a lake as long as it has something to do; return how many."""
        for count in range(most):
            if not self.nodes[own].has_work:
                return count
            self.nodes[own].produce()
        raise AssertionError(f"{own} still has something to do after {most} blocks")

    def pull(self, own: str) -> bool:
        """Let a lake pull once from every other subnet; return whether anything is new."""
        exchange = self.exchange(own)

        async def pulls() -> bool:
            clients = exchange.clients(self.transport)
            return any([await client.pull(remote) for client in clients for remote in client.remotes])

        return asyncio.run(pulls())

    def until_idle(self, most: int = 200) -> int:
        """Pull and make blocks until neither lake has anything new; return how many blocks were made."""
        blocks = 0
        for _ in range(most):
            made = sum(self.settle(own) for own in self.nodes)
            blocks += made
            if sum(self.pull(own) for own in self.nodes) + made == 0:
                return blocks
        raise AssertionError(f"still something new after {most} rounds")

    # ---- what came of it

    def rows(self, own: str) -> list[dict[str, Any]]:
        """Return all events of a lake."""
        network = self.nodes[own].network
        return [
            row
            for path in network.lake.log_files("events")
            for row in network.lake.storage.read_table(path).to_pylist()
        ]

    def events(self, own: str, bit: Event, kind: Kind) -> list[int]:
        """Return the stream indices of the messages from the other lake with an event, in their order."""
        source = self.nodes[own].opened.position(OTHER[own])
        return [
            row["index"]
            for row in self.rows(own)
            if row["kind"] == kind and row["events"] & bit and row["source"] == source
        ]

    def refusals(self, own: str) -> list[str]:
        """Return why slices were refused."""
        return [
            row["reason"] for row in self.rows(own) if row["kind"] == Kind.CONTROL and row["events"] & Event.REJECTED
        ]

    def state(self, program: str) -> Any:
        """Return what a program keeps."""
        network = self.nodes[program.split("-")[1]].network
        return program_state(network.lake, network.manifest, network.topology, program)

    def check(self, calls: int) -> None:
        """Assert that every call was received once, in order, and answered once."""
        for own in self.nodes:
            received = self.events(own, Event.RECEIVED, Kind.REQUEST)
            answered = self.events(own, Event.RECEIVED, Kind.RESPONSE)
            assert received == sorted(received) and len(set(received)) == calls == len(received)
            assert answered == sorted(answered) and len(set(answered)) == calls == len(answered)
            assert sorted(received + answered) == list(range(1, 2 * calls + 1))
            state = self.state(f"caller-{own}")
            assert (state["answered"], state["rejected"]) == (calls, 0)

    def close(self) -> None:
        """Let go of both lakes."""
        for node in self.nodes.values():
            node.close()


@contextmanager
def both(folder: Path, **scenario: Any) -> Iterator[Lakes]:
    """Give two lakes that have done nothing yet."""
    lakes = Lakes(folder, {own: scenario_text(own, **scenario) for own in ENDS})
    try:
        yield lakes
    finally:
        lakes.close()
