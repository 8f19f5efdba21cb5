"""All faces agree on the verdict and on every shared count.

A face is asked as its users ask it: commands by their arguments, pages by their addresses. What it says is brought to
the same names (``Said``); no two may differ.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

import causeway as cw
from causeway.analysis.run_summary import summarize_run
from causeway.analysis.stored_figures import compute_figures
from causeway.audit.incremental.watch import LedgerWatch
from causeway.audit.stored import audit_ledger
from causeway.cli.app import build_app
from causeway.cli.shell import FAILED, OK, execute, exit_code
from causeway.explorer.app import Explorer
from causeway.ledger.lake.ingest import is_lake, open_or_derive_ledger
from causeway.ledger.outcomes import OUTCOMES
from causeway.ledger.store import create_ledger
from causeway.network.network import LakeNetwork
from causeway.scenarios import scenario_file
from causeway.service.audit_metrics import take_snapshot
from causeway.storage.lake import Lake
from tests.chance_lakes import PROTOCOLS, chance_lake
from tests.cli.test_outcome import CHAINS, HALT, MOVES, PROGRAMS, SCRIPT
from tests.faces.explored import open_live
from tests.ledger.test_ledger_watch import BUCKETS, commit_some
from tests.recordings import Recordings
from tests.support.properties.audit_ledgers import by_chance
from tests.tiers import generated_lakes, sized

Said = dict[str, Any]
Make = Callable[[Path], str]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SEEDS = max(1, generated_lakes() // 200)
KINDS = ("violated", "unknown", "noted")


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Give a function that runs a command; it returns the exit code and the output."""

    def run(*arguments: str) -> tuple[int, str]:
        code = execute([*arguments], build_app, "causeway")
        return code, capsys.readouterr().out

    return run


def checks_of(checks: Any) -> dict[str, tuple[int, ...]]:
    """Return the findings of each check that has any."""
    counts = {check.name: tuple(getattr(check, kind) for kind in KINDS) for check in checks.values()}
    return {name: found for name, found in counts.items() if any(found)}


def plain_checks(checks: Any) -> dict[str, tuple[int, ...]]:
    """Return the same from the JSON of checks."""
    counts = {check["check"]: tuple(check[kind] for kind in KINDS) for check in checks}
    return {name: found for name, found in counts.items() if any(found)}


def of_totals(totals: dict[str, Any]) -> Said:
    """Return the totals of figures."""
    names = ("messages", "between_chains", "sent", "received", "pending", "in_flight", "from_users", "forged", "rows")
    said = {f"of messages: {name}": totals[name] for name in (*names, "control", "refused_from_users")}
    return said | {f"of messages: {each}": totals[each] for each in OUTCOMES} | {"calls": totals["requests"]}


def of_calls(outcomes: dict[str, int]) -> Said:
    """Return the counts of calls by outcome."""
    return {f"of calls: {each}": outcomes.get(each, 0) for each in OUTCOMES} | {"calls": sum(outcomes.values())}


def run_values(place: str) -> Said:
    """Return the values that a run prints about its own lake."""
    with summarize_run(Lake.at(place)) as (_, found):
        plain, code = found.plain(), exit_code(found.verdict)
    checks = {name: tuple(one[kind] for kind in KINDS) for name, one in plain["checks"].items()}
    return {
        **of_calls({each: plain[each] for each in OUTCOMES}),
        **{name: plain[name] for name in ("verdict", "sentence")},
        "checks": {name: counts for name, counts in checks.items() if any(counts)},
        "exit code": code,
        "calls": plain["sent"],
        "of messages: between_chains": plain["messages"],
        "of messages: in_flight": plain["in_flight"],
        "of messages: forged": plain["forged"],
        "of messages: refused_from_users": plain["ingress_refused"],
    }


def page_values(place: str) -> Said:
    """Return the values on the first page of the explorer."""
    live = open_live(place)

    async def asked() -> str:
        transport = httpx.ASGITransport(Explorer(live).application())
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get("/")).text

    try:
        page = asyncio.run(asked())
    finally:
        live.close()
    [sentence] = re.findall("<h1>(.*?)</h1>", page, re.S)
    shown = dict(re.findall(r'<dt>(.*?)</dt><dd class="figure">(.*?)</dd>', page))
    return {
        "sentence": html.unescape(re.sub("<[^>]+>", "", sentence)),
        "of messages: messages": numbers(shown["Messages"]),
    }


def numbers(text: str) -> int:
    """Return the number in a text of a page with all digits."""
    title = re.search(r'title="([\d,]+)"', text)
    return int(re.sub(r"\D", "", title[1] if title else re.sub("<[^>]+>", "", text)))


