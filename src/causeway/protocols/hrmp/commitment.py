"""What the relay chain's root commits to under HRMP (ICMP reference X-6): the entries of the pallet ``Hrmp``, under the
deployed keys and in the deployed forms, and the heads and lifecycles of parachains.

```
HrmpWatermarks(p)              u32, of those that are registered, as the heads
HrmpOpenChannelRequests(x, y)  bool confirmed, u32 session, u128 sender's deposit, u32 message size, u32 capacity,
                               u32 total size
HrmpChannels(x, y)             u32 capacity, u32 total size, u32 message size, u32 messages, u32 bytes, Option head,
                               u128 sender's deposit, u128 recipient's deposit
HrmpChannelContents(x, y)      Vec<(u32 sent_at, Vec<u8> data)>
HrmpChannelDigests(p)          Vec<(u32 block, Vec<u32 sender>)>
HrmpCloseChannelRequests(x, y) ()
HrmpIngressChannelsIndex(p), HrmpEgressChannelsIndex(p)   Vec<u32>
HrmpOpenChannelRequestCount(p), HrmpAcceptedChannelRequestCount(p)   u32, where they are not 0
```
Keys are hashed by ``Twox64Concat``; the session of a request is not used by the deployed pallet either, and 0 here.

What blocks commit to under HRMP: roots, hashes and headers of relay blocks and of parachains' blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
from causeway_proofs.hashing import Digests, blake2_256
from causeway_proofs.order import stable_order
from causeway_proofs.substrate import StateVersion, Tries, encode_compact, ordered_root, storage_key, twox_64_concat
from causeway_proofs.substrate.parachains import block_hash

from causeway.core.frame import Frame, concat
from causeway.core.joins import encode_keys, lookup_rows
from causeway.protocols.contract import Chains
from causeway.protocols.hrmp.state import ALL_TABLES, BLOCKS_SCHEMA, CANDIDATES_SCHEMA, HRMP_TABLES, PAIR, TIPS_SCHEMA
from causeway.protocols.relay_chain.commitment import headers
from causeway.protocols.relay_chain.network import RELAY_POSITION
from causeway.protocols.relay_chain.state import State
from causeway.protocols.shared.digests import digests
from causeway.protocols.shared.state_tables import TableState, TrieCache

PALLET = "Hrmp"

Entries = dict[bytes, bytes | None]
"""Changes of storage by key; None: the key goes."""

_Named = dict[tuple[int, ...], bytes]


def storage_changes(before: TableState | None, after: TableState) -> Entries:
    """Return what changes in the relay chain's storage from one state to the next; ``before`` None: all is new."""
    found: Entries = {}
    for name, items in _ITEMS.items():
        earlier = after[name].slice(0, 0) if before is None else before[name]
        if earlier is after[name]:
            continue
        # The rows of a table that are new, gone, or not what they were: what names them.
        keys = [key for key in HRMP_TABLES[name].order if key != "chain"]
        at = lookup_rows(earlier, after[name], keys)
        other = at < 0
        known = np.flatnonzero(~other)
        for column in after[name].names:
            # Data of a message stays what it is.
            if column not in keys and isinstance(after[name][column], np.ndarray):
                differs = after[name][column][known] != earlier[column][at[known]]
                other[known] |= differs.any(axis=1) if differs.ndim > 1 else differs
        gone = lookup_rows(after[name], earlier, keys) < 0
        touched = concat([after[name].select(keys).filter(other), earlier.select(keys).filter(gone)])
        for item, (of, entries) in items.items():
            old, new = (entries(_about(rows, touched, of)) for rows in (earlier, after[name]))
            found |= {item_key(item, *key): None for key in old.keys() - new.keys()}
            found |= {item_key(item, *key): value for key, value in new.items() if old.get(key) != value}
    return found


def _about(rows: Frame, touched: Frame, of: tuple[str, ...]) -> Frame:
    """Return the rows of the entries, named by the columns ``of``, that touched rows are of."""
    codes_of_rows, codes_touched = encode_keys(of, rows, touched)
    return rows.filter(np.isin(codes_of_rows, codes_touched))


