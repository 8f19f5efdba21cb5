"""End of a run: pending work gets its idle limit, and the last tick is independent of partitioning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from causeway.network.network import LakeNetwork
from causeway.protocols.contract import Tick
from causeway.storage.reorgs import network_root
from causeway.tick import bucket
from causeway.tick.deployment import HeightReport, height_line

SCENARIO = """
[network]
protocol = "{protocol}"
executor = "in_process"
partitions = {partitions}
{options}
[[chains]]
count = 4
prefix = "c"
[[programs]]
per_chain = 1
prefix = "p-"
program = "caller"
{faults}
[traffic]
source = "script"
"""
CALL = '[[traffic.send]]\ntick = {}\nto = "{}"\ncall = {{ receiver = "{}", text = "" }}\n'


@pytest.fixture(autouse=True)
def _no_state_kept() -> Iterator[None]:
    bucket._STATES.clear()
    yield
    bucket._STATES.clear()


def run_to_end(
    folder: Path, calls: str, *, protocol: str, partitions: int = 1, options: str = "", faults: str = ""
) -> LakeNetwork:
    """Return the final network of a scenario."""
    folder.mkdir()
    text = SCENARIO.format(protocol=protocol, partitions=partitions, options=options, faults=faults) + calls
    (folder / "scenario.toml").write_text(text)
    net = LakeNetwork.from_scenario(folder / "scenario.toml", lake=str(folder / "lake"))
    net.run()
    return net


def ticks_and_roots(net: LakeNetwork) -> list[tuple[int, str]]:
    manifests = [net.lake.manifest(height) for height in net.lake.heights()]
    return [(manifest.tick, network_root(net.lake, manifest)) for manifest in manifests]


@pytest.mark.parametrize("protocol", ["ic", "ibc", "icmp"])
def test_messages_after_a_long_pause_are_answered(tmp_path: Path, protocol: str) -> None:
    calls = "".join(CALL.format(tick, "p-c0-0", "p-c1-0") for tick in (0, 5000))
    net = run_to_end(tmp_path / "run", calls, protocol=protocol)
    state = net.program_state("p-c0-0")
    assert state["answered"] == 2


@pytest.mark.parametrize("protocol", ["ic", "ibc"])
def test_halted_network_gets_its_idle_limit_after_a_long_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setattr(f"causeway.protocols.{protocol}.kernel.QUIET_TICKS", 20)
    calls = CALL.format(3, "p-c0-0", "p-c1-0") + CALL.format(100, "p-c1-0", "p-c0-0")
    halted = '[[faults]]\nkind = "halt"\nchain = "c1"\nfrom = 2\n'
    net = run_to_end(tmp_path / "run", calls, protocol=protocol, faults=halted)
    # The second call is rejected in its tick, which is progress; the next twenty rounds make none.
    assert net.tick == 120
    assert net.next_tick() is None


RAISES = """
import causeway as cw

class Asks(cw.Program):
    def on_ingress(self, message, context):
        context.call(self.options["asked"], "echo", b"")

    def on_reply(self, reply, context):
        raise ValueError("for ever")
"""


def test_reply_handler_raising_for_ever_does_not_keep_a_run_going(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relayers finally retry it every 64 blocks; a repeated failure is no progress."""
    monkeypatch.setattr("causeway.protocols.ibc.kernel.QUIET_TICKS", 66)
    (tmp_path / "raises_for_ever.py").write_text(RAISES)
    monkeypatch.syspath_prepend(tmp_path)
    asks = '[[programs]]\nname = "asks"\nchain = "c0"\nprogram = "raises_for_ever:Asks"\noptions = { asked = 1 }\n'
    send = '[[traffic.send]]\ntick = 0\nto = "asks"\nmethod = "any"\ntext = ""\n'
    net = run_to_end(tmp_path / "run", send, protocol="ibc", options="ticks = 150", faults=asks)
    assert net.next_tick() is None
    assert net.tick < 80


