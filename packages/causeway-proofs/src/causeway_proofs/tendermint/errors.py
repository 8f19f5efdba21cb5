"""Errors of the light client, one class a rule that a header or a proof fails (IBC X-3, X-4, X-11)."""

from __future__ import annotations

from causeway_proofs.errors import NotProven


class InvalidHeader(NotProven):
    """The header is not the chain's: altered, or signed by too little power (X-4: false)."""


class NeedIntermediateHeader(NotProven):
    """Validators changed too much: verify an intermediate header first (X-4: unknown).

    Attributes:
        trusted_height: height of the trusted header.
        height: height to try next, halfway between the trusted header and the rejected one.
    """

    decides = False

    def __init__(self, message: str, trusted_height: int, height: int) -> None:
        super().__init__(message)
        self.trusted_height = trusted_height
        self.height = height


class ClientExpired(NotProven):
    """The trusted header is older than the period in which its validators can be slashed (X-4)."""

    decides = False


class NoTrustedHeader(NotProven):
    """The client trusts no header of that height."""


class ConnectionFrozen(NotProven):
    """The remote chain contradicted itself; nothing of it is accepted any more (X-3)."""


class DelayNotElapsed(NotProven):
    """The header was added too recently for proofs under it (X-11)."""


class InvalidMisbehaviour(NotProven):
    """The two submitted headers do not contradict each other."""
