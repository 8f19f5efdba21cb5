"""A domain whose operator means harm: it says in its receipts what it likes, and has any storage that it likes.

Three forms. ``Undeclared`` is a domain that executes its blocks as they are, and whose receipts leave out value that
went to others. ``HostileDomain`` goes its own way: each of its receipts says what the test wants, of a storage that the
test made, and the test brings what is proved under it. ``Stranger`` is one of those that a third lake runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from causeway_proofs.substrate import Trie, prove_storage
from causeway_proofs.substrate.storage_keys import blake2_256
from causeway_proofs.xdm.envelope import (
    INBOX_RESPONSES,
    OUTBOX,
    ConsensusChainMmrProof,
    CrossDomainMessage,
    EnvelopeProof,
    ExecutionReceipt,
    message_storage_key,
)
from causeway_proofs.xdm.messages import ChainId, Message, WeightTag

from causeway.protocols.xdm.operators import ChainSigners
from causeway.protocols.xdm.transactions import Receipts, RelayedMessages, SignedReceipt, encode_transaction
from causeway.service.xdm.relay_state import ReadReceipts, Step
from tests.support.common.domain_lakes import HOME, DomainLakes

DRAWN = ChainSigners(5, needed=True)
"""The keys of the scenario's seed: those of the chains themselves."""

Transfers = dict[str, list[dict[str, Any]]]


class Undeclared:
    """What a relay process reads of a domain whose operator signs receipts that say something else of value
    (``DomainLakes.around``). ``says``: what they say instead of what is true."""

    def __init__(self, chain: str, says: Callable[[Transfers], Transfers]) -> None:
        self._chain, self._says = chain, says
        self._hashes: dict[int | None, bytes] = {None: bytes(32)}

    def __call__(self, step: Step, answer: Any) -> Any:
        """Return what the lake answers."""
        if not isinstance(step, ReadReceipts) or step.chain != self._chain:
            return answer
        parent, changed = self._hashes[step.after], []
        for one in answer.receipts:
            honest = ExecutionReceipt.decode(one.receipt)
            fields = {
                **honest.fields,
                "parent_domain_block_receipt_hash": parent,
                "transfers": self._says(honest.fields["transfers"]),
            }
            data = replace(honest, fields=fields).encode()
            parent = self._hashes[one.number] = blake2_256(data)
            said = {"receipt": data, "signature": DRAWN.receipt(self._chain, data)}
            changed.append(one.model_copy(update=said))
        return answer.model_copy(update={"receipts": changed})


