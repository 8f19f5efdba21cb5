"""Lakes whose small files are sealed and have what is never written there: each command says so in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from causeway.cli.app import build
from causeway.cli.shell import BAD_INPUT, BROKEN, execute
from causeway.pipeline.layout import Head
from causeway.pipeline.manifests import decoded, encoded
from tests.unit.small_lakes import lake_of
from tests.unit.test_stored_parquet import SCENARIO

MANIFEST = "manifests/0000000001.json"
OTHERS: list[Any] = [None, -1.5, 10**400, "x", True, [[0, 2**40]], {"0": [["a", 1, "b"]]}]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(lake_of(tmp_path_factory.mktemp("shapes"), SCENARIO))


def put(lake: Path, file: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Change what is in a file, seal it, and return what it had before."""
    before = (lake / file).read_bytes()
    content = decoded(before)
    del content["digest"]
    change(content)
    (lake / file).write_bytes(encoded(content))
    return before


def said(lake: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command, and require that it says in a few lines that the lake is damaged, if it sees it."""
    capsys.readouterr()
    code = execute([command, str(lake)], build, "causeway")
    found = capsys.readouterr()
    assert code in (0, BROKEN, BAD_INPUT), found.err
    assert code != BAD_INPUT or len(found.err.splitlines()) == 1, found.err


@pytest.mark.parametrize(
    "name", ["number", "epoch", "parent", "compacted", "state", "log", "outside", "offers", "totals", "exchange"]
)
def test_a_manifest_with_another_shape_is_damaged(lake: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for other in OTHERS:
        head = (lake / "head").read_bytes()
        before = put(lake, MANIFEST, lambda found, other=other: found.update({name: other}))  # type: ignore[misc]
        digest = decoded((lake / MANIFEST).read_bytes())["digest"]
        (lake / "head").write_bytes(Head(**{**Head.of(head).__dict__, "manifest": digest}).content())
        for command in ("check", "vacuum"):
            said(lake, command, capsys)
        (lake / MANIFEST).write_bytes(before)
        (lake / "head").write_bytes(head)
    assert execute(["check", str(lake)], build, "causeway") == 0


@pytest.mark.parametrize("name", ["asset", "files", "identity", "protocol", "scenario", "tables", "chains"])
def test_a_lake_file_with_another_shape_is_damaged(lake: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for other in OTHERS[:-1] if name == "scenario" else OTHERS:
        before = put(lake, "lake.json", lambda found, other=other: found.update({name: other}))  # type: ignore[misc]
        for command in ("check", "audit"):
            said(lake, command, capsys)
        (lake / "lake.json").write_bytes(before)


def test_numbers_beyond_all_heights_cost_nothing(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = (lake / "head").read_bytes()
    far = {**Head.of(head).__dict__, "height": 10**12, "number": 10**12}
    (lake / "head").write_bytes(Head(**far).content())
    stray = lake / "manifests" / "9999999999.json"
    stray.write_bytes((lake / MANIFEST).read_bytes())
    for command in ("check", "audit", "vacuum"):
        said(lake, command, capsys)
    stray.unlink()
    before = put(lake, MANIFEST, lambda found: found["heights"].update(first=2**62))
    digest = decoded((lake / MANIFEST).read_bytes())["digest"]
    (lake / "head").write_bytes(Head(**{**Head.of(head).__dict__, "manifest": digest}).content())
    for command in ("check", "audit", "vacuum"):
        said(lake, command, capsys)
    (lake / MANIFEST).write_bytes(before)
    (lake / "head").write_bytes(head)
