"""Drives the IBC kernel and the oracle through one scenario and gives what is comparable of both after every block.

A ``Scenario`` is plain values. ``KernelRun`` plays it in the kernel, cut into any number of calls; ``OracleRun`` in the
oracle, whose zones get the kernel's application entries into their stores, so that roots must be equal, too.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa
from causeway_proofs.tendermint.commit import VoteFlag
from causeway_proofs.tendermint.trust import (
    HeaderUpdate,
    TrustedHeader,
    TrustOptions,
    decode_header_update,
    verify_header,
)

from causeway.config.faults import FaultRule, Faults
from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.frame import Frame, concat
from causeway.core.vocabulary import Event, Kind, Via
from causeway.protocols.contract import Tick
from causeway.protocols.ibc import keys, packets
from causeway.protocols.ibc.client import validators_of_zone
from causeway.protocols.ibc.expiry import time_limits
from causeway.protocols.ibc.packets import answer_column, call_column
from causeway.protocols.ibc.program_inputs import NOBODY
from causeway.protocols.ibc.queue_entries import entry_leaf
from causeway.protocols.ibc.state import BACKOFFS_SCHEMA, CONNECTION, DISCONNECTING, FROZEN, RECEIPT, SEND
from causeway.protocols.ibc.store import application_entries
from causeway.protocols.shared.messages import LANE
from causeway.protocols.shared.state_tables import restore_state
from tests.spec import ibc
from tests.spec.ibc.accounts import Accounts, Balance, balances
from tests.spec.ibc.calls import push_packet
from tests.spec.ibc.headers import Trust
from tests.spec.ibc.network import UNPAID
from tests.spec.ibc.programs import App, encode_envelope
from tests.spec.ibc.queue import Queue
from tests.spec.ibc.zone import newest_trusted
from tests.support.ibc.ibc_backoffs import frozen_by_headers
from tests.support.ibc.ibc_network import Network
from tests.support.ibc.ibc_outside import (
    HEADER_FEE,
    NOT_TAKEN,
    PROOF_FEE,
    Brought,
    Row,
    Strangers,
    StrangersCall,
    Visit,
    Wires,
    account_of,
    is_refusal,
    not_taken,
    refused,
    row_of,
)
from tests.support.ibc.ibc_programs import SPEC_PROGRAMS
from tests.support.ibc.ibc_relayers import OneRelayer, Watchers
from tests.support.ibc.ibc_relays import CALLS, CLEANUP, TIMEOUT, Relays, Run, RunSubmission

TICK_NS = 1_000_000_000
CLIENTS = ("Frozen", "Recovered")
"""Events about light clients."""
FUNDS = ("OutOfFunds", "Funded")
"""Events about accounts of relayers."""

Certified = dict[tuple[str, int], tuple[dict[str, int], frozenset[str]]]
"""(zone, height) -> its validators' powers, and who of them signed."""
View = dict[str, dict[str, Any]]
"""Zone -> section -> content."""


@dataclass(frozen=True)
class Call:
    """An ingress message."""

    zone: str
    receiver: int
    user: int
    method: str
    payload: bytes


@dataclass(frozen=True)
class Carried:
    """Wire bytes that somebody brings to a zone."""

    zone: str
    carrier: int
    payload: bytes


