"""The storage of chains: a function of their tables, and its tries.

Messages, responses, channels, counts, fees and receipts have the deployed keys of the reference. Every other committed
table has one entry ``Causeway.<table>``, a digest of the chain's rows.

The tries are derived data: current storage follows from tables, past storage from the log of changes. Versions after
recent blocks share their nodes, so that operators can prove under a past block without inserting or hashing again.

Reference: XDM, sections 2.4 and 2.5; X-5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import Digests
from causeway_proofs.order import Rows, distinct, stable_order
from causeway_proofs.substrate import Tries, encode_compact, numbers_column, storage_key_column, storage_prefix
from causeway_proofs.xdm import (
    INBOX_RESPONSES,
    OUTBOX,
    chain_map_keys,
    channel_map_keys,
    messenger_keys,
    receipt_storage_key,
)

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.protocols.contract import BYTES, UINT8, UINT32, Chains, table_schema
from causeway.protocols.shared.digests import OWN_PALLET, TableDigests, digest_rows_by_chain, fixed_column
from causeway.protocols.shared.execution import PROGRAM_TABLE
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, TRANSPORTER_ENDPOINT, chain_ids
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.lane_tables import LaneTable
from causeway.protocols.xdm.state import RequestKind, State, decode_set
from causeway.protocols.xdm.tables import CHANNEL, DECLARED, DRAWN, INDEXED, PRUNED, STATE_TABLES, UNCOMMITTED
from causeway.protocols.xdm.value.books import declared_key, encode_declared
from causeway.protocols.xdm.value.transporter import OUTGOING_TRANSFERS, PALLET
from causeway.protocols.xdm.wire import (
    ACCOUNT_BYTES,
    U128_BYTES,
    U256_BYTES,
    encode_channels,
    encode_requests,
    encode_responses,
    map_keys,
)

STORAGE_SCHEMA = table_schema(chain=UINT32, key=BYTES, value=BYTES, present=UINT8)
"""One row a storage change of a block: the new value of a key, or its removal."""

PRUNED_ITEM = "PrunedReceipts"
DRAWN_ITEM = "DrawnTransfers"
DRAWN_WORDS = ("in_low", "in_high", "claimed_low", "claimed_high")
ALLOWLIST_ITEM, ALLOW_UPDATES_ITEM = "ChainAllowlist", "DomainChainAllowlistUpdate"
_COUNT_BYTES = 4

_ITEMS = {"outbox": (OUTBOX, "src_fee", "OutboxFee"), "responses": (INBOX_RESPONSES, "fee", "InboxFee")}
"""Per message table: storage item, fee column, fee item."""

KEYED = (
    *("channels", "next_channels", "outbox", "responses", "confirmed", "allowlist", "allow_updates", "pruned"),
    *("declared", "drawn"),
)
"""Tables with an entry a row."""

HEADS = ("blocks",)
"""Tables that headers and the mountain range commit to, not the state."""

SECTIONS = tuple(name for name in STATE_TABLES if name not in (*KEYED, *UNCOMMITTED, *HEADS))

_LARGE = pa.large_binary()


def _changes(chain: Any, keys: pa.LargeBinaryArray, values: pa.Array | None) -> Frame:
    """Return storage changes; without ``values`` the keys are removed."""
    count = len(keys)
    present = np.full(count, values is not None, dtype=np.uint8)
    content = values if values is not None else pa.repeat(pa.scalar(b"", pa.binary()), count)
    columns = {"chain": chain.astype(np.uint32), "key": keys.cast(pa.binary()), "value": content.cast(pa.binary())}
    return Frame({**columns, "present": present}, count)


def _differing(before: Frame, after: Frame, keys: Sequence[str]) -> tuple[Rows, Rows]:
    """Return the new or changed rows of ``after``, and the removed rows of ``before``."""
    if before is after:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    earlier_rows = lookup_rows(before, after, keys)
    same = earlier_rows >= 0
    rows = np.flatnonzero(same)
    for name in after.names:
        values, earlier_values = after[name], before[name]
        if isinstance(values, np.ndarray):
            equal = values[rows] == earlier_values[earlier_rows[rows]]
            equal = equal if equal.ndim == 1 else equal.all(axis=1)
        else:
            values, earlier_values = values.take(pa.array(rows)), earlier_values.take(pa.array(earlier_rows[rows]))
            equal = pa.compute.equal(values, earlier_values).to_numpy(zero_copy_only=False)
        same[rows[~equal]] = False
    removed = np.ones(len(before), dtype=bool)
    removed[earlier_rows[earlier_rows >= 0]] = False
    return np.flatnonzero(~same), np.flatnonzero(removed)


def _added_and_removed(before: Frame, after: Frame) -> tuple[Frame, Frame]:
    """Return the added and the removed messages (lane, ``index``); a message never changes."""
    if isinstance(after, LaneTable) and after.delta is not None and after.delta.since is before:
        delta, none = after.delta, before.slice(0, 0)
        added, removed = (concat(parts or [none]) for parts in (delta.added, delta.gone))
        added, removed = (part.take(stable_order(*(part[name] for name in INDEXED))) for part in (added, removed))
        in_both = lookup_rows(added, removed, INDEXED)
        new = np.ones(len(added), dtype=bool)
        new[in_both[in_both >= 0]] = False
        return added.filter(new), removed.filter(in_both < 0)
    earlier_rows = lookup_rows(before, after, INDEXED)
    removed_mask = np.ones(len(before), dtype=bool)
    removed_mask[earlier_rows[earlier_rows >= 0]] = False
    return after.filter(earlier_rows < 0), before.filter(removed_mask)


def storage_changes(before: State | None, after: State, context: Context, known: SectionIndex | None = None) -> Frame:
    """Compute the storage changes of ``context.chains`` between two states.

    Args:
        before: State before, or None for complete storage.
        after: State after.
        context: Context of the block.
        known: Cache of section digests, updated in place.

    Returns:
        ``STORAGE_SCHEMA``.
    """
    now = after.frames()
    then = {name: frame.slice(0, 0) for name, frame in now.items()} if before is None else before.frames()
    parts = [empty_frame(STORAGE_SCHEMA)]
    for name, (own, fee, item) in _ITEMS.items():
        if then[name] is now[name]:
            continue
        for messages, is_present in zip(_added_and_removed(then[name], now[name]), (True, False), strict=True):
            if len(messages) == 0:
                continue
            keys, chain = map_keys(messages), messages["source"]
            paid = np.flatnonzero(messages[fee] > 0)
            values = fees = None
            if is_present:
                values = encode_requests(messages, now["channels"]) if name == "outbox" else encode_responses(messages)
                fees = numbers_column(messages[fee][paid], U128_BYTES).cast(pa.binary(U128_BYTES))
            parts.append(_changes(chain, messenger_keys(own, keys), values))
            parts.append(_changes(chain[paid], messenger_keys(item, keys.take(pa.array(paid))), fees))
            if name == "outbox":
                transfer = (messages["asked"] == RequestKind.ENDPOINT) & (
                    messages["src_endpoint"] == TRANSPORTER_ENDPOINT
                )
                transfers = keys.filter(pa.array(transfer))
                pending = storage_key_column(storage_prefix(PALLET, OUTGOING_TRANSFERS), transfers)
                payloads = messages["payload"].filter(pa.array(transfer)) if is_present else None
                parts.append(_changes(chain[transfer], pending, payloads))
    rows, _ = _differing(then["channels"], now["channels"], CHANNEL)
    if len(rows):
        channels = now["channels"].take(rows)
        keys = channel_map_keys(chain_ids(channels["foreign"]), numbers_column(channels["channel"], U256_BYTES))
        owners = numbers_column(channels["owner"], ACCOUNT_BYTES, (channels["has_owner"] == 1))
        encoded = encode_channels(channels, owners)
        parts.append(_changes(channels["chain"], messenger_keys("Channels", keys), encoded))
        counts = fixed_column(channels["count"].astype("<u4").view(np.uint8).reshape(-1, _COUNT_BYTES))
        parts.append(_changes(channels["chain"], messenger_keys("OutboxMessageCount", keys), counts))
    rows, _ = _differing(then["next_channels"], now["next_channels"], CHANNEL[:2])
    if len(rows):
        following = now["next_channels"].take(rows)
        keys = messenger_keys("NextChannelId", chain_map_keys(chain_ids(following["foreign"])))
        parts.append(_changes(following["chain"], keys, numbers_column(following["next_channel"], U256_BYTES)))
    rows, _ = _differing(then["confirmed"], now["confirmed"], ("chain", "domain"))
    if len(rows):
        confirmed = now["confirmed"].take(rows)
        keys = pa.array([receipt_storage_key(int(domain) - 1) for domain in confirmed["domain"]], _LARGE)
        parts.append(_changes(confirmed["chain"], keys, confirmed["receipt"]))
    if then["allowlist"] is not now["allowlist"]:
        lists_before, lists = _foreign(then["allowlist"]), _foreign(now["allowlist"])
        key = messenger_keys(ALLOWLIST_ITEM, pa.array([b""], _LARGE))
        for chain in sorted(lists_before.keys() | lists.keys()):
            if lists_before.get(chain) != lists.get(chain):
                value = pa.array([_id_set(lists[chain])], pa.binary()) if chain in lists else None
                parts.append(_changes(np.array([chain]), key, value))
    rows, _ = _differing(then["allow_updates"], now["allow_updates"], ("chain", "domain"))
    if len(rows):
        updates = now["allow_updates"].take(rows)
        numbers = [(domain - 1).to_bytes(4, "little") for domain in updates["domain"].tolist()]
        keys = messenger_keys(ALLOW_UPDATES_ITEM, pa.array(numbers, _LARGE))
        sets = zip(updates["allow"].to_pylist(), updates["remove"].to_pylist(), strict=True)
        values = [_id_set(decode_set(allow)) + _id_set(decode_set(remove)) for allow, remove in sets]
        parts.append(_changes(updates["chain"], keys, pa.array(values, pa.binary())))
    added, removed = _differing(then["pruned"], now["pruned"], PRUNED)
    for frame, is_present in ((then["pruned"].take(removed), False), (now["pruned"].take(added), True)):
        if len(frame):
            domains = [(domain - 1).to_bytes(4, "little") for domain in frame["domain"].tolist()]
            first, *rest = (_words(frame[name]) for name in ("first", "last", "taken", "found"))
            ends = pa.array([domain + word for domain, word in zip(domains, first, strict=True)], _LARGE)
            values = pa.array([b"".join(words) for words in zip(*rest, strict=True)], pa.binary())
            keys = storage_key_column(storage_prefix(OWN_PALLET, PRUNED_ITEM), ends)
            parts.append(_changes(frame["chain"], keys, values if is_present else None))
    # One entry a destination domain.
    declared = now["declared"]
    rows, _ = _differing(then["declared"], declared, DECLARED)
    if len(rows):
        domains = sorted(set(declared["destination"][rows].tolist()))
        values = [encode_declared(declared.filter(declared["destination"] == domain)) for domain in domains]
        keys = pa.array([declared_key(domain) for domain in domains], _LARGE)
        parts.append(_changes(np.full(len(domains), CONSENSUS_POSITION), keys, pa.array(values, pa.binary())))
    rows, _ = _differing(then["drawn"], now["drawn"], DRAWN)
    if len(rows):
        drawn = now["drawn"].take(rows)
        ends = chain_map_keys(chain_ids(drawn["foreign"]))
        values = [b"".join(row) for row in zip(*(_words(drawn[name]) for name in DRAWN_WORDS), strict=True)]
        keys = storage_key_column(storage_prefix(OWN_PALLET, DRAWN_ITEM), ends)
        parts.append(_changes(drawn["chain"], keys, pa.array(values, pa.binary())))
    # Other tables by their digests.
    known = SectionIndex() if known is None else known
    for name, frame in sorted(now.items()):
        if (before is not None and then.get(name) is frame) or not (name in SECTIONS or name.startswith(PROGRAM_TABLE)):
            continue
        old = None if before is None else known.digests(name, then[name], context)
        section = known.digests(name, frame, context, old)
        changed = np.ones(len(section.digests), dtype=bool)
        if old is not None:
            changed = np.array([new != last for new, last in zip(section.digests, old.digests, strict=True)])
        chains = context.chains[changed]
        section_keys = pa.repeat(pa.scalar(storage_prefix(OWN_PALLET, name), _LARGE), len(chains))
        digests = pa.array(section.digests, pa.binary()).filter(pa.array(changed))
        parts.append(_changes(chains, section_keys, digests))
    return concat(parts)


def _words(numbers: npt.NDArray[np.uint64]) -> list[bytes]:
    """Return numbers as 8 bytes each, little-endian."""
    return [number.to_bytes(8, "little") for number in numbers.tolist()]


def _foreign(allowlist: Frame) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for chain, foreign in zip(allowlist["chain"].tolist(), allowlist["foreign"].tolist(), strict=True):
        found.setdefault(chain, []).append(foreign)
    return found


def _id_set(chains: list[int]) -> bytes:
    """Return chains, ascending, as a set of ChainId in SCALE."""
    ids = chain_map_keys(chain_ids(np.array(chains, dtype=np.uint32))).to_pylist()
    return encode_compact(len(ids)) + b"".join(ids)


@dataclass
class SectionIndex:
    """Cache of section digests: per table the last chains, rows and digests."""

    last: dict[str, tuple[Chains, Frame, TableDigests]] = field(default_factory=dict)

    def digests(self, name: str, frame: Frame, context: Context, before: TableDigests | None = None) -> TableDigests:
        """Return the digests of a table, incrementally from those of an earlier table of the same chains.

        Args:
            name: Name of the table.
            frame: The table.
            context: Context of the block.
            before: Digests of the earlier table.
        """
        if (last := self.last.get(name)) is not None:
            chains, rows, section = last
            if rows is frame and np.array_equal(chains, context.chains):
                return section
        table = STATE_TABLES.get(name)
        if table is None or table.belongs_to_program:
            own = context.network.host_of(frame["program"]).view(np.uint32)
        else:
            own = frame[table.owner]
        section = digest_rows_by_chain(frame, own, context.chains, before)
        self.last[name] = context.chains, frame, section
        return section


NOWHERE = -1
"""The height of tries under change."""

NODES_AN_ENTRY = 4
LEAST_ENTRIES = 1 << 16
"""Minimum number of entries in the bound of versions.

