"""What documents of all kinds have in common: claims, a proof, and a path from what is claimed to what is trusted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from causeway_proofs.documents.trust import IcmpHead, RootTrust, TendermintTrust, Trust
from causeway_proofs.documents.values import DocumentSection
from causeway_proofs.errors import InvalidInput, MalformedProof, ProofError
from causeway_proofs.steps import Step

_HEX_SHOWN = 32
_BYTES_SHOWN = 16
_TEXT_SHOWN = 80


@dataclass(frozen=True, slots=True)
class ProofPath:
    """One way through a proof, from what is claimed towards what is trusted.

    Attributes:
        title: what the way starts from.
        steps: in the order in which they are made.
    """

    title: str
    steps: tuple[Step, ...]


class ProofDocument(DocumentSection, ABC):
    """A proof with what it claims. ``kind`` names its form."""

    kind: str
    accepts: ClassVar[tuple[type[Trust], ...]] = (RootTrust,)
    """What can be trusted for a proof of this kind, the usual one first."""
    too_odd: ClassVar[type[ProofError]] = MalformedProof
    """With what a strict verifier refuses a proof on which there are remarks."""

    @abstractmethod
    def claim(self) -> str:
        """Return what is claimed, in one line."""

    def lines(self) -> Sequence[str]:
        """Return what is claimed, a line each, where ``claim`` only counts it."""
        return ()

    def notes(self, trust: Trust) -> Sequence[str]:
        """Return what a reader of a true proof has to know of what it does not say, a line each."""
        return ()

    def remarks(self, trust: Trust) -> Sequence[str]:
        """Return what is odd about a proof that shows the claims, a line each: accepted unless one is strict."""
        return ()

    @abstractmethod
    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the ways to what is trusted, if the proof shows under ``trust`` what is claimed.

        Raises:
            ProofError: it does not.
            InvalidInput: no proof could be checked against the claims or ``trust``.
        """

    @abstractmethod
    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return those steps that can be made whether or not the proof holds: for a reader who looks for the fault.

        Raises:
            ProofError: none can be made.
        """


def describe_expected_trust(kinds: Iterable[type[Trust]]) -> str:
    """Return what to give where one of some kinds of trust is needed."""
    return " or ".join(kind.wanted for kind in kinds)


def require_kind(trust: Trust, kinds: tuple[type[Trust], ...]) -> None:
    """Refuse a trust of another kind than some.

    Raises:
        InvalidInput: it is of another.
    """
    if not isinstance(trust, kinds):
        raise InvalidInput(f"trust: is of the kind {trust.kind}; for this proof give {describe_expected_trust(kinds)}")


def require_trust(trust: Trust, *kinds: type[Trust]) -> None:
    """Refuse a trust of another kind than can be used.

    Raises:
        InvalidInput: it is of another.
    """
    require_kind(trust, kinds)
    if isinstance(trust, RootTrust) and trust.leaf_count is not None:
        raise InvalidInput("trust: leaf_count: only the root of a mountain range has one")


def trusted_root(trust: Trust) -> bytes:
    """Return the root that is trusted: given as such, or in a trusted header.

    Raises:
        InvalidInput: neither is given.
    """
    require_trust(trust, RootTrust, TendermintTrust, IcmpHead)
    return trust.target


def range_root(trust: Trust) -> RootTrust:
    """Return the trusted root of a mountain range, with its number of leaves where that is known.

    Raises:
        InvalidInput: it is of another kind.
    """
    require_kind(trust, (RootTrust,))
    assert isinstance(trust, RootTrust)
    return trust


def unique_claims(claims: Iterable[tuple[bytes, bytes | None]], field: str) -> dict[bytes, bytes | None]:
    """Return what is claimed of each key; the same claim may be made more than once.

    Raises:
        InvalidInput: two claims contradict each other.
    """
    found: dict[bytes, bytes | None] = {}
    for position, (key, value) in enumerate(claims):
        if found.setdefault(key, value) != value:
            raise InvalidInput(
                f"{field}[{position}]: {value_claim(key, value)}, but before: {value_claim(key, found[key])}"
            )
    return found


def format_bytes(data: bytes) -> str:
    """Return bytes for a reader: as text if they are one, else in hexadecimal, of many only the beginning."""
    if data.isascii() and data.decode().isprintable() and 0 < len(data) <= _TEXT_SHOWN:
        return f'"{data.decode()}"'
    return f"0x{data.hex()}" if len(data) <= _HEX_SHOWN else f"0x{data[:_BYTES_SHOWN].hex()}... ({len(data)} bytes)"


def value_claim(key: bytes, value: bytes | None) -> str:
    """Return the claim that a value is stored under a key, or nothing."""
    return (
        f"nothing is stored under {format_bytes(key)}"
        if value is None
        else f"{format_bytes(value)} is stored under {format_bytes(key)}"
    )
