"""Addresses and views of a lake of zones: headers, queues, proofs, relayers' accounts.

Views are objects that JSON can hold: bytes are hexadecimal, times are nanoseconds of block time. They read
committed heights only and are thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.tendermint.trust import decode_header_update, time_left
from causeway_proofs.wire.ics23_pb2 import CommitmentProof
from pydantic import Field
from starlette.responses import Response

from causeway.config.section import U64_MAX
from causeway.core.caches import cache_results
from causeway.core.frame import Frame
from causeway.core.joins import merge_ranges
from causeway.core.vocabulary import Event, Kind, Via
from causeway.network.opened_lake import OpenedLake
from causeway.protocols.ibc.keys import MAX_INDEX, QueuePurpose, index_key
from causeway.protocols.ibc.packets import binary_lengths
from causeway.protocols.ibc.relay.accounts import COUNTS, OTHERS, OUTSIDER, relayer_name
from causeway.protocols.ibc.state import RECEIPT, SEND
from causeway.protocols.shared.limits import DIGITS, MAX_ANSWER_BYTES, MAX_ITEMS, MAX_PATH_BYTES, VALUE_COPIES
from causeway.proving.ibc.store import ZoneStore, open_store, read_zones
from causeway.service.http import requests
from causeway.service.ibc import answers
from causeway.service.node.endpoint import LakeViews
from causeway.storage.lake import Manifest

KEPT_STORE_BYTES = 128 << 20
KEPT_TABLE_BYTES = 64 << 20
"""Cache sizes in bytes for stores, and for state tables."""

OVERHEAD_BYTES = 8 << 10
"""Bytes counted for a cached store or table besides its columns."""

MOST_RANGES = 1_000
"""Maximum number of listed ranges of a queue's entries; the first ones."""

ANSWER_MARGIN, ROW_MARGIN = 4 << 10, DIGITS * answers.MAX_KEY_BYTES + 128
"""Bytes of an answer, and of one row of it, besides values and proofs."""

SHOWN_TRUST = 16
"""Number of listed trusted headers of a client, the newest ones.

With a delay, all from the newest usable one on are listed, up to the limit of a relay process.
"""

FAR_END = {"connections": "counterparty", "trust": "counterparty", "slots": "source"}
"""Column of the counterparty in tables without a ``destination``."""

PURPOSES = {purpose.name.lower(): purpose for purpose in QueuePurpose}

CLIENT_STATES = ("active", "frozen", "disconnecting", "frozen")


