"""The transporter: transfers of value between chains (XDM reference X-3, hazards 25, 27, 28, 29)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.xdm.envelope import ExecutionReceipt

from causeway.core.frame import Frame, empty_frame
from causeway.core.vocabulary import Kind
from causeway.network.network import LakeNetwork
from causeway.protocols.shared.messages import blank_messages
from causeway.protocols.xdm.consensus.chain import confirm, genesis_range
from causeway.protocols.xdm.errors import TransporterError
from causeway.protocols.xdm.state import state_of_frames
from causeway.protocols.xdm.tables import BOOKS_SCHEMA
from causeway.protocols.xdm.value.books import Book, BookError, Books, TransferRecord
from causeway.protocols.xdm.value.transporter import METHOD, TRANSFERS, encode_transfers
from tests.support.xdm import xdm_network as domains

SCENARIO = """
[network]
protocol = "xdm"

[options]
archiving_depth = 2
challenge_period = 3
minimum_transfer = 10
endowment = 0

[[chains]]
name = "main"
role = "consensus"

[[chains]]
count = 2
prefix = "domain-"
"""
PROGRAMS = {
    "alice": ("domain-0", "caller", 10_000),
    "poor": ("domain-0", "caller", 100),
    "exact": ("domain-0", "caller", 100),
    "spent": ("domain-0", "caller", 100),
    "bob": ("domain-1", "echo", 1),
    "nobody": ("domain-1", "none", 0),
    "carol": ("main", "caller", 5_000),
}
ZERO = "00" + 32 * "00"
OTHER = "01" + 20 * "07"
FEES = 2 + 2
"""Of a request, under the options' defaults: half for its destination."""

CALLS: list[tuple[int, str, str, int, str, str]] = [
    (0, "alice", "bob", 500, "", ""),
    (0, "alice", "bob", 9, "", "MinimumTransferAmount"),
    (0, "alice", "bob", 9, ZERO, "MinimumTransferAmount"),
    (0, "alice", "bob", 10, ZERO, "InvalidAccountId"),
    (0, "alice", "bob", 11, "07", "InvalidAccountId"),
    (0, "alice", "bob", 600, OTHER, "InvalidAccountId"),
    (0, "alice", "nobody", 700, "", "InvalidAccountId"),
    (0, "alice", "poor", 50, "", "InvalidMessageDestination"),
    (0, "poor", "bob", 95, "", ""),
    (0, "exact", "bob", 96, "", "FundsUnavailable"),
    (0, "spent", "bob", 100, "", "LowBalance"),
    (1, "carol", "alice", 1_000, "", ""),
    (1, "carol", "nobody", 2_000, "", "InvalidAccountId"),
    (9, "alice", "carol", 30, "", ""),
]
"""Tick, from, to, amount, the account named in hexadecimal digits, and what the transfer is refused with."""


def script() -> str:
    text = SCENARIO
    for name, (chain, program, balance) in PROGRAMS.items():
        text += f'\n[[programs]]\nname = "{name}"\nchain = "{chain}"\nprogram = "{program}"\nbalance = {balance}\n'
    text += '\n[traffic]\nsource = "script"\n'
    for tick, sender, receiver, amount, account, _ in CALLS:
        call = f'receiver = "{receiver}", method = "{METHOD}", amount = {amount}, hex = "{account}"'
        text += f'\n[[traffic.send]]\ntick = {tick}\nto = "{sender}"\ncall = {{ {call} }}\n'
    return text


def rows(net: LakeNetwork, table: str) -> list[dict[str, Any]]:
    return [row for part in net.lake.state(net.lake.manifest(net.height), table) for row in part.to_pylist()]


@pytest.fixture(scope="module")
def settled_network(tmp_path_factory: pytest.TempPathFactory) -> LakeNetwork:
    """Return a network after all transfers and confirmations."""
    folder = tmp_path_factory.mktemp("transfers")
    (folder / "scenario.toml").write_text(script())
    net = LakeNetwork.from_scenario(
        folder / "scenario.toml", {"network.executor": "in_process"}, lake=str(folder / "lake")
    )
    net.run()
    for tick in range(net.tick + 1, net.tick + 12):
        net.step(tick)
    return net


