"""Calls of strangers: accounts that are no relayer of the scenario submit transactions, as relay processes do.

A scenario says in plain values what each shall do (``Visit``). What that comes to, depends on what the zones have
committed by then: ``Wires`` makes the bytes for the kernel and beside them what they claim, and ``Strangers`` makes the
oracle's calls of these claims. In both they come behind those of the block's relayers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from causeway_proofs.ics23.simple_store import SimpleStore
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.protocols.ibc.client import build_evidence, conflicting_header
from causeway.protocols.ibc.relay.accounts import OUTSIDER
from causeway.protocols.ibc.relayer_view import SubmissionKind
from causeway.protocols.ibc.state import RECEIPT, SEND
from tests.spec import ibc

PROOFS = {"receive": "IBCreceive", "receipt": "IBCreceipt", "timeout": "IBCtimeout", "cleanup": "IBCcleanup"}
KINDS = {
    "IBCreceive": SubmissionKind.RECEIVE,
    "IBCreceipt": SubmissionKind.RECEIPT,
    "IBCtimeout": SubmissionKind.TIMEOUT,
    "IBCcleanup": SubmissionKind.CLEANUP,
    "updateHeader": SubmissionKind.UPDATE,
    "submitMisbehaviour": SubmissionKind.MISBEHAVIOUR,
}
PURPOSES = {"receive": "send", "receipt": "receipt", "timeout": "receipt", "cleanup": "send"}

HEADER_LIES = ("", "altered", "fork", "other chain", "cut")
EVIDENCE_LIES = ("fork", "same", "in order", "swapped", "altered", "other chain", "cut")
PROOF_LIES = ("", "value", "proof", "cut", "other key", "other height", "other chain", "purpose", "part", "lane", "key")

HEADER_FEE, PROOF_FEE = 100, 20
"""What relayers pay by default."""


@dataclass(frozen=True)
class Told:
    """A call.

    ``kind``: update, misbehaviour, receive, receipt, timeout, cleanup. ``age``: it is about the header of so many
    heights before the newest; -1: about one that is still to come. ``offset``: of its index from the one that comes
    next. ``lie``: what is wrong with it, if anything; of evidence, what it is.
    """

    kind: str
    remote: str
    age: int = 0
    offset: int = 0
    lie: str = ""


@dataclass(frozen=True)
class Visit:
    """A transaction of a user to a zone; ``cut``: its last byte is missing, and so it is none."""

    zone: str
    user: int
    calls: tuple[Told, ...]
    cut: bool = False


@dataclass(frozen=True)
class Said:
    """A header that somebody shows: the ``chain``'s of a ``height``; ``form``: as it is, "altered", its "fork", or no
    header at all ("none")."""

    chain: str
    height: int
    form: str = ""


Claim = Said | tuple[Said, Said] | ibc.Proof | None
"""What a call shows: a header, evidence (None: of nothing), or a proof."""


@dataclass(frozen=True)
class Brought:
    """A transaction for the kernel, and what its calls claim; None for what is no transaction."""

    zone: str
    user: int
    payload: bytes
    claims: tuple[tuple[Told, Claim], ...] | None


@dataclass
class Wires:
    """Makes the transactions of a kernel's run. ``stores``: (zone, height) -> all entries that a root is of."""

    run: Any
    stores: dict[tuple[str, int], Mapping[bytes, bytes]] = field(default_factory=dict)

    def look(self) -> None:
        """Keep the stores that were committed last."""
        entries, application = self.run.entries(), self.run.application()
        for name in self.run.names:
            self.stores[name, self.run.height] = {**entries[name], **application[name]}

    def transaction(self, visit: Visit) -> Brought:
        """What a stranger brings to the next block."""
        calls, claims = [], []
        for told in visit.calls:
            call, claim = self._call(visit.zone, told)
            calls.append(call)
            claims.append((told, claim))
        payload = wire.Transaction(calls=calls).SerializeToString()
        if visit.cut:
            return Brought(visit.zone, visit.user, payload[:-1] or b"\xff", None)
        return Brought(visit.zone, visit.user, payload, tuple(claims))

    def _call(self, zone: str, told: Told) -> tuple[wire.Call, Claim]:
        if told.kind == "update":
            said = self._header(told)
            update = wire.UpdateHeader(remote=told.remote, header=self._bytes(said))
            return wire.Call(update=update), said
        if told.kind == "misbehaviour":
            pair = self._evidence(told)
            shown = b"\xff" if pair is None else build_evidence(*map(self._bytes, pair))
            evidence = wire.SubmitMisbehaviour(remote=told.remote, misbehaviour=shown)
            return wire.Call(misbehaviour=evidence), pair
        submit, proof = self._proof(zone, told)
        call = wire.Call()
        getattr(call, told.kind).CopyFrom(submit)
        return call, proof

    # ---- headers

    def _other(self, name: str) -> str:
        """Another zone."""
        names = self.run.names
        return str(names[(names.index(name) + 1) % len(names)]) if name in names else str(names[0])

    def _height(self, told: Told) -> int:
        return max(int(self.run.height) - told.age, 0)

    def _header(self, told: Told) -> Said:
        height = min(self._height(told), self.run.height)
        chain = (
            self._other(told.remote) if told.lie == "other chain" or told.remote not in self.run.names else told.remote
        )
        if told.lie == "cut" or height == 0:
            return Said(chain, height, "none")
        if told.lie == "fork" and (forked := self._forked(chain, height)):
            return Said(chain, forked, "fork")
        return Said(chain, height, "altered" if told.lie == "altered" else "")

    def _evidence(self, told: Told) -> tuple[Said, Said] | None:
        chain = told.remote if told.remote in self.run.names else self._other(told.remote)
        height = min(self._height(told), self.run.height)
        if told.lie == "cut" or height < 2:
            return None
        newest, before = Said(chain, height), Said(chain, height - 1)
        if told.lie == "fork" and (forked := self._forked(chain, height)):
            return Said(chain, forked), Said(chain, forked, "fork")
        return {
            "in order": (newest, before),
            "swapped": (before, newest),
            "altered": (newest, replace(newest, form="altered")),
            "other chain": (newest, Said(self._other(chain), height)),
        }.get(told.lie, (newest, newest))

    def _forked(self, chain: str, height: int) -> int:
        """A height for which a zone has signed two headers by now: this one, or the first of them; 0: none."""
        if chain in self.run.scenario.doubles:
            return height
        ticks = self.run.scenario.ticks
        heights = [ticks.index(tick) for zone, tick in self.run.scenario.forks if zone == chain]
        return min((height for height in heights if 0 < height <= self.run.height), default=0)

    def _bytes(self, said: Said) -> bytes:
        """A header as it is submitted."""
        position = list(self.run.names).index(said.chain)
        rows = self.run.past_headers[said.height]
        (row,) = [row for row, chain in enumerate(rows["chain"].tolist()) if chain == position]
        certification: bytes = rows["certification"][row].as_py()
        if said.form == "none":
            return certification[:-1]
        if said.form == "fork":
            return conflicting_header(certification, position, self.run.kernel.context(rows["chain"], self.run.tick))
        root = bytes(rows["root"][row])
        return certification.replace(root, altered(root)) if said.form == "altered" else certification

    # ---- proofs

    def _proof(self, zone: str, told: Told) -> tuple[wire.Submit, ibc.Proof]:
        """A proof, and what it claims; one that proves nothing claims to be of no chain."""
        height = self._height(told)
        owner = told.remote if told.remote in self.run.names else zone
        shown = min(height, self.run.height)
        key = self._key(zone, told)
        store, source = self.stores[owner, shown], (owner, shown)
        value = store.get(key)
        if told.lie == "other chain":
            source = (self._other(owner), shown)
        elif told.lie == "other height":
            source = (owner, max(shown - 1, 0))
        tree = SimpleStore.of(*columns(self.stores[source]))
        holds = tree.root == SimpleStore.of(*columns(store)).root
        proof = tree.prove(key)
        if told.lie == "value":
            value, holds = (value or b"") + b"\x00", False
        elif told.lie == "proof":
            proof, holds = proof[:-2] + bytes([proof[-2] ^ 1]) + proof[-1:], False
        elif told.lie == "cut":
            proof, holds = proof[:-1], False
        elif told.lie == "other key":
            proof, holds = tree.prove(next(name for name in sorted(store) if name != key)), False
        submit = wire.Submit(remote=told.remote, key=key, value=value or b"", proof=proof, height=height)
        return submit, ibc.Proof(key, value, height, owner if holds else "")

    def _key(self, zone: str, told: Told) -> bytes:
        """The key that a call is about, as its counterparty has it."""
        if told.lie == "key":
            return b"app/trust" if told.offset else ibc.key(zone, "send", 0)[:-1]
        purpose, destination = PURPOSES[told.kind], zone
        own = self.stores[zone, self.run.height]
        place: int | str = ibc.HEAD if told.kind == "cleanup" else ibc.TAIL
        if told.kind != "cleanup" and (told.kind != "timeout" or self._unordered):
            counted = ("receipt", ibc.TAIL) if told.kind == "receive" else ("send", ibc.HEAD)
            state = own.get(ibc.key(told.remote, *counted))
            at = 0 if state is None else ibc.decode_state(state)
            place = min(max(at + told.offset, 0), 2**64 - 1)
        if told.lie == "purpose":
            purpose = {"send": "receipt", "receipt": "send"}[purpose]
        elif told.lie == "part":
            place = ibc.TAIL if place != ibc.TAIL else 0 if told.offset else ibc.HEAD
        elif told.lie == "lane":
            destination = self._other(zone)
        return ibc.key(destination, purpose, place)

    @property
    def _unordered(self) -> bool:
        return bool(self.run.scenario.options.get("order") == "unordered")


