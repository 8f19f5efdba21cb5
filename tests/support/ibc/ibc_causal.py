"""The causal order of zones in runs of the IBC kernel in which relayers reorder, zones fork and clients lag.

``Zones`` plays three zones in memory and notes in which blocks each packet was sent, received and acknowledged. C1 to
C5 are checked here on the heights that all zones share; the audit gets the same blocks as a ledger, and no clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from causeway.audit.engine import AuditResult
from causeway.config.faults import FaultRule, Faults
from causeway.core.frame import Frame, concat
from causeway.core.vocabulary import Event, Kind, Via
from causeway.protocols.contract import View
from causeway.protocols.ibc.state import RECEIPT, SEND
from tests.shown import shown_to
from tests.spec.audit.ledger import Row
from tests.support.ibc.ibc_network import Network, _columns
from tests.support.ibc.ibc_programs import ACTOR, ops
from tests.support.properties.audit_ledgers import Case, compare

A, B, C = range(3)
NAMES = ("A", "B", "C")
ACTORS = {A: (0, 3), B: (1, 4), C: (2, 5)}
"""The programs on each zone."""

LANE_INDEX = ("source", "destination", "index")

SECOND = 1_000_000
"""In the unit of a ledger's times."""

Packet = tuple[str, str, int]
"""(source, destination, index)."""


@dataclass
class Blocks:
    """The heights at which a packet was sent, received and acknowledged; None: it was not."""

    sent: int | None = None
    received: int | None = None
    acknowledged: int | None = None


class FalseBlock(NamedTuple):
    """A block that a zone made beside the true one of that height, its state and header, and the zone that sees it."""

    height: int
    liar: int
    believer: int
    state: Any
    header: Frame