class HostileDomain:
    """The domain ``chain`` of the lake "far", run by the test from here on; the rest of both lakes goes on."""

    def __init__(self, lakes: DomainLakes, chain: str) -> None:
        self.lakes, self.chain = lakes, chain
        self.number = lakes.ends.place.domain(chain)
        self.entries: dict[bytes, bytes] = {}
        self.trie = Trie()
        self._last: ExecutionReceipt | None = None

    def holds(self, message: Message) -> None:
        """Put a message into the storage."""
        item = INBOX_RESPONSES if message.is_response else OUTBOX
        key = message_storage_key(item, message.dst_chain_id, message.channel_id, message.nonce)
        self.entries[key] = message.encode()

    def around(self, count: int = 1) -> None:
        """Let the rest of both lakes go on: the relay process brings all but what is of this domain."""
        mine = (f"receipts of {self.chain}", f"{self.chain}>")
        for _ in range(count):
            for way in self.lakes.ends.directions:
                if not str(way).startswith(mine):
                    self.lakes.relay(way)
            self.lakes.produce()

    def _next(self, known: int | None) -> ExecutionReceipt:
        """Return the receipt of a block after the last one that is known, as a domain that keeps the rules makes it."""
        views = self.lakes.views
        while not (rows := views["far"].receipts(self.chain, known)["receipts"]):
            self.around()
        return ExecutionReceipt.decode(bytes.fromhex(rows[0]["receipt"]))

    def declare(self, target: str = "left", **transfers: Mapping[str, int]) -> None:
        """Sign the receipt of a block after the last one, of the storage as it is, that says this of value, amounts by
        chain; and wait until it is confirmed and a proof to ``target`` can be made under it."""
        lakes, views = self.lakes, self.lakes.views
        own = self._next(views["near"].receipted(self.chain)["number"])
        self.trie = Trie.build(list(self.entries), list(self.entries.values()))
        said = {name: _listed(transfers.get(name, {})) for name in own.fields["transfers"]}
        fields = {**own.fields, "final_state_root": self.trie.root, "transfers": said}
        if self._last is not None:
            fields["parent_domain_block_receipt_hash"] = blake2_256(self._last.encode())
        self._last = replace(own, fields=fields)
        data = self._last.encode()
        signed = SignedReceipt(self.number, data, DRAWN.receipt(self.chain, data))
        lakes.submit("near", "main", encode_transaction(Receipts((signed,))))
        lakes.produce()
        assert views["near"].receipted(self.chain)["number"] == fields["domain_block_number"]
        for _ in range(20):
            self.around()
            if (self._receipt(target) or {}).get("number") == fields["domain_block_number"]:
                return
        raise AssertionError("the receipt is not confirmed")

    def _anchor(self, target: str) -> dict[str, Any] | None:
        under = self.lakes.views[HOME[target]].channels(target, self.chain, None)["under"]
        return None if under is None else self.lakes.views["near"].anchor(under["number"], self.chain)

    def _receipt(self, target: str) -> dict[str, Any] | None:
        anchor = self._anchor(target)
        return None if anchor is None else anchor["receipt"]

    def deliver(self, *messages: Message) -> dict[str, int]:
        """Bring messages to the chain that they are for; return why what was refused there."""
        (target,) = {_name(message.dst_chain_id) for message in messages}
        lake = HOME[target]
        envelopes = tuple(self._envelope(target, message).encode() for message in messages)
        before = self.lakes.refusals(lake)
        carried = RelayedMessages(envelopes, tuple(message.is_response for message in messages))
        self.lakes.submit(lake, target, encode_transaction(carried))
        self.lakes.nodes[lake].produce()
        after = self.lakes.refusals(lake)
        return {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}

    def _envelope(self, target: str, message: Message) -> CrossDomainMessage:
        anchor = self._anchor(target)
        assert anchor is not None
        return self.envelope_under(anchor, message)

    def envelope_under(self, anchor: dict[str, Any], message: Message) -> CrossDomainMessage:
        """Return the envelope of a message that is proved under what a lake answers of a consensus block."""
        item = INBOX_RESPONSES if message.is_response else OUTBOX
        key = message_storage_key(item, message.dst_chain_id, message.channel_id, message.nonce)
        nodes = tuple(sorted(set(prove_storage(self.trie.tries, self.trie.number, [key]).nodes_of(0))))
        mmr = ConsensusChainMmrProof(
            anchor["under"],
            bytes.fromhex(anchor["hash"]),
            bytes.fromhex(anchor["leaf"]),
            (anchor["leaf_index"],),
            anchor["leaf_count"],
            tuple(bytes.fromhex(item) for item in anchor["items"]),
        )
        receipt = tuple(bytes.fromhex(node) for node in anchor["receipt"]["proof"])
        ends = message.src_chain_id, message.dst_chain_id
        tag = WeightTag("EndpointRequest", 2)
        return CrossDomainMessage(*ends, message.channel_id, message.nonce, EnvelopeProof(mmr, nodes, receipt), tag)


FOURTH = """
[[chains]]
name = "fourth"
external = true
[[programs]]
name = "dave"
chain = "fourth"
program = "caller"
balance = 100_000
"""
"""What both lakes' scenarios say of the domain of a third lake."""

CHAINS = [*HOME, "fourth"]
DAVE = 7
"""The number of the stranger's program."""


class Stranger(HostileDomain):
    """The domain ``fourth`` of ``FOURTH``, which neither lake runs."""

    def __init__(self, lakes: DomainLakes) -> None:
        super().__init__(lakes, "fourth")

    def _next(self, known: int | None) -> ExecutionReceipt:
        (first, *_) = self.lakes.views["far"].receipts("right", None)["receipts"]
        like = ExecutionReceipt.decode(bytes.fromhex(first["receipt"]))
        return replace(like, fields={**like.fields, "domain_block_number": 1 if known is None else known + 1})


def id_of(chain: str) -> ChainId:
    """Return a chain of the tests as messages name it."""
    return ChainId(None if chain == "main" else CHAINS.index(chain) - 1)


def _name(chain: ChainId) -> str:
    return CHAINS[0 if chain.domain is None else chain.domain + 1]


def _listed(amounts: Mapping[str, int]) -> list[dict[str, Any]]:
    ids = {chain: id_of(chain).domain for chain in amounts}
    return [
        {"chain_id": "Consensus" if ids[chain] is None else {"Domain": ids[chain]}, "amount": amount}
        for chain, amount in amounts.items()
    ]
