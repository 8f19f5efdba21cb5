"""The round in plain Python: lists, dictionaries with one number as key, hashlib. Only Parquet files are PyArrow's."""

from __future__ import annotations

import hashlib
import struct
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.comparators.common import (
    ANSWERED,
    BASE,
    LOOPBACK,
    METHOD,
    ON_LANE,
    RECEIVED,
    REQUEST,
    RESPONSE,
    SCHEMAS,
    commit,
    path,
    write,
)

SHIFT = 32
LOW = (1 << SHIFT) - 1
LEAF = struct.Struct(">BBBIIQQQQQ")


class PythonDicts:
    """Canister numbers fit 32 bits here, so that a queue's key is one number."""

    name = "python"

    def __init__(self, hosts: pa.Table, threads: int) -> None:
        self._host: list[int] = [0] * (max(hosts["program"].to_pylist()) + 1)
        for canister, chain in zip(hosts["program"].to_pylist(), hosts["chain"].to_pylist(), strict=True):
            self._host[canister] = chain

    def round(self, before: str, after: str, tick: int) -> None:
        """Do the round."""
        inputs = _counters(before, "input_counters")
        outputs = _counters(before, "output_counters")
        callbacks = dict(zip(*_columns(before, "accounts"), strict=True))
        events, by_receiver, arrived = self._receive(before, inputs)
        sent = self._execute(by_receiver, callbacks)
        streams = self._route(sent, outputs)
        lanes, firsts = self._lanes(before, arrived, streams)
        outbound, roots = _append(streams, firsts, tick)
        write(after, "outbound", _table("outbound", outbound))
        write(after, "events", _table("events", events))
        write(after, "input_counters", _counter_table("input_counters", inputs))
        write(after, "output_counters", _counter_table("output_counters", outputs))
        write(after, "accounts", _table("accounts", [list(callbacks.keys()), list(callbacks.values())]))
        write(after, "lanes", _table("lanes", lanes))
        write(after, "roots", _table("roots", roots))
        commit(after)

    def _receive(self, before: str, inputs: dict[int, int]) -> tuple[list[Any], dict[int, list[Any]], dict[int, int]]:
        """Push what came to its input queues; it lies in the order of the lanes."""
        (
            sources, destinations, substream, index, kind, sender, receiver, callback, amount_high, amount_low, code,
            deadline, _, payload, _, _,
        ) = _columns(before, "outbound")  # fmt: skip
        queue_index: list[int] = []
        by_receiver: dict[int, list[Any]] = defaultdict(list)
        arrived: dict[int, int] = defaultdict(int)
        begin = dict(inputs)
        columns = (
            sources, destinations, kind, sender, receiver, callback, amount_high, amount_low, deadline, payload,
        )  # fmt: skip
        for source, destination, what, peer, canister, number, high, low, until, body in zip(*columns, strict=True):
            key = canister << SHIFT | peer
            position = inputs.get(key, BASE)
            inputs[key] = position + 1
            queue_index.append(position)
            by_receiver[canister].append((position - begin.get(key, BASE), peer, what, number, high, low, until, body))
            arrived[destination << SHIFT | source] += 1
        happened = [RECEIVED if what == REQUEST else ANSWERED for what in kind]
        via = [LOOPBACK if one == other else ON_LANE for one, other in zip(sources, destinations, strict=True)]
        events = [
            destinations, happened, kind, via, sources, destinations, substream, index, sender, receiver, callback,
            queue_index, code, [""] * len(kind),
        ]  # fmt: skip
        return events, by_receiver, arrived

    def _execute(self, by_receiver: dict[int, list[Any]], callbacks: dict[int, int]) -> dict[int, list[Any]]:
        """Answer requests, and answers by new requests, in the order of consumption: by position in the queue, peer."""
        sent: dict[int, list[Any]] = {}
        for canister in sorted(by_receiver):
            inputs = by_receiver[canister]
            inputs.sort(key=_first_two)
            number = callbacks.get(canister, 0)
            made = []
            for _, peer, what, callback, high, low, until, body in inputs:
                if what == REQUEST:
                    made.append((peer, RESPONSE, callback, high, low, until, "", body))
                else:
                    made.append((peer, REQUEST, number, 0, 0, 0, METHOD, body))
                    number += 1
            callbacks[canister] = number
            sent[canister] = made
        return sent

    def _route(self, sent: dict[int, list[Any]], outputs: dict[int, int]) -> dict[int, list[Any]]:
        """Number what was sent in its output queue and bring it to its stream, by sender, receiver, queue index."""
        host = self._host
        streams: dict[int, list[Any]] = defaultdict(list)
        for canister, made in sent.items():
            own = host[canister] << SHIFT
            made.sort(key=_first)
            for peer, what, *rest in made:
                key = canister << SHIFT | peer
                position = outputs.get(key, BASE)
                outputs[key] = position + 1
                streams[own | host[peer]].append((what, canister, peer, *rest, position))
        return streams

    def _lanes(
        self, before: str, arrived: dict[int, int], streams: dict[int, list[Any]]
    ) -> tuple[list[list[int]], dict[int, int]]:
        """Return the lanes after the round, and the index at which each stream goes on."""
        lanes = {
            source << SHIFT | destination: (begin, end, signals, expected)
            for source, destination, begin, end, signals, expected in zip(*_columns(before, "lanes"), strict=True)
        }
        rows: list[tuple[int, ...]] = []
        firsts: dict[int, int] = {}
        for key in sorted(lanes.keys() | arrived.keys() | streams.keys()):
            source, destination = key >> SHIFT, key & LOW
            begin, end, signals, expected = lanes.get(key, (BASE,) * 4)
            opposite = lanes.get(destination << SHIFT | source)
            got = arrived.get(key, 0)
            if source == destination:
                begin = signals = end
            elif opposite is not None and (got or opposite[3] != begin):
                begin, signals = opposite[3], max(signals, opposite[0])
            firsts[key] = end
            rows.append((source, destination, begin, end + len(streams.get(key, ())), signals, expected + got))
        return [list(column) for column in zip(*rows, strict=True)], firsts


