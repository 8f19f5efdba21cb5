"""``causeway audit``: from a recorded file to verdicts, tables and an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from causeway.cli.app import build_app
from causeway.cli.shell import BAD_INPUT, FAILED, OK, execute

HEAD = "direction,side,chain,timestamp,tx_hash,nonce,token_dst,beneficiary,amount\n"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("audit")
    rows = []
    for nonce in range(5):
        for side, chain, at in (("send", "ethereum", 10_000), ("recv", "moonbeam", 20_000)):
            amount = 7 if (side, nonce) == ("recv", 3) else 2**100
            rows.append(f"eth->moonbeam,{side},{chain},{at + nonce},0x{side}{nonce},{nonce},gold,me,{amount}\n")
    (folder / "bridge.csv").write_text(HEAD + "".join(rows))
    lake = str(folder / "ledger")
    assert execute(["ingest", "bridge-events", str(folder / "bridge.csv"), "--lake", lake], build_app, "causeway") == OK
    return lake


def test_altered_message_is_named_and_fails_the_command(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["audit", lake, "--json", "--out", str(tmp_path / "found")], build_app, "causeway") == FAILED
    said = json.loads(capsys.readouterr().out)
    checks = {check["check"]: check for check in said["checks"]}
    assert not said["holds"] and checks["authenticity"]["verdict"] == "FAILED"
    assert (checks["authenticity"]["first"]["index"], checks["authenticity"]["first"]["source_row"]) == (3, 8)
    found = pq.read_table(tmp_path / "found" / "violations.parquet").to_pylist()
    assert [(row["check"], row["verdict"], row["index"]) for row in found] == [
        ("delivery", "noted", 3),
        ("exactly_once", "unknown", 3),
        ("authenticity", "violated", 3),
    ]
    assert {path.stem for path in (tmp_path / "found").iterdir()} == {
        *("violations", "completeness", "lanes", "sums", "abroad")
    }


def test_single_check_decides_the_verdict_and_explains_it(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["audit", lake, "--check", "finality", "--check", "answers"], build_app, "causeway") == OK
    out = capsys.readouterr().out
    assert "finality" in out and "PASSED" in out and "no lane promises it" in out and "authenticity" not in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--check", "honesty"], "--check honesty: must be one of delivery"), (["--named", "0"], "--named")],
)
def test_bad_arguments_are_reported_in_one_line(
    lake: str, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["audit", lake, *arguments], build_app, "causeway") == BAD_INPUT
    err = capsys.readouterr().err
    assert text in err and err.count("\n") == 1


def test_lake_is_replayed_and_a_ledger_is_not(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = Path(__file__).resolve().parents[2] / "examples" / "auction.toml"
    place = str(tmp_path / "run")
    run = ["run", str(scenario), "--lake", place, "--executor", "in_process"]
    assert execute(run, build_app, "causeway") == OK
    capsys.readouterr()
    assert execute(["audit", place, "--reexecute", "--scenario", str(scenario), "--json"], build_app, "causeway") == OK
    said = json.loads(capsys.readouterr().out)
    headers = next(check for check in said["checks"] if check["check"] == "headers")
    assert said["holds"] and headers["verdict"] == "PASSED" and headers["examined"] > 100
    assert execute(["audit", lake, "--reexecute"], build_app, "causeway") == BAD_INPUT
    assert "only such a lake is executed again" in capsys.readouterr().err
