"""The benchmark's third-party verifiers accept the accepted proofs, and report refusals."""

from __future__ import annotations

import pytest

from benchmarks.process import BenchmarkFailed
from benchmarks.proofs import ic, ics23, substrate
from benchmarks.proofs.native import Native, NativeVerifier
from benchmarks.proofs.node import IC, ICS23, SUBSTRATE, NodeMissing, OtherVerifier, install

SIZE = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = str(tmp_path_factory.mktemp("other-verifiers"))
    try:
        versions = install(made)
    except NodeMissing as missing:
        pytest.fail(str(missing))
    assert {"node", IC, ICS23, SUBSTRATE} == set(versions)
    return made


@pytest.mark.slow
def test_other_verifiers_alternate_with_ours(folder: str) -> None:
    counted = {}
    for name, family in ((IC, ic), (ICS23, ics23), (SUBSTRATE, substrate)):
        rows = [row for row in family.measure(SIZE, 1, folder) if name in row["figures"]]
        assert all(row["figures"][name]["ratio"] > 0 for row in rows)
        counted[name] = len(rows)
    assert counted == {IC: 1, ICS23: 2, SUBSTRATE: 2}


@pytest.mark.slow
def test_compiled_verifiers_alternate_with_ours_and_refuse(native: list[Native]) -> None:
    assert all(each.version[0].isdigit() for each in native)
    rows = ics23.measure(SIZE, 1, None, native)
    for each in native:
        beside = [row["figures"][each.name] for row in rows if each.name in row["figures"]]
        assert len(beside) == 3 and all(figures["ratio"] > 0 for figures in beside)
        for name in ("iavl", "tendermint", "smt"):
            with (
                NativeVerifier(each, name, bytes(32), [(b"key", b"value", b"")], 1) as verifier,
                pytest.raises(BenchmarkFailed, match="refused"),
            ):
                verifier.measure()


def test_refusal_by_another_verifier_fails_the_benchmark(folder: str) -> None:
    work = {"spec": "iavl", "root": "00" * 32, "claims": [["00", "00", ""]]}
    with pytest.raises(BenchmarkFailed, match="ics23 in Node: "):
        OtherVerifier(folder, "ics23", work)
    with pytest.raises(BenchmarkFailed, match="unheard_of in Node: "):
        OtherVerifier(folder, "unheard_of", {})
