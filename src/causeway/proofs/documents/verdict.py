"""What is said of a document: that it is true, that it is false, or that neither can be said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from causeway.model.errors import CausewayError, InvalidInput
from causeway.proofs.documents.document import ProofDocument, Track, require_kind, wanted
from causeway.proofs.documents.reading import Reading
from causeway.proofs.documents.trust import Trust
from causeway.proofs.errors import NotProven, ProofError


class Answer(StrEnum):
    """What is said of a document.

    Attributes:
        TRUE: under what is trusted, the proof shows what is claimed.
        FALSE: it is well formed, and shows something else, or leads somewhere else.
        REFUSED: nothing can be said: it is malformed, over a limit, of an unknown form, or something is missing.
        UNTRUSTED: nobody said what is trusted, but the document itself.
    """

    TRUE = "true"
    FALSE = "false"
    REFUSED = "refused"
    UNTRUSTED = "untrusted"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a document, and the path of its proof.

    Attributes:
        found: the answer under ``trust``, whoever named that.
        error: why it is not true; None if it is.
        kind: of the document; None of one that cannot be read.
        claim: what it claims, in one line; empty of one that cannot be read.
        trust: under what; None where nothing was named.
        named_by_document: the document itself said what is to be trusted.
        accepted: that is enough, since only consistency is asked about.
        tracks: the ways from what is claimed to what is trusted; of a document that is not true, those steps that can
            be made.
        named_instead: what the document itself names, where that is something else than ``trust``.
        lines: what it claims, a line each, where ``claim`` only counts it.
        notes: of a document that is true, what it does not say, and what is odd about its proof.
    """

    found: Answer
    error: CausewayError | None
    kind: str | None = None
    claim: str = ""
    trust: Trust | None = None
    named_by_document: bool = False
    accepted: bool = False
    tracks: tuple[Track, ...] = ()
    named_instead: Trust | None = None
    lines: Sequence[str] = ()
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer:
        """Return what is said of the document."""
        if self.named_by_document and not self.accepted and self.found is not Answer.REFUSED:
            return Answer.UNTRUSTED
        return self.found

    @property
    def valid(self) -> bool:
        """Return whether the document is true under what is trusted."""
        return self.answer is Answer.TRUE

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON objects; digests are hexadecimal digits."""
        return {
            "answer": self.answer.value,
            "valid": self.valid,
            "self_consistent": self.found is Answer.TRUE if self.named_by_document else None,
            "kind": self.kind,
            "claim": self.claim,
            "notes": list(self.notes),
            "error": None if self.error is None else {"name": self.error.name, "text": str(self.error)},
            "trust": None
            if self.trust is None
            else {
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


def judge(
    reading: Reading, trust: Trust | None = None, *, strict: bool = False, self_consistent: bool = False
) -> Verdict:
    """Return what is said of a document under ``trust``.

    Args:
        reading: the document.
        trust: what is trusted; without it, nothing is, but the document is held against what it names itself.
        strict: refuse a proof on which there are remarks, such as a repeated node or an encoding that is not
            canonical; default: note them, since deployed verifiers accept it.
        self_consistent: ask only whether the proof holds under what the document itself names.

    Returns:
        The verdict; it says, too, when no proof could be checked against the claims or ``trust``.
    """
    document, own = reading.document, reading.own_trust
    trusted = trust or own
    if trusted is None:
        needed = wanted(document.accepts)
        missing = InvalidInput(f"trust: missing; a proof of the kind {document.kind} needs {needed} (--trust)")
        return Verdict(Answer.UNTRUSTED, missing, document.kind, document.claim(), lines=document.lines())
    found = Answer.TRUE
    error: CausewayError | None = None
    tracks: tuple[Track, ...] = ()
    notes: tuple[str, ...] = ()
    try:
        require_kind(trusted, document.accepts)
        tracks = document.verify(trusted)
    except ProofError as wrong:
        found, error, tracks = _answer_to(wrong), wrong, _sketch(document, trusted)
    except InvalidInput as wrong:
        found, error = Answer.REFUSED, wrong
    else:
        remarks = document.remarks(trusted)
        if strict and remarks:
            found, error = Answer.REFUSED, document.too_odd("; ".join(remarks))
        else:
            notes = (*document.notes(trusted), *remarks)
    return Verdict(
        found,
        error,
        document.kind,
        document.claim(),
        trusted,
        named_by_document=trust is None,
        accepted=self_consistent,
        tracks=tracks,
        named_instead=own if own is not None and own.target != trusted.target else None,
        lines=document.lines(),
        notes=notes,
    )


def refusal(error: InvalidInput) -> Verdict:
    """Return the verdict on a document that cannot be read."""
    return Verdict(Answer.REFUSED, error)


def _answer_to(error: ProofError) -> Answer:
    return Answer.FALSE if isinstance(error, NotProven) and error.decides else Answer.REFUSED


def _sketch(document: ProofDocument, trust: Trust) -> tuple[Track, ...]:
    try:
        return document.sketch(trust)
    except (ProofError, InvalidInput):
        # Made of what was refused, it may not be made at all.
        return ()
