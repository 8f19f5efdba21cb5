"""Stalled exchanges: one line with the cause, then ever fewer, and one on recovery."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from causeway.protocols.ic.streams.slice_pool import StreamPosition
from causeway.service.ic import exchange as exchanging
from causeway.service.ic.xnet_client import PullsResumed, PullsStalled, StallDetector
from causeway.service.ic.xnet_endpoint import SliceTamperer
from causeway.service.node.api import ServingLog
from tests.service.test_hostile_servers import Notes
from tests.service.test_xnet_client import Node, Setting, down, honest, lying, of
from tests.support.common.subnet_lakes import both
from tests.support.ic.ic_streams import BEGIN, REMOTE


def pull_events(one: Setting, still: StallDetector, seconds: int) -> list[PullsStalled | PullsResumed]:
    """Pull once per second; return the log events."""
    found = []
    for _ in range(seconds):
        one.pull()
        found.append(still.look(one.now, one.client.pulled[REMOTE]))
        one.now = int(one.now) + 1.0
    return [said for said in found if said is not None]


def test_stall_is_logged_after_ten_seconds_then_ever_less_and_on_recovery() -> None:
    one, still = Setting({"a": down, "b": lying(SliceTamperer.create())}), StallDetector()
    assert pull_events(one, still, 10) == []
    (first,) = pull_events(one, still, 2)
    assert isinstance(first, PullsStalled) and 10 <= first.seconds < 12
    assert first.failures["ConnectError"] > 2 and first.failures["RootHashMismatch"] == 1
    told = pull_events(one, still, 1_500)
    assert [isinstance(said, PullsStalled) and round(said.seconds, -1) for said in told] == [
        30,
        70,
        150,
        310,
        630,
        1230,
    ]
    one.nodes = dict.fromkeys("ab", honest)
    (last,) = pull_events(one, still, 1_000)
    assert isinstance(last, PullsResumed) and last.seconds > 1_500
    one.nodes = dict.fromkeys("ab", down)
    assert one.pool.take(REMOTE) is not None
    again = pull_events(one, still, 12)
    assert [isinstance(said, PullsStalled) and set(said.failures) for said in again] == [{"ConnectError"}], (
        "counted anew"
    )


def test_no_stall_is_logged_while_a_node_answers_or_the_pool_is_full() -> None:
    one = Setting({"a": down, "b": lying(SliceTamperer.create()), "c": lambda request: honest(request, end=BEGIN + 3)})
    assert pull_events(one, StallDetector(), 100) == [] and len(one.failures) == 2
    one, still = Setting({"a": honest}), StallDetector()
    assert one.pull() == [True] and one.run() == (BEGIN, 6), "there is no room for more"
    one.nodes["a"] = down
    assert pull_events(one, still, 100) == []


@pytest.mark.parametrize(
    ("node", "cause", "advice"),
    [
        (down, "ConnectError", "options.remote.right.endpoints"),
        (of(b"", 503), "Status503", "nodes refuse to answer"),
        (of(b"x", kind="text/html"), "NoSlice", "something else does at"),
        (of(b"", 416), "OutOfRange", "an older copy of it, or another options.index_base"),
        (of(b"", 204), "NoStream", "an older copy"),
        (of(b"x" * 1000), "MalformedProof", "another options.certification_version"),
        (lying(SliceTamperer(iter(["signature"] * 9))), "InvalidSignature", "options.remote.right.public_key"),
    ],
)
def test_stall_advice_follows_from_the_failures(node: Node, cause: str, advice: str) -> None:
    (said,) = pull_events(Setting({"a": node}), StallDetector(), 12)
    assert isinstance(said, PullsStalled) and set(said.failures) == {cause} and advice in said.advice("right")


def test_remote_subnet_with_rejected_certifications_is_stalled() -> None:
    one, still = Setting({"a": honest}), StallDetector()
    expected = {REMOTE: StreamPosition(BEGIN, 1)}
    one.pool._clock = lambda: one.now
    told = []
    for _ in range(400):
        told += pull_events(one, still, 1)
        one.pool.take(REMOTE)
        one.pool.garbage_collect(expected)
    assert all(isinstance(said, PullsStalled) and set(said.failures) == {"RefusedByBlock"} for said in told)
    assert len(told) == 5 and "ledger" in told[0].advice("right")  # type: ignore[union-attr]
    one.now += 60.0
    assert one.pull() == [True] and one.pool.take(REMOTE) is not None
    one.pool.garbage_collect({REMOTE: StreamPosition(BEGIN + 6, 9)})
    assert [type(said) for said in pull_events(one, still, 2)] == [PullsResumed]


def test_served_lake_reports_loss_and_return_of_its_partner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanging, "PAUSE", 0.0)
    notes, now = Notes(), 0.0
    with both(tmp_path, calls=1) as lakes:
        exchange = lakes.exchange("left")
        (client,) = exchange.clients(lakes.transport)

        def clock() -> float:
            nonlocal now
            now += 0.1
            return now

        client.clock = clock
        gone = dict(lakes.transport.apps)

        async def until(name: str) -> None:
            while not notes.named(name):
                await asyncio.sleep(0)

        async def run() -> None:
            lakes.transport.apps.clear()
            running = asyncio.create_task(exchange.run(lambda: None, ServingLog(notes)))
            await until("stands-still")
            lakes.transport.apps.update(gone)
            await until("goes-on")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

        lakes.settle("right")
        asyncio.run(run())
    (still,), (on,) = notes.named("stands-still"), notes.named("goes-on")
    assert still["exchange"] == on["exchange"] == "left pulls from right"
    assert still["seconds"] == 10 and still["failures"].startswith("ConnectError*") and 0 < still["again"] <= 8
    assert "options.remote.right.endpoints" in still["look"]
