"""An archive of Spark's loaded classes, which takes two fifths off the time to the first query.

The first session on a machine writes down which classes it loaded. When it has ended, a process of the lowest priority
turns that list into an archive in the user's cache folder (about 200 MB; it takes half a minute and nobody waits for
it). Later sessions map the archive instead of reading, checking and linking 17,000 classes. An archive that does not
fit its Java or its jars is ignored by Java itself.

``CAUSEWAY_CACHE`` names another folder, or says ``off``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from causeway.pipeline.java import Java, java_command

_BUILDING_SECONDS = 15 * 60
"""After this time a lock was left by a process that was killed."""

_UNUSED_SECONDS = 30 * 24 * 3600
"""After this time an archive belongs to a Java or a Spark that is gone."""

_KEPT = 3
"""How many archives may lie in the folder: one belongs to one Java and one virtual environment, which come and go."""

_A_JOB_RAN = "org/apache/spark/scheduler/DirectTaskResult"
"""A class that every job loads: a list without it comes from a session that ended too early to be worth keeping."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive for one Java with one set of options, and the files around it."""

    folder: Path
    java: Java
    options: tuple[str, ...]

    @property
    def file(self) -> Path:
        """Where the archive is, once it is built."""
        return self.folder / f"{self._key}.jsa"

    @property
    def _key(self) -> str:
        parts = [
            importlib.metadata.version("pyspark"),
            self.java.version,
            str(self.java.executable.resolve()),
            *self._command(),
        ]
        return "spark-classes-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def _lock(self) -> Path:
        return self.folder / f"{self._key}.lock"

    @property
    def _given_up(self) -> Path:
        return self.folder / f"{self._key}.failed"

    @property
    def _class_list(self) -> Path:
        return self.folder / f"{self._key}.{os.getpid()}.classes"

    def _command(self, *options: str) -> list[str]:
        return java_command(self.java, "none", memory="1g", options=[*self.options, *options])[:-1]

    def java_options(self) -> list[str]:
        """Return the options that make a starting Java use the archive, or note its classes when there is none yet."""
        self._remove_left()
        if self.file.is_file():
            with suppress(OSError):
                os.utime(self.file)  # still in use: see remove_unused
            return [f"-XX:SharedArchiveFile={self.file}", "-Xshare:auto"]
        if self._given_up.exists():
            return []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return []
        return [f"-XX:DumpLoadedClassList={self._class_list}"] if os.access(self.folder, os.W_OK) else []

    def _remove_left(self) -> None:
        """Delete the lists of sessions that were killed: nobody builds from them. A builder has a lock."""
        if self._lock.exists():
            return
        for file in self.folder.glob(f"{self._key}.*.classes"):
            number = file.suffixes[0].removeprefix(".")
            if number.isdecimal() and not psutil.pid_exists(int(number)):
                with suppress(OSError):
                    file.unlink()

    def build_in_background(self) -> None:
        """Start building from the list that the session which just ended has left, if it left one."""
        if not self._class_list.is_file():
            return
        if self.file.is_file() or not self._a_job_ran() or not self._take_lock():
            self._class_list.unlink(missing_ok=True)
            return
        task = {
            "command": self._command(
                "-Xshare:dump",
                f"-XX:SharedClassListFile={self._class_list}",
                f"-XX:SharedArchiveFile={self.file}.part",
            ),
            "part": f"{self.file}.part",
            "file": str(self.file),
            "class_list": str(self._class_list),
            "lock": str(self._lock),
            "given_up": str(self._given_up),
        }
        subprocess.Popen(
            [sys.executable, "-m", "causeway.pipeline.archive", json.dumps(task)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _a_job_ran(self) -> bool:
        with self._class_list.open(encoding="utf-8", errors="replace") as lines:
            return any(line.startswith(_A_JOB_RAN) for line in lines)

    def _take_lock(self) -> bool:
        with suppress(OSError):
            if time.time() - self._lock.stat().st_mtime > _BUILDING_SECONDS:
                self._lock.unlink()
        try:
            self._lock.touch(exist_ok=False)
        except OSError:
            return False
        return True


def class_archive(java: Java, options: Sequence[str], environ: Mapping[str, str] | None = None) -> ClassArchive | None:
    """Return the archive for a Java started with these options, or None when the user wants none.

    Args:
        java: the runtime.
        options: what it is started with beside its standing options; it decides how classes are laid out.
        environ: where to read ``CAUSEWAY_CACHE``, ``XDG_CACHE_HOME`` and ``HOME``; by default that of this process.
    """
    environ = os.environ if environ is None else environ
    named = environ.get("CAUSEWAY_CACHE")
    if named == "off":
        return None
    if named:
        folder = Path(named)
    elif environ.get("XDG_CACHE_HOME"):
        folder = Path(environ["XDG_CACHE_HOME"], "causeway")
    elif environ.get("HOME"):
        folder = Path(environ["HOME"], *(["Library", "Caches"] if sys.platform == "darwin" else [".cache"]), "causeway")
    else:
        return None
    return ClassArchive(folder.absolute(), java, tuple(options))


def _build(task: Mapping[str, str], command: Sequence[str]) -> None:
    """Build an archive and put it in place at once, so that nobody maps half a file."""
    os.nice(19)
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # only when nothing else wants to run
    part = Path(task["part"])
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_BUILDING_SECONDS)
        if done.returncode == 0 and part.is_file():
            part.replace(task["file"])
        else:
            Path(task["given_up"]).touch()  # it would fail again after every session
    finally:
        part.unlink(missing_ok=True)
        Path(task["class_list"]).unlink(missing_ok=True)
        Path(task["lock"]).unlink(missing_ok=True)
    remove_unused(Path(task["file"]).parent)


def remove_unused(folder: Path) -> None:
    """Delete what no session has used for a month, lists that killed sessions left, and all but the latest archives."""
    archives = 0
    used = {}
    for file in folder.glob("spark-classes-*"):
        with suppress(OSError):
            used[file] = file.stat().st_mtime
    for file in sorted(used, key=lambda file: used[file], reverse=True):
        archives += file.suffix == ".jsa"
        if time.time() - used[file] > _UNUSED_SECONDS or (file.suffix == ".jsa" and archives > _KEPT):
            with suppress(OSError):
                file.unlink()


if __name__ == "__main__":
    described = json.loads(sys.argv[1])
    _build(described, described["command"])
