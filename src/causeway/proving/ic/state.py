"""Certified state of a subnet, read from a lake: canonical tree, certification, certificates.

This is the read side of the state manager (IC reference 2.8); rounds commit and certify
(``certified_state``). ``Subnets`` gives the ids and keys of the subnets and the context of their rounds.
The module also converts certificates to documents, the JSON form that ``causeway verify`` reads.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.ic.bls import public_key_to_der
from causeway_proofs.ic.certificate import TIME, Certificate, encode_certificate, read_time, verify_state_root
from causeway_proofs.ic.hash_tree import EMPTY, HashTree, Path, build_tree, digest
from causeway_proofs.ic.lookup import prune, require_value
from causeway_proofs.ic.primitives import principal_to_text
from causeway_proofs.ic.slice import Certification, decode_certification
from causeway_proofs.ic.slice_payload import STREAMS
from causeway_proofs.ic.state_columns import CANISTER, CERTIFIED_DATA, state_contents
from causeway_proofs.ic.stream_columns import encode_stream_messages
from causeway_proofs.ic.stream_tree import HEADER, MESSAGES_LABEL, MessagesTree, index_label
from causeway_proofs.order import U64

from causeway.config.topology import ALWAYS
from causeway.core.frame import Frame, concat, empty_frame, from_table
from causeway.core.joins import lookup_rows
from causeway.core.text import format_value, suggest_known
from causeway.network.opened_lake import Mask, OpenedLake
from causeway.programs.runner import Programs
from causeway.protocols.contract import NO_HOST
from causeway.protocols.ic.commitment import build_trees, canonical_states
from causeway.protocols.ic.ids import canister_id, stream_labels, subnet_id
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.registry import Context, registry_at, splitting_subnets, subnet_positions
from causeway.protocols.ic.state import State, state_from_tables
from causeway.protocols.ic.subnet_keys import Certifier, listed_keys
from causeway.protocols.shared.execution import PROGRAM_TABLE
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, OUTBOUND_SCHEMA
from causeway.proving.prover import Document
from causeway.storage.lake import Freed, LakeError, Manifest

__all__ = [
    "CertifiedState",
    "CertifiedStates",
    "CertifiedValue",
    "StateNotCommittedYet",
    "StateRemoved",
    "Subnets",
    "get_state_at",
    "host_of_program",
    "read_subnets",
]

CACHED_LAKES = 16
"""Maximum number of lakes in the cache."""


@dataclass(frozen=True, eq=False)
class Subnets:
    """Subnets of a certifying lake, by position."""

    opened: OpenedLake
    options: IcOptions

    @cached_property
    def numbers(self) -> U64:
        """Numbers of the subnets."""
        return subnet_positions(self.opened.topology)

    def id_of(self, position: int) -> bytes:
        """Return the id of the subnet at a position."""
        return subnet_id(int(self.numbers[position]))

    def key_of(self, position: int) -> bytes:
        """Return the certifying public key of the subnet at a position, 96 bytes."""
        listed = listed_keys(self.options, self.opened.names)
        return Certifier(self.numbers, self.opened.seed, self.options, listed=listed).public_key(position)

    def context(self, position: int, manifest: Manifest) -> Context:
        """Return the round context of one subnet at a height; it cannot run programs.

        Args:
            position: Position of the subnet.
            manifest: Manifest of the height.
        """
        opened = self.opened
        no_programs = Programs(replace(opened.topology, programs=opened.topology.programs.slice(0, 0)))
        chains = np.array([position], dtype=np.uint32)
        tick = manifest.tick
        registry, previous_registry = (
            registry_at(opened.topology, at, self.options.nodes) for at in (tick, max(tick, 1) - 1)
        )
        clock = (manifest.height, tick, opened.tick_ns)
        splitting = splitting_subnets(opened.topology, self.numbers, tick)
        return Context(*clock, opened.seed, chains, registry, self.options, no_programs, previous_registry, splitting)


@lru_cache(maxsize=CACHED_LAKES)
def read_subnets(opened: OpenedLake) -> Subnets:
    """Return the certifying subnets of a network under ``ic``.

    Args:
        opened: The lake.

    Raises:
        InvalidInput: The network has another protocol, or ``certification = off``.
    """
    uri = opened.lake.storage.uri
    if opened.protocol != "ic":
        raise InvalidInput(f"lake: {uri} is of the protocol {opened.protocol}; only one of ic has subnets")
    options = IcOptions(**opened.options)
    if not options.certified:
        raise InvalidInput(
            f'lake: {uri}: its subnets certify nothing (certification = "off"); there are certificates of runs '
            'with certification = "bls" or "threshold"'
        )
    return Subnets(opened, options)


@dataclass(frozen=True)
class CertifiedValue:
    """Certificate of one value of a state.

    Attributes:
        path: Path of the value in the state tree.
        value: The value.
        certificate: The encoded certificate.
        time: Time of the state in ns.
    """

    path: Path
    value: bytes
    certificate: bytes
    time: int


class CertifiedState:
    """State certified by a subnet at an own height (``number``); see ``CertifiedStates``.

    The constructor verifies the subnet's signature of the root.

    Attributes:
        subnets: Subnets of the lake.
        chain: Name of the subnet.
        position: Position of the subnet.
        height: Height of the lake that made the state.
        certification: Certification of the root.
    """

    def __init__(
        self, subnets: Subnets, chain: str, position: int, manifest: Manifest, certification: Certification
    ) -> None:
        self.subnets, self.chain, self.position = subnets, chain, position
        self.height, self.certification = manifest.height, certification
        self._context = subnets.context(position, manifest)
        state, messages = _read_state(subnets.opened, position, manifest, self._context)
        self._messages = messages
        self._opened_stream: tuple[bytes, MessagesTree, pa.BinaryArray] | None = None
        self._state = build_trees(state, messages, self._context)
        states, _ = canonical_states(self._state, self._state.heads, self._context)
        self._contents = state_contents(states, 0)
        root = digest(self._tree())
        if root != certification.root_hash:
            raise self._state_error(f"has the root {root.hex()}, certified is {certification.root_hash.hex()}")
        try:
            verify_state_root(root, certification.signature, subnets.key_of(position))
        except ProofError as error:
            raise self._state_error(f"is not certified by it: {error.name}: {error}") from error

    @property
    def number(self) -> int:
        """Own height of the subnet."""
        return self.certification.height

    @property
    def root(self) -> bytes:
        """Root of the state, 32 bytes."""
        return self.certification.root_hash

    def header(self, counterparty: str, substream: str | None = None) -> CertifiedValue:
        """Certify the header of the stream to another subnet.

        Args:
            counterparty: Name of the other subnet.
            substream: Name of the program of the substream; None if streams are flat.

        Raises:
            InvalidInput: There is no such stream.
        """
        lane = self._stream_to(counterparty, substream)
        return self._certify((STREAMS, self._stream_label(lane), HEADER), self._tree())

    def message(self, counterparty: str, index: int, substream: str | None = None) -> CertifiedValue:
        """Certify a message in the stream to another subnet.

        Args:
            counterparty: Name of the other subnet.
            index: Index of the message in its stream.
            substream: Name of the program of the substream; None if streams are flat.

        Raises:
            InvalidInput: There is no such stream, or it does not hold the index.
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
        path = (STREAMS, self._stream_label(lane), MESSAGES_LABEL, index_label(index))
        return self._certify(path, self._tree(self._stream_label(lane), witness))

    def certified_data(self, program: str) -> CertifiedValue:
        """Certify the certified data of a program on this subnet.

        Args:
            program: Name of the program.

        Raises:
            InvalidInput: The program never set certified data, or is not on this subnet.
        """
        number = _program_number(self.subnets.opened, program)
        canisters: Any = self._contents.get(CANISTER, {})
        canister = canister_id(number)
        if canister not in canisters:
            raise InvalidInput(
                f"program: {program}: has set no certified data by height {self.height}"
                if self._hosts(number)
                else f"program: {program}: is not on {self.chain} at height {self.height}"
            )
        return self._certify((CANISTER, canister, CERTIFIED_DATA), self._tree())

    # ---- steps

    def _messages_in(self, lane: Frame) -> tuple[MessagesTree, pa.BinaryArray]:
        """Return the tree of a stream's messages (row of ``lanes``), and the encoded messages."""
        label = self._stream_label(lane)
        if self._opened_stream is None or self._opened_stream[0] != label:
            messages = self._messages.filter(lookup_rows(lane, self._messages, LANE) >= 0)
            messages = messages.take(np.argsort(messages["index"], kind="stable"))
            columns = {name: messages[name] for name in messages.names}
            encoded = encode_stream_messages(columns, self._context.options.version)
            self._opened_stream = label, MessagesTree(int(lane["begin"][0]), encoded), encoded
        return self._opened_stream[1:]

    def _hosts(self, program: int) -> bool:
        host = self._context.registry.host_of(np.array([program], dtype=np.uint64))
        return int(host[0]) == self.position

    def _stream_label(self, lane: Frame) -> bytes:
        """Return the label of a stream in the state tree."""
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
                f"counterparty: {format_value(counterparty)}: the stream of a subnet to itself is not certified"
            )
        position = opened.position(counterparty)
        if counterparty not in known:
            others = f"has streams to {', '.join(known)}" if known else "has none to any"
            raise InvalidInput(
                f"counterparty: {format_value(counterparty)}: {self.chain} has no stream to it "
                f"at height {self.height}; "
                f"it {others}"
            )
        lanes = lanes.filter(lanes["destination"] == np.uint32(position))
        if self._context.options.flat:
            if substream is not None:
                raise InvalidInput(
                    f"substream: {format_value(substream)}: the streams of this lake have none; leave it out"
                )
            return lanes
        rows = {opened.program_names.get(number, str(number)): row for row, number in enumerate(lanes["substream"])}
        if substream not in rows:
            text = "missing" if substream is None else suggest_known("substream", substream, rows)
            first = f" (the first is {next(iter(rows))})" if substream is None else ""
            stream = f"the stream from {self.chain} to {counterparty}"
            raise InvalidInput(f"substream: {text}: {stream} has {len(rows)}, each named by a program{first}")
        return lanes.slice(rows[substream], rows[substream] + 1)

    def _tree(self, lane: bytes = b"", messages: HashTree = EMPTY) -> HashTree:
        """Build the state tree, with a witness of ``messages`` of the stream labelled ``lane``."""
        if not lane:
            return build_tree(self._contents)
        streams: Any = self._contents[STREAMS]
        streams_with_witness = {**streams, lane: {**streams[lane], MESSAGES_LABEL: messages}}
        return build_tree({**self._contents, STREAMS: streams_with_witness})

    def _certify(self, path: Path, tree: HashTree) -> CertifiedValue:
        """Build a certificate of a path in the state tree."""
        pruned = prune(tree, [path, (TIME,)])
        certificate = encode_certificate(Certificate(pruned, self.certification.signature))
        return CertifiedValue(path, require_value(pruned, path), certificate, read_time(pruned))

    def _state_error(self, problem: str) -> LakeError:
        uri = self.subnets.opened.lake.storage.uri
        return LakeError(f"lake: {uri}: the state of {self.chain} at height {self.height} {problem}")