def watch_values(place: str) -> Said:
    """Return the metrics of a following audit."""
    with LedgerWatch(place) as watch:
        watched = watch.look()
    assert watched is not None
    checks = watched.audit.checks
    shown = take_snapshot(watched, checks)
    totals = {name: tuple(shown.totals[name, kind] for kind in KINDS) for name in checks}
    return {
        "verdict": watched.audit.verdict.value,
        "sentence": watched.audit.sentence(),
        "checks": {name: found for name, found in totals.items() if any(found)},
        "of messages: rows": shown.rows,
    }


def opened_values(place: str) -> Said:
    """Return the values of ``cw.open``."""
    with cw.open(place) as opened:
        found, rows = opened.audit(), opened.calls.arrow()
        outcomes = Counter(rows["outcome"].to_pylist())
        codes = opened.codes.where(kind="request").arrow()
        by_code = Counter(dict.fromkeys(OUTCOMES, 0))
        for outcome, count in zip(codes["outcome"].to_pylist(), codes["messages"].to_pylist(), strict=True):
            by_code[outcome] += count
        assert +by_code == outcomes
        totals = of_totals(dict(opened.figures.totals))
    return {
        **of_calls(outcomes),
        **totals,
        "verdict": found.verdict.value,
        "sentence": found.sentence,
        "checks": checks_of(found.checks),
    }


def spark_values(place: str, spark: SparkSession) -> Said:
    """Return the counts and findings of Spark."""
    with open_or_derive_ledger(place) as ledger:
        found = audit_ledger(ledger, executor="spark", session=spark)
        figures = compute_figures(ledger, executor="spark", session=spark)
    return {
        **of_totals(dict(figures.totals)),
        "verdict": found.verdict.value,
        "sentence": found.sentence(),
        "checks": checks_of(found.checks),
    }


def command_values(place: str, printed: Callable[..., tuple[int, str]]) -> Iterator[tuple[str, Said]]:
    """Yield the values of each command."""
    code, text = printed("audit", place, "--json")
    audit = json.loads(text)
    yield (
        "audit",
        {
            **{name: audit[name] for name in ("verdict", "sentence")},
            **{"exit code": code, "checks": plain_checks(audit["checks"])},
        },
    )
    code, text = printed("report", place, "--json")
    report = json.loads(text)
    yield (
        "report",
        {
            **of_totals(report["totals"]),
            **of_calls(report["calls"]),
            **{name: report[name] for name in ("verdict", "sentence")},
            **{"exit code": code, "checks": plain_checks(report["checks"])},
        },
    )
    _, text = printed("calls", place, "--json")
    yield "calls", of_calls(Counter(json.loads(line)["outcome"] for line in text.splitlines()))
    _, text = printed("calls", place)
    [number] = re.findall(r"(?m)^.*?: ([\d,]+) calls? over", text)
    yield "calls for people", {"calls": int(number.replace(",", ""))}
    _, text = printed("backlog", place, "--json")
    yield "backlog", of_totals(json.loads(text)["totals"])
    _, text = printed("latency", place, "--json")
    of_all = [row for row in json.loads(text)["latency"] if row["scope"] == "all"]
    yield "latency", {f"delays: {row['measure']} {row['unit']}": row["count"] for row in of_all}


def differences(said: dict[str, Said]) -> list[str]:
    """Return the differences between any two faces."""
    found = []
    for name in sorted({name for each in said.values() for name in each}):
        values = {face: each[name] for face, each in said.items() if name in each}
        if len({repr(value) for value in values.values()}) > 1:
            found.append(f"{name}: {values}")
    return found


def all_values(place: str, printed: Callable[..., tuple[int, str]]) -> dict[str, Said]:
    """Return the values of every face for a lake or ledger."""
    said = dict(command_values(place, printed))
    said |= {"cw.open": opened_values(place), "explorer": page_values(place), "metrics": watch_values(place)}
    return said | ({"run": run_values(place)} if is_lake(place) else {})


def example(name: str) -> Make:
    """Return a function that runs an example."""

    def make(folder: Path) -> str:
        settings = {"network.executor": "in_process"}
        with LakeNetwork.from_scenario(EXAMPLES / f"{name}.toml", settings, lake=str(folder / "lake")) as network:
            network.run()
        return str(folder / "lake")

    return make


def scripted(more: str, ticks: int | None = None) -> Make:
    """Return a function that runs a network with lost and pending messages."""

    def make(folder: Path) -> str:
        (folder / "s.toml").write_text(CHAINS + PROGRAMS + more + SCRIPT)
        with LakeNetwork.from_scenario(folder / "s.toml", lake=str(folder / "lake")) as network:
            network.run(ticks)
        return str(folder / "lake")

    return make


