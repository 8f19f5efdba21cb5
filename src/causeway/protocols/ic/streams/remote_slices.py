"""Slices from subnets of other lakes: bounded, verified and converted to columns.

Carried bytes are untrusted, so every size is bounded before parsing. A verified slice is signed by the remote subnet
and addressed to a local one (IC reference 2.8, 3.9 step 3). Its content is then checked against the expected indexes
like that of any other slice (IC reference 3.8, 3.9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.ic.bls import key_point
from causeway_proofs.ic.certification import verify_certifications
from causeway_proofs.ic.errors import DecodeError, DecodeFailed, InvalidDestination, MalformedKey, NotInColumns
from causeway_proofs.ic.messages import (
    Data,
    RejectContext,
    StreamMessage,
    StreamRequest,
    StreamResponse,
    decode_stream_message,
)
from causeway_proofs.ic.primitives import CURRENT, CertificationVersion
from causeway_proofs.ic.slice import CertifiedStreamSlice, decode_certified_stream_slice, write_certification
from causeway_proofs.ic.slice_payload import SlicePayload
from causeway_proofs.ic.stream_columns import DecodedMessages, decode_stream_messages
from causeway_proofs.limits import MAX_PROOF_BYTES
from causeway_proofs.order import U64, stable_order

from causeway.config.topology import Topology
from causeway.core.frame import Frame, concat, empty_frame, from_table, repeat_value
from causeway.core.vocabulary import NO_CHAIN, Event, Kind
from causeway.protocols.contract import BYTES, DIGEST, UINT64, Chains, table_schema
from causeway.protocols.ic.ids import CANISTER_SUFFIX, subnet_id
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import REJECTS_ORDER, REJECTS_SCHEMA
from causeway.protocols.ic.streams.check_slice import SliceError, error_text
from causeway.protocols.ic.streams.endpoint import SLICE_COLUMNS
from causeway.protocols.shared.events import event_rows
from causeway.protocols.shared.messages import (
    LANE_FIELDS,
    MESSAGE_COLUMNS,
    MESSAGE_FIELDS,
    NO_QUEUE,
    OUTBOUND_SCHEMA,
    blank_messages,
)
from causeway.protocols.shared.secrets import Secrets

MAX_SLICE_BYTES = MAX_PROOF_BYTES
"""Maximum size of a slice on the wire."""

MAX_SLICE_MESSAGES = 10_000
"""Maximum number of messages of a slice on the wire, as of a deployed subnet's stream (X-5)."""

MORE_THAN_ONE = "MoreThanOneSlice"
"""The cause of refusal of a second slice of the same stream."""

MESSAGES_SCHEMA = pa.schema([*LANE_FIELDS, *table_schema(index=UINT64), *MESSAGE_FIELDS])
"""Messages of slices, with their positions in their lanes."""

_NUMBERS = ("number", "begin", "end", "signals_end", "message_begin", "message_end")

SLICES_SCHEMA = table_schema(
    *LANE_FIELDS, **dict.fromkeys(_NUMBERS, UINT64), header=BYTES, root=DIGEST, certification=BYTES, row=UINT64
)
"""Slices of streams from ``source`` to ``destination`` at the source's height ``number``.

The header is both encoded and decoded. The message range of an empty slice lies at the end of the stream. ``root`` and
``certification`` (protobuf) certify the slice; ``row`` is the row of the carried input.
"""


SIGNALS_SCHEMA = table_schema(*REJECTS_SCHEMA, slice=UINT64)
"""REJECT signals in headers of slices; ``slice`` is the row of the slice."""


@dataclass(frozen=True)
class RefusedSlice:
    """A carried slice that is invalid: its row, its ends, and the name of the error (``cause``)."""

    row: int
    source: int
    destination: int
    cause: str


@dataclass(frozen=True)
class WireSlices:
    """Carried slices as columns.

    Attributes:
        slices: The valid slices (``SLICES_SCHEMA``).
        messages: Their messages (``MESSAGES_SCHEMA``).
        rejects: The REJECT signals in their headers (``SIGNALS_SCHEMA``).
        refused: The invalid slices.
    """

    slices: Frame
    messages: Frame
    rejects: Frame
    refused: tuple[RefusedSlice, ...]


