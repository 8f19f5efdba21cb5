"""The command line: help, results, exit codes, one-line errors and terminal output."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cbor2
import pytest
from causeway_proofs.jit_cache import is_prepared
from pyspark.sql import SparkSession

from causeway.cli import main
from causeway.cli.app import build_app
from causeway.cli.commands.manual import manual_page
from causeway.cli.commands.state import format_cell
from causeway.network.network import LakeNetwork
from causeway.service.keys.key_files import AccountKey, write_key
from causeway.storage.lake import Lake

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "reference" / "command-line.md"
TWO = str(EXAMPLES / "two_subnets.toml")
COMMANDS = [
    *("demo", "run", "state", "prove", "verify", "audit", "ledger", "trace", "check", "ingest", "vacuum", "serve"),
    *("relay", "report", "explore", "send", "completion", "manual", "calls", "latency", "backlog", "compare"),
    "export",
]

IDLE_WORKERS = re.compile(
    r"Traceback \(most recent call last\):\n(?:  .*\n)*?.*pyspark/daemon\.py(?:.*\n)*?BrokenPipeError: .*\n"
)
"""Log lines of idle workers of the tests' shared Spark session; no command caused them."""

Result = tuple[int, str, str]
Run = Callable[..., Result]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Give a function that runs the command line here and gives its exit code, output and error output."""

    def run(*arguments: str) -> Result:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capfd.readouterr()
        err = IDLE_WORKERS.sub("", err)
        code = ended.value.code
        assert isinstance(code, int)
        return code, out, err

    yield run
    logging.disable(logging.NOTSET)


def documented_codes() -> list[tuple[str, str]]:
    """Return the exit codes with their meanings as the page of the command line lists them."""
    section = PAGE.read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    return re.findall(r"^\| (\d+) \| (.*?) \|", section.replace("`", ""), re.MULTILINE)


def scenario(folder: Path, text: str) -> str:
    path = folder / "scenario.toml"
    path.write_text(text)
    return str(path)


# ---- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], *([command] for command in COMMANDS)], ids=["causeway", *COMMANDS])
def test_help_has_an_example_and_the_exit_codes(cli: Run, arguments: list[str]) -> None:
    code, out, err = cli(*arguments, "--help")
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    assert f"Example: causeway {' '.join(arguments)}".strip() in text
    codes = "; ".join(f"{code} {meaning}" for code, meaning in documented_codes())
    assert f"Exit codes: {codes}. " in text


def test_manual_page_has_the_exit_codes() -> None:
    status = manual_page("audit").partition(".SH EXIT STATUS\n")[2].partition(".SH")[0].replace("\\-", "-")
    assert status == "".join(f".TP\n.B {code}\n{meaning}\n" for code, meaning in documented_codes())


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in ("completion", "manual")])
def test_every_command_prints_json(cli: Run, command: str) -> None:
    assert "--json" in cli(command, "--help")[1]


def test_every_command_is_tested_here() -> None:
    own = {command.name for command in build_app().registered_commands}
    assert own == set(COMMANDS)


# ---- bad input -----------------------------------------------------------------------------------

UNKNOWN_CANISTER = """
[[chains]]
name = "a"
[[programs]]
name = "alice"
chain = "a"
program = "caller"
[traffic]
source = "script"
[[traffic.send]]
tick = 0
to = "alcie"
method = "x"
"""
RECORDED = '[traffic]\nsource = "recorded"\nsource_chain = "c"\npath = "packets.csv"\n'


def linked_to_itself(folder: Path) -> Path:
    link = folder / "link.html"
    link.symlink_to(link)
    return link


def key_in(folder: Path) -> str:
    write_key(folder / "me.key", AccountKey(bytes(32)))
    return str(folder / "me.key")


NO_ADDRESS = "no address of a served lake; write it as http://HOST:PORT"

SENT = ["--to", "alice", "--method", "x"]

BAD: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "no scenario": (lambda at: ["run", str(at / "none.toml")], "none.toml: no such scenario file"),
    "no TOML": (lambda at: ["run", scenario(at, "[network\n")], "not valid TOML"),
    "unknown key": (lambda at: ["run", TWO, "--set", "network.sed=1"], "network.sed: unknown key; did you mean seed?"),
    "bad value": (lambda at: ["run", TWO, "--set", "network.seed=x"], "network.seed"),
    "bad setting": (lambda at: ["run", TWO, "--set", "seed"], "--set seed: write KEY=VALUE"),
    "bad setting of Spark": (lambda at: ["run", TWO, "--conf", "foo=bar"], "--conf foo: must be a setting of Spark"),
    "bad key of Spark": (
        lambda at: ["run", TWO, "--set", "network.spark.foo=1"],
        'network.spark.foo: "foo": must be a setting of Spark',
    ),
    "bad option": (lambda at: ["run", TWO, "--executor", "in_process", "--set", "options.vsr=odd"], "options.vsr"),
    "bad executor": (lambda at: ["run", TWO, "--executor", "gpu"], "network.executor"),
    "bad protocol": (lambda at: ["run", TWO, "--protocol", "smtp"], "network.protocol"),
    "bad ticks": (lambda at: ["run", TWO, "--ticks", "0"], "network.ticks"),
    "bad partitions": (lambda at: ["run", TWO, "--partitions", "many"], "--partitions"),
    "unknown canister": (
        lambda at: ["run", scenario(at, UNKNOWN_CANISTER)],
        'traffic.send[0].to: "alcie": no such program; did you mean alice?',
    ),
    "unknown program": (
        lambda at: ["run", scenario(at, UNKNOWN_CANISTER.replace('"caller"', '"calle"').replace("alcie", "alice"))],
        'program "calle" is unknown',
    ),
    "unknown module": (
        lambda at: ["run", scenario(at, UNKNOWN_CANISTER.replace('"caller"', '"nope:X"').replace("alcie", "alice"))],
        'scenario.toml: programs[0].program: program "nope:X" cannot be loaded',
    ),
    "missing column": (lambda at: ["run", scenario(at, RECORDED), "--lake", str(at / "l")], 'no column "channel_id"'),
    "no recording": (
        lambda at: ["run", scenario(at, RECORDED), "--traffic", str(at / "none.csv"), "--lake", str(at / "l")],
        "none.csv: no such recording",
    ),
    "recording that is no file": (
        lambda at: ["run", scenario(at, RECORDED), "--traffic", "/dev/null", "--lake", str(at / "l")],
        "'/dev/null'",
    ),
    "links that lead to themselves": (
        lambda at: ["report", TWO, "--out", str(linked_to_itself(at))],
        "cannot be written: its links lead nowhere",
    ),
    "unwritable lake": (lambda at: ["run", TWO, "--lake", str(at / "packets.csv" / "l")], "cannot be written"),
    "lake where no folder can be": (lambda at: ["run", TWO, "--lake", "/proc/x/y"], "/proc/x/y cannot be written: No "),
    "scenario without an end": (lambda at: ["run", "/dev/zero"], "/dev/zero: longer than 16 MiB; a scenario is a TOML"),
    "lake of another version": (lambda at: ["run", TWO, "--lake", str(at / "old"), "--resume"], "is of format 99"),
    "state of another version": (lambda at: ["state", str(at / "old")], "is of format 99"),
    "state of what is no lake": (lambda at: ["state", str(at / "list")], "lake.json is no JSON object"),
    "lake of another scenario": (lambda at: ["run", TWO, "--lake", str(at / "old")], "is of format 99"),
    "no lake": (lambda at: ["state", str(at / "none")], "holds no lake"),
    "nothing to resume": (lambda at: ["run", TWO, "--lake", str(at / "none"), "--resume"], "no lake to resume"),
    "resume without lake": (lambda at: ["run", TWO, "--resume"], "--resume: needs the lake"),
    "unknown command": (lambda at: ["fly"], "No such command 'fly'"),
    "unknown option": (lambda at: ["run", TWO, "--fast"], "No such option: --fast"),
    "missing argument": (lambda at: ["run"], "Missing argument"),
    "too few chains": (lambda at: ["demo", "--chains", "1"], "--chains"),
    "key that is there": (lambda at: ["key", "new", str(at / "packets.csv")], "packets.csv: exists already"),
    "no key": (lambda at: ["key", "show", str(at / "none.key")], "none.key: cannot be read"),
    "key that others read": (lambda at: ["key", "show", str(at / "packets.csv")], "chmod 600"),
    "amount of no call": (
        lambda at: ["send", "http://127.0.0.1:9", *SENT, "--key", str(at / "none.key"), "--amount", "1"],
        "--amount: only a call has one",
    ),
    "address without a host": (lambda at: ["relay", "http://", "http://127.0.0.1:9"], NO_ADDRESS),
    "address with half a host": (lambda at: ["relay", "http://[::1", "http://127.0.0.1:9"], NO_ADDRESS),
    "address with half a character": (lambda at: ["relay", "http://\udcff", "http://127.0.0.1:9"], NO_ADDRESS),
    "address with no port": (lambda at: ["relay", "http://127.0.0.1:99999", "http://127.0.0.1:9"], NO_ADDRESS),
    "nonce that cannot be": (
        lambda at: ["send", "http://127.0.0.1:9", *SENT, "--key", key_in(at), "--nonce", str(2**63)],
        "nonce: 9223372036854775808; allowed: 1 to 9223372036854775807",
    ),
    "server for strangers": (lambda at: ["serve", str(at / "l"), "--host", "0.0.0.0"], "add --public"),
    "drawn keys for strangers": (
        lambda at: ["serve", str(at / "l"), "--host", "0.0.0.0", "--public", "--drawn-keys"],
        "strangers could sign as your validators",
    ),
    "no name of a host": (
        lambda at: ["serve", str(at / "l"), "--name", "a b"],
        "--name: 'a b'; allowed: the name of a",
    ),
    "half of TLS": (lambda at: ["serve", str(at / "l"), "--tls-cert", "x"], "--tls-cert, --tls-key: give both"),
    "no public key": (lambda at: ["serve", str(at / "l"), "--relayer", "abc"], "--relayer: 'abc'; allowed: a public"),
    "served without keys": (
        lambda at: ["serve", str(at / "l"), "--port", "0", "--scenario", str(EXAMPLES / "relay_left.toml")],
        "left: its validators' keys would be drawn from the seed",
    ),
    "nothing to serve": (lambda at: ["serve", str(at / "none"), "--port", "0"], "holds no lake"),
    "served without a pace": (lambda at: ["serve", str(at / "l"), "--block-seconds", "0"], "add --on-demand"),
    "lakes that nobody serves": (
        lambda at: ["relay", "http://127.0.0.1:9", "http://127.0.0.1:9", "--once"],
        "http://127.0.0.1:9/v1/status",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_reported_in_one_clear_line(cli: Run, tmp_path: Path, what: str) -> None:
    (tmp_path / "packets.csv").write_text("channel,sequence,send_height\nchannel-0,1,5\n")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "lake.json").write_text('{"format": 99}')
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "lake.json").write_text("[]")
    arguments, expected = BAD[what]
    given = arguments(tmp_path)
    if given[0] == "run" and "--executor" not in given:
        given += ["--executor", "in_process"]
    code, out, err = cli(*given)
    assert (code, out) == (2, "")
    assert err.startswith("causeway: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert expected in err
    assert "Traceback" not in err and "Errno" not in err


def test_unexpected_error_is_one_line_with_a_hint(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **more: object) -> None:
        raise RuntimeError("the disk\nis on fire")

    monkeypatch.setattr(LakeNetwork, "__init__", fail)
    code, out, err = cli("run", TWO)
    assert (code, out) == (3, "")
    assert err == "causeway: unexpected RuntimeError: the disk (CAUSEWAY_DEBUG=1 shows the trace)\n"
    monkeypatch.setenv("CAUSEWAY_DEBUG", "1")
    code, _, err = cli("run", TWO)
    assert code == 3
    assert err.startswith("Traceback")


# ---- results -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> str:
    """Return the lake of the two subnets: heights 1 to 3 lie within a commit."""
    place = str(tmp_path_factory.mktemp("cli") / "lake")
    settings = {"executor": "in_process", "partitions": "1", "commit_every": "4"}
    with LakeNetwork.from_scenario(
        TWO, {f"network.{key}": value for key, value in settings.items()}, lake=place
    ) as net:
        net.run()
        assert net.lake.manifest(1).last == 4
    return place


def test_run_prints_one_json_object(cli: Run, tmp_path: Path, spark: SparkSession) -> None:
    place = str(tmp_path / "lake")
    code, out, err = cli("run", TWO, "--executor", "in_process", "--lake", place, "--json")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    found = json.loads(out)
    counts = {"sent": 5, "received": 4, "answered": 3, "rejected": 2, "pending": 0, "dropped": 0, "messages": 8}
    assert found.items() >= {**counts, "duplicates": 0, "out_of_order": 0}.items()
    assert found.items() >= {"protocol": "ic", "chains": 2, "ticks": 5, "heights": 5, "lake": place}.items()
    assert len(found["root"]) == 64
    assert found["seconds"] > 0
    assert found["messages_per_second"] > 0
    assert found["peak_memory_bytes"] > 10_000_000


def test_finished_run_can_be_resumed_with_equal_output(cli: Run, lake: str) -> None:
    code, out, _ = cli("run", TWO, "--executor", "in_process", "--lake", lake, "--resume", "--json")
    assert code == 0
    assert json.loads(out).items() >= {"sent": 5, "messages": 8, "messages_per_second": 0.0}.items()


def test_run_prints_its_outcome_in_words(cli: Run, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "causeway.cli.commands.run.upcoming_traffic_ticks", lambda *_: pytest.fail("no bar counts them")
    )
    code, out, err = cli("run", TWO, "--executor", "in_process")
    assert (code, err) == (0, "")
    assert "PASSED. All calls have completed." in out
    assert "The lake was temporary" in out


def test_violated_guarantee_is_exit_code_1(cli: Run, tmp_path: Path) -> None:
    moved = tmp_path / "moved.toml"
    moved.write_text(Path(TWO).read_text() + '[[moves]]\ntick = 1\nprogram = "alice"\nchain = "right"\n')
    code, out, _ = cli("run", str(moved), "--executor", "in_process")
    assert code == 1
    assert "FAILED: " in out and "delivery: first" in out


def test_options_override_scenario_keys(cli: Run, tmp_path: Path, spark: SparkSession) -> None:
    arguments = ("run", TWO, "--executor", "in_process", "--json", "--partitions", "1", "--ticks", "2")
    code, out, _ = cli(*arguments, "--set", "traffic.send[0].count=9")
    assert code == 0
    assert json.loads(out).items() >= {"sent": 10, "ticks": 2}.items()


def test_state_lists_its_tables(cli: Run, lake: str) -> None:
    code, out, err = cli("state", lake, "--master", "local[2]", "--json")
    assert (code, err) == (0, "")
    rows = {row["table"]: row["rows"] for row in json.loads(out)}
    assert rows["accounts"] == 2
    assert rows["program_caller"] == 1
    assert rows["input_queues"] == 0


def test_state_of_one_chain_at_a_height(cli: Run, lake: str) -> None:
    arguments = ("state", lake, "--master", "local[2]", "--json")
    code, out, _ = cli(*arguments, "--table", "accounts", "--chain", "left", "--height", "1")
    assert code == 0
    (alice,) = json.loads(out)
    balance = {"balance_over": 0, "balance_high": 0, "balance_low": 998_500}
    assert alice == {"program": "alice", "next_callback": 3, **balance}
    code, out, _ = cli(*arguments, "--table", "lanes", "--limit", "1")
    (lane,) = json.loads(out)
    assert {lane["source"], lane["destination"]} == {"left", "right"}


def test_state_prints_a_readable_table(cli: Run, lake: str) -> None:
    code, out, _ = cli("state", lake, "--master", "local[2]", "--table", "program_caller")
    assert code == 0
    assert "alice" in out
    assert "answered" in out
    assert "\x1b" not in out
    code, out, _ = cli("state", lake, "--master", "local[2]", "--table", "program_caller", "--limit", "0")
    assert code == 0
    assert "--limit N prints more than 0" in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--table", "nope"), 'table: "nope": no such table; there are '),
        (("--table", "lanes", "--chain", "nope"), 'chain: "nope": no such chain; there are 2: left, right'),
        (("--height", "99"), "height: 99 is not committed; committed are 0 to 5"),
    ],
)
def test_state_names_the_available_tables(
    cli: Run, lake: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: str
) -> None:
    """Before Spark starts."""
    monkeypatch.setattr("causeway.cluster.session.open_session", lambda *_, **more: pytest.fail("Spark starts"))
    code, out, err = cli("state", lake, "--master", "local[2]", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"causeway: {expected}")


# ---- terminal, pipe, Ctrl-C ---------------------------------------------------------------------

LONG = """
[network]
executor = "in_process"
[[chains]]
count = 3
[traffic]
source = "generated"
messages_per_tick = 20
ticks = 5000
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "causeway", *arguments]


