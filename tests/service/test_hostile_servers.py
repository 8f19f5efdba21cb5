"""A relay process and malicious lakes over real sockets: bounded time and memory, no effect on others."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from causeway.protocols.shared.limits import MAX_SMALL_ANSWER_BYTES
from causeway.service.http.client import RefusedForGood, ServiceError, Unreachable
from causeway.service.ibc.client import ZoneLakeClient
from causeway.service.ibc.relay_runner import ZoneProgress, ZoneRelay
from causeway.service.ibc.relay_state import ReadLane, ReadProofs
from causeway.service.relay.loop import PassPacing
from tests.service.test_processes import SECONDS, ended, served, start
from tests.support.common.hostile import Behaviour, answers, drip, endless, hostile, slow_head
from tests.support.common.lakes import ENDS, Lakes, both

MEMORY = 400 << 20
"""A relay process has less than this, whatever it is sent: twice what it has at rest."""

ROOTS = dict.fromkeys(("root", "validators_hash", "next_validators_hash", "header_hash"), "00" * 32)
TRUSTED: dict[str, Any] = {"height": 0, "time": 0, "added": 0, "added_time": 0, **ROOTS}
QUEUE: dict[str, Any] = {"head": 0, "tail": 0, "entries": []}
CLIENT: dict[str, Any] = {"state": "active", "latest": 0, "expires_in": 0}
LANE: dict[str, Any] = {
    "chain": "left",
    "counterparty": "right",
    "height": 3,
    "time": 3,
    "send": QUEUE,
    "receipt": {**QUEUE, "ready": 0, "missing": [], "waiting": []},
    "client": {**CLIENT, "trusted": [TRUSTED]},
}


def ask(url: str, question: Callable[[ZoneLakeClient], Any], deadline: float = 5.0) -> Any:
    async def once() -> Any:
        async with ZoneLakeClient(url, tries=1, deadline=deadline) as client:
            return await question(client)

    return asyncio.run(once())


def lane(client: ZoneLakeClient) -> Any:
    return client.lane("left", "right")


def test_honest_lane_is_read() -> None:
    with hostile(answers(LANE)) as server:
        assert ask(server.url, lane).height == 3


@pytest.mark.parametrize("make", [drip, slow_head])
def test_dripping_lake_hits_a_deadline(make: Callable[[float, threading.Event], Behaviour]) -> None:
    closing = threading.Event()
    with hostile(make(0.01, closing)) as server:
        with pytest.raises(Unreachable, match="no answer in time"):
            ask(server.url, lane, deadline=0.3)
        closing.set()


def test_lake_sending_gigabytes_is_cut_off() -> None:
    with hostile(endless) as server, pytest.raises(ServiceError, match=f"more than {MAX_SMALL_ANSWER_BYTES} bytes"):
        ask(server.url, lane)


@pytest.mark.parametrize(("status", "error"), [(403, "Forbidden"), (409, "NumberTaken")])
def test_rejected_key_is_named_with_a_hint(status: int, error: str) -> None:
    with hostile(
        lambda path, body, send: (status, {}, b'{"error": "%s", "text": "sender: no"}' % error.encode())
    ) as it:
        with pytest.raises(RefusedForGood, match=r"sender: no; this process signs with the key [0-9a-f]{64}: ask who"):
            ask(it.url, lambda client: client.submit("left", b"", 0))
        assert len(it.requests) == 1


def test_redirects_are_not_followed_and_compression_is_not_decoded() -> None:
    def redirect(path: str, body: bytes, send: Any) -> Any:
        return 302, {"location": "http://127.0.0.1:1/"}, b"{}"

    def nowhere(path: str, body: bytes, send: Any) -> Any:
        return 301, {"location": "https://xn--"}, b"{}"

    def bomb(path: str, body: bytes, send: Any) -> Any:
        return 200, {"content-encoding": "gzip"}, b"{}"

    unfollowed = "redirects are not followed"
    for behave, why in ((redirect, unfollowed), (nowhere, unfollowed), (bomb, "compressed")):
        with hostile(behave) as server:
            with pytest.raises(ServiceError, match=why):
                ask(server.url, lane)
            assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[" * 200_000, "no served lake"),
        (b'{"chain": ' + b"[" * 200_000, "status 200"),
        (b'{"chain": NaN}', "status 200"),
        (b'{"height": ' + b"9" * 200_000 + b"}", "status 200"),
        ({**LANE, "height": 2**63}, "height"),
        ({**LANE, "height": 10**300}, "height"),
        ({**LANE, "height": -1}, "height"),
        ({**LANE, "height": 3.0}, "height"),
        ({**LANE, "height": "3"}, "height"),
        ({**LANE, "height": True}, "height"),
        ({**LANE, "time": float("nan")}, "status 200"),
        ({**LANE, "chain": ["left"]}, "chain"),
        ({**LANE, "chain": "right"}, "another lane"),
        ({**LANE, "chain": "x" * 10_000}, "chain"),
        ({**LANE, "chain": "\x1b[2J"}, "chain"),
        ({**LANE, "send": {**QUEUE, "tail": 2**64}}, "send.tail"),
        ({**LANE, "send": {**QUEUE, "entries": [[0, 1]]}}, "send.entries.0"),
        ({**LANE, "send": {**QUEUE, "entries": [[0, 1, 1]] * 10_000}}, "send.entries"),
        ({**LANE, "client": {**CLIENT, "trusted": []}}, "client.trusted"),
        ({**LANE, "client": {**CLIENT, "trusted": [TRUSTED, TRUSTED]}}, "order of their heights"),
        ({**LANE, "client": {**CLIENT, "trusted": [{**TRUSTED, "root": "00"}]}}, "client.trusted.0.root"),
        ({**LANE, "client": {**CLIENT, "trusted": [{**TRUSTED, "root": "zz" * 32}]}}, "client.trusted.0.root"),
        ({}, "chain"),
        (7, "no served lake"),
        (b"\xff\xfe", "no served lake"),
        (b'{"chain": "\\ud800"}', "status 200"),
    ],
)
def test_invalid_lanes_are_rejected_in_one_line(content: Any, why: str) -> None:
    with hostile(answers(content)) as server:
        with pytest.raises(ServiceError, match=why) as caught:
            ask(server.url, lane)
        assert len(str(caught.value)) < 500
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"key": "01", "value": None, "proof": None}] * 101,
        [{"key": "02", "value": "00", "proof": "00"}],
        [{"key": "01", "value": "00", "proof": None}],
        [{"key": "01", "value": "0" * 2_000_002, "proof": "00"}],
        [{"key": "01", "value": "0", "proof": "00"}],
        [{"key": "01", "value": "0 0", "proof": "00"}],
        [{"key": "01", "value": "00", "proof": "00"}] * 3,
    ],
)
def test_proofs_of_another_format_are_rejected(rows: list[Any]) -> None:
    with hostile(answers({"proofs": rows})) as server, pytest.raises(ServiceError):
        ask(server.url, lambda client: client.proofs("left", 3, (b"\x01", b"\x01")))


# ---- directions are supervised


class Broken(Exception):
    """Unexpected error."""


class Local(ZoneLakeClient):
    """Answers of two lakes without sockets; ``broken`` raises an unexpected error for lanes of a chain."""

    def __init__(self, lakes: Lakes, own: str) -> None:
        super().__init__("http://" + own)
        self.lakes, self.own, self.broken, self.asked = lakes, own, 0, 0

    async def lane(self, chain: str, remote: str, packets_from: int = 0, receipts_from: int = 0) -> Any:
        self.asked += 1
        if self.broken:
            self.broken -= 1
            raise Broken("\x1b[2J nobody\nthought of this")
        return self.lakes.answer(ReadLane("x", chain, remote, packets_from, receipts_from))

    async def header(self, chain: str, height: int) -> bytes:
        return bytes.fromhex(self.lakes.views[chain].header(chain, height)["signed_header"])

    async def proofs(self, chain: str, height: int, keys: tuple[bytes, ...]) -> Any:
        return self.lakes.answer(ReadProofs("x", chain, height, keys))

    async def submit(self, chain: str, transaction: bytes, wait: int) -> tuple[str, int | None]:
        taken = self.lakes.submit(chain, 1, transaction)
        return taken.hash, self.lakes.nodes[chain].produce().height

    async def account(self, chain: str, relayer: int) -> dict[str, int]:
        return {}

    async def refusals(self, chain: str, height: int, relayer: int) -> dict[str, int]:
        return {}


class Notes:
    """Journal that records its messages."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def note(self, event: str, **members: Any) -> None:
        self.events.append((event, members))

    debug = info = warning = error = note

    def named(self, name: str) -> list[dict[str, Any]]:
        return [members for event, members in self.events if event == name]


