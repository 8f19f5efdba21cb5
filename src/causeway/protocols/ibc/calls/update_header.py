"""``updateHeader``: submit a header of another chain to its light client.

``ACCEPTED`` is a header that becomes trusted, or one that contradicts a trusted header and so freezes the connection.
``NoOp``: it was trusted before.

Reference:
    IBC reference 3.1, X-3, X-4.
"""

from __future__ import annotations

from typing import NamedTuple

from causeway_proofs.errors import ProofError

from causeway.protocols.ibc.calls.call import CallContext, ClientCheck, client_opening_checks, validate_client_call
from causeway.protocols.ibc.client import read_header
from causeway.protocols.ibc.errors import Refusal


class HeaderOffer(NamedTuple):
    """A header (bytes) of ``counterparty`` for the client on ``chain``.

    ``counterparty`` is below 0 for an unknown chain.
    """

    chain: int
    counterparty: int
    header: bytes

    @property
    def height(self) -> int:
        """Return the unverified height of the header; 0 if it is malformed."""
        try:
            return read_header(self.header).height
        except ProofError:
            return 0


def _is_header(offer: HeaderOffer, block: CallContext) -> bool:
    return offer.height > 0


CHECKS = (*client_opening_checks(HeaderOffer), ClientCheck(Refusal.InvalidHeader, "2.5", _is_header))
"""The checks before the light client verifies the header (``valid(T, U)`` of X-4)."""


def update_header(offer: HeaderOffer, block: CallContext) -> Refusal:
    """Validate and execute the call."""
    refusal = validate_client_call(CHECKS, offer, block)
    return block.clients.update_header(*offer) if refusal == Refusal.ACCEPTED else refusal
