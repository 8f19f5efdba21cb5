"""What a served lake of domains says of itself: channels, messages with their proofs, receipts, and of the consensus
chain its blocks and what is proved under them (XDM reference 2.4, 3.10, X-5).

All is read from committed heights. A lake that follows the consensus chain says what it knows of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.order import positions_in
from causeway.protocols.limits import DIGITS, MAX_ANSWER_BYTES
from causeway.protocols.xdm.carried import decode_transaction
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.following import provable_row
from causeway.protocols.xdm.tags import tags_of
from causeway.protocols.xdm.wire import message_keys
from causeway.proving.xdm.storage import height_of, storage_at
from causeway.service.xdm.consensus_views import ANSWER_MARGIN, ROW_MARGIN, ConsensusViews
from causeway.service.xdm.refused import faults_of, refused_items

MOST_CHANNELS = 10_000
"""Channels of a pair of chains that are told of."""

MOST_MESSAGES = 1_000
"""Messages in one answer."""

_LANE_KEYS = ("source", "destination", "substream")


class Views(ConsensusViews):
    """The views of one lake of domains. ``kernel``: the network's, whose chains sign."""

    def status(self) -> dict[str, Any]:
        """Return what the network is, and how far it has come."""
        options = self.kernel.options
        return {
            **super().status(),
            "consensus": self.consensus,
            "agreed": self._agreed(),
            "options": {
                "archiving_depth": options.archiving_depth,
                "challenge_period": options.challenge_period,
                "max_future_nonces": options.max_future_nonces,
                "channels_per_block": options.channels_per_block,
                "resubmit_after": options.resubmit_after,
            },
        }

    def _agreed(self) -> str:
        """Return a digest of all that lakes of one network have in common: options, chains, programs."""
        topology = self.network.topology
        options = self.kernel.options.model_dump(mode="json", exclude={"validator_keys"})
        programs = topology.programs.select(["number", "name", "chain", "program", "balance"])
        said = [options, self.kernel.seed, self.network.names, programs.sort_by("number").to_pylist()]
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()

    # ---- channels and messages of a chain

    def channels(self, chain: str, counterparty: str, height: int | None) -> dict[str, Any]:
        """Return the channels of a chain with another at a height, and the consensus block that messages to it are
        proved under.

        Raises:
            InvalidInput: there is no such chain here (``LakeError``: no such height).
        """
        height = self.known(chain, height)
        position, foreign = self.opened.position(chain), self.position_of(counterparty, "counterparty")
        rows = self.table(height, position, "channels")
        rows = rows.filter(rows["foreign"] == foreign)
        names = ("channel", "state", "next_inbox", "next_outbox", "next_response", "count")
        columns = (rows[name][:MOST_CHANNELS].tolist() for name in names)
        shown = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        blocks = self.table(height, CONSENSUS_POSITION, "blocks")
        at = self._proved_at(blocks, position, foreign, height)
        under = None if at < 0 or not int(blocks["leaf_count"][at]) else _block(blocks, at)
        best = int(blocks["number"][-1]) if len(blocks) else None
        place = {"chain": chain, "counterparty": counterparty, "height": height}
        return {**place, "best": best, "under": under, "channels": shown}

    def waiting(self, height: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the channels of all chains here at a height: the positions of both ends, the channel's number, and how
        many requests have no response."""
        names = ["chain", "foreign", "channel", "count"]
        for first, _ in self.opened.about["buckets"]:
            rows = self.opened.chosen_rows(
                self.manifest(height), "channels", first, names, lambda batch: np.ones(batch.num_rows, dtype=bool)
            )
            if rows is not None:
                yield from zip(*(rows[name].to_pylist() for name in names), strict=True)

    def best(self, height: int) -> int | None:
        """Return the newest consensus block that is known here at a height."""
        numbers = self.table(height, CONSENSUS_POSITION, "blocks")["number"]
        return int(numbers[-1]) if len(numbers) else None

    def _proved_at(self, blocks: Frame, position: int, foreign: int, height: int) -> int:
        """Return the row of the consensus block that messages to a chain are proved under now, -1 for none: the newest,
        the newest final one, or the one after that of which is known what was declared."""
        if position == CONSENSUS_POSITION:
            return len(blocks) - 1
        if not self.network.follows or foreign == CONSENSUS_POSITION:
            found = provable_row(blocks, self.kernel.options)
            return -1 if found is None else found + 1
        under = self.table(height, CONSENSUS_POSITION, "declared_under")
        rows = np.flatnonzero(np.isin(blocks["number"], under["number"][under["domain"] == position]))
        return int(rows[0]) + 1 if len(rows) else -1

    def messages(
        self, chain: str, counterparty: str, block: int, lanes: list[tuple[int, bool, int]], most: int
    ) -> dict[str, Any]:
        """Return messages of a chain to another, as they are in the storage of its block of a number, with their proofs
        under its root.

        Args:
            chain, counterparty: from which to which.
            block: the number.
            lanes: (channel, whether responses are asked for, first nonce).
            most: messages of a lane at most. As many as one answer holds, one at least where there is any.

        Raises:
            InvalidInput: there is no such chain here, or no such block (``LakeError``: it is not kept).
        """
        self.known(chain, None)
        height = height_of(self.opened, block, self.height())
        position, foreign = self.opened.position(chain), self.position_of(counterparty, "counterparty")
        rows = self._wanted(height, position, foreign, lanes, most)
        storage = storage_at(self.opened, position, height)
        proofs = storage.proofs(message_keys(rows))
        numbers: dict[bytes, int] = {}
        shown: list[dict[str, Any]] = []
        left = MAX_ANSWER_BYTES - ANSWER_MARGIN
        for row in range(len(rows)):
            nodes = sorted(set(proofs.nodes_of(row)))
            left -= ROW_MARGIN + sum(DIGITS * len(node) + 8 for node in nodes if node not in numbers)
            if left < 0 and shown:
                break
            lane, nonce = int(rows["substream"][row]), int(rows["index"][row])
            members = [numbers.setdefault(node, len(numbers)) for node in nodes]
            shown.append(
                {
                    "channel": lane >> 1,
                    "response": bool(lane & 1),
                    "nonce": nonce,
                    "tag": int(rows["tag"][row]),
                    "members": members,
                }
            )
        place = {"chain": chain, "counterparty": counterparty, "block": block, "root": storage.root.hex()}
        return {**place, "nodes": [node.hex() for node in numbers], "messages": shown}

    def _wanted(self, height: int, position: int, foreign: int, lanes: list[tuple[int, bool, int]], most: int) -> Frame:
        """Return the messages (lane, ``index``, ``tag``) of some lanes from a nonce on."""
        parts = []
        for name in ("outbox", "responses"):
            rows = self.table(height, position, name)
            rows = rows.filter(rows["destination"] == foreign)
            parts.append(rows.select([*_LANE_KEYS, "index"]).with_columns(tag=tags_of(name, rows)))
        every = concat(parts)
        keep = np.zeros(len(every), dtype=bool)
        asked: list[dict[int, int]] = []  # a lane that is named again is looked for again
        for channel, response, first in lanes:
            lane = channel << 1 | response
            once = next((named for named in asked if lane not in named), None)
            if once is None:
                asked.append(once := {})
            once[lane] = first
        for named in asked:
            numbers = np.array(sorted(named), dtype=np.uint64)
            at = positions_in(numbers, every["substream"])
            begin = np.array([named[int(number)] for number in numbers], dtype=np.uint64)[at]
            keep |= (at >= 0) & (every["index"] >= begin) & (every["index"] - begin < np.uint64(most))
        found = every.filter(keep)
        order = np.lexsort((found["index"], found["substream"]))
        return found.take(order[:MOST_MESSAGES])

    def refused(self, height: int, chain: str, carrier: int, transaction: bytes) -> list[dict[str, Any]]:
        """Return what the block of a height refused of a transaction (``LakeViews.refused``)."""
        found = refused_items(self.opened, height, self.opened.position(chain), decode_transaction(transaction))
        return faults_of(found, chain)


def _block(blocks: Frame, at: int) -> dict[str, Any]:
    return {
        "number": int(blocks["number"][at]),
        "hash": blocks["hash"][at].tobytes().hex(),
        "leaf_count": int(blocks["leaf_count"][at]),
        "root": blocks["mmr_root"][at].tobytes().hex(),
    }
