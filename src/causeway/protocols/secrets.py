"""Secret keys of validators, of chains whose headers are signed: they stay in the process that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from causeway.model.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Secrets:
    """Secret keys (Ed25519, 32 bytes) by public key. They are never shown, and never go to another process."""

    seeds: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.seeds:
            raise InvalidInput(
                "network.executor: keys of validators do not leave the process that read them: use in_process"
            )
        return Secrets, ()


NONE = Secrets()
"""No keys: those of a simulation are drawn from its seed."""

LISTED = "validator_keys"
"""The key of a scenario's ``[options]`` that lists the public keys of validators by chain."""
