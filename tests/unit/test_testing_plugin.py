"""The pytest plugin: networks under the protocols of a mark, and timelines in the reports of tests that fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import causeway as cw
from causeway.protocols.registry import names

pytest_plugins = ["pytester"]

TESTS = """
import pytest
import causeway as cw


class Echo(cw.Program):
    def on_request(self, request, context):
        return request.payload


@pytest.mark.causeway(protocols="all", options={"xdm": {"archiving_depth": 3, "challenge_period": 5}})
def test_all(causeway_network, causeway_protocol):
    net = causeway_network(["a", "b"], [cw.Deploy(Echo, chain="a")])
    assert net.protocol == causeway_protocol
    assert net.call("echo", "x", "same", sender="caller/b").result(ticks=40) == b"same"


@pytest.mark.causeway(protocols=["ibc"])
def test_one(causeway_network):
    net = causeway_network(1, [cw.Deploy(Echo)])
    assert net.call("echo", "x", "same").result() == b"other"


def test_none(causeway_network):
    assert causeway_network(1).protocol == causeway_network(1, protocol="ic").protocol
"""


def run(pytester: pytest.Pytester, text: str) -> pytest.RunResult:
    pytester.makepyfile(text)
    return pytester.runpytest_inprocess("-p", "causeway.testing.plugin", "-p", "no:cacheprovider", "-p", "no:xdist")


def test_a_test_runs_under_each_protocol_and_shows_its_messages_where_it_fails(pytester: pytest.Pytester) -> None:
    result = run(pytester, TESTS)
    result.assert_outcomes(passed=len(names()) + 1, failed=1)
    text = result.stdout.str()
    assert "test_one[ibc]" in text
    assert "messages of <Network ibc: 1 chains, 1 programs, height 3, next tick 3>" in text
    assert "caller/chain-0 -> echo x(b'same')" in text and "caller/chain-0 <- echo b'same'" in text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ('protocols=["icp"]', "mark causeway: protocols: 'icp': no such protocol; allowed: ibc, ic, icmp, xdm"),
        ('protocols="ic"', "mark causeway: protocols = 'ic': must be a list of names, or 'all'"),
        ('protocol=["ic"]', "mark causeway: an argument protocol; allowed: protocols, options"),
        ('"ic"', "mark causeway: an argument 'ic' without a name; allowed: protocols, options"),
    ],
)
def test_a_mistake_in_the_mark_is_one_line(pytester: pytest.Pytester, arguments: str, line: str) -> None:
    text = f"import pytest\n\n@pytest.mark.causeway({arguments})\ndef test_it(causeway_network):\n    pass\n"
    assert line in run(pytester, text).stdout.str()


@pytest.mark.causeway(protocols=["ic"])
def test_the_fixture_is_there_for_the_tests_of_this_house(causeway_network: Callable[..., cw.Network]) -> None:
    assert causeway_network(3).protocol == "ic"


def test_the_plugin_is_an_entry_point_under_the_name_of_its_module() -> None:
    project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    assert "[project.entry-points.pytest11]" in project
    assert '"causeway.testing.plugin" = "causeway.testing.plugin"' in project
