"""Commitments under HRMP: storage entries, roots, hashes and headers.

The relay chain's storage has the entries of the pallet ``Hrmp`` under deployed keys and in deployed forms, and the
heads and lifecycles of parachains:

```
HrmpWatermarks(p)              u32, of registered parachains, as the heads
HrmpOpenChannelRequests(x, y)  bool confirmed, u32 session, u128 sender's deposit, u32 message size, u32 capacity,
                               u32 total size
HrmpChannels(x, y)             u32 capacity, u32 total size, u32 message size, u32 messages, u32 bytes, Option head,
                               u128 sender's deposit, u128 recipient's deposit
HrmpChannelContents(x, y)      Vec<(u32 sent_at, Vec<u8> data)>
HrmpChannelDigests(p)          Vec<(u32 block, Vec<u32> sender)>
HrmpCloseChannelRequests(x, y) ()
HrmpIngressChannelsIndex(p), HrmpEgressChannelsIndex(p)   Vec<u32>
HrmpOpenChannelRequestCount(p), HrmpAcceptedChannelRequestCount(p)   u32, if not 0
```

Keys are hashed by ``Twox64Concat``. The session of a request is 0; the deployed pallet ignores it, too.

Reference: ICMP, X-6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
from causeway_proofs.hashing import Digests, blake2_256
from causeway_proofs.substrate import StateVersion, Tries, encode_compact, ordered_root, storage_key, twox_64_concat
from causeway_proofs.substrate.parachains import block_hash

from causeway.core.frame import Frame, concat
from causeway.core.joins import encode_keys, lookup_rows
from causeway.protocols.hrmp.state import ALL_TABLES, BLOCKS_SCHEMA, HRMP_TABLES, PAIR
from causeway.protocols.relay_chain.commitment import headers
from causeway.protocols.relay_chain.options import RELAY_POSITION
from causeway.protocols.relay_chain.state import State
from causeway.protocols.shared.digests import digests
from causeway.protocols.shared.state_tables import TableState, TrieCache, blank_rows, replace_chains

PALLET = "Hrmp"

Entries = dict[bytes, bytes | None]
"""Storage changes by key; None removes the key."""

_Named = dict[tuple[int, ...], bytes]


def storage_changes(before: TableState | None, after: TableState) -> Entries:
    """Compute the storage changes of the relay chain between two states.

    Args:
        before: State before, or None for complete storage.
        after: State after.
    """
    changes: Entries = {}
    for name, items in _ITEMS.items():
        earlier = after[name].slice(0, 0) if before is None else before[name]
        if earlier is after[name]:
            continue
        keys = [key for key in HRMP_TABLES[name].order if key != "chain"]
        at = lookup_rows(earlier, after[name], keys)
        differs_from = at < 0
        known = np.flatnonzero(~differs_from)
        for column in after[name].names:
            # The data of a message never changes.
            if column not in keys and isinstance(after[name][column], np.ndarray):
                differs = after[name][column][known] != earlier[column][at[known]]
                differs_from[known] |= differs.any(axis=1) if differs.ndim > 1 else differs
        removed = lookup_rows(after[name], earlier, keys) < 0
        changed_rows = concat([after[name].select(keys).filter(differs_from), earlier.select(keys).filter(removed)])
        for item, (of, entries) in items.items():
            # The rows of all entries with a changed row.
            codes = encode_keys(of, earlier, after[name], changed_rows)
            parts = zip((earlier, after[name]), codes, strict=False)
            old, new = (entries(rows.filter(np.isin(code, codes[2]))) for rows, code in parts)
            changes |= {item_key(item, *key): None for key in old.keys() - new.keys()}
            changes |= {item_key(item, *key): value for key, value in new.items() if old.get(key) != value}
    return changes


def item_key(item: str, *key: int) -> bytes:
    """Return the storage key of an entry.

    Args:
        item: Name of the storage item.
        key: Position of the parachain, or of the channel's sender and recipient.
    """
    return storage_key(item_pallet(item), item, (twox_64_concat, map_key(*key)))


def item_pallet(item: str) -> str:
    """Return the pallet of a storage item.

    Args:
        item: Name of the storage item.
    """
    return "Paras" if item in ("Heads", "ParaLifecycles") else PALLET


def map_key(*key: int) -> bytes:
    """Return the map key of an entry before hashing: a parachain, or sender and recipient."""
    return b"".join(map(_u32, key))


def _u32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _u128(number: int) -> bytes:
    return number.to_bytes(16, "little")


def _bytes(data: bytes) -> bytes:
    return encode_compact(len(data)) + data


def _list(items: list[bytes]) -> bytes:
    return encode_compact(len(items)) + b"".join(items)


def _rows(frame: Frame, *names: str) -> Iterable[tuple[int, ...]]:
    return zip(*(frame[name].tolist() for name in names), strict=True)


_REGISTERED, _LEAVING = b"\x02", b"\x06"
"""Lifecycle of a registered and of a leaving parachain."""


def _lifecycles(paras: Frame) -> _Named:
    rows = _rows(paras.filter(paras["active"] == 1), "para", "leaving")
    return {(p,): _LEAVING if since else _REGISTERED for p, since in rows}


def _heads(paras: Frame) -> _Named:
    paras = paras.filter(paras["active"] == 1)
    return {(p,): _bytes(head.tobytes()) for p, head in zip(paras["para"].tolist(), paras["head"], strict=True)}


def _watermarks(paras: Frame) -> _Named:
    return {(p,): _u32(number) for p, number in _rows(paras.filter(paras["active"] == 1), "para", "watermark")}


_SIZES = ("max_capacity", "max_total_size", "max_message_size")


def _requests(requests: Frame) -> _Named:
    rows = _rows(requests, "sender", "recipient", "confirmed", "sender_deposit", *_SIZES)
    return {
        (x, y): bytes([confirmed]) + _u32(0) + _u128(deposit) + _u32(size) + _u32(capacity) + _u32(total)
        for x, y, confirmed, deposit, capacity, total, size in rows
    }


def _channels(channels: Frame) -> _Named:
    names = (*_SIZES, "msg_count", "total_size")
    numbers = np.stack([channels[name].astype("<u4") for name in names], axis=1)
    deposits = _rows(channels, "sender", "recipient", "sender_deposit", "recipient_deposit")
    found: _Named = {}
    for sizes, head, (x, y, *amounts) in zip(numbers, channels["mqc_head"], deposits, strict=True):
        chain = b"\x01" + head.tobytes() if head.any() else b"\x00"
        found[x, y] = sizes.tobytes() + chain + b"".join(map(_u128, amounts))
    return found


def _closing(channels: Frame) -> _Named:
    return dict.fromkeys(_rows(channels.filter(channels["closing"] > 0), "sender", "recipient"), b"")


def _index(of: str, other: str) -> Callable[[Frame], _Named]:
    def entries(channels: Frame) -> _Named:
        found: dict[tuple[int, ...], list[bytes]] = {}
        for p, foreign in sorted(_rows(channels, of, other)):
            found.setdefault((p,), []).append(_u32(foreign))
        return {key: _list(items) for key, items in found.items()}

    return entries


def _count(of: str, least: int) -> Callable[[Frame], _Named]:
    def entries(requests: Frame) -> _Named:
        found = Counter(requests[of][requests["confirmed"] >= least].tolist())
        return {(p,): _u32(count) for p, count in found.items()}

    return entries


def _contents(contents: Frame) -> _Named:
    found: dict[tuple[int, ...], list[bytes]] = {}
    rows = zip(_rows(contents, "sender", "recipient", "sent_at"), contents["data"].to_pylist(), strict=True)
    for (x, y, sent_at), data in rows:
        found.setdefault((x, y), []).append(_u32(sent_at) + _bytes(data))
    return {key: _list(items) for key, items in found.items()}


def _digests(digests: Frame) -> _Named:
    found: dict[int, dict[int, list[bytes]]] = {}
    for p, number, sender in _rows(digests, "recipient", "number", "sender"):
        found.setdefault(p, {}).setdefault(number, []).append(_u32(sender))
    return {(p,): _list([_u32(n) + _list(senders) for n, senders in blocks.items()]) for p, blocks in found.items()}


_Items = dict[str, tuple[tuple[str, ...], Callable[[Frame], _Named]]]

_ITEMS: dict[str, _Items] = {
    "paras": {
        "Heads": (("para",), _heads),
        "ParaLifecycles": (("para",), _lifecycles),
        "HrmpWatermarks": (("para",), _watermarks),
    },
    "requests": {
        "HrmpOpenChannelRequests": (PAIR, _requests),
        "HrmpOpenChannelRequestCount": (("sender",), _count("sender", 0)),
        "HrmpAcceptedChannelRequestCount": (("recipient",), _count("recipient", 1)),
    },
    "channels": {
        "HrmpChannels": (PAIR, _channels),
        "HrmpCloseChannelRequests": (PAIR, _closing),
        "HrmpIngressChannelsIndex": (("recipient",), _index("recipient", "sender")),
        "HrmpEgressChannelsIndex": (("sender",), _index("sender", "recipient")),
    },
    "contents": {"HrmpChannelContents": (PAIR, _contents)},
    "digests": {"HrmpChannelDigests": (("recipient",), _digests)},
}
"""Per table: storage items, with the key columns and the encoder of each."""


def relay_trie(before: State | None, after: State) -> Tries:
    """Return the relay chain's trie after a block; it changes the trie before in place."""
    tries = None if before is None else before.kept.tries
    entries = storage_changes(None if tries is None else before, after)
    if tries is None:
        tries = Tries()
        tries.open(1, StateVersion.V1)
    assert isinstance(tries, Tries)
    if entries:
        keys = sorted(entries)
        tries.update(0, keys, [entries[key] for key in keys])
    return tries


