"""A network of three zones on the IBC kernel or on its oracle, and single calls with proofs, submitted from outside.

What is told, shown and asked is the same, in the same words, whichever engine plays it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from causeway_proofs.ics23.simple_store import SimpleStore
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.core.vocabulary import Event, Kind
from causeway.protocols.ibc.keys import KeyPart, QueueKey, QueuePurpose, index_key, parse_key
from causeway.protocols.ibc.packets import decode_position, decode_receipt
from causeway.protocols.ibc.relay.accounts import OUTSIDER
from tests.spec import ibc
from tests.spec.ibc import guarantees
from tests.support.ibc.ibc_harness import Call, Carried, KernelRun, OracleRun, Scenario
from tests.support.ibc.ibc_programs import ACTOR, ops

A, B, C = 0, 1, 2
"""The programs' numbers: an actor on each of the zones A, B and C."""

SILENT: tuple[Any, ...] = (("drop", None, None, 0, 10**6, None),)
"""The scenario's own relayers submit nothing."""


FORGERY = "G7: module forged sent type call"
"""What the invariants say of a zone that forges, as a scenario may have it."""


class Played:
    """Three zones with an actor each, and programs that echo and call; blocks one by one."""

    height: int
    scenario: Scenario
    told: dict[int, list[Call]]
    stores: dict[int, dict[str, dict[bytes, bytes]]]
    """By height and zone: what the root of that block is of."""
    counts: Counter[Any]
    """What the scenario's relayers did, over all blocks: headers, fees, submitted, accepted, failed of each."""

    def network(self, options: Mapping[str, Any] | None, blocks: int, more: Mapping[str, Any]) -> Scenario:
        """Describe the network, nothing of which has happened yet."""
        zones = {"A": {A: ACTOR, 10: "caller"}, "B": {B: ACTOR, 11: "echo"}, "C": {C: ACTOR}}
        self.told, self.stores, self.counts = {}, {}, Counter()
        options = {"validators": 1} | dict(options or {})
        return Scenario(zones, options, ticks=range(blocks), ingress=self.told, **more)

    # ---- what an engine does

    def next(self, count: int = 1) -> Self:
        """Make blocks."""
        raise NotImplementedError

    def view(self) -> dict[str, dict[str, Any]]:
        """Everything comparable, by zone."""
        raise NotImplementedError

    def happened(self) -> dict[str, Any]:
        """What happened in the last block, in the words of the comparison."""
        raise NotImplementedError

    def entries(self) -> dict[str, dict[bytes, bytes]]:
        """What is in the queues of each zone."""
        raise NotImplementedError

    def root(self, zone: str) -> bytes:
        """The root of the last block."""
        raise NotImplementedError

    def bring(self, zone: str, *calls: Any, user: int = 7) -> list[str]:
        """Submit calls from outside in the next block; return why they were refused, in order."""
        raise NotImplementedError

    def update(self, zone: str, **other: Any) -> Any:
        """The newest header of a zone; ``remote``: said to be of another; ``root``: altered."""
        raise NotImplementedError

    def proof(self, kind: str, zone: str, key: bytes, height: int | None = None, **other: Any) -> Any:
        """The call ``kind`` with the true proof of what ``zone`` has under ``key``; ``other`` replaces its parts.

        ``absent``: it may also be the proof that there is nothing.
        """
        raise NotImplementedError

    # ---- play

    def say(self, zone: str, program: int, *described: Any) -> Self:
        """Tell an actor something in the next block."""
        self.told.setdefault(self.height + 1, []).append(Call(zone, program, 5, "do", ops(*described)))
        return self

    def ask(
        self, receiver: int = B, method: str = "echo", payload: bytes = b"x", note: Any = None, cycles: int = 0
    ) -> Self:
        """Let the actor on A make a call."""
        return self.say("A", A, ("call", receiver, method, payload, cycles, note))

    def packet(self, index: int, zone: str = "A", to: str = "B", **other: Any) -> Any:
        return self.proof("receive", zone, index_key(to, QueuePurpose.SEND, index), **other)

    def receipt(self, index: int, zone: str = "B", to: str = "A", **other: Any) -> Any:
        return self.proof("receipt", zone, index_key(to, QueuePurpose.RECEIPT, index), **other)

    def time_out(self, zone: str = "B", to: str = "A", **other: Any) -> Any:
        """The call to ``to`` that its first packet for ``zone`` has expired."""
        return self.proof("timeout", zone, QueueKey(to, QueuePurpose.RECEIPT, KeyPart.TAIL).encode(), **other)

    def missing(self, index: int, zone: str = "B", to: str = "A", **other: Any) -> Any:
        """The call to ``to`` that ``zone`` has no receipt of a packet, whatever it has (unordered queues)."""
        return self.proof("timeout", zone, index_key(to, QueuePurpose.RECEIPT, index), absent=True, **other)

    def cleanup(self, zone: str = "A", to: str = "B", **other: Any) -> Any:
        """The call to ``to`` that ``zone`` has popped receipts."""
        return self.proof("cleanup", zone, QueueKey(to, QueuePurpose.SEND, KeyPart.HEAD).encode(), **other)

    # ---- look

    def refused(self) -> list[tuple[str, str]]:
        """(zone, why) of all calls and sends that the last block refused; a stretch of a relayer's run once."""
        happened = self.happened()
        rows = [*happened["refused"].elements(), *happened["rejected"].elements()]
        return sorted((row[0], row[-1]) for row in rows)

    def total(self, name: str) -> int:
        """What all relayers of the scenario together did."""
        return sum(count for (_, counted), count in self.counts.items() if counted == name)

    def count(self) -> None:
        for counts in self.happened()["counts"].values():
            self.counts.update(counts)

    def queue(self, zone: str, remote: str, purpose: QueuePurpose) -> tuple[int, int]:
        """Head and tail."""
        entries = self.entries()[zone]
        head, tail = (entries[QueueKey(remote, purpose, part).encode()] for part in (KeyPart.HEAD, KeyPart.TAIL))
        return decode_position(head), decode_position(tail)

    def codes(self, zone: str, remote: str) -> list[int]:
        """The codes of the receipts that a zone keeps."""
        return [decode_receipt(v).code for k, v in sorted(self.entries()[zone].items())
                if parse_key(k).remote == remote and parse_key(k).purpose == QueuePurpose.RECEIPT
                and parse_key(k).part == KeyPart.INDEX]  # fmt: skip

    def seen(self, number: int) -> list[Any]:
        """What an actor noted: requests (sender, callback, method, payload, cycles), replies (callback, code, ...)."""
        (programs,) = (zone["programs"] for zone in self.view().values() if number in zone["programs"])
        notes: list[Any] = programs[number]["state"]["seen"]
        return notes

    def balances(self) -> dict[int, int]:
        return {number: balance for zone in self.view().values() for number, balance in zone["balances"].items()}


