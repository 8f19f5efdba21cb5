"""Errors with stable names, for callers to act on and ledger rows to quote.

A proof fails in one of two ways: ``MalformedProof`` (the bytes are not a proof) or ``NotProven`` (a well-formed proof
does not show the claim).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any, ClassVar

_MAX_CHARACTERS = 500
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PLACE_IS_BAD = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOENT),
    *(errno.ELOOP, errno.ENAMETOOLONG),
    *_FULL,
}


class CausewayError(Exception):
    """Base class of Causeway's own errors; the message is one line for users."""

    @property
    def name(self) -> str:
        """Return the stable name of the error: its class name, as in the protocol references."""
        return type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[CausewayError], args: tuple[Any, ...], attributes: Mapping[str, Any]) -> CausewayError:
    """Restore an error with its attributes, whatever its constructor takes."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class InvalidInput(CausewayError):
    """Invalid user input: the message names the field, the value and the allowed values.

    Attributes:
        hint: a suggestion for the user, printed on a line of its own.
    """

    hint: str | None = None


def describe_os_error(error: BaseException) -> str | None:
    """Describe an operating-system error that a user can fix, else return None.

    Args:
        error: any exception.

    Returns:
        One line (disk full, too many open files, ...), or None.
    """
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{error.strerror}: the system gives no more of them; allow more (ulimit -n)"
    if isinstance(error, OSError) and error.errno in _PLACE_IS_BAD and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in _PLACE_IS_BAD and error.strerror != os.strerror(error.errno):
        return str(error.strerror).partition(". Detail: ")[0]  # Arrow names the place in its words
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"cannot be written: {error.strerror}"
    if type(error) is OSError and error.errno is None:
        # Object stores and file formats report this as text only.
        return str(error).strip().partition("\n")[0][:_MAX_CHARACTERS]
    return None


class NotInQueue(CausewayError):
    """A deletion names elements that the queue does not hold (IC reference 2.3, D-2)."""


class IndexOverflow(CausewayError):
    """A queue index would exceed 2**64 - 1 (IC reference 2.1).

    Attributes:
        queues: key columns of the full queues.
    """

    def __init__(self, text: str = "", queues: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.queues = {} if queues is None else queues


class InvariantViolation(CausewayError):
    """A hard invariant is false: a bug, or a chain malicious beyond the fault assumption.

    Attributes:
        chains: positions of the affected chains.
    """

    def __init__(self, text: str, chains: Any = ()) -> None:
        super().__init__(text)
        self.chains = chains


MOST_SHOWN_BYTES = 64
"""Most bytes of an untrusted key, label or id in a message, to keep it on one line."""


def hex_text(data: bytes) -> str:
    """Format ``data`` in hexadecimal; beyond 64 bytes, the first 64 and the length."""
    more = f"... ({len(data)} bytes)" if len(data) > MOST_SHOWN_BYTES else ""
    return data[:MOST_SHOWN_BYTES].hex() + more


class ProofError(CausewayError):
    """Base class of all errors of proof decoders and verifiers, for any input bytes."""


class MalformedProof(ProofError):
    """The bytes are not a proof of the family: truncated, extended, misshapen or not canonical."""


class OverLimit(MalformedProof):
    """The bytes exceed a bound of the decoder: length, nesting or node count."""


class NotProven(ProofError):
    """The proof is well formed but does not hold: the message names the failed step.

    Attributes:
        decides: True if the proof shows something else; False if another proof, or missing input, may still show the
            claim.
    """

    decides: ClassVar[bool] = True


class RootMismatch(NotProven):
    """The proof, or the list of values, leads to another root than the trusted one."""
