"""Relayers as the composition has them, for the oracle: runs of entries, cut where they were pushed, and their faults.

The oracle's own relayers submit entry by entry whatever they like. Those of the kernel submit runs, which share one
proof, and a scenario can make them misbehave. Here is the same in plain loops: what relayers know (the heights
committed before), what zones still offer, who submits what, and what proofs are worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.spec import ibc
from tests.spec.ibc.calls import DISCONNECT
from tests.spec.ibc.network import UNPAID
from tests.spec.ibc.programs import decode_envelope
from tests.spec.ibc.queue import Queue
from tests.spec.ibc.zone import expired, newest_trusted
from tests.spec.ic.ids import philox_4x64
from tests.support.ibc.ibc_backoffs import BackOffs
from tests.support.ibc.ibc_delays import Delays, Sight

RECEIVE, RECEIPT, TIMEOUT, CLEANUP = range(4)
CALLS = ("IBCreceive", "IBCreceipt", "IBCtimeout", "IBCcleanup")
PURPOSES = ("send", "receipt", "receipt", "send")
"""Which queue of the remote zone a call is about."""


@dataclass(frozen=True)
class Run:
    """What one relayer submits at once: entries ``begin`` to ``end`` - 1; ``offered``: those that the proof covers.
    Time-outs and cleanups: as many calls."""

    zone: str
    relayer: int
    remote: str
    call: int
    begin: int
    end: int
    offered: tuple[int, int] = (0, 0)
    alteration: str = "none"


@dataclass
class Relays:
    """All relayers of a scenario and what they know."""

    scenario: Any
    net: Any

    def __post_init__(self) -> None:
        self.known: dict[tuple[str, str], tuple[int, int]] = {}
        self.pushed: dict[tuple[str, str, str], dict[int, int]] = {}
        self.halted: dict[int, set[str]] = {}
        self.newest: dict[tuple[str, str], int] = {}
        """The time of the newest header that a zone trusts of another, before the block."""
        self.tick = 0
        self.known_at: dict[int, dict[tuple[str, str], tuple[int, int]]] = {}
        self.delays = Delays(self)
        self.backoffs = BackOffs(self.net)

    def look(self, height: int, tick: int, halted: set[str]) -> None:
        """Look at what was committed before ``height``, once a block."""
        self.tick, self.halted[height] = tick, halted
        for owner in self.net.order:
            for taker, connection in self.net.zones[owner].connections.items():
                self.newest[owner, taker] = newest_trusted(connection).time
                for purpose in ("send", "receipt"):
                    seen = self.pushed.setdefault((owner, taker, purpose), {})
                    for index in self.queue(owner, taker, purpose, height - 1).indices():
                        seen.setdefault(index, height - 1)
                if height > 1 and owner not in self.halted[height - 1]:
                    received, done = self.known.get((owner, taker), (0, 0))
                    received = max(received, self.received(owner, taker, height - 2))
                    done = max(done, self.queue(taker, owner, "send", height - 2).head())
                    self.known[owner, taker] = received, done
        self.known_at[height] = dict(self.known)
        self.delays.look(height)

    def is_open(self, view: Sight, zone: str, remote: str) -> bool:
        """Whether a zone is connected with another that is seen, and not frozen when they look."""
        return remote in view.at and remote in self.net.zones[zone].connections and (zone, remote) not in view.frozen

    def worth(self, view: ibc.View, zone: str, remote: str, call: int, indices: list[int]) -> bool:
        """Whether entries are to be brought now: they are enough, or have waited."""
        waited = view.height - 1 - self.pushed[remote, zone, PURPOSES[call]][indices[0]]
        relay = self.scenario.relay
        return bool(len(indices) >= relay.get("min_batch", 1) or waited >= relay.get("max_wait", 0))

    def queue(self, owner: str, taker: str, purpose: str, height: int) -> Queue:
        return Queue(self.net.history[owner, height], taker, purpose)

    def received(self, owner: str, taker: str, height: int) -> int:
        """Up to where ``taker`` is seen to have received all packets of ``owner``."""
        receipts = self.queue(taker, owner, "receipt", height)
        if self.net.options.order == "ordered":
            return receipts.tail()
        at = receipts.head()
        while receipts.get(at) is not None:
            at += 1
        return at

    def offered(self, owner: str, taker: str, purpose: str, height: int) -> list[tuple[int, int]]:
        """The runs that ``owner`` proved to ``taker`` under the header of the height before ``height``."""
        indices = self.queue(owner, taker, purpose, height - 1).indices()
        heights = self.pushed[owner, taker, purpose]
        runs: list[tuple[int, int]] = []
        for index in indices:
            if runs and runs[-1][1] == index and heights[index] == heights[index - 1]:
                runs[-1] = (runs[-1][0], index + 1)
            else:
                runs.append((index, index + 1))
        seen = self.known_at[height].get((owner, taker), (0, 0))[0 if purpose == "send" else 1]
        return [run for run in runs if run[1] > seen]

    # ---- what honest relayers submit

    def lanes(self, view: Sight, zone: str) -> Iterator[tuple[str, int, int, int]]:
        """(remote, call, expected, stop) for all that ``zone`` may be brought."""
        ordered = view.options.order == "ordered"
        for remote in view.order:
            if not self.is_open(view, zone, remote):
                continue
            sent, tail = Queue(view.proven[remote], zone, "send"), Queue(view.own[zone], remote, "receipt").tail()
            yield remote, RECEIVE, tail, tail if ordered and sent.head() > tail else sent.tail()
            receipts, head = Queue(view.proven[remote], zone, "receipt"), Queue(view.own[zone], remote, "send").head()
            unwritten = view.unwritten.get((remote, zone), frozenset())
            yield remote, RECEIPT, head, min([*unwritten, receipts.tail()]) if ordered else receipts.tail()

    def pending(self, view: Sight, zone: str, remote: str, call: int, expected: int, stop: int) -> list[int]:
        """The entries that are to be brought, first those that come first. All of ``expected`` to ``stop`` in order."""
        if view.options.order == "ordered":
            return list(range(expected, stop))
        offered = {i for run in self.offered(remote, zone, PURPOSES[call], view.at[remote] + 1) for i in range(*run)}
        if call == RECEIPT:
            return sorted(offered & set(Queue(view.own[zone], remote, "send").indices()))
        receipts = Queue(view.own[zone], remote, "receipt")
        done = set(receipts.indices()) | view.unwritten.get((zone, remote), frozenset())
        if view.options.timeouts == "on":
            own, sent = self.net.zones[zone], Queue(view.proven[remote], zone, "send")
            packets = {i: ibc.decode_packet(sent.get(i) or b"") for i in offered}
            done |= {i for i, packet in packets.items() if expired(own, own.height, own.time, packet)}
        return sorted(i for i in offered - done if i >= receipts.head())

    def honest(self, view: Sight, zone: str, relayer: int) -> list[Run]:
        relay, count = self.scenario.relay, len(self.scenario.relayers)
        coordination = relay.get("coordination", "none")
        if coordination == "leader" and relayer:
            return []
        runs: list[Run] = []
        for remote, call, expected, stop in self.lanes(view, zone):
            indices = self.pending(view, zone, remote, call, expected, stop)
            if view.options.order == "unordered":
                lane = zone, remote, self.scenario.relayers[relayer], call
                indices = sorted(set(indices) - self.backoffs.waits(lane, view.height))
            if indices:
                if self.worth(view, zone, remote, call, indices):
                    indices = indices[: relay.get("max_packets", 0) or None]
                else:
                    indices = []
            if coordination == "partition":
                cuts = [len(indices) * part // count for part in (relayer, relayer + 1)]
                indices = indices[cuts[0] : cuts[1]]
            mine = set(indices)
            runs += self.pieces(zone, relayer, remote, call, mine, view.at[remote] + 1)
            settled = call == RECEIPT and (
                view.options.order == "unordered" or self.settled(view, zone, remote, expected, indices)
            )
            makes_blocks = remote not in self.halted.get(view.at[remote], ())
            if settled and view.options.timeouts == "on" and makes_blocks:
                runs += self.timeouts(view, zone, remote, relayer)
            if call == RECEIVE and view.options.cleanup == "on" and makes_blocks:
                head = Queue(view.own[zone], remote, "receipt").head()
                popped = Queue(view.proven[remote], zone, "send").head()
                if popped > head:
                    runs.append(Run(zone, relayer, remote, CLEANUP, head, popped))
        return runs

    def settled(self, view: Sight, zone: str, remote: str, expected: int, indices: list[int]) -> bool:
        """Whether all receipts that there are, and there may be no more, are among those that are brought now."""
        receipts = Queue(view.proven[remote], zone, "receipt")
        brought = max([expected, *(index + 1 for index in indices)])
        return not view.unwritten.get((remote, zone)) and brought == max(receipts.tail(), expected)

    def timeouts(self, view: Sight, zone: str, remote: str, relayer: int) -> list[Run]:
        """A time-out for each packet that the remote header shows to be expired and not received.

        The remote proves its tail if it had seen packets on their way.
        """
        before = self.queue(zone, remote, "send", max(view.at[remote] - 1, 0))
        if before.head() == before.tail():
            return []
        if view.options.order == "unordered":
            return self.absences(view, zone, remote, relayer, before)
        header, pending = view.headers[remote], Queue(view.own[zone], remote, "send")
        first = max(pending.head(), Queue(view.proven[remote], zone, "receipt").tail())
        end = first
        while end < pending.tail():
            packet = ibc.decode_packet(pending.get(end) or b"")
            if not expired(self.net.zones[zone], header.height, header.time, packet):
                break
            end += 1
        return [Run(zone, relayer, remote, TIMEOUT, first, end)] if end > first else []

    def absences(self, view: Sight, zone: str, remote: str, relayer: int, before: Queue) -> list[Run]:
        """A time-out for each packet that waits, has expired by the remote header, and has no receipt there.

        The remote proves gaps in which a packet lies that it had seen on its way (``before``).
        """
        header, pending = view.headers[remote], Queue(view.own[zone], remote, "send")
        receipts = Queue(view.proven[remote], zone, "receipt").indices()
        found: list[Run] = []
        for index in pending.indices():
            first = max([i for i in receipts if i < index], default=-1) + 1
            stop = min((i for i in receipts if i > index), default=2**64)
            shown = max(first, before.head()) < min(stop, before.tail()) and index not in receipts
            packet = ibc.decode_packet(pending.get(index) or b"")
            if not shown or not expired(self.net.zones[zone], header.height, header.time, packet):
                continue
            if found and found[-1].end == index:
                found[-1] = replace(found[-1], end=index + 1)
            else:
                found.append(Run(zone, relayer, remote, TIMEOUT, index, index + 1))
        return found

    def pieces(self, zone: str, relayer: int, remote: str, call: int, mine: set[int], height: int) -> list[Run]:
        """Entries as runs, cut where the proofs are."""
        found = []
        for first, stop in self.offered(remote, zone, PURPOSES[call], height):
            begin = None
            for index in range(first, stop + 1):
                if index < stop and index in mine:
                    begin = index if begin is None else begin
                elif begin is not None:
                    found.append(Run(zone, relayer, remote, call, begin, index, (first, stop)))
                    begin = None
        return found

    # ---- what faults make of it

    def came(self, view: ibc.View, zone: str) -> set[str]:
        """The remotes from which relayers come to a zone in this block: not where the transport skips."""
        words = philox_4x64((view.height + 1, 1, 0, 0), (self.scenario.seed, self.scenario.number(zone)))
        draws = {name: (words[place] >> 11) * 2.0**-53 for place, name in enumerate(view.order)}
        return {name for name, draw in draws.items() if draw >= self.scenario.skip}

    def runs(self, view: Sight, zone: str, relayer: int) -> list[Run]:
        """What a relayer submits to a zone in this block, in the order of processing."""
        came = self.came(view, zone)
        runs = [one for one in self.honest(view, zone, relayer) if one.remote in came]
        for kind, source, destination, begin, end, name in self.scenario.carriers:
            if not begin <= self.tick <= end or name not in (None, self.scenario.relayers[relayer]):
                continue
            if kind == "replay":
                runs += [one for one in self.again(view, zone, relayer) if source in (None, one.remote)
                         and destination in (None, zone)]  # fmt: skip
                continue
            altered: list[Run] = []
            for run in runs:
                hit = source in (None, run.remote) and destination in (None, run.zone)
                if not hit or (kind == "gap" and run.call >= TIMEOUT):
                    altered.append(run)
                elif kind == "gap":
                    altered.append(replace(run, begin=run.begin + 1, end=max(run.end, run.begin + 2)))
                elif kind != "drop":
                    altered.append(replace(run, alteration=kind))
            runs = altered
        name = self.scenario.relayers[relayer]
        runs = [part for run in runs for part in self.backoffs.left(run, name, view.height)]
        place = {name: at for at, name in enumerate(view.order)}
        runs = sorted(runs, key=lambda one: (place[one.remote], one.call, one.begin))
        return runs if self.carries(name) is None else self.share(view, zone, name, runs)

    # ---- whose entries they carry

    def carries(self, name: str) -> set[int] | int | None:
        """The programs whose packets a user's process carries, the age in blocks from which on a sponsored relayer
        carries what is left; None: everything."""
        relay = self.scenario.relay
        if name in relay.get("users", {}):
            chosen = set(relay["users"][name])
            return {n for here in self.scenario.zones.values() for n, own in here.items() if {f"p{n}", own} & chosen}
        age: int | None = (
            relay.get("sponsored", {}).get(name, {}).get("min_age", 10 if self.is_sponsored(name) else None)
        )
        return age

    def is_sponsored(self, name: str) -> bool:
        return name in self.scenario.relay.get("sponsored", {})

    def share(self, view: Sight, zone: str, name: str, runs: list[Run]) -> list[Run]:
        """What of runs a relayer carries; in order only what comes before the first entry that it leaves to others, and
        no time-out where it leaves a receipt."""
        carries, ordered = self.carries(name), view.options.order == "ordered"
        found: list[Run] = []
        left: set[tuple[str, int]] = set()
        for run in runs:
            if run.call == CLEANUP:
                found += [] if isinstance(carries, set) else [run]
                continue
            begin = None
            for index in range(run.begin, run.end + 1):
                takes = index < run.end and self.takes(view, zone, run, index, carries)
                takes = takes and not (ordered and (run.remote, run.call) in left)
                if run.call == TIMEOUT and ordered and (run.remote, RECEIPT) in left:
                    takes = False
                if takes:
                    begin = index if begin is None else begin
                    continue
                if begin is not None:
                    found.append(replace(run, begin=begin, end=index))
                    begin = None
                if index < run.end:
                    left.add((run.remote, run.call))
        return found

    def takes(self, view: Sight, zone: str, run: Run, index: int, carries: set[int] | int | None) -> bool:
        """Whether an entry is of the programs whose packets are carried, or old enough."""
        if isinstance(carries, set):
            owner, taker = (run.remote, zone) if run.call == RECEIVE else (zone, run.remote)
            value = self.queue(owner, taker, "send", view.height - 1).get(index)
            packet = None if value is None else ibc.decode_packet(value)
            return packet is not None and packet.type != DISCONNECT and decode_envelope(packet.data)[0] in carries
        assert carries is not None
        owner, taker = (zone, run.remote) if run.call == TIMEOUT else (run.remote, zone)
        purpose = "send" if run.call in (RECEIVE, TIMEOUT) else "receipt"
        if self.queue(owner, taker, purpose, view.height - 1).get(index) is None:
            return False
        return view.height - 1 - self.pushed[owner, taker, purpose][index] >= carries

    def again(self, view: Sight, zone: str, relayer: int) -> list[Run]:
        """What was processed and is still offered."""
        return [
            run
            for remote, call, expected, _ in self.lanes(view, zone)
            for run in self.pieces(zone, relayer, remote, call, set(range(expected)), view.at[remote] + 1)
        ]

    # ---- as the oracle's calls

    def submissions(self, view: ibc.View, zone: str, relayer: int) -> Iterator[ibc.Submission]:
        """One after the other: what a relayer does after a header depends on what came of it."""
        name = self.scenario.relayers[relayer]
        sight, delay = self.delays.provable(view, zone), self.net.options.delay
        runs = self.runs(sight, zone, relayer)
        alone = self.stale(view, zone, relayer) | self.delays.ahead(view, zone, relayer)
        alone = {remote for remote in alone if not self.backoffs.shuns(zone, remote, name, view.height)}
        if isinstance(self.carries(name), set):
            alone = set()
        for remote in view.order:
            mine = [run for run in runs if run.remote == remote]
            headed = (bool(mine) and not delay) or remote in alone
            accounts = self.net.accounts
            if accounts is not None and (mine or headed):
                needed = accounts.header_fee * headed + accounts.proof_fee * bool(mine)
                if not accounts.covers(zone, name, needed):
                    continue
            if headed:
                yield from self.bring(zone, remote, view.headers[remote].height, name)
                if self.net.outcomes[-1][1] == UNPAID:
                    continue
            for run in mine:
                for n in range(1 if run.call == CLEANUP else run.end - run.begin):
                    proof = self.proof(sight, run, run.begin + n)
                    yield RunSubmission(zone, CALLS[run.call], remote, proof, name, 1, run, n)

    def bring(self, zone: str, remote: str, height: int, name: str) -> Iterator[ibc.Submission]:
        """A header of the remote, where it is unknown the one half-way first (X-4)."""
        yield ibc.Submission(zone, "updateHeader", remote, self.net.headers[remote, height], name)
        below = max((trusted for trusted in self.trusted(zone, remote) if trusted < height), default=height)
        if self.net.outcomes[-1][1] == "NeedIntermediateHeader" and height > below + 1:
            middle = (below + height) // 2
            yield from self.bring(zone, remote, middle, name)
            if middle in self.trusted(zone, remote):
                yield from self.bring(zone, remote, height, name)

    def trusted(self, zone: str, remote: str) -> set[int]:
        """The heights that a zone trusts by now."""
        return {height for height, _ in self.net.zones[zone].connections[remote].T}

    def stale(self, view: ibc.View, zone: str, relayer: int) -> set[str]:
        """The remotes of which a relayer brings a header even where there is nothing to carry: a third of the
        unbonding period has passed since the newest that is trusted, and not all of it."""
        own, period = self.net.zones[zone], self.net.options.unbonding
        coordination, count = self.scenario.relay.get("coordination", "none"), len(self.scenario.relayers)
        if period is None or view.height < 2 or (coordination == "leader" and relayer):
            return set()
        came = self.reached(view, zone, relayer)
        return {
            remote
            for position, remote in enumerate(view.order)
            if remote in own.connections
            and (zone, remote) not in view.frozen
            and remote in came
            and (coordination != "partition" or position % count == relayer)
            and period <= 3 * (own.time - self.newest[zone, remote]) <= 3 * period
        }

    def reached(self, view: ibc.View, zone: str, relayer: int) -> set[str]:
        """The remotes whose headers a relayer can bring: not where the transport skips, and what it drops."""
        came = self.came(view, zone)
        for kind, source, destination, begin, end, name in self.scenario.carriers:
            hit = kind == "drop" and begin <= self.tick <= end and destination in (None, zone)
            if hit and name in (None, self.scenario.relayers[relayer]):
                came -= set(view.order) if source is None else {source}
        return came

    def proof(self, view: Sight, run: Run, index: int) -> ibc.Proof:
        """The proof that comes with one entry of a run, as far as it is one."""
        place = {TIMEOUT: ibc.TAIL, CLEANUP: ibc.HEAD}.get(run.call, index)
        if view.options.order == "unordered" and run.call == TIMEOUT:
            place = index
        key = ibc.key(run.zone, PURPOSES[run.call], place)
        value = view.proven[run.remote].get(key)
        height, chain = view.at[run.remote], run.remote
        wrong = (value or b"") + b"\x00"
        covered = run.call >= TIMEOUT or (run.offered[0] <= run.begin and run.end <= run.offered[1])
        if run.alteration == "stale":
            roots = [self.net.headers[run.remote, at].root for at in (height, height - 1)]
            height -= 1
            covered &= roots[0] == roots[1]
        if run.alteration == "tamper" or not covered or (run.alteration == "foreign" and run.call < TIMEOUT):
            return ibc.Proof(key, wrong, height, chain)
        return ibc.Proof(key, value, height, chain)


@dataclass(frozen=True)
class RunSubmission(ibc.Submission):
    """The call about entry ``number`` of a run."""

    run: Run | None = None
    number: int = 0
