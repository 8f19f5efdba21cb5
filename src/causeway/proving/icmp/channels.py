"""``causeway prove`` for parachains with HRMP channels (ICMP reference X-6).

    relay = channel_relay(open_lake("my-lake"), height=30)
    relay.channel(1, 2), relay.messages(1, 2)    # a channel's row and its content
    relay.document([("HrmpChannels", (1, 2))])

The state is read from the lake's files and must have the root of the relay block's header. Messages come
with the head before them, and only if they lead to the channel's head in that state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from causeway_proofs.errors import InvalidInput
from causeway_proofs.substrate import QueuedMessage, Trie, chain_heads, prove
from causeway_proofs.substrate.parachains import FIRST_HEAD

from causeway.core.frame import Frame
from causeway.network.opened_lake import OpenedLake
from causeway.protocols.hrmp.commitment import item_key, item_pallet, map_key, storage_changes
from causeway.protocols.hrmp.pages import read_pages
from causeway.protocols.hrmp.state import HRMP_TABLES
from causeway.protocols.relay_chain.options import RELAY_POSITION
from causeway.protocols.shared.state_tables import TableState
from causeway.proving.icmp.messages import HEIGHTS_TRIED, header_root, heights_sent, program_free_rows
from causeway.proving.prover import Document, ProofResult
from causeway.storage.lake import LakeError

COMMITTED = ("blocks", "paras", "requests", "channels", "contents", "digests")
"""Relay chain tables under the root, and its block."""


@dataclass(frozen=True, eq=False)
class ChannelRelay:
    """Relay chain after a block.

    Attributes:
        height: Height of the lake.
        tables: Its tables.
        entries: Entries of its state by key.
        trie: Trie of the entries.
    """

    height: int
    tables: TableState
    entries: Mapping[bytes, bytes]
    trie: Trie

    @property
    def number(self) -> int:
        """Number of the relay block."""
        return int(self.tables["blocks"]["number"][-1])

    def channel(self, sender: int, recipient: int) -> Frame:
        """Return the row of a channel; no row if there is no channel."""
        return _rows_of_pair(self.tables["channels"], sender, recipient)

    def contents(self, sender: int, recipient: int) -> Frame:
        """Return the content of a channel (``CONTENTS_SCHEMA``), in order."""
        return _rows_of_pair(self.tables["contents"], sender, recipient)

    def messages(self, sender: int, recipient: int) -> list[QueuedMessage]:
        """Return the content of a channel as hashed by its head."""
        rows = self.contents(sender, recipient)
        return [QueuedMessage(n, d) for n, d in zip(rows["sent_at"].tolist(), rows["data"].to_pylist(), strict=True)]

    def trust(self) -> Document:
        """Build the trust document of the state root."""
        return {"kind": "root", "root": self.trie.root.hex()}

    def document(self, items: Sequence[tuple[str, tuple[int, ...]]]) -> Document:
        """Build the proof (``substrate_storage``) of the values, or the absence, of items.

        Args:
            items: Name and key of each storage item.
        """
        keys = [item_key(item, *key) for item, key in items]
        values = [self.entries.get(key) for key in keys]
        hashed = [[{"hasher": "Twox64Concat", "key": map_key(*key).hex()}] for _, key in items]
        return {
            "kind": "substrate_storage",
            "state_version": 1,
            "entries": [
                {
                    "storage": {"pallet": item_pallet(item), "item": item, "keys": parts},
                    "value": None if value is None else value.hex(),
                }
                for (item, _), parts, value in zip(items, hashed, values, strict=True)
            ],
            "proof": [node.hex() for node in prove(self.trie, keys)],
        }


def channel_relay(opened: OpenedLake, height: int | None = None) -> ChannelRelay:
    """Return the relay chain after the block of a height.

    Args:
        opened: The lake.
        height: A committed height, by default the last.

    Raises:
        LakeError: The height is not committed, its state was removed, or it contradicts the header.
    """
    manifest = opened.manifest(height)
    rows = {name: program_free_rows(opened, manifest, name, RELAY_POSITION) for name in COMMITTED}
    tables = TableState.from_frames(rows, HRMP_TABLES, {})
    entries = {key: value for key, value in storage_changes(None, tables).items() if value is not None}
    found = ChannelRelay(manifest.height, tables, entries, Trie.build([*entries], [*entries.values()]))
    own = tables["blocks"]["hash"][-1].tobytes()
    if found.trie.root != header_root(opened, manifest.height, found.number, own):
        uri, root = opened.lake.storage.uri, found.trie.root.hex()
        raise LakeError(f"lake: {uri}: the state after relay block {found.number} has the root {root}; its header not")
    return found


def _rows_of_pair(rows: Frame, sender: int, recipient: int) -> Frame:
    return rows.filter((rows["sender"] == np.uint32(sender)) & (rows["recipient"] == np.uint32(recipient)))


def channel_start_head(opened: OpenedLake, relay: ChannelRelay, sender: int, recipient: int) -> bytes:
    """Return the head of a channel before its content, i.e. that of the consumed messages.

    Args:
        opened: The lake.
        relay: State of the relay chain.
        sender: Position of the sender.
        recipient: Position of the recipient.

    Raises:
        LakeError: No head of the recipient leads over the content to the head of the relay chain.
    """
    messages, head = relay.messages(sender, recipient), relay.channel(sender, recipient)["mqc_head"][0].tobytes()
    # The recipient's newest block may have consumed what the relay chain still holds.
    for height in range(relay.height, max(relay.height - HEIGHTS_TRIED, -1), -1):
        ends = program_free_rows(opened, opened.manifest(height), "ends", recipient)
        known = ends["head"][ends["foreign"] == np.uint32(sender)]
        before = known[0].tobytes() if len(known) else FIRST_HEAD
        if [before, *chain_heads(messages, before)][-1] == head:
            return bytes(before)
    raise LakeError(
        f"lake: {opened.lake.storage.uri}: nothing that {opened.names[recipient]} has had as the head of its channel "
        f"from {opened.names[sender]} leads to {head.hex()}"
    )


def prove_channels(opened: OpenedLake, height: int | None, given: Mapping[str, Any], what: str) -> ProofResult:
    """Build the selected proof from a lake with HRMP channels.

    Args:
        opened: The lake.
        height: A committed height; None for the default of ``prove_channel_contents``.
        given: Values of the options.
        what: Name of the selected option.

    Raises:
        InvalidInput: There is no such channel, parachain or message.
        LakeError: The lake is corrupted; see ``channel_relay`` and ``channel_start_head``.
    """
    if given["leaf"] is not None:
        raise InvalidInput('--leaf: with channels = "hrmp" the relay chain does not fork; leave it out')
    if what in ("watermark", "ingress") and given["queue_out"] is not None:
        raise InvalidInput(f"--queue-out: {what} is of one chain; it goes with --channel and --index")
    proven = prove_channel_contents(opened, what, given["chain"], given["counterparty"], given["index"], height)
    relay, document = proven.relay, proven.document
    size, count = sum(len(node) // 2 for node in document["proof"]), len(document["entries"])
    lines = [
        *proven.lines,
        f"  proof     storage of {count:,} entries, {len(document['proof']):,} nodes, {size:,} bytes",
        f"  root      {relay.trie.root.hex()} of the state after relay block {relay.number}",
    ]
    beside = {} if given["queue_out"] is None or proven.queue is None else {"queue_out": proven.queue}
    return ProofResult(document, lines, beside | ({} if given["trust_out"] is None else {"trust_out": relay.trust()}))


@dataclass(frozen=True)
class ProvenChannels:
    """Proof under the state of ``relay``.

    Attributes:
        relay: State of the relay chain.
        document: The proof.
        lines: Readable summary.
        queue: Messages in the channel (``hrmp_queue``), if a channel is proved.
    """

    relay: ChannelRelay
    document: Document
    lines: list[str]
    queue: Document | None = None


Relays = Callable[[int], ChannelRelay]
"""Source of the relay chain after a height."""


def prove_channel_contents(
    opened: OpenedLake,
    what: str,
    chain: str,
    counterparty: str | None = None,
    index: int | None = None,
    height: int | None = None,
    relays: Relays | None = None,
) -> ProvenChannels:
    """Prove a part of the relay chain's channel state.

    Args:
        opened: The lake.
        what: ``watermark``, ``ingress`` or ``channels`` (all from and to the chain) of a parachain,
            ``channel`` to its counterparty with its content, or ``index`` for a message in it.
        chain: Name of the parachain.
        counterparty: Name of the other parachain.
        index: Number of the message.
        height: A committed height; by default the last, for a message the first with the message.
        relays: Source of the relay chain; by default the lake.

    Raises:
        InvalidInput: There is no such channel, parachain or message.
        LakeError: The lake is corrupted; see ``channel_relay`` and ``channel_start_head``.
    """
    relays, para = relays or partial(channel_relay, opened), opened.position(chain)
    to = None if counterparty is None else opened.position(counterparty)
    for key, name, position in (("chain", chain, para), ("counterparty", counterparty, to)):
        if to is not None and position == RELAY_POSITION:
            raise InvalidInput(f"{key}: {name}: is the relay chain; channels are between parachains")
    if para == to:
        raise InvalidInput(f"counterparty: {chain}: messages of a chain to itself are in no channel")
    queue = None
    if what == "index":
        assert to is not None and index is not None
        relay = _relay_with_message(opened, relays, (para, to), (chain, str(counterparty)), index, height)
    else:
        relay = relays(opened.last_height() if height is None else height)
    if to is not None:
        items, lines, queue = _channel_items(opened, relay, (para, to), (chain, str(counterparty)), index)
    else:
        items, lines = _chain_items(opened, relay, para, chain, what)
    return ProvenChannels(relay, relay.document(items), lines, queue)


Items = list[tuple[str, tuple[int, ...]]]


def _chain_items(
    opened: OpenedLake, relay: ChannelRelay, para: int, chain: str, selection: str
) -> tuple[Items, list[str]]:
    """Return the storage items of a watermark, of pending ingress, or of all channels."""
    paras = relay.tables["paras"]
    rows = paras.filter((paras["para"] == np.uint32(para)) & (paras["active"] == 1))
    if len(rows) == 0:
        raise InvalidInput(f"chain: {chain}: is no parachain that relay block {relay.number} knows as active")
    channels = relay.tables["channels"]
    if selection == "channels":
        mine = channels.filter((channels["sender"] == np.uint32(para)) | (channels["recipient"] == np.uint32(para)))
        pairs = [*zip(mine["sender"].tolist(), mine["recipient"].tolist(), strict=True)]
        listed: Items = [("HrmpEgressChannelsIndex", (para,)), ("HrmpIngressChannelsIndex", (para,))]
        return [*listed, *(("HrmpChannels", pair) for pair in pairs)], []
    items: Items = [("HrmpWatermarks", (para,))]
    lines = [f"{chain} at relay block {relay.number}: watermark {int(rows['watermark'][0])}"]
    if selection == "ingress":
        senders = channels["sender"][channels["recipient"] == np.uint32(para)].tolist()
        items += [("HrmpIngressChannelsIndex", (para,)), ("HrmpChannelDigests", (para,))]
        for sender in senders:
            items += [("HrmpChannels", (sender, para)), ("HrmpChannelContents", (sender, para))]
            count = len(relay.contents(sender, para))
            if count:
                lines.append(f"  channel   from {opened.names[sender]}: {count:,} messages")
        lines[0] += f"; {len(senders):,} channels to it"
    return items, lines


def _channel_items(
    opened: OpenedLake, relay: ChannelRelay, pair: tuple[int, int], names: tuple[str, str], index: int | None
) -> tuple[Items, list[str], Document]:
    """Return the entries of a channel, and its messages as a document (``hrmp_queue``)."""
    sender, recipient = pair
    if len(relay.channel(sender, recipient)) == 0:
        raise InvalidInput(
            f"counterparty: {names[1]}: no channel from {names[0]} is open after relay block {relay.number}"
        )
    start_head, messages = channel_start_head(opened, relay, sender, recipient), relay.messages(sender, recipient)
    head = [start_head, *chain_heads(messages, start_head)][-1]
    queue = {
        "kind": "hrmp_queue",
        "trust": {"kind": "root", "root": head.hex()},
        "previous": start_head.hex(),
        "messages": [{"sent_at": message.sent_at, "data": message.data.hex()} for message in messages],
    }
    size = sum(len(message.data) for message in messages)
    inside = f"{len(messages):,} messages, {size:,} bytes"
    lines = [f"channel from {names[0]} to {names[1]} at relay block {relay.number}: {inside}"]
    if index is not None:
        opened_pages = read_pages(relay.contents(sender, recipient))
        (at,) = np.flatnonzero(opened_pages.indices == np.uint64(index))
        page = int(opened_pages.page[at])
        lines = [f"message {index} from {names[0]} to {names[1]}, sent at relay block {messages[page].sent_at}"]
        lines.append(f"  page      {page + 1} of the {len(messages):,} messages in the channel")
    lines.append(f"  head      {head.hex()}, before its contents {start_head.hex()}")
    return [("HrmpChannels", (sender, recipient)), ("HrmpChannelContents", (sender, recipient))], lines, queue


def _relay_with_message(
    opened: OpenedLake,
    relays: Relays,
    pair: tuple[int, int],
    names: tuple[str, str],
    index: int,
    height: int | None,
) -> ChannelRelay:
    """Return the first state with a message in its channel, or the one after ``height``."""
    sender, recipient = pair

    def has_message(rows: Frame) -> bool:
        return bool((read_pages(_rows_of_pair(rows, sender, recipient)).indices == np.uint64(index)).any())

    if height is not None:
        relay = relays(height)
        if has_message(relay.tables["contents"]):
            return relay
    else:
        last = opened.last_height()
        sent = max(heights_sent(opened, sender, recipient, index), default=last + 1)
        for at in range(sent, min(last, sent + HEIGHTS_TRIED) + 1):
            if has_message(program_free_rows(opened, opened.manifest(at), "contents", RELAY_POSITION)):
                return relays(at)
    scope = "at any height" if height is None else f"after height {height}"
    raise InvalidInput(
        f"index: {index}: no message {index} from {names[0]} to {names[1]} is in their channel "
        f"{scope}; it is there from the relay block that takes it in until its recipient's watermark passes it"
    )


__all__ = ["ChannelRelay", "channel_relay", "channel_start_head", "prove_channel_contents", "prove_channels"]
