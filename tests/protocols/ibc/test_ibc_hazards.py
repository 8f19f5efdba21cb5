"""The hazards of section 6 of the IBC reference by number, each on the kernel and on its oracle.

Calls that no honest or scenario relayer makes arrive as external transactions, one by one with single proofs. The
oracle's invariants are checked after every block. Hazard ``n`` is in the tests named ``test_n_...``. Further tests of
hazards that only one engine can express:

- 2, 6, 10, 12, 22, 31: ``test_spec_ibc.py`` (an isolated queue and registration, modules in place of programs);
- 8, 23, 24: ``test_spec_ibc_beyond.py`` (evidence of forks, validator sets as names with powers), and for the
  validator sets of Tendermint headers ``test_light_client.py``;
- 23, 24, 26, 32: ``test_ibc_hazards_kernel.py`` (client refreshes, bytes other than headers, waste, long methods);
- 22: ``tests/core/test_queues.py``; 33: ``test_ics23.py``; 28, 34: ``test_spec_ibc_network.py`` (its log).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import cbor2
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ics23.simple_store import SimpleStore

from causeway.protocols.ibc.errors import TEXTS, IbcError, Refusal
from causeway.protocols.ibc.keys import HEAD_KEY, TAIL_KEY, KeyPart, QueueKey, QueuePurpose, index_key, parse_key
from causeway.protocols.ibc.packets import Packet, Receipt, decode_packet, decode_receipt
from causeway.protocols.ibc.relay.accounts import OUTSIDER
from tests.spec import ibc
from tests.support.ibc.ibc_calls import SILENT, A, B, C, Net, OracleNet, columns
from tests.support.ibc.ibc_harness import Call, KernelRun, Scenario
from tests.support.properties.caller_payloads import caller_payload

Engine = Callable[..., Any]


@pytest.fixture(params=["kernel", "oracle"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Create networks, on the kernel and on the oracle in turn."""
    made: dict[str, Engine] = {"kernel": Net, "oracle": OracleNet}
    return made[request.param]


