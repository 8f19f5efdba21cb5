"""Secret keys that chains sign with, in place of keys drawn from the seed: they stay in the process that read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from causeway_proofs.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Secrets:
    """Secret keys (32 bytes) by public key. They are never shown, and never go to another process.

    Attributes:
        seeds: of validators (Ed25519) or of chains that certify (BLS12-381).
        certifications: where a lake is executed again without the keys of its chains, returns what certifies the
            chains in its headers of a height, by the chains' positions; that is verified instead of signing.
    """

    seeds: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    certifications: Callable[[int], Mapping[int, bytes]] | None = field(default=None, repr=False)

    @property
    def has_secrets(self) -> bool:
        """Return whether anything stands in the place of keys that are drawn."""
        return bool(self.seeds) or self.certifications is not None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.seeds:
            raise InvalidInput("network.executor: secret keys do not leave the process that read them: use in_process")
        return Secrets, ({}, self.certifications)


class NotAsRecorded(InvalidInput):
    """The certification in a lake's headers is not that of the state that they have.

    Attributes:
        height: the height of the lake.
        position: the position of the chain.
    """

    def __init__(self, text: str, height: int, position: int) -> None:
        super().__init__(text)
        self.height, self.position = height, position

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.height, self.position)


NONE = Secrets()
"""No keys: those of a simulation are drawn from its seed."""

LISTED = "validator_keys"
"""The key of a scenario's ``[options]`` that lists the public keys of validators by chain."""

LISTED_CHAINS = "chain_keys"
"""The key of a scenario's ``[options]`` that lists the public key of each chain that certifies with a key in a file."""
