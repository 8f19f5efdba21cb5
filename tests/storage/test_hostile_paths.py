"""Lakes and ledgers with hostile paths in their files: every command, every position of a path.

What is written is sealed anew, so that only the path tells. Nothing outside of the folder changes or is shown, and of
the folder itself nothing goes that a lake or a ledger is.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causeway.cli.app import build_app
from causeway.cli.shell import execute
from causeway.storage.commit_log import decoded, encoded, head_content
from tests.support.ic import ic_lake
from tests.tiers import sized

TICKS = 70
"""Two runs of commits are compacted, and the files replaced by the first are removed."""

SECRET = "precious-7f3a"

COMMANDS = {
    "lake": [
        ["check", "{}"],
        ["vacuum", "{}", "--keep-every", "0", "--keep-last", "1"],
        ["state", "{}"],
        ["audit", "{}"],
        ["calls", "{}"],
        ["ledger", "{}"],
        ["run", "{}/../scenario.toml", "--lake", "{}", "--resume"],
        ["ingest", "lake", "{}", "--lake", "{}/../new"],
    ],
    "ledger": [
        ["check", "{}"],
        ["audit", "{}"],
        ["ledger", "{}"],
        ["latency", "{}"],
        ["ingest", "lake", "{}/../lake", "--lake", "{}"],
    ],
}

KEPT = ("lake.json", "head", "ledger.json", "ledger.head", "manifests", "writer")
"""Files that no command may remove."""


@pytest.fixture(scope="module")
def pristine_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a lake and a ledger."""
    folder = tmp_path_factory.mktemp("made")
    lake = ic_lake.make_lake(folder, ticks=TICKS, certification="off")
    assert execute(["ingest", "lake", lake, "--lake", str(folder / "ledger")], build_app, "causeway") == 0
    return folder


Step = str | int
Place = tuple[str, tuple[Step, ...], bool]
"""A document of a folder, the keys to a path in it, and whether that is the name of a member."""


def places(folder: Path) -> Iterator[Place]:
    """Yield the positions of paths in the documents of a folder."""
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if name.endswith(".json"):
            yield from ((name, *found) for found in _paths(json.loads(file.read_bytes()), ()))


def _paths(value: Any, way: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], bool]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if _is_path(key):
                yield (*way, key), True
            yield from _paths(inner, (*way, key))
    elif isinstance(value, list):
        for row, inner in enumerate(value):
            yield from _paths(inner, (*way, row))
    elif _is_path(value):
        yield way, False


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and ("/" in value or value.endswith(".parquet")) and " " not in value


def set_path(content: Any, way: tuple[Step, ...], is_name: bool, path: str) -> None:
    """Set a path at its position in a document."""
    for step in way[:-1]:
        content = content[step]
    if is_name:
        content[path] = content.pop(way[-1])
    else:
        content[way[-1]] = path


def reseal_document(folder: Path, name: str, change: Callable[[Any], None]) -> None:
    """Change a document of a lake or ledger, and update the digests of all that name it."""
    digests: dict[str, str] = {}

    def anew(value: Any) -> Any:
        if isinstance(value, list):
            return [anew(each) for each in value]
        if isinstance(value, dict):
            return {key: anew(each) for key, each in value.items()}
        return digests.get(value, value) if isinstance(value, str) else value

    files = [folder / part for part in ("lake.json", "ledger.json") if (folder / part).exists()]
    for part in ("compacted", "manifests", "checkpoints"):
        files += sorted((folder / part).glob("*.json"))
    for file in files:
        content = anew(decoded(file.read_bytes()))
        before = content.pop("digest")
        if file == folder / name:
            change(content)
        file.write_bytes(encoded(content))
        digests[before] = decoded(file.read_bytes())["digest"]
    for head in (folder / "head", folder / "ledger.head"):
        if head.exists():
            fields = anew(decoded(head.read_bytes().rstrip()))
            fields.pop("digest")
            head.write_bytes(head_content(fields))


def names(folder: Path) -> set[str]:
    """Return the files of a folder that no command may remove."""
    every = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return {name for name in every if name.split("/")[0] in KEPT}


def copied(source: str, target: str) -> None:
    """Copy a document, which is going to be changed; tables are shared files."""
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy(source, target)


@settings(max_examples=sized(8, 300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_command_reads_or_removes_files_of_hostile_paths(
    pristine_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(sorted(COMMANDS)))
    name, way, is_name = data.draw(st.sampled_from(list(places(pristine_folder / kind))))
    folder = tmp_path / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(pristine_folder, folder, copy_function=copied)
    victim = folder / "victim.txt"
    victim.write_text(SECRET)
    (folder / kind / "link").symlink_to(victim)
    own = sorted(names(folder / kind))
    hostile = ["../victim.txt", str(victim), "link", "heights/../../victim.txt", "heights/../lake.json", *own]
    path = data.draw(st.sampled_from(hostile))
    reseal_document(folder / kind, name, lambda content: set_path(content, way, is_name, path))
    command = data.draw(st.sampled_from(COMMANDS[kind]))
    before = names(folder / kind)
    capsys.readouterr()
    code = execute([part.replace("{}", str(folder / kind)) for part in command], build_app, "causeway")
    said = "".join(capsys.readouterr())
    assert code in (0, 1, 2), said
    assert SECRET not in said
    assert victim.read_text() == SECRET
    assert names(folder / kind) >= before, said
