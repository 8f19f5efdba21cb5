"""Relaying between lakes whose zones use a header only after a delay (IBC reference X-11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from causeway.core.vocabulary import Event, Kind
from causeway.service.ibc.relayer import PassState
from tests.support.common.lakes import ENDS, both

DELAY = "delay_seconds = 5.0\n"
ONE_MORE = {"to": "caller-left", "call": {"receiver": "echo-right", "method": "hello", "text": "one more"}}
BY_ABSENCE = 'order = "unordered"\nacknowledgements = "synchronous"\n'


@pytest.mark.parametrize("options", ["", 'order = "unordered"\n'])
def test_every_call_is_answered_once_after_the_delay(tmp_path: Path, options: str) -> None:
    with both(tmp_path, options=DELAY + options) as lakes:
        lakes.until_idle()
        lakes.check(5)
        assert {chain: lakes.refused(chain) for chain in ENDS} == {"left": {}, "right": {}}
        assert sum(lakes.account(chain)["headers"] for chain in ENDS) == 4, "one for packets and one for receipts each"
        for chain in ENDS:
            trusted = [header for header in lakes.lane(chain)["client"]["trusted"] if header["height"]]
            added = {header["added_time"] // 10**9 for header in trusted}
            height, _ = lakes.events(chain, Event.RECEIVED, Kind.REQUEST)[0]
            assert min(added) + 5 <= lakes.views[chain].time(height) // 10**9


def test_header_precedes_its_delayed_proofs(tmp_path: Path) -> None:
    with both(tmp_path, options=DELAY) as lakes:
        first = lakes.relay("right", settle=False)
        assert (first.state, first.headers, first.messages, first.work.backlog) == (PassState.SUBMITTED, 1, 0, 5)
        right = lakes.nodes["right"]
        for _ in range(5):
            right.produce()
            passed = lakes.relay("right", settle=False)
            assert (passed.state, passed.transactions) == (PassState.DELAYED, 0), "no header is brought again"
        on_the_way = right.has_work
        right.produce()
        assert (on_the_way, right.has_work) == (True, False), "on demand, blocks go on until the delay is over"
        lakes.send("left", ONE_MORE)
        lakes.nodes["left"].produce()
        passed = lakes.relay("right", settle=False)
        assert (passed.headers, passed.messages) == (1, 5), "the next header goes ahead with what came before"
        right.produce()
        assert lakes.received("right") == list(range(5))
        lakes.until_idle()
        assert lakes.received("right") == list(range(6)) and lakes.refused("right") == {}


@pytest.mark.parametrize("order", ["", BY_ABSENCE])
def test_expired_packets_time_out_under_a_usable_header(tmp_path: Path, order: str) -> None:
    options = DELAY + order + 'timeouts = "on"\ntimeout_blocks = 3\ncleanup = "on"\n'
    with both(tmp_path, calls=3, options=options) as lakes:
        for _ in range(10):
            lakes.nodes["right"].produce()
        for _ in range(4):
            lakes.relay("left", cleanup_after=1)
        assert lakes.lane("left")["send"]["head"] == 3, "without a receipt"
        lakes.until_idle(cleanup_after=1)
        for chain in ENDS:
            lane = lakes.lane(chain)
            assert lane["send"]["head"] == lane["send"]["tail"] == 3
            assert "DelayNotElapsed" not in lakes.refused(chain)
        assert lakes.received("right") == [] and lakes.answered("left") == []
        assert lakes.lane("right")["receipt"]["head"] == 3, "a cleanup moved it on"


def test_header_lost_from_the_lake_is_replaced(tmp_path: Path) -> None:
    with both(tmp_path, options=DELAY) as lakes:
        lakes.relay("right")
        lakes.nodes["left"].produce()
        passed = lakes.relay("right", past=False)
        assert (passed.headers, passed.messages) == (1, 0)
        lakes.until_idle()
        lakes.check(5)


def test_batches_wait_for_packets_without_a_header(tmp_path: Path) -> None:
    with both(tmp_path, calls=2, options=DELAY) as lakes:
        assert lakes.relay("right", min_batch=3, max_wait=50).state is PassState.WAITING
        lakes.send("left", ONE_MORE)
        lakes.nodes["left"].produce()
        assert lakes.relay("right", min_batch=3, max_wait=50, settle=False).headers == 1
        lakes.nodes["right"].produce()
        lakes.send("left", ONE_MORE)
        lakes.nodes["left"].produce()
        passed = lakes.relay("right", min_batch=3, max_wait=50)
        assert (passed.state, passed.headers) == (PassState.DELAYED, 0), "one is no batch, three are on their way"
        assert lakes.relay("right", min_batch=3, max_wait=50).messages == 3
