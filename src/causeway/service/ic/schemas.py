"""What a served lake of subnets answers, for its OpenAPI document."""

from __future__ import annotations

from pydantic import Field

from causeway.service import requests
from causeway.service.requests import ChainAnswer, Digits


class SubnetAnswer(ChainAnswer):
    """A subnet of the network."""

    id: str = Field(..., description="Its id, as text.")
    public_key: Digits | None = Field(..., description="It signs the states; none where nothing is certified.")


class StatusAnswer(requests.StatusAnswer):
    """What the network is, and how far it has come."""

    chains: list[SubnetAnswer]
