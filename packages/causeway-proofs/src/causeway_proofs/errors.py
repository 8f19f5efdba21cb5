"""Errors that carry a stable name, so that a caller can act on them and a ledger row can quote them.

The two ways in which a proof fails: it is not what it says it is, or it does not show what it claims.
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
    """Root of every error Causeway raises on purpose; the message is one line fit for a user."""

    @property
    def name(self) -> str:
        """Return the stable name of the error: its class name, as in the protocol references."""
        return type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[CausewayError], args: tuple[Any, ...], attributes: Mapping[str, Any]) -> CausewayError:
    """Return an error as it was, whatever its class is made of."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class InvalidInput(CausewayError):
    """Something a user gave is wrong: the message names the field, the value and what is allowed.

    ``hint``: what the user may try, shown on a line of its own.
    """

    hint: str | None = None


def describe_os_error(error: BaseException) -> str | None:
    """Return which file cannot be read or written, and why (the disk is full, no more files may be open), if a user can
    mend that; else None."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{error.strerror}: the system gives no more of them; allow more (ulimit -n)"
    if isinstance(error, OSError) and error.errno in _PLACE_IS_BAD and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in _PLACE_IS_BAD and error.strerror != os.strerror(error.errno):
        return str(error.strerror).partition(". Detail: ")[0]  # Arrow names the place in its words
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"cannot be written: {error.strerror}"
    if type(error) is OSError and error.errno is None:
        # An object store or the format of a file says it, in words.
        return str(error).strip().partition("\n")[0][:_MAX_CHARACTERS]
    return None


class NotInQueue(CausewayError):
    """A deletion names elements that the queue does not hold (IC reference 2.3, D-2)."""


class IndexOverflow(CausewayError):
    """A queue index would pass 2**64 - 1 (IC reference 2.1). ``queues``: key columns of the queues that are full."""

    def __init__(self, text: str = "", queues: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.queues = {} if queues is None else queues


class InvariantViolation(CausewayError):
    """A hard invariant is false: the implementation is wrong, or a chain is malicious beyond the fault assumption.

    ``chains``: positions of the chains for which it is.
    """

    def __init__(self, text: str, chains: Any = ()) -> None:
        super().__init__(text)
        self.chains = chains


MOST_SHOWN_BYTES = 64
"""What a message shows of a key, label or id from a stranger; longer ones are cut, the message stays one line."""


def hex_text(data: bytes) -> str:
    """Return ``data`` in hexadecimal for a message; of more than 64 bytes the first 64, and how many there are."""
    more = f"... ({len(data)} bytes)" if len(data) > MOST_SHOWN_BYTES else ""
    return data[:MOST_SHOWN_BYTES].hex() + more


class ProofError(CausewayError):
    """Root of all that a decoder or verifier of proofs raises, whatever bytes it is given."""


class MalformedProof(ProofError):
    """The bytes are no proof of the family: truncated, extended, of the wrong shape, not in canonical form."""


class OverLimit(MalformedProof):
    """The bytes go past a bound of the decoder: too long, nested too deeply, too many nodes."""


class NotProven(ProofError):
    """The proof is well formed and does not hold: the message says which step fails.

    Attributes:
        decides: whether the proof is one of something else; false where another one, or something that was not given,
            may still show what is claimed.
    """

    decides: ClassVar[bool] = True