class ZoneViews(LakeViews):
    """Views of one lake of zones."""

    def __init__(self, opened: OpenedLake) -> None:
        super().__init__(opened)
        self.options = read_zones(opened).options
        self._store = cache_results(self._read_store, KEPT_STORE_BYTES, _store_bytes)
        self._table = cache_results(self._read_table, KEPT_TABLE_BYTES, _table_bytes)

    def status(self) -> dict[str, Any]:
        """Return the network's identity and progress."""
        options = self.options
        return {
            **super().status(),
            "connections": [list(pair) for pair in self.connections()],
            "options": {
                "order": options.order,
                "redundant": options.redundant,
                "timeouts": options.timeouts,
                "expiry": options.expiry,
                "cleanup": options.cleanup,
                "unbonding_ns": options.unbonding_ns,
                "delay_ns": options.delay_ns,
                "header_fee": options.relay.header_fee,
                "proof_fee": options.relay.proof_fee,
            },
        }

    def connections(self) -> list[tuple[str, str]]:
        """Return the connections of this lake's chains, as pairs of chain and counterparty."""
        zones = read_zones(self.opened)
        ends = zip(*(end.tolist() for end in zones.connections), strict=True)
        pairs = [(zones.names[one], zones.names[other]) for one, other in ends]
        return [pair for pair in pairs if pair[0] not in self.external]

    def connection_rows(self, number: int) -> Frame:
        """Return the connections of a chain, by number, in its last state."""
        zones = read_zones(self.opened)
        chain = zones.names[int(zones.positions_of(np.array([number], dtype=np.uint64))[0])]
        return self._table(chain, self.height(), "connections")

    def header(self, chain: str, height: int | None) -> dict[str, Any]:
        """Return the header of a chain at a height, signed from height 1 on, with its content.

        Args:
            chain: Name of the chain.
            height: A height, by default the last.

        Raises:
            InvalidInput: This lake has no such chain.
            LakeError: The height is not committed.
        """
        height = self.known(chain, height)
        root, certification = self.opened.header(chain, height)
        found = {"chain": chain, "height": height, "time": self.time(height), "root": root.hex()}
        if not certification:
            return {**found, "signed_header": None}
        header = decode_header_update(certification).signed_header.header
        return {
            **found,
            "time": header.time,
            "hash": header.hash.hex(),
            "validators_hash": header.validators_hash.hex(),
            "next_validators_hash": header.next_validators_hash.hex(),
            "signed_header": certification.hex(),
        }

    def lane(
        self, chain: str, counterparty: str, height: int | None, packets_from: int = 0, receipts_from: int = 0
    ) -> dict[str, Any]:
        """Return a chain's queues for a counterparty, and its client of it.

        Args:
            chain: Name of the chain.
            counterparty: Name of the counterparty.
            height: A height, by default the last.
            packets_from: First index of the packets to list.
            receipts_from: First index of the receipts to list.

        Raises:
            InvalidInput: This lake has no such chain, or it is not connected.
            LakeError: The height is not committed.
        """
        height = self.known(chain, height)
        if not len(self._lane_rows("connections", chain, counterparty, height)):
            raise InvalidInput(f"counterparty: {chain} is not connected with {counterparty}")
        return {
            "chain": chain,
            "counterparty": counterparty,
            "height": height,
            "time": self.time(height),
            "send": self._queue(chain, counterparty, height, SEND, packets_from),
            "receipt": self._queue(chain, counterparty, height, RECEIPT, receipts_from),
            "client": self._client(chain, counterparty, height),
        }

    def _queue(self, chain: str, counterparty: str, height: int, substream: int, begin: int) -> dict[str, Any]:
        queues = self._lane_rows("queues", chain, counterparty, height, substream)
        indices = self._lane_rows("leaves", chain, counterparty, height, substream)["index"]
        entries = indices[int(np.searchsorted(indices, np.uint64(min(begin, MAX_INDEX)))) :]
        pushed = self._pushed(entries, self._lane_rows("runs", chain, counterparty, height, substream))
        at, first, end = (column[:MOST_RANGES] for column in merge_ranges(entries, pushed))
        rows = zip(first.tolist(), (end - first).tolist(), pushed[at].tolist(), strict=True)
        found: dict[str, Any] = {
            "head": int(queues["begin"][0]),
            "tail": int(queues["next_index"][0]),
            "entries": [[index, count, height or None] for index, count, height in rows],
        }
        if substream == RECEIPT:
            waiting = self._lane_rows("slots", chain, counterparty, height)["index"]
            found["ready"] = int(queues["ready"][0])
            found["missing"] = _gaps(np.sort(np.concatenate([indices, waiting])), found["head"], found["tail"])
            found["waiting"] = waiting.tolist()[:MOST_RANGES]
        return found

    def _pushed(self, entries: Any, runs: Frame) -> Any:
        """Return the height of each entry's push, 0 if unknown."""
        if not len(runs):
            return np.zeros(len(entries), dtype=np.uint64)
        row = np.maximum(np.searchsorted(runs["first"], entries, side="right") - 1, 0)
        inside = (entries >= runs["first"][row]) & (entries - runs["first"][row] < runs["count"][row])
        return np.where(inside, runs["height"][row], np.uint64(0))

    def _client(self, chain: str, counterparty: str, height: int) -> dict[str, Any]:
        connection = self._lane_rows("connections", chain, counterparty, height)
        trust = self._lane_rows("trust", chain, counterparty, height)
        first = max(len(trust) - SHOWN_TRUST, 0)
        if self.options.delay_ns:
            over = np.flatnonzero(trust["added_time"] + np.uint64(self.options.delay_ns) <= self.time(height))
            first = max(min(first, *over[-1:].tolist()), len(trust) - answers.MAX_TRUSTED) if len(over) else first
        rows = trust.slice(first, len(trust))
        names = ("height", "time", "added", "added_time")
        digests = ("root", "validators_hash", "next_validators_hash", "header_hash")
        trusted = [
            {
                **{name: int(rows[name][row]) for name in names},
                **{name: rows[name][row].tobytes().hex() for name in digests},
            }
            for row in range(len(rows))
        ]
        left = time_left(trusted[-1]["time"], self.options.unbonding_ns, self.time(height))
        return {
            "state": CLIENT_STATES[int(connection["frozen"][0])],
            "latest": trusted[-1]["height"],
            "expires_in": max(left, 0),
            "trusted": trusted,
        }

    def entries(
        self, chain: str, counterparty: str, purpose: str, first: int, count: int, height: int | None
    ) -> dict[str, Any]:
        """Return entries of a queue with their values, as many as fit into an answer, at least one.

        Args:
            chain: Name of the chain.
            counterparty: Name of the counterparty.
            purpose: Kind of the queue (``PURPOSES``).
            first: First index.
            count: Maximum number of entries.
            height: A height, by default the last.

        Raises:
            InvalidInput: This lake has no such queue, or ``count`` is out of range.
            LakeError: The height is not committed.
        """
        if purpose not in PURPOSES:
            raise InvalidInput(f"queue: {purpose}; allowed: {', '.join(PURPOSES)}")
        height = self.known(chain, height)
        if not 0 < count <= MAX_ITEMS:
            raise InvalidInput(f"count: {count}; allowed: 1 to {MAX_ITEMS}")
        store = self._store(chain, height)
        queue = store.queue(counterparty, PURPOSES[purpose])
        start = int(np.searchsorted(queue.indices, np.uint64(first)))
        indices = queue.indices[start : start + count]
        keys = [index_key(counterparty, PURPOSES[purpose], index) for index in indices.tolist()]
        places, _ = store.locate(pa.array(keys, pa.binary()))
        values = store.entries_at(places).values.to_pylist()
        rows = list(zip(indices.tolist(), keys, values, strict=True))
        fitting = rows[: _fitting_count(len(value) for value in values)]
        listed = [{"index": index, "key": key.hex(), "value": value.hex()} for index, key, value in fitting]
        return {"chain": chain, "counterparty": counterparty, "height": height, "entries": listed}

    def proofs(self, chain: str, keys: Sequence[bytes], height: int | None) -> dict[str, Any]:
        """Return value and ICS-23 proof of keys in a chain's store, or the proof of absence.

        As many of the first keys as fit into an answer, at least one.

        Args:
            chain: Name of the chain.
            keys: The keys.
            height: A height, by default the last.

        Raises:
            InvalidInput: This lake has no such chain, or there are too many keys.
            LakeError: The height is not committed.
        """
        height = self.known(chain, height)
        if not 0 < len(keys) <= MAX_ITEMS:
            raise InvalidInput(f"keys: {len(keys)}; allowed: 1 to {MAX_ITEMS}")
        store = self._store(chain, height)
        places, stored = store.locate(pa.array(keys, pa.binary()))
        lengths = iter(binary_lengths(store.entries_at(places[stored]).values).tolist())
        absent = self._absences(store, keys, stored.tolist())
        sizes = [
            VALUE_COPIES * next(lengths) + MAX_PATH_BYTES
            if found
            else len(absent[key])
            if key in absent
            else MAX_ANSWER_BYTES
            for key, found in zip(keys, stored.tolist(), strict=True)
        ]
        keys, stored = keys[: _fitting_count(sizes)], stored[: _fitting_count(sizes)]
        places = places[: len(keys)]
        proofs = store.existence_proofs(places[stored]).to_pylist() if stored.any() else []
        present = iter([(CommitmentProof.FromString(proof).exist.value.hex(), proof.hex()) for proof in proofs])
        listed = []
        for key, found in zip(keys, stored.tolist(), strict=True):
            value, proof = next(present) if found else (None, absent[key].hex())
            listed.append({"key": key.hex(), "value": value, "proof": proof})
        return {"chain": chain, "height": height, "root": store.root.hex(), "proofs": listed}

    def _absences(self, store: ZoneStore, keys: Sequence[bytes], stored: Sequence[bool]) -> dict[bytes, bytes]:
        """Return proofs of absence, as many as fit into an answer, at least one.

        A proof contains the neighbouring entries with their values, so its size is not bounded by the key's.
        """
        found: dict[bytes, bytes] = {}
        remaining = MAX_ANSWER_BYTES
        for key in dict.fromkeys(key for key, is_stored in zip(keys, stored, strict=True) if not is_stored):
            if remaining <= 0:
                break
            found[key] = store.prove(key)
            remaining -= DIGITS * len(found[key])
        return found

    def relayers(self, chain: str, height: int | None, relayer: int | None = None) -> dict[str, Any]:
        """Return the fee accounts of relayers with a chain, by number.

        Relayers of the scenario have names; those without an account are summed as ``outside/others``.

        Args:
            chain: Name of the chain.
            height: A height, by default the last.
            relayer: Number of a single external relayer.

        Raises:
            InvalidInput: This lake has no such chain.
            LakeError: The height is not committed.
        """
        height = self.known(chain, height)
        rows = self._table(chain, height, "relayers")
        chosen = range(len(rows)) if relayer is None else np.flatnonzero(rows["relayer"] == relayer + OUTSIDER).tolist()
        accounts = []
        for row in chosen:
            number = int(rows["relayer"][row])
            named = number < OUTSIDER or number == OTHERS
            identity = {"name": relayer_name(number, self.options.relayers)} if named else {"number": number - OUTSIDER}
            accounts.append({**identity, **{name: int(rows[name][row]) for name in COUNTS}})
        return {"chain": chain, "height": height, "relayers": accounts}

    def refused(self, height: int, chain: str, carrier: int, transaction: bytes) -> list[dict[str, Any]]:
        """Return a relayer's refusals in a block, over all its transactions (``LakeViews.refused``)."""
        counts = self.refusals(chain, height, carrier)["refused"]
        fixed = {"program": "", "what": "refused", "where": chain}
        return [{**fixed, "why": why, "count": count} for why, count in sorted(counts.items())]

    def refusals(self, chain: str, height: int, relayer: int | None = None) -> dict[str, Any]:
        """Return the number of refused calls in a block, by error, of one relayer or of all.

        Args:
            chain: Name of the chain.
            height: The height.
            relayer: Number of the relayer.

        Raises:
            InvalidInput: This lake has no such chain.
            LakeError: The height is not committed.
        """
        self.known(chain, height)
        position = self.opened.position(chain)

        def select(batch: pa.RecordBatch) -> Any:
            mask = (batch["chain"].to_numpy() == position) & (batch["kind"].to_numpy() == Kind.CONTROL)
            mask &= (batch["events"].to_numpy() & int(Event.REJECTED)) > 0
            if relayer is None:
                return mask
            return mask & (batch["sender"].to_numpy() == relayer) & (batch["via"].to_numpy() == Via.INGRESS)

        names = ["chain", "kind", "via", "events", "sender", "reason"]
        rows = self.opened.log_rows("events", height, position, names, select)
        counts: dict[str, int] = {}
        for reason in rows["reason"].to_pylist() if rows is not None else ():
            counts[reason] = counts.get(reason, 0) + 1
        return {"chain": chain, "height": height, "refused": counts}

    def _lane_rows(self, table: str, chain: str, counterparty: str, height: int, substream: int | None = None) -> Frame:
        rows = self._table(chain, height, table)
        mask = rows[FAR_END.get(table, "destination")] == self.opened.position(counterparty)
        return rows.filter(mask if substream is None else mask & (rows["substream"] == substream))

    def _read_table(self, chain: str, height: int, table: str) -> Frame:
        manifest: Manifest = self.manifest(height)
        return self.opened.state_rows(manifest, table, self.opened.position(chain), read_zones(self.opened).host_of)

    def _read_store(self, chain: str, height: int) -> ZoneStore:
        return open_store(self.opened, chain, height)


