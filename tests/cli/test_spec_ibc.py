"""The IBC oracle, call by call: codecs, queues, and the hazards only it can express.

The hazards are played on the kernel and the oracle alike in ``test_ibc_hazards.py``. Only here are modules in place of
programs, with codes of their own and limits of single packets; a queue and a registration by themselves; and what its
errors and its log say beyond a name.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.spec import ibc
from tests.spec.ibc import invariants
from tests.spec.ibc.headers import Stores
from tests.spec.ibc.values import (
    decode_packet_b,
    decode_receipt_b,
    decode_state_b,
    encode_packet_b,
    encode_receipt_b,
    encode_state_b,
)

SECOND = 10**9


@dataclass
class Chains:
    """Zones with a type `coin`: data "amount" moves coins from one zone to the other, "raise" fails midway."""

    names: tuple[str, ...] = ("A", "B")
    options: ibc.Options = field(default_factory=ibc.Options)
    valid: Any = None
    zones: dict[str, ibc.Zone] = field(default_factory=dict)
    headers: dict[tuple[str, int], ibc.Header] = field(default_factory=dict)
    fault: bool = False

    def __post_init__(self) -> None:
        stores: Stores = {}
        for name in self.names:
            zone = ibc.Zone(
                name, stores, self.valid or (lambda trust, header: header in self.headers.values()), self.options
            )
            zone.app = {"coins": 100, "escrow": 0, "outcomes": []}
            zone.handlers["coin"] = self.handler(zone)
            zone.permissions["coin"] = {"bank"}
            self.zones[name] = zone
            self.commit(name)
        for zone in self.zones.values():
            for other in self.names:
                if other != zone.chain_id:
                    ibc.registerChain(zone, other, self.headers[other, 1])
        for name in self.names:
            self.commit(name)

    def handler(self, zone: ibc.Zone) -> ibc.Handler:
        def credit(arrived: ibc.Arrived) -> Any:
            zone.app["coins"] += 1
            if arrived.data == b"raise":
                raise ValueError("half-way")
            if arrived.data == b"own code":
                return b"no", 77
            if arrived.data == b"later":
                return ibc.LATER
            return b"", None

        def settle(outcome: str, arrived: ibc.Arrived) -> None:
            zone.app["escrow"] -= 1
            zone.app["coins"] += outcome == "rollback"
            zone.app["outcomes"].append((outcome, arrived.index))
            if self.fault:
                raise RuntimeError("stop")

        return ibc.Handler(
            credit, lambda arrived, _: settle("commit", arrived), lambda arrived, *_: settle("rollback", arrived)
        )

    def __getitem__(self, name: str) -> ibc.Zone:
        return self.zones[name]

    def commit(self, name: str, seconds: int = 1) -> ibc.Header:
        """Commit the changes and begin the next block."""
        zone = self.zones[name]
        if zone.height == 0:
            ibc.begin_block(zone, 1, SECOND)
        header = ibc.Header(name, zone.height, zone.time, ibc.commit_block(zone))
        self.headers[name, zone.height] = header
        ibc.begin_block(zone, zone.height + 1, zone.time + seconds * SECOND)
        return header

    def send(self, data: bytes = b"5", to: str = "B", by: str = "A", **limits: int) -> int:
        """The application's effect and IBCsend in one transaction."""
        zone = self.zones[by]
        zone.app["coins"] -= 1
        zone.app["escrow"] += 1
        return ibc.IBCsend(zone, to, "coin", data, "bank", **limits)

    def show(self, of: str, to: str) -> int:
        """Commit `of` and submit its header to `to`."""
        header = self.commit(of)
        assert ibc.updateHeader(self.zones[to], of, header) == "Success"
        return header.height

    def proof(self, of: str, to: str, purpose: str, place: int | str, height: int | None = None) -> ibc.Proof:
        """The valid proof on `of` for `to`."""
        zone = self.zones[of]
        height = zone.height - 1 if height is None else height
        k = ibc.key(to, purpose, place)
        store = zone.stores[of, self.headers[of, height].root]
        return ibc.Proof(k, store.get(k), height, of)

    def receive(self, i: int, at: str = "B", of: str = "A", height: int | None = None) -> str:
        return ibc.IBCreceive(self.zones[at], of, self.proof(of, at, "send", i, height))

    def receipt(self, i: int, at: str = "A", of: str = "B") -> str:
        return ibc.IBCreceipt(self.zones[at], of, self.proof(of, at, "receipt", i))

    def queue(self, at: str, remote: str, purpose: str) -> list[int]:
        queue = ibc.Queue(self.zones[at].store, remote, purpose)
        return [queue.head(), queue.tail()]

    def receipts_at(self, at: str = "B", remote: str = "A") -> list[ibc.Receipt]:
        queue = ibc.Queue(self.zones[at].store, remote, "receipt")
        return [ibc.decode_receipt(queue.get(i) or b"") for i in queue.indices()]


