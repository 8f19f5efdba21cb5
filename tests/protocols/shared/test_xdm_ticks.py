"""32-bit block numbers: plans beyond them are rejected, and longer waits end the run with one error."""

from __future__ import annotations

from pathlib import Path

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.network.run_records import carrier_summary
from causeway.protocols.shared.limits import LAST_NUMBER, LAST_TICK, MOST_BLOCKS
from tests.support.xdm.xdm_network import Network as Kernels

SCENARIO = """
[network]
protocol = "xdm"
executor = "in_process"
[options]
archiving_depth = 2
{options}
[[chains]]
name = "left"
[[chains]]
name = "right"
[[programs]]
name = "asks"
chain = "left"
program = "caller"
[[programs]]
name = "answers"
chain = "right"
program = "echo"
{more}
[traffic]
source = "script"
[[traffic.send]]
tick = {tick}
to = "asks"
call = {{ receiver = "answers", hex = "01" }}
count = {count}
"""

HALT = '[[faults]]\nkind = "halt"\nchain = "left"\n'
BEYOND = LAST_TICK + 1


def network(
    folder: Path, *, options: str = "challenge_period = 3", more: str = "", tick: int = 0, count: int = 1
) -> LakeNetwork:
    path = folder / "scenario.toml"
    path.write_text(SCENARIO.format(options=options, more=more, tick=tick, count=count))
    return LakeNetwork.from_scenario(path, lake=str(folder / "lake"))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"options": f"challenge_period = {MOST_BLOCKS + 1}"}, rf"options\.challenge_period.* {MOST_BLOCKS}"),
        ({"options": "challenge_period = 2147483648"}, r"options\.challenge_period: 2147483648"),
        ({"options": f"resubmit_after = {MOST_BLOCKS + 1}"}, r"options\.resubmit_after"),
        ({"options": "challenge_period = 3\nmmr_roots = 1048577"}, r"options\.mmr_roots: 1048577"),
        (
            {"options": f'channel_calls = [{{ tick = {BEYOND}, chain = "left", foreign = "right" }}]'},
            rf"options\.channel_calls.*tick.*{BEYOND}.*{LAST_TICK}",
        ),
        ({"more": f'[[faults]]\nkind = "reorg"\ntick = {2**62}\ndepth = 1\n'}, rf"faults.*tick.*{2**62}.*{LAST_TICK}"),
        ({"more": f'[[faults]]\nkind = "fraud"\nchain = "left"\ntick = {BEYOND}\n'}, rf"faults.*tick.*{LAST_TICK}"),
        ({"more": f"{HALT}from = {BEYOND}\n"}, rf'kind = "halt": from = {BEYOND}: allowed: .* {LAST_TICK}'),
        ({"more": f"{HALT}until = {2**40}\n"}, rf'kind = "halt": until = {2**40}: allowed: .* {LAST_TICK}'),
        ({"tick": 2**32 - 6}, rf"traffic\.send\[0\]\.tick = {2**32 - 6}: allowed .* {LAST_TICK}"),
    ],
)
def test_plans_beyond_the_number_range_are_rejected(tmp_path: Path, given: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as caught:
        network(tmp_path, **given)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value).strip()
    assert not (tmp_path / "lake" / "lake.json").exists()


def test_last_allowed_ticks(tmp_path: Path) -> None:
    """Include a fault without an end."""
    drop = f'[[faults]]\nkind = "drop"\nsource = "left"\nfrom = {LAST_TICK}\n'
    more = f"{HALT}from = {LAST_TICK}\nuntil = {LAST_TICK}\n{drop}"
    with network(tmp_path, tick=LAST_TICK - 40, more=more) as net:
        net.run(ticks=LAST_TICK)
        assert net.summary()["answered"] == 1


def test_blocks_beyond_the_number_range_are_not_made(tmp_path: Path) -> None:
    """Each of six calls waits for the previous answer, under the longest allowed period."""
    options = f"challenge_period = {MOST_BLOCKS}\nmax_outgoing_messages = 1"
    with network(tmp_path, options=options, tick=LAST_TICK, count=6) as net:
        with pytest.raises(InvalidInput, match=rf"tick \d+: its blocks .* at most {LAST_NUMBER}$"):
            net.run()
        assert 0 < net.tick < LAST_NUMBER
    assert open_lake(str(tmp_path / "lake")).last_height() == net.height


def test_last_block_number() -> None:
    net = Kernels({"consensus": {}, "a": {11: "caller"}})
    net.sleep(LAST_NUMBER - 1)
    assert net.headers["number"].tolist() == [LAST_NUMBER] * 2
    with pytest.raises(InvalidInput, match=f"tick {LAST_NUMBER}"):
        net.block()


@pytest.mark.parametrize(
    "fault",
    [
        'kind = "halt"\nchain = "right"',
        'kind = "drop"\nsource = "left"',
        'kind = "delay"\nsource = "left"\nblocks = 60\n[[faults]]\nkind = "tamper"\nsource = "left"',
    ],
    ids=["halted", "dropped", "delayed and altered"],
)
def test_run_ends_despite_endlessly_reproved_messages(tmp_path: Path, fault: str) -> None:
    options = "challenge_period = 3\nresubmit_after = 100"
    with network(tmp_path, options=options, more=f"[[faults]]\n{fault}\n") as net:
        net.run(3_000)
        assert net.next_tick() is None and 1_000 < net.tick < 1_300
        assert (net.summary()["sent"], net.summary()["in_flight"]) == (1, 1)
        assert carrier_summary(net.lake, net.manifest).content["proved_again"] > 5
