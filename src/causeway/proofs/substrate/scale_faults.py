"""What may be wrong with a SCALE encoding, and how both forms say so."""

from __future__ import annotations

from causeway.proofs.errors import OverLimit, ProofError
from causeway.proofs.substrate import scale_steps_loops as wrong
from causeway.proofs.substrate.errors import FailedToDecode

FAULTS = {
    wrong.OVER_LIMIT: "has more elements than are read",
    wrong.ENDS: "ends early",
    wrong.NO_VARIANT: "has no such variant",
    wrong.NOT_SHORTEST: "holds a compact integer in more bytes than it takes",
    wrong.NO_OPTION: "has an option that is neither 0 nor 1",
    wrong.TOO_LARGE: "holds a number above those of its type",
    wrong.NOT_ASCENDING: "does not ascend",
    wrong.TRAILING: "has bytes behind its end",
    wrong.ABSENT: "has no value in the column",
    wrong.UNWANTED: "has a value, of a variant that is not taken, in the column",
    wrong.NO_TEXT: "has text that is no UTF-8",
    wrong.SPARE_BITS: "has bits behind its last one",
}
"""What is wrong, by its code, after "it"."""


def decoding_error(what: str, code: int, position: int, length: int, path: str, most: int) -> ProofError:
    """Return what is wrong with an encoding.

    Args:
        what: what the encoding is of, for the message.
        code: one of ``FAULTS``.
        position, length: the byte at which, and the bytes of the encoding.
        path: the fields and variants that lead there.
        most: for a list above its limit, the limit.
    """
    where = f"at byte {position} of {length}, {path}"
    if code == wrong.OVER_LIMIT:
        return OverLimit(f"{what} {FAULTS[code]}, {where}: at most {most}")
    return FailedToDecode(f"{what} is no canonical SCALE encoding, it {FAULTS[code]}: {where}")
