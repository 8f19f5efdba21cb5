"""The light client, one case at a time: skipping, bisection, expiry, forks and misbehaviour."""

from __future__ import annotations

from dataclasses import replace

import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.tendermint.building import create_validators, make_header, sign_header
from causeway_proofs.tendermint.errors import (
    ClientExpired,
    ConnectionFrozen,
    DelayNotElapsed,
    InvalidHeader,
    InvalidMisbehaviour,
    NeedIntermediateHeader,
    NoTrustedHeader,
)
from causeway_proofs.tendermint.header import SECOND
from causeway_proofs.tendermint.light_client import (
    ClientStatus,
    LightClient,
    UpdateOutcome,
    WantedHeader,
    bisect_headers,
)
from causeway_proofs.tendermint.trust import (
    DEPLOYED_RULE,
    REFERENCE_RULE,
    HeaderUpdate,
    Misbehaviour,
    TrustRule,
    decode_misbehaviour,
    deployed_rule,
)

from tests.support.common.tendermint_chain import CHAIN, NOW, PERIOD, Chain, key, options, steady


def test_unchanged_set_is_followed_over_any_distance() -> None:
    chain = steady(200)
    for rule in (REFERENCE_RULE, DEPLOYED_RULE):
        client = chain.client(rule)
        client.update(chain.update(client.wanted(200)), NOW)
        assert list(client.heights) == [1, 200] and client.latest.root == chain.header(200).app_hash
        client.update(chain.update(client.wanted(100)), NOW)
        assert list(client.heights) == [1, 100, 200]


def test_high_trust_level_applies_to_an_unchanged_set_that_skips_heights() -> None:
    chain = steady(5)
    voters = dict(list(chain.keys.items())[1:])
    three_of_four = [sign_header(signed.header, chain.sets[0], voters) for signed in chain.signed]
    for level, skips in (((1, 3), True), ((2, 3), True), ((3, 4), False), ((1, 1), False)):
        client = chain.client(deployed_rule(*level))
        skipping = replace(chain.update(client.wanted(5)), signed_header=three_of_four[4])
        if skips:
            client.update(skipping, NOW)
            continue
        with pytest.raises(NeedIntermediateHeader, match="30 of 40 of the power trusted at height 1 signed"):
            client.update(skipping, NOW)
        # To the next height, the named validators sign for themselves.
        client.update(replace(chain.update(client.wanted(2)), signed_header=three_of_four[1]), NOW)


def test_one_third_of_the_set_may_change_and_more_needs_an_intermediate_header() -> None:
    chain = Chain([{1: 1, 2: 1, 3: 1}, {1: 1, 2: 1, 4: 1}, {1: 1, 4: 1, 5: 1}, {4: 1, 5: 1, 6: 1}])
    client = chain.client()
    with pytest.raises(NeedIntermediateHeader) as caught:
        client.update(chain.update(client.wanted(4)), NOW)
    assert (caught.value.trusted_height, caught.value.height) == (1, 2)
    assert list(client.heights) == [1]
    client.update(chain.update(client.wanted(2)), NOW)
    assert list(client.heights) == [1, 2]


def fetch_all(chain: Chain, client: LightClient, target: int) -> int:
    steps = bisect_headers(client, target, NOW)
    wanted = next(steps)
    while True:
        try:
            wanted = steps.send(chain.update(wanted))
        except StopIteration as done:
            return int(done.value)


@pytest.mark.parametrize("rule", [REFERENCE_RULE, DEPLOYED_RULE])
def test_bisection_succeeds_if_every_block_changes_a_validator(rule: TrustRule) -> None:
    chain = Chain([dict.fromkeys(range(place, place + 8), 10) for place in range(64)])
    client = chain.client(rule)
    tried = fetch_all(chain, client, 64)
    assert client.latest.header_hash == chain.header(64).hash
    # 2 of 8 validators may leave in a step by the reference, 5 by the deployed rule.
    assert 63 // 6 < len(client.heights) <= 64 and tried < 128
    assert fetch_to_known(client) == 0


def fetch_to_known(client: LightClient) -> int:
    with pytest.raises(StopIteration) as done:
        next(bisect_headers(client, 64, NOW))
    return int(done.value.value)


