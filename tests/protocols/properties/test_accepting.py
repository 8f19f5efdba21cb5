"""Conservation of value under every protocol with amounts accepted before answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import causeway as cw
from causeway.protocols.registry import protocol_names
from tests.support.ic.ic_programs import Actor, ops
from tests.tiers import sized

QUICK: dict[str, dict[str, Any]] = {
    "xdm": {"archiving_depth": 1, "challenge_period": 1},
    # In an ordered queue, a refund waits behind a held call until that is answered: no number of ticks suffices.
    "ibc": {"order": "unordered"},
}
CHAINS = {"left": ("ann", "bob"), "right": ("cleo",)}
ACTORS = [actor for actors in CHAINS.values() for actor in actors]
BALANCE = 100
TICKS = 12
"""From one step of a plan to the next under ibc: by then a call between zones is answered, where it is. Where it is
held, a run to the end would wait 300 ticks for its time-out."""

calls = st.tuples(
    st.just("call"),
    st.sampled_from(range(len(ACTORS))),
    st.sampled_from(["keep", "keep", "keep", "hold", "trap", "take", "early", "echo"]),
    st.just(b""),
    st.sampled_from([0, 1, 7, 40, BALANCE]),
    st.none(),
)
answers = st.tuples(st.sampled_from(["accept", "accept", "flush"]), st.sampled_from([1, 2, 3]))
plans = st.lists(
    st.tuples(st.sampled_from(ACTORS), st.lists(calls | answers | st.just(("refuse",)), min_size=1, max_size=4)),
    min_size=2,
    max_size=8,
)


def attached(net: cw.Network) -> int:
    """Return the amounts attached to pending requests of actors."""
    held = {}
    for actor in ACTORS:
        for sender, callback, amount, _ in net.state_of(actor)["held"]:
            held[net.number_of(actor), sender, callback] = amount
    return sum(held.values())


@pytest.mark.parametrize("protocol", protocol_names())
def test_value_is_conserved(protocol: cw.ProtocolName) -> None:
    accepted = 0

    @settings(
        max_examples=sized(5, 100),
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(plans)
    def run(plan: list[tuple[str, list[Any]]]) -> None:
        nonlocal accepted
        programs = [
            cw.Deploy(Actor, name=actor, chain=chain, balance=BALANCE)
            for chain, actors in CHAINS.items()
            for actor in actors
        ]
        net = cw.Network(list(CHAINS), programs, protocol=protocol, options=QUICK.get(protocol, {}), callers=None)
        numbers = [net.number_of(actor) for actor in ACTORS]
        total = BALANCE * len(ACTORS)
        for actor, described in plan:
            told = [(one[0], numbers[one[1]], *one[2:]) if one[0] == "call" else one for one in described]
            net.send(actor, "do", ops(*told))
            net.tick(TICKS) if protocol == "ibc" else net.run()
            balances = [net.balance(each) for each in ACTORS]
            assert min(balances) >= 0
            accepted += total - attached(net) < sum(balances)
            assert total - attached(net) <= sum(balances) <= total
        for actor in ACTORS:
            net.send(actor, "do", ops(("refuse",)))
        net.run()
        assert sum(net.balance(each) for each in ACTORS) == total
        assert net.summary()["verdict"] == "PASSED"

    run()
    assert accepted, "some amounts were accepted of requests that were open"
