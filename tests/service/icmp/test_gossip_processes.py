"""Nodes as separate processes over real sockets. Waits end by condition, and nothing is measured."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from causeway.cli.app import build_app
from causeway.cli.shell import execute
from causeway.gossip.processes.scenario import ProcessNodesSection, ProcessRelaySection, ProcessTopologySection
from tests.support.gossip.gossip_oracle import oracle_differences

ROOT = Path(__file__).parents[3]

EXAMPLE = str(ROOT / "examples" / "gossip_processes.toml")

LIMIT = 240.0
"""Seconds after which a test has failed."""


def start_command(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "causeway", "gossip", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_exit(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=LIMIT)
    return process.returncode, out, err


def run_command(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run a command in this process."""
    code = execute(["gossip", *arguments, "--json"], build_app, "causeway")
    found = capfd.readouterr()
    assert not found.err, found.err[-2_000:]
    return code, json.loads(found.out)


def up_arguments(*options: str) -> list[str]:
    return ["up", EXAMPLE, *options]


def small(nodes: int, blocks: int) -> list[str]:
    keys = ["nodes.parachains=2", "relay.interval=400", "relay.propagation=100", "nodes.away=200"]
    return ["--nodes", str(nodes), "--blocks", str(blocks), *(part for key in keys for part in ("--set", key))]


def test_queues_reach_all_nodes_despite_a_kill_and_replay_agrees(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trace = str(tmp_path / "trace")
    code, found = run_command(
        capfd, *up_arguments(*small(3, 5), "--kill", "1", "--trace", trace, "--metrics-port", "0")
    )
    assert code == 0 and found["holds"] and found["short"] == found["left"] == 0
    assert found["killed"] == 1 and sorted(node["lives"] for node in found["nodes"]) == [1, 1, 2]
    assert found["posted"] >= 10 and all(node["coverage"] == 1.0 for node in found["nodes"])
    assert len({node["metrics_port"] for node in found["nodes"]}) == 3
    assert not any(psutil.pid_exists(node["pid"]) for node in found["nodes"])
    code, replayed = run_command(capfd, "replay", trace)
    assert code == 0 and replayed["holds"] and replayed["lives"] == 4
    # The last received packets of the killed life were never reported.
    assert replayed["got"] >= sum(node["got"] for node in found["nodes"]) and replayed["received"] > 0
    assert oracle_differences(tmp_path / "trace") == (replayed["got"], [])


def children(process: subprocess.Popen[str], count: int) -> list[psutil.Process]:
    """Return the node processes once the expected number exists."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        found = psutil.Process(process.pid).children()
        if len(found) >= count and all("node_process" in " ".join(one.cmdline()) for one in found):
            return found
        assert process.poll() is None
        time.sleep(0.05)
    raise AssertionError("the processes are not there")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_no_process_outlives_its_launcher(number: signal.Signals) -> None:
    process = start_command(*up_arguments(*small(2, 10_000), "--json"))
    nodes = children(process, 2)
    os.kill(process.pid, number)
    code, out, err = wait_for_exit(process)
    if number == signal.SIGINT:
        assert code == 130 and json.loads(out)["stopped"] and err.count("\n") == 1 and "no process is left" in err
    gone, alive = psutil.wait_procs(nodes, timeout=LIMIT)
    assert len(gone) == 2 and not alive


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["up", "nowhere.toml"], "nowhere.toml"),
        (up_arguments("--nodes", "1"), "nodes.count"),
        (up_arguments("--nodes", "4", "--kill", "4"), "killed"),
        (up_arguments("--blocks", "3", "--seconds", "3"), "--seconds"),
        (up_arguments("--metrics-port", "65530"), "--metrics-port"),
        (up_arguments("--set", "gossip.topic_mode=none"), "gossip.topic_mode"),
        (up_arguments("--set", "gossip.max_queue_bytes=1000"), "queues of up to 1996 bytes"),
        (up_arguments("--set", "gossip.max_queue_messages=3"), "gossip.max_queue_messages = 3"),
        (up_arguments("--set", "gossip.reconciliation=minisketch"), 'only "off"'),
        (up_arguments("--set", "gossip.fallback_request=on"), 'only "off"'),
        (up_arguments("--trace", str(Path(__file__).parent)), "not empty"),
        (up_arguments("--trace", __file__), "is no folder; a trace begins in a new or empty one"),
        (["replay", "nowhere"], "no trace here"),
        (["replay", __file__], "is no folder; a trace is the folder that"),
    ],
)
def test_bad_input_is_reported_in_one_line(arguments: list[str], text: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert execute(["gossip", *arguments], build_app, "causeway") == 2
    said = capfd.readouterr()
    assert text in said.err and said.err.count("\n") == 1 and not said.out


def test_page_lists_all_scenario_keys_with_defaults() -> None:
    page = (ROOT / "docs" / "how-to" / "gossip.md").read_text().split("## Real processes", 1)[1]
    rows = [
        f"| `{name}.{key}` | {json.dumps(field.default)} | {field.description} |"
        for name, section in (
            ("nodes", ProcessNodesSection),
            ("topology", ProcessTopologySection),
            ("relay", ProcessRelaySection),
        )
        for key, field in section.model_fields.items()
    ]
    assert re.findall(r"^\| `(?:nodes|topology|relay)\..*$", page, re.M) == rows


@pytest.mark.slow
def test_sixteen_processes_with_four_killed_at_random(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace = str(tmp_path / "trace")
    process = start_command(
        *up_arguments("--kill", "4", "--blocks", "12", "--trace", trace, "--metrics-port", "0", "--json")
    )
    ports: set[int] = set()
    for node in children(process, 16):
        while not ports & (mine := listening_ports(node)):
            ports |= mine
            time.sleep(0.05)
    metrics = [text for port in ports if (text := scrape_metrics(port))]
    code, out, err = wait_for_exit(process)
    found = json.loads(out)
    assert code == 0 and found["holds"] and not err
    assert found["killed"] == 4 and sorted(node["lives"] for node in found["nodes"]) == [1] * 12 + [2] * 4
    assert found["posted"] >= 60 and all(node["got"] > 0 for node in found["nodes"])
    assert len(metrics) >= 12 and all("causeway_gossip_peers" in text for text in metrics)
    code, replayed = run_command(capfd, "replay", trace)
    assert code == 0 and replayed["holds"] and replayed["lives"] == 20
    assert oracle_differences(tmp_path / "trace") == (replayed["got"], [])


def listening_ports(node: psutil.Process) -> set[int]:
    """Return the listening ports of a process, none if it has ended."""
    try:
        return {one.laddr.port for one in node.net_connections() if one.status == psutil.CONN_LISTEN}
    except psutil.NoSuchProcess:
        return {0}


def scrape_metrics(port: int) -> str:
    """Return the metrics at a port, or nothing (for a peer port or a killed process)."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
    except (OSError, ValueError):
        return ""