class StateRemoved(LakeError):
    """State removed by a vacuum."""


class StateNotCommittedYet(LakeError):
    """State of a future height."""


class CertifiedStates:
    """Certified states of a lake's subnets, with a cache of ``kept`` states; thread-safe."""

    def __init__(self, opened: OpenedLake, kept: int = 1) -> None:
        self._opened = opened
        self._state = lru_cache(maxsize=kept)(self._read)

    def get_state_at(self, chain: str, height: int | None = None) -> CertifiedState:
        """Return the state of a subnet.

        Args:
            chain: Name of the subnet.
            height: A committed height, by default the last certified one.

        Raises:
            StateNotCommittedYet: The height is not committed yet.
            StateRemoved: A vacuum removed the state.
            InvalidInput: The lake has another protocol, no certification or no such chain, or the subnet did
                not certify the height.
            LakeError: The state is not the certified one.
        """
        opened, subnets = self._opened, read_subnets(self._opened)
        position, last = opened.position(chain), opened.last_height()
        if int(subnets.numbers[position]) in opened.topology.external:
            raise InvalidInput(f"chain: {format_value(chain)}: is run by another lake, which has its state")
        if height is not None and height > last:
            raise StateNotCommittedYet(f"height: {height} is not committed; committed are 0 to {last}")
        heads = _Heads(opened, position)
        top = last if height is None else height
        certification = heads.newest(top) if height is None else heads.of_height(height)
        try:
            return self._state(position, heads._first_height_of(certification.height, top), certification)
        except Freed as error:
            raise StateRemoved(str(error)) from error

    def _read(self, position: int, height: int, certification: Certification) -> CertifiedState:
        opened = self._opened
        chain, manifest = opened.names[position], opened.manifest(height)
        return CertifiedState(read_subnets(opened), chain, position, manifest, certification)


