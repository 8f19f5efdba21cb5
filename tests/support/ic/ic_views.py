"""What kernel and oracle show, as plain values of one shape: whole states, and what happened in a round."""

from __future__ import annotations

from collections import Counter
from typing import Any

import cbor2
import numpy as np
from causeway_proofs.ic.stream_header import RejectReason

from causeway.core.frame import Frame
from causeway.core.vocabulary import COLLECTED_MESSAGES, NO_CHAIN, Event, Kind, Via
from causeway.protocols.ic.messages import REASON_CODES
from causeway.protocols.ic.state import State
from causeway.protocols.ic.streams.check_slice import INVALID_PAYLOAD
from causeway.protocols.shared.messages import FORGED, LANE, NO_QUEUE
from tests.spec import ic
from tests.spec.ic.state import expected_index, stream_begin, stream_end
from tests.spec.ic.value import NEVER_SENT
from tests.support.ic.ic_harness import TICK_NS, WORD, KernelRun, OracleRun
from tests.support.ic.ic_programs import ACTOR, SCALAR_CALLER

# ---- whole states, side by side


def message_of(frame: Frame, row: int) -> tuple[Any, ...]:
    """A message of the kernel as plain values."""
    number = {name: int(frame[name][row]) for name in ("kind", "sender", "receiver", "callback", "code", "deadline")}
    cycles = int(frame["amount_high"][row]) * WORD + int(frame["amount_low"][row])
    return (*number.values(), cycles, frame["method"][row].as_py(), frame["payload"][row].as_py())


def plain_message(message: ic.Message) -> tuple[Any, ...]:
    """A message of the oracle in the same shape."""
    if isinstance(message, ic.Ingress):
        return (int(Kind.INGRESS), message.user, message.canister, None, 0, 0, 0, message.method, message.payload)
    if isinstance(message, ic.Request):
        return (
            *(int(Kind.REQUEST), message.sender, message.receiver, message.callback, 0, message.deadline),
            *(message.cycles, message.method, message.payload),
        )
    code, payload = (0, message.data) if message.reject is None else (message.reject[0], message.reject[1].encode())
    return (
        *(int(Kind.RESPONSE), message.respondent, message.originator, message.callback, code, message.deadline),
        *(message.refund, "", payload),
    )


def assert_canonical(run: KernelRun, state: State) -> None:
    """Roots are made of rows in their order, so the order is part of the state; no two rows have the same key."""
    for name, frame in state.frames().items():
        order = run.kernel.tables()[name].order
        keys = list(zip(*(frame[column].tolist() for column in order), strict=True))
        assert keys == sorted(set(keys)), f"{name} is not in its order"


