"""The pytest plugin: networks under the protocols of a mark, and timelines in failure reports."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

import causeway as cw
from causeway.protocols.registry import protocol_names
from causeway.testing.plugin import marked_protocols

pytest_plugins = ["pytester"]

TESTS = """
import pytest
import causeway as cw


class Echo(cw.Program):
    def on_request(self, request, context):
        return request.payload


@pytest.mark.causeway(protocols=["ic", "icmp"])
def test_all(causeway_network, causeway_protocol):
    net = causeway_network(["a", "b"], [cw.Deploy(Echo, chain="a")])
    assert net.protocol == causeway_protocol
    assert net.call("echo", "x", "same", sender="caller/b").result(ticks=40) == b"same"


@pytest.mark.causeway(protocols=["ibc"])
def test_one(causeway_network):
    net = causeway_network(1, [cw.Deploy(Echo)])
    assert net.call("echo", "x", "same").result() == b"same"
    net.call("echo", "x", amount=10**30).result()


def test_none(causeway_network):
    assert causeway_network(1).protocol == causeway_network(1, protocol="ic").protocol
"""


def test_each_protocol_runs_a_test_and_failures_show_messages(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-p", "causeway.testing.plugin", "-p", "no:cacheprovider", timeout=300)
    result.assert_outcomes(passed=3, failed=1)
    text = result.stdout.str()
    assert "test_one[ibc]" in text
    assert marked_protocols(pytest.mark.causeway(protocols="all").mark) == protocol_names()
    assert "messages of <Network ibc: 1 chains, 1 programs, height 4, next tick 4>" in text
    assert "caller/chain-0 -> echo x(b'same')" in text and "caller/chain-0 <- echo b'same'" in text
    assert "handles.py" not in text  # the failure is shown in the test


FORKS = """
import pytest
import causeway as cw

pytestmark = pytest.mark.causeway(protocols=["ic", "ibc"])
built = []


class Counter(cw.Program):
    def initial_state(self):
        return 0

    def on_ingress(self, message, context):
        self.state += 1


def counters(make):
    net = make(1, [cw.Deploy(Counter)])
    net.send("counter", "go")
    net.run()
    built.append(net.protocol)
    return net


@pytest.mark.parametrize("number", range(3))
def test_begins_where_all_begin(causeway_fork, causeway_protocol, number):
    net = causeway_fork(counters)
    assert net.protocol == causeway_protocol and net.state_of("counter") == 1
    net.send("counter", "go")
    net.run()
    assert net.state_of("counter") == 2


def test_was_built_once_a_protocol(causeway_fork):
    causeway_fork(counters)
    assert sorted(built) == ["ibc", "ic"]


def test_is_told(causeway_fork):
    with pytest.raises(cw.InvalidInput, match="returned None: must return a network"):
        causeway_fork(lambda make: None)
"""


def test_tests_of_a_module_start_from_forks_of_one_network(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FORKS)
    result = pytester.runpytest_subprocess("-p", "causeway.testing.plugin", "-p", "no:cacheprovider", timeout=300)
    result.assert_outcomes(passed=10)


@pytest.mark.parametrize(
    ("mark", "line"),
    [
        (pytest.mark.causeway(protocols=["icp"]), "protocols: 'icp': no such protocol; allowed: ibc, ic, icmp, xdm"),
        (pytest.mark.causeway(protocols=5), "protocols = 5: must be a name, a list of names, or 'all'"),
        (pytest.mark.causeway(protocol=["ic"]), "an argument protocol; allowed: protocols, options"),
        (pytest.mark.causeway("ic"), "an argument 'ic' without a name; allowed: protocols, options"),
    ],
)
def test_invalid_mark_is_one_line(mark: pytest.MarkDecorator, line: str) -> None:
    with pytest.raises(ValueError, match=r"^mark causeway: ") as caught:
        marked_protocols(mark.mark)
    assert str(caught.value) == f"mark causeway: {line}"


@pytest.mark.causeway(protocols=["ic"])
def test_fixture_is_available_to_repository_tests(causeway_network: Callable[..., cw.Network]) -> None:
    assert causeway_network(3).protocol == "ic"


def test_plugin_is_an_entry_point_under_its_module_name() -> None:
    project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    assert "[project.entry-points.pytest11]" in project
    assert '"causeway.testing.plugin" = "causeway.testing.plugin"' in project


def test_make_network_signature_equals_network() -> None:
    made = [*inspect.signature(cw.MakeNetwork.__call__).parameters.values()]
    own = [*inspect.signature(cw.Network.__init__).parameters.values()]
    assert [(each.name, each.kind, each.annotation) for each in made] == [
        (each.name, each.kind, each.annotation) for each in own
    ]
    assert [each.default for each in made if each.name != "protocol"] == [
        each.default for each in own if each.name != "protocol"
    ]
