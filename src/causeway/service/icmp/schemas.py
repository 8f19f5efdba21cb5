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


class BlockAnswer(Answer):
    """The last block of a relay chain with channels."""

    height: int
    number: int
    hash: Digest
    parent: Digest
    root: Digest


class StateProofAnswer(Answer):
    """A proof, and the root of the relay chain's state under which it is true."""

    height: int
    proof: dict[str, Any] = Field(..., description="A document that `causeway verify` reads.")
    trust: dict[str, Any] = Field(..., description="What is to be trusted for it: the root.")


class ChannelAnswer(Answer):
    """A channel: its limits, the messages in it and their bytes, its message queue chain's head, and in which relay
    block somebody asked to close it (0: nobody did)."""

    sender: str
    recipient: str
    max_capacity: int
    max_total_size: int
    max_message_size: int
    msg_count: int
    total_size: int
    mqc_head: Digest
    closing: int


class ChannelsAnswer(StateProofAnswer):
    """The channels of a parachain, and their proof."""

    channels: list[ChannelAnswer]


class ChannelProofAnswer(StateProofAnswer):
    """A channel's proof, and what is in it."""

    queue: dict[str, Any] = Field(
        ..., description="Its messages with the head before them, a document that `causeway verify` reads."
    )
