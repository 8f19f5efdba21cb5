"""False receipts of domains: detection, pruning and repetition, without loss or double mint (G1 to G8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.substrate.storage_keys import blake2_256
from causeway_proofs.xdm import RECEIPTS

from causeway.core.frame import Frame
from causeway.core.vocabulary import Event, Kind
from causeway.protocols.xdm.consensus.receipts import is_pruned, receipt_fraud
from causeway.protocols.xdm.value.balances import join_words
from tests.support.xdm.properties.xdm_checks import Record, Sums, supply
from tests.support.xdm.xdm_network import Network

CHAINS = {"consensus": {1: "caller", 2: "echo"}, "a": {11: "caller", 12: "echo"}, "b": {21: "caller", 22: "echo"}}
DEPTH, PERIOD = 2, 4
TICK = 3
"""When the first fraud begins, of the block TICK + 1; its receipt is taken in by block TICK + 2."""


def fraud(chain: str = "a", robbed: str | None = "b", tick: int = TICK, last: int | None = None, **args: Any) -> Any:
    said = {"what": "message", "amount": 1_000, "chance": 1.0, "found_after": 2, **args}
    if said["found_after"] is None:
        del said["found_after"]
    return "fraud", chain, robbed, tick, tick if last is None else last, said


def bundle(chain: str = "b", first: int = 0, last: int = 40, what: str = "base") -> Any:
    return "bundle", chain, None, first, last, {"what": what}


class Receipts:
    """Receipts on the consensus chain against the domains' actions: ``check`` is called after every block."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.roots: dict[tuple[int, int], bytes] = {}
        self.pruned: dict[tuple[int, int], dict[str, int]] = {}
        self.check()

    def check(self) -> None:
        headers, confirmed, pruned = self.net.headers, self.net.state["confirmed"], self.net.state["pruned"]
        rows = (headers["chain"].tolist(), headers["number"].tolist(), list(headers["root"]))
        for chain, number, root in zip(*rows, strict=True):
            self.roots[chain, number] = bytes(root)
        receipts = RECEIPTS.decode(confirmed["receipt"].cast(pa.large_binary())).require_all()
        for row, domain in enumerate(confirmed["domain"].tolist()):
            number = int(confirmed["number"][row])
            root = receipts["final_state_root"][row].as_py()
            assert root == self.roots[domain, number], "a false receipt was confirmed (G4)"
        for values in zip(*(pruned[name].tolist() for name in pruned.names), strict=True):
            found = dict(zip(pruned.names, values, strict=True))
            self.pruned[found["domain"], found["first"]] = found

    def chain_of(self, domain: int) -> None:
        """Check that a domain's valid receipts are consecutive, linked and honest."""
        parent, expected = bytes(32), 0
        known = [number for chain, number in sorted(self.roots) if chain == domain]
        for frame, gone in self.logged():
            for receipt in frame.filter((frame["domain"] == domain) & ~gone)["receipt"].to_pylist():
                said = RECEIPTS.decode(pa.array([receipt], pa.large_binary())).require_all()
                number = said["domain_block_number"][0].as_py()
                assert number == known[expected]
                assert said["parent_domain_block_receipt_hash"][0].as_py() == parent
                assert said["final_state_root"][0].as_py() == self.roots[domain, number]
                parent, expected = blake2_256(receipt), expected + 1
        assert expected >= len(known) - 1

    def logged(self) -> Iterator[tuple[Frame, Any]]:
        """Record the receipts of every block, and those pruned later."""
        rows = [self.pruned[key] for key in sorted(self.pruned)]
        names = self.net.state["pruned"].names
        kept = Frame({name: np.array([row[name] for row in rows], dtype=np.uint64) for name in names}, len(rows))
        for _, tick, frame in self.net.logs["receipts"]:
            frame = frame.with_columns(tick=np.full(len(frame), tick, dtype=np.uint64))
            yield frame, is_pruned(frame, frame["tick"].astype(np.int64) + 1, kept)


def network(*faults: Any, calls: bool = True, **more: Any) -> Network:
    options = {"archiving_depth": DEPTH, "challenge_period": PERIOD, **more.pop("options", {})}
    return Network(CHAINS, faults=faults, balance=10**6, options=options, **more)


