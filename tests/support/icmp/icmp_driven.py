"""The whole kernel, tick by tick, with the oracle beside it.

What parachains make in a tick becomes candidates of the oracle, with the bytes that they consumed and sent; what the
relay chain makes becomes a block of the oracle on the same parent. The oracle validates every candidate, includes what
it includes itself, and has to come to the same states and lists at every leaf.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from causeway.core.frame import Frame
from causeway.core.vocabulary import Event
from causeway.protocols.contract import Inputs, Plan
from causeway.protocols.icmp.kernel import IcmpPlan
from causeway.protocols.relay_chain.block import list_egress, list_ingress
from causeway.protocols.relay_chain.commitment import genesis_hash
from causeway.protocols.relay_chain.state import RelayLeaf, State, read_leaves
from causeway.protocols.shared.contents import encode_contents
from causeway.protocols.shared.messages import LANE_COLUMNS
from tests.spec.icmp.candidates import Candidate, Lists, egress_roots, validate
from tests.spec.icmp.events import Called
from tests.spec.icmp.events import Ingress as Listed
from tests.spec.icmp.fates import fates
from tests.spec.icmp.history import History, Record
from tests.spec.icmp.network import Network as Oracle
from tests.spec.icmp.options import Options
from tests.spec.icmp.relay import GENESIS, Hash, Mark, Receipt
from tests.spec.icmp.runtime import Call
from tests.spec.icmp.runtime import egress as oracle_egress
from tests.spec.icmp.runtime import ingress as oracle_ingress
from tests.support.icmp.icmp_network import Network


class Driven(Network):
    """A network and its oracle; ``calls``: (tick, call of the options)."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        given = self.kernel.options
        names = ("ingress_upper", "watermark_mode", "watermark_rule", "allow_empty_prefix")
        self.oracle = Oracle(Options(**{name: getattr(given, name) for name in names}))
        self.hashes: dict[Hash, Hash] = {genesis_hash(self.names[0]): GENESIS.hash}
        """The oracle's relay blocks by the kernel's."""
        self.made: dict[tuple[int, bytes], Candidate] = {}
        """Candidates of parachains by head."""
        self._seen: bytes | None = None
        self._back = 0
        """How many chains go back in the last tick."""
        self.taken: dict[int, tuple[Lists, int]] = {}
        self._given: list[tuple[int, Call]] = [
            (call.tick, Call(call.do, self.names.index(call.chain), self._other(call.other), self._genesis(call.chain)))
            for call in given.para_calls
        ]
        self._registered_at_genesis()

    def _other(self, name: str | None) -> int | None:
        return None if name is None else self.names.index(name)

    def _genesis(self, name: str) -> bytes:
        return genesis_hash(name)

    def _registered_at_genesis(self) -> None:
        state = self.oracle.rt.states[GENESIS.hash]
        late = self.kernel.planned.late
        paras = [p for p in range(1, len(self.names)) if p not in late]
        state.active |= set(paras)
        for p in paras:
            state.head[p] = genesis_hash(self.names[p])
            state.watermark[p] = GENESIS.mark
            self.oracle.rt.log.append(Called(GENESIS.hash, "register", p))

    # ---- candidates

    def watch(self, plan: Plan[IcmpPlan], inputs: Inputs[State]) -> None:
        """Note what every parachain consumes, if it makes a block."""
        self._back += len(plan.content.standing.rollbacks)
        entries, offered = plan.content.entries, inputs.offered
        offered = offered.filter(offered["source"] != offered["destination"])
        for at, p in enumerate(plan.content.bases["chain"].tolist()):
            lists: dict[int, list[tuple[int, list[bytes]]]] = defaultdict(list)
            for row in np.flatnonzero(entries["to"] == p).tolist():
                first, count = int(entries["first"][row]), int(entries["count"][row])
                body = offered.filter(
                    (offered["source"] == entries["source"][row])
                    & (offered["destination"] == p)
                    & (offered["index"] >= first)
                    & (offered["index"] < first + count)
                )
                body = body.take(np.argsort(body["index"]))
                queue = encode_contents(body).to_pylist()
                lists[int(entries["number"][row])].append((int(entries["source"][row]), queue))
            self.taken[p] = [*lists.items()], at

    def _sent(self, p: int) -> list[tuple[int, bytes]]:
        rows = [frame for height, frame in self.outbound if height == self.height]
        found: list[tuple[int, bytes]] = []
        for frame in rows:
            mine = frame.filter((frame["source"] == p) & (frame["destination"] != p))
            order = np.lexsort([mine[name] for name in reversed(LANE_COLUMNS)])
            mine = mine.take(order)
            found += zip(mine["destination"].tolist(), encode_contents(mine).to_pylist(), strict=True)
        return found

    def _mark(self, number: int, block_hash: Any) -> Mark:
        return Mark(number, self.hashes[block_hash.tobytes()])

    def _new_candidates(self) -> None:
        rows = self.state["candidates"]
        for at, p in enumerate(rows["source"].tolist()):
            head = rows["head"][at].tobytes()
            if (p, head) in self.made:
                continue
            lists, _ = self.taken[p]
            sent = self._sent(p)
            watermark = self._mark(int(rows["watermark"][at]), rows["watermark_hash"][at])
            parent = self.hashes[rows["relay_hash"][at].tobytes()]
            receipt = Receipt(p, parent, rows["parent"][at].tobytes(), head, egress_roots(sent), watermark)
            candidate = Candidate(receipt, lists, sent)
            pairs = self.state["egress"].filter(self.state["egress"]["source"] == p)
            said = tuple(zip(pairs["to"].tolist(), (root.tobytes() for root in pairs["root"]), strict=True))
            assert said == receipt.egress_queue_roots
            assert validate(self.oracle.rt, candidate) is None, candidate
            if self.kernel.options.bodies == "ideal":
                assert lists == self.oracle.candidate(parent, p).lists
            self.made[p, head] = candidate

    # ---- blocks

    def _step(self) -> None:
        before, seen, cursors = read_leaves(self.state.tables), self.state["candidates"], self.state["cursors"]
        self._back = 0
        super()._step()
        self._relay_blocks(before, seen)
        self._new_candidates()
        for leaf in read_leaves(self.state.tables):
            self.compare(leaf)
        self._held(before, cursors)
        self._seen = before[0].hash if self._settled(before) else None

    def _settled(self, before: list[RelayLeaf]) -> bool:
        """Whether every sender could tell in the last tick what has become of its queues."""
        return len(before) == 1 and not self._back

    def _held(self, before: list[RelayLeaf], cursors: Frame) -> None:
        """Whoever can still be asked for a body has it, and with one leaf nobody has another (1.4): but for what was
        consumed at the latest in a block that is not included yet."""
        rows = self.state["runs"].filter(self.state["runs"]["source"] != self.state["runs"]["destination"])
        names = ("source", "destination", "number")
        held = {*zip(*(rows[name].tolist() for name in names), strict=True)}
        wanted = set()
        for leaf in before if self._settled(before) else read_leaves(self.state.tables):
            columns = (leaf.unrouted[name].tolist() for name in ("source", "to", "issued"))
            wanted |= {*zip(*columns, strict=True)}
        assert wanted <= held, "who has posted a queue that waits has not its body"
        if self._settled(before):
            paras = before[0].paras
            included = dict(zip(paras["para"].tolist(), paras["number"].tolist(), strict=True))
            columns = (cursors[name].tolist() for name in ("source", "destination", "number"))
            late = {(x, y) for x, y, number in zip(*columns, strict=True) if number > included.get(y, 0)}
            others = {run for run in held - wanted if run[2] <= included.get(run[0], 0)}
            assert {(x, y) for x, y, _ in others} <= late

    def _relay_blocks(self, before: list[RelayLeaf], seen: Frame) -> None:
        made = [leaf for leaf in read_leaves(self.state.tables) if leaf.hash not in self.hashes]
        refused: list[tuple[str, str]] = []
        for leaf in made:
            parent = self.hashes[leaf.blocks["parent"][0].tobytes()]
            state, chain = self.oracle.rt.states[parent], {b.hash for b in self.oracle.rt.relay.chain(parent)}
            old = next(one for one in before if one.hash == leaf.blocks["parent"][0].tobytes())
            last = int(old.blocks["next_tick"][0])
            calls = [call for tick, call in self._given if last <= tick <= self.tick]
            out = {p: h.tobytes() for p, h in zip(old.paras["para"].tolist(), old.paras["refused"], strict=True)}
            shown = [self.made[p, h.tobytes()] for p, h in zip(seen["source"].tolist(), seen["head"], strict=True)]
            offered = [
                c
                for c in shown
                if c.receipt.relay_parent in chain
                and state.head.get(c.receipt.para) != c.receipt.head_data
                and self._former(old, c.receipt.para) != c.receipt.head_data
                and out.get(c.receipt.para) != c.receipt.head_data
            ]
            on = [self._again(call, old) for call in calls if self._can(call, parent, calls)]
            block = self.oracle.make(parent, offered, on, leaf.blocks["leaf"].tobytes())
            self.hashes[leaf.hash] = block.block.hash
            refused += [(self.names[p], error) for p, error in block.errors]
        assert sorted(self.refusals()) == sorted(refused)

    def _can(self, call: Call, parent: Hash, calls: list[Call]) -> bool:
        active = set(self.oracle.rt.states[parent].active)
        for other in calls:
            if other is call:
                break
            if other.call in ("register", "deregister"):
                (active.add if other.call == "register" else active.discard)(other.para)
        return (call.para in active) != (call.call == "register")

    @staticmethod
    def _former(leaf: RelayLeaf, p: int) -> bytes | None:
        rows = leaf.paras["head"][leaf.paras["para"] == p]
        return rows[0].tobytes() if len(rows) else None

    def _again(self, call: Call, old: RelayLeaf) -> Call:
        """Who is registered again goes on from the block that was included last."""
        former = self._former(old, call.para)
        return Call(call.call, call.para, call.other, former or call.head)

    # ---- compare

    def compare(self, leaf: RelayLeaf) -> None:
        """State and lists of a leaf's block."""
        block = self.hashes[leaf.hash]
        s = self.oracle.rt.states[block]
        paras = leaf.paras.filter(leaf.paras["active"] == 1)
        active = paras["para"].tolist()
        assert set(active) == s.active
        assert {p: head.tobytes() for p, head in zip(active, paras["head"], strict=True)} == s.head
        marks = zip(paras["watermark"].tolist(), paras["watermark_hash"], strict=True)
        assert {p: self._mark(n, h) for p, (n, h) in zip(active, marks, strict=True)} == s.watermark
        found: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
        columns = (leaf.unrouted[name].tolist() for name in ("number", "to", "source"))
        for n, to, source, root in zip(*columns, leaf.unrouted["root"], strict=True):
            found.setdefault((n, to), []).append((source, root.tobytes()))
        assert found == s.unrouted
        for p in active:
            assert self._listed(list_ingress, leaf, p, "to", "source") == oracle_ingress(self.oracle.rt, block, p)
            assert self._listed(list_egress, leaf, p, "source", "to") == oracle_egress(self.oracle.rt, block, p)

    def _listed(self, lists: Any, leaf: RelayLeaf, p: int, own: str, other: str) -> Listed:
        rows = lists(leaf.unrouted, leaf.number, self.kernel.options)
        found: dict[int, list[tuple[int, Hash]]] = {}
        for at in np.flatnonzero(rows[own] == p).tolist():
            found.setdefault(int(rows["number"][at]), []).append((int(rows[other][at]), rows["root"][at].tobytes()))
        return tuple((number, tuple(pairs)) for number, pairs in found.items())

    def fates(self) -> None:
        """Every message that was posted waits with its body, or was consumed once, or was dropped with one event: as
        the oracle's log has it, on the relay chain as senders saw it in the last tick."""
        assert self._seen is not None, "a fork, or a chain that goes back"
        h = History(Record(self.oracle.log, self.oracle.options))
        counts: dict[tuple[int, int], int] = defaultdict(int)
        gone, consumed = set(), set()
        for queue, fate in fates(h, self.hashes[self._seen]).items():
            lane = queue.source, queue.to
            first = counts[lane]
            counts[lane] += h.queues[queue.block, *lane].n_messages
            messages = {(*lane, index) for index in range(first, counts[lane])}
            gone |= messages if fate == "gone" else set()
            consumed |= messages if fate == "consumed" else set()
        rows = self.surviving(Event.DROPPED)
        rows = rows.filter((rows["source"] < len(self.names)) & (rows["source"] != rows["destination"]))
        dropped = list(zip(*(rows[name].tolist() for name in ("source", "destination", "index")), strict=True))
        assert sorted(dropped) == sorted(gone)
        delivered = self.delivered()
        assert set(delivered.values()) <= {1}
        assert consumed <= set(delivered) and not gone & set(delivered)

    def delivered(self) -> dict[tuple[int, int, int], int]:
        """How often each message of a lane between chains was received, by events that no fork has taken back."""
        rows = self.surviving(Event.RECEIVED)
        rows = rows.filter((rows["source"] != rows["destination"]) & (rows["source"] < len(self.names)))
        found: dict[tuple[int, int, int], int] = defaultdict(int)
        for key in zip(*(rows[name].tolist() for name in ("source", "destination", "index")), strict=True):
            found[key] += 1
        return dict(found)
