"""Zones with an external counterparty, known only through their light client.

Whoever speaks for that chain comes through the same door as relay processes do. What they submit to the kernel is made
on the oracle, too: the same outcome, the same store; and what is refused changes nothing but fee accounts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from causeway_proofs.ics23.simple_store import SimpleStore
from causeway_proofs.tendermint.building import create_validators, make_header, sign_header
from causeway_proofs.tendermint.trust import HeaderUpdate, Misbehaviour
from causeway_proofs.tendermint.validators import SigningKey
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.core.vocabulary import Event, Kind, Via
from causeway.protocols.contract import Tick
from causeway.protocols.ibc.store import application_entries
from tests.spec import ibc
from tests.spec.ibc.guarantees import violations
from tests.spec.ibc.headers import Trust
from tests.support.ibc.ibc_network import TICK_NS, Network
from tests.support.ibc.ibc_outside import PROOFS, columns
from tests.support.ibc.ibc_programs import SpecCaller, SpecEcho
from tests.support.properties.caller_payloads import caller_payload

CALLER, ECHO, FAR = 0, 1, 10
"""Programs: two on the zone, one on the other chain."""

KEYS = [SigningKey.from_name(f"validator {number} of right") for number in range(4)]
STRANGERS = [SigningKey.from_name(f"stranger {number}") for number in range(4)]
SECOND = 10**9


@dataclass(frozen=True)
class Signed:
    """A header signed by its validators: for the kernel in bytes, for the oracle in plain values."""

    update: HeaderUpdate
    plain: ibc.Header

    def shown(self, remote: str = "right") -> tuple[str, Any, Any, str]:
        """The call that submits it: kind, wire message, the oracle's argument, the claimed chain."""
        return "update", wire.UpdateHeader(remote=remote, header=self.update.encode()), self.plain, remote


def with_votes(header: ibc.Header, keys: Sequence[SigningKey], absent: int = 0) -> ibc.Header:
    """A header in plain values with its validators; the first ``absent`` of them did not sign."""
    names = [one.address.hex() for one in create_validators(dict.fromkeys(keys, 10))[0].validators]
    return ibc.signed_header(header, dict.fromkeys(names, 10), set(names[absent:]))


def signed(
    height: int,
    time: int,
    root: bytes = bytes(32),
    chain: str = "right",
    keys: Sequence[SigningKey] = KEYS,
    absent: int = 0,
) -> Signed:
    """A header of a chain; ``absent``: so many of its validators did not sign."""
    own, by_address = create_validators(dict.fromkeys(keys, 10))
    voting = {one.address: by_address[one.address] for one in own.validators[absent:]}
    header = sign_header(make_header(chain, height, time, root, own), own, voting)
    plain = with_votes(ibc.Header(chain, height, time, root), keys, absent)
    return Signed(HeaderUpdate.on(0, own, header, own), plain)


def evidence(one: Signed, other: Signed, remote: str = "right") -> tuple[str, Any, Any, str]:
    """The call that submits two headers."""
    shown = Misbehaviour(one.update, other.update).encode()
    message = wire.SubmitMisbehaviour(remote=remote, misbehaviour=shown)
    return "misbehaviour", message, (one.plain, other.plain), remote


@dataclass
class Right:
    """The other chain: its queues for the zone, and the provable parts of them."""

    stores: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)
    """By root."""
    entries: dict[bytes, bytes] = field(default_factory=lambda: {b"a": b"what else it keeps", b"z": b"and more"})

    def __post_init__(self) -> None:
        self.send = ibc.Queue(self.entries, "left", "send")
        self.receipts = ibc.Queue(self.entries, "left", "receipt")
        self.send.init()
        self.receipts.init()

    def commit(self) -> bytes:
        """Retain the current store; return its root."""
        root = SimpleStore.of(*columns(self.entries)).root
        self.stores[root] = dict(self.entries)
        return root

    def proof(self, kind: str, name: bytes, of: Signed, **other: Any) -> tuple[str, Any, Any, str]:
        """The call that proves the value of a key at a header; ``other`` replaces parts of it."""
        store = self.stores[of.plain.root]
        remote = other.pop("remote", "right")
        parts: dict[str, Any] = {
            "remote": remote,
            "key": name,
            "value": store.get(name, b""),
            "proof": SimpleStore.of(*columns(store)).prove(name),
            "height": of.plain.height,
        }
        # A proof in plain values equals its claim: one with inconsistent parts proves nothing.
        chain = "nobody's" if other.keys() & {"key", "value", "proof", "height"} else "right"
        plain = ibc.Proof(other.get("key", name), store.get(name), other.get("height", of.plain.height), chain)
        return kind, wire.Submit(**(parts | other)), plain, remote


