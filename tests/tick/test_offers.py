"""Offers between buckets: equal roots in any storage, one file opened per task, only verified bytes used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from causeway.network.network import LakeNetwork
from causeway.protocols.contract import Tick
from causeway.scenarios.scenario import load_scenario
from causeway.storage.lake import Lake, LakeDamaged
from causeway.storage.layout import height_folder
from causeway.storage.object_store import LocalPlace
from causeway.storage.reorgs import network_root
from causeway.tick import exchange
from causeway.tick.bucket import forget_states, run_bucket
from causeway.tick.deployment import TickGroup
from causeway.tick.exchange import ALL_BUCKETS, PulledSlices
from causeway.tick.reading import BucketReader

BUSY = """
[network]
protocol = "{protocol}"
executor = "in_process"
seed = 3
[options]
{options}
[transport]
skip = 0.3
[[chains]]
count = 4
prefix = "s"
[traffic]
source = "generated"
messages_per_tick = 24
ticks = 3
"""
OPTIONS = {"ic": 'reject_every = 5\nvsr = "deployed"', "ibc": 'relayers = ["one", "two"]', "icmp": 'bodies = "drawn"'}
PROTOCOLS = pytest.mark.parametrize(
    "text", [BUSY.format(protocol=name, options=options) for name, options in OPTIONS.items()], ids=list(OPTIONS)
)
ROOMS = (8 << 20, 6_000, 0)
"""Everything through the driver; what is small; nothing."""


def network(folder: Path, text: str, partitions: int, *, resume: bool = False) -> LakeNetwork:
    folder.mkdir(exist_ok=True)
    (folder / "scenario.toml").write_text(text)
    overrides = {"network.partitions": str(partitions)}
    return LakeNetwork(load_scenario(folder / "scenario.toml", overrides), str(folder / "lake"), resume=resume)


def roots(lake: Lake) -> list[str]:
    return [network_root(lake, lake.manifest(height)) for height in lake.heights()]


@PROTOCOLS
def test_roots_are_independent_of_offer_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with network(tmp_path / "one", text, 1) as net:
        net.run()
        wanted = roots(net.lake)
        assert all(net.lake.manifest(height).exchange is None for height in net.lake.heights())
    where: set[tuple[bool, bool]] = set()
    for room in ROOMS:
        monkeypatch.setattr(exchange, "DRIVER_BYTES", room)
        folder = tmp_path / str(room)
        with network(folder, text, 3) as net:
            net.run(ticks=3)
        forget_states()
        with network(folder, text, 3, resume=True) as net:
            while (tick := net.next_tick()) is not None:
                net.step(tick)
                forget_states()
            assert roots(net.lake) == wanted, room
            where.add((bool(net.lake.manifest(3).offers), _has_own_row_groups(net.lake, 3)))
    assert where == {(False, False), (True, True)} or where == {(False, False), (False, True), (True, True)}


def _has_own_row_groups(lake: Lake, height: int) -> bool:
    """Return whether entries of a height have separate row groups."""
    manifest = lake.manifest(height)
    assert manifest.exchange is not None
    buckets = range(len(lake.about()["buckets"]))
    return any(
        exchange.ROW_GROUP in PulledSlices.of(lake, manifest, manifest.exchange, [ALL_BUCKETS, bucket]).parts
        for bucket in buckets
    )


class CountingStorage:
    """Storage that counts opened files and records the ranges read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opens: Counter[str] = Counter()
        self.parts: list[tuple[str, int, int]] = []
        read, read_ranges = LocalPlace.read, LocalPlace.read_ranges

        def counted(place: LocalPlace, path: str, *most: int) -> bytes:
            self.opens[path] += 1
            return read(place, path, *most)

        def ranges(place: LocalPlace, path: str, asked: Sequence[tuple[int, int]]) -> Sequence[bytes]:
            self.opens[path] += 1
            self.parts += [(path, start, end) for start, end in asked]
            return read_ranges(place, path, asked)

        monkeypatch.setattr(LocalPlace, "read", counted)
        monkeypatch.setattr(LocalPlace, "read_ranges", ranges)


def next_of(net: LakeNetwork) -> Tick:
    tick = net.next_tick()
    assert tick is not None
    return Tick(net.height + 1, tick, None, 0)


