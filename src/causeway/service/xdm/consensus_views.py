"""What a served lake of domains says of receipts, and of the consensus chain: its blocks, and what is proved under them
(XDM reference 2.4, 3.10, X-5). A lake that follows it says what it knows.
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
"""Seconds after which headers and receipts are answered in part; the next request asks for the rest. Each lies in a
file of its own height, and few answers are made at a time."""


class ConsensusViews(LakeViews):
    """What one lake of domains says of receipts and of the consensus chain. ``kernel``: the network's, whose chains
    sign."""

    def __init__(self, opened: OpenedLake, kernel: XdmKernel) -> None:
        super().__init__(opened)
        self.kernel, self.network = kernel, kernel.network
        self.consensus = self.network.names[CONSENSUS_POSITION]

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
        newest, known = self._newest(last, position), -1 if after is None else after
        end = time.monotonic() + LONGEST_SCAN
        for height in range(first, last + 1):
            # A chain that is halted makes none, for however long.
            if known >= newest or (shown and time.monotonic() > end):
                break
            for number, receipt in self._receipts_at(height, position):
                left -= ROW_MARGIN + DIGITS * len(receipt)
                if shown and (left < 0 or len(shown) == MAX_ITEMS):
                    return {"chain": chain, "receipts": shown}
                signature, known = self.kernel.signers.receipt(chain, receipt), number
                shown.append({"number": number, "receipt": receipt.hex(), "signature": signature.hex()})
        return {"chain": chain, "receipts": shown}

    def _newest(self, height: int, position: int) -> int:
        """Return the number of a chain's last block at a height."""
        return int(self.table(height, position, "tips")["number"][0])

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
        rows = self.table(height, CONSENSUS_POSITION, table)
        numbers = rows["number"][rows["domain"] == domain]
        return int(numbers[0]) if len(numbers) else None

    def _domain(self, domain: str) -> int:
        position = self.position_of(domain, "domain")
        if position == CONSENSUS_POSITION:
            raise InvalidInput(f"domain: {domain} is the consensus chain")
        return position

    def position_of(self, chain: str, key: str) -> int:
        """Return the position of the chain that ``key`` of a request names. Raises ``InvalidInput``."""
        if chain not in self.opened.names:
            raise InvalidInput(f"{key}: {suggest_known('chain', chain, self.opened.names)}")
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
        newest, known = self._newest(last, CONSENSUS_POSITION), -1 if after is None else after
        end = time.monotonic() + LONGEST_SCAN
        for height in range(first, last + 1):
            if len(shown) == MAX_BLOCKS or known >= newest or (shown and time.monotonic() > end):
                break
            for number, parent, root, certification in self._headers_at(height):
                if len(certification) != SIGNED_BYTES:
                    where = self.opened.lake.storage.uri
                    raise LakeError(f"lake: {where}: the header of block {number} of {self.consensus} is not signed")
                extrinsics, signature = certification[:DIGEST_BYTES], certification[DIGEST_BYTES:]
                known = number
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
        ranges = ConsensusRanges.of(self._state(height, ("blocks", "range")))
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
        storage = read_storage(self.opened, CONSENSUS_POSITION, find_height(self.opened, known[at - 1], height))
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
        """Return domains by name, each with the number of a block."""
        rows = zip(positions.tolist(), numbers.tolist(), strict=True)
        return [{"domain": self.opened.names[position], "block": number} for position, number in rows]

    def _state(self, height: int, names: tuple[str, ...]) -> State:
        return state_of_frames({name: self.table(height, CONSENSUS_POSITION, name) for name in names}, {})

    def table(self, height: int, position: int, table: str) -> Frame:
        """Return the rows of a state table of the chain at a position."""
        return self.opened.state_rows(self.manifest(height), table, position, self.network.host_of)
