"""What happened in a network that was played: the features that the comparisons are meant to meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from causeway.config.faults import FOR_EVER
from tests.spec import ic
from tests.spec.ic import guarantees
from tests.support.ic.ic_harness import Scenario

FEATURES = (
    "moved",
    "moved away and back",
    "several moved at once",
    "moved with messages under way",
    "removed",
    "removed and added again",
    "started later",
    "split",
    "split with messages under way",
    "request rejected where a subnet was split",
    "answer sent on where a subnet was split",
    "asked one that was removed",
    "halted a while",
    "halted for ever",
    "forged request",
    "forged answer",
    "forged answer taken",
    "answer that nobody waited for",
    "late best-effort answer",
    "stale request",
    "slice refused",
    "older slice taken",
    "older slice refused",
    "request rejected",
    "request timed out",
    "no route",
    "payload too large",
    "held back by a full stream",
    "bounded inputs with many senders",
    "bounded inputs from users and canisters",
    "deadline",
)
"""In the order of the summary's reader: what canisters do, what goes wrong, what the rules do about it."""


def features(scenario: Scenario, events: Sequence[ic.Event], options: ic.Options) -> set[str]:
    """The features of one network that was played."""
    names = {(e.event, e.cause) for e in events}
    reasons = {e.reason for e in events if e.event == "rejected"}
    found = {
        "answer that nobody waited for": ("dropped", "NonMatchingResponse") in names,
        "late best-effort answer": ("dropped", "late_response") in names,
        "asked one that was removed": ("rejected", "canister_removed") in names,
        "no route": ("rejected", "no_route") in names,
        "payload too large": ("rejected", "too_large") in names,
        "slice refused": any(e.event == "rejected" and e.kind == "control" for e in events),
        "request rejected": bool(reasons - {None}),
        "request timed out": any(e.event == "timed_out" for e in events),
        "held back by a full stream": _held_back(events),
        "deadline": any(forgery.deadline for forgery in scenario.forged),
    }
    return {name for name, is_so in found.items() if is_so} | {
        *_moves(scenario, events),
        *_splits(scenario, events),
        *_faults(scenario, events),
        *_inputs(events, options),
    }


def _moves(scenario: Scenario, events: Sequence[ic.Event]) -> set[str]:
    found: set[str] = set()
    hosts: dict[int, list[int | None]] = {number: [host] for number, (host, _, _) in scenario.canisters.items()}
    moved: Counter[int] = Counter()
    routed = dict(guarantees.committed(events))
    by_tick: dict[int, dict[int, int | None]] = {}
    for tick, canister, host in scenario.moves:
        by_tick.setdefault(tick, {})[canister] = host
    for tick, moves in sorted(by_tick.items()):
        for canister, host in moves.items():
            been = hosts[canister]
            if host == been[-1] or tick > scenario.rounds:
                continue
            moved[tick] += 1
            if host is None:
                found.add("removed")
            elif been == [None]:
                found.add("started later")
            elif been[-1] is None:
                found.add("removed and added again")
            else:
                found |= {"moved"} | ({"moved away and back"} if host in been else set())
            been.append(host)
    if any(count > 1 for count in moved.values()):
        found.add("several moved at once")
    for place, e in guarantees.judged(events):
        ends = (e.sender, e.receiver)
        since = routed[place].height if place in routed else e.height
        ticks = [tick for tick, canister, _ in scenario.moves if canister in ends and since < tick <= e.height]
        if ticks:
            found.add("moved with messages under way")
            migrating = e.reason == "CanisterMigrating" or e.cause in ("sender_mismatch", "receiver_mismatch")
            back = all(hosts[end][-1] is not None for end in ends if end in hosts)
            if e.kind == "request" and migrating and back and _at_home(e, place, scenario):
                found.add("stale request")
    return found


def _splits(scenario: Scenario, events: Sequence[ic.Event]) -> set[str]:
    found: set[str] = set()
    routed = dict(guarantees.committed(events))
    for tick, chain, new in scenario.splits:
        gone = {canister for at, canister, host in scenario.moves if (at, host) == (tick, new)}
        if gone and tick <= scenario.rounds:
            found.add("split")
        for place, e in guarantees.judged(events):
            since = routed[place].height if place in routed else e.height
            if not since < tick <= e.height or not {e.sender, e.receiver} & gone:
                continue
            found.add("split with messages under way")
            if e.chain == chain and e.receiver in gone and e.reason == "CanisterMigrating":
                request = e.kind == "request"
                found.add(f"{'request rejected' if request else 'answer sent on'} where a subnet was split")
    return found


def _at_home(e: ic.Event, place: guarantees.Place, scenario: Scenario) -> bool:
    """Whether both ends live where the message came from and went to, in the round that judged it."""
    home: dict[int, int | None] = {number: host for number, (host, _, _) in scenario.canisters.items()}
    home |= {canister: host for tick, canister, host in scenario.moves if tick <= e.height}
    return (home.get(e.sender), home.get(e.receiver)) == place[:2]  # type: ignore[arg-type]


def _faults(scenario: Scenario, events: Sequence[ic.Event]) -> set[str]:
    found = {"forged answer" if forgery.answer else "forged request" for forgery in scenario.forged}
    forged = guarantees.forged_places(events)
    if any(e.kind == "response" and guarantees.origin(e) in forged for e in guarantees.received(events)):
        found.add("forged answer taken")
    for e in events:
        if e.kind == "control" and e.remote is not None and e.event in ("received", "rejected") and _stale(e, scenario):
            found.add("older slice taken" if e.event == "received" else "older slice refused")
    for _, first, last in scenario.halts:
        if first <= scenario.rounds:
            found.add("halted for ever" if last >= FOR_EVER else "halted a while")
    return found


def _stale(e: ic.Event, scenario: Scenario) -> bool:
    """Whether the slice that an event is about was an older one: of several carriers the last brings it."""
    acting = [
        kind
        for kind, source, destination, first, last, *_ in scenario.carriers
        if first <= e.height <= last and source in (None, e.remote) and destination in (None, e.chain)
    ]
    return acting[-1:] == ["stale"]


def _inputs(events: Sequence[ic.Event], options: ic.Options) -> set[str]:
    if options.messages_per_canister == 0:
        return set()
    waited: dict[object, set[object]] = {}
    at: Mapping[object, int] = {
        (e.kind, e.sender, e.receiver, e.queue_index): e.height for e in events if e.event == "received"
    }
    for e in events:
        received = at.get((e.kind, e.sender, e.receiver, e.queue_index), e.height)
        if e.event == "executed" and e.height > received:
            waited.setdefault((e.receiver, e.height), set()).add(e.sender if e.kind != "ingress" else "user")
    found = set()
    for senders in waited.values():
        found |= {"bounded inputs with many senders"} if len(senders) > 1 else set()
        found |= {"bounded inputs from users and canisters"} if "user" in senders and len(senders) > 1 else set()
    return found


def _held_back(events: Sequence[ic.Event]) -> bool:
    sent = {(e.chain, e.sender, e.receiver, e.queue_index): e.height for e in events if e.event == "sent"}
    return any(
        sent.get((e.chain, e.sender, e.receiver, e.queue_index), e.height) < e.height
        for e in events
        if e.event == "committed"
    )
