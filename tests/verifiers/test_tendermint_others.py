"""One verdict on Tendermint headers at every bound: ours, CometBFT's and tendermint-rs'."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.tendermint.building import create_validators, make_header, sign_header
from causeway_proofs.tendermint.commit import SignedHeader
from causeway_proofs.tendermint.errors import ClientExpired, NeedIntermediateHeader
from causeway_proofs.tendermint.header import SECOND
from causeway_proofs.tendermint.trust import HeaderUpdate, TrustedHeader, TrustOptions, deployed_rule, verify_header
from causeway_proofs.tendermint.validators import ValidatorSet

from benchmarks.proofs.native import CARGO_FAST, GO_BUILD, Native, Toolchain, answers
from tests.support.common.tendermint_chain import CHAIN, START, key
from tests.tiers import sized
from tests.verifiers.conftest import Build

HERE = Path(__file__).parent / "native"
TOOLCHAINS = (
    Toolchain(HERE / "tendermint-rust", "tendermint-rs", ("Cargo.toml", 'verifier = { version = "='), *CARGO_FAST),
    Toolchain(HERE / "tendermint-go", "CometBFT", ("go.mod", "require github.com/cometbft/cometbft v"), *GO_BUILD),
)
PERIOD, DRIFT = 1_000 * SECOND, 5 * SECOND
TRUSTED_TIME = START + 3 * SECOND
FOUR = {1: 10, 2: 10, 3: 10, 4: 10}
THREE = {1: 10, 2: 10, 3: 10}
RANDOM = sized(150, 5_000)


class Update(NamedTuple):
    """A trusted header with its next validators, a new one with its own, and the client."""

    trusted: SignedHeader
    following: ValidatorSet
    signed: SignedHeader
    validators: ValidatorSet
    now: int = START + 100 * SECOND
    period: int = PERIOD
    drift: int = DRIFT
    level: tuple[int, int] = (1, 3)


def update(
    following: Mapping[int, int] = FOUR,
    own: Mapping[int, int] = FOUR,
    signers: Collection[int] | None = None,
    nil: Collection[int] = (),
    height: int = 9,
    time: int = START + 9 * SECOND,
    chain: str = CHAIN,
    round: int = 0,
    **client: Any,
) -> Update:
    """Return an update from height 3; powers by number of a validator; ``signers``: who votes; ``nil``: for none."""
    before, signing = create_validators({key(1): 1})
    believed, _ = create_validators({key(number): power for number, power in following.items()})
    validators, keys = create_validators({key(number): power for number, power in own.items()})
    trusted = sign_header(make_header(CHAIN, 3, TRUSTED_TIME, bytes(32), before, believed), before, signing)
    voting = {key(number).public_key.address for number in (own if signers is None else signers)}
    against = {key(number).public_key.address for number in nil}
    signed = sign_header(
        make_header(chain, height, time, b"\x07" * 32, validators, last=trusted),
        validators,
        {address: one for address, one in keys.items() if address in voting},
        nil=against,
        round=round,
    )
    return Update(trusted, believed, signed, validators, **client)


def own_verdict(given: Update) -> str:
    rule = deployed_rule(*given.level)
    options = TrustOptions(given.trusted.header.chain_id, given.period, given.drift, rule)
    trusted = TrustedHeader.of(given.trusted.header)
    try:
        verify_header(trusted, HeaderUpdate.on(3, given.following, given.signed, given.validators), options, given.now)
    except NeedIntermediateHeader:
        return "unknown"
    except ClientExpired:
        return "expired"
    except ProofError:
        return "false"
    return "true"


def verdicts(native: Native, updates: Iterable[Update]) -> list[str]:
    """Return a verifier's verdict on each: true, unknown, expired, false, or a crash."""

    def records() -> Iterable[bytes]:
        for given in updates:
            yield from (part.encode() for part in given[:4])
            for number in (given.now, given.period, given.drift, *given.level):
                yield number.to_bytes(8, "little")

    return answers(native, records())


@pytest.fixture(scope="module")
def clients(native_build: Build) -> list[Native]:
    """Return the light clients in Rust and Go."""
    return native_build(TOOLCHAINS)


