"""Programs of one's own: modules that lie beside the scenario are found here, and travel to Spark's workers.

The folder of the scenario becomes the last place where Python looks for modules, so it hides nothing that is installed.
What was loaded from it is packed into an archive that Spark gives to its workers, wherever they run.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time that files in an archive carry: the same modules make the same archive."""


def look_beside(scenario: str) -> Path:
    """Let Python find the modules in the folder of a scenario file; return the folder."""
    folder = Path(scenario).resolve().parent
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return folder


def loaded_from(folder: Path) -> list[Path]:
    """Return the files of the modules that were loaded from a folder, ascending; installed packages in it are left
    out.
    """
    found = set()
    for module in list(sys.modules.values()):
        source = getattr(module, "__file__", None)
        if source is None or not source.endswith(".py"):
            continue
        path = Path(source).resolve()
        if path.is_relative_to(folder) and importable(path.relative_to(folder)):
            found.add(path)
    return sorted(found)


def importable(path: Path) -> bool:
    """Return whether a path inside a folder on Python's path is a module's: every step of it is a name."""
    return all(step.isidentifier() for step in path.with_suffix("").parts)


def archive(folder: Path, files: list[Path], target: Path) -> Path:
    """Write modules into an archive in ``target`` that Python can import from; its name is that of its content."""
    digest = hashlib.sha256()
    contents = [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in files]
    for name, content in contents:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    place = target / f"causeway-programs-{digest.hexdigest()[:16]}.zip"
    if not place.exists():
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as pack:
            for name, content in contents:
                pack.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    return place


def give_to_workers(session: SparkSession, folder: Path) -> None:
    """Give the modules that were loaded from ``folder`` to all tasks that the session will run."""
    files = loaded_from(folder)
    if files:
        session.sparkContext.addPyFile(str(archive(folder, files, _archives())))


_kept: list[Path] = []


def _archives() -> Path:
    """Return the folder of this process's archives."""
    if not _kept:
        _kept.append(Path(tempfile.mkdtemp(prefix="causeway-programs-")))
        atexit.register(shutil.rmtree, _kept[0], ignore_errors=True)
    return _kept[0]