def test_transfers_arrive_or_are_refunded(settled_network: LakeNetwork) -> None:
    spent = dict.fromkeys(PROGRAMS, 0)
    for _, sender, receiver, amount, _, error in CALLS:
        local = error in ("MinimumTransferAmount", "LowBalance", "FundsUnavailable", "InvalidMessageDestination")
        paid = not local and amount not in (10, 11)
        spent[sender] += FEES * paid + amount * (error == "")
        spent[receiver] -= amount * (error == "")
    numbers = {row["program"]: row["balance_low"] for row in rows(settled_network, "accounts")}
    wanted = [balance - spent[name] for name, (_, program, balance) in PROGRAMS.items() if program != "none"]
    assert [numbers[number] for number in sorted(numbers)] == wanted
    assert rows(settled_network, "outbox") == []


def test_programs_learn_the_reason(settled_network: LakeNetwork) -> None:
    found = []
    for height in settled_network.lake.heights():
        for table in settled_network.lake.log_rows("outbound", settled_network.lake.manifest(height)):
            chosen = table.select(["kind", "code", "payload"]).to_pylist()
            found += [row["payload"].decode() for row in chosen if row["kind"] == Kind.RESPONSE and row["code"]]
    refused = [call for call in CALLS if call[5]]
    at_once = [call for call in refused if call[3] not in (600, 700, 2_000)]
    assert sorted(found) == sorted(call[5] for call in at_once)


def test_books_record_domain_balances(settled_network: LakeNetwork) -> None:
    issued = {row["chain"]: row["issuance_low"] for row in rows(settled_network, "money") if row["chain"]}
    books = [(row["what"], row["source"], row["amount_low"]) for row in rows(settled_network, "books")]
    # No message is in flight, so that nothing is unconfirmed or cancelled.
    assert books == [(Book.BALANCE, chain, amount) for chain, amount in sorted(issued.items())]


def test_in_flight_transfer_has_its_entry() -> None:
    messages = blank_messages(
        1,
        kind=np.array([Kind.REQUEST], dtype=np.uint8),
        sender=np.array([7], dtype=np.uint64),
        receiver=np.array([2**40], dtype=np.uint64),
        amount_low=np.array([5], dtype=np.uint64),
        amount_high=np.array([1], dtype=np.uint64),
        source=np.array([0], dtype=np.uint32),
        destination=np.array([3], dtype=np.uint32),
    )
    account = [(number).to_bytes(32, "little") for number in (7, 2**40)]
    wire = (2**64 + 5).to_bytes(16, "little") + b"\0\0" + account[0] + b"\1\2\0\0\0\0" + account[1]
    encoded = encode_transfers(messages)
    assert encoded.to_pylist() == [wire]
    assert TRANSFERS.decode(encoded).columns["receiver_chain_id"].to_pylist() == [2]
    other = encode_transfers(messages.with_columns(payload=pa.array([bytes.fromhex(OTHER)], pa.binary())))
    assert other.to_pylist() == [wire[: -len(account[1]) - 1] + bytes.fromhex(OTHER)]


def test_domain_exports_no_more_than_it_has() -> None:
    books = Books(empty_frame(BOOKS_SCHEMA))
    books.apply(0, TransferRecord.OUT, 1, 100)
    books.apply(1, TransferRecord.IN, 0, 100)
    with pytest.raises(BookError) as refused:
        books.apply(1, TransferRecord.OUT, 2, 101)
    assert refused.value.error is TransporterError.LowBalanceOnDomain
    assert (books[(Book.BALANCE, 1, 0)], books[(Book.UNCONFIRMED, 1, 2)]) == (100, 0)


