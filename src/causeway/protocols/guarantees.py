"""What a protocol guarantees and what it does not, in words, each with the place in its reference: for people who
choose between protocols. Each protocol states it in its ``guarantees.py``, as far as its options decide it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

TOPICS: Mapping[str, str] = {
    "order": "messages between two programs come in the order in which they were sent",
    "causal": "messages come in the order of their causes",
    "exactly_once": "no message takes effect twice",
    "authentic": "nothing is received that was not sent",
    "no_gaps": "no message of a lane is left out",
    "answered": "every call is answered",
    "one_answer": "no call is answered twice",
    "called_off": "what does not come in time is called off on both sides",
    "final_first": "nothing takes effect elsewhere before its block is final",
    "value": "value between chains is neither made nor lost",
    "held_back": "a sender is held back before too much waits",
    "any_carrier": "whoever carries messages can only delay them",
    "no_third_chain": "two chains need no third one",
}
"""What protocols are asked, by name, in the order in which it is told."""

CHECKS: Mapping[str, str] = {
    "order": "order",
    "causal": "causal_order",
    "exactly_once": "exactly_once",
    "authentic": "authenticity",
    "no_gaps": "gaps",
    "answered": "answers",
    "one_answer": "exactly_once",
    "called_off": "agreement",
    "final_first": "finality",
    "value": "conservation",
    "held_back": "back_pressure",
}
"""The check of the audit that judges each topic. No check judges carriers and third chains: an audit sees what chains
did with messages, not who brought them."""

Holds = Literal["yes", "partly", "no"]


@dataclass(frozen=True)
class Guarantee:
    """Whether a protocol guarantees a topic, how, and where its reference says so (or leaves it out)."""

    topic: str
    holds: Holds
    how: str
    reference: str


__all__ = ["CHECKS", "TOPICS", "Guarantee", "Holds"]
