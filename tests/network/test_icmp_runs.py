"""Networks of parachains run end to end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from causeway.config.faults import FaultRule, Faults
from causeway.core.frame import Frame
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.network.run_records import carrier_summary
from causeway.protocols.icmp.forks import RelayInterference
from causeway.proving.icmp.messages import relay_leaves
from causeway.scenarios.scenario import load_scenario
from tests.support.common.command_line import Run, command_line
from tests.support.icmp.icmp_lake import make_lake

EXAMPLES = Path(__file__).parents[2] / "examples"


def _run(folder: Path, **given: str) -> tuple[str, dict[str, object]]:
    keys = {"network.protocol": "icmp", "network.executor": "in_process", **given}
    with LakeNetwork(load_scenario(EXAMPLES / "generated.toml", keys), str(folder)) as net:
        net.run()
        return net.root(), net.summary()


def test_all_calls_are_answered_and_the_root_is_independent_of_buckets(tmp_path: Path) -> None:
    whole, counts = _run(tmp_path / "one")
    cut, _ = _run(tmp_path / "four", **{"network.partitions": "4"})
    assert counts["sent"] == counts["answered"] == 20_000
    assert counts["duplicates"] == counts["out_of_order"] == 0
    assert cut == whole


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch)


def test_run_reports_recipients_of_pending_queues(cli: Run) -> None:
    run = ("run", EXAMPLES / "parachains.toml", "--lake", "lake", "--executor", "in_process", "--json")
    code, out, _ = cli(*run, "--ticks", 20)
    found = json.loads(out)
    assert (code, found["protocol"], found["relay_blocks"]) == (0, "icmp", 20)
    assert found["waiting_queues"] == {"market": 2, "archive": 3}
    assert found["pending"] + found["delivered"] == 13, "those of the queues, and those that wait for them"
    code, out, _ = cli(*run, "--resume")
    found = json.loads(out)
    assert (code, found["holds"], found["pending"], found["waiting_queues"]) == (0, True, 0, {})
    assert (found["sent"], found["answered"], found["rejected"]) == (37, 36, 1)


@pytest.mark.parametrize("channels", ["egress", "hrmp"])
def test_run_counts_ingress_pending_for_a_halted_parachain(tmp_path: Path, channels: str) -> None:
    halt = '[{kind = "halt", chain = "archive", from = 0, until = 40}]'
    send = '[{tick = 2, to = "vault", method = "a", count = 3}, {tick = 3, to = "shop", method = "b"}]'
    keys = {"faults": halt, "traffic": f'{{source = "script", send = {send}}}', "options.channels": f'"{channels}"'}
    keys |= {"network.executor": '"in_process"'}
    with LakeNetwork.from_scenario(EXAMPLES / "parachains.toml", keys) as net:
        net.run(12)
        found = carrier_summary(net.lake, net.manifest)
    assert found.content["ingress_waiting"] == 3
    assert "Messages from users that wait for the next block: 3 for archive." in found.lines


@pytest.mark.parametrize("channels", ["egress", "hrmp"])
def test_run_counts_ingress_for_a_permanently_halted_parachain(cli: Run, channels: str) -> None:
    """Pending and later messages of the halt count as rejected, and the run ends.

    A message that waits for the end of a finite halt is handled.
    """
    halts = '{kind = "halt", chain = "archive", from = 2, until = 5}, {kind = "halt", chain = "archive", from = 6}'
    halts += ', {kind = "halt", chain = "market", from = 2, until = 9}'
    send = '{tick = 3, to = "vault", method = "a", count = 2}, {tick = 8, to = "vault", method = "b", count = 3}'
    send += ', {tick = 3, to = "shop", method = "c"}'
    traffic = f'{{source = "script", send = [{send}]}}'
    keys = {"faults": f"[{halts}]", "traffic": traffic, "options.channels": f'"{channels}"'}
    settings = [text for key, value in keys.items() for text in ("--set", f"{key}={value}")]
    run = ("run", EXAMPLES / "parachains.toml", "--lake", "lake", *settings, "--executor", "in_process", "--json")
    code, out, _ = cli(*run)
    found = json.loads(out)
    assert (code, found["holds"], found["finished"], found["pending"]) == (0, True, True, 0)
    # Under ic and ibc "ingress_refused" counts messages to a halted chain; pending ones are in no other count.
    assert (found["ingress_refused"], found["ingress_waiting"]) == (5, 0) and found["ticks"] < 20


def test_run_ending_in_a_fork_reports_the_best_leaf(cli: Run, tmp_path: Path) -> None:
    """Elder leaves and entries listed only by other leaves are not counted."""
    fork = '[[faults]]\nkind = "fork"\ntick = 6\nuntil = 25\nelder = [0]\nfollowers = { bank = 0, market = 1 }\n'
    text = (EXAMPLES / "parachains.toml").read_text() + fork
    (tmp_path / "forked.toml").write_text(text)
    run = ("run", tmp_path / "forked.toml", "--lake", "forked", "--executor", "in_process", "--ticks", 20)
    code, out, _ = cli(*run, "--json")
    leaves = relay_leaves(open_lake("forked"))
    assert [one.number for one in leaves] == [7, 20] and code == 0
    elder, listed = (one.leaf.unrouted["to"].tolist() for one in leaves)
    assert elder != listed
    found = json.loads(out)
    assert (found["relay_blocks"], sum(found["waiting_queues"].values())) == (20, len(listed))
    code, out, _ = cli(*run, "--resume")
    assert f"This is the best of 2 leaves, block {leaves[1].leaf.hash.hex()}." in " ".join(out.split())


DROP = """
[[faults]]
kind = "drop"
source = "left"
destination = "right"
until = 11
"""


def test_one_missing_body_delays_its_whole_relay_block(tmp_path: Path) -> None:
    """Block 2 posts queues of ``left`` (1) and ``far`` (3) to ``right`` (2); the available second one waits too."""
    opened = open_lake(make_lake(tmp_path, faults=DROP))

    def waiting(height: int) -> set[tuple[int, int]]:
        (relay,) = relay_leaves(opened, height)
        listed = relay.leaf.unrouted.filter(relay.leaf.unrouted["to"] == 2)
        return {*zip(listed["number"].tolist(), listed["source"].tolist(), strict=True)}

    assert {(2, 1), (2, 3), (4, 1)} <= waiting(12)
    assert not {number for number, _ in waiting(16)} & {2, 4}
    assert waiting(opened.last_height()) == set()


def test_fetched_bodies_equal_the_definition_after_many_ticks() -> None:
    """Skip 49 of 50 bodies in each tick, with some drops; a queue waits for 300 ticks."""
    row = np.arange(20)
    columns = {"to": row % 2 + 1, "source": row // 2 % 2 * 2 + 3, "tick": row * 13 % 200}
    listed = Frame({name: column.astype(np.uint32) for name, column in columns.items()}, len(row))
    faults = Faults.of(FaultRule("drop", 3, 1, 10, 150), FaultRule("drop", None, 2, 90, 120), skip=0.98)
    interference = RelayInterference(faults, np.arange(8, dtype=np.uint64), seed=9)

    def free(tick: int) -> npt.NDArray[np.bool_]:
        dropped = (listed["to"] == 1) & (listed["source"] == 3) & (10 <= tick <= 150)
        dropped |= (listed["to"] == 2) & (90 <= tick <= 120)
        found: npt.NDArray[np.bool_] = (listed["tick"] < tick) & ~dropped
        return found & ~interference.skipped(listed["to"], listed["source"], tick)

    came = np.zeros(len(listed), dtype=bool)
    for tick in range(1, 300):
        came |= free(tick)
        if tick % 7 == 0:
            assert (interference.fetched(listed, tick) == came).all(), tick
    assert came.sum() > 15


def test_fetched_body_stays_fetched() -> None:
    """Skip nine of ten bodies in each tick; a later drop delays only bodies not yet fetched."""
    senders = np.arange(2, 8, dtype=np.uint32)
    to, posted = np.ones(6, dtype=np.uint32), np.full(6, 3, dtype=np.uint64)
    listed = Frame({"to": to, "source": senders, "tick": posted}, 6)
    drop = FaultRule("drop", None, 1, 10, 25)
    interference = RelayInterference(Faults.of(drop, skip=0.9), np.arange(8, dtype=np.uint64), seed=4)
    came = np.array([interference.fetched(listed, tick) for tick in range(3, 120)])
    assert not came[0].any(), "in the tick of the relay block itself"
    assert (came[1:] >= came[:-1]).all()
    counts = came.sum(axis=1).tolist()
    assert 0 < counts[10 - 3] == counts[25 - 3] < counts[26 + 20] and counts[-1] == 6
