"""``submitMisbehaviour``: freeze the connection by two conflicting headers of one chain.

The headers differ at one height, or the higher one is not later. Each is verified from the next trusted header below
it; neither is added to the trust set.

Reference:
    IBC reference X-3.
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
    """Evidence (bytes) against ``counterparty``, submitted to ``chain``.

    ``counterparty`` is below 0 for an unknown chain.
    """

    chain: int
    counterparty: int
    evidence: bytes

    @cached_property
    def decoded(self) -> Misbehaviour | None:
        """Return the two headers, or None if the evidence is malformed."""
        try:
            return decode_misbehaviour(self.evidence)
        except ProofError:
            return None

    @property
    def height(self) -> int:
        """Return the unverified height of the first header; 0 if the evidence is malformed."""
        return 0 if self.decoded is None else self.decoded.header_1.height


def _is_evidence(accusation: Accusation, block: CallContext) -> bool:
    return accusation.decoded is not None


CHECKS = (*client_opening_checks(Accusation), ClientCheck(Refusal.InvalidMisbehaviour, "X-3", _is_evidence))
"""The checks before the light client verifies the two headers."""


def execute(accusation: Accusation, block: CallContext) -> Refusal:
    """Submit the two headers to the light client and return the result."""
    assert accusation.decoded is not None
    return block.clients.submit_misbehaviour(accusation.chain, accusation.counterparty, accusation.decoded)


def submit_misbehaviour(accusation: Accusation, block: CallContext) -> Refusal:
    """Validate and execute the call: ``ACCEPTED`` if it freezes the connection."""
    refusal = validate_client_call(CHECKS, accusation, block)
    return execute(accusation, block) if refusal == Refusal.ACCEPTED else refusal
