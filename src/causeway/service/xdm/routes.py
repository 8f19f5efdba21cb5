"""Addresses and views of a lake of domains: channels, messages, receipts, consensus chain.

All views read committed heights (XDM reference 2.4, 3.10, X-5). A lake that follows the consensus chain reports its
knowledge of it.

The outcome of a carried transaction lists the refusals of its block by error and item (XDM reference 3.4, 3.5,
3.10). Events name messages, not carriers: a message carried twice in one block is reported to both carriers, and
for blocks and receipts all refusals on the chain in that block are reported.
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
from causeway.protocols.xdm.transactions import Receipts, RelayedMessages, Transaction, decode_transaction
from causeway.protocols.xdm.wire import message_keys, message_tags
from causeway.proving.xdm.messages import find_height, read_storage
from causeway.service.http import requests
from causeway.service.xdm import answers
from causeway.service.xdm.consensus_views import ANSWER_MARGIN, ROW_MARGIN, ConsensusViews

COLUMNS = ("chain", "kind", "events", *LANE_COLUMNS, "reason")

OF_REQUESTS = MessengerError.FailedToNoteTransferIn.name
"""Only refusal of a remote request in the lane of own requests; all others there concern responses."""

LaneKey = tuple[int, int, int, int]
"""Source, destination, substream and index of a message."""


def refused_items(opened: OpenedLake, height: int, position: int, content: Transaction) -> Counter[tuple[str, str]]:
    """Count the refusals of a transaction in a block, by reason and item.

    Args:
        opened: The lake.
        height: Height of the block.
        position: Position of the target chain.
        content: The transaction.
    """
    rows = _refusals(opened, height, position)
    if isinstance(content, RelayedMessages):
        found = Counter(_message_refusals(rows, position, content, opened.names))
    elif isinstance(content, Receipts):
        found = Counter(_receipt_refusals(rows, content, opened.names))
    else:
        found = Counter()
    found.update((why, "") for (_, end, _, _), why in rows if end == NO_CHAIN)
    return found


def _refusals(opened: OpenedLake, height: int, position: int) -> list[tuple[LaneKey, str]]:
    """Return the refusals in a chain's block with their lanes and indices."""

    def select(batch: pa.RecordBatch) -> Mask:
        mask: Mask = (batch["chain"].to_numpy() == position) & (batch["kind"].to_numpy() == Kind.CONTROL)
        mask &= (batch["events"].to_numpy() & int(Event.REJECTED)) > 0
        return mask

    rows = opened.log_rows("events", height, position, list(COLUMNS), select)
    if rows is None:
        return []
    lanes = zip(*(rows[name].to_pylist() for name in LANE_COLUMNS), strict=True)
    return list(zip(lanes, rows["reason"].to_pylist(), strict=True))


def _message_refusals(
    rows: list[tuple[LaneKey, str]], position: int, content: RelayedMessages, names: list[str]
) -> Iterator[tuple[str, str]]:
    decoded, _ = decode_envelopes(pa.array(content.envelopes, pa.large_binary()), np.array(content.responses))
    envelopes = decoded.envelopes
    carried: set[LaneKey] = set(zip(*(envelopes[name].tolist() for name in LANE_COLUMNS), strict=True))
    for (source, destination, substream, index), why in rows:
        lane = source, destination, substream, index
        if source == position and destination != NO_CHAIN:
            # An event in the lane of own requests concerns a response, or a request with its fee.
            lane = destination, source, substream | int(why != OF_REQUESTS), index
        if lane in carried:
            number = np.array([lane[2]], dtype=np.uint64)
            kind = "response" if is_response(number)[0] else "request"
            yield why, f"{kind} {index} of channel {lane_channels(number)[0]} from {names[lane[0]]}"


