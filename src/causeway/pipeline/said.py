"""What Spark's processes say, sorted: the traces of their own machinery are not for the user of Causeway.

A Python worker whose session ends, or that is killed, complains with a traceback that ends in PySpark; a failed task
has reached the caller as an exception by then. What a program prints itself is passed on, its tracebacks too.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable

_IGNORED = "Exception ignored "
_BEGINS = re.compile(rf"\s*(?:Traceback \(most recent call last\):|{_IGNORED})")
_FILE = re.compile(r'\s+File "(?P<file>[^"]+)", line \d+')
_LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_JAVA_FRAME = re.compile(r"\s+at [\w.$/<>]+\(.*\)|\s+\.\.\. \d+ more|Caused by: [\w.]+(?:Exception|Error)\b")

_LIBRARY = sysconfig.get_path("stdlib")

LONGEST_TRACE = 500
"""Lines of one trace that are held back at most."""


class Sorter:
    """Takes lines one by one, and passes on those that are for the user.

    Args:
        show: gets what is for the user.
        everything: pass on everything, for who looks for a fault in Spark.
    """

    def __init__(self, show: Callable[[str], object], *, everything: bool = False) -> None:
        self._show = show
        self._everything = everything
        self._trace: list[str] = []
        # Workers speak at the same time: several traces may have begun before the first one's error is said.
        self._begun = self._ended = 0
        self._linked = False

    def take(self, line: str) -> None:
        """Take one line, with its end."""
        if self._everything:
            self._show(line)
            return
        if self._trace and self._belongs(line):
            self._trace.append(line)
            if len(self._trace) > LONGEST_TRACE:
                self.flush()
            return
        self.flush()
        if _BEGINS.match(line):
            self._trace.append(line)
            self._begun = 1
        elif not _JAVA_FRAME.match(line):
            self._show(line)

    def flush(self) -> None:
        """Decide about a trace that has ended."""
        trace, self._trace = self._trace, []
        self._begun = self._ended = 0
        self._linked = False
        if trace and not _of_spark(trace):
            for line in trace:
                self._show(line)

    def _belongs(self, line: str) -> bool:
        """Return whether a line goes on with the trace: its frames are indented, its error is the line after them."""
        text = line.strip()
        if not text or text in _LINKS:
            self._linked = True
            return True
        if _BEGINS.match(line):
            another = self._ended >= self._begun and not self._linked
            self._begun += not self._trace[-1].lstrip().startswith(_IGNORED)
            self._linked = False
            return not another
        if line[0].isspace():
            return True
        self._ended += 1
        return self._ended <= self._begun


def _of_spark(trace: list[str]) -> bool:
    """Return whether the innermost frame of the last trace is in PySpark, or in Python's library below it."""
    files = [found["file"] for line in trace if (found := _FILE.match(line))]
    known = [file for file in files if not file.startswith("<") and not _of_python(file)]
    return bool(known) and "/pyspark/" in known[-1]


def _of_python(file: str) -> bool:
    return file.startswith(_LIBRARY) and "-packages/" not in file