def kernel_view(run: KernelRun) -> dict[int, dict[str, Any]]:
    """Everything in the kernel's states, by chain number; rows of canisters by their present host."""
    state, kernel = run.state, run.kernel
    for each in (state, *run.states):
        assert_canonical(run, each)
    registry = kernel.registry(run.tick)
    view: dict[int, dict[str, Any]] = {number: _empty_view() for number in run.numbers}

    def home(canister: int) -> dict[str, Any]:
        numbers = np.array([canister], dtype=np.uint64)
        place = int(registry.host_of(numbers)[0])
        if place < 0:  # on a subnet that has stopped, nothing ends
            place = int(registry.last_hosts(numbers)[0])
            assert place in state.stopped["chain"], f"state of canister {canister}, which is in no subnet"
        return view[run.numbers[place]]

    for name, queues in (
        ("ingress_queues", state.ingress_queues),
        ("input_queues", state.input_queues),
        ("output_queues", state.output_queues),
    ):
        counters, elements = queues.counters, queues.elements
        for row in range(len(counters)):
            number = {column: int(counters[column][row]) for column in counters.names}
            pair = (number.get("sender"), number["receiver"])
            key: Any = number["receiver"] if name == "ingress_queues" else pair
            home(number[queues.keys[0]])[name][key] = (number["next_index"], {})
        for row in range(len(elements)):
            sender, receiver, index = (int(elements[column][row]) for column in ("sender", "receiver", "index"))
            key = receiver if name == "ingress_queues" else (sender, receiver)
            owner = sender if name == "output_queues" else receiver
            message = message_of(elements, row)
            if name == "ingress_queues":
                assert message[3] == index, "the callback of an ingress message is its index"
                message = (*message[:3], None, *message[4:])
            home(owner)[name][key][1][index] = message
            if name == "output_queues":
                home(owner)["sent_times"][sender, receiver, index] = int(elements["sent_tick"][row]) * TICK_NS
    misrouted = state.misrouted.elements
    for row in range(len(misrouted)):
        chain, sender, receiver, index = (
            int(misrouted[column][row]) for column in ("chain", "sender", "receiver", "index")
        )
        view[run.numbers[chain]]["stray_queues"].setdefault((sender, receiver), {})[index] = message_of(misrouted, row)
    stopped = state.frames()["stopped"]
    for row in range(len(stopped)):
        found = (int(stopped["height"][row]), stopped["cause"][row].as_py())
        view[run.numbers[int(stopped["chain"][row])]]["stopped"] = found
    _streams_of_kernel(run, state, view)
    accounts = state.accounts
    for row in range(len(accounts)):
        canister = int(accounts["program"][row])
        over, high, low = (int(accounts[f"balance_{word}"][row]) for word in ("over", "high", "low"))
        balance = (over * WORD + high) * WORD + low
        home(canister)["accounts"][canister] = (balance, int(accounts["next_callback"][row]))
    for originator, callback, *asked in zip(
        *(state.frames()["open_calls"][name].tolist() for name in ("originator", "callback", "respondent", "deadline")),
        strict=True,
    ):
        assert (originator, callback) not in home(originator)["open_calls"]
        home(originator)["open_calls"][originator, callback] = tuple(asked)
    for receiver, sender, turn in zip(
        *(state.frames()["turns"][name].tolist() for name in ("receiver", "sender", "turn")), strict=True
    ):
        home(receiver)["turns"][sender, receiver] = turn
    for receiver, source in zip(
        *(state.frames()["next_sources"][name].tolist() for name in ("receiver", "next_source")), strict=True
    ):
        home(receiver)["next_source"][receiver] = source
    in_hand = state.frames()["in_hand"]
    for row in range(len(in_hand)):
        number = {name: int(in_hand[name][row]) for name in in_hand.names}
        cycles = number["amount_high"] * WORD + number["amount_low"]
        request = (number["originator"], number["callback"], cycles, number["deadline"])
        assert number["count"] > 0
        home(number["respondent"])["in_hand"].setdefault(number["respondent"], {})[request] = number["count"]
    for name, frame in state.programs.items():
        for row in range(len(frame)):
            canister = int(frame["program"][row])
            home(canister)["programs"][canister] = _program_of_kernel(name, frame, row)
    return view


def _empty_view() -> dict[str, Any]:
    names = ("ingress_queues", "input_queues", "output_queues", "stray_queues", "lanes")
    kept = ("accounts", "programs", "open_calls", "in_hand", "sent_times", "turns", "next_source")
    return {name: {} for name in (*names, *kept)} | {"stopped": None}


def _program_of_kernel(name: str, frame: Frame, row: int) -> Any:
    if name in (ACTOR, SCALAR_CALLER):
        state, notes, open_requests, *accepted = cbor2.loads(frame["state"][row].as_py())
        if name == ACTOR:
            return {"state": state, "notes": notes, "open": open_requests, "accepted": accepted[0] if accepted else {}}
        return (state["answered"], state["rejected"], state["malformed"])
    if name == "caller":
        return tuple(int(frame[column][row]) for column in ("answered", "rejected", "malformed"))
    return None


def _streams_of_kernel(run: KernelRun, state: State, view: dict[int, dict[str, Any]]) -> None:
    base, rows = run.kernel.options.index_base, state.streams.counters
    runs: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
    for row in range(len(state.runs)):
        name = tuple(int(state.runs[column][row]) for column in LANE)
        runs.setdefault(name, []).append(  # type: ignore[arg-type]
            (int(state.runs["first"][row]), int(state.runs["count"][row]), int(state.runs["bytes"][row]))
        )
    for row in range(len(rows)):
        lane = {name: int(rows[name][row]) for name in rows.names}
        key = (lane["source"], lane["destination"], lane["substream"])
        assert lane["begin"] <= lane["next_index"]
        assert lane["signals_begin"] <= lane["expected"]
        rejects = {
            int(index): int(reason)
            for destination, source, substream, index, reason in zip(
                *(state.rejects[name].tolist() for name in state.rejects.names), strict=True
            )
            if (destination, source, substream) == key
        }
        assert all(lane["signals_begin"] <= index < lane["expected"] for index in rejects)
        messages = {}
        for frame in run.outbound:
            here = (frame["source"] == key[0]) & (frame["destination"] == key[1]) & (frame["substream"] == key[2])
            here &= (frame["index"] >= np.uint64(lane["begin"])) & (frame["index"] < np.uint64(lane["next_index"]))
            for place in np.flatnonzero(here).tolist():
                messages[int(frame["index"][place])] = message_of(frame, place)
        assert sorted(messages) == list(range(lane["begin"], lane["next_index"])), "streams have no gaps"
        covered = [index for first, count, _ in runs.get(key, []) for index in range(first, first + count)]
        assert [index for index in covered if index >= lane["begin"]] == sorted(messages), "runs cover the stream"
        assert sum(size for _, _, size in runs.get(key, [])) == lane["stream_bytes"]
        if run.kernel.options.limits == "deployed":
            assert lane["stream_bytes"] == sum(256 + len(message[-1]) for message in messages.values())
        signals = {index: rejects.get(index, 0) for index in range(lane["signals_begin"], lane["expected"])}
        if lane["next_index"] == lane["expected"] == base:
            continue
        view[run.numbers[key[0]]]["lanes"][run.numbers[key[1]], key[2]] = (
            *(lane["next_index"], messages, lane["expected"], signals),
        )


