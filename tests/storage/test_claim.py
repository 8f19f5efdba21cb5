"""Claims: leftovers of failed creations, and lakes that are not resumed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.network.network import LakeNetwork
from causeway.scenarios.scenario import load_scenario
from causeway.service.node.node import BlockPace, Node
from causeway.storage.files import Storage
from causeway.storage.lake import Lake, LakeError
from causeway.storage.table_schemas import TableSchemas
from causeway.storage.writer_claim import FolderBeforeClaim, claim_lake

SCENARIO = """
[network]
protocol = "xdm"
executor = "in_process"
[options]
%s
[[chains]]
name = "left"
[[programs]]
name = "echo"
chain = "left"
program = "echo"
[traffic]
source = "script"
"""


@pytest.fixture
def refused_scenario(tmp_path: Path) -> Path:
    """A scenario that is refused only after its chains are resolved."""
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO % f'validator_keys = {{ nobody = ["{64 * "0"}"] }}')
    return path


def open_for_writing(path: Path, lake: str, served: bool, resume: bool = False) -> Node | LakeNetwork:
    """Open a lake for writing, like a server or like a run."""
    if served:
        return Node(load_scenario(path), lake, BlockPace(0, on_demand=True))
    return LakeNetwork.from_scenario(path, lake=lake, resume=resume)


def all_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("served", [False, True])
def test_refused_scenario_leaves_no_files(refused_scenario: Path, tmp_path: Path, served: bool) -> None:
    before = all_in(tmp_path)
    lake = str(tmp_path / "folder" / "inside" / "lake")
    with pytest.raises(InvalidInput, match="nobody"):
        open_for_writing(refused_scenario, lake, served)
    assert all_in(tmp_path) == before


def test_existing_files_remain(refused_scenario: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    (lake / "traffic").mkdir(parents=True)
    (lake / "notes").write_text("mine")
    before = all_in(tmp_path)
    with pytest.raises(InvalidInput, match="nobody"):
        LakeNetwork.from_scenario(refused_scenario, lake=str(lake))
    assert all_in(tmp_path) == before


def test_claim_on_a_file_removed_meanwhile_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that opened it before and locks it after would write beside the next one."""
    lake = Lake.at(str(tmp_path / "lake"))
    (tmp_path / "lake").mkdir()
    fstat = os.fstat

    def removed(number: int) -> os.stat_result:
        (tmp_path / "lake" / "writer").unlink(missing_ok=True)
        return fstat(number)

    monkeypatch.setattr("causeway.storage.writer_claim.os.fstat", removed)
    with pytest.raises(LakeError, match="is being written by another process"):
        claim_lake(lake)


def test_lake_of_other_tables_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In-flight value from before a table of it existed would be unknown."""
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO % "")
    encoded = TableSchemas.encoded

    def earlier(tables: TableSchemas) -> dict[str, object]:
        content = encoded(tables)
        return {**content, "state": [table for table in content["state"] if table["name"] != "declared_under"]}

    with monkeypatch.context() as patch:
        patch.setattr(TableSchemas, "encoded", earlier)
        with LakeNetwork.from_scenario(path, lake=str(tmp_path / "lake")) as network:
            network.run(ticks=2)
    for served in (False, True):
        with pytest.raises(LakeError, match="it was made without the table declared_under"):
            open_for_writing(path, str(tmp_path / "lake"), served, resume=True)


def test_root_folder_exists() -> None:
    assert FolderBeforeClaim.of(Storage("/")).folders == ()
