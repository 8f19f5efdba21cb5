"""A lake in an object store: one URI, one writer, and automatic takeover of a dead writer's claim."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
from obstore import exceptions as store_errors
from pyspark.sql import SparkSession

from causeway.cluster.connectivity import check_reachable, check_readable
from causeway.ledger.commits import LedgerDamaged
from causeway.ledger.ingest import commit, tasks
from causeway.ledger.ingest.ingest import ingest_files
from causeway.ledger.ingest.tasks import IngestJob
from causeway.ledger.store import open_ledger
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.network.recheck import LakeRecheck
from causeway.scenarios.scenario import load_scenario
from causeway.storage.files import Storage
from causeway.storage.integrity import verify_lake
from causeway.storage.lake import Lake, LakeDamaged, LakeError
from causeway.storage.object_store import AlreadyExists, ObjectPlace, open_place
from causeway.storage.reorgs import network_root
from causeway.storage.vacuum import vacuum_lake
from causeway.storage.writer_claim import CLAIM_FILE, WriterClaim, claim_lake
from causeway.tick.bucket import forget_states
from tests.ledger.ingest.test_ledger_ingest import HEAD, lines, mapping

BUCKET = "lakes"
HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.5.0"
"""What Spark 4.3 needs for S3: of the version of its Hadoop."""

RACES = 30
SCENARIO = """
[network]
protocol = "ic"
executor = "in_process"
partitions = 2
[options]
certification = "off"
[[chains]]
count = 3
[traffic]
source = "generated"
messages_per_tick = 6
ticks = 5
"""


@pytest.fixture(scope="module", autouse=True)
def store() -> Iterator[str]:
    """Run an S3 store on this machine."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    one, put = threading.Lock(), S3Response.put_object

    def atomic(response: S3Response) -> Any:
        with one:
            return put(response)

    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        # A store compares and puts atomically; the one for tests checks first, and puts then.
        patch.setattr(S3Response, "put_object", atomic)
        for name, value in {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
        }.items():
            patch.setenv(name, value)
        boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket=BUCKET)
        yield url
    server.stop()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew claims within fractions of a second, and take over those of dead writers soon after."""
    monkeypatch.setattr("causeway.storage.writer_claim.HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr("causeway.storage.writer_claim.STALL_TIMEOUT_SECONDS", 1.5)


def network(folder: Path, uri: str, *, resume: bool = False) -> LakeNetwork:
    (folder / "scenario.toml").write_text(SCENARIO)
    return LakeNetwork(load_scenario(folder / "scenario.toml"), uri, resume=resume)


def kill(net: LakeNetwork) -> None:
    """End a run like ``kill -9``: no claim is released or renewed any more."""
    net._claim._stop.set()


def test_lake_in_a_store_equals_the_lake_in_a_folder(tmp_path: Path) -> None:
    with network(tmp_path, str(tmp_path / "lake")) as net:
        net.run()
        wanted = network_root(net.lake, net.manifest)
    uri = f"s3://{BUCKET}/whole"
    with network(tmp_path, uri) as net:
        net.run(ticks=3)
    forget_states()
    with network(tmp_path, uri, resume=True) as net:
        net.run()
        assert network_root(net.lake, net.manifest) == wanted
        last = net.height
    checked = verify_lake(Lake.at(uri))
    assert (checked.damaged, checked.strays, checked.heights) == ((), (), last + 1)
    assert LakeRecheck(open_lake(uri)).execute(0, last) is None
    assert vacuum_lake(Lake.at(uri), keep_every=4, keep_last=2).files > 0
    assert verify_lake(Lake.at(uri)).damaged == ()
    lake = Lake.at(uri)
    path = next(iter(lake.last_manifest().state["accounts"].values())).rows[0]
    content = bytearray(lake.storage.read_bytes(path))
    content[len(content) // 2] ^= 4
    lake.storage.put(path, bytes(content))
    with pytest.raises(LakeDamaged, match="has other bytes than were written"):
        network(tmp_path, uri, resume=True)


def test_ledger_in_a_store_detects_a_missing_last_commit(tmp_path: Path) -> None:
    uri = f"s3://{BUCKET}/ledger"
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text(HEAD + lines(number, number + 2))
        ingest_files(str(tmp_path / f"{number}.csv"), uri, mapping())
    assert open_ledger(uri).number == 2
    Storage(uri).remove("manifests/0000000002.json")
    with pytest.raises(LedgerDamaged, match=r"^manifests/0000000002\.json is missing: ledger\.head names commit 2$"):
        open_ledger(uri)


def test_rows_spooled_in_a_store_form_the_same_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "events.csv").write_text(HEAD + lines(0, 400))
    monkeypatch.setattr(tasks, "MANY_PARTS", 1)
    found = []
    for place, run_bytes in ((str(tmp_path / "ledger"), 1 << 20), (f"s3://{BUCKET}/spooled", 3_000)):
        monkeypatch.setattr(
            commit, "IngestJob", lambda *given, most=run_bytes: replace(IngestJob(*given), run_bytes=most)
        )
        ingest_files(str(tmp_path / "events.csv"), place, mapping(), buckets=2, executor="in_process")
        ledger = open_ledger(place)
        found.append([ledger.rows(bucket).to_pylist() for bucket in range(2)])
    assert found[0] == found[1]


def test_arrow_writes_streams_to_a_store() -> None:
    rows, place = pa.table({"number": [*range(9)]}), open_place(f"s3://{BUCKET}/streams")
    with place.writer("rows.arrow") as file, pa.ipc.new_stream(file, rows.schema) as sink:
        sink.write_table(rows)
    assert pa.ipc.open_stream(place.read("rows.arrow", 1 << 20)).read_all() == rows


def test_one_of_two_concurrent_creations_succeeds(store: str) -> None:
    winners = []
    for race in range(RACES):
        won: list[int] = []
        ready = threading.Barrier(2)

        def run(racer: int, race: int = race, won: list[int] = won, ready: threading.Barrier = ready) -> None:
            place = open_place(f"s3://{BUCKET}/races")
            ready.wait()
            try:
                place.create(f"manifests/{race:010d}.json", str(racer).encode())
            except AlreadyExists:
                return
            won.append(racer)

        racers = [threading.Thread(target=run, args=(racer,)) for racer in range(2)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        content = open_place(f"s3://{BUCKET}/races").read(f"manifests/{race:010d}.json")
        assert [str(racer).encode() for racer in won] == [content], "who won wrote it"
        winners.append(len(won))
    assert winners == [1] * RACES


@pytest.mark.slow
def test_one_of_two_concurrent_claim_takeovers_succeeds() -> None:
    for race in range(3):
        lake = Lake.at(f"s3://{BUCKET}/claims-{race}")
        claim_lake(lake)._stop.set()
        held: list[WriterClaim] = []
        refused: list[str] = []

        def run(lake: Lake = lake, held: list[WriterClaim] = held, refused: list[str] = refused) -> None:
            try:
                held.append(claim_lake(lake))
            except LakeError as error:
                refused.append(str(error))

        racers = [threading.Thread(target=run) for _ in range(2)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert (len(held), len(refused), held[0].epoch) == (1, 1, 2)
        held[0].release()


def test_second_run_is_refused_and_a_released_claim_is_available_at_once(tmp_path: Path) -> None:
    uri = f"s3://{BUCKET}/held"
    with network(tmp_path, uri) as net:
        net.run(ticks=1)
        with pytest.raises(LakeError, match=r"is being written by process \d+ on "):
            network(tmp_path, uri, resume=True)
        net.run(ticks=2)
    begun = time.monotonic()
    with network(tmp_path, uri, resume=True) as net:
        assert net._claim.epoch == 2
    assert time.monotonic() - begun < 30
    assert json.loads(Storage(uri).read_bytes(CLAIM_FILE))["held"] is False


def test_claim_of_a_killed_run_is_taken_over_and_it_can_commit_no_more(tmp_path: Path) -> None:
    uri = f"s3://{BUCKET}/killed"
    old = network(tmp_path, uri)
    old.run(ticks=2)
    height = old.height
    kill(old)
    waited: list[bool] = []
    new = claim_lake(old.lake, lambda: waited.append(True))
    assert (new.epoch, waited) == (2, [True])
    # It was only slow, and continues: with its claim, and then as if its claim had not been requested.
    old._claim._stop.clear()
    with pytest.raises(LakeError, match=r"was taken over by process \d+ on .*; this run has written nothing since"):
        old.run()
    new.release()
    with network(tmp_path, uri, resume=True) as net:
        net.run(ticks=4)
        assert [net.lake.manifest(at).epoch for at in range(net.height + 1)] == [1] * (height + 1) + [3] * (
            net.height - height
        )
        old._claim.confirm = lambda: None  # type: ignore[method-assign]
        with pytest.raises(LakeError, match=f"height {height + 1} of .* was committed by another run"):
            old.run()
    assert verify_lake(Lake.at(uri)).damaged == ()


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("ftp://host/lake", "ftp://host/lake is not a place that can be opened: allowed are a folder and URIs that"),
        ("dbfs:/lake", "dbfs:/lake: a URI has two slashes before the host or folder, such as file:///folder"),
        ("memory:///x", "not a place that can be opened"),
        (
            f"s3://{BUCKET}/x?endpoint_override=y",
            "nothing may follow the path; endpoints and keys are given",
        ),
        ("file://elsewhere/x", "names the host elsewhere"),
    ],
)
def test_other_uris_are_refused(uri: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=text.replace("?", r"\?")):
        check_reachable(Storage(uri))


def test_unresponsive_store_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causeway.storage.object_store._RETRIES", {"max_retries": 0})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(
        InvalidInput, match=f"lake: s3://{BUCKET}/x cannot be opened: the store does not answer"
    ) as found:
        check_reachable(Storage(f"s3://{BUCKET}/x"))
    assert "\n" not in str(found.value)


def test_missing_spark_package_is_named(spark: SparkSession, tmp_path: Path) -> None:
    uri = f"s3://{BUCKET}/whole"
    assert Storage(uri).absolute("a/b.parquet") == f"s3a://{BUCKET}/whole/a/b.parquet"
    with pytest.raises(
        InvalidInput, match=r"Spark cannot open s3a://.*; give Spark the package org.apache.hadoop:hadoop-"
    ):
        check_readable(spark, Storage(uri))
    check_readable(spark, Storage(f"file://{tmp_path}"))
    assert isinstance(open_place(uri), ObjectPlace)


@pytest.mark.slow
def test_spark_runs_and_reads_a_lake_in_a_store(tmp_path: Path, store: str) -> None:
    """Spark fetches its package by name, and reads through it what its tasks wrote through ours.

    Of the package's own libraries those of S3 are enough: what it asks for by default has those of all services.
    """
    parts = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client", "url-connection-client")
    settings = {
        "spark.jars.packages": ",".join([HADOOP_AWS, *(f"software.amazon.awssdk:{part}:2.35.4" for part in parts)]),
        "spark.jars.excludes": "software.amazon.awssdk:bundle",
        "spark.hadoop.fs.s3a.endpoint": store,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    (tmp_path / "plain.toml").write_text(SCENARIO)
    with LakeNetwork(load_scenario(tmp_path / "plain.toml"), str(tmp_path / "lake")) as plain:
        plain.run()
        wanted = plain.root(), plain.height, plain.summary()
    spark = "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in settings.items())
    text = SCENARIO.replace('executor = "in_process"', 'master = "local[2]"') + f"[network.spark]\n{spark}"
    (tmp_path / "spark.toml").write_text(text)
    program = f"""
import json
from causeway.network.network import LakeNetwork
from causeway.scenarios.scenario import load_scenario
with LakeNetwork(load_scenario({str(tmp_path / "spark.toml")!r}), "s3://{BUCKET}/by-spark") as net:
    net.run()
    found = net.root(), net.height, net.summary(), net.state("lanes").count(), net.ledger.count()
print(json.dumps(found))
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), *sys.path, str(root)])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found[:3] == json.loads(json.dumps(wanted))
    assert found[3] > 0 and found[4] > found[2]["messages"]


def test_store_without_credentials_names_the_missing_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    place = open_place("s3://nope/lake")

    class Unknown:
        def get(self, path: str) -> None:
            asked = "Error performing PUT http://169.254.169.254/latest/api/token in 2ms - 403 Forbidden"
            raise store_errors.GenericError(f"Generic S3 error: {asked}")

    monkeypatch.setattr(place, "_store", Unknown())
    with pytest.raises(OSError, match=r"^no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        place.read("lake.json")
