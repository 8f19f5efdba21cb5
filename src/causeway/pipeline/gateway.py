"""The Java process behind a Spark session: started, listened to, ended."""

from __future__ import annotations

import collections
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from causeway.model.errors import InvalidInput
from causeway.pipeline.archive import ClassArchive, class_archive
from causeway.pipeline.java import Java, java_command
from causeway.pipeline.said import Sorter

if TYPE_CHECKING:
    from py4j.clientserver import ClientServer

_START_SECONDS = 120
_END_SECONDS = 20

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_HANDED_OVER = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


class Gateway:
    """A Java process that PySpark talks to. It is started at once; ``connect`` waits until it listens.

    It ends with this process, however this process ends: Spark's gateway stops when its standard input closes.

    Args:
        java: the runtime.
        arguments: what Spark's submit command gets, such as ``--conf`` and ``--master``.
        memory: its largest heap, as in ``1g``.
        options: further options of the virtual machine.
        environ: further environment variables of the process.

    Raises:
        InvalidInput: there is no such program.
    """

    def __init__(
        self,
        java: Java,
        arguments: Sequence[str],
        *,
        memory: str,
        options: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._archive = class_archive(java, options)
        self._early: collections.deque[str] | None = collections.deque(maxlen=100)
        self._ending = False
        self._client: ClientServer | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="causeway-")
        self._address = Path(self._folder.name, "address")
        try:
            self.process = self._start(java, arguments, memory, options, environ or {}, self._archive, self._address)
        except BaseException:
            self._folder.cleanup()
            raise
        assert self.process.stdout is not None
        self._listener = threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True)
        self._listener.start()

    def connect(self) -> ClientServer:
        """Wait until Java listens, and return PySpark's client for it.

        Raises:
            InvalidInput: Java does not start; the message is the first line that it said.
        """
        try:
            self._client = _connect(*self._await_address(self._address))
        except BaseException:
            self.abandon()
            raise
        self._folder.cleanup()
        self._early = None
        return self._client

    def abandon(self) -> None:
        """End a Java process that is still starting."""
        # Without its folder it could not say where it listens, and would wait for us for ever.
        self.fall_silent()
        self.process.kill()
        self.process.wait()
        self._folder.cleanup()

    @staticmethod
    def _start(
        java: Java,
        arguments: Sequence[str],
        memory: str,
        options: Sequence[str],
        environ: Mapping[str, str],
        archive: ClassArchive | None,
        address: Path,
    ) -> subprocess.Popen[str]:
        command = java_command(
            java,
            "org.apache.spark.deploy.SparkSubmit",
            [*arguments, "pyspark-shell"],
            memory=memory,
            options=[*options, *_log_options(), *(archive.java_options() if archive else [])],
        )
        environment = {
            **os.environ,
            **environ,
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address),
        }
        # Where it is set, workers import PySpark from a zip file that holds no compiled modules: half a second more for
        # the first query.
        environment.pop("SPARK_HOME", None)
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                # Results go to our standard output: Java's must not mix with them.
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                text=True,
                errors="replace",
                # A group of its own: Ctrl-C is for Python, which then ends Java in order.
                process_group=0,
            )
        except OSError as error:
            raise InvalidInput(f"cannot start {java.executable}: {error.strerror}") from None

    def _listen(self, said: IO[str]) -> None:
        """Pass on what Java and its workers say to the user, once Java is up; before, it may only be notes about its
        own options.
        """
        sorter = Sorter(self._show, everything="CAUSEWAY_SPARK_LOG" in os.environ)
        for line in said:
            early = self._early
            if early is not None:
                early.append(line.strip())
            else:
                sorter.take(line)
        sorter.flush()

    def _show(self, line: str) -> None:
        if not self._ending:
            print(line, end="", file=sys.stderr, flush=True)

    def _await_address(self, file: Path) -> tuple[int, str]:
        deadline = time.monotonic() + _START_SECONDS
        while not file.is_file():
            if self.process.poll() is not None:
                self._listener.join(timeout=1)
                raise InvalidInput(f"Spark's Java did not start: {self._reason()}")
            if time.monotonic() > deadline:
                self.process.kill()
                raise InvalidInput(f"Spark's Java did not start within {_START_SECONDS} seconds")
            time.sleep(0.01)
        # Spark renames the file into place, so it is whole: a port, then the length and the bytes of a secret.
        content = file.read_bytes()
        port, length = struct.unpack_from("!ii", content)
        return port, content[8 : 8 + length].decode()

    def _reason(self) -> str:
        lines = [line for line in self._early or () if line and not line.startswith("WARNING")]
        return lines[0] if lines else f"exit code {self.process.returncode}"

    def fall_silent(self) -> None:
        """Stop passing on what Java says: workers whose session ends complain that nobody reads their last bytes."""
        self._ending = True

    def close(self) -> None:
        """End the Java process and wait until it is gone."""
        self.fall_silent()
        if self._client is None:
            self.abandon()  # it is still starting, and does not look whether we are there
        else:
            self._client.shutdown()
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join(timeout=1)
        if self._archive is not None:
            self._archive.build_in_background()


def _log_options() -> list[str]:
    options = [f"-Dlog4j2.configurationFile={_LOG_SETTINGS}"]
    level = os.environ.get("CAUSEWAY_SPARK_LOG")
    if level:
        options += [f"-Dcauseway.log.root={level}", f"-Dcauseway.log.tasks={level}", "-Dcauseway.log.trace=full"]
    return options


def _connect(port: int, secret: str) -> ClientServer:
    """Let PySpark make its client for a gateway that runs already."""
    from pyspark.java_gateway import launch_gateway

    # The two variables are PySpark's only way in. They are taken back, or PySpark in a child process would take our
    # gateway for its own.
    os.environ.update(zip(_HANDED_OVER, (str(port), secret), strict=True))
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in _HANDED_OVER:
            del os.environ[name]
