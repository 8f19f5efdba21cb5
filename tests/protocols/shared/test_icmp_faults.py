"""Scenario forks and planned calls, and errors for impossible ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.config.faults import FaultRule
from causeway.core.frame import empty_frame
from causeway.core.vocabulary import Event, Kind
from causeway.network.network import LakeNetwork
from causeway.protocols.contract import RANGES_SCHEMA, Tick
from causeway.protocols.relay_chain.runtime import TOLD_BLOCKS
from causeway.scenarios.scenario import load_scenario
from tests.support.icmp.icmp_network import Network as Memory

FORK = '[[faults]]\nkind = "fork"\ntick = 3\nuntil = 5\n'
CANDIDATE = '[[faults]]\nkind = "candidate"\ntick = 3\n'
CALL = "[[options.para_calls]]\ntick = 1\n"
SCENARIO = """
[network]
protocol = "icmp"
executor = "in_process"
[[chains]]
name = "left"
[[chains]]
name = "right"
{more}
"""


def _load(folder: Path, more: str) -> None:
    path = folder / "scenario.toml"
    path.write_text(SCENARIO.format(more=more))
    LakeNetwork(load_scenario(path), str(folder / "lake")).close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (FORK + "leaves = 6\n", ("leaves", "5")),
        (FORK + "kept = 2\n", ("kept = 2", "0 to 1")),
        (FORK + "followers = { up = 1 }\n", ("followers.up", "left")),
        (
            FORK + "followers = { left = 2 }\n",
            ("followers.left = 2", "0 to 1"),
        ),
        ('[[faults]]\nkind = "fork"\ntick = 6\nuntil = 5\n', ("until = 5", "tick = 6")),
        (FORK + "elder = [1, 2]\n", ("elder.1 = 2", "0 to 1")),
        (FORK + FORK.replace("3", "5") + "of = 2\n", ("tick = 5: of = 2", "leaves that can part are 0, 1")),
        (FORK + FORK + "of = 1\n", ("tick = 3: of = 1", "leaves that can part are none")),
        (FORK + "elder = [0]\n" + FORK.replace("3", "5") + "of = 0\n", ("tick = 5: of = 0", "part are 1")),
        (
            FORK + "leaves = 4\n" + FORK.replace("3", "4") + "leaves = 3\n",
            ("tick = 4: leaves = 3", "there are 4", "at most 2"),
        ),
        (FORK + "leaves = 5\n" + FORK.replace("3", "4"), ("tick = 4: leaves = 2", "there are 5", "no fork in it")),
        (
            FORK.replace("5", "4000") + FORK.replace("3", "3000").replace("5", "4099"),
            ("tick = 3000: until = 4099", "since tick 3", "at most 4096 ticks"),
        ),
        (FORK.replace("5", "4099"), ("until = 4099", "at most 4096 ticks from 3 on")),
        (FORK + FORK.replace("3", "5") + "followers = { relay = 1 }\n", ("faults[1].followers.relay", "parachains")),
        (FORK + CANDIDATE + 'chain = "relay"\nwhat = "root"\n', ("faults[1].chain", "a parachain")),
        (
            CANDIDATE + 'chain = "left"\nwhat = "watermark_hash"\n[options]\nwatermark_mode = "now_minus_1"\n',
            ("watermark_hash", "now_minus_1"),
        ),
        (CALL.replace("1", "2147483648") + 'chain = "left"\ndo = "register"\n', ("para_calls", "2147483647")),
        ('[[faults]]\nkind = "halt"\nchain = "left"\nfrom = 2147483648\n', ("from = 2147483648", "2147483647")),
        ("[options]\nbody_loss = 0.5\n", ("body_loss", 'bodies = "drawn"')),
        ('[options]\nbodies = "drawn"\nbody_table = "t"\n', ("body_table",)),
        ('[options]\nchannels = "hrmp"\nresume_threshold = 3\n', ("resume_threshold", "suspend_threshold = 2")),
        ('[options]\nchannels = "hrmp"\nsuspend_threshold = 9\n', ("suspend_threshold", "drop_threshold = 5")),
        (
            CALL + 'chain = "relay"\ndo = "deregister"\n',
            ("para_calls[0].chain", "left, right"),
        ),
        (CALL + 'chain = "left"\ndo = "block"\n', ("para_calls[0].other: missing", "another one")),
        ("[options]\nbody_loss = nan\n", ("options.body_loss: NaN: must be", "finite")),
        (
            CALL + 'chain = "left"\ndo = "register"\nother = "right"\n',
            ("para_calls[0].other", "block and unblock"),
        ),
    ],
)
def test_invalid_faults_are_reported(more: str, said: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as error:
        _load(tmp_path, more)
    for part in said:
        assert part in str(error.value)


def test_fork_in_a_partitioned_and_resumed_lake(tmp_path: Path) -> None:
    """Roots are independent of buckets and commits, and the summary has all fork data."""
    found = []
    for place, keys in enumerate(({}, {"network.partitions": "3", "network.commit_every": "5"})):
        path = tmp_path / "scenario.toml"
        text = (Path(__file__).parents[3] / "examples" / "generated.toml").read_text()
        forks = (
            FORK.replace("5", "8") + "leaves = 3\nkept = 1\n",
            FORK.replace("3", "5").replace("until = 5", "until = 11"),
        )
        path.write_text(text + "\n".join(["", *forks, "of = 1\nkept = 1\nelder = [1]\n"]))
        given = {"network.protocol": "icmp", "network.executor": "in_process", "traffic.messages": "800"} | keys
        with LakeNetwork(load_scenario(path, given), str(tmp_path / str(place))) as net:
            net.run(6)
        with LakeNetwork(load_scenario(path, given), str(tmp_path / str(place)), resume=True) as net:
            net.run()
            counts = net.summary()
            assert counts["sent"] == counts["answered"] == 800
            assert counts["duplicates"] == counts["out_of_order"] == 0
            assert counts["reverted_messages"] > 0
            found.append(net.root())
    assert found[0] == found[1]


REFUSED = {
    "partial": "IngressCountMismatch",
    "skipped": "NotAPrefix",
    "sender": "IngressChainMismatch",
    "body": "IngressRootMismatch",
    "ahead": "NotAPrefix",
    "root": "EgressRootMismatch",
    "no_root": "MissingEgressRoot",
    "parent": "ParentMismatch",
    "unsorted": "EgressOutOfOrder",
    "self": "SelfAddressed",
    "empty": "EmptyTrieRoot",
    "unknown": "DestinationDoesNotExist",
    "watermark_back": "WatermarkRegressed",
    "watermark_hash": "WatermarkNotAncestor",
    "duplicate": "DuplicateCandidate",
}


def _play_ring(*faults: FaultRule) -> Memory:
    """Play three chains that each call the next in every tick, with answers."""
    net = Memory({name: {10 * n: "caller", 10 * n + 1: "echo"} for n, name in enumerate("abc", 1)}, faults=faults)
    for tick in range(14):
        for n in (1, 2, 3):
            net.call(10 * n, 10 * (n % 3 + 1) + 1, bytes([tick]))
        net.step()
    net.step(10)
    return net


@pytest.fixture(scope="module")
def honest() -> Memory:
    return _play_ring()


@pytest.mark.parametrize("what", REFUSED)
def test_malicious_collator_is_rejected_by_name_and_the_honest_one_continues(what: str, honest: Memory) -> None:
    """Final roots equal those of a network without it: it had no other effect."""
    net = _play_ring(FaultRule("candidate", 1, None, 4, 10, {"what": what}))
    events = net.surviving(Event.REJECTED)
    assert set(events["reason"].to_pylist()) == {REFUSED[what]}
    assert set(events["source"].tolist()) == {2}
    everything = np.arange(len(net.names), dtype=np.uint32)
    roots = [
        one.kernel.roots(one.state, everything, Tick(one.height, one.tick), empty_frame(RANGES_SCHEMA))["root"]
        for one in (net, honest)
    ]
    assert (roots[0] == roots[1]).all()


def _calls(*calls: tuple[int, str]) -> dict[str, object]:
    other = {do: {"other": "a"} for do in ("block", "unblock")}
    return {"para_calls": [{"tick": tick, "chain": "b", "do": do} | other.get(do, {}) for tick, do in calls]}


def _fork(first: int, last: int, *follow: int) -> FaultRule:
    followers = {str(chain): leaf for chain, leaf in enumerate(follow)}
    return FaultRule("fork", None, None, first, last, {"leaves": 2, "kept": 1, "followers": followers})


OFF, ON = "deregister", "register"


@pytest.mark.parametrize(
    ("calls", "faults", "count", "dropped"),
    [
        # The sender's block without the recipient is included in the branch that has it again.
        pytest.param([(4, OFF), (5, ON)], [], 14, None, id="at once"),
        pytest.param([(5, OFF), (6, ON)], [], 14, None, id="at once, a block later"),
        pytest.param([(6, OFF), (9, ON)], [FaultRule("halt", 3, None, 7, 14)], 12, None, id="the relay halts between"),
        # Sender and recipient revert, and consumed messages return to the sender.
        pytest.param([(5, OFF), (9, ON)], [FaultRule("halt", 3, None, 6, 14)], 12, {1, 2}, id="both go back"),
        # All was consumed at leaf 1 before, and nothing is dropped while there is another.
        pytest.param([(14, OFF)], [_fork(2, 20, 1, 1, 1)], 3, set(), id="in a fork, after all was consumed"),
        # b never learned of any, so that nothing was unrouted.
        pytest.param([(0, "block"), (9, OFF)], [], 12, {0, 1, 2}, id="censored before"),
        # Neither side of the gap is lost; its contents are dropped at once, though nothing later was consumed.
        pytest.param([(5, "block"), (9, "unblock")], [], 14, {3, 4, 5, 6}, id="censored between"),
        pytest.param([(5, "block")], [_fork(3, 12, 0, 1, 1)], 14, None, id="censored in a fork"),
        # In its first block after the fork the sender dropped the censored queue; that block is rejected.
        pytest.param([(3, "block"), (8, "unblock"), (12, OFF)], [_fork(2, 10, 1, 1, 1)], 13, None, id="and back again"),
        # b halts until it is deregistered; the sender follows the lost leaf, or the retained one.
        *(
            pytest.param(
                [(8, OFF), (12, ON)],
                [_fork(5, 20, who, 1, 1), FaultRule("halt", 1, None, 0, 7)],
                count,
                {0, 1, 2},
                id=f"in a fork, the sender at {who}, {count} calls",
            )
            for who, count in ((0, 3), (0, 26), (1, 26))
        ),
    ],
)
def test_call_to_a_leaving_parachain_is_executed_dropped_or_rejected(
    calls: list[tuple[int, str]], faults: list[FaultRule], count: int, dropped: set[int] | None
) -> None:
    """Each call ends once, no body remains, and nothing waits forever; the chains are split into buckets."""
    chains = {name: {10 * n: "caller", 10 * n + 1: "echo"} for n, name in enumerate("abc", 1)}
    net = Memory(chains, options=_calls(*calls), faults=faults, cuts=4)
    for _ in range(count):
        net.call(10, 21)
        net.step()
    net.step(26)
    fates = {}
    for event in (Event.EXECUTED, Event.DROPPED, Event.REJECTED):
        rows = net.surviving(event)
        fates[event] = rows["callback"][rows["kind"] == Kind.REQUEST].tolist()
    assert sorted(call for found in fates.values() for call in found) == list(range(count))
    assert dropped is None or dropped <= set(fates[Event.DROPPED])
    if dropped == set():
        assert not fates[Event.DROPPED]
    assert len(net.state["runs"]) == len(net.state["unrouted"]) == len(net.state["dropped"]) == 0


@pytest.mark.parametrize("tick", [4, 5])
def test_parachain_reregistered_before_its_last_block_was_rejected_continues(tick: int) -> None:
    """With ``now_minus_1`` its earlier block is valid: it is included, and not reverted."""
    options = {**_calls((tick, OFF), (tick + 1, ON)), "watermark_mode": "now_minus_1"}
    net = Memory({name: {10 * n: "caller", 10 * n + 1: "echo"} for n, name in enumerate("abc", 1)}, options=options)
    for _ in range(10):
        net.call(20, 31)
        net.step()
    net.step(12)
    assert len(net.state["pool"]) == 0
    assert net.state["paras"]["number"].tolist() == net.state["tips"]["number"].tolist()


def test_twice_rejected_parachain_holds_no_removed_body() -> None:
    """a drops bodies after its reversion, since b is gone; its next block is rejected for a itself."""
    calls = [{"tick": 6, "chain": "b", "do": OFF}, {"tick": 9, "chain": "a", "do": OFF}]
    chains = {name: {10 * n: "caller", 10 * n + 1: "echo"} for n, name in enumerate("abc", 1)}
    net = Memory(chains, options={"para_calls": calls})
    for _ in range(12):
        net.call(10, 21)
        net.call(10, 31)
        net.step()
    net.step(8)
    assert not (net.state["runs"]["source"] != net.state["runs"]["destination"]).any()


def test_unconsumable_body_is_dropped_at_once_and_others_remain() -> None:
    """b halts and rejects some of 12 calls of a in the middle. Data about them is not retained."""
    calls = _calls((6, "block"), (12, "unblock"))
    chains = {name: {10 * n: "caller", 10 * n + 1: "echo"} for n, name in enumerate("abc", 1)}
    net = Memory(chains, options=calls, faults=[FaultRule("halt", 1, None, 0, 60)])
    told = []
    for _ in range(20):
        net.call(10, 21)
        net.step()
        told.append(len(net.state["dropped"]))
    net.step(4)
    rows = net.surviving(Event.DROPPED)
    gone = rows["index"].tolist()
    assert set(rows["reason"].to_pylist()) == {"Censored"} and 0 < max(told) <= TOLD_BLOCKS
    runs = net.state["runs"]
    held = [i for first, count in zip(runs["first"], runs["count"], strict=True) for i in range(first, first + count)]
    assert sorted([*gone, *held]) == list(range(20))
    assert held[0] == 0 and held[-1] == 19 and gone == list(range(gone[0], gone[-1] + 1))


def test_fetchable_body_is_never_given_up() -> None:
    """It arrives after all other activity has ended, at the late request of validators."""
    options = {"bodies": "drawn", "body_loss": 1.0, "fallback_request": "on", "fallback_after": 5_000}
    net = Memory({"A": {1: "caller"}, "B": {2: "echo"}}, options=options)
    net.call(1, 2, b"hello")
    net.step(20)
    ends = [result.gives_up for result in net.results if result.gives_up is not None]
    assert max(ends) > 5_000