def play_calls(*faults: Any, blocks: int = 8, **more: Any) -> tuple[Network, Receipts]:
    """Play calls with value between all chains in the first blocks, until all is answered, under all checks."""
    net = network(*faults, **more)
    checks = (Sums(net), Record(net), receipts := Receipts(net))
    for block in range(400):
        if block < blocks:
            for caller, receiver in ((11, 22), (21, 12), (1, 12), (11, 2)):
                net.call(caller, receiver, bytes([block]), amount=7)
            net.block()
        else:
            wakes = [result.wake for result in net.results if result.wake is not None]
            net._block(max(net.tick + 1, min(wakes, default=0)))
        for check in checks:
            check.check()
        if block >= blocks and net.idle():
            break
    assert net.idle(), "all is answered"
    answered = net.state.programs["caller"]["answered"].tolist()
    assert answered == [blocks, 2 * blocks, blocks], "each once"
    for domain in (1, 2):
        receipts.chain_of(domain)
    return net, receipts


def count_receipt_events(net: Network) -> Counter[str]:
    """Return the counted receipt events of the consensus chain."""
    events = net.events()
    rows = events.filter((events["kind"] == Kind.CONTROL) & (events["chain"] == 0) & (events["source"] == 0))
    return Counter(rows["reason"].to_pylist())


def balances(net: Network) -> list[int]:
    return join_words(net.state["accounts"], "balance")


HONEST: dict[str, list[int]] = {}


def honest_balances() -> list[int]:
    if "balances" not in HONEST:
        HONEST["balances"] = balances(play_calls()[0])
    return HONEST["balances"]


@pytest.mark.parametrize(
    ("found_after", "what", "kind"),
    [
        (1, "message", "InvalidStateTransition"),
        (PERIOD - 1, "transfers", "InvalidTransfers"),
        (PERIOD, "root", "InvalidStateTransition"),
        pytest.param(PERIOD - 1, "message", "InvalidStateTransition", marks=pytest.mark.slow),
        pytest.param(PERIOD, "message", "InvalidStateTransition", marks=pytest.mark.slow),
        pytest.param(1, "transfers", "InvalidTransfers", marks=pytest.mark.slow),
    ],
)
def test_false_receipt_is_pruned_with_its_descendants(found_after: int, what: str, kind: str) -> None:
    """With ``found_after`` being the whole period it is found in the block of its confirmation."""
    net, receipts = play_calls(fraud(what=what, found_after=found_after))
    taken = TICK + 2
    [gone] = receipts.pruned.values()
    assert gone == {
        "chain": 0, "domain": 1, "first": TICK + 1, "last": TICK + found_after, "taken": taken,
        "found": taken + found_after,
    }  # fmt: skip
    assert count_receipt_events(net) == {"FraudProved": 1, kind: 1, "OperatorSlashed": 1, "ReceiptPruned": found_after}
    assert balances(net) == honest_balances(), "every account has what it has without the fraud"
    refused = Counter(reason for chain, reason in net.refusals() if chain != "consensus")
    assert set(refused) == ({"BadProof"} if what == "message" else set())


def test_dependent_messages_arrive_after_valid_receipts_are_final() -> None:
    net, receipts = play_calls(fraud(found_after=3))
    [gone] = receipts.pruned.values()
    executed = execution_ticks(net, 22)
    for number in range(1, 9):
        late = gone["first"] <= number <= gone["last"]
        earliest = (gone["found"] if late else number + 1) + PERIOD + DEPTH
        assert executed[number - 1] + 1 >= earliest, f"block {number}"


def execution_ticks(net: Network, receiver: int) -> list[int]:
    """Return the ticks in which a program executed requests, in order."""
    found = []
    for _, tick, frame in net.logs["events"]:
        ran = (frame["events"] & np.uint16(Event.EXECUTED) > 0) & (frame["receiver"] == receiver)
        found += [tick] * int((ran & (frame["kind"] == Kind.REQUEST)).sum())
    return found


