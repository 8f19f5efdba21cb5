"""Roots of the scenarios in examples/ and of recorded packets: constant across code changes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from causeway.analysis.run_summary import summarize_run
from causeway.audit.verdict import Verdict
from causeway.network.network import LakeNetwork
from causeway.storage.reorgs import network_root
from tests.recordings import Recordings

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

ROOTS = {
    ("auction", "ic"): (36, "d967f85866f9c4745ab70018c6104f3d59e1f2b7a42143e94da9caf7656b7b34"),
    ("auction", "ibc"): (122, "2e442c8a568893a38bd6209f6175a9c076dcab4f9c085bedd95cb44c27163df7"),
    ("generated", "ic"): (28, "35e387f3121c36e59b421623281969ac2803000dd4b49010053c8e3881b8e476"),
    ("generated", "ibc"): (27, "7f4ddef58b298aba197802840afe0eff6c204caefaa017a6f699ba62a33d9ea4"),
    ("two_subnets", "ic"): (5, "e80ddcecf51f5c27972534564611c260c3856cb98ad67cdbf7a199da92e521d0"),
    ("two_subnets", "ibc"): (4, "4a33bafe37033047706003ea3314532992248c42e1f5803cc9e4a66e41a262ad"),
    ("tokens", "ibc"): (15, "8195bacddbe31e91ab05deb1a45960f426436dec883703b69c498e7ac32aec76"),
    ("zones", "ibc"): (27, "7dc8bc5a1fc9acd5e0552af6bde311891ba806fcbb3a522bd477e85eebecb1ab"),
    ("clients", "ibc"): (27, "01c0e39fe50effd43dee6e691444380dd0239dd1c9c15c0d5b2ac897182c7d34"),
    ("relaying", "ibc"): (91, "7435405dcaf48e089a91b21eb0a39cf30d2b8319a254bb2b1851a3cd5567d7c6"),
    ("domains", "xdm"): (38, "689bbc91ed33b2c4b9e8195e1285e925d750ea357ec4dbb49c50b79a89f596e3"),
    ("faulty_domains", "xdm"): (67, "615b50b7ba8175f9b6c0766501dcb76435052281593308b74c4839de777bcb35"),
    ("two_subnets", "xdm"): (25, "d11869c7aebc01b34cc5d86175f99a55a96f4590f779e58f77cd90daa6f5cec0"),
    ("auction", "xdm"): (26, "bb7c07e197f31eaa182dda990bbd1b068deb1c31c7b4da2cc6c6fb22fc935163"),
    ("generated", "icmp"): (33, "1b82d0ecd0fda8b92a7f654360c9b168a4d22a8539d022f73cec25b87c85df48"),
    ("auction", "icmp"): (96, "b813ffffd320774fdfb974ca25a46888f13c705df56b5300d57a753abccd36e1"),
    ("parachains", "icmp"): (32, "89286ab225b37abe6cd567f10bbb2a9b7760f6d1f571a2f1daf79c1de7e3c1bd"),
    ("relay_left", "ibc"): (1, "78c90ffb5484704fd0c122119706b36eecacf4c1a4fadab9ebad09635cbcd48b"),
    ("relay_right", "ibc"): (1, "87b034de978ceccca5f7368658e4b3e84880438795783521d4f0f8fa14275050"),
}
"""Final height and root by scenario and protocol."""

UNCERTIFIED = {
    "auction": (36, "dc72c4d9ed3f9a8cd87b68a3364d11da9c2e7a0f646eda1c49cb60291c485e7a"),
    "generated": (28, "e3f80604de8d08a29939d5c9ac101961bbcfa967b44b0dabe1bdf53ab498fd99"),
    "two_subnets": (5, "7e28ae6c6d7a15fa0a205a0ded12ef88b323b6c1cb4d7cf5796e07d6a51c92fe"),
}
"""The same for subnets without certification."""

RECORDED = {
    "icmp": (661, "62a74a73e3aa3f29e97b72c36d7c110eb629acffdb7e1800fcae70e135fb0d36"),
    "ic": (646, "7cc9d24252fd41a760aed9e9f33b384dbc4a55c63dd804139cc2018cae6ec0ba"),
    "ibc": (643, "cec1ea875a03809533074088e7ff1a49dbca52ae8bff238a551fc8bf20230e7f"),
}


RECORDED_SUBSTREAMS = {
    ("per_destination", 5_000): (29, "c21c356248a91fdba05324629c26e608578c98940e99c54a27b20d336ab31470"),
    ("per_source", 5_000): (29, "23aa994af76f04b43d3c78618d4f1cc9bc06768bf5906648c3c599e239f7a9c7"),
    ("per_destination", 161_478): (646, "a80fc41a57bb0fdee6e3bf86ad5e0940163d22a7e4558e108a2f371f74107086"),
    ("per_source", 161_478): (646, "52a9262ac87beac276d1a4997c3672003279e9e518e75cb4e71089a5755763b2"),
}
"""Roots under ``ic`` by substream mode and number of packets, all of which are answered."""


RECORDED_START = (89, "2bf0382d0696173295c1fa037e794b1b371a502778233e82370d510298e0c561")
"""Roots of the first 5,000 recorded packets under ``xdm``, all answered."""


HRMP = (47, "54c2c083ce71c303be2d28902959faf66d8030a7d0a1d1f1ab008347366c87a4")
"""Roots of ``parachains`` with HRMP channels."""


def last(scenario: str, protocol: str, folder: Path, **options: str) -> tuple[int, str]:
    chosen = {"network.executor": "in_process", "network.protocol": protocol, **options}
    with LakeNetwork.from_scenario(EXAMPLES / f"{scenario}.toml", chosen, lake=str(folder / "lake")) as net:
        net.run()
        return net.height, network_root(net.lake, net.manifest)


@pytest.mark.parametrize(("scenario", "protocol"), ROOTS, ids=lambda text: str(text))
def test_roots_of_the_examples(scenario: str, protocol: str, tmp_path: Path) -> None:
    assert last(scenario, protocol, tmp_path) == ROOTS[scenario, protocol]


@pytest.mark.parametrize("stops", [(), (9, 23)], ids=["whole", "interrupted"])
def test_root_of_parachains_with_channels(stops: tuple[int, ...], tmp_path: Path) -> None:
    """Run at once, or stopped twice and resumed: with opening channels, pages in channels and pending queues."""
    chosen = {"network.executor": "in_process", "network.partitions": "2", "options.channels": '"hrmp"'}
    lake = str(tmp_path / "lake")
    for ticks in (*stops, None):
        resume = bool(stops) and ticks != stops[0]
        with LakeNetwork.from_scenario(EXAMPLES / "parachains.toml", chosen, lake=lake, resume=resume) as net:
            net.run(ticks)
            found = net.height, network_root(net.lake, net.manifest)
    assert found == HRMP


@pytest.mark.parametrize("scenario", UNCERTIFIED)
def test_roots_of_uncertified_examples(scenario: str, tmp_path: Path) -> None:
    assert last(scenario, "ic", tmp_path, **{"options.certification": '"off"'}) == UNCERTIFIED[scenario]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", RECORDED)
def test_roots_of_the_recorded_packets(protocol: str, tmp_path: Path, recordings: Recordings) -> None:
    assert last("recorded", protocol, tmp_path, **{"traffic.path": str(recordings.hub_packets)}) == RECORDED[protocol]


def first_packets(recordings: Recordings, folder: Path, count: int) -> str:
    """Write the first recorded packets and their channels; return the path."""
    packets = pq.read_table(recordings.hub_packets).sort_by("send_height").slice(0, count)
    pq.write_table(packets, folder / "packets.parquet")
    (folder / "ibc_channels.json").write_bytes(recordings.channels.read_bytes())
    return str(folder / "packets.parquet")


@pytest.mark.slow
@pytest.mark.parametrize(("substreams", "count"), RECORDED_SUBSTREAMS)
def test_roots_of_the_recorded_packets_in_substreams(
    substreams: str, count: int, tmp_path: Path, recordings: Recordings
) -> None:
    """All packets are answered, in the order of their lanes."""
    chosen = {
        "network.executor": "in_process",
        "options.substreams": substreams,
        "traffic.path": first_packets(recordings, tmp_path, count),
    }
    with LakeNetwork.from_scenario(EXAMPLES / "recorded.toml", chosen, lake=str(tmp_path / "lake")) as net:
        net.run()
        assert (net.height, network_root(net.lake, net.manifest)) == RECORDED_SUBSTREAMS[substreams, count]
        with summarize_run(net.lake) as (_, summary):
            counts = summary.counts
            assert (counts["sent"], counts["received"], counts["answered"], counts["out_of_order"]) == (*[count] * 3, 0)
            assert summary.verdict is Verdict.PASSED


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 3])
def test_root_of_the_first_recorded_packets_between_domains(
    partitions: int, tmp_path: Path, recordings: Recordings
) -> None:
    options = {"traffic.path": first_packets(recordings, tmp_path, 5_000), "network.partitions": str(partitions)}
    assert last("recorded", "xdm", tmp_path, **options) == RECORDED_START