def _fitting_count(lengths: Iterable[int]) -> int:
    """Return the number of rows that fit into an answer, by size in bytes; at least one."""
    remaining = MAX_ANSWER_BYTES - ANSWER_MARGIN
    for number, length in enumerate(lengths):
        remaining -= DIGITS * length + ROW_MARGIN
        if remaining < 0:
            return max(number, 1)
    return MAX_ITEMS


def _store_bytes(store: ZoneStore) -> int:
    """Estimate the memory of a store in bytes: its tree, and as much for the entries."""
    return 2 * sum(level.nbytes for level in store.tree.levels) + OVERHEAD_BYTES


def _table_bytes(rows: Frame) -> int:
    return sum(int(rows[name].nbytes) for name in rows.names) + OVERHEAD_BYTES


def _gaps(indices: Any, head: int, tail: int) -> list[list[int]]:
    """Return the ranges (first, count) from ``head`` to ``tail`` without any of ``indices``."""
    edges = np.concatenate([[head - 1], indices.astype(np.int64), [tail]])
    after = np.flatnonzero(np.diff(edges) > 1)[:MOST_RANGES]
    return [[int(edges[place]) + 1, int(edges[place + 1] - edges[place]) - 1] for place in after.tolist()]


CHAIN = "/v1/chains/{chain}"

