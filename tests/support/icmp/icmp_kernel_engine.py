"""The kernel's runtime, lists and validation as an engine: relay blocks on any parent, candidates as a test makes them.

Blocks are named as the oracle names them; heads, which are any bytes there, by their hashes. What a log says is read
from the kernel's tables, but for what only parachains know: what a candidate consumed and posted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from causeway_proofs.order import group_rows
from causeway_proofs.substrate import ordered_roots

from causeway.core.frame import Frame, empty_frame
from causeway.core.vocabulary import NO_CHAIN
from causeway.protocols.icmp.faults import validate_incoming, validate_outgoing
from causeway.protocols.relay_chain.block import complete_prefix, list_egress, list_ingress, locate_bodies
from causeway.protocols.relay_chain.errors import Inclusion, Validation
from causeway.protocols.relay_chain.options import IcmpOptions
from causeway.protocols.relay_chain.runtime import CandidateReceipts, ParachainCallKind, include, set_posted_hash
from causeway.protocols.relay_chain.runtime import ParachainCall as KernelCall
from causeway.protocols.relay_chain.state import (
    BLOCKS_SCHEMA,
    OF_LEAVES,
    RUNS_SCHEMA,
    STATE_TABLES,
    read_leaves,
    with_ancestor,
)
from causeway.protocols.shared.digests import digests
from tests.spec.icmp.candidates import Candidate, Lists, Messages, egress_queues
from tests.spec.icmp.events import Called, Consumed, Included, Queue, Refused, RelayRow, Row
from tests.spec.icmp.events import Ingress as Listed
from tests.spec.icmp.events import Lists as ListsRow
from tests.spec.icmp.network import Made, messages_hash, next_head
from tests.spec.icmp.options import Options
from tests.spec.icmp.relay import GENESIS, Hash, Mark, ParaId, Receipt, Relay, block_on
from tests.spec.icmp.runtime import Call
from tests.spec.icmp.trie import H

ENTRIES = pa.schema([("to", pa.uint32()), ("number", pa.uint64()), ("source", pa.uint32()), ("root", pa.binary(32))])
PAIRS = pa.schema([("source", pa.uint32()), ("to", pa.uint32()), ("root", pa.binary(32))])


def frame_of(rows: Sequence[dict[str, object]], schema: pa.Schema) -> Frame:
    if not rows:
        return empty_frame(schema)
    columns = {}
    for column in schema:
        values = [row[column.name] for row in rows]
        bytes_ = pa.types.is_fixed_size_binary(column.type)
        columns[column.name] = digests(values) if bytes_ else np.array(values, dtype=column.type.to_pandas_dtype())  # type: ignore[arg-type]
    return Frame(columns, len(rows))


def roots_of(queues: Sequence[Sequence[bytes]]) -> list[bytes]:
    """R of many queues at once, by the kernel's tries."""
    flat = pa.array([message for queue in queues for message in queue], pa.large_binary())
    of = np.repeat(np.arange(len(queues)), [len(queue) for queue in queues])
    full = iter(ordered_roots(flat, group_rows(of)))
    empty = ordered_roots(flat.slice(0, 0), group_rows(of[:0]))
    assert len(empty) == 0
    return [next(full).tobytes() if queue else H(b"\0") for queue in queues]


