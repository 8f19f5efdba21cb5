"""Views of receipts, consensus blocks and proofs under them (XDM reference 2.4, 3.10, X-5).

A lake that follows the consensus chain reports its knowledge of it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.substrate.proof import read_value
from causeway_proofs.xdm.envelope import ExecutionReceipt, receipt_storage_key

from causeway.core.frame import Frame
from causeway.core.text import suggest_known
from causeway.network.opened_lake import Mask, OpenedLake
from causeway.protocols.shared.limits import DIGITS, MAX_ANSWER_BYTES, MAX_ITEMS
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus.chain import ConsensusRanges
from causeway.protocols.xdm.consensus.followed import provable_row
from causeway.protocols.xdm.context import block_number
from causeway.protocols.xdm.kernel import XdmKernel
from causeway.protocols.xdm.operators import SIGNED_BYTES
from causeway.protocols.xdm.state import State, state_of_frames
from causeway.protocols.xdm.transactions import MAX_BLOCKS
from causeway.protocols.xdm.value.books import declared_key
from causeway.proving.xdm.messages import find_height, read_storage
from causeway.service.http.requests import NotFound
from causeway.service.node.endpoint import LakeViews
from causeway.storage.lake import LakeError

ANSWER_MARGIN = 1 << 16
ROW_MARGIN = 1 << 8

LONGEST_SCAN = 0.25
"""Seconds after which an answer with headers or receipts is returned in part.

