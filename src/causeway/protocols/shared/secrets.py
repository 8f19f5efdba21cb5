"""Secret keys of chains, in place of keys derived from the seed.

They never leave their process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from causeway_proofs.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Secrets:
    """Secret keys (32 bytes) by public key.

    They are never shown, and never go to another process.

    Attributes:
        seeds: Keys of validators (Ed25519) or of certifying chains (BLS12-381).
        certifications: For a lake executed again without its keys: returns the recorded certifications of a height's
            headers by chain position. They are verified instead of signing.
    """

    seeds: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    certifications: Callable[[int], Mapping[int, bytes]] | None = field(default=None, repr=False)

    @property
    def has_secrets(self) -> bool:
        """Return True if any key or recorded certification replaces derived keys."""
        return bool(self.seeds) or self.certifications is not None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.seeds:
            raise InvalidInput("network.executor: secret keys do not leave the process that read them: use in_process")
        return Secrets, ({}, self.certifications)


class NotAsRecorded(InvalidInput):
    """The certification in a lake's headers does not match their state.

    Attributes:
        height: The height of the lake.
        position: The position of the chain.
    """

    def __init__(self, text: str, height: int, position: int) -> None:
        super().__init__(text)
        self.height, self.position = height, position

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.height, self.position)


NONE = Secrets()
"""No secrets: a simulation's keys derive from its seed."""

LISTED = "validator_keys"
"""The key in a scenario's ``[options]`` with the public keys of validators by chain."""

LISTED_CHAINS = "chain_keys"
"""The key in a scenario's ``[options]`` with the public keys of chains with file keys."""