@PROTOCOLS
def test_warm_task_opens_one_file_for_all_remote_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    with network(tmp_path / "one", text.replace("skip = 0.3", "skip = 0"), 4) as net:
        net.run(ticks=3)
        for bucket in range(4):
            with monkeypatch.context() as patch:
                counted = CountingStorage(patch)
                run_bucket(net.deployment, net.lake, bucket, net.manifest, TickGroup(next_of(net)))
            assert net.manifest.exchange is not None
            # Rejected messages are read again from their sender's file, at an earlier height.
            own = [path for path in counted.opens if not path.startswith(height_folder(net.height))]
            assert counted.opens == {net.manifest.exchange.path: 1, **dict.fromkeys(own, 1)}


PAIRS = """
[network]
protocol = "ic"
executor = "in_process"
[traffic]
source = "recorded"
path = "packets.csv"
blocks_per_tick = 1
columns = { source_chain = "from", destination = "to", source_end = "lane", sequence = "number", time = "at" }
"""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> LakeNetwork:
    """Return a network of two separate pairs of chains with large messages.

    Headers and small tables go through the driver, the rest is in bucket files.
    """
    folder = tmp_path_factory.mktemp("pairs")
    rows = [f"{one},{other},l,{number},{number}" for number in range(9) for one, other in ("ab", "ba", "cd", "dc")]
    (folder / "packets.csv").write_text("\n".join(["from,to,lane,number,at", *rows]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "DRIVER_BYTES", 4 * 640)
        net = network(folder, PAIRS, 4)
        net.run(ticks=6)
    return net


def test_task_opens_no_file_of_buckets_without_offers_for_it(
    pairs: LakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = pairs.manifest
    assert manifest.exchange is not None and set(manifest.offers) == {"0", "1", "2", "3"}
    assert _has_own_row_groups(pairs.lake, pairs.height)
    for bucket, partner in ((0, 1), (1, 0), (2, 3), (3, 2)):
        with monkeypatch.context() as patch:
            counted = CountingStorage(patch)
            run_bucket(pairs.deployment, pairs.lake, bucket, manifest, TickGroup(next_of(pairs)))
        theirs = {manifest.exchange.path, manifest.offers[str(partner)], manifest.log["outbound"][str(partner)]}
        assert counted.opens == dict.fromkeys(theirs, 1), bucket


def test_every_used_byte_is_verified_and_no_other(pairs: LakeNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest, place = pairs.manifest, Path(pairs.lake.storage.uri)

    def taken() -> tuple[Any, ...]:
        reader = BucketReader(pairs.deployment, pairs.lake, 1, manifest)
        kernel = pairs.deployment.kernel
        assert reader.pulled is not None
        shown = [reader.pulled.rows(name, table.schema) for name, table in kernel.tables().items()]
        return tuple(len(rows) for rows in [*shown, reader.pulled.entries(0, kernel.outbound) or ()])

    with monkeypatch.context() as patch:
        counted = CountingStorage(patch)
        wanted = taken()
    assert len(counted.parts) > 4 and wanted[-1] > 0
    for path in {path for path, _, _ in counted.parts}:
        used = [(start, end) for other, start, end in counted.parts if other == path]
        whole = (place / path).read_bytes()
        for position in range(0, len(whole), 19):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << position % 8
            (place / path).write_bytes(damaged)
            if any(start <= position < end for start, end in used):
                with pytest.raises(LakeDamaged, match=f"{path} has other bytes than were written, among bytes"):
                    taken()
            else:
                assert taken() == wanted, "it is for others"
        for length in {start for start, _ in used}:
            (place / path).write_bytes(whole[:length])
            with pytest.raises(LakeDamaged, match=f"{path} ends before byte"):
                taken()
        (place / path).unlink()
        with pytest.raises(LakeDamaged, match=f"{path} is missing"):
            taken()
        (place / path).write_bytes(whole)
    assert taken() == wanted


def test_entries_of_earlier_heights_are_read_from_their_own_files(pairs: LakeNetwork) -> None:
    """Row groups are located by their destinations, also if one holds all entries."""
    kernel = pairs.deployment.kernel
    for height in range(2, pairs.height):
        manifest = pairs.lake.manifest(height)
        if "1" not in manifest.log.get("outbound", {}):
            continue
        table = pairs.lake.table(manifest, manifest.log["outbound"]["1"])
        reader = BucketReader(pairs.deployment, pairs.lake, 0, pairs.manifest)
        rows = reader._of_file(manifest, 1, 0, 1)
        assert rows["index"].tolist() == table.filter(pa.array(np.isin(table["destination"], [0])))["index"].to_pylist()
        assert rows.names == kernel.outbound.names