def item_key(item: str, *key: int) -> bytes:
    """Return the key of an entry of a parachain, or of a channel (sender, recipient)."""
    return storage_key(item_pallet(item), item, (twox_64_concat, map_key(*key)))


def item_pallet(item: str) -> str:
    """Return the pallet of an item."""
    return "Paras" if item in ("Heads", "ParaLifecycles") else PALLET


def map_key(*key: int) -> bytes:
    """Return what the key of an entry is the hash of: a parachain, or the sender and the recipient of a channel."""
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
"""A lifecycle: a parachain, one that is leaving."""


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
    for sizes, head, (x, y, *held) in zip(numbers, channels["mqc_head"], deposits, strict=True):
        chain = b"\x01" + head.tobytes() if head.any() else b"\x00"
        found[x, y] = sizes.tobytes() + chain + b"".join(map(_u128, held))
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
"""By table its items, what names an entry of each, and the entries that rows make."""


def relay_trie(before: State | None, after: State) -> Tries:
    """Return the relay chain's trie after a block, which changes the one before on the spot."""
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
    """Return the state after a relay block of a tick that included ``heads``, and its header."""
    tries = relay_trie(before, after)
    root = tries.roots(np.zeros(1, dtype=np.int64))
    number, parent = int(before["blocks"]["number"][-1]) + 1, before["blocks"]["hash"][-1].tobytes()
    own = block_hash(parent, number, root[0].tobytes(), ordered_root(heads))
    made = Frame(
        {
            "chain": np.array([RELAY_POSITION], dtype=np.uint32),
            "number": np.array([number], dtype=np.uint64),
            "hash": digests([own]),
            "parent": digests([parent]),
            "next_tick": np.array([tick + 1], dtype=np.uint64),
        },
        1,
    )
    after = after.with_tables(blocks=made.select(BLOCKS_SCHEMA.names))
    return State(after.tables, after.programs, TrieCache(tries)), headers(made, root)


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
    """Return the state after blocks of the parachains of ``tips``, with their receipts, and the headers.

    A block's hash is of its parent, its number, its state's root, the watermark, the messages and the calls: of the
    bytes that the relay chain reads.
    """
    chains, count = tips["chain"], len(tips)
    number = tips["number"] + np.uint64(1)
    rest = [int(mark).to_bytes(4, "little") for mark in watermark]
    at = lookup_rows(tips, Frame({"chain": sent["source"]}, len(sent)), ("chain",))
    for row, to, data in zip(at.tolist(), sent["to"].tolist(), sent["data"].to_pylist(), strict=True):
        rest[row] += to.to_bytes(4, "little") + blake2_256(data)
    at = lookup_rows(tips, Frame({"chain": calls["source"]}, len(calls)), ("chain",))
    for row, data in zip(at.tolist(), calls["data"].to_pylist(), strict=True):
        rest[row] += blake2_256(data)
    parents = [head.tobytes() for head in tips["head"]]
    made_of = zip(parents, number.tolist(), roots, rest, strict=True)
    heads = digests([block_hash(parent, n, root.tobytes(), more) for parent, n, root, more in made_of])
    made = Frame(
        {
            "chain": chains,
            "source": chains,
            "destination": np.full(count, RELAY_POSITION, dtype=np.uint32),
            "parent": tips["head"],
            "number": number,
            "head": heads,
            "hash": heads,
            "watermark": watermark,
            "relay_parent": np.full(count, relay_parent, dtype=np.uint64),
            "next_tick": next_tick,
        },
        count,
    )
    tables = {
        "tips": _replaced(state, "tips", chains, made.select(TIPS_SCHEMA.names)),
        "candidates": _replaced(state, "candidates", chains, made.select(CANDIDATES_SCHEMA.names)),
        "sent": _replaced(state, "sent", chains, sent),
        "calls": _replaced(state, "calls", chains, calls),
    }
    return state.with_tables(**tables), headers(made, roots)


def _replaced(state: State, name: str, chains: Chains, rows: Frame) -> Frame:
    """Return a table with the rows of some chains replaced."""
    table = ALL_TABLES[name]
    joined = concat([state[name].filter(~np.isin(state[name][table.owner], chains)), rows])
    return joined.take(stable_order(*(joined[key] for key in table.order)))