class Zones(Network):
    """Three zones, ``apart`` in kernel calls of their own, so that one of them may believe a false block."""

    def __init__(self, *faults: FaultRule, skip: float = 0.0, apart: bool = False, **options: Any) -> None:
        zones = {NAMES[chain]: dict.fromkeys(numbers, ACTOR) for chain, numbers in ACTORS.items()}
        chosen = {"validators": 1, **options}
        super().__init__(zones, options=chosen, faults=Faults.of(*faults, skip=skip), balance=1000, apart=apart)
        self.packets: defaultdict[Packet, Blocks] = defaultdict(Blocks)
        self._false: FalseBlock | None = None
        self._forks = False
        self._outboxes = self.outbox, self.outbox
        """What zones pushed in truth, and that with what the false block pushed."""

    def ask(self, chain: int, to: int, program: int = 0, times: int = 1) -> None:
        """A user tells the program of a zone to call one of another."""
        receiver = ACTORS[to][0]
        self.tell(ACTORS[chain][program], "do", ops(*(("call", receiver, "echo", b"x", 0, None),) * times), user=5)

    def _block(self, tick: Any) -> None:
        self.outbox = self._outboxes[self._forks]
        super()._block(tick)
        if self._forks:
            return
        self._note()
        if self._false is not None:
            for result in self.results:
                self._outboxes[1].add(result.outbound)

    def _note(self) -> None:
        """Note what the newest block sent, received and acknowledged."""
        for result in self.results:
            rows = result.outbound
            rows = rows.filter((rows["source"] != rows["destination"]) & (rows["substream"] == SEND))
            for source, destination, index in zip(*(rows[name].tolist() for name in LANE_INDEX), strict=True):
                self.packets[NAMES[source], NAMES[destination], index].sent = self.height
        rows = self.events()
        brought = (rows["via"] == np.uint8(Via.LANE)) & ((rows["events"] & np.uint16(Event.RECEIVED)) > 0)
        rows = rows.filter(brought & (rows["kind"] != np.uint8(Kind.CONTROL)) & (rows["chain"] != rows["source"]))
        names = ("chain", "source", "substream", "index")
        for chain, source, substream, index in zip(*(rows[name].tolist() for name in names), strict=True):
            if substream == SEND:
                self.packets[NAMES[source], NAMES[chain], index].received = self.height
            else:
                assert substream == RECEIPT
                self.packets[NAMES[chain], NAMES[source], index].acknowledged = self.height

    # ---- forks

    def fork(self, liar: int, believer: int, program: int = 0) -> bytes:
        """Let a zone make two blocks of the next height and another zone see the false one, in which a program of the
        liar calls it; return the header of that block."""
        assert believer < len(self.groups) - 1, "the last zone that makes a block adds what all pushed to the true one"
        before = list(self.states), self.headers, self.height, list(self._told)
        self._outboxes = self.outbox, deepcopy(self.outbox)
        self.outbox, self._forks = self._outboxes[1], True
        self.ask(liar, believer, program)
        self.block()
        self.outbox, self._forks = self._outboxes[0], False
        forked, headers = self.states[liar], self.headers.filter(self.headers["chain"] == liar)
        self.states, self.headers, self.height, self._told = before
        self.block()
        self._false = FalseBlock(self.height, liar, believer, forked, headers)
        header: bytes = headers["certification"].to_pylist()[0]
        return header

    def seen_by(self, group: Any) -> View:
        """Return what zones see of the height before; a believer of a fork sees the false block."""
        false = self._false
        self.outbox = self._outboxes[self._forks or (false is not None and false.believer == int(group[0]))]
        if false is None or (false.height + 1, false.believer) != (self.height, int(group[0])):
            return super().seen_by(group)
        liar, forked, header = false.liar, false.state, false.header
        states = [forked if number == liar else state for number, state in enumerate(self.states)]
        headers = concat([self.headers.filter(self.headers["chain"] != liar), header])
        headers = headers.take(np.argsort(headers["chain"], kind="stable"))
        height = np.full(len(headers), self.height - 1, dtype=np.uint64)
        return View(shown_to(self.kernel, states, group), Frame({"height": height, **_columns(headers)}))

    # ---- the rules

    def broken(self) -> dict[str, set[Packet]]:
        """The packets that break each rule, by the heights that all zones share: a header shows the height before."""
        found: dict[str, set[Packet]] = defaultdict(set)
        lanes: defaultdict[tuple[str, str], list[tuple[int, Blocks]]] = defaultdict(list)
        for (source, destination, index), one in sorted(self.packets.items()):
            packet = source, destination, index
            if one.received is not None and (one.sent is None or one.sent >= one.received):
                found["C1"].add(packet)
            if one.acknowledged is not None and (one.received is None or one.received >= one.acknowledged):
                found["C2"].add(packet)
            for other, before in lanes[source, destination]:
                for rule, cause, effect in (("C4", "sent", "received"), ("C5", "received", "acknowledged")):
                    causes, effects = ([getattr(each, name) for each in (before, one)] for name in (cause, effect))
                    if None in (*causes, *effects):
                        continue
                    if causes[0] < causes[1] and effects[0] > effects[1]:
                        found[rule].add(packet)
                    if causes[0] > causes[1] and effects[0] < effects[1]:
                        found[rule].add((source, destination, other))
                if before.sent is not None and one.sent is not None and before.sent > one.sent:
                    found["C3"].add(packet)
            lanes[source, destination].append((index, one))
        return dict(found)

    def audit(self, *promises: str) -> AuditResult:
        """The audit of what the zones report, if all lanes promise causal order and ``promises``; it finds what the
        definition of the audit does."""
        case = Case(self.rows(), self.observed(), [{"promise": name} for name in ("causal", *promises)])
        found = case.audit(2)
        compare(case, found)
        return found

    def rows(self, *, timed: bool = False) -> list[Row]:
        """The ledger of all zones; ``timed``: with the seconds of the blocks."""
        found: list[Row] = []
        for (source, destination, index), one in self.packets.items():
            lane = {"protocol": "p", "source": source, "destination": destination, "lane": "1", "index": index}
            where = {"sent": source, "received": destination, "acknowledged": source}
            for event, chain in where.items():
                height = getattr(one, event)
                if height is not None:
                    place = {"chain": chain, "height": height, "time": height * SECOND if timed else None}
                    found.append({**lane, "kind": "request", "event": event, **place})
        return found

    def observed(self) -> list[Row]:
        """All heights of all zones."""
        until = {"last_height": self.height, "last_time": self.height * SECOND}
        return [{"chain": name, "first_height": 0, "first_time": 0, **until} for name in NAMES]


def named(found: AuditResult, check: str = "causal_order") -> Mapping[str, set[Packet]]:
    """The packets that a check names as violations, by reason."""
    reasons: dict[str, set[Packet]] = defaultdict(set)
    for row in found.violations.to_pylist():
        if row["check"] == check:
            reasons[row["reason"]].add((row["source"], row["destination"], row["index"]))
    return dict(reasons)
