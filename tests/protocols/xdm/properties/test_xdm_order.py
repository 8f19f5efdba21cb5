"""Rejection by the first of two failing checks in the reference order.

There is one case for each pair that random networks seldom reach. Kernel and oracle play each and are compared after
every tick.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.spec.xdm.options import Options
from tests.spec.xdm.values import CONSENSUS, CrossDomainMessage, Tag
from tests.support.xdm.properties.xdm_carriers import (
    Alter,
    Copies,
    as_it_is,
    doubled_node,
    honest,
    other_form,
    other_leaf,
    other_node,
)
from tests.support.xdm.properties.xdm_networks import ALICE, BOB, ROOT
from tests.support.xdm.properties.xdm_pair import Pair
from tests.support.xdm.properties.xdm_scenes import Ask, ChannelAsk, ListAsk, Scene

POOR = b"poor".ljust(32)
FAST = Options(archiving_depth=1, challenge_period=1, resubmit_after=30, weight_per_unit=3)
UNKNOWN = 9
LATE = 6
"""Blocks after which a copy of a message comes when the message itself was taken."""


def network(options: Options = FAST, **more: Any) -> Pair:
    return Pair(Scene(0, options, 2, **more))


def rejection_errors(pair: Pair, call: str) -> list[str | None]:
    return [e.error for e in pair.model.events() if e.event == "Refused" and e.call == call]


# Envelopes


def channel(number: int, *more: Alter) -> Alter:
    def alter(x: CrossDomainMessage) -> CrossDomainMessage:
        for one in more:
            x = one(x)
        return replace(x, channel_id=number)

    return alter


def with_far_nonce(x: CrossDomainMessage) -> CrossDomainMessage:
    return replace(x, nonce=x.nonce + 600)


ENVELOPES: dict[str, tuple[str, int, Alter, str]] = {
    "1 before 4": ("request", 0, channel(UNKNOWN, other_leaf), "BadProof"),
    "1 before 5": ("request", LATE, other_leaf, "BadProof"),
    "4 before 6": ("request", 0, channel(UNKNOWN, other_form), "Custom(203)"),
    "4 before 7": ("request", 0, channel(UNKNOWN, other_node), "Custom(203)"),
    "4 alone": ("request", 0, channel(UNKNOWN), "Custom(203)"),
    "5 before 6": ("request", LATE, other_form, "Custom(201)"),
    "5 before 7": ("request", LATE, other_node, "Custom(201)"),
    "6 alone": ("request", 0, other_form, "BadProof"),
    "7 before 9": ("request", 0, with_far_nonce, "BadProof"),
    "1 before 3": ("response", 0, channel(UNKNOWN, other_leaf), "BadProof"),
    "3 before 4": ("response", 0, channel(UNKNOWN), "InvalidCall"),
    "3 before 7": ("response", 0, channel(UNKNOWN, other_node), "InvalidCall"),
    "5 before 7, response": ("response", LATE, other_node, "Custom(201)"),
    "6 alone, response": ("response", 0, other_form, "BadProof"),
}
"""Steps of 3.4: what is altered, how late the altered copy comes, and why it is refused."""


FORMS = [case for case, (_, _, alter, _) in ENVELOPES.items() if alter is other_form]


@pytest.mark.parametrize(("case", "src"), [*((case, 0) for case in ENVELOPES), *((case, CONSENSUS) for case in FORMS)])
def test_envelope_is_rejected_by_the_first_failing_check(case: str, src: int) -> None:
    kind, late, alter, error = ENVELOPES[case]
    pair = network(users={1: [Ask(src, ALICE, 1)]})
    from_there = 1 if kind == "response" else src

    def carriers(x: CrossDomainMessage) -> Copies:
        if x.src != from_there:
            return honest(x)
        return [(0, as_it_is), (late, alter)] if late else [(0, alter)]

    pair.faults = carriers
    pair.step((16 if kind == "response" else 9) + late)
    call = "relay_message_response" if kind == "response" else "relay_message"
    assert rejection_errors(pair, call)[:1] == [error]


# Calls about channels and lists

ON = replace(FAST, allowlist="on")
SIGNED = replace(FAST, initiate_by="signed", close_by="owner_or_root")
FREE = replace(SIGNED, reserve=0)
LISTED = replace(SIGNED, allowlist="on")
Calls = list[Any]
CALLS: dict[str, tuple[Options, Calls, str]] = {
    "3.1, who before 2": (FAST, [ChannelAsk(1, 0, 0, ALICE)], "BadOrigin"),
    "3.1, root is no account": (SIGNED, [ChannelAsk(1, 0, 1, ROOT)], "BadOrigin"),
    "3.1, 1 before 2": (SIGNED, [ChannelAsk(1, 0, 0, POOR)], "InsufficientBalance"),
    "3.1, 1 before 3": (SIGNED, [ChannelAsk(1, 0, 1, POOR, limit=0)], "InsufficientBalance"),
    "3.1, 2 before 3": (SIGNED, [ChannelAsk(1, 0, 0, ALICE, limit=0)], "InvalidChain"),
    "3.1, 3 before 4": (FREE, [ChannelAsk(1, 0, 1, ALICE, limit=0)], "InvalidMaxOutgoingMessages"),
    "3.1, 4 alone": (FREE, [ChannelAsk(1, 0, 1, ALICE)], "InvalidChannelReserveFee"),
    "3.1, 4 before 5": (replace(LISTED, reserve=0), [ChannelAsk(1, 0, 1, ALICE)], "InvalidChannelReserveFee"),
    "3.1, 3 before 5": (LISTED, [ChannelAsk(1, 0, 1, ALICE, limit=0)], "InvalidMaxOutgoingMessages"),
    "3.1, 5 alone": (LISTED, [ChannelAsk(1, 0, 1, ALICE)], "ChainNotAllowed"),
    "3.7, who before 2": (FAST, [ChannelAsk(1, 0, 1, ALICE, 7)], "BadOrigin"),
    "3.7, owner before 2": (SIGNED, [ChannelAsk(1, 0, 1, ALICE, 7)], "ChannelOwner"),
    "3.7, 2 alone": (SIGNED, [ChannelAsk(1, 0, 1, ROOT, 7)], "MissingChannel"),
    "3.7, state before room": (
        replace(SIGNED, max_outgoing_messages=1),
        [ChannelAsk(1, 0, 1, ROOT, 0), ChannelAsk(1, 0, 1, ROOT, 0)],
        "InvalidChannelState",
    ),
    "X-1, who before where": (ON, [ListAsk(1, CONSENSUS, 1, True, ALICE, 0)], "BadOrigin"),
    "X-1, where before self": (ON, [ListAsk(1, CONSENSUS, CONSENSUS, True, ROOT, 0)], "OperationNotAllowed"),
    "X-1, self": (ON, [ListAsk(1, CONSENSUS, CONSENSUS, True)], "InvalidAllowedChain"),
    "X-1, registered": (ON, [ListAsk(1, CONSENSUS, 5, False), ListAsk(1, CONSENSUS, 5, True)], "InvalidChain"),
    "X-1, owner before where": (ON, [ListAsk(1, 0, 0, True, ALICE, 1)], "NotDomainOwner"),
    "X-1, domain, where before self": (ON, [ListAsk(1, 0, 0, True, ROOT, 1)], "OperationNotAllowed"),
    "X-1, domain, self": (ON, [ListAsk(1, 0, 0, True)], "InvalidAllowedChain"),
    "X-1, domain, registered": (ON, [ListAsk(1, 0, 5, False)], "InvalidChain"),
}  # fmt: skip


@pytest.mark.parametrize("options", sorted({row[0] for row in CALLS.values()}, key=str))
def test_call_is_rejected_by_the_first_failing_check(options: Options) -> None:
    """Play all cases of equal options, each in its own tick."""
    cases = [(calls, error) for own, calls, error in CALLS.values() if own == options]
    every = [call._replace(tick=1 + place) for place, (calls, _) in enumerate(cases) for call in calls]
    channels = [call for call in every if isinstance(call, ChannelAsk)]
    lists = [call for call in every if isinstance(call, ListAsk)]
    unlisted = options.allowlist == "on" and not lists
    more: dict[str, Any] = {"open": False, "lists": {0: {CONSENSUS}}} if unlisted else {}
    pair = network(options, channels=channels, allowing=lists, **more)
    pair.step(len(cases) + 2)
    assert rejection_errors(pair, "planned") == [error for _, error in cases]


# Messages of programs

NOT_LISTED = [ListAsk(1, 0, 1, False)]
CLOSED = [ChannelAsk(1, 0, 1, ROOT, 0)]
SENT: dict[str, tuple[list[ListAsk], list[ChannelAsk], Ask, str]] = {
    "3.3, 1 before 2": (NOT_LISTED, CLOSED, Ask(0, ALICE, 1), "ChainNotAllowed"),
    "3.3, 2 before 4": ([], CLOSED, Ask(0, POOR, 1), "NoOpenChannel"),
    "3.3, 4 alone": ([], [], Ask(0, POOR, 1), "FundsUnavailable"),
    "X-3, amount before account": ([], [], Ask(0, ALICE, 1, amount=3, receiver=bytes(32)), "MinimumTransferAmount"),
    "X-3, account before balance": ([], [], Ask(0, BOB, 1, amount=300, receiver=bytes(32)), "InvalidAccountId"),
    "X-3, balance before channel": ([], CLOSED, Ask(0, BOB, 1, amount=300, receiver=BOB), "LowBalance"),
    "X-3, exactly the minimum": ([], CLOSED, Ask(0, ALICE, 1, amount=5, receiver=BOB), "NoOpenChannel"),
}


@pytest.mark.parametrize("case", SENT)
def test_program_message_is_rejected_by_the_first_failing_check(case: str) -> None:
    lists, channels, ask, error = SENT[case]
    pair = network(ON, channels=channels, allowing=lists, users={4: [ask]})
    pair.step(7)
    assert rejection_errors(pair, "user") == [error]


# Answers to requests

TRUSTING = replace(ON, trust_tag="on")


def endpoint_tag(x: CrossDomainMessage) -> CrossDomainMessage:
    """Return the tag of the previous endpoint."""
    return replace(x, tag=Tag(x.tag.kind, x.tag.endpoint - 1) if x.tag.endpoint else Tag(1))


ANSWERED: dict[str, tuple[tuple[Any, ...], Alter, str]] = {
    "14, tag before state": (
        (ListAsk(3, 1, 0, False), ChannelAsk(3, 1, 0, ROOT, 0)),
        endpoint_tag,
        "WeightTagNotMatch",
    ),
    "14, state before list": ((ListAsk(3, 1, 0, False), ChannelAsk(3, 1, 0, ROOT, 0)), as_it_is, "InvalidChannelState"),
    "14, list alone": ((ListAsk(3, 1, 0, False),), as_it_is, "ChainNotAllowed"),
    "14, late on a closed channel": ((ChannelAsk(3, 1, 0, ROOT, 0),), as_it_is, "InvalidChannelState"),
}


@pytest.mark.parametrize("case", ANSWERED)
@pytest.mark.parametrize("inbox", ["stored", "pool"])
def test_request_is_answered_with_the_first_error(case: str, inbox: Any) -> None:
    calls, alter, error = ANSWERED[case]
    channels = [call for call in calls if isinstance(call, ChannelAsk)]
    lists = [call for call in calls if isinstance(call, ListAsk)]
    users = {1: [Ask(0, ALICE, 1, b"x", 40), Ask(0, BOB, 1, amount=30, receiver=BOB)]}
    pair = network(replace(TRUSTING, inbox=inbox), channels=channels, allowing=lists, users=users)
    pair.faults = lambda x: [(0, alter if x.src == 0 else as_it_is)]
    pair.step(13)
    results = [e.result for e in pair.model.events() if e.event == "InboxMessageResponse" and e.chain == 1]
    assert results[:2] == [error, error]


@pytest.mark.parametrize(
    ("listed", "alter", "error"), [(False, endpoint_tag, "ChainNotAllowed"), (True, endpoint_tag, "WeightTagNotMatch")]
)
def test_opening_is_rejected_by_the_allow_list_before_the_tag(listed: bool, alter: Alter, error: str) -> None:
    lists = {0: {1}, 1: {0} if listed else set()}
    pair = network(
        TRUSTING, open=False, lists=lists, channels=[ChannelAsk(1, 0, 1, ROOT), ChannelAsk(14, 0, 1, ROOT, 0)]
    )
    pair.faults = lambda x: [(0, alter if x.src == 0 else as_it_is)]
    pair.step(12)
    results = [e.result for e in pair.model.events() if e.event == "InboxMessageResponse" and e.chain == 1]
    assert results[:1] == [error]


def test_duplicate_node_is_rejected() -> None:
    """Such an envelope is undecodable and is ignored; a second, honest copy is accepted."""
    pair = network(users={1: [Ask(0, ALICE, 1)]})
    pair.faults = lambda x: [(0, doubled_node), (1, as_it_is)]
    pair.step(20)
    assert "BadProof" in rejection_errors(pair, "relay_message")
    assert pair.rests()