class Net(Played, KernelRun):
    """The network on the kernel."""

    def __init__(self, options: Mapping[str, Any] | None = None, blocks: int = 30, **more: Any) -> None:
        self.brought: dict[int, list[Carried]] = {}
        KernelRun.__init__(self, self.network(options, blocks, {"carried": self.brought, **more}))

    def next(self, count: int = 1) -> Self:
        for _ in range(count):
            self.play(self.height + 1)
            application, entries = self.application(), self.entries()
            self.stores[self.height] = {name: {**entries[name], **application[name]} for name in self.names}
            self.count()
        return self

    def view(self) -> dict[str, dict[str, Any]]:
        return KernelRun.view(self)

    def happened(self) -> dict[str, Any]:
        return KernelRun.happened(self)

    def entries(self) -> dict[str, dict[bytes, bytes]]:
        return KernelRun.entries(self)

    def root(self, zone: str) -> bytes:
        return self.roots()[zone]

    def seen(self, number: int) -> list[Any]:
        notes: list[Any] = self._program(number)["state"]["seen"]
        return notes

    def put(self, zone: str, *calls: wire.Call, user: int = 7) -> Net:
        """Submit a transaction in the next block, beside others."""
        return self.put_bytes(zone, wire.Transaction(calls=calls).SerializeToString(), user=user)

    def put_bytes(self, zone: str, data: bytes, user: int = 7) -> Net:
        """Bring bytes, whatever they are, in the next block."""
        self.brought.setdefault(self.height + 1, []).append(Carried(zone, user, data))
        return self

    def bring(self, zone: str, *calls: wire.Call, user: int = 7) -> list[str]:
        self.put(zone, *calls, user=user).next()
        rows = self.events()
        refused = (rows["events"] & np.uint16(Event.REJECTED)) > 0
        rows = rows.filter((rows["kind"] == Kind.CONTROL) & refused)
        here = list(self.names).index(zone)
        reasons = zip(rows["chain"].tolist(), rows["reason"].to_pylist(), strict=True)
        return [reason for chain, reason in reasons if chain == here]

    def update(self, zone: str, **other: Any) -> wire.Call:
        header = self.headers["certification"][list(self.names).index(zone)].as_py()
        header = header.replace(self.root(zone), other.get("root", self.root(zone)))
        return wire.Call(update=wire.UpdateHeader(remote=other.get("remote", zone), header=header))

    def proof(self, kind: str, zone: str, key: bytes, height: int | None = None, **other: Any) -> wire.Call:
        height = height or self.height
        store = self.stores[min(height, self.height)][zone]
        tree = SimpleStore.of(*columns(store))
        absent = other.pop("absent", False)
        shown = key if key in store or absent else next(iter(store))
        value = store.get(shown, b"")
        parts: dict[str, Any] = {
            "remote": zone,
            "key": key,
            "value": value,
            "proof": tree.prove(shown),
            "height": height,
        }
        call = wire.Call()
        for name, value in (parts | other).items():
            setattr(getattr(call, kind), name, value)
        return call


