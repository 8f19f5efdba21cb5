"""The storage of chains: its entries are a function of the rows of tables (XDM reference 2.4, 2.5).

What the reference gives a key has the deployed one: messages, responses, channels, counts, fees, receipts. Every other
table that is committed has one entry, ``Causeway.<table>``: a digest of the chain's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.joins import lookup
from causeway.model.order import Rows, stable_order
from causeway.proofs.substrate import encode_compact, numbers_column, storage_key_column, storage_prefix
from causeway.proofs.xdm import (
    INBOX_RESPONSES,
    OUTBOX,
    chain_map_keys,
    channel_map_keys,
    messenger_keys,
    receipt_storage_key,
)
from causeway.protocols.contract import Chains
from causeway.protocols.digests import fixed_column
from causeway.protocols.execution import PROGRAM_TABLE
from causeway.protocols.sections import OWN_PALLET, Section, hashed_rows
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, chain_ids
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.declared import declared_key, encode_declared
from causeway.protocols.xdm.declared_tables import DECLARED, DRAWN
from causeway.protocols.xdm.endpoints import TRANSPORTER_ENDPOINT
from causeway.protocols.xdm.fraud_tables import PRUNED
from causeway.protocols.xdm.lane_tables import LaneTable
from causeway.protocols.xdm.state import Asked, State, decode_set
from causeway.protocols.xdm.tables import CHANNEL, INDEXED, STATE_TABLES, UNCOMMITTED
from causeway.protocols.xdm.transporter import OUTGOING_TRANSFERS, PALLET
from causeway.protocols.xdm.wire import (
    ACCOUNT_BYTES,
    U128_BYTES,
    U256_BYTES,
    encode_channels,
    encode_requests,
    encode_responses,
    map_keys,
)

STORAGE_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("present", pa.uint8(), nullable=False),
    ]
)
"""One row a change of a chain's storage in a block: the value under a key, or that there is none any more."""

PRUNED_ITEM = "PrunedReceipts"
DRAWN_ITEM = "DrawnTransfers"
DRAWN_WORDS = ("in_low", "in_high", "claimed_low", "claimed_high")
ALLOWLIST_ITEM, ALLOW_UPDATES_ITEM = "ChainAllowlist", "DomainChainAllowlistUpdate"
_COUNT_BYTES = 4

_ITEMS = {"outbox": (OUTBOX, "src_fee", "OutboxFee"), "responses": (INBOX_RESPONSES, "fee", "InboxFee")}
"""Of the tables of messages: their own item, the column with the fee that is kept for each, and its item."""

KEYED = (
    *("channels", "next_channels", "outbox", "responses", "confirmed", "allowlist", "allow_updates", "pruned"),
    *("declared", "drawn"),
)
"""Tables whose rows have entries of their own."""

HEADS = ("blocks",)
"""Tables that headers and the mountain range commit to, not the state."""

SECTIONS = tuple(name for name in STATE_TABLES if name not in (*KEYED, *UNCOMMITTED, *HEADS))

_LARGE = pa.large_binary()


def _changes(chain: Any, keys: pa.LargeBinaryArray, values: pa.Array | None) -> Frame:
    """Return changes; without ``values`` the keys go."""
    count = len(keys)
    present = np.full(count, values is not None, dtype=np.uint8)
    content = values if values is not None else pa.repeat(pa.scalar(b"", pa.binary()), count)
    columns = {"chain": chain.astype(np.uint32), "key": keys.cast(pa.binary()), "value": content.cast(pa.binary())}
    return Frame({**columns, "present": present}, count)


def _differing(before: Frame, after: Frame, keys: Sequence[str]) -> tuple[Rows, Rows]:
    """Return the rows of ``after`` that are new or changed, and those of ``before`` that are gone."""
    if before is after:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    then = lookup(before, after, keys)
    same = then >= 0
    rows = np.flatnonzero(same)
    for name in after.names:
        ours, theirs = after[name], before[name]
        if isinstance(ours, np.ndarray):
            equal = ours[rows] == theirs[then[rows]]
            equal = equal if equal.ndim == 1 else equal.all(axis=1)
        else:
            ours, theirs = ours.take(pa.array(rows)), theirs.take(pa.array(then[rows]))
            equal = pa.compute.equal(ours, theirs).to_numpy(zero_copy_only=False)
        same[rows[~equal]] = False
    gone = np.ones(len(before), dtype=bool)
    gone[then[then >= 0]] = False
    return np.flatnonzero(~same), np.flatnonzero(gone)


def _in_order(parts: Sequence[Frame]) -> Frame:
    rows = concat(parts)
    return rows.take(stable_order(*(rows[name] for name in INDEXED)))


def _added_and_gone(before: Frame, after: Frame) -> tuple[Frame, Frame]:
    """Return the messages (lane, ``index``) that came and that went; one that stays does not change."""
    if before is after:
        return after.slice(0, 0), before.slice(0, 0)
    if isinstance(after, LaneTable) and after.delta is not None and after.delta.since is before:
        came, went = (_in_order([before.slice(0, 0), *parts]) for parts in (after.delta.added, after.delta.gone))
        stays = lookup(came, went, INDEXED)
        new = np.ones(len(came), dtype=bool)
        new[stays[stays >= 0]] = False
        return came.filter(new), went.filter(stays < 0)
    then = lookup(before, after, INDEXED)
    gone = np.ones(len(before), dtype=bool)
    gone[then[then >= 0]] = False
    return after.filter(then < 0), before.filter(gone)


