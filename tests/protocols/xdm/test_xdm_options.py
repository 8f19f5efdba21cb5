"""Options of the xdm protocol: rejections and the profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput

import causeway as cw
from causeway.config.document import validate_document
from causeway.network.scenario_check import examine_scenario
from causeway.protocols.shared.option_values import LARGEST
from causeway.protocols.xdm.options import DEPLOYED, XdmOptions
from tests.support.xdm.xdm_network import Network


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"archiving_dept": 3}, "options.archiving_dept: unknown key; did you mean archiving_depth? "),
        ({"archiving_depth": "3"}, "options.archiving_depth: "),
        ({"relay_fee": 1.0}, "options.relay_fee: "),
        ({"operators": True}, "options.operators: "),
        ({"profile": "other"}, "options.profile: "),
        (
            {"archiving_depth": 20, "mmr_roots": 21},
            "options.mmr_roots: 21: a block is final after ",
        ),
        ({"weights": {"left": {"mesage": 1}}}, "unknown key; did you mean message? "),
        (
            {"channel_calls": [{"tick": 1, "chain": "a", "foreign": "b", "do": "close", "relay_fee": 2}]},
            'options.channel_calls[0].relay_fee: 2: allowed: none with do = "close"',
        ),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput) as found:
        validate_document(XdmOptions, options, "s.toml", ("options",))
    assert str(found.value).startswith("s.toml: ") and text in str(found.value)


def test_profile_sets_defaults_that_explicit_values_override() -> None:
    assert XdmOptions(profile="seed") == XdmOptions()
    deployed = XdmOptions(profile="deployed")
    assert {name: getattr(deployed, name) for name in DEPLOYED} == DEPLOYED
    given = XdmOptions(profile="deployed", inbox="stored")
    assert (given.inbox, given.fee_model) == ("stored", DEPLOYED["fee_model"])


def test_messages_arrive_with_the_fewest_allowed_roots() -> None:
    """With one less, the root of a final block's proof would be forgotten at its delivery."""
    net = Network({"A": {1: "caller"}, "B": {2: "echo"}}, options={"archiving_depth": 3, "mmr_roots": 5})
    net.call(1, 2, b"hello")
    net.settle()
    assert net.state.programs["caller"]["answered"].tolist() == [1]
    assert not net.refusals()


def test_every_allowed_channel_count_per_block_works() -> None:
    found = {}
    for most in (15, LARGEST - 1, LARGEST):
        net = Network({"A": {1: "caller"}, "B": {2: "echo"}}, options={"channels_per_block": most})
        net.sleep(2**31)
        net.call(1, 2, b"hello")
        net.settle()
        found[most] = net.headers["root"].tobytes()
        assert net.state.programs["caller"]["answered"].tolist() == [1]
    assert len({*found.values()}) == 1


def test_network_value_has_128_bits() -> None:
    most, options = 10**38 - 1, {"endowment": 0}
    programs = dict.fromkeys(range(1, 4), "caller")
    Network({"A": programs, "B": {5: "caller"}}, balance=2**126 - 2**50, options=options).block()
    with pytest.raises(InvalidInput, match=r"programs: balances, .* come to 4[0-9]{38} in all; allowed: at most 2"):
        Network({"A": programs, "B": {5: "caller"}}, balance=most, options=options)


def test_unplaced_program_has_no_value(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(
        '[network]\nprotocol = "xdm"\n[[chains]]\nname = "left"\n'
        '[[programs]]\nname = "nowhere"\nprogram = "caller"\nbalance = 7\n'
        '[[programs]]\nname = "here"\nprogram = "caller"\nchain = "left"\nbalance = 5\n[traffic]\nsource = "script"\n'
    )
    net = cw.Network.in_memory(scenario)
    net.tick()
    assert (net.account("nowhere"), net.balance("here")) == (0, 5)
    assert examine_scenario(scenario).wrong == ()


@pytest.mark.parametrize(
    ("faults", "operators", "text"),
    [
        ([("b", 3)], 3, 'faults: kind = "absent", chain = "b", operator = 3: allowed: 0 to 2 (options.operators = 3)'),
        ([("a", 0), ("b", 1), ("b", 0)], 2, 'chain = "b": all of its 2 operators may be absent; allowed: at least one'),
    ],
)
def test_absent_operators_are_named(faults: list[tuple[str, int]], operators: int, text: str) -> None:
    absences = [("absent", chain, None, 0, 9, {"operator": number, "chance": 0.5}) for chain, number in faults]
    with pytest.raises(InvalidInput) as found:
        Network({"a": {}, "b": {}}, options={"operators": operators}, faults=absences)
    assert text in str(found.value)