CALLS = {"receive": "IBCreceive", "receipt": "IBCreceipt", "timeout": "IBCtimeout", "cleanup": "IBCcleanup"}
"""What the oracle's calls are named."""


@dataclass
class Outsiders:
    """They submit, behind the scenario's relayers, what the next block shall be brought."""

    submissions: list[ibc.Submission]
    name: str = "from outside"

    def calls(self, view: ibc.View, zone: ibc.Zone) -> list[ibc.Submission]:
        return [one for one in self.submissions if one.zone == zone.chain_id]


class OracleNet(Played):
    """The network on the oracle, whose stores have nothing but queues in them; the invariants are checked a block."""

    def __init__(self, options: Mapping[str, Any] | None = None, blocks: int = 30, **more: Any) -> None:
        self.scenario = self.network(options, blocks, more)
        self.application: dict[str, dict[bytes, bytes]] = {name: {} for name in self.scenario.zones}
        self.run = OracleRun(self.scenario, self.application)
        self.outsiders = Outsiders([])
        self.user = 0
        self.run.net.relayers = [*self.run.net.relayers, self.outsiders]
        self.height = 0

    def next(self, count: int = 1) -> Self:
        for _ in range(count):
            self.height += 1
            self.run.play(self.height, self.application)
            assert [one for one in guarantees.violations(self.run.net) if one != FORGERY] == []
            self.stores[self.height] = self.entries()
            self.count()
            self.outsiders.submissions = []
        return self

    def view(self) -> dict[str, dict[str, Any]]:
        return self.run.view()

    def happened(self) -> dict[str, Any]:
        happened = self.run.happened()
        for one, outcome, _ in self.run.net.outcomes:
            if one.relayer != self.outsiders.name or one.call == "updateHeader":
                continue  # headers are in what the scenario's run says
            if outcome != "Success":
                happened["refused"][one.zone, one.remote, outcome] += 1
            counts = happened["counts"].setdefault(one.zone, Counter())
            counts[OUTSIDER + self.user, "submitted"] += 1
            counts[OUTSIDER + self.user, "accepted" if outcome == "Success" else "failed"] += 1
        return happened

    def entries(self) -> dict[str, dict[bytes, bytes]]:
        return {name: dict(zone.store) for name, zone in self.run.net.zones.items()}

    def root(self, zone: str) -> bytes:
        return self.run.net.roots[zone]

    def bring(self, zone: str, *calls: ibc.Submission, user: int = 7) -> list[str]:
        self.user = user
        self.outsiders.submissions = [replace(call, zone=zone) for call in calls]
        self.next()
        outcomes = [(one.relayer, outcome) for one, outcome, _ in self.run.net.outcomes]
        return [outcome for relayer, outcome in outcomes if relayer == self.outsiders.name and outcome != "Success"]

    def update(self, zone: str, **other: Any) -> ibc.Submission:
        header = self.run.net.headers[zone, self.height]
        header = replace(header, root=other.get("root", header.root))
        return ibc.Submission("", "updateHeader", other.get("remote", zone), header, self.outsiders.name)

    def proof(self, kind: str, zone: str, key: bytes, height: int | None = None, **other: Any) -> ibc.Submission:
        height = height or self.height
        store = self.stores[min(height, self.height)][zone]
        value = other.get("value", store.get(key, None if "absent" in other else next(iter(store.values()))))
        # A proof is what it says: one whose bytes are none proves nothing.
        shown = ibc.Proof(key, None if "proof" in other else value, height, zone)
        return ibc.Submission("", CALLS[kind], other.get("remote", zone), shown, self.outsiders.name)


def columns(store: Mapping[bytes, bytes]) -> tuple[Any, Any]:
    keys = sorted(store)
    return pa.array(keys, pa.binary()), pa.array([store[key] for key in keys], pa.binary())
