"""The state that a subnet certified, read from a lake: its canonical tree, its certification, certificates of it.

It is the part of the state manager that reads (IC reference 2.8); rounds commit and certify (``certified_state``).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame, concat, empty_frame, from_table
from causeway.model.joins import lookup
from causeway.model.membership import ALWAYS
from causeway.model.text import shown, unknown
from causeway.network.opened import Mask, OpenedLake
from causeway.pipeline.lake import Freed, LakeError, Manifest
from causeway.proofs.errors import ProofError
from causeway.proofs.ic.certificate import TIME, Certificate, encode_certificate, time_of, verify_state_root
from causeway.proofs.ic.columns import encode_stream_messages
from causeway.proofs.ic.hash_tree import EMPTY, HashTree, Path, build_tree, digest
from causeway.proofs.ic.lookup import require_value
from causeway.proofs.ic.pruning import prune
from causeway.proofs.ic.slice_certification import Certification, decode_certification
from causeway.proofs.ic.slice_payload import STREAMS
from causeway.proofs.ic.state_columns import CANISTER, CERTIFIED_DATA, state_contents
from causeway.proofs.ic.stream_tree import HEADER, MESSAGES, MessagesTree, index_label
from causeway.protocols.contract import NO_HOST
from causeway.protocols.execution import PROGRAM_TABLE
from causeway.protocols.ic.certified_state import canonical_states, with_trees
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.ids import canister_id, stream_labels
from causeway.protocols.ic.registry import registry_at, subnet_positions
from causeway.protocols.ic.state import State, state_of
from causeway.protocols.messages import LANE, LANE_COLUMNS, OUTBOUND_SCHEMA
from causeway.proving.ic.subnets import Subnets, subnets_of


@dataclass(frozen=True)
class Shown:
    """A certificate that shows one value of a state.

    Attributes:
        path: where in the state tree the value is.
        value: what is there, as the certificate shows it.
        certificate: encoded.
        time: of the state, in nanoseconds.
    """

    path: Path
    value: bytes
    certificate: bytes
    time: int


class CertifiedState:
    """What a subnet certified at one of its own heights (``number``). Made by ``CertifiedStates``.

    Attributes:
        subnets, chain, position: whose state it is; it is verified that the subnet has signed its root.
        height: the lake's height that made it.
        certification: of its root.
    """

    def __init__(
        self, subnets: Subnets, chain: str, position: int, manifest: Manifest, certification: Certification
    ) -> None:
        self.subnets, self.chain, self.position = subnets, chain, position
        self.height, self.certification = manifest.height, certification
        self._context = subnets.context(position, manifest)
        state, messages = _read(subnets.opened, position, manifest, self._context)
        self._messages = messages
        self._opened_stream: tuple[bytes, MessagesTree, pa.BinaryArray] | None = None
        self._state = with_trees(state, messages, self._context)
        states, _ = canonical_states(self._state, self._state.heads, self._context)
        self._contents = state_contents(states, 0)
        root = digest(self._tree())
        if root != certification.root_hash:
            raise self._wrong(f"has the root {root.hex()}, certified is {certification.root_hash.hex()}")
        try:
            verify_state_root(root, certification.signature, subnets.key_of(position))
        except ProofError as error:
            raise self._wrong(f"is not certified by it: {error.name}: {error}") from error

    @property
    def number(self) -> int:
        """Return which of the subnet's own heights it is."""
        return self.certification.height

    @property
    def root(self) -> bytes:
        """Return the root of the state, 32 bytes."""
        return self.certification.root_hash

    def header(self, counterparty: str, substream: str | None = None) -> Shown:
        """Return a certificate of the header of the stream to another subnet.

        Args:
            counterparty: name of the other subnet.
            substream: name of the program whose substream it is; None where streams are flat.

        Raises:
            InvalidInput: there is no such stream.
        """
        lane = self._stream_to(counterparty, substream)
        return self._shown((STREAMS, self._id(lane), HEADER), self._tree())

    def message(self, counterparty: str, index: int, substream: str | None = None) -> Shown:
        """Return a certificate of the message ``index`` in the stream to another subnet.

        Args:
            counterparty: name of the other subnet.
            index: of the message in its stream.
            substream: name of the program whose substream it is; None where streams are flat.

        Raises:
            InvalidInput: there is no such stream, or it does not hold that index.
        """
        lane = self._stream_to(counterparty, substream)
        begin, end = (int(lane[name][0]) for name in ("begin", "next_index"))
        if not begin <= index < end:
            holds = f"holds {begin} to {end - 1}" if end > begin else f"is empty (begin and end {begin})"
            raise InvalidInput(
                f"index: {index}: is not in the stream; at height {self.height} the stream from {self.chain} to "
                f"{counterparty} {holds}"
            )
        tree, encoded = self._messages_in(lane)
        witness = tree.witness(index, index + 1, encoded.slice(index - begin, 1))
        path = (STREAMS, self._id(lane), MESSAGES, index_label(index))
        return self._shown(path, self._tree(self._id(lane), witness))

    def certified_data(self, program: str) -> Shown:
        """Return a certificate of the certified data of a program on this subnet.

        Raises:
            InvalidInput: it never set any, or is not on this subnet.
        """
        number = _program(self.subnets.opened, program)
        canisters: Any = self._contents.get(CANISTER, {})
        canister = canister_id(number)
        if canister not in canisters:
            raise InvalidInput(
                f"program: {program}: has set no certified data by height {self.height}"
                if self._hosts(number)
                else f"program: {program}: is not on {self.chain} at height {self.height}"
            )
        return self._shown((CANISTER, canister, CERTIFIED_DATA), self._tree())

    # ---- steps

    def _messages_in(self, lane: Frame) -> tuple[MessagesTree, pa.BinaryArray]:
        """Return the tree of the messages in a stream (a row of the table ``lanes``), and the encoded messages."""
        label = self._id(lane)
        if self._opened_stream is None or self._opened_stream[0] != label:
            messages = self._messages.filter(lookup(lane, self._messages, LANE) >= 0)
            messages = messages.take(np.argsort(messages["index"], kind="stable"))
            columns = {name: messages[name] for name in messages.names}
            encoded = encode_stream_messages(columns, self._context.options.version)
            self._opened_stream = label, MessagesTree(int(lane["begin"][0]), encoded), encoded
        return self._opened_stream[1:]

    def _hosts(self, program: int) -> bool:
        host = self._context.host_of(np.array([program], dtype=np.uint64))
        return int(host[0]) == self.position

    def _id(self, lane: Frame) -> bytes:
        """Return the label of a stream in the state's tree."""
        subnets, flat = self.subnets.numbers[lane["destination"]], self._context.options.flat
        label: bytes = stream_labels(subnets, lane["substream"], flat=flat)[0].tobytes()
        return label

    def _stream_to(self, counterparty: str, substream: str | None) -> Frame:
        """Return a stream, or the substream of a program, as a row of the table ``lanes``."""
        lanes, opened = self._state.streams.counters, self.subnets.opened
        lanes = lanes.filter(lanes["destination"] != np.uint32(self.position))
        known = dict.fromkeys(opened.names[place] for place in lanes["destination"].tolist())
        if counterparty == self.chain:
            raise InvalidInput(
                f"counterparty: {shown(counterparty)}: the stream of a subnet to itself is not certified"
            )
        position = opened.position(counterparty)
        if counterparty not in known:
            others = f"has streams to {', '.join(known)}" if known else "has none to any"
            raise InvalidInput(
                f"counterparty: {shown(counterparty)}: {self.chain} has no stream to it at height {self.height}; "
                f"it {others}"
            )
        lanes = lanes.filter(lanes["destination"] == np.uint32(position))
        if self._context.options.flat:
            if substream is not None:
                raise InvalidInput(f"substream: {shown(substream)}: the streams of this lake have none; leave it out")
            return lanes
        rows = {opened.program_names.get(number, str(number)): row for row, number in enumerate(lanes["substream"])}
        if substream not in rows:
            text = "missing" if substream is None else unknown("substream", substream, rows)
            first = f" (the first is {next(iter(rows))})" if substream is None else ""
            stream = f"the stream from {self.chain} to {counterparty}"
            raise InvalidInput(f"substream: {text}: {stream} has {len(rows)}, each named by a program{first}")
        return lanes.slice(rows[substream], rows[substream] + 1)

    def _tree(self, lane: bytes = b"", messages: HashTree = EMPTY) -> HashTree:
        """Return the state's tree, with a witness of the ``messages`` of the stream to the subnet ``lane``."""
        if not lane:
            return build_tree(self._contents)
        streams: Any = self._contents[STREAMS]
        shown = {**streams, lane: {**streams[lane], MESSAGES: messages}}
        return build_tree({**self._contents, STREAMS: shown})

    def _shown(self, path: Path, tree: HashTree) -> Shown:
        """Return a certificate that shows a path of the state's tree."""
        shown = prune(tree, [path, (TIME,)])
        certificate = encode_certificate(Certificate(shown, self.certification.signature))
        return Shown(path, require_value(shown, path), certificate, time_of(shown))

    def _wrong(self, what: str) -> LakeError:
        where = self.subnets.opened.lake.storage.uri
        return LakeError(f"lake: {where}: the state of {self.chain} at height {self.height} {what}")


