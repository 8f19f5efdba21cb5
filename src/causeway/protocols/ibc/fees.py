"""The relayers' accounts: what each of them submitted to a zone, what came of it, and what it cost (IBC reference 3.5,
X-14, X-15).

A header costs ``header_fee``, every message proved ``proof_fee``, whether it had an effect or not: so waste shows.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.order import stable_order
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.state import RELAYERS_SCHEMA

OUTSIDER = 2**31
"""Relayers from outside have this added to their user's number in the accounts, so that they are no scenario's."""

COUNTS = ("headers", "submitted", "accepted", "redundant", "refused", "fees", "wasted")

REDUNDANT = (Refusal.NoOp, Refusal.OutOfOrder)
"""What a message is refused for that another relayer brought before; and what comes before its turn."""


class Fees:
    """Counts of one block, by zone and relayer."""

    def __init__(self, context: Context) -> None:
        self._options = context.options.relay
        self._counts: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))

    def header(self, chain: int, relayer: int, outcome: Refusal) -> None:
        """Count a header update."""
        counts = self._counts[chain, relayer]
        counts["headers"] += 1
        counts["fees"] += self._options.header_fee
        if outcome != Refusal.ACCEPTED:
            counts["wasted"] += self._options.header_fee

    def messages(self, chain: int, relayer: int, count: int, why: Refusal) -> None:
        """Count messages that had one fate."""
        counts = self._counts[chain, relayer]
        counts["submitted"] += count
        counts["fees"] += self._options.proof_fee * count
        if why == Refusal.ACCEPTED:
            counts["accepted"] += count
            return
        counts["redundant" if why in REDUNDANT else "refused"] += count
        counts["wasted"] += self._options.proof_fee * count

    def after(self, accounts: Frame) -> Frame:
        """Return the accounts (``RELAYERS_SCHEMA``) with this block's counts added."""
        if not self._counts:
            return accounts
        keys = np.array(sorted(self._counts), dtype=np.uint32)
        names = ("chain", "relayer")
        counted = Frame({"chain": keys[:, 0], "relayer": keys[:, 1]})
        new = counted.filter(lookup(accounts, counted, names) < 0)
        zeros = {name: np.zeros(len(new), dtype=np.uint64) for name in COUNTS}
        accounts = concat([accounts, new.with_columns(**zeros)])
        accounts = accounts.take(stable_order(*(accounts[name] for name in names)))
        rows = lookup(accounts, counted, names)
        columns = {}
        for name in COUNTS:
            column = accounts[name].copy()
            column[rows] += np.array([self._counts[key][name] for key in sorted(self._counts)], dtype=np.uint64)
            columns[name] = column
        return accounts.with_columns(**columns).select(RELAYERS_SCHEMA.names)