def altered(root: bytes) -> bytes:
    """Another root, which nobody has signed."""
    return root[:-1] + bytes([root[-1] ^ 1])


def columns(store: Mapping[bytes, bytes]) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    keys = sorted(store)
    return pa.array(keys, pa.binary()), pa.array([store[key] for key in keys], pa.binary())


# ---- the oracle's side


@dataclass(frozen=True)
class StrangersCall(ibc.Submission):
    """A call from outside. ``user``: who makes it."""

    user: int = 0


Row = tuple[str, int, int, str, int, str, int]
"""A call in the log: zone, user, kind of call, remote, index, what came of it, fee."""


def name_of(user: int) -> str:
    """What a user is called in the record of relays."""
    return f"user {user}"


@dataclass
class Strangers:
    """The relayer of the oracle that stands for all strangers. ``brought``: to the next block."""

    net: Any
    name: str = "strangers"
    brought: list[Brought] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)

    def count(self, rows: Iterable[Row]) -> None:
        """Count what came of a block's calls."""
        calls = {kind: call for call, kind in KINDS.items()} | {NOT_TAKEN: "transaction"}
        self.did.update(f"{calls[row[2]]} {row[5] or 'taken'}" for row in rows)

    def calls(self, view: ibc.View, zone: ibc.Zone) -> Iterator[ibc.Submission]:
        for one in self.brought:
            if one.zone != zone.chain_id:
                continue
            if one.claims is None:
                self.net.of_strangers.append(unread(one))
            for told, claim in one.claims or ():
                call = PROOFS.get(told.kind, "updateHeader" if told.kind == "update" else "submitMisbehaviour")
                fee = PROOF_FEE if told.kind in PROOFS else HEADER_FEE
                argument = self._argument(claim)
                yield StrangersCall(one.zone, call, told.remote, argument, name_of(one.user), fee, one.user)

    def _argument(self, claim: Claim) -> Any:
        if isinstance(claim, Said):
            return self._header(claim)
        if isinstance(claim, tuple):
            return self._header(claim[0]), self._header(claim[1])
        return claim if claim is not None else (None, None)

    def _header(self, said: Said) -> ibc.Header | None:
        if said.form == "none":
            return None
        header: ibc.Header = self.net.headers[said.chain, said.height]
        if said.form == "altered":
            return replace(header, root=altered(header.root))
        if said.form == "fork":
            header = replace(header, root=bytes([header.root[0] ^ 1]) + header.root[1:])
            self.net.genuine.add(header)
        return header


