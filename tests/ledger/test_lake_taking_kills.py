"""Heights of a lake are ingested exactly once despite kills at random instants.

Kills as often as ``CAUSEWAY_KILLS`` says (twice if it says nothing).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from causeway.ledger.lake.ingest import ingest_lake
from causeway.ledger.store import Ledger, open_ledger
from causeway.network.network import LakeNetwork
from tests.ledger.test_lake_ledger import STREAM_OF_ONE
from tests.support.common.kills import HANGS, KILLS, ROOT, environment
from tests.support.ic import ic_lake


def stored(ledger: Ledger) -> dict[str, Any]:
    parts = [ledger.rows(bucket) for bucket in range(ledger.buckets)]
    rows = sorted(map(repr, pa.concat_tables(parts).to_pylist()))
    tables = {table: ledger.table(table).to_pylist() for table in ("observed", "promises", "waiting")}
    return {"rows": rows, "heights": ledger.counts["heights"], **tables}


@pytest.mark.slow
def test_kills_of_ingests_of_a_growing_lake(tmp_path: Path) -> None:
    lake = ic_lake.make_lake(tmp_path, ticks=60, options=STREAM_OF_ONE, certification="off", until=3)
    target, chosen, kills, until = tmp_path / "ledger", random.Random(5), 0, 3
    arguments = [sys.executable, "-m", "causeway", "ingest", "lake", lake, "--lake", str(target), "--buckets", "3"]
    with LakeNetwork.from_scenario(tmp_path / "scenario.toml", lake=lake, resume=True) as network:
        while kills < KILLS or not (target / "manifests").exists():
            command = subprocess.Popen(arguments, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL)
            before, began = sum(len(files) for _, _, files in os.walk(target)), time.monotonic()
            while command.poll() is None and sum(len(files) for _, _, files in os.walk(target)) == before:
                assert time.monotonic() < began + HANGS
                time.sleep(0.01)
            time.sleep(chosen.random() * 0.2)
            command.kill()
            kills += command.wait(HANGS) != 0
            until += 5
            network.run(until)
        network.run()
    ingest_lake(lake, str(target))
    whole = str(tmp_path / "whole")
    ingest_lake(lake, whole, buckets=3)
    assert stored(open_ledger(str(target))) == stored(open_ledger(whole))
