"""The addresses that a served lake of zones has beside those of every lake.

What a served lake of zones says of itself: headers, queues, proofs, accounts, as objects that JSON can hold.

Bytes are hexadecimal, times are nanoseconds of block time. All is read from committed heights, by any number of
threads.
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
from causeway.service.http.requests import (
    ENVELOPE_BYTES,
    Address,
    Body,
    Count,
    Digits,
    Number,
    Query,
    TypedRequest,
    address_of_view,
    answer_in_thread,
)
from causeway.service.ibc.answers import (
    MAX_KEY_BYTES,
    MAX_TRUSTED,
    EntriesAnswer,
    HeaderAnswer,
    LaneAnswer,
    ProofsAnswer,
    RefusalsAnswer,
    RelayersAnswer,
)
from causeway.service.node.endpoint import LakeViews
from causeway.storage.lake import Manifest

KEPT_STORE_BYTES = 128 << 20
KEPT_TABLE_BYTES = 64 << 20
"""Bytes of stores, and of tables of states, that are kept in memory for further questions about a height."""

OVERHEAD_BYTES = 8 << 10
"""A kept store or table is counted for so much beside its columns."""

MOST_RANGES = 1_000
"""Ranges of entries that are told of one queue; the first ones."""

ANSWER_MARGIN, ROW_MARGIN = 4 << 10, DIGITS * MAX_KEY_BYTES + 128
"""Bytes of an answer, and of one row of it, that are neither values nor proofs."""

SHOWN_TRUST = 16
"""Trusted headers that are told of one client; the newest ones, and with a delay all from the newest on that can be
used, as many as a relay process reads."""

FAR_END = {"connections": "counterparty", "trust": "counterparty", "slots": "source"}
"""The column with the counterparty, of tables in which it is not the ``destination`` that a queue is for."""

PURPOSES = {purpose.name.lower(): purpose for purpose in QueuePurpose}

CLIENT_STATES = ("active", "frozen", "disconnecting", "frozen")


class Views(LakeViews):
    """The views of one lake of zones."""

    def __init__(self, opened: OpenedLake) -> None:
        super().__init__(opened)
        self.options = read_zones(opened).options
        self._store = cache_results(self._read_store, KEPT_STORE_BYTES, _store_bytes)
        self._table = cache_results(self._read_table, KEPT_TABLE_BYTES, _table_bytes)

    def status(self) -> dict[str, Any]:
        """Return what the network is, and how far it has come."""
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
        """Return the connections of the chains that this lake runs, as pairs of it and its counterparty."""
        zones = read_zones(self.opened)
        ends = zip(*(end.tolist() for end in zones.connections), strict=True)
        pairs = [(zones.names[one], zones.names[other]) for one, other in ends]
        return [pair for pair in pairs if pair[0] not in self.external]

    def connection_rows(self, number: int) -> Frame:
        """Return the connections of the chain with a number, as its state has them at the last height."""
        zones = read_zones(self.opened)
        chain = zones.names[int(zones.positions_of(np.array([number], dtype=np.uint64))[0])]
        return self._table(chain, self.height(), "connections")

    def header(self, chain: str, height: int | None) -> dict[str, Any]:
        """Return the header of a chain at a height, signed from height 1 on, and what it says.

        Raises:
            InvalidInput: there is no such chain here (``LakeError``: no such height).
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
        """Return both queues that a chain keeps for ``counterparty`` at a height, and its client of it.

        Of their entries, those from ``packets_from`` and ``receipts_from`` on.

        Raises:
            InvalidInput: there is no such chain here, or it is not connected (``LakeError``: no such height).
        """
        height = self.known(chain, height)
        if not len(self._of_lane("connections", chain, counterparty, height)):
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
        queues = self._of_lane("queues", chain, counterparty, height, substream)
        held = self._of_lane("leaves", chain, counterparty, height, substream)["index"]
        entries = held[int(np.searchsorted(held, np.uint64(min(begin, MAX_INDEX)))) :]
        pushed = self._pushed(entries, self._of_lane("runs", chain, counterparty, height, substream))
        at, first, end = (column[:MOST_RANGES] for column in merge_ranges(entries, pushed))
        rows = zip(first.tolist(), (end - first).tolist(), pushed[at].tolist(), strict=True)
        found: dict[str, Any] = {
            "head": int(queues["begin"][0]),
            "tail": int(queues["next_index"][0]),
            "entries": [[index, count, height or None] for index, count, height in rows],
        }
        if substream == RECEIPT:
            waiting = self._of_lane("slots", chain, counterparty, height)["index"]
            found["ready"] = int(queues["ready"][0])
            found["missing"] = _gaps(np.sort(np.concatenate([held, waiting])), found["head"], found["tail"])
            found["waiting"] = waiting.tolist()[:MOST_RANGES]
        return found

    def _pushed(self, entries: Any, runs: Frame) -> Any:
        """Return at which height each entry was pushed, 0 where that is not kept."""
        if not len(runs):
            return np.zeros(len(entries), dtype=np.uint64)
        row = np.maximum(np.searchsorted(runs["first"], entries, side="right") - 1, 0)
        inside = (entries >= runs["first"][row]) & (entries - runs["first"][row] < runs["count"][row])
        return np.where(inside, runs["height"][row], np.uint64(0))

    def _client(self, chain: str, counterparty: str, height: int) -> dict[str, Any]:
        connection = self._of_lane("connections", chain, counterparty, height)
        trust = self._of_lane("trust", chain, counterparty, height)
        first = max(len(trust) - SHOWN_TRUST, 0)
        if self.options.delay_ns:
            over = np.flatnonzero(trust["added_time"] + np.uint64(self.options.delay_ns) <= self.time(height))
            first = max(min(first, *over[-1:].tolist()), len(trust) - MAX_TRUSTED) if len(over) else first
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
        """Return entries of a queue (``purpose``: of ``PURPOSES``) from index ``first`` on, ``count`` at most, with
        their values.

        As many as one answer holds, one at least.

        Raises:
            InvalidInput: there is no such queue here, or more than ``MAX_ITEMS`` are wanted (``LakeError``: no such
                height).
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
        fitting = rows[: _fitting(len(value) for value in values)]
        shown = [{"index": index, "key": key.hex(), "value": value.hex()} for index, key, value in fitting]
        return {"chain": chain, "counterparty": counterparty, "height": height, "entries": shown}

    def proofs(self, chain: str, keys: Sequence[bytes], height: int | None) -> dict[str, Any]:
        """Return what lies under each key in a chain's store, with its ICS-23 proof; where nothing does, no value and
        the proof of that.

        As many of the first keys as one answer holds, one at least.

        Raises:
            InvalidInput: there is no such chain here, or too many keys (``LakeError``: no such height).
        """
        height = self.known(chain, height)
        if not 0 < len(keys) <= MAX_ITEMS:
            raise InvalidInput(f"keys: {len(keys)}; allowed: 1 to {MAX_ITEMS}")
        store = self._store(chain, height)
        places, there = store.locate(pa.array(keys, pa.binary()))
        lengths = iter(binary_lengths(store.entries_at(places[there]).values).tolist())
        absent = self._absences(store, keys, there.tolist())
        sizes = [
            VALUE_COPIES * next(lengths) + MAX_PATH_BYTES
            if found
            else len(absent[key])
            if key in absent
            else MAX_ANSWER_BYTES
            for key, found in zip(keys, there.tolist(), strict=True)
        ]
        keys, there = keys[: _fitting(sizes)], there[: _fitting(sizes)]
        places = places[: len(keys)]
        proofs = store.existence_proofs(places[there]).to_pylist() if there.any() else []
        present = iter([(CommitmentProof.FromString(proof).exist.value.hex(), proof.hex()) for proof in proofs])
        shown = []
        for key, found in zip(keys, there.tolist(), strict=True):
            value, proof = next(present) if found else (None, absent[key].hex())
            shown.append({"key": key.hex(), "value": value, "proof": proof})
        return {"chain": chain, "height": height, "root": store.root.hex(), "proofs": shown}

    def _absences(self, store: ZoneStore, keys: Sequence[bytes], there: Sequence[bool]) -> dict[bytes, bytes]:
        """Return the proofs that keys are absent, of the first ones: as many as one answer holds, one at least.

        Such a proof has the neighbours in it, with values as long as any.
        """
        found: dict[bytes, bytes] = {}
        left = MAX_ANSWER_BYTES
        for key in dict.fromkeys(key for key, here in zip(keys, there, strict=True) if not here):
            if left <= 0:
                break
            found[key] = store.prove(key)
            left -= DIGITS * len(found[key])
        return found

    def relayers(self, chain: str, height: int | None, relayer: int | None = None) -> dict[str, Any]:
        """Return the fee accounts of relayers with a chain, by number; those of the scenario with their names, and that
        of those who have none as ``outside/others``.

        ``relayer``: only the one from outside with this number.

        Raises:
            InvalidInput: there is no such chain here (``LakeError``: no such height).
        """
        height = self.known(chain, height)
        rows = self._table(chain, height, "relayers")
        chosen = range(len(rows)) if relayer is None else np.flatnonzero(rows["relayer"] == relayer + OUTSIDER).tolist()
        accounts = []
        for row in chosen:
            number = int(rows["relayer"][row])
            named = number < OUTSIDER or number == OTHERS
            who = {"name": relayer_name(number, self.options.relayers)} if named else {"number": number - OUTSIDER}
            accounts.append({**who, **{name: int(rows[name][row]) for name in COUNTS}})
        return {"chain": chain, "height": height, "relayers": accounts}

    def refused(self, height: int, chain: str, carrier: int, transaction: bytes) -> list[dict[str, Any]]:
        """Return what the block of a height refused of what a relayer brought (``LakeViews.refused``): a block does not
        tell which of its transactions had it."""
        counts = self.refusals(chain, height, carrier)["refused"]
        fixed = {"program": "", "what": "refused", "where": chain}
        return [{**fixed, "why": why, "count": count} for why, count in sorted(counts.items())]

    def refusals(self, chain: str, height: int, relayer: int | None = None) -> dict[str, Any]:
        """Return how many calls were refused in the block of a height, by the error's name; of one relayer, or of all.

        Raises:
            InvalidInput: there is no such chain here (``LakeError``: no such height).
        """
        self.known(chain, height)
        position = self.opened.position(chain)

        def chosen(batch: pa.RecordBatch) -> Any:
            mask = (batch["chain"].to_numpy() == position) & (batch["kind"].to_numpy() == Kind.CONTROL)
            mask &= (batch["events"].to_numpy() & int(Event.REJECTED)) > 0
            if relayer is None:
                return mask
            return mask & (batch["sender"].to_numpy() == relayer) & (batch["via"].to_numpy() == Via.INGRESS)

        names = ["chain", "kind", "via", "events", "sender", "reason"]
        rows = self.opened.log_rows("events", height, position, names, chosen)
        counts: dict[str, int] = {}
        for reason in rows["reason"].to_pylist() if rows is not None else ():
            counts[reason] = counts.get(reason, 0) + 1
        return {"chain": chain, "height": height, "refused": counts}

    def _of_lane(self, table: str, chain: str, counterparty: str, height: int, substream: int | None = None) -> Frame:
        rows = self._table(chain, height, table)
        mask = rows[FAR_END.get(table, "destination")] == self.opened.position(counterparty)
        return rows.filter(mask if substream is None else mask & (rows["substream"] == substream))

    def _read_table(self, chain: str, height: int, table: str) -> Frame:
        manifest: Manifest = self.manifest(height)
        return self.opened.state_rows(manifest, table, self.opened.position(chain), read_zones(self.opened).host_of)

    def _read_store(self, chain: str, height: int) -> ZoneStore:
        return open_store(self.opened, chain, height)


def _fitting(lengths: Iterable[int]) -> int:
    """Return how many of some rows one answer holds, by their lengths in bytes; one at least."""
    left = MAX_ANSWER_BYTES - ANSWER_MARGIN
    for number, length in enumerate(lengths):
        left -= DIGITS * length + ROW_MARGIN
        if left < 0:
            return max(number, 1)
    return MAX_ITEMS


def _store_bytes(store: ZoneStore) -> int:
    """Return about how much memory a store takes: its tree, and as much again for the entries."""
    return 2 * sum(level.nbytes for level in store.tree.levels) + OVERHEAD_BYTES


def _table_bytes(rows: Frame) -> int:
    return sum(int(rows[name].nbytes) for name in rows.names) + OVERHEAD_BYTES


def _gaps(indices: Any, head: int, tail: int) -> list[list[int]]:
    """Return the ranges (first, count) between ``head`` and ``tail`` that none of ``indices`` (ascending) is in."""
    edges = np.concatenate([[head - 1], indices.astype(np.int64), [tail]])
    after = np.flatnonzero(np.diff(edges) > 1)[:MOST_RANGES]
    return [[int(edges[place]) + 1, int(edges[place + 1] - edges[place]) - 1] for place in after.tolist()]


CHAIN = "/v1/chains/{chain}"

HEIGHT = "A committed height; without it, the last."


class AtHeight(Query):
    """A height."""

    height: Number | None = Field(None, description=HEIGHT)


class LaneQuery(AtHeight):
    """Of which entries to tell."""

    packets_from: Number = Field(0, description="Of packets below this index nothing is told.")
    receipts_from: Number = Field(0, description="Of receipts below this index nothing is told.")


class EntriesQuery(AtHeight):
    """Which entries."""

    first: Number = Field(0, description="The first index.")
    count: Count = Field(MAX_ITEMS, description="So many at most.")


class AccountsQuery(AtHeight):
    """Whose accounts."""

    relayer: Number | None = Field(None, description="Only that of this relayer, by number.")


class RefusalsQuery(Query):
    """Which refusals."""

    height: Number = Field(..., description="A committed height.")
    relayer: Number | None = Field(None, description="Only those of this relayer, by number.")


class ProofsBody(Body):
    """What to prove."""

    wanted: list[Annotated[Digits, Field(max_length=2 * MAX_KEY_BYTES)]] = Field(
        ..., alias="keys", min_length=1, max_length=MAX_ITEMS, description="Keys of the chain's store."
    )
    height: Annotated[int, Field(ge=0, le=U64_MAX)] | None = Field(None, description=HEIGHT)


def addresses(views: Views) -> list[Address]:
    """Return headers, queues, proofs, accounts of relayers."""
    own, at = views.own(), address_of_view
    others = sorted({counterparty for _, counterparty in views.connections()})
    header = "The signed header of a chain."
    lane = "Both queues of a chain for a counterparty, and its client of it."
    entries = "Entries of a queue with their values."
    accounts = "The fee accounts of relayers with a chain."
    refused = "How many calls were refused in a block, by error."
    queues = f"{CHAIN}/queues/{{counterparty}}"

    async def proofs(call: TypedRequest) -> Response:
        keys = [bytes.fromhex(text) for text in call.model.wanted]
        return await answer_in_thread(views.proofs, call.path["chain"], keys, call.model.height)

    return [
        at(f"{CHAIN}/header", header, views.header, HeaderAnswer, AtHeight, chain=own),
        at(queues, lane, views.lane, LaneAnswer, LaneQuery, chain=own, counterparty=others),
        at(
            f"{queues}/{{purpose}}",
            entries,
            views.entries,
            EntriesAnswer,
            EntriesQuery,
            chain=own,
            counterparty=others,
            purpose=list(PURPOSES),
        ),
        Address(
            "POST",
            f"{CHAIN}/proofs",
            "Value and proof of each key in a chain's store.",
            proofs,
            body=ProofsBody,
            answers={200: ProofsAnswer},
            parts={"chain": {"type": "string", "enum": own}},
            longest=2 * MAX_KEY_BYTES * MAX_ITEMS + ENVELOPE_BYTES,
        ),
        at(f"{CHAIN}/relayers", accounts, views.relayers, RelayersAnswer, AccountsQuery, chain=own),
        at(f"{CHAIN}/refusals", refused, views.refusals, RefusalsAnswer, RefusalsQuery, chain=own),
    ]
