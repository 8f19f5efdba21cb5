"""Causeway as it is here, and as it was at another revision, each with what a process needs to run it."""

from __future__ import annotations

import compileall
import contextlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causeway_proofs.errors import InvalidInput

import causeway
from benchmarks.process import BenchmarkFailed

ROOT = Path(__file__).resolve().parents[1]
"""The repository that this package is in."""


@dataclass(frozen=True)
class Checkout:
    """One Causeway that is measured: its name in the figures, and the folder that holds the package ``causeway``."""

    name: str
    source: Path

    def environment(self, *also: Path, **more: str) -> dict[str, str]:
        """Return the environment of a process that imports this Causeway, and what lies in the folders ``also``."""
        before = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        others = [entry for entry in before if not Path(entry, "causeway").is_dir()]
        path = os.pathsep.join([str(self.source), *map(str, also), *others])
        return {**os.environ, "PYTHONPATH": path, **more}

    def check(self) -> None:
        """Compile it, so that no run pays for it, and see that its processes do import it.

        Raises:
            BenchmarkFailed: they import another one, or none.
        """
        with contextlib.redirect_stdout(io.StringIO()):
            compileall.compile_dir(self.source, quiet=2)
        command = [sys.executable, "-c", "import causeway; print(causeway.__file__)"]
        environment = self.environment()
        done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
        found = done.stdout.strip()
        if done.returncode or Path(found).resolve() != (self.source / "causeway" / "__init__.py").resolve():
            raise BenchmarkFailed(f"{self.name}: Python imports causeway from {found or 'nowhere'}, not {self.source}")


def here() -> Checkout:
    """Return the Causeway that this process has imported."""
    return Checkout("causeway", Path(causeway.__file__).resolve().parents[1])


@contextlib.contextmanager
def checkouts(against: str | None) -> Iterator[list[Checkout]]:
    """Give the Causeway of this process, and the one that ``against`` names: a folder with ``src/causeway``, or a
    revision of this repository, which is taken out into a temporary folder.

    Raises:
        InvalidInput: ``against`` is neither.
        BenchmarkFailed: processes would not import what they should.
    """
    with contextlib.ExitStack() as stack:
        found = [here()]
        if against is not None:
            found.append(_folder(against) or stack.enter_context(_revision(against)))
        for one in found:
            one.check()
        yield found


def _folder(text: str) -> Checkout | None:
    source = Path(text, "src").resolve()
    return Checkout(text, source) if (source / "causeway" / "__init__.py").is_file() else None


@contextlib.contextmanager
def _revision(text: str, root: Path = ROOT) -> Iterator[Checkout]:
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
    if found is None:
        raise InvalidInput(f"against: {text} is neither a folder with src/causeway nor a revision of {root}")
    commit = found.decode().strip()
    archive = _git(root, "archive", "--format=tar", commit, "src")
    if archive is None:
        raise InvalidInput(f"against: revision {text} has no folder src")
    with tempfile.TemporaryDirectory(prefix="causeway-revision-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as content:
            # Filters came with Python 3.11.4; before, what git has packed of this repository is taken as it is.
            filters: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            content.extractall(folder, **filters)
        yield Checkout(commit[:9], Path(folder, "src"))


def _git(root: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise InvalidInput("against: a revision needs git, which is not installed; give a folder instead") from None
    return done.stdout if done.returncode == 0 else None
