"""Headers from a lake's future, honest and hostile, and their effect on its clock."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from causeway_proofs.tendermint.building import make_header, sign_header
from causeway_proofs.tendermint.header import MAX_TIME
from causeway_proofs.tendermint.trust import HeaderUpdate
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.protocols.ibc.client import validators_at
from causeway.service.node.clock import MAX_LEAD_SECONDS, MAX_STEP_SECONDS, Clock, ClockBounds, HeaderTooFarAhead
from causeway.service.node.node import Node
from tests.support.common.lakes import ENDS, Lakes, both

SECOND = 10**9


def signed_by_the_right(lakes: Lakes, time: int, height: int = 1_000) -> bytes:
    """Return a transaction with a header signed by the right zone's validators, at any time."""
    views = lakes.views["left"]
    (before, _), (own, keys) = (validators_at(views.opened.seed, "right", at, views.options) for at in (0, height))
    signed = sign_header(make_header("right", height, time, bytes(32), own), own, keys)
    update = HeaderUpdate.on(0, before, signed, own).encode()
    calls = [wire.Call(update=wire.UpdateHeader(remote="right", header=update))]
    return wire.Transaction(calls=calls).SerializeToString()


def ticks(lakes: Lakes, own: str) -> list[int]:
    lake = lakes.nodes[own].network.lake
    return [lake.manifest(height).tick for height in range(1, lakes.nodes[own].network.height + 1)]


def test_copied_lake_is_as_old_as_the_lake(tmp_path: Path) -> None:
    with both(tmp_path, calls=0) as lakes:
        node, place = lakes.nodes["left"], Path(lakes.nodes["left"].network.lake.storage.uri)
        made = node.opened.about["made"]
        assert abs(made - time.time()) < 3_600
        node.close()
        for moved in (0, made + 10**9):
            os.utime(place / "lake.json", (moved, moved))
            lakes.nodes["left"] = Node(node.scenario, str(place), node.pace)
            assert lakes.nodes["left"].clock.latest(0) <= MAX_LEAD_SECONDS + 3_600
            lakes.nodes["left"].close()
        lakes.nodes["left"] = Node(node.scenario, str(place), node.pace)


@pytest.mark.parametrize(
    "time",
    [
        -1,
        -(2**62),
        (int(MAX_LEAD_SECONDS) + 60) * SECOND,
        30 * 86_400 * SECOND,
        2**63 - 1,
        2**63,
        2**64,
        MAX_TIME,
    ],
)
def test_header_without_a_plausible_time_moves_no_clock(tmp_path: Path, time: int) -> None:
    with both(tmp_path, calls=2) as lakes:
        left = lakes.nodes["left"]
        before, refused = left.network.tick, False
        try:
            lakes.submit("left", 9, signed_by_the_right(lakes, time))
        except HeaderTooFarAhead:
            refused = True
        height = left.network.height
        lakes.settle()
        assert left.network.tick - before == left.network.height - height, "a tick a block"
        assert lakes.refused("left") == ({} if refused else {"InvalidHeader": 1})
        client = lakes.lane("left")["client"]
        assert (client["state"], client["latest"]) == ("active", 0)
        assert client["expires_in"] > 0
        lakes.until_idle()
        lakes.check(2)


def test_headers_within_bounds_advance_the_clock_in_limited_steps(tmp_path: Path) -> None:
    with both(tmp_path, calls=2) as lakes:
        left = lakes.nodes["left"]
        lead = int(MAX_LEAD_SECONDS)
        lakes.submit("left", 9, signed_by_the_right(lakes, lead * SECOND))
        lakes.settle()
        steps = [later - one for one, later in zip(ticks(lakes, "left"), ticks(lakes, "left")[1:], strict=False)]
        assert max(steps) == MAX_STEP_SECONDS
        assert left.network.tick + 1 == lead
        assert lakes.refused("left") == {}
        with pytest.raises(HeaderTooFarAhead):
            lakes.submit("left", 9, signed_by_the_right(lakes, (lead + 600) * SECOND, 2_000))
        assert not left.pool


def test_header_rejected_by_the_client_moves_no_clock(tmp_path: Path) -> None:
    with both(tmp_path, calls=0) as lakes:
        left = lakes.nodes["left"]
        before = left.network.tick
        lakes.submit("left", 9, signed_by_the_right(lakes, 10 * SECOND, 5))
        lakes.settle()
        moved = left.network.tick
        assert before < moved < 20
        transaction = wire.Transaction.FromString(signed_by_the_right(lakes, 500 * SECOND, 6))
        header = bytearray(transaction.calls[0].update.header)
        header[-1] ^= 1  # the power of a trusted validator
        transaction.calls[0].update.header = bytes(header)
        lakes.submit("left", 9, transaction.SerializeToString())
        lakes.settle()
        assert left.network.tick == moved + 1


def test_lakes_started_apart_converge(tmp_path: Path) -> None:
    with both(tmp_path, calls=3) as lakes:
        for _ in range(200):
            lakes.nodes["right"].produce()
        lakes.until_idle()
        lakes.check(3)
        assert {max(ticks(lakes, own)) >= 200 for own in ENDS} == {True}


def test_lead_is_measured_from_real_time_or_blocks() -> None:
    clock = Clock(SECOND, 1_000.0, ClockBounds(30.0, 60.0), lambda: 1_500.0)
    assert clock.latest(0) == 560, "500 seconds old"
    assert clock.latest(900) == 960, "900 blocks"
    assert clock.longest_step() == 30
    assert Clock(100 * SECOND, 0.0).longest_step() == 1
    clock.require(560, 0)
    with pytest.raises(HeaderTooFarAhead, match="1 s beyond"):
        clock.require(561, 0)
