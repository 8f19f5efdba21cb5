"""Networks in memory: clocks, reports of missing events, and filtered tables."""

from __future__ import annotations

import itertools
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import causeway as cw
from causeway.cli.app import build_app
from causeway.cli.shell import OK, execute
from causeway.protocols.registry import protocol_names
from tests.network.test_testing import recheck


class Mute(cw.Program):
    """Answers some calls at once, fails some, and never answers others."""

    def on_request(self, request: cw.Request, context: cw.Context) -> bytes | None:
        if request.method == "fail":
            raise ValueError("asked to")
        return b"ok" if request.method == "say" else None


def build_network(protocol: cw.ProtocolName, seconds_per_tick: float = 1.0) -> cw.Network:
    quick = {"archiving_depth": 1, "challenge_period": 1} if protocol == "xdm" else None
    programs = [cw.Deploy(Mute, chain="right")]
    return cw.Network(["left", "right"], programs, protocol=protocol, options=quick, seconds_per_tick=seconds_per_tick)


@pytest.mark.parametrize(
    ("length", "seconds", "ticks"),
    [(1.0, 60, 60), (6.0, 60, 10), (6.0, 61, 11), (0.1, 1.1, 11), (0.1, 0.3, 3), (2, 0, 0)],
)
def test_seconds_round_up_to_whole_ticks(length: float, seconds: float, ticks: int) -> None:
    net = build_network("ibc", length)
    assert net.advance(seconds) == ticks == net.now
    assert net.seconds == pytest.approx(ticks * length) and net.seconds >= seconds - 1e-9


def test_call_expires_after_the_seconds_of_its_timeout() -> None:
    options = {"timeouts": "on", "timeout_seconds": 60}
    net = cw.Network(
        ["left", "right"], [cw.Deploy(Mute, chain="right")], options=options, protocol="ibc", seconds_per_tick=6
    )
    net.inject("halt", chain="right", until=11)  # for 72 seconds
    early, late = net.call("mute", "say", sender="caller/left"), net.fork()
    net.advance(50)
    assert early.status == "pending"
    net.advance(60)
    assert early.wait().reject is cw.RejectCode.TIMED_OUT
    late.advance(72)
    assert late.call("mute", "say", sender="caller/left").result() == b"ok"


@pytest.mark.parametrize("seconds", [-1, "1", True, None, float("nan"), float("inf"), 1e300])
def test_invalid_seconds_are_refused(seconds: Any) -> None:
    net = build_network("ic")
    with pytest.raises(cw.InvalidInput, match=r"^advance: "):
        net.advance(seconds)
    assert net.now == 0


def waits(net: cw.Network) -> None:
    net.call("mute", "keep", sender="caller/left").wait(9)


def waits_for_all(net: cw.Network) -> None:
    net.call("mute", "keep", sender="caller/left")
    net.await_all(ticks=9)


def waits_until(net: cw.Network) -> None:
    net.call("mute", "keep", sender="caller/left")
    net.until(lambda own: own.state_of("mute") == 7, ticks=9)


@pytest.mark.parametrize("name", protocol_names())
@pytest.mark.parametrize("wait", [waits, waits_for_all, waits_until])
def test_missing_event_is_reported_with_its_timeline(name: cw.ProtocolName, wait: Callable[[cw.Network], None]) -> None:
    with pytest.raises(cw.NoAnswer) as caught:
        wait(build_network(name))
    error = caught.value
    lines = error.trace.splitlines()
    assert lines[0].split() == ["tick", "0", "left", "caller/left", "->", "mute", "keep()", "sent"]
    assert error.trace in "".join(traceback.format_exception(error)) and error.trace not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.status, again.trace) == (str(error), "pending", error.trace)


@pytest.mark.parametrize("name", protocol_names())
def test_filtered_table_equals_the_rows_of_the_full_table(name: cw.ProtocolName) -> None:
    net = build_network(name)
    for method, sender in itertools.product(("say", "fail", "keep"), ("caller/left", "caller/right")):
        net.call("mute", method, sender=sender)
        net.tick()
    net.send("mute", "say", sender=3)
    net.tick(9)
    net.call("mute", "say", sender="caller/left")
    everything = list(net.messages())
    columns = ("kind", "sender", "receiver", "method", "status", "reject")
    filters: list[dict[str, Any]] = [
        {column: value} for column in columns for value in {getattr(row, column) for row in everything} - {""}
    ]
    filters += [one | other for one, other in itertools.combinations(filters, 2) if one.keys() != other.keys()]
    assert len(filters) > 60
    for wanted in filters:
        expected = [row for row in everything if all(getattr(row, key) == value for key, value in wanted.items())]
        assert list(net.messages(**wanted)) == expected, wanted
    for since in range(net.now + 2):
        expected = [row for row in everything if row.tick is not None and row.tick >= since]
        assert list(net.messages(since=since)) == expected, since


@pytest.mark.parametrize("name", protocol_names())
def test_row_has_the_cause_of_a_failed_or_rejected_message(name: cw.ProtocolName) -> None:
    net = build_network(name)
    call = net.call("mute", "fail", sender="caller/left")
    call.wait()
    (request,), (answer,) = net.messages(kind="request", method="fail"), net.messages(kind="response")
    assert request.reason == answer.reason == call.reason == "ValueError: asked to"
    assert net.messages().arrow().column("reason").to_pylist()[-1] == answer.reason


def test_row_has_the_cause_of_a_lost_or_unqueued_message() -> None:
    net = build_network("ic")
    net.call("mute", "say", sender="caller/left")
    net.tick()
    net.remove("mute")
    net.tick(3)
    net.send(4711, "say")
    net.tick()
    reasons = {row.status: row.reason for row in net.messages()}
    assert reasons["lost"] == "receiver_mismatch" and reasons["refused"] == net._handles[-1].reason.rpartition(" (")[0]


@pytest.mark.parametrize("name", protocol_names())
@pytest.mark.parametrize("ticks", [0, 2])
def test_change_before_the_first_message_is_written_to_the_file(
    name: cw.ProtocolName, ticks: int, tmp_path: Path
) -> None:
    programs = [cw.Deploy("echo", chain="left")]
    for change in (
        lambda net: net.install("echo", name="second", chain="right"),
        lambda net: net.inject("halt", chain="left", until=3),
    ):
        net = cw.Network(["left", "right"], programs, protocol=name)
        net.tick(ticks)
        change(net)
        net.tick(5)
        net.call("echo", "say", "hi", sender="caller/right")
        net.tick(30)
        net.write_scenario(tmp_path / "done.toml")
        again = cw.Network.in_memory(tmp_path / "done.toml")
        again.tick(net.now)
        assert (again.height, again.root()) == (net.height, net.root())


@pytest.mark.parametrize("name", protocol_names())
def test_program_upgrade_at_tick_0_keeps_the_lake_verified(name: cw.ProtocolName, tmp_path: Path) -> None:
    net = cw.Network(["left", "right"], [cw.Deploy("scalar_echo", name="echo", chain="left")], protocol=name)
    net.upgrade("echo", "faulty")
    net.call("echo", "say", "hi", sender="caller/right")
    net.tick(3)
    (tmp_path / "again").mkdir()
    assert execute(["check", net.export(tmp_path / "lake")], build_app, "causeway") == OK
    recheck(net, tmp_path / "again")