def local_relaying(lakes: Lakes, report: Callable[[ZoneProgress], None]) -> tuple[ZoneRelay, dict[str, Local], Notes]:
    clients = {ENDS[own]: Local(lakes, own) for own in ENDS}
    directions = [lakes.direction(target) for target in ENDS]
    notes = Notes()
    rules = dict.fromkeys(clients, lakes.rules)
    pacing = PassPacing(poll=0.01, longest_pause=0.05, grace=0.2)
    return ZoneRelay(clients, directions, rules, pacing=pacing, report=report, journal=notes), clients, notes


def test_failed_direction_restarts_and_the_other_continues(tmp_path: Path) -> None:
    with both(tmp_path, calls=3) as lakes:
        done: list[int] = []

        def report(progress: ZoneProgress) -> None:
            for node in lakes.nodes.values():
                if node.has_work:
                    node.produce()
            if all(lakes.lane(chain)["send"]["head"] == 3 for chain in ENDS):
                relaying.stop()
            done.append(1)
            assert len(done) < 2_000

        relaying, clients, notes = local_relaying(lakes, report)
        clients["b"].broken = 6
        asyncio.run(relaying.forever())
        lakes.check(3)
        failed = notes.named("failed")
        assert {item["error"] for item in failed} == {"Broken"}
        assert len(failed) == 6
        assert notes.named("recovered")
        assert sum(item["messages"] for item in notes.named("delivered")) == 12


