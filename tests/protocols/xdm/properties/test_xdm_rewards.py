"""Rewards against plain accounts of submitted receipts, on each side of a message (XDM 3.6, 3.8)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from causeway.core.vocabulary import ValueReason
from causeway.protocols.xdm.value.balances import join_words
from tests.support.xdm.properties.xdm_checks import Sums
from tests.support.xdm.properties.xdm_value import Replay
from tests.support.xdm.xdm_network import Network
from tests.tiers import sized

OPERATORS, ROUNDS = 3, 6
CHAINS: dict[str, Any] = {
    "consensus": {1: "caller", 2: "echo"},
    "a": {11: "caller", 12: "echo"},
    "b": {21: "caller", 22: "echo"},
}
MESSAGE = ("source", "destination", "substream", "index")


class Account:
    """Reward account from logs alone: held fees, submitted receipts, paid fees."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.held_in: dict[tuple[int, ...], int] = {}
        """The block of a chain that began to hold the fee of a message: the one that includes the message there."""
        self.submitted: dict[tuple[int, int], list[int]] = {}
        self.earned: Counter[tuple[int, int]] = Counter()
        self.models: set[int] = set()
        self.remainders = 0

    def check(self) -> None:
        """Read the logs of the last block, and compare every operator's balance."""
        height = self.net.height
        for _, _, rows in (log for log in self.net.logs["receipts"] if log[0] == height):
            for domain, number, operators in zip(
                rows["domain"].tolist(), rows["number"].tolist(), rows["operators"].to_pylist(), strict=True
            ):
                found = [int.from_bytes(operators[at : at + 4], "little") for at in range(0, len(operators), 4)]
                self.submitted[domain, number] = found
        due: Counter[tuple[int, int]] = Counter()
        for _, tick, rows in (log for log in self.net.logs["value"] if log[0] == height):
            columns = (rows[name].tolist() for name in ("why", "chain", *MESSAGE))
            for (why, chain, *message), amount in zip(
                zip(*columns, strict=True), join_words(rows, "amount"), strict=True
            ):
                if why in (ValueReason.FEE_HELD, ValueReason.FEE_MINTED):
                    self.held_in[chain, *message] = tick + 1
                elif why == ValueReason.FEE_PAID:
                    source, destination, substream, index = message
                    if substream % 2:  # the response; its request was logged when the fee was minted
                        message = [destination, source, substream - 1, index]
                    due[chain, self.held_in.pop((chain, *message))] += amount
        for (chain, number), amount in due.items():
            # On the consensus chain the sampled author of the block.
            author = self.net.kernel.operators.submitters
            operators = self.submitted[chain, number] if chain else author(chain, number)
            each, left = amount // len(operators), amount % len(operators)
            self.remainders += left > 0
            for operator in operators:
                self.earned[chain, operator] += each
            for place in range(left):
                self.earned[chain, operators[(number + place) % len(operators)]] += 1
        table = self.net.state["operators"]
        for chain, operator, balance in zip(
            table["chain"].tolist(), table["operator"].tolist(), join_words(table, "balance"), strict=True
        ):
            assert balance == self.earned[chain, operator], (self.net.names[chain], operator, height)


def network(seed: int) -> Network:
    """Create three chains with three operators each, one absent half of the time.

    A second channel between two chains has the other fee model, and so have those opened later.
    """
    rng = random.Random(seed)
    model = rng.choice(["v0", "v1"])
    other = {"v0": "v1", "v1": "v0"}[model]
    pairs = [rng.sample(pair, 2) for pair in (("a", "b"), ("b", "consensus"), ("consensus", "a"))]
    calls = [
        {"tick": rng.randrange(6), "chain": chain, "foreign": foreign, "fee_model": rng.choice([other, model])}
        for chain, foreign in pairs
    ]
    calls[0]["fee_model"] = other
    options = {
        "operators": OPERATORS,
        "fee_model": model,
        "relay_fee": rng.choice([0, 1, 7]),
        "v0_mint": rng.choice(["collected", "recomputed"]),
        "inbox": rng.choice(["stored", "pool"]),
        "max_outgoing_messages": rng.choice([2, 100]),
        "max_messages": rng.choice([6, 40, 10_000]),
        "channel_calls": calls,
        "message_weight": 10_000_000 * rng.choice([1, 2, 5]),
        "response_weight": 10_000_000 * rng.choice([0, 1, 4]),
    }
    faults: list[tuple[str, str | None, str | None, int, int, dict[str, Any]]] = [
        ("absent", chain, None, 0, 10**6, {"operator": rng.randrange(OPERATORS), "chance": 0.5}) for chain in CHAINS
    ]
    if rng.random() < 0.4:
        faults.append(("fraud", "a", "b", 8, 8, {"what": "root", "amount": 5, "chance": 1.0, "found_after": 2}))
    if rng.random() < 0.3:
        faults.append(("halt", "b", None, 12, 15, {}))
    return Network(CHAINS, options=options, balance=10_000, faults=faults, seed=seed)


def play_network(seed: int) -> Account:
    net, rng = network(seed), random.Random(seed)
    account, sums, replay = Account(net), Sums(net), Replay(net)
    for block in range(400):
        if block % 9 < 4 and block < 9 * ROUNDS:  # later calls acknowledge the responses to earlier ones
            for _ in range(rng.randrange(4)):
                net.call(rng.choice([1, 11, 21]), rng.choice([2, 12, 22]), amount=rng.choice([0, 3]))
        net.block()
        for one in (account, sums, replay):
            one.check()
        if block > 9 * ROUNDS and net.idle():
            break
    net.block()  # the receipts of the last messages are submitted
    account.check()
    channels = net.state["channels"]
    account.models = set(channels["fee_model"][channels["next_outbox"] > 1].tolist())
    return account


@pytest.mark.parametrize("seed", range(sized(1, 200)))
def test_each_side_pays_the_operators_who_submitted_the_receipt(seed: int) -> None:
    account = play_network(seed)
    absent = [operators for operators in account.submitted.values() if len(operators) < OPERATORS]
    assert 0.2 < len(absent) / len(account.submitted) < 0.8
    held = {(chain, number) for (chain, *_), number in account.held_in.items() if chain}
    short = {key for key in held if len(account.submitted.get(key, range(OPERATORS))) < OPERATORS}
    table = account.net.state["submitters"]
    known = {key for key in zip(table["chain"].tolist(), table["number"].tolist(), strict=True) if key[0]}
    assert known == short, "submitters are kept as long as a fee is held, and no longer"
    if seed == 0:  # both fee models, on different channels, and units that do not divide
        assert account.models == {0, 1}
        assert account.remainders > 0
