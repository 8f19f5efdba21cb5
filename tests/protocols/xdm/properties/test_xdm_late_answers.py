"""Late answers and their `Accepted` responses in separate lanes: each call is answered once in any order.

Kernel and oracle run side by side and are equal after every block.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.order import stable_order

from causeway.core.frame import Frame, concat
from causeway.protocols.xdm.errors import MESSENGER_ERRORS, MessengerError
from causeway.protocols.xdm.state import NOBODY, RequestKind, State
from causeway.protocols.xdm.tables import INDEXED, OUTBOX_SCHEMA, RESPONSES_SCHEMA
from tests.spec.xdm.channels import new_outbox_message
from tests.spec.xdm.errors import DispatchError, dispatch
from tests.spec.xdm.guarantees import calls_are_answered_once, conservation, transfers_end_once, violations
from tests.spec.xdm.options import Options
from tests.spec.xdm.programs import PROGRAMS, Answer, encode
from tests.spec.xdm.proofs import Kind
from tests.spec.xdm.reported import waiting_calls
from tests.spec.xdm.state import ChainNode
from tests.spec.xdm.values import (
    CONSENSUS,
    Chain,
    CollectedFee,
    CrossDomainMessage,
    EndpointCall,
    EndpointRequest,
    EndpointResponse,
    Message,
    Tag,
)
from tests.support.xdm.properties.xdm_both import Both, Carriers, at_once
from tests.support.xdm.properties.xdm_carriers import Alter, Copies, as_it_is
from tests.support.xdm.properties.xdm_driven import ECHO, WIDTH, number_of
from tests.support.xdm.properties.xdm_kernel_rows import position_of, row_dicts
from tests.support.xdm.properties.xdm_networks import ALICE, BOB, FUNDS, ROOT
from tests.tiers import sized

FAST = Options(archiving_depth=1, challenge_period=1, resubmit_after=4)
SLOW = b"~1"
"""What is answered a block later."""
ROUND_TRIP = 14
slow = pytest.mark.slow


def open_domains(options: Options = FAST, *others: Chain) -> Both:
    """Create domains 0 and 1 with an open channel, and channels of 0 with ``others``; next nonces are 1."""
    both = Both(options, 1 + max(1, *others) if others else 2)
    for other in (1, *others):
        both.initiate(0, other)
    both.step(ROUND_TRIP)
    return both


def delay_item(kind: Kind, src: Chain, nonce: int, blocks: int | None, alter: Alter = as_it_is) -> Carriers:
    """Create carriers that delay one item by blocks (None: until it is proved again), and no others."""
    gone: Counter[int] = Counter()

    def carry(x: CrossDomainMessage, what: Kind) -> Copies:
        if (what, x.src, x.nonce) != (kind, src, nonce):
            return at_once(x, what)
        gone[0] += 1
        if blocks is None:
            return [] if gone[0] == 1 else at_once(x, what)
        return [(blocks, alter)]

    return carry


def balance(both: Both, chain: Chain, by: bytes = ALICE) -> int:
    return both.kernel.balance(chain, by)


def answer_rows(both: Both, chain: Chain) -> list[str | None]:
    """Return the answers to programs of a chain."""
    return [e.result for e in both.kernel.events() if e.event == "CallAnswered" and e.chain == chain]


def error_results(both: Both, event: str, chain: Chain) -> list[str | None]:
    found = [e.result for e in both.kernel.events() if e.event == event and e.chain == chain]
    return [result for result in found if result != "Ok"]


def assert_ended(both: Both) -> None:
    """Assert that the network comes to rest, every call has its answer, and the guarantees hold."""
    both.step(2)
    for _ in range(5 * ROUND_TRIP):
        if both.rests():
            break
        both.step()
    assert both.rests()
    both.compare_events()
    for record in (both.kernel.record(), both.oracle.record()):
        assert violations(record) == []
        assert waiting_calls(record) == []


def fees(both: Both) -> int:
    return sum(e.src_fee + e.dst_fee for e in both.kernel.events() if e.event == "OutboxMessage" and e.chain == 0)


# ---- any order


@pytest.mark.parametrize("blocks", [None, 1, pytest.param(2, marks=slow), pytest.param(9, marks=slow)])
def test_late_answer_overtaking_the_response_is_accepted(blocks: int | None) -> None:
    """With one block of delay both arrive in one block, in which requests precede responses."""
    both = open_domains()
    both.faults = delay_item("response", 1, 1, blocks)
    both.call(0, 1, SLOW, 40)
    overtaken = False
    for _ in range(ROUND_TRIP):
        both.step()
        overtaken |= bool(both.kernel.net.state["open_calls"]["answered"].any())
    assert overtaken == (blocks != 1)
    assert_ended(both)
    assert answer_rows(both, 0) == ["Ok"]
    record = both.kernel.record()
    again = [e for e in record.events if e.event == "CallAnswered"]
    assert calls_are_answered_once(replace(record, events=[*record.events, *again])), "the checker would find a second"
    assert error_results(both, "InboxMessageResponse", 0) == []
    assert balance(both, 0) == FUNDS[b"alice"] - fees(both), "what was attached is back"


def test_pool_without_source_tags_lets_late_answers_overtake() -> None:
    both = Both(replace(FAST, pool_tag="without_src"), 2)
    both.initiate(CONSENSUS, 0)
    both.initiate(CONSENSUS, 1)
    both.step(2 * ROUND_TRIP)
    both.call(CONSENSUS, 0, b"at once", 0)
    both.call(CONSENSUS, 1, SLOW, 40, BOB)
    both.step(ROUND_TRIP)
    assert_ended(both)
    assert answer_rows(both, CONSENSUS) == ["Ok", "Ok"]
    assert Counter(e.error for e in both.kernel.events() if e.event == "Refused")["Stale"] > 0


def test_immediately_answered_call_is_not_taken_for_a_late_one() -> None:
    both = open_domains()
    both.faults = delay_item("response", 1, 1, 6)
    both.call(0, 1, b"at once", 40)
    both.call(0, 1, SLOW, 40, BOB)
    both.step(ROUND_TRIP)
    assert answer_rows(both, 0) == ["Ok"], "the late one, though its response comes behind the other"
    assert_ended(both)
    assert answer_rows(both, 0) == ["Ok", "Ok"]


# ---- channels and tags


@pytest.mark.parametrize("blocks", [pytest.param(0, marks=slow), 9])
def test_late_answer_to_a_closed_channel_is_rejected_and_reported_once(blocks: int) -> None:
    both = open_domains()
    both.faults = delay_item("response", 1, 1, blocks)
    both.call(0, 1, SLOW, 40)
    both.step(7)
    both.close(0, 1, 0, ROOT)
    assert_ended(both)
    assert answer_rows(both, 0) == ["Err"]
    assert error_results(both, "InboxMessageResponse", 0) == ["InvalidChannelState"]
    back = [e for e in both.kernel.events() if e.event == "Transfer" and e.kind == "back"]
    assert [(e.chain, e.amount) for e in back] == [(1, 40)], "who answered has what it wanted to give back"


@pytest.mark.parametrize("blocks", [30, pytest.param(0, marks=slow)])
def test_late_answer_waits_for_another_channel_if_its_own_is_closed(blocks: int) -> None:
    """Call and response use channel 0, the answer channel 1, before or after the response."""
    both = open_domains()
    both.faults = delay_item("response", 1, 1, blocks)
    both.call(0, 1, b"~9", 40)
    both.step(8)
    both.close(1, 0, 0, ROOT)
    both.initiate(1, 0)
    both.step(10)
    assert len(both.kernel.net.state["waiting"]) == 1
    assert_ended(both)
    assert answer_rows(both, 0) == ["Ok"]
    assert balance(both, 0) == FUNDS[b"alice"] - fees(both)


@pytest.mark.parametrize("closer", [1, pytest.param(0, marks=slow)])
def test_late_answer_without_a_channel_is_given_up_and_reported_once(closer: Chain) -> None:
    """The channel is closed by either side before the program answers."""
    both = open_domains()
    both.call(0, 1, b"~9", 40)
    both.step(7 if closer else 3)
    both.close(closer, 1 - closer, 0, ROOT)
    assert_ended(both)
    assert answer_rows(both, 0) == ["Err"]
    assert error_results(both, "InboxMessageResponse", 0) == [], "no answer travels"
    assert [e for e in both.kernel.events() if e.event == "Transfer" and e.kind == "back"] == []
    assert balance(both, 0) == FUNDS[b"alice"] - fees(both) - 40, "what was attached is with who was called"
    assert both.kernel.net.state["open_calls"]["callback"].tolist() == []
    assert len(both.kernel.net.state["waiting"]) == 0


@pytest.mark.parametrize(("first", "answered"), [pytest.param("response", [], marks=slow), ("answer", ["Ok"])])
def test_altered_response_tag_loses_only_an_outstanding_answer(first: str, answered: list[str]) -> None:
    """D-9: under ``trust_tag`` the response is not inspected, whatever follows."""
    both = open_domains(replace(FAST, trust_tag="on"))
    both.faults = delay_item("response", 1, 1, 0 if first == "response" else 6, lambda x: replace(x, tag=Tag(4)))
    both.call(0, 1, SLOW, 0)
    both.step(ROUND_TRIP + 10)
    assert answer_rows(both, 0) == answered
    assert error_results(both, "OutboxMessageResult", 0) == ["WeightTagNotMatch"]
    assert len(both.kernel.net.state["open_calls"]) == 0
    assert error_results(both, "InboxMessageResponse", 0) == ([] if answered else ["InvalidMessagePayload"])


# ---- misbehaving chains


def forge(both: Both, chain: Chain, foreign: Chain, answer: Answer) -> None:
    """Send an answer from a runtime without a program's action."""
    content = encode(answer)

    def at_oracle(c: ChainNode) -> None:
        request = EndpointRequest(PROGRAMS, PROGRAMS, content)
        nonce = new_outbox_message(c, foreign, 0, EndpointCall(request, CollectedFee(0, 0)))
        c.log("FeeBurn", foreign=foreign, channel_id=0, nonce=nonce)

    def at_kernel(state: State) -> State:
        channels = state["channels"]
        mine = (channels["chain"] == position_of(chain)) & (channels["foreign"] == position_of(foreign))
        nonce = int(channels["next_outbox"][mine][0])
        latest = int(channels["next_response"][mine][0])
        values: dict[str, int | bytes] = {
            **{"source": position_of(chain), "destination": position_of(foreign), "index": nonce},
            **{"sent": both.kernel.net.tick + 2, "asked": RequestKind.ENDPOINT, "payload": content},
            **{"src_endpoint": PROGRAMS, "dst_endpoint": PROGRAMS, "next_response": latest},
            **{"sender": NOBODY, "receiver": answer.receiver, "callback": answer.callback},
        }
        more = {name: channels[name] + mine.astype(channels[name].dtype) for name in ("next_outbox", "count")}
        outbox = _with_row(state["outbox"], OUTBOX_SCHEMA, values)
        return state.with_tables(outbox=outbox, channels=channels.with_columns(**more).select(channels.names))

    both.rogue(chain, at_oracle, at_kernel)


