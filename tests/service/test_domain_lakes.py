"""Two lakes of one network of domains and a relay process: exactly-once delivery and reproducible states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.core.vocabulary import Event, Kind
from causeway.network.opened_lake import open_lake
from causeway.network.recheck import LakeRecheck
from causeway.protocols.xdm.transactions import Confirmed, RelayedMessages, encode_transaction
from causeway.protocols.xdm.value.books import Book
from causeway.proving.xdm.messages import prove_message
from causeway.scenarios.scenario import load_scenario
from causeway.service.node.node import BlockPace, Node
from causeway.service.xdm.relayer import PassOutcome
from tests.service.test_domain_strangers import shown_of
from tests.support.common.domain_lakes import HOME, DomainLakes, both, scenario_text, sending

SENDS = {
    "near": sending("alice", "echo-right", 5)
    + sending("treasury", "echo-third", 2)
    + sending("alice", "bob", method="transporter.transfer", amount=700),
    "far": sending("bob", "echo-left", 4)
    + sending("carol", "echo-right", 3)
    + sending("bob", "treasury", method="transporter.transfer", amount=900),
}


def executed_requests(lakes: DomainLakes, lake: str) -> list[tuple[int, int, int, int]]:
    """Return (destination, source, substream, index) of the calls executed by a lake's programs."""
    rows = [row for row in lakes.events(lake) if row["kind"] == Kind.REQUEST and row["events"] & Event.EXECUTED]
    return [(row["destination"], row["source"], row["substream"], row["index"]) for row in rows]


def total(row: dict[str, Any], name: str) -> int:
    return int(row[f"{name}_high"]) << 64 | int(row[f"{name}_low"])


def issued(lakes: DomainLakes, chain: str) -> int:
    """Return the value issued on a chain."""
    node = lakes.nodes[HOME[chain]]
    position = node.opened.position(chain)
    rows = node.opened.state_rows(node.network.manifest, "money", position, lakes.views["near"].network.host_of)
    return total({name: rows[name][0] for name in rows.names}, "issuance")


def domain_balances(lakes: DomainLakes) -> dict[str, int]:
    """Return the balances of domains in the settled books, by name."""
    node = lakes.nodes["near"]
    rows = node.opened.state_rows(node.network.manifest, "books", 0, lakes.views["near"].network.host_of)
    assert set(rows["what"].tolist()) == {Book.BALANCE}
    words = zip(rows["source"].tolist(), rows["amount_high"].tolist(), rows["amount_low"].tolist(), strict=True)
    return {node.opened.names[chain]: high << 64 | low for chain, high, low in words}


def executed_again(lakes: DomainLakes, *names: str) -> None:
    """Re-execute lakes from their contents, by default both."""
    for name in names or lakes.nodes:
        opened = open_lake(lakes.nodes[name].opened.lake.storage.uri)
        assert LakeRecheck(opened).execute(0, opened.last_height()) is None


def test_calls_and_transfers_go_both_ways(tmp_path: Path) -> None:
    with both(tmp_path, SENDS) as lakes:
        given = domain_balances(lakes)
        lakes.until_idle()
        assert lakes.program("alice")["answered"] == 6
        assert lakes.program("treasury")["answered"] == 2
        assert lakes.program("bob")["answered"] == 5
        assert lakes.program("carol")["answered"] == 3
        for lake, count in (("near", 4), ("far", 5 + 2 + 3)):
            taken = executed_requests(lakes, lake)
            assert len(taken) == len(set(taken)) == count
        refused = {*lakes.refusals("near"), *lakes.refusals("far")}
        assert refused == {"BlocksFollowed", "ReceiptsFollowed"}
        # Delivered value is in the books as issued there, once the last receipts are confirmed.
        for _ in range(5):
            lakes.around()
        found = domain_balances(lakes)
        assert found == {domain: issued(lakes, domain) for domain in ("left", "right", "third")}
        assert found["right"] != given["right"]
        executed_again(lakes)


@pytest.mark.slow
def test_channel_is_opened_and_closed_between_lakes(tmp_path: Path) -> None:
    calls = """
    channels = "initiate"
    [[options.channel_calls]]
    tick = 1
    chain = "left"
    foreign = "right"
    [[options.channel_calls]]
    tick = 34
    chain = "right"
    foreign = "left"
    do = "close"
    """
    with both(tmp_path, {"near": sending("alice", "echo-right", 3)}, options=calls) as lakes:
        lakes.until_idle()
        assert lakes.program("alice")["answered"] == 3
        while lakes.nodes["far"].network.tick < 34:
            lakes.around()
        lakes.until_idle()
        for lake, one, other in (("near", "left", "right"), ("far", "right", "left")):
            (row,) = lakes.views[lake].channels(one, other, None)["channels"]
            assert row["state"] == 2
        assert lakes.refusals("near")["ChannelClosed"] == lakes.refusals("far")["ChannelClosed"] == 1


LATER = """
[[options.channel_calls]]
tick = 22
chain = "left"
foreign = "right"
do = "close"

[[options.channel_calls]]
tick = 33
chain = "right"
foreign = "left"
"""
SLOW = """
[[programs]]
name = "slow-left"
chain = "left"
program = "faulty"
options = {late_every = 1, late_by = 20}
"""