@dataclass(frozen=True)
class Scenario:
    """A network and what happens to it. Zones are numbered in the order given; block ``h`` is made at tick
    ``ticks[h - 1]``."""

    zones: Mapping[str, Mapping[int, str | None]]
    options: Mapping[str, Any] = field(default_factory=dict)
    balance: int = 1000
    ticks: Sequence[int] = tuple(range(8))
    ingress: Mapping[int, Sequence[Call]] = field(default_factory=dict)
    """By height."""
    carried: Mapping[int, Sequence[Carried]] = field(default_factory=dict)
    """By height."""
    outside: Mapping[int, Sequence[Visit]] = field(default_factory=dict)
    """By height: calls of strangers, behind those of the block's relayers."""
    carriers: Sequence[tuple[str, str | None, str | None, int, int, str | None]] = ()
    """(kind, source, destination, from, until, relayer)."""
    halts: Sequence[tuple[str, int, int]] = ()
    forged: Sequence[tuple[int, str, int, int, bytes]] = ()
    """(tick, zone, sender, receiver, payload)."""
    forks: Sequence[tuple[str, int]] = ()
    doubles: Sequence[str] = ()
    """Zones that sign two headers of every height; the second ones only strangers have seen."""
    recoveries: Sequence[tuple[str, str, int]] = ()
    """(zone, remote, tick)."""
    disconnects: Sequence[tuple[str, str, int]] = ()
    """(zone, remote, tick)."""
    deposits: Sequence[tuple[str, str, int, int]] = ()
    """(zone, relayer, tick, amount)."""
    skip: float = 0.0
    seed: int = 0
    calm: int = 0
    """So many of the last blocks bring nothing new and nothing wrong."""

    @property
    def relay(self) -> Mapping[str, Any]:
        relay: Mapping[str, Any] = self.options.get("relay", {})
        return relay

    @property
    def relayers(self) -> Sequence[str]:
        relayers: Sequence[str] = self.options.get("relayers", ("relayer",))
        return relayers

    def number(self, zone: str) -> int:
        return list(self.zones).index(zone)

    def order(self) -> list[str]:
        """The zones by position: as their ids stand in keys."""
        return sorted(self.zones, key=lambda name: f"{name}:".encode())

    def halted(self, tick: int) -> set[str]:
        return {zone for zone, begin, end in self.halts if begin <= tick <= end}


# ---- the kernel


def faults(scenario: Scenario) -> Faults:
    def chain(name: str | None) -> int | None:
        return None if name is None else scenario.number(name)

    found = [
        FaultRule("forge", chain(zone), None, tick, tick, {"sender": one, "receiver": other, "payload": payload.hex()})
        for tick, zone, one, other, payload in scenario.forged
    ]
    found += [
        FaultRule(kind, chain(source), chain(destination), begin, end, {} if name is None else {"relayer": name})
        for kind, source, destination, begin, end, name in scenario.carriers
    ]
    found += [FaultRule("halt", chain(zone), None, begin, end) for zone, begin, end in scenario.halts]
    found += [FaultRule("fork", chain(zone), None, tick, tick) for zone, tick in scenario.forks]
    found += [FaultRule("recover", chain(one), chain(other), tick, tick) for one, other, tick in scenario.recoveries]
    found += [
        FaultRule("disconnect", chain(one), chain(other), tick, tick) for one, other, tick in scenario.disconnects
    ]
    found += [
        FaultRule("deposit", chain(zone), None, tick, tick, {"relayer": name, "amount": amount})
        for zone, name, tick, amount in scenario.deposits
    ]
    return Faults.of(*found, skip=scenario.skip)


