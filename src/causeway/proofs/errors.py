"""The two ways in which a proof fails: it is not what it says it is, or it does not show what it claims."""

from __future__ import annotations

from typing import ClassVar

from causeway.model.errors import CausewayError

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
