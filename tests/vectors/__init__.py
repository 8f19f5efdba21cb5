"""Public test vectors, as the tests read them. README.md names the source and the licence of each."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

FOLDER = Path(__file__).resolve().parent


class State(NamedTuple):
    """A state trie of the vectors: its entries in their order, and its root by the version of the layout."""

    case: str
    pairs: list[tuple[bytes, bytes]]
    roots: tuple[bytes, bytes]


def load_vectors(name: str) -> Any:
    """Read a file of vectors.

    Args:
        name: The name of the file, without ``.json``.

    Returns:
        The content of the file. Bytes are hexadecimal text without a prefix.
    """
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@cache
def load_states() -> tuple[State, ...]:
    """Read the state tries, which have 10,110 entries together."""
    table = pq.read_table(FOLDER / "substrate_states.parquet")
    pairs: dict[int, list[tuple[bytes, bytes]]] = {}
    for state, key, value in zip(*(table[name].to_pylist() for name in ("state", "key", "value")), strict=True):
        pairs.setdefault(state, []).append((key, value))
    return tuple(
        State(row["case"], pairs[state], (bytes.fromhex(row["roots"][0]), bytes.fromhex(row["roots"][1])))
        for state, row in enumerate(load_vectors("substrate_roots")["states"])
    )


def decode_all(items: list[str]) -> list[bytes]:
    """Decode hexadecimal texts."""
    return [bytes.fromhex(item) for item in items]