class KernelRun(Network):
    """The kernel, its zones cut into ``cuts`` calls; ``via_tables``: every state goes through the lake's tables."""

    def __init__(self, scenario: Scenario, cuts: int = 1, *, via_tables: bool = False) -> None:
        super().__init__(
            scenario.zones,
            options=scenario.options,
            balance=scenario.balance,
            seed=scenario.seed,
            tick_ns=TICK_NS,
            faults=faults(scenario),
        )
        self.scenario = scenario
        self.via_tables = via_tables
        everything = np.arange(len(scenario.zones), dtype=np.uint32)
        self.groups = [group for group in (everything[cut::cuts] for cut in range(cuts)) if len(group)]
        self._begin()
        self.names = self.kernel.chains()
        self.tick = Tick(0, 0)
        self.certified: Certified = {}
        self._certify(0)
        self.contents: dict[tuple[int, int, int, int], tuple[bytes, bytes]] = {}
        """Lane and index -> key and value, of everything that was ever pushed."""
        self.accounts: dict[tuple[int, int], Counter[str]] = {}
        self.wires = Wires(self)
        self.of_strangers: list[Brought] = []
        """What they brought to the last block."""
        if scenario.outside:
            self.wires.look()

    def _certify(self, height: int, signers: Mapping[str, frozenset[str]] | None = None) -> None:
        """Keep the validator sets of a height; at genesis nobody signs."""
        context = self.kernel.context(np.arange(len(self.names), dtype=np.uint32), self.tick)
        for chain, name in enumerate(self.names):
            members = validators_of_zone(chain, height, context)[0].validators
            powers = {one.address.hex(): one.power for one in members}
            self.certified[name, height] = powers, (signers or {}).get(name, frozenset())

    def play(self, height: int) -> None:
        """Make one block."""
        self.of_strangers = [self.wires.transaction(visit) for visit in self.scenario.outside.get(height, ())]
        self.height = height
        self.tick = Tick(height, self.scenario.ticks[height - 1])
        self.accounts = self._accounts()
        rows = [
            (self.scenario.number(one.zone), one.receiver, one.user, one.method, one.payload)
            for one in self.scenario.ingress.get(height, ())
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]
        if rows:
            self.tell_all(pa.table(columns, schema=INGRESS_SCHEMA))
        for brought in self.scenario.carried.get(height, ()):
            self.carry(self.scenario.number(brought.zone), brought.payload, carrier=brought.carrier)
        for one in self.of_strangers:
            self.carry(self.scenario.number(one.zone), one.payload, carrier=one.user)
        self._block(self.tick)
        if self.via_tables:
            self.states = [self._through_tables(state) for state in self.states]
        for result in self.results:
            self._keep(result.outbound)
        self._check_headers()
        if self.scenario.outside:
            self.wires.look()

    def _check_headers(self) -> None:
        """Every zone's header of this block says where, when and which root, and who trusts the one before takes it."""
        everyone = np.arange(len(self.names), dtype=np.uint32)
        context = self.kernel.context(everyone, self.tick)
        rows = zip(*(self.headers[name] for name in ("chain", "root")), self.headers["certification"], strict=True)
        signers = {}
        for chain, root, certification in rows:
            offered = decode_header_update(certification.as_py())
            header = offered.signed_header.header
            name = self.names[int(chain)]
            assert (header.chain_id, header.height, header.app_hash) == (name, self.height, bytes(root))
            assert header.time == (self.tick.tick + 1) * TICK_NS
            before, own = (validators_of_zone(int(chain), at, context)[0] for at in (self.height - 1, self.height))
            known = TrustedHeader(self.height - 1, 0, bytes(32), own.hash, before.hash, bytes(32), 0)
            update = HeaderUpdate.on(self.height - 1, before, offered.signed_header, offered.validators)
            verify_header(known, update, TrustOptions(name, 10**18), header.time)
            votes = offered.signed_header.commit.signatures
            signers[name] = frozenset(vote.validator_address.hex() for vote in votes if vote.flag == VoteFlag.COMMIT)
        self._certify(self.height, signers)

    def _through_tables(self, state: Any) -> Any:
        schemas = {name: table.schema for name, table in self.kernel.tables().items()}
        tables = {name: frame.to_table(schemas[name]) for name, frame in state.frames().items()}
        return restore_state(self.kernel, {name: table for name, table in tables.items() if table.num_rows})

    def _keep(self, outbound: Frame) -> None:
        """Keep what was pushed, as the reference encodes it."""
        rows = outbound.filter(outbound["source"] != outbound["destination"])
        options = self.kernel.options
        for substream in (RECEIPT, SEND):
            mine = rows.filter(rows["substream"] == substream)
            lanes = list(zip(*(mine[name].tolist() for name in ("source", "destination", "index")), strict=True))
            bodies = (call_column(mine) if substream == SEND else answer_column(mine)).to_pylist()
            limits = [mine["max_height"].tolist(), time_limits(mine["sent_tick"], TICK_NS, options).tolist()]
            methods, codes = mine["method"].to_pylist(), mine["code"].tolist()
            finals = (mine["kind"] == Kind.CONTROL).tolist()
            for row, (chain, remote, index) in enumerate(lanes):
                purpose = keys.QueuePurpose.SEND if substream == SEND else keys.QueuePurpose.RECEIPT
                key = keys.index_key(self.names[remote], purpose, index)
                if finals[row]:
                    bodies[row] = b""
                if substream == SEND:
                    kind = "disconnect" if finals[row] else methods[row] if methods[row] in options.types else "call"
                    bounds = limits[0][row], limits[1][row]
                    value = packets.Packet(kind, bodies[row], *bounds, limited=options.limited).encode()
                else:
                    value = packets.Receipt(codes[row], bodies[row]).encode()
                assert (chain, remote, substream, index) not in self.contents, "an index is written once (G5)"
                self.contents[chain, remote, substream, index] = key, value

    def application(self) -> dict[str, dict[bytes, bytes]]:
        """The entries of each zone's store that belong to no queue."""
        everyone = np.arange(len(self.names), dtype=np.uint32)
        found = application_entries(self.state, self.kernel.context(everyone, self.tick)).entries()
        return dict(zip(self.names, found, strict=True))

    def entries(self) -> dict[str, dict[bytes, bytes]]:
        """The queues' entries of each zone's store; every leaf is what its key and value hash to."""
        found: dict[str, dict[bytes, bytes]] = {name: {} for name in self.names}
        state = self.state
        counters = state.queues.counters
        for *lane, begin, end in zip(
            *(counters[name].tolist() for name in (*LANE, "begin", "next_index")), strict=True
        ):
            chain, remote, substream = lane
            if chain == remote:
                continue
            purpose = keys.QueuePurpose.SEND if substream == SEND else keys.QueuePurpose.RECEIPT
            for part, position in ((keys.KeyPart.HEAD, begin), (keys.KeyPart.TAIL, end)):
                key = keys.QueueKey(self.names[remote], purpose, part).encode()
                found[self.names[chain]][key] = packets.encode_position(position)
        leaves = state.leaves.frame()
        rows = zip(*(leaves[name].tolist() for name in (*LANE, "index")), leaves["digest"], strict=True)
        for chain, remote, substream, index, digest in rows:
            key, value = self.contents[chain, remote, substream, index]
            assert entry_leaf(key, value) == bytes(digest), f"leaf of {key!r}"
            found[self.names[chain]][key] = value
        return found

    def _accounts(self) -> dict[tuple[int, int], Counter[str]]:
        frame = self.state.relayers
        names = ("headers", "fees", "submitted", "accepted")
        rows = zip(
            *(frame[name].tolist() for name in ("chain", "relayer", *names, "redundant", "refused")), strict=True
        )
        return {
            (chain, relayer): Counter(dict(zip((*names, "failed"), (*counts, redundant + refused), strict=True)))
            for chain, relayer, *counts, redundant, refused in rows
        }

    def funds(self) -> list[Balance]:
        """The accounts of relayers, and what zones have collected."""
        frame, names = self.state.funds, self.scenario.relayers
        fees = {account: counts["fees"] for account, counts in self._accounts().items()}
        found = []
        for chain, relayer, *rest in zip(*(frame[name].tolist() for name in frame.names), strict=True):
            name = names[relayer] if relayer < len(names) else ""
            columns: list[Any] = [self.names[chain], name, *rest, fees.get((chain, relayer), 0)]
            found.append(Balance(*columns))
        return found

    def view(self) -> View:
        """Everything comparable, by zone."""
        entries, roots, state = self.entries(), self.roots(), self.state
        found: View = {
            name: {"entries": entries[name], "root": roots[name], "programs": {}, "trust": {}, "frozen": set()}
            | {"disconnecting": set(), "unwritten": set(), "balances": {}, "callbacks": {}, "backoffs": {}}
            | {"funds": set()}
            for name in self.names
        }
        for one in self.funds():
            found[one.zone]["funds"].add(one)
        backoffs = state.backoffs
        columns = [backoffs[name].tolist() for name in BACKOFFS_SCHEMA.names]
        for chain, remote, relayer, call, first, stop, *said in zip(*columns, strict=True):
            left_alone = found[self.names[chain]]["backoffs"]
            of = self.names[remote], self.scenario.relayers[relayer], call
            left_alone |= {(*of, index): tuple(said) for index in range(first, stop)}
        connections = zip(*(state.connections[name].tolist() for name in (*CONNECTION, "frozen")), strict=True)
        for chain, remote, frozen in connections:
            if frozen & FROZEN:
                found[self.names[chain]]["frozen"].add(self.names[remote])
            elif frozen & DISCONNECTING:
                found[self.names[chain]]["disconnecting"].add(self.names[remote])
        for chain, remote, height in zip(
            *(state.trust[name].tolist() for name in (*CONNECTION, "height")), strict=True
        ):
            found[self.names[chain]]["trust"].setdefault(self.names[remote], []).append(height)
        for chain, remote, index in zip(
            *(state.slots[name].tolist() for name in ("destination", "source", "index")), strict=True
        ):
            found[self.names[chain]]["unwritten"].add((self.names[remote], index))
        accounts = state.accounts
        names = ("program", "next_callback", "balance_over", "balance_high", "balance_low")
        for number, callback, over, high, low in zip(*(accounts[name].tolist() for name in names), strict=True):
            sections = found[self.names[int(self.kernel.zones.host_of(np.array([number], dtype=np.uint64))[0])]]
            sections["balances"][number] = (over << 128) + (high << 64) + low
            sections["callbacks"][number] = callback
            sections["programs"][number] = self._program(number, state)
        return found

    def _program(self, number: int, of: Any = None) -> dict[str, Any]:
        for frame in (of or self.state).programs.values():
            row = np.flatnonzero(frame["program"] == number)
            if len(row) and "state" in frame:
                state, _, still_open, *accepted = cbor2.loads(frame["state"][int(row[0])].as_py())
                return {"state": state, "open": dict(still_open), "accepted": accepted[0] if accepted else {}}
            if len(row):
                return {name: int(frame[name][row[0]]) for name in frame.names if name != "program"}
        return {}

    def happened(self) -> dict[str, Any]:
        """What the last block's events and counts say."""
        rows = self.events()
        names = ("chain", "source", "substream", "index", "kind", "events", "sender", "callback", "queue_index")
        columns = zip(*(rows[name].tolist() for name in names), rows["reason"].to_pylist(), strict=True)
        refused: Counter[Any] = Counter()
        rejected: Counter[Any] = Counter()
        timed_out: Counter[Any] = Counter()
        clients: Counter[Any] = Counter()
        funds: Counter[Any] = Counter()
        for chain, remote, substream, index, kind, events, sender, callback, queue_index, reason in columns:
            zone = self.names[chain]
            if kind == Kind.CONTROL and reason in FUNDS:
                funds[zone, self.scenario.relayers[sender], index, reason] += 1
            elif kind == Kind.CONTROL and events & Event.REJECTED:
                refused[zone, self.names[remote], substream, index, reason] += 1
            elif kind == Kind.CONTROL and reason in CLIENTS:
                clients[zone, self.names[remote], index, reason] += 1
            elif events == Event.SENT | Event.REJECTED:
                rejected[zone, sender, callback, reason] += 1
            elif events & Event.TIMED_OUT:
                timed_out[zone, queue_index] += 1
        collected = concat([result.logs["collected"] for result in self.results])
        of_range = ("source", "destination", "begin", "end")
        lanes = zip(*(collected[name].tolist() for name in of_range), strict=True)
        settled = {
            (self.names[chain], self.names[remote], index)
            for chain, remote, begin, end in lanes
            for index in range(begin, end)
        }
        before = self.accounts
        counts: defaultdict[str, Counter[Any]] = defaultdict(Counter)
        for (chain, relayer), now in self._accounts().items():
            then = before.get((chain, relayer), Counter())
            for name in now:
                if now[name] > then[name]:
                    counts[self.names[chain]][relayer, name] = now[name] - then[name]
        return {
            "outside": self._of_strangers(),
            "refused": refused,
            "clients": clients,
            "funds": funds,
            "rejected": rejected,
            "timed_out": timed_out,
            "settled": settled,
            "counts": dict(counts),
        }

    def _of_strangers(self) -> dict[str, list[Row]]:
        """What is logged of calls from outside, and of transactions that no call was read of, by zone, in order."""
        rows = self.events()
        brought = rows["events"] != np.uint16(Event.ACKNOWLEDGED)  # not what froze by it
        rows = rows.filter((rows["via"] == np.uint8(Via.INGRESS)) & brought)
        rows = rows.filter((rows["kind"] == np.uint8(Kind.CONTROL)) | (rows["receiver"] == np.uint64(NOBODY)))
        names = ("chain", "sender", "receiver", "source", "index", "kind", "queue_index", "callback")
        columns = zip(*(rows[name].tolist() for name in names), rows["reason"].to_pylist(), strict=True)
        found: defaultdict[str, list[Row]] = defaultdict(list)
        for chain, user, call, source, index, kind, count, fee, reason in columns:
            name = self.names[chain]
            if kind == Kind.CONTROL:
                assert count == (fee > 0), "each call is paid for"
                found[name].append((name, user, call, self.names[source], index, reason, fee))
            else:
                found[name].append((name, user, NOT_TAKEN, name, 0, reason, 0))
        return dict(found)


