"""User programs: modules beside a scenario, their transport to workers, allowed sources.

The folder of a scenario is searched for programs and their imports, after everything else. It never hides an installed
module, and other importers find nothing in it (such as an optional module that a library does without). Modules loaded
from it are packed into an archive for Spark's workers.

A scenario that a user runs is the user's code, and finds its programs as Python does and beside itself. A lake is data,
and its author must not choose what is imported here. Of the modules that it names, only those are imported that the
user names, that are in a folder the user names, or that an installed package declares.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

from causeway_proofs.errors import InvalidInput

from causeway.programs.catalogue import ProgramNotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DECLARED", "HOW", "NOWHERE", "ModuleSources"]

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Timestamp of files in an archive, so that equal modules give equal archives."""


CATALOGUE = "causeway.programs.catalogue"
"""The module that imports programs."""

_MACHINERY = ("importlib", "_frozen_importlib", "_frozen_importlib_external")


class ScenarioFinder(MetaPathFinder):
    """Import finder for scenario folders, for the catalogue and modules found there only.

    Attributes:
        folders: Folders to search, last one first.
    """

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self._found: dict[str, Path] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module for an import by the catalogue, or by a module from such a folder."""
        if path is not None:
            return None  # a submodule: its package locates it
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


BESIDE = ScenarioFinder()


def _importer(frame: FrameType | None) -> str:
    """Return the name of the importing module, skipping Python's import machinery."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in _MACHINERY:
            return name
        frame = frame.f_back
    return ""


def allow_scenario_folder(scenario: str) -> Path:
    """Allow programs in the folder of a scenario file.

    Args:
        scenario: Path of the file.

    Returns:
        The folder.
    """
    folder = Path(scenario).resolve().parent
    allow_folder(folder)
    return folder


def allow_folder(folder: Path) -> None:
    """Allow programs in a folder, given as an absolute path."""
    if folder in BESIDE.folders:
        BESIDE.folders.remove(folder)
    BESIDE.folders.append(folder)
    if BESIDE not in sys.meta_path:
        sys.meta_path.append(BESIDE)


def loaded_modules(folder: Path) -> list[Path]:
    """Return the files of modules loaded from a folder, ascending, except installed packages."""
    found = set()
    for module in list(sys.modules.values()):
        source = getattr(module, "__file__", None)
        if source is None or not source.endswith(".py"):
            continue
        path = Path(source).resolve()
        if path.is_relative_to(folder) and is_importable(path.relative_to(folder)):
            found.add(path)
    return sorted(found)


def is_importable(path: Path) -> bool:
    """Return True if every part of a relative path is a module name."""
    return all(step.isidentifier() for step in path.with_suffix("").parts)


def archive_modules(folder: Path, files: list[Path], target: Path) -> Path:
    """Pack modules into an importable archive, named by its content.

    Args:
        folder: Folder of the modules.
        files: Files of the modules.
        target: Folder for the archive.
    """
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


def ship_to_workers(session: SparkSession, folder: Path) -> None:
    """Send the modules loaded from a folder to all tasks of a session.

    Args:
        session: The session.
        folder: The folder.
    """
    files = loaded_modules(folder)
    if files:
        session.sparkContext.addPyFile(str(archive_modules(folder, files, _archives())))


_archive_folders: list[Path] = []


def _archives() -> Path:
    """Return the archive folder of this process."""
    if not _archive_folders:
        _archive_folders.append(Path(tempfile.mkdtemp(prefix="causeway-programs-")))
        atexit.register(shutil.rmtree, _archive_folders[0], ignore_errors=True)
    return _archive_folders[0]


DECLARED = "causeway.programs"
"""Entry point group in which packages declare modules, or classes, with programs."""

HOW = "--programs DIR|MODULE, or --scenario FILE"
"""Options that name sources of programs, for errors."""


@dataclass(frozen=True)
class ModuleSources:
    """Allowed sources of program classes.

    Attributes:
        folders: Folders of modules.
        modules: Modules allowed from anywhere, with their submodules.
        anywhere: All modules are allowed: a user runs the scenario that names them.
    """

    folders: tuple[Path, ...] = ()
    modules: tuple[str, ...] = ()
    anywhere: bool = False

    @classmethod
    def of(cls, *given: str | os.PathLike[str] | None) -> ModuleSources:
        """Parse sources named by a user.

        Args:
            given: Folders, scenario files (for their folders) and dotted module names; None is skipped.

        Raises:
            InvalidInput: A text is none of these.
        """
        folders, modules = [], []
        for each in given:
            if each is None:
                continue
            text = os.fspath(each)
            if os.path.isdir(text):
                folders.append(Path(text).resolve())
            elif os.path.isfile(text):
                folders.append(Path(text).resolve().parent)
            elif not text.endswith(".toml") and all(part.isidentifier() for part in text.split(".")):
                modules.append(text)
            else:
                raise InvalidInput(f"{text}: no such file or folder, and no name of a module: {HOW}")
        return cls(tuple(folders), tuple(modules))

    @classmethod
    def for_run(cls, scenario: str) -> ModuleSources:
        """Return the sources of a scenario that a user runs: beside its file, and anywhere."""
        return cls((Path(scenario).resolve().parent,), anywhere=True)

    @property
    def given(self) -> list[str]:
        """The sources as text, for ``of``."""
        return [*map(str, self.folders), *self.modules]

    def allow(self, names: Iterable[str]) -> None:
        """Allow imports of programs from these sources.

        Args:
            names: Names of the programs.

        Raises:
            ProgramNotFound: A program comes from elsewhere; nothing is imported.
        """
        for name in names:
            module, separator, _ = name.partition(":")
            if separator and not self.anywhere and not self._has(module):
                text = f"the module {module} is not imported only because a lake names it; say where it comes from"
                raise ProgramNotFound(f'program "{name}": {text}: {HOW}')
        for folder in reversed(self.folders):
            allow_folder(folder)

    def _has(self, module: str) -> bool:
        if any(_is_part(module, of) for of in (*self.modules, *_declared())):
            return True
        top = module.partition(".")[0]
        for folder in self.folders:
            if PathFinder.find_spec(top, [str(folder)]) is None:
                continue
            imported = _existing_locations(top)
            if imported is None or any(place.is_relative_to(folder) for place in imported):
                return True
        return False


NOWHERE = ModuleSources()
"""Only programs of Causeway, or declared by a package."""


def _is_part(module: str, of: str) -> bool:
    return module == of or module.startswith(f"{of}.")


@cache
def _declared() -> tuple[str, ...]:
    """Return the modules that installed packages declare."""
    return tuple(sorted({point.module for point in entry_points(group=DECLARED)}))


def _existing_locations(top: str) -> list[Path] | None:
    """Return the locations of a loaded or otherwise importable module, or None."""
    try:
        spec = find_spec(top)
    except ValueError:  # a module without a spec, such as ``__main__``
        return []
    if spec is None:
        return None
    places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else ())]
    return [Path(place).resolve() for place in places]
