"""Faulty parties between subnets: scenario options and faults by tick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.config.faults import Faults
from causeway.config.topology import Topology
from causeway.protocols.ic.faults import (
    CAPACITY,
    BatchQueue,
    Carriers,
    Ignored,
    QueueIsFull,
    check_faults,
    delivered_batches,
    find_faulty_nodes,
    find_share_faults,
    malicious_block_makers,
)
from causeway.protocols.ic.options import IcOptions
from causeway.scenarios.scenario import load_scenario

NETWORK = """
[[chains]]
name = "left"
[[chains]]
name = "right"
nodes = 7
[[nodes]]
tick = 5
chain = "right"
add = 1
"""
MAKER = '[[faults]]\nkind = "block_maker"\nchain = "right"\ntick = 3\nuntil = 4\ndoes = "{}"\n'
NODE = '[[faults]]\nkind = "node"\nchain = "right"\nnodes = [{}]\ndoes = "{}"\n'
BATCH = '[[faults]]\nkind = "batch"\nchain = "left"\ntick = 3\ndoes = "{}"\n'
ALTER = '[[faults]]\nkind = "alter"\nsource = "left"\ntick = 3\npart = "{}"\n'
ALICE = '[[programs]]\nname = "alice"\nchain = "left"\nprogram = "caller"\n'


def load_faults(folder: Path, text: str) -> tuple[Faults, Topology]:
    file = folder / "faults.toml"
    file.write_text(NETWORK + text)
    scenario = load_scenario(file)
    topology = scenario.topology(scenario.traffic())
    return scenario.faults(topology), topology


def test_faulty_nodes_by_tick(tmp_path: Path) -> None:
    nodes = NODE.format("3, 1", "false_share") + "until = 6\n" + NODE.format("2", "no_share") + "from = 4\n"
    nodes += NODE.format("2, 5", "down")
    faults, _ = load_faults(tmp_path, MAKER.format("gap") + MAKER.format("foreign") + nodes)
    assert [malicious_block_makers(faults, tick) for tick in (2, 3, 4, 5)] == [{}, *[{1: ["gap", "foreign"]}] * 2, {}]
    signing = {tick: find_share_faults(faults, tick) for tick in (3, 4, 7)}
    assert {tick: found.false for tick, found in signing.items()} == {
        3: {(1, 1), (1, 3)},
        4: {(1, 1), (1, 3)},
        7: set(),
    }
    assert {tick: found.silent for tick, found in signing.items()} == {3: set(), 4: {(1, 2)}, 7: {(1, 2)}}
    assert find_faulty_nodes(faults, 9, "down", "lying") == {(1, 2), (1, 5)}


def test_nodes_never_wake_a_network(tmp_path: Path) -> None:
    faults, _ = load_faults(tmp_path, NODE.format("2", "down") + NODE.format("1", "lying") + "until = 50\n")
    carriers = Carriers(faults, np.array([0, 1], dtype=np.uint64), 0)
    assert carriers.next_planned(0) is None, "a network with a node that is down would never be at rest"
    assert carriers.last_change == 50
    acting, _ = load_faults(tmp_path, ALTER.format("header") + BATCH.format("ahead"))
    assert Carriers(acting, np.array([0, 1], dtype=np.uint64), 0).next_planned(0) == 3


def test_delivered_batches(tmp_path: Path) -> None:
    faults, _ = load_faults(tmp_path, BATCH.format("again") + BATCH.format("ahead") + BATCH.format("again"))
    assert delivered_batches(faults, 3, 8, 0) == [9, 8, 8, 8]
    assert delivered_batches(faults, 3, 8, 1) == delivered_batches(faults, 4, 8, 0) == [8]


BLS, OFF = IcOptions(certification="bls", payload_bytes=1), IcOptions(certification="off")
THRESHOLD = IcOptions(certification="threshold")


@pytest.mark.parametrize(
    ("text", "options", "line"),
    [
        (ALTER.format("sibling"), OFF, "faults[0]: alter of sibling: nobody would see it with certification"),
        (
            f"{ALICE}{ALTER.format('header')}substream = 'alice'\n",
            BLS,
            'faults[0]: alter of header: substream: streams have no substreams with substreams = "flat"; allowed: per_',
        ),
        (MAKER.format("reorder"), OFF, "faults[0]: block_maker of reorder: nobody would see it"),
        (MAKER.format("oversized"), THRESHOLD, "faults[0]: block_maker of oversized: payloads have no limit of size"),
        (NODE.format("1", "no_share"), BLS, "faults[0]: node of no_share: nodes give no shares; allowed with cert"),
        (NODE.format("6, 8", "down"), BLS, "faults[0]: node of down: the subnet has no node 8; its nodes have the"),
    ],
)
def test_ineffective_faults_are_rejected(tmp_path: Path, text: str, options: IcOptions, line: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        check_faults(*load_faults(tmp_path, text), options)
    assert str(raised.value).startswith(line)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (ALTER.format("sibling") + MAKER.format("reorder") + MAKER.format("oversized"), BLS),
        (f"{ALICE}{ALTER.format('header')}substream = 'alice'\n", IcOptions(substreams="per_source")),
        (BATCH.format("again") + NODE.format("7", "stale"), OFF),
        (NODE.format("0", "false_share"), THRESHOLD),
    ],
)
def test_effective_faults_are_accepted(tmp_path: Path, text: str, options: IcOptions) -> None:
    check_faults(*load_faults(tmp_path, text), options)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ALTER.format("certificate"), "faults[0].part: \"certificate\": must be 'payload', 'sibling', 'signature',"),
        (ALTER.format("header").replace("left", "lft"), 'faults[0].source: "lft": no such chain; did you mean left?'),
        (f"{ALTER.format('header')}substream = 'alice'\n", 'faults[0].substream: "alice": no such program'),
        (MAKER.format("lie"), "faults[0].does: \"lie\": must be 'gap', 'replay', 'reorder', 'foreign', 'oversized',"),
        (MAKER.format("gap").replace("4", "2"), "faults[0]: until = 2 must not be below tick = 3"),
        (NODE.format("", "down"), "faults[0].nodes: []: "),
        (NODE.format("-1", "down"), "faults[0].nodes[0]: -1: must be greater than or equal to 0"),
        (NODE.format("1", "down") + "until = 1\nfrom = 2\n", "faults[0]: until = 1 must not be below from = 2"),
        (BATCH.format("late"), "faults[0].does: \"late\": must be 'again' or 'ahead'"),
        ('[[faults]]\nkind = "batch"\nchain = "left"\ndoes = "again"\n', "faults[0].tick: missing"),
    ],
)
def test_fault_error_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        load_faults(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path / 'faults.toml'}: {line}")


# ---- batches


def test_out_of_sequence_batch_is_ignored() -> None:
    queue = BatchQueue(latest_state=7)
    for number in (7, 9, 0, 2**64):
        with pytest.raises(Ignored) as raised:
            queue.deliver(number)
        assert (raised.value.expected, raised.value.actual, raised.value.name) == (8, number, "Ignored")
    queue.deliver(8)
    with pytest.raises(Ignored, match="batch 8, expected 9"):
        queue.deliver(8)
    queue.deliver(9)
    assert queue.waiting == [8, 9]
    assert (queue.executed(), queue.executed()) == (8, 9)
    assert (queue.expected, queue.latest_state) == (10, 9)


def test_full_queue_takes_no_batch() -> None:
    queue = BatchQueue(latest_state=0)
    for number in range(1, CAPACITY + 1):
        queue.deliver(number)
    with pytest.raises(QueueIsFull):
        queue.deliver(CAPACITY + 1)
    assert queue.expected == CAPACITY + 1
    queue.executed()
    queue.deliver(CAPACITY + 1)


def test_state_from_other_sources_advances_the_expected_batch(tmp_path: Path) -> None:
    queue = BatchQueue(latest_state=3, last_delivered=2)
    assert queue.expected == 4, "1 + max(last delivered, latest state)"
    found: Any = BatchQueue(latest_state=3, last_delivered=5).expected
    assert found == 6
