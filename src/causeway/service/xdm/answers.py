"""What a served lake of domains answers, as strict schemas (``service.answers``): for who does not trust it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from causeway.protocols.limits import MAX_ITEMS, MAX_PROOF_BYTES
from causeway.protocols.xdm.carried import MAX_BLOCKS, MAX_RECEIPT_BYTES
from causeway.service.answers import MAX_CHAINS, Answer, ChainAnswers, Digest, Height, Index, Name, hexadecimal_of

MAX_CHANNELS = 10_000
MAX_MESSAGES = 1_000
MAX_NODES = 64_000
"""Different nodes of all proofs in an answer."""

MAX_MEMBERS = 512
"""Nodes of one proof."""

MAX_LEAF_BYTES = 1 << 10
MAX_PEAKS = 128
"""Digests of a proof in a mountain range: 64 levels, and as many mountains."""

MAX_BLOCK = 2**32 - 1
"""Numbers of blocks have 32 bits on the wire."""

Block = Annotated[int, Field(strict=True, ge=0, le=MAX_BLOCK)]
Signature = Annotated[bytes, BeforeValidator(hexadecimal_of(64)), Field(min_length=64)]
Node = Annotated[bytes, BeforeValidator(hexadecimal_of(MAX_PROOF_BYTES))]
Leaf = Annotated[bytes, BeforeValidator(hexadecimal_of(MAX_LEAF_BYTES))]
Receipt = Annotated[bytes, BeforeValidator(hexadecimal_of(MAX_RECEIPT_BYTES))]


class OptionsAnswer(Answer):
    """The options that a relay process goes by."""

    archiving_depth: Annotated[Height, Field(ge=1)]
    challenge_period: Annotated[Height, Field(ge=1)]
    max_future_nonces: Annotated[Height, Field(le=2**20)]
    channels_per_block: Annotated[Height, Field(ge=1)]
    resubmit_after: Annotated[Height, Field(ge=1)]


class StatusAnswer(Answer):
    """``/v1/status``."""

    chains: ChainAnswers
    consensus: Name
    agreed: Digest
    options: OptionsAnswer


class ChannelAnswer(Answer):
    """A channel as one end has it."""

    channel: Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]
    state: Annotated[int, Field(strict=True, ge=0, le=2)]
    next_inbox: Index
    next_outbox: Index
    next_response: Index


class UnderAnswer(Answer):
    """A consensus block and its mountain range."""

    number: Block
    hash: Digest
    leaf_count: Height
    root: Digest


class ChannelsAnswer(Answer):
    """``/v1/chains/C/channels/D``."""

    chain: Name
    counterparty: Name
    height: Height
    best: Block | None
    under: UnderAnswer | None
    channels: Annotated[list[ChannelAnswer], Field(max_length=MAX_CHANNELS)]


class MessageAnswer(Answer):
    """A message that is proved."""

    channel: Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]
    response: bool
    nonce: Index
    tag: Index
    members: Annotated[list[Annotated[int, Field(strict=True, ge=0, lt=MAX_NODES)]], Field(max_length=MAX_MEMBERS)]


class MessagesAnswer(Answer):
    """``/v1/chains/C/messages``."""

    nodes: Annotated[list[Node], Field(max_length=MAX_NODES)]
    messages: Annotated[list[MessageAnswer], Field(max_length=MAX_MESSAGES)]


class ReceiptAnswer(Answer):
    """The receipt of a block, with its operator's signature."""

    number: Block
    receipt: Receipt
    signature: Signature


class ReceiptsAnswer(Answer):
    """``/v1/chains/D/receipts``."""

    receipts: Annotated[list[ReceiptAnswer], Field(max_length=MAX_ITEMS)]


class ReceiptedAnswer(Answer):
    """``/v1/chains/C/receipted/D``."""

    height: Height
    number: Block | None
    confirmed: Block | None
    unbooked: Block | None = None


class HeaderAnswer(Answer):
    """A header of the consensus chain."""

    parent: Digest
    number: Block
    state_root: Digest
    extrinsics_root: Digest


class BlocksAnswer(Answer):
    """``/v1/chains/C/blocks``."""

    headers: Annotated[list[HeaderAnswer], Field(max_length=MAX_BLOCKS)]
    signature: Annotated[bytes, BeforeValidator(hexadecimal_of(64))]


class ConfirmedAnswer(Answer):
    """A domain's confirmed receipt."""

    number: Block
    proof: Annotated[list[Node], Field(max_length=MAX_MEMBERS)]


class AnchorAnswer(Answer):
    """``/v1/chains/C/anchor``."""

    block: Block
    under: Block
    hash: Digest
    leaf: Leaf
    leaf_index: Index
    leaf_count: Index
    items: Annotated[list[Digest], Field(max_length=MAX_PEAKS)]
    receipt: ConfirmedAnswer | None
    declared: Annotated[list[Node], Field(max_length=MAX_MEMBERS)]


class KnownAnswer(Answer):
    """Of which block something of a domain is known (``FollowedAnswer``)."""

    domain: Name
    block: Block


class FollowedAnswer(Answer):
    """``/v1/chains/C/followed``."""

    height: Height
    best: Block | None
    final: Block | None
    receipts: Annotated[list[KnownAnswer], Field(max_length=MAX_CHAINS)]
    declared: Annotated[list[KnownAnswer], Field(max_length=MAX_CHAINS)]
