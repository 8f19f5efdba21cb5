"""Lakes with sealed small files of invalid content: each command reports them in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from causeway.cli.app import build_app
from causeway.cli.shell import BAD_INPUT, FAILED, execute
from causeway.storage.commit_log import decoded, encoded
from causeway.storage.layout import LakeHead
from tests.cli.test_stored_parquet import SCENARIO
from tests.support.common.small_lakes import lake_of
from tests.tiers import sized

MANIFEST = "manifests/0000000001.json"
OTHERS: list[Any] = [None, -1.5, 10**400, "x", True, [[0, 2**40]], {"0": [["a", 1, "b"]]}]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(lake_of(tmp_path_factory.mktemp("shapes"), SCENARIO))


def rewrite_file(lake: Path, file: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Change the content of a file, seal it, and return the former content."""
    before = (lake / file).read_bytes()
    content = decoded(before)
    del content["digest"]
    change(content)
    (lake / file).write_bytes(encoded(content))
    return before


def check_report(lake: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command, and require that it reports the corruption in a few lines if it detects it."""
    capsys.readouterr()
    code = execute([command, str(lake)], build_app, "causeway")
    found = capsys.readouterr()
    assert code in (0, FAILED, BAD_INPUT), found.err
    assert code != BAD_INPUT or len(found.err.splitlines()) == 1, found.err


@pytest.mark.parametrize(
    "name", ["number", "epoch", "parent", "compacted", "state", "log", "outside", "offers", "totals", "exchange"]
)
def test_manifest_of_another_shape_is_corrupted(lake: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for other in OTHERS:
        head = (lake / "head").read_bytes()
        before = rewrite_file(lake, MANIFEST, lambda found, other=other: found.update({name: other}))  # type: ignore[misc]
        digest = decoded((lake / MANIFEST).read_bytes())["digest"]
        (lake / "head").write_bytes(LakeHead(**{**LakeHead.of(head).__dict__, "manifest": digest}).content())
        for command in ("check", "vacuum"):
            check_report(lake, command, capsys)
        (lake / MANIFEST).write_bytes(before)
        (lake / "head").write_bytes(head)
    assert execute(["check", str(lake)], build_app, "causeway") == 0


def places(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield paths in a document: keys and indices, of lists the first two."""
    for key in node if isinstance(node, dict) else range(min(2, len(node))) if isinstance(node, list) else ():
        yield (*above, key)
        yield from places(node[key], (*above, key))


def replace_value(content: dict[str, Any], place: tuple[Any, ...], other: Any) -> None:
    """Replace the value at a path, or remove the values at ``places``."""
    node: Any = content
    for step in place[:-1]:
        node = node[step]
    if other is places:
        del node[place[-1]]
    else:
        node[place[-1]] = other


@settings(max_examples=sized(10, 2_000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=strategies.data())
def test_lake_file_of_another_shape_is_corrupted(
    lake: Path, capsys: pytest.CaptureFixture[str], data: strategies.DataObject
) -> None:
    content = (lake / "lake.json").read_bytes()
    place = data.draw(strategies.sampled_from([*places(decoded(content))]))
    other = data.draw(strategies.sampled_from([places, 7, [], {}, *OTHERS]))
    rewrite_file(lake, "lake.json", lambda found: replace_value(found, place, other))
    try:
        for command in ("audit", "vacuum"):
            check_report(lake, command, capsys)
    finally:
        (lake / "lake.json").write_bytes(content)


@pytest.mark.parametrize(
    ("place", "other", "wrong"),
    [
        (("protocol",), places, "protocol: missing"),
        (("chains", 0, "name"), 7, "chains[0].name: 7: must be a string"),
        (("chains", 1, "name"), "left", "left is listed twice"),
        (("chains", 1, "number"), 0, "0 is listed twice"),
        (("buckets", 0, 1), 3, "buckets of 3 chains, where 2 are listed"),
        (("scenario", "options"), places, "scenario.options: missing"),
        (("scenario", "options", "no_such"), 1, "scenario.options.no_such: unknown key"),
        (("tables", "state", 0, "owner"), "x", "x is no column of it"),
        (("tables", "logs", 0, "columns", 2), places, "outbound has no column source of type uint32"),
        (("tables", "logs", 0), places, "outbound has no column height of type int64"),
        (("files", "chains.parquet"), [1], "is no length with digests"),
    ],
)
def test_lake_file_errors_name_the_problem(
    lake: Path, place: tuple[Any, ...], other: Any, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rewrite_file(lake, "lake.json", lambda found: replace_value(found, place, other))
    assert execute(["audit", str(lake)], build_app, "causeway") == BAD_INPUT
    (lake / "lake.json").write_bytes(before)
    error = capsys.readouterr().err
    assert f"{lake} is damaged: lake.json has invalid content: " in error and wrong in error


def test_out_of_range_heights_cost_nothing(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = (lake / "head").read_bytes()
    far = {**LakeHead.of(head).__dict__, "height": 10**12, "number": 10**12}
    (lake / "head").write_bytes(LakeHead(**far).content())
    stray = lake / "manifests" / "9999999999.json"
    stray.write_bytes((lake / MANIFEST).read_bytes())
    for command in ("check", "audit", "vacuum"):
        check_report(lake, command, capsys)
    stray.unlink()
    before = rewrite_file(lake, MANIFEST, lambda found: found["heights"].update(first=2**62))
    digest = decoded((lake / MANIFEST).read_bytes())["digest"]
    (lake / "head").write_bytes(LakeHead(**{**LakeHead.of(head).__dict__, "manifest": digest}).content())
    for command in ("check", "audit", "vacuum"):
        check_report(lake, command, capsys)
    (lake / MANIFEST).write_bytes(before)
    (lake / "head").write_bytes(head)
