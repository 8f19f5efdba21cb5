"""What a served lake of domains says of itself: channels, messages with their proofs, receipts, and of the consensus
chain its blocks and what is proved under them (XDM reference 2.4, 3.10, X-5).

All is read from committed heights. A lake that follows the consensus chain says what it knows of it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame, concat
from causeway.model.text import unknown
from causeway.network.opened import Mask, OpenedLake
from causeway.pipeline.lake import LakeError
from causeway.proofs.errors import ProofError
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.substrate import prove_storage
from causeway.proofs.substrate.proof import read_value
from causeway.proofs.xdm.envelope import ExecutionReceipt, receipt_storage_key
from causeway.protocols.limits import DIGITS, MAX_ANSWER_BYTES, MAX_ITEMS
from causeway.protocols.xdm.carried import MAX_BLOCKS, decode_transaction
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus import Ranges
from causeway.protocols.xdm.context import block_number
from causeway.protocols.xdm.declared import declared_key
from causeway.protocols.xdm.following import provable_row
from causeway.protocols.xdm.kernel import XdmKernel
from causeway.protocols.xdm.signing import SIGNED_BYTES
from causeway.protocols.xdm.state import State, channel_of, is_response, state_of_frames
from causeway.protocols.xdm.tags import tags_of
from causeway.protocols.xdm.wire import message_keys
from causeway.proving.xdm.storage import height_of, storage_at
from causeway.service.lake_views import LakeViews
from causeway.service.requests import NotFound
from causeway.service.xdm.refused import faults_of, refused_items

MOST_CHANNELS = 10_000
"""Channels of a pair of chains that are told of."""

MOST_MESSAGES = 1_000
"""Messages in one answer."""

ANSWER_MARGIN = 1 << 16
ROW_MARGIN = 1 << 8

_LANE_KEYS = ("source", "destination", "substream")


class Views(LakeViews):
    """The views of one lake of domains. ``kernel``: the network's, whose chains sign."""

    def __init__(self, opened: OpenedLake, kernel: XdmKernel) -> None:
        super().__init__(opened)
        self.kernel, self.network = kernel, kernel.network
        self.consensus = self.network.names[CONSENSUS_POSITION]

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
        position, foreign = self.opened.position(chain), self._position(counterparty, "counterparty")
        rows = self._table(height, position, "channels")
        rows = rows.filter(rows["foreign"] == foreign)
        names = ("channel", "state", "next_inbox", "next_outbox", "next_response", "count")
        columns = (rows[name][:MOST_CHANNELS].tolist() for name in names)
        shown = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        blocks = self._table(height, CONSENSUS_POSITION, "blocks")
        at = self._proved_at(blocks, position, foreign, height)
        under = None if at < 0 or not int(blocks["leaf_count"][at]) else _block(blocks, at)
        best = int(blocks["number"][-1]) if len(blocks) else None
        place = {"chain": chain, "counterparty": counterparty, "height": height}
        return {**place, "best": best, "under": under, "channels": shown}

    def _proved_at(self, blocks: Frame, position: int, foreign: int, height: int) -> int:
        """Return the row of the consensus block that messages to a chain are proved under now, -1 for none: the newest,
        the newest final one, or the one after that of which is known what was declared."""
        if position == CONSENSUS_POSITION:
            return len(blocks) - 1
        if not self.network.follows or foreign == CONSENSUS_POSITION:
            found = provable_row(blocks, self.kernel.options)
            return -1 if found is None else found + 1
        under = self._table(height, CONSENSUS_POSITION, "declared_under")
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
        position, foreign = self.opened.position(chain), self._position(counterparty, "counterparty")
        rows = self._wanted(height, position, foreign, lanes, most)
        storage = storage_at(self.opened, position, height)
        trie = np.full(len(rows), storage.tries.present[position], dtype=np.int64)
        proofs = prove_storage(storage.tries.tries, trie, message_keys(rows))
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
            rows = self._table(height, position, name)
            rows = rows.filter(rows["destination"] == foreign)
            parts.append(rows.select([*_LANE_KEYS, "index"]).with_columns(tag=tags_of(name, rows)))
        every = concat(parts)
        keep = np.zeros(len(every), dtype=bool)
        channel, response = channel_of(every["substream"]), is_response(every["substream"])
        for number, answers, first in lanes:
            mine = (channel == number) & (response == answers) & (every["index"] >= np.uint64(first))
            mine &= every["index"] - np.uint64(first) < np.uint64(most)
            keep |= mine
        found = every.filter(keep)
        order = np.lexsort((found["index"], found["substream"]))
        return found.take(order[:MOST_MESSAGES])

    def refused(self, height: int, chain: str, carrier: int, transaction: bytes) -> list[dict[str, Any]]:
        """Return what the block of a height refused of a transaction (``LakeViews.refused``)."""
        found = refused_items(self.opened, height, self.opened.position(chain), decode_transaction(transaction))
        return faults_of(found, chain)

    # ---- receipts

    def receipts(self, chain: str, after: int | None) -> dict[str, Any]:
        """Return the receipts of a domain's blocks after that of a number, from the first on without one, in order and
        signed by its operator.

        Raises:
            InvalidInput: there is no such domain here.
        """
        self.known(chain, None)
        position = self.opened.position(chain)
        if position == CONSENSUS_POSITION or not self.network.follows:
            raise InvalidInput(f"chain: {chain}: receipts are made for a consensus chain that another lake runs")
        last = self.height()
        # The receipt of a block is made a height after it.
        first = 1 if after is None else self._height_after(after, last) + 1
        shown: list[dict[str, Any]] = []
        left = MAX_ANSWER_BYTES - ANSWER_MARGIN
        for height in range(first, last + 1):
            for number, receipt in self._receipts_at(height, position):
                left -= ROW_MARGIN + DIGITS * len(receipt)
                if shown and (left < 0 or len(shown) == MAX_ITEMS):
                    return {"chain": chain, "receipts": shown}
                signature = self.kernel.signers.receipt(chain, receipt)
                shown.append({"number": number, "receipt": receipt.hex(), "signature": signature.hex()})
        return {"chain": chain, "receipts": shown}

    def _height_after(self, number: int, last: int) -> int:
        """Return the height after the one at which chains made their block of a number, or the next one that is."""
        low, high = 0, last + 1
        while low < high:
            middle = (low + high) // 2
            if (block_number(self.manifest(middle).tick) if middle else 0) > number:
                high = middle
            else:
                low = middle + 1
        return low

    def _receipts_at(self, height: int, position: int) -> list[tuple[int, bytes]]:
        def mine(batch: pa.RecordBatch) -> Mask:
            mask: Mask = batch["domain"].to_numpy() == position
            return mask

        rows = self.opened.log_rows("receipts", height, CONSENSUS_POSITION, ["domain", "number", "receipt"], mine)
        if rows is None:
            return []
        return list(zip(rows["number"].to_pylist(), rows["receipt"].to_pylist(), strict=True))

    def receipted(self, domain: str) -> dict[str, Any]:
        """Return the last receipt of a domain that the consensus chain, which runs here, has taken in.

        Raises:
            InvalidInput: there is no such domain, or the consensus chain is another lake's.
        """
        height, position = self.known(self.consensus, None), self._domain(domain)
        found = {"number": "receipted", "confirmed": "confirmed", "unbooked": "unbooked"}
        blocks = {name: self._block_of(table, position, height) for name, table in found.items()}
        return {"domain": domain, "height": height, **blocks}

    def _block_of(self, table: str, domain: int, height: int) -> int | None:
        """Return the number of the block that a table of the consensus chain has for the domain at a position."""
        rows = self._table(height, CONSENSUS_POSITION, table)
        numbers = rows["number"][rows["domain"] == domain]
        return int(numbers[0]) if len(numbers) else None

    def _domain(self, domain: str) -> int:
        position = self._position(domain, "domain")
        if position == CONSENSUS_POSITION:
            raise InvalidInput(f"domain: {domain} is the consensus chain")
        return position

    def _position(self, chain: str, key: str) -> int:
        """Return the position of the chain that ``key`` of a request names. Raises ``InvalidInput``."""
        if chain not in self.opened.names:
            raise InvalidInput(f"{key}: {unknown('chain', chain, self.opened.names)}")
        return self.opened.position(chain)

    # ---- the consensus chain

    def blocks(self, after: int | None) -> dict[str, Any]:
        """Return headers of the consensus chain, which runs here, after the block of a number, from the first on
        without one; with its author's signature on the last.

        Raises:
            InvalidInput: the consensus chain is another lake's.
        """
        last = self.known(self.consensus, None)
        first = 0 if after is None else self._height_after(after, last)
        shown: list[dict[str, Any]] = []
        signature = b""
        for height in range(first, last + 1):
            if len(shown) == MAX_BLOCKS:
                break
            for number, parent, root, certification in self._headers_at(height):
                if len(certification) != SIGNED_BYTES:
                    where = self.opened.lake.storage.uri
                    raise LakeError(f"lake: {where}: the header of block {number} of {self.consensus} is not signed")
                extrinsics, signature = certification[:DIGEST_BYTES], certification[DIGEST_BYTES:]
                shown.append(
                    {
                        "parent": parent.hex(),
                        "number": number,
                        "state_root": root.hex(),
                        "extrinsics_root": extrinsics.hex(),
                    }
                )
        return {"chain": self.consensus, "headers": shown, "signature": signature.hex()}

    def _headers_at(self, height: int) -> list[tuple[int, bytes, bytes, bytes]]:
        def mine(batch: pa.RecordBatch) -> Mask:
            mask: Mask = batch["chain"].to_numpy() == CONSENSUS_POSITION
            return mask

        names = ["chain", "number", "parent", "root", "certification"]
        rows = self.opened.log_rows("headers", height, CONSENSUS_POSITION, names, mine)
        if rows is None:
            return []
        return list(zip(*(rows[name].to_pylist() for name in names[1:]), strict=True))

    def anchor(self, under: int, domain: str | None) -> dict[str, Any]:
        """Return the leaf of the block before the one of the number ``under``, proved under the mountain range of that
        one; and the receipt of a domain that is confirmed in its state, with its proof; of another lake's domain also
        the proof of what was declared for it.

        Raises:
            InvalidInput: the consensus chain is another lake's.
            NotFound: it does not remember such a block.
        """
        height = self.known(self.consensus, None)
        ranges = Ranges.of(self._state(height, ("blocks", "range")))
        known = ranges.blocks["number"].tolist()
        if under not in known or known.index(under) == 0:
            allowed = f"blocks {known[1]} to {known[-1]}" if known[1:] else "no block so far"
            raise NotFound(f"under: {under}; {self.consensus} proves under {allowed}")
        at = known.index(under)
        leaf_count = int(ranges.blocks["leaf_count"][at])
        made = ranges.window.prove(int(ranges.blocks["leaf_count"][at - 1]), leaf_count)
        found = {
            "block": known[at - 1],
            "under": under,
            "hash": ranges.blocks["hash"][at].tobytes().hex(),
            "leaf": ranges.leaves[at - 1].as_py().hex(),
            "leaf_index": made.leaf_indices[0],
            "leaf_count": leaf_count,
            "items": [item.hex() for item in made.items],
            "receipt": None,
            "declared": [],
        }
        if domain is None:
            return found
        storage = storage_at(self.opened, CONSENSUS_POSITION, height_of(self.opened, known[at - 1], height))
        position = self._domain(domain)
        if position in self.network.external:
            found["declared"] = [node.hex() for node in storage.prove(declared_key(position))]
        key = receipt_storage_key(position - 1)
        nodes = storage.prove(key)
        try:
            receipt = ExecutionReceipt.decode(read_value(storage.root, nodes, key)[0])
        except ProofError:
            return found  # none is confirmed there
        said = {"number": receipt.domain_block_number, "proof": [node.hex() for node in nodes]}
        return {**found, "receipt": said}

    def followed(self) -> dict[str, Any]:
        """Return what is known here of the consensus chain, which another lake runs.

        Raises:
            InvalidInput: it runs here.
        """
        if not self.network.follows:
            raise InvalidInput(f"chain: {self.consensus} runs here; nothing is followed")
        height = self.height()
        state = self._state(height, ("blocks", "anchor", "anchored", "declared_under"))
        blocks, anchor, under = state["blocks"], state["anchor"], state["declared_under"]
        found = provable_row(blocks, self.kernel.options)
        now = under.filter(np.isin(under["number"], anchor["number"]))
        receipts, declared = (self._names(rows["domain"]) for rows in (state["anchored"], now))
        return {
            "chain": self.consensus,
            "height": height,
            "best": int(blocks["number"][-1]) if len(blocks) else None,
            "final": None if found is None else int(blocks["number"][found + 1]),
            "anchor": int(anchor["number"][0]) if len(anchor) else None,
            "receipts": receipts,
            "declared": declared,
        }

    def _names(self, positions: npt.NDArray[np.uint32]) -> list[str]:
        return [self.opened.names[position] for position in positions.tolist()]

    def _state(self, height: int, names: tuple[str, ...]) -> State:
        return state_of_frames({name: self._table(height, CONSENSUS_POSITION, name) for name in names}, {})

    def _table(self, height: int, position: int, table: str) -> Frame:
        return self.opened.state_rows(self.manifest(height), table, position, self.network.host_of)


def _block(blocks: Frame, at: int) -> dict[str, Any]:
    return {
        "number": int(blocks["number"][at]),
        "hash": blocks["hash"][at].tobytes().hex(),
        "leaf_count": int(blocks["leaf_count"][at]),
        "root": blocks["mmr_root"][at].tobytes().hex(),
    }
