"""A network of three zones on the IBC kernel, and single calls with proofs that are submitted from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from causeway.model.ledger import Kind
from causeway.proofs.ics23.simple_store import SimpleStore
from causeway.proofs.wire import ibc_queue_pb2 as wire
from causeway.protocols.ibc.keys import Key, Part, Purpose, index_key, parse_key
from causeway.protocols.ibc.values import decode_position, decode_receipt
from tests.property.ibc_harness import Call, Carried, KernelRun, Scenario
from tests.property.ibc_programs import ACTOR, ops

A, B, C = 0, 1, 2
"""The programs' numbers: an actor on each of the zones A, B and C."""

SILENT: tuple[Any, ...] = (("drop", None, None, 0, 10**6, None),)
"""The scenario's own relayers submit nothing."""


class Net(KernelRun):
    """Three zones with an actor each, and programs that echo and call; blocks one by one."""

    def __init__(self, options: Mapping[str, Any] | None = None, blocks: int = 30, **more: Any) -> None:
        zones = {"A": {A: ACTOR, 10: "caller"}, "B": {B: ACTOR, 11: "echo"}, "C": {C: ACTOR}}
        self.told: dict[int, list[Call]] = {}
        self.brought: dict[int, list[Carried]] = {}
        options = {"validators": 1} | dict(options or {})
        super().__init__(Scenario(zones, options, ticks=range(blocks), ingress=self.told, carried=self.brought, **more))
        self.stores: dict[int, dict[str, dict[bytes, bytes]]] = {}

    def say(self, zone: str, program: int, *described: Any) -> Net:
        """Tell an actor something in the next block."""
        self.told.setdefault(self.height + 1, []).append(Call(zone, program, 5, "do", ops(*described)))
        return self

    def ask(
        self, receiver: int = B, method: str = "echo", payload: bytes = b"x", note: Any = None, cycles: int = 0
    ) -> Net:
        """Let the actor on A make a call."""
        return self.say("A", A, ("call", receiver, method, payload, cycles, note))

    def next(self, count: int = 1) -> Net:
        for _ in range(count):
            self.play(self.height + 1)
            application, entries = self.application(), self.entries()
            self.stores[self.height] = {name: {**entries[name], **application[name]} for name in self.names}
        return self

    def put(self, zone: str, *calls: wire.Call, user: int = 7) -> Net:
        """Submit a transaction in the next block, beside others."""
        return self.put_bytes(zone, wire.Transaction(calls=calls).SerializeToString(), user=user)

    def put_bytes(self, zone: str, data: bytes, user: int = 7) -> Net:
        """Bring bytes, whatever they are, in the next block."""
        self.brought.setdefault(self.height + 1, []).append(Carried(zone, user, data))
        return self

    def bring(self, zone: str, *calls: wire.Call, user: int = 7) -> list[str]:
        """Submit calls from outside in the next block; return why they were refused, in order."""
        self.put(zone, *calls, user=user).next()
        rows = self.events()
        rows = rows.filter(rows["kind"] == Kind.CONTROL)
        here = list(self.names).index(zone)
        reasons = zip(rows["chain"].tolist(), rows["reason"].to_pylist(), strict=True)
        return [reason for chain, reason in reasons if chain == here]

    def update(self, remote: str) -> wire.Call:
        """The newest header of a zone."""
        place = list(self.names).index(remote)
        return wire.Call(update=wire.UpdateHeader(remote=remote, header=self.headers["certification"][place].as_py()))

    def proof(self, kind: str, zone: str, key: bytes, height: int | None = None, **other: Any) -> wire.Call:
        """The call ``kind`` with the true proof of what ``zone`` has under ``key``; ``other`` replaces its parts."""
        height = height or self.height
        store = self.stores[height][zone]
        tree = SimpleStore.of(*columns(store))
        shown = key if key in store else next(iter(store))
        parts = {"remote": zone, "key": key, "value": store[shown], "proof": tree.prove(shown), "height": height}
        call = wire.Call()
        for name, value in (parts | other).items():
            setattr(getattr(call, kind), name, value)
        return call

    def packet(self, index: int, zone: str = "A", to: str = "B", **other: Any) -> wire.Call:
        return self.proof("receive", zone, index_key(to, Purpose.SEND, index), **other)

    def receipt(self, index: int, zone: str = "B", to: str = "A", **other: Any) -> wire.Call:
        return self.proof("receipt", zone, index_key(to, Purpose.RECEIPT, index), **other)

    def queue(self, zone: str, remote: str, purpose: Purpose) -> tuple[int, int]:
        """Head and tail."""
        entries = self.entries()[zone]
        head, tail = (entries[Key(remote, purpose, part).encode()] for part in (Part.HEAD, Part.TAIL))
        return decode_position(head), decode_position(tail)

    def codes(self, zone: str, remote: str) -> list[int]:
        """The codes of the receipts that a zone keeps."""
        return [decode_receipt(v).code for k, v in sorted(self.entries()[zone].items())
                if parse_key(k).remote == remote and parse_key(k).purpose == Purpose.RECEIPT
                and parse_key(k).part == Part.INDEX]  # fmt: skip

    def seen(self, number: int) -> list[Any]:
        """What an actor noted: requests (sender, callback, method, payload, cycles), replies (callback, code, ...)."""
        notes: list[Any] = self._program(number)["state"]["seen"]
        return notes


def columns(store: Mapping[bytes, bytes]) -> tuple[Any, Any]:
    keys = sorted(store)
    return pa.array(keys, pa.binary()), pa.array([store[key] for key in keys], pa.binary())
