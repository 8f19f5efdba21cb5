"""Value that the books or the recipient reject (XDM 3.3, 3.4, X-3; hazard 20)."""

from __future__ import annotations

import numpy as np

from causeway.core.frame import Frame
from causeway.protocols.xdm.tables import BOOKS_SCHEMA
from causeway.protocols.xdm.value.balances import join_words, split_words
from causeway.protocols.xdm.value.books import MAX_BALANCE, Book
from causeway.protocols.xdm.value.transporter import METHOD
from tests.support.ic.ic_programs import ACTOR
from tests.support.xdm.properties.xdm_checks import Sums
from tests.support.xdm.properties.xdm_value import Replay
from tests.support.xdm.xdm_network import Network

CONSENSUS, A, B = 0, 1, 2


def balance(net: Network, program: int) -> int:
    accounts = net.state["accounts"]
    found: int = join_words(accounts, "balance")[accounts["program"].tolist().index(program)]
    return found


def drifting_network(fee: int) -> Network:
    """Create a network whose consensus chain mints ``fee`` per request, for which domains burn 2."""
    weights = {"consensus": {"message": (fee - 1) * 10_000_000}}
    options = {"v0_mint": "recomputed", "weights": weights, "endowment": 1_000}
    return Network({"consensus": {9: "echo"}, "A": {1: "caller", 2: "caller"}}, options=options, balance=1_000)


def play_blocks(net: Network, blocks: int = 60) -> Network:
    replay = Replay(net)
    for _ in range(blocks):
        net.block()
        replay.check()
    return net


def test_request_with_an_uncovered_fee_is_never_answered() -> None:
    net = drifting_network(3)
    for _ in range(2):  # both burn 2, of which the first gets 3
        net.call(1, 9, b"hello")
    play_blocks(net)
    failed = [(net.names[chain], reason) for chain, reason in _rejected(net, "FailedToNoteTransferIn")]
    assert failed == [("consensus", "FailedToNoteTransferIn")]
    state = net.state
    assert state["channels"]["next_inbox"][state["channels"]["chain"] == CONSENSUS].tolist() == [2], (
        "both nonces are used"
    )
    assert state["outbox"]["index"].tolist() == [1], "the slot of the second stays taken"
    assert state["responses"]["index"].tolist() == [0]
    assert int(state.programs["caller"]["answered"].sum()) == 1
    net.call(1, 9, b"another")
    play_blocks(net)
    assert net.state["outbox"]["index"].tolist() == [1, 2], (
        "no response comes to its lane behind the one that is missing"
    )


def test_uncovered_amount_beside_its_fee_is_refunded() -> None:
    for method in ("call", METHOD):
        net = drifting_network(3)
        net.call(1, 9, b"", amount=10, method=method)
        play_blocks(net)
        assert ("consensus", "BalanceUnderflow") in net.refusals(), "12 are booked, the fee is 3, and 10 are asked for"
        assert len(net.state["outbox"]) == 0
        assert balance(net, 9) == 2_000
        assert balance(net, 1) == 2_000 - 4, "the fees of a request are 4"
        assert int(net.state.programs["caller"]["rejected"].sum()) == 1


def _rejected(net: Network, reason: str) -> list[tuple[int, str]]:
    events = net.events()
    rows = zip(events["chain"].tolist(), events["reason"].to_pylist(), strict=True)
    return [(chain, name) for chain, name in rows if name == reason]


def test_unrecordable_value_is_not_sent() -> None:
    for room, amount, error in ((1, 0, "FailedToNoteTransferOut"), (2, 1, "BalanceOverflow"), (12, 10, "")):
        net = Network({"consensus": {1: "caller"}, "A": {2: "echo"}}, options={"endowment": 100}, balance=10)
        high, low = split_words([MAX_BALANCE - room])
        values = (CONSENSUS, Book.UNCONFIRMED, CONSENSUS, A, int(high[0]), int(low[0]))
        columns = zip(BOOKS_SCHEMA, values, strict=True)
        books = Frame({field.name: np.array([value], field.type.to_pandas_dtype()) for field, value in columns}, 1)
        net.states = [net.states[0].with_tables(books=books)]
        net.call(1, 2, b"", amount=amount)
        net.block()
        net.block()
        refused = [reason for _, reason in net.refusals()]
        assert refused == ([error] if error else [])
        assert len(net.state["outbox"]) == (0 if error else 1)
        assert balance(net, 1) == (110 if error else 110 - 4 - amount), "refused whole, nothing burned"
        assert join_words(net.state["money"], "outbox_held")[CONSENSUS] == (0 if error else 2)


def test_rejected_refund_of_a_late_answer_remains_with_its_sender() -> None:
    """The channel is closed at the caller before its answer arrives."""
    closing = {"tick": 14, "chain": "A", "foreign": "B", "do": "close"}
    net = Network(
        {"A": {1: "caller"}, "B": {2: ("faulty", {"late_every": 1, "late_by": 6}), 3: "caller"}},
        options={"endowment": 1_000, "channel_calls": [closing]},
        balance=100,
    )
    sums, replay = Sums(net), Replay(net)
    net.call(1, 2, b"hello", amount=70)
    for _ in range(60):
        net.block()
        sums.check()
        replay.check()
    assert ("A", "InvalidChannelState") in net.refusals(), "the answer came too late"
    assert ("B", "InvalidChannelState") in net.refusals()
    assert len(net.state["outbox"]) == 0
    assert balance(net, 1) == 1_100 - 4 - 70
    callers = net.state.programs["caller"]
    mine = callers["program"] == 1
    assert callers["rejected"][mine].tolist() == [1], "who called is told that no answer comes"
    assert len(net.state["open_calls"]) == 0
    assert balance(net, 2) == 1_100 + 70, "who answered has what it wanted to give back"
    books = net.state["books"]
    assert books["what"].tolist() == [Book.BALANCE] * len(books), "nothing is cancelled or on its way any more"


def test_early_accepted_amount_is_logged_at_acceptance() -> None:
    net = Network({"A": {1: "caller"}, "B": {2: ACTOR}}, options={"endowment": 1_000}, balance=100)
    replay = Replay(net)
    net.call(1, 2, b"", amount=70, method="keep")
    for _ in range(60):
        net.block()
        replay.check()
    assert balance(net, 1) == 1_100 - 4 - 70, "the request is open"
    assert balance(net, 2) == 1_100 - 4 + 35, "a half was accepted, paid on, and came back"
