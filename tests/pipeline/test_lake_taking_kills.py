"""Whatever is killed at whatever instant, each height of a lake is in the ledger once.

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

from causeway.network.network import Network
from causeway.pipeline.lake_taking import take_lake
from causeway.pipeline.ledger_store import Ledger, open_ledger
from tests.pipeline.kills import HANGS, KILLS, ROOT, environment
from tests.unit import ic_lake
from tests.unit.test_lake_ledger import STREAM_OF_ONE


def stored(ledger: Ledger) -> dict[str, Any]:
    parts = [ledger.rows(bucket) for bucket in range(ledger.buckets)]
    rows = sorted(map(repr, pa.concat_tables(parts).to_pylist()))
    tables = {table: ledger.table(table).to_pylist() for table in ("observed", "promises", "waiting")}
    return {"rows": rows, "heights": ledger.counts["heights"], **tables}


@pytest.mark.slow
def test_kills_of_calls_that_take_a_growing_lake(tmp_path: Path) -> None:
    lake = ic_lake.make_lake(tmp_path, ticks=60, options=STREAM_OF_ONE, certification="off", until=3)
    target, chosen, kills, until = tmp_path / "ledger", random.Random(5), 0, 3
    arguments = [sys.executable, "-m", "causeway", "ingest", "lake", lake, "--lake", str(target), "--buckets", "3"]
    with Network.from_scenario(tmp_path / "scenario.toml", lake=lake, resume=True) as network:
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
    take_lake(lake, str(target))
    whole = str(tmp_path / "whole")
    take_lake(lake, whole, buckets=3)
    assert stored(open_ledger(str(target))) == stored(open_ledger(whole))
