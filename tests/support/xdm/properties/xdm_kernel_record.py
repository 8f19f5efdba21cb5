"""The record of 1.2 of a kernel run: its events and its final tables."""

from __future__ import annotations

from collections import Counter

from causeway.protocols.xdm.tables import INDEXED
from causeway.protocols.xdm.value.balances import join_words
from causeway.protocols.xdm.value.books import Book
from tests.spec.xdm.events import Event
from tests.spec.xdm.guarantees import Record
from tests.spec.xdm.values import Chain
from tests.support.xdm.properties.xdm_kernel_rows import chain_of, deposits, row_dicts
from tests.support.xdm.xdm_network import Network


def record_of(
    net: Network, events: list[Event], supply: dict[int, dict[Chain, int]], issuance: dict[tuple[Chain, int], int]
) -> Record:
    state = net.state
    options = net.kernel.options
    books = state["books"]
    in_flight: Counter[tuple[Chain, Chain]] = Counter()
    for row, amount in zip(row_dicts(books, "what", "source", "foreign"), join_words(books, "amount"), strict=True):
        if row["what"] != Book.BALANCE:
            in_flight[chain_of(row["source"]), chain_of(row["foreign"])] += amount
    outbox = {
        (chain_of(row["source"]), chain_of(row["destination"]), row["substream"] >> 1, row["index"])
        for row in row_dicts(state["outbox"], *INDEXED)
    }
    return Record(
        events,
        supply,
        issuance,
        options.archiving_depth,
        options.challenge_period,
        options.reserve_portion_percent,
        in_flight=dict(in_flight),
        outbox=outbox,
        deposits=deposits(state),
    )