# ---- the oracle


class SpecNetwork(ibc.Network):
    """The oracle's network; keeps the outcome of every submission, and lets zones forge packets."""

    scenario: Scenario
    tick: int = 0

    def __post_init__(self) -> None:
        self.outcomes: list[tuple[ibc.Submission, str, int]] = []
        self.undecided: list[tuple[str, str, int, int, str]] = []
        self.of_strangers: list[Row] = []
        super().__post_init__()

    def declared(self) -> set[str]:
        return set(self.scenario.options.get("types", {}))

    def submit(self, submission: ibc.Submission) -> str:
        zone = self.zones[submission.zone]
        purpose = "receipt" if submission.call == "IBCcleanup" else "send"
        head = Queue(zone.store, submission.remote, purpose).head() if submission.remote in zone.connections else 0
        before = self._content(zone)
        outcome = super().submit(submission)
        self.outcomes.append((submission, outcome, head))
        if outcome == UNPAID:
            return outcome
        if isinstance(submission, StrangersCall):
            after, remote = self._content(zone), submission.remote
            assert outcome == "Success" or after == before, "what is refused changes nothing (G9)"
            (was_frozen, trusted), (frozen, trusts) = (one[-1].get(remote, (False, 0)) for one in (before, after))
            more = {"froze": frozen and not was_frozen, "added": trusts != trusted}
            self.of_strangers.append(row_of(submission, outcome, head, names=self.zones, **more))
        return outcome

    def _content(self, zone: ibc.Zone) -> tuple[Any, ...]:
        """All that a call may change; of each connection, whether it is frozen and what is trusted."""
        if not self.scenario.outside:
            return ({},)
        connections = zone.connections.items()
        return (
            dict(zone.store),
            {remote: (one.disconnecting, set(one.unwritten)) for remote, one in connections},
            dict(zone.app.balances),
            (len(zone.app.calls), len(zone.app.answers), dict(zone.app.callbacks)),
            {remote: (one.frozen, frozenset(one.T)) for remote, one in connections},
        )

    def _block_of(self, zone: ibc.Zone, *rest: Any) -> None:
        for chain, remote, tick in dict.fromkeys(self.scenario.recoveries):
            if (chain, tick) != (zone.chain_id, self.tick):
                continue
            if self.height > 1:
                ibc.recover(zone, remote, self.headers[remote, self.height - 1])
            else:
                self.undecided.append((chain, remote, RECEIPT, 0, "MissingHeader"))
        super()._block_of(zone, *rest)

    def _send(self, zone: ibc.Zone) -> None:
        super()._send(zone)
        for tick, chain, sender, receiver, payload in self.scenario.forged:
            remote = self.directory.get(receiver)
            if tick == self.tick and chain == zone.chain_id and remote in zone.connections:
                limits = self.limits(zone, remote)
                envelope = encode_envelope(sender, 0, ibc.Call(receiver, "forged", payload))
                push_packet(zone, zone.connections[remote], ibc.Packet("call", envelope, *limits), "forged")
        for chain, remote, tick in self.scenario.disconnects:
            connection = zone.connections.get(remote)
            if (chain, tick) != (zone.chain_id, self.tick) or connection is None:
                continue
            limits = self.limits(zone, remote)
            if connection.frozen or connection.disconnecting:
                continue
            if limits == (None, None):
                ibc.disconnect(zone, remote)
            else:
                push_packet(zone, connection, ibc.Packet("disconnect", b"", *limits), chain)
                connection.disconnecting = True