def demo(folder: Path) -> str:
    """Run a small demo: calls are forged, rejected, rerouted and refused."""
    settings = {"traffic.messages": "400", "network.executor": '"in_process"'}
    with scenario_file("demo") as path, LakeNetwork.from_scenario(path, settings, lake=str(folder / "lake")) as network:
        network.run()
    return str(folder / "lake")


def random_ledger(folder: Path, seed: int) -> str:
    """Write a ledger with arbitrary faults, a few rows per commit."""
    random = Random(seed)
    case, ledger = by_chance(random), create_ledger(str(folder / "ledger"), BUCKETS)
    left = random.sample(range(len(case.rows)), len(case.rows))
    while left:
        ledger = commit_some(ledger, case, random, left)
    return ledger.storage.uri


MADE: dict[str, Make] = {
    **{name: example(name) for name in ("auction", "tokens", "two_subnets", "domains", "parachains")},
    "a demo": demo,
    "calls whose caller moved": scripted(MOVES),
    "a halted chain": scripted(HALT),
    "a halted chain, still running": scripted(HALT, 4),
    "nothing": scripted("", 0),
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_faces_of_a_run_agree(made: Make, tmp_path: Path, printed: Callable[..., tuple[int, str]]) -> None:
    assert differences(all_values(made(tmp_path), printed)) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_faces_of_a_faulty_network_agree(
    protocol: str, seed: int, tmp_path: Path, printed: Callable[..., tuple[int, str]]
) -> None:
    assert differences(all_values(chance_lake(tmp_path, protocol, seed), printed)) == []


@pytest.mark.parametrize("seed", range(SEEDS))
def test_faces_of_a_random_ledger_agree(seed: int, tmp_path: Path, printed: Callable[..., tuple[int, str]]) -> None:
    assert differences(all_values(random_ledger(tmp_path, seed), printed)) == []


@pytest.mark.parametrize("kind", ["xcm-journeys", "bridge-events"])
def test_faces_of_recorded_traffic_agree(
    kind: str, tmp_path: Path, recordings: Recordings, printed: Callable[..., tuple[int, str]]
) -> None:
    place = str(tmp_path / "ledger")
    code, _ = printed("ingest", kind, str(getattr(recordings, kind.replace("-", "_"))), "--lake", place)
    assert code == OK
    assert differences(all_values(place, printed)) == []


def test_spark_and_this_process_agree(tmp_path: Path, spark: SparkSession) -> None:
    for number, place in enumerate((demo, lambda folder: random_ledger(folder, 3))):
        (tmp_path / str(number)).mkdir()
        made = place(tmp_path / str(number))
        assert differences({"Spark": spark_values(made, spark), "cw.open": opened_values(made)}) == []


def test_difference_between_faces_is_detected() -> None:
    assert differences({"one": {"calls": 1, "verdict": "PASSED"}, "other": {"calls": 2}, "third": {}}) == [
        "calls: {'one': 1, 'other': 2}"
    ]


def run_command(scenario: Path, lake: Path, *options: str) -> tuple[int, dict[str, Any], list[str]]:
    """Run a scenario as a command; return the exit code, its counts and its readable output."""
    command = [sys.executable, "-m", "causeway", "run", str(scenario), "--lake", str(lake), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    finished = [*command[:7], "--executor", "in_process", "--resume", "--json"]
    again = subprocess.run(finished, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == again.returncode, done.stderr + again.stderr
    measured = re.compile(r"seconds|per_second|bytes|^lake$")
    counts = {name: value for name, value in json.loads(again.stdout).items() if not measured.search(name)}
    lines = [line for line in done.stdout.splitlines() if " s, " not in line and "causeway state" not in line]
    return done.returncode, counts, lines


@pytest.mark.slow
def test_repeated_runs_on_any_runner_are_identical(tmp_path: Path) -> None:
    scenario = tmp_path / "s.toml"
    text = (CHAINS + PROGRAMS + MOVES + SCRIPT).replace('executor = "in_process"\n', "")
    scenario.write_text(text)
    ways = [("--executor", "in_process"), *(("--master", f"local[{cores}]") for cores in (2, 1)[: sized(1, 2)])]
    first, *others = [run_command(scenario, tmp_path / f"lake-{number}", *way) for number, way in enumerate(ways)]
    assert first[0] == FAILED and any(line.startswith("FAILED: 3 violations of delivery") for line in first[2])
    assert all(other == first for other in others)


def test_identical_runs_have_one_verdict(tmp_path: Path) -> None:
    found = set()
    for number in range(sized(5, 20)):
        (tmp_path / str(number)).mkdir()
        place = scripted(MOVES)(tmp_path / str(number))
        found.add(json.dumps(run_values(place), default=list))
    assert len(found) == 1
