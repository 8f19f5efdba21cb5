"""The addresses that a served lake of domains has beside those of every lake.

What the block that has a carried transaction refused of it: by the error's name, and of which of its items (XDM
reference 3.4, 3.5, 3.10).

Events of a block name messages, not who carried them. So a message that somebody else carried in the same block, too,
is told of to both, and of blocks and receipts all that was refused on the chain in that block.

What a served lake of domains says of itself: channels, messages with their proofs, receipts, and of the consensus
chain its blocks and what is proved under them (XDM reference 2.4, 3.10, X-5).

All is read from committed heights. A lake that follows the consensus chain says what it knows of it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import find_positions
from pydantic import Field
from starlette.responses import Response

from causeway.config.section import U64_MAX, ScenarioSection
from causeway.core.frame import Frame, concat
from causeway.core.vocabulary import NO_CHAIN, Event, Kind
from causeway.network.opened_lake import Mask, OpenedLake
from causeway.protocols.shared.limits import DIGITS, MAX_ANSWER_BYTES
from causeway.protocols.shared.messages import LANE_COLUMNS
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus.followed import provable_row
from causeway.protocols.xdm.errors import MessengerError
from causeway.protocols.xdm.relay.envelopes import decode_envelopes
from causeway.protocols.xdm.state import MAX_CHANNEL, is_response, lane_channels
from causeway.protocols.xdm.transactions import Messages, Receipts, Transaction, decode_transaction
from causeway.protocols.xdm.wire import message_keys, message_tags
from causeway.proving.xdm.messages import find_height, read_storage
from causeway.service.http.requests import (
    ENVELOPE_BYTES,
    Address,
    Body,
    Number,
    Query,
    TypedRequest,
    address_of_view,
    answer_in_thread,
)
from causeway.service.xdm.answers import (
    AnchorAnswer,
    BlocksAnswer,
    ChannelsAnswer,
    FollowedAnswer,
    MessagesAnswer,
    ReceiptedAnswer,
    ReceiptsAnswer,
)
from causeway.service.xdm.consensus_views import ANSWER_MARGIN, ROW_MARGIN, ConsensusViews

COLUMNS = ("chain", "kind", "events", *LANE_COLUMNS, "reason")

OF_REQUESTS = MessengerError.FailedToNoteTransferIn.name
"""What a chain says of a request of another in the lane of its own requests; all else there is of responses to them."""

LaneKey = tuple[int, int, int, int]
"""Source, destination, substream and index of a message."""


def refused_items(opened: OpenedLake, height: int, position: int, content: Transaction) -> Counter[tuple[str, str]]:
    """Return why, of what, and how often something of a transaction was refused in the block of a height.

    ``position``: of the chain that it was carried to.
    """
    rows = _refusals(opened, height, position)
    if isinstance(content, Messages):
        found = Counter(_of_messages(rows, position, content, opened.names))
    elif isinstance(content, Receipts):
        found = Counter(_of_receipts(rows, content, opened.names))
    else:
        found = Counter()
    found.update((why, "") for (_, end, _, _), why in rows if end == NO_CHAIN)
    return found


def _refusals(opened: OpenedLake, height: int, position: int) -> list[tuple[LaneKey, str]]:
    """Return what the block of a chain refused, with the lane and index that it says."""

    def chosen(batch: pa.RecordBatch) -> Mask:
        mask: Mask = (batch["chain"].to_numpy() == position) & (batch["kind"].to_numpy() == Kind.CONTROL)
        mask &= (batch["events"].to_numpy() & int(Event.REJECTED)) > 0
        return mask

    rows = opened.log_rows("events", height, position, list(COLUMNS), chosen)
    if rows is None:
        return []
    lanes = zip(*(rows[name].to_pylist() for name in LANE_COLUMNS), strict=True)
    return list(zip(lanes, rows["reason"].to_pylist(), strict=True))


def _of_messages(
    rows: list[tuple[LaneKey, str]], position: int, content: Messages, names: list[str]
) -> Iterator[tuple[str, str]]:
    brought, _ = decode_envelopes(pa.array(content.envelopes, pa.large_binary()), np.array(content.responses))
    envelopes = brought.envelopes
    carried: set[LaneKey] = set(zip(*(envelopes[name].tolist() for name in LANE_COLUMNS), strict=True))
    for (source, destination, substream, index), why in rows:
        lane = source, destination, substream, index
        if source == position and destination != NO_CHAIN:
            # What the chain says in the lane of its own requests is about a response to one, or a request with its fee.
            lane = destination, source, substream | int(why != OF_REQUESTS), index
        if lane in carried:
            number = np.array([lane[2]], dtype=np.uint64)
            kind = "response" if is_response(number)[0] else "request"
            yield why, f"{kind} {index} of channel {lane_channels(number)[0]} from {names[lane[0]]}"


def _of_receipts(rows: list[tuple[LaneKey, str]], content: Receipts, names: list[str]) -> Iterator[tuple[str, str]]:
    # A domain that there is not is named by the consensus chain itself.
    domains = {one.domain + 1 if one.domain + 1 < len(names) else CONSENSUS_POSITION for one in content.receipts}
    for (source, destination, substream, index), why in rows:
        if source == CONSENSUS_POSITION and destination in domains and not substream and not index:
            yield why, "receipt" if destination == CONSENSUS_POSITION else f"receipt of {names[destination]}"


def refusal_faults(found: Counter[tuple[str, str]], chain: str) -> list[dict[str, Any]]:
    """Return refusals as what an outcome says (``service.lake_views.LakeViews.outcome``)."""
    told = []
    for (why, item), count in sorted(found.items()):
        where = f"{chain}: {item}" if item else chain
        told.append({"program": "", "what": "refused", "why": why, "count": count, "where": where})
    return told


MOST_CHANNELS = 10_000
"""Channels of a pair of chains that are told of."""

MOST_MESSAGES = 1_000
"""Messages in one answer."""

_LANE_KEYS = ("source", "destination", "substream")


class Views(ConsensusViews):
    """The views of one lake of domains. ``kernel``: the network's, whose chains sign."""

    def status(self) -> dict[str, Any]:
        """Return what the network is, and how far it has come."""
        options = self.kernel.options
        return {
            **super().status(),
            "consensus": self.consensus,
            "agreed": self._agreed(),
            "options": {
                "archiving_depth": options.archiving_depth,
                "challenge_period": options.challenge_period,
                "max_future_nonces": options.max_future_nonces,
                "channels_per_block": options.channels_per_block,
                "resubmit_after": options.resubmit_after,
            },
        }

    def _agreed(self) -> str:
        """Return a digest of all that lakes of one network have in common: options, chains, programs."""
        topology = self.network.topology
        options = self.kernel.options.model_dump(mode="json", exclude={"validator_keys"})
        programs = topology.programs.select(["number", "name", "chain", "program", "balance"])
        said = [options, self.kernel.seed, self.network.names, programs.sort_by("number").to_pylist()]
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()

    # ---- channels and messages of a chain

    def channels(self, chain: str, counterparty: str, height: int | None) -> dict[str, Any]:
        """Return the channels of a chain with another at a height, and the consensus block that messages to it are
        proved under.

        Raises:
            InvalidInput: there is no such chain here (``LakeError``: no such height).
        """
        height = self.known(chain, height)
        position, foreign = self.opened.position(chain), self.position_of(counterparty, "counterparty")
        rows = self.table(height, position, "channels")
        rows = rows.filter(rows["foreign"] == foreign)
        names = ("channel", "state", "next_inbox", "next_outbox", "next_response", "count")
        columns = (rows[name][:MOST_CHANNELS].tolist() for name in names)
        shown = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        blocks = self.table(height, CONSENSUS_POSITION, "blocks")
        at = self._proved_at(blocks, position, foreign, height)
        under = None if at < 0 or not int(blocks["leaf_count"][at]) else _block(blocks, at)
        best = int(blocks["number"][-1]) if len(blocks) else None
        place = {"chain": chain, "counterparty": counterparty, "height": height}
        return {**place, "best": best, "under": under, "channels": shown}

    def waiting(self, height: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the channels of all chains here at a height: the positions of both ends, the channel's number, and how
        many requests have no response."""
        names = ["chain", "foreign", "channel", "count"]
        for first, _ in self.opened.about["buckets"]:
            rows = self.opened.chosen_rows(
                self.manifest(height), "channels", first, names, lambda batch: np.ones(batch.num_rows, dtype=bool)
            )
            if rows is not None:
                yield from zip(*(rows[name].to_pylist() for name in names), strict=True)

    def best(self, height: int) -> int | None:
        """Return the newest consensus block that is known here at a height."""
        numbers = self.table(height, CONSENSUS_POSITION, "blocks")["number"]
        return int(numbers[-1]) if len(numbers) else None

    def _proved_at(self, blocks: Frame, position: int, foreign: int, height: int) -> int:
        """Return the row of the consensus block that messages to a chain are proved under now, -1 for none: the newest,
        the newest final one, or the one after that of which is known what was declared."""
        if position == CONSENSUS_POSITION:
            return len(blocks) - 1
        if not self.network.follows or foreign == CONSENSUS_POSITION:
            found = provable_row(blocks, self.kernel.options)
            return -1 if found is None else found + 1
        under = self.table(height, CONSENSUS_POSITION, "declared_under")
        rows = np.flatnonzero(np.isin(blocks["number"], under["number"][under["domain"] == position]))
        return int(rows[0]) + 1 if len(rows) else -1

    def messages(
        self, chain: str, counterparty: str, block: int, lanes: list[tuple[int, bool, int]], most: int
    ) -> dict[str, Any]:
        """Return messages of a chain to another, as they are in the storage of its block of a number, with their proofs
        under its root.

        Args:
            chain, counterparty: from which to which.
            block: the number.
            lanes: (channel, whether responses are asked for, first nonce).
            most: messages of a lane at most. As many as one answer holds, one at least where there is any.

        Raises:
            InvalidInput: there is no such chain here, or no such block (``LakeError``: it is not kept).
        """
        self.known(chain, None)
        height = find_height(self.opened, block, self.height())
        position, foreign = self.opened.position(chain), self.position_of(counterparty, "counterparty")
        rows = self._wanted(height, position, foreign, lanes, most)
        storage = read_storage(self.opened, position, height)
        proofs = storage.proofs(message_keys(rows))
        numbers: dict[bytes, int] = {}
        shown: list[dict[str, Any]] = []
        left = MAX_ANSWER_BYTES - ANSWER_MARGIN
        for row in range(len(rows)):
            nodes = sorted(set(proofs.nodes_of(row)))
            left -= ROW_MARGIN + sum(DIGITS * len(node) + 8 for node in nodes if node not in numbers)
            if left < 0 and shown:
                break
            lane, nonce = int(rows["substream"][row]), int(rows["index"][row])
            members = [numbers.setdefault(node, len(numbers)) for node in nodes]
            shown.append(
                {
                    "channel": lane >> 1,
                    "response": bool(lane & 1),
                    "nonce": nonce,
                    "tag": int(rows["tag"][row]),
                    "members": members,
                }
            )
        place = {"chain": chain, "counterparty": counterparty, "block": block, "root": storage.root.hex()}
        return {**place, "nodes": [node.hex() for node in numbers], "messages": shown}

    def _wanted(self, height: int, position: int, foreign: int, lanes: list[tuple[int, bool, int]], most: int) -> Frame:
        """Return the messages (lane, ``index``, ``tag``) of some lanes from a nonce on."""
        parts = []
        for name in ("outbox", "responses"):
            rows = self.table(height, position, name)
            rows = rows.filter(rows["destination"] == foreign)
            parts.append(rows.select([*_LANE_KEYS, "index"]).with_columns(tag=message_tags(name, rows)))
        every = concat(parts)
        keep = np.zeros(len(every), dtype=bool)
        asked: list[dict[int, int]] = []  # a lane that is named again is looked for again
        for channel, response, first in lanes:
            lane = channel << 1 | response
            once = next((named for named in asked if lane not in named), None)
            if once is None:
                asked.append(once := {})
            once[lane] = first
        for named in asked:
            numbers = np.array(sorted(named), dtype=np.uint64)
            at = find_positions(numbers, every["substream"])
            begin = np.array([named[int(number)] for number in numbers], dtype=np.uint64)[at]
            keep |= (at >= 0) & (every["index"] >= begin) & (every["index"] - begin < np.uint64(most))
        found = every.filter(keep)
        order = np.lexsort((found["index"], found["substream"]))
        return found.take(order[:MOST_MESSAGES])

    def refused(self, height: int, chain: str, carrier: int, transaction: bytes) -> list[dict[str, Any]]:
        """Return what the block of a height refused of a transaction (``LakeViews.refused``)."""
        found = refused_items(self.opened, height, self.opened.position(chain), decode_transaction(transaction))
        return refusal_faults(found, chain)


def _block(blocks: Frame, at: int) -> dict[str, Any]:
    return {
        "number": int(blocks["number"][at]),
        "hash": blocks["hash"][at].tobytes().hex(),
        "leaf_count": int(blocks["leaf_count"][at]),
        "root": blocks["mmr_root"][at].tobytes().hex(),
    }


CHAIN = "/v1/chains/{chain}"

MOST_LANES = 256
"""Lanes that messages are asked of at once."""

LANE_BYTES = 128
"""Bytes of a lane in a body: its keys, and the digits of two numbers."""


class ChannelsQuery(Query):
    """A height."""

    height: Number | None = Field(None, description="A committed height; without it, the last.")


class AfterQuery(Query):
    """From where on."""

    after: Number | None = Field(None, description="The number of a block; without it, from the first on.")


class AnchorQuery(Query):
    """What is to be proved."""

    under: Number = Field(..., description="The number of the block under whose mountain range it is proved.")
    domain: str | None = Field(None, max_length=128, description="Whose confirmed receipt is proved, too.")


class Lane(ScenarioSection):
    """Messages of one direction of a channel."""

    channel: Annotated[int, Field(ge=0, le=MAX_CHANNEL)] = Field(..., description="The channel's number.")
    response: bool = Field(False, description="Responses; else requests.")
    first: Annotated[int, Field(ge=0, le=U64_MAX)] = Field(0, description="The first nonce.")


class MessagesBody(Body):
    """Which messages."""

    counterparty: Annotated[str, Field(max_length=128)] = Field(..., description="The chain that they are for.")
    block: Annotated[int, Field(ge=0, le=2**32 - 1)] = Field(
        ..., description="The number of the chain's block in whose storage they are."
    )
    lanes: list[Lane] = Field(..., min_length=1, max_length=MOST_LANES, description="Of which lanes.")
    most: Annotated[int, Field(ge=1, le=1_000)] = Field(257, description="Of a lane at most.")


def addresses(views: Views) -> list[Address]:
    """Return channels, messages with proofs, receipts, and what there is of the consensus chain."""
    own, names, main, at = views.own(), views.opened.names, views.consensus, address_of_view
    domains = [name for name in names if name != main]

    async def messages(call: TypedRequest) -> Response:
        asked = call.model
        lanes = [(lane.channel, lane.response, lane.first) for lane in asked.lanes]
        return await answer_in_thread(
            views.messages, call.path["chain"], asked.counterparty, asked.block, lanes, asked.most
        )

    def of_consensus(view: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        """Return a view that refuses to be asked of another chain than the consensus chain."""

        def view_of_consensus(chain: str, **asked: Any) -> dict[str, Any]:
            if chain != main:
                raise InvalidInput(f"chain: {chain[:128]}; allowed: {main}")
            return view(**asked)

        return view_of_consensus

    channels = "The channels of a chain with another, and the consensus block that messages to it are proved under."
    found = [
        at(
            f"{CHAIN}/channels/{{counterparty}}",
            channels,
            views.channels,
            ChannelsAnswer,
            ChannelsQuery,
            chain=own,
            counterparty=names,
        ),
        Address(
            "POST",
            f"{CHAIN}/messages",
            "Messages to another chain in the storage of a block, with their proofs.",
            messages,
            body=MessagesBody,
            answers={200: MessagesAnswer},
            parts={"chain": {"type": "string", "enum": own}},
            longest=MOST_LANES * LANE_BYTES + ENVELOPE_BYTES,
        ),
    ]
    if views.network.follows:
        known = "What is known here of the consensus chain, which another lake runs."
        signed = "The signed receipts of a domain's blocks."
        return [
            *found,
            at(f"{CHAIN}/followed", known, of_consensus(views.followed), FollowedAnswer, chain=[main]),
            at(f"{CHAIN}/receipts", signed, views.receipts, ReceiptsAnswer, AfterQuery, chain=own),
        ]
    headers = "Headers of the consensus chain, with its author's signature on the last."
    leaf = "The leaf of a consensus block in the mountain range, and a domain's confirmed receipt under it."
    last = "The last receipt of a domain that the consensus chain has taken in, and the last that it confirmed."
    receipted, place = of_consensus(views.receipted), f"{CHAIN}/receipted/{{domain}}"
    return [
        *found,
        at(f"{CHAIN}/blocks", headers, of_consensus(views.blocks), BlocksAnswer, AfterQuery, chain=[main]),
        at(f"{CHAIN}/anchor", leaf, of_consensus(views.anchor), AnchorAnswer, AnchorQuery, chain=[main]),
        at(place, last, receipted, ReceiptedAnswer, chain=[main], domain=domains),
    ]
