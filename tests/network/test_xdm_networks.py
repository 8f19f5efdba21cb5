"""Networks of domains in a lake: roots are independent of partitioning, execution and interruption."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.network.recheck import LakeRecheck
from causeway.network.run_records import carrier_summary
from causeway.protocols.xdm.errors import MessageValidity
from causeway.spark.source import register_format
from causeway.storage.integrity import verify_lake
from causeway.storage.lake import Lake
from causeway.storage.reorgs import network_root
from causeway.storage.vacuum import vacuum_lake
from causeway.tick.bucket import forget_states
from tests.storage.test_run import network, roots, uncompacted

BUSY_DOMAINS = """
[network]
protocol = "xdm"
seed = 5
master = "local[2]"

[options]
archiving_depth = 2
challenge_period = 3

[[chains]]
count = 5
prefix = "d"

[[faults]]
kind = "fraud"
chain = "d1"
destination = "d2"
tick = 3
until = 5
found_after = 3

[[faults]]
kind = "fraud"
chain = "d3"
tick = 6
what = "transfers"
found_after = 2

[traffic]
source = "generated"
messages_per_tick = 60
ticks = 8
"""

TICKS = 26
"""Two ways of K + D, and what comes in between."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeNetwork]:
    """Return the network of ``BUSY_DOMAINS`` at rest, run in one bucket without interruption; read only."""
    with pytest.MonkeyPatch.context() as patch:
        uncompacted(patch)
        net = network(tmp_path_factory.mktemp("whole"), BUSY_DOMAINS, "in_process", 1)
        net.run()
    with net:
        yield net


def test_roots_are_independent_of_chain_partitioning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: LakeNetwork
) -> None:
    """On Spark they equal those with forks, tested below."""
    uncompacted(monkeypatch)
    net = network(tmp_path, BUSY_DOMAINS, "in_process", 6)
    net.run(ticks=TICKS)
    found = roots(net.lake)
    assert len(found) > 20
    assert found == roots(whole.lake)[: len(found)]


def test_interrupted_run_resumes_to_equal_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: LakeNetwork
) -> None:
    """A reopened network rebuilds its tries from tables, and proofs use those of their height.

    A network with forks in one bucket is tested below.
    """
    uncompacted(monkeypatch)
    partitions = 3
    broken = network(tmp_path, BUSY_DOMAINS, "in_process", partitions)
    for ticks in range(4, TICKS + 8, 4):
        broken.run(ticks=ticks)
        place = broken.lake.storage.uri
        broken.close()
        broken = LakeNetwork.from_scenario(
            tmp_path / "scenario.toml",
            {"network.executor": '"in_process"', "network.partitions": str(partitions)},
            lake=place,
            resume=True,
        )
    broken.run()
    assert roots(broken.lake) == roots(whole.lake)
    assert whole.summary()["pending"] == 0


REORGS = """
[[faults]]
kind = "reorg"
chance = 0.04
most = 1
"""

LONGER = 40
"""Ticks in which responses come back, too."""


