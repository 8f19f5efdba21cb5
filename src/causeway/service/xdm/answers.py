"""Answers of a served lake of domains (``service.http.answers``)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from causeway.protocols.shared.limits import MAX_ITEMS, MAX_PROOF_BYTES
from causeway.protocols.xdm.transactions import MAX_BLOCKS, MAX_RECEIPT_BYTES
from causeway.service.http import answers
from causeway.service.http.answers import MAX_CHAINS, AnswerModel, ChainAnswers, Digest, Height, Hex, Index, Name

MAX_CHANNELS = 10_000
MAX_MESSAGES = 1_000
MAX_NODES = 64_000
"""Maximum number of distinct nodes of all proofs in an answer."""

MAX_MEMBERS = 512
"""Maximum number of nodes of one proof."""

MAX_LEAF_BYTES = 1 << 10
MAX_PEAKS = 128
"""Maximum number of digests of an MMR proof: 64 levels, and as many mountains."""

MAX_BLOCK = 2**32 - 1
"""Block numbers have 32 bits on the wire."""

Block = Annotated[int, Field(strict=True, ge=0, le=MAX_BLOCK)]
Channel = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]
Node = Annotated[bytes, Hex(MAX_PROOF_BYTES)]
Nodes = Annotated[list[Node], Field(max_length=MAX_MEMBERS)]


class DomainOptionsAnswer(AnswerModel):
    """Options relevant to relay processes."""

    archiving_depth: Annotated[Height, Field(ge=1)]
    challenge_period: Annotated[Height, Field(ge=1)]
    max_future_nonces: Annotated[Height, Field(le=2**20)]
    channels_per_block: Annotated[Height, Field(ge=1)]
    resubmit_after: Annotated[Height, Field(ge=1)]


class DomainStatusAnswer(answers.StatusAnswer):
    """Identity and progress of the network."""

    chains: ChainAnswers
    consensus: Name
    agreed: Digest = Field(..., description="Of all that lakes of one network have in common.")
    options: DomainOptionsAnswer


class ChannelAnswer(AnswerModel):
    """One end of a channel; ``count``: requests without a response."""

    channel: Channel
    state: Annotated[int, Field(strict=True, ge=0, le=2)]
    next_inbox: Index
    next_outbox: Index
    next_response: Index
    count: Index


class UnderAnswer(AnswerModel):
    """A consensus block and its mountain range."""

    number: Block
    hash: Digest
    leaf_count: Height
    root: Digest


class ChannelsAnswer(AnswerModel):
    """The channels of a chain with another."""

    chain: Name
    counterparty: Name
    height: Height
    best: Block | None = Field(..., description="The newest consensus block that the chain knows.")
    under: UnderAnswer | None = Field(..., description="The one that messages to the chain are proved under.")
    channels: Annotated[list[ChannelAnswer], Field(max_length=MAX_CHANNELS)]


class MessageAnswer(AnswerModel):
    """A proven message; ``members``: positions of its proof's nodes."""

    channel: Channel
    response: bool
    nonce: Index
    tag: Index
    members: Annotated[list[Annotated[int, Field(strict=True, ge=0, lt=MAX_NODES)]], Field(max_length=MAX_MEMBERS)]


class MessagesAnswer(AnswerModel):
    """Messages in the storage of a block."""

    chain: Name
    counterparty: Name
    block: Block
    root: Digest
    nodes: Annotated[list[Node], Field(max_length=MAX_NODES)]
    messages: Annotated[list[MessageAnswer], Field(max_length=MAX_MESSAGES)]


class ReceiptAnswer(AnswerModel):
    """The receipt of a block (SCALE), with its operator's signature."""

    number: Block
    receipt: Annotated[bytes, Hex(MAX_RECEIPT_BYTES)]
    signature: Annotated[bytes, Hex(64, 64)]


class ReceiptsAnswer(AnswerModel):
    """Receipts of a domain, in the order of its blocks."""

    chain: Name
    receipts: Annotated[list[ReceiptAnswer], Field(max_length=MAX_ITEMS)]


class ReceiptedAnswer(AnswerModel):
    """The last received and the last confirmed receipt of a domain."""

    domain: Name
    height: Height
    number: Block | None
    confirmed: Block | None
    unbooked: Block | None = Field(..., description="Of which block the books refused what it says: none later is.")


class HeaderAnswer(AnswerModel):
    """A header of the consensus chain; its hash follows from it."""

    parent: Digest
    number: Block
    state_root: Digest
    extrinsics_root: Digest


class BlocksAnswer(AnswerModel):
    """Consecutive headers, with the author's signature on the last."""

    chain: Name
    headers: Annotated[list[HeaderAnswer], Field(max_length=MAX_BLOCKS)]
    signature: Annotated[bytes, Hex(64)]


class ConfirmedAnswer(AnswerModel):
    """A domain's confirmed receipt: the number of its block, and the nodes of the proof."""

    number: Block
    proof: Nodes


class AnchorAnswer(AnswerModel):
    """The leaf of a block in the mountain range of the next one."""

    block: Block
    under: Block
    hash: Digest
    leaf: Annotated[bytes, Hex(MAX_LEAF_BYTES)]
    leaf_index: Index
    leaf_count: Index
    items: Annotated[list[Digest], Field(max_length=MAX_PEAKS)]
    receipt: ConfirmedAnswer | None
    declared: Nodes = Field(..., description="The proof of what was declared for another lake's domain.")


class KnownAnswer(AnswerModel):
    """The latest block with known facts of a domain."""

    domain: Name
    block: Block


class FollowedAnswer(AnswerModel):
    """Known state of a remote consensus chain: newest and final block, facts of domains."""

    chain: Name
    height: Height
    best: Block | None
    final: Block | None
    receipts: Annotated[list[KnownAnswer], Field(max_length=MAX_CHAINS)] = Field(
        ..., description="Their confirmed receipts: their operators prove under it."
    )
    declared: Annotated[list[KnownAnswer], Field(max_length=MAX_CHAINS)] = Field(
        ..., description="What was declared for them by then."
    )
