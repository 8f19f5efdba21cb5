"""Headers that were verified, or that are a zone's own: decoded once, however many zones they are submitted to.

Nothing that is only offered is kept: whoever submits junk takes no memory for longer than a block.
"""

from __future__ import annotations

import threading
from typing import TypeVar

from cachetools import LRUCache

from causeway.proofs.steps import Step
from causeway.proofs.tendermint.commit import Commit, verify_signatures
from causeway.proofs.tendermint.trust import SignatureCheck
from causeway.proofs.tendermint.update import HeaderUpdate, decode_header_update
from causeway.proofs.tendermint.validators import ValidatorSet

KEPT_BYTES = 2 << 20
"""Bytes of headers that are kept: about 1,700 of four validators. Decoded they take about 15 times as much memory."""

LAST_BYTES = 64 << 10
"""The header read last is decoded once for all the steps of a call, whatever it is worth, unless it is longer."""

Value = TypeVar("Value")

_updates: LRUCache[bytes, tuple[HeaderUpdate, int]] = LRUCache(KEPT_BYTES, getsizeof=lambda kept: kept[1])
_signatures: LRUCache[bytes, tuple[tuple[str, Step], int]] = LRUCache(KEPT_BYTES, getsizeof=lambda kept: kept[1])
_lock = threading.Lock()
_last: list[tuple[bytes, HeaderUpdate]] = []


def _get(cache: LRUCache[bytes, tuple[Value, int]], certification: bytes) -> Value | None:
    with _lock:
        found = cache.get(certification)
    return None if found is None else found[0]


def _put(cache: LRUCache[bytes, tuple[Value, int]], certification: bytes, value: Value) -> None:
    with _lock:
        cache[certification] = value, min(len(certification), KEPT_BYTES)


def read_header(certification: bytes) -> HeaderUpdate:
    """Return a header as it is submitted, whatever it is worth; ``ProofError`` for what is none."""
    known = _get(_updates, certification)
    if known is not None:
        return known
    for last, update in tuple(_last):
        if last == certification:
            return update
    found = decode_header_update(certification)
    _last[:] = [(certification, found)] if len(certification) <= LAST_BYTES else []
    return found


def read_own_header(certification: bytes) -> HeaderUpdate:
    """Return a header that a zone of this network has made, and keep it."""
    found = read_header(certification)
    _put(_updates, certification, found)
    return found


def keep_header(certification: bytes, update: HeaderUpdate) -> None:
    """Keep a header that a light client has found valid."""
    _put(_updates, certification, update)


def signatures_of(certification: bytes) -> SignatureCheck:
    """Return a check of a header's signatures that is made once if they hold, however many zones the header goes to."""

    def check(commit: Commit, chain_id: str, own: ValidatorSet, first: ValidatorSet | None = None) -> Step:
        known = _get(_signatures, certification)
        if known is not None and known[0] == chain_id:
            return known[1]
        step = verify_signatures(commit, chain_id, own, first=first)
        _put(_signatures, certification, (chain_id, step))
        return step

    return check
