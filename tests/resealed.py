"""Lakes with replaced and newly sealed files, so that only their content reveals the change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from causeway.storage.commit_log import decoded, encoded
from causeway.storage.files import Storage
from causeway.storage.lake import Lake
from causeway.storage.layout import LakeHead
from causeway.storage.seals import seal_content


def replace(lake: Path, files: Mapping[str, pa.Table | bytes]) -> None:
    """Replace files of a lake by path: their seals, and all later digests, match."""
    storage, seals = Storage(str(lake)), {}
    for path, content in files.items():
        if isinstance(content, bytes):
            (lake / path).write_bytes(content)
            seals[path] = seal_content(content)
        else:
            seals[path] = storage.write_table(path, content)
    seals = {path: json.loads(json.dumps(seal)) for path, seal in seals.items()}
    digests: dict[str, str] = {}

    def anew(value: Any) -> Any:
        if isinstance(value, list):
            if len(value) == 3 and isinstance(value[0], str) and value[0] in seals:
                return [value[0], *seals[value[0]]]
            return [anew(each) for each in value]
        if isinstance(value, dict):
            return {name: seals.get(name) or anew(each) for name, each in value.items()}
        return digests.get(value, value) if isinstance(value, str) else value

    for folder in ("compacted", "manifests"):
        for file in sorted((lake / folder).glob("*.json")):
            found = decoded(file.read_bytes())
            before = found.pop("digest")
            content = encoded(anew(found))
            digests[before] = decoded(content)["digest"]
            file.write_bytes(content)
    head = LakeHead.of((lake / "head").read_bytes())
    (lake / "head").write_bytes(LakeHead(**{**head.__dict__, "manifest": digests[head.manifest]}).content())


def log_file(lake: Path, table: str, height: int, chain: int, owner: str = "chain") -> str:
    """Return the path of the file of a log table with the rows of a chain at a height."""
    opened = Lake.at(str(lake))
    for path, seal in opened.log_files(table, range(height, height + 1)).items():
        rows = opened.sealed_table(path, seal)
        if pc.any(pc.and_(pc.equal(rows["height"], height), pc.equal(rows[owner], chain))).as_py():
            return path
    raise LookupError(f"{table}: nothing of {chain} at {height}")


def alter_first(
    rows: pa.Table, column: str, where: Callable[[dict[str, Any]], bool], change: Callable[[Any], Any]
) -> pa.Table:
    """Return rows with a column changed in the first matching one."""
    values = rows[column].to_pylist()
    row = next(number for number, each in enumerate(rows.to_pylist()) if where(each))
    values[row] = change(values[row])
    place = rows.schema.get_field_index(column)
    return rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type))


__all__ = ["alter_first", "log_file", "replace"]