class SliceReader:
    """Verifier of slices with the keys of their source subnets.

    Args:
        keys: The public key (96 bytes) of each remote subnet, by subnet id.
        version: The version of the encodings.
    """

    def __init__(self, keys: Mapping[bytes, bytes], version: CertificationVersion = CURRENT) -> None:
        self._keys, self.version = dict(keys), version

    def decode(self, data: bytes) -> CertifiedStreamSlice:
        """Decode a slice from protobuf without verifying it.

        Raises:
            OverLimit, MalformedProof: The bytes are no slice, or exceed a limit.
        """
        found = decode_certified_stream_slice(data, self.version, MAX_SLICE_BYTES)
        if len(found.payload.messages) > MAX_SLICE_MESSAGES:
            raise DecodeFailed(f"{len(found.payload.messages)} messages, at most {MAX_SLICE_MESSAGES} are read")
        return found

    def verify(self, own: bytes, remote: bytes, certified: CertifiedStreamSlice) -> DecodedMessages:
        """Verify a slice from the subnet ``remote`` to ``own`` and decode its messages.

        See ``decode_certified_stream`` of the reference.

        Returns:
            The messages; the only remaining errors are ``NotInColumns``.

        Raises:
            InvalidDestination: The stream leads to another subnet.
            WitnessPruningFailed: Payload and witness do not match.
            RootHashMismatch: The root of the slice or of the height differs from the certified one.
            MalformedSignature, InvalidSignature: The subnet's key did not sign the root.
            DecodeFailed: The subnet's key is unknown, a message is malformed, or the height has no witness although it
                is part of the state (certification version 24 on).
        """
        receiver = certified.payload.subnet_id
        if receiver != own:
            reason = f"the stream leads to subnet {receiver.hex()}, not to {own.hex()}"
            raise InvalidDestination(reason, remote, receiver)
        key = self._keys.get(remote)
        if key is None:
            raise DecodeFailed(f"no key of subnet {remote.hex()} is known")
        if self.version >= CertificationVersion.V24 and certified.certification.height_witness is None:
            raise DecodeFailed("nothing but the sender's word says which height is certified")
        certified.verify_root()
        certification = certified.certification
        for error in verify_certifications([certification.root_hash], [certification.signature], [key]):
            if error is not None:
                raise error
        return _decoded(certified.payload, self.version)

    def read(self, carried: Sequence[tuple[int, int, bytes]], ids: Sequence[bytes]) -> WireSlices:
        """Verify carried slices and convert them to columns, in order.

        Args:
            carried: Rows of (source, destination, protobuf of a slice), with subnets as rows of ``ids``.
            ids: The subnet ids.

        Returns:
            The first valid slice of each stream, and the refused ones.
        """
        slices: list[dict[str, Any]] = []
        rejects: list[dict[str, Any]] = []
        messages: list[Frame] = [empty_frame(MESSAGES_SCHEMA)]
        refused: list[RefusedSlice] = []
        accepted: set[tuple[int, int]] = set()
        for row, (source, destination, data) in enumerate(carried):
            try:
                certified = self.decode(data)
                decoded = self.verify(ids[destination], ids[source], certified)
                found = slice_message_columns(certified.payload, decoded, self.version)
            except ProofError as error:
                refused.append(RefusedSlice(row, source, destination, type(error).__name__))
                continue
            if (source, destination) in accepted:
                refused.append(RefusedSlice(row, source, destination, MORE_THAN_ONE))
                continue
            accepted.add((source, destination))
            payload, certification = certified.payload, certified.certification
            header, begin, end = payload.header, payload.messages_begin, payload.messages_end
            # A signal travels in the stream of the rejecting subnet and names our messages to it.
            ours = {"destination": source, "source": destination, "substream": 0, "slice": len(slices)}
            rejects += [
                {**ours, "index": signal.index, "reason": int(signal.reason)} for signal in header.reject_signals
            ]
            lane = {"source": source, "destination": destination, "substream": 0}
            slices.append(
                {
                    **lane,
                    **{name: getattr(header, name) for name in ("begin", "end", "signals_end")},
                    "number": certification.height,
                    "message_begin": header.end if begin is None else begin,
                    "message_end": header.end if end is None else end,
                    "header": payload.header_bytes,
                    "root": certification.root_hash,
                    "certification": write_certification(certification).SerializeToString(deterministic=True),
                    "row": row,
                }
            )
            if len(found):
                index = np.arange(len(found), dtype=np.uint64) + np.uint64(begin or 0)
                ends = {"source": np.uint32(source), "destination": np.uint32(destination), "substream": np.uint64(0)}
                messages.append(found.with_columns(index=index, **ends).select(MESSAGES_SCHEMA.names))
        tables = (pa.Table.from_pylist(slices, SLICES_SCHEMA), pa.Table.from_pylist(rejects, SIGNALS_SCHEMA))
        rows, signals = (from_table(table) for table in tables)
        return WireSlices(rows, concat(messages), signals, tuple(refused))