def get_state_at(opened: OpenedLake, chain: str, height: int | None = None) -> CertifiedState:
    """Return the state of a subnet; see ``CertifiedStates.get_state_at``.

    Args:
        opened: The lake.
        chain: Name of the subnet.
        height: A committed height, by default the last certified one.
    """
    return CertifiedStates(opened).get_state_at(chain, height)


class _Heads:
    """Own heights and certifications of a subnet by heights of the lake, read from its headers."""

    def __init__(self, opened: OpenedLake, position: int) -> None:
        self._opened, self._position = opened, position
        self._known: dict[int, tuple[int, Certification | None]] = {}

    def newest(self, height: int) -> Certification:
        """Return the last certification up to a height of the lake.

        Raises:
            InvalidInput: There is none yet.
        """
        found = self._head_at(height)[1]
        if found is None:
            raise InvalidInput(f"chain: {format_value(self._name)}: has certified nothing by height {height}")
        return found

    def of_height(self, height: int) -> Certification:
        """Return the certification of the subnet's state at a height of the lake.

        Raises:
            InvalidInput: There is none, or not yet.
        """
        number, last = self._head_at(height)[0], self._opened.last_height()
        if number < 0 or self._opened.manifest(height).tick < self._first_tick:
            raise InvalidInput(f"height: {height}: {self._name} was not in the registry")
        later_heights = range(height, last + 1)
        at = bisect_left(later_heights, number, key=self._certified_number)
        found = self._head_at(later_heights[at])[1] if at < len(later_heights) else None
        if found is None:
            newest = self._certified_number(last)
            until = "nothing" if newest < 0 else f"up to height {self._first_height_of(newest, last)}"
            raise InvalidInput(f"height: {height}: is not certified yet; {self._name} has certified {until}")
        if found.height != number:
            raise InvalidInput(
                f"height: {height}: {self._name} has no certification of it: too few of its nodes signed"
            )
        return found

    def _first_height_of(self, number: int, by: int) -> int:
        """Return the lake's height, at most ``by``, that reached the subnet's height ``number``."""
        return bisect_left(range(by), number, key=lambda height: self._head_at(height)[0])

    @property
    def _name(self) -> str:
        return self._opened.names[self._position]

    @property
    def _first_tick(self) -> int:
        """First tick at which the subnet is in the registry."""
        topology = self._opened.topology
        number = int(subnet_positions(topology)[self._position])
        return topology.membership.spans.get(number, ALWAYS).first

    def _certified_number(self, height: int) -> int:
        found = self._head_at(height)[1]
        return -1 if found is None else found.height

    def _head_at(self, height: int) -> tuple[int, Certification | None]:
        """Return the subnet's own height and last certification at a height of the lake.

        The own height is -1 if the subnet was not in the registry and made no header.
        """
        if height not in self._known:
            opened, position = self._opened, self._position
            rows = opened.log_rows("headers", height, position, ["chain", "number", "certification"], self._select)
            number, encoded = -1, b""
            if rows is not None and rows.num_rows:
                number, encoded = rows["number"][0].as_py(), rows["certification"][0].as_py()
            self._known[height] = number, decode_certification(encoded) if encoded else None
        return self._known[height]

    def _select(self, batch: pa.RecordBatch) -> Mask:
        mask: Mask = batch["chain"].to_numpy() == self._position
        return mask


