"""What a served lake of zones answers, for its OpenAPI document."""

from __future__ import annotations

from typing import Literal

from causeway.service import requests
from causeway.service.requests import Answer, ChainAnswer, Digest, Digits


class OptionsAnswer(Answer):
    """The options that relay processes go by."""

    order: str
    redundant: str
    timeouts: str
    expiry: str
    cleanup: str
    unbonding_ns: int
    delay_ns: int
    header_fee: int
    proof_fee: int


class StatusAnswer(requests.StatusAnswer):
    """What the network is, and how far it has come."""

    chains: list[ChainAnswer]
    connections: list[tuple[str, str]]
    options: OptionsAnswer


class HeaderAnswer(Answer):
    """A signed header (protobuf), and what it says; of height 0, which nobody signs, only its root."""

    chain: str
    height: int
    time: int
    root: Digest
    hash: Digest | None = None
    validators_hash: Digest | None = None
    next_validators_hash: Digest | None = None
    signed_header: Digits | None


class SendAnswer(Answer):
    """A send queue. ``entries``: ranges as (first, count, height of the push)."""

    head: int
    tail: int
    entries: list[tuple[int, int, int | None]]


class ReceiptAnswer(SendAnswer):
    """A receipt queue. ``missing``: ranges (first, count) that others overtook; ``waiting``: without a value yet."""

    ready: int
    missing: list[tuple[int, int]]
    waiting: list[int]


class TrustedAnswer(Answer):
    """A trusted header."""

    height: int
    time: int
    added: int
    added_time: int
    root: Digest
    validators_hash: Digest
    next_validators_hash: Digest
    header_hash: Digest


class ClientAnswer(Answer):
    """A client of the counterparty, with its newest trusted headers."""

    state: Literal["active", "frozen", "disconnecting"]
    latest: int
    expires_in: int
    trusted: list[TrustedAnswer]


class LaneAnswer(Answer):
    """Both queues of a chain for a counterparty, and its client of it."""

    chain: str
    counterparty: str
    height: int
    time: int
    send: SendAnswer
    receipt: ReceiptAnswer
    client: ClientAnswer


class EntryAnswer(Answer):
    """An entry of a queue."""

    index: int
    key: Digits
    value: Digits


class EntriesAnswer(Answer):
    """Entries of a queue."""

    chain: str
    counterparty: str
    height: int
    entries: list[EntryAnswer]


class ProofAnswer(Answer):
    """What lies under a key, with its ICS-23 proof; null where nothing does, with the proof of that."""

    key: Digits
    value: Digits | None
    proof: Digits | None


class ProofsAnswer(Answer):
    """What lies under keys."""

    chain: str
    height: int
    root: Digest
    proofs: list[ProofAnswer]


class AccountAnswer(Answer):
    """A relayer's fee account: by ``name`` those of the scenario, by ``number`` others."""

    name: str | None = None
    number: int | None = None
    headers: int
    submitted: int
    accepted: int
    redundant: int
    refused: int
    fees: int
    wasted: int


class RelayersAnswer(Answer):
    """The fee accounts with a chain."""

    chain: str
    height: int
    relayers: list[AccountAnswer]


class RefusalsAnswer(Answer):
    """How many calls were refused in a block, by error."""

    chain: str
    height: int
    refused: dict[str, int]