def _decoded(payload: SlicePayload, version: CertificationVersion) -> DecodedMessages:
    """Decode the messages of a slice; raise ``DecodeFailed`` for the first malformed one."""
    found = decode_stream_messages(pa.array(payload.messages, pa.binary()), version)
    for row, error in found.errors.items():
        if isinstance(error, NotInColumns):
            continue
        if not isinstance(error, DecodeError):
            raise error
        raise DecodeFailed(f"message {_index(payload, row)}: {error}") from error
    return found


def _index(payload: SlicePayload, row: int) -> int:
    return (payload.messages_begin or 0) + row


def slice_message_columns(payload: SlicePayload, decoded: DecodedMessages, version: CertificationVersion) -> Frame:
    """Convert the ``decoded`` messages of a slice to columns (``MESSAGE_COLUMNS``).

    Raises:
        DecodeFailed: A message is of an unsupported kind (a refund, a call with a deadline), or the id of its canister
            has no number.
    """
    columns = {name: decoded.columns[name] for name in MESSAGE_COLUMNS}
    others = (columns["kind"] == np.uint8(Kind.REFUND)) | (columns["deadline"] > 0)
    others[list(decoded.errors)] = True
    # Decode single messages for errors, and for requests with unused missing numbers.
    rows = np.flatnonzero(others).tolist()
    single = [_row(_index(payload, row), decode_stream_message(payload.messages[row], version)) for row in rows]
    if rows:
        for position, item in enumerate(MESSAGE_FIELDS):
            columns[item.name] = _replaced(item, columns[item.name], rows, [values[position] for values in single])
    return Frame(columns, len(others))


def _row(index: int, message: StreamMessage) -> tuple[int | str | bytes, ...]:
    match message:
        case StreamRequest(receiver, sender, callback, cycles, method, payload, _, deadline):
            kind, code = Kind.REQUEST, 0
        case StreamResponse(receiver, sender, callback, cycles, Data(payload), deadline):
            kind, code, method = Kind.RESPONSE, 0, ""
        case StreamResponse(receiver, sender, callback, cycles, RejectContext(reject, text), deadline):
            kind, code, method, payload = Kind.RESPONSE, int(reject), "", text.encode()
        case _:
            raise DecodeFailed(f"message {index}: refunds belong to best-effort calls, which are not supported")
    if deadline:
        raise DecodeFailed(f"message {index}: deadline {deadline}: best-effort calls are not supported")
    ends = _number(index, sender), _number(index, receiver)
    return (int(kind), *ends, callback, cycles >> 64, cycles & (2**64 - 1), code, deadline, method, payload)


def _number(index: int, canister: bytes) -> int:
    if len(canister) != 8 + len(CANISTER_SUFFIX) or not canister.endswith(CANISTER_SUFFIX):
        raise DecodeFailed(f"message {index}: {canister.hex()} is the id of no canister that has a number")
    return int.from_bytes(canister[:8], "big")


