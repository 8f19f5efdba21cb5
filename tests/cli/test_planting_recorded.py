"""Violations planted in ingested traffic of three kinds: each is named, and no other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from causeway.cli.app import build_app
from causeway.cli.shell import OK, execute
from causeway.ledger.store import open_ledger
from tests.planting import plant_all
from tests.planting.judging import LIMIT, named
from tests.planting.traffic import rows_of
from tests.planting.windows import cut_by_chance, without
from tests.recordings import Recordings
from tests.support.properties.audit_ledgers import Case

SAID: set[str] = {"sent_again", "received_again", "received_before_sent"}
"""Kinds of violations for traffic with both ends recorded."""

CONTENT: set[str] = {"altered", "forged_too", "reused", "received_unsent"}
"""Kinds of violations for traffic with recorded contents and contiguous indices."""

BRIDGE = SAID | CONTENT | {"early", "timed_out_too", "sent_overtakes"}
PACKETS: set[str] = {"sent_again", "acknowledged_again", "sent_overtakes"}


def ingest_recording(kind: str, source: Path, folder: Path, most: int | None = None) -> Case:
    """The ledger of a file; with ``most`` without lanes with more rows."""
    lake = str(folder / "ledger")
    assert execute(["ingest", kind, str(source), "--lake", lake], build_app, "causeway") == OK
    ledger = open_ledger(lake)
    rows = rows_of(pa.concat_tables([ledger.rows(bucket) for bucket in range(ledger.buckets)]))
    if most is not None:
        counts = Counter(row["lane"] for row in rows)
        rows = [row for row in rows if counts[row["lane"]] <= most]
    return Case(rows, rows_of(ledger.table("observed")), rows_of(ledger.table("promises")))


@pytest.mark.parametrize(
    ("kind", "recording", "rows", "some"),
    [
        pytest.param("bridge-events", "bridge_events", None, BRIDGE, marks=pytest.mark.slow),
        pytest.param("ibc-packets", "hub_packets", 500, PACKETS, marks=pytest.mark.slow),
        ("xcm-journeys", "xcm_journeys", None, SAID),
    ],
)
def test_violations_planted_in_recorded_traffic_are_named(
    kind: str, recording: str, rows: int | None, some: set[str], recordings: Recordings, tmp_path: Path
) -> None:
    random = Random(kind)
    recorded = ingest_recording(kind, getattr(recordings, recording), tmp_path, rows)
    before = named(recorded.audit(4, LIMIT), "violated")
    made = plant_all(recorded, random)
    assert {one.kind for _, planted in made for one in planted} >= some
    for case, planted in made:
        violated = named(case.audit(4, LIMIT), "violated")
        assert violated == before | {each for one in planted for each in one.violated}
    if recorded.observed:
        left, _ = without(recorded, cut_by_chance(random, recorded))
        assert named(left.audit(4, LIMIT), "violated") <= before
