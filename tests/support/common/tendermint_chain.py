"""A chain of a few validators, whose sets at each height are given, for tests of light clients."""

from __future__ import annotations

from causeway_proofs.tendermint.building import create_validators, make_header, sign_header
from causeway_proofs.tendermint.commit import SignedHeader
from causeway_proofs.tendermint.header import SECOND, Header
from causeway_proofs.tendermint.light_client import LightClient, WantedHeader
from causeway_proofs.tendermint.trust import REFERENCE_RULE, HeaderUpdate, TrustedHeader, TrustOptions, TrustRule
from causeway_proofs.tendermint.validators import SigningKey

CHAIN = "zone-1"
START = 1_700_000_000 * SECOND
PERIOD = 1_000 * SECOND


def key(number: int) -> SigningKey:
    return SigningKey.from_name(f"validator {number}")


def options(rule: TrustRule = REFERENCE_RULE) -> TrustOptions:
    return TrustOptions(CHAIN, PERIOD, 5 * SECOND, rule)


class Chain:
    """A chain whose validators at each height are given; heights start at 1, a block a second."""

    def __init__(self, sets: list[dict[int, int]], branch: int = 0) -> None:
        made = [create_validators({key(number): power for number, power in members.items()}) for members in sets]
        self.sets = [validators for validators, _ in made]
        self.keys = {address: signer for _, keys in made for address, signer in keys.items()}
        self.signed: list[SignedHeader] = []
        for place, validators in enumerate(self.sets):
            following = self.sets[min(place + 1, len(self.sets) - 1)]
            last = self.signed[-1] if self.signed else None
            root = bytes([branch, place]) * 16
            header = make_header(CHAIN, place + 1, self.time(place + 1), root, validators, following, last)
            self.signed.append(sign_header(header, validators, self.keys))

    @staticmethod
    def time(height: int) -> int:
        return START + height * SECOND

    def header(self, height: int) -> Header:
        return self.signed[height - 1].header

    def update(self, wanted: WantedHeader) -> HeaderUpdate:
        return HeaderUpdate.on(
            wanted.trusted_height,
            self.sets[wanted.validators_height - 1],
            self.signed[wanted.height - 1],
            self.sets[wanted.height - 1],
        )

    def client(self, rule: TrustRule = REFERENCE_RULE, height: int = 1) -> LightClient:
        return LightClient(options(rule), [TrustedHeader.of(self.header(height))])


NOW = Chain.time(300)


def steady(length: int = 4) -> Chain:
    return Chain([{1: 10, 2: 10, 3: 10, 4: 10}] * length)