class StateRemoved(LakeError):
    """The state of that height is not there any more: a vacuum freed it."""


class StateNotCommittedYet(LakeError):
    """There is no state of that height yet."""


class CertifiedStates:
    """The certified states of the subnets of a lake; some are kept. For any number of threads."""

    def __init__(self, opened: OpenedLake, kept: int = 1) -> None:
        self._opened = opened
        self._state = lru_cache(maxsize=kept)(self._read)

    def get_state_at(self, chain: str, height: int | None = None) -> CertifiedState:
        """Return the state of a subnet at a committed height, by default the last that it has certified.

        Raises:
            StateNotCommittedYet: the lake has not come to that height.
            StateRemoved: the state was freed.
            InvalidInput: the lake is of another protocol or certifies nothing, it has no such chain, or the subnet has
                not certified that height (``LakeError``: the state is not the one certified).
        """
        opened, subnets = self._opened, subnets_of(self._opened)
        position, last = opened.position(chain), opened.last_height()
        if int(subnets.numbers[position]) in opened.topology.external:
            raise InvalidInput(f"chain: {shown(chain)}: is run by another lake, which has its state")
        if height is not None and height > last:
            raise StateNotCommittedYet(f"height: {height} is not committed; committed are 0 to {last}")
        heads = _Heads(opened, position)
        top = last if height is None else height
        certification = heads.newest(top) if height is None else heads.of_height(height)
        try:
            return self._state(position, heads.made(certification.height, top), certification)
        except Freed as error:
            raise StateRemoved(str(error)) from error

    def _read(self, position: int, height: int, certification: Certification) -> CertifiedState:
        opened = self._opened
        chain, manifest = opened.names[position], opened.manifest(height)
        return CertifiedState(subnets_of(opened), chain, position, manifest, certification)