def _replaced(item: pa.Field, column: Any, rows: list[int], values: list[int | str | bytes]) -> Any:
    """Replace the values of a column at some rows."""
    if pa.types.is_integer(item.type):
        column = column.copy()
        column[rows] = values
        return column
    everything = column.to_pylist()
    for row, value in zip(rows, values, strict=True):
        everything[row] = value
    if item.name == "method":
        return pa.array(everything, pa.string()).dictionary_encode()
    return pa.array(everything, item.type)


READ_COLUMNS = ("read_begin", "read_end")


@dataclass(frozen=True)
class WireInput:
    """Valid input of a round from the wire.

    Attributes:
        slices: Valid slices (``SLICE_COLUMNS`` and ``READ_COLUMNS``, which are empty ranges).
        messages: Their messages (``OUTBOUND_SCHEMA``).
        rejects: Their REJECT signals (``REJECTS_SCHEMA``).
        events: The events of invalid slices.
    """

    slices: Frame
    messages: Frame
    rejects: Frame
    events: Frame


class RemoteSubnets:
    """The subnets of a network that another lake runs.

    Args:
        topology: The network.
        options: The protocol options, with the remote subnets' keys.
        subnets: The numbers of all subnets by position.
        names: The names of all subnets by position.

    Raises:
        InvalidInput: A key is missing or belongs to no remote subnet, or the options require that all subnets are
            local.
    """

    def __init__(self, topology: Topology, options: IcOptions, subnets: U64, names: Sequence[str]) -> None:
        self._subnets = subnets
        self.external: Chains = np.flatnonzero(np.isin(subnets, np.array(topology.external, dtype=np.uint64))).astype(
            np.uint32
        )
        remote = {names[position] for position in self.external.tolist()}
        _check(remote, set(names) - remote, topology, options)
        self._ids = [subnet_id(number) for number in subnets.tolist()]
        self.keys = {
            position: bytes.fromhex(options.remote[names[position]].public_key) for position in self.external.tolist()
        }
        self._registered = {position: options.remote[names[position]] for position in self.external.tolist()}
        self._reader = SliceReader({self._ids[at]: key for at, key in self.keys.items()}, options.version)

    @staticmethod
    def require_keys(options: IcOptions, secrets: Secrets, names: Sequence[str]) -> None:
        """Check that the secret keys of signing subnets are available.

        A re-executed lake signs nothing.

        Raises:
            InvalidInput: A key is missing.
        """
        if secrets.certifications is not None:
            return
        for name in names:
            if name in options.chain_keys and bytes.fromhex(options.chain_keys[name]) not in secrets.seeds:
                text = "its secret key is in a file: causeway serve --chain-key"
                raise InvalidInput(f"options.chain_keys.{name}: {text} {name}=FILE")

    @property
    def change_ticks(self) -> list[int]:
        """Return the ticks with new endpoints of remote subnets."""
        return [version.tick for remote in self._registered.values() for version in remote.versions]

    def endpoints(self, tick: int, members: npt.NDArray[np.bool_]) -> dict[int, tuple[str, ...]]:
        """Return the node addresses of remote subnets at ``tick``, by position.

        Args:
            tick: The tick.
            members: Mask of the registered subnets by position; others have no addresses.
        """
        return {at: remote.endpoints_at(tick) for at, remote in self._registered.items() if members[at]}

    def here(self, chains: Chains) -> Chains:
        """Select the chains that this lake runs."""
        return chains[~np.isin(chains, self.external)] if len(self.external) else chains

    def read(self, carried: pa.Table, context: Context) -> WireInput:
        """Verify and convert the slices carried to the running chains."""
        destinations = self._positions(carried["chain"])
        sources = self._positions(carried["carrier"])
        rows = [
            (int(source), int(destination), payload)
            for source, destination, payload in zip(sources, destinations, carried["payload"].to_pylist(), strict=True)
            if destination in context.chains
        ]
        strangers = [RefusedSlice(0, NO_CHAIN, to, "") for source, to, _ in rows if source == NO_CHAIN]
        found = self._reader.read([row for row in rows if row[0] != NO_CHAIN], self._ids)
        slices = found.slices.select([name for name in SLICE_COLUMNS if name in found.slices])
        nothing = repeat_value(np.uint64(0), len(slices))
        messages = found.messages.with_columns(
            queue_index=repeat_value(np.uint64(NO_QUEUE), len(found.messages)),
            sent_tick=repeat_value(np.uint64(0), len(found.messages)),
        )
        refused = [(one, SliceError.UnknownSubnet) for one in strangers]
        refused += [(one, SliceError.InvalidStream) for one in found.refused]
        return WireInput(
            slices.with_columns(**dict.fromkeys(READ_COLUMNS, nothing)),
            messages.select(OUTBOUND_SCHEMA.names),
            found.rejects.select(REJECTS_SCHEMA.names),
            _events(refused),
        )

    def _positions(self, numbers: pa.ChunkedArray) -> list[int]:
        """Return the position of each chain, ``NO_CHAIN`` for an unknown one."""
        known = {number: position for position, number in enumerate(self._subnets.tolist())}
        return [known.get(number, NO_CHAIN) for number in numbers.to_pylist()]