TIMEOUTS = ibc.Options(timeouts="on", cleanup="on")


# ---- 2.1 to 2.6


def test_worked_example() -> None:
    store: dict[bytes, bytes] = {}
    queue = ibc.Queue(store, "B", "send")
    queue.init()
    for data in (b"\x00", b"\x01", b"\x02"):
        queue.push(ibc.encode_packet(ibc.Packet("coin", data)))
    assert ibc.key("B", "send", 1).hex() == "6962633a423a73656e64" + "0000000000000001"
    assert ibc.key("B", "send", ibc.TAIL).hex() == "6962633a423a73656e64" + "7f"
    assert store[ibc.key("B", "send", 1)].hex() == "01" + "00000004" + "636f696e" + "00000001" + "01"
    assert len(store) == 5
    assert ibc.simple_root(store).hex() == "99f08368f142b03bae4c939900a7a46807bc51bfeef50c811cc3ca1747e96c5f"
    assert ibc.simple_root({}).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_keys_parse_to_their_parts() -> None:
    for remote in ("A", "cosmoshub-4", "x" * 64):
        for purpose in ("send", "receipt"):
            for place in (ibc.HEAD, ibc.TAIL, 0, 255, 2**64 - 1, 0x3A3A3A3A3A3A3A3A):
                assert ibc.parse(ibc.key(remote, purpose, place)) == (remote, purpose, place)


def test_hazard_06_registrations_outside_of_scenarios() -> None:
    chains = Chains()
    with pytest.raises(ibc.InvalidChainId):
        ibc.registerChain(chains["A"], "A", chains.headers["B", 1])
    with pytest.raises(ibc.AlreadyRegistered):
        ibc.registerChain(chains["A"], "B", chains.headers["B", 1])


def test_values_round_trip_and_other_bytes_are_refused() -> None:
    limits: list[tuple[int | None, int | None]] = [(None, None), (5, None), (None, 6), (5, 6), (0, 0)]
    for pair in limits:
        for data in (b"", b"x", bytes(2**20)):
            value = ibc.encode_packet(ibc.Packet("coin", data, *pair))
            assert value[0] == (1 if pair == (None, None) else 2)
            assert ibc.decode_packet(value) == ibc.Packet("coin", data, *pair)
    assert ibc.encode_packet(ibc.Packet("c", b"", 5)).hex() == "02" + "0" * 15 + "5" + "f" * 16 + "0000000163" + "0" * 8
    value = ibc.encode_packet(ibc.Packet("coin", b"xy"))
    for wrong in (b"", b"\x03" + value[1:], value + b"\x00", value[:-1], value[:5], b"\x01" + bytes(8), b"\x02"):
        with pytest.raises(ibc.InvalidPacket):
            ibc.decode_packet(wrong)
    for code in (0, 1, -1, 2**31 - 1):
        for result in (b"", b"r"):
            receipt = ibc.Receipt(result, code)
            assert ibc.decode_receipt(ibc.encode_receipt(receipt)) == receipt
            assert decode_receipt_b(encode_receipt_b(receipt)) == receipt
    for wrong in (b"", b"\x01", bytes(9), ibc.encode_receipt(ibc.Receipt(b"r", 0)) + b"\x00"):
        with pytest.raises(ibc.InvalidPacket):
            ibc.decode_receipt(wrong)


