"""Rows of kernel tables by key, and their changes in a block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from causeway.core.frame import Frame
from causeway.core.joins import lookup_rows
from causeway.protocols.xdm.state import ChannelState, State
from causeway.protocols.xdm.tables import INDEXED
from causeway.protocols.xdm.value.balances import join_words
from tests.spec.xdm.values import Chain


def chain_of(position: int) -> Chain:
    """The oracle's number of the chain at a position."""
    return position - 1


def position_of(chain: Chain) -> int:
    return chain + 1


def row_dicts(frame: Frame, *names: str) -> Iterator[dict[str, Any]]:
    columns = {name: frame[name] for name in names or frame.names}
    lists = [c.tolist() if isinstance(c, np.ndarray) else c.to_pylist() for c in columns.values()]
    for values in zip(*lists, strict=True):
        yield dict(zip(columns, values, strict=True))


class Table(dict[tuple[int, ...], dict[str, Any]]):
    """Rows by key."""

    def __init__(self, frame: Frame, *keys: str) -> None:
        super().__init__((tuple(row[k] for k in keys), row) for row in row_dicts(frame))


class Rows:
    """What changed in a block."""

    def __init__(self, before: State, state: State) -> None:
        self.channels = Table(state["channels"], "chain", "foreign", "channel")
        self.old_channels = Table(before["channels"], "chain", "foreign", "channel")
        old_responses, responses = before["responses"], state["responses"]
        self.new_requests = list(row_dicts(without(state["outbox"], before["outbox"])))
        self.gone_requests = Table(without(before["outbox"], state["outbox"]), *INDEXED)
        self.responses = Table(without(responses, old_responses), *INDEXED)
        self.gone_responses = list(row_dicts(without(old_responses, responses)))
        self.new_channels = [row for key, row in self.channels.items() if key not in self.old_channels]
        self.inbox: list[tuple[tuple[int, int, int], int, int]] = []
        self.answers: list[tuple[tuple[int, int, int], int, int]] = []
        for (chain, foreign, channel), row in sorted(self.channels.items()):
            old = self.old_channels.get((chain, foreign, channel), {"next_inbox": 0, "next_response": 0})
            self.inbox.append(((chain, foreign, channel), old["next_inbox"], row["next_inbox"]))
            self.answers.append(((chain, foreign, channel), old["next_response"], row["next_response"]))


def without(rows: Frame, others: Frame) -> Frame:
    return rows.slice(0, 0) if rows is others else rows.filter(lookup_rows(others, rows, INDEXED) < 0)


def deposits(state: State) -> dict[tuple[Chain, Chain, int], int]:
    """What is held by channel; together it is what chains say that they have reserved."""
    held = {}
    total: Counter[int] = Counter()
    for row in row_dicts(state["channels"]):
        if row["has_owner"] and row["state"] != ChannelState.CLOSED and row["reserve"]:
            held[chain_of(row["chain"]), chain_of(row["foreign"]), row["channel"]] = row["reserve"]
            total[row["chain"]] += row["reserve"]
    money = state["money"]
    for chain, amount in zip(money["chain"].tolist(), join_words(money, "reserved"), strict=True):
        assert amount == total[chain], "what is reserved is not what channels hold (G9)"
    return held


def stored_in(logs: list[tuple[int, int, Frame]], block: int) -> dict[tuple[int, bytes], bytes]:
    """The values that the block of a height has put under keys of chains. ``logs``: of changes of the storage."""
    found: dict[tuple[int, bytes], bytes] = {}
    for height, _, frame in logs[::-1]:
        if height != block:
            break
        for row in row_dicts(frame):
            if row["present"]:
                found.setdefault((row["chain"], row["key"]), row["value"])
    return found


def in_call_order(sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Requests as programs made them, as far as their tables tell: calls of one program in their order, and those of
    one channel by their nonces."""
    lanes: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in sorted(sent, key=lambda row: -row["index"]):
        lanes.setdefault((row["destination"], row["substream"]), []).append(row)
    called = sorted(sent, key=lambda row: (row["sender"], row["callback"]))
    return [lanes[row["destination"], row["substream"]].pop() for row in called]
