"""``submitMisbehaviour``: two headers that one chain must not have signed both freeze the connection (IBC reference
X-3).

They have one height and are different, or the higher one is not later. Each is verified by the trusted one next below
it; nothing is added to the trust set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from causeway.proofs.errors import ProofError
from causeway.proofs.tendermint.update import Misbehaviour, decode_misbehaviour
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.messages.call import Block


class Accusation(NamedTuple):
    """Evidence (its bytes) against ``counterparty``, below 0 for an unknown chain, submitted to ``chain``."""

    chain: int
    counterparty: int
    evidence: bytes

    @property
    def decoded(self) -> Misbehaviour | None:
        """Return the two headers, None for what is no evidence."""
        try:
            return decode_misbehaviour(self.evidence)
        except ProofError:
            return None

    @property
    def height(self) -> int:
        """Return the height of the first header, whatever it is worth; 0 of what is none."""
        found = self.decoded
        return 0 if found is None else found.header_1.height


class Check(NamedTuple):
    """A step of the call, and the refusal where it does not hold."""

    refusal: Refusal
    section: str
    holds: Callable[[Accusation, Block], bool]


def _is_connected(accusation: Accusation, block: Block) -> bool:
    return block.progress.is_connected((accusation.chain, accusation.counterparty))


def _is_open(accusation: Accusation, block: Block) -> bool:
    return not block.clients.frozen(accusation.chain, accusation.counterparty)


def _is_evidence(accusation: Accusation, block: Block) -> bool:
    return accusation.decoded is not None


CHECKS = (
    Check(Refusal.UnregisteredSender, "3.1", _is_connected),
    Check(Refusal.ConnectionFrozen, "X-3", _is_open),
    Check(Refusal.InvalidMisbehaviour, "X-3", _is_evidence),
)
"""What must hold before the light client is asked whether the headers are the chain's, and contradict each other."""


def submit_misbehaviour(accusation: Accusation, block: Block) -> Refusal:
    """Validate and execute the call: ``ACCEPTED`` where the connection is frozen by it."""
    for check in CHECKS:
        if not check.holds(accusation, block):
            return check.refusal
    found = accusation.decoded
    assert found is not None
    return block.clients.submit_misbehaviour(accusation.chain, accusation.counterparty, found)