def test_book_rejections_at_receipt_confirmation_are_reported() -> None:
    fields = ExecutionReceipt.decode(bytes(256)).fields
    out = [{"chain_id": "Consensus", "amount": 60}, {"chain_id": {"Domain": 1}, "amount": 101}]
    receipt = ExecutionReceipt(
        0, b"", 0, b"", b"", dict(fields, transfers=dict(fields["transfers"], transfers_out=out))
    )
    taken = Frame(
        {
            "chain": np.array([0], dtype=np.uint32),
            "domain": np.array([1], dtype=np.uint32),
            "number": np.array([4], dtype=np.uint64),
            "receipt": pa.array([receipt.encode()], pa.binary()),
        },
        1,
    )
    books = Books(empty_frame(BOOKS_SCHEMA))
    books.apply(0, TransferRecord.OUT, 1, 100)
    books.apply(1, TransferRecord.IN, 0, 100)
    state = state_of_frames({"books": books.frame(), "range": genesis_range()}, {})
    booked = Books(state["books"])
    after, refused = confirm(state, taken, 4, booked)
    assert [(notice.foreign, notice.what, notice.index, notice.refused) for notice in refused] == [
        (1, "LowBalanceOnDomain", 4, True)
    ]
    assert (booked[(Book.BALANCE, 1, 0)], booked[(Book.UNCONFIRMED, 1, 0)]) == (100, 0), "all of it or nothing"
    assert not booked.rows
    assert len(after["confirmed"]) == 0 and after["unbooked"]["domain"].tolist() == [1]
    again, refused = confirm(after, taken.with_columns(number=np.array([5], dtype=np.uint64)), 5, booked)
    assert len(again["confirmed"]) == 0 and refused == []


def test_value_a_domain_lacks_is_minted_nowhere() -> None:
    """Hazard 28: a value-creating domain exports none of it, and its recipient is not kept busy."""
    for receiver in (3, 9):
        chains: dict[str, domains.Placed] = {"consensus": {9: "caller"}, "A": {1: "caller"}, "B": {3: "caller"}}
        net = domains.Network(chains, options={"endowment": 0, "root_balance": 0}, balance=1_000)
        net.block()
        state = net.states[0]
        accounts, sums = state["accounts"], state["money"]
        mine, own = accounts["program"] == 1, sums["chain"] == net.names.index("A")
        more = np.uint64(10**9)
        net.states[0] = state.with_tables(
            accounts=accounts.with_columns(balance_low=accounts["balance_low"] + np.where(mine, more, np.uint64(0))),
            money=sums.with_columns(issuance_low=sums["issuance_low"] + np.where(own, more, np.uint64(0))),
        )
        net.call(1, receiver, amount=10**8, method=METHOD)
        for _ in range(60):
            net.block()
        accounts = net.state["accounts"]
        assert accounts["balance_low"][accounts["program"] == receiver].tolist() == [1_000]
        assert net.refusals() == [("consensus", "LowBalanceOnDomain")]
        assert all(result.wake is None for result in net.results)


def test_rejected_value_is_claimed_once() -> None:
    books = Books(empty_frame(BOOKS_SCHEMA))
    books.apply(0, TransferRecord.OUT, 1, 100)
    with pytest.raises(BookError):  # the other chain has not rejected it
        books.apply(0, TransferRecord.CLAIMED, 1, 100)
    books.apply(1, TransferRecord.REJECTED, 0, 100)
    books.apply(0, TransferRecord.CLAIMED, 1, 100)
    with pytest.raises(BookError) as again:
        books.apply(0, TransferRecord.CLAIMED, 1, 100)
    assert again.value.error is TransporterError.BalanceUnderflow


def test_transfer_into_a_closed_channel_is_refunded(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("closed")
    closing = (
        '[[options.channel_calls]]\ntick = 3\nchain = "domain-1"\nforeign = "domain-0"\ndo = "close"\n\n[[chains]]'
    )
    text = script().split("[traffic]")[0].replace("[[chains]]", closing, 1)
    call = f'receiver = "bob", method = "{METHOD}", amount = 500'
    text += f'[traffic]\nsource = "script"\n\n[[traffic.send]]\ntick = 0\nto = "alice"\ncall = {{ {call} }}\n'
    (folder / "scenario.toml").write_text(text)
    net = LakeNetwork.from_scenario(
        folder / "scenario.toml", {"network.executor": "in_process"}, lake=str(folder / "lake")
    )
    net.run()
    for tick in range(net.tick + 1, net.tick + 12):
        net.step(tick)
    assert rows(net, "accounts")[0]["balance_low"] == PROGRAMS["alice"][2] - FEES
    assert {row["what"] for row in rows(net, "books")} == {Book.BALANCE}