Each is in a file of its own height, and few threads build answers.
"""


class ConsensusViews(LakeViews):
    """Views of receipts and of the consensus chain; the chains of ``kernel`` sign."""

    def __init__(self, opened: OpenedLake, kernel: XdmKernel) -> None:
        super().__init__(opened)
        self.kernel, self.network = kernel, kernel.network
        self.consensus = self.network.names[CONSENSUS_POSITION]

    # ---- receipts

    def receipts(self, chain: str, after: int | None) -> dict[str, Any]:
        """Return signed receipts of a domain in order of its blocks.

        Args:
            chain: Name of the domain.
            after: Number of the block before the first one; None to start with the first.

        Raises:
            InvalidInput: This lake has no such domain, or runs the consensus chain.
        """
        self.known(chain, None)
        position = self.opened.position(chain)
        if position == CONSENSUS_POSITION or not self.network.follows:
            raise InvalidInput(f"chain: {chain}: receipts are made for a consensus chain that another lake runs")
        last = self.height()
        # A receipt is made one height after its block.
        first = 1 if after is None else self._height_after(after, last) + 1
        listed: list[dict[str, Any]] = []
        remaining = MAX_ANSWER_BYTES - ANSWER_MARGIN
        newest, known = self._newest(last, position), -1 if after is None else after
        end = time.monotonic() + LONGEST_SCAN
        for height in range(first, last + 1):
            # A halted chain makes no receipts.
            if known >= newest or (listed and time.monotonic() > end):
                break
            for number, receipt in self._receipts_at(height, position):
                remaining -= ROW_MARGIN + DIGITS * len(receipt)
                if listed and (remaining < 0 or len(listed) == MAX_ITEMS):
                    return {"chain": chain, "receipts": listed}
                signature, known = self.kernel.signers.receipt(chain, receipt), number
                listed.append({"number": number, "receipt": receipt.hex(), "signature": signature.hex()})
        return {"chain": chain, "receipts": listed}

    def _newest(self, height: int, position: int) -> int:
        """Return the number of a chain's last block at a height."""
        return int(self.table(height, position, "tips")["number"][0])

    def _height_after(self, number: int, last: int) -> int:
        """Return the first height whose block number is above ``number``."""
        low, high = 0, last + 1
        while low < high:
            middle = (low + high) // 2
            if (block_number(self.manifest(middle).tick) if middle else 0) > number:
                high = middle
            else:
                low = middle + 1
        return low

    def _receipts_at(self, height: int, position: int) -> list[tuple[int, bytes]]:
        def select(batch: pa.RecordBatch) -> Mask:
            mask: Mask = batch["domain"].to_numpy() == position
            return mask

        rows = self.opened.log_rows("receipts", height, CONSENSUS_POSITION, ["domain", "number", "receipt"], select)
        if rows is None:
            return []
        return list(zip(rows["number"].to_pylist(), rows["receipt"].to_pylist(), strict=True))

    def receipted(self, domain: str) -> dict[str, Any]:
        """Return the last received receipt of a domain; the consensus chain must run here.

        Args:
            domain: Name of the domain.

        Raises:
            InvalidInput: There is no such domain, or another lake runs the consensus chain.
        """
        height, position = self.known(self.consensus, None), self._domain(domain)
        found = {"number": "receipted", "confirmed": "confirmed", "unbooked": "unbooked"}
        blocks = {name: self._block_of(table, position, height) for name, table in found.items()}
        return {"domain": domain, "height": height, **blocks}

    def _block_of(self, table: str, domain: int, height: int) -> int | None:
        """Return a domain's block number in a table of the consensus chain."""
        rows = self.table(height, CONSENSUS_POSITION, table)
        numbers = rows["number"][rows["domain"] == domain]
        return int(numbers[0]) if len(numbers) else None

    def _domain(self, domain: str) -> int:
        position = self.position_of(domain, "domain")
        if position == CONSENSUS_POSITION:
            raise InvalidInput(f"domain: {domain} is the consensus chain")
        return position

    def position_of(self, chain: str, key: str) -> int:
        """Return the position of a chain.

        Args:
            chain: Name of the chain.
            key: Key of the request, for the error.

        Raises:
            InvalidInput: There is no such chain.
        """
        if chain not in self.opened.names:
            raise InvalidInput(f"{key}: {suggest_known('chain', chain, self.opened.names)}")
        return self.opened.position(chain)

    # ---- the consensus chain

    def blocks(self, after: int | None) -> dict[str, Any]:
        """Return headers of the consensus chain, with its author's signature on the last.

        Args:
            after: Number of the block before the first one; None to start with the first.

        Raises:
            InvalidInput: Another lake runs the consensus chain.
        """
        last = self.known(self.consensus, None)
        first = 0 if after is None else self._height_after(after, last)
        listed: list[dict[str, Any]] = []
        signature = b""
        newest, known = self._newest(last, CONSENSUS_POSITION), -1 if after is None else after
        end = time.monotonic() + LONGEST_SCAN
        for height in range(first, last + 1):
            if len(listed) == MAX_BLOCKS or known >= newest or (listed and time.monotonic() > end):
                break
            for number, parent, root, certification in self._headers_at(height):
                if len(certification) != SIGNED_BYTES:
                    uri = self.opened.lake.storage.uri
                    raise LakeError(f"lake: {uri}: the header of block {number} of {self.consensus} is not signed")
                extrinsics, signature = certification[:DIGEST_BYTES], certification[DIGEST_BYTES:]
                known = number
                listed.append(
                    {
                        "parent": parent.hex(),
                        "number": number,
                        "state_root": root.hex(),
                        "extrinsics_root": extrinsics.hex(),
                    }
                )
        return {"chain": self.consensus, "headers": listed, "signature": signature.hex()}

    def _headers_at(self, height: int) -> list[tuple[int, bytes, bytes, bytes]]:
        def select(batch: pa.RecordBatch) -> Mask:
            mask: Mask = batch["chain"].to_numpy() == CONSENSUS_POSITION
            return mask

        names = ["chain", "number", "parent", "root", "certification"]
        rows = self.opened.log_rows("headers", height, CONSENSUS_POSITION, names, select)
        if rows is None:
            return []
        return list(zip(*(rows[name].to_pylist() for name in names[1:]), strict=True))

    def anchor(self, under: int, domain: str | None) -> dict[str, Any]:
        """Return the MMR leaf of the block before ``under``, proved under the range of ``under``.

        With a domain, also return its confirmed receipt in that block's state with its proof; for another lake's domain
        also the proof of its declared value.

        Args:
            under: Number of the block.
            domain: Name of the domain.

        Raises:
            InvalidInput: Another lake runs the consensus chain.
            NotFound: The chain does not remember such a block.
        """
        height = self.known(self.consensus, None)
        ranges = ConsensusRanges.of(self._state(height, ("blocks", "range")))
        known = ranges.blocks["number"].tolist()
        if under not in known or known.index(under) == 0:
            allowed = f"blocks {known[1]} to {known[-1]}" if known[1:] else "no block so far"
            raise NotFound(f"under: {under}; {self.consensus} proves under {allowed}")
        at = known.index(under)
        leaf_count = int(ranges.blocks["leaf_count"][at])
        range_proof = ranges.window.prove(int(ranges.blocks["leaf_count"][at - 1]), leaf_count)
        found = {
            "block": known[at - 1],
            "under": under,
            "hash": ranges.blocks["hash"][at].tobytes().hex(),
            "leaf": ranges.leaves[at - 1].as_py().hex(),
            "leaf_index": range_proof.leaf_indices[0],
            "leaf_count": leaf_count,
            "items": [item.hex() for item in range_proof.items],
            "receipt": None,
            "declared": [],
        }
        if domain is None:
            return found
        storage = read_storage(self.opened, CONSENSUS_POSITION, find_height(self.opened, known[at - 1], height))
        position = self._domain(domain)
        if position in self.network.external:
            found["declared"] = [node.hex() for node in storage.prove(declared_key(position))]
        key = receipt_storage_key(position - 1)
        nodes = storage.prove(key)
        try:
            receipt = ExecutionReceipt.decode(read_value(storage.root, nodes, key)[0])
        except ProofError:
            return found  # no receipt is confirmed there
        receipt_answer = {"number": receipt.domain_block_number, "proof": [node.hex() for node in nodes]}
        return {**found, "receipt": receipt_answer}

    def followed(self) -> dict[str, Any]:
        """Return the known state of another lake's consensus chain.

        Raises:
            InvalidInput: The consensus chain runs here.
        """
        if not self.network.follows:
            raise InvalidInput(f"chain: {self.consensus} runs here; there is no remote chain to follow")
        height = self.height()
        state = self._state(height, ("blocks", "anchored", "declared_under"))
        blocks, anchored, under = state["blocks"], state["anchored"], state["declared_under"]
        found = provable_row(blocks, self.kernel.options)
        return {
            "chain": self.consensus,
            "height": height,
            "best": int(blocks["number"][-1]) if len(blocks) else None,
            "final": None if found is None else int(blocks["number"][found + 1]),
            "receipts": self._blocks_of(anchored["domain"], anchored["block"]),
            "declared": self._blocks_of(under["domain"], under["number"]),
        }

    def _blocks_of(self, positions: npt.NDArray[np.uint32], numbers: npt.NDArray[np.uint64]) -> list[dict[str, Any]]:
        """Return domains by name, each with a block number."""
        rows = zip(positions.tolist(), numbers.tolist(), strict=True)
        return [{"domain": self.opened.names[position], "block": number} for position, number in rows]

    def _state(self, height: int, names: tuple[str, ...]) -> State:
        return state_of_frames({name: self.table(height, CONSENSUS_POSITION, name) for name in names}, {})

    def table(self, height: int, position: int, table: str) -> Frame:
        """Return the rows of a state table of the chain at a position."""
        return self.opened.state_rows(self.manifest(height), table, position, self.network.host_of)