def with_sent_packets(engine: Engine, count: int = 2, options: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """Create a network in which packets of A to B are undelivered."""
    net = engine(options, carriers=SILENT, **more)
    for _ in range(count):
        net.ask()
    return net.next()


def with_received_packets(engine: Engine, count: int = 2, options: Mapping[str, Any] | None = None) -> Any:
    """Create a network in which B received packets of A, without delivered receipts."""
    net = with_sent_packets(engine, count, options)
    assert net.bring("B", net.update("A"), *(net.packet(index) for index in range(count))) == []
    return net


def test_1_message_1_after_message_0(engine: Engine) -> None:
    net = with_sent_packets(engine)
    assert net.bring("B", net.update("A"), net.packet(0), net.packet(1)) == []
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (0, 2)


def test_2_message_2_before_1(engine: Engine) -> None:
    net = with_sent_packets(engine, 3)
    assert net.bring("B", net.update("A"), net.packet(0), net.packet(2)) == ["OutOfOrder"]
    assert net.bring("B", net.packet(1, height=1), net.packet(2, height=1)) == []
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (0, 3)
    assert net.bring("A", net.update("B"), *(net.receipt(index) for index in range(3))) == []
    assert net.queue("A", "B", QueuePurpose.SEND) == (3, 3) and [row[:2] for row in net.seen(A)] == [
        [0, 0],
        [1, 0],
        [2, 0],
    ]


@pytest.mark.parametrize(("redundant", "why"), [("error", "OutOfOrder"), ("noop", "NoOp")])
def test_3_same_proof_by_two_relayers(engine: Engine, redundant: str, why: str) -> None:
    net = engine({"relayers": ("r0", "r1"), "redundant": redundant}).ask().next(2)
    assert net.refused() == [("B", why)]
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (0, 1) and len(net.seen(B)) == 1


@pytest.mark.parametrize(("redundant", "why"), [("error", "OutOfOrder"), ("noop", "NoOp")])
def test_3_same_proof_again(engine: Engine, redundant: str, why: str) -> None:
    net = with_received_packets(engine, 1, {"redundant": redundant})
    before = net.entries()["B"]
    again, unsent, behind = (net.packet(index, height=1) for index in range(3))
    assert net.bring("B", again, unsent, behind) == [why, "InvalidProof", "OutOfOrder"]
    assert net.entries()["B"] == before
    assert net.bring("A", net.update("B"), net.receipt(0), net.receipt(0)) == [why]
    assert len(net.seen(A)) == len(net.seen(B)) == 1


def test_4_missing_header_and_header_of_another_chain(engine: Engine) -> None:
    net = with_sent_packets(engine)
    assert net.bring("B", net.packet(0)) == ["MissingHeader"]
    assert net.bring("B", net.update("A"), net.update("C"), net.packet(0, height=1, remote="C")) == ["MissingHeader"]
    assert net.bring("B", net.update("C"), net.packet(0, remote="C")) == ["InvalidProof"]
    others = net.update("C", remote="A"), net.update("A", root=bytes(32))
    assert net.bring("B", *others, net.packet(0, height=4)) == ["InvalidHeader", "InvalidHeader", "MissingHeader"]
    assert net.bring("B", net.packet(0, height=2)) == []


def test_4_same_entry_of_another_chain(engine: Engine) -> None:
    net = engine(carriers=SILENT, forged=((0, "A", C, B, b"same"), (0, "C", C, B, b"same"))).next()
    key = index_key("B", QueuePurpose.SEND, 0)
    assert net.stores[1]["A"][key] == net.stores[1]["C"][key]
    assert net.bring("B", net.update("A"), net.packet(0, "C", remote="A")) == ["InvalidProof"]
    assert net.bring("B", net.update("C"), net.packet(0, "C", height=2)) == []


def test_5_foreign_keys(engine: Engine) -> None:
    net = with_sent_packets(engine)
    calls = [
        net.proof("receive", "A", index_key("B", QueuePurpose.RECEIPT, 0)),
        net.proof("receive", "A", QueueKey("B", QueuePurpose.SEND, KeyPart.HEAD).encode()),
        net.proof("receive", "A", QueueKey("B", QueuePurpose.SEND, KeyPart.TAIL).encode()),
        net.proof("receive", "A", index_key("C", QueuePurpose.SEND, 0)),
        net.proof("receipt", "A", index_key("B", QueuePurpose.SEND, 0)),
        net.proof("receipt", "A", QueueKey("B", QueuePurpose.RECEIPT, KeyPart.HEAD).encode()),
        net.proof("receipt", "A", QueueKey("B", QueuePurpose.RECEIPT, KeyPart.TAIL).encode()),
        net.proof("receipt", "A", index_key("C", QueuePurpose.RECEIPT, 0)),
        net.proof("receive", "A", b"ibc:A:send"),
    ]
    names = ["MustBeSend", "OnlyMessageProofs", "OnlyMessageProofs", "WrongChain", "MustBeReceipt", "OnlyMessageProofs"]
    assert net.bring("B", net.update("A"), *calls) == [*names, "OnlyMessageProofs", "WrongChain", "MalformedKey"]
    stranger = net.packet(0, remote="nobody")
    assert net.bring("B", stranger) == ["UnregisteredSender"]


OWN, OTHERS = index_key("B", QueuePurpose.SEND, 0), index_key("C", QueuePurpose.SEND, 0)
OTHERS_HEAD = QueueKey("C", QueuePurpose.RECEIPT, KeyPart.HEAD).encode()
OWN_HEAD = QueueKey("B", QueuePurpose.RECEIPT, KeyPart.HEAD).encode()
OWN_SENT = QueueKey("B", QueuePurpose.SEND, KeyPart.HEAD).encode()
WRONG: list[tuple[str, bytes, str, int, str]] = [
    ("receive", OTHERS_HEAD, "X", 99, "UnregisteredSender"),
    ("receive", OTHERS_HEAD, "A", 99, "MustBeSend"),
    ("receive", OTHERS, "A", 99, "WrongChain"),
    ("receive", OWN_SENT, "A", 99, "OnlyMessageProofs"),
    ("receive", QueueKey("B", QueuePurpose.SEND, KeyPart.TAIL).encode(), "A", 99, "OnlyMessageProofs"),
    ("receive", index_key("B", QueuePurpose.SEND, 1), "A", 99, "OutOfOrder"),
    ("receive", OWN, "A", 99, "MissingHeader"),
    ("receive", OWN, "A", 2, "MissingHeader"),
    ("receive", OWN, "A", 1, "InvalidProof"),
    ("receive", b"?", "A", 99, "MalformedKey"),
    ("receipt", OTHERS, "X", 99, "UnregisteredSender"),
    ("receipt", OTHERS, "A", 99, "MustBeReceipt"),
    ("receipt", OTHERS_HEAD, "A", 99, "WrongChain"),
    ("receipt", OWN_HEAD, "A", 99, "MissingHeader"),
    ("receipt", OWN_HEAD, "A", 1, "InvalidProof"),
    ("timeout", OWN, "A", 99, "MustBeReceipt"),
    ("timeout", OTHERS_HEAD, "A", 99, "WrongChain"),
    ("timeout", OWN_HEAD, "A", 99, "MissingHeader"),
    ("cleanup", OTHERS_HEAD, "A", 99, "MustBeSendQueue"),
    ("cleanup", OTHERS, "A", 99, "WrongChain"),
    ("cleanup", OWN, "A", 99, "NotAHeadProof"),
    ("cleanup", OWN_SENT, "A", 99, "MissingHeader"),
]


def test_5_order_of_checks(engine: Engine) -> None:
    net = with_sent_packets(engine, 1, LIMITED)
    net.ask(C)
    assert net.bring("B", net.update("A")) == []
    before = net.entries()["B"]
    wrong = {"value": b"?", "proof": b"?"}
    calls = [net.proof(kind, "A", key, height, remote=remote, **wrong) for kind, key, remote, height, _ in WRONG]
    assert net.bring("B", *calls) == [name for *_, name in WRONG], "the first fault of each"
    assert net.entries()["B"] == before


MALFORMED = [
    b"",
    b"ibc:A",
    b"abc:A:send\x00",
    b"ibc::send\x00",
    b"ibc:A:B:send\x00",
    b"ibc:A:sent\x00",
    b"ibc:A:send",
    b"ibc:A:send\x01",
    b"ibc:A:send" + bytes(7),
    b"ibc:A:send" + bytes(9),
    b"ibc:\xc3\xa9:send\x00",
    b"ibc:" + b"z" * 65 + b":send\x00",
]


@pytest.fixture(params=["kernel", "oracle"])
def codec(request: pytest.FixtureRequest) -> Any:
    """Return the keys, values and errors of the kernel and of the oracle in turn."""
    if request.param == "oracle":
        return SimpleNamespace(
            error=ibc.SpecError,
            parse=ibc.parse,
            key=lambda index: ibc.key("A", "send", index),
            index=lambda key: ibc.parse(key)[2],
            head=ibc.key("A", "send", ibc.HEAD),
            tail=ibc.key("A", "send", ibc.TAIL),
            decode=ibc.decode_packet,
            encode=lambda kind, data: ibc.encode_packet(ibc.Packet(kind, data)),
            packet=ibc.Packet,
            refusal=lambda name: getattr(ibc, name)(*([7] if name == "MissingHeader" else [])),
        )
    return SimpleNamespace(
        error=IbcError,
        parse=parse_key,
        key=lambda index: index_key("A", QueuePurpose.SEND, index),
        index=lambda key: parse_key(key).index,
        head=b"ibc:A:send" + HEAD_KEY,
        tail=b"ibc:A:send" + TAIL_KEY,
        decode=decode_packet,
        encode=lambda kind, data: Packet(kind, data).encode(),
        packet=Packet,
        refusal=lambda name: IbcError(Refusal[name], height=7),
    )


@pytest.mark.parametrize("key", MALFORMED)
def test_6_malformed_keys(codec: Any, key: bytes) -> None:
    with pytest.raises(codec.error) as caught:
        codec.parse(key)
    assert caught.value.name == "MalformedKey"


IDS = ["a:b", "", "z" * 65, "a b", "\u00e4", "a\n"]


@pytest.mark.parametrize("identifier", IDS)
def test_6_ids_rejected_at_registration(identifier: str) -> None:
    zone = ibc.Zone("A", {}, lambda trust, header: True, ibc.Options())
    with pytest.raises(ibc.InvalidChainId):
        ibc.registerChain(zone, identifier, ibc.Header(identifier, 0, 0, bytes(32)))


@pytest.mark.parametrize("identifier", IDS)
def test_6_ids_invalid_in_scenarios(identifier: str) -> None:
    with pytest.raises(InvalidInput, match="is no chain id under ibc"):
        KernelRun(Scenario({identifier: {}, "B": {}}))


def test_7_altered_body(engine: Engine) -> None:
    net = with_sent_packets(engine)
    value = net.stores[1]["A"][index_key("B", QueuePurpose.SEND, 0)]
    altered = net.packet(0, value=value[:-1] + bytes([value[-1] ^ 1]))
    assert net.bring("B", net.update("A"), altered, net.packet(0)) == ["InvalidProof"]
    assert [row[3] for row in net.seen(B)] == [b"x"]


def test_8_two_headers_for_one_height_freeze_at_once(engine: Engine) -> None:
    net = engine(LIMITED, forks=(("A", 1),)).ask().next(2)
    assert net.view()["B"]["frozen"] == net.view()["C"]["frozen"] == {"A"} and not net.seen(B)
    net.say("B", B, ("call", A, "echo", b"", 0, None)).next()
    assert ("B", "ConnectionFrozen") in net.refused(), "no send"
    calls = [net.packet(0, height=1), net.receipt(0, "A", "B", height=1), net.time_out("A", "B"), net.cleanup()]
    assert net.bring("B", net.update("A"), *calls) == ["ConnectionFrozen"] * 5, "no update, no receive, nothing"
    assert net.queue("B", "A", QueuePurpose.SEND) == (0, 0) and net.seen(B)[1:] == []


def test_9_unknown_type(engine: Engine) -> None:
    net = engine({"types": {"alpha": {"chains": ["A"]}}}).ask(method="alpha").ask().next(2)
    assert net.codes("B", "A") == [1, 0]
    value = net.entries()["B"][index_key("A", QueuePurpose.RECEIPT, 0)]
    assert decode_receipt(value) == Receipt(1, b"")
    net.next()
    assert net.seen(A) == [[0, 1, b"", 0], [1, 0, b"x", 0]]


def test_10_handler_raising_after_half_its_writes(engine: Engine) -> None:
    net = engine().ask(method="raise").ask().next(2)
    assert net.codes("B", "A") == [3, 0] and net.queue("B", "A", QueuePurpose.SEND) == (0, 0)
    assert [row[2] for row in net.seen(B)] == ["echo"]
    net.next()
    assert net.seen(A) == [[0, 3, b"ValueError: no", 0], [1, 0, b"x", 0]]


def test_10_rejecting_and_forwarding_handlers(engine: Engine) -> None:
    relayed = cbor2.dumps([C, "echo", b"on"])
    net = engine().ask(method="refuse").ask(method="relay", payload=relayed).next(2)
    assert net.codes("B", "A") == [16] and net.queue("B", "C", QueuePurpose.SEND) == (0, 1)
    net.next(3)
    assert net.seen(A) == [[0, 16, b"not today", 0], [1, 0, b"on", 0]] and net.queue("A", "B", QueuePurpose.SEND) == (
        2,
        2,
    )


def test_11_raising_reply_handler_retains_the_packet(engine: Engine) -> None:
    net = engine().ask(note="boom", cycles=8, method="take").ask().next(2)
    before = deepcopy(net.view()["A"])
    for pause in (1, 2, 4):
        net.next(pause)
        assert net.refused() == [("A", "HandlerFault")]
        assert net.queue("A", "B", QueuePurpose.SEND) == (0, 2) and net.seen(A) == []
        now = net.view()["A"]
        assert all(now[name] == before[name] for name in ("entries", "programs", "balances", "callbacks"))
    net.say("A", A, ("calm",)).next(8)
    assert net.queue("A", "B", QueuePurpose.SEND) == (2, 2) and [row[1] for row in net.seen(A)] == [0, 0]
    assert net.balances()[A] == 996


def test_12_send_errors(engine: Engine) -> None:
    types = {"alpha": {"chains": ["B"]}, "beta": {"modules": ["p1"]}, "gamma": {"chains": ["B"], "modules": ["p1"]}}
    net = engine({"types": types, "connections": [("A", "B")], "max_data_bytes": 60})
    net.ask(C, cycles=7).ask(method="alpha").ask(method="gamma").ask(method="beta", cycles=5)
    net.ask(method="beta", payload=bytes(99)).ask(payload=bytes(99)).ask(999).next()
    names = [
        "UnregisteredDestination",
        "UnsupportedType",
        "UnsupportedType",
        "PermissionDenied",
        "PermissionDenied",
        "InvalidPacket",
        "UnregisteredDestination",
    ]
    rejected = net.happened()["rejected"]
    assert [row[2:] for row in sorted(rejected)] == list(enumerate(names)) and set(rejected.values()) == {1}
    assert net.queue("A", "B", QueuePurpose.SEND) == (0, 0), "nothing is pushed"
    assert net.balances()[A] == 1000 - 12
    net.next()
    assert [row[1:3] for row in net.seen(A)] == [[16, name.encode()] for name in names]
    assert net.balances()[A] == 1000, "what was attached is back"


def test_13_receipts_out_of_order_and_altered(engine: Engine) -> None:
    net = with_received_packets(engine)
    assert net.bring("A", net.update("B"), net.receipt(1)) == ["OutOfOrder"]
    value = net.stores[2]["B"][index_key("A", QueuePurpose.RECEIPT, 0)]
    altered = value[:4] + b"\x03" + value[5:]
    assert decode_receipt(altered).code == 3
    assert net.bring("A", net.receipt(0, height=2, value=altered), net.receipt(0, height=2)) == ["InvalidProof"]
    assert net.queue("A", "B", QueuePurpose.SEND) == (1, 2) and net.seen(A) == [[0, 0, b"x", 0]]


def test_14_empty_values(engine: Engine) -> None:
    net = engine().ask(payload=b"").next(2)
    store = net.stores[2]["B"]
    assert store[index_key("A", QueuePurpose.RECEIPT, 0)] == Receipt(0, bytes(16)).encode()
    assert Receipt(0, b"").encode() == bytes([1, 0, 0, 0, 0, 0, 0, 0, 0])
    assert store[b"ibc:C:receipt\x00"] == store[b"ibc:C:receipt\x7f"] == bytes(8)
    tree = SimpleStore.of(*columns(store))
    assert tree.root == net.root("B") and all(tree.prove(key) for key in store)


def test_15_keys_sort_as_indices(codec: Any) -> None:
    indices = [0, 1, 254, 255, 256, 257, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**62, 2**63 - 1]
    keys = [codec.key(index) for index in indices]
    assert keys == sorted(keys) and [codec.index(key) for key in keys] == indices
    assert codec.head < keys[0] and codec.key(2**62) < codec.tail
    for index in (2**63, 2**64 - 1):
        assert codec.index(codec.key(index)) == index


LIMITED = {"timeouts": "on", "timeout_blocks": 3, "cleanup": "on"}
"""The limit of what is sent before a header of the receiver has come is height 3."""


def test_16_time_outs(engine: Engine) -> None:
    net = with_sent_packets(engine, 2, LIMITED)
    net.next(2)
    early = net.time_out()
    assert net.bring("A", net.update("B"), early) == ["TimeoutNotReached"], "by the header, whatever our own height is"
    assert net.height == 4
    wrong = net.proof("timeout", "B", QueueKey("A", QueuePurpose.RECEIPT, KeyPart.HEAD).encode())
    send = net.proof("timeout", "B", QueueKey("A", QueuePurpose.SEND, KeyPart.TAIL).encode())
    assert net.bring("A", net.update("B"), wrong, send, net.time_out()) == ["NotATailProof", "MustBeReceipt"]
    assert net.seen(A) == [[0, 2, b"", 0]] and net.queue("A", "B", QueuePurpose.SEND) == (1, 2)
    again = net.time_out(height=4)
    assert net.bring("A", again, again) == ["TimeoutNotReached"], "nothing waits any more"
    assert [row[:2] for row in net.seen(A)] == [[0, 2], [1, 2]] and net.queue("A", "B", QueuePurpose.SEND) == (2, 2)


def test_16_time_out_of_a_received_packet(engine: Engine) -> None:
    net = with_received_packets(engine, 1, LIMITED)
    net.next(2)
    assert net.bring("A", net.update("B"), net.time_out()) == ["ReceiptExists"]


@pytest.mark.parametrize(("expiry", "codes"), [("strict", [0, 0, 2]), ("inclusive", [0, 2, 2])])
@pytest.mark.parametrize("limit", [{"timeout_blocks": 3}, {"timeout_seconds": 2.0}])
def test_expiry(engine: Engine, expiry: str, codes: list[int], limit: dict[str, Any]) -> None:
    net = with_sent_packets(engine, 3, {"timeouts": "on", "expiry": expiry, **limit})
    assert net.bring("B", net.update("A"), net.packet(0)) == []
    for index in (1, 2):
        assert net.bring("B", net.packet(index, height=1)) == []
    assert net.codes("B", "A") == codes, "received a block before the limit, at it, a block behind it"
    assert len(net.seen(B)) == codes.count(0)


def test_17_received_in_the_last_block_before_expiry(engine: Engine) -> None:
    net = with_sent_packets(engine, 1, LIMITED)
    net.next()
    assert net.bring("B", net.update("A"), net.packet(0)) == [], "at height 3, the last"
    old = net.time_out(height=2)
    header = net.update("B")
    assert net.bring("A", header, old) == ["MissingHeader"]
    assert net.bring("A", net.time_out(height=3)) == ["ReceiptExists"]
    assert net.bring("A", net.receipt(0, height=3)) == [] and net.seen(A) == [[0, 0, b"x", 0]]


def test_18_old_proof_after_its_time_out(engine: Engine) -> None:
    net = with_sent_packets(engine, 1, LIMITED)
    net.bring("B", net.update("A"))
    net.next(2)
    assert net.bring("A", net.update("B"), net.time_out()) == []
    assert net.bring("B", net.packet(0, height=1)) == []
    value = net.entries()["B"][index_key("A", QueuePurpose.RECEIPT, 0)]
    assert decode_receipt(value) == Receipt(2, b"") and net.codes("B", "A") == [2] and net.seen(B) == []


def test_19_time_outs_then_a_fresh_packet(engine: Engine) -> None:
    net = with_sent_packets(engine, 2, LIMITED)
    net.next(3)
    assert net.bring("A", net.update("B"), *[net.time_out()] * 2) == []
    assert net.ask().bring("A", net.update("B")) == []
    fresh, cleanup = net.packet(2), net.cleanup()
    assert net.bring("B", net.update("A"), fresh) == ["OutOfOrder"]
    assert net.bring("B", cleanup, fresh) == []
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (2, 3) and len(net.seen(B)) == 1


def test_20_cleanups(engine: Engine) -> None:
    net = with_received_packets(engine, 2, LIMITED)
    assert net.bring("B", net.update("A"), net.cleanup()) == ["CleanupBackwards"]
    tail = net.proof("cleanup", "A", QueueKey("B", QueuePurpose.SEND, KeyPart.TAIL).encode())
    other = net.proof("cleanup", "A", QueueKey("B", QueuePurpose.RECEIPT, KeyPart.HEAD).encode())
    assert net.bring("B", net.update("A"), tail, other) == ["NotAHeadProof", "MustBeSendQueue"]


def test_21_cleanup_retains_unacknowledged_packets(engine: Engine) -> None:
    net = with_received_packets(engine, 3, LIMITED)
    assert net.bring("A", net.update("B"), net.receipt(0)) == []
    assert net.bring("B", net.update("A"), net.cleanup()) == []
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (1, 3) and net.codes("B", "A") == [0, 0]
    assert net.queue("A", "B", QueuePurpose.SEND) == (1, 3)


def test_28_halted_zone_proves_no_head(engine: Engine) -> None:
    """Earlier pops are cleaned up once it makes blocks again, like time-outs (which need its tail)."""
    dropped = ("drop", "A", "B", 3, 3, None)
    net = engine({"cleanup": "on"}, halts=(("A", 3, 6),), carriers=(dropped,))
    net.ask().next(3)
    assert net.queue("A", "B", QueuePurpose.SEND) == (1, 1)
    net.next(5)
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (0, 1)
    net.next()
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (1, 1)


def test_20_22_jump_past_the_tail_leaves_an_empty_queue(engine: Engine) -> None:
    net = with_sent_packets(engine, 3, LIMITED)
    net.next(3)
    assert net.bring("A", net.update("B"), *[net.time_out()] * 3) == []
    assert net.bring("B", net.update("A"), net.cleanup(), net.cleanup()) == ["CleanupBackwards"]
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (3, 3) and net.codes("B", "A") == []


def test_23_header_older_than_the_unbonding_period(engine: Engine) -> None:
    net = with_sent_packets(
        engine, 3, {"unbonding_seconds": 3.0, "timeouts": "on", "timeout_seconds": 99, "cleanup": "on"}
    )
    assert net.bring("B", net.update("A"), net.packet(0)) == []
    assert net.bring("A", net.update("B")) == []
    assert net.bring("B", net.packet(1, height=1)) == [], "three seconds after it"
    calls = (net.packet(2, height=1), net.packet(2, height=9), net.packet(1, height=1), net.cleanup(height=1))
    net.say("B", B, ("call", A, "echo", b"", 0, None))
    assert net.bring("B", *calls) == ["ClientExpired", "MissingHeader", "OutOfOrder", "ClientExpired"]
    assert net.queue("B", "A", QueuePurpose.SEND) == (0, 0), "no send"
    assert net.bring("B", net.update("A"), net.packet(2)) == ["ClientExpired", "MissingHeader"]
    assert net.bring("A", net.receipt(0, height=2), net.time_out(height=2)) == ["ClientExpired"] * 2
    assert net.queue("A", "B", QueuePurpose.SEND) == (0, 3) and net.codes("B", "A") == [0, 0]
    assert net.seen(B)[-1] == [0, 16, b"ClientExpired", 0]


def test_23_update_and_send_with_a_header_of_exactly_the_unbonding_period(engine: Engine) -> None:
    net = with_sent_packets(engine, 2, {"unbonding_seconds": 3.0})
    assert net.bring("B", net.update("A"), net.packet(0)) == []
    net.next().say("B", B, ("call", A, "echo", b"", 0, None))
    assert net.bring("B", net.update("A"), net.packet(1, height=3)) == []
    assert net.queue("B", "A", QueuePurpose.SEND) == (0, 1)


def test_23_expired_client_proves_nothing(engine: Engine) -> None:
    net = with_sent_packets(engine, 2, {"unbonding_seconds": 3.0})
    assert net.bring("B", net.update("A"), net.packet(0)) == []
    net.next(2)
    net.say("B", B, ("call", A, "echo", b"", 0, None))
    assert net.bring("B", net.update("A"), net.packet(1, height=4)) == ["ClientExpired", "MissingHeader"]
    assert net.refused().count(("B", "ClientExpired")) == 2
    assert net.queue("B", "A", QueuePurpose.SEND) == (0, 0), "no update, no send"
    net.next()
    assert net.seen(B)[-1] == [0, 16, b"ClientExpired", 0]


DELAYED = {"delay_seconds": 3.0, "timeouts": "on", "timeout_seconds": 99, "cleanup": "on"}


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_23_proof_before_the_delay_of_its_header(engine: Engine, order: str) -> None:
    net = with_sent_packets(engine, 2, {**DELAYED, "order": order, "acknowledgements": "synchronous"})
    altered = net.packet(0, height=1, proof=b"")
    assert (
        net.bring("B", net.update("A"), net.packet(0, height=1), altered, net.cleanup(height=1))
        == ["DelayNotElapsed"] * 3
    ), "whatever the proof is worth"
    late = net.time_out(height=2) if order == "ordered" else net.missing(0, height=2)
    assert net.bring("A", net.update("B"), net.receipt(0, height=2), late) == ["DelayNotElapsed"] * 2
    assert net.bring("B", net.packet(0, height=1), net.packet(0, height=3)) == ["DelayNotElapsed", "MissingHeader"]
    assert net.bring("B", net.update("A"), altered, net.packet(0, height=1)) == ["InvalidProof"], "three seconds after"
    assert net.bring("A", net.update("B"), late) == ["TimeoutNotReached"]
    assert net.bring("B", net.packet(1, height=4)) == ["DelayNotElapsed"], "a later header has a delay of its own"
    assert net.bring("B", net.packet(1, height=1)) == [], "an earlier one can still be used"
    assert net.codes("B", "A") == [0, 0]


def test_23_repeated_or_too_old_header(engine: Engine) -> None:
    net = with_sent_packets(engine, 2, {**DELAYED, "unbonding_seconds": 6.0})
    update = net.update("A")
    assert net.bring("B", update) == []
    assert net.bring("B", update) == [], "it was added once"
    assert net.next().bring("B", net.packet(0, height=1)) == []
    net = with_sent_packets(engine, 2, {**DELAYED, "unbonding_seconds": 6.0})
    update = net.update("A")
    assert net.next(4).bring("B", update) == []
    assert net.bring("B", net.packet(0, height=1)) == ["DelayNotElapsed"]
    assert net.bring("B", net.packet(0, height=1)) == ["ClientExpired"], "which comes before the delay"


def test_23_header_starting_a_recovery_has_a_delay(engine: Engine) -> None:
    net = with_sent_packets(engine, 1, DELAYED, recoveries=(("B", "A", 3),))
    assert net.bring("B", net.update("A")) == []
    net.next()
    assert net.bring("B", net.packet(0, height=1), net.packet(0, height=3)) == ["MissingHeader", "DelayNotElapsed"]
    assert net.next(2).bring("B", net.packet(0, height=3)) == []


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_23_relayers_deliver_headers_ahead_and_wait(engine: Engine, order: str) -> None:
    """Two packets a block apart arrive under separate headers, and nothing is rejected."""
    net = engine({"delay_seconds": 3.0, "order": order}).ask().next().ask()
    heights = {}
    for height in range(2, 14):
        assert net.next().refused() == []
        heights[height] = len(net.codes("B", "A")), len(net.seen(A))
    assert [heights[h] for h in (4, 5, 6, 8, 9, 10)] == [(0, 0), (1, 0), (2, 0), (2, 0), (2, 1), (2, 2)]
    assert net.total("headers") == 4, "two to either side"
    assert [note[2] for note in net.seen(A)] == [b"x", b"x"]


def test_23_relayers_prove_under_known_headers(engine: Engine) -> None:
    """They do not know the contents of a stranger's later header, and continue under their own."""
    net = engine({"delay_seconds": 3.0}, carriers=(("drop", None, None, 2, 6, None),)).ask().next().ask().next()
    later = net.update("A")
    assert net.next().bring("B", later) == [], "header 2, after header 1"
    net.next(3)
    assert net.view()["B"]["trust"]["A"] == [0, 1, 2] and net.codes("B", "A") == []
    assert net.next().refused() == [] and net.codes("B", "A") == [0], "the packet that header 1 shows"
    assert net.view()["B"]["trust"]["A"] == [0, 1, 2, 7], "the other one needs a header that they know"
    assert net.next(3).refused() == [] and net.codes("B", "A") == [0, 0]


def test_23_relayers_abandon_a_header_grown_too_old(engine: Engine) -> None:
    options = {"delay_seconds": 2.0, "unbonding_seconds": 7.0}
    net = engine(options, carriers=(("drop", None, None, 2, 7, None),)).ask().next(3)
    later = net.update("A")
    assert net.next().bring("B", later) == [] and net.next(3).codes("B", "A") == []
    for height in range(9, 12):
        assert net.next().refused() == [] and net.codes("B", "A") == [0] * (height > 10)


def test_24_header_of_other_validators(engine: Engine) -> None:
    net, other = with_sent_packets(engine), engine(seed=1, carriers=SILENT).next()
    assert net.bring("B", other.update("A")) == ["InvalidHeader"]
    assert net.view()["B"]["trust"]["A"] == [0]


def test_25_relay_stopping_between_header_and_proofs(engine: Engine) -> None:
    net = with_sent_packets(engine)
    assert net.bring("B", net.update("A")) == []
    assert net.bring("B", net.packet(0, height=1)) == []
    assert net.bring("B", net.packet(0, height=1), net.packet(1, height=1)) == ["OutOfOrder"]
    assert len(net.seen(B)) == 2


def test_26_many_racing_relayers(engine: Engine) -> None:
    net = engine({"relayers": tuple(f"r{n}" for n in range(100))}).ask().ask().next(3)
    assert len(net.seen(B)) == 2 and len(net.seen(A)) == 2
    assert (net.total("accepted"), net.total("failed"), net.total("headers")) == (4, 4 * 99, 200)
    assert net.total("fees") == 100 * (2 * 100 + 4 * 20)
    assert all(len(zone["trust"].get(remote, [])) <= 2 for zone in net.view().values() for remote in "ABC")


def test_27_many_invalid_proofs_change_nothing(engine: Engine) -> None:
    net = with_sent_packets(engine, 1)
    before = net.view()["B"]
    assert net.bring("B", *[net.packet(0, proof=b"\x00" * 40)] * 200) == ["MissingHeader"] * 200
    at = net.height
    net.bring("B", net.update("A"))
    assert net.bring("B", *[net.packet(0, height=at, proof=b"\x00" * 40)] * 200) == ["InvalidProof"] * 200
    assert net.counts[OUTSIDER + 7, "failed"] == 400, "each is counted, and paid for"
    after = net.view()["B"]
    assert (after["entries"], after["programs"]) == (before["entries"], before["programs"])


def test_28_halted_destination(engine: Engine) -> None:
    net = engine(halts=(("B", 0, 9),))
    for at in range(10):
        net.ask(payload=bytes([at])).say("B", B, ("call", A, "echo", b"lost", 0, None)).next()
    assert net.queue("A", "B", QueuePurpose.SEND) == (0, 10) and net.seen(B) == []
    net.next(2)
    assert [row[2:4] for row in net.seen(B)] == [["echo", bytes([at])] for at in range(10)]
    assert net.queue("A", "B", QueuePurpose.SEND) == (10, 10) and len(net.seen(A)) == 10, "what B was told is refused"


def test_29_both_directions(engine: Engine) -> None:
    net = engine().ask().ask().say("B", B, ("call", A, "echo", b"y", 0, None)).next(3)
    assert [net.queue(*one) for one in (("A", "B", QueuePurpose.SEND), ("B", "A", QueuePurpose.SEND))] == [
        (2, 2),
        (1, 1),
    ]
    assert [net.queue(*one) for one in (("A", "B", QueuePurpose.RECEIPT), ("B", "A", QueuePurpose.RECEIPT))] == [
        (0, 1),
        (0, 2),
    ]


def test_29_delayed_receipts_do_not_block_the_other_direction(engine: Engine) -> None:
    net = engine()
    for _ in range(3):
        net.ask().ask(method="hold").say("B", B, ("call", A, "echo", b"y", 0, None)).next()
    net.next(4)
    assert len([row for row in net.seen(B) if row[2] == b"y"]) == 3
    assert [row for row in net.seen(A) if row[2] == b"x"] == [[0, 0, b"x", 0]]
    net.say("B", B, ("flush", 1)).next(4)
    assert [row[0] for row in net.seen(A) if len(row) == 4] == list(range(6))


def test_30_causes_precede_effects_over_three_chains(engine: Engine) -> None:
    net = engine().ask(B, "relay", cbor2.dumps([C, "echo", b"caused"])).next(2)
    assert net.seen(C) == [] and net.queue("B", "C", QueuePurpose.SEND) == (0, 1)
    net.next()
    assert [row[3] for row in net.seen(C)] == [b"caused"]
    net.next(2)
    assert net.seen(A) == [[0, 0, b"caused", 0]]


def test_30_earlier_sent_message_arrives_first(engine: Engine) -> None:
    net = engine().ask(C, payload=b"before").ask(B, "relay", cbor2.dumps([C, "echo", b"caused"])).next(6)
    assert [row[3] for row in net.seen(C)] == [b"before", b"caused"]
    assert net.seen(A) == [[0, 0, b"before", 0], [1, 0, b"caused", 0]]


@pytest.mark.parametrize(("method", "kept"), [("raise", 0), ("refuse", 0), ("take", 50)])
def test_31_value_is_conserved(engine: Engine, method: str, kept: int) -> None:
    net = engine().ask(method=method, cycles=100)
    for _ in range(4):
        net.next()
        balances = net.balances()
        under_way = 100 if net.height < 2 else 100 - kept if net.height == 2 else 0
        assert sum(balances.values()) == 5 * 1000 - under_way
    assert (balances[A], balances[B]) == (1000 - kept, 1000 + kept)
    assert len(net.seen(A)) == 1


@pytest.mark.parametrize(("length", "maximum"), [(0, 2**18), (1, 2**18), (2**18 - 45, 2**18), (2**20 - 45, 2**20)])
def test_32_data_lengths(engine: Engine, length: int, maximum: int) -> None:
    net = engine({"max_data_bytes": maximum} if maximum > 2**18 else {}).ask(payload=bytes(length)).next(3)
    assert net.seen(A) == [[0, 0, bytes(length), 0]]
    net.ask(payload=bytes(maximum - 44)).next()
    assert net.refused() == [("A", "InvalidPacket")]


@pytest.mark.parametrize(
    "value", [b"", b"\x00", b"\x03" + bytes(8), b"\x01" + bytes(7), b"\x01" + bytes(9), b"\x02" * 16]
)
def test_32_values_other_than_packets(codec: Any, value: bytes) -> None:
    with pytest.raises(codec.error) as caught:
        codec.decode(value)
    assert caught.value.name == "InvalidPacket"
    for data in (b"", b"x", bytes(2**20)):
        assert codec.decode(codec.encode("call", data)) == codec.packet("call", data)


def test_errors_have_the_texts_of_the_paper(codec: Any) -> None:
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
        error = codec.refusal(name)
        assert (str(error), error.name) == (text, name)


# ---- beyond the seed: late receipts, unordered queues, a zone that forges


def test_late_answers_delay_the_following_receipts(engine: Engine) -> None:
    net = engine().ask(method="hold").ask(method="hold").ask().next(4)
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (0, 3) and net.codes("B", "A") == [0]
    assert net.seen(A) == [] and net.refused() == []
    assert net.bring("A", net.update("B"), net.receipt(0, value=Receipt(0, b"").encode())) == ["InvalidProof"]
    assert net.bring("A", net.receipt(2, height=4)) == ["OutOfOrder"]
    net.say("B", B, ("refuse",)).next(2)
    assert [row[:2] for row in net.seen(A)] == [[0, 16], [1, 16], [2, 0]]


@pytest.mark.parametrize(("order", "answers"), [("ordered", 0), ("unordered", 2)])
def test_crossing_late_answers_deadlock_in_order(engine: Engine, order: str, answers: int) -> None:
    """A's receipts wait for the answer in B's first slot, which waits for B's receipts behind A's first slot."""
    there, back = cbor2.dumps([A, "echo", b"1"]), cbor2.dumps([B, "echo", b"2"])
    net = engine({"order": order}).ask(B, "relay", there).say("B", B, ("call", A, "relay", back, 0, None)).next(9)
    for number in (A, B):
        assert len([row for row in net.seen(number) if len(row) == 4]) == answers


def is_gapless(found: Sequence[int]) -> bool:
    return list(found) == list(range(len(found)))


def test_unordered_queue_has_no_head_of_line_blocking(engine: Engine) -> None:
    net = engine({"order": "unordered"}, carriers=(("gap", "A", "B", 1, 1, None),)).ask().ask().ask().next(2)
    assert [row[1] for row in net.seen(B)] == [1, 2]
    net.next()
    assert is_gapless(sorted(row[1] for row in net.seen(B))) and len(net.seen(B)) == 3
    net.next(2)
    assert net.queue("A", "B", QueuePurpose.SEND) == (3, 3)


def test_unordered_late_answer_delays_no_other_packet(engine: Engine) -> None:
    net = engine({"order": "unordered", "relay": {"max_packets": 1}}).ask(method="hold").ask().ask().next(6)
    assert [row[0] for row in net.seen(A)] == [1, 2] and net.queue("A", "B", QueuePurpose.SEND) == (0, 3)
    assert net.refused() == [], "what is acknowledged is not brought again"
    net.say("B", B, ("flush", 1)).next(2)
    assert [row[0] for row in net.seen(A)] == [1, 2, 0] and net.queue("A", "B", QueuePurpose.SEND) == (3, 3)


@pytest.mark.parametrize(("redundant", "why"), [("error", "OutOfOrder"), ("noop", "NoOp")])
def test_unordered_receipts_cleanups_and_replays(engine: Engine, redundant: str, why: str) -> None:
    options = {"order": "unordered", "redundant": redundant, "cleanup": "on"}
    net = engine(options, carriers=SILENT).ask().ask(method="hold").ask().ask().next()
    old = [net.packet(index) for index in range(4)]
    come = [old[3], old[1], old[0]]
    assert net.bring("B", net.update("A"), *come, *come) == [why] * 3
    assert net.bring("A", net.update("B"), net.receipt(3), net.receipt(0)) == []
    assert net.queue("A", "B", QueuePurpose.SEND) == (1, 4)
    assert net.bring("B", net.update("A"), net.cleanup()) == []
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (1, 4)
    net.say("B", B, ("flush", 1))
    assert net.bring("B", old[0], old[2]) == [why]
    assert net.bring("A", net.update("B"), net.receipt(2), net.receipt(1)) == []
    assert net.queue("A", "B", QueuePurpose.SEND) == (4, 4) and [row[0] for row in net.seen(A)] == [3, 0, 2, 1]


ABSENT = {"order": "unordered", "acknowledgements": "synchronous", **LIMITED}


def test_unordered_packet_times_out_by_receipt_absence(engine: Engine) -> None:
    net = with_sent_packets(engine, 4, ABSENT)
    assert net.bring("B", net.update("A"), net.packet(1)) == []
    early = net.missing(0)
    assert net.bring("A", net.update("B"), early) == ["TimeoutNotReached"], "at the header of height 2"
    assert net.bring("B", net.packet(2, height=1)) == ["TimeoutElapsed"], "no receipt of it, whatever its code"
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (0, 2) and net.codes("B", "A") == [0]
    exists, tail, other = net.missing(1), net.time_out(), net.missing(0, value=b"x")
    late = [net.missing(index) for index in (3, 0, 0, 4, 9)]
    found = net.bring("A", net.update("B"), exists, tail, other, *late)
    assert found == ["ReceiptExists", "OnlyMessageProofs", "InvalidProof", *["TimeoutNotReached"] * 3]
    assert net.queue("A", "B", QueuePurpose.SEND) == (1, 4), "any of them, not the first alone; two are still there"
    assert net.bring("A", net.receipt(1, height=4)) == [] and net.queue("A", "B", QueuePurpose.SEND) == (2, 4)
    assert [row[:2] for row in net.seen(A)] == [[3, 2], [0, 2], [1, 0]]
    assert net.bring("B", net.update("A"), net.cleanup()) == [] and net.queue("B", "A", QueuePurpose.RECEIPT) == (2, 2)
    assert net.bring("B", net.packet(0, height=1)) == ["OutOfOrder"]
    assert net.bring("A", net.update("B"), net.missing(2)) == [] and net.queue("A", "B", QueuePurpose.SEND) == (4, 4)


def test_unordered_relayers_time_out_missing_packets(engine: Engine) -> None:
    # Of five packets B gets only those of the second block: the others expire there and are rolled back.
    lost = (("drop", "A", "B", 0, 0, None), ("drop", "A", "B", 2, 6, None))
    net = engine({**ABSENT, "timeout_blocks": 5}, carriers=lost)
    net.ask(cycles=3).ask().next().ask().ask().ask().next(9)
    assert net.queue("A", "B", QueuePurpose.SEND) == (5, 5) and net.balances()[A] == 1000
    assert sorted(row[:2] for row in net.seen(A)) == [[0, 0], [1, 0], [2, 2], [3, 2], [4, 2]]
    assert len(net.seen(B)) == 2 and net.refused() == []


def test_answer_to_a_forged_packet_reaches_no_program(engine: Engine) -> None:
    net = engine(forged=((0, "A", C, B, b"forged"), (0, "A", 777, B, b"forged"))).next(3)
    assert net.codes("B", "A") == [4, 4] and net.seen(B) == net.seen(C) == []
    assert net.queue("A", "B", QueuePurpose.SEND) == (2, 2), "and blocks nothing"


def test_caller_payload_reaches_an_echo(engine: Engine) -> None:
    net = engine()
    net.told[1] = [Call("A", 10, 5, "call", caller_payload(11, 0, "echo", b"x"))]
    net.next(3)
    assert net.view()["A"]["programs"][10]["answered"] == 1


# ---- relayers of a scenario


@pytest.mark.parametrize("proofs", ["range", "single"])
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("tamper", ["InvalidProof"]),  # and wait for a block
        ("foreign", ["InvalidProof"]),
        ("gap", ["OutOfOrder"]),
        ("drop", []),
    ],
)
def test_27_misbehaving_relayers(engine: Engine, kind: str, names: list[str], proofs: str) -> None:
    net = engine({"relay": {"proofs": proofs}}, carriers=((kind, "A", "B", 1, 2, None),))
    net.ask().ask().say("C", C, ("call", B, "echo", b"", 0, None)).next()
    found = [net.next().refused(), net.next().refused()]
    assert [rows for rows in found if rows] == [[("B", name)] for name in names]
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (0, 0)
    net.next(2)
    assert net.refused() == [] and net.queue("A", "B", QueuePurpose.SEND) == (2, 2)


