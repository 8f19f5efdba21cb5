"""One verdict on certificates: ours, the Rust libraries' and, without times, JavaScript's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.ic.bls import public_key_to_der
from causeway_proofs.ic.certificate import Certificate, Delegation, decode_certificate, encode_certificate
from causeway_proofs.ic.certification import Freshness, RangesForm, verify_certificate

from benchmarks.proofs.native import CARGO_FAST, Native, Toolchain, answers
from tests.support.ic.ic_certification import CANISTER, NOW, RANGES, SUBNET_ID, canister, certificate
from tests.verifiers.conftest import Build, Node
from tests.verifiers.test_ic_certificates import (
    ROOT_KEY,
    SCRIPT,
    laxly_read_certificates,
    request,
    tampered_certificates,
)

TOOLCHAIN = Toolchain(
    Path(__file__).parent / "native" / "ic-rust",
    "ic-certificate-verification",
    ("Cargo.toml", 'ic-certificate-verification = "='),
    *CARGO_FAST,
)
OFFSET = 300_000_000_000
"""Maximum distance of a certificate's time from that of the verifier, in nanoseconds."""


class Claim(NamedTuple):
    """A certificate, its canister, and the verifier's time."""

    data: bytes
    canister: bytes = CANISTER
    now: int = NOW


def own_verdict(claim: Claim) -> bool:
    fresh = Freshness(claim.now, max_age=OFFSET, max_ahead=OFFSET)
    try:
        verify_certificate(claim.data, ROOT_KEY, canister_id=claim.canister, freshness=fresh)
    except ProofError:
        return False
    return True


def verdicts(native: Native, claims: Iterable[Claim]) -> list[bool]:
    """Return whether the library in Rust accepts each."""

    def records() -> Iterable[bytes]:
        for claim in claims:
            yield from (claim.data, claim.canister, public_key_to_der(ROOT_KEY))
            yield from (number.to_bytes(16, "little") for number in (claim.now, OFFSET))

    return [said == "true" for said in answers(native, records())]


@pytest.fixture(scope="module")
def rust(native_build: Build) -> Native:
    """Return the library in Rust."""
    (built,) = native_build([TOOLCHAIN])
    return built


def nested() -> bytes:
    """A certificate with a nested delegation."""
    good = decode_certificate(certificate())
    inner = good.delegation
    assert inner is not None
    between = decode_certificate(inner.certificate)
    delegated = encode_certificate(Certificate(between.tree, between.signature, inner))
    return encode_certificate(Certificate(good.tree, good.signature, Delegation(SUBNET_ID, delegated)))


ENDS = [RANGES[2][0], RANGES[2][1], RANGES[3][0], canister(299), canister(310), canister(5000)]
SHOWN = {
    "of the root subnet": Claim(certificate(None)),
    **{
        f"{form.name.lower()}, canister {number.hex()}": Claim(certificate(form), number)
        for form in (RangesForm.SUBNET, RangesForm.PIECES)
        for number in ENDS
    },
    "delegated twice": Claim(nested()),
    # Certificates that only the root subnet could have signed are not tested here.
    **{
        name: Claim(data)
        for name, data in tampered_certificates().items()
        if name != "the identity as the subnet's key"
    },
}
TIMES = {
    "as late as is allowed": Claim(certificate(), now=NOW + OFFSET),
    "a nanosecond later": Claim(certificate(), now=NOW + OFFSET + 1),
    "as early as is allowed": Claim(certificate(), now=NOW - OFFSET),
    "a nanosecond earlier": Claim(certificate(), now=NOW - OFFSET - 1),
}


def test_one_verdict_on_delegations_ranges_and_altered_certificates(rust: Native, node: Node) -> None:
    own = {name: own_verdict(claim) for name, claim in SHOWN.items()}
    assert [name for name, holds in own.items() if holds] == [
        "of the root subnet",
        *(f"{form}, canister {number.hex()}" for form in ("subnet", "pieces") for number in ENDS[:3]),
    ]
    assert dict(zip(SHOWN, verdicts(rust, SHOWN.values()), strict=True)) == own
    asked = [request(claim.data, canister=claim.canister) for claim in SHOWN.values()]
    assert dict(zip(SHOWN, (answer["accepted"] for answer in node(SCRIPT, asked)), strict=True)) == own


def test_one_verdict_at_the_bounds_of_time(rust: Native) -> None:
    own = [own_verdict(claim) for claim in TIMES.values()]
    assert own == [True, False, True, False]
    assert verdicts(rust, TIMES.values()) == own


def test_other_encodings_than_the_signed_one(rust: Native) -> None:
    """The library in Rust reads some of them, the one in JavaScript all; ours none."""
    claims = [Claim(data) for data in laxly_read_certificates().values()]
    assert [own_verdict(claim) for claim in claims] == [False] * len(claims)
    accepted = dict(zip(laxly_read_certificates(), verdicts(rust, claims), strict=True))
    assert accepted == {
        "an entry that means nothing": False,
        "a length in more bytes than it needs": True,
        "labels out of order": True,
        "a label twice": True,
        "a time padded": False,
    }