NOT_TAKEN = -1
"""The kind of call of a transaction to a zone that makes no block."""


def not_taken(one: Brought) -> Row:
    """What is logged of a transaction to a zone that makes no block."""
    return one.zone, one.user, NOT_TAKEN, one.zone, 0, "ChainHalted", 0


def unread(one: Brought) -> Row:
    """What is logged of bytes that are no transaction."""
    return one.zone, one.user, SubmissionKind.UPDATE, one.zone, 0, "InvalidPacket", 0


def row_of(call: StrangersCall, outcome: str, head: int, *, names: Iterable[str], froze: bool, added: bool) -> Row:
    """What is logged of a call. ``head``: of the queue that it is about, before it; ``froze``, ``added``: whether it
    froze the connection, whether it came to trust a header."""
    kind, known = KINDS[call.call], call.remote in names
    if call.call in ("updateHeader", "submitMisbehaviour"):
        shown = call.argument[0] if isinstance(call.argument, tuple) else call.argument
        index = shown.height if known and shown is not None else 0
        why = outcome if outcome != "Success" else "" if froze else "HeaderAdded" if added else "NoOp"
        kind = SubmissionKind.MISBEHAVIOUR if froze else kind
    else:
        try:
            place = ibc.parse(call.argument.key)[2]
        except ibc.MalformedKey:
            place = ""
        index = place if isinstance(place, int) else head if outcome == "Success" else 0
        why = "" if outcome == "Success" else outcome
    return call.zone, call.user, kind, call.remote if known else call.zone, index, why, call.fee


def account_of(user: int) -> int:
    """The number of a user's fee account."""
    return OUTSIDER + user % OUTSIDER


def is_refusal(row: Row) -> bool:
    """Whether a call was refused; what repeats a trusted header is not."""
    kind, why = row[2], row[5]
    return kind != NOT_TAKEN and why not in ("", "HeaderAdded") and (kind < SubmissionKind.UPDATE or why != "NoOp")


def refused(row: Row) -> tuple[str, str, int, int, str]:
    """A refusal as the comparison counts them: zone, remote, substream, index, why."""
    zone, _, kind, remote, index, why, _ = row
    return zone, remote, SEND if kind in (SubmissionKind.RECEIVE, SubmissionKind.CLEANUP) else RECEIPT, index, why