def _receipt_refusals(
    rows: list[tuple[LaneKey, str]], content: Receipts, names: list[str]
) -> Iterator[tuple[str, str]]:
    # An unknown domain is attributed to the consensus chain.
    domains = {one.domain + 1 if one.domain + 1 < len(names) else CONSENSUS_POSITION for one in content.receipts}
    for (source, destination, substream, index), why in rows:
        if source == CONSENSUS_POSITION and destination in domains and not substream and not index:
            yield why, "receipt" if destination == CONSENSUS_POSITION else f"receipt of {names[destination]}"


MOST_CHANNELS = 10_000
"""Maximum number of listed channels of a pair of chains."""

MOST_MESSAGES = 1_000
"""Maximum number of messages in an answer."""

_LANE_KEYS = ("source", "destination", "substream")


class DomainViews(ConsensusViews):
    """Views of one lake of domains; the chains of ``kernel`` sign."""

    def status(self) -> dict[str, Any]:
        """Return the network's identity and progress."""
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
        """Return a digest of the common facts of one network's lakes: options, chains, programs."""
        topology = self.network.topology
        options = self.kernel.options.model_dump(mode="json", exclude={"validator_keys"})
        programs = topology.programs.select(["number", "name", "chain", "program", "balance"])
        facts = [options, self.kernel.seed, self.network.names, programs.sort_by("number").to_pylist()]
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()

    # ---- channels and messages of a chain

    def channels(self, chain: str, counterparty: str, height: int | None) -> dict[str, Any]:
        """Return a chain's channels with another, and the consensus block anchoring messages to it.

        Args:
            chain: Name of the chain.
            counterparty: Name of the other chain.
            height: A height, by default the last.

        Raises:
            InvalidInput: This lake has no such chain.
            LakeError: The height is not committed.
        """
        height = self.known(chain, height)
        position, foreign = self.opened.position(chain), self.position_of(counterparty, "counterparty")
        rows = self.table(height, position, "channels")
        rows = rows.filter(rows["foreign"] == foreign)
        names = ("channel", "state", "next_inbox", "next_outbox", "next_response", "count")
        columns = (rows[name][:MOST_CHANNELS].tolist() for name in names)
        listed = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        blocks = self.table(height, CONSENSUS_POSITION, "blocks")
        at = self._proved_at(blocks, position, foreign, height)
        under = None if at < 0 or not int(blocks["leaf_count"][at]) else _block(blocks, at)
        best = int(blocks["number"][-1]) if len(blocks) else None
        place = {"chain": chain, "counterparty": counterparty, "height": height}
        return {**place, "best": best, "under": under, "channels": listed}

    def waiting(self, height: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield all channels at a height: both positions, channel, requests without a response."""
        names = ["chain", "foreign", "channel", "count"]
        for first, _ in self.opened.about["buckets"]:
            rows = self.opened.chosen_rows(
                self.manifest(height), "channels", first, names, lambda batch: np.ones(batch.num_rows, dtype=bool)
            )
            if rows is not None:
                yield from zip(*(rows[name].to_pylist() for name in names), strict=True)

    def best(self, height: int) -> int | None:
        """Return the newest known consensus block at a height."""
        numbers = self.table(height, CONSENSUS_POSITION, "blocks")["number"]
        return int(numbers[-1]) if len(numbers) else None

    def _proved_at(self, blocks: Frame, position: int, foreign: int, height: int) -> int:
        """Return the row of the consensus block that anchors messages to a chain, or -1.

        It is the newest block, the newest final one, or the one after the block with known declarations.
        """
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
        """Return messages between chains in the storage of a block, with proofs under its root.

        As many as fit into an answer, at least one if there is any.

        Args:
            chain: Name of the source.
            counterparty: Name of the target.
            block: Number of the source's block.
            lanes: Channel, True for responses, first nonce.
            most: Maximum number of messages of a lane.

        Raises:
            InvalidInput: This lake has no such chain or block.
            LakeError: The block's state was removed.
        """
        self.known(chain, None)
        height = find_height(self.opened, block, self.height())
        position, foreign = self.opened.position(chain), self.position_of(counterparty, "counterparty")
        rows = self._wanted(height, position, foreign, lanes, most)
        storage = read_storage(self.opened, position, height)
        proofs = storage.proofs(message_keys(rows))
        numbers: dict[bytes, int] = {}
        listed: list[dict[str, Any]] = []
        remaining = MAX_ANSWER_BYTES - ANSWER_MARGIN
        for row in range(len(rows)):
            nodes = sorted(set(proofs.nodes_of(row)))
            remaining -= ROW_MARGIN + sum(DIGITS * len(node) + 8 for node in nodes if node not in numbers)
            if remaining < 0 and listed:
                break
            lane, nonce = int(rows["substream"][row]), int(rows["index"][row])
            members = [numbers.setdefault(node, len(numbers)) for node in nodes]
            listed.append(
                {
                    "channel": lane >> 1,
                    "response": bool(lane & 1),
                    "nonce": nonce,
                    "tag": int(rows["tag"][row]),
                    "members": members,
                }
            )
        place = {"chain": chain, "counterparty": counterparty, "block": block, "root": storage.root.hex()}
        return {**place, "nodes": [node.hex() for node in numbers], "messages": listed}

    def _wanted(self, height: int, position: int, foreign: int, lanes: list[tuple[int, bool, int]], most: int) -> Frame:
        """Return the messages (lane, ``index``, ``tag``) of some lanes from a nonce on."""
        parts = []
        for name in ("outbox", "responses"):
            rows = self.table(height, position, name)
            rows = rows.filter(rows["destination"] == foreign)
            parts.append(rows.select([*_LANE_KEYS, "index"]).with_columns(tag=message_tags(name, rows)))
        every = concat(parts)
        keep = np.zeros(len(every), dtype=bool)
        lookups: list[dict[int, int]] = []  # a repeated lane needs another lookup
        for channel, response, first in lanes:
            lane = channel << 1 | response
            lookup = next((first_nonces for first_nonces in lookups if lane not in first_nonces), None)
            if lookup is None:
                lookups.append(lookup := {})
            lookup[lane] = first
        for first_nonces in lookups:
            numbers = np.array(sorted(first_nonces), dtype=np.uint64)
            at = find_positions(numbers, every["substream"])
            begin = np.array([first_nonces[int(number)] for number in numbers], dtype=np.uint64)[at]
            keep |= (at >= 0) & (every["index"] >= begin) & (every["index"] - begin < np.uint64(most))
        found = every.filter(keep)
        order = np.lexsort((found["index"], found["substream"]))
        return found.take(order[:MOST_MESSAGES])

    def refused(self, height: int, chain: str, carrier: int, transaction: bytes) -> list[dict[str, Any]]:
        """Return what the block of a height refused of a transaction (``LakeViews.refused``)."""
        found = refused_items(self.opened, height, self.opened.position(chain), decode_transaction(transaction))
        rows = []
        for (why, item), count in sorted(found.items()):
            location = f"{chain}: {item}" if item else chain
            rows.append({"program": "", "what": "refused", "why": why, "count": count, "where": location})
        return rows


def _block(blocks: Frame, at: int) -> dict[str, Any]:
    return {
        "number": int(blocks["number"][at]),
        "hash": blocks["hash"][at].tobytes().hex(),
        "leaf_count": int(blocks["leaf_count"][at]),
        "root": blocks["mmr_root"][at].tobytes().hex(),
    }


CHAIN = "/v1/chains/{chain}"

MOST_LANES = 256
"""Maximum number of lanes in a request."""

LANE_BYTES = 128
"""Bytes of a lane in a body: its keys, and the digits of two numbers."""


class ChannelsQuery(requests.Query):
    """A height."""

    height: requests.Number | None = Field(None, description="A committed height; without it, the last.")


class AfterQuery(requests.Query):
    """Starting point of a list."""

    after: requests.Number | None = Field(None, description="The number of a block; without it, from the first on.")


class AnchorQuery(requests.Query):
    """The anchor to prove."""

    under: requests.Number = Field(..., description="The number of the block under whose mountain range it is proved.")
    domain: str | None = Field(None, max_length=128, description="Whose confirmed receipt is proved, too.")


class Lane(ScenarioSection):
    """Messages of one direction of a channel."""

    channel: Annotated[int, Field(ge=0, le=MAX_CHANNEL)] = Field(..., description="The channel's number.")
    response: bool = Field(False, description="Responses; else requests.")
    first: Annotated[int, Field(ge=0, le=U64_MAX)] = Field(0, description="The first nonce.")


class MessagesBody(requests.Body):
    """Selection of messages."""

    counterparty: Annotated[str, Field(max_length=128)] = Field(..., description="The chain that they are for.")
    block: Annotated[int, Field(ge=0, le=2**32 - 1)] = Field(
        ..., description="The number of the chain's block in whose storage they are."
    )
    lanes: list[Lane] = Field(..., min_length=1, max_length=MOST_LANES, description="Of which lanes.")
    most: Annotated[int, Field(ge=1, le=1_000)] = Field(257, description="Of a lane at most.")


def addresses(views: DomainViews) -> list[requests.Address]:
    """List the addresses of channels, messages, receipts and the consensus chain."""
    own, names, main, at = views.own(), views.opened.names, views.consensus, requests.address_of_view
    domains = [name for name in names if name != main]

    async def messages(call: requests.TypedRequest) -> Response:
        request = call.model
        lanes = [(lane.channel, lane.response, lane.first) for lane in request.lanes]
        return await requests.answer_in_thread(
            views.messages, call.path["chain"], request.counterparty, request.block, lanes, request.most
        )

    def of_consensus(view: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        """Restrict a view to the consensus chain."""

        def view_of_consensus(chain: str, **arguments: Any) -> dict[str, Any]:
            if chain != main:
                raise InvalidInput(f"chain: {chain[:128]}; allowed: {main}")
            return view(**arguments)

        return view_of_consensus

    channels = "The channels of a chain with another, and the consensus block that messages to it are proved under."
    found = [
        at(
            f"{CHAIN}/channels/{{counterparty}}",
            channels,
            views.channels,
            answers.ChannelsAnswer,
            ChannelsQuery,
            chain=own,
            counterparty=names,
        ),
        requests.Address(
            "POST",
            f"{CHAIN}/messages",
            "Messages to another chain in the storage of a block, with their proofs.",
            messages,
            body=MessagesBody,
            answers={200: answers.MessagesAnswer},
            parts={"chain": {"type": "string", "enum": own}},
            longest=MOST_LANES * LANE_BYTES + requests.ENVELOPE_BYTES,
        ),
    ]
    if views.network.follows:
        known = "What is known here of the consensus chain, which another lake runs."
        signed = "The signed receipts of a domain's blocks."
        return [
            *found,
            at(f"{CHAIN}/followed", known, of_consensus(views.followed), answers.FollowedAnswer, chain=[main]),
            at(f"{CHAIN}/receipts", signed, views.receipts, answers.ReceiptsAnswer, AfterQuery, chain=own),
        ]
    headers = "Headers of the consensus chain, with its author's signature on the last."
    leaf = "The leaf of a consensus block in the mountain range, and a domain's confirmed receipt under it."
    last = "The last receipt of a domain that the consensus chain has taken in, and the last that it confirmed."
    receipted, place = of_consensus(views.receipted), f"{CHAIN}/receipted/{{domain}}"
    return [
        *found,
        at(f"{CHAIN}/blocks", headers, of_consensus(views.blocks), answers.BlocksAnswer, AfterQuery, chain=[main]),
        at(f"{CHAIN}/anchor", leaf, of_consensus(views.anchor), answers.AnchorAnswer, AnchorQuery, chain=[main]),
        at(place, last, receipted, answers.ReceiptedAnswer, chain=[main], domain=domains),
    ]
