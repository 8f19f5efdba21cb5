"""Of what Spark's processes say, the user gets what programs print, and no traces of the machinery."""

from __future__ import annotations

import sysconfig

import pytest

from causeway.pipeline.said import LONGEST_TRACE, Sorter

LIBRARY = sysconfig.get_path("stdlib")

BROKEN_PIPE = f"""Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/daemon.py", line 239, in manager
    code = worker(sock, authenticated)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "{LIBRARY}/socket.py", line 9, in write
    self.flush()
BrokenPipeError: [Errno 32] Broken pipe
"""

CHAINED = (
    BROKEN_PIPE
    + "\nDuring handling of the above exception, another exception occurred:\n\n"
    + BROKEN_PIPE.replace("BrokenPipeError: [Errno 32] Broken pipe", "EOFError")
)

OF_A_PROGRAM = """Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 2, in main
    process()
  File "/home/ann/counter.py", line 12, in on_request
    int("x")
ValueError: invalid literal for int() with base 10: 'x'
"""

IGNORED = """Exception ignored in: <_io.BufferedWriter name=5>
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/daemon.py", line 1, in x
BrokenPipeError: [Errno 32] Broken pipe
"""

JAVA = """Caused by: java.io.IOException: Broken pipe
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.read(PythonRunner.scala:5)
\t... 12 more
"""


def shown(text: str, **options: bool) -> str:
    said: list[str] = []
    sorter = Sorter(said.append, **options)
    for line in text.splitlines(keepends=True):
        sorter.take(line)
    sorter.flush()
    return "".join(said)


@pytest.mark.parametrize("trace", [BROKEN_PIPE, CHAINED, IGNORED, JAVA], ids=["pipe", "chained", "ignored", "java"])
def test_traces_of_the_machinery_are_left_out_and_nothing_beside_them(trace: str) -> None:
    assert shown(f"before\n{trace}after\n") == "before\nafter\n"
    assert shown(trace, everything=True) == trace


@pytest.mark.parametrize("cut", range(1, 7))
def test_of_two_traces_at_the_same_time_no_line_is_left_over(cut: int) -> None:
    one = BROKEN_PIPE.splitlines(keepends=True)
    mixed = "".join([*one[:cut], *one[:-1], *one[cut:], one[-1]])
    assert shown(f"before\n{mixed}after\n") == "before\nafter\n"


def test_what_a_program_prints_is_passed_on_its_tracebacks_too() -> None:
    text = f"a line\n{OF_A_PROGRAM}another\n"
    assert shown(text) == text
    assert shown(BROKEN_PIPE + OF_A_PROGRAM) == OF_A_PROGRAM


def test_spark_s_own_errors_in_one_line_are_passed_on() -> None:
    assert shown("Spark ERROR DiskBlockManager: no space left\n") == "Spark ERROR DiskBlockManager: no space left\n"


def test_a_trace_without_an_end_is_not_kept_for_ever() -> None:
    endless = BROKEN_PIPE.splitlines(keepends=True)[0] + "  more\n" * (2 * LONGEST_TRACE)
    assert len(shown(endless)) >= LONGEST_TRACE
