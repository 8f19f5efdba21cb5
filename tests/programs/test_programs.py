"""Programs and their runners: permissions of handlers, and isolation of their effects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, ClassVar, cast

import cbor2
import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.config.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.core.frame import Frame, concat, empty_frame, from_table
from causeway.core.vocabulary import Kind
from causeway.programs import BalanceOverflow, Effects, Program, Reject, VectorProgram, find_program_class
from causeway.programs.bundled.messaging import Echo
from causeway.programs.catalogue import PROGRAMS
from causeway.programs.outputs import settle
from causeway.programs.runner import Programs
from causeway.programs.scalar import Context, InsufficientFunds, Reply, Request
from causeway.protocols.shared.execution import Execution
from causeway.protocols.shared.messages import MESSAGE_FIELDS
from tests.tiers import sized

SCHEMA = pa.schema(MESSAGE_FIELDS)
WORD = 2**64


def message(
    kind: Kind,
    sender: int,
    receiver: int,
    payload: bytes = b"",
    *,
    callback: int = 0,
    amount: int = 0,
    code: int = 0,
    method: str = "m",
) -> dict[str, Any]:
    halves = {"amount_high": amount // WORD, "amount_low": amount % WORD}
    ends = {"kind": int(kind), "sender": sender, "receiver": receiver, "callback": callback}
    return {**ends, **halves, "code": code, "deadline": 0, "method": method, "payload": payload}


def request(sender: int, receiver: int, payload: bytes = b"", **more: Any) -> dict[str, Any]:
    return message(Kind.REQUEST, sender, receiver, payload, **more)


def response(sender: int, receiver: int, payload: bytes = b"", **more: Any) -> dict[str, Any]:
    return message(Kind.RESPONSE, sender, receiver, payload, **more)


def frame(*messages: dict[str, Any]) -> Frame:
    return from_table(pa.Table.from_pylist(list(messages), schema=SCHEMA)) if messages else empty_frame(SCHEMA)


def programs(installed: dict[int, str], balance: int = 100) -> Programs:
    count = len(installed)
    rows = {
        "number": pa.array(list(installed), pa.uint64()),
        "name": [f"p{number}" for number in installed],
        "chain": pa.array([0] * count, pa.uint64()),
        "program": list(installed.values()),
        "options": ["{}"] * count,
        "balance": pa.array([Decimal(balance)] * count, pa.decimal128(38, 0)),
    }
    return Programs(Topology(CHAINS_SCHEMA.empty_table(), pa.table(rows, schema=PROGRAMS_SCHEMA)))


@contextmanager
def register_programs(**classes: type[Any]) -> Iterator[None]:
    """Register programs under a name temporarily."""
    PROGRAMS.update(classes)
    yield
    for name in classes:
        del PROGRAMS[name]


def run(
    classes: dict[str, type[Any]], installed: dict[int, str], *messages: dict[str, Any], balance: int = 100
) -> Execution:
    """Run messages, grouped by program, on programs in their initial state."""
    with register_programs(**classes):
        runner = programs(installed, balance)
        accounts, states = runner.genesis(np.array(sorted(installed), dtype=np.uint64))
        return runner.run(frame(*messages), accounts, states)


def output_rows(execution: Execution) -> list[tuple[Any, ...]]:
    """Return (kind, sender, receiver, callback, amount, code, payload) of the output, in order."""
    rows = execution.produced.to_table(SCHEMA).to_pylist()
    names = ("kind", "sender", "receiver", "callback")
    return [
        (*(row[name] for name in names), row["amount_high"] * WORD + row["amount_low"], row["code"], row["payload"])
        for row in rows
    ]


def balances(execution: Execution) -> dict[int, int]:
    names = ("program", "balance_over", "balance_high", "balance_low")
    columns = (execution.accounts[name].tolist() for name in names)
    return {number: (over * WORD + high) * WORD + low for number, over, high, low in zip(*columns, strict=True)}


def failure_rows(execution: Execution) -> list[tuple[int, str]]:
    return list(zip(execution.failures["row"].tolist(), execution.failures["text"].to_pylist(), strict=True))


# ---- scalar programs


def scalar(act: Callable[[Any, Request, Context], Any]) -> dict[str, type[Any]]:
    """Create a scalar program with ``on_request`` being ``act(program, request, context)``."""

    class Acting(Program):
        def initial_state(self) -> Any:
            return {"runs": 0}

        def on_request(self, request: Request, context: Context) -> Any:
            self.state["runs"] += 1
            return act(self, request, context)

    return {"acting": Acting}


def state_of(execution: Execution, name: str = "acting") -> list[Any]:
    found: list[Any] = cbor2.loads(execution.programs[name]["state"][0].as_py())
    return found


class Unspeakable(Exception):
    """Program whose representation fails."""

    def __str__(self) -> str:
        raise ValueError("no words")


def raising(error: BaseException) -> Callable[[Any, Request, Context], Any]:
    def act(program: Any, request: Request, context: Context) -> Any:
        context.call(9, "m", amount=50)
        raise error

    return act


def calling(*arguments: Any, **named_arguments: Any) -> Callable[[Any, Request, Context], Any]:
    def act(program: Any, request: Request, context: Context) -> Any:
        context.call(*arguments, **named_arguments)
        return b""

    return act


def keep(what: Any) -> Callable[[Any, Request, Context], Any]:
    def act(program: Any, request: Request, context: Context) -> Any:
        program.state["kept"] = what
        return b""

    return act


@pytest.mark.parametrize(
    ("act", "code", "text"),
    [
        (raising(ValueError("no")), 5, "ValueError: no"),
        (raising(Reject("not today")), 4, "not today"),
        (raising(Unspeakable()), 5, "Unspeakable"),
        (raising(ValueError("\ud800 is no text")), 5, "ValueError: \\ud800 is no text"),
        (raising(SystemExit(3)), 5, "SystemExit: 3"),
        (calling(9, "m", amount=101), 5, "InsufficientFunds: balance 100, attached 101"),
        (calling(9, "m", amount=-1), 5, "ValueError: amount -1 is negative"),
        (calling(-1, "m"), 5, "ValueError: receiver -1 is no program number"),
        (calling(2**64, "m"), 5, "ValueError: receiver 18446744073709551616 is no program number"),
        (calling(9, "m", "text"), 5, "TypeError: payload is str, allowed: bytes"),
        (calling(9, "\ud800"), 5, "UnicodeEncodeError: "),
        (calling("nine", "m"), 5, "UnknownProgram: no program is called 'nine'"),
        (calling(9.5, "m"), 5, "TypeError: "),
        (lambda program, request, context: "text", 5, "TypeError: payload is str, allowed: bytes"),
        (lambda program, request, context: (b"", 8), 5, "ExceedsAttached: accept 8 is not between 0 and the"),
        (lambda program, request, context: (b"", -1), 5, "ExceedsAttached: accept -1 is not between 0"),
        (lambda program, request, context: context.answer([1, 99, 7, 0], b""), 5, "NoOpenRequest: no open request of"),
        (lambda program, request, context: context.answer([1, 3, 8, 0], b""), 5, "NoOpenRequest: no open request of 1"),
        (keep(object()), 5, "UnencodableState: state['kept'] is a object; a program keeps numbers, text, bytes"),
        (keep({1, 2}), 5, "UnencodableState: state['kept'] is a set;"),
        (keep([{"at": (1, 2)}]), 5, "UnencodableState: state['kept'][0]['at'] is a tuple;"),
        (
            keep({(1, 2): 0}),
            5,
            "UnencodableState: state['kept'] has the key (1, 2), a tuple; the keys of a dictionary are",
        ),
        (lambda program, request, context: context.call(9, "m", note={1}), 5, "UnencodableState: note is a set;"),
    ],
)
def test_failing_handler_is_reverted_and_answered(act: Any, code: int, text: str) -> None:
    execution = run(scalar(act), {5: "acting"}, request(1, 5, b"x", callback=3, amount=7))
    ((kind, sender, receiver, callback, amount, found, payload),) = output_rows(execution)
    assert (kind, sender, receiver, callback, amount, found) == (Kind.RESPONSE, 5, 1, 3, 7, code)
    assert payload.decode().startswith(text)
    assert balances(execution) == {5: 100}
    assert execution.accounts["next_callback"].tolist() == [0]
    assert state_of(execution) == [{"runs": 0}, {}, {}]
    assert failure_rows(execution) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("on_reject", "on_reply"),
        ("on_call", "on_request"),
        ("on_init", "initial_state"),
        ("on_requests", "on_request"),
        ("on_reqest", "on_request"),
        ("onRequest", "on_request"),
        ("on_replies", "on_reply"),
        ("on_ingres", "on_ingress"),
        ("on__reply", "on_reply"),
    ],
)
def test_unreachable_handler_is_rejected_at_class_definition(name: str, meant: str) -> None:
    with pytest.raises(InvalidInput, match=rf"Asker.{name}: no such handler; did you mean {meant}\?$"):
        type("Asker", (Program,), {name: lambda self, message, context: None, "__qualname__": "Asker"})
    for own in ("on_sale", "on", "once", "only_requests", "request", "on_price", "onward"):
        type("Helper", (Program,), {own: lambda self: None})  # isolated effects


def test_ctrl_c_is_not_a_reject() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(scalar(raising(KeyboardInterrupt())), {5: "acting"}, request(1, 5))


def test_each_request_is_answered_once() -> None:
    def twice(program: Any, request: Request, context: Context) -> Any:
        context.answer(request.ref, b"one")
        return b"two"

    ((*_, code, payload),) = output_rows(run(scalar(twice), {5: "acting"}, request(1, 5, callback=3)))
    assert (code, payload) == (5, b"NoOpenRequest: no open request of 1 under callback 3")

    def later(program: Any, request: Request, context: Context) -> Any:
        if request.method == "keep":
            program.state["kept"] = request.ref
            return None
        context.answer(program.state["kept"], b"late", accept=2)
        return b"now"

    asked = request(1, 5, callback=3, amount=7, method="keep"), request(2, 5, callback=0), request(2, 5, callback=1)
    execution = run(scalar(later), {5: "acting"}, *asked)
    assert [(row[2], row[4], row[5], row[6]) for row in output_rows(execution)] == [
        (2, 0, 0, b"now"),
        (1, 5, 0, b"late"),
        (2, 0, 5, b"NoOpenRequest: no open request of 1 under callback 3"),
    ]
    assert balances(execution) == {5: 102}
    assert state_of(execution)[2] == {}


def test_open_request_is_stored_with_its_amount() -> None:
    execution = run(scalar(lambda *_: None), {5: "acting"}, request(1, 5, callback=3, amount=7))
    assert state_of(execution)[2] == {(1, 3, 7, 0): 1}
    assert output_rows(execution) == []


def test_answer_precedes_its_amount() -> None:
    def act(program: Any, request: Request, context: Context) -> Any:
        context.call(9, "m", amount=100)
        assert context.balance == 0
        return b"answer", 7

    execution = run(scalar(act), {5: "acting"}, request(1, 5, amount=7))
    assert [row[0] for row in output_rows(execution)] == [Kind.RESPONSE, Kind.REQUEST]
    assert balances(execution) == {5: 7}


def test_balance_never_exceeds_128_bits() -> None:
    high = 10**38 - 1
    takes = scalar(lambda program, request, context: (b"", request.amount))
    asked = [request(1, 5, callback=place, amount=10**38) for place in range(4)]
    execution = run(takes, {5: "acting"}, *asked, balance=high)
    assert [row[5] for row in output_rows(execution)] == [0, 0, 5, 5]
    assert [row[4] for row in output_rows(execution)] == [0, 0, 10**38, 10**38], "what was not accepted goes back"
    text = f"BalanceOverflow: balance {high + 2 * 10**38}, accepted {10**38}, at most 2**128 - 1"
    assert output_rows(execution)[2][6] == text.encode()
    assert balances(execution) == {5: high + 2 * 10**38}


class TakesAll(VectorProgram):
    """Program that accepts the whole amount of a request."""

    def handle(self, batch: Frame, state: Frame) -> Effects:
        rows = np.flatnonzero(batch["kind"] == Kind.REQUEST)
        asked = batch.take(rows)
        answers = {"row": rows, "code": np.zeros(len(rows), dtype=np.uint8), "payload": asked["payload"]}
        accepted = {"accepted_high": asked["amount_high"], "accepted_low": asked["amount_low"]}
        return Effects(state, answers=Frame({**answers, **accepted}, len(rows)))


@pytest.mark.parametrize(
    "form", [{"acting": TakesAll}, scalar(lambda program, request, context: (b"", request.amount))]
)
def test_refund_is_never_rejected_or_lost(form: dict[str, type[Any]]) -> None:
    full, back = 2**128 - 1, 2**128 - 5
    inputs = [request(1, 5, amount=full), response(2, 5, amount=back), request(1, 5, callback=1, amount=1)]
    execution = run(form, {5: "acting"}, *inputs, balance=0)
    assert [row[5] for row in output_rows(execution)] == [0, 5]
    assert balances(execution) == {5: full + back}


def test_no_call_carries_more_than_128_bits() -> None:
    def spend(program: Program, request: Request, context: Context) -> bytes:
        context.call(9, "m", amount=context.balance)
        return b""

    inputs = [response(2, 5, amount=2**128 - 1), request(1, 5)]
    execution = run(scalar(spend), {5: "acting"}, *inputs, balance=7)
    assert output_rows(execution)[0][6] == f"BalanceOverflow: attached {2**128 + 6}, at most 2**128 - 1".encode()
    assert balances(execution) == {5: 2**128 + 6}


def test_response_stays_delivered_when_its_handler_raises() -> None:
    class Raises(Program):
        def on_request(self, request: Request, context: Context) -> None:
            context.call(1, "m", note="noted")

        def on_reply(self, reply: Reply, context: Context) -> None:
            self.state["seen"] = reply.note
            raise ValueError(reply.note)

    answer = message(Kind.RESPONSE, 1, 5, b"", callback=0, amount=11)
    execution = run({"raises": Raises}, {5: "raises"}, request(1, 5), answer)
    assert failure_rows(execution) == [(1, "ValueError: noted")]
    assert balances(execution) == {5: 111}
    state, notes, _ = state_of(execution, "raises")
    assert (state, notes) == ({}, {})


def test_failed_user_messages_are_reported() -> None:
    execution = run({}, {5: "fan_out", 6: "scalar_echo"}, message(Kind.INGRESS, 7, 6, b"x", method="go"))
    assert failure_rows(execution) == [(0, "NotImplementedError: no ingress method go")]


# ---- vectorised programs


class Picky(VectorProgram):
    """Echo that accepts attached amounts and counts; a payload ``bad`` breaks it anywhere in a batch."""

    schema: ClassVar[pa.Schema] = pa.schema(
        [pa.field("program", pa.uint64(), nullable=False), pa.field("seen", pa.uint64(), nullable=False)]
    )
    batches: ClassVar[list[int]] = []

    def handle(self, batch: Frame, state: Frame) -> Effects:
        self.batches.append(len(batch))
        if b"bad" in batch["payload"].to_pylist():
            raise ValueError("bad payload")
        rows = np.flatnonzero(batch["kind"] == Kind.REQUEST)
        places = np.searchsorted(state["program"], batch["receiver"])
        seen = state["seen"] + np.bincount(places, minlength=len(state)).astype(np.uint64)
        asked = batch.take(rows)
        answers = Frame(
            {
                "row": rows,
                "code": np.zeros(len(rows), dtype=np.uint8),
                "payload": asked["payload"],
                "accepted_low": asked["amount_low"],
            }
        )
        calls = Frame(
            {
                "row": rows,
                "receiver": asked["sender"],
                "method": asked["method"],
                "payload": asked["payload"],
                "amount_low": asked["callback"],
            }
        )
        return Effects(state.with_columns(seen=seen), answers=answers, calls=calls)


def traffic(instances: int, each: int, bad: set[int]) -> list[dict[str, Any]]:
    return [
        request(1, 10 + number // each, b"bad" if number in bad else b"ok", callback=number % 3, amount=number)
        for number in range(instances * each)
    ]


def outcome(execution: Execution) -> tuple[Any, ...]:
    seen = dict(
        zip(execution.programs["picky"]["program"].tolist(), execution.programs["picky"]["seen"].tolist(), strict=True)
    )
    return output_rows(execution), balances(execution), seen, execution.accounts["next_callback"].tolist()


@pytest.mark.parametrize("bad", [set(), {0}, {7}, {59}, {0, 1, 2}, {3, 30, 31}, set(range(60))])
def test_invalid_message_affects_only_itself_in_a_batch(bad: set[int]) -> None:
    messages = traffic(20, 3, bad)
    installed = dict.fromkeys(range(10, 30), "picky")
    together = run({"picky": Picky}, installed, *messages)
    rejected = [row for row in output_rows(together) if row[5] == 5]
    assert [row[3] for row in rejected] == [number % 3 for number in sorted(bad)]
    assert all(row[6] == b"ValueError: bad payload" for row in rejected)
    # One by one, each with the state of the one before.
    with register_programs(picky=Picky):
        runner = programs(installed)
        accounts, states = runner.genesis(np.array(sorted(installed), dtype=np.uint64))
        parts, origins = [], []
        for place, one in enumerate(messages):
            alone = runner.run(frame(one), accounts, states)
            accounts, states = alone.accounts, dict(alone.programs)
            parts.append(alone.produced)
            origins += [place] * len(alone.produced)
    apart = Execution(
        concat(parts), np.array(origins), together.failures, accounts, states, together.raised, together.asked
    )
    assert outcome(apart) == outcome(together)
    assert together.origins.tolist() == origins


def test_invalid_message_is_located_by_bisection() -> None:
    Picky.batches.clear()
    run({"picky": Picky}, dict.fromkeys(range(10, 110), "picky"), *traffic(100, 3, {150}))
    assert len(Picky.batches) < 25, "not one call for each of a hundred instances"
    assert Picky.batches[0] == 300


def test_call_beyond_the_balance_fails_its_message() -> None:
    messages = [request(1, 10, b"ok", callback=callback) for callback in (60, 41, 40)]
    execution = run({"picky": Picky}, {10: "picky"}, *messages)
    assert [(row[0], row[5], row[6]) for row in output_rows(execution) if row[0] == Kind.RESPONSE] == [
        (Kind.RESPONSE, 0, b"ok"),
        (Kind.RESPONSE, 5, b"InsufficientFunds: balance 40, attached 41"),
        (Kind.RESPONSE, 0, b"ok"),
    ]
    assert balances(execution) == {10: 0}


def test_accepted_amounts_are_subtracted_over_both_words() -> None:
    def effects(batch: Frame, state: Frame) -> Effects:
        return Effects(state, answers=answer(accepted_low=5, accepted_high=1))

    execution = run(vectorised(effects), {10: "picky"}, request(1, 10, amount=3 * WORD + 2))
    assert [row[4] for row in output_rows(execution)] == [2 * WORD - 3]
    assert balances(execution) == {10: 100 + WORD + 5}


def vectorised(effects: Callable[[Frame, Frame], Effects]) -> dict[str, type[Any]]:
    class Acting(Picky):
        def handle(self, batch: Frame, state: Frame) -> Effects:
            return effects(batch, state)

    return {"picky": Acting}


def answer(row: Any = 0, code: Any = 0, payload: Any = b"", **columns: Any) -> Frame:
    more = {name: np.array([value], dtype=np.uint64) for name, value in columns.items()}
    return Frame({"row": np.array([row]), "code": np.array([code]), "payload": pa.array([payload]), **more})


def a_call(row: int = 0, receiver: Any = 9, method: Any = "m", payload: Any = b"") -> Frame:
    columns = {"row": np.array([row]), "receiver": np.array([receiver])}
    return Frame({**columns, "method": pa.array([method]), "payload": pa.array([payload])})


def mutating(batch: Frame, state: Frame) -> Effects:
    state["seen"][0] = 99
    raise AssertionError("unreachable")


@pytest.mark.parametrize(
    ("effects", "text"),
    [
        (lambda batch, state: Effects(state, answers=answer(row=-1)), "row must be from 0 to 0"),
        (lambda batch, state: Effects(state, answers=answer(row=1)), "row must be from 0 to 0"),
        (lambda batch, state: Effects(state, calls=a_call(row=1)), "row must be from 0 to 0"),
        (lambda batch, state: Effects(state, answers=answer(code=256)), "numbers must be whole"),
        (lambda batch, state: Effects(state, answers=answer(code=0.5)), "numbers must be whole"),
        (lambda batch, state: Effects(state, answers=answer(accepted_low=8)), "accepts more than its request"),
        (
            lambda batch, state: Effects(state, answers=answer(accepted_low=0, accepted_high=1)),
            "accepts more than its request",
        ),
        (lambda batch, state: Effects(state, answers=answer(payload=None)), "nulls"),
        (lambda batch, state: Effects(state, calls=a_call(receiver=-1)), "numbers must be whole"),
        (lambda batch, state: Effects(state, calls=a_call(method=None)), "nulls"),
        (lambda batch, state: Effects(state, answers=concat([answer(), answer()])), "at most once"),
        (lambda batch, state: Effects(state.slice(0, 0)), "instances of the state before"),
        (lambda batch, state: Effects(state.with_columns(seen=np.array([0.5]))), "numbers must be whole"),
        (mutating, "read-only"),
        (lambda batch, state: None, "handle returned NoneType, allowed: Effects"),
        (lambda batch, state: Effects(state, answers=answer(more=1)), "answers has a column more; allowed: row, code"),
        (
            lambda batch, state: Effects(state, answers=answer().select(["row", "code"])),
            "has no column payload",
        ),
        (lambda batch, state: Effects(state, answers=answer(row=0.5)), "row is of type float64"),
        (
            lambda batch, state: Effects(state.with_columns(more=state["seen"])),
            "state has a column more",
        ),
        (lambda batch, state: Effects(state.select(["program"])), "state has no column seen"),
        (lambda batch, state: Effects(cast(Any, {})), "state is dict, allowed: a Frame"),
    ],
)
def test_forbidden_effects_fail_their_handler(effects: Any, text: str) -> None:
    execution = run(vectorised(effects), {10: "picky"}, request(1, 10, amount=7))
    ((*_, amount, code, payload),) = output_rows(execution)
    assert (amount, code) == (7, 5)
    assert text in payload.decode()
    assert balances(execution) == {10: 100}
    assert execution.programs["picky"]["seen"].tolist() == [0]


def test_answer_to_an_unknown_request_is_a_failure() -> None:
    wrong = vectorised(lambda batch, state: Effects(state, answers=answer()))
    execution = run(wrong, {10: "picky"}, message(Kind.RESPONSE, 1, 10, amount=5))
    assert output_rows(execution) == []
    ((row, text),) = failure_rows(execution)
    assert (row, text) == (0, "ValueError: answers must name each request at most once")
    assert balances(execution) == {10: 105}, "the refund came in"


def test_columns_of_other_types_are_cast_to_message_types() -> None:
    def effects(batch: Frame, state: Frame) -> Effects:
        return Effects(
            state.with_columns(seen=np.array([3], dtype=np.int8)), answers=answer(payload="text"), calls=a_call()
        )

    execution = run(vectorised(effects), {10: "picky"}, request(1, 10))
    assert [(row[0], row[2], row[6]) for row in output_rows(execution)] == [
        (Kind.RESPONSE, 1, b"text"),
        (Kind.REQUEST, 9, b""),
    ]
    assert execution.programs["picky"]["seen"].dtype == np.uint64


def test_unchanged_state_keeps_its_object() -> None:
    with register_programs():
        runner = programs({10: "echo", 11: "caller"})
        accounts, states = runner.genesis(np.array([10, 11], dtype=np.uint64))
        after = runner.run(frame(request(1, 10, b"x")), accounts, states)
        assert after.accounts is accounts
        assert all(after.programs[name] is states[name] for name in states)


# ---- balances


KINDS = st.sampled_from([Kind.REQUEST, Kind.RESPONSE])
AMOUNTS = st.sampled_from([0, 1, 5, 99, 2**62, 2**64 - 1, 2**64, 2**90, 2**127, 2**128 - 1])


@settings(max_examples=sized(68, 750), deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), KINDS, AMOUNTS, st.lists(AMOUNTS, max_size=3), AMOUNTS),
        max_size=8,
    ),
    st.sampled_from([0, 10, 2**63, 2**64 + 3, 2**100, 2**128 - 2, 2**128 + 4]),
)
def test_settlement_is_sequential_arithmetic(rows: list[tuple[int, Kind, int, list[int], int]], start: int) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    inputs = frame(*(message(kind, 1, owner, amount=attached) for owner, kind, attached, _, _ in rows))
    held, texts = dict.fromkeys(range(3), start), []
    for owner, kind, attached, calls, accepted in rows:
        held[owner] += attached if kind == Kind.RESPONSE else 0
        for amount in calls:
            if amount > held[owner]:
                texts.append(f"balance {held[owner]}, attached {amount}")
            held[owner] -= amount
        if kind == Kind.REQUEST:
            if accepted and held[owner] + accepted >= WORD**2:
                texts.append(f"balance {held[owner]}, accepted {accepted}, at most 2**128 - 1")
            held[owner] += accepted

    def amounts(prefix: str, of: list[tuple[int, int]]) -> Frame:
        numbers = {"row": np.array([row for row, _ in of], dtype=np.int64)}
        high, low = [amount // WORD for _, amount in of], [amount % WORD for _, amount in of]
        halves = {f"{prefix}_high": np.array(high, dtype=np.uint64), f"{prefix}_low": np.array(low, dtype=np.uint64)}
        return Frame({**numbers, **halves}, len(of))

    going = amounts("amount", [(place, amount) for place, row in enumerate(rows) for amount in row[3]])
    taken = amounts("accepted", [(place, row[4]) for place, row in enumerate(rows) if row[1] == Kind.REQUEST])
    halves = {"balance_over": start // WORD**2, "balance_high": start // WORD % WORD, "balance_low": start % WORD}
    accounts = Frame(
        {
            "program": np.arange(3, dtype=np.uint64),
            **{name: np.full(3, value, dtype=np.uint64) for name, value in halves.items()},
        }
    )
    if texts:
        with pytest.raises((InsufficientFunds, BalanceOverflow)) as raised:
            settle(accounts, inputs, taken, going)
        assert str(raised.value) == texts[0]
        return
    after = settle(accounts, inputs, taken, going)
    words = zip(*(after[f"balance_{word}"].tolist() for word in ("over", "high", "low")), strict=True)
    found = [(over * WORD + high) * WORD + low for over, high, low in words]
    assert found == [held[owner] for owner in range(3)]


# ---- the types of a state


def with_schema(*columns: tuple[str, pa.DataType]) -> type[VectorProgram]:
    class Kept(VectorProgram):
        schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])

    return Kept


PROGRAM_COLUMN = ("program", pa.uint64())


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([PROGRAM_COLUMN, ("mean", pa.float64())], "column mean is of type double; allowed: uint8, "),
        ([PROGRAM_COLUMN, ("at", pa.timestamp("ns"))], "column at is of type timestamp"),
        ([PROGRAM_COLUMN, ("all", pa.list_(pa.uint8()))], "column all is of type list"),
        ([PROGRAM_COLUMN, ("amount", pa.decimal128(38, 0))], "column amount is of type decimal128"),
        ([PROGRAM_COLUMN, ("a", pa.uint8()), ("a", pa.uint8())], "one name"),
        ([("mean", pa.uint64()), PROGRAM_COLUMN], "the first column of its schema must be program"),
        ([("program", pa.int64())], "the first column of its schema must be program"),
    ],
)
def test_state_without_a_root_is_rejected_at_deployment(columns: list[Any], said: str) -> None:
    with register_programs(kept=with_schema(*columns)), pytest.raises(InvalidInput, match=f'program "kept": .*{said}'):
        programs({5: "kept"})


ROOTED = [
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.bool_(), pa.string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())),
]


def test_initial_state_of_every_type_round_trips() -> None:
    columns = [PROGRAM_COLUMN, *((f"c{place}", kind) for place, kind in enumerate(ROOTED))]
    with register_programs(kept=with_schema(*columns)):
        runner = programs({5: "kept", 7: "kept"})
        _, states = runner.genesis(np.array([5, 7], dtype=np.uint64))
        first = states["kept"]
        read = from_table(first.to_table(runner.schemas()["kept"]))
        for name, kind in columns[1:]:
            assert (
                first[name].dtype == read[name].dtype
                if isinstance(read[name], np.ndarray)
                else first[name].type == kind
            )
            empty = "" if kind in (ROOTED[-1], pa.string()) else b"" if kind == pa.binary() else 0
            assert first[name].tolist() == read[name].tolist() == [empty] * 2


@pytest.mark.parametrize("raises", [False, True])
def test_program_without_an_initial_state_is_rejected(raises: bool) -> None:
    class Nothing(VectorProgram):
        schema = pa.schema([pa.field("program", pa.uint64()), pa.field("seen", pa.uint32())])

        def initial_state(self, instances: Any) -> Frame:
            if raises:
                raise RuntimeError("no")
            return Frame({"program": instances, "seen": np.array([-1] * len(instances))}, len(instances))

    with (
        register_programs(nothing=Nothing),
        pytest.raises(InvalidInput, match='program "nothing" has no first state: '),
    ):
        programs({5: "nothing"}).genesis(np.array([5], dtype=np.uint64))


# ---- the registry


def test_programs_by_name() -> None:
    assert find_program_class("echo") is Echo
    assert find_program_class("causeway.programs.bundled.messaging:Echo") is Echo
    for wrong, said in (
        ("eco", "unknown"),
        ("causeway.programs.bundled.messaging:Eco", "cannot be loaded"),
        ("sys:path", "not a subclass"),
    ):
        with pytest.raises(InvalidInput, match=said):
            find_program_class(wrong)
    assert sys.path