def _with_row(rows: Frame, schema: pa.Schema, values: dict[str, int | bytes]) -> Frame:
    columns = {}
    for field in schema:
        value = values.get(field.name, b"" if pa.types.is_binary(field.type) else 0)
        plain = pa.types.is_binary(field.type)
        columns[field.name] = (
            pa.array([value], field.type) if plain else np.array([value], field.type.to_pandas_dtype())
        )
    found = concat([Frame({name: rows.column(name) for name in rows.names}, len(rows)), Frame(columns, 1)])
    return found.take(stable_order(*(found[name] for name in INDEXED)))


def answer_of(chain: Chain, caller: int, callback: int, place: int = ECHO) -> Answer:
    return Answer(callback, WIDTH * position_of(chain) + place, caller, 0, 0, b"forged")


CALLER = number_of(0, b"alice")


FORGED = (
    (1, answer_of(1, CALLER, 5), "to a call that was never made"),
    (1, answer_of(1, CALLER, 0, place=1), "by another program"),
    (1, answer_of(1, number_of(0, b"bob"), 0), "to another program, or to a transfer"),
    (2, answer_of(2, CALLER, 0), "of another chain"),
    (2, answer_of(1, CALLER, 0), "in the name of another chain's program"),
)


def test_impossible_answer_is_rejected() -> None:
    """Forge it while the call waits for its late response, and while it is open."""
    both = open_domains(FAST, 2)
    both.faults = delay_item("response", 1, 1, 5)
    both.call(0, 1, b"~9", 40)
    both.transfer(0, 1, BOB, 7, BOB)
    for again in (1, 2):
        for src, forged, _ in FORGED:
            forge(both, src, 0, forged)
        both.step(12 if again == 1 else 7)
        assert error_results(both, "InboxMessageResponse", 0) == ["InvalidMessagePayload"] * len(FORGED) * again
        calls = both.kernel.net.state["open_calls"]["answered"].tolist()
        assert calls == ([] if again == 1 else [0]), "it has no response so far, then it is open"
    assert_ended(both)
    assert answer_rows(both, 0) == ["Ok"]


