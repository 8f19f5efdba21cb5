"""``submitMisbehaviour``: two headers that one chain must not have signed both freeze the connection (IBC reference
X-3).

They have one height and are different, or the higher one is not later. Each is verified by the trusted one next below
it; nothing is added to the trust set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from causeway_proofs.errors import ProofError
from causeway_proofs.tendermint.trust import Misbehaviour, decode_misbehaviour

from causeway.protocols.ibc.calls.call import CallContext, ClientCheck, client_opening_checks, validate_client_call
from causeway.protocols.ibc.errors import Refusal


@dataclass(frozen=True)
class Accusation:
    """Evidence (its bytes) against ``counterparty``, below 0 for an unknown chain, submitted to ``chain``."""

    chain: int
    counterparty: int
    evidence: bytes

    @cached_property
    def decoded(self) -> Misbehaviour | None:
        """Return the two headers, None for what is no evidence."""
        try:
            return decode_misbehaviour(self.evidence)
        except ProofError:
            return None

    @property
    def height(self) -> int:
        """Return the height of the first header, whatever it is worth; 0 of what is none."""
        return 0 if self.decoded is None else self.decoded.header_1.height


def _is_evidence(accusation: Accusation, block: CallContext) -> bool:
    return accusation.decoded is not None


CHECKS = (*client_opening_checks(Accusation), ClientCheck(Refusal.InvalidMisbehaviour, "X-3", _is_evidence))
"""What must hold before the light client is asked whether the headers are the chain's, and contradict each other."""


def execute(accusation: Accusation, block: CallContext) -> Refusal:
    """Show the two headers to the light client; return what that did: see above."""
    assert accusation.decoded is not None
    return block.clients.submit_misbehaviour(accusation.chain, accusation.counterparty, accusation.decoded)


def submit_misbehaviour(accusation: Accusation, block: CallContext) -> Refusal:
    """Validate and execute the call: ``ACCEPTED`` where the connection is frozen by it."""
    why = validate_client_call(CHECKS, accusation, block)
    return execute(accusation, block) if why == Refusal.ACCEPTED else why
