"""Answers of a served lake of parachains (``service.answers``)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from causeway.service.http import answers
from causeway.service.http.answers import Answer, ChainAnswers, Digest, Height, Index, Name

MAX_LEAVES = 256
MAX_CHANNELS = 10_000

Document = Annotated[dict[str, Any], Field(description="A document that `causeway verify` reads.")]


class StatusAnswer(answers.StatusAnswer):
    """What the network is, and how far it has come."""

    chains: ChainAnswers
    relay: Name = Field(..., description="The name of the relay chain.")


class HeadAnswer(Answer):
    """A leaf of the relay chain: its block, with what its hash is made of."""

    leaf: Height
    number: Height
    hash: Digest
    parent: Digest
    root: Digest
    included: Digest


class HeadsAnswer(Answer):
    """The leaves of the relay chain, by their numbers."""

    height: Height
    heads: Annotated[list[HeadAnswer], Field(max_length=MAX_LEAVES)]


class ProofAnswer(Answer):
    """A proof, and the header of the relay block under which it is true."""

    height: Height
    leaf: Height
    proof: Document
    trust: dict[str, Any] = Field(..., description="What is to be trusted for it: the header, or a root for genesis.")


class BlockAnswer(Answer):
    """The last block of a relay chain with channels."""

    height: Height
    number: Height
    hash: Digest
    parent: Digest
    root: Digest


class StateProofAnswer(Answer):
    """A proof, and the root of the relay chain's state under which it is true."""

    height: Height
    proof: Document
    trust: dict[str, Any] = Field(..., description="What is to be trusted for it: the root.")


class ChannelAnswer(Answer):
    """A channel: its limits, the messages in it and their bytes, its message queue chain's head, and in which relay
    block somebody asked to close it (0: nobody did)."""

    sender: Name
    recipient: Name
    max_capacity: Index
    max_total_size: Index
    max_message_size: Index
    msg_count: Index
    total_size: Index
    mqc_head: Digest
    closing: Index


class ChannelsAnswer(StateProofAnswer):
    """The channels of a parachain, and their proof."""

    channels: Annotated[list[ChannelAnswer], Field(max_length=MAX_CHANNELS)]


class ChannelProofAnswer(StateProofAnswer):
    """A channel's proof, and what is in it."""

    queue: dict[str, Any] = Field(
        ..., description="Its messages with the head before them, a document that `causeway verify` reads."
    )