def test_forged_envelopes_are_rejected_at_any_time() -> None:
    """Forge under the false receipt's storage: before detection, in that block, after it, and once final."""
    always = (
        ("replay", "a", "b", 0, 40, {"every": 1, "blocks": 1}),
        ("replay", "a", "b", 0, 40, {"every": 1, "blocks": 9}),
    )
    net, _ = play_calls(fraud(found_after=4), *always)
    refused = Counter(reason for chain, reason in net.refusals() if chain == "b")
    assert refused["BadProof"] >= 6
    assert set(refused) == {"BadProof", "INVALID_NONCE"}
    assert balances(net) == honest_balances()


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([fraud(tick=2), fraud(tick=8, what="transfers")], id="one-after-another"),
        pytest.param([fraud(tick=1, last=14, found_after=1)], id="whenever-it-can", marks=SLOW),
        pytest.param([fraud(), fraud("b", "consensus", found_after=3), fraud("b", "a", tick=9)], id="several-domains"),
        pytest.param([fraud(tick=0)], id="first-block", marks=SLOW),
        pytest.param([fraud(tick=0, last=12, chance=0.3), fraud("b", tick=0, last=12, chance=0.4)], id="by-chance"),
        pytest.param([fraud(), ("halt", "a", None, 4, 9, {})], id="its-domain-halts"),
        pytest.param([fraud(), ("halt", "a", None, 6, 6, {})], id="its-domain-halts-when-found", marks=SLOW),
        pytest.param([fraud(), ("halt", "consensus", None, 4, 8, {})], id="halts-before-taken-in", marks=SLOW),
        pytest.param([fraud(found_after=3), ("halt", "consensus", None, 5, 16, {})], id="halts-until-it-was-due"),
        pytest.param([fraud(), ("halt", "b", None, 3, 12, {})], id="the-robbed-chain-halts", marks=SLOW),
        pytest.param([fraud(found_after=3), ("drop", None, None, 4, 20, {"every": 2})], id="drops", marks=SLOW),
        pytest.param([fraud(), ("tamper", None, None, 4, 20, {"what": "node", "every": 2})], id="tampers", marks=SLOW),
    ],
)
def test_frauds_of_all_kinds_leave_no_trace(faults: list[Any]) -> None:
    halts = any(kind == "halt" for kind, *_ in faults)
    net, receipts = (play_with_halts if halts else play_calls)(*faults)
    counts = count_receipt_events(net)
    assert counts["FraudProved"] == counts["OperatorSlashed"] == len(receipts.pruned) >= 1
    assert counts["ReceiptPruned"] == sum(int(gone.sum()) for _, gone in receipts.logged())
    if not halts:
        assert balances(net) == honest_balances()


def play_with_halts(*faults: Any) -> tuple[Network, Receipts]:
    """Play calls before the halt, since calls to a halted chain are rejected."""
    net = network(*faults)
    checks = (Sums(net), Record(net), receipts := Receipts(net))
    start = supply(net.state)
    for block in range(400):
        if block < 4:
            for caller, receiver in ((11, 22), (21, 12), (1, 12), (11, 2)):
                if not any(kind == "halt" and first <= block for kind, _, _, first, *_ in faults):
                    net.call(caller, receiver, bytes([block]), amount=7)
        if block < 20:
            net.block()
        else:
            wakes = [result.wake for result in net.results if result.wake is not None]
            net._block(max(net.tick + 1, min(wakes, default=0)))
        for check in checks:
            check.check()
        if block > 20 and net.idle():
            break
    assert net.idle()
    assert supply(net.state) == start
    return net, receipts


def test_fraud_on_top_of_a_fraud_is_pruned_with_the_first() -> None:
    net, receipts = play_calls(fraud(tick=2, found_after=4), fraud(tick=4, found_after=1))
    assert [row["first"] for row in receipts.pruned.values()] == [3]
    assert count_receipt_events(net)["FraudProved"] == 1


@pytest.mark.parametrize(
    ("tick", "depth", "first"), [(7, 1, TICK + 1), (9, 3, TICK + 1), (12, 4, TICK + 1), (6, 4, None)]
)
def test_forks_and_frauds_combine(tick: int, depth: int, first: int | None) -> None:
    """The fork reverts different blocks.

    It reverts nothing, in the tick of the fraud proof; the proof, which is repeated; later blocks; or the block of the
    false receipt itself, and the next one is honest.
    """
    reorg = ("reorg", None, None, tick, tick, {"depth": depth})
    net = network(fraud(found_after=3), reorg, options={"archiving_depth": 5})
    checks = (Sums(net), Record(net), receipts := Receipts(net))
    for block in range(50):
        if block < 8:
            net.call(11, 22, bytes([block]), amount=7)
            net.call(21, 12, bytes([block]))
        net.block()
        for check in checks:
            check.check()
        if block > 20 and net.idle():
            break
    assert net.idle()
    assert net.state.programs["caller"]["answered"].tolist() == [0, 8, 8], "each once"
    events = net.surviving_events()
    proved = events.filter(np.array([reason == "FraudProved" for reason in events["reason"].to_pylist()], dtype=bool))
    assert proved["index"].tolist() == ([] if first is None else [first])
    assert bool(receipts.pruned) == (first is not None)