HEIGHT = "A committed height; without it, the last."


class AtHeight(requests.Query):
    """A height."""

    height: requests.Number | None = Field(None, description=HEIGHT)


class LaneQuery(AtHeight):
    """Range of entries to list."""

    packets_from: requests.Number = Field(0, description="First packet index to report.")
    receipts_from: requests.Number = Field(0, description="First receipt index to report.")


class EntriesQuery(AtHeight):
    """Range of entries."""

    first: requests.Number = Field(0, description="The first index.")
    count: requests.Count = Field(MAX_ITEMS, description="So many at most.")


class AccountsQuery(AtHeight):
    """Selection of accounts."""

    relayer: requests.Number | None = Field(None, description="Only that of this relayer, by number.")


class RefusalsQuery(requests.Query):
    """Selection of refusals."""

    height: requests.Number = Field(..., description="A committed height.")
    relayer: requests.Number | None = Field(None, description="Only those of this relayer, by number.")


class ProofsBody(requests.Body):
    """Keys to prove."""

    wanted: list[Annotated[requests.Digits, Field(max_length=2 * answers.MAX_KEY_BYTES)]] = Field(
        ..., alias="keys", min_length=1, max_length=MAX_ITEMS, description="Keys of the chain's store."
    )
    height: Annotated[int, Field(ge=0, le=U64_MAX)] | None = Field(None, description=HEIGHT)


