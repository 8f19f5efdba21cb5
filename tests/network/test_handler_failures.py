"""Failing handlers: counts and reports with program, file and line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from causeway.cli.output.run_outcome import failure_lines
from causeway.network.network import LakeNetwork
from causeway.network.run_records import HandlerFailure, HandlerFailures, read_failures
from causeway.programs.user_modules import BESIDE

MODULE = """
import causeway as cw

class Scalar(cw.Program):
    def on_ingress(self, message, context):
        context.call(int(message.payload), "ask")

    def on_request(self, request, context):
        raise KeyError("asked")  # line 9

    def on_reply(self, reply, context):
        if reply.code:
            self.fail()

    def fail(self):
        raise RuntimeError("answered")  # line 16

class Refusing(cw.Program):
    def on_request(self, request, context):
        raise cw.Reject("on purpose")

class Shapeless(cw.VectorProgram):
    def handle(self, batch, state):  # line 23
        return state
"""

SCENARIO = """
[network]
executor = "in_process"
protocol = "{protocol}"
[[chains]]
name = "left"
[[chains]]
name = "right"
[[programs]]
name = "caller"
chain = "left"
program = "failing_module:Scalar"
[[programs]]
name = "called"
chain = "right"
program = "failing_module:Scalar"
[[programs]]
name = "refusing"
chain = "right"
program = "failing_module:Refusing"
[[programs]]
name = "shapeless"
chain = "right"
program = "failing_module:Shapeless"
[traffic]
source = "script"
[[traffic.send]]
tick = 0
to = "{to}"
method = "go"
text = "{payload}"
"""


@pytest.fixture
def own_module(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "failing_module.py").write_text(MODULE)
    folders, modules = list(BESIDE.folders), set(sys.modules)
    yield tmp_path
    BESIDE.folders[:] = folders
    for name in set(sys.modules) - modules:
        if name == "failing_module":
            del sys.modules[name]


def run_failing(folder: Path, protocol: str, payload: str, to: str = "caller") -> HandlerFailures:
    scenario = folder / "failing.toml"
    scenario.write_text(SCENARIO.format(protocol=protocol, payload=payload, to=to))
    with LakeNetwork.from_scenario(str(scenario), {}, lake=str(folder / "lake")) as network:
        network.run(ticks=20)
        return read_failures(network.lake, network.topology)


@pytest.mark.parametrize("protocol", ["ic", "ibc"])
def test_failures_of_requests_responses_and_ingress_are_reported(own_module: Path, protocol: str) -> None:
    file = str(own_module / "failing_module.py")
    found = run_failing(own_module, protocol, "1")
    asked, answered = found.first[:2]
    assert asked == HandlerFailure(asked.tick, "right", "called", "request", "on_request", "KeyError: 'asked'", file, 9)
    assert answered.program == "caller" and answered.kind == "response" and answered.line == 16
    assert answered.error == "RuntimeError: answered"
    assert found.count >= 2
    told = [line.plain for line in failure_lines(found)]
    assert told[0].startswith(f"Handlers of programs raised {found.count} times")
    assert told[1] == f"  called on right, tick {asked.tick}: on_request: KeyError: 'asked' ({file}:9)"


def test_malformed_payload_fails_in_the_library_and_names_the_programs_line(own_module: Path) -> None:
    found = run_failing(own_module, "ic", "x")
    assert (found.count, found.first[0].handler, found.first[0].line) == (1, "on_ingress", 6)
    assert found.first[0].error.startswith("ValueError: invalid literal for int()")


def test_vectorised_handler_returning_no_effects_is_a_failure(own_module: Path) -> None:
    found = run_failing(own_module, "ic", "x", to="shapeless")
    assert (found.count, found.first[0].handler, found.first[0].line) == (1, "handle", 23)
    assert found.first[0].error == "InvalidEffects: handle returned Frame, allowed: Effects"


def test_deliberate_reject_is_no_handler_failure(own_module: Path) -> None:
    assert run_failing(own_module, "ic", "2").first[0].program == "caller"
    assert failure_lines(HandlerFailures()) == []