def get_state_at(opened: OpenedLake, chain: str, height: int | None = None) -> CertifiedState:
    """Return the state of a subnet at a committed height, by default the last that it has certified; errors as of
    ``CertifiedStates.get_state_at``."""
    return CertifiedStates(opened).get_state_at(chain, height)


class _Heads:
    """Which of its own heights a subnet had reached and certified at heights of the lake, from its headers."""

    def __init__(self, opened: OpenedLake, position: int) -> None:
        self._opened, self._position = opened, position
        self._known: dict[int, tuple[int, Certification | None]] = {}

    def newest(self, height: int) -> Certification:
        """Return the last certification by a height of the lake.

        Raises:
            InvalidInput: there is none yet.
        """
        found = self._at(height)[1]
        if found is None:
            raise InvalidInput(f"chain: {shown(self._name)}: has certified nothing by height {height}")
        return found

    def of_height(self, height: int) -> Certification:
        """Return the certification of what the subnet had reached at a height of the lake.

        Raises:
            InvalidInput: there is none, or not yet.
        """
        number, last = self._at(height)[0], self._opened.last_height()
        if number < 0 or self._opened.manifest(height).tick < self._comes:
            raise InvalidInput(f"height: {height}: {self._name} was not in the registry")
        later = range(height, last + 1)
        at = bisect_left(later, number, key=self._certified)
        found = self._at(later[at])[1] if at < len(later) else None
        if found is None:
            newest = self._certified(last)
            until = "nothing" if newest < 0 else f"up to height {self.made(newest, last)}"
            raise InvalidInput(f"height: {height}: is not certified yet; {self._name} has certified {until}")
        if found.height != number:
            raise InvalidInput(
                f"height: {height}: {self._name} has no certification of it: too few of its nodes signed"
            )
        return found

    def made(self, number: int, by: int) -> int:
        """Return at which height of the lake, at the latest ``by`` one, the subnet reached a height of its own."""
        return bisect_left(range(by), number, key=lambda height: self._at(height)[0])

    @property
    def _name(self) -> str:
        return self._opened.names[self._position]

    @property
    def _comes(self) -> int:
        """Return the first tick at which the subnet is in the registry."""
        topology = self._opened.topology
        number = int(subnet_positions(topology)[self._position])
        return topology.membership.spans.get(number, ALWAYS).first

    def _certified(self, height: int) -> int:
        found = self._at(height)[1]
        return -1 if found is None else found.height

    def _at(self, height: int) -> tuple[int, Certification | None]:
        """Return the subnet's own height and its last certification at a height of the lake; -1 where it made no
        header, since it was not in the registry."""
        if height not in self._known:
            opened, position = self._opened, self._position
            rows = opened.log_rows("headers", height, position, ["chain", "number", "certification"], self._mine)
            number, encoded = -1, b""
            if rows is not None and rows.num_rows:
                number, encoded = rows["number"][0].as_py(), rows["certification"][0].as_py()
            self._known[height] = number, decode_certification(encoded) if encoded else None
        return self._known[height]

    def _mine(self, batch: pa.RecordBatch) -> Mask:
        mask: Mask = batch["chain"].to_numpy() == self._position
        return mask


