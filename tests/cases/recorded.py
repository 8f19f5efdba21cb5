"""Recorded traffic of a case: written as short rows, ingested and audited by the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from causeway.cli.app import build_app
from causeway.cli.shell import OK, execute

Row = tuple[Any, ...]
Reasons = dict[str, dict[str, int]]
"""Number of findings by check and reason."""

MORNING = 1_700_000_000
"""Second 0 of a case."""

MAPPING = """
format = "csv"
stated_by = "indexer"
[fields]
protocol = { text = "bridge" }
source = "source"
destination = "destination"
lane = { text = "route" }
index = "n"
chain = "chain"
height = { column = "block", optional = true }
time = { column = "at", unit = "ms" }
transaction = { column = "tx", optional = true }
content = ["body"]
asset = { column = "asset", optional = true }
amount = { column = "amount", optional = true }
[fields.event]
column = "what"
others = "refuse"
[fields.event.values]
lock = "sent"
mint = "received"
run = "executed"
settle = "acknowledged"
drop = "dropped"
[[events]]
"""
"""A bridge's indexer: a row per event, from ``left`` to ``right`` by default."""

TOGETHER = '[windows]\nby = "time"\ntogether = true\n'
NUMBERED = '[[promises]]\npromise = "numbered"\n'
AT_RIGHT = ("mint", "run", "drop")


def table(rows: Iterable[Row]) -> str:
    """Write rows (event, n, second, and columns by name) as CSV: one block per second, ``body`` by the number."""
    names = ("what", "n", "at", "source", "destination", "chain", "block", "tx", "body", "asset", "amount")
    lines = [",".join(names)]
    for what, n, second, *known in rows:
        chain = "right" if what in AT_RIGHT else "left"
        row: dict[str, Any] = {"what": what, "n": n, "at": round((MORNING + second) * 1000), "chain": chain}
        row |= {"source": "left", "destination": "right", "block": 1000 + int(second), "tx": "", "body": f"body {n}"}
        row |= {"asset": "", "amount": "", **(known[0] if known else {})}
        lines.append(",".join(str(row[name]) for name in names))
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Case:
    """A case: ``rows`` (``table``) or ``content`` in ``file``, the ``mapping``, options of ``audit``; and its answer.

    ``code``: exit code of ``audit``, ``sentence``: the verdict, ``reasons``: all findings; ``figures``: of the JSON.
    """

    sentence: str
    code: int
    reasons: Reasons
    rows: Iterable[Row] = ()
    content: str | bytes | None = None
    file: str = "events.csv"
    mapping: str | None = MAPPING + TOGETHER + NUMBERED
    kind: str = "bridge"
    options: tuple[str, ...] = ()
    figures: tuple[tuple[str, Any], ...] = ()


class Judge:
    """Ingests and judges in a folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = folder, capsys
        self.lake = str(folder / "ledger")

    def command(self, *arguments: str) -> tuple[int, str, str]:
        """Run the command line; return exit code, output and error output."""
        self._capsys.readouterr()
        code = execute([*arguments], build_app, "causeway")
        out, err = self._capsys.readouterr()
        return code, out, err

    def ingest(self, content: str | bytes, file: str, kind: str, mapping: str | None) -> tuple[int, str, str]:
        """Ingest a file of this content."""
        path = self._folder / file
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        mapped: list[str] = []
        if mapping is not None:
            (self._folder / "mapping.toml").write_text(mapping)
            mapped = ["--mapping", str(self._folder / "mapping.toml")]
        return self.command("ingest", kind, str(path), "--lake", self.lake, *mapped)

    def audit(self, *options: str) -> tuple[int, dict[str, Any]]:
        """Return the exit code of an audit and what it prints as JSON."""
        code, out, _ = self.command("audit", self.lake, "--json", *options)
        found: dict[str, Any] = json.loads(out)
        return code, found

    def check(self, case: Case) -> None:
        """Ingest and audit a case, and compare it with its answer."""
        content = table(case.rows) if case.content is None else case.content
        code, _, err = self.ingest(content, case.file, case.kind, case.mapping)
        assert code == OK, err
        code, found = self.audit(*case.options)
        assert reasons_of(found) == case.reasons
        assert (found["sentence"], code) == (case.sentence, case.code)
        assert [(name, found[name]) for name, _ in case.figures] == list(case.figures)


def reasons_of(found: dict[str, Any]) -> Reasons:
    """Return the number of findings of an audit by check and reason."""
    return {
        check["check"]: {each["reason"]: each["findings"] for each in check["reasons"]}
        for check in found["checks"]
        if check["reasons"]
    }


Checked = Callable[[Case], None]

__all__ = [
    "MAPPING",
    "MORNING",
    "NUMBERED",
    "TOGETHER",
    "Case",
    "Checked",
    "Judge",
    "Reasons",
    "Row",
    "reasons_of",
    "table",
]
