"""The tokens of tokens.toml: what was asked for happens, what fails comes back, and at no height one is missing."""

from __future__ import annotations

from pathlib import Path

from tokens import MODULES, SCENARIO, heights

import causeway as cw


def test_no_token_is_missing_at_any_height(tmp_path: Path) -> None:
    with cw.Network.from_scenario(SCENARIO, {"network.executor": "in_process"}, lake=str(tmp_path / "lake")) as net:
        found = dict(heights(net))
        hub, east, west, _ = (cw.token_books(net.program_state(name)) for name in MODULES)
    assert {place.total for place in found.values()} == {1000}
    assert max(place.under_way for place in found.values()) == 800
    assert list(found.values())[-1] == cw.TokenSupply(1000, home=650, abroad=350, under_way=0)
    assert (hub["accounts"], hub["refunded"]) == ({"transfer/channel-1/amber": {2: 50}}, 1)
    assert (east["accounts"], east["refunded"], east["refused"]) == ({"amber": {1: 650}}, 3, {"InsufficientFunds": 1})
    assert west["accounts"] == {"transfer/channel-0/transfer/channel-1/amber": {3: 300}}