def oracle_view(run: OracleRun) -> dict[int, dict[str, Any]]:
    """The same of the oracle's states."""
    view = {}
    for subnet, state in run.states.items():
        mine = view[subnet] = _empty_view()
        for name in ("ingress_queues", "input_queues", "output_queues"):
            for key, queue in getattr(state, name).items():
                elements = {index: plain_message(message) for index, message in queue.elements.items()}
                mine[name][key] = (queue.next_index, elements)
        for key, queue in state.stray_queues.items():
            assert queue.next_index == run.options.index_base + len(queue.elements)
            mine["stray_queues"][key] = {index: plain_message(message) for index, message in queue.elements.items()}
        mine["stopped"] = state.stopped
        mine["sent_times"] = dict(state.sent_times)
        mine["open_calls"] = dict(state.open_calls)
        mine["in_hand"] = dict(state.in_hand)
        mine["turns"] = dict(state.turns)
        mine["next_source"] = dict(state.next_source)
        mine["accounts"] = {
            canister: (state.balances[canister], state.next_callbacks[canister]) for canister in state.programs
        }
        for canister, program in state.programs.items():
            kind = run.scenario.canisters[canister][1]
            if kind == ACTOR:
                mine["programs"][canister] = {part: program[part] for part in ("state", "notes", "open", "accepted")}
            elif kind in ("caller", SCALAR_CALLER):
                mine["programs"][canister] = program
            elif kind == "scalar_echo":
                mine["programs"][canister] = None
        _streams_of_oracle(run, state, mine)
    return view


def _streams_of_oracle(run: OracleRun, state: ic.CanonicalState, mine: dict[str, Any]) -> None:
    base = run.options.index_base
    substreams = {(remote, name) for remote, stream in state.streams.items() for name in stream.msgs}
    substreams |= {(remote, name) for remote, (name, _) in state.expected_xnet_indices}
    for remote, name in substreams:
        stream = state.stream(remote)
        end = stream_end(stream, name, base)
        expected = expected_index(state.expected_xnet_indices, remote, name, base)
        begin = stream_begin(stream, name, base)
        queue = stream.msgs.get(name)
        messages = {} if queue is None else {index: plain_message(m) for index, m in queue.elements.items()}
        assert sorted(messages) == list(range(begin, end))
        signals = {
            index: 0 if verdict.reason is None else int(verdict.reason)
            for (other, index), verdict in stream.signals.items()
            if other == name
        }
        mine["lanes"][remote, _substream(name)] = (end, messages, expected, signals)


def _substream(name: Any) -> int:
    return 0 if name == () else int(name)


# ---- what happened in a round, side by side

Happened = dict[int, Counter[tuple[Any, ...]]]
"""Chain number -> how often what happened there. Order within a round is the oracle's alone."""

CAUSES = {
    "no_route": "NON_EXISTENT_CANISTER",
    "not_installed": "CanisterNotFound",
    "not_hosted": "CanisterNotFound",
    "halted": "ChainHalted",
    "splitting": "ChainSplitting",
    "absent": "UnknownSubnet",
    "too_large": "PayloadTooLarge",
    "canister_removed": "canister_removed",
}
"""A cause of the oracle's events -> the stable name in the ledger."""

WAYS = {"xnet": "LANE"}
"""A way of the oracle's -> the ledger's name of it, where it is another."""


