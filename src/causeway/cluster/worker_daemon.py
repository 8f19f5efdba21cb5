"""Daemon of Python workers: PySpark's, but silent at the end of a session.

It is ``spark.python.daemon.module``. A worker whose session ends cannot deliver its last result, for which PySpark
prints a traceback.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run tasks until the session ends."""
    try:
        return _worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
