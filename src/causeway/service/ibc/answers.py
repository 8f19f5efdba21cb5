"""Answers of a served lake of zones (``service.http.answers``)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from causeway.protocols.shared.limits import MAX_ITEMS, MAX_PROOF_BYTES, MAX_TRANSACTION_BYTES, MAX_VALUE_BYTES
from causeway.service.http import answers
from causeway.service.http.answers import AnswerModel, ChainAnswers, Digest, Height, Hex, Index, Name, Text

MAX_RANGES = 2_000
"""Maximum number of ranges of a queue's entries."""

MAX_TRUSTED = 1_000
"""Maximum number of trusted headers of a client."""

MAX_CONNECTIONS = 10_000
MAX_ACCOUNTS = 10_000
MAX_NAMES = 100
MAX_KEY_BYTES = 1 << 10
"""Maximum size of a requested key; keys of queues have at most 88 bytes."""

Value = Annotated[bytes, Hex(MAX_VALUE_BYTES)]
Proof = Annotated[bytes, Hex(MAX_PROOF_BYTES)]
KeyBytes = Annotated[bytes, Hex(MAX_KEY_BYTES)]
Pushed = Annotated[tuple[Index, Index, Height | None], Field(strict=False)]
Gap = Annotated[tuple[Index, Index], Field(strict=False)]


class ZoneOptionsAnswer(AnswerModel):
    """Options relevant to relay processes."""

    order: Literal["ordered", "unordered"]
    redundant: Name
    timeouts: Literal["on", "off"]
    expiry: Literal["strict", "inclusive"]
    cleanup: Literal["on", "off"]
    unbonding_ns: Annotated[Height, Field(gt=0)]
    delay_ns: Height
    header_fee: Index
    proof_fee: Index


class ZoneStatusAnswer(answers.StatusAnswer):
    """Identity and progress of the network."""

    chains: ChainAnswers
    connections: Annotated[list[Annotated[tuple[Name, Name], Field(strict=False)]], Field(max_length=MAX_CONNECTIONS)]
    options: ZoneOptionsAnswer


class SignedHeaderAnswer(AnswerModel):
    """A signed header (protobuf) with its content; of the unsigned height 0 only the root."""

    chain: Name
    height: Height
    time: Height
    root: Digest
    hash: Digest | None = None
    validators_hash: Digest | None = None
    next_validators_hash: Digest | None = None
    signed_header: Annotated[bytes, Hex(MAX_TRANSACTION_BYTES)] | None
    """Bounded by the size of a transaction."""


class SendQueueAnswer(AnswerModel):
    """A send queue; ``entries`` are ranges (first, count, height of the push)."""

    head: Index
    tail: Index
    entries: Annotated[list[Pushed], Field(max_length=MAX_RANGES)]


class ReceiptQueueAnswer(SendQueueAnswer):
    """A receipt queue.

    ``missing``: unreceived ranges (first, count); ``waiting``: indices without a value.
    """

    ready: Index
    missing: Annotated[list[Gap], Field(max_length=MAX_RANGES)]
    waiting: Annotated[list[Index], Field(max_length=MAX_RANGES)]


class TrustedAnswer(AnswerModel):
    """A header trusted by a client."""

    height: Height
    time: Height
    added: Height
    added_time: Height
    root: Digest
    validators_hash: Digest
    next_validators_hash: Digest
    header_hash: Digest


class ClientAnswer(AnswerModel):
    """A client of the counterparty with its newest trusted headers, ascending."""

    state: Literal["active", "frozen", "disconnecting"]
    latest: Height
    expires_in: Height
    trusted: Annotated[list[TrustedAnswer], Field(min_length=1, max_length=MAX_TRUSTED)]

    @model_validator(mode="after")
    def _validate_ascending_heights(self) -> Self:
        heights = [header.height for header in self.trusted]
        if any(one >= other for one, other in pairwise(heights)):
            raise ValueError("trusted headers are not in the order of their heights")
        return self


class LaneAnswer(AnswerModel):
    """Both queues of a chain for a counterparty, and its client of it."""

    chain: Name
    counterparty: Name
    height: Height
    time: Height
    send: SendQueueAnswer
    receipt: ReceiptQueueAnswer
    client: ClientAnswer


class EntryAnswer(AnswerModel):
    """An entry of a queue."""

    index: Index
    key: KeyBytes
    value: Value


class EntriesAnswer(AnswerModel):
    """Entries of a queue."""

    chain: Name
    counterparty: Name
    height: Height
    entries: Annotated[list[EntryAnswer], Field(max_length=MAX_ITEMS)]


class KeyProofAnswer(AnswerModel):
    """A value with its ICS-23 proof; null with the proof of absence if the key is not stored."""

    key: KeyBytes
    value: Value | None
    proof: Proof | None

    @model_validator(mode="after")
    def _validate_proof(self) -> Self:
        if self.value is not None and self.proof is None:
            raise ValueError("a value goes with its proof")
        return self


class ProofsAnswer(AnswerModel):
    """Proofs of the first requested keys, at least one."""

    chain: Name
    height: Height
    root: Digest
    proofs: Annotated[list[KeyProofAnswer], Field(min_length=1, max_length=MAX_ITEMS)]


class AccountAnswer(AnswerModel):
    """A relayer's fee account: by ``name`` for the scenario's relayers, else by ``number``."""

    name: Text | None = None
    number: Index | None = None
    headers: Index
    submitted: Index
    accepted: Index
    redundant: Index
    refused: Index
    fees: Index
    wasted: Index


class RelayersAnswer(AnswerModel):
    """The fee accounts with a chain."""

    chain: Name
    height: Height
    relayers: Annotated[list[AccountAnswer], Field(max_length=MAX_ACCOUNTS)]


class RefusalsAnswer(AnswerModel):
    """Number of refused calls in a block, by error."""

    chain: Name
    height: Height
    refused: Annotated[dict[Name, Index], Field(max_length=MAX_NAMES)]
