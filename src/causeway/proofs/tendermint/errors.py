"""Why a light client does not take a header; names as in the IBC reference 3.6 and section 5."""

from __future__ import annotations

from causeway.proofs.errors import NotProven


class InvalidHeader(NotProven):
    """The header is not the chain's: it is not what was signed, or not enough power signed it (X-4: false)."""


class NeedIntermediateHeader(NotProven):
    """The validators changed too much since the trusted header: one in between has to come first (X-4: unknown).

    Attributes:
        trusted_height: the height of the trusted header.
        height: the height of the header to try next, halfway between the trusted one and the one refused.
    """

    decides = False

    def __init__(self, message: str, trusted_height: int, height: int) -> None:
        super().__init__(message)
        self.trusted_height = trusted_height
        self.height = height


class ClientExpired(NotProven):
    """The trusted header is older than the period in which its validators can be held to account (X-4)."""

    decides = False


class MissingHeader(NotProven):
    """No header of that height is trusted."""


class ConnectionFrozen(NotProven):
    """The remote chain was seen to contradict itself; nothing of it is accepted any more (X-3)."""


class DelayNotElapsed(NotProven):
    """The header was added too recently for proofs under it to be used (X-11)."""


class InvalidMisbehaviour(NotProven):
    """Two headers were submitted as a contradiction, and they do not contradict each other."""
