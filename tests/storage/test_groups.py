"""Many heights in one commit: atomic, equal to single commits, and found without full reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.network.network import LakeNetwork
from causeway.scenarios.scenario import load_scenario
from causeway.scenarios.settings import parse_commit_every
from causeway.storage.integrity import verify_lake
from causeway.storage.lake import _KNOWN, Lake, LakeDamaged, LakeError, Manifest
from causeway.storage.layout import manifest_path
from causeway.tick import rounds
from causeway.tick.bucket import forget_states
from causeway.tick.deployment import CommitEvery
from tests.counting import counted_reads

SCENARIO = """
[network]
protocol = "{protocol}"
executor = "in_process"
seed = 5
commit_every = {every}
[[chains]]
count = 3
prefix = "c"
[[faults]]
kind = "drop"
source = "c0"
destination = "c1"
from = 3
until = 9
[transport]
skip = 0.2
[traffic]
source = "generated"
messages_per_tick = 5
ticks = 12
"""

PROTOCOLS = pytest.mark.parametrize("protocol", ["ic", "ibc", "icmp"])


def network(folder: Path, name: str, protocol: str, every: object = '"auto"', *, resume: bool = False) -> LakeNetwork:
    path = folder / f"{name}.toml"
    path.write_text(SCENARIO.format(protocol=protocol, every=every))
    return LakeNetwork(load_scenario(path), str(folder / name), resume=resume)


def lake_content(lake: Lake) -> list[Any]:
    """Heights of a lake, and the rows of its logs by height."""
    manifests = [lake.manifest(height) for height in lake.heights()]
    tables = sorted({table for manifest in manifests for table in manifest.rows} - {"of_carriers"})
    found: list[Any] = []
    for manifest in manifests:
        rows = [sorted(map(repr, part.to_pylist())) for name in tables for part in lake.log_rows(name, manifest)]
        found.append((manifest.line, [part for part in rows if part]))
    return [*found, dict(manifests[-1].totals)]


@PROTOCOLS
def test_heights_are_independent_of_commit_size(tmp_path: Path, protocol: str) -> None:
    with network(tmp_path, "single", protocol, 1) as net:
        net.run()
        wanted = lake_content(net.lake)
        assert net.manifest.number == net.height
    for name, every, commits in (("auto", '"auto"', 1), ("three", 3, -(-net.height // 3))):
        with network(tmp_path, name, protocol, every) as other:
            seen: list[Manifest] = []
            other.run(progress=seen.append)
            assert other.manifest.number == commits
            assert [line.height for manifest in seen for line in manifest.lines] == list(range(1, net.height + 1))
            assert lake_content(other.lake) == wanted
            assert other.summary() == net.summary()
        checked = verify_lake(other.lake)
        assert (checked.heights, checked.damaged, checked.strays) == (net.height + 1, (), ())


@PROTOCOLS
def test_interrupted_group_leaves_no_files_and_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    with network(tmp_path, "through", protocol) as net:
        net.run()
        wanted = lake_content(net.lake)
    real = rounds.execute_round
    for name, again in (("resumed", True), ("goes on", False)):
        net = network(tmp_path, name, protocol, 6)
        left = iter(range(9))

        def stops(*arguments: Any, left: Any = left) -> Any:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(rounds, "execute_round", stops)
            with pytest.raises(KeyboardInterrupt):
                net.run()
        assert net.height == 6, "the second group ended after three of its heights"
        if again:
            net._let_go()
            forget_states()
            net = network(tmp_path, name, protocol, 6, resume=True)
        with net:
            net.run()
            assert lake_content(net.lake) == wanted


def test_complete_heights_before_an_error_are_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rounds.execute_round

    def fails(reader: Any, state: Any, tick: Any, outside: Any) -> Any:
        if tick.height == 8:
            raise CausewayError("a broken rule")
        return real(reader, state, tick, outside)

    monkeypatch.setattr(rounds, "execute_round", fails)
    with network(tmp_path, "lake", "ic") as net, pytest.raises(CausewayError, match="a broken rule"):
        net.run()
    assert Lake.at(str(tmp_path / "lake")).last_height() == 7
    assert verify_lake(Lake.at(str(tmp_path / "lake"))).strays == ()


def test_run_is_resumed_with_another_commit_size(tmp_path: Path) -> None:
    with network(tmp_path, "through", "ic") as net:
        net.run()
        wanted = lake_content(net.lake)
    for every, ticks in ((1, 2), (5, 9), ('"auto"', None)):
        forget_states()
        with network(tmp_path, "stops", "ic", every, resume=ticks != 2) as net:
            net.run(ticks=ticks)
    assert lake_content(net.lake) == wanted
    assert [len(net.lake.numbered(number).lines) for number in range(6)] == [1, 1, 1, 5, 2, net.height - 9]


def test_commit_is_found_without_reading_all(tmp_path: Path) -> None:
    for tick, every in ((4, 1), (6, 1), (7, 3), (11, 4), (12, 1), (None, 3)):
        with network(tmp_path, "lake", "ic", every, resume=tick != 4) as net:
            net.run(ticks=tick)
    lake, last = net.lake, net.height
    with counted_reads() as reads:
        for height in range(last + 1):
            _KNOWN.clear()
            reads.clear()
            assert lake.manifest(height).height == height
            assert reads["manifests"] <= 5
        reads.clear()
        for height in range(last + 1):
            assert lake.manifest(height).height == height
        assert reads["manifests"] <= 2 * (last + 1)
        assert not reads["head"], "how far the lake came by a height that is known to be there is no question"
    with pytest.raises(LakeError, match=f"height: {last + 1} is not committed; committed are 0 to {last}"):
        lake.manifest(last + 1)


def test_old_height_is_read_without_the_rest_of_its_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with network(tmp_path, "single", "ic", 1) as net:
        net.run()
        wanted = lake_content(net.lake)
    for name in ("lake.RUN", "compaction.RUN", "compaction.RETAINED_COMMITS"):
        monkeypatch.setattr(f"causeway.storage.{name}", 2)
    monkeypatch.setattr("causeway.storage.compaction.ROW_GROUP", 4)
    with network(tmp_path, "lake", "ic", 4) as net:
        net.run()
    lake = net.lake
    assert lake.replaced(lake.manifest(2), list(lake.manifest(2).log["headers"].values()))
    assert lake_content(lake) == wanted
    read: list[tuple[int, int]] = []
    real = pq.ParquetFile.read_row_groups

    def noted(file: pq.ParquetFile, groups: list[int], *arguments: Any, **named: Any) -> Any:
        read.append((len(groups), file.num_row_groups))
        return real(file, groups, *arguments, **named)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", noted)
    (rows,) = lake.log_rows("headers", lake.manifest(2))
    ((some, of),) = read
    assert 0 < rows.num_rows <= 4 * some and some <= rows.num_rows // 4 + 2 < of


def test_manifest_of_another_number_is_corruption(tmp_path: Path) -> None:
    with network(tmp_path, "lake", "ic", 4) as net:
        net.run()
    first, second = (tmp_path / "lake" / manifest_path(number) for number in (1, 2))
    second.write_bytes(first.read_bytes())
    _KNOWN.clear()
    with pytest.raises(LakeDamaged, match=r"0000000002.json is the manifest number 1; last verified height 4"):
        net.lake.manifest(6)
    assert net.lake.manifest(3).height == 3


@pytest.mark.parametrize(
    ("text", "every"),
    [
        ("auto", CommitEvery()),
        ("5 s", CommitEvery(seconds=5)),
        ("5s", CommitEvery(seconds=5)),
        ("64 MB", CommitEvery(bytes=64_000_000, seconds=float("inf"))),
    ],
)
def test_commit_every_is_parsed(text: str, every: CommitEvery) -> None:
    assert parse_commit_every(text) == every


@pytest.mark.parametrize("value", ["0", "-1", "5000", '"often"', '"0 s"', '"2000 MB"', '"5 h"', "true", "1.5"])
def test_wrong_commit_every_is_reported_in_one_line(tmp_path: Path, value: str) -> None:
    with pytest.raises(InvalidInput, match=r"network\.commit_every") as caught:
        network(tmp_path, "lake", "ic", value)
    assert re.search(
        r"network\.commit_every: \S+( \S+\"|): must be \"auto\", heights as .* 4096, .*up to .1024 MB.$",
        str(caught.value),
    )
    assert "commit" not in [path.name for path in tmp_path.iterdir()]


def test_group_ends_when_it_has_enough_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causeway.scenarios.settings.MAX_MEGABYTES", 1)
    with network(tmp_path, "lake", "ic", '"1 MB"') as net:
        net.run()
        assert net.manifest.number == 1, "it does not come to that"
    assert CommitEvery(bytes=10).full(1, 10, 0.0)
    assert not CommitEvery(bytes=10).full(1, 9, 0.0)
