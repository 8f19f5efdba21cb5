"""What a served lake of subnets answers, for its OpenAPI document."""

from __future__ import annotations

from pydantic import Field

from causeway.service.requests import Answer, Digits


class SubnetAnswer(Answer):
    """A subnet of the network."""

    name: str
    external: bool = Field(..., description="Another lake runs it.")
    id: str = Field(..., description="Its id, as text.")
    public_key: Digits | None = Field(..., description="It signs the states; none where nothing is certified.")


class StatusAnswer(Answer):
    """What the network is, and how far it has come."""

    protocol: str
    lake: str
    height: int
    tick: int
    time: int
    tick_ns: int
    chains: list[SubnetAnswer]
