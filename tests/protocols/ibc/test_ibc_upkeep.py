"""Runs with long idle periods between zones: clients stay fresh, and every run ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput
from pydantic import ValidationError

from causeway.core.vocabulary import Kind
from causeway.network.network import LakeNetwork
from causeway.protocols.ibc.keys import KeyPart, QueueKey, QueuePurpose
from causeway.protocols.ibc.options import IbcOptions
from causeway.service.ibc.summary import relayers
from causeway.tick import bucket
from tests.support.ibc.ibc_calls import A, B, Net
from tests.support.ibc.ibc_network import Network as Zones

SCENARIO = """
[network]
protocol = "ibc"
executor = "in_process"
seconds_per_tick = {seconds}

[options]
{options}
[[chains]]
name = "north"
[[chains]]
name = "east"
[[chains]]
name = "south"
[[programs]]
name = "caller"
chain = "north"
program = "caller"
[[programs]]
name = "echo"
chain = "east"
program = "echo"
[[programs]]
name = "other"
chain = "south"
program = "echo"
{faults}
[traffic]
source = "script"
"""


@pytest.fixture(autouse=True)
def _no_state_kept() -> Iterator[None]:
    bucket._STATES.clear()
    yield
    bucket._STATES.clear()


def open_network(
    folder: Path, sends: list[tuple[int, str]], seconds: float = 86_400.0, options: str = "", faults: str = ""
) -> LakeNetwork:
    text = SCENARIO.format(seconds=seconds, options=options, faults=faults)
    for tick, receiver in sends:
        call = f'{{ receiver = "{receiver}", method = "echo", text = "x" }}'
        text += f'[[traffic.send]]\ntick = {tick}\nto = "caller"\ncall = {call}\n'
    folder.mkdir(exist_ok=True)
    path = folder / "scenario.toml"
    path.write_text(text)
    return LakeNetwork.from_scenario(path, lake=str(folder / "lake"))


def ticks_of(net: LakeNetwork) -> list[int]:
    found: list[int] = []
    net.run(progress=lambda manifest: found.extend(line.tick for line in manifest.lines))
    return found


def has_pending_packets(net: LakeNetwork) -> bool:
    """Return whether a packet waits for its receipt."""
    queues = [row for table in net.lake.state(net.manifest, "queues") for row in table.to_pylist()]
    return any(row["next_index"] > row["begin"] for row in queues if row["substream"] == 1)


@pytest.mark.parametrize("first", [0, 6, 7, 8, 100])
def test_clients_are_refreshed_while_days_are_skipped(tmp_path: Path, first: int) -> None:
    net = open_network(tmp_path, [(first, "echo"), (first + 70, "other"), (first + 71, "echo"), (first + 200, "echo")])
    ticks = ticks_of(net)
    assert net.program_state("caller")["answered"] == 4
    assert not has_pending_packets(net) and ticks[-1] - first - 200 < 5, "it ends where nothing is left"
    gaps = [after - before for before, after in zip([-1, *ticks], ticks, strict=False)]
    assert max(gaps) == 7 and len(ticks) < 60
    (relayer,) = relayers(net.lake, net.manifest, ["relayer"])
    assert relayer["refused"] == relayer["wasted"] == 0


def test_ticks_longer_than_a_third_of_the_period_are_not_skipped(tmp_path: Path) -> None:
    net = open_network(tmp_path, [(5, "echo"), (9, "echo")], seconds=10.0, options="unbonding_seconds = 20.5")
    assert ticks_of(net)[:9] == list(range(9))
    assert net.program_state("caller")["answered"] == 2
    with pytest.raises(InvalidInput, match=r"options.unbonding_seconds: 20.0; allowed: more than two ticks, here 20.0"):
        open_network(tmp_path / "short", [(5, "echo")], seconds=10.0, options="unbonding_seconds = 20.0")


@pytest.mark.parametrize(("coordination", "shares"), [("none", (6, 6)), ("leader", (6,)), ("partition", (4, 2))])
def test_relayers_share_client_refreshes(coordination: str, shares: tuple[int, ...]) -> None:
    options = {"unbonding_seconds": 9.0, "relayers": ("one", "two"), "relay": {"coordination": coordination}}
    net = Net(options).next(3)
    assert net.state.relayers["headers"].sum() == sum(shares)
    of_relayer = dict.fromkeys(range(2), 0)
    for number, headers in zip(
        net.state.relayers["relayer"].tolist(), net.state.relayers["headers"].tolist(), strict=True
    ):
        of_relayer[number] += headers
    assert tuple(count for count in of_relayer.values() if count) == shares
    assert net.refusals() == []
    before = net.state.trust["time"].max()
    net.next()
    assert net.state.trust["time"].max() == before, "they are fresh for a third of the period"
    net.next(10).ask().next(3)
    assert len(net.seen(B)) == len(net.seen(A)) == 1


def test_unconnected_zones_have_no_clients_to_refresh() -> None:
    net = Zones({"A": {0: "caller"}, "B": {1: "echo"}}, options={"connections": [], "unbonding_seconds": 3.0})
    net.block(6)
    assert len(net.state.trust) == 0 and net.refusals() == []


DROP = '[[faults]]\nkind = "drop"\nsource = "north"\ndestination = "east"\nfrom = 0\n'


def test_run_waits_for_a_late_time_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causeway.protocols.ibc.kernel.QUIET_TICKS", 5)
    limits = 'timeouts = "on"\ntimeout_blocks = 30\n'
    net = open_network(tmp_path, [(0, "echo")], seconds=1.0, options=limits, faults=DROP)
    assert ticks_of(net)[-1] > 30
    assert not has_pending_packets(net) and net.program_state("caller")["rejected"] == 1


def test_run_with_only_permanent_rejections_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causeway.protocols.ibc.kernel.QUIET_TICKS", 5)
    # Headers to a client that expired without relayers are in vain.
    drop = DROP + "until = 20\n"
    net = open_network(tmp_path, [(0, "echo")], seconds=1.0, options="unbonding_seconds = 9.0", faults=drop)
    ticks = ticks_of(net)
    assert has_pending_packets(net) and 20 < ticks[-1] < 40
    assert net.program_state("caller")["answered"] == 0


@pytest.mark.parametrize(
    ("relay", "why"),
    [
        ({"proofs_per_header": 5}, "a header serves a whole block, which relay.max_packets bounds"),
        ({"header_fee": 2**32 + 1}, "less than or equal to 4294967296"),
    ],
)
def test_useless_or_excessive_relayer_options_are_rejected(relay: dict[str, int], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        IbcOptions.model_validate({"relay": relay})


def test_maximum_fees_can_be_paid() -> None:
    net = Net({"relay": {"header_fee": 2**32, "proof_fee": 2**32}}).ask().next(3)
    assert sorted(net.state.relayers["fees"].tolist()) == [2**33, 2**33]


def test_header_retention_is_bounded_and_proofs_use_retained_headers() -> None:
    net = Net({"trusted_headers": 3}, blocks=20)
    for _ in range(8):
        net.ask().next()
    trust = net.state.trust
    b_of_a = (trust["chain"] == 1) & (trust["counterparty"] == 0)
    assert trust["height"][b_of_a].tolist() == [5, 6, 7]
    assert net.bring("B", net.packet(7, height=7)) == ["OutOfOrder"]
    assert net.next(3).queue("A", "B", QueuePurpose.SEND) == (8, 8)
    tail = QueueKey("A", QueuePurpose.RECEIPT, KeyPart.TAIL).encode()
    assert net.bring("A", net.proof("receipt", "B", tail, height=2)) == ["MissingHeader"]
    assert net.bring("A", net.proof("receipt", "B", tail, height=9)) == ["OnlyMessageProofs"]


def test_headers_within_their_delay_are_not_evicted_by_newer_ones() -> None:
    net = Net({"trusted_headers": 2, "delay_seconds": 4.0}, blocks=30)
    for _ in range(8):
        net.ask().next()
    trust = net.state.trust
    b_of_a = (trust["chain"] == 1) & (trust["counterparty"] == 0)
    waiting = trust["added_time"][b_of_a] + np.uint64(4 * 10**9) > np.uint64(8 * 10**9)
    assert np.count_nonzero(waiting) > 2 >= np.count_nonzero(~waiting)
    assert net.next(20).queue("A", "B", QueuePurpose.SEND) == (8, 8)


def test_no_packet_is_sent_to_a_zone_with_an_expired_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causeway.protocols.ibc.kernel.QUIET_TICKS", 5)
    drop = DROP.replace('source = "north"\ndestination = "east"', 'source = "east"\ndestination = "north"')
    sends = [(0, "echo"), (20, "echo"), (20, "other")]
    net = open_network(tmp_path, sends, seconds=1.0, options="unbonding_seconds = 9.0", faults=drop)
    net.run()
    events = [row for path in net.lake.log_files("events") for row in net.lake.storage.read_table(path).to_pylist()]
    refused = [row["tick"] for row in events if row["reason"] == "ClientExpired" and row["kind"] == Kind.REQUEST]
    assert refused == [20], "the first was sent while the client was fresh, the third to another zone"
    caller = net.program_state("caller")
    assert (caller["answered"], caller["rejected"]) == (1, 1)


def test_delay_options() -> None:
    zones: Any = {"A": {0: "echo"}, "B": {}}
    Zones(zones, options={"delay_seconds": 3.0, "unbonding_seconds": 5.5})
    with pytest.raises(InvalidInput, match="more than two ticks and delay_seconds, here 5"):
        Zones(zones, options={"delay_seconds": 2.5, "unbonding_seconds": 5.0})
    wrongs: list[Any] = [-1, 1e10, "soon", float("nan")]
    for wrong in wrongs:
        with pytest.raises(ValidationError, match="delay_seconds"):
            IbcOptions(delay_seconds=wrong)


@pytest.mark.parametrize("coordination", ["none", "leader", "partition"])
def test_relayers_share_the_headers_delivered_ahead(coordination: str) -> None:
    options = {"delay_seconds": 2.0, "relayers": ("one", "two"), "relay": {"coordination": coordination}}
    net = Net(options, blocks=20).ask().next(12)
    assert len(net.seen(0)) == 1
    headers = {number: net.counts[number, "headers"] for number in (0, 1)}
    assert headers == {"none": {0: 2, 1: 2}, "leader": {0: 2, 1: 0}, "partition": {0: 1, 1: 1}}[coordination]


def test_relayer_knowledge_is_retained_for_headers_within_the_delay() -> None:
    """Retain it over any number of delivering blocks, and nothing without a delay."""
    for delay, most in ((0.0, 0), (3.0, 4)):
        net = Net({"delay_seconds": delay}, blocks=40)
        for _ in range(30):
            net.ask().next()
            known = net.state.known_queues
            assert len(np.unique(known["height"][known["destination"] == 1])) <= most
        assert len(net.seen(0)) > 15
    assert most == len(np.unique(known["height"][known["destination"] == 1]))