class KernelEngine:
    """``leaves``: the kernel's tables after every block; ``heads``: the oracle's heads by the kernel's."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        names = ("ingress_upper", "watermark_mode", "watermark_rule", "allow_empty_prefix")
        self.kernel = IcmpOptions(**{name: getattr(self.options, name) for name in names})
        self.relay = Relay()
        genesis = {
            "chain": 0,
            "leaf": 0,
            "number": 0,
            "hash": GENESIS.hash,
            "parent": bytes(32),
            "next_tick": 0,
        }
        tables = {name: empty_frame(STATE_TABLES[name].schema) for name in OF_LEAVES}
        tables["blocks"] = frame_of([genesis], BLOCKS_SCHEMA)
        self.leaves = {GENESIS.hash: read_leaves(tables)[0]}
        self.heads: dict[bytes, bytes] = {}
        self.numbers: dict[bytes, int] = {}
        """By head, the number of the parachain's block: any, as long as no two are the same."""
        self.posted: dict[tuple[Hash, ParaId, ParaId], list[bytes]] = {}
        self.lost: set[tuple[Hash, ParaId, ParaId]] = set()
        self.candidates: dict[Hash, Candidate] = {}
        self.log: list[Row] = [RelayRow(GENESIS.hash, None, 0)]

    # ---- lists

    def _lists(self, block: Hash, p: ParaId, own: str, other: str) -> Listed:
        leaf = self.leaves[block]
        rows = (list_ingress if own == "to" else list_egress)(leaf.unrouted, leaf.number, self.kernel)
        found: dict[int, list[tuple[ParaId, Hash]]] = {}
        for at in np.flatnonzero(rows[own] == p).tolist():
            pair = (int(rows[other][at]), rows["root"][at].tobytes())
            found.setdefault(int(rows["number"][at]), []).append(pair)
        return tuple((number, tuple(pairs)) for number, pairs in found.items())

    def ingress(self, block: Hash, p: ParaId) -> Listed | None:
        return self._lists(block, p, "to", "source") if p in self.active(block) else None

    def egress(self, block: Hash, p: ParaId) -> Listed:
        return self._lists(block, p, "source", "to")

    def active(self, block: Hash) -> set[ParaId]:
        paras = self.leaves[block].paras
        return set(paras["para"][paras["active"] == 1].tolist())

    def watermark(self, block: Hash, p: ParaId) -> Mark:
        paras = self.leaves[block].paras
        row = paras["para"].tolist().index(p)
        return Mark(int(paras["watermark"][row]), paras["watermark_hash"][row].tobytes())

    def head(self, block: Hash, p: ParaId) -> bytes:
        paras = self.leaves[block].paras
        return self.heads[paras["head"][paras["para"].tolist().index(p)].tobytes()]

    # ---- candidates

    def _bodies(self, block: Hash, p: ParaId) -> tuple[Frame, list[list[bytes]]]:
        """The segments that senders keep for p, and the messages of each. A body of an equal queue of the same block
        is as good as the one that is lost (hazard 15)."""
        rows: list[dict[str, object]] = []
        bodies: list[list[bytes]] = []
        chain = {one.hash for one in self.relay.chain(block)}
        there = [(key[0], messages) for key, messages in self.posted.items() if key[2] == p and key not in self.lost]
        for (at, x, y), messages in self.posted.items():
            if y == p and at in chain and (at, messages) in there:
                issued = self._issued(at, x)
                where = {"height": 1, "first": len(bodies), "count": len(messages), "number": issued}
                (root,) = roots_of([messages])
                rows.append({"source": x, "destination": y, "substream": 0, **where, "root": root})
                bodies.append(messages)
        return frame_of(rows, RUNS_SCHEMA), bodies

    def _issued(self, block: Hash, x: ParaId) -> int:
        paras = self.leaves[block].paras
        return int(paras["number"][paras["para"].tolist().index(x)])

    def candidate(
        self,
        B: Hash,  # noqa: N803
        p: ParaId,
        sends: Messages = (),
        take: int | None = None,
        watermark: Mark | None = None,
        held: Mapping[tuple[int, Hash], Sequence[bytes]] | None = None,
    ) -> Candidate:
        leaf = self.leaves[B]
        listed = list_ingress(leaf.unrouted, leaf.number, self.kernel)
        listed = listed.filter(listed["to"] == p)
        segments, bodies = self._bodies(B, p)
        entries = locate_bodies(listed, segments)
        missing = entries["count"] == 0
        if held is not None:
            keys = zip(entries["number"].tolist(), entries["root"], strict=True)
            missing = np.array([(n, root.tobytes()) not in held for n, root in keys], dtype=bool)
        entries = complete_prefix(entries, missing)
        found: dict[int, list[tuple[ParaId, Sequence[bytes]]]] = {}
        for at in range(len(entries)):
            messages = bodies[int(entries["first"][at])]
            found.setdefault(int(entries["number"][at]), []).append((int(entries["source"][at]), messages))
        lists: Lists = [*found.items()][:take]
        if watermark is None:
            watermark = self.relay.at(B, lists[-1][0]).mark if lists else self.watermark(B, p)
        parent = self.head(B, p)
        head = next_head(parent, B, lists, sends)
        queues = egress_queues(sends)
        roots = tuple(zip(queues, roots_of([*queues.values()]), strict=True))
        return Candidate(Receipt(p, B, parent, head, roots, watermark), lists, sends)

    def validate(self, c: Candidate, held: Collection[Hash] = ()) -> str | None:
        r, leaf = c.receipt, self.leaves[c.receipt.relay_parent]
        chains = np.array([r.para], dtype=np.uint32)
        listed = list_ingress(leaf.unrouted, leaf.number, self.kernel)
        listed = listed.filter(listed["to"] == r.para)
        listed = listed.with_columns(held=np.array([root.tobytes() in held for root in listed["root"]], dtype=bool))
        rows = []
        for n, queues in c.lists:
            roots = roots_of([messages for _, messages in queues])
            given = [
                {"to": r.para, "number": n, "source": x, "root": root}
                for (x, _), root in zip(queues, roots, strict=True)
            ]
            rows += given or [{"to": r.para, "number": n, "source": NO_CHAIN, "root": bytes(32)}]
        marks, now = (np.array([number], dtype=np.uint64) for number in (r.watermark.number, leaf.number))
        (code,) = validate_incoming(chains, marks, listed, frame_of(rows, ENTRIES), now, self.kernel)
        if code:
            return Validation(code).name
        sent = egress_queues(c.messages)
        made = [
            {"source": r.para, "to": to, "root": root}
            for to, root in zip(sent, roots_of([*sent.values()]), strict=True)
        ]
        stated = [{"source": r.para, "to": to, "root": root} for to, root in r.egress_queue_roots]
        (code,) = validate_outgoing(chains, frame_of(made, PAIRS), frame_of(stated, PAIRS))
        return Validation(code).name if code else None

    # ---- blocks

    def make(
        self,
        parent: Hash = GENESIS.hash,
        candidates: Sequence[Candidate] = (),
        calls: Sequence[Call] = (),
        seal: bytes = b"",
        attested: Collection[Hash] = (),
    ) -> Made:
        block = block_on(self.relay.blocks[parent], seal)
        errors = [None if c.receipt.candidate in attested else self.validate(c) for c in candidates]
        sound = [c for c, error in zip(candidates, errors, strict=True) if error is None]
        refused = [self._refused(block.hash, c, error) for c, error in zip(candidates, errors, strict=True) if error]
        sound = sorted(sound, key=lambda c: c.receipt.para)
        done = include(self.leaves[parent], self._receipts(sound), [self._call(call) for call in calls], 0, self.kernel)
        leaf = set_posted_hash(with_ancestor(done.leaf), block.number, block.hash)
        named = {
            "number": block.number,
            "hash": block.hash,
            "parent": parent,
            "chain": 0,
            "leaf": 0,
            "next_tick": 0,
        }
        leaf = replace(leaf, blocks=frame_of([named], BLOCKS_SCHEMA))
        self.leaves[block.hash] = leaf
        self.relay.add(block)
        self.log.append(RelayRow(block.hash, parent, block.number))
        self.log += [Called(block.hash, call.call, call.para, call.other) for call in calls]
        left_out = []
        for c, code in zip(sound, done.codes.tolist(), strict=True):
            if code == Inclusion.OK:
                self._note(parent, block.hash, c)
            else:
                left_out.append(self._refused(block.hash, c, Inclusion(code).name))
        known = sorted(leaf.paras["para"].tolist())
        self.log += [ListsRow(block.hash, p, self.ingress(block.hash, p), self.egress(block.hash, p)) for p in known]
        self.log += [*refused, *left_out]
        return Made(block, [*refused, *left_out])

    def _call(self, call: Call) -> KernelCall:
        head = H(call.head)
        self.heads[head] = call.head
        return KernelCall(ParachainCallKind(call.call), call.para, call.other or 0, head)

    def _receipts(self, sound: Sequence[Candidate]) -> CandidateReceipts:
        rows, pairs = [], []
        for receipt, c in enumerate(sound):
            r = c.receipt
            head, parent = H(r.head_data), H(r.parent_head)
            self.heads[head] = r.head_data
            self.numbers.setdefault(head, len(self.numbers) + 1)
            marked = {"watermark": r.watermark.number, "watermark_hash": r.watermark.hash}
            numbers = {"receipt": receipt, "source": r.para, "number": self.numbers[head]}
            rows.append({**numbers, **marked, "parent": parent, "head": head, "relay_hash": r.relay_parent})
            pairs += [{"receipt": receipt, "to": to, "root": root} for to, root in r.egress_queue_roots]
        types = {"receipt": pa.uint32(), "source": pa.uint32(), "to": pa.uint32(), "number": pa.uint64()}
        types |= {name: pa.binary(32) for name in ("parent", "head", "relay_hash", "watermark_hash", "root")}
        types["watermark"] = pa.uint64()
        names = ("receipt", "source", "number", "parent", "head", "relay_hash", "watermark", "watermark_hash")
        schema = pa.schema([(name, types[name]) for name in names])
        return CandidateReceipts(
            frame_of(rows, schema), frame_of(pairs, pa.schema([(n, types[n]) for n in ("receipt", "to", "root")]))
        )

    @staticmethod
    def _refused(block: Hash, c: Candidate, error: str) -> Refused:
        return Refused(block, c.receipt.para, c.receipt.candidate, error)

    def _note(self, parent: Hash, block: Hash, c: Candidate) -> None:
        r = c.receipt
        before = self.leaves[parent].unrouted
        called = self.leaves[block]
        old, new = self._marks(parent, block, c)
        mine = before.filter((before["to"] == r.para) & (before["number"] <= np.uint64(new.number)))
        passed = tuple(sorted(set(mine["number"].tolist()))) if r.para in self.active(parent) else ()
        row = Included(block, r.para, r.candidate, r.relay_parent, r.egress_queue_roots, old, new, passed)
        self.log.append(row)
        blocked = set(zip(called.blocked["source"].tolist(), called.blocked["to"].tolist(), strict=True))
        queues = egress_queues(c.messages)
        for (to, messages), root in zip(queues.items(), roots_of([*queues.values()]), strict=True):
            self.log.append(Queue(block, r.para, to, root, len(messages), messages_hash(messages)))
            if (r.para, to) not in blocked:
                self.posted[block, r.para, to] = messages
        if r.candidate not in self.candidates:
            self.candidates[r.candidate] = c
            chain = {at.number: at.hash for at in self.relay.chain(r.relay_parent)}
            position = 0
            for n, lists in c.lists:
                for (sender, body), root in zip(lists, roots_of([m for _, m in lists]), strict=True):
                    for i, message in enumerate(body):
                        at = (sender, root, i, position, H(message))
                        self.log.append(Consumed(r.para, r.candidate, chain[n], *at))
                        position += 1

    def _marks(self, parent: Hash, block: Hash, c: Candidate) -> tuple[Mark, Mark]:
        """The watermark of a chain before its receipt, after the block's calls, and after it."""
        p = c.receipt.para
        new = self.watermark(block, p)
        if p in self.active(parent):
            return self.watermark(parent, p), new
        again = p in self.leaves[parent].paras["para"].tolist()
        return (self.relay.blocks[parent].mark if again else GENESIS.mark), new
