"""Bundles with an invalid message are invalid as a whole, and receipts record it (X-6)."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from causeway_proofs.substrate import EMPTY_ROOT
from causeway_proofs.xdm import RECEIPTS

from tests.protocols.xdm.properties.test_xdm_frauds import (
    Receipts,
    balances,
    bundle,
    count_receipt_events,
    execution_ticks,
    fraud,
    honest_balances,
    network,
    play_calls,
)
from tests.support.xdm.properties.xdm_checks import Record, Sums
from tests.support.xdm.xdm_network import Network


def bundles_of(net: Network, receipts: Receipts) -> list[tuple[int, int | None, int | None]]:
    """Return the invalid bundles in valid receipts: the domain's block, reason and message."""
    found = []
    for frame, gone in receipts.logged():
        rows = RECEIPTS.decode(frame.filter(~gone)["receipt"].cast(pa.large_binary())).require_all()
        numbers, bundles = rows["domain_block_number"].to_pylist(), rows["inboxed_bundles"].to_pylist()
        for number, [one] in zip(numbers, bundles, strict=True):
            if not one["bundle"]:
                found.append((number, one["bundle_invalid"], one["bundle_invalid_extrinsic"]))
    return found


@pytest.mark.parametrize(
    ("what", "name", "variant"),
    [
        ("base", "InvalidXDM", 3),
        ("node", "IllegalTx", 2),
        pytest.param("nonce", "IllegalTx", 2, marks=pytest.mark.slow),
    ],
)
def test_bundle_with_one_invalid_message_is_invalid_as_a_whole(what: str, name: str, variant: int) -> None:
    """X-6: none of it is executed, its receipt names the message, and all messages come again."""
    net = network(bundle(last=14, what=what), options={"resubmit_after": 5})
    checks = (Sums(net), Record(net), receipts := Receipts(net))
    for block in range(60):
        for body in range(3 if block < 3 else 0):
            net.call(11, 22, bytes([block, body]), amount=7)
            net.call(1, 22, bytes([block, body]))
        net.block()
        for check in checks:
            check.check()
        if block > 20 and net.idle():
            break
    assert net.idle()
    assert net.state.programs["caller"]["answered"].tolist() == [9, 9, 0], "each once"
    bad = bundles_of(net, receipts)
    assert bad, "some bundles had messages"
    assert {why for _, why, _ in bad} == {variant}
    assert count_receipt_events(net) == {"OperatorSlashed": len(bad)}, "when the receipt is confirmed"
    refused = Counter(reason for chain, reason in net.refusals() if chain == "b")
    assert refused[name] == len(bad)
    assert {"InvalidBundle", "BadProof"} <= set(refused)
    taken = [tick + 1 for tick in execution_ticks(net, 22)]
    assert not set(taken) & {number for number, _, _ in bad}, "nothing of such a bundle is executed"


def test_receipts_describe_their_bundles() -> None:
    _, receipts = play_calls()
    roots: Counter[bytes] = Counter()
    for frame, _ in receipts.logged():
        rows = RECEIPTS.decode(frame["receipt"].cast(pa.large_binary())).require_all()
        for [one] in rows["inboxed_bundles"].to_pylist():
            assert one["bundle"] == 1
            assert one["bundle_valid"] == one["extrinsics_root"]
            roots[one["bundle_valid"]] += 1
    assert len(roots) > 10, "of other messages another one"
    assert roots[EMPTY_ROOT] > 10, "nothing came"


@pytest.mark.parametrize("invalid", [True, False])
def test_receipt_false_about_a_bundle_is_a_fraud(invalid: bool) -> None:
    tick = 11
    faults = [bundle(first=tick, last=tick)] if invalid else []
    net, receipts = play_calls(*faults, fraud("b", "a", tick=tick, what="bundle"))
    counts = count_receipt_events(net)
    assert counts["FraudProved"] == counts["InvalidBundles"] == 1
    assert counts["OperatorSlashed"] == 1 + invalid
    [gone] = receipts.pruned.values()
    assert gone["first"] == tick + 1
    assert [one[:2] for one in bundles_of(net, receipts)] == ([(tick + 1, 3)] if invalid else [])
    assert balances(net) == honest_balances()