@pytest.mark.slow
def test_answer_waits_for_a_channel_the_other_lake_opens_later(tmp_path: Path) -> None:
    """The plans of the other lake are unknown: answers to its chains are not given up."""
    with both(tmp_path, {"far": sending("bob", "slow-left", amount=70)}, options=LATER, more=SLOW) as lakes:
        for _ in range(100):
            lakes.around()
            if lakes.program("bob")["answered"]:
                break
        assert (lakes.program("bob")["answered"], lakes.program("bob")["rejected"]) == (1, 0)
        assert "NoOpenChannel" not in lakes.refusals("near")
        lakes.until_idle()
        executed_again(lakes)


@pytest.mark.slow
def test_absent_lake_catches_up(tmp_path: Path) -> None:
    """The consensus chain advances without the other lake, and vice versa; then all is delivered."""
    with both(tmp_path, {"near": sending("alice", "echo-right", 2), "far": sending("bob", "echo-left", 2)}) as lakes:
        for _ in range(12):
            lakes.nodes["near"].produce()
        for _ in range(30):
            lakes.nodes["far"].produce()
        lakes.until_idle()
        assert lakes.program("alice")["answered"] == lakes.program("bob")["answered"] == 2
        executed_again(lakes)


@pytest.mark.slow
def test_restarted_process_delivers_nothing_twice(tmp_path: Path) -> None:
    with both(tmp_path, SENDS) as lakes:
        for number in range(100):
            if number % 3 == 0:
                for memory in lakes.memories.values():
                    memory.lanes.clear()
            passed = lakes.around()
            if number > 12 and all(one.state is PassOutcome.IDLE for one in passed):
                break
        lakes.until_idle()
        for lake, count in (("near", 4), ("far", 10)):
            taken = executed_requests(lakes, lake)
            assert len(taken) == len(set(taken)) == count


@pytest.mark.parametrize(
    ("options", "more", "text"),
    [
        ('[[options.allowlist_calls]]\ntick = 0\nchain = "right"\nforeign = "left"', "", "allowlist_calls.0: right"),
        (
            "",
            '[[faults]]\nkind = "drop"\nsource = "left"\ndestination = "right"',
            "right is external: causeway relay --fault says",
        ),
        ("", '[[faults]]\nkind = "halt"\nchain = "right"', "right is external"),
        ("", '[options.validator_keys]\nnone = ["' + 64 * "0" + '"]', 'validator_keys: "none"'),
        ("", '[options.validator_keys]\nleft = ["' + 64 * "0" + '"]', "left: its secret key is not here"),
        ("", '[options.validator_keys]\nleft = ["0"]', "64 hexadecimal digits"),
    ],
)
def test_messages_that_cannot_reach_other_lakes_are_rejected(
    tmp_path: Path, options: str, more: str, text: str
) -> None:
    path = tmp_path / "near.toml"
    path.write_text(scenario_text("near", "", options, more))
    with pytest.raises(InvalidInput, match=text):
        Node(load_scenario(path), str(tmp_path / "near"), BlockPace(0, on_demand=True))


def test_every_lake_names_the_consensus_chain(tmp_path: Path) -> None:
    path = tmp_path / "near.toml"
    path.write_text(scenario_text("near").replace('role = "consensus"', ""))
    with pytest.raises(InvalidInput, match="one consensus chain: name it in every scenario"):
        Node(load_scenario(path), str(tmp_path / "near"), BlockPace(0, on_demand=True))


def test_messages_of_a_following_lake_are_proved_from_it(tmp_path: Path) -> None:
    """Deliver like its relay process, with equal acceptance; remote messages are proved from their lakes."""
    with both(tmp_path, {"far": sending("bob", "echo-left", 2)}) as lakes:
        opened = lakes.nodes["far"].opened
        with pytest.raises(InvalidInput, match="no block of main that is final was carried to this lake"):
            prove_message(opened, "right", "left", nonce=0)
        held = [way for way in lakes.ends.directions if str(way) != "right>left"]
        for _ in range(11):
            for way in held:
                lakes.relay(way)
            lakes.produce()
        # A later block was proved only for this domain.
        lakes.submit("far", "main", encode_transaction(lakes.read_blocks(lakes.views["far"].followed()["best"])))
        lakes.nodes["far"].produce()
        block, right = shown_of(lakes, "right")
        lakes.submit("far", "main", encode_transaction(Confirmed(block, (right,))))
        lakes.nodes["far"].produce()
        known = {one["domain"]: one["block"] for one in lakes.views["far"].followed()["receipts"]}
        assert known["third"] < known["right"] == block
        shown = prove_message(opened, "right", "left", nonce=1)
        under = lakes.views["near"].channels("left", "right", None)["under"]
        assert shown.envelope.proof.consensus_chain_mmr_proof.consensus_block_number <= under["number"]
        for chain in ("main", "left"):
            with pytest.raises(InvalidInput, match=f"chain: another lake runs {chain}: extract proofs of its messages"):
                prove_message(opened, chain, "right", nonce=0)
        with pytest.raises(InvalidInput, match="has no request 2 in channel 0"):
            prove_message(opened, "right", "left", nonce=2)
        first = prove_message(opened, "right", "left", nonce=0)
        both_of_it = tuple(one.envelope.encode() for one in (first, shown))
        lakes.submit("near", "left", encode_transaction(RelayedMessages(both_of_it, (False, False))))
        lakes.nodes["near"].produce()
        assert lakes.views["near"].channels("left", "right", None)["channels"][0]["next_inbox"] == 2
        assert "BadProof" not in lakes.refusals("near")
