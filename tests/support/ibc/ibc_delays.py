"""What relayers know of headers that wait for their delay, for the oracle (X-11): which they can prove under, and which
they bring ahead. Everything is looked up in the history of all stores, which the oracle keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.spec import ibc
from tests.spec.ibc.queue import Queue


@dataclass(frozen=True)
class Sight(ibc.View):
    """What relayers can prove to one zone, ``headers``, ``proven`` and ``unwritten`` of other zones as they were at the
    heights ``at``; a zone that is not there is not seen."""

    at: Mapping[str, int] = field(default_factory=dict)


class Delays:
    """What the relayers of a scenario (``ibc_relays.Relays``) know of trusted headers."""

    def __init__(self, relays: Any) -> None:
        self.relays = relays
        self.slots_at: dict[int, dict[tuple[str, str], frozenset[int]]] = {}
        self.came_at_once: dict[tuple[str, str], set[int]] = {}
        """The headers that came to a zone in the block after they were made, whatever became of them since."""
        self.trusts: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
        """Trusted height -> time of the header, and own time when it was added, before the block."""

    def look(self, height: int) -> None:
        """Look at what was committed before ``height``, once a block."""
        pairs = {(a, b): one for a, zone in self.relays.net.zones.items() for b, one in zone.connections.items()}
        self.slots_at[height - 1] = {pair: frozenset(one.unwritten) for pair, one in pairs.items()}
        for pair, one in pairs.items() if self.relays.net.options.delay else ():
            self.trusts[pair] = {h: (header.time, one.added[h, header]) for h, header in one.T}
            came = self.came_at_once.setdefault(pair, set())
            came |= {height - 2} & {h for h in self.trusts[pair] if h > 0}

    def sight(self, view: ibc.View, zone: str, at: Mapping[str, int]) -> Sight:
        """What they saw of other zones at some heights, beside what they see of the zone itself."""
        slots = {
            (remote, zone): self.slots_at[height].get((remote, zone), frozenset()) for remote, height in at.items()
        }
        return Sight(
            view.height,
            view.order,
            {remote: self.relays.net.headers[remote, height] for remote, height in at.items()},
            {remote: self.relays.net.history[remote, height] for remote, height in at.items()},
            view.own,
            {**view.unwritten, **slots},
            view.frozen,
            view.options,
            at,
        )

    def known_headers(self, zone: str, remote: str) -> list[int]:
        """The trusted headers of which they know what they show, as far as they are young enough to be used."""
        own, period = self.relays.net.zones[zone], self.relays.net.options.unbonding
        trusts = self.trusts[zone, remote]
        young = {height for height, (time, _) in trusts.items() if period is None or own.time - time <= period}
        return sorted(young & self.came_at_once[zone, remote])

    def provable(self, view: ibc.View, zone: str) -> Sight:
        """What they prove in this block: the height before, or with a delay the newest for which that is over."""
        own, delay = self.relays.net.zones[zone], self.relays.net.options.delay
        if not delay:
            return self.sight(view, zone, dict.fromkeys(view.order, view.height - 1))
        ready = {
            remote: [h for h in self.known_headers(zone, remote) if own.time - self.trusts[zone, remote][h][1] >= delay]
            for remote in own.connections
        }
        return self.sight(view, zone, {remote: heights[-1] for remote, heights in ready.items() if heights})

    def ahead(self, view: ibc.View, zone: str, relayer: int) -> set[str]:
        """The remotes of which a relayer brings the header that it cannot use yet: they have something to bring under
        it that they could not bring under the newest that they know."""
        count, coordination = len(self.relays.scenario.relayers), self.relays.scenario.relay.get("coordination", "none")
        if not self.relays.net.options.delay or (coordination == "leader" and relayer):
            return set()
        known = {remote: self.known_headers(zone, remote) for remote in self.relays.net.zones[zone].connections}
        now = self.sight(view, zone, dict.fromkeys(view.order, view.height - 1))
        before = self.sight(view, zone, {remote: heights[-1] for remote, heights in known.items() if heights})
        held = {(remote, call): span for remote, call, *span in self.relays.lanes(before, zone)}
        found: set[str] = set()
        for position, remote in enumerate(view.order):
            if coordination == "partition" and position % count != relayer:
                continue
            for other, call, *span in self.relays.lanes(now, zone):
                if other != remote:
                    continue
                new = set(self.relays.pending(now, zone, remote, call, *span))
                if (remote, call) in held:
                    new -= set(self.relays.pending(before, zone, remote, call, *held[remote, call]))
                if new and self.relays.worth(view, zone, remote, call, sorted(new)):
                    found.add(remote)
            if self.overdue(now, zone, remote) - self.overdue(before, zone, remote):
                found.add(remote)
            if self.popped(now, zone, remote) > self.popped(before, zone, remote):
                found.add(remote)
        reached: set[str] = self.relays.reached(view, zone, relayer)
        return found & reached

    def overdue(self, view: Sight, zone: str, remote: str) -> set[int]:
        """The packets whose time-outs could be proved, were all receipts that there are brought."""
        late_slots = view.options.order == "ordered" and view.unwritten.get((remote, zone))
        if view.options.timeouts == "off" or not self.relays.is_open(view, zone, remote) or late_slots:
            return set()
        if remote in self.relays.halted.get(view.at[remote], ()):
            return set()
        return {index for run in self.relays.timeouts(view, zone, remote, 0) for index in range(run.begin, run.end)}

    def popped(self, view: Sight, zone: str, remote: str) -> int:
        """Up to where a cleanup could clear the receipts, or where they begin."""
        connected = remote in self.relays.net.zones[zone].connections
        head = Queue(view.own[zone], remote, "receipt").head() if connected else 0
        shown = view.options.cleanup == "on" and self.relays.is_open(view, zone, remote)
        if not shown or remote in self.relays.halted.get(view.at[remote], ()):
            return head
        return max(head, Queue(view.proven[remote], zone, "send").head())