def _check_key(option: str, key: str, command: str) -> None:
    try:
        key_point(bytes.fromhex(key))
    except MalformedKey as error:
        raise InvalidInput(f"{option}: {error}; causeway key {command} prints keys") from None


def _check(remote: set[str], own: set[str], topology: Topology, options: IcOptions) -> None:
    if remote and not options.certified:
        raise InvalidInput('options.certification: "off": chains of other lakes are believed by their keys alone')
    if remote and options.blocks_ahead:
        raise InvalidInput(f"options.blocks_ahead: {options.blocks_ahead}: allowed with chains of other lakes: 0")
    for name in sorted(remote - set(options.remote)):
        raise InvalidInput(f"options.remote.{name}: missing; {name} is external: public_key says who signs for it")
    for name in sorted(remote):
        _check_key(f"options.remote.{name}.public_key", options.remote[name].public_key, "drawn")
    for name in sorted(set(options.remote) - remote):
        raise InvalidInput(f"options.remote.{name}: no chain of that name is external")
    for section in ("listen", "chain_keys"):
        for name in sorted(set(getattr(options, section)) - own):
            raise InvalidInput(f"options.{section}.{name}: this lake runs no chain of that name")
    for name, key in sorted(options.chain_keys.items()):
        _check_key(f"options.chain_keys.{name}", key, "show")
    if options.chain_keys and not options.certified:
        raise InvalidInput('options.chain_keys: subnets sign nothing with certification = "off"; leave it out')
    # A program's state never leaves its lake, so only splits within a lake may move programs.
    external = set(topology.external)
    if external:
        names = dict(zip(topology.chains["number"].to_pylist(), topology.chains["name"].to_pylist(), strict=True))
        splits = topology.membership.splits
        for split in splits:
            if (split.chain in external) != (split.into in external):
                text = "one of them is external; allowed: both, or neither"
                raise InvalidInput(f"splits: {names[split.chain]} into {names[split.into]}: {text}")
        new = {(split.tick, split.into) for split in splits}
        moves = zip(topology.moves["tick"].to_pylist(), topology.moves["chain"].to_pylist(), strict=True)
        if any(move not in new for move in moves):
            raise InvalidInput(
                "moves, or from and until of chains: programs do not move in a network of several lakes, but for splits"
            )


def _events(refused: Sequence[tuple[RefusedSlice, SliceError]]) -> Frame:
    """Return the events of invalid slices."""
    ends = {
        name: np.array([getattr(one, name) for one, _ in refused], dtype=np.uint32)
        for name in ("source", "destination")
    }
    zero = np.zeros(len(refused), dtype=np.uint64)
    control = blank_messages(len(refused), kind=int(Kind.CONTROL), **ends, substream=zero, index=zero)
    reasons = pa.array([error_text(error, one.cause) for one, error in refused], pa.string()).dictionary_encode()
    return event_rows(control, Event.REJECTED, chain=ends["destination"], on_lane=True, reason=reasons)


def merge_rejects(rejects: Frame, wired: WireInput) -> Frame:
    """Merge local and remote REJECT signals in their order."""
    both = concat([rejects, wired.rejects])
    return both.take(stable_order(*(both[name] for name in REJECTS_ORDER)))
