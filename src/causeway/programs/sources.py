"""Where programs that a lake names may come from: whoever made the lake does not choose what is imported here.

A scenario that a user runs is code of that user's choice, and finds its programs as Python does and beside itself. A
lake is data: of the modules that it names only those are imported that the user names, that lie where the user says,
or that an installed package declares.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from causeway.model.errors import InvalidInput
from causeway.programs.catalogue import ProgramNotFound
from causeway.programs.own import look_in

DECLARED = "causeway.programs"
"""The group of entry points with which a package declares modules, or classes of them, whose programs may be run."""

HOW = "--programs DIR|MODULE, or --scenario FILE"
"""How a command is told where programs come from."""


@dataclass(frozen=True)
class Sources:
    """``folders``: in which modules may lie; ``modules``: those, with what is in them, that may come from anywhere;
    ``anywhere``: all may, since a user runs the scenario that names them."""

    folders: tuple[Path, ...] = ()
    modules: tuple[str, ...] = ()
    anywhere: bool = False

    @classmethod
    def of(cls, *given: str | os.PathLike[str] | None) -> Sources:
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
    def of_run(cls, scenario: str) -> Sources:
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
            look_in(folder)

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


NOWHERE = Sources()
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


__all__ = ["DECLARED", "HOW", "NOWHERE", "Sources"]