Tries have at most ``NODES_AN_ENTRY`` nodes a storage entry. Versions then need no more memory than the storage itself:
it holds a message longer than until it is provable.
"""

MOST_VERSIONS = 1 << 16
"""Maximum number of versions of all chains together."""


@dataclass
class ChainTries:
    """The tries of a set of chains.

    Attributes:
        tries: All tries.
        present: Number of each chain's current trie.
        provable: Number of each chain's trie after block ``number``; operators prove under it.
        number: Number of each chain's provable block.
        versions: Tries after later blocks, by chain and block number, ascending.
        height: Height of the corresponding state; ``NOWHERE`` during a change.
        sections: Cache of section digests.
    """

    tries: Tries
    present: dict[int, int]
    provable: dict[int, int]
    number: dict[int, int] = field(default_factory=dict)
    versions: dict[int, dict[int, int]] = field(default_factory=dict)
    height: int = NOWHERE
    sections: SectionIndex = field(default_factory=SectionIndex)

    @classmethod
    def of(cls, chains: Chains) -> ChainTries:
        """Create empty tries.

        Args:
            chains: Positions of the chains.
        """
        tries = Tries()
        opened = iter(tries.open(2 * len(chains)).tolist())
        pairs = {chain: (next(opened), next(opened)) for chain in chains.tolist()}
        present = {chain: pair[0] for chain, pair in pairs.items()}
        return cls(tries, present, {chain: pair[1] for chain, pair in pairs.items()}, dict.fromkeys(present, -1))

    def change(self, changes: Frame) -> None:
        """Apply changes to the current storage.

        Args:
            changes: ``STORAGE_SCHEMA``.
        """
        self._change(self.present, changes)

    def move(self, changes: Frame, to: Mapping[int, int]) -> None:
        """Advance the provable storage to other blocks.

        Args:
            changes: All changes in between (``STORAGE_SCHEMA``).
            to: New block number of each chain.
        """
        self._change(self.provable, changes)
        self.number |= to

    def keep(self, chains: Chains, number: int) -> None:
        """Retain the current storage as a version.

        Args:
            chains: Positions of the chains.
            number: Number of their last block.
        """
        now = np.array([self.present[chain] for chain in chains.tolist()], dtype=np.int64)
        for chain, version in zip(chains.tolist(), self.tries.copy(now).tolist(), strict=True):
            self.versions.setdefault(chain, {})[number] = version
        entries = sum(self.tries.count(trie) for trie in self.present.values())
        most_nodes = NODES_AN_ENTRY * max(entries, LEAST_ENTRIES)
        while count := sum(map(len, self.versions.values())):
            if count <= MOST_VERSIONS and self.tries.live_nodes <= most_nodes:
                break
            # A chain without further confirmations would retain versions forever. The log can rebuild them.
            longest = max(self.versions, key=lambda chain: len(self.versions[chain]))
            self._close(self.versions.pop(longest).values())

    def nearest(self, chain: int, number: int) -> int:
        """Return the last block with an available trie, or -1.

        Args:
            chain: Position of the chain.
            number: Maximum block number.
        """
        found = self.number[chain]
        for version in self.versions.get(chain, ()):
            if version > number:
                break
            found = max(found, version)
        return found

    def show(self, chain: int, number: int) -> None:
        """Select the nearest available block as provable, and drop older versions.

        Args:
            chain: Position of the chain.
            number: Maximum block number.
        """
        number, versions = self.nearest(chain, number), self.versions.get(chain, {})
        if number in versions:
            self._close([self.provable[chain]])
            self.provable[chain], self.number[chain] = versions.pop(number), number
        self._close([versions.pop(earlier) for earlier in [*takewhile(number.__gt__, versions)]])

    def _close(self, tries: Iterable[int]) -> None:
        if closed := [*tries]:
            self.tries.close(np.array(closed, dtype=np.int64))

    def _change(self, of_chain: Mapping[int, int], changes: Frame) -> None:
        if not len(changes):
            return
        chains = changes["chain"]
        numbers = np.zeros(int(chains.max()) + 1, dtype=np.int64)
        for chain in distinct(chains).tolist():
            numbers[chain] = of_chain[chain]
        is_present = pa.array(changes["present"] == 1)
        values = pa.compute.if_else(
            is_present, changes["value"].cast(pa.large_binary()), pa.scalar(None, pa.large_binary())
        )
        self.tries.update(numbers[chains], changes["key"].cast(pa.large_binary()), values)

    def roots(self, chains: Chains) -> Digests:
        """Return the current storage root of each chain, shape (n, 32).

        Args:
            chains: Positions of the chains.
        """
        return self.tries.roots(np.array([self.present[chain] for chain in chains.tolist()], dtype=np.int64))


def chain_tries(state: State, context: Context) -> ChainTries | None:
    """Return the tries of the state before a block, or None if they must be rebuilt.

    They are missing for a state read from storage, outdated after an interrupted or repeated block, or lack a resumed
    chain.
    """
    tries = state.kept.tries
    if not isinstance(tries, ChainTries) or tries.height != context.height - 1:
        return None
    return tries if tries.present.keys() >= set(context.chains.tolist()) else None
