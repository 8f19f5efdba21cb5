"""Program names in options and calls, and reject codes with equal meaning under every protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import causeway as cw
from causeway.protocols.registry import find_protocol, protocol_names
from causeway.scenarios.scenario import load_scenario


class Friend(cw.Program):
    """Program that calls one program named in its options, and one named by itself."""

    def on_ingress(self, message: cw.Ingress, context: cw.Context) -> None:
        context.call(self.options["friends"][0], "by_option")
        context.call(message.payload.decode(), "by_name")

    def on_reply(self, reply: cw.Reply, context: cw.Context) -> None:
        assert reply.reject is not None
        self.state[context.name_of(reply.respondent)] = reply.reject.name


class Tally(cw.VectorProgram):
    """Program that counts its messages and forwards calls to the program in its options."""

    schema = pa.schema([pa.field("program", pa.uint64(), nullable=False), pa.field("got", pa.uint64(), nullable=False)])

    def handle(self, batch: cw.Frame, state: cw.Frame) -> cw.Effects:
        if bool(cw.method_is(batch, "fail").any()):
            raise ValueError("asked to")
        rows = cw.rows_of(batch, cw.Kind.REQUEST)
        (options,) = self.options.values()
        receivers = np.full(len(rows), options["next"], dtype=np.uint64)
        passed = batch.select(["method", "payload"]).take(rows)
        calls = cw.Frame({"row": rows, "receiver": receivers, **{name: passed[name] for name in passed.names}})
        return cw.Effects(state.with_columns(got=state["got"] + np.uint64(len(batch))), calls=calls)


def test_name_resolves_equally_in_options_and_calls() -> None:
    trial = cw.Trial(Friend, {"friends": [cw.ref("carol")]}, programs={"carol": 7})
    first, second = trial.ingress("go", b"dan")
    assert isinstance(first, cw.Call) and isinstance(second, cw.Call)
    assert (first.receiver, first.to, second.to) == (7, "carol", "dan")
    trial.reply(second, b"no such program", code=cw.RejectCode.NOT_FOUND)
    trial.reply(first, b"raised", code=5)
    assert trial.state == {"dan": "NOT_FOUND", "carol": "FAILED"}


def test_vectorised_program_is_on_trial_like_a_scalar_one(capsys: pytest.CaptureFixture[str]) -> None:
    trial = cw.Trial(Tally, {"next": cw.ref("other")}, number=3)
    (call,) = trial.request("caller", "pass", b"x")
    assert isinstance(call, cw.Call) and call.to == "other" and call.payload == b"x"
    asked = [cw.Request(9, callback, "pass", b"", 0, 0) for callback in (1, 2)]
    assert len(trial.turn([cw.Ingress(0, "hello", b""), *asked])) == 2
    assert trial.state == {"program": 3, "got": 4}
    (reject,) = trial.request("caller", "fail")
    assert isinstance(reject, cw.Answer) and reject.code == 5 and "ValueError: asked to" in capsys.readouterr().err
    with pytest.raises(cw.HandlerFailed, match="asked to"):
        trial.ingress("fail")
    assert trial.state["got"] == 4


SCENARIO = """
[[chains]]
name = "a"
[[programs]]
name = "first"
chain = "a"
program = "echo"
[[programs]]
name = "second"
chain = "a"
program = "echo"
options = { one = { program = "third" }, many = [1, { program = "first" }], plain = { program = "first", more = 1 } }
[[programs]]
name = "third"
chain = "a"
program = "echo"
"""


def scenario_with(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "names.toml"
    path.write_text(text)
    scenario = load_scenario(path)
    return scenario.topology(scenario.traffic()).programs["options"].to_pylist()


def test_scenario_names_programs_in_options(tmp_path: Path) -> None:
    assert scenario_with(tmp_path, SCENARIO)[1] == '{"many":[1,0],"one":2,"plain":{"more":1,"program":"first"}}'


def test_unknown_name_in_options_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(cw.InvalidInput) as error:
        scenario_with(tmp_path, SCENARIO.replace('[1, { program = "first" }]', '[1, { program = "thrid" }]'))
    expected = 'names.toml: programs[1].options.many[1]: "thrid": no such program; did you mean third?'
    assert str(error.value).endswith(expected)


MEANT = {
    "not_found": {(3, "Canister x not found"), (17, "no program 9"), (16, "NoMessageHandler")},
    "refused": {(4, "no"), (16, "no")},
    "failed": {(5, "ValueError"), (3, "ValueError")},
    "timed_out": {(2, "Request timed out."), (2, "")},
    "busy": {(2, "Canister x input queue is full")},
    "unreachable": {(16, "ConnectionFrozen"), (16, "NoOpenChannel")},
    "no_funds": {(16, "FundsUnavailable")},
    "too_large": {(16, "InvalidMessagePayload"), (16, "MaxMessageSizeExceeded")},
}  # fmt: skip
"""By what is meant: codes and texts that some protocol means it by."""


@pytest.mark.parametrize("meant", MEANT)
def test_each_reject_meaning_is_produced_by_some_protocol(meant: str) -> None:
    said = {
        name: {
            find_protocol(name).load_semantics().reject_code(code, text.encode()).value for code, text in MEANT[meant]
        }
        for name in protocol_names()
    }
    assert any(meant in found for found in said.values()), said
    assert len(MEANT[meant]) == 1 or sum(meant in found for found in said.values()) > 1, said


def test_every_exported_name_exists() -> None:
    for name in cw.__all__:
        assert getattr(cw, name) is not None, name
