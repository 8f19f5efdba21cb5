"""Programs of one's own: modules that lie beside the scenario are found here, and travel to Spark's workers.

The folder of the scenario is looked into for programs and for what they import, after all else: it hides nothing that
is installed, and nobody else finds there a module that is not (an optional one that a library does without). What was
loaded from it is packed into an archive that Spark gives to its workers, wherever they run.

Where programs that a lake names may come from: whoever made the lake does not choose what is imported here.

A scenario that a user runs is code of that user's choice, and finds its programs as Python does and beside itself. A
lake is data: of the modules that it names only those are imported that the user names, that lie where the user says,
or that an installed package declares.
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
"""The time that files in an archive carry: the same modules make the same archive."""


CATALOGUE = "causeway.programs.catalogue"
"""The module that imports programs."""

_MACHINERY = ("importlib", "_frozen_importlib", "_frozen_importlib_external")


class ScenarioFinder(MetaPathFinder):
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


BESIDE = ScenarioFinder()


def _importer(frame: FrameType | None) -> str:
    """Return the name of the module whose code imports: the innermost that is no part of Python's own importing."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in _MACHINERY:
            return name
        frame = frame.f_back
    return ""


def allow_scenario_folder(scenario: str) -> Path:
    """Let programs be found in the folder of a scenario file; return the folder."""
    folder = Path(scenario).resolve().parent
    allow_folder(folder)
    return folder


def allow_folder(folder: Path) -> None:
    """Let programs be found in a folder, given as an absolute path."""
    if folder in BESIDE.folders:
        BESIDE.folders.remove(folder)
    BESIDE.folders.append(folder)
    if BESIDE not in sys.meta_path:
        sys.meta_path.append(BESIDE)


def loaded_modules(folder: Path) -> list[Path]:
    """Return the files of the modules that were loaded from a folder, ascending; installed packages in it are left
    out.
    """
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
    """Return whether a path inside a folder on Python's path is a module's: every step of it is a name."""
    return all(step.isidentifier() for step in path.with_suffix("").parts)


def archive_modules(folder: Path, files: list[Path], target: Path) -> Path:
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


def ship_to_workers(session: SparkSession, folder: Path) -> None:
    """Give the modules that were loaded from ``folder`` to all tasks that the session will run."""
    files = loaded_modules(folder)
    if files:
        session.sparkContext.addPyFile(str(archive_modules(folder, files, _archives())))


_kept: list[Path] = []


def _archives() -> Path:
    """Return the folder of this process's archives."""
    if not _kept:
        _kept.append(Path(tempfile.mkdtemp(prefix="causeway-programs-")))
        atexit.register(shutil.rmtree, _kept[0], ignore_errors=True)
    return _kept[0]


DECLARED = "causeway.programs"
"""The group of entry points with which a package declares modules, or classes of them, whose programs may be run."""

HOW = "--programs DIR|MODULE, or --scenario FILE"
"""How a command is told where programs come from."""


@dataclass(frozen=True)
class ModuleSources:
    """``folders``: in which modules may lie; ``modules``: those, with what is in them, that may come from anywhere;
    ``anywhere``: all may, since a user runs the scenario that names them."""

    folders: tuple[Path, ...] = ()
    modules: tuple[str, ...] = ()
    anywhere: bool = False

    @classmethod
    def of(cls, *given: str | os.PathLike[str] | None) -> ModuleSources:
        """Return what a user named: folders, scenario files (whose folders are meant), and modules, dotted names; None
        is nothing. Raises ``InvalidInput`` for what is none of these."""
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
        """Return where programs of a scenario come from that a user runs: beside its file, and from anywhere."""
        return cls((Path(scenario).resolve().parent,), anywhere=True)

    @property
    def given(self) -> list[str]:
        """Return as text what ``of`` makes the same of."""
        return [*map(str, self.folders), *self.modules]

    def allow(self, names: Iterable[str]) -> None:
        """Let programs be imported from here on. ``names``: theirs.

        Raises ``ProgramNotFound``, before anything is imported, for one that comes from elsewhere.
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
            imported = _imported_instead(top)
            if imported is None or any(place.is_relative_to(folder) for place in imported):
                return True
        return False


NOWHERE = ModuleSources()
"""Only programs that come with Causeway, or that a package declares."""


def _is_part(module: str, of: str) -> bool:
    return module == of or module.startswith(f"{of}.")


@cache
def _declared() -> tuple[str, ...]:
    """Return the modules that installed packages declare."""
    return tuple(sorted({point.module for point in entry_points(group=DECLARED)}))


def _imported_instead(top: str) -> list[Path] | None:
    """Return where a module lies that is loaded, or would be found before one in a folder; None: there is none."""
    try:
        spec = find_spec(top)
    except ValueError:  # a module that nobody imported, such as ``__main__``
        return []
    if spec is None:
        return None
    places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else ())]
    return [Path(place).resolve() for place in places]