def kernel_happened(run: KernelRun) -> Happened:
    """What the kernel's events, outbound messages, collected ranges and plans say."""
    happened: Happened = {number: Counter() for number in run.numbers}

    def add(chain: int, *what: Any) -> None:
        happened[run.numbers[chain]][what] += 1

    for frame in run.events:
        for row in range(len(frame)):
            _add_event(run, add, {name: _plain(frame[name], row) for name in frame.names})
    for result in run.results:
        for row in range(len(result.outbound)):
            _add_outbound(run, add, result.outbound, row)
        collected = result.logs["collected"]
        for chain, source, destination, substream, what, begin, end in zip(
            *(collected[name].tolist() for name in collected.names), strict=True
        ):
            name = "collected" if what == COLLECTED_MESSAGES else "signal collected"
            remote = destination if what == COLLECTED_MESSAGES else source
            assert chain in (source, destination)
            assert chain != remote or source == destination
            for index in range(begin, end):
                add(chain, name, run.numbers[remote], substream, index)
    _join_balances(happened)
    for headers in run.accepted:
        _add_included(run, add, headers)
    return happened


def _join_balances(happened: Happened) -> None:
    """A balance past 128 bits has several rows, of which all but one are full; here it is one number."""
    for counted in happened.values():
        rows = [what for what in counted.elements() if what[0] == "ended"]
        if len(rows) > len({what[1] for what in rows}):
            totals: Counter[int] = Counter()
            for _, canister, cycles in rows:
                assert 0 < cycles < WORD * WORD
                totals[canister] += cycles
                counted.pop(("ended", canister, cycles), None)
            counted.update(("ended", canister, cycles) for canister, cycles in totals.items())


def _plain(column: Any, row: int) -> Any:
    return int(column[row]) if isinstance(column, np.ndarray) else column[row].as_py()


def _add_event(run: KernelRun, add: Any, event: dict[str, Any]) -> None:
    events, chain, kind, via = Event(event["events"]), event["chain"], Kind(event["kind"]), Via(event["via"])
    ends = (event["source"], event["destination"])
    assert chain in ends or ends == (NO_CHAIN, NO_CHAIN), "an event of a message in a lane is at one of its ends"
    remote = None if NO_CHAIN in ends else run.numbers[ends[0] if chain == ends[1] else ends[1]]
    at = None if remote is None else (remote, event["substream"], event["index"])
    cycles = event["amount_high"] * WORD + event["amount_low"]
    who = (kind.name, event["sender"], event["receiver"], event["callback"], cycles)
    code, reason = event["code"], event["reason"]
    index = {NO_QUEUE: None, FORGED: 0}.get(event["queue_index"], event["queue_index"])
    if kind == Kind.CONTROL and events == Event.REJECTED:
        if reason.startswith(f"{INVALID_PAYLOAD}("):
            # A payload is refused whole; the oracle does not say for which slice.
            remote, reason = None, reason.removeprefix(f"{INVALID_PAYLOAD}(").removesuffix(")")
        options = run.kernel.options
        alone = options.certified and not options.flat and remote is not None
        add(chain, "slice refused", remote, reason.split("(")[0], *([event["substream"]] if alone else []))
        return
    if kind == Kind.CONTROL and events == Event.STOPPED:
        add(chain, "stopped", reason)
        return
    if kind == Kind.CONTROL and events == Event.DROPPED:
        add(chain, "ended", event["receiver"], cycles)
        return
    if Event.SENT in events:
        add(chain, "sent", *who, index)
    if Event.RECEIVED in events:
        add(chain, "received", *who, via.name, at, index, code)
    if Event.EXECUTED in events:
        add(chain, "executed", *who, index)
    if Event.ANSWERED in events:
        add(chain, "answered", *who[:4], index, code)
    if Event.ACKNOWLEDGED in events:
        add(chain, "acknowledged", *who, at, code, reason)
    if Event.TIMED_OUT in events:
        add(chain, "timed out", *who, index, code)
    if Event.DROPPED in events:
        add(chain, "dropped", *who, via.name, at, index, reason)
    if Event.REJECTED in events and at is not None:
        add(chain, "judged", *who, via.name, at, code if kind == Kind.REQUEST else None, reason)
    elif Event.REJECTED in events and via == Via.INGRESS:
        assert event["callback"] == event["index"]
        add(chain, "ingress refused", *who[:3], event["index"], code, reason)
    elif Event.REJECTED in events:
        add(chain, "rejected", *who, index, code, reason)


def _add_outbound(run: KernelRun, add: Any, frame: Frame, row: int) -> None:
    chain = int(frame["source"][row])
    who = (Kind(int(frame["kind"][row])).name, *(int(frame[name][row]) for name in ("sender", "receiver", "callback")))
    who = (*who, int(frame["amount_high"][row]) * WORD + int(frame["amount_low"][row]))
    at = (run.numbers[frame["destination"][row]], int(frame["substream"][row]), int(frame["index"][row]))
    queue_index = int(frame["queue_index"][row])
    add(chain, "committed", *who, at, {NO_QUEUE: None, FORGED: "forged"}.get(queue_index, queue_index))
    if queue_index < FORGED and int(frame["sent_tick"][row]) == run.tick:
        add(chain, "sent", *who, queue_index)