@pytest.mark.parametrize(("forgetful", "cuts"), [(True, 1), (False, 3)])
def test_roots_are_independent_of_chain_partitioning(forgetful: bool, cuts: int) -> None:
    faults = [fraud(found_after=3), fraud("b", "a", tick=5, found_after=2, what="root"), bundle(first=10, last=14)]

    def roots(net: Network) -> list[dict[str, bytes]]:
        found = []
        for block in range(32):
            if block < 6:
                net.call(11, 22, b"x", amount=5)
                net.call(21, 12, b"y")
            net.block()
            found.append(net.roots())
        assert net.idle()
        return found

    options = {"resubmit_after": 4}
    honest = roots(network(*faults, options=options))
    assert roots(network(*faults, options=options, forgetful=forgetful, cuts=cuts)) == honest


@pytest.mark.parametrize(("found_after", "late"), [(1, 58), (350, 8)])
def test_network_sleeps_while_nothing_can_happen(found_after: int, late: int) -> None:
    """``late``: the allowed delay in blocks, since numbers jump and a leaf may await another message."""
    net = network(fraud(found_after=found_after), options={"challenge_period": 400, "archiving_depth": 50})
    net.call(11, 22)
    net.block(3)
    net.call(11, 22)
    net.block()
    assert net.settle() < 60, "it waits for the fraud proof and for the receipts that hold, and makes no block between"
    final = TICK + 2 + found_after + 400 + 50
    assert final <= execution_ticks(net, 22)[1] + 1 <= final + late


@pytest.mark.parametrize("what", ["message", "transfers"])
def test_undetected_fraud_is_found_by_the_checks(what: str) -> None:
    """The assumption of 1.4 is violated: the forgery takes effect, and the guarantees fail."""
    net = network(fraud(found_after=None, what=what, amount=1_000))
    checks = (sums := Sums(net), Record(net), Receipts(net))
    found = set()
    for _ in range(30):
        net.block()
        for check in checks:
            try:
                check.check()
            except AssertionError as error:
                found.add(str(error).split(":")[0].split("\n")[0])
    if what == "message":
        assert "value was made or lost (G7)" in found
        assert "a request was processed that nobody made (G2)" in found
        assert "a false receipt was confirmed (G4)" in found
        assert supply(net.state) == sums.supply + 1_000
    else:
        assert found == {"a book is not what is issued (G8)"}


def test_domain_cannot_export_more_than_it_has_even_by_an_unchallenged_receipt() -> None:
    """Hazard 28."""
    net = network(fraud(found_after=None, what="transfers", amount=2**62))
    sums = Sums(net)
    for _ in range(30):
        net.block()
        sums.check()
    assert net.refusals() == [("consensus", "LowBalanceOnDomain")]


def test_only_false_receipts_are_frauds() -> None:
    net, _ = play_calls(fraud(what="transfers"))
    rows = [
        (receipt, executed)
        for _, _, frame in net.logs["receipts"]
        for receipt, executed in zip(frame["receipt"].to_pylist(), frame["executed"].to_pylist(), strict=True)
    ]
    assert [receipt_fraud(receipt, executed) for receipt, executed in rows if executed] == ["InvalidTransfers"]
    assert {receipt_fraud(receipt, receipt) for receipt, _ in rows} == {None}


def test_impossible_frauds_are_rejected() -> None:
    with pytest.raises(InvalidInput, match=r"found_after = 5: must be at most options\.challenge_period = 4"):
        network(fraud(found_after=PERIOD + 1))
    for fault in (fraud("consensus", "a"), bundle("consensus")):
        with pytest.raises(InvalidInput, match="chain: the consensus chain has no receipts"):
            network(fault)