def changes(before: State | None, after: State, context: Context, known: KnownSections | None = None) -> Frame:
    """Return what changes in the storage of ``context.chains`` from one state to the next (``STORAGE_SCHEMA``).

    ``before`` None: everything is new. ``known``: what is known of the state before, and then of the one after.
    """

    def earlier(name: str) -> Frame:
        return after[name].slice(0, 0) if before is None else before[name]

    parts = [empty_frame(STORAGE_SCHEMA)]
    for name, encode in (
        ("outbox", lambda rows: encode_requests(rows, after["channels"])),
        ("responses", encode_responses),
    ):
        added, gone = _added_and_gone(earlier(name), after[name])
        own, fee, item = _ITEMS[name]
        if len(added):
            keys = map_keys(added)
            parts.append(_changes(added["source"], messenger_keys(own, keys), encode(added)))
            paid = np.flatnonzero(added[fee] > 0)
            fees = numbers_column(added[fee][paid], U128_BYTES).cast(pa.binary(U128_BYTES))
            parts.append(_changes(added["source"][paid], messenger_keys(item, keys.take(pa.array(paid))), fees))
            if name == "outbox":
                parts.append(_transfers(added, keys, there=True))
        if len(gone):
            keys = map_keys(gone)
            parts.append(_changes(gone["source"], messenger_keys(own, keys), None))
            if name == "outbox":
                parts.append(_transfers(gone, keys, there=False))
            paid = np.flatnonzero(gone[fee] > 0)
            parts.append(_changes(gone["source"][paid], messenger_keys(item, keys.take(pa.array(paid))), None))
    rows, _ = _differing(earlier("channels"), after["channels"], CHANNEL)
    if len(rows):
        channels = after["channels"].take(rows)
        keys = channel_map_keys(chain_ids(channels["foreign"]), numbers_column(channels["channel"], U256_BYTES))
        owners = numbers_column(channels["owner"], ACCOUNT_BYTES, (channels["has_owner"] == 1))
        encoded = encode_channels(channels, owners)
        parts.append(_changes(channels["chain"], messenger_keys("Channels", keys), encoded))
        counts = fixed_column(channels["count"].astype("<u4").view(np.uint8).reshape(-1, _COUNT_BYTES))
        parts.append(_changes(channels["chain"], messenger_keys("OutboxMessageCount", keys), counts))
    rows, _ = _differing(earlier("next_channels"), after["next_channels"], CHANNEL[:2])
    if len(rows):
        following = after["next_channels"].take(rows)
        keys = messenger_keys("NextChannelId", chain_map_keys(chain_ids(following["foreign"])))
        parts.append(_changes(following["chain"], keys, numbers_column(following["next_channel"], U256_BYTES)))
    rows, _ = _differing(earlier("confirmed"), after["confirmed"], ("chain", "domain"))
    if len(rows):
        confirmed = after["confirmed"].take(rows)
        keys = pa.array([receipt_storage_key(int(domain) - 1) for domain in confirmed["domain"]], _LARGE)
        parts.append(_changes(confirmed["chain"], keys, confirmed["receipt"]))
    # The changes of the chains' sets of those that they exchange messages with.
    allowlists_before = earlier("allowlist")
    if allowlists_before is after["allowlist"]:
        allowlists = empty_frame(STORAGE_SCHEMA)
    else:
        then, now = _foreign(allowlists_before), _foreign(after["allowlist"])
        allowlists_parts = [empty_frame(STORAGE_SCHEMA)]
        for chain in sorted(then.keys() | now.keys()):
            if then.get(chain) != now.get(chain):
                value = pa.array([_id_set(now[chain])], pa.binary()) if chain in now else None
                key = messenger_keys(ALLOWLIST_ITEM, pa.array([b""], _LARGE))
                allowlists_parts.append(_changes(np.array([chain]), key, value))
        allowlists = concat(allowlists_parts)
    parts.append(allowlists)
    rows, _ = _differing(earlier("allow_updates"), after["allow_updates"], ("chain", "domain"))
    if len(rows):
        # What is pending for domains: the sets to add and to remove.
        updates = after["allow_updates"].take(rows)
        numbers = [(domain - 1).to_bytes(4, "little") for domain in updates["domain"].tolist()]
        keys = messenger_keys(ALLOW_UPDATES_ITEM, pa.array(numbers, _LARGE))
        sets = zip(updates["allow"].to_pylist(), updates["remove"].to_pylist(), strict=True)
        values = [_id_set(decode_set(allow)) + _id_set(decode_set(remove)) for allow, remove in sets]
        parts.append(_changes(updates["chain"], keys, pa.array(values, pa.binary())))
    parts.append(_pruned(earlier("pruned"), after["pruned"]))
    # The changes of what domains of other lakes have declared: one entry a domain that it is for.
    declared_before = earlier("declared")
    came, _ = _differing(declared_before, after["declared"], DECLARED)
    domains = sorted(set(after["declared"]["destination"][came].tolist()))
    if not domains:
        declared = empty_frame(STORAGE_SCHEMA)
    else:
        values = [
            encode_declared(after["declared"].filter(after["declared"]["destination"] == domain)) for domain in domains
        ]
        keys = pa.array([declared_key(domain) for domain in domains], _LARGE)
        declared = _changes(np.full(len(domains), CONSENSUS_POSITION), keys, pa.array(values, pa.binary()))
    parts.append(declared)
    # The changes of what chains have taken of value of domains of other lakes.
    drawn_before = earlier("drawn")
    came, _ = _differing(drawn_before, after["drawn"], DRAWN)
    if len(came) == 0:
        drawn = empty_frame(STORAGE_SCHEMA)
    else:
        taken = after["drawn"].take(came)
        ends = chain_map_keys(chain_ids(taken["foreign"]))
        values = [b"".join(row) for row in zip(*(_words(taken[name]) for name in DRAWN_WORDS), strict=True)]
        keys = storage_key_column(storage_prefix(OWN_PALLET, DRAWN_ITEM), ends)
        drawn = _changes(taken["chain"], keys, pa.array(values, pa.binary()))
    parts.append(drawn)
    parts.append(_sections(before, after, context, KnownSections() if known is None else known))
    return concat(parts)


