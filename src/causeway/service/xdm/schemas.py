"""What a served lake of domains answers, for its OpenAPI document."""

from __future__ import annotations

from pydantic import Field

from causeway.service import requests
from causeway.service.requests import Answer, ChainAnswer, Digest, Digits


class OptionsAnswer(Answer):
    """The options that relay processes go by."""

    archiving_depth: int
    challenge_period: int
    max_future_nonces: int
    channels_per_block: int
    resubmit_after: int


class StatusAnswer(requests.StatusAnswer):
    """What the network is, and how far it has come."""

    chains: list[ChainAnswer]
    consensus: str
    agreed: Digest = Field(..., description="Of all that lakes of one network have in common.")
    options: OptionsAnswer


class ChannelAnswer(Answer):
    """A channel as one end has it; ``count``: requests without a response."""

    channel: int
    state: int
    next_inbox: int
    next_outbox: int
    next_response: int
    count: int


class UnderAnswer(Answer):
    """A consensus block and its mountain range."""

    number: int
    hash: Digest
    leaf_count: int
    root: Digest


class ChannelsAnswer(Answer):
    """The channels of a chain with another."""

    chain: str
    counterparty: str
    height: int
    best: int | None = Field(..., description="The newest consensus block that the chain knows.")
    under: UnderAnswer | None = Field(..., description="The one that messages to the chain are proved under.")
    channels: list[ChannelAnswer]


class MessageAnswer(Answer):
    """A message that is proved; ``members``: which of the nodes its proof has, by their places."""

    channel: int
    response: bool
    nonce: int
    tag: int
    members: list[int]


class MessagesAnswer(Answer):
    """Messages in the storage of a block."""

    chain: str
    counterparty: str
    block: int
    root: Digest
    nodes: list[Digits]
    messages: list[MessageAnswer]


class ReceiptAnswer(Answer):
    """The receipt of a block (SCALE), with its operator's signature."""

    number: int
    receipt: Digits
    signature: Digits


class ReceiptsAnswer(Answer):
    """Receipts of a domain, in the order of its blocks."""

    chain: str
    receipts: list[ReceiptAnswer]


class ReceiptedAnswer(Answer):
    """The last receipt of a domain that was taken in, and the last that is confirmed."""

    domain: str
    height: int
    number: int | None
    confirmed: int | None
    unbooked: int | None = Field(..., description="Of which block the books refused what it says: none later is.")


class HeaderAnswer(Answer):
    """A header of the consensus chain; its hash follows from it."""

    parent: Digest
    number: int
    state_root: Digest
    extrinsics_root: Digest


class BlocksAnswer(Answer):
    """Headers that follow each other, with the author's signature on the last."""

    chain: str
    headers: list[HeaderAnswer]
    signature: Digits


class ConfirmedAnswer(Answer):
    """A domain's confirmed receipt: the number of its block, and the nodes of the proof."""

    number: int
    proof: list[Digits]


class AnchorAnswer(Answer):
    """The leaf of a block in the mountain range of the next one."""

    block: int
    under: int
    hash: Digest
    leaf: Digits
    leaf_index: int
    leaf_count: int
    items: list[Digest]
    receipt: ConfirmedAnswer | None
    declared: list[Digits] = Field(..., description="The proof of what was declared for another lake's domain.")


class KnownOfDomain(Answer):
    """The latest block of which something of a domain is known."""

    domain: str
    block: int


class FollowedAnswer(Answer):
    """What is known of another lake's consensus chain: its newest block, the newest that is final, and as of which
    block is known what it has of domains."""

    chain: str
    height: int
    best: int | None
    final: int | None
    receipts: list[KnownOfDomain] = Field(..., description="Their confirmed receipts: their operators prove under it.")
    declared: list[KnownOfDomain] = Field(..., description="What was declared for them by then.")
