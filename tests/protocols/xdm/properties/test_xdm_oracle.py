"""The oracle of cross-domain messaging: its networks against 1.2, and its checks one by one."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from tests.spec.xdm.channels import (
    apply_allowlist_updates,
    close_channel,
    initiate_channel,
    initiate_domain_update_chain_allowlist,
    new_outbox_message,
    send_message,
    update_consensus_chain_allowlist,
)
from tests.spec.xdm.endpoints import Program, transfer
from tests.spec.xdm.events import Event
from tests.spec.xdm.guarantees import ALL, Record, unchecked, violations
from tests.spec.xdm.keys import outbox_key
from tests.spec.xdm.network import PROGRAM
from tests.spec.xdm.options import U256, Options
from tests.spec.xdm.proofs import read_message
from tests.spec.xdm.relay import validate
from tests.spec.xdm.relayers import prove
from tests.spec.xdm.state import ChainNode, ChannelState, settle
from tests.spec.xdm.trie import Trie
from tests.spec.xdm.values import (
    CONSENSUS,
    TAG_NONE,
    TAG_OPEN,
    ChannelOpen,
    ConsensusProof,
    CrossDomainMessage,
    EndpointRequest,
    Message,
    MmrProof,
    Proof,
    ProtocolResponse,
    decode_xdm,
    encode_message,
    encode_xdm,
)
from tests.support.xdm.properties.xdm_engines import ENGINES
from tests.support.xdm.properties.xdm_errors import error_of
from tests.support.xdm.properties.xdm_networks import ALICE, BOB, ROOT, network, run

# Networks


def test_altered_byte_anywhere_is_rejected() -> None:
    """The weight tag is exempt: it is outside every proof and derived instead (D-9)."""
    net = network()
    net.call(1, initiate_channel, ROOT, 0)
    net.step(9)
    confirmed = net.view.best - net.options.archiving_depth
    x = prove(net, "request", 1, 0, 0, 0, confirmed - 1, confirmed, TAG_OPEN)
    data = encode_xdm(x)
    c = net.chains[0]
    assert validate(c, x, "request").payload == ChannelOpen(25, net.options.relay_fee)
    for i in range(len(data) - 1):
        altered = data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :]
        assert error_of(lambda: validate(c, decode_xdm(altered), "request")), i  # noqa: B023
    assert validate(c, decode_xdm(data[:-1] + b"\4"), "request") == validate(c, replace(x, tag=TAG_NONE), "request")


RUNS = [
    (0, Options(), 2),
    (1, Options(inbox="pool"), 3),
    (2, Options(fee_model="v1", archiving_depth=2, challenge_period=5), 2),
    (3, Options(initiate_by="signed", close_by="owner_or_root", inbox="pool"), 2),
    (4, Options(max_outgoing_messages=2, resubmit_after=5), 2),
]


@pytest.mark.parametrize(("seed", "options", "domains"), RUNS)
def test_random_networks_keep_all_guarantees(seed: int, options: Options, domains: int) -> None:
    net = run(seed, options, domains, blocks=35)
    record = net.record()
    assert violations(record) == []
    counts = Counter(e.event for e in net.events())
    assert counts["InboxMessage"] > 15
    # All messages of an open or initiated channel are answered (L1).
    left = {key for key in record.outbox or () if net.chains[key[0]].state.channels[key[1], key[2]].state != 2}
    assert not left


@cache
def honest_run(engine: str) -> Record:
    e = ENGINES[engine](domains=2)
    e.initiate(0, 1)
    e.initiate(CONSENSUS, 0)
    e.step(22)
    for _ in range(3):
        e.transfer(0, 1, BOB, 50)
        e.transfer(CONSENSUS, 0, BOB, 70)
        e.step(12)
    return e.record()


def change_event(event: str, **columns: object) -> Callable[[list[Event]], list[Event]]:
    """Alter the last row of that name."""

    def altered(events: list[Event]) -> list[Event]:
        i = max(i for i, e in enumerate(events) if e.event == event)
        return [*events[:i], replace(events[i], **columns), *events[i + 1 :]]  # type: ignore[arg-type]

    return altered


def drop_event(event: str, first: bool = False) -> Callable[[list[Event]], list[Event]]:
    def without(events: list[Event]) -> list[Event]:
        found = [i for i, e in enumerate(events) if e.event == event]
        i = found[0] if first else found[-1]
        return events[:i] + events[i + 1 :]

    return without


def repeat_event(event: str) -> Callable[[list[Event]], list[Event]]:
    def doubled(events: list[Event]) -> list[Event]:
        return events + [e for e in events if e.event == event][-1:]

    return doubled


@pytest.mark.parametrize(
    ("guarantee", "alter"),
    [
        ("G1", repeat_event("InboxMessage")),
        ("G1", repeat_event("OutboxMessageResponse")),
        ("G1", drop_event("InboxMessage", first=True)),
        ("G2", change_event("InboxMessage", payload_hash=b"another")),
        ("G2", change_event("OutboxMessageResponse", result="Other")),
        ("G2", drop_event("OutboxMessage", first=True)),
        ("G3", drop_event("InboxMessageResponse")),
        ("G3", drop_event("OutboxMessageResult")),
        ("G4", change_event("InboxMessage", at=3)),
        ("G4", lambda events: [e for e in events if e.event != "Final" or e.chain != 0]),
        ("G5", drop_event("ChannelOpen", first=True)),
        ("G5", repeat_event("ChannelInitiated")),
        ("G6", change_event("ChannelOpen", limit=0)),
        ("G7", change_event("FeeMint", amount=1)),
        ("G7", repeat_event("FeePay")),
        ("G7", drop_event("FeeBurn")),
        ("G7", change_event("Transfer", amount=1)),
        ("G8", change_event("Final", amount=1, chain=0)),
        ("G8", drop_event("FeeMint", first=True)),
        ("G9", change_event("ChannelInitiated", deposit=(7, 0, 0))),
        ("G10", change_event("OutboxMessage", last_delivered=None)),
        ("G10", change_event("OutboxMessage", last_delivered=99)),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_each_checker_detects_violations_of_its_guarantee(engine: str, guarantee: str, alter) -> None:
    record = honest_run(engine)
    assert violations(record) == []
    altered = replace(record, events=alter(list(record.events)))
    assert any(sentence.startswith(guarantee + ":") for sentence in violations(altered))
    assert len(ALL) == 10


def test_log_of_one_side_leaves_authenticity_unchecked() -> None:
    """Hazard 36."""
    record = honest_run("oracle")
    alone = replace(record, events=[e for e in record.events if e.chain == 1], missing=frozenset((0, CONSENSUS)))
    assert unchecked(record) == []
    assert unchecked(alone) == ["G2: 4 rows InboxMessage of 1 are not checked: the log of 0 is missing"]


# Calls one by one: the errors in the reference's order. Every step repairs one fault and leaves the later ones.


def node(**options: object) -> ChainNode:
    weights = {PROGRAM: Program(11, 5)}
    return ChainNode(0, Options(**options), handlers=dict(weights))  # type: ignore[arg-type]


def test_checks_of_initiate_channel() -> None:
    c = node(allowlist="on", reserve=0)
    c.state.next_channel_id[1] = U256
    assert error_of(initiate_channel, c, b"stranger", 0, 0) == "BadOrigin"
    assert error_of(initiate_channel, c, c.root, 0, 0) == "InsufficientBalance"
    c.state.balances[c.root] = 100
    assert error_of(initiate_channel, c, c.root, 0, 0) == "InvalidChain"
    assert error_of(initiate_channel, c, c.root, 1, 0) == "InvalidMaxOutgoingMessages"
    assert error_of(initiate_channel, c, c.root, 1) == "InvalidChannelReserveFee"
    c.options = replace(c.options, reserve=10)
    assert error_of(initiate_channel, c, c.root, 1) == "ChainNotAllowed"
    c.state.allowlist.add(1)
    assert error_of(initiate_channel, c, c.root, 1) == "Overflow"
    assert c.state.balances == {c.root: 100} and not c.events  # none has an effect
    c.state.next_channel_id[1] = 4
    assert initiate_channel(c, c.root, 1) == 4
    assert (c.state.balances, c.state.deposits, c.state.next_channel_id) == ({c.root: 90}, {(1, 4): 10}, {1: 5})
    assert list(c.state.outbox) == [(1, 4, 0)]


def test_checks_of_sending_and_closing() -> None:
    c = node(allowlist="on", close_by="owner_or_root", max_messages=3, max_outgoing_messages=2)
    c.state.balances = {c.root: 100, b"sender": 20}
    c.state.allowlist = {1}
    initiate_channel(c, c.root, 1)
    c.state.allowlist = set()
    request = EndpointRequest(9, PROGRAM, b"")
    assert error_of(new_outbox_message, c, 0, 3, ProtocolResponse()) == "InvalidMessageDestination"
    assert error_of(new_outbox_message, c, 1, 3, ProtocolResponse()) == "MissingChannel"
    assert error_of(send_message, c, b"sender", 1, request) == "ChainNotAllowed"
    c.state.allowlist = {1}
    assert error_of(send_message, c, b"sender", 1, request) == "NoOpenChannel"
    c.state.channels[1, 0] = replace(c.state.channels[1, 0], state=ChannelState.OPEN)
    c.handlers[PROGRAM] = Program(2**128, 5)
    assert error_of(send_message, c, b"sender", 1, request) == "NoMessageHandler"
    request = EndpointRequest(PROGRAM, 9, b"")
    assert error_of(send_message, c, b"sender", 1, request) == "BalanceOverflow"
    c.handlers[PROGRAM] = Program(11, 5)
    assert error_of(send_message, c, b"sender", 1, request) == "FundsUnavailable"
    c.state.balances[b"sender"] = 31
    assert send_message(c, b"sender", 1, request) == (0, 1)
    assert c.state.balances[b"sender"] == 1 and c.state.outbox_fees_on_hold == 12 and c.state.transfers_out == {1: 18}
    assert error_of(new_outbox_message, c, 1, 0, ProtocolResponse()) == "OutboxFull"
    del c.state.outbox_count[1, 0]
    assert error_of(send_message, c, b"sender", 1, request) == "NoOpenChannel", "the last message is the close request"
    c.options = replace(c.options, max_messages=2)
    assert error_of(new_outbox_message, c, 1, 0, ProtocolResponse()) == "Overflow"
    c.options = replace(c.options, close_by="root")
    assert error_of(close_channel, c, b"sender", 1, 7) == "BadOrigin"
    c.options = replace(c.options, close_by="owner_or_root")
    assert error_of(close_channel, c, b"sender", 1, 7) == "ChannelOwner"
    assert error_of(close_channel, c, c.root, 1, 7) == "MissingChannel"
    assert error_of(close_channel, c, c.root, 1, 0) == "Overflow"
    assert c.state.deposits == {(1, 0): 10}
    c.options = replace(c.options, max_messages=9)
    close_channel(c, c.root, 1, 0)
    assert error_of(close_channel, c, c.root, 1, 0) == "InvalidChannelState"
    assert c.state.deposits == {} and c.state.balances[c.root] == 100


@pytest.mark.parametrize("fee_model", ["v0", "v1"])
def test_two_fee_models(fee_model) -> None:
    c = node(fee_model=fee_model, relay_fee=7, fee_multiplier=5, price=2)
    c.state.balances = {c.root: 100, b"sender": 500}
    initiate_channel(c, c.root, 1)
    c.state.channels[1, 0] = replace(c.state.channels[1, 0], state=ChannelState.OPEN)
    send_message(c, b"sender", 1, EndpointRequest(PROGRAM, PROGRAM, b""))
    sent = c.events[-2]
    assert (sent.src_fee, sent.dst_fee) == ((17, 29) if fee_model == "v0" else (50, 110))
    assert c.state.channels[1, 0].fee == (7 if fee_model == "v0" else None)


def test_checks_of_a_relayed_message() -> None:
    net = network(domains=3)
    net.call(1, initiate_channel, ROOT, 0)
    net.step(19)
    for relayer in net.relayers:
        relayer.working = False
    net.call(1, transfer, ALICE, 0, BOB, 50)
    net.step(9)
    confirmed = net.view.best - net.options.archiving_depth
    good = prove(net, "request", 1, 0, 0, 1, confirmed - 1, confirmed, TAG_NONE)
    c = net.chains[0]
    head = replace(good.proof.consensus, consensus_block_number=confirmed + 1)
    x = replace(good, dst=2, channel_id=9, nonce=0, proof=replace(good.proof, consensus=head, message_proof=()))
    assert error_of(validate, c, x, "request") == "BadProof"
    x = replace(x, proof=replace(x.proof, consensus=good.proof.consensus))
    assert error_of(validate, c, x, "request") == "InvalidCall"
    x = replace(x, dst=0)
    assert error_of(validate, c, x, "request") == "Custom(203)"
    x = replace(x, channel_id=0)
    assert error_of(validate, c, x, "request") == "Custom(201)"
    x = replace(x, nonce=1)
    assert error_of(validate, c, x, "request") == "BadProof"
    assert error_of(validate, c, x, "response") == "BadProof"
    opening = c.state.channels.pop((1, 0))
    assert error_of(validate, c, x, "response") == "InvalidCall"
    c.state.channels[1, 0] = replace(opening, next_inbox_nonce=1, state=ChannelState.INITIATED)
    assert error_of(validate, c, good, "request") == "InvalidCall"
    c.state.channels[1, 0] = replace(opening, next_inbox_nonce=1)
    assert validate(c, good, "request").nonce == 1


def test_pooled_message_is_dropped_after_ten_blocks() -> None:
    net = network(Options(inbox="pool"))
    net.call(0, initiate_channel, ROOT, 1)
    net.step(19)
    for relayer in net.relayers:
        relayer.working = False
    for _ in range(2):
        net.call(0, transfer, ALICE, 1, BOB, 50)
    net.step(9)
    confirmed = net.view.best - net.options.archiving_depth
    x = prove(net, "request", 0, 1, 0, 2, confirmed - 1, confirmed, TAG_NONE)
    net.take_in(1, "request", encode_xdm(x), "early")
    net.step(net.options.longevity - 1)
    assert len(net.pools[1]) == 1
    net.step()
    assert net.pools[1] == []
    assert [(e.nonce, e.error) for e in net.events() if e.relayer == "early"] == [(2, "Future")]


def test_domain_without_operators_catches_up() -> None:
    net = network()
    net.call(0, initiate_channel, ROOT, 1)
    net.step()
    net.offline.add(1)
    net.step(30)
    assert (0, 0) not in net.chains[1].state.channels
    net.offline.clear()
    net.step(30)
    assert net.chains[0].state.channels[1, 0].state == ChannelState.OPEN
    assert violations(net.record()) == []


# Allow lists


def test_authorization_of_consensus_allow_list_changes() -> None:
    net = network()
    c = net.consensus
    root = c.root
    assert error_of(update_consensus_chain_allowlist, c, ALICE, "Add", CONSENSUS) == "BadOrigin"
    assert error_of(update_consensus_chain_allowlist, net.chains[0], root, "Add", 0) == "OperationNotAllowed"
    assert error_of(update_consensus_chain_allowlist, c, root, "Add", CONSENSUS) == "InvalidAllowedChain"
    assert error_of(update_consensus_chain_allowlist, c, root, "Add", 9) == "InvalidChain"
    update_consensus_chain_allowlist(c, root, "Add", 1)
    assert c.state.allowlist == {1}
    update_consensus_chain_allowlist(c, root, "Remove", 1)
    assert c.state.allowlist == set()


def test_domain_applies_its_owners_requests_on_consensus() -> None:
    net = network(Options(allowlist="on"), allowlists={0: {CONSENSUS}})
    c, owner = net.consensus, b"w" * 32
    update = initiate_domain_update_chain_allowlist
    assert error_of(update, c, ALICE, 0, "Add", 0) == "NotDomainOwner"
    assert error_of(update, c, owner, 0, "Add", 0) == "InvalidAllowedChain"
    assert error_of(update, c, owner, 0, "Add", 9) == "InvalidChain"
    net.call(CONSENSUS, update, owner, 0, "Remove", 1)
    net.call(CONSENSUS, update, owner, 0, "Add", 1)  # the later opposite update wins
    net.call(CONSENSUS, update, owner, 0, "Remove", CONSENSUS)
    net.step()
    assert net.chains[0].state.allowlist == {1}
    assert c.state.domain_updates[0] == (frozenset([1]), frozenset([CONSENSUS]))
    net.step()
    assert c.state.domain_updates[0] == (frozenset(), frozenset())
    pending = (frozenset([1]), frozenset([CONSENSUS]))
    assert error_of(apply_allowlist_updates, net.chains[0], pending, None) == "MissingAllowlistUpdates"
    assert error_of(apply_allowlist_updates, net.chains[0], pending, (pending[1], pending[0])) == (
        "IncorrectAllowlistUpdates"
    )


def test_books_reject_transfers_naming_the_domain_itself() -> None:
    net = network()
    c = net.consensus
    er = replace(net.receipts[0, 0], transfers_in={0: 1})
    assert error_of(settle, c, 0, er) == "InvalidDomainTransfers"
    assert error_of(settle, c, 0, replace(er, transfers_in={1: 1})) == "BalanceUnderflow"
    assert error_of(settle, c, 0, replace(er, transfers_in={}, transfers_out={1: 10**9})) == "LowBalanceOnDomain"


def test_unfinalized_block_proves_nothing_to_a_domain() -> None:
    net = network()
    for relayer in net.relayers:
        relayer.working = False
    net.call(CONSENSUS, initiate_channel, ROOT, 0)
    net.step(9)
    last = net.view.best - net.options.archiving_depth
    for made_at in (last - 1, last, last + 1, net.view.best):
        x = prove(net, "request", CONSENSUS, 0, 0, 0, made_at - 1, made_at, TAG_NONE)
        assert error_of(validate, net.chains[0], x, "request") == (None if made_at <= last else "BadProof")


@pytest.mark.parametrize(
    "columns", [{"src": 2}, {"dst": 2}, {"channel_id": 1}, {"nonce": 1}], ids=["src", "dst", "channel", "nonce"]
)
def test_body_contradicting_its_envelope(columns) -> None:
    """D-7: only a lying runtime can store one, and only a lax validator accepts it."""
    key = outbox_key(1, 0, 0)
    head = ConsensusProof(1, bytes(32), b"", MmrProof((), 0, ()))
    for m in (Message(0, 1, 0, 0, ChannelOpen(25)), replace(Message(0, 1, 0, 0, ChannelOpen(25)), **columns)):
        trie = Trie({key: encode_message(m), key[:-1] + b"\1": b"beside"})
        x = CrossDomainMessage(0, 1, 0, 0, Proof(head, None, trie.prove(key)), TAG_NONE)
        assert read_message(1, trie.root, x, "request", False) == m
        honest = m == Message(0, 1, 0, 0, ChannelOpen(25))
        assert error_of(read_message, 1, trie.root, x, "request", True) == (None if honest else "BadProof")
