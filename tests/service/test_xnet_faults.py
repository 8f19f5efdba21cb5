"""Local errors of an exchange: reports by name, retries and isolation."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from causeway.service.ic import exchange as exchanging
from causeway.service.ic.xnet_client import PullCounts
from causeway.service.node import server
from causeway.service.node.api import ServingLog
from causeway.storage.lake import LakeError
from tests.service.test_hostile_servers import Notes
from tests.support.common.subnet_lakes import both

OTHER_ID = b"another subnet"


class Client:
    """Client with ``times`` failing pulls from one subnet."""

    def __init__(self, own: bytes, bad: bytes, times: int, until: Callable[[], None]) -> None:
        self.own, self._bad, self._times, self._until = own, bad, times, until
        self.asked: Counter[bytes] = Counter()
        self.pulled: defaultdict[bytes, PullCounts] = defaultdict(PullCounts)
        self.clock = float

    async def pull(self, remote: bytes) -> bool:
        self.asked[remote] += 1
        if remote == self._bad and self.asked[remote] <= self._times:
            raise [LakeError("no such file"), IndexError("nobody thought of this")][self.asked[remote] % 2]
        if remote == self._bad:
            self._until()
        return True

    async def close(self) -> None:
        return None


def test_subnet_with_failing_pulls_is_retried_and_no_other_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanging, "PAUSE", 0.0)
    monkeypatch.setattr(exchanging, "FAILED_SECONDS", 0.001)
    notes = Notes()
    with both(tmp_path, calls=0) as lakes:
        exchange = lakes.exchange("left")
        (remote,) = exchange.remotes
        exchange.remotes[OTHER_ID], exchange._places[OTHER_ID] = exchange.remotes[remote], 0

        async def run() -> Client:
            ended = asyncio.Event()
            client = Client(exchange.ids[0], remote, 4, ended.set)
            monkeypatch.setattr(exchange, "clients", lambda: [client])
            running = asyncio.create_task(exchange.run(lambda: None, ServingLog(notes)))
            await ended.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return client

        client = asyncio.run(run())
    errors = ["IndexError: nobody thought of this", "LakeError: no such file"] * 2
    assert [(fault["path"], fault["error"]) for fault in notes.named("fault")] == [
        ("left pulls from right", error) for error in errors
    ]
    assert client.asked[remote] == 5 and client.asked[OTHER_ID] > 5


def test_unusable_pooled_slice_stops_no_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()

    def broken(*arguments: Any) -> None:
        raise IndexError("nobody thought of this")

    with both(tmp_path, calls=2) as lakes:
        lakes.settle("left")
        lakes.settle("right")
        assert lakes.pull("left")
        exchange = lakes.exchange("left")
        (remote,), (pool,) = exchange.remotes, exchange.pools.values()
        monkeypatch.setattr(pool, "take", broken)
        with pytest.raises(IndexError):
            exchange.carried()
        assert lakes.pull("left")
        exchange._log = ServingLog(notes)
        lakes.nodes["left"].produce()
        (fault,) = notes.named("fault")
        assert fault["path"] == "left pulls from right" and fault["error"] == "IndexError: nobody thought of this"
        assert pool.pooled(remote) is None
        monkeypatch.undo()
        lakes.until_idle()
        lakes.check(2)


def test_ended_exchange_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "AGAIN", 0.0)
    notes = Notes()

    class Broken:
        begun = 0

        async def run(self, news: Callable[[], None], log: ServingLog) -> None:
            self.begun += 1
            if self.begun == 3:
                raise asyncio.CancelledError
            raise IndexError("nobody thought of this")

    class Served:
        def look(self) -> None:
            raise AssertionError("nothing was fetched")

    broken: Any = Broken()
    served: Any = Served()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(server._fetch(broken, served, ServingLog(notes)))
    faults = notes.named("fault")
    assert [fault["path"] for fault in faults] == ["exchange"] * 2
    assert faults[0]["error"] == "IndexError: nobody thought of this" and "test_xnet_faults.py" in faults[0]["where"]
