"""Base class of proof documents: claims, a proof, and paths to the trusted value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from causeway_proofs.documents.trust import IcmpHead, RootTrust, TendermintTrust, Trust
from causeway_proofs.documents.values import DocumentSection
from causeway_proofs.errors import InvalidInput, MalformedProof, ProofError
from causeway_proofs.steps import Step

_MAX_HEX = 32
_MAX_BYTES = 16
_MAX_TEXT = 80


@dataclass(frozen=True, slots=True)
class ProofPath:
    """One path through a proof, from a claim towards the trusted value.

    Attributes:
        title: description of the start.
        steps: the steps in order.
    """

    title: str
    steps: tuple[Step, ...]


class ProofDocument(DocumentSection, ABC):
    """A proof with its claims.

    Attributes:
        kind: name of the document's form.
        accepts: kinds of trust accepted for the proof, the usual one first.
        too_odd: error of a strict verifier for a proof with remarks.
    """

    kind: str
    accepts: ClassVar[tuple[type[Trust], ...]] = (RootTrust,)
    """Kinds of trust accepted for a proof of this kind, the usual one first."""
    too_odd: ClassVar[type[ProofError]] = MalformedProof
    """Error of a strict verifier for a proof with remarks."""

    @abstractmethod
    def claim(self) -> str:
        """Return the claims in one line.

        Returns:
            One line.
        """

    def lines(self) -> Sequence[str]:
        """Return one line a claim, if ``claim`` only counts them.

        Returns:
            The lines; may be empty.
        """
        return ()

    def notes(self, trust: Trust) -> Sequence[str]:
        """Return the limits of a true proof, one line each.

        Args:
            trust: the trusted value.

        Returns:
            The lines; may be empty.
        """
        return ()

    def remarks(self, trust: Trust) -> Sequence[str]:
        """Return the oddities of a valid proof, one line each; only strict verifiers reject them.

        Args:
            trust: the trusted value.

        Returns:
            The lines; may be empty.
        """
        return ()

    @abstractmethod
    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Verify the claims under ``trust``.

        Args:
            trust: the trusted value.

        Returns:
            The paths to the trusted value.

        Raises:
            ProofError: the proof does not show a claim.
            InvalidInput: no proof can be checked against the claims or ``trust``.
        """

    @abstractmethod
    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the computable steps, valid or not, to help locate a fault.

        Args:
            trust: the trusted value.

        Returns:
            The paths as far as computable.

        Raises:
            ProofError: no step is computable.
        """


def describe_expected_trust(kinds: Iterable[type[Trust]]) -> str:
    """Describe the input for one of several kinds of trust."""
    return " or ".join(kind.wanted for kind in kinds)


def require_kind(trust: Trust, kinds: tuple[type[Trust], ...]) -> None:
    """Require that ``trust`` is of one of ``kinds``.

    Raises:
        InvalidInput: it is of another kind.
    """
    if not isinstance(trust, kinds):
        raise InvalidInput(f"trust: is of the kind {trust.kind}; for this proof give {describe_expected_trust(kinds)}")


def require_trust(trust: Trust, *kinds: type[Trust]) -> None:
    """Require that ``trust`` is of one of ``kinds``.

    Raises:
        InvalidInput: it is of another kind.
    """
    require_kind(trust, kinds)
    if isinstance(trust, RootTrust) and trust.leaf_count is not None:
        raise InvalidInput("trust: leaf_count: only the root of a mountain range has one")


def trusted_root(trust: Trust) -> bytes:
    """Return the trusted root, given directly or in a trusted header.

    Raises:
        InvalidInput: neither is given.
    """
    require_trust(trust, RootTrust, TendermintTrust, IcmpHead)
    return trust.target


def range_root(trust: Trust) -> RootTrust:
    """Return the trusted root of a mountain range, with its number of leaves if known.

    Raises:
        InvalidInput: the trust is of another kind.
    """
    require_kind(trust, (RootTrust,))
    assert isinstance(trust, RootTrust)
    return trust


def unique_claims(claims: Iterable[tuple[bytes, bytes | None]], field: str) -> dict[bytes, bytes | None]:
    """Return the claimed value of each key; duplicates are allowed.

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
    """Format bytes for display: text if printable, else hexadecimal, truncated."""
    if data.isascii() and data.decode().isprintable() and 0 < len(data) <= _MAX_TEXT:
        return f'"{data.decode()}"'
    return f"0x{data.hex()}" if len(data) <= _MAX_HEX else f"0x{data[:_MAX_BYTES].hex()}... ({len(data)} bytes)"


def value_claim(key: bytes, value: bytes | None) -> str:
    """Format the claim that a key has a value, or is absent."""
    return (
        f"no value is stored under {format_bytes(key)}"
        if value is None
        else f"{format_bytes(value)} is stored under {format_bytes(key)}"
    )