def test_set_replaced_in_one_step_with_new_signatures_only() -> None:
    chain = Chain([{1: 1, 2: 1}, {1: 1, 2: 1}, {3: 1, 4: 1}, {3: 1, 4: 1}])
    for rule in (REFERENCE_RULE, DEPLOYED_RULE):
        client = chain.client(rule)
        with pytest.raises(NeedIntermediateHeader):
            client.update(chain.update(client.wanted(4)), NOW)
    # By the reference no step leads there; by the deployed rule the old set has named the new one.
    with pytest.raises(InvalidHeader, match="no height between"):
        fetch_all(chain, chain.client(REFERENCE_RULE), 4)
    client = chain.client(DEPLOYED_RULE)
    fetch_all(chain, client, 4)
    assert list(client.heights) == [1, 2, 4]


def test_unannounced_set_replacement() -> None:
    honest = steady(3)
    usurpers, keys = create_validators({key(50): 10, key(51): 10})
    header = make_header(CHAIN, 2, Chain.time(2), b"x" * 32, usurpers)
    signed = sign_header(header, usurpers, keys)
    for rule in (REFERENCE_RULE, DEPLOYED_RULE):
        with pytest.raises(InvalidHeader, match="not those that the trusted header before names"):
            honest.client(rule).update(HeaderUpdate.on(1, honest.sets[0], signed, usurpers), NOW)
        with pytest.raises(InvalidHeader, match="trusted validators hash"):
            honest.client(rule).update(HeaderUpdate.on(1, usurpers, signed, usurpers), NOW)


def test_expired_header_is_unusable() -> None:
    chain = steady(3)
    over = chain.time(1) + PERIOD
    client = chain.client()
    client.update(chain.update(WantedHeader(2, 1, 1)), over - 1)
    with pytest.raises(ClientExpired):
        client.update(chain.update(WantedHeader(3, 1, 1)), over)
    client.update(chain.update(WantedHeader(3, 2, 2)), over)
    assert client.status(chain.time(3) + PERIOD) is ClientStatus.EXPIRED
    with pytest.raises(ClientExpired):
        client.root(3, chain.time(3) + PERIOD)
    assert client.prune(over) == (1,) and list(client.heights) == [2, 3]
    assert client.prune(2 * over) == (2,) and list(client.heights) == [3]


def test_header_from_the_future() -> None:
    chain = steady(3)
    client = chain.client()
    with pytest.raises(InvalidHeader, match="ahead"):
        client.update(chain.update(WantedHeader(3, 1, 1)), chain.time(3) - 5 * SECOND)
    client.update(chain.update(WantedHeader(3, 1, 1)), chain.time(3) - 5 * SECOND + 1)


def test_header_no_later_than_the_trusted_one() -> None:
    chain = steady(2)
    for time, holds in ((chain.time(1) + 1, True), (chain.time(1), False), (chain.time(1) - 1, False)):
        signed = sign_header(replace(chain.header(2), time=time), chain.sets[1], chain.keys)
        update = replace(chain.update(WantedHeader(2, 1, 1)), signed_header=signed)
        if holds:
            chain.client().update(update, NOW)
        else:
            with pytest.raises(InvalidHeader, match="is not after"):
                chain.client().update(update, NOW)


def test_lower_height_missing_height_and_other_revision() -> None:
    chain = steady(3)
    client = chain.client(height=2)
    for wanted, error in ((WantedHeader(1, 2, 2), InvalidHeader), (WantedHeader(3, 1, 1), NoTrustedHeader)):
        with pytest.raises(error):
            client.update(chain.update(wanted), NOW)
    with pytest.raises(InvalidHeader, match="2-2"):
        client.update(replace(chain.update(WantedHeader(3, 2, 2)), trusted_revision=2), NOW)
    with pytest.raises(NoTrustedHeader):
        client.wanted(2)