LATE = [(0, 1), (12, 0), (12, 5), *[(6, 5), *product((0, 1, 12), (0, 1, 5))][: sized(0, 10)]]


@pytest.mark.parametrize(
    ("blocks", "apart"),
    [(6, 0), (6, 1), *(pytest.param(*case, marks=slow) for case in LATE)],
)
def test_second_of_two_late_answers_is_rejected(blocks: int, apart: int) -> None:
    """The response precedes both, accompanies one, or follows; they arrive in one block or separately."""
    both = open_domains()
    both.faults = delay_item("response", 1, 1, blocks)
    both.call(0, 1, b"~9", 0)
    both.step(5)
    twice = answer_of(1, CALLER, 0)
    forge(both, 1, 0, twice)
    both.step(apart)
    forge(both, 1, 0, twice)
    assert_ended(both)
    assert answer_rows(both, 0) == ["Ok"]
    assert error_results(both, "InboxMessageResponse", 0) == ["InvalidMessagePayload"] * 2, (
        "the program's own comes last"
    )


LIES: dict[str, bytes | DispatchError] = {
    "an error": dispatch("NoMessageHandler"),
    "of another answer": encode(Answer(0, WIDTH * position_of(1) + ECHO, CALLER, 0, 0, b"again")),
    "of a call": b"\0" + bytes(46),
    "of nothing": b"",
}