def addresses(views: ZoneViews) -> list[requests.Address]:
    """List the addresses of headers, queues, proofs and relayers' accounts."""
    own, at = views.own(), requests.address_of_view
    others = sorted({counterparty for _, counterparty in views.connections()})
    header = "The signed header of a chain."
    lane = "Both queues of a chain for a counterparty, and its client of it."
    entries = "Entries of a queue with their values."
    accounts = "The fee accounts of relayers with a chain."
    refused = "How many calls were refused in a block, by error."
    queues = f"{CHAIN}/queues/{{counterparty}}"

    async def proofs(call: requests.TypedRequest) -> Response:
        keys = [bytes.fromhex(text) for text in call.model.wanted]
        return await requests.answer_in_thread(views.proofs, call.path["chain"], keys, call.model.height)

    return [
        at(f"{CHAIN}/header", header, views.header, answers.SignedHeaderAnswer, AtHeight, chain=own),
        at(queues, lane, views.lane, answers.LaneAnswer, LaneQuery, chain=own, counterparty=others),
        at(
            f"{queues}/{{purpose}}",
            entries,
            views.entries,
            answers.EntriesAnswer,
            EntriesQuery,
            chain=own,
            counterparty=others,
            purpose=list(PURPOSES),
        ),
        requests.Address(
            "POST",
            f"{CHAIN}/proofs",
            "Value and proof of each key in a chain's store.",
            proofs,
            body=ProofsBody,
            answers={200: answers.ProofsAnswer},
            parts={"chain": {"type": "string", "enum": own}},
            longest=2 * answers.MAX_KEY_BYTES * MAX_ITEMS + requests.ENVELOPE_BYTES,
        ),
        at(f"{CHAIN}/relayers", accounts, views.relayers, answers.RelayersAnswer, AccountsQuery, chain=own),
        at(f"{CHAIN}/refusals", refused, views.refusals, answers.RefusalsAnswer, RefusalsQuery, chain=own),
    ]
