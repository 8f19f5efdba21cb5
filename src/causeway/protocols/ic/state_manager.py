"""The state manager of one subnet: its committed states, what it certifies of them, slices served and read (2.8).

Sans I/O: states are whatever the caller makes them; ``canonical`` says what of one is certified. Slices are cut from
the latest certified state by ``CertifiedStreams``, and read by ``SliceReader``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from causeway.model.errors import CausewayError, InvalidInput
from causeway.proofs.errors import ProofError
from causeway.proofs.ic import errors, slice
from causeway.proofs.ic.certified_streams import (
    CertifiedStreams,
    NoStreamForSubnet,
    StoredStream,
    height_witness,
    state_of,
)
from causeway.proofs.ic.errors import InvalidDestination
from causeway.proofs.ic.hash_tree import HashTree, LabeledTree, digest
from causeway.proofs.ic.slice import CertifiedStreamSlice, StreamSlice
from causeway.proofs.ic.slice_certification import METADATA, decode_certification
from causeway.proofs.ic.state_columns import SECTIONS, metadata_contents
from causeway.proofs.ic.versions import CURRENT, CertificationVersion
from causeway.protocols.ic.wire_slices import SliceReader

State = TypeVar("State")


class StateManagerError(CausewayError):
    """A state was asked for that there is none of.

    Attributes:
        height: of the state.
    """

    def __init__(self, height: int, why: str) -> None:
        self.height = height
        super().__init__(f"state of height {height}: {why}")


class StateRemoved(StateManagerError):
    """There is a later one; that one is not there any more."""


class StateNotCommittedYet(StateManagerError):
    """There will be one."""


class DecodeStreamError(CausewayError):
    """A slice is refused."""


class SerializationError(DecodeStreamError):
    """It is no slice: nothing that decodes, or payload and witness do not fit together. The cause says why."""


class InvalidSignature(DecodeStreamError):
    """It is not certified by the subnet that it should be from. The cause says why.

    Attributes:
        remote: the id of that subnet.
    """

    def __init__(self, remote: bytes, why: str) -> None:
        self.remote = remote
        super().__init__(f"the slice is not certified by subnet {remote.hex()}: {why}")


_NOT_CERTIFIED = (
    errors.InvalidSignature,
    errors.MalformedSignature,
    errors.MalformedKey,
    errors.RootHashMismatch,
)


class Scope(Enum):
    """How much of a state is certified: all of it, or what other subnets and users read, without private sections."""

    FULL = "full"
    METADATA = "metadata"


@dataclass(frozen=True)
class Canonical:
    """What is certified of a state.

    Attributes:
        streams: by the id of the subnet that each leads to; the loopback stream up to certification version 19 only.
        contents: all else, but for the streams and ``metadata``.
    """

    streams: Mapping[bytes, StoredStream]
    contents: LabeledTree


@dataclass
class _Committed(Generic[State]):
    """A state, its canonical form with metadata, and its tree."""

    state: State
    canonical: Canonical
    tree: HashTree


class StateManager(Generic[State]):
    """The states of one subnet by its own heights.

    Args:
        canonical: returns what of a state is certified; it must not change afterwards.
        certify: returns the encoded certification of a height, from its root and, from version 24 on, the witness of
            the height (``Certifier.certify``); None where too few nodes sign.
        keys: returns the public key of each subnet, by its id, at a registry version.
        version: of the encodings.
        delay: a height is certified when so many later ones are committed.
        first: the height that is committed first.
        previous: the root of the height before that; None if there is none.
    """

    def __init__(
        self,
        canonical: Callable[[State], Canonical],
        certify: Callable[[int, bytes, bytes | None], bytes | None],
        keys: Callable[[int], Mapping[bytes, bytes]],
        *,
        version: CertificationVersion = CURRENT,
        delay: int = 0,
        first: int = 0,
        previous: bytes | None = None,
    ) -> None:
        self._canonical, self._certify, self._keys = canonical, certify, keys
        self._version, self._delay = version, delay
        self._committed: dict[int, _Committed[State]] = {}
        self._next, self._removed, self._root = first, first, previous
        self._certified: CertifiedStreams | None = None

    @property
    def certified(self) -> CertifiedStreams | None:
        """The streams of the latest certified state, None before there is one."""
        return self._certified

    @property
    def root(self) -> bytes | None:
        """The root of the newest state."""
        return self._root

    def take_tip_at(self, height: int) -> State:
        """Return the newest state, which has that height.

        Raises:
            StateRemoved: there is a later one.
            StateNotCommittedYet: the newest one is of an earlier height.
        """
        if height < self._next - 1:
            raise StateRemoved(height, f"the newest one is of height {self._next - 1}")
        return self.get_state_at(height)

    def get_state_at(self, height: int) -> State:
        """Return the state of a height, to be read.

        Raises:
            StateRemoved: it is not there any more.
            StateNotCommittedYet: it is not there yet.
        """
        if height >= self._next:
            raise StateNotCommittedYet(height, f"the next one to be committed is of height {self._next}")
        if height not in self._committed:
            raise StateRemoved(height, f"there are those from height {self._removed} on")
        return self._committed[height].state

    def commit_and_certify(self, state: State, height: int, scope: Scope = Scope.FULL) -> bytes:
        """Let ``state`` be that of ``height``, and certify what is due; return its root.

        Raises:
            InvalidInput: the height is not the next, the canonical form has ``metadata`` or ``streams`` of its own, or
                was changed before it was due to be certified.
        """
        if height != self._next:
            raise InvalidInput(f"a state of height {height} is to be committed, the next height is {self._next}")
        made = self._canonical(state)
        if METADATA in made.contents:
            raise InvalidInput("the contents of a state have a label 'metadata', which the state manager makes")
        contents = {
            **{label: part for label, part in made.contents.items() if scope is Scope.FULL or label != SECTIONS},
            METADATA: metadata_contents(height, self._root, self._version),
        }
        tree = state_of(made.streams, contents)
        self._committed[height] = _Committed(state, Canonical(dict(made.streams), contents), tree)
        self._next, self._root = height + 1, digest(tree)
        if height - self._delay in self._committed:
            self._certify_at(height - self._delay)
        return self._root

    def _certify_at(self, height: int) -> None:
        held = self._committed[height]
        root, contents = digest(held.tree), held.canonical.contents
        encoded = self._certify(height, root, height_witness(held.tree, contents, height))
        if encoded is None:
            return
        certification = decode_certification(encoded)
        self._certified = CertifiedStreams.of(held.canonical.streams, contents, certification, self._version)

    def remove_states_below(self, height: int) -> None:
        """Forget the states below ``height``, but for the newest and those that are still to be certified."""
        self._removed = max(self._removed, min(height, self._next - 1 - self._delay))
        self._committed = {at: held for at, held in self._committed.items() if at >= self._removed}

    def subnets_with_certified_streams(self) -> Sequence[bytes]:
        """Return the ids of the subnets that a stream of the latest certified state leads to, ascending."""
        return () if self._certified is None else self._certified.subnets_with_certified_streams()

    def encode_certified_stream_slice(
        self,
        dst_subnet: bytes,
        witness_begin: int | None = None,
        msg_begin: int | None = None,
        msg_limit: int | None = None,
        byte_limit: int | None = None,
    ) -> CertifiedStreamSlice:
        """Return a slice of the latest certified state (``CertifiedStreams.encode_certified_stream_slice``).

        Raises:
            NoStreamForSubnet, InvalidSliceBegin, InvalidSliceIndices: as there; ``NoStreamForSubnet`` also before
                anything is certified.
        """
        if self._certified is None:
            raise NoStreamForSubnet(f"there is no stream to subnet {dst_subnet.hex()}: no state is certified yet")
        return self._certified.encode_certified_stream_slice(
            dst_subnet, witness_begin, msg_begin, msg_limit, byte_limit
        )

    def decode_certified_stream(
        self, registry_version: int, own_subnet: bytes, remote_subnet: bytes, css: bytes
    ) -> StreamSlice:
        """Return what ``remote_subnet`` says to ``own_subnet`` in a slice (protobuf).

        Raises:
            SerializationError: it is no slice, or does not show its height where the version has it in the state.
            InvalidDestination: it is of a stream to another subnet.
            InvalidSignature: it is not certified by ``remote_subnet`` with the key that it has at that version.
        """
        keys = self._keys(registry_version)
        if remote_subnet not in keys:
            raise InvalidSignature(remote_subnet, f"registry version {registry_version} has no key of it")
        reader = SliceReader(keys, self._version)
        try:
            return reader.verify(own_subnet, remote_subnet, reader.decode(css))
        except InvalidDestination:
            raise
        except _NOT_CERTIFIED as error:
            raise InvalidSignature(remote_subnet, str(error)) from error
        except ProofError as error:
            raise SerializationError(str(error)) from error

    def decode_valid_certified_stream(self, own_subnet: bytes, css: bytes) -> StreamSlice:
        """Return what a slice says to ``own_subnet`` that was validated before: its signature is not looked at.

        Raises:
            SerializationError: it is no slice.
            InvalidDestination: it is of a stream to another subnet.
        """
        try:
            return slice.decode_valid_certified_stream(own_subnet, css, self._version)
        except InvalidDestination:
            raise
        except ProofError as error:
            raise SerializationError(str(error)) from error