def accounts_of(scenario: Scenario) -> Accounts | None:
    """The accounts of a scenario's relayers, None where they have none."""
    chosen = scenario.relay.get("accounts")
    if chosen is None:
        return None
    given = {name: chosen.get("balances", {}).get(name, chosen.get("balance", 0)) for name in scenario.relayers}
    deposits: Counter[tuple[str, str, int]] = Counter()
    for zone, name, tick, amount in scenario.deposits:
        deposits[zone, name, tick] += amount
    budgets = {
        name: (one.get("budget", 0), one.get("every", 100)) for name, one in scenario.relay.get("sponsored", {}).items()
    }
    rewards = chosen.get("reward", 0), chosen.get("reward_every", 1)
    return Accounts(scenario.order(), scenario.relayers, given, HEADER_FEE, PROOF_FEE, *rewards, budgets, deposits)


class OracleRun:
    """The oracle on the same scenario."""

    def __init__(
        self, scenario: Scenario, application: dict[str, dict[bytes, bytes]], certified: Certified | None = None
    ) -> None:
        self.scenario = scenario
        self.application = application
        self.certified = {} if certified is None else certified
        options = scenario.options
        chosen = ibc.Options(
            asynchronous="off" if options.get("acknowledgements") == "synchronous" else "on",
            max_data=options.get("max_data_bytes", 262_144),
            unbonding=round(options["unbonding_seconds"] * 10**9) if "unbonding_seconds" in options else None,
            delay=round(options.get("delay_seconds", 0) * 10**9),
            drift=5 * 10**9,
            forget="on",
            genesis="vouches",
            indices=keys.MAX_INDEX,
            trusted_headers=options.get("trusted_headers", 100),
            **{
                name: options[name]
                for name in ("redundant", "expiry", "order", "timeouts", "cleanup")
                if name in options
            },
        )
        programs = {
            zone: {number: SPEC_PROGRAMS[name]() for number, name in here.items() if name is not None}
            for zone, here in scenario.zones.items()
        }
        types = options.get("types", {})
        everybody = {number: name for here in scenario.zones.values() for number, name in here.items()}
        relays = Relays(scenario, None)
        self.strangers = Strangers(None)
        SpecNetwork.scenario = scenario
        self.net = SpecNetwork(
            {zone: programs[zone] for zone in scenario.order()},
            chosen,
            types={
                zone: [name for name, one in types.items() if zone in one.get("chains", [zone])] for zone in programs
            },
            relayers=[
                Watchers(relays),
                *(OneRelayer(name, place, relays) for place, name in enumerate(scenario.relayers)),
                self.strangers,
            ],
            links=None if options.get("connections") is None else {tuple(pair) for pair in options["connections"]},
            permissions={
                name: {number for number, own in everybody.items() if {f"p{number}", own} & set(one["modules"])}
                for name, one in types.items()
                if one.get("modules") is not None
            },
            balance=scenario.balance,
            tick_ns=TICK_NS,
            limits=self._limits,
            valid=self._valid,
            certify=self._certify,
            app_entries=lambda zone: self.application[zone.chain_id],
            accounts=accounts_of(scenario),
        )
        self.net.directory |= {number: zone for zone, here in scenario.zones.items() for number in here}
        relays.net = relays.backoffs.net = self.strangers.net = self.net
        self.relays = relays

    def _certify(self, header: ibc.Header) -> ibc.Header:
        validators, signers = self.certified.get((header.chain_id, header.height), ({}, frozenset()))
        return ibc.signed_header(header, validators, signers)

    def _valid(self, trust: Trust, header: ibc.Header) -> bool | None:
        """By the validator sets, of headers that have them; whoever has no keys of theirs signs nothing."""
        if header not in self.net.genuine:
            return False
        return ibc.valid_by_validators(trust, header) if self.certified else True

    def _limits(self, zone: ibc.Zone, remote: str) -> tuple[int | None, int | None]:
        options = self.scenario.options
        if options.get("timeouts", "off") == "off":
            return None, None
        blocks, seconds = options.get("timeout_blocks", 0), options.get("timeout_seconds", 0)
        known = newest_trusted(zone.connections[remote]).height
        return known + blocks if blocks else None, zone.time + round(seconds * 10**9) if seconds else None

    def play(self, height: int, application: dict[str, dict[bytes, bytes]], brought: Sequence[Brought] = ()) -> None:
        """Make one block; ``application``: what else is in the stores after it; ``brought``: by strangers."""
        self.application, self.strangers.brought = application, list(brought)
        tick = self.scenario.ticks[height - 1]
        halted = self.scenario.halted(tick)
        ingress: dict[str, list[ibc.Ingress]] = {}
        for one in self.scenario.ingress.get(height, ()):
            ingress.setdefault(one.zone, []).append(ibc.Ingress(one.user, one.receiver, one.method, one.payload))
        self.relays.look(height, tick, halted)
        self.net.tick = tick
        self.net.outcomes.clear()
        self.net.undecided.clear()
        self.net.of_strangers = [not_taken(one) for one in brought if one.zone in halted]
        self.rows = self.net.block(ingress, halted=halted, tick=tick + 1)
        for row in self.rows:
            if isinstance(row, ibc.Recovered):
                self.relays.backoffs.decided(row.chain, row.remote)
        self.relays.backoffs.learn(height, set(self.scenario.relayers), frozen_by_headers(self.rows))
        self.strangers.count(self.net.of_strangers)

    def view(self) -> View:
        """Everything comparable, by zone."""
        found: View = {}
        left_alone = self.relays.backoffs.view()
        funds = [] if self.net.accounts is None else balances(self.net.accounts)
        for name, zone in self.net.zones.items():
            app: App = zone.app
            found[name] = {
                "entries": dict(zone.store),
                "root": self.net.roots[name],
                "programs": {number: program.view() for number, program in app.programs.items()},
                "trust": {r: sorted(height for height, _ in one.T) for r, one in zone.connections.items()},
                "frozen": {remote for remote, one in zone.connections.items() if one.frozen},
                "disconnecting": {r for r, one in zone.connections.items() if one.disconnecting and not one.frozen},
                "unwritten": {(remote, i) for remote, one in zone.connections.items() for i in one.unwritten},
                "balances": dict(app.balances),
                "callbacks": {number: app.callbacks.get(number, 0) for number in app.programs},
                "backoffs": {key[1:]: said for key, said in left_alone.items() if key[0] == name},
                "funds": {one for one in funds if one.zone == name},
            }
        return found

    def happened(self) -> dict[str, Any]:
        """What the last block's log says."""
        rows = self.rows
        counts: defaultdict[str, Counter[Any]] = defaultdict(Counter)
        for submission, outcome, _ in self.net.outcomes:
            if outcome == UNPAID:
                continue
            if isinstance(submission, StrangersCall):
                relayer = account_of(submission.user)
            elif submission.relayer in self.scenario.relayers:
                relayer = self.scenario.relayers.index(submission.relayer)
            else:
                continue
            if submission.call in ("updateHeader", "submitMisbehaviour"):
                counts[submission.zone][relayer, "headers"] += 1
                counts[submission.zone][relayer, "fees"] += HEADER_FEE
                continue
            counts[submission.zone][relayer, "fees"] += PROOF_FEE
            counts[submission.zone][relayer, "submitted"] += 1
            counts[submission.zone][relayer, "accepted" if outcome == "Success" else "failed"] += 1
        outside: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self.net.of_strangers:
            outside[row[0]].append(row)
        return {
            "outside": dict(outside),
            "refused": self._refused(),
            "clients": Counter(
                (r.chain, r.remote, r.remote_height, type(r).__name__)
                for r in rows
                if isinstance(r, ibc.Frozen | ibc.Recovered)
            ),
            "funds": Counter(
                (r.chain, r.relayer, r.height, type(r).__name__)
                for r in rows
                if isinstance(r, ibc.OutOfFunds | ibc.Funded)
            ),
            "rejected": Counter((r.chain, r.program, r.callback, r.error) for r in rows if isinstance(r, ibc.Rejected)),
            "timed_out": Counter((r.chain, r.index) for r in rows if isinstance(r, ibc.TimedOut)),
            "settled": {(r.chain, r.remote, r.index) for r in rows if isinstance(r, ibc.Acked | ibc.TimedOut)},
            "counts": dict(counts),
        }

    def _refused(self) -> Counter[Any]:
        """Refusals as the kernel says them: one for each stretch of a run that is refused for one reason. In order,
        what is behind a refused entry is out of order by that, and not said again."""
        found: Counter[Any] = Counter(self.net.undecided)
        found.update(refused(row) for row in self.net.of_strangers if is_refusal(row))
        last: tuple[Run, str] | None = None
        ordered = self.net.options.order == "ordered"
        for submission, outcome, head in self.net.outcomes:
            substream = SEND if submission.call in ("IBCreceive", "IBCcleanup") else RECEIPT
            if outcome == UNPAID:
                continue
            if isinstance(submission, StrangersCall):
                last = None
            elif submission.call in ("updateHeader", "submitMisbehaviour"):
                last = None
                if outcome != "Success":
                    one = submission.argument
                    height = (one[0] if isinstance(one, tuple) else one).height
                    found[submission.zone, submission.remote, RECEIPT, height, outcome] += 1
            elif outcome == "Success" or not isinstance(submission, RunSubmission):
                last = None
            else:
                run = submission.run
                assert run is not None and CALLS[run.call] == submission.call
                behind = ordered and outcome == "OutOfOrder" and run.call < TIMEOUT
                if last is not None and last[0] is run and (behind or last[1] == outcome):
                    continue
                last = run, outcome
                at_head = run.call == CLEANUP or (run.call == TIMEOUT and ordered)
                index = head if at_head else run.begin + submission.number
                found[run.zone, run.remote, substream, index, outcome] += 1
        return found


def described(scenario: Scenario) -> str:
    """The scenario as text, to look at."""
    return json.dumps(scenario.__dict__, default=repr, indent=1)
