"""Lakes and ledgers for tests of the explorer, and an explorer in a thread of the test's process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import causeway as cw
from causeway.explorer.app import bind_loopback, create_server, socket_url
from causeway.explorer.live import LiveLedger
from causeway.ledger.row_order import sort_rows
from causeway.ledger.schema import LEDGER_SCHEMA
from causeway.ledger.store import LedgerWriter, create_ledger
from causeway.service.http.listening import ServerLoop
from tests.support.properties.audit_ledgers import content, table

WAIT = 60.0
FIRST = 300.0
"""Maximum waiting time in seconds, and for the first scan, which may compile loops."""

HOSTILE = (
    *(
        "<img src=x onerror=alert(1)>",
        '"><script>alert(2)</script>',
        "{{ 7 * 7 }}\u202eevil\u0007",
        "a&b=c#d?e/../f%00",
    ),
    "x" * 9_000,
)
"""Names chosen by untrusted parties."""


def network_lake(folder: Path) -> str:
    """Make the lake of a small healthy network: programs of three chains that call each other."""
    net = cw.Network(
        ["north", "east", "west"],
        [cw.Deploy("echo", chain="north"), cw.Deploy("echo", name="far", chain="west")],
        protocol="ibc",
    )
    for text in ("one", "two", "three"):
        net.call("echo", "echo", text, sender="caller/east").result()
        net.call("far", "echo", text, sender="caller/north").result()
    net.send("echo", "go")
    place = folder / "lake"
    net.export(str(place))
    return str(place)


def hostile_ledger(folder: Path) -> str:
    """Make a recorded ledger in which chains, lanes, assets, senders and transactions have hostile names, and messages
    are lost, forged and received again."""
    rows: list[dict[str, Any]] = []
    for number, name in enumerate(HOSTILE):
        other = HOSTILE[(number + 1) % len(HOSTILE)]
        for index in range(4):
            lane = {"protocol": name, "source": name, "destination": other, "lane": name, "index": index}
            about = {**lane, "message_id": f"{name}{index}", "kind": "request", "sender": name, "receiver": other}
            about |= {"asset": name, "amount": 2**256 - 1, "transaction": f"{name}{index}", "stated_by": name}
            sent = {
                "event": "sent",
                "chain": name,
                "height": 2**63 + index,
                "time": 2**62 if index == 3 else index * 1_000_000,
            }
            rows.append({**about, **sent, "payload_hash": content(1)})
            for turn in range({0: 1, 1: 2, 2: 0, 3: 1}[index]):
                came = {"event": "received", "chain": other, "height": turn, "time": (9 + turn) * 1_000_000}
                rows.append({**about, **came, "detail": name, "payload_hash": content(2 if index == 3 else 1)})
    place = str(folder / "ledger")
    writer = LedgerWriter(create_ledger(place, 1))
    whole = table([{**row, "source_file": "f", "source_row": at} for at, row in enumerate(rows)], LEDGER_SCHEMA)
    writer.write("ledger", sort_rows(whole), 0)
    writer.commit([], {})
    return place


def open_live(place: str, seconds: float = 0.2) -> LiveLedger:
    """Return a live view that has read a lake or ledger once and continues."""
    live = LiveLedger(place, seconds=seconds)
    live.start()
    until = monotonic() + FIRST
    while live.newest is None and monotonic() < until:
        assert "no longer followed" not in live.failure, live.failure
        sleep(0.02)
    live.snapshot()
    return live


@contextmanager
def serve_explorer(place: str, seconds: float = 0.2) -> Iterator[str]:
    """Yield the address of the explorer of a lake or ledger."""
    live = open_live(place, seconds)
    listening = bind_loopback(0)
    server = create_server(live)
    listening.listen()

    def serve() -> None:
        with asyncio.Runner(loop_factory=ServerLoop) as runner:
            runner.run(server.serve(sockets=[listening]))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield socket_url(listening).rstrip("/")
    finally:
        server.should_exit = True
        thread.join(WAIT)
        live.close()
        listening.close()
