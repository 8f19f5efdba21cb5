"""Errors of messages and assertions in tests."""

from __future__ import annotations

from causeway_proofs.errors import CausewayError

from causeway.core.text import truncate_text
from causeway.core.vocabulary import RejectCode


class NoAnswer(CausewayError):
    """A call has no answer, or a condition did not become true in time.

    Attributes:
        status: ``pending``, ``refused``, ``failed`` (at the caller) or ``lost``.
        reject: Equivalent reject code, such as ``NO_FUNDS`` for a caller that cannot pay, or None.
        trace: Timeline of the unfinished messages, or of all; a traceback shows it below the error.
    """

    def __init__(self, text: str, status: str, reject: RejectCode | None = None, trace: str = "") -> None:
        super().__init__(text)
        self.status, self.reject, self.trace = status, reject, trace
        if trace:
            self.add_note(trace)

    def __reduce__(self) -> tuple[type[NoAnswer], tuple[str, str, RejectCode | None, str]]:
        return NoAnswer, (str(self), self.status, self.reject, self.trace)


class Rejected(CausewayError):
    """A call was rejected.

    Attributes:
        call: Description of the call.
        reject: Portable code.
        code: The protocol's code.
        text: Text of the reject.
    """

    def __init__(self, call: str, reject: RejectCode, code: int, text: str) -> None:
        super().__init__(f"{call}: rejected, {reject.name} (code {code}): {truncate_text(text)}")
        self.call, self.reject, self.code, self.text = call, reject, code, text

    def __reduce__(self) -> tuple[type[Rejected], tuple[str, RejectCode, int, str]]:
        return Rejected, (self.call, self.reject, self.code, self.text)


class NotDeterministic(CausewayError):
    """A handler gives different results when the same block runs twice.

    It depends on a clock, random numbers, or anything besides its state and message.

    Attributes:
        program: Name of the program.
        handler: Name of the handler.
        what: The differing value.
        one: Value of the first run.
        other: Value of the second run.
    """

    def __init__(self, program: str, handler: str, what: str, one: str, other: str) -> None:
        super().__init__(
            f"{program}.{handler}: {what} differs when the same block runs twice: {one}, then {other}; "
            f"a handler must not depend on a clock, random numbers, or anything outside of its state and message"
        )
        self.program, self.handler, self.what, self.one, self.other = program, handler, what, one, other

    def __reduce__(self) -> tuple[type[NotDeterministic], tuple[str, str, str, str, str]]:
        return NotDeterministic, (self.program, self.handler, self.what, self.one, self.other)


class Undone(CausewayError):
    """A message was sent after the snapshot that its network was restored to."""


__all__ = ["NoAnswer", "NotDeterministic", "Rejected", "Undone"]
