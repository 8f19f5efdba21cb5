"""What became of a message, in words: from the set of its events, without a table of states.

Each is (event, whether it has an error code). The rules are those of docs/reference/outcomes.md, from the strongest on.
"""

from __future__ import annotations

from collections.abc import Iterable


def state_of(events: Iterable[tuple[str, bool]]) -> str:
    seen = set(events)

    def has(*names: str) -> bool:
        return any(name in names for name, _ in seen)

    def erred(*names: str) -> bool:
        return any(name in names and error for name, error in seen)

    failed = has("failed") or erred("executed")
    answered = has("answered", "acknowledged")
    arrived = has("received", "executed", "failed") or answered
    error = erred("answered", "acknowledged") or (answered and failed)
    if has("timed_out"):
        return "contradicted" if arrived else "timed_out"
    if has("refunded"):
        return "refunded" if arrived else "returned"
    if error or (has("rejected") and arrived):
        return "rejected"
    if has("rejected"):
        return "refused"
    if answered:
        return "answered"
    if failed:
        return "failed"
    if has("executed"):
        return "executed"
    if has("dropped"):
        return "discarded" if has("received") else "dropped"
    if has("received"):
        return "delivered"
    return "pending" if has("sent", "committed", "relayed") else "unknown"
