"""Why a call was not served, in words that all protocols share.

Every protocol has codes of its own; its entry in ``protocols.registry`` says which of these each of them means.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class RejectCode(Enum):
    """Why a call was not served, whatever the protocol."""

    NOT_FOUND = "not_found"
    """Nobody has the name or number that was called, or no program is installed under it."""
    REFUSED = "refused"
    """The program said no: it raised ``Reject``, or answered with one."""
    FAILED = "failed"
    """The program's handler raised an error, or gave no answer where it must."""
    TIMED_OUT = "timed_out"
    """The call expired before it was taken."""
    NO_FUNDS = "no_funds"
    """The caller cannot pay what the call costs or carries."""
    UNREACHABLE = "unreachable"
    """There is no way to the chain: no open channel or connection, or it is not allowed."""
    BUSY = "busy"
    """A passing state: a full queue, a program that moves. The same call may be served later."""
    TOO_LARGE = "too_large"
    """The call or its answer is longer than the protocol carries."""
    INVALID = "invalid"
    """The call is none that its receiver reads: malformed, of a type that it does not handle, from a false sender."""
    OTHER = "other"
    """Anything else: the protocol's own code and the text say what."""


PortableCode = Callable[[int, bytes], RejectCode]
"""Returns what a protocol's reject code and the text of the reject mean; with the code 0 the text alone says why a
message from a user came into no queue."""
