"""Whether a document is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.proofs.documents.document import ProofDocument, Track
from causeway.proofs.documents.reading import Reading
from causeway.proofs.documents.trust import Trust
from causeway.proofs.errors import ProofError


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a document is true, and the path of its proof.

    Attributes:
        kind: of the document.
        claim: what it claims, in one line.
        error: why it is not true; None if it is.
        trust: under what.
        named_by_document: the document itself said what is to be trusted.
        lines: what it claims, a line each, where ``claim`` only counts it.
        notes: of a document that is true, what it does not say, and what is odd about its proof.
        named_instead: what the document itself names, where that is something else than ``trust``.
        tracks: the ways from what is claimed to what is trusted; of a document that is not true, those steps that can
            be made.
    """

    kind: str
    claim: str
    error: ProofError | None
    trust: Trust
    named_by_document: bool
    tracks: tuple[Track, ...]
    named_instead: Trust | None = None
    lines: Sequence[str] = ()
    notes: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Return whether the document is true under its trust."""
        return self.error is None

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON objects; digests are hexadecimal digits."""
        return {
            "valid": self.valid,
            "kind": self.kind,
            "claim": self.claim,
            "notes": list(self.notes),
            "error": None if self.error is None else {"name": self.error.name, "text": str(self.error)},
            "trust": {
                "kind": self.trust.kind,
                "subject": self.trust.subject,
                "named_by_document": self.named_by_document,
                "named_instead": None if self.named_instead is None else self.named_instead.subject,
            },
            "steps": [
                {
                    "track": position,
                    "title": track.title,
                    "operation": step.operation,
                    "detail": step.detail,
                    "result": step.result.hex(),
                }
                for position, track in enumerate(self.tracks)
                for step in track.steps
            ],
        }


def judge(reading: Reading, trust: Trust | None = None, *, strict: bool = False) -> Verdict:
    """Return whether a document is true under ``trust``; without it, under what the document itself says is trusted.

    Args:
        reading: the document.
        trust: what is trusted; default: what the document itself names.
        strict: refuse a proof on which there are remarks, such as a repeated node or an encoding that is not
            canonical; default: note them, since deployed verifiers accept it.

    Returns:
        The verdict.

    Raises:
        InvalidInput: nothing is trusted, or nothing that a proof of this kind can be checked against; or its claims are
            not valid.
    """
    document = reading.document
    trusted = trust or reading.own_trust
    if trusted is None:
        wanted = " or ".join(kind.wanted for kind in document.accepts)
        raise InvalidInput(
            f"{reading.where}: trust: missing; a proof of the kind {document.kind} needs {wanted} (--trust)"
        )
    error: ProofError | None = None
    try:
        tracks = document.verify(trusted)
        remarks = document.remarks(trusted)
        if strict and remarks:
            raise document.too_odd("; ".join(remarks))
    except ProofError as refused:
        tracks, error = _sketch(document, trusted), refused
    except InvalidInput as wrong:
        raise InvalidInput(f"{reading.where}: {wrong}") from None
    own = reading.own_trust
    instead = own if own is not None and own.target != trusted.target else None
    notes = (*document.notes(trusted), *remarks) if error is None else ()
    named = trust is None
    return Verdict(document.kind, document.claim(), error, trusted, named, tracks, instead, document.lines(), notes)


def _sketch(document: ProofDocument, trust: Trust) -> tuple[Track, ...]:
    try:
        return document.sketch(trust)
    except (ProofError, InvalidInput):
        # Made of what was refused, it may not be made at all.
        return ()
