"""Answers of a served lake of parachains (``service.http.answers``)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from causeway.service.http import answers
from causeway.service.http.answers import AnswerModel, ChainAnswers, Digest, Height, Index, Name

MAX_LEAVES = 256
MAX_CHANNELS = 10_000

Document = Annotated[dict[str, Any], Field(description="A document that `causeway verify` reads.")]


class ParachainStatusAnswer(answers.StatusAnswer):
    """Identity and progress of the network."""

    chains: ChainAnswers
    relay: Name = Field(..., description="The name of the relay chain.")


class HeadAnswer(AnswerModel):
    """A leaf of the relay chain: its block, with the parts of its hash."""

    leaf: Height
    number: Height
    hash: Digest
    parent: Digest
    root: Digest
    included: Digest


class HeadsAnswer(AnswerModel):
    """The leaves of the relay chain, by number."""

    height: Height
    heads: Annotated[list[HeadAnswer], Field(max_length=MAX_LEAVES)]


class ProofAnswer(AnswerModel):
    """A proof, and the relay block header that it is based on."""

    height: Height
    leaf: Height
    proof: Document
    trust: dict[str, Any] = Field(..., description="What is to be trusted for it: the header, or a root for genesis.")


class BlockAnswer(AnswerModel):
    """The last block of a relay chain with channels."""

    height: Height
    number: Height
    hash: Digest
    parent: Digest
    root: Digest


class StateProofAnswer(AnswerModel):
    """A proof, and the relay chain's state root that it is based on."""

    height: Height
    proof: Document
    trust: dict[str, Any] = Field(..., description="What is to be trusted for it: the root.")


class HrmpChannelAnswer(AnswerModel):
    """A channel: limits, content, head of its message queue chain.

    ``closing`` is the relay block of a close request, 0 without one.
    """

    sender: Name
    recipient: Name
    max_capacity: Index
    max_total_size: Index
    max_message_size: Index
    msg_count: Index
    total_size: Index
    mqc_head: Digest
    closing: Index


class HrmpChannelsAnswer(StateProofAnswer):
    """The channels of a parachain, and their proof."""

    channels: Annotated[list[HrmpChannelAnswer], Field(max_length=MAX_CHANNELS)]


class ChannelProofAnswer(StateProofAnswer):
    """A channel's proof and its content."""

    queue: dict[str, Any] = Field(
        ..., description="Its messages with the head before them, a document that `causeway verify` reads."
    )
