"""The hazards of the reference, section 6, by their numbers, driven through the kernel.

Calls that no honest or scenario's relayer makes come in as transactions from outside, one by one with single proofs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cbor2
import pytest

from causeway.model.errors import InvalidInput
from causeway.proofs.ics23.simple_store import SimpleStore
from causeway.proofs.wire import ibc_queue_pb2 as wire
from causeway.protocols.ibc.errors import TEXTS, IbcError, Refusal
from causeway.protocols.ibc.keys import HEAD_KEY, TAIL_KEY, Key, Part, Purpose, ensure_chain_id, index_key, parse_key
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.values import Packet, Receipt, decode_packet, decode_receipt
from tests.property.caller_payloads import caller_payload
from tests.property.ibc_harness import Call, KernelRun, Scenario
from tests.unit.ibc_calls import SILENT, A, B, C, Net, columns


def sent(count: int = 2, options: Mapping[str, Any] | None = None, **more: Any) -> Net:
    """A network where A has sent packets to B, and nobody has brought them."""
    net = Net(options, carriers=SILENT, **more)
    for _ in range(count):
        net.ask()
    return net.next()


def received(count: int = 2, options: Mapping[str, Any] | None = None) -> Net:
    """A network where B has received packets of A, and nobody has brought the receipts."""
    net = sent(count, options)
    assert net.bring("B", net.update("A"), *(net.packet(index) for index in range(count))) == []
    return net


def test_1_message_1_after_message_0() -> None:
    net = sent()
    assert net.bring("B", net.update("A"), net.packet(0), net.packet(1)) == []
    assert net.queue("B", "A", Purpose.RECEIPT) == (0, 2)


def test_2_message_2_before_1() -> None:
    net = sent(3)
    assert net.bring("B", net.update("A"), net.packet(0), net.packet(2)) == ["OutOfOrder"]
    assert net.bring("B", net.update("A"), net.packet(1, height=1), net.packet(2, height=1)) == []
    assert net.queue("B", "A", Purpose.RECEIPT) == (0, 3)


@pytest.mark.parametrize(("redundant", "why"), [("error", "OutOfOrder"), ("noop", "NoOp")])
def test_3_the_same_proof_by_two_relayers(redundant: str, why: str) -> None:
    net = Net({"relayers": ("r0", "r1"), "redundant": redundant}).ask().next(2)
    assert net.refusals() == [("B", why)]
    assert net.queue("B", "A", Purpose.RECEIPT) == (0, 1) and len(net.seen(B)) == 1


def test_4_no_header_and_the_header_of_another_chain() -> None:
    net = sent()
    assert net.bring("B", net.packet(0)) == ["MissingHeader"]
    assert net.bring("B", net.update("A"), net.update("C"), net.packet(0, height=1, remote="C")) == ["MissingHeader"]
    assert net.bring("B", net.update("C"), net.packet(0, remote="C")) == ["InvalidProof"]
    assert net.bring("B", net.packet(0, height=0 + 2)) == []


def test_5_keys_of_others() -> None:
    net = sent()
    calls = [
        net.proof("receive", "A", index_key("B", Purpose.RECEIPT, 0)),
        net.proof("receive", "A", Key("B", Purpose.SEND, Part.HEAD).encode()),
        net.proof("receive", "A", Key("B", Purpose.SEND, Part.TAIL).encode()),
        net.proof("receive", "A", index_key("C", Purpose.SEND, 0)),
        net.proof("receipt", "A", index_key("B", Purpose.SEND, 0)),
        net.proof("receipt", "A", Key("B", Purpose.RECEIPT, Part.TAIL).encode()),
        net.proof("receipt", "A", index_key("C", Purpose.RECEIPT, 0)),
        net.proof("receive", "A", b"ibc:A:send"),
    ]
    names = ["MustBeSend", "OnlyMessageProofs", "OnlyMessageProofs", "WrongChain", "MustBeReceipt"]
    assert net.bring("B", net.update("A"), *calls) == [*names, "OnlyMessageProofs", "WrongChain", "MalformedKey"]
    stranger = net.packet(0, remote="nobody")
    assert net.bring("B", stranger) == ["UnregisteredSender"]


MALFORMED = [
    b"",
    b"abc:A:send\x00",
    b"ibc::send\x00",
    b"ibc:A:B:send\x00",
    b"ibc:A:sent\x00",
    b"ibc:A:send",
    b"ibc:A:send\x01",
    b"ibc:A:send" + bytes(7),
    b"ibc:A:send" + bytes(9),
    b"ibc:" + b"z" * 65 + b":send\x00",
]


@pytest.mark.parametrize("key", MALFORMED)
def test_6_malformed_keys(key: bytes) -> None:
    with pytest.raises(IbcError) as caught:
        parse_key(key)
    assert caught.value.name == "MalformedKey"


@pytest.mark.parametrize("identifier", ["a:b", "", "z" * 65, "a b", "\u00e4", "a\n"])
def test_6_ids_that_are_refused_at_registration(identifier: str) -> None:
    with pytest.raises(IbcError, match=r"^InvalidChainId: ") as caught:
        ensure_chain_id(identifier)
    assert caught.value.name == "InvalidChainId"
    with pytest.raises(InvalidInput, match="is no chain id under ibc"):
        KernelRun(Scenario({identifier: {}, "B": {}}))


def test_7_an_altered_body() -> None:
    net = sent()
    value = net.stores[1]["A"][index_key("B", Purpose.SEND, 0)]
    altered = net.packet(0, value=value[:-1] + bytes([value[-1] ^ 1]))
    assert net.bring("B", net.update("A"), altered, net.packet(0)) == ["InvalidProof"]
    assert [row[3] for row in net.seen(B)] == [b"x"]


def test_8_two_headers_for_one_height_freeze_at_once() -> None:
    net = Net(forks=(("A", 1),)).ask().next(2)
    assert net.view()["B"]["frozen"] == net.view()["C"]["frozen"] == {"A"} and not net.seen(B)
    net.say("B", B, ("call", A, "echo", b"", 0, None)).next()
    assert ("B", "ConnectionFrozen") in net.refusals(), "no send"
    assert net.bring("B", net.update("A"), net.packet(0, height=1)) == ["ConnectionFrozen"] * 2, "no update, no receive"
    assert net.queue("B", "A", Purpose.SEND) == (0, 0)


def test_9_an_unknown_type() -> None:
    net = Net({"types": {"alpha": {"chains": ["A"]}}}).ask(method="alpha").ask().next(2)
    assert net.codes("B", "A") == [1, 0]
    value = net.entries()["B"][index_key("A", Purpose.RECEIPT, 0)]
    assert decode_receipt(value) == Receipt(1, b"")
    net.next()
    assert net.seen(A) == [[0, 1, b"", 0], [1, 0, b"x", 0]]


def test_10_a_handler_that_raises_after_half_its_writes() -> None:
    net = Net().ask(method="raise").ask().next(2)
    assert net.codes("B", "A") == [3, 0] and net.queue("B", "A", Purpose.SEND) == (0, 0)
    assert [row[2] for row in net.seen(B)] == ["echo"]
    net.next()
    assert net.seen(A) == [[0, 3, b"ValueError: no", 0], [1, 0, b"x", 0]]


def test_11_a_reply_handler_that_raises_keeps_the_packet() -> None:
    net = Net().ask(note="boom").ask().next(2)
    for _ in range(3):
        net.next()
        assert net.refusals() == [("A", "HandlerFault")]
        assert net.queue("A", "B", Purpose.SEND) == (0, 2) and net.seen(A) == []
    net.say("A", A, ("calm",)).next(2)
    assert net.queue("A", "B", Purpose.SEND) == (2, 2) and [row[1] for row in net.seen(A)] == [0, 0]


def test_12_the_errors_of_a_send() -> None:
    types = {"alpha": {"chains": ["B"]}, "beta": {"modules": ["p1"]}}
    net = Net({"types": types, "connections": [("A", "B")], "max_data_bytes": 60})
    net.ask(C, cycles=7).ask(method="alpha").ask(method="beta", cycles=5).ask(payload=bytes(99)).ask(999).next()
    names = [
        "UnregisteredDestination",
        "UnsupportedType",
        "PermissionDenied",
        "InvalidPacket",
        "UnregisteredDestination",
    ]
    assert net.refusals() == [("A", name) for name in names]
    assert net.queue("A", "B", Purpose.SEND) == (0, 0), "nothing is pushed"
    assert net.view()["A"]["balances"][A] == 1000 - 12
    net.next()
    assert [row[1:3] for row in net.seen(A)] == [[16, name.encode()] for name in names]
    assert net.view()["A"]["balances"][A] == 1000, "what was attached is back"


def test_13_receipts_out_of_order_and_altered() -> None:
    net = received()
    assert net.bring("A", net.update("B"), net.receipt(1)) == ["OutOfOrder"]
    value = net.stores[2]["B"][index_key("A", Purpose.RECEIPT, 0)]
    altered = value[:4] + b"\x03" + value[5:]
    assert decode_receipt(altered).code == 3
    assert net.bring("A", net.receipt(0, height=2, value=altered), net.receipt(0, height=2)) == ["InvalidProof"]
    assert net.queue("A", "B", Purpose.SEND) == (1, 2) and net.seen(A) == [[0, 0, b"x", 0]]


def test_14_nothing_is_empty() -> None:
    net = Net().ask(payload=b"").next(2)
    store = net.stores[2]["B"]
    assert store[index_key("A", Purpose.RECEIPT, 0)] == Receipt(0, bytes(16)).encode()
    assert Receipt(0, b"").encode() == bytes([1, 0, 0, 0, 0, 0, 0, 0, 0])
    assert store[b"ibc:C:receipt\x00"] == store[b"ibc:C:receipt\x7f"] == bytes(8)
    tree = SimpleStore.of(*columns(store))
    assert tree.root == net.roots()["B"] and all(tree.prove(key) for key in store)


def test_15_keys_sort_as_indices() -> None:
    indices = [0, 1, 255, 256, 2**32 - 1, 2**32, 2**53 + 1, 2**62]
    keys = [index_key("A", Purpose.SEND, index) for index in indices]
    assert keys == sorted(keys) and [parse_key(key).index for key in keys] == indices
    name = b"ibc:A:send"
    assert name + HEAD_KEY < keys[0] and keys[-1] < name + TAIL_KEY
    assert parse_key(index_key("A", Purpose.SEND, 2**63)).index == 2**63


LIMITED = {"timeouts": "on", "timeout_blocks": 2, "cleanup": "on"}
TAIL = Key("A", Purpose.RECEIPT, Part.TAIL).encode()


def test_16_time_outs() -> None:
    net = sent(2, LIMITED)
    net.next(2)
    early = net.proof("timeout", "B", TAIL)
    assert net.bring("A", net.update("B"), early) == ["TimeoutNotReached"], "by the header, whatever our own height is"
    assert net.height == 4
    wrong = net.proof("timeout", "B", Key("A", Purpose.RECEIPT, Part.HEAD).encode())
    send = net.proof("timeout", "B", Key("A", Purpose.SEND, Part.TAIL).encode())
    assert net.bring("A", net.update("B"), wrong, send, net.proof("timeout", "B", TAIL)) == [
        "NotATailProof",
        "MustBeReceipt",
    ]
    assert net.seen(A) == [[0, 2, b"", 0]] and net.queue("A", "B", Purpose.SEND) == (1, 2)


def test_16_a_time_out_of_what_was_received() -> None:
    net = received(1, LIMITED)
    net.next(2)
    assert net.bring("A", net.update("B"), net.proof("timeout", "B", TAIL)) == ["ReceiptExists"]


def test_17_received_in_the_last_block_before_expiry() -> None:
    net = sent(1, LIMITED)
    net.next()
    assert net.bring("B", net.update("A"), net.packet(0)) == [], "at height 3, the last"
    old = net.proof("timeout", "B", TAIL, height=2)
    header = net.update("B")
    assert net.bring("A", header, old) == ["MissingHeader"]
    assert net.bring("A", net.proof("timeout", "B", TAIL, height=3)) == ["ReceiptExists"]
    assert net.bring("A", net.receipt(0, height=3)) == [] and net.seen(A) == [[0, 0, b"x", 0]]


def test_18_an_old_proof_after_its_time_out() -> None:
    net = sent(1, LIMITED)
    net.bring("B", net.update("A"))
    net.next(2)
    assert net.bring("A", net.update("B"), net.proof("timeout", "B", TAIL)) == []
    assert net.bring("B", net.packet(0, height=1)) == []
    assert net.codes("B", "A") == [2] and net.seen(B) == []


def test_19_time_outs_then_a_fresh_packet() -> None:
    net = sent(2, LIMITED)
    net.next(3)
    assert net.bring("A", net.update("B"), *[net.proof("timeout", "B", TAIL)] * 2) == []
    net.ask().next()
    head = Key("B", Purpose.SEND, Part.HEAD).encode()
    fresh, cleanup = net.packet(2), net.proof("cleanup", "A", head)
    assert net.bring("B", net.update("A"), fresh) == ["OutOfOrder"]
    assert net.bring("B", cleanup, fresh) == []
    assert net.queue("B", "A", Purpose.RECEIPT) == (2, 3) and len(net.seen(B)) == 1


def test_20_cleanups() -> None:
    net = received(2, LIMITED)
    head = Key("B", Purpose.SEND, Part.HEAD).encode()
    none = net.proof("cleanup", "A", head)
    assert net.bring("B", net.update("A"), none) == ["CleanupBackwards"]
    tail = net.proof("cleanup", "A", Key("B", Purpose.SEND, Part.TAIL).encode())
    other = net.proof("cleanup", "A", Key("B", Purpose.RECEIPT, Part.HEAD).encode())
    assert net.bring("B", net.update("A"), tail, other) == ["NotAHeadProof", "MustBeSendQueue"]


def test_21_a_cleanup_keeps_what_is_not_acknowledged() -> None:
    net = received(3, LIMITED)
    assert net.bring("A", net.update("B"), net.receipt(0)) == []
    cleanup = net.proof("cleanup", "A", Key("B", Purpose.SEND, Part.HEAD).encode())
    assert net.bring("B", net.update("A"), cleanup) == []
    assert net.queue("B", "A", Purpose.RECEIPT) == (1, 3) and net.codes("B", "A") == [0, 0]


def test_22_a_jump_past_the_tail_leaves_an_empty_queue() -> None:
    net = sent(3, LIMITED)
    net.next(3)
    assert net.bring("A", net.update("B"), *[net.proof("timeout", "B", TAIL)] * 3) == []
    cleanup = net.proof("cleanup", "A", Key("B", Purpose.SEND, Part.HEAD).encode())
    assert net.bring("B", net.update("A"), cleanup, cleanup) == ["CleanupBackwards"]
    assert net.queue("B", "A", Purpose.RECEIPT) == (3, 3) and net.codes("B", "A") == []


def test_23_a_header_on_top_of_one_past_the_unbonding_period() -> None:
    # For five blocks no relayer brings a header of A to B.
    net = Net({"unbonding_seconds": 3.0}, blocks=12, carriers=(("drop", "A", "B", 2, 6, None),)).ask().next(2)
    assert net.view()["B"]["trust"]["A"] == [0, 1]
    net.next(5)
    net.ask().next(2)
    assert ("B", "ClientExpired") in net.refusals() and len(net.seen(B)) == 1


def test_24_a_header_of_other_validators() -> None:
    net, other = sent(), Net(seed=1, carriers=SILENT).next()
    assert net.bring("B", other.update("A")) == ["InvalidHeader"]
    assert net.bring("B", wire.Call(update=wire.UpdateHeader(remote="A", header=b"\x01"))) == ["InvalidHeader"]
    assert net.view()["B"]["trust"]["A"] == [0]


def test_25_a_relay_that_stops_between_header_and_proofs() -> None:
    net = sent()
    assert net.bring("B", net.update("A")) == []
    assert net.bring("B", net.packet(0, height=1)) == []
    assert net.bring("B", net.packet(0, height=1), net.packet(1, height=1)) == ["OutOfOrder"]
    assert len(net.seen(B)) == 2


def test_26_many_relayers_racing() -> None:
    net = Net({"relayers": tuple(f"r{n}" for n in range(20))}).ask().ask().next(3)
    assert len(net.seen(B)) == 2 and len(net.seen(A)) == 2
    accounts = net.state.relayers
    assert accounts["accepted"].sum() == 4 and accounts["redundant"].sum() == 4 * 19
    assert accounts["fees"].sum() == 20 * (2 * 100 + 4 * 20)
    # Of one height everybody brings the same header: one is added, and nobody pays less for that.
    assert accounts["wasted"].sum() == 19 * (2 * 100 + 4 * 20)


def test_27_many_invalid_proofs_change_nothing() -> None:
    net = sent(1)
    before = net.view()["B"]
    assert net.bring("B", *[net.packet(0, proof=b"\x00" * 40)] * 200) == ["MissingHeader"] * 200
    at = net.height
    net.bring("B", net.update("A"))
    assert net.bring("B", *[net.packet(0, height=at, proof=b"\x00" * 40)] * 200) == ["InvalidProof"] * 200
    after = net.view()["B"]
    assert (after["entries"], after["programs"]) == (before["entries"], before["programs"])


def test_28_a_destination_that_is_halted() -> None:
    net = Net(halts=(("B", 0, 9),))
    for _ in range(10):
        net.ask().next()
    assert net.queue("A", "B", Purpose.SEND) == (0, 10) and net.seen(B) == []
    net.next(2)
    assert [row[2] for row in net.seen(B)] == ["echo"] * 10 and net.queue("A", "B", Purpose.SEND) == (10, 10)


def test_29_both_directions() -> None:
    net = Net().ask().ask().say("B", B, ("call", A, "echo", b"y", 0, None)).next(3)
    assert [net.queue(*one) for one in (("A", "B", Purpose.SEND), ("B", "A", Purpose.SEND))] == [(2, 2), (1, 1)]
    assert [net.queue(*one) for one in (("A", "B", Purpose.RECEIPT), ("B", "A", Purpose.RECEIPT))] == [(0, 1), (0, 2)]


def test_30_causes_come_before_effects_over_three_chains() -> None:
    net = Net().ask(B, "relay", cbor2.dumps([C, "echo", b"caused"])).next(2)
    assert net.seen(C) == [] and net.queue("B", "C", Purpose.SEND) == (0, 1)
    net.next()
    assert [row[3] for row in net.seen(C)] == [b"caused"]
    net.next(2)
    assert net.seen(A) == [[0, 0, b"caused", 0]]


@pytest.mark.parametrize(("method", "kept"), [("raise", 0), ("refuse", 0), ("take", 50)])
def test_31_value_is_conserved(method: str, kept: int) -> None:
    net = Net().ask(method=method, cycles=100)
    for _ in range(4):
        net.next()
        balances = {n: b for zone in net.view().values() for n, b in zone["balances"].items()}
        under_way = 100 if net.height < 2 else 100 - kept if net.height == 2 else 0
        assert sum(balances.values()) == 5 * 1000 - under_way
    assert (balances[A], balances[B]) == (1000 - kept, 1000 + kept)


@pytest.mark.parametrize("length", [0, 1, 2**18 - 45])
def test_32_lengths_of_data(length: int) -> None:
    net = Net().ask(payload=bytes(length)).next(3)
    assert net.seen(A) == [[0, 0, bytes(length), 0]]
    net.ask(payload=bytes(2**18 - 44)).next()
    assert net.refusals() == [("A", "InvalidPacket")]


def test_32_methods_have_a_length() -> None:
    net = Net().ask(method="m" * 256).ask(method="m" * 255).next()
    assert net.refusals() == [("A", "InvalidPacket")] and net.queue("A", "B", Purpose.SEND) == (0, 1)


@pytest.mark.parametrize(
    "value", [b"", b"\x00", b"\x03" + bytes(8), b"\x01" + bytes(7), b"\x01" + bytes(9), b"\x02" * 16]
)
def test_32_values_that_are_no_packet(value: bytes) -> None:
    with pytest.raises(IbcError) as caught:
        decode_packet(value)
    assert caught.value.name == "InvalidPacket"
    assert decode_packet(Packet("call", b"").encode()) == Packet("call", b"")


def test_errors_have_the_texts_of_the_paper() -> None:
    texts = {
        "UnregisteredSender": "unregistered sender",
        "MustBeSend": "must be a send",
        "MustBeReceipt": "must be a recipient",
        "WrongChain": "sent to a different chain",
        "OnlyMessageProofs": "only accepts message proofs",
        "OutOfOrder": "out of order",
        "MissingHeader": "must submit header for height 7",
        "InvalidProof": "invalid merkle proof",
        "NotATailProof": "must be a tail proof",
        "ReceiptExists": "receipt exists, no timeout proof",
        "TimeoutNotReached": "message timeout not yet reached",
        "CleanupBackwards": "cleanup must go forward",
    }
    assert {refusal.name for refusal in TEXTS} == set(texts)
    for name, text in texts.items():
        error = IbcError(Refusal[name], height=7)
        assert (str(error), error.name) == (text, name)
        assert str(IbcError(Refusal[name], "why", height=7)) == f"{text}: why"


def test_unordered_queues_have_no_time_outs() -> None:
    with pytest.raises(ValueError, match="need proofs of absence"):
        IbcOptions(order="unordered", timeouts="on")


def no_gap(found: Sequence[int]) -> bool:
    return list(found) == list(range(len(found)))


def test_unordered_nothing_stays_behind_a_gap() -> None:
    net = Net({"order": "unordered"}, carriers=(("gap", "A", "B", 1, 1, None),)).ask().ask().ask().next(2)
    assert [row[1] for row in net.seen(B)] == [1, 2]
    net.next()
    assert no_gap(sorted(row[1] for row in net.seen(B))) and len(net.seen(B)) == 3
    net.next(2)
    assert net.queue("A", "B", Purpose.SEND) == (3, 3)


def test_unordered_a_late_answer_holds_nobody_back() -> None:
    net = Net({"order": "unordered", "relay": {"max_packets": 1}}).ask(method="hold").ask().ask().next(6)
    assert [row[0] for row in net.seen(A)] == [1, 2] and net.queue("A", "B", Purpose.SEND) == (0, 3)
    assert net.refusals() == [], "what is acknowledged is not brought again"
    net.say("B", B, ("flush", 1)).next(2)
    assert [row[0] for row in net.seen(A)] == [1, 2, 0] and net.queue("A", "B", Purpose.SEND) == (3, 3)


def test_the_answer_to_a_forged_packet_reaches_no_program() -> None:
    net = Net(forged=((0, "A", C, B, b"forged"), (0, "A", 777, B, b"forged"))).next(3)
    assert net.codes("B", "A") == [4, 4] and net.seen(B) == net.seen(C) == []
    assert net.queue("A", "B", Purpose.SEND) == (2, 2), "and blocks nothing"


def test_caller_payload_reaches_an_echo() -> None:
    net = Net()
    net.told[1] = [Call("A", 10, 5, "call", caller_payload(11, 0, "echo", b"x"))]
    net.next(3)
    assert net.view()["A"]["programs"][10]["answered"] == 1


@pytest.mark.parametrize("proofs", ["range", "single"])
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("tamper", ["InvalidProof", "InvalidProof"]),
        ("foreign", ["InvalidProof", "InvalidProof"]),
        ("gap", ["OutOfOrder", "OutOfOrder"]),
        ("drop", []),
    ],
)
def test_27_relayers_of_a_scenario_that_misbehave(kind: str, names: list[str], proofs: str) -> None:
    net = Net({"relay": {"proofs": proofs}}, carriers=((kind, "A", "B", 1, 2, None),))
    net.ask().ask().say("C", C, ("call", B, "echo", b"", 0, None)).next()
    found = [net.next().refusals(), net.next().refusals()]
    assert [rows for rows in found if rows] == [[("B", name)] for name in names]
    assert net.queue("B", "A", Purpose.RECEIPT) == (0, 0)
    net.next(2)
    assert net.refusals() == [] and net.queue("A", "B", Purpose.SEND) == (2, 2)


def test_16_relayers_of_a_scenario_time_out_and_clean_up() -> None:
    net = Net(LIMITED, carriers=(("drop", "A", "B", 0, 5, None),)).ask().ask().next(4)
    assert net.queue("A", "B", Purpose.SEND) == (0, 2), "at the header of height 3 they have not expired"
    net.next()
    assert net.queue("A", "B", Purpose.SEND) == (2, 2) and [row[1] for row in net.seen(A)] == [2, 2]
    net.ask().next(2)
    assert net.queue("B", "A", Purpose.RECEIPT) == (2, 2) and net.seen(B) == []
    net.next()
    assert net.queue("B", "A", Purpose.RECEIPT) == (2, 3) and len(net.seen(B)) == 1


def test_4_relayers_of_a_scenario_that_name_the_header_before() -> None:
    net = Net(carriers=(("stale", "A", "B", 0, 99, None),)).next(3).ask().ask().next()
    assert net.say("A", A, ("calm",)).next().refusals() == [("B", "MissingHeader")]
    assert net.next().refusals() == [("B", "InvalidProof")], "A has changed in between"
    assert net.next().refusals() == [] and len(net.seen(B)) == 2, "now both headers have one root"


@pytest.mark.parametrize("order", ["ordered", "unordered"])
@pytest.mark.parametrize(("coordination", "shares"), [("leader", [(3, 3), (0, 0)]), ("partition", [(1, 1), (2, 2)])])
def test_26_relayers_that_share_the_work(order: str, coordination: str, shares: list[tuple[int, int]]) -> None:
    net = Net({"relayers": ("r0", "r1"), "relay": {"coordination": coordination}, "order": order})
    net.ask().ask().ask().next(2)
    accounts = net.state.relayers
    rows = zip(*(accounts[name].tolist() for name in ("relayer", "submitted", "accepted")), strict=True)
    found = {relayer: counts for relayer, *counts in rows}
    assert [tuple(found.get(relayer, (0, 0))) for relayer in (0, 1)] == shares and net.refusals() == []