@pytest.mark.slow
def test_table_in_several_files_equals_one_file(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use every reader at any height, also after an interruption and after a vacuum."""
    partitions = 3
    (tmp_path / "whole").mkdir()
    text = BUSY_DOMAINS.replace("[network]", "[network]\ncommit_every = 1") + REORGS
    monkeypatch.setattr("causeway.tick.bucket.MIN_ROWS_IN_PARTS", 1 << 40)
    whole = network(tmp_path / "whole", text, "in_process", partitions)
    whole.run(ticks=LONGER)
    monkeypatch.setattr("causeway.tick.bucket.MIN_ROWS_IN_PARTS", 1)
    monkeypatch.setattr("causeway.tick.bucket.MAX_CACHED_BYTES", 30)
    parted = network(tmp_path, text, "in_process", partitions)
    for ticks in range(8, LONGER + 8, 8):
        parted.run(ticks=ticks)
        forget_states()
    lakes = whole.lake, parted.lake
    assert network_root(whole.lake, whole.manifest) == network_root(parted.lake, parted.manifest)
    most = 0
    for height in parted.lake.heights():
        for table, keys in ((name, parted.tables.state_tables()[name].order) for name in ("outbox", "responses")):
            manifests = [lake.manifest(height) for lake in lakes]
            rows = [lake.state(manifest, table) for lake, manifest in zip(lakes, manifests, strict=True)]
            order = [(key, "ascending") for key in keys]
            first, second = (pa.concat_tables(parts).sort_by(order) if parts else None for parts in rows)
            assert first == second, (table, height)
            some = parted.lake.state(manifests[1], table, ["index"])
            assert [part.column_names for part in some] == [["index"]] * len(some)
            assert [part["index"] for part in some] == [part["index"] for part in rows[1]]
            most = max(most, *(len(parts.files) for parts in manifests[1].state.get(table, {}).values()), 0)
    assert most > 4
    named = next(height for height in parted.lake.heights()[::-1] if _is_removed(parted, "outbox", height))
    expected = whole.state("outbox", named).collect()
    assert Counter(parted.state("outbox", named).collect()) == Counter(expected) and expected
    register_format(spark)
    source = spark.read.format("causeway").option("table", "outbox").option("height", str(named))
    assert Counter(source.load(parted.lake.storage.uri).collect()) == Counter(expected)
    assert LakeRecheck(open_lake(parted.lake.storage.uri)).execute(0, parted.height) is None
    found = verify_lake(parted.lake)
    assert (found.damaged, found.strays) == ((), ())
    freed = vacuum_lake(parted.lake, keep_every=4, keep_last=2)
    assert freed.files > 0 and freed.last % 4
    assert verify_lake(parted.lake).damaged == ()
    LakeRecheck(open_lake(parted.lake.storage.uri)).roots(4)
    assert parted.lake.freed(freed.last) is not None
    parted.run()
    assert parted.summary()["pending"] == 0


def _is_removed(net: LakeNetwork, table: str, height: int) -> bool:
    return any(parts.gone for parts in net.lake.manifest(height).state.get(table, {}).values())


STANDING = """
[[faults]]
kind = "reorg"
tick = 12
depth = 2

[[faults]]
kind = "halt"
chain = "d1"
from = 7
until = 11
"""


@pytest.mark.parametrize("compacted", [False, True])
def test_root_covers_every_chain_even_without_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    """A halted chain keeps the root of its last block, and a fork restores earlier roots."""
    if not compacted:
        uncompacted(monkeypatch)
    text = BUSY_DOMAINS.replace("[network]", "[network]\ncommit_every = 1").replace("depth = 2", "depth = 3")
    text = text.split("[[faults]]")[0]
    net = network(tmp_path, text + STANDING + "[traffic]" + BUSY_DOMAINS.split("[traffic]")[1], "in_process", 2)
    net.run(ticks=40 if compacted else 13)
    of_height: dict[int, dict[int, bytes]] = {height: {} for height in net.lake.heights()}
    for height, known in of_height.items():
        for table in net.lake.log_rows("headers", net.lake.manifest(height)):
            known.update(zip(table["chain"].to_pylist(), table["root"].to_pylist(), strict=True))
    halted = net.tables.position("d1")
    height = next(number for number, known in of_height.items() if halted not in known)
    assert {height + 1, height + 2} <= {number for number, known in of_height.items() if halted not in known}
    wanted = {**of_height[height + 2], halted: of_height[height - 1][halted]}
    assert network_root(net.lake, net.lake.manifest(height + 2)) == _digest(wanted)
    forked = next(number for number, known in of_height.items() if not known)
    stand = {chain: root for known in range(forked - 2) for chain, root in of_height[known].items()}
    assert network_root(net.lake, net.lake.manifest(forked)) == _digest(stand)


def _digest(roots_of_chains: dict[int, bytes]) -> str:
    return hashlib.sha256(b"".join(root for _, root in sorted(roots_of_chains.items()))).hexdigest()


PLANNED = """
[network]
protocol = "xdm"

[options]
archiving_depth = 2
challenge_period = 3
channels = "initiate"
channel_calls = [{ tick = 2, chain = "a", foreign = "b" }]

[[chains]]
name = "a"

[[chains]]
name = "b"

[[programs]]
name = "asks"
chain = "a"
program = "caller"

[[programs]]
name = "answers"
chain = "b"
program = "echo"

[traffic]
source = "script"

[[traffic.send]]
tick = 40
to = "asks"
call = { receiver = "answers", method = "get", hex = "01" }
"""


def test_changes_planned_before_all_traffic_ends_are_applied(tmp_path: Path) -> None:
    net = network(tmp_path, PLANNED, "in_process", 1)
    net.run()
    assert net.lake.manifest(1).tick == 2
    assert net.summary()["answered"] == 1
    # Its history lies within commits and is re-executed from all earlier states: a vacuum would remove them.
    with pytest.raises(InvalidInput, match=r"heights 1 to \d+ are one commit, .* none can be freed"):
        vacuum_lake(net.lake, keep_every=0, keep_last=1)
    assert verify_lake(net.lake).damaged == () and Lake.at(net.lake.storage.uri).freed(0) is None


def test_value_movements_are_named_and_add_up(whole: LakeNetwork, spark: SparkSession) -> None:
    net = whole
    moved = net.tables.movements()
    found = moved.selectExpr("*", "cast(amount as decimal(38,0)) as units")
    found.createOrReplaceTempView("moved")
    shares = spark.sql("select chain, to_name, sum(units) units from moved where why = 'fee_shared' group by all")
    got = {(row["chain"], int(row["to_name"])): int(row["units"]) for row in shares.collect()}
    state = net.state("operators").join(net.tables.chains(), F.col("chain") == F.col("position")).collect()
    assert got == {(row["name"], row["operator"]): int(row["balance_low"]) for row in state if row["balance_low"]}
    burned = found.where("why = 'fee_burned' and chain = 'd0'").orderBy("source", "destination", "lane", "index")
    first = burned.first()
    assert first is not None
    assert first["asset"] == "units"
    assert (first["from"], first["to"], first["to_name"]) == ("account", "abroad", first["destination"])
    assert first["from_name"] in {row["name"] for row in net.tables.programs().collect()}
    booked = found.where("asset = 'booked' and why = 'noted'").first()
    assert booked is not None
    assert booked["to_name"] == f"{booked['source']}>{booked['destination']}"
    assert (booked["lane"], booked["index"]) == (None, None)


FORKS = (
    BUSY_DOMAINS.replace("archiving_depth = 2", "archiving_depth = 5")
    + """
[[faults]]
kind = "reorg"
tick = 6
depth = 4

[[faults]]
kind = "reorg"
tick = 9
depth = 1

[[faults]]
kind = "reorg"
tick = 20
depth = 3

[[faults]]
kind = "halt"
from = 8
until = 11
chain = "d1"
"""
)
ABANDONED = 4 + 1 + 3


def test_roots_and_counts_after_forks_are_independent_of_partitioning_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncompacted(monkeypatch)
    whole, cut = (network(tmp_path, FORKS, "in_process", partitions) for partitions in (1, 3))
    whole.run()
    cut.run()
    first = roots(whole.lake)
    assert roots(cut.lake) == first
    # Reopened before, in and after a fork.
    (tmp_path / "broken").mkdir()
    broken = network(tmp_path / "broken", FORKS, "in_process", 1)
    for ticks in (6, 7, 8, 9, 20, 21, 22):
        broken.run(ticks=ticks)
        place = broken.lake.storage.uri
        broken.close()
        overrides = {"network.executor": '"in_process"', "network.partitions": "1"}
        broken = LakeNetwork.from_scenario(tmp_path / "broken" / "scenario.toml", overrides, lake=place, resume=True)
    broken.run()
    assert roots(broken.lake) == first
    summary = whole.summary()
    assert summary == cut.summary() == broken.summary()
    assert summary["reverted_heights"] == ABANDONED and summary["reverted_messages"] > 100
    assert summary["pending"] == summary["duplicates"] == summary["out_of_order"] == summary["dropped"] == 0
    assert summary["sent"] == summary["answered"] + summary["rejected"] > 200
    for net in (whole, cut):
        assert LakeRecheck(open_lake(net.lake.storage.uri)).execute(0, net.height) is None


@pytest.mark.slow
def test_spark_runs_and_reads_forks_like_this_process(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncompacted(monkeypatch)
    here, there = network(tmp_path, FORKS, "in_process", 1), network(tmp_path, FORKS, "spark", 4)
    for net in (here, there):
        net.run(ticks=24)
    assert roots(here.lake) == roots(there.lake)
    summary = there.summary()
    assert summary == here.summary()
    sent = here.ledger.where("kind = 'request' and (event = 'sent' or (event = 'reverted' and detail = 'sent'))")
    events = [row["event"] for row in sent.collect()]
    assert events.count("sent") - events.count("reverted") == summary["sent"] and events.count("reverted") > 0
    assert here.calls.where("times_received > 1 or times_answered > 1").count() == 0


def test_proofs_under_the_latest_root_are_distinguished_from_older_ones(tmp_path: Path) -> None:
    """The last messages of a resting chain are proved under its current root."""
    scenario = Path(__file__).resolve().parents[2] / "examples" / "domains.toml"
    net = LakeNetwork.from_scenario(scenario, {"network.executor": "in_process"}, lake=str(tmp_path / "lake"))
    net.run()
    proofs = carrier_summary(net.lake, net.manifest).content["proofs"]
    assert proofs["request"] == proofs["response"] == {"checked": 14, "old_root": 13}
    assert proofs["receipt"] == {"checked": 8, "old_root": 8}


def test_summary_reports_checked_rejected_and_reproved_messages(tmp_path: Path) -> None:
    chosen = {"network.executor": "in_process", "network.partitions": "2"}
    scenario = Path(__file__).resolve().parents[2] / "examples" / "faulty_domains.toml"
    net = LakeNetwork.from_scenario(scenario, chosen, lake=str(tmp_path / "lake"))
    net.run()
    counts = net.summary()
    assert counts["answered"] == counts["sent"] == counts["received"] > 400
    found = carrier_summary(net.lake, net.manifest)
    events = pa.concat_tables([net.lake.sealed_table(*file) for file in net.lake.log_files("events").items()])
    told = Counter(events["reason"].to_pylist())
    names = {error.name for error in MessageValidity}
    assert found.content["refused_envelopes"] == {name: told[name] for name in sorted(names) if told[name]}
    assert found.content["refused_envelopes"].keys() >= {"BadProof", "INVALID_NONCE"}
    assert (found.content["frauds_proved"], found.content["receipts_pruned"]) == (1, told["ReceiptPruned"])
    proofs = found.content["proofs"]
    checked, old = (sum(each[name] for each in proofs.values()) for name in ("checked", "old_root"))
    assert checked / 2 < old <= checked, "most are checked under a root that is not the newest"
    came = proofs["request"]["checked"] + proofs["response"]["checked"]
    assert came > counts["messages"], "what was refused came again"
    assert found.content["kept_early"] > 0
    assert found.content["proved_again"] > 0
    assert found.content["never_answered"] == 0
    assert found.content["not_acknowledged"]["responses"] > 0
    assert any(line.startswith(f"{checked:,} proofs checked") for line in found.lines)
