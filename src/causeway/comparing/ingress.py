"""What users' messages a run took in: a digest by which columns are compared, and the first message in which two
differ.

It is computed from the lake of a run: for every tick of it that is committed, what its traffic, out of the files that
the lake has, gives the chains; and compared with what the chains logged of users' messages.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.model.ledger import Event, Kind, Via
from causeway.model.text import shown
from causeway.network.replayed import deployment_of
from causeway.pipeline.deployment import Deployment
from causeway.pipeline.lake import Lake
from causeway.pipeline.reverted import reverted
from causeway.programs.sources import NOWHERE, Sources
from causeway.proofs.hashing import DIGEST_BYTES, HashFunction, digest_values
from causeway.protocols.registry import protocol as registered_protocol

_NUMBERS = ("receiver", "sender")
_TEXTS = ("chain", "method", "payload")
_SHOWN_BYTES = 24


class IngressDiffers(InvalidInput):
    """A run did not take in the messages of users that it was given."""


@dataclass(frozen=True)
class TakenIn:
    """The messages of users that a run took in. ``digest``: of all, hexadecimal; ``received``, ``refused``,
    ``waiting``: how many programs received, how many chains refused, and how many wait for a block of their chain;
    ``ticks``: how many by tick, and their digest; ``lake``: where they come from; ``scenario``: the file of the run."""

    protocol: str
    digest: str
    received: int
    refused: int
    waiting: int
    ticks: Mapping[int, tuple[int, bytes]]
    lake: str
    scenario: str | None = None

    @property
    def count(self) -> int:
        """Return the number of messages."""
        return self.received + self.refused + self.waiting


def taken_in(protocol: str, place: str, scenario: str | None = None) -> TakenIn:
    """Return what the run in a lake took in. ``scenario``: the file beside which its programs lie.

    Raises ``IngressDiffers`` where the chains logged other messages than they were given, ``InvalidInput``.
    """
    lake = Lake.at(place)
    deployment = deployment_of(lake, lake.about(), _sources(scenario), unsigned=True)
    ticks: dict[int, tuple[int, bytes]] = {}
    given: Counter[tuple[int, int]] = Counter()
    for tick, rows in _given(lake, deployment):
        ticks[tick] = rows.num_rows, hashlib.sha256(_digests(rows).tobytes()).digest()
        given.update(_pairs(rows))
    counts = _require_logged(protocol, lake, given)
    whole = hashlib.sha256()
    for tick, (count, digest) in sorted(ticks.items()):
        whole.update(b"%d/%d/" % (tick, count) + digest)
    return TakenIn(protocol, whole.hexdigest(), *counts, ticks, place, scenario)


def _given(lake: Lake, deployment: Deployment) -> Any:
    """Yield the ticks of a lake that brought messages of users, ascending, and these, by the names of their chains."""
    names = pa.array(deployment.kernel.chains(), pa.string())
    order = np.argsort(deployment.numbers)
    numbers = deployment.numbers[order]
    everywhere = np.arange(len(numbers), dtype=np.uint32)
    number = 1
    last = lake.last_manifest().number
    while number <= last:
        manifest = lake.numbered(number)
        for line in manifest.lines:
            rows = deployment.ingress(line.tick, lake.outside(manifest.at(line.height)), everywhere)
            if rows.num_rows:
                at = order[np.searchsorted(numbers, rows["chain"].to_numpy())]
                named = rows.set_column(0, "chain", names.take(pa.array(at)))
                # The order of one chain's messages counts, that of chains does not.
                by_chain = np.argsort(np.asarray(named["chain"].to_pylist()), kind="stable")
                yield line.tick, named.take(pa.array(by_chain)).combine_chunks()
        number += 1


def _digests(rows: pa.Table) -> Any:
    """Return the digest of each message, shape (n, 32): who sends it to whom, by which method, with what."""
    columns: dict[str, pa.Array] = {name: rows[name].combine_chunks() for name in rows.column_names}
    fixed = np.empty((rows.num_rows, len(_NUMBERS) + len(_TEXTS)), dtype="<u8")
    texts = [columns[name].cast(pa.large_binary()) for name in _TEXTS]
    for place, name in enumerate(_NUMBERS):
        fixed[:, place] = columns[name].to_numpy()
    for place, text in enumerate(texts, len(_NUMBERS)):
        fixed[:, place] = pc.binary_length(text).to_numpy(zero_copy_only=False)
    head = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(fixed.shape[1] * fixed.itemsize), len(fixed), [None, pa.py_buffer(np.ascontiguousarray(fixed))]
    )
    joined = pc.binary_join_element_wise(head.cast(pa.large_binary()), *texts, pa.scalar(b"", pa.large_binary()))
    return digest_values(HashFunction.SHA256, joined).reshape(-1, DIGEST_BYTES)


def _pairs(rows: pa.Table) -> dict[tuple[int, int], int]:
    counted = rows.group_by(list(_NUMBERS)).aggregate([([], "count_all")])
    pairs = zip(*(counted[name].to_pylist() for name in _NUMBERS), strict=True)
    return dict(zip(pairs, counted["count_all"].to_pylist(), strict=True))


def _require_logged(protocol: str, lake: Lake, given: Mapping[tuple[int, int], int]) -> tuple[int, int, int]:
    """Return how many messages of users were received, were refused and wait for a block of their chain.

    Raises ``IngressDiffers`` where these are not the messages that the chains were given, by user and program.
    """
    received: Counter[tuple[int, int]] = Counter()
    refused: Counter[tuple[int, int]] = Counter()
    columns = ["height", "chain", "events", "kind", "via", *_NUMBERS]
    undone = reverted(lake, lake.last_manifest())
    for path, seal in lake.log_files("events").items():
        rows = lake.sealed_table(path, seal, columns)
        if undone is not None:
            rows = rows.filter(pa.array(~undone.hits(rows, "chain")))
        users = pc.and_(pc.equal(rows["kind"], int(Kind.INGRESS)), pc.equal(rows["via"], int(Via.INGRESS)))
        rows = rows.filter(users)
        bits = rows["events"].to_numpy()
        came = bits & np.uint16(Event.RECEIVED) > 0
        received.update(_pairs(rows.filter(pa.array(came))))
        refused.update(_pairs(rows.filter(pa.array(~came & (bits & np.uint16(Event.REJECTED) > 0)))))
    waiting = _waiting(lake)
    for pair in sorted({*given, *received, *refused, *waiting}):
        counts = received[pair], refused[pair], waiting[pair]
        if sum(counts) != given.get(pair, 0):
            receiver, sender = pair
            raise IngressDiffers(
                f"ingress: {protocol}: its chains were given {given.get(pair, 0)} messages of user {sender} to program "
                f"{receiver}, and logged that they received {counts[0]} and refused {counts[1]}; {counts[2]} wait"
            )
    return received.total(), refused.total(), waiting.total()


def _waiting(lake: Lake) -> Counter[tuple[int, int]]:
    """Return how many messages of users wait for a block of their chain at the last height, by program and user."""
    found: Counter[tuple[int, int]] = Counter()
    table = registered_protocol(lake.about()["protocol"]).pool
    if table is not None:
        for rows in lake.state(lake.last_manifest(), table, list(_NUMBERS)):
            found.update(_pairs(rows))
    return found


def difference(one: TakenIn, other: TakenIn) -> str | None:
    """Return in words what the first message is in which two runs differ, None where they took in the same."""
    return None if one.digest == other.digest else f"ingress: {_first_difference(one, other)}"


def _first_difference(one: TakenIn, other: TakenIn) -> str:
    """Return in words what the first message is that two runs do not both have."""
    nothing = 0, b""
    tick = min(
        tick for tick in {*one.ticks, *other.ticks} if one.ticks.get(tick, nothing) != other.ticks.get(tick, nothing)
    )
    mine, theirs = (_rows_of(side, tick) for side in (one, other))
    for place in range(max(len(mine), len(theirs))):
        found = [side[place] if place < len(side) else None for side in (mine, theirs)]
        if found[0] != found[1]:
            says = [
                f"{side.protocol} {'took in nothing more' if row is None else 'took in ' + _in_words(row)}"
                for side, row in zip((one, other), found, strict=True)
            ]
            return f"tick {tick}, message {place + 1}: {says[0]}; {says[1]}"
    return f"tick {tick}: {one.protocol} and {other.protocol} took in different messages"


def _sources(scenario: str | None) -> Sources:
    return NOWHERE if scenario is None else Sources.of_run(scenario)


def _rows_of(side: TakenIn, tick: int) -> list[dict[str, Any]]:
    lake = Lake.at(side.lake)
    deployment = deployment_of(lake, lake.about(), _sources(side.scenario), unsigned=True)
    for at, rows in _given(lake, deployment):
        if at == tick:
            found: list[dict[str, Any]] = rows.to_pylist()
            return found
    return []


def _in_words(row: Mapping[str, Any]) -> str:
    payload = row["payload"]
    more = "..." if len(payload) > _SHOWN_BYTES else ""
    content = f"{len(payload)} bytes {payload[:_SHOWN_BYTES].hex()}{more}"
    return f"{shown(row['method'])} of user {row['sender']} to program {row['receiver']} on {row['chain']} ({content})"


__all__ = ["IngressDiffers", "TakenIn", "difference", "taken_in"]
