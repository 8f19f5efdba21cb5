"""Egress queues: the root of the messages that one parachain sends another in a block (ICMP reference 2.1, 2.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from causeway.proofs.errors import OverLimit
from causeway.proofs.limits import MAX_PROOF_BYTES
from causeway.proofs.steps import Step
from causeway.proofs.substrate.errors import RootMismatch
from causeway.proofs.substrate.node import StateVersion
from causeway.proofs.substrate.ordered import ordered_root


def egress_root(messages: Sequence[bytes], version: StateVersion = StateVersion.V0) -> bytes:
    """Return R(L) of the messages of one queue, in order: 32 bytes."""
    return ordered_root(messages, version)


def verify_queue(
    root: bytes,
    messages: Sequence[bytes],
    version: StateVersion = StateVersion.V0,
    limit: int = MAX_PROOF_BYTES,
) -> tuple[Step, ...]:
    """Return the step that shows that ``messages`` are the queue of ``root``.

    Raises:
        RootMismatch: they are not: one is changed, moved, missing or repeated, or there is one more.
        OverLimit: they have more than ``limit`` bytes.
    """
    require_size(messages, limit)
    found = egress_root(messages, version)
    if found != root:
        raise RootMismatch(f"{len(messages)} messages hash to the root {found.hex()}, not to {root.hex()}")
    return (Step("root", f"{len(messages)} messages in order", found),)


def require_size(messages: Iterable[bytes], limit: int) -> None:
    """Refuse messages of together more than ``limit`` bytes before anything is hashed.

    Raises:
        OverLimit: they have more.
    """
    size = sum(map(len, messages))
    if size > limit:
        raise OverLimit(f"the messages of a queue have {size} bytes, at most {limit} are read")
