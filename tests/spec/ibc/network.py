"""A network of zones that make block h together, in the order of the composition."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from tests.spec.ibc.accounts import Accounts
from tests.spec.ibc.beyond import IBCcleanup, IBCtimeout
from tests.spec.ibc.calls import IBCreceipt, IBCreceive, IBCsend, IBCwrite
from tests.spec.ibc.errors import SpecError, UnregisteredDestination
from tests.spec.ibc.events import Refused, Rejected, Row
from tests.spec.ibc.headers import Header, Proof, Stores, Trust, Valid
from tests.spec.ibc.options import Options
from tests.spec.ibc.programs import (
    CALL,
    App,
    Ingress,
    Outgoing,
    Reply,
    Request,
    RequestKey,
    decode_result,
    encode_envelope,
    program_handler,
    take_ingress,
    take_local,
)
from tests.spec.ibc.queue import Queue, Store
from tests.spec.ibc.relayers import Relay, Submission, View
from tests.spec.ibc.tree import simple_root
from tests.spec.ibc.values import REJECTED
from tests.spec.ibc.zone import (
    NOOP,
    SUCCESS_,
    Zone,
    begin_block,
    commit_block,
    registerChain,
    submitMisbehaviour,
    updateHeader,
)

UNPAID = "Unpaid"
"""What comes of a call that is not made, since its fee cannot be paid."""

CALLS: dict[str, Callable[..., str]] = {
    "updateHeader": updateHeader,
    "submitMisbehaviour": submitMisbehaviour,
    "IBCreceive": IBCreceive,
    "IBCreceipt": IBCreceipt,
    "IBCtimeout": IBCtimeout,
    "IBCcleanup": IBCcleanup,
}


def unlimited(zone: Zone, remote: str) -> tuple[int | None, int | None]:
    """Packets have no limits of their own accord."""
    return None, None


def unsigned(header: Header) -> Header:
    """Headers come without validator sets."""
    return header


def no_entries(zone: Zone) -> dict[bytes, bytes]:
    """Other modules keep nothing in the store."""
    return {}


@dataclass
class Network:
    """Zones, their blocks and the log.

    `programs`: zone -> program number -> program; the order of zones is that of their positions. `types`: declared
    types besides "call", or per zone. `links`: pairs that are connected; None: all. `permissions`: type -> programs
    that may send it; a type not named may be sent by all. `limits(zone, remote)`: (max_height, max_time) of
    packets to a remote whose call has none. `app_entries`: what other modules keep in the store. `valid`: valid(T, U);
    None: the headers that the zones really made. `certify`: gives a new header its validators
    and signers. `history`: (zone, height) -> store, without those entries. `fees`: by relayer. `accounts`: out of
    which relayers pay them; None: what they pay is only counted.
    """

    programs: Mapping[str, Mapping[int, Any]]
    options: Options = field(default_factory=Options)
    types: Sequence[str] | Mapping[str, Sequence[str]] = ()
    relayers: Sequence[Relay] = ()
    links: Set[tuple[str, str]] | None = None
    permissions: Mapping[str, Set[int]] = field(default_factory=dict)
    balance: int = 1000
    tick_ns: int = 10**9
    limits: Callable[[Zone, str], tuple[int | None, int | None]] = unlimited
    app_entries: Callable[[Zone], dict[bytes, bytes]] = no_entries
    valid: Valid | None = None
    certify: Callable[[Header], Header] = unsigned
    height: int = 0
    zones: dict[str, Zone] = field(default_factory=dict)
    headers: dict[tuple[str, int], Header] = field(default_factory=dict)
    history: dict[tuple[str, int], Store] = field(default_factory=dict)
    log: list[Row] = field(default_factory=list)
    fees: Counter[str] = field(default_factory=Counter)
    accounts: Accounts | None = None
    roots: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory = {number: zone for zone, here in self.programs.items() for number in here}
        self.order = tuple(self.programs)
        self.genuine: set[Header] = set()
        self._genesis()

    def _genesis(self) -> None:
        """Height 0: everybody is registered everywhere with the header of that very state."""
        stores: Stores = {}
        for name, here in self.programs.items():
            zone = Zone(name, stores, self.valid or self._is_genuine, self.options)
            zone.app = App(dict(here), dict.fromkeys(here, self.balance))
            types = self.types.get(name, ()) if isinstance(self.types, Mapping) else self.types
            for type_ in (CALL, *types):
                zone.handlers[type_] = program_handler(zone, self.directory)
                zone.permissions[type_] = set(self.permissions.get(type_, set(here)))
            self.zones[name] = zone
        for name, zone in self.zones.items():
            for remote in self._peers(name):
                empty: Store = {}
                for peer in self._peers(remote):
                    Queue(empty, peer, "send").init()
                    Queue(empty, peer, "receipt").init()
                root = simple_root({**empty, **self.app_entries(self.zones[remote])})
                if self.options.genesis == "vouches":
                    root = bytes(32)
                registerChain(zone, remote, self.certify(Header(remote, 0, 0, root)))
        self._commit()

    def _peers(self, name: str) -> list[str]:
        return [
            other
            for other in self.order
            if other != name and (self.links is None or {(name, other), (other, name)} & self.links)
        ]

    def _is_genuine(self, trust: Trust, header: Header) -> bool | None:
        return header in self.genuine

    # ---- one block

    def block(
        self,
        ingress: Mapping[str, Sequence[Ingress]] | None = None,
        calls: Sequence[Submission] = (),
        halted: Set[str] = frozenset(),
        tick: int | None = None,
    ) -> list[Row]:
        """All zones make their next block. `calls` are submitted before those of the relayers. A halted zone's block
        is empty: it takes no calls and runs nothing; ingress for it is refused. Gives the new rows."""
        begin = len(self.log)
        view = self.view()
        self.height += 1
        for name in self.order:
            zone = self.zones[name]
            begin_block(zone, self.height, (self.height if tick is None else tick) * self.tick_ns)
            if name in halted:
                row = Refused(name, self.height, "ingress", "", b"", "halted", "", 0)
                zone.log += [row for _ in (ingress or {}).get(name, ())]
                continue
            self._block_of(zone, view, (ingress or {}).get(name, ()), [one for one in calls if one.zone == name])
        self._commit()
        return self.log[begin:]

    def _block_of(self, zone: Zone, view: View, ingress: Sequence[Ingress], calls: Sequence[Submission]) -> None:
        if self.accounts is not None:
            self.accounts.begin_block(zone.chain_id, zone.height, zone.time // self.tick_ns - 1)
        for submission in calls:
            self.submit(submission)
        for relayer in self.relayers:
            for submission in relayer.calls(view, zone):
                self.submit(submission)
        if self.accounts is not None:
            zone.log += self.accounts.end_block(zone.chain_id, zone.height)
        take_local(zone, self.options.local == "by_substream")
        take_ingress(zone, ingress)
        self._send(zone)
        answer(zone)
        zone.app.local, zone.app.made = zone.app.made, []

    def _send(self, zone: Zone) -> None:
        """What programs produced is sent in the order of production."""
        produced: list[Outgoing] = zone.app.calls
        zone.app.calls = []
        if self.options.production == "by_program":
            produced = sorted(produced, key=lambda one: one.program)
        for one in produced:
            call = one.call
            to = self.directory.get(call.receiver)
            if to == zone.chain_id:
                key = RequestKey(None, 0, one.program, one.callback, call.cycles)
                zone.app.open_local.add(key)
                zone.app.made.append((call.receiver, Request(key, call.receiver, call.method, call.payload)))
                continue
            declared = call.method in self.declared()
            try:
                if to is None:
                    raise UnregisteredDestination(f"program {call.receiver}")
                limits = call.max_height, call.max_time
                if limits == (None, None) and to in zone.connections:
                    limits = self.limits(zone, to)
                envelope = encode_envelope(one.program, one.callback, call)
                IBCsend(zone, to, call.method if declared else CALL, envelope, one.program, *limits)
            except SpecError as error:
                zone.log.append(Rejected(zone.chain_id, zone.height, one.program, one.callback, error.name))
                reject = Reply(one.callback, REJECTED, error.name.encode(), call.cycles)
                zone.app.made.append((one.program, reject))

    def declared(self) -> set[str]:
        """The types that some zone declares: an IBCsend of one that is not ours is an UnsupportedType."""
        if isinstance(self.types, Mapping):
            return {type_ for types in self.types.values() for type_ in types}
        return set(self.types)

    def submit(self, submission: Submission) -> str:
        """Run one transaction; gives Success, NoOp or the error's name. The fee is paid in any case. Where the relayer
        has an account that does not hold it, nothing is run: Unpaid."""
        zone = self.zones[submission.zone]
        accounts, relayer = self.accounts, submission.relayer
        charged = accounts is not None and relayer in accounts.relayers
        if accounts is not None and charged and not accounts.pay(zone.chain_id, relayer, submission.call):
            return UNPAID
        self.fees[submission.relayer] += submission.fee
        arguments = submission.argument if isinstance(submission.argument, tuple) else (submission.argument,)
        try:
            outcome = CALLS[submission.call](zone, submission.remote, *arguments, submission.relayer)
        except SpecError as error:
            outcome = error.name
        if accounts is not None and charged and outcome == SUCCESS_:
            accounts.took_effect(zone.chain_id, relayer, submission.call)
        if outcome != SUCCESS_:
            key = submission.argument.key if isinstance(submission.argument, Proof) else b""
            columns = submission.call, submission.remote, key, outcome, submission.relayer, submission.fee
            zone.log.append(Refused(zone.chain_id, zone.height, *columns))
        assert outcome != NOOP or self.options.redundant == "noop"
        return outcome

    def _commit(self) -> None:
        for name, zone in self.zones.items():
            root = commit_block(zone, self.app_entries(zone))
            shown = root
            self.history[name, self.height] = dict(zone.store)
            if self.options.app_hash_lag == 1 and self.height > 0:
                shown = self.roots[name]
            self.roots[name] = root
            header = self.certify(Header(name, self.height, zone.time, shown))
            self.headers[name, self.height] = header
            self.genuine.add(header)
            self.log += zone.log
            zone.log.clear()

    # ---- what is outside of the chains

    def view(self) -> View:
        """What is committed now."""
        shown = max(0, self.height - self.options.app_hash_lag)
        return View(
            self.height + 1,
            self.order,
            {name: self.headers[name, self.height] for name in self.order},
            {name: self.history[name, shown] for name in self.order},
            {name: self.history[name, self.height] for name in self.order},
            {
                (name, remote): frozenset(connection.unwritten)
                for name, zone in self.zones.items()
                for remote, connection in zone.connections.items()
            },
            frozenset(
                (name, remote)
                for name, zone in self.zones.items()
                for remote, connection in zone.connections.items()
                if connection.frozen
            ),
            self.options,
        )

    def proof(self, chain: str, key: bytes, height: int | None = None) -> Proof:
        """The true proof of what is under `key` on `chain` at a header's height (the newest)."""
        height = self.height if height is None else height
        shown = max(0, height - self.options.app_hash_lag)
        return Proof(key, self.history[chain, shown].get(key), height, chain)

    def program(self, number: int) -> Any:
        return self.zones[self.directory[number]].app.programs[number]

    def rows(self, relation: type, **columns: Any) -> list[Any]:
        """The rows of a relation with these columns."""
        return [
            row
            for row in self.log
            if isinstance(row, relation) and all(getattr(row, name) == value for name, value in columns.items())
        ]


def answer(zone: Zone) -> None:
    """Answers are pushed as receipts, ascending; those to local requests go to the local lane."""
    answers = [*zone.app.answers, *zone.app.unserved]
    zone.app.answers, zone.app.unserved = [], []
    for to, receipt in answers:
        if to.zone is None:
            zone.app.open_local.remove(to)
            refund, payload = decode_result(receipt.result, to.cycles)
            zone.app.made.append((to.sender, Reply(to.callback, receipt.code, payload, refund)))
    position = {name: at for at, name in enumerate(zone.connections)}
    remote = [(to.zone, to.index, receipt) for to, receipt in answers if to.zone is not None]
    for name, index, receipt in sorted(remote, key=lambda one: (position[one[0]], one[1])):
        try:
            IBCwrite(zone, name, index, receipt.result, receipt.code)
        except SpecError as error:
            zone.log.append(Refused(zone.chain_id, zone.height, "IBCwrite", name, b"", error.name, "", 0))
