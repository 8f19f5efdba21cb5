"""The daemon of Python workers (``spark.python.daemon.module``): PySpark's own, silent when a session ends.

A worker whose session ends cannot deliver its last result, and PySpark prints a traceback for it.
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
