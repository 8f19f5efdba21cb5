"""Node of a served lake: block production at a pace, on demand, or both, and submissions between blocks.

A header of another lake may come from the future of this one (``PendingMessage.not_before``); it moves the clock
forward within the bounds of ``clock``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.config.document import validate_document
from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.text import suggest_known
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import OpenedLake, open_lake
from causeway.network.replay import ReplayShare
from causeway.protocols import registry
from causeway.scenarios.directory import NameDirectory
from causeway.scenarios.scenario import Scenario
from causeway.scenarios.traffic_settings import MessageSection, ScriptSection, SendSection
from causeway.scenarios.traffic_sources import genesis_chains, scripted_traffic
from causeway.service.http.requests import Forbidden, NotFound
from causeway.service.keys.key_files import public_key
from causeway.service.keys.signing import TRANSACTION, SignedMessage, carrier_number, sender_number
from causeway.service.keys.validators import SignedHeights, ValidatorKeys, header_rows
from causeway.service.node.clock import Clock, ClockBounds
from causeway.service.node.endpoint import Endpoint
from causeway.service.node.mempool import Mempool, MempoolLimits, PendingMessage, Senders, block_rows
from causeway.storage.external_input import InputRecord
from causeway.storage.lake import Lake, Manifest
from causeway.storage.layout import LAKE_FILE
from causeway.tick.deployment import has_activity

QUIET = 1_000
"""Blocks on demand without activity after which production pauses until new input arrives."""


@dataclass(frozen=True)
class BlockPace:
    """Pace of block production.

    Attributes:
        block_seconds: Seconds between two blocks; 0 for no regular blocks.
        on_demand: Make a block at once when there is work.
    """

    block_seconds: float = 1.0
    on_demand: bool = False


WAITING, IN_BLOCK, REDUNDANT = "waiting", "in_block", "redundant"
"""States of a message: pending, in a block, or not accepted because it has no remaining effect."""


@dataclass(frozen=True)
class SubmissionStatus:
    """State of a message: its name, ``state``, and the height of its block."""

    hash: str
    state: str
    height: int | None


class Node:
    """Network of a scenario on a lake, which accepts messages and makes blocks.

    Reading the lake needs no node: readers see committed heights.
    """

    def __init__(
        self,
        scenario: Scenario,
        lake: str,
        pace: BlockPace | None = None,
        *,
        drop_redundant: bool = False,
        clock: ClockBounds | None = None,
        limits: MempoolLimits | None = None,
        keys: ValidatorKeys | None = None,
        carriers: Collection[bytes] = (),
    ) -> None:
        """Open the lake, or create it, and claim it.

        Args:
            scenario: The scenario.
            lake: Location of the lake.
            pace: Pace of block production.
            drop_redundant: Accept no transactions without remaining effect.
            clock: Bounds of the lake's clock.
            limits: Limits of the mempool.
            keys: Keys of validators or subnets; by default drawn from the seed.
            carriers: Public keys of the allowed carriers; empty for all.

        Raises:
            InvalidInput: The protocol cannot be served, or the scenario is invalid.
            LakeError: The lake is unusable.
        """
        name = scenario.network.protocol
        served = registry.protocol_names("endpoint")
        if name not in served:
            known = ", ".join(served)
            raise InvalidInput(f"{scenario.path}: network.protocol: {name}: only lakes of {known} are served")
        self.scenario, self.pace, self._drop_redundant = scenario, pace or BlockPace(), drop_redundant
        keys = keys or ValidatorKeys()
        if keys.files and scenario.network.executor != "in_process":
            text = "secret keys do not leave the process that read them"
            raise InvalidInput(f"network.executor: {scenario.network.executor}: {text}; use in_process")
        self._signed = SignedHeights(keys.files, lake)
        try:
            self._open(scenario, lake, keys)
        except BaseException:
            self._signed.close()
            raise
        self.opened: OpenedLake = open_lake(lake, scenario.program_sources, ReplayShare())
        self.endpoint: Endpoint = registry.find_protocol(name).part("endpoint")(
            self.opened, self.network.deployment.kernel
        )
        self.views = self.endpoint.views
        created = self.opened.about.get("made") or self.network.lake.storage.modified(LAKE_FILE)
        self.clock = Clock(self.opened.tick_ns, time.time() if created is None else created, clock)
        self.external = frozenset(self.network.topology.external)
        self._directory = NameDirectory(self.network.topology, "message")
        self._homes = genesis_chains(self.network.topology)
        numbers, names = (self.network.topology.chains[name].to_pylist() for name in ("number", "name"))
        self.chains: dict[str, int] = dict(zip(names, numbers, strict=True))
        self.pool = Mempool(limits)
        self.senders = Senders(InputRecord(self.network.lake), self.network.tick if self.network.height else -1)
        self._waiting: set[str] = set()
        self._carriers = frozenset(carriers)
        self._changed = threading.Condition()
        self._stopping = False
        self._quiet = 0
        self.failure: BaseException | None = None

    def _open(self, scenario: Scenario, lake: str, keys: ValidatorKeys) -> None:
        """Open the network; complete a block that was signed before a kill, with identical content."""
        place = Lake.at(lake)
        resume = place.exists()
        unfinished = self._signed.unfinished(place.last_height() if resume else -1, newest=keys.newest)
        secrets = keys.secrets
        self.network = LakeNetwork(scenario, lake, resume=resume, recorded=True, secrets=secrets, unfinished=unfinished)
        if unfinished is not None:
            try:
                self.network.step(unfinished, check=self._sign)
            except BaseException:
                self.network.close()
                raise

    def _sign(self, manifest: Manifest) -> None:
        """Record a height's headers as signed before the commit.

        Raises:
            SignedAlready: Another block of the height was signed.
        """
        rows = header_rows(self.network.lake.log_rows("headers", manifest))
        if self.scenario.protocol.certifies:
            # A subnet's own height may lag; rollbacks concern heights of the lake.
            rows = [{**row, "number": manifest.height} for row in rows]
        self._signed.sign(rows, manifest.tick, self.network.deployment.kernel.chains())

    # ---- submissions

    def take(self, signed: SignedMessage) -> SubmissionStatus:
        """Accept a signed message or transaction; repeating one has no effect.

        Args:
            signed: The message.

        Returns:
            Its name and state.

        Raises:
            Forbidden: It is for another lake, or its sender may not carry here.
            NotSigned: The signature is invalid.
            InvalidInput: The content is invalid.
            NonceRefused: The nonce was used for another message, or is too far ahead.
            NumberTaken: The number of a carrier's account is another key's.
            HeaderTooFarAhead: A header is beyond the bounds of the lake's clock.
            QuotaExceeded: The sender has too many pending messages.
            MempoolFull: The mempool is full.
        """
        own = self.opened.lake.identity
        if signed.lake != own:
            raise Forbidden(f"lake: {signed.lake[:64]}: the message is for another lake; this one is {own}")
        signed.verify()
        known = self.find(signed.hash)
        if known is not None:
            return known
        message = self._transaction(signed) if signed.kind == TRANSACTION else self._message(signed)
        if message is None:
            return SubmissionStatus(signed.hash, REDUNDANT, self.network.height)
        message = replace(message, key=signed.sender, nonce=signed.nonce, hash=signed.hash)
        with self._changed:
            known = self.find(signed.hash)  # it may have arrived in the meantime
            if known is not None:
                return known
            self.senders.check(signed.sender, signed.nonce)
            if message.carried:
                self.senders.check_carrier(signed.sender)
                message = replace(message, new=not self._carriers and self.senders.is_new(signed.sender))
            self.pool.add(message)
            self.senders.wait(message)
            self._waiting.add(signed.hash)
            self._changed.notify_all()
        return SubmissionStatus(signed.hash, WAITING, None)

    def _transaction(self, signed: SignedMessage) -> PendingMessage | None:
        """Convert a transaction to a pending message, or return None if it has no remaining effect."""
        if self._carriers and signed.sender not in self._carriers:
            raise Forbidden("sender: only relayers that are named by who serves this lake carry to it")
        number = self.number_of(signed.chain)
        content = bytes.fromhex(signed.content["transaction"])
        submission = self.endpoint.submission(signed.chain, carrier_number(signed.sender), content)
        if self._drop_redundant and submission.nothing_left():
            return None
        message = submission.message(number)
        self.clock.require(message.not_before, self.network.height)
        return message

    def _message(self, signed: SignedMessage) -> PendingMessage:
        """Convert a user's message (keys of ``[[traffic.send]]`` without ``tick`` and ``sender``)."""
        content = dict(signed.content)
        section = validate_document(MessageSection, content, "content")
        most = self.pool.limits.sender_messages
        if section.count > most:
            raise InvalidInput(f"content: count: {section.count}; at most {most} are allowed")
        send = SendSection.model_validate({**content, "tick": 0, "sender": sender_number(signed.sender)})
        script = ScriptSection(source="script", send=[send])
        try:
            sends = scripted_traffic(script, self._homes, self.network.topology.moves, self._directory).sends
        except InvalidInput as error:
            raise InvalidInput(str(error).replace("message: traffic.send[0]", "content", 1)) from None
        row = sends.to_pylist()[0]
        if row["chain"] in self.external:
            raise InvalidInput(f"content: to: {section.to} is on a chain that another lake runs; send it there")
        self.endpoint.require_possible(row)
        return PendingMessage(**{name: row[name] for name in INGRESS_SCHEMA.names}, count=section.count)

    def find(self, name: str) -> SubmissionStatus | None:
        """Return the state of a message by hash, or None if it is unknown."""
        with self._changed:
            height = self.senders.height_of(name)
            if height is not None:
                return SubmissionStatus(name, IN_BLOCK, height)
            return SubmissionStatus(name, WAITING, None) if name in self._waiting else None

    def outcome(self, name: str) -> dict[str, Any]:
        """Return a message's faults in its block (``LakeViews.outcome``, ``LakeViews.refused``).

        Args:
            name: Hash of the message.

        Raises:
            NotFound: No recent block has the message.
        """
        found = self.find(name)
        if found is None or found.height is None:
            raise NotFound(f"hash: {name[:80]}: no such message was in a block of late")
        faults: list[dict[str, Any]] = []
        sent = self.senders.sent(name, found.height)
        if sent is not None:
            carried = self._carried(name, found.height, *sent)
            if carried is None:
                faults = self.views.outcome(found.height, sender_number(sent[0]))
            else:
                faults = self.views.refused(found.height, carried[0], carrier_number(sent[0]), carried[1])
        return {"hash": name, "height": found.height, "faults": faults}

    def _carried(self, name: str, height: int, sender: bytes, nonce: int) -> tuple[str, bytes] | None:
        """Return chain and content of a block's transaction; None for a user's message."""
        lake = self.network.lake
        names = {number: chain for chain, number in self.chains.items()}
        numbers = np.array(list(names), dtype=np.uint64)
        rows = InputRecord(lake).rows(lake.outside(lake.manifest(height)), "carried", numbers)
        for row in rows.filter(pc.equal(rows["carrier"], carrier_number(sender))).to_pylist():
            chain, digits = names[row["chain"]], row["payload"].hex()
            for content in ({"transaction": digits}, {"transaction": digits.upper()}):
                if SignedMessage(self.opened.lake.identity, TRANSACTION, chain, sender, nonce, content).hash == name:
                    return chain, row["payload"]
        return None

    def sender(self, public: str) -> dict[str, Any]:
        """Return the numbers and the last nonce of a sender, by public key (hexadecimal)."""
        key = public_key(public, "sender")
        with self._changed:
            last = self.senders.last(key)
        return {"sender": key.hex(), "number": sender_number(key), "carrier": carrier_number(key), "nonce": last}

    def number_of(self, chain: str) -> int:
        """Return the number of a chain that this lake runs or follows.

        Args:
            chain: Name of the chain.

        Raises:
            InvalidInput: There is no such chain, or another lake runs it.
        """
        if chain not in self.chains:
            raise InvalidInput(f"chain: {suggest_known('chain', chain, list(self.chains))}")
        if self.chains[chain] in self.external and chain not in self.endpoint.followed:
            raise InvalidInput(f"chain: another lake runs {chain}")
        return self.chains[chain]

    # ---- blocks

    def _next_tick(self) -> int:
        """Return the tick of the next block.

        It is the next tick, or as late as a header requires, bounded by the clock's step, the scenario's
        traffic and its planned events.
        """
        before = self.network.manifest
        following = before.tick + 1 if before.height else before.tick
        planned = (self.network.deployment.traffic.next_tick(following), self.endpoint.next_planned(following))
        bounds = [before.tick + self.clock.longest_step(), *(tick for tick in planned if tick is not None)]
        return min([max(following, self.pool.not_before()), *bounds])

    def produce(self) -> Manifest:
        """Make one block of all chains and commit it."""
        tick = self._next_tick()
        messages = self.pool.take(tick)
        ingress, carried = block_rows(messages) if messages else (None, None)
        exchange = self.endpoint.exchange
        fetched = exchange.carried() if exchange is not None else None
        if fetched is not None and fetched.num_rows:
            carried = fetched if carried is None else pa.concat_tables([carried, fetched])
        records = {}
        if messages:
            with self._changed:
                records = self.senders.rows(messages, self.network.height + 1)
        manifest = self.network.step(tick, ingress=ingress, carried=carried, noted=records, check=self._sign)
        if exchange is not None:
            exchange.committed(manifest)
        self._quiet = 0 if carried is not None or has_activity(manifest.rows) else self._quiet + 1
        with self._changed:
            self.senders.record_block(messages, manifest.height)
            self._waiting.difference_update(message.hash for message in messages)
            self._changed.notify_all()
        return manifest

    @property
    def has_work(self) -> bool:
        """True if a block would have an effect: pending input, or an unfinished scenario."""
        exchange = self.endpoint.exchange
        waits = bool(self.pool) or (exchange is not None and exchange.waits)
        return waits or (self.network.next_tick() is not None and self._quiet < QUIET)

    def look(self) -> None:
        """Wake up block production to check for work."""
        with self._changed:
            self._changed.notify_all()

    def run(self, committed: Callable[[Manifest], None] | None = None) -> None:
        """Make blocks at the node's pace until ``stop``; a block in progress is completed.

        Args:
            committed: Callback for each block.
        """
        due = time.monotonic()
        try:
            while self._wait_for(due):
                due = time.monotonic() + self.pace.block_seconds
                manifest = self.produce()
                if committed is not None:
                    committed(manifest)
        except BaseException as failure:
            self.failure = failure
            with self._changed:
                self._changed.notify_all()
            raise

    def _wait_for(self, due: float) -> bool:
        """Wait for the next block's time; return False if the node stops."""
        with self._changed:
            while not self._stopping:
                remaining = due - time.monotonic() if self.pace.block_seconds else None
                if (remaining is not None and remaining <= 0) or (self.pace.on_demand and self.has_work):
                    return True
                self._changed.wait(remaining)
        return False

    def stop(self) -> None:
        """End ``run`` after the block in progress."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    @property
    def ending(self) -> bool:
        """True if no more blocks will be made."""
        return self._stopping or self.failure is not None

    def close(self) -> None:
        """Release the lake and the keys."""
        self.network.close()
        self._signed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
