"""Answers of a served lake of subnets (``service.answers``)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from causeway.protocols.limits import MAX_ANSWER_BYTES
from causeway.service import answers
from causeway.service.answers import MAX_CHAINS, Answer, ChainAnswer, Height, Hex, Text

Bytes = Annotated[bytes, Hex(MAX_ANSWER_BYTES)]


class SubnetAnswer(ChainAnswer):
    """A subnet of the network."""

    id: Text = Field(..., description="Its id, as text.")
    public_key: Bytes | None = Field(..., description="It signs the states; none where nothing is certified.")


class StatusAnswer(answers.StatusAnswer):
    """What the network is, and how far it has come."""

    chains: Annotated[list[SubnetAnswer], Field(max_length=MAX_CHAINS)]


class KeyAnswer(Answer):
    """A subnet's public key (DER)."""

    kind: Literal["ic_public_key"]
    key: Bytes
    subnet_id: Text


class PathAnswer(Answer):
    """What is at a path of the state."""

    path: list[Text]
    value: Bytes


class CertificateAnswer(Answer):
    """A certificate (CBOR), and what it claims."""

    kind: Literal["ic_certificate"]
    subnet_id: Text
    time: Height
    paths: list[PathAnswer]
    proof: Bytes
    trust: KeyAnswer