def wait_for(path: Path, process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert path.exists()


def test_pipe_has_no_progress_bar_and_no_colour(tmp_path: Path) -> None:
    done = subprocess.run(
        command("run", TWO, "--executor", "in_process", "--lake", str(tmp_path / "lake")),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "tick " not in done.stdout
    assert "PASSED" in done.stdout


def test_closed_pipe_is_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command("run", "--help"), stdout=write, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(write)
    assert done.stderr == b""


def all_of(terminal: int) -> bytes:
    """Return the output of a terminal until its other end is closed."""
    shown = b""
    with contextlib.suppress(OSError):  # Linux says EIO then
        while more := os.read(terminal, 65536):
            shown += more
    return shown


def test_terminal_has_a_progress_bar_and_ctrl_c_prints_the_resume_command(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    arguments = command("run", scenario(tmp_path, LONG), "--lake", str(lake))
    terminal, other = pty.openpty()
    with (
        ThreadPoolExecutor(1) as reader,
        subprocess.Popen(arguments, stdout=other, stderr=other, env={**os.environ, "TERM": "xterm"}) as process,
    ):
        os.close(other)
        shown = reader.submit(all_of, terminal)  # a terminal that nobody reads blocks the writer
        wait_for(lake / "manifests" / "0000000002.json", process)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    os.close(terminal)
    text = shown.result().decode()
    assert "of 4,999" in text
    assert "continue with the same command and --resume" in text
    assert "Traceback" not in text
    last = Lake.at(str(lake)).last_manifest()
    assert len(last.lines) > 1, "what was under way was finished"
    assert f"stopped at height {last.height}, tick {last.tick}" in text
    with LakeNetwork.from_scenario(tmp_path / "scenario.toml", lake=str(lake), resume=True) as net:
        assert net.height == last.height
        assert net.run(ticks=net.tick + 3) == net.height


def test_integers_beyond_the_python_digit_limit_are_printed() -> None:
    assert format_cell("state", cbor2.dumps([10**5000])).startswith("81c2")


def test_command_imports_no_other_command_compiler_or_pandas(tmp_path: Path) -> None:
    """They take longer to load than a small audit; in a process of others Arrow needs pandas."""
    text = (
        "import sys\n"
        "from causeway.cli import main\n"
        "sys.argv = ['causeway', 'audit', 'nowhere']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as error:\n"
        "    print(error.code, sorted({'numba', 'pandas', 'causeway.cli.commands.gossip'} & {*sys.modules}))\n"
        "import pyarrow as pa\n"
        "from causeway.ledger.number_loops import parse_number_slices\n"
        "print(sorted({'numba', 'pandas'} & {*sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.splitlines() == ["2 []", "[]" if is_prepared() else "['numba']"]


def test_signal_at_process_exit_leaves_the_result_unchanged() -> None:
    at_the_end = "import atexit, os, signal\nfrom causeway.cli import main\n"
    for name in ("SIGINT", "SIGTERM"):
        at_the_end += f"atexit.register(lambda: os.kill(os.getpid(), signal.{name}))\n"
    arguments = [sys.executable, "-c", f"{at_the_end}main()", "--version"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("causeway ")