class Oracle(ibc.Network):
    """Records the outcomes of a block's calls."""

    outcomes: list[str]

    def submit(self, submission: ibc.Submission) -> str:
        outcome = super().submit(submission)
        self.outcomes.append(outcome)
        return outcome


class Zones(Network):
    """The zone ``left`` on the kernel and on the oracle, and the other chain."""

    def __init__(self, **options: Any) -> None:
        placed: Any = {"left": {CALLER: "caller", ECHO: "echo"}, "right": {FAR: None}}
        listed = {"right": tuple(key.public_key.data.hex() for key in KEYS)}
        chosen = {"validators": 1, "validator_keys": listed, "relayers": ("silent",)} | options
        super().__init__(placed, options=chosen, external=("right",))
        self.right = Right()
        switches: Any = {
            name: options[name] for name in ("order", "timeouts", "cleanup", "redundant") if name in options
        }
        if options.get("acknowledgements") == "synchronous":
            switches["asynchronous"] = "off"
        self.spec = Oracle(
            {"left": {CALLER: SpecCaller(), ECHO: SpecEcho()}, "right": {}},
            ibc.Options(genesis="vouches", drift=5 * SECOND, forget="on", **switches),
            balance=0,
            tick_ns=TICK_NS,
            app_entries=self._application,
            limits=self._limits,
            valid=self._valid,
            certify=lambda header: with_votes(header, KEYS),
        )
        self.spec.directory[FAR] = "right"
        self.seconds = options.get("timeout_seconds", 0.0)

    def _limits(self, zone: ibc.Zone, remote: str) -> tuple[int | None, int | None]:
        return None, zone.time + int(self.seconds * SECOND) if self.seconds else None

    def _valid(self, trust: Trust, header: ibc.Header) -> bool | None:
        return ibc.valid_by_validators(trust, header)

    def _application(self, zone: ibc.Zone) -> dict[bytes, bytes]:
        if zone.chain_id != "left":
            return {}
        tick = Tick(self.height, max(self.height - 1, 0))
        return application_entries(self.state, self.kernel.context(np.array([0], dtype=np.uint32), tick)).entries()[0]

    def now(self) -> int:
        """The zone's time in the next block."""
        return (self.height + 1) * TICK_NS

    def bring(self, *calls: tuple[str, Any, Any, str], user: int = 7) -> list[str]:
        """Make a block with submitted calls; the outcomes in the kernel and in the oracle are equal."""
        if calls:
            messages = [wire.Call(**{kind: message}) for kind, message, _, _ in calls]
            self.carry(0, wire.Transaction(calls=messages).SerializeToString(), carrier=user)
        told = [ibc.Ingress(sender, receiver, method, payload) for _, receiver, sender, method, payload in self._told]
        super().block()
        self.spec.zones["left"].stores.update({("right", root): store for root, store in self.right.stores.items()})
        names = {"update": "updateHeader", "misbehaviour": "submitMisbehaviour", **PROOFS}
        submitted = [ibc.Submission("left", names[kind], remote, plain, "user") for kind, _, plain, remote in calls]
        self.spec.outcomes = []
        self.spec.block({"left": told}, submitted)
        rows = self.events()
        rows = rows.filter((rows["kind"] == np.uint8(Kind.CONTROL)) & (rows["via"] == np.uint8(Via.INGRESS)))
        rows = rows.filter(rows["events"] != np.uint16(Event.ACKNOWLEDGED))
        found = [reason or "taken" for reason in rows["reason"].to_pylist()]
        taken = {"HeaderAdded": "Success", "taken": "Success"}
        known = {place for place, (kind, *_) in enumerate(calls) if kind == "update" and found[place] == "NoOp"}
        same = ["Success" if place in known else taken.get(why, why) for place, why in enumerate(found)]
        assert same == self.spec.outcomes, "the oracle's word"
        assert self.spec.roots["left"] == self.roots()["left"], "one store"
        return found

    def content(self) -> dict[str, Any]:
        """All state except the fee accounts of relayers."""
        schemas = {name: table.schema for name, table in self.kernel.tables().items()}
        return {
            name: frame.to_table(schemas[name]) for name, frame in self.state.frames().items() if name != "relayers"
        }

    def refuses(self, call: tuple[str, Any, Any, str], why: str) -> None:
        """Make a block with one call, which is refused without a change."""
        before = self.content()
        assert self.bring(call) == [why]
        assert self.content() == before

    def header(self, height: int, **other: Any) -> Signed:
        """A header of the other chain's present store, a tick old in the next block."""
        return signed(height, self.now() - TICK_NS // 2, self.right.commit(), **other)


def packet(payload: bytes = b"hello", sender: int = FAR, receiver: int = ECHO) -> bytes:
    """The content of the other chain's send queue: a call."""
    envelope = ibc.programs.encode_envelope(sender, 0, ibc.Call(receiver, "echo", payload))
    return ibc.encode_packet(ibc.Packet("call", envelope))


def key(purpose: str, place: int | str, to: str = "left") -> bytes:
    return ibc.key(to, purpose, place)


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_headers_of_other_chains_are_refused(order: str) -> None:
    net = Zones(order=order)
    net.bring()
    own, other_keys = net.header(5), net.header(5, keys=STRANGERS)
    cut = wire.UpdateHeader(remote="right", header=own.update.encode()[:-1])
    for call, why in (
        (net.header(5, chain="wrong").shown(), "InvalidHeader"),
        (own.shown("nowhere"), "UnregisteredSender"),
        (own.shown("left"), "UnregisteredSender"),
        (other_keys.shown(), "NeedIntermediateHeader"),  # the later validators are unknown
        (net.header(1, keys=STRANGERS).shown(), "InvalidHeader"),
        (net.header(5, absent=2).shown(), "InvalidHeader"),
        (("update", cut, None, "right"), "InvalidHeader"),
        (signed(5, net.now() + 40 * SECOND).shown(), "InvalidHeader"),
        (signed(2**62, 2**62).shown(), "InvalidHeader"),
        (signed(5, 0).shown(), "InvalidHeader"),
    ):
        net.refuses(call, why)
    ahead = signed(5, net.now() + 5 * SECOND)
    net.refuses(ahead.shown(), "InvalidHeader")
    assert net.bring(own.shown(), own.shown()) == ["HeaderAdded", "NoOp"]
    # Its time does not advance, or decreases.
    net.refuses(signed(6, own.plain.time).shown(), "InvalidHeader")
    net.refuses(signed(7, own.plain.time - SECOND // 4).shown(), "InvalidHeader")
    # Three of four signed, so that no other header can have: one between them is as good as one at the end.
    assert net.bring(net.header(9, absent=1).shown()) == ["HeaderAdded"]
    assert net.bring(signed(7, own.plain.time + 1).shown()) == ["HeaderAdded"]
    assert violations(net.spec) == []


def test_header_five_seconds_ahead_is_accepted_and_messages_behind_it_wait() -> None:
    net = Zones()
    net.bring()
    ahead = signed(5, net.now() + 5 * SECOND - 1)
    assert net.bring(ahead.shown()) == ["HeaderAdded"]
    net.refuses(net.header(6).shown(), "InvalidHeader")
    net.bring(), net.bring(), net.bring(), net.bring()
    assert net.bring(net.header(7).shown()) == ["HeaderAdded"]


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_invalid_and_repeated_proofs_are_refused(order: str) -> None:
    net = Zones(order=order)
    right = net.right
    for payload in (b"one", b"two"):
        right.send.push(packet(payload))
    net.tell(CALLER, "call", caller_payload(FAR, 0, "echo", b"to the right"), user=3)
    net.bring()
    first = net.header(5)
    unseen = replace(first, plain=replace(first.plain, height=6))
    zero, one = key("send", 0), key("send", 1)
    net.refuses(right.proof("receive", zero, first), "MissingHeader")
    assert net.bring(first.shown()) == ["HeaderAdded"]
    honest = right.proof("receive", zero, first)
    other, bytes_of = right.proof("receive", one, first), honest[1].proof
    for call, why in (
        (right.proof("receive", zero, unseen), "MissingHeader"),
        (right.proof("receive", zero, first, height=0), "InvalidProof"),
        (right.proof("receive", zero, first, proof=other[1].proof), "InvalidProof"),
        (right.proof("receive", zero, first, proof=bytes_of[:-1]), "InvalidProof"),
        (right.proof("receive", zero, first, proof=b""), "InvalidProof"),
        (right.proof("receive", zero, first, value=packet(b"altered")), "InvalidProof"),
        (right.proof("receive", zero, first, key=one), "OutOfOrder" if order == "ordered" else "InvalidProof"),
        (right.proof("receive", key("send", 7), first), "OutOfOrder" if order == "ordered" else "InvalidProof"),
        (right.proof("receive", zero, first, remote="nowhere"), "UnregisteredSender"),
        (right.proof("receive", key("send", ibc.TAIL), first), "OnlyMessageProofs"),
        (right.proof("receive", key("receipt", ibc.TAIL), first), "MustBeSend"),
        (right.proof("receive", key("send", 0, "wrong"), first), "WrongChain"),
        (right.proof("receive", b"z", first), "MalformedKey"),
        (right.proof("receipt", zero, first), "MustBeReceipt"),
        (right.proof("receipt", key("receipt", 0), first), "InvalidProof"),
        (right.proof("cleanup", key("send", ibc.HEAD), first), "CallNotOffered"),
        (right.proof("timeout", key("receipt", ibc.TAIL), first), "CallNotOffered"),
    ):
        net.refuses(call, why)
    assert net.bring(honest, honest) == ["taken", "OutOfOrder"]
    net.refuses(honest, "OutOfOrder")
    right.receipts.push(ibc.encode_receipt(ibc.Receipt(bytes(16) + b"back", 0)))
    later = net.header(8)
    net.refuses(right.proof("receipt", key("receipt", 0), later), "MissingHeader")
    answer = right.proof("receipt", key("receipt", 0), later)
    assert net.bring(later.shown(), other, answer, answer) == ["HeaderAdded", "taken", "taken", "OutOfOrder"]
    net.refuses(answer, "OutOfOrder")
    net.refuses(right.proof("receive", one, later), "OutOfOrder")
    assert net.program_state(CALLER)["answered"] == 1


def test_repeated_messages_are_no_ops_if_requested() -> None:
    net = Zones(redundant="noop")
    net.right.send.push(packet())
    net.bring()
    header = net.header(3)
    honest = net.right.proof("receive", key("send", 0), header)
    assert net.bring(header.shown(), honest, honest) == ["HeaderAdded", "taken", "NoOp"]
    net.refuses(honest, "NoOp")


def test_timeouts_and_cleanups_with_unsuitable_proofs_are_refused() -> None:
    net = Zones(timeouts="on", cleanup="on", timeout_seconds=3.0)
    right = net.right
    net.tell(CALLER, "call", caller_payload(FAR, 0, "echo", b"x"), user=3)
    net.bring()
    early = net.header(5)
    tail, head = key("receipt", ibc.TAIL), key("send", ibc.HEAD)
    assert net.bring(early.shown()) == ["HeaderAdded"]
    net.bring(), net.bring(), net.bring()
    net.refuses(right.proof("timeout", tail, early), "TimeoutNotReached")  # by the header's time, not by ours
    right.entries[b"z"] = b"another state"
    late = net.header(9)
    assert net.bring(late.shown()) == ["HeaderAdded"]
    for call, why in (
        (right.proof("timeout", key("receipt", ibc.HEAD), late), "NotATailProof"),
        (right.proof("timeout", key("send", ibc.TAIL), late), "MustBeReceipt"),
        (right.proof("timeout", tail, late, height=5), "InvalidProof"),
        (right.proof("cleanup", head, late), "CleanupBackwards"),
        (right.proof("cleanup", key("send", ibc.TAIL), late), "NotAHeadProof"),
        (right.proof("cleanup", key("receipt", ibc.HEAD), late), "MustBeSendQueue"),
        (right.proof("cleanup", head, late, value=(5).to_bytes(8, "big")), "InvalidProof"),
    ):
        net.refuses(call, why)
    # The packet arrived after all: there is a receipt.
    right.receipts.push(ibc.encode_receipt(ibc.Receipt(b"", 2)))
    received = net.header(10)
    assert net.bring(received.shown()) == ["HeaderAdded"]
    net.refuses(right.proof("timeout", tail, received), "ReceiptExists")
    assert net.bring(right.proof("timeout", tail, late), right.proof("timeout", tail, late))[0] == "taken"
    assert net.bring(right.proof("receipt", key("receipt", 0), received)) == ["OutOfOrder"]
    assert net.program_state(CALLER)["rejected"] == 1


def test_invalid_absence_is_refused() -> None:
    options = {"order": "unordered", "timeouts": "on", "acknowledgements": "synchronous", "timeout_seconds": 1.0}
    net = Zones(**options)
    right = net.right
    for _ in range(2):
        net.tell(CALLER, "call", caller_payload(FAR, 0, "echo", b"x"), user=3)
    net.bring()
    right.receipts.push(ibc.encode_receipt(ibc.Receipt(bytes(16), 0)))
    net.bring(), net.bring()
    header = net.header(5)
    assert net.bring(header.shown()) == ["HeaderAdded"]
    there, missing = (right.proof("timeout", key("receipt", index), header) for index in (0, 1))
    net.refuses(there, "ReceiptExists")
    net.refuses(right.proof("timeout", key("receipt", 0), header, proof=missing[1].proof, value=b""), "InvalidProof")
    net.refuses(right.proof("timeout", key("receipt", 9), header), "TimeoutNotReached")
    net.refuses(right.proof("timeout", key("receipt", ibc.HEAD), header), "OnlyMessageProofs")
    assert net.bring(missing, missing) == ["taken", "TimeoutNotReached"]
    assert net.program_state(CALLER)["rejected"] == 1


def test_invalid_and_valid_evidence() -> None:
    net = Zones()
    net.bring()
    trusted = net.header(5)
    assert net.bring(trusted.shown()) == ["HeaderAdded"]
    net.bring()
    seven, eight = net.header(7), signed(8, net.now() - TICK_NS // 4)
    fork = signed(7, seven.plain.time, b"\x01" * 32)
    junk = wire.SubmitMisbehaviour(remote="right", misbehaviour=b"\xff")
    elsewhere = [signed(7, seven.plain.time, root, chain="wrong") for root in (bytes(32), b"\x01" * 32)]
    for call, why in (
        (evidence(seven, seven), "InvalidMisbehaviour"),
        (evidence(eight, seven), "InvalidMisbehaviour"),
        (evidence(seven, eight), "InvalidMisbehaviour"),
        (("misbehaviour", junk, (None, None), "right"), "InvalidMisbehaviour"),
        (evidence(seven, fork, "nowhere"), "UnregisteredSender"),
        (evidence(elsewhere[0], elsewhere[1]), "InvalidHeader"),
        (evidence(seven, signed(7, seven.plain.time, keys=STRANGERS)), "NeedIntermediateHeader"),
        (evidence(signed(6, seven.plain.time), signed(6, seven.plain.time, keys=STRANGERS)), "InvalidHeader"),
        (evidence(seven, signed(7, seven.plain.time, b"\x01" * 32, absent=2)), "InvalidHeader"),
    ):
        net.refuses(call, why)
    assert net.bring(evidence(seven, fork)) == ["taken"]
    for call in (seven.shown(), evidence(seven, fork), net.right.proof("receive", key("send", 0), trusted)):
        net.refuses(call, "ConnectionFrozen")
    assert net.spec.zones["left"].connections["right"].frozen


@pytest.mark.parametrize("how", ["a fork", "time running backwards"])
def test_header_that_contradicts_a_trusted_one_freezes_the_client(how: str) -> None:
    net = Zones()
    net.bring()
    trusted = net.header(6)
    net.right.entries[b"z"] = b"another state"
    height = 6 if how == "a fork" else 4
    other = signed(height, trusted.plain.time, net.right.commit())
    assert net.bring(trusted.shown()) == ["HeaderAdded"]
    assert net.bring(other.shown(), trusted.shown()) == ["taken", "ConnectionFrozen"]
    net.refuses(net.header(9).shown(), "ConnectionFrozen")
