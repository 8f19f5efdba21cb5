"""Records are ingested exactly once despite kills at random instants.

The slow tests kill as often as ``CAUSEWAY_KILLS`` says (once if it says nothing):

    CAUSEWAY_KILLS=25 pytest -m slow tests/ledger/ingest/test_ingest_kills.py
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from causeway.cli.process import compile_before_use
from causeway.ledger.ingest.ingest import ingest_files
from causeway.ledger.store import open_ledger
from tests.ledger.ingest.test_ledger_ingest import FIELDS, HEAD, lines, mapping
from tests.ledger.ingest.test_ledger_ingest_on_disk import contents
from tests.support.common.kills import HANGS, KILLS, ROOT, ended, environment, python_workers

MAPPING = """
format = "csv"
stated_by = "t"

[windows]
by = "time"

[[events]]
event = { column = "what", values = { s = "sent", r = "received" }, others = "refuse" }

[fields]
"""


def write_mapping(folder: Path) -> Path:
    """Return a mapping file equal to ``mapping()``."""
    path = folder / "mapping.toml"

    def inline(value: Any) -> str:
        if isinstance(value, str):
            return f'"{value}"'
        return "{ " + ", ".join(f"{name} = {inline(each)}" for name, each in value.items()) + " }"

    path.write_text(MAPPING + "".join(f"{name} = {inline(value)}\n" for name, value in FIELDS.items()))
    return path


def rows_of(lake: Path) -> dict[str, Any]:
    """Return the rows of a ledger, for any number of commits."""
    found = contents(str(lake))
    counts = ("records", "taken", "quarantined", "blank", "rows")
    found["counts"] = {name: found["counts"].get(name, 0) for name in counts}
    found["inputs"] = sorted({name for name, *_ in found["inputs"]})
    return found


class Commands:
    """Commands that ingest a folder into a ledger."""

    def __init__(self, folder: Path) -> None:
        self.source, self.lake, self.mapping = folder / "in", folder / "ledger", write_mapping(folder)
        self.source.mkdir()
        self._out = folder / "out"

    @contextmanager
    def started(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start one; it ends with the ``with`` block."""
        arguments = ["ingest", "own", str(self.source), "--mapping", str(self.mapping), "--lake", str(self.lake)]
        with self._out.open("ab") as out:
            command = subprocess.Popen(
                [sys.executable, "-m", "causeway", *arguments, *options],
                cwd=ROOT, env=environment(), stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            yield command
        finally:
            command.kill()
            command.wait(HANGS)

    def said(self) -> str:
        """Return the output of all of them."""
        return self._out.read_text()

    def began(self, command: subprocess.Popen[bytes]) -> bool:
        """Wait until a command has begun to write; return whether it is still running."""
        until, before = time.monotonic() + HANGS, self._there()
        while not ended(command, 0.01):
            assert time.monotonic() < until, "it does not begin"
            if self._there() != before:
                return True
        return False

    def _there(self) -> int:
        return sum(len(files) + len(folders) for _, folders, files in os.walk(self.lake))

    def done(self, *options: str) -> None:
        """Run one to its end."""
        with self.started(*options) as command:
            assert command.wait(HANGS) == 0, self.said()


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["in_process", "spark"])
def test_kills_of_one_call(tmp_path: Path, executor: str) -> None:
    commands, chosen = Commands(tmp_path), random.Random(7)
    for number in range(12):
        text = HEAD + lines(5_000 * number, 5_000 * number + 6_000) + "bad\n"
        (commands.source / f"{number}.csv").write_text(text)
    ingest_files(str(commands.source), str(tmp_path / "whole"), mapping(), buckets=8, executor="in_process")
    whole = rows_of(tmp_path / "whole")
    options = ("--buckets", "8", "--executor", executor, "--master", "local[2]")
    begin = time.monotonic()
    commands.done(*options)
    longest = (time.monotonic() - begin) / 2
    for kill in range(KILLS):
        shutil.rmtree(commands.lake)
        with commands.started(*options) as command:
            assert commands.began(command), commands.said()
            ended(command, chosen.uniform(0, longest))
            workers = python_workers(command.pid)
            if workers and kill % 2 == 0:
                with contextlib.suppress(psutil.NoSuchProcess):
                    chosen.choice(workers).kill()
                assert command.wait(HANGS) == 0, commands.said()
            else:
                command.send_signal(signal.SIGKILL)
        commands.done(*options)
        assert rows_of(commands.lake) == whole
        if executor == "in_process":  # a killed command's Spark continues for a while, and may still write
            files = {str(path.relative_to(commands.lake)) for path in commands.lake.rglob("*.parquet")}
            assert files == {file.path for file in open_ledger(str(commands.lake)).live}
            assert not [*commands.lake.rglob("*.arrow")]
    assert not any("Traceback" in line for line in commands.said().splitlines()), commands.said()


@pytest.mark.slow
def test_kills_of_a_command_that_follows_a_folder(tmp_path: Path) -> None:
    commands, chosen = Commands(tmp_path), random.Random(8)
    stop = threading.Event()

    def write() -> None:
        """Append to files, also within lines, create new ones, and remove some incomplete ones."""
        own, number = random.Random(9), 0
        texts: dict[str, bytes] = {}
        while not stop.wait(own.uniform(0.01, 0.1)):
            if len(texts) < 4:
                texts[f"{number}.csv"] = (HEAD + lines(1000 * number, 1000 * number + own.randrange(300))).encode()
                number += 1
            name = own.choice(sorted(texts))
            size = own.randrange(1, 500)
            with (commands.source / name).open("ab") as file:
                file.write(texts[name][:size])
            texts[name] = texts[name][size:]
            if not texts[name]:
                del texts[name]
        for name, rest in texts.items():
            with (commands.source / name).open("ab") as file:
                file.write(rest)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for kill in range(KILLS + 1):
            with commands.started("--follow", "--interval", "0.1", "--master", "local[1]", "--buckets", "4") as command:
                assert commands.began(command), commands.said()
                ended(command, chosen.uniform(0, 5))
                assert command.poll() is None, commands.said()
                if kill < KILLS:
                    command.send_signal(signal.SIGKILL)
                else:
                    command.send_signal(signal.SIGINT)
                    assert command.wait(HANGS) == 130, commands.said()
    finally:
        stop.set()
        writer.join(HANGS)
    for path in commands.source.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    commands.done("--follow", "--once", "--master", "local[1]")
    ingest_files(str(commands.source), str(tmp_path / "whole"), mapping(), buckets=4, executor="in_process")
    assert rows_of(commands.lake) == rows_of(tmp_path / "whole")
    said = commands.said()
    assert "Traceback" not in said and "causeway: interrupted; " in said
    assert open_ledger(str(commands.lake)).number > KILLS


@pytest.mark.slow
def test_interrupted_call_is_reported_in_one_line(tmp_path: Path) -> None:
    compile_before_use()  # or the command reports that it is
    commands = Commands(tmp_path)
    (commands.source / "a.csv").write_text(HEAD + lines(0, 1_500_000))
    with commands.started("--json") as command:
        assert commands.began(command)
        command.send_signal(signal.SIGINT)
        assert command.wait(HANGS) == 130
    assert commands.said().splitlines() == [
        "causeway: interrupted; nothing of it is in the ledger, and it can be run again"
    ]
    commands.done("--json")
    assert json.loads(commands.said().splitlines()[-1])["records"] == 1_500_000
