"""Genesis of the chains: channels between hosting chains, endowments, issued value, books."""

from __future__ import annotations

import numpy as np
from causeway_proofs.errors import InvalidInput

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.vocabulary import Asset, ValueHolder, ValueReason
from causeway.protocols.contract import NO_HOST, Chains
from causeway.protocols.shared.execution import credit_accounts
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus.chain import genesis_range
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.state import ChannelState, FeeModel, State
from causeway.protocols.xdm.value.balances import NOWHERE, SUMS, Purse, join_words, split_words, value_rows
from causeway.protocols.xdm.value.books import MAX_BALANCE, Book


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
    zero = np.zeros(len(chain), dtype=np.uint64)
    channels = Frame(
        {
            "chain": chain,
            "foreign": foreign,
            "channel": zero,
            "state": np.full(len(chain), ChannelState.OPEN, dtype=np.uint8),
            "next_inbox": zero,
            "next_outbox": zero,
            "next_response": zero,
            "max_outgoing": np.full(len(chain), options.max_outgoing_messages, dtype=np.uint32),
            "count": zero,
            "has_owner": zero.astype(np.uint8),
            "owner": zero,
            "reserve": zero,
            "fee_model": np.full(len(chain), FeeModel[options.fee_model.upper()], dtype=np.uint8),
            "relay_fee": zero + np.uint64(options.relay_fee if options.fee_model == "v0" else 0),
        },
        len(chain),
    )
    following = {"chain": chain, "foreign": foreign, "next_channel": zero + np.uint64(1)}
    # `COSTS_SCHEMA` has no rows without endowments.
    count = len(accounts) if context.options.endowment else 0
    zero = np.zeros(count, dtype=np.uint64)
    tables = {
        "accounts": accounts,
        "costs": Frame({"program": accounts["program"][:count], "amount_high": zero, "amount_low": zero}, count),
        "channels": channels,
        "next_channels": Frame(following, len(chain)),
        "allowlist": Frame({"chain": chain, "foreign": foreign}, len(chain)),
        "money": _money(chains, accounts, context),
        "operators": _operators(chains, options.operators),
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


def _money(chains: Chains, accounts: Frame, context: Context) -> Frame:
    zero = np.zeros(len(chains), dtype=np.uint64)
    columns = {f"{name}_{half}": zero for name in SUMS for half in ("high", "low")}
    columns["issuance_high"], columns["issuance_low"] = split_words(_issued(chains, accounts, context))
    columns["root_low"] = zero + np.uint64(context.options.root_balance)
    return Frame({"chain": chains, **columns}, len(chains))


def _operators(chains: Chains, count: int) -> Frame:
    zero = np.zeros(len(chains) * count, dtype=np.uint64)
    columns = {"operator": np.tile(np.arange(count, dtype=np.uint32), len(chains)), "balance_high": zero}
    return Frame({"chain": chains.repeat(count), **columns, "balance_low": zero}, len(zero))


def _books(context: Context) -> Frame:
    """Return the balance of every domain: its issued value."""
    network = context.network
    everywhere = np.arange(len(network.names), dtype=np.uint32)
    issued = _issued(everywhere, _endowed(context), context)
    rows = [(chain, amount) for chain, amount in enumerate(issued) if chain != CONSENSUS_POSITION and amount]
    high, low = split_words(amount for _, amount in rows)
    domains = np.array([chain for chain, _ in rows], dtype=np.uint32)
    return Frame(
        {
            "chain": np.zeros(len(rows), dtype=np.uint32),
            "what": np.full(len(rows), Book.BALANCE, dtype=np.uint8),
            "source": domains,
            "foreign": np.zeros(len(rows), dtype=np.uint32),
            "amount_high": high,
            "amount_low": low,
        },
        len(rows),
    )