def _append(
    streams: dict[int, list[Any]], firsts: dict[int, int], tick: int
) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return what is outbound, by destination and source, and the Merkle root of each run."""
    columns: list[list[Any]] = [[] for _ in SCHEMAS["outbound"].names]
    runs: list[tuple[Any, ...]] = []
    for key in sorted(streams, key=lambda key: (key & LOW, key)):
        run, first = streams[key], firsts[key]
        source, destination = key >> SHIFT, key & LOW
        count = len(run)
        kind, sender, receiver, callback, high, low, until, method, body, position = zip(*run, strict=True)
        rows = (
            [source] * count, [destination] * count, [0] * count, range(first, first + count), kind, sender, receiver,
            callback, high, low, [0] * count, until, method, body, position, [tick] * count,
        )  # fmt: skip
        for column, values in zip(columns, rows, strict=True):
            column.extend(values)
        runs.append((source, destination, first, count, _root([_leaf(*message) for message in run])))
    return columns, [list(column) for column in zip(*runs, strict=True)]


def _leaf(
    what: int,
    sender: int,
    receiver: int,
    callback: int,
    high: int,
    low: int,
    until: int,
    name: str,
    body: bytes,
    _: int,
) -> bytes:
    method = name.encode()
    fixed = LEAF.pack(0, what, 0, len(method), until, sender, receiver, callback, high, low)
    return hashlib.sha256(fixed + method + body).digest()


def _root(level: list[bytes]) -> bytes:
    sha256 = hashlib.sha256
    while len(level) > 1:
        above = [sha256(b"\x01" + left + right).digest() for left, right in zip(level[::2], level[1::2], strict=False)]
        if len(level) % 2:
            above.append(level[-1])
        level = above
    return level[0]


def _first(message: tuple[Any, ...]) -> Any:
    return message[0]


def _first_two(message: tuple[Any, ...]) -> Any:
    return message[0] << SHIFT | message[1]


def _columns(folder: str, table: str) -> list[list[Any]]:
    content = pq.read_table(path(folder, table), columns=SCHEMAS[table].names)
    return [column.to_pylist() for column in content.columns]


def _counters(folder: str, table: str) -> dict[int, int]:
    first, second, next_index = _columns(folder, table)
    return {one << SHIFT | two: index for one, two, index in zip(first, second, next_index, strict=True)}


def _counter_table(table: str, counters: dict[int, int]) -> pa.Table:
    keys = list(counters)
    return _table(table, [[key >> SHIFT for key in keys], [key & LOW for key in keys], list(counters.values())])


def _table(name: str, columns: list[Any]) -> pa.Table:
    schema = SCHEMAS[name]
    arrays = [pa.array(column, item.type) for column, item in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
