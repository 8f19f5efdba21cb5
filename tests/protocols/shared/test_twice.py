"""Handlers that depend on more than state and message: detected and named by running the block twice."""

from __future__ import annotations

import datetime
import pickle
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import causeway as cw
from causeway.protocols.registry import protocol_names

Deviates = type[cw.Program] | type[cw.VectorProgram]


class Clock(cw.Program):
    def initial_state(self) -> dict[str, Any]:
        return {"calls": 0, "last": {"time": 0.0}}

    def on_request(self, request: cw.Request, context: cw.Context) -> bytes:
        self.state["calls"] += 1
        if request.method == "stamp":
            self.state["last"]["time"] = time.perf_counter()
        return b""


class Dice(cw.Program):
    def on_ingress(self, message: cw.Ingress, context: cw.Context) -> None:
        context.call(context.program, "roll", str(random.random()).encode())

    def on_request(self, request: cw.Request, context: cw.Context) -> bytes:
        return b"rolled"

    def on_reply(self, reply: cw.Reply, context: cw.Context) -> None:
        if reply.payload == b"raise":
            raise RuntimeError(str(random.random()))


class Columns(cw.VectorProgram):
    schema = pa.schema(
        [pa.field("program", pa.uint64(), nullable=False), pa.field("drawn", pa.uint64(), nullable=False)]
    )

    def handle(self, batch: cw.Frame, state: cw.Frame) -> cw.Effects:
        drawn = np.full(len(state), random.getrandbits(60), dtype=np.uint64)
        return cw.Effects(state.with_columns(drawn=drawn))


def network(program: Deviates, protocol: cw.ProtocolName = "ic", **more: Any) -> cw.Network:
    return cw.Network(1, [cw.Deploy(program, name="odd"), cw.Deploy(Clock, name="even")], protocol=protocol, **more)


@pytest.mark.parametrize("protocol", protocol_names())
def test_clock_in_the_state_is_named_with_its_handler(protocol: cw.ProtocolName) -> None:
    net = network(Clock, protocol)
    assert net.call("odd", "other").result() == b""
    first, second = net.call("odd", "other"), net.call("odd", "stamp")
    with pytest.raises(cw.NotDeterministic, match=r"^odd\.on_request\(stamp\): state\['last'\]\['time'\] differs") as e:
        net.run()
    assert (e.value.program, e.value.handler, e.value.what) == ("odd", "on_request(stamp)", "state['last']['time']")
    assert e.value.one != e.value.other and str(pickle.loads(pickle.dumps(e.value))) == str(e.value)
    assert first.status != "answered" and second.status != "answered"


CLOCKS: dict[str, Callable[[], Any]] = {
    "whole seconds": lambda: int(time.time()),
    "today": lambda: datetime.date.today().isoformat(),
    "weekday": lambda: datetime.datetime.now(datetime.UTC).weekday(),
    "hour": lambda: time.localtime().tm_hour,
    "year": lambda: time.strftime("%Y"),
}


@pytest.mark.parametrize("read", CLOCKS.values(), ids=CLOCKS)
def test_clock_unchanged_between_runs_is_detected(read: Callable[[], Any]) -> None:
    class Coarse(cw.Program):
        def on_request(self, request: cw.Request, context: cw.Context) -> bytes:
            self.state["at"] = read()
            return b""

    before = time.time()
    with pytest.raises(cw.NotDeterministic, match=r"^odd\.on_request\(stamp\): state\['at'\] differs"):
        network(Coarse).call("odd", "stamp").result()
    assert time.time() - before < 300


def test_random_numbers_in_calls_and_columns_are_named() -> None:
    net = network(Dice)
    net.send("odd", "go")
    with pytest.raises(cw.NotDeterministic, match=r"^odd\.on_ingress\(go\): payload of what it sends differs"):
        net.run()
    net = network(Columns)
    net.call("odd", "any")
    with pytest.raises(cw.NotDeterministic, match=r"state column drawn differs"):
        net.run()


def test_fork_runs_twice_too_unless_disabled() -> None:
    net = network(Clock).fork()
    net.call("odd", "stamp")
    with pytest.raises(cw.NotDeterministic):
        net.run()
    once = network(Clock, run_twice=False)
    assert once.call("odd", "stamp").result() == b"" and once.fork().call("odd", "stamp").result() == b""


def test_differing_value_is_named_among_lookalikes() -> None:
    turns = iter(range(99))

    class Alike(cw.Program):
        def on_request(self, request: cw.Request, context: cw.Context) -> bytes:
            self.state |= {"before": float("nan"), "one": True if next(turns) % 2 else 1}
            return b""

    with pytest.raises(cw.NotDeterministic) as caught:
        network(Alike).call("odd", "stamp").result()
    assert caught.value.what == "state['one']" and {caught.value.one, caught.value.other} == {"True", "1"}
