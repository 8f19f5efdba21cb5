"""What a run of the kernel leaves, in the oracle's types, so that the same guarantees are checked of both.

Logs and states come from the kernel's own tables. Cycles are those of its log, with no state beside it; what else a
message says is looked up where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from causeway.core.vocabulary import Kind
from tests.spec import ic
from tests.spec.ic import accounts, guarantees
from tests.spec.ic.state import Stream
from tests.spec.ic.value import Value
from tests.support.ic.ic_harness import OracleRun
from tests.support.ic.ic_views import CAUSES, Happened

View = Mapping[int, Mapping[str, Any]]

WAYS = {"LANE": "xnet", "LOOPBACK": "loopback", "SYNTHETIC": "synthetic", "TIMEOUT": "timeout", "INGRESS": "ingress"}
NAMES = {ledger: cause for cause, ledger in CAUSES.items() if cause != "not_hosted"}

ORDER = ("included", "judged", "committed", "received", "sent", "executed")
"""Kinds of happenings whose order within a round a guarantee looks at; all others follow."""


def message_of(plain: tuple[Any, ...]) -> ic.Message:
    """A message of the views as the oracle has it."""
    kind, sender, receiver, callback, code, deadline, cycles, method, payload = plain
    if kind == Kind.INGRESS:
        return ic.Ingress(sender, receiver, method, payload)
    if kind == Kind.REQUEST:
        return ic.Request(receiver, sender, callback, cycles, method, payload, deadline)
    reject = (code, payload.decode()) if code else None
    return ic.Response(receiver, sender, callback, cycles, None if code else payload, reject, deadline)


def states_of(view: View, options: ic.Options, height: int) -> dict[int, ic.CanonicalState]:
    """The states that a view shows."""
    return {chain: _state_of(chain, sections, options, height) for chain, sections in view.items()}


def _state_of(chain: int, shown: Mapping[str, Any], options: ic.Options, height: int) -> ic.CanonicalState:
    def queues(name: str) -> dict[Any, ic.Queue[Any]]:
        return {key: ic.Queue(end, _messages(held)) for key, (end, held) in shown[name].items()}

    streams: dict[int, Stream] = {}
    expected = set()
    for (remote, number), (end, messages, following, signals) in shown["lanes"].items():
        substream = () if options.substreams == "flat" else number
        stream = streams.get(remote, Stream())
        verdicts = {
            (substream, i): ic.REJECT(ic.Reason(reason)) if reason else ic.ACCEPT for i, reason in signals.items()
        }
        queue: ic.Queue[Any] = ic.Queue(end, _messages(messages))
        streams[remote] = Stream({**stream.signals, **verdicts}, {**stream.msgs, substream: queue})
        expected.add((remote, (substream, following)))
    return ic.CanonicalState(
        own=chain,
        height=height,
        ingress_queues=queues("ingress_queues"),
        input_queues=queues("input_queues"),
        output_queues=queues("output_queues"),
        streams=streams,
        expected_xnet_indices=frozenset(expected),
        stray_queues={key: ic.Queue(0, _messages(held)) for key, held in shown["stray_queues"].items()},
        balances={canister: balance for canister, (balance, _) in shown["accounts"].items()},
        next_callbacks={canister: following for canister, (_, following) in shown["accounts"].items()},
        open_calls=shown["open_calls"],
        in_hand=shown["in_hand"],
    )


def _messages(held: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
    return {index: message_of(plain) for index, plain in held.items()}


def holds(violations: list[str]) -> None:
    """Fail with the sentences that say what does not hold."""
    assert not violations, "\n".join(violations)


class Evidence:
    """The states and the log of one run so far, and what is wrong with them. ``round`` takes what a round left."""

    def __init__(self, oracle: OracleRun) -> None:
        self.options, self.value = oracle.options, Value(oracle.installed)
        self.states: Mapping[int, ic.CanonicalState] = oracle.states
        self.events: list[ic.Event] = []
        self.registries: dict[int, ic.Registry] = {}

    def of_oracle(self, oracle: OracleRun, height: int) -> None:
        """Take a round of the oracle."""
        self._round(oracle, height, oracle.states, oracle.events)

    def of_kernel(self, oracle: OracleRun, height: int, view: View, happened: Happened) -> None:
        """Take a round of the kernel."""
        states = states_of(view, self.options, height)
        log = Log(self.options, height, self.states, states, happened)
        self._round(oracle, height, states, log.events())

    def _round(
        self, oracle: OracleRun, height: int, states: Mapping[int, ic.CanonicalState], events: list[ic.Event]
    ) -> None:
        before, self.states = self.states, states
        self.value.installed = oracle.installed
        self.value.add(events)
        self.registries[height] = oracle.registry
        self.events += events
        holds(accounts.check_round(before, states, events, self.registries))
        holds(accounts.check_accounts(states, self.events, self.registries, self.value, self.options))

    def check(self) -> None:
        """What holds of the whole log."""
        holds(guarantees.check_events(self.events, self.registries, self.options))
        holds(accounts.l2_nobody_starves(self.events, self.options))


class Log:
    """One round of the kernel as the oracle's events."""

    def __init__(
        self,
        options: ic.Options,
        height: int,
        before: Mapping[int, ic.CanonicalState],
        after: Mapping[int, ic.CanonicalState],
        happened: Happened,
    ) -> None:
        self.flat = options.substreams == "flat"
        self.height, self.happened = height, happened
        self.before, self.after = before, after

    def events(self) -> list[ic.Event]:
        """All of them, in an order in which they may have happened."""
        found = [
            event
            for chain, counted in self.happened.items()
            for what, times in sorted(counted.items(), key=_order)
            for _ in range(times)
            for event in self._events(chain, what)
        ]
        return found

    def _events(self, chain: int, what: tuple[Any, ...]) -> list[ic.Event]:
        name, *rest = what
        if name == "included":
            detail = tuple((self._name(number), *more) for number, *more in rest[1])
            return [ic.Event("received", chain, self.height, "control", remote=rest[0], detail=detail)]
        if name == "ended":
            columns: dict[str, Any] = {"receiver": rest[0], "cycles": rest[1], "cause": "canister_removed"}
            return [ic.Event("dropped", chain, self.height, "control", **columns)]
        if name in ("collected", "signal collected"):
            return self._collected(chain, name, *rest)
        if name in ("slice refused", "ingress refused", "stopped"):
            return []
        if name == "answered":
            return []
        kind, sender, receiver, callback, cycles, *more = rest
        return self._of_message(chain, name, (kind.lower(), sender, receiver, callback, cycles), more)

    def _name(self, number: int) -> Any:
        return () if self.flat else number

    def _collected(self, chain: int, name: str, remote: int, number: int, index: int) -> list[ic.Event]:
        columns: dict[str, Any] = {"remote": remote, "substream": self._name(number), "index": index}
        if name == "signal collected":
            return [ic.Event("collected", chain, self.height, "control", **columns)]
        at = (remote, number, index)
        message = self._in_stream(chain, remote, at)
        columns |= {"message": ic.message_id(message), "sender": message.src, "receiver": message.dst}
        kind = type(message).__name__.lower()
        rejected = any(what[0] == "acknowledged" and what[6] == at for what in self.happened[chain])
        seen = [] if rejected else [ic.Event("acknowledged", chain, self.height, kind, **columns)]
        return [*seen, ic.Event("collected", chain, self.height, kind, **columns)]

    def _in_stream(self, source: int, destination: int, at: tuple[int, int, int]) -> Any:
        """The message at a place of a stream, which it may have left in this round."""
        _, number, index = at
        for states in (self.after, self.before):
            queue = states[source].stream(destination).msgs.get(self._name(number))
            if queue is not None and index in queue.elements:
                return queue.elements[index]
        raise AssertionError(f"nothing at {at} of the stream {source} > {destination}")

    def _of_message(
        self, chain: int, name: str, who: tuple[str, int, int, int, int], more: list[Any]
    ) -> list[ic.Event]:
        kind, sender, receiver, callback, cycles = who
        letter = {"request": "q", "response": "r", "ingress": "i"}[kind]
        caller = receiver if kind == "response" else sender
        columns: dict[str, Any] = {"sender": sender, "receiver": receiver, "message": (letter, caller, callback)}
        columns["cycles"] = None if kind == "ingress" else cycles
        event, at, via = name, None, None
        if name == "sent":
            (columns["queue_index"],) = more
            columns["content"] = self._sent(chain, sender, receiver, more[0])
        elif name == "executed":
            (columns["queue_index"],) = more
        elif name == "received":
            via, at, columns["queue_index"], _ = more
            if kind == "ingress":
                columns["message"] = ("i", sender, receiver, columns["queue_index"])
        elif name == "committed":
            at, columns["queue_index"] = more
        elif name == "acknowledged":
            at, _, columns["reason"] = more
        elif name == "timed out":
            event, columns["queue_index"] = "timed_out", more[0]
        elif name == "judged":
            event, (via, at, _, columns["reason"]) = "rejected", more
        elif name == "dropped":
            via, at, index, columns["cause"] = more
            columns["cause"] = NAMES.get(columns["cause"], columns["cause"])
            in_queue = not at and via not in ("SYNTHETIC", "TIMEOUT")
            columns["queue_index"] = index if in_queue else None
        else:
            index, _, reason = more
            if reason not in NAMES:
                return []  # a handler that raised
            columns |= {"queue_index": index, "cause": NAMES[reason]}
        columns["via"] = WAYS.get(via) if via else None
        if at is not None:
            remote, number, index = at
            columns |= {"remote": remote, "substream": self._name(number), "index": index}
            ours = name in ("committed", "acknowledged")
            message = self._in_stream(chain, remote, at) if ours else self._in_stream(remote, chain, at)
            columns["content"] = message
            if columns.get("queue_index") == "forged":
                columns |= {"via": "forged", "queue_index": None}
                made = {key: columns[key] for key in ("sender", "receiver", "message", "content", "cycles")}
                sent = ic.Event("sent", chain, self.height, kind, via="forged", **made)
                return [sent, ic.Event("committed", chain, self.height, kind, **columns)]
        return [ic.Event(event, chain, self.height, kind, **columns)]

    def _sent(self, chain: int, sender: int, receiver: int, index: int) -> Any:
        """What a program sent: in its output queue still, or in a stream since this round, or gone already."""
        queue = self.after[chain].output_queues.get((sender, receiver))
        if queue is not None and index in queue.elements:
            return queue.elements[index]
        for what in self.happened[chain]:
            if what[0] == "committed" and what[2:4] == (sender, receiver) and what[7] == index:
                return self._in_stream(chain, what[6][0], what[6])
        return None


def _order(item: tuple[tuple[Any, ...], int]) -> tuple[Any, ...]:
    """Streams grow, then what is in them is judged, index by index; then other queues, then programs."""
    what, _ = item
    name = what[0]
    at = next((part for part in what if isinstance(part, tuple) and len(part) == 3), ())
    judged = name in ("judged", "received", "dropped") and at
    rank = 1 if judged else ORDER.index(name) if name in ORDER else len(ORDER)
    index = what[-2] if name == "received" else 0
    return (rank, at, index, repr(what))
