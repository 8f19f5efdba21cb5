"""The relay loop, step by step, between two real lakes without sockets."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.tendermint.light_client import LightClient
from causeway_proofs.tendermint.trust import TrustOptions, decode_header_update
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.protocols.contract import Tick
from causeway.protocols.ibc.client import conflicting_header
from causeway.protocols.ibc.context import Context
from causeway.service.ibc.relay_state import ReadLane, SubmitWithHeaders
from causeway.service.ibc.relayer import PassState
from causeway.service.relay.faults import FaultSettings, TransactionFaults
from tests.support.common.lakes import ENDS, OTHER, Lakes, both


def test_every_call_is_received_and_answered_once_in_order(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        assert lakes.until_idle() == 3  # packets right, packets and receipts left, receipts right
        lakes.check(5)
        for chain in ENDS:
            account = lakes.account(chain)
            assert account["accepted"] == account["submitted"] == 10
            assert account["wasted"] == 0
        assert sum(lakes.account(chain)["headers"] for chain in ENDS) == 3


def test_network_with_packets_for_another_lake_is_idle_not_stalled(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        network = lakes.nodes["left"].network
        assert lakes.lane("left")["send"]["tail"] == 5
        assert network.next_tick() is None
        assert network.has_external
        assert not network.is_finished
        height = network.height
        assert network.run() == height


def test_header_is_reused_after_a_crash_before_its_proofs(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        steps = lakes.steps("right", max_calls=1)
        step = next(steps)
        while not isinstance(step, SubmitWithHeaders):
            step = steps.send(lakes.answer(step))
        assert (step.headers, step.messages) == (1, 0)
        lakes.answer(step)
        lakes.settle()
        del steps  # the process has ended, and the chain continues
        for _ in range(2):
            lakes.nodes["left"].produce()
        assert lakes.lane("right")["client"]["latest"] > 0
        passed = lakes.relay("right", relayer=2)
        assert (passed.headers, passed.messages) == (0, 5)
        assert (lakes.account("right", 1)["headers"], lakes.account("right", 2)["headers"]) == (1, 0)
        lakes.until_idle()
        lakes.check(5)


def test_crash_at_any_step_is_harmless(tmp_path: Path) -> None:
    with both(tmp_path, calls=4) as lakes:
        for stop in range(1, 12):
            for target in ENDS:
                steps = lakes.steps(target, max_calls=2, chunk=1)
                answer: Any = None
                for _ in range(stop):
                    try:
                        step = steps.send(answer)
                    except StopIteration:
                        break
                    answer = lakes.answer(step)
                lakes.settle()
        lakes.until_idle()
        lakes.check(4)


@pytest.mark.parametrize("seed", range(4))
def test_racing_relayers_have_one_effect(tmp_path: Path, seed: int) -> None:
    draws = random.Random(seed)
    with both(tmp_path / "race", calls=4) as lakes, both(tmp_path / "alone", calls=4) as alone:
        alone.until_idle()
        for _ in range(4):
            running: dict[tuple[str, int], list[Any]] = {
                (target, relayer): [lakes.steps(target, max_calls=3), None] for target in ENDS for relayer in (1, 2, 3)
            }
            while running:
                key = draws.choice(sorted(running))
                steps, answer = running[key]
                try:
                    running[key][1] = lakes.answer(steps.send(answer), relayer=key[1])
                except StopIteration:
                    del running[key]
                if draws.random() < 0.2:
                    node = lakes.nodes[draws.choice(sorted(ENDS))]
                    node.produce()
            lakes.settle()
        lakes.until_idle()
        lakes.check(4)
        assert lakes.outcome() == alone.outcome()
        accounts = [lakes.account(chain, relayer) for chain in ENDS for relayer in (1, 2, 3)]
        assert sum(account.get("accepted", 0) for account in accounts) == 16
        assert sum(account.get("redundant", 0) for account in accounts) > 0
        assert sum(account.get("wasted", 0) for account in accounts) > 0


def test_backlog_is_cleared_in_bounded_chunks(tmp_path: Path) -> None:
    with both(tmp_path, calls=120) as lakes:
        passed = lakes.relay("right")
        assert passed.messages == 120
        assert passed.work.backlog == 120
        sizes = [len(wire.Transaction.FromString(one.transaction).calls) for one in lakes.submitted]
        assert sizes == [30, 30, 30, 30, 1]
        assert [one.last for one in lakes.submitted] == [False] * 4 + [True]
        assert sum(one.headers for one in lakes.submitted) == 1
        assert lakes.received("right") == list(range(120))


def test_transactions_respect_their_byte_limit(tmp_path: Path) -> None:
    with both(tmp_path, calls=10) as lakes:
        lakes.relay("right", max_bytes=2_500)
        assert len(lakes.submitted) > 2
        assert all(len(one.transaction) <= 2_500 for one in lakes.submitted)
        lakes.until_idle()
        lakes.check(10)


def test_large_packets_are_split_over_transactions_that_zones_decode(tmp_path: Path) -> None:
    with both(tmp_path, calls=12, text="x" * 200_000) as lakes:
        lakes.until_idle()
        lakes.check(12)


def test_proofs_per_header_and_max_packets_limit_a_pass(tmp_path: Path) -> None:
    with both(tmp_path, calls=10) as lakes:
        assert lakes.relay("right", proofs_per_header=4).messages == 4
        assert lakes.relay("right", max_packets=3).messages == 3
        assert lakes.relay("right").messages == 3
        lakes.until_idle()
        lakes.check(10)


def test_batch_waits_for_more_packets_up_to_a_limit(tmp_path: Path) -> None:
    with both(tmp_path, calls=3) as lakes:
        passed = lakes.relay("right", min_batch=10, max_wait=6)
        assert (passed.state, passed.work.backlog) == (PassState.WAITING, 3)
        for _ in range(6):
            lakes.nodes["left"].produce()
        assert lakes.relay("right", min_batch=10, max_wait=6).messages == 3


@pytest.mark.parametrize("seed", range(3))
def test_lost_late_and_duplicated_transactions_only_cost_fees(tmp_path: Path, seed: int) -> None:
    with both(tmp_path / "faulty", calls=12) as lakes, both(tmp_path / "alone", calls=12) as alone:
        alone.until_idle()
        faults: dict[str, TransactionFaults[SubmitWithHeaders]] = {
            target: TransactionFaults(FaultSettings(0.3, 2, 0.3), f"{seed}/{target}") for target in ENDS
        }

        def relay(target: str) -> bool:
            def submit(step: SubmitWithHeaders) -> None:
                for one in faults[target].applied(step):
                    lakes.answer(one)

            return bool(lakes.relay(target, submit=submit, max_calls=4).transactions)

        passes = 0
        while sum(relay(target) for target in ENDS):
            passes += 1
            assert passes < 100
        lakes.check(12)
        assert sum(fault.lost for fault in faults.values()) > 0
        assert lakes.outcome() == alone.outcome()


def test_altered_proof_is_rejected_without_effect(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        before = lakes.lane("right")["receipt"]
        names = []

        def alter(step: SubmitWithHeaders) -> None:
            transaction = wire.Transaction.FromString(step.transaction)
            for call in transaction.calls:
                if call.WhichOneof("call") == "receive":
                    call.receive.value = call.receive.value[:-1] + bytes([call.receive.value[-1] ^ 1])
            names.append(lakes.submit("right", 1, transaction.SerializeToString()).hash)

        lakes.relay("right", submit=alter)
        assert lakes.lane("right")["receipt"] == before
        # Only the first was in order: the reference checks proofs after the order.
        assert lakes.refused("right") == {"InvalidProof": 1, "OutOfOrder": 4}
        told = lakes.nodes["right"].outcome(names[-1])["faults"]
        assert {one["why"]: (one["count"], one["where"]) for one in told} == {
            "InvalidProof": (1, "right"),
            "OutOfOrder": (4, "right"),
        }
        lakes.until_idle()
        lakes.check(5)


def test_lake_clock_follows_a_header_from_its_future(tmp_path: Path) -> None:
    with both(tmp_path, calls=2) as lakes:
        for _ in range(50):
            lakes.nodes["right"].produce()
        right = lakes.nodes["right"].network.tick
        assert lakes.nodes["left"].network.tick < 10
        lakes.relay("left")
        assert lakes.nodes["left"].network.tick == right
        assert lakes.refused("left") == {}
        lakes.until_idle()
        lakes.check(2)


def test_forged_header_does_not_move_the_clock(tmp_path: Path) -> None:
    with both(tmp_path, calls=2) as lakes:
        for _ in range(50):
            lakes.nodes["right"].produce()

        def forge(step: SubmitWithHeaders) -> None:
            transaction = wire.Transaction.FromString(step.transaction)
            update = transaction.calls[0].update
            header = bytearray(update.header)
            place = bytes(header).index(
                decode_header_update(update.header).signed_header.commit.signatures[0].signature
            )
            header[place] ^= 1
            update.header = bytes(header)
            lakes.submit("left", 1, transaction.SerializeToString())

        tick = lakes.nodes["left"].network.tick
        lakes.relay("left", submit=forge)
        assert lakes.nodes["left"].network.tick == tick + 1
        assert lakes.refused("left")["InvalidHeader"] == 1


def test_unordered_packets_where_the_network_allows_it(tmp_path: Path) -> None:
    with both(tmp_path, calls=6, options='order = "unordered"') as lakes:
        assert lakes.relay("right", max_packets=2).messages == 2
        assert lakes.relay("left").messages == 8  # six packets and two receipts
        lakes.until_idle()
        assert sorted(lakes.received("right")) == sorted(lakes.answered("left")) == list(range(6))


def test_expired_packets_time_out_and_a_cleanup_admits_later_ones(tmp_path: Path) -> None:
    options = 'timeouts = "on"\ntimeout_blocks = 5\ncleanup = "on"'
    with both(tmp_path, calls=3, options=options) as lakes:
        for _ in range(10):
            lakes.nodes["right"].produce()
        late = lakes.relay("left")
        assert late.messages == 6  # three packets of the right, three time-outs of the left's own
        assert lakes.account("left")["accepted"] == 6
        assert lakes.lane("left")["send"]["head"] == 3
        lakes.nodes["left"].network.step(lakes.nodes["left"].network.tick + 1)
        for _ in range(20):  # the heights of both come close, so that new packets are in time
            lakes.nodes["left"].produce()
        lakes.send("left", {"to": "caller-left", "call": {"receiver": "echo-right", "method": "again"}})
        lakes.settle()
        lakes.until_idle()
        assert lakes.received("right") == [3]
        assert lakes.lane("right")["receipt"]["head"] >= 3
        assert lakes.lane("left")["send"] == {"head": 4, "tail": 4, "entries": []}


def test_receipts_are_cleaned_up_above_a_threshold(tmp_path: Path) -> None:
    with both(tmp_path, calls=8, options='cleanup = "on"') as lakes:
        lakes.until_idle(cleanup_after=9)
        assert lakes.lane("right")["receipt"]["head"] == 0
        lakes.until_idle(cleanup_after=8)
        assert lakes.lane("right")["receipt"]["head"] == lakes.lane("left")["receipt"]["head"] == 8


def test_client_is_refreshed_after_a_third_of_the_unbonding_period(tmp_path: Path) -> None:
    with both(tmp_path, calls=0, options="unbonding_seconds = 60.0") as lakes:
        for _ in range(19):
            lakes.nodes["right"].produce()
        assert lakes.relay("left").state == PassState.IDLE
        lakes.nodes["right"].produce()
        passed = lakes.relay("left")
        assert (passed.headers, passed.messages, passed.state) == (1, 0, PassState.SUBMITTED)
        assert lakes.lane("left")["client"]["latest"] == 20
        assert lakes.relay("left").state == PassState.IDLE


def test_expired_client_is_reported_and_skipped(tmp_path: Path) -> None:
    with both(tmp_path, options="unbonding_seconds = 30.0") as lakes:
        for _ in range(40):
            lakes.nodes["right"].produce()
        passed = lakes.relay("left")
        assert (passed.state, passed.transactions) == (PassState.EXPIRED, 0)
        assert "trusted header 0" in passed.why


def test_frozen_client_is_reported_and_skipped(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        lakes.relay("right")
        left = lakes.nodes["left"]
        height = lakes.lane("right")["client"]["latest"]
        signed = bytes.fromhex(lakes.views["left"].header("left", height)["signed_header"])
        kernel: Any = left.network.deployment.kernel
        context: Context = kernel.context(kernel.zones.own, lakes_tick(lakes, height))
        fork = conflicting_header(signed, left.opened.position("left"), context)
        call = wire.Call(update=wire.UpdateHeader(remote="left", header=fork))
        lakes.submit("right", 9, wire.Transaction(calls=[call]).SerializeToString())
        lakes.settle()
        assert lakes.lane("right")["client"]["state"] == "frozen"
        passed = lakes.relay("right")
        assert (passed.state, passed.transactions) == (PassState.FROZEN, 0)


def lakes_tick(lakes: Lakes, height: int) -> Any:
    return Tick(height, lakes.nodes["left"].network.lake.manifest(height).tick)


def test_target_is_read_first(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        step = next(lakes.steps("right"))
        assert step == ReadLane("b", "right", "left")


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_long_history_does_not_slow_relaying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    monkeypatch.setattr("causeway.service.ibc.routes.MOST_RANGES", 2)
    with both(tmp_path, calls=0, options=f'order = "{order}"') as lakes:
        for _ in range(5):
            for target in ENDS:
                message = {"to": f"caller-{OTHER[target]}", "call": {"receiver": f"echo-{target}", "method": "m"}}
                for _ in range(3):
                    lakes.send(OTHER[target], {**message, "count": 2})
                    lakes.nodes[OTHER[target]].produce()
            lakes.until_idle()
        assert lakes.lane("left")["receipt"]["head"] == 0
        assert lakes.lane("left")["receipt"]["tail"] == 30
        lakes.check(30)
        assert all(lakes.account(chain)["wasted"] == 0 for chain in ENDS)


def test_local_light_client_agrees_with_the_chains(tmp_path: Path) -> None:
    with both(tmp_path) as lakes:
        steps = lakes.steps("right")
        target = lakes.answer(next(steps))
        client = LightClient(TrustOptions("left", lakes.rules.unbonding_ns), target.trusted)
        assert client.heights == (0,)
