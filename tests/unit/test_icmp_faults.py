"""What a scenario says of forks and planned calls, and what it is told where it cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from causeway.model.errors import InvalidInput
from causeway.model.faults import Fault
from causeway.model.frame import empty_frame
from causeway.model.ledger import Event
from causeway.network.network import Network
from causeway.network.scenario import load_scenario
from causeway.protocols.contract import RANGES_SCHEMA, Tick
from tests.unit.icmp_network import Network as Memory

FORK = '[[faults]]\nkind = "fork"\ntick = 3\nuntil = 5\n'
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
    Network(load_scenario(path), str(folder / "lake")).close()


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
        (
            FORK + FORK.replace("3", "6").replace("5", "9"),
            ("tick = 6", "at least 7"),
        ),
        (
            CALL + 'chain = "relay"\ndo = "deregister"\n',
            ("para_calls.0.chain", "left, right"),
        ),
        (CALL + 'chain = "left"\ndo = "block"\n', ("para_calls.0.other", "another one")),
        (
            CALL + 'chain = "left"\ndo = "register"\nother = "right"\n',
            ("para_calls.0.other", "block and unblock"),
        ),
    ],
)
def test_what_cannot_be_is_told(more: str, said: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as error:
        _load(tmp_path, more)
    for part in said:
        assert part in str(error.value)


def test_a_fork_in_a_lake_that_is_cut_and_continued(tmp_path: Path) -> None:
    """The same root whatever the buckets and commits, and all that is said of the fork is in the summary."""
    found = []
    for place, keys in enumerate(({}, {"network.partitions": "3", "network.commit_every": "5"})):
        path = tmp_path / "scenario.toml"
        text = (Path(__file__).parents[2] / "examples" / "generated.toml").read_text()
        path.write_text(text + '\n[[faults]]\nkind = "fork"\ntick = 3\nuntil = 8\nleaves = 3\nkept = 1\n')
        given = {"network.protocol": "icmp", "network.executor": "in_process", "traffic.messages": "800"} | keys
        with Network(load_scenario(path, given), str(tmp_path / str(place))) as net:
            net.run(6)
        with Network(load_scenario(path, given), str(tmp_path / str(place)), resume=True) as net:
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


def _played(*faults: Fault) -> Memory:
    """Three chains, of which each calls the next in every tick; the answers come back."""
    net = Memory({name: {10 * n: "caller", 10 * n + 1: "echo"} for n, name in enumerate("abc", 1)}, faults=faults)
    for tick in range(14):
        for n in (1, 2, 3):
            net.call(10 * n, 10 * (n % 3 + 1) + 1, bytes([tick]))
        net.step()
    net.step(10)
    return net


@pytest.fixture(scope="module")
def honest() -> Memory:
    return _played()


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_malicious_collator_does_is_refused_by_its_name_and_the_honest_goes_on(
    what: str, honest: Memory
) -> None:
    """The roots at the end are those of a network without it, so that nothing else came of it."""
    net = _played(Fault("candidate", 1, None, 4, 10, {"what": what}))
    events = net.surviving(Event.REJECTED)
    assert set(events["reason"].to_pylist()) == {REFUSED[what]}
    assert set(events["source"].tolist()) == {2}
    everything = np.arange(len(net.names), dtype=np.uint32)
    roots = [
        one.kernel.roots(one.state, everything, Tick(one.height, one.tick), empty_frame(RANGES_SCHEMA))["root"]
        for one in (net, honest)
    ]
    assert (roots[0] == roots[1]).all()