def test_proofs_wait_for_the_delay() -> None:
    chain = steady(2)
    client = chain.client()
    client.update(chain.update(WantedHeader(2, 1, 1)), NOW, block_height=70)
    assert client.root(2, NOW) == chain.header(2).app_hash
    assert client.root(2, NOW + 9, delay=9, block_height=73, block_delay=3) == chain.header(2).app_hash
    with pytest.raises(DelayNotElapsed):
        client.root(2, NOW + 8, delay=9)
    with pytest.raises(DelayNotElapsed):
        client.root(2, NOW + 9, delay=9, block_height=72, block_delay=3)
    with pytest.raises(NoTrustedHeader):
        client.root(3, NOW)


def test_two_headers_of_one_height_freeze_the_client() -> None:
    chain, fork = steady(3), Chain([{1: 10, 2: 10, 3: 10, 4: 10}] * 3, branch=1)
    client = chain.client()
    client.update(chain.update(WantedHeader(3, 1, 1)), NOW)
    updated = client.update(fork.update(WantedHeader(3, 1, 1)), NOW)
    assert updated.outcome is UpdateOutcome.FROZEN and client.frozen
    assert client.trusted(3).root == chain.header(3).app_hash
    for refused in (
        lambda: client.update(chain.update(WantedHeader(2, 1, 1)), NOW),
        lambda: client.root(3, NOW),
        lambda: client.require_active(NOW),
    ):
        with pytest.raises(ConnectionFrozen):
            refused()


def test_header_with_a_time_outside_its_neighbours_freezes_the_client() -> None:
    chain = steady(4)
    client = chain.client()
    client.update(chain.update(WantedHeader(4, 1, 1)), NOW)
    late = replace(chain.header(2), time=chain.time(4))
    update = replace(chain.update(WantedHeader(2, 1, 1)), signed_header=sign_header(late, chain.sets[1], chain.keys))
    assert client.update(update, NOW).outcome is UpdateOutcome.FROZEN


def test_misbehaviour_freezes_and_other_evidence_does_not() -> None:
    chain, fork = steady(3), Chain([{1: 10, 2: 10, 3: 10, 4: 10}] * 3, branch=1)
    here, there = chain.update(WantedHeader(3, 1, 1)), fork.update(WantedHeader(3, 1, 1))
    client = chain.client()
    for misbehaviour in (
        Misbehaviour(here, here),
        Misbehaviour(here, chain.update(WantedHeader(2, 1, 1))),
        Misbehaviour(chain.update(WantedHeader(2, 1, 1)), here),
    ):
        with pytest.raises(InvalidMisbehaviour):
            client.submit_misbehaviour(misbehaviour, NOW)
    weak = sign_header(fork.header(3), fork.sets[2], dict(list(fork.keys.items())[:2]))
    with pytest.raises(InvalidHeader):
        client.submit_misbehaviour(Misbehaviour(here, replace(there, signed_header=weak)), NOW)
    with pytest.raises(ClientExpired):
        client.submit_misbehaviour(Misbehaviour(here, there), chain.time(1) + PERIOD)
    assert not client.frozen
    for misbehaviour in (Misbehaviour(here, there), earlier_but_higher(chain)):
        frozen = client.copy()
        read = decode_misbehaviour(misbehaviour.encode())
        assert read.encode() == misbehaviour.encode()
        frozen.submit_misbehaviour(read, NOW)
        assert frozen.frozen and not client.frozen
        with pytest.raises(ConnectionFrozen):
            frozen.submit_misbehaviour(misbehaviour, NOW)


def earlier_but_higher(chain: Chain) -> Misbehaviour:
    early = sign_header(replace(chain.header(3), time=chain.time(2)), chain.sets[2], chain.keys)
    return Misbehaviour(
        replace(chain.update(WantedHeader(3, 1, 1)), signed_header=early), chain.update(WantedHeader(2, 1, 1))
    )


def test_bisection_accepts_only_the_requested_header() -> None:
    chain = steady(3)
    steps = bisect_headers(chain.client(), 3, NOW)
    assert next(steps) == WantedHeader(3, 1, 1)
    with pytest.raises(InvalidHeader, match="wanted"):
        steps.send(chain.update(WantedHeader(2, 1, 1)))


def test_client_without_a_root_of_trust() -> None:
    with pytest.raises(InvalidInput, match="no header"):
        LightClient(options(), [])
