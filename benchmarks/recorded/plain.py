"""The same packets in plain Python: dictionaries and deques, in order, each once. No proofs, no programs, no lake.

It is what any program must do that routes this recording, and so a lower bound of the effort. It runs as a command of
its own: ``python -m benchmarks.recorded.plain SCENARIO RECORDING``.
"""

from __future__ import annotations

import json
import re
import sys
import time
import tomllib
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

End = tuple[str, str]
Packet = tuple[int, int, str]


class Lanes:
    """What is on its way: a deque a lane, numbered where it enters and again where it comes out."""

    def __init__(self) -> None:
        self.waiting: defaultdict[tuple[End, End], deque[Packet]] = defaultdict(deque)
        self._sent: defaultdict[tuple[End, End], int] = defaultdict(int)
        self._received: defaultdict[tuple[End, End], int] = defaultdict(int)

    def send(self, source: End, destination: End, call: int, body: str) -> None:
        """Put a message at the end of its lane."""
        lane = source, destination
        self.waiting[lane].append((self._sent[lane], call, body))
        self._sent[lane] += 1

    def take_all(self) -> list[tuple[End, End, int, str]]:
        """Take everything out of the lanes; raise ``ValueError`` where a lane is not in order, or has a gap."""
        taken = []
        for lane, queue in self.waiting.items():
            source, destination = lane
            while queue:
                number, call, body = queue.popleft()
                if number != self._received[lane]:
                    raise ValueError(f"lane {lane}: {number} came where {self._received[lane]} was due")
                self._received[lane] += 1
                taken.append((source, destination, call, body))
        self.waiting.clear()
        return taken


def counterparties(file: Path, chain: str) -> dict[str, End]:
    """Return the other end of every channel of a chain that the channels file knows."""
    found: dict[str, End] = {}
    for record in json.loads(file.read_text()) if file.is_file() else ():
        one, other = (record["chain_1"], record["channel_1"]), (record["chain_2"], record["channel_2"])
        for (name, channel), far in ((one, other), (other, one)):
            if name == chain and "*" not in (channel, far[1]):
                found.setdefault(channel, far)
    return found


def packets_by_tick(scenario: Path, recording: Path) -> tuple[str, dict[int, list[tuple[str, str]]]]:
    """Return the chain that sent, and its packets by tick: channel and body."""
    traffic: dict[str, Any] = tomllib.loads(scenario.read_text())["traffic"]
    columns = traffic["columns"]
    names = [columns[key] for key in ("source_end", "sequence", "time")]
    ends, sequences, times = (pq.read_table(recording, columns=names)[name].to_pylist() for name in names)
    first, blocks = min(times), traffic["blocks_per_tick"]
    ticks: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for end, sequence, moment in zip(ends, sequences, times, strict=True):
        ticks[(moment - first) // blocks].append((end, f"{end}/{sequence}"))
    return traffic["source_chain"], ticks


def route(
    chain: str, ticks: dict[int, list[tuple[str, str]]], far_ends: dict[str, End], limit: int | None
) -> dict[str, Any]:
    """Send, deliver and answer all packets tick by tick, up to tick ``limit``; return the counts.

    Raises ``ValueError`` for a message out of order or an answer that is another call's, ``KeyError`` for a second one.
    """
    calls, answers = Lanes(), Lanes()
    open_calls: dict[int, str] = {}
    sent = received = answered = tick = 0
    by_tick: list[int] = []
    due = deque(sorted(ticks))
    while due or calls.waiting or answers.waiting:
        if not calls.waiting and not answers.waiting:
            tick = due[0]
        if limit is not None and tick >= limit:
            break
        before = sent + received
        arrived, returned = calls.take_all(), answers.take_all()
        for source, destination, call, body in arrived:
            answers.send(destination, source, call, body)
            received += 1
        for _, _, call, body in returned:
            if open_calls.pop(call) != body:
                raise ValueError(f"call {call} has the answer of another one")
            answered += 1
        if due and due[0] == tick:
            for channel, body in ticks[due.popleft()]:
                far = far_ends.get(channel, (f"unknown-{chain}-{channel}", f"{chain}.{channel}"))
                open_calls[sent] = body
                calls.send((chain, channel), far, sent, body)
                sent += 1
        by_tick.append(sent + received - before)
        tick += 1
    messages = sent + received
    return {"sent": sent, "received": received, "answered": answered, "messages": messages, "by_tick": by_tick}


def main(arguments: list[str]) -> None:
    """Print the counts and the processor seconds as JSON.

    Arguments: the scenario file, the recording and, if not all is to be run, the first tick not to run.
    """
    scenario, recording, *rest = arguments
    begun = time.process_time()
    chain, ticks = packets_by_tick(Path(scenario), Path(recording))
    chain = re.sub(r"-[0-9]+$", "", chain)
    far_ends = counterparties(Path(recording).parent / "ibc_channels.json", chain)
    read = time.process_time()
    counts = route(chain, ticks, far_ends, int(rest[0]) if rest else None)
    ended = time.process_time()
    used = {"starting": begun, "reading": read - begun, "routing": ended - read}
    print(json.dumps({**counts, "processor_seconds": {name: round(value, 4) for name, value in used.items()}}))


if __name__ == "__main__":
    main(sys.argv[1:])