def _read(opened: OpenedLake, position: int, manifest: Manifest, context: Context) -> tuple[State, Frame]:
    """Return the state of a subnet at a height, and the messages in its streams (``OUTBOUND_SCHEMA``)."""
    host_of, tables = context.registry.last_host_of, opened.tables.state
    schemas = {
        name.removeprefix(PROGRAM_TABLE): table.schema
        for name, table in tables.items()
        if name.startswith(PROGRAM_TABLE)
    }
    frames = {name: opened.state_rows(manifest, name, position, host_of) for name in tables}
    state = state_of(frames, schemas, context.options.index_base)
    lanes = state.streams.counters
    total = int((lanes["next_index"] - lanes["begin"]).sum())

    def held(batch: pa.RecordBatch) -> Mask:
        rows = Frame({name: batch[name].to_numpy() for name in LANE_COLUMNS}, batch.num_rows)
        lane = lookup(lanes, rows, LANE)
        mask: Mask = lane >= 0
        if len(lanes):
            mask &= (rows["index"] >= lanes["begin"][lane]) & (rows["index"] < lanes["next_index"][lane])
        return mask

    found = [empty_frame(OUTBOUND_SCHEMA)]
    for height in np.unique(state.runs["height"]).tolist():
        rows = opened.log_rows("outbound", height, position, OUTBOUND_SCHEMA.names, held)
        if rows is not None and rows.num_rows:
            found.append(from_table(rows))
    messages = concat(found)
    if len(messages) != total:
        raise LakeError(
            f"lake: {opened.lake.storage.uri}: has {len(messages)} of the {total} messages in the "
            f"streams of {opened.names[position]} at height {manifest.height}"
        )
    return state, messages


def _program(opened: OpenedLake, name: str) -> int:
    """Return the number of the program of that name. Raises ``InvalidInput``: there is none."""
    known = {text: number for number, text in opened.program_names.items()}
    if name not in known:
        raise InvalidInput(f"program: {unknown('program', name, known)}")
    return known[name]


def host_of_program(opened: OpenedLake, name: str, height: int | None = None) -> str:
    """Return the name of the subnet that hosts a program at a committed height, by default the last.

    Raises:
        InvalidInput: there is no such program, or it is on no subnet then.
    """
    number, manifest = _program(opened, name), opened.manifest(height)
    registry = registry_at(opened.topology, manifest.tick)
    host = int(registry.host_of(np.array([number], dtype=np.uint64))[0])
    if host == NO_HOST:
        raise InvalidInput(f"program: {shown(name)}: is on no subnet at height {manifest.height}")
    return opened.names[host]


__all__ = [
    "CertifiedState",
    "CertifiedStates",
    "Shown",
    "StateNotCommittedYet",
    "StateRemoved",
    "get_state_at",
    "host_of_program",
]
