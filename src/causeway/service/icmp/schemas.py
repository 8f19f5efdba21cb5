"""What a served lake of parachains answers, for its OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from causeway.service import requests
from causeway.service.requests import Answer, ChainAnswer, Digest


class StatusAnswer(requests.StatusAnswer):
    """What the network is, and how far it has come."""

    chains: list[ChainAnswer]
    relay: str = Field(..., description="The name of the relay chain.")


class HeadAnswer(Answer):
    """A leaf of the relay chain: its block, with what its hash is made of."""

    leaf: int
    number: int
    hash: Digest
    parent: Digest
    root: Digest
    included: Digest


class HeadsAnswer(Answer):
    """The leaves of the relay chain, by their numbers."""

    height: int
    heads: list[HeadAnswer]


class ProofAnswer(Answer):
    """A proof, and the header of the relay block under which it is true."""

    height: int
    leaf: int
    proof: dict[str, Any] = Field(..., description="A document that `causeway verify` reads.")
    trust: dict[str, Any] = Field(..., description="What is to be trusted for it: the header, or a root for genesis.")
