"""What the kernel logged and keeps, as the record that the oracle's guarantee checkers read.

Rows come from the kernel's logs, in the order in which a block does things; packets and receipts are decoded by the
oracle's codecs from the bytes whose hashes are in the stores.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from causeway.core.vocabulary import Event, Kind, Via
from causeway.protocols.ibc.relayer_view import SubmissionKind
from causeway.protocols.ibc.state import RECEIPT, SEND
from tests.spec import ibc
from tests.spec.ibc.calls import DISCONNECT
from tests.spec.ibc.events import digest
from tests.spec.ibc.programs import CALL, decode_envelope
from tests.spec.ibc.record import Record
from tests.support.ibc.ibc_harness import TICK_NS, KernelRun, OracleRun, View
from tests.support.ibc.ibc_outside import name_of

EVENT_COLUMNS = ("chain", "source", "substream", "index", "kind", "via", "events", "code")


class KernelRecord:
    """Grows with every block of a run: ``look()`` after each."""

    def __init__(self, run: KernelRun, oracle: OracleRun) -> None:
        self.run = run
        self.options = oracle.net.options
        self.permissions = {
            name: {**zone.permissions, CALL: set(zone.permissions[CALL])} for name, zone in oracle.net.zones.items()
        }
        self.home = {number: name for name, here in run.scenario.zones.items() for number in here}
        self.log: list[ibc.Row] = []
        self.history: dict[tuple[str, int], dict[bytes, bytes]] = {}
        self.trust: dict[str, dict[str, list[int]]] = {}
        self.order: dict[tuple[str, str, int, int], int] = {}
        """Zone, remote, call and index of what had an effect in a block -> its place in the log."""
        self.amounts: dict[tuple[int, int, int], int] = {}
        """Of messages on the zones' own lanes."""
        self.tx = 0
        self.look(run.view())

    def look(self, view: View) -> None:
        """Take in the newest block, or the genesis: what there is to see of it."""
        run, height = self.run, self.run.height
        entries = {name: sections["entries"] for name, sections in view.items()}
        for name, store in entries.items():
            self.history[name, height] = store
        self.tx = 0
        self.brought = self._brought() if height else {}
        if height:
            self._clients(view)
            self._taken()
            self._sent()
        time = (run.tick.tick + 1) * TICK_NS if height else 0
        self.log += [ibc.Root(name, height, time, view[name]["root"]) for name in run.names]
        self.view = view
        self.trust = {name: sections["trust"] for name, sections in view.items()}

    def record(self) -> Record:
        """All until now."""
        names = self.run.names
        return Record(
            self.log,
            self.options,
            self.run.height,
            list(names),
            {name: self.history[name, self.run.height] for name in names},
            self.history,
            {
                (name, remote): {i for other, i in self.view[name]["unwritten"] if other == remote}
                for name in names
                for remote in self._peers(name)
            },
            self.permissions,
            self._held(),
            sum(name is not None for here in self.run.scenario.zones.values() for name in here.values())
            * self.run.scenario.balance,
            self.run.funds(),
        )

    def _peers(self, name: str) -> list[str]:
        return sorted({ibc.parse(key)[0] for key in self.history[name, 0]})

    def next_tx(self) -> int:
        self.tx += 1
        return self.tx

    # ---- rows

    def _brought(self) -> dict[tuple[str, str, int, int], str]:
        """Who brought what had an effect in this block, by zone, remote, call and index: as the log says."""
        run = self.run
        rows = run.events()
        rows = rows.filter((rows["kind"] == Kind.CONTROL) & (rows["events"] == np.uint16(Event.RELAYED)))
        names = ("chain", "source", "sender", "via", "receiver", "index", "queue_index")
        columns = zip(*(rows[name].tolist() for name in names), rows["reason"].to_pylist(), strict=True)
        found: dict[tuple[str, str, int, int], str] = {}
        self.order = {}
        for place, (chain, source, sender, via, call, first, count, reason) in enumerate(columns):
            if reason in ("", "HeaderAdded") and source < len(run.names):
                who = name_of(sender) if via == Via.INGRESS else run.scenario.relayers[sender]
                for index in range(first, first + count):
                    key = run.names[chain], run.names[source], call, index
                    found.setdefault(key, who)
                    self.order.setdefault(key, place)
        return found

    def _clients(self, view: View) -> None:
        """What is trusted from now on, and what froze at the begin of the block: where zones fork, relayers show that
        before all else."""
        height, happened = self.run.height, self.run.happened()["clients"]
        recovered = {(zone, remote): at for zone, remote, at, what in happened if what == "Recovered"}
        for (zone, remote), at in sorted(recovered.items()):
            self.log.append(ibc.Recovered(zone, height, self.next_tx(), remote, at))
        for name, sections in view.items():
            for remote, heights in sections["trust"].items():
                known = {*self.trust[name][remote], recovered.get((name, remote))}
                for added in sorted(set(heights) - known):
                    who = self.brought.get((name, remote, SubmissionKind.UPDATE, added), "")
                    self.log.append(ibc.HeaderAdded(name, height, self.next_tx(), remote, added, who))
        frozen = [(zone, remote, at) for zone, remote, at, what in happened if what == "Frozen"]
        forks = {zone for zone, tick in self.run.scenario.forks if tick == self.run.tick.tick}
        rows = [ibc.Frozen(zone, height, self.next_tx(), remote, at, "") for zone, remote, at in sorted(frozen)]
        self.log += [row for row in rows if row.remote in forks]
        self.newly_frozen = [row for row in rows if row.remote not in forks]

    def _taken(self) -> None:
        """Receives, receipts, time-outs and cleanups."""
        run, height = self.run, self.run.height
        rows = run.events()
        columns = zip(*(rows[name].tolist() for name in EVENT_COLUMNS), rows["reason"].to_pylist(), strict=True)
        codes: dict[tuple[str, str, int], int] = {}
        received: dict[tuple[str, str, int, int], bool] = {}
        for chain, source, substream, index, kind, via, events, code, reason in columns:
            name = run.names[chain]
            if kind == Kind.CONTROL and events & Event.REJECTED:
                call = "IBCreceive" if substream == SEND else "IBCreceipt"
                remote = run.names[source]
                key = ibc.key(remote, "send" if substream == SEND else "receipt", index)
                self.log.append(ibc.Refused(name, height, call, remote, key, reason, "", 0))
            elif via == Via.LANE and events & Event.RECEIVED and chain != source:
                if substream == SEND:
                    packet = name, run.names[source], SubmissionKind.RECEIVE, index
                    assert packet not in received, f"received twice in one block: {packet}"
                    received[packet] = bool(events & Event.EXECUTED)
                else:
                    codes[name, run.names[source], index] = code
        # Calls by the log; the entries of one run by index: rows of packets say nothing of order (those that no program
        # handled stand behind the others).
        for entry in sorted([*received, *self._cleaned()], key=lambda one: (self.order[one], one[3])):
            self.log.append(self._receipt(*entry, executed=received.get(entry, False)))
        self._settled(codes)
        self.log += self.newly_frozen

    def _receipt(self, name: str, remote: str, call: int, index: int, executed: bool) -> ibc.Row:
        """The row of a packet that came, or of a cleanup from an index on."""
        height = self.run.height
        if call == SubmissionKind.CLEANUP:
            end = self.cleaned[name, remote, call, index]
            return ibc.Cleaned(name, height, self.next_tx(), remote, index, end, "", None)
        packet = self._packet(remote, name, index)
        value = self.history[name, height].get(ibc.key(remote, "receipt", index))
        receipt = None if value is None else ibc.decode_receipt(value)
        result, code = (None, None) if receipt is None else (digest(receipt.result), receipt.code)
        more = packet.type, digest(packet.data), None
        who = self.brought.get((name, remote, SubmissionKind.RECEIVE, index), "")
        return ibc.Received(name, height, self.next_tx(), remote, index, result, code, executed, who, *more)

    def _settled(self, codes: dict[tuple[str, str, int], int]) -> None:
        height = self.run.height
        for name, remote, index in sorted(self.run.happened()["settled"]):
            if (name, remote, SubmissionKind.TIMEOUT, index) in self.brought:
                self.log.append(ibc.TimedOut(name, height, self.next_tx(), remote, index, "", None))
                continue
            receipt = ibc.decode_receipt(self._content(remote, name, RECEIPT, index))
            code = codes.get((name, remote, index), receipt.code)
            who = self.brought.get((name, remote, SubmissionKind.RECEIPT, index), "")
            outcome, hashed = "commit" if code == 0 else "rollback", digest(receipt.result)
            self.log.append(ibc.Acked(name, height, self.next_tx(), remote, index, outcome, code, who, hashed, None))

    def _cleaned(self) -> dict[tuple[str, str, int, int], int]:
        """Where each cleanup began, and where it ended."""
        height = self.run.height
        self.cleaned: dict[tuple[str, str, int, int], int] = {}
        for name in self.run.names:
            for remote in self._peers(name):
                now = ibc.decode_state(self.history[name, height][ibc.key(remote, "receipt", ibc.HEAD)])
                begins = sorted(key[3] for key in self.order if key[:3] == (name, remote, SubmissionKind.CLEANUP))
                for begin, end in zip(begins, [*begins, now][1:], strict=True):
                    self.cleaned[name, remote, SubmissionKind.CLEANUP, begin] = end
        return self.cleaned

    def _sent(self) -> None:
        run, height = self.run, self.run.height
        taken = {(row.chain, row.remote, row.index) for row in self.log if isinstance(row, ibc.Received)}
        before = {(row.chain, row.remote, row.index) for row in self.log
                  if isinstance(row, ibc.Received) and row.height == height}  # fmt: skip
        forged = Counter(tuple(claim) for tick, *claim in run.scenario.forged if tick == run.tick.tick)
        for result in run.results:
            rows = result.outbound
            local = rows.filter(rows["source"] == rows["destination"])
            columns = (local[name].tolist() for name in ("source", "substream", "index", "amount_high", "amount_low"))
            self.amounts |= {tuple(key): (high << 64) + low for *key, high, low in zip(*columns, strict=True)}
            rows = rows.filter(rows["source"] != rows["destination"])
            lanes = zip(*(rows[name].tolist() for name in ("source", "destination", "substream", "index")), strict=True)
            for source, destination, substream, index in lanes:
                name, remote = run.names[source], run.names[destination]
                if substream == RECEIPT:
                    if (name, remote, index) in taken and (name, remote, index) not in before:
                        receipt = ibc.decode_receipt(self._content(name, remote, RECEIPT, index))
                        hashed = digest(receipt.result)
                        self.log.append(ibc.Written(name, height, self.next_tx(), remote, index, hashed, receipt.code))
                    continue
                packet = self._packet(name, remote, index)
                module: int | str = name
                if packet.type != DISCONNECT:
                    module, _, call = decode_envelope(packet.data)
                    claim = name, module, call.receiver, call.payload
                    if forged[claim] and call.method == "forged":
                        forged[claim] -= 1
                        module = "forged"
                sent = packet.type, digest(packet.data), packet.max_height, packet.max_time, module
                self.log.append(ibc.Sent(name, height, self.next_tx(), remote, index, *sent))

    # ---- what was pushed

    def _content(self, owner: str, taker: str, substream: int, index: int) -> bytes:
        of, to = self.run.names.index(owner), self.run.names.index(taker)
        return self.run.contents[of, to, substream, index][1]

    def _packet(self, owner: str, taker: str, index: int) -> ibc.Packet:
        return ibc.decode_packet(self._content(owner, taker, SEND, index))

    # ---- value

    def _held(self) -> int:
        """With programs, on the zones' own lanes, and in hand for callers of their own zone."""
        total = 0
        for sections in self.view.values():
            total += sum(sections["balances"].values())
            for number, program in sections["programs"].items():
                for (sender, _, cycles, _), count in program.get("open", {}).items():
                    if self.home.get(sender) == self.home[number]:
                        total += cycles * count
                total -= sum(program.get("accepted", {}).values())  # in balances, and with the requests that are open
        return total + sum(self._local().values())

    def _local(self) -> dict[tuple[int, int, int], int]:
        """The value of what is on the zones' own lanes, by source, substream and index."""
        counters = self.run.state.queues.counters
        names = ("source", "destination", "substream", "begin", "next_index")
        local: dict[tuple[int, int, int], int] = {}
        for source, destination, substream, *window in zip(*(counters[name].tolist() for name in names), strict=True):
            if source == destination:
                local |= {(source, substream, at): self.amounts[source, substream, at] for at in range(*window)}
        return local
