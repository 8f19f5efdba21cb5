"""Notices that nothing comes from a remote subnet any more, and that it goes on: said in few lines, whatever fails.

Sans I/O: after each pull, the caller says what time it is and what came of all pulls so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from causeway.proofs import errors as proof_errors
from causeway.proofs.ic import errors as ic_errors
from causeway.service.ic.xnet_client import NO_STREAM, REFUSED_BY_BLOCK, Pulled

STILL_SECONDS, LONGEST_SILENCE = 10.0, 600.0
"""An exchange stands still when for so long no pull was of use; then that is said again after twice as long, four times
as long, and so on, up to the longest."""

MOST_ADVICE = 2
"""Kinds of failures of which one line says what to look at: the most frequent ones."""

_DOWN = "no node answers: is the other lake served, and at options.remote.{name}.endpoints"
_STATUS = "nodes refuse to answer, or something else does at options.remote.{name}.endpoints"
_KEY = "options.remote.{name}.public_key is not the key that signed it"
_BEHIND = "the other lake has less than was taken of it: an older copy of it, or another options.index_base"
_FALSE = "nodes serve what was not certified: they lie, or have another options.certification_version"
_BLOCK = "blocks refuse what the other subnet certifies: the ledger's rejected events say why"

_FAULT = "errors of this side: the lines with the event fault say where"

_ADVICE = {
    **dict.fromkeys(("TimeoutError", *httpx.__all__), _DOWN),
    **{name: _FALSE for errors in (proof_errors, ic_errors) for name in vars(errors)},
    "InvalidSignature": _KEY,
    "OutOfRange": _BEHIND,
    NO_STREAM: _BEHIND,
    "SignalsEndRegresses": _BEHIND,
    "TakeBeforeSliceBegin": _BEHIND,
    "NoSlice": _STATUS,
    "Compressed": _STATUS,
    "TooLong": _STATUS,
    REFUSED_BY_BLOCK: _BLOCK,
}
"""What to look at, by the name of what went wrong."""


@dataclass(frozen=True)
class StandsStill:
    """For ``seconds`` no pull was of use; ``failures``: what went wrong since, by cause."""

    seconds: float
    failures: Mapping[str, int]

    def advice(self, name: str) -> str:
        """Return what to look at. ``name``: of the remote subnet."""
        counts: Counter[str] = Counter()
        for cause, count in self.failures.items():
            counts[_advice(cause)] += count
        return "; ".join(text.format(name=name) for text, _ in counts.most_common(MOST_ADVICE))


@dataclass(frozen=True)
class GoesOn:
    """A pull was of use, after ``seconds`` in which none was."""

    seconds: float


class Standstill:
    """How the pulls of one subnet from another one go."""

    def __init__(self) -> None:
        self._answered = 0
        self._before: Counter[str] = Counter()
        self._since: float | None = None
        self._due = self._pause = 0.0

    def look(self, now: float, pulled: Pulled) -> StandsStill | GoesOn | None:
        """Return what is to be said at a time, None if nothing is. ``pulled``: what came of all pulls so far."""
        if pulled.answered != self._answered:
            since, told = self._since, self._pause > STILL_SECONDS
            self._answered, self._before, self._since = pulled.answered, Counter(pulled.failures), None
            self._pause = STILL_SECONDS
            return GoesOn(now - since) if since is not None and told else None
        failures = pulled.failures - self._before
        if self._since is None and failures:
            self._since, self._due, self._pause = now, now + STILL_SECONDS, STILL_SECONDS
        if self._since is None or now < self._due:
            return None
        self._pause = min(2 * self._pause, LONGEST_SILENCE)
        self._due = now + self._pause
        return StandsStill(now - self._since, failures)


def _advice(cause: str) -> str:
    return _ADVICE.get(cause, _STATUS if cause.startswith("Status") else _FAULT)