def _read_state(opened: OpenedLake, position: int, manifest: Manifest, context: Context) -> tuple[State, Frame]:
    """Return a subnet's state at a height, and its streams' messages (``OUTBOUND_SCHEMA``)."""
    host_of, tables = context.registry.last_hosts, opened.tables.state
    schemas = {
        name.removeprefix(PROGRAM_TABLE): table.schema
        for name, table in tables.items()
        if name.startswith(PROGRAM_TABLE)
    }
    frames = {name: opened.state_rows(manifest, name, position, host_of) for name in tables}
    state = state_from_tables(frames, schemas, context.options.index_base)
    lanes = state.streams.counters
    total = int((lanes["next_index"] - lanes["begin"]).sum())

    def select(batch: pa.RecordBatch) -> Mask:
        rows = Frame({name: batch[name].to_numpy() for name in LANE_COLUMNS}, batch.num_rows)
        lane = lookup_rows(lanes, rows, LANE)
        mask: Mask = lane >= 0
        if len(lanes):
            mask &= (rows["index"] >= lanes["begin"][lane]) & (rows["index"] < lanes["next_index"][lane])
        return mask

    found = [empty_frame(OUTBOUND_SCHEMA)]
    for height in np.unique(state.runs["height"]).tolist():
        rows = opened.log_rows("outbound", height, position, OUTBOUND_SCHEMA.names, select)
        if rows is not None and rows.num_rows:
            found.append(from_table(rows))
    messages = concat(found)
    if len(messages) != total:
        raise LakeError(
            f"lake: {opened.lake.storage.uri}: has {len(messages)} of the {total} messages in the "
            f"streams of {opened.names[position]} at height {manifest.height}"
        )
    return state, messages


