"""G9 over the log: cycles followed from event to event, with no state beside it (1.1: `Produced` and `Lost` have
cycles; an event of a message has those that it carries)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tests.spec.ic.events import Event
from tests.spec.ic.ids import CanisterId
from tests.spec.ic.judge import LATE_RESPONSE
from tests.spec.ic.messages import MessageId

LOST = {
    "sender_mismatch",
    "receiver_mismatch",
    "response_induction_failed",
    "unroutable_response",
    "canister_removed",
    "NonMatchingResponse",
}
"""The causes for which cycles may be Lost (X-11)."""

NEVER_SENT = {"forged_for_nobody", "halted", "absent", "splitting"}
"""Why a forgery is dropped before it is in a stream: what it carries was never made."""

Carried = tuple[MessageId | None, int]
"""A message and the cycles in it."""


class Value:
    """Where the cycles are, as the events so far tell it.

    `held`: what canisters hold, balance and requests in hand together (an answer does not say how much it keeps).
    `under_way`: messages from where they are made to where they are consumed, rejected or dropped. `lost`, `forged`.
    """

    def __init__(self, installed: Mapping[CanisterId, int]) -> None:
        self.installed = installed
        self.moved: dict[CanisterId, int] = defaultdict(int)
        self.under_way: Counter[Carried] = Counter()
        self.made: set[Carried] = set()
        self.seen: set[Carried] = set()
        self.lost = self.forged = 0
        self.causes: set[str | None] = set()
        self.ended: set[CanisterId] = set()

    def held(self, canister: CanisterId) -> int:
        """Cycles of a canister and of the requests that it has in hand."""
        return self.installed.get(canister, 0) + self.moved.get(canister, 0)

    def holders(self) -> set[CanisterId]:
        return {*self.installed, *self.moved}

    def add(self, events: Iterable[Event]) -> None:
        """Follow the events of a round."""
        for e in events:
            if e.kind == "control":
                self._control(e)
            elif e.kind in ("request", "response") and e.cause not in NEVER_SENT:
                self._message(e)

    def _control(self, e: Event) -> None:
        if e.event == "dropped" and isinstance(e.receiver, int):
            self._move(e.receiver, -(e.cycles or 0))
            self.lost += e.cycles or 0
            self.causes.add(e.cause)
            self.ended.add(e.receiver)

    def _message(self, e: Event) -> None:
        cycles = e.cycles or 0
        carried = (e.message, cycles)
        if made_here(e) or e.event == "sent":
            self.under_way[carried] += 1
            self.made.add(carried)
        elif e.cycles is not None and e.event != "answered" and not of_hand(e):  # answered is about the response
            self.seen.add(carried)
        if e.event == "sent":
            if e.via == "forged":
                self.forged += cycles
            else:
                self._move(e.sender, -cycles)
        elif e.event == "executed" or e.cause == "not_installed":
            self.under_way[carried] -= 1
            self._move(e.receiver, cycles)
        elif of_hand(e):
            self._move(e.receiver, -cycles)
        elif ended(e):
            self.under_way[carried] -= 1
        if e.event == "dropped":
            self.causes.add(e.cause)
            if e.cause == LATE_RESPONSE:
                self._move(e.receiver, cycles)
            else:
                self.lost += cycles

    def _move(self, canister: object, cycles: int) -> None:
        assert isinstance(canister, int)
        self.moved[canister] += cycles

    def cycles_under_way(self) -> int:
        return sum(cycles * times for (_, cycles), times in self.under_way.items())

    def violations(self) -> list[str]:
        """What was neither installed nor forged and is there, or was and is not; what is Lost without a cause."""
        initial = sum(self.installed.values())
        total = sum(map(self.held, self.holders())) + self.cycles_under_way() + self.lost
        found = [] if total == initial + self.forged else [f"G9: {total} cycles, of {initial} and {self.forged} forged"]
        found += [f"G9: {m} has {c} cycles, and never began so" for m, c in sorted(self.seen - self.made, key=repr)]
        found += [f"G9: {m} with {c} cycles ended too often" for (m, c), n in self.under_way.items() if n < 0]
        found += [f"G9: {c} holds {self.held(c)} cycles" for c in sorted(self.holders()) if self.held(c) < 0]
        found += [f"G9: {c} ended, and {self.held(c)} cycles are left" for c in sorted(self.ended) if self.held(c)]
        return found + [f"G9: lost for {cause}" for cause in sorted(map(str, self.causes - LOST - {LATE_RESPONSE}))]


def of_hand(e: Event) -> bool:
    """Whether a request that its canister had in hand is rejected, with what of its cycles is still attached."""
    return e.event == "rejected" and e.cause == "canister_removed" and e.queue_index is None


def made_here(e: Event) -> bool:
    """Whether routing makes a reject, or puts a message that was rejected on its way again."""
    if e.kind != "response":
        return False
    here = e.event in ("received", "dropped") and e.via in ("synthetic", "timeout")
    away = (e.event == "committed" and e.via is None) or (e.event == "dropped" and e.cause == "unroutable_response")
    return here or (away and e.via is None and e.queue_index is None)


def ended(e: Event) -> bool:
    """Whether a message is not under way any more, and was not consumed."""
    if e.event in ("dropped", "timed_out"):
        return True
    if e.event == "acknowledged":
        return e.reason is not None
    at_home = e.cause in ("no_route", "canister_removed") or (e.cause == "too_large" and e.kind == "request")
    return e.event == "rejected" and at_home


def g9_no_loss(events: Sequence[Event], installed: Mapping[CanisterId, int]) -> list[str]:
    """The sum of cycles is what canisters were installed with and what forgers made; what is Lost has a cause."""
    value = Value(installed)
    value.add(events)
    return value.violations()
