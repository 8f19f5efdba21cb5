"""Amounts whose text has several values among deployed readers: what a mapping's ``base`` makes of them.

``010`` is 10 to ibc-rs, cosmjs and Python, and 8 to ibc-go, which reads amounts by Go's rules for literals
(cosmossdk.io/math, NewIntFromString).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

Base = Literal[10, "go", "0x"]

READINGS = {
    "ambiguous_number": "010 is 10 to ibc-rs and cosmjs, 8 to ibc-go; base in a mapping (--mapping) says which",
    "ambiguous_height": "1-0 is height 0 of revision 1 to ibc-go, no time-out to @confio/relayer; values in the "
    "mapping say which",
}
"""Reasons of quarantine for texts that deployed software reads in two ways: an example, who reads what, the remedy."""

_LEADING_ZERO = r"^[ \t\n\v\f\r]*[+-]?0[0-9]"
_BARE_HEX = r"^([ \t\n\v\f\r]*[+-]?)(?:0[xX])?([0-9a-fA-F]+)([ \t\n\v\f\r]*)$"
_PLAIN = r"^(?:0|[1-9][0-9]*)?$"
_GO_LITERAL = re.compile(
    "([+-]?)(?:"
    "0[xX](?P<b16>_?[0-9a-fA-F](?:_?[0-9a-fA-F])*)|0[oO](?P<o8>_?[0-7](?:_?[0-7])*)|0[bB](?P<b2>_?[01](?:_?[01])*)|"
    "0(?P<b8>(?:_?[0-7])+)|(?P<b10>0|[1-9](?:_?[0-9])*))"
)
_BASES = {"b16": 16, "o8": 8, "b2": 2, "b8": 8, "b10": 10}
_TOO_LARGE = 1 << 256
_MOST_DIGITS = 256
"""Digits of 2**256 - 1 in base 2; more of any base without zeros before them are too many."""


def has_leading_zero(texts: pa.Array) -> pa.Array:
    """Return which texts begin with a zero that another digit follows."""
    return pc.match_substring_regex(texts, _LEADING_ZERO)


def rebased(texts: pa.Array, base: Base | None, nulls: Collection[str]) -> pa.Array:
    """Rewrite texts of numbers so that plain readers of decimal digits and ``0x`` read what ``base`` says.

    Args:
        texts: Strings.
        base: 10 or None: as they are; ``0x``: digits without ``0x`` are hexadecimal; ``go``: Go's literals.
        nulls: Texts that say that nothing is there.

    Returns:
        Strings; what is no number in ``base`` is none for any reader.
    """
    if base == "0x":
        # Hexadecimal digits have no fraction, not even one of nothing.
        return pc.replace_substring(pc.replace_substring_regex(texts, _BARE_HEX, r"\10x\2\3"), ".", "?")
    if base == "go":
        odd = pc.invert(pc.match_substring_regex(texts, _PLAIN))
        if pc.any(odd).as_py():
            coded = texts.dictionary_encode()
            values = [
                text if text is None or text in nulls or not text.strip() else go_digits(text)
                for text in coded.dictionary.to_pylist()
            ]
            return pa.array(values, pa.string()).take(coded.indices)
    return texts


def go_digits(text: str) -> str:
    """Return the decimal digits of an integer literal of Go, or a text that is no number.

    Args:
        text: The literal; spaces around it do not count.

    Returns:
        Digits, ``-`` before those of a negative number; 2**256 for any larger number.

    Reference:
        math/big, Int.SetString with base 0.
    """
    found = _GO_LITERAL.fullmatch(text.strip(" \t\n\v\f\r"))
    if found is None:
        return "?"
    kind = found.lastgroup or "b10"
    digits = found[kind].replace("_", "").lstrip("0")
    value = _TOO_LARGE if len(digits) > _MOST_DIGITS else min(int(digits or "0", _BASES[kind]), _TOO_LARGE)
    return f"{'-' * (found[1] == '-')}{value}"


__all__ = ["READINGS", "Base", "go_digits", "has_leading_zero", "rebased"]