def _add_included(run: KernelRun, add: Any, headers: Frame) -> None:
    included: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
    for remote, chain, substream, *rest in zip(*(headers[name].tolist() for name in headers.names), strict=True):
        if chain != remote:
            header = dict(zip(headers.names[3:], rest, strict=True))
            run_of = (header["message_begin"], header["message_end"])
            indices = run_of if run_of[1] > run_of[0] else (None, None)
            included.setdefault((chain, remote), []).append(
                (substream, header["begin"], header["end"], header["signals_end"], *indices)
            )
    for (chain, remote), detail in included.items():
        add(chain, "included", run.numbers[remote], tuple(sorted(detail)))


def oracle_happened(run: OracleRun) -> Happened:
    """What the oracle's events say, in the same words."""
    happened: Happened = {subnet: Counter() for subnet in run.states}
    included: dict[tuple[int, Any], list[Any]] = {}
    for event in run.events:
        what = _oracle_event(event)
        if what is not None and what[0] == "included":
            included.setdefault((event.chain, what[1]), []).extend(what[2])
        elif what is not None:
            happened[event.chain][what] += 1
    for (chain, remote), detail in included.items():
        happened[chain]["included", remote, tuple(sorted(detail))] += 1
    return happened


def _oracle_event(event: ic.Event) -> tuple[Any, ...] | None:
    if event.kind == "control":
        return _oracle_control(event)
    callback = event.message[-1] if event.message is not None else None
    who = (event.kind.upper(), event.sender, event.receiver, callback, event.cycles or 0)
    at = None
    if event.remote is not None:
        at = (event.remote, _substream(event.substream), event.index)
    via = "NONE" if event.via is None else WAYS.get(event.via, event.via.upper())
    code, index = event.code or 0, event.queue_index or 0
    if event.event == "sent":
        return None if event.via == "forged" else ("sent", *who, index)
    if event.event == "committed":
        return ("committed", *who, at, "forged" if event.via == "forged" else event.queue_index)
    if event.event == "received":
        return ("received", *who, via, at, index, code)
    if event.event == "executed":
        return ("executed", *who, index)
    if event.event == "answered":
        return ("answered", "RESPONSE", event.receiver, event.sender, callback, index, code)
    if event.event == "timed_out":
        return ("timed out", *who, index, code)
    if event.event == "dropped":
        in_queue_or_made_here = via == "NONE" and event.cause not in NEVER_SENT
        place = event.queue_index if in_queue_or_made_here else 0
        return ("dropped", *who, via, at, place, CAUSES.get(event.cause or "", event.cause))
    if event.event == "collected":
        return ("collected", *(at or ()))
    if event.event == "rejected" and event.via in ("xnet", "loopback"):
        return ("judged", *who, via, at, code if event.kind == "request" else None, event.reason)
    if event.event == "rejected" and event.via == "ingress":
        return ("ingress refused", *who[:3], event.index, code, CAUSES[event.cause or ""])
    if event.event == "rejected":
        return ("rejected", *who, event.queue_index, code, CAUSES[event.cause or ""])
    assert event.event == "acknowledged"
    if event.reason is None:
        return None  # an ACCEPT is told by the range collected
    return ("acknowledged", *who, at, int(REASON_CODES[RejectReason[event.reason]]), event.reason)


def _oracle_control(event: ic.Event) -> tuple[Any, ...] | None:
    if event.event == "received":
        return ("included", event.remote, tuple(sorted((_substream(name), *rest) for name, *rest in event.detail)))
    if event.event == "rejected":
        alone = event.substream not in (None, ())
        return ("slice refused", event.remote, event.error, *([event.substream] if alone else []))
    if event.event == "stopped":
        return ("stopped", event.cause)
    if event.event == "dropped":
        return ("ended", event.receiver, event.cycles)
    return ("signal collected", event.remote, _substream(event.substream), event.index)


def with_failures(run: OracleRun, happened: Happened) -> Happened:
    """Add what the oracle writes into `executed`: handlers that raised on a message that has no answer."""
    for event in run.events:
        if event.event == "executed" and event.error is not None and event.kind != "request":
            callback = (event.message or (None,))[-1]
            who = (event.kind.upper(), event.sender, event.receiver, callback, event.cycles or 0)
            happened[event.chain]["rejected", *who, event.queue_index or 0, 5, event.error] += 1
    return happened
