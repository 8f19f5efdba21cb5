"""Relayers from outside that are slow, doubled or hostile, and stores of hostile zones: nothing of it stops a block."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.commitments.ics23.simple_store import SimpleStore
from causeway.commitments.wire import ibc_queue_pb2 as wire
from causeway.protocols.contract import Tick
from causeway.protocols.ibc.client import _signed
from causeway.protocols.ibc.external import OUTSIDER, RELAY_PORT
from tests.property.ibc_harness import Call
from tests.unit.ibc_calls import SILENT, Net, columns


def sent(count: int, options: dict[str, Any] | None = None, **more: Any) -> Net:
    """A network where A has sent packets to B, and no relayer but those from outside acts."""
    net = Net(options, carriers=SILENT, **more)
    for _ in range(count):
        net.ask()
    return net.next()


class Hostile:
    """What the validators of a zone sign instead of its store: ``entries``, in the block that was made last."""

    def __init__(self, net: Net, zone: str, entries: dict[bytes, bytes]) -> None:
        self.zone, self.height, self.entries = zone, net.height, {b"a": b"anything", **entries}
        self.tree = SimpleStore.of(*columns(self.entries))
        context = net.kernel.context(np.arange(len(net.names), dtype=np.uint32), Tick(net.height, net.tick.tick))
        header = _signed(list(net.names).index(zone), net.height, context.time, self.tree.root, context)
        self.update = wire.Call(update=wire.UpdateHeader(remote=zone, header=header))

    def proof(self, kind: str, key: bytes) -> wire.Call:
        shown: dict[str, Any] = {"remote": self.zone, "key": key, "value": self.entries[key]}
        call: dict[str, Any] = {kind: wire.Submit(**shown, proof=self.tree.prove(key), height=self.height)}
        return wire.Call(**call)


def put(net: Net, zone: str, *calls: wire.Call, user: int = 7) -> None:
    """Submit a transaction in the next block, beside others."""
    data = wire.Transaction(calls=calls).SerializeToString()
    net.told.setdefault(net.height + 1, []).append(Call(zone, RELAY_PORT, user, "", data))


def control(net: Net) -> list[tuple[Any, ...]]:
    """Return (chain, remote, substream, index, sender, reason) of the refusals of the last block."""
    rows = net.events()
    rows = rows.filter(rows["kind"] == 4)
    names = ("chain", "remote", "substream", "index", "sender")
    return list(zip(*(rows[name].tolist() for name in names), rows["reason"].to_pylist(), strict=True))


def test_a_zone_that_is_halted_takes_no_transactions() -> None:
    net = sent(1, halts=[("B", 1, 2)])
    for _ in range(2):
        put(net, "B", net.update("A"))
        net.next()
        assert net.refusals() == [("B", "ChainHalted")]
        assert len(net.state.relayers) == 0
    assert net.bring("B", net.update("A"), net.packet(0, height=3)) == []
    assert net.state.relayers["relayer"].tolist() == [OUTSIDER + 7]


def test_a_message_is_numbered_by_its_place_among_all_that_came() -> None:
    net = sent(1)
    put(net, "A", net.update("B"))
    net.say("A", 99, "nobody is there")
    net.next()
    rows = net.events()
    assert rows.filter(rows["receiver"] == 99)["index"].tolist() == [2]