@pytest.mark.parametrize("lie", ["an error", *(pytest.param(lie, marks=slow) for lie in sorted(LIES)[1:])])
def test_response_contradicting_the_late_answer_has_no_effect(lie: str) -> None:
    """An answered call was accepted: a later error refunds nothing, and a later answer is ignored."""
    both = open_domains()
    both.faults = delay_item("response", 1, 1, 9)
    both.call(0, 1, SLOW, 40)
    while both.kernel.net.state["responses"]["index"].max(initial=0) == 0:
        both.step()
    replace_response(both, LIES[lie])
    both.step(ROUND_TRIP + 6)
    assert answer_rows(both, 0) == ["Ok"]
    assert error_results(both, "OutboxMessageResult", 0) == ["InvalidMessagePayload"]
    assert balance(both, 0) == FUNDS[b"alice"] - fees(both), "what the answer gave back, and no more"
    assert len(both.kernel.net.state["open_calls"]) == 0
    record = both.kernel.record()
    assert conservation(record) + transfers_end_once(record) + calls_are_answered_once(record) == []


def replace_response(both: Both, result: bytes | DispatchError) -> None:
    """Replace domain 1's response with nonce 1 to domain 0."""
    taken: list[Message] = []

    def without(c: ChainNode) -> None:
        taken.append(c.state.inbox_responses.pop((0, 0, 1)))

    def other(c: ChainNode) -> None:
        c.state.inbox_responses[0, 0, 1] = replace(taken[0], payload=EndpointResponse(result))

    def kept(state: State) -> State:
        rows = state["responses"]
        return state.with_tables(responses=rows.filter(~is_it(rows)))

    def changed(state: State) -> State:
        failed = isinstance(result, DispatchError)
        error = MESSENGER_ERRORS + MessengerError.NoMessageHandler if failed else 0
        values = {**old, "sent": both.kernel.net.tick + 2, "error": error, "payload": b"" if failed else result}
        return state.with_tables(responses=_with_row(state["responses"], RESPONSES_SCHEMA, values))

    def is_it(rows: Frame) -> np.ndarray:
        return np.asarray((rows["source"] == 2) & (rows["destination"] == 1) & (rows["index"] == 1))

    rows = both.kernel.net.state["responses"]
    (old,) = row_dicts(rows.filter(is_it(rows)))
    for at_oracle, at_kernel in ((without, kept), (other, changed)):
        both.rogue(1, at_oracle, at_kernel)
        both.step()