def test_packets_waiting_for_a_batch_get_their_idle_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causeway.protocols.ibc.kernel.QUIET_TICKS", 10)
    waits = "[options.relay]\nmin_batch = 5\nmax_wait = 30"
    net = run_to_end(tmp_path / "run", CALL.format(0, "p-c0-0", "p-c1-0"), protocol="ibc", options=waits)
    assert net.program_state("p-c0-0")["answered"] == 1


def test_idle_bucket_continues_while_another_progresses() -> None:
    waiting, moving, done = (
        HeightReport(41, None, 30, {}),
        HeightReport(None, None, 30, {"events": 1}),
        HeightReport(None, None, 30, {}),
    )
    assert height_line(Tick(9, 40, None, 11), [waiting, moving]).wake == 41
    assert height_line(Tick(9, 40, None, 11), [waiting, moving]).quiet_since == 41
    assert height_line(Tick(9, 40, None, 11), [waiting, done]).wake is None
    assert height_line(Tick(9, 40, 77, 11), [waiting, done]).wake == 41, "something is to come"
    assert height_line(Tick(9, 29, None, 11), [waiting, done]).wake == 41, "too early to give up"


def test_zone_pruning_is_independent_of_bucket_neighbours(tmp_path: Path) -> None:
    cut_off = "".join(f'[[faults]]\nkind = "drop"\n{end} = "c0"\nfrom = 6\n' for end in ("source", "destination"))
    calls = "".join(CALL.format(tick, "p-c0-0", "p-c1-0") for tick in range(6))
    calls += "".join(CALL.format(tick, "p-c2-0", "p-c3-0") for tick in range(0, 26, 5))
    asked = {"protocol": "ibc", "options": "ticks = 28\n[options]\nunbonding_seconds = 9.0", "faults": cut_off}
    together, apart = (run_to_end(tmp_path / str(cut), calls, partitions=cut, **asked) for cut in (1, 4))
    assert together.tick > 20
    assert ticks_and_roots(together) == ticks_and_roots(apart)


def test_delay_longer_than_the_idle_limit_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causeway.protocols.ibc.kernel.QUIET_TICKS", 5)
    options = "[options]\ndelay_seconds = 12.0"
    net = run_to_end(tmp_path / "run", CALL.format(0, "p-c0-0", "p-c1-0"), protocol="ibc", options=options)
    assert net.program_state("p-c0-0")["answered"] == 1
    assert net.tick == 26, "two headers, each a tick after what it shows, and their delays"


@pytest.mark.slow
def test_partitioning_and_pauses_change_nothing_with_a_delay(tmp_path: Path) -> None:
    """Relayers prove and deliver old sends, pops and answers from any storage and any process."""
    calls = "".join(CALL.format(tick, f"p-c{tick % 3}-0", f"p-c{tick % 2 + 2}-0") for tick in range(9))
    replay = '[[faults]]\nkind = "replay"\ntick = 0\nuntil = 60\n'
    faults = replay + '[[faults]]\nkind = "drop"\nsource = "c2"\nfrom = 4\nuntil = 9\n'
    options = (
        "[options]\ndelay_seconds = 3.0\nunbonding_seconds = 20.0\ntimeouts = 'on'\ntimeout_blocks = 9\ncleanup = 'on'"
    )
    asked = {"protocol": "ibc", "options": options, "faults": faults}
    together, apart = (run_to_end(tmp_path / str(cut), calls, partitions=cut, **asked) for cut in (1, 4))
    assert together.program_state("p-c0-0")["answered"] > 0
    assert ticks_and_roots(together) == ticks_and_roots(apart)
    (tmp_path / "pauses").mkdir()
    path, lake = tmp_path / "pauses" / "scenario.toml", str(tmp_path / "pauses" / "lake")
    path.write_text((tmp_path / "4" / "scenario.toml").read_text())
    for stop in (5, 8, None):
        bucket._STATES.clear()
        with LakeNetwork.from_scenario(path, lake=lake, resume=stop != 5) as net:
            net.run(stop)
            found = ticks_and_roots(net)
    assert found == ticks_and_roots(together)