def _program_number(opened: OpenedLake, name: str) -> int:
    """Return the number of a program.

    Raises:
        InvalidInput: There is no such program.
    """
    known = {text: number for number, text in opened.program_names.items()}
    if name not in known:
        raise InvalidInput(f"program: {suggest_known('program', name, known)}")
    return known[name]


def host_of_program(opened: OpenedLake, name: str, height: int | None = None) -> str:
    """Return the name of the subnet that hosts a program.

    Args:
        opened: The lake.
        name: Name of the program.
        height: A committed height, by default the last.

    Raises:
        InvalidInput: There is no such program, or no subnet hosts it at that height.
    """
    number, manifest = _program_number(opened, name), opened.manifest(height)
    registry = registry_at(opened.topology, manifest.tick)
    host = int(registry.host_of(np.array([number], dtype=np.uint64))[0])
    if host == NO_HOST:
        raise InvalidInput(f"program: {format_value(name)}: is on no subnet at height {manifest.height}")
    return opened.names[host]


def certificate_document(state: CertifiedState, shown: CertifiedValue) -> Document:
    """Build the document of a certificate: path, value, subnet, time, and the key to trust.

    Args:
        state: The certified state.
        shown: The certificate.
    """
    return {
        "kind": "ic_certificate",
        "subnet_id": principal_to_text(state.subnets.id_of(state.position)),
        "time": shown.time,
        "paths": [{"path": [_format_label(label) for label in shown.path], "value": shown.value.hex()}],
        "proof": shown.certificate.hex(),
        "trust": subnet_trust_document(state),
    }


def subnet_trust_document(state: CertifiedState) -> Document:
    """Build the trust document of the subnet's public key (DER)."""
    return {
        "kind": "ic_public_key",
        "key": public_key_to_der(state.subnets.key_of(state.position)).hex(),
        "subnet_id": principal_to_text(state.subnets.id_of(state.position)),
    }


def _format_label(label: bytes) -> str:
    """Format a label: names of the state tree as text, ids and indices as hexadecimal digits."""
    text = label.decode("ascii") if label.isascii() else ""
    return text if text.replace("_", "").isalpha() else f"0x{label.hex()}"