def test_accepting_but_inactive_lake_is_polled_ever_less_often(tmp_path: Path) -> None:
    with both(tmp_path, calls=2) as lakes:
        relaying, clients, notes = local_relaying(lakes, lambda progress: None)
        taken: list[bytes] = []

        async def ignored(chain: str, transaction: bytes, wait: int) -> tuple[str, int | None]:
            taken.append(transaction)
            return "00" * 32, 1

        clients["b"].submit = ignored  # type: ignore[method-assign]
        asyncio.run(relaying.until_idle())
        assert len(taken) == PassPacing().tries + 1, "given up after so many passes that moved nothing"
        right = next(item for item in relaying.progress if str(item.direction) == "left>right")
        assert right.given_up and right.hopeless
        assert len(notes.named("given-up")) == 1
        assert lakes.answered("right") == []


def test_endless_pass_is_cancelled_on_shutdown(tmp_path: Path) -> None:
    with both(tmp_path, calls=1) as lakes:
        relaying, clients, _ = local_relaying(lakes, lambda progress: None)

        async def never(chain: str, height: int, keys: tuple[bytes, ...]) -> Any:
            relaying.stop()
            await asyncio.Event().wait()

        clients["a"].proofs = never  # type: ignore[method-assign]
        asyncio.run(asyncio.wait_for(relaying.forever(), SECONDS))
        assert lakes.received("right") == []


# ---- whole processes


def peak_memory(pid: int) -> int:
    """Return the peak resident memory of a process, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "what was to come does not"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_dripping_lake_does_not_block_shutdown(number: int) -> None:
    closing = threading.Event()
    with hostile(drip(0.01, closing)) as server:
        relay = start("relay", server.url, server.url)
        until(lambda: bool(server.requests))
        relay.send_signal(number)
        code, log = ended(relay)
        closing.set()
        assert code == 0
        assert [line.split()[3] for line in log.splitlines()] == ["stopping", "stopped"]


def test_lake_turning_hostile_costs_a_process_neither_life_nor_memory(tmp_path: Path) -> None:
    with served(tmp_path, 0, "--on-demand", "--block-seconds", "0") as lakes:
        turned: list[Behaviour] = []

        def behave(path: str, body: bytes, send: Any) -> Any:
            if turned and "/queues/" in path:
                return turned[0](path, body, send)
            return lakes.forwarded("right", path, body)

        with hostile(behave) as server:
            relay = start("relay", lakes.urls["left"], server.url, "--poll", "0.01")
            for worse in (endless, answers({**LANE, "height": 10**300}), answers(b"[" * 900_000), lambda *_: None):
                turned[:] = [worse]
                count = len(server.requests)
                until(lambda count=count: len(server.requests) > count + 3)  # type: ignore[misc]
                assert relay.poll() is None
            assert peak_memory(relay.pid) < MEMORY
            turned.clear()
            call = {"to": "caller-left", "call": {"receiver": "echo-right", "method": "hello"}}
            lakes.send("left", call)
            lakes.wait_for_answers("left", 1)
            relay.terminate()
            code, log = ended(relay)
            assert code == 0
            assert " failed direction=left>right" in log and " recovered direction=left>right" in log
        lakes.stop()


@pytest.mark.slow
def test_process_waits_for_lakes_that_are_not_up_yet(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with served(tmp_path, 2, "--on-demand", "--block-seconds", "0") as lakes:
        lakes.processes["right"].terminate()
        assert ended(lakes.processes["right"])[0] == 0
        lakes.urls["right"] = f"http://127.0.0.1:{port}"
        relay = lakes.relay()
        assert relay.stderr is not None
        assert " waiting " in relay.stderr.readline()
        lakes.again("right")
        lakes.wait_until(2)
        relay.terminate()
        assert ended(relay)[0] == 0
        lakes.stop()
