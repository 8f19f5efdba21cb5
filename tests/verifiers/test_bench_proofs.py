"""The benchmark's other verifiers accept what ours accept, and say when they do not."""

from __future__ import annotations

import pytest

from benchmarks.process import BenchmarkFailed
from benchmarks.proofs import ic, ics23, substrate
from benchmarks.proofs.node import IC, ICS23, SUBSTRATE, NodeMissing, OtherVerifier, install

SIZE = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = str(tmp_path_factory.mktemp("other-verifiers"))
    try:
        versions = install(made)
    except NodeMissing as missing:
        pytest.skip(str(missing))
    assert {"node", IC, ICS23, SUBSTRATE} == set(versions)
    return made


def test_they_take_turns_with_ours(folder: str) -> None:
    counted = {}
    for name, family in ((IC, ic), (ICS23, ics23), (SUBSTRATE, substrate)):
        rows = [row for row in family.measure(SIZE, 1, folder) if name in row["figures"]]
        assert all(row["figures"][name]["ratio"] > 0 for row in rows)
        counted[name] = len(rows)
    assert counted == {IC: 1, ICS23: 4, SUBSTRATE: 2}


def test_what_they_refuse_fails_the_benchmark(folder: str) -> None:
    work = {"spec": "iavl", "root": "00" * 32, "claims": [["00", "00", ""]]}
    with pytest.raises(BenchmarkFailed, match="ics23 in Node: "):
        OtherVerifier(folder, "ics23", work)
    with pytest.raises(BenchmarkFailed, match="unheard_of in Node: "):
        OtherVerifier(folder, "unheard_of", {})