def _pruned(before: Frame, after: Frame) -> Frame:
    """Return the changes of what the consensus chain keeps of frauds that were proved."""
    if before is after:
        return empty_frame(STORAGE_SCHEMA)
    came, went = _differing(before, after, PRUNED)
    parts = [empty_frame(STORAGE_SCHEMA)]
    for frame, there in ((before.take(went), False), (after.take(came), True)):
        domains = [(domain - 1).to_bytes(4, "little") for domain in frame["domain"].tolist()]
        first, *rest = (_words(frame[name]) for name in ("first", "last", "taken", "found"))
        ends = pa.array([domain + word for domain, word in zip(domains, first, strict=True)], _LARGE)
        values = pa.array([b"".join(words) for words in zip(*rest, strict=True)], pa.binary())
        keys = storage_key_column(storage_prefix(OWN_PALLET, PRUNED_ITEM), ends)
        parts.append(_changes(frame["chain"], keys, values if there else None))
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


def _transfers(outbox: Frame, keys: pa.LargeBinaryArray, there: bool) -> Frame:
    """Return the entries of transfers on their way; ``keys``: what those of requests of the outbox end with."""
    rows = np.flatnonzero((outbox["asked"] == Asked.ENDPOINT) & (outbox["src_endpoint"] == TRANSPORTER_ENDPOINT))
    own = storage_key_column(storage_prefix(PALLET, OUTGOING_TRANSFERS), keys.take(pa.array(rows)))
    return _changes(outbox["source"][rows], own, outbox["payload"].take(pa.array(rows)) if there else None)


def _sections(before: State | None, after: State, context: Context, known: KnownSections) -> Frame:
    """Return the digests of tables that are others than before."""
    parts = [empty_frame(STORAGE_SCHEMA)]
    then = {} if before is None else before.frames()
    for name, frame in sorted(after.frames().items()):
        if then.get(name) is frame or not (name in SECTIONS or name.startswith(PROGRAM_TABLE)):
            continue
        old = None if before is None else known.of(name, then[name], context)
        section = known.digested(name, frame, context, old)
        changed = np.ones(len(section.digests), dtype=bool)
        if old is not None:
            changed = np.array([new != last for new, last in zip(section.digests, old.digests, strict=True)])
        chains = context.chains[changed]
        keys = pa.repeat(pa.scalar(storage_prefix(OWN_PALLET, name), _LARGE), len(chains))
        parts.append(_changes(chains, keys, pa.array(section.digests, pa.binary()).filter(pa.array(changed))))
    return concat(parts)


@dataclass
class KnownSections:
    """An index: of each table that has one digest a chain, whose chains' and which rows were digested last, and the
    digests. Without it every digest is the same."""

    last: dict[str, tuple[Chains, Frame, Section]] = field(default_factory=dict)

    def of(self, name: str, frame: Frame, context: Context) -> Section:
        """Return the digests of a table."""
        if (last := self.last.get(name)) is not None:
            chains, rows, section = last
            if rows is frame and np.array_equal(chains, context.chains):
                return section
        return self.digested(name, frame, context, None)

    def digested(self, name: str, frame: Frame, context: Context, before: Section | None) -> Section:
        """Return the digests of a table. ``before``: those of an earlier one of the same chains."""
        # The digest of each chain's rows of a table.
        table = STATE_TABLES.get(name)
        if table is None or table.owned_by_program:
            own = context.network.host_of(frame["program"]).view(np.uint32)
        else:
            own = frame[table.owner]
        section = hashed_rows(frame, own, context.chains, before)
        self.last[name] = context.chains, frame, section
        return section
