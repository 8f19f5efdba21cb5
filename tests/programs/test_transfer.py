"""Token transfer: rules of escrow, vouchers and refunds, and limits of untrusted peers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.core.ingress_call import encode_calls
from causeway.programs.bundled.tokens import (
    MAX_AMOUNT,
    PacketDialect,
    Refused,
    SupplyBroken,
    TokenPacket,
    TokenSupply,
    denom_prefix,
    token_books,
    token_supply,
)
from causeway.programs.bundled.transfer import NO_BOOKS, TokenBook
from causeway.protocols.ibc.program_inputs import ReceiptCode
from tests.support.ibc.ibc_network import Network, Placed

PLAIN = {"denom": "uatom", "amount": "5", "sender": "1", "receiver": "2"}


def packet(**members: Any) -> bytes:
    return json.dumps({**PLAIN, **members}).encode()


# ---- books

ME, PEER, OTHER = 3, 7, 9


def book(**columns: Any) -> TokenBook:
    made = TokenBook.decode(ME, TokenBook(ME, NO_BOOKS).encode(), frozenset({66}))
    made.mint(1, "gold", 100)
    made.books.update(columns)
    return made


def packet_to(receiver: str, amount: int, denom: str = "gold") -> TokenPacket:
    return TokenPacket(denom, amount, "1", receiver)


def refusal_reason(call: Any, *arguments: Any) -> str:
    with pytest.raises(Refused) as refused:
        call(*arguments)
    return refused.value.reason


def test_token_is_sent_delivered_and_returned() -> None:
    own = book()
    own.begin(0, 1, PEER, packet_to("5", 60))
    assert own.books["escrow"] == {PEER: {"gold": 60}} and own.balance(1, "gold") == 40
    assert own.end(0, delivered=True) and own.books["escrow"] == {PEER: {"gold": 60}}
    own.receive(PEER, packet_to("2", 60, denom_prefix(ME) + "gold"))
    assert own.books["escrow"] == {} and own.books["supply"] == {"gold": 100}
    assert own.books["accounts"] == {"gold": {1: 40, 2: 60}}


def test_refund_happens_once() -> None:
    own = book()
    own.begin(0, 1, PEER, packet_to("5", 60))
    assert own.end(0, delivered=False)
    before = own.encode()
    assert not own.end(0, delivered=False) and not own.end(0, delivered=True) and not own.end(1, delivered=False)
    assert own.encode() == before and own.balance(1, "gold") == 100 and own.books["refunded"] == 1


def test_vouchers_are_minted_burnt_and_minted_again_on_return() -> None:
    own, voucher = book(), denom_prefix(PEER) + "silver"
    own.receive(PEER, packet_to("1", 10, "silver"))
    assert own.books["supply"] == {"gold": 100, voucher: 10}
    own.begin(0, 1, PEER, packet_to("5", 10, voucher))
    assert own.books["supply"] == {"gold": 100} and own.books["escrow"] == {} and voucher not in own.books["accounts"]
    own.end(0, delivered=False)
    assert own.books["supply"] == {"gold": 100, voucher: 10} and own.balance(1, voucher) == 10


def test_forwarded_voucher_is_held_in_escrow_not_burnt() -> None:
    own, voucher = book(), denom_prefix(PEER) + "silver"
    own.receive(PEER, packet_to("1", 10, "silver"))
    own.begin(0, 1, OTHER, packet_to("5", 4, voucher))
    assert own.books["escrow"] == {OTHER: {voucher: 4}} and own.books["supply"][voucher] == 10
    own.receive(OTHER, packet_to("2", 4, denom_prefix(ME) + voucher))
    assert own.books["escrow"] == {} and own.balance(2, voucher) == 4


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (lambda own: own.mint(1, denom_prefix(PEER) + "gold", 1), "InvalidDenom"),
        (lambda own: own.mint(1, "no such name", 1), "InvalidDenom"),
        (lambda own: own.mint(66, "gold", 1), "BlockedReceiver"),
        (lambda own: own.mint(1, "gold", MAX_AMOUNT - 99), "SupplyOverflow"),
        (lambda own: own.send(1, 2, "gold", 101), "InsufficientFunds"),
        (lambda own: own.send(2, 1, "gold", 1), "InsufficientFunds"),
        (lambda own: own.send(1, 66, "gold", 1), "BlockedReceiver"),
        (lambda own: own.begin(0, 1, ME, packet_to("5", 1)), "InvalidPeer"),
        (lambda own: own.begin(0, 1, PEER, packet_to("5", 101)), "InsufficientFunds"),
        (lambda own: own.begin(0, 1, PEER, packet_to("5", 1, "silver")), "InsufficientFunds"),
        (lambda own: own.receive(ME, packet_to("5", 1)), "InvalidPeer"),
        (lambda own: own.receive(PEER, packet_to("five", 1)), "InvalidReceiver"),
        (lambda own: own.receive(PEER, packet_to("05", 1)), "InvalidReceiver"),
        (lambda own: own.receive(PEER, packet_to(str(2**64), 1)), "InvalidReceiver"),
        (lambda own: own.receive(PEER, packet_to("66", 1)), "BlockedReceiver"),
        (lambda own: own.receive(PEER, packet_to("5", 31, denom_prefix(ME) + "gold")), "InsufficientEscrow"),
        (lambda own: own.receive(OTHER, packet_to("5", 1, denom_prefix(ME) + "gold")), "InsufficientEscrow"),
        (lambda own: own.receive(PEER, packet_to("5", 1, denom_prefix(ME) + "iron")), "InsufficientEscrow"),
        (lambda own: own.receive(PEER, packet_to("5", 1, denom_prefix(1) * 110 + "a")), "InvalidDenom"),
    ],
)
def test_rejected_transfers_change_nothing(operation: Any, reason: str) -> None:
    own = book()
    own.begin(0, 1, PEER, packet_to("5", 30))
    own.end(0, delivered=True)
    own.send(1, 1, "gold", 70)
    before = own.encode()
    assert refusal_reason(operation, own) == reason
    assert own.encode() == before


def test_peer_cannot_mint_beyond_the_number_range() -> None:
    own = book()
    own.receive(PEER, packet_to("5", MAX_AMOUNT))
    assert refusal_reason(own.receive, PEER, packet_to("5", 1)) == "SupplyOverflow"
    own.begin(0, 5, PEER, packet_to("5", 1, denom_prefix(PEER) + "gold"))
    own.receive(PEER, packet_to("5", 1))
    own.end(0, delivered=False)
    assert own.balance(5, denom_prefix(PEER) + "gold") == MAX_AMOUNT + 1, "a refund is never turned away"


def test_refund_ignores_blocked_receivers() -> None:
    own = book()
    own.begin(0, 1, PEER, packet_to("5", 30))
    barred = TokenBook.decode(ME, own.encode(), frozenset({1}))
    assert refusal_reason(barred.send, 1, 1, "gold", 1) == "BlockedReceiver"
    barred.end(0, delivered=False)
    assert barred.balance(1, "gold") == 100


# ---- on a network

A, B, C, THIEF = 0, 1, 2, 9


def network(options: dict[str, Any] | None = None, **more: Any) -> Network:
    transfers: Placed = {
        A: ("transfer", {"faucet": True, "blocked_users": [66]}),
        B: ("transfer", {"blocked_users": [66]}),
        C: ("transfer", {"peers": [B]}),
    }
    zones: dict[str, Placed] = {
        "A": {A: transfers[A]}, "B": {B: transfers[B], THIEF: "caller"}, "C": {C: transfers[C]},
    }  # fmt: skip
    types = {"transfer": {"modules": ["transfer", "caller"]}}
    net = Network(zones, options={"types": types, **(options or {})}, **more)
    net.tell(A, "mint", json.dumps({"denom": "gold", "amount": "1000"}).encode(), user=1)
    return net


def move(
    net: Network, at: int, peer: int, amount: int, *, denom: str = "gold", receiver: str = "2", user: int = 1
) -> None:
    order = {"denom": denom, "amount": str(amount), "receiver": receiver, "to": peer}
    net.tell(at, "transfer", json.dumps(order).encode(), user=user)


def books(net: Network) -> dict[int, dict[str, Any]]:
    return {number: token_books(net.program_state(number)) for number in (A, B, C)}


def gold(net: Network) -> TokenSupply:
    return token_supply(books(net))[A, "gold"]


def test_token_is_forwarded_and_returned_through_one_channel() -> None:
    net = network()
    move(net, A, B, 600)
    net.block()
    assert gold(net) == TokenSupply(1000, 400, 0, 600)
    net.block()
    assert gold(net) == TokenSupply(1000, 400, 600, 0), "delivered, though the receipt is under way"
    net.settle()
    at_b, at_c = denom_prefix(A) + "gold", denom_prefix(B) + denom_prefix(A) + "gold"
    move(net, B, C, 500, denom=at_b, user=2, receiver="3")
    net.settle()
    assert books(net)[C]["accounts"] == {at_c: {3: 500}}
    assert books(net)[B]["escrow"] == {C: {at_b: 500}}
    move(net, C, B, 500, denom=at_c, user=3, receiver="2")
    net.settle()
    move(net, B, A, 600, denom=at_b, user=2, receiver="1")
    net.settle()
    assert gold(net) == TokenSupply(1000, 1000, 0, 0)
    after = books(net)
    assert after[A]["accounts"] == {"gold": {1: 1000}} and after[A]["escrow"] == {}
    assert after[B]["supply"] == after[C]["supply"] == after[B]["escrow"] == {}


@pytest.mark.parametrize(
    ("at", "peer", "receiver", "code"),
    [
        (A, B, "nobody", ReceiptCode.REJECTED),
        (A, B, "66", ReceiptCode.REJECTED),
        (A, C, "2", ReceiptCode.REJECTED),
        (A, THIEF, "2", ReceiptCode.SUCCESS),
        (A, 77, "2", None),
    ],
    ids=["invalid receiver", "blocked receiver", "a peer that is not taken", "no transfer module", "nowhere"],
)
def test_uncreditable_transfers_are_refunded(at: int, peer: int, receiver: str, code: ReceiptCode | None) -> None:
    net = network()
    move(net, at, peer, 100, receiver=receiver)
    net.block()
    assert books(net)[A]["escrow"] == {peer: {"gold": 100}}
    net.block()
    assert net.receipts() == ({} if code is None else {(A, 0, peer): code})
    net.settle()
    delivered = code == ReceiptCode.SUCCESS
    assert gold(net) == TokenSupply(1000, 1000 - 100 * delivered, 0, 0, beyond=100 * delivered)
    after = books(net)[A]
    assert (after["delivered"], after["refunded"], after["open"]) == (int(delivered), int(not delivered), {})
    assert after["accounts"] == {"gold": {1: 1000 - 100 * delivered}}


def test_each_transfer_of_one_block_has_its_own_outcome() -> None:
    net = network()
    for amount, receiver in ((1, "2"), (10, "nobody"), (100, "2"), (1_000, "2"), (200, "66")):
        move(net, A, B, amount, receiver=receiver)
    net.settle()
    move(net, A, B, 20, receiver="nobody")
    net.block()
    assert books(net)[A]["open"] == {4: [1, B, "gold", 20]}
    net.settle()
    after = books(net)
    assert (after[A]["delivered"], after[A]["refunded"], after[A]["refused"]) == (2, 3, {"InsufficientFunds": 1})
    assert after[B]["accounts"] == {denom_prefix(A) + "gold": {2: 101}}
    assert gold(net) == TokenSupply(1000, 899, 101, 0)


def test_type_unhandled_by_the_other_zone_is_refunded() -> None:
    net = network({"types": {"transfer": {"chains": ["A", "C"]}}})
    move(net, A, B, 100)
    net.block(2)
    assert net.receipts() == {(A, 0, B): ReceiptCode.UNKNOWN_TYPE}
    net.settle()
    assert gold(net) == TokenSupply(1000, 1000, 0, 0)


def test_unauthorised_module_sends_nothing_and_its_escrow_is_reverted() -> None:
    net = network({"types": {"transfer": {"modules": ["caller"]}}})
    move(net, A, B, 100)
    net.block()
    assert net.refusals() == [("A", "PermissionDenied")]
    net.settle()
    assert gold(net) == TokenSupply(1000, 1000, 0, 0) and books(net)[A]["refunded"] == 1


def test_timed_out_transfer_is_refunded_once() -> None:
    net = network({"timeouts": "on", "timeout_blocks": 2, "cleanup": "on"})
    move(net, A, B, 100)
    net.settle()
    assert books(net)[A]["delivered"] == 1, "at the last height at which it could be"
    late = network({"timeouts": "on", "timeout_blocks": 1, "cleanup": "on", "relay": {"min_batch": 2, "max_wait": 5}})
    move(late, A, B, 100)
    late.settle()
    after = books(late)[A]
    assert (after["refunded"], after["delivered"], after["escrow"]) == (1, 0, {})
    assert gold(late) == TokenSupply(1000, 1000, 0, 0)


def send_theft(net: Network, receiver: int, payload: bytes, method: str = "transfer") -> None:
    receivers = np.array([receiver], dtype=np.uint64)
    net.tell(THIEF, "call", encode_calls(receivers, 0, 0, method, pa.array([payload], pa.binary()))[0].as_py())


def test_malicious_peer_gets_only_its_own_tokens() -> None:
    net = network()
    move(net, A, B, 600)
    net.settle()
    before = books(net)[A]
    attacks = [
        packet(denom=denom_prefix(A) + "gold", amount="1"),  # B holds gold backed by escrow of A, the thief does not
        packet(denom=denom_prefix(B) + "gold"),
        packet(amount="0"),
        b"[" * 5_000,
    ]
    for attack in attacks:
        send_theft(net, A, attack)
    send_theft(net, A, packet(), method="steal")
    net.settle()
    after = books(net)[A]
    # Its second attack is its own token, named after it: neither B's nor ours.
    false = denom_prefix(THIEF) + denom_prefix(B) + "gold"
    assert after["accounts"] == {**before["accounts"], false: {2: 5}}
    assert after["escrow"] == before["escrow"] and after["supply"]["gold"] == 1000
    assert net.program_state(THIEF)["rejected"] == 4
    assert gold(net) == TokenSupply(1000, 400, 600, 0)


@pytest.mark.parametrize(
    ("method", "payload", "reason"),
    [
        ("mint", b'{"denom":"gold","amount":"1"}', "NoFaucet"),
        ("burn", b"{}", "UnknownMethod"),
        ("transfer", b"", "InvalidPayload"),
        ("transfer", b'{"denom":"gold","amount":"1","receiver":"1"}', "InvalidPayload"),
        ("transfer", b'{"denom":"gold","amount":"1","receiver":"1","memo":""}', "InvalidPayload"),
        ("transfer", b'{"denom":"gold","amount":"1","receiver":"1","to":"0"}', "InvalidPayload"),
        ("transfer", b'{"denom":"gold","amount":"0","receiver":"1","to":0}', "InvalidAmount"),
        ("transfer", b'{"denom":"gold","amount":"1","receiver":"","to":0}', "InvalidReceiver"),
        ("transfer", b'{"denom":"gold","amount":"1","receiver":"1","to":18446744073709551616}', "InvalidPeer"),
        ("transfer", b'{"denom":"gold","amount":"1","receiver":"1","to":1}', "InvalidPeer"),
        ("transfer", b'{"denom":"gold","amount":"1","receiver":"1","to":0}', "InsufficientFunds"),
        ("send", b'{"denom":"gold","amount":"1","receiver":"1","to":0}', "InvalidPayload"),
        ("send", b'{"denom":"gold","amount":"1","receiver":"x"}', "InvalidReceiver"),
    ],
)
def test_invalid_user_requests_are_rejected(method: str, payload: bytes, reason: str) -> None:
    net = network()
    net.tell(B, method, payload, user=1)
    net.block(2)
    after = books(net)[B]
    assert after["refused"] == {reason: 1} and after["open"] == {} and net.receipts() == {}


def test_options_are_validated() -> None:
    with pytest.raises(InvalidInput, match="no option fauect; allowed: blocked_users, dialect, faucet, peers"):
        Network({"A": {0: ("transfer", {"fauect": True})}})
    with pytest.raises(InvalidInput, match="dialect: 'ibc-go-9': must be one of ibc-go-10, ibc-go-8, ibc-rs"):
        Network({"A": {0: ("transfer", {"dialect": "ibc-go-9"})}})


# ---- bytes


@pytest.mark.parametrize("dialect", PacketDialect)
def test_program_sends_packets_in_its_dialect(dialect: PacketDialect) -> None:
    net = Network({"A": {A: ("transfer", {"faucet": True, "dialect": dialect.value})}, "B": {B: "transfer"}})
    net.tell(A, "mint", json.dumps({"denom": "gold", "amount": "9"}).encode(), user=1)
    move(net, A, B, 5)
    net.block()
    assert net.requests() == [TokenPacket("gold", 5, "1", "2").encode(dialect)]


def test_packet_commitment_covers_the_bytes_as_sent() -> None:
    roots = set()
    written = [packet().replace(b'"5"', b'"\\u0035"'), packet(), TokenPacket("uatom", 5, "1", "2").encode()]
    for payload in written:
        net = network()
        send_theft(net, A, payload)
        net.block()
        assert net.requests() == [payload]
        roots.add(net.roots()["B"])
        net.settle()
        assert books(net)[A]["accounts"][denom_prefix(THIEF) + "uatom"] == {2: 5}
    assert len(roots) == len(written)


# ---- supply


@pytest.mark.parametrize(
    ("tamper", "text"),
    [
        (lambda found: found[A]["accounts"]["gold"].update({1: 401}), "program 0, gold: accounts and escrow 1001"),
        (
            lambda found: found[B]["accounts"][denom_prefix(A) + "gold"].update({2: 599}),
            "program 1, .*: accounts and escrow",
        ),
        (
            lambda found: (
                found[B]["accounts"][denom_prefix(A) + "gold"].update({2: 601}),
                found[B]["supply"].update({denom_prefix(A) + "gold": 601}),
            ),
            "escrow for 1 600, vouchers there 601, open 0",
        ),
        (
            lambda found: (found[A]["escrow"][B].update(gold=601), found[A]["accounts"]["gold"].update({1: 399})),
            "escrow for 1 601, vouchers there 600, open 0",
        ),
    ],
)
def test_supply_detects_imbalances(tamper: Any, text: str) -> None:
    net = network()
    move(net, A, B, 600)
    net.settle()
    found = books(net)
    assert token_supply(found)[A, "gold"] == TokenSupply(1000, 400, 600, 0)
    tamper(found)
    with pytest.raises(SupplyBroken, match=text):
        token_supply(found)
