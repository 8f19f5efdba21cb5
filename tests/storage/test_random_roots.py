"""Random scenarios of all protocols have equal roots in this process and on Spark."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from causeway_proofs.errors import InvalidInput
from hypothesis import assume, given
from pyspark.sql import SparkSession

from causeway.storage.lake import Lake
from causeway.storage.reorgs import network_root
from tests.support.properties.examined_scenarios import examples, play
from tests.support.properties.random_scenarios import scenarios
from tests.tiers import sized


def roots(folder: Path) -> list[str]:
    """Return the roots at all heights of the lake in ``folder``."""
    lake = Lake.at(str(folder / "lake"))
    commits = [lake.numbered(number) for number in range(1, lake.last_manifest().number + 1)]
    return [network_root(lake, each.at(line.height)) for each in commits for line in each.lines]


@pytest.mark.slow
@examples(sized(4, 200))
@given(scenarios())
def test_roots_are_the_same_on_spark(spark: SparkSession, text: str) -> None:
    """Also in other commits and tasks than in this process; the counts and the verdict are equal, too."""
    found = []
    for executor, partitions, commit in (("in_process", "1", "64"), ("spark", "2", "5")):
        with tempfile.TemporaryDirectory() as name:
            chosen = {"executor": f'"{executor}"', "partitions": partitions, "commit_every": commit}
            try:
                found.append((play(text, Path(name), master='"local[2]"', **chosen), roots(Path(name))))
            except InvalidInput:
                assume(False)
    assert found[0] == found[1]
