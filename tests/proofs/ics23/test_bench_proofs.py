"""The benchmark ``proofs``: every family has rows, and differing contenders are detected. No times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ics23.simple_store import SimpleStore
from rich.console import Console

from benchmarks import bench_proofs, render
from benchmarks.cli import main
from benchmarks.process import BenchmarkFailed
from benchmarks.proofs import bench, hashing, ic, ics23, mmr, node, scale, storage, substrate, tendermint, tries
from benchmarks.proofs.queues import Queue, changed_at_a_time, measure_queue
from benchmarks.proofs.timing import OURS, Row, compared, require_same, row, take_turns, timed
from benchmarks.proofs.workload import payloads, some_of

SIZE = 60
MODULES = {
    "hashing": hashing,
    "ic": ic,
    "ics23": ics23,
    "tendermint": tendermint,
    "substrate": substrate,
    "tries": tries,
    "storage": storage,
    "mmr": mmr,
    "scale": scale,
}
PARTS = {
    "hashing": {"hash"},
    "ic": {"commit", "prove", "sign", "verify"},
    "ics23": {"hash", "commit", "prove", "verify"},
    "tendermint": {"sign", "verify"},
    "substrate": {"commit", "prove", "verify"},
    "tries": {"commit", "prove"},
    "storage": {"verify"},
    "mmr": {"commit", "prove", "verify"},
    "scale": {"encode", "decode"},
}


def require_row(measured: Row, repeats: int) -> None:
    assert set(measured) == {"part", "what", "unit", "figures"}
    for number, (name, figures) in enumerate(measured["figures"].items()):
        assert (name == OURS) == (number == 0)
        assert len(figures["seconds"]) in (repeats, -(-repeats // 2))
        assert figures["items"] >= 1
        assert min(figures["seconds"]) >= 0 and figures["median_seconds"] > 0 and figures["per_second"] > 0
        assert ("ratio" in figures) == ("ratio_of_processor_time" in figures) == (number > 0)


@pytest.mark.parametrize("family", bench.FAMILIES)
def test_every_family_has_its_rows(family: str) -> None:
    rows: list[Row] = MODULES[family].measure(SIZE, 1, None)
    assert {measured["part"] for measured in rows} == PARTS[family]
    names = [(measured["part"], measured["what"]) for measured in rows]
    assert len(set(names)) == len(names)
    for measured in rows:
        require_row(measured, 1)
    if "commit" in PARTS[family]:
        beside = {name for measured in rows for name in measured["figures"]}
        assert "rebuild" in beside or family == "ics23"
        assert any(f"{SIZE} committed" in measured["what"] for measured in rows)


def test_run_has_printable_figures() -> None:
    told: list[str] = []
    result = bench_proofs(SIZE, repeats=3, families=("mmr", "tendermint"), progress=told.append)
    assert told == ["mmr", "tendermint"]
    assert json.loads(json.dumps(result)) == result
    assert [family["family"] for family in result["families"]] == ["mmr", "tendermint"]
    for family in result["families"]:
        assert family["peak_bytes"] > 1 << 20
        for measured in family["rows"]:
            require_row(measured, 3)
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(result))
    text = console.export_text()
    assert "leaf by leaf" in text and "Ed25519 alone" in text
    assert "--others" in text


def test_missing_tools_are_reported_and_the_rest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    result = bench_proofs(SIZE, repeats=1, families=("mmr",), others=True)
    assert result["others_left_out"] == ("node and npm are not on PATH; cargo is not on PATH; go is not on PATH")
    assert result["families"][0]["rows"]


@pytest.mark.parametrize("as_json", [False, True])
def test_command_prints_figures(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["proofs", "--size", "1e2", "--repeats", "1", "--family", "mmr"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--json"] if as_json else arguments)
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    if as_json:
        result = json.loads(printed)
        assert (result["benchmark"], result["size"], len(result["families"])) == ("proofs", 100, 1)
    else:
        assert "mountain range: 100 committed" in printed


def test_command_refuses_a_non_numeric_size(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["proofs", "--size", "2.5"])
    assert ended.value.code == 2
    assert "size: 2.5 is not a whole number above 0" in capsys.readouterr().err


def test_unmeasurable_request_is_one_line() -> None:
    with pytest.raises(InvalidInput, match='family "bitcoin" is unknown; allowed: hashing, ic, ics23'):
        bench_proofs(families=("ic", "bitcoin"))
    with pytest.raises(InvalidInput, match="size: 3 messages, 20 to"):
        bench_proofs(3)
    with pytest.raises(InvalidInput, match="repeats: 0, at least 1"):
        bench_proofs(repeats=0)


def test_contenders_alternate_and_ratios_are_by_item() -> None:
    calls: list[str] = []

    def contender(name: str) -> Any:
        return timed(lambda: calls.append(name))

    samples = take_turns({"one": contender("one"), "two": contender("two")}, 3)
    assert calls == ["one", "two"] * 4
    assert [len(each) for each in samples.values()] == [3, 3]
    # Ours 2 ms for each of 1,000, theirs 6 ms for each of 10; medians, not means.
    ours, theirs = [(2.0, 1.0), (1.0, 1.0), (9.0, 1.0)], [(0.06, 0.01), (0.05, 0.01), (0.07, 0.02)]
    made = row("verify", "something", "proofs", {OURS: (ours, 1_000), "theirs": (theirs, 10)})
    figures = made["figures"]["theirs"]
    assert figures["microseconds_each"] == 6_000
    assert figures["per_second"] == 166.7
    assert (figures["ratio"], figures["ratio_of_minima"], figures["ratio_of_processor_time"]) == (3, 5, 1)
    assert compared("verify", "x", "proofs", {OURS: (contender("x"), 1)}, 2)["figures"][OURS]["items"] == 1


def test_contenders_with_other_results_are_detected() -> None:
    require_same([b"x"], [b"x"], "equal")
    with pytest.raises(BenchmarkFailed, match="roots: the contenders' results differ"):
        require_same(b"x", b"y", "roots")
    wrong: Queue[bytes] = Queue("queue", lambda count: b"ours", lambda state: state, plain=("other", lambda _: b"no"))
    with pytest.raises(BenchmarkFailed, match="queue: the contenders' results differ"):
        measure_queue(wrong, SIZE, 1)


def test_queue_is_changed_up_to_its_root_and_handed_over() -> None:
    steps: list[str] = []

    def step(name: str, state: list[str]) -> list[str]:
        steps.append(name)
        return [*state, name]

    def root(state: list[str]) -> bytes:
        steps.append("root")
        return b""

    queue: Queue[list[str]] = Queue(
        "queue",
        lambda count: step(f"build {count}", []),
        root,
        lambda state: step("append", state),
        lambda state: step("trim", state),
    )
    measured = measure_queue(queue, SIZE, 2)
    assert steps == ["build 60", "root", "append", "root", "trim", "root"] * 2
    assert measured.state == ["build 60", "append", "trim"]
    assert [each["what"] for each in measured.rows] == [
        "queue: 60 committed", "queue: 6 appended", "queue: 6 trimmed at the front",
    ]  # fmt: skip
    assert len(measured.commit) == 2
    assert [changed_at_a_time(size) for size in (5, 100, 10**6)] == [1, 10, 1_000]


def test_workload_is_the_same_every_time() -> None:
    assert payloads(50).equals(payloads(50))
    assert len(set(payloads(1_000).to_pylist())) == 1_000
    places = some_of(10, 1_010, 200)
    assert (places == some_of(10, 1_010, 200)).all()
    assert len(set(places.tolist())) == 200 and places.min() >= 10 and places.max() < 1_010
    assert some_of(3, 8, 200).tolist() == [3, 4, 5, 6, 7]


def test_plain_tree_has_the_root_of_the_store() -> None:
    for count in (1, 2, 7):
        keys = [b"key %02d" % number for number in range(count)]
        column = pa.array(keys, pa.binary())
        assert ics23.plain_simple_root(keys, keys) == SimpleStore.of(column, column).root


def test_verifiers_are_those_of_the_tests() -> None:
    ours = Path(node.__file__).with_name(node.PACKAGES)
    tested = Path(__file__).resolve().parents[2] / "verifiers" / "package.json"
    assert (
        json.loads(ours.read_text())["dependencies"].items() <= json.loads(tested.read_text())["dependencies"].items()
    )
