"""Genesis of the chains: channels between hosting chains, endowments, issued value, books."""

from __future__ import annotations

import numpy as np
from causeway_proofs.errors import InvalidInput

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.vocabulary import Asset, ValueHolder, ValueReason
from causeway.protocols.contract import NO_HOST, Chains
from causeway.protocols.shared.execution import credit_accounts
from causeway.protocols.shared.state_tables import blank_rows
from causeway.protocols.xdm.consensus.chain import genesis_range
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.state import ChannelState, FeeModel, State
from causeway.protocols.xdm.tables import (
    CHANNELS_SCHEMA,
    COSTS_SCHEMA,
    MONEY_SCHEMA,
    NEXT_CHANNELS_SCHEMA,
    OPERATORS_SCHEMA,
)
from causeway.protocols.xdm.value.balances import NOWHERE, Purse, join_words, split_words, value_rows
from causeway.protocols.xdm.value.books import MAX_BALANCE, Book, books_frame


def genesis_tables(chains: Chains, accounts: Frame, context: Context) -> dict[str, Frame]:
    """Return the tables of ``chains`` at genesis.

    Args:
        chains: Positions of the chains, ascending.
        accounts: Accounts of programs before endowments.
        context: Context of genesis.
    """
    options, network = context.options, context.network
    accounts = _with_endowments(accounts, context)
    chain, foreign = network.pairs
    local = np.isin(chain, chains) & (options.channels == "open")
    chain, foreign = chain[local], foreign[local]
    channels = blank_rows(
        CHANNELS_SCHEMA,
        len(chain),
        chain=chain,
        foreign=foreign,
        state=ChannelState.OPEN,
        max_outgoing=options.max_outgoing_messages,
        fee_model=FeeModel[options.fee_model.upper()],
        relay_fee=options.relay_fee if options.fee_model == "v0" else 0,
    )
    following = blank_rows(NEXT_CHANNELS_SCHEMA, len(chain), chain=chain, foreign=foreign, next_channel=1)
    # `COSTS_SCHEMA` has no rows without endowments.
    count = len(accounts) if context.options.endowment else 0
    high, low = split_words(_issued(chains, accounts, context))
    issued = {"issuance_high": high, "issuance_low": low}
    operators = np.tile(np.arange(options.operators, dtype=np.uint32), len(chains))
    tables = {
        "accounts": accounts,
        "costs": blank_rows(COSTS_SCHEMA, count, program=accounts["program"][:count]),
        "channels": channels,
        "next_channels": following,
        "allowlist": Frame({"chain": chain, "foreign": foreign}, len(chain)),
        "money": blank_rows(MONEY_SCHEMA, len(chains), chain=chains, **issued, root_low=options.root_balance),
        "operators": blank_rows(
            OPERATORS_SCHEMA, len(operators), chain=chains.repeat(options.operators), operator=operators
        ),
    }
    if context.has_consensus:
        tables |= {"range": genesis_range(), "books": _books(context)}
    return tables


def check_issued(context: Context) -> None:
    """Check that the total value fits into 128 bits, so that no sum can overflow.

    Args:
        context: Context with all chains.

    Raises:
        InvalidInput: The total is too large.
    """
    everywhere = np.arange(len(context.network.names), dtype=np.uint32)
    total = sum(_issued(everywhere, _endowed(context), context))
    if total > MAX_BALANCE:
        raise InvalidInput(
            f"programs: balances, with options.endowment for each program, come to {total} in all; allowed: at most "
            f"2**128 - 1 = {MAX_BALANCE}"
        )


def _endowed(context: Context) -> Frame:
    """Return the genesis accounts of all programs, with endowments."""
    network = context.network
    hosted = network.host_of(network.programs) != NO_HOST
    programs = network.programs[hosted & context.programs.installed(network.programs)]
    accounts, _ = context.programs.genesis(programs)
    return _with_endowments(accounts, context)


def _with_endowments(accounts: Frame, context: Context) -> Frame:
    count = len(accounts)
    endowments = np.full(count, context.options.endowment, dtype=np.uint64)
    return credit_accounts(accounts, np.arange(count), np.zeros(count, dtype=np.uint64), endowments)


def genesis_value(state: State, context: Context) -> Frame:
    """Return the issued and booked value at genesis (``VALUE_SCHEMA``)."""
    accounts = state["accounts"]
    chain = context.network.host_of(accounts["program"]).view(np.uint32)
    account = Purse(ValueHolder.ACCOUNT, accounts["program"])
    rows = value_rows(ValueReason.ISSUED, chain, NOWHERE, account, accounts["balance_low"], accounts["balance_high"])
    money = state["money"]
    root = value_rows(
        ValueReason.ISSUED, money["chain"], NOWHERE, Purse(ValueHolder.ROOT), money["root_low"], money["root_high"]
    )
    books = state["books"]
    booked = Purse(ValueHolder.BALANCE, books["source"])
    balances = value_rows(
        ValueReason.ISSUED, books["chain"], NOWHERE, booked, books["amount_low"], books["amount_high"]
    )
    rows = concat([rows, root, balances.with_columns(asset=repeat_value(np.uint8(Asset.BOOKED), len(balances)))])
    return rows.filter((rows["amount_low"] | rows["amount_high"]) > 0)


def _issued(chains: Chains, accounts: Frame, context: Context) -> list[int]:
    hosts = context.network.host_of(accounts["program"])
    totals = dict.fromkeys(chains.tolist(), context.options.root_balance)
    for host, balance in zip(hosts.tolist(), join_words(accounts, "balance"), strict=True):
        totals[host] += balance
    return [totals[chain] for chain in chains.tolist()]


def _books(context: Context) -> Frame:
    """Return the balance of every domain: its issued value."""
    network = context.network
    everywhere = np.arange(len(network.names), dtype=np.uint32)
    issued = _issued(everywhere, _endowed(context), context)
    return books_frame({(Book.BALANCE, chain, 0): amount for chain, amount in enumerate(issued) if chain and amount})