def test_appendix_b_is_ambiguous() -> None:
    assert ibc.key_b("A", "send", ibc.HEAD).hex() == "0a030a0141"
    assert ibc.readings_b(bytes.fromhex("0a030a0141")) == {("A", "send", ibc.HEAD), ("A", "send", 0)}
    assert ibc.readings_b(ibc.key_b("A", "receipt", ibc.TAIL)) == {("A", "receipt", ibc.TAIL)}
    assert ibc.readings_b(ibc.key_b("A", "receipt", 127)) == {("A", "receipt", 127)}
    keys = [ibc.key_b("A", "send", i) for i in (1, 255, 256)]
    assert sorted(keys) != keys
    assert encode_state_b(0) == b"" and encode_receipt_b(ibc.Receipt(b"", 0)) == b""
    assert decode_state_b(encode_state_b(300)) == 300
    packet = ibc.Packet("coin", b"x", 7, None)
    assert decode_packet_b(encode_packet_b(packet)) == packet
    for wrong in ("0a030a01", "0a030a01410a030a0141", "12", "0a0100", "0a030a013a"):
        with pytest.raises(ibc.MalformedKey):
            ibc.readings_b(bytes.fromhex(wrong))


def test_hazard_22_queue() -> None:
    queue = ibc.Queue({}, "B", "send")
    queue.init()
    assert queue.peek() is None and queue.pop() is None and [queue.head(), queue.tail()] == [0, 0]
    queue.advance(4)
    assert [queue.head(), queue.tail(), queue.peek()] == [4, 4, None]
    assert [queue.push(b"a"), queue.push(b"b"), queue.push(b"c")] == [4, 5, 6]
    with pytest.raises(ibc.AdvanceBackwards):
        queue.advance(3)
    queue.advance(5)
    assert [queue.peek(), queue.pop(), queue.indices(), queue.head(), queue.tail()] == [b"b", b"b", [6], 6, 7]
    queue.advance(9)
    assert [queue.indices(), queue.head(), queue.tail()] == [[], 9, 9]


# ---- 3.2 to 3.4


def test_hazard_02_out_of_order_error_has_the_expected_index() -> None:
    chains = Chains()
    for _ in range(3):
        chains.send()
    chains.show("A", "B")
    chains.receive(0)
    with pytest.raises(ibc.OutOfOrder, match=r"^out of order$") as refused:
        chains.receive(2)
    assert (refused.value.expected, refused.value.got) == (1, 2)


def test_hazard_10_31_error_code_of_a_handler() -> None:
    chains = Chains()
    chains["A"].handlers["odd"] = ibc.Handler(lambda _: (b"", None))
    chains["A"].permissions["odd"] = {"bank"}
    ibc.IBCsend(chains["A"], "B", "odd", b"", "bank")
    for data in (b"raise", b"own code", b""):
        chains.send(data)
    chains.show("A", "B")
    assert [chains.receive(i) for i in range(4)] == ["Success"] * 4
    no, half = ibc.Receipt(b"no", 77), ibc.Receipt(b"ValueError: half-way", 3)
    assert chains.receipts_at() == [ibc.Receipt(b"", 1), half, no, ibc.Receipt(b"", 0)]
    assert chains["B"].app["coins"] == 101
    chains.show("B", "A")
    assert [chains.receipt(i) for i in range(4)] == ["Success"] * 4
    assert chains["A"].app["outcomes"] == [("rollback", 1), ("rollback", 2), ("commit", 3)]
    assert chains["A"].app["coins"] + chains["B"].app["coins"] == 200
    log = [*chains["A"].log, *chains["B"].log]
    assert [row.code for row in log if isinstance(row, ibc.Received)] == [1, 3, 77, 0]
    assert [row.executed for row in log if isinstance(row, ibc.Received)] == [False, True, True, True]
    assert invariants.g1_exactly_once_in_order(log) == invariants.g4_atomic(log) == []


def test_hazard_10_log_of_a_sending_handler() -> None:
    chains = Chains()

    def forward(arrived: ibc.Arrived) -> Any:
        ibc.IBCsend(chains["B"], "A", "coin", b"", "bank")
        if arrived.data == b"raise":
            raise ValueError
        return b"", None

    chains["B"].handlers["coin"] = ibc.Handler(forward)
    chains.send(b"raise")
    chains.send()
    chains.show("A", "B")
    chains.receive(0)
    assert not [row for row in chains["B"].log if isinstance(row, ibc.Sent)]
    chains.receive(1)
    assert [type(row) for row in chains["B"].log[-2:]] == [ibc.Received, ibc.Sent]


def test_hazard_12_packet_limit_without_timeouts() -> None:
    chains = Chains()
    before = dict(chains["A"].store)
    with pytest.raises(ibc.InvalidPacket):
        chains.send(max_height=9)
    assert chains["A"].store == before
