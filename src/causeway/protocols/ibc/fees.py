"""The relayers' accounts: what each of them submitted to a zone, what came of it, and what it cost (IBC reference 3.5,
X-14, X-15).

A header costs ``header_fee``, every message proved ``proof_fee``, whether it had an effect or not: so waste shows.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.order import lane_codes, stable_order
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.judge import Verdicts
from causeway.protocols.ibc.seen import Call
from causeway.protocols.ibc.state import RELAYERS_SCHEMA

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

    def message(self, chain: int, relayer: int, why: Refusal) -> None:
        """Count one message that was submitted alone."""
        counts = self._counts[chain, relayer]
        counts["submitted"] += 1
        counts["fees"] += self._options.proof_fee
        accepted = why == Refusal.ACCEPTED
        counts["accepted" if accepted else "redundant" if why in REDUNDANT else "refused"] += 1
        counts["wasted"] += 0 if accepted else self._options.proof_fee

    def settle(self, rows: Frame, verdicts: Verdicts) -> None:
        """Count the messages of submissions and what became of them."""
        chain, relayer = rows["chain"].tolist(), rows["relayer"].tolist()
        cleanup = (rows["call"] == Call.CLEANUP).tolist()
        fee = self._options.proof_fee
        for submission, begin, end in verdicts.accepted:
            counts = self._counts[chain[submission], relayer[submission]]
            messages = 1 if cleanup[submission] else end - begin  # a cleanup has one proof, however much it clears
            counts["submitted"] += messages
            counts["accepted"] += messages
            counts["fees"] += fee * messages
        for submission, begin, end, why in verdicts.refused:
            counts = self._counts[chain[submission], relayer[submission]]
            messages = 1 if cleanup[submission] else end - begin
            counts["submitted"] += messages
            counts["redundant" if why in REDUNDANT else "refused"] += messages
            counts["fees"] += fee * messages
            counts["wasted"] += fee * messages

    def after(self, accounts: Frame) -> Frame:
        """Return the accounts (``RELAYERS_SCHEMA``) with this block's counts added."""
        if not self._counts:
            return accounts
        keys = sorted(self._counts)
        own = lane_codes(accounts["chain"], accounts["relayer"])
        chain = np.array([chain for chain, _ in keys], dtype=np.uint32)
        relayer = np.array([relayer for _, relayer in keys], dtype=np.uint32)
        new = ~np.isin(lane_codes(chain, relayer), own)
        zeros = {name: np.zeros(int(new.sum()), dtype=np.uint64) for name in COUNTS}
        accounts = concat([accounts, Frame({"chain": chain[new], "relayer": relayer[new], **zeros}, int(new.sum()))])
        accounts = accounts.take(stable_order(accounts["chain"], accounts["relayer"]))
        rows = np.searchsorted(lane_codes(accounts["chain"], accounts["relayer"]), lane_codes(chain, relayer))
        columns = {}
        for name in COUNTS:
            column = accounts[name].copy()
            column[rows] += np.array([self._counts[key][name] for key in keys], dtype=np.uint64)
            columns[name] = column
        return accounts.with_columns(**columns).select(RELAYERS_SCHEMA.names)
