"""Misbehaving carriers of cross-domain messages: rejections by name, and arrival of all messages."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.core.vocabulary import Event, Via
from tests.support.xdm.properties.xdm_checks import Record, Sums, supply
from tests.support.xdm.xdm_network import Network

CHAINS = {"consensus": {1: "caller", 2: "echo"}, "a": {11: "caller", 12: "echo"}, "b": {21: "caller", 22: "echo"}}
CALLS = 9


def network(*faults: Any, calls: int = CALLS, **more: Any) -> Network:
    """Create calls from every chain to every other, all at once, with faults."""
    net = Network(CHAINS, faults=faults, balance=10**6, **more)
    for number in range(calls):
        for caller, receiver in ((11, 22), (21, 2), (1, 12)):
            net.call(caller, receiver, bytes([number]))
    return net


def run_until_answered(net: Network, checks: tuple[Sums, Record] | None = None) -> Counter[str]:
    """Run until all is answered, under all checks; return the counted rejections."""
    sums, record = checks or (Sums(net), Record(net))
    for _ in range(600):
        wakes = [result.wake for result in net.results if result.wake is not None]
        net._block(max(net.tick + 1, min(wakes, default=0)))
        sums.check()
        record.check()
        if net.idle():
            break
    assert net.idle(), "all is answered"
    assert record.responses == record.requests == 3 * CALLS
    programs = net.state.programs["caller"]
    assert programs["answered"].tolist() == [CALLS] * 3
    return Counter(reason for _, reason in net.refusals())


def fault(kind: str, last: int = 20, source: str | None = None, destination: str | None = None, **args: Any) -> Any:
    return kind, source, destination, 0, last, {"every": 1, **args}


def test_honest_carriers_cause_no_rejections() -> None:
    assert run_until_answered(network()) == Counter()


@pytest.mark.parametrize("what", ["node", "nonce", "source", "base"])
def test_tampered_message_is_a_bad_proof_and_is_resubmitted(what: str) -> None:
    refused = run_until_answered(network(fault("tamper", what=what)))
    assert set(refused) == {"BadProof"}
    assert refused["BadProof"] >= 3 * CALLS


def test_honest_messages_are_accepted_beside_tampered_ones() -> None:
    net = network(fault("tamper", what="node", every=3))
    net.block(12)
    assert {reason for _, reason in net.refusals()} == {"BadProof"}
    taken = len(net.state["early"]) + int(net.state["channels"]["next_inbox"].sum())
    assert taken >= CALLS, "the others of the same proof are as good as before"


def test_altered_tag_changes_nothing() -> None:
    assert run_until_answered(network(fault("tamper", what="tag", last=1000))) == Counter()


def test_every_sixth_message_is_dropped_and_all_arrive() -> None:
    refused = run_until_answered(network(fault("drop", last=10**6, every=6)))
    assert set(refused) <= {"INVALID_NONCE"}


def test_everything_is_dropped_for_a_while() -> None:
    assert run_until_answered(network(fault("drop", last=30))) == Counter()


@pytest.mark.slow
def test_operators_down_for_2000_blocks_prove_again() -> None:
    """Hazard 31 at full size: most of these blocks are skipped."""
    net = network(fault("drop", last=2_000))
    assert run_until_answered(net) == Counter()
    assert net.tick > 2_000


def test_duplicate_message_is_accepted_once() -> None:
    refused = run_until_answered(network(fault("replay", blocks=1), fault("replay", blocks=0)))
    assert set(refused) == {"INVALID_NONCE"}
    assert refused["INVALID_NONCE"] >= 6 * CALLS


def test_late_message_arrives_under_an_old_proof() -> None:
    assert set(run_until_answered(network(fault("delay", blocks=4)))) == set()


def test_expired_proof_is_rejected_and_rebuilt() -> None:
    net = network(fault("delay", blocks=12), options={"mmr_roots": 8, "resubmit_after": 40})
    assert set(run_until_answered(net)) == {"BadProof"}


@pytest.mark.parametrize("inbox", ["stored", "pool"])
def test_reordered_messages_are_executed_in_order(inbox: str) -> None:
    net = network(fault("reorder", of=3), options={"inbox": inbox, "resubmit_after": 5})
    refused = run_until_answered(net)
    # In a pool they wait for earlier ones, like transactions.
    assert set(refused) <= {"INVALID_NONCE"}
    events = net.events()
    executed = events.filter(
        (events["events"] & np.uint16(Event.EXECUTED) > 0) & (events["receiver"] == 22) & (events["via"] == Via.LANE)
    )
    assert executed["callback"].tolist() == sorted(executed["callback"].tolist())


def test_nonce_too_far_ahead_is_rejected() -> None:
    net = network(fault("drop", last=8, every=2), options={"max_future_nonces": 1})
    assert "IN_FUTURE_NONCE" in run_until_answered(net)


@pytest.mark.parametrize("chain", ["a", "consensus"])
def test_halted_chain_makes_no_block_and_resumes(chain: str) -> None:
    net = network(("halt", chain, None, 3, 9, {}))
    sums, record = Sums(net), Record(net)
    for tick in range(12):
        if tick == 5:
            net.call(11, 22, b"late")
        net.block()
        sums.check()
        record.check()
        if 3 <= tick <= 9:
            assert chain not in net.roots()
            assert len(net.roots()) == (2 if chain == "a" else 0), "without the consensus chain no domain goes on"
    assert net.refusals() == [("a", "ChainHalted")]
    assert set(run_until_answered(net, (sums, record))) == {"ChainHalted"}


def test_value_exported_just_before_a_consensus_halt_is_recorded() -> None:
    net = network(("halt", "consensus", None, 3, 5, {}), calls=0)
    sums = Sums(net)
    for tick in range(40):
        if tick < 3:
            net.call(11, 22, b"value", amount=7)
        net.block()
        sums.check()
    assert net.idle()
    assert net.refusals() == []


def test_equal_channel_and_nonce_of_two_sources_are_two_messages_with_source_tags() -> None:
    def played(pool_tag: str) -> Counter[str]:
        chains = {"consensus": {2: "echo"}, "a": {11: "caller"}, "b": {21: "caller"}}
        net = Network(chains, balance=10**6, options={"pool_tag": pool_tag, "resubmit_after": 4})
        net.call(11, 2)
        net.call(21, 2)
        net.settle()
        assert net.state.programs["caller"]["answered"].tolist() == [1, 1]
        return Counter(reason for _, reason in net.refusals())

    assert played("with_src") == Counter()
    assert played("without_src") == Counter(AlreadyImported=1)


def test_permanently_rejected_request_does_not_block_a_pool_without_source_tags() -> None:
    """Hazard 9: a and c both initiate, so a's request for channel 0 of c is always rejected."""
    chains = {"consensus": {}, "a": {11: "caller"}, "b": {21: "caller"}, "c": {32: "echo"}}
    opening = [{"tick": 0, "chain": one, "foreign": other} for one, other in ("ac", "ca", "bc")]
    options = {"channels": "initiate", "channel_calls": opening, "pool_tag": "without_src", "resubmit_after": 40}
    net = Network(chains, balance=10**6, options=options)
    net.call(21, 32)
    net.block(39)
    assert "AlreadyImported" not in {reason for _, reason in net.refusals()}
    assert net.idle(), "b's call was answered before anything is proved again"


@pytest.mark.parametrize(
    ("weights", "drift"), [({}, 0), ({"b": {"message": 50_000_000}}, 4), ({"a": {"message": 50_000_000}}, -4)]
)
def test_minting_weights_other_than_fee_weights_are_detected(weights: Any, drift: int) -> None:
    """Hazard 26: 5 units for 50 million, where the other chain says 1."""
    net = Network(CHAINS, balance=10**6, options={"v0_mint": "recomputed", "weights": weights})
    sums = Sums(net)
    net.call(11, 22)
    found = None
    for _ in range(20):
        net.block()
        if found is None:
            try:
                sums.check()
            except AssertionError as error:
                found = str(error)
    assert supply(net.state) - sums.supply == drift
    assert found == ("value was made or lost (G7)" if drift else None)
    # Created value is in no book: its receipt is rejected, and b proves nothing any more.
    assert net.idle() == (drift <= 0)
    assert net.refusals() == ([("consensus", "BalanceUnderflow")] if drift > 0 else [])


def test_weights_need_existing_chains() -> None:
    with pytest.raises(InvalidInput, match=r"options\.weights\.nowhere"):
        network(options={"weights": {"nowhere": {"message": 1}}})
