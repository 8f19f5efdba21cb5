"""``updateHeader``: a header of another chain comes to be trusted (IBC reference 3.1, X-3, X-4).

Accepted is a header that is trusted from now on, or one that contradicts a trusted one, which freezes the connection.
``NoOp``: it was trusted before.
"""

from __future__ import annotations

from typing import NamedTuple

from causeway_proofs.errors import ProofError

from causeway.protocols.ibc.calls.call import CallContext, ClientCheck, client_opening_checks, validate_client_call
from causeway.protocols.ibc.client import read_header
from causeway.protocols.ibc.errors import Refusal


class HeaderOffer(NamedTuple):
    """A header (its bytes) of ``counterparty``, below 0 for an unknown chain, offered to ``chain``."""

    chain: int
    counterparty: int
    header: bytes

    @property
    def height(self) -> int:
        """Return the header's height, whatever it is worth; 0 of what is none."""
        try:
            return read_header(self.header).height
        except ProofError:
            return 0


def _is_header(offer: HeaderOffer, block: CallContext) -> bool:
    return offer.height > 0


CHECKS = (*client_opening_checks(HeaderOffer), ClientCheck(Refusal.InvalidHeader, "2.5", _is_header))
"""What must hold before the light client is asked whether the header is valid (``valid(T, U)`` of X-4)."""


def update_header(offer: HeaderOffer, block: CallContext) -> Refusal:
    """Validate and execute the call."""
    why = validate_client_call(CHECKS, offer, block)
    return block.clients.update_header(*offer) if why == Refusal.ACCEPTED else why
