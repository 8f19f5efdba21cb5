"""The metrics port: monitoring continues despite other clients."""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from causeway_proofs.errors import InvalidInput
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from causeway.service.http import metrics_port
from causeway.service.http.metrics_port import HOST, MOST_ASKING, MOST_HEAD, serve_metrics

ENOUGH = 10.0
"""Seconds after which something hangs; nothing is measured."""


class One(Collector):
    """Collector of one metric with a text of the given length."""

    def __init__(self, size: int = 0) -> None:
        self._text = "x" * size

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("one", self._text, 1)


@contextmanager
def served(size: int = 0) -> Iterator[int]:
    with serve_metrics(One(size), 0) as port:
        assert port is not None
        yield port


def scrape_metrics(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=ENOUGH) as answer:
        return str(answer.read().decode())


def connection(stack: ExitStack, port: int, said: bytes = b"") -> socket.socket:
    found = stack.enter_context(socket.create_connection((HOST, port), timeout=ENOUGH))
    found.sendall(said)
    return found


def read_all(found: socket.socket) -> bytes:
    """Return the data received until the other end closes."""
    data = b""
    try:
        while more := found.recv(1 << 16):
            data += more
    except ConnectionError:
        return data
    return data


def test_slow_connections_exclude_nobody_and_share_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_port, "SECONDS", 10 * ENOUGH)
    before = threading.active_count()
    with served() as port, ExitStack() as stack:
        slow = [connection(stack, port, b"GET /metrics HTTP/1.1\r\n") for _ in range(3 * MOST_ASKING)]
        assert scrape_metrics(port).endswith("one 1.0\n")
        assert threading.active_count() == before + 1
        # The oldest was evicted.
        assert read_all(slow[0]) == b""
        slow[-1].sendall(b"\r\n")
        assert read_all(slow[-1]).endswith(b"one 1.0\n")
    assert threading.active_count() == before


def test_oversized_or_unfinished_requests_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as port, ExitStack() as stack:
        monkeypatch.setattr(metrics_port, "SECONDS", 10 * ENOUGH)
        assert read_all(connection(stack, port, b"GET /" + b"x" * 2 * MOST_HEAD)) == b""
        monkeypatch.setattr(metrics_port, "SECONDS", 0.1)
        assert read_all(connection(stack, port, b"GET / HTTP/1.1\r\n")) == b""
        assert scrape_metrics(port)


def test_non_reading_client_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_port, "SECONDS", 0.2)
    size = 16 << 20
    with served(size) as port, ExitStack() as stack:
        found = connection(stack, port, b"GET / HTTP/1.1\r\n\r\n")
        time.sleep(0.6)  # the system buffers some of it; the rest is dropped
        assert len(read_all(found)) < size
    with served() as port:
        assert scrape_metrics(port)


def test_other_requests_are_rejected() -> None:
    with served() as port, ExitStack() as stack:
        with pytest.raises(urllib.error.HTTPError, match="404"):
            scrape_metrics(port, "/nothing")
        assert b" 405 " in read_all(connection(stack, port, b"POST /metrics HTTP/1.1\r\n\r\n"))
        with pytest.raises(InvalidInput, match=r"--metrics-port.* is in use"), serve_metrics(One(), port):
            pass
    with serve_metrics(One(), None) as none:
        assert none is None