def test_16_relayers_time_out_and_clean_up(engine: Engine) -> None:
    options = {**LIMITED, "timeout_blocks": 4}
    net = engine(options, carriers=(("drop", "A", "B", 0, 6, None),)).ask(cycles=8).ask().next(5)
    assert net.queue("A", "B", QueuePurpose.SEND) == (0, 2), "at the header of height 4 they have not expired"
    net.next()
    assert net.queue("A", "B", QueuePurpose.SEND) == (2, 2) and [row[1] for row in net.seen(A)] == [2, 2]
    assert net.balances()[A] == 1000
    net.ask().next(2)
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (2, 2) and net.seen(B) == []
    net.next()
    assert net.queue("B", "A", QueuePurpose.RECEIPT) == (2, 3) and len(net.seen(B)) == 1


def test_4_relayers_naming_the_previous_header(engine: Engine) -> None:
    net = engine(carriers=(("stale", "A", "B", 0, 99, None),)).next(3).ask().ask().next()
    assert net.ask(C).next().refused() == [("B", "MissingHeader")]
    assert net.next().refused() == [("B", "InvalidProof")], "A has changed in between"
    assert net.next(2).refused() == [("B", "MissingHeader")], "they have waited for a block, and brought no header"
    assert net.next().refused() == [] and len(net.seen(B)) == 2, "now both headers have one root"


@pytest.mark.parametrize("order", ["ordered", "unordered"])
@pytest.mark.parametrize(("coordination", "shares"), [("leader", [(3, 3), (0, 0)]), ("partition", [(1, 1), (2, 2)])])
def test_26_relayers_sharing_the_work(
    engine: Engine, order: str, coordination: str, shares: list[tuple[int, int]]
) -> None:
    net = engine({"relayers": ("r0", "r1"), "relay": {"coordination": coordination}, "order": order})
    net.ask().ask().ask().next(2)
    found = [(net.counts[relayer, "submitted"], net.counts[relayer, "accepted"]) for relayer in (0, 1)]
    assert found == shares and net.refused() == []
