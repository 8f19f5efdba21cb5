"""What a served lake of zones answers, as strict schemas (``service.answers``)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from causeway.protocols.limits import MAX_ITEMS, MAX_PROOF_BYTES, MAX_TRANSACTION_BYTES, MAX_VALUE_BYTES
from causeway.service.answers import Answer, ChainAnswers, Digest, Height, Index, Name, hexadecimal_of

MAX_RANGES = 2_000
"""Ranges of entries that are read of one queue."""

MAX_TRUSTED = 1_000
"""Trusted headers that are read of one client."""

MAX_CONNECTIONS = 10_000
MAX_NAMES = 100
MAX_KEY_BYTES = 1 << 10
"""Longest key that a proof is asked for; those of queues have 88 bytes at most."""

Value = Annotated[bytes, BeforeValidator(hexadecimal_of(MAX_VALUE_BYTES))]
Proof = Annotated[bytes, BeforeValidator(hexadecimal_of(MAX_PROOF_BYTES))]
KeyBytes = Annotated[bytes, BeforeValidator(hexadecimal_of(MAX_KEY_BYTES))]
Pushed = Annotated[tuple[Index, Index, Height | None], Field(strict=False)]
Gap = Annotated[tuple[Index, Index], Field(strict=False)]


class OptionsAnswer(Answer):
    """The options that a relay process goes by."""

    order: Literal["ordered", "unordered"]
    expiry: Literal["strict", "inclusive"]
    timeouts: Literal["on", "off"]
    cleanup: Literal["on", "off"]
    unbonding_ns: Annotated[Height, Field(gt=0)]
    delay_ns: Height


class StatusAnswer(Answer):
    """``/v1/status``."""

    chains: ChainAnswers
    connections: Annotated[list[Annotated[tuple[Name, Name], Field(strict=False)]], Field(max_length=MAX_CONNECTIONS)]
    options: OptionsAnswer


class QueueAnswer(Answer):
    """A queue at a height: see ``lanes.QueueView``."""

    head: Index
    tail: Index
    ready: Index | None = None
    entries: Annotated[list[Pushed], Field(max_length=MAX_RANGES)]
    missing: Annotated[list[Gap], Field(default_factory=list, max_length=MAX_RANGES)]
    waiting: Annotated[list[Index], Field(default_factory=list, max_length=MAX_RANGES)]


class TrustedAnswer(Answer):
    """A header that a client trusts."""

    height: Height
    time: Height
    added: Height
    added_time: Height
    root: Digest
    validators_hash: Digest
    next_validators_hash: Digest
    header_hash: Digest


class ClientAnswer(Answer):
    """A client: its state, and the newest headers that it trusts, ascending."""

    state: Name
    trusted: Annotated[list[TrustedAnswer], Field(min_length=1, max_length=MAX_TRUSTED)]

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        heights = [header.height for header in self.trusted]
        if any(one >= other for one, other in pairwise(heights)):
            raise ValueError("trusted headers are not in the order of their heights")
        return self


class LaneAnswer(Answer):
    """``/v1/chains/C/queues/R``."""

    chain: Name
    counterparty: Name
    height: Height
    time: Height
    send: QueueAnswer
    receipt: QueueAnswer
    client: ClientAnswer


class HeaderAnswer(Answer):
    """``/v1/chains/C/header``: a longer header could not be submitted."""

    signed_header: Annotated[bytes, BeforeValidator(hexadecimal_of(MAX_TRANSACTION_BYTES))]


class ProofAnswer(Answer):
    """What lies under a key, with its proof; None for both where nothing does."""

    key: KeyBytes
    value: Value | None
    proof: Proof | None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if self.value is not None and self.proof is None:
            raise ValueError("a value goes with its proof")
        return self


class ProofsAnswer(Answer):
    """``/v1/chains/C/proofs``: of the keys asked for the first ones, one at least."""

    proofs: Annotated[list[ProofAnswer], Field(min_length=1, max_length=MAX_ITEMS)]


class EntryAnswer(Answer):
    """An entry of a queue."""

    index: Index
    value: Value


class EntriesAnswer(Answer):
    """``/v1/chains/C/queues/R/send``."""

    entries: Annotated[list[EntryAnswer], Field(max_length=MAX_ITEMS)]


class AccountsAnswer(Answer):
    """``/v1/chains/C/relayers``: counts by name, and who has them."""

    relayers: Annotated[list[dict[Name, Index | Name]], Field(max_length=MAX_NAMES)]


class RefusalsAnswer(Answer):
    """``/v1/chains/C/refusals``."""

    refused: Annotated[dict[Name, Index], Field(max_length=MAX_NAMES)]