def commit_relay_block(before: State, after: State, heads: list[bytes], tick: int) -> tuple[State, Frame]:
    """Commit a relay block.

    Args:
        before: State before the block.
        after: State after the block.
        heads: Included heads.
        tick: Tick of the block.

    Returns:
        The state with the block, and its header.
    """
    tries = relay_trie(before, after)
    root = tries.roots(np.zeros(1, dtype=np.int64))
    number, parent = int(before["blocks"]["number"][-1]) + 1, before["blocks"]["hash"][-1].tobytes()
    own_hash = block_hash(parent, number, root[0].tobytes(), ordered_root(heads))
    hashes = {"hash": digests([own_hash]), "parent": digests([parent])}
    block = blank_rows(BLOCKS_SCHEMA, 1, chain=RELAY_POSITION, number=number, **hashes, next_tick=tick + 1)
    after = after.with_tables(blocks=block)
    return State(after.tables, after.programs, TrieCache(tries)), headers(block, root)


def commit_parachain_blocks(
    state: State,
    tips: Frame,
    roots: Digests,
    sent: Frame,
    calls: Frame,
    watermark: npt.NDArray[np.uint64],
    relay_parent: int,
    next_tick: npt.NDArray[np.uint64],
) -> tuple[State, Frame]:
    """Commit a block of each parachain of ``tips``.

    The block hash covers parent, number, state root, watermark, messages and calls, which the relay chain reads.

    Args:
        state: State after the blocks.
        tips: Last blocks of the parachains.
        roots: Storage roots, uint8, shape (n, 32).
        sent: Messages of the blocks (``SENT_SCHEMA``).
        calls: Upward calls of the blocks (``CALLS_SCHEMA``).
        watermark: New watermarks.
        relay_parent: Number of the relay parent.
        next_tick: First tick of each with later planned calls.

    Returns:
        The state with the receipts, and the headers.
    """
    chains = tips["chain"]
    number = tips["number"] + np.uint64(1)
    rest = [int(mark).to_bytes(4, "little") for mark in watermark]
    at = lookup_rows(tips, Frame({"chain": sent["source"]}, len(sent)), ("chain",))
    for row, to, data in zip(at.tolist(), sent["to"].tolist(), sent["data"].to_pylist(), strict=True):
        rest[row] += to.to_bytes(4, "little") + blake2_256(data)
    at = lookup_rows(tips, Frame({"chain": calls["source"]}, len(calls)), ("chain",))
    for row, data in zip(at.tolist(), calls["data"].to_pylist(), strict=True):
        rest[row] += blake2_256(data)
    parents = [head.tobytes() for head in tips["head"]]
    contents = zip(parents, number.tolist(), roots, rest, strict=True)
    heads = digests([block_hash(parent, n, root.tobytes(), tail) for parent, n, root, tail in contents])
    blocks = tips.select(["chain"]).with_columns(
        source=chains,
        destination=np.uint32(RELAY_POSITION),
        parent=tips["head"],
        number=number,
        head=heads,
        hash=heads,
        watermark=watermark,
        relay_parent=np.uint64(relay_parent),
        next_tick=next_tick,
    )
    tables = {
        name: replace_chains(ALL_TABLES[name], state[name], chains, rows)
        for name, rows in (("tips", blocks), ("candidates", blocks), ("sent", sent), ("calls", calls))
    }
    return state.with_tables(**tables), headers(blocks, roots)
