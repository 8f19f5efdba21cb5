"""Vectors and recordings: every file has the digest and the content that its page states."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests import recordings as recorded
from tests import vectors
from tests.recordings import Recordings

FOLDERS = {"vectors": vectors.FOLDER, "recordings": recorded.FOLDER}
DATA = (".json", ".parquet", ".csv")
SHA_256 = re.compile(r"`[0-9a-f]{64}`")
COMMIT = re.compile(r"[0-9a-f]{40}")


def rows_under(page: Path, heading: str) -> Iterator[list[str]]:
    """Yield the rows of the table under a heading, without its first two lines."""
    section = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    for line in table[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_has_the_digest_of_its_page(folder: str) -> None:
    place = FOLDERS[folder]
    stated = {name: digest for name, _, digest in rows_under(place / "README.md", "Files")}
    found = {path.name: path for path in place.iterdir() if path.suffix in DATA}
    assert stated.keys() == found.keys()
    assert stated == {name: f"`{hashlib.sha256(path.read_bytes()).hexdigest()}`" for name, path in found.items()}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_has_a_source_with_commit_licence_and_digest(folder: str) -> None:
    place = FOLDERS[folder]
    rows = list(rows_under(place / "README.md", "Sources"))
    assert {name for name, *_ in rows} == {name for name, *_ in rows_under(place / "README.md", "Files")}
    for row in rows:
        repository, commit, path, licence, digest = row[-5:]
        if repository == "measured":
            assert re.fullmatch(r"[\w-]+ \d+\.\d+\.\d+( \(.+\))?", commit) and path, row
        else:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", repository) and COMMIT.fullmatch(commit) and path and licence, row
        assert SHA_256.fullmatch(digest), row


def test_data_files_stay_small() -> None:
    sizes = [path.stat().st_size for place in FOLDERS.values() for path in place.iterdir() if path.suffix in DATA]
    assert sum(sizes) < 3_000_000


def test_envelopes_equal_the_upstream_files() -> None:
    digests = {row[1]: row[-1] for row in rows_under(vectors.FOLDER / "README.md", "Sources")}
    for case in vectors.load_vectors("substrate_proofs")["envelopes"]:
        data = bytes.fromhex(case["state_root"] + case["envelope"])
        assert digests[f"envelope {case['case']}"] == f"`{hashlib.sha256(data).hexdigest()}`"


def test_bridge_events_equal_the_source_file(recordings: Recordings) -> None:
    """Only this recording is written out byte for byte like its source file."""
    digests = {row[0]: row[-1] for row in rows_under(recorded.FOLDER / "README.md", "Sources")}
    data = recordings.bridge_events.read_bytes()
    assert digests["bridge_messages.parquet"] == f"`{hashlib.sha256(data).hexdigest()}`"


def test_recordings_have_the_known_row_counts(recordings: Recordings) -> None:
    packets = pq.read_table(recordings.hub_packets)
    nulls = {name: packets[name].null_count for name in packets.column_names}
    assert packets.num_rows == 161_478 and len(packets["channel_id"].unique()) == 55
    assert {name: count for name, count in nulls.items() if count} == {
        "send_time": 107, "ack_height": 705, "ack_time": 760,
    }  # fmt: skip
    with recordings.bridge_events.open() as file:
        sides = [row["side"] for row in csv.DictReader(file)]
    assert (sides.count("send"), sides.count("recv")) == (11_410, 11_417)
    channels = json.loads(recordings.channels.read_text())
    assert len(channels) == 857 and recordings.channels.parent == recordings.hub_packets.parent
    events = [json.loads(line)["type"] for line in recordings.xcm_journeys.read_text().splitlines()]
    assert {kind: events.count(kind) for kind in set(events)} == {
        "xcm.sent": 16, "xcm.relayed": 13, "xcm.received": 15, "xcm.timeout": 6,
    }  # fmt: skip
