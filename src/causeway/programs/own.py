"""Programs of one's own: modules that lie beside the scenario are found here, and travel to Spark's workers.

The folder of the scenario is looked into for programs and for what they import, after all else: it hides nothing that
is installed, and nobody else finds there a module that is not (an optional one that a library does without). What was
loaded from it is packed into an archive that Spark gives to its workers, wherever they run.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time that files in an archive carry: the same modules make the same archive."""


CATALOGUE = "causeway.programs.catalogue"
"""The module that imports programs."""

_MACHINERY = ("importlib", "_frozen_importlib", "_frozen_importlib_external")


class Beside(MetaPathFinder):
    """Finds modules in the folders of scenarios, for those only who may find them there.

    Attributes:
        folders: where programs are looked for, the last one first.
    """

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self._found: dict[str, Path] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, if whoever imports it is the catalogue, or was found in such a folder itself."""
        if path is not None:
            return None  # a part of a package, which knows where its parts are
        for folder in self._folders_of(_importer(sys._getframe(1))):
            spec = PathFinder.find_spec(fullname, [str(folder)])
            if spec is not None:
                self._found[fullname] = folder
                return spec
        return None

    def _folders_of(self, importer: str) -> list[Path]:
        if importer == CATALOGUE:
            return self.folders[::-1]
        folder = self._found.get(importer.partition(".")[0])
        return [] if folder is None else [folder]


BESIDE = Beside()


def _importer(frame: FrameType | None) -> str:
    """Return the name of the module whose code imports: the innermost that is no part of Python's own importing."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in _MACHINERY:
            return name
        frame = frame.f_back
    return ""


def look_beside(scenario: str) -> Path:
    """Let programs be found in the folder of a scenario file; return the folder."""
    folder = Path(scenario).resolve().parent
    look_in(folder)
    return folder


def look_in(folder: Path) -> None:
    """Let programs be found in a folder, given as an absolute path."""
    if folder in BESIDE.folders:
        BESIDE.folders.remove(folder)
    BESIDE.folders.append(folder)
    if BESIDE not in sys.meta_path:
        sys.meta_path.append(BESIDE)


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
