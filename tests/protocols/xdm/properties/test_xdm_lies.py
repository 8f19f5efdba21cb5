"""Proved storage that a chain's runtime wrote against the rules.

Envelope claims and bodies under other keys are rejected (3.4 steps 7 to 9, D-7). Kernel and oracle play each case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.spec.xdm.keys import outbox_key, responses_key
from tests.spec.xdm.options import Options
from tests.spec.xdm.values import (
    CONSENSUS,
    TAG_NONE,
    ChannelClose,
    ChannelOpen,
    CollectedFee,
    EndpointCall,
    EndpointRequest,
    EndpointResponse,
    Message,
    Payload,
    ProtocolResponse,
    encode_message,
)
from tests.support.xdm.properties.xdm_carriers import ALTERED, Copies, as_it_is
from tests.support.xdm.properties.xdm_networks import ALICE, ROOT
from tests.support.xdm.properties.xdm_pair import Pair
from tests.support.xdm.properties.xdm_scenes import Ask, ChannelAsk, Scene

FAST = Options(archiving_depth=1, challenge_period=1, resubmit_after=40, weight_per_unit=3)
CALL = EndpointCall(EndpointRequest(2, 2, b"\2"), CollectedFee(0, 0))
UNHANDLED = EndpointCall(EndpointRequest(2, 9, b""), CollectedFee(0, 0))
OPEN, CLOSE, YES = ChannelOpen(5), ChannelClose(), ProtocolResponse(None)
ANSWER = EndpointResponse(b"\2")
FAR = 900


def request(payload: Payload = CALL, nonce: int = 1, **columns: Any) -> bytes:
    return encode_message(replace(Message(0, 1, 0, nonce, payload), **columns))


def response(payload: Payload = ANSWER, nonce: int = 5) -> bytes:
    return encode_message(Message(1, 0, 0, nonce, payload))


WRONG: dict[str, bytes] = {
    "source": request(nonce=1, src=CONSENSUS),
    "another domain": request(nonce=2, src=1),
    "destination": request(nonce=3, dst=CONSENSUS),
    "channel": request(nonce=4, channel_id=1),
    "channel beyond": request(nonce=5, channel_id=2**64),
    "nonce": request(nonce=7),
    "nonce beyond": request(nonce=2**64 + 7),
    "trailing byte": request(nonce=8) + b"\0",
    "cut off": request(nonce=9)[:-1],
    "version": request(nonce=10)[:74] + b"\7" + request(nonce=10)[75:],
}
"""Bodies that tell other than their envelopes, or nothing; they lie under the nonces from 1 on."""
REQUESTS: dict[str, tuple[Any, int, bytes, str]] = {
    "response": ("stored", 1, request(YES), "InvalidCall"),
    "response of an endpoint": ("stored", 1, request(ANSWER), "InvalidCall"),
    "opening": ("stored", 1, request(OPEN), "InvalidCall"),
    "early response": ("stored", 4, request(YES, 4), "InvalidCall"),
    "early opening in a pool": ("pool", 4, request(OPEN, 4), "InvalidCall"),
    "far": ("stored", FAR, request(CALL, FAR), "Custom(204)"),
    "far in a pool": ("pool", FAR, request(CALL, FAR), "Custom(204)"),
    "far opening": ("stored", FAR, request(OPEN, FAR), "Custom(204)"),
    "far opening in a pool": ("pool", FAR, request(OPEN, FAR), "InvalidCall"),
    "far response": ("stored", FAR, request(YES, FAR), "InvalidCall"),
    "farthest": ("pool", 257, request(CALL, 257), "Future"),
    "one too far": ("pool", 258, request(CALL, 258), "Custom(204)"),
}
"""What lies under a key of the outbox: the inbox of the destination, the nonce of the key, the body, the refusal."""
RESPONSES: dict[str, tuple[int, bytes, str]] = {
    "request": (5, response(CALL), "InvalidCall"),
    "far": (FAR, response(ANSWER, FAR), "Custom(204)"),
    "far request": (FAR, response(CALL, FAR), "InvalidCall"),
    "one too far": (257 + 1, response(ANSWER, 257 + 1), "Custom(204)"),
}


def rejection_errors(pair: Pair, call: str) -> list[str | None]:
    return [e.error for e in pair.model.events() if e.event == "Refused" and e.call == call]


def network(options: Options) -> Pair:
    """Create a call from domain 0 to domain 1 as the first message of channel 0."""
    return Pair(Scene(0, options, 2, users={1: [Ask(0, ALICE, 1)]}))


def test_bodies_differing_from_their_envelopes() -> None:
    pair = network(FAST)
    pair.step()
    for nonce, body in enumerate(WRONG.values(), 1):
        pair.lie(0, outbox_key(1, 0, nonce), body)
    pair.shows["request", 0] = [(0, 1 + place, TAG_NONE) for place in range(len(WRONG))]
    pair.step(12)
    assert rejection_errors(pair, "relay_message") == ["BadProof"] * len(WRONG)


@pytest.mark.parametrize("case", REQUESTS)
def test_body_under_a_wrong_key(case: str) -> None:
    inbox, nonce, body, error = REQUESTS[case]
    pair = network(replace(FAST, inbox=inbox))
    pair.step()
    pair.lie(0, outbox_key(1, 0, nonce), body)
    pair.shows["request", 0] = [(0, nonce, TAG_NONE)]
    pair.step(12 if error != "Future" else 23)
    assert rejection_errors(pair, "relay_message") == [error]


@pytest.mark.parametrize("case", RESPONSES)
def test_response_under_a_wrong_key(case: str) -> None:
    nonce, body, error = RESPONSES[case]
    pair = network(FAST)
    pair.step()
    pair.lie(1, responses_key(0, 0, nonce), body)
    pair.shows["response", 1] = [(0, nonce, TAG_NONE)]
    pair.step(18)
    assert rejection_errors(pair, "relay_message_response") == [error]


@pytest.mark.parametrize("trust", ["on", "off"])
@pytest.mark.parametrize(("mint", "minted"), [("collected", 0), ("recomputed", FAST.relay_fee)])
def test_unhandled_endpoint_is_reported_before_the_tag(trust: Any, mint: Any, minted: int) -> None:
    """The collected fee is minted (here zero), or the recomputed relay cost (D-4)."""
    options = replace(FAST, trust_tag=trust, v0_mint=mint)
    pair = Pair(Scene(0, options, 2, open=False, channels=[ChannelAsk(1, 0, 1, ROOT)]))
    pair.step()
    pair.lie(0, outbox_key(1, 0, 1), request(UNHANDLED))
    pair.shows["request", 0] = [(0, 1, TAG_NONE)]
    pair.step(10)
    assert [e.result for e in pair.model.events() if e.event == "InboxMessageResponse"] == ["Ok", "NoMessageHandler"]
    assert [e.amount for e in pair.model.events() if e.event == "FeeMint"] == [minted]


def test_close_request_ends_a_channel_and_arrives_once() -> None:
    """Of two copies in one block the second is rejected for its nonce; a later one meets a closed channel."""
    pair = network(FAST)
    pair.step()
    pair.lie(0, outbox_key(1, 0, 1), request(CLOSE))
    pair.lie(0, outbox_key(1, 0, 2), request(CLOSE, 2))
    pair.shows["request", 0] = [(0, 1, TAG_NONE), (0, 1, TAG_NONE), (0, 2, TAG_NONE), (0, 2, TAG_NONE)]
    pair.step(12)
    assert sorted(map(str, rejection_errors(pair, "relay_message"))) == ["Custom(201)", "InvalidCall", "InvalidCall"]


def test_request_acknowledges_no_response_to_a_later_one_of_its_block() -> None:
    """There is none at its turn, so nothing ends (3.6, hazard 21): neither that one nor earlier ones."""
    pair = network(FAST)
    pair.step()
    pair.lie(0, outbox_key(1, 0, 1), request(UNHANDLED, last_delivered=2))
    pair.lie(0, outbox_key(1, 0, 2), request(UNHANDLED, 2))
    pair.shows["request", 0] = [(0, 1, TAG_NONE), (0, 2, TAG_NONE)]
    pair.step(12)
    rows = [(e.event, e.nonce, e.block) for e in pair.model.events() if e.chain == 1]
    blocks = {nonce: block for event, nonce, block in rows if event == "InboxMessage"}
    assert blocks.keys() == {0, 1, 2} and blocks[1] == blocks[2]
    assert "ResponseDeleted" not in {event for event, _, _ in rows}


def test_every_alteration_of_an_envelope_is_rejected() -> None:
    """Alter one request in each way; an honest copy follows in the next block."""
    users = {1 + n: [Ask(0, ALICE, 1)] for n in range(len(ALTERED))}
    pair = Pair(Scene(0, replace(FAST, resubmit_after=60), 2, users=users))
    left = list(ALTERED)

    def carriers(x: Any) -> Copies:
        return [(0, left.pop()), (1, as_it_is)] if left and x.src == 0 and x.tag.kind == 2 else [(0, as_it_is)]

    pair.faults = carriers
    pair.step(36)
    assert not left and pair.rests()
    assert len(rejection_errors(pair, "relay_message")) == len(ALTERED)


def test_unfinalized_block_and_a_forgotten_root_prove_nothing() -> None:
    """The oldest known root is accepted, the one before it is not (hazard 7)."""
    roots = FAST.archiving_depth + 4
    pair = Pair(
        Scene(0, replace(FAST, mmr_roots=roots), 2, users={1: [Ask(0, ALICE, 1)], 2: [Ask(0, ALICE, CONSENSUS)]})
    )
    late = {1: roots - FAST.archiving_depth - 1, CONSENSUS: roots - 1}

    def carriers(x: Any) -> Copies:
        if x.src:
            return [(0, as_it_is)]
        return [(late[x.dst], as_it_is), (late[x.dst] - 1, as_it_is)]

    pair.faults = carriers
    pair.step(30)
    assert sorted(map(str, rejection_errors(pair, "relay_message"))) == ["BadProof", "BadProof"]
