"""Token transfer on the IBC kernel: books equal a plain model at every height, and tokens are conserved."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.config.faults import FaultRule, Faults
from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.vocabulary import Event
from causeway.programs.bundled.tokens import token_books, token_supply
from tests.support.ibc.ibc_network import Network
from tests.support.properties.transfer_model import Model, Order, Token, books_of_model, denomination
from tests.tiers import sized

BLOCKED = 3
RECEIVERS = ("0", "1", "2", "2", "0", str(BLOCKED), "nobody")
OPTIONS = {"faucet": True, "blocked_users": [BLOCKED]}


def network_of(zones: int, **more: Any) -> Network:
    return Network({f"zone-{number}": {number: ("transfer", OPTIONS)} for number in range(zones)}, **more)


def payload_of(order: Order) -> bytes:
    members: dict[str, Any] = {"denom": denomination(order.token), "amount": str(order.amount)}
    if order.method != "mint":
        members["receiver"] = order.receiver
    if order.method == "transfer":
        members["to"] = order.to
    return json.dumps(members).encode()


def rows_of(orders: list[Order]) -> pa.Table:
    rows = [(order.zone, order.zone, order.user, order.method, payload_of(order)) for order in orders]
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 5
    return pa.table(columns, schema=INGRESS_SCHEMA)


def random_order(model: Model, draw: random.Random) -> Order:
    """Generate an order of a user who mostly has, or recently had, the amount."""
    zone, user = draw.randrange(len(model.zones)), draw.choice((0, 0, 1, 2, BLOCKED))
    method = draw.choice(("mint", "send", *["transfer"] * 8))
    tokens = [token for (owner, token), amount in model.zones[zone].held.items() if owner == user and amount]
    if method == "mint" or not tokens:
        token = draw.choice((("gold",), ("silver",), ("gold",), (0, "gold")))
        return Order(zone, user, "mint", token, draw.randrange(1, 100))
    token = draw.choice(tokens)
    # Vouchers often return along their path.
    to = token[0] if len(token) > 1 and draw.random() < 0.6 else draw.randrange(len(model.zones) + 1)
    amount = draw.randrange(1, model.zones[zone].held[user, token] + 3)
    return Order(zone, user, method, token, amount, draw.choice(RECEIVERS), to)


def books(net: Network) -> dict[int, dict[str, Any]]:
    return {number: token_books(net.program_state(number)) for number in range(len(net.kernel.chains()))}


def assert_same(net: Network, model: Model) -> None:
    """Assert that books, in-flight transfers and totals equal the model; ``supply`` raises on imbalance."""
    found = books(net)
    for number, zone in enumerate(model.zones):
        expected = books_of_model(zone)
        assert {name: found[number][name] for name in expected} == expected
        assert sum(found[number]["refused"].values()) == zone.refused
        assert net.program_state(number)["calls"] == zone.calls
    supplies = token_supply(found)
    assert {key: value.total for key, value in supplies.items()} == dict(model.minted)
    under_way = model.under_way()
    assert all(value.under_way + value.beyond == under_way[key] for key, value in supplies.items())


@settings(deadline=None, derandomize=True, max_examples=sized(7, 75))
@given(
    seed=st.integers(0, 2**32),
    zones=st.integers(3, 4),
    ring=st.booleans(),
    apart=st.booleans(),
    order=st.sampled_from(["ordered", "unordered"]),
    loads=st.lists(st.integers(0, 12), min_size=4, max_size=10),
)
def test_books_equal_the_model(seed: int, zones: int, ring: bool, apart: bool, order: str, loads: list[int]) -> None:
    draw = random.Random(seed)
    pairs = [(one, (one + 1) % zones) for one in range(zones)]
    if not ring:
        pairs = [(one, other) for one in range(zones) for other in range(one)]
    options = {"connections": [[f"zone-{one}", f"zone-{other}"] for one, other in pairs], "order": order}
    net = network_of(zones, options=options, apart=apart)
    model = Model(zones, {*pairs, *((other, one) for one, other in pairs)}, [BLOCKED])
    for load in [6, *loads, 0, 0, 0]:
        orders = [random_order(model, draw) for _ in range(load)]
        net.tell_all(rows_of(orders))
        net.block()
        model.block(orders)
        assert_same(net, model)
    assert model.idle() and all(net.kernel.idle(state) for state in net.states)
    assert not any(value.under_way or value.beyond for value in token_supply(books(net)).values())


# ---- many transfers, under all faults

LIMITED = {"timeouts": "on", "timeout_blocks": 3, "cleanup": "on"}
RELAYERS = {"relayers": ["steady", "slow"]}


def generate_faults(zones: int, ticks: int) -> Faults:
    """Generate lanes without relayers for a while, a halting zone, tampering and repeating relayers."""
    carriers = []
    for start in range(4, ticks, 9):
        source, destination = start % zones, (start // 9 + start + 1) % zones
        kind = ("drop", "tamper", "replay")[start % 3]
        carriers.append(FaultRule(kind, source, destination, start, start + 5))
    return Faults.of(*carriers, FaultRule("halt", 1, None, ticks // 2, ticks // 2 + 6))


def run(transfers: int, per_block: int, options: Mapping[str, Any], *, users: int = 500) -> Counter[str]:
    """Play ``transfers`` of four zones with constant supplies; return their outcomes."""
    zones, draw = 4, random.Random(transfers)
    blocks = -(-transfers // per_block)
    net = network_of(zones, options=options, faults=generate_faults(zones, blocks))
    minting = [Order(zone, user, "mint", ("gold",), 1_000_000) for zone in range(zones) for user in range(users)]
    net.tell_all(rows_of(minting))
    net.block()
    minted = {key: value.total for key, value in token_supply(books(net)).items()}
    held = {zone: _holdings(own) for zone, own in books(net).items()}
    most = unheard = timed_out = 0
    for block in range(blocks):
        orders = []
        for _ in range(min(per_block, transfers - block * per_block)):
            zone = draw.randrange(zones)
            user, token = draw.choice(held[zone])
            to = token[0] if len(token) > 1 and draw.random() < 0.7 else (zone + draw.randrange(1, zones)) % zones
            receiver = draw.choices((str(draw.randrange(users)), str(BLOCKED), "nobody"), (90, 5, 5))[0]
            orders.append(Order(zone, user, "transfer", token, draw.randrange(1, 20), receiver, to))
        net.tell_all(rows_of(orders))
        net.block()
        timed_out += int(((net.events()["events"] & np.uint16(Event.TIMED_OUT)) > 0).sum())
        unheard += net.refusals().count(("zone-1", "ChainHalted"))
        if block % 10 == 9:
            found = books(net)
            supplies = token_supply(found)
            assert {key: value.total for key, value in supplies.items()} == minted
            most = max(most, max(value.under_way for value in supplies.values()))
            held = {zone: _holdings(own) for zone, own in found.items()}
    net.settle(1_000)
    found = books(net)
    supplies = token_supply(found)
    assert {key: value.home + value.abroad for key, value in supplies.items()} == minted
    assert not any(own["open"] for own in found.values())
    assert most > 0, "something was under way when it was counted"
    ended: Counter[str] = Counter()
    for own in found.values():
        ended.update(delivered=own["delivered"], refunded=own["refunded"], refused=sum(own["refused"].values()))
    assert sum(ended.values()) == transfers - unheard + zones, "on each zone the blocked user's minting was refused"
    assert (timed_out > 0) == (options.get("timeouts") == "on")
    return ended


def _holdings(own: Mapping[str, Any]) -> list[tuple[int, Token]]:
    """Return the holders by denomination, for up to two channels."""
    found: list[tuple[int, Token]] = []
    for denom, accounts in own["accounts"].items():
        *hops, base = denom.removeprefix("transfer/channel-").replace("/transfer/channel-", "/").split("/")
        if len(hops) < 3:
            token: Token = (*(int(peer) for peer in hops), base)
            found += [(user, token) for user, amount in sorted(accounts.items()) if amount > 100]
    return found


@pytest.mark.parametrize(
    "options", [{}, {"order": "unordered"}, LIMITED, {**LIMITED, **RELAYERS}], ids=["", "unordered", "limited", "two"]
)
def test_no_token_is_lost_or_created(options: Mapping[str, Any]) -> None:
    ended = run(600, 15, options, users=20)
    assert ended["delivered"] > 300 and ended["refunded"] > 30


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, LIMITED], ids=["patient", "with time-outs"])
def test_no_token_is_lost_or_created_in_1e5_transfers(options: Mapping[str, Any]) -> None:
    ended = run(100_000, 1_000, options)
    assert ended["delivered"] > 60_000 and ended["refunded"] > 5_000