CASES = {
    "the next height": (update(height=4), "true"),
    "a later height": (update(), "true"),
    "one validator": (update(following={1: 1}, own={1: 1}), "true"),
    "a later round": (update(round=3), "true"),
    "exactly two thirds signed, next height": (update(THREE, THREE, (1, 2), height=4), "false"),
    "exactly two thirds signed, later height": (update(THREE, THREE, (1, 2)), "false"),
    "two thirds and a little": (update({1: 21, 2: 20, 3: 20}, {1: 21, 2: 20, 3: 20}, (1, 2)), "true"),
    "exactly a third of the trusted": (update(THREE, {1: 10, 5: 1}), "unknown"),
    "a third of the trusted and a little": (update({1: 11, 2: 10, 3: 10}, {1: 11, 5: 1}), "true"),
    "exactly two thirds of the trusted, at that level": (
        update(THREE, {1: 10, 2: 10, 5: 1}, level=(2, 3)),
        "unknown",
    ),
    "all of the trusted at level 1": (update(level=(1, 1)), "unknown"),
    "the next height at level 1": (update(height=4, level=(1, 1)), "true"),
    "other validators at the next height": (update(FOUR, {5: 10}, height=4), "false"),
    "other validators later": (update(FOUR, {5: 10}), "unknown"),
    "votes for no block": (update(nil=(1, 2)), "false"),
    "one vote for no block": (update(nil=(1,)), "true"),
    "the trusted height": (update(height=3), "false"),
    "an earlier height": (update(height=2), "false"),
    "the trusted time": (update(time=TRUSTED_TIME), "false"),
    "a nanosecond later": (update(time=TRUSTED_TIME + 1), "true"),
    "an earlier time": (update(time=TRUSTED_TIME - 1), "false"),
    "as far ahead as the drift": (update(now=START + 4 * SECOND), "false"),
    "less far ahead": (update(now=START + 4 * SECOND + 1), "true"),
    "at the end of the trusting period": (update(now=TRUSTED_TIME + PERIOD), "expired"),
    "a nanosecond before": (update(now=TRUSTED_TIME + PERIOD - 1), "true"),
    "another chain": (update(chain="zone-2"), "false"),
    "validators that it does not name": (update()._replace(validators=create_validators({key(7): 1})[0]), "false"),
}
"""Updates at the bounds of the rules, with the verdict of the reference."""


def test_every_bound_of_the_rules_equals_that_of_the_others(clients: list[Native]) -> None:
    updates = [given for given, _ in CASES.values()]
    expected = [verdict for _, verdict in CASES.values()]
    said = {native.name: verdicts(native, updates) for native in clients}
    assert dict(zip(CASES, map(own_verdict, updates), strict=True)) == dict(zip(CASES, expected, strict=True))
    for name, found in said.items():
        assert (name, dict(zip(CASES, found, strict=True))) == (name, dict(zip(CASES, expected, strict=True)))


def random_update(random: Random) -> Update:
    """Return an update between sets with some common validators, some of which vote, near the bounds of the rules."""
    powers = [random.choice((1, 1, 2, 3, 10)) for _ in range(8)]
    following = {number: powers[number] for number in random.sample(range(8), random.randint(1, 5))}
    own = following if random.random() < 0.4 else {n: powers[n] for n in random.sample(range(8), random.randint(1, 5))}
    signers = [number for number in own if random.random() < 0.85]
    nil = [number for number in signers if random.random() < 0.1]
    level = random.choice(((1, 3), (1, 3), (1, 2), (2, 3), (1, 1)))
    now = random.choice((START + 100 * SECOND, TRUSTED_TIME + PERIOD - random.randint(0, 1)))
    return update(following, own, signers, nil, random.choice((4, 4, 9, 30)), now=now, level=level)


@pytest.mark.parametrize("seed", range(2))
def test_random_updates_have_one_verdict(clients: list[Native], seed: int) -> None:
    random = Random(seed)
    updates = [random_update(random) for _ in range(RANDOM)]
    own = [own_verdict(given) for given in updates]
    assert set(own) == {"true", "unknown", "false", "expired"}
    for native in clients:
        both = zip(own, verdicts(native, updates), strict=True)
        # The first of several reasons counts, and each checks them in its own order: ours counts a header's own
        # validators first, and tendermint-rs a commit without a vote.
        assert [pair for pair in both if pair[0] != pair[1] and ("true" in pair or "false" not in pair)] == []
