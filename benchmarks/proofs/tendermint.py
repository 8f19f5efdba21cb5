"""Headers of Tendermint chains: signed by all validators, verified by a light client."""

from __future__ import annotations

from causeway_proofs.tendermint.building import create_validators, make_header, sign_header
from causeway_proofs.tendermint.commit import SignedHeader
from causeway_proofs.tendermint.header import SECOND
from causeway_proofs.tendermint.trust import (
    HeaderUpdate,
    TrustedHeader,
    TrustOptions,
    decode_header_update,
    verify_header,
)
from causeway_proofs.tendermint.validators import SigningKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.proofs.timing import OURS, Row, compared, timed

CHAIN = "zone-1"
START = 1_700_000_000 * SECOND
VALIDATORS = (4, 100)
HEADERS = 10
VOTE_BYTES = 110
SIGNATURES_ALONE = "Ed25519 alone"


def measure(size: int, repeats: int, node: str | None) -> list[Row]:
    """Measure headers with few and with many validators; ``size`` does not matter to them."""
    return [row for count in VALIDATORS for row in _headers(count, repeats)]


def _headers(count: int, repeats: int) -> list[Row]:
    signers = [SigningKey.from_name(f"validator {number}") for number in range(count)]
    validators, keys = create_validators(dict.fromkeys(signers, 10))
    trusted = TrustedHeader.of(make_header(CHAIN, 1, START, bytes(32), validators))
    options = TrustOptions(CHAIN)

    def signed(number: int) -> SignedHeader:
        root = bytes([number]) * 32
        header = make_header(CHAIN, 2 + number, START + (1 + number) * SECOND, root, validators)
        return sign_header(header, validators, keys)

    updates = [HeaderUpdate.on(1, validators, signed(number), validators).encode() for number in range(HEADERS)]
    # As many signatures of messages as long, and nothing else.
    secret = [Ed25519PrivateKey.from_private_bytes(signer.seed) for signer in signers]
    public = [key.public_key() for key in secret]
    votes = [bytes([number]) * VOTE_BYTES for number in range(HEADERS)]
    signatures = [[key.sign(vote) for key in secret] for vote in votes]

    def sign() -> None:
        for number in range(HEADERS):
            signed(number)

    def sign_alone() -> None:
        for vote in votes:
            for key in secret:
                key.sign(vote)

    def verify() -> None:
        for update in updates:
            verify_header(trusted, decode_header_update(update), options, START + 60 * SECOND)

    def verify_alone() -> None:
        for vote, made in zip(votes, signatures, strict=True):
            for key, signature in zip(public, made, strict=True):
                key.verify(signature, vote)

    rows = []
    for part, name, ours, alone in (
        ("sign", "made and signed", sign, sign_alone),
        ("verify", "decoded and verified", verify, verify_alone),
    ):
        contenders = {OURS: (timed(ours), HEADERS), SIGNATURES_ALONE: (timed(alone), HEADERS)}
        rows.append(compared(part, f"header, {count} validators, {name}", "headers", contenders, repeats))
    return rows
