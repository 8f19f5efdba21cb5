"""The constant parts of a network of zones, and the metadata of a block.

Zones are positions here and in every column of the kernel: rows in the order of chain ids as in the keys of a store, so
ascending positions are ascending keys.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.merkle import LEAF_PREFIX
from causeway_proofs.order import U64
from causeway_proofs.varints import uvarint

from causeway.protocols.ibc.keys import HEAD_KEY, INDEX_BYTES, TAIL_KEY, QueuePurpose, queue_name, valid_identifier
from causeway.protocols.ibc.options import CALL_TYPE, IbcOptions
from causeway.protocols.shared.execution import ProgramRunner
from causeway.protocols.shared.secrets import NONE, Secrets
from causeway.protocols.shared.state_tables import Hosting

MAX_ZONES = 2**16
"""Maximum number of zones: a pair of positions fits one 32-bit word."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ZoneNetwork(Hosting):
    """The zones of a topology under the protocol's options.

    Raises:
        InvalidInput: A name is no chain id, programs move, or an option names an unknown chain or program.
    """

    options: IbcOptions

    def __post_init__(self) -> None:
        for name in self.topology.chains["name"].to_pylist():
            if not valid_identifier(name):
                allowed = "1 to 64 of A-Z a-z 0-9 . _ + - # [ ] < >"
                raise InvalidInput(f"chains: {name!r} is no chain id under ibc; allowed: {allowed}")
        if self.topology.chains.num_rows > MAX_ZONES:
            raise InvalidInput(f"chains: {self.topology.chains.num_rows}; at most {MAX_ZONES} are allowed")
        if self.topology.moves.num_rows:
            raise InvalidInput("moves: under ibc programs stay on their zone; leave them out")

    def _rank(self, name: str, number: int) -> bytes:
        return name.encode() + b":"

    @cached_property
    def own(self) -> npt.NDArray[np.uint32]:
        """Return the positions of the zones of this lake, ascending."""
        mine = ~np.isin(self.numbers, np.array(self.topology.external, dtype=np.uint64))
        return np.flatnonzero(mine).astype(np.uint32)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Return the position of each chain id."""
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def connections(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Return both ends of every connection as (chain, counterparty), ascending."""
        zones = len(self.names)
        if self.options.connections is None:
            chain, counterparty = np.divmod(np.arange(zones * zones, dtype=np.uint32), np.uint32(zones))
            is_remote = chain != counterparty
            return chain[is_remote], counterparty[is_remote]
        pairs: set[tuple[int, int]] = set()
        for first, second in self.options.connections:
            for name in (first, second):
                if name not in self.positions:
                    raise InvalidInput(f"options.connections: no chain {name!r}")
            if first == second:
                raise InvalidInput(f"options.connections: InvalidChainId: {first!r} is connected with itself")
            if (self.positions[first], self.positions[second]) in pairs:
                raise InvalidInput(f"options.connections: AlreadyRegistered: {first!r} and {second!r} twice")
            pairs |= {(self.positions[first], self.positions[second]), (self.positions[second], self.positions[first])}
        columns = np.array(sorted(pairs), dtype=np.uint32).reshape(-1, 2)
        return columns[:, 0], columns[:, 1]

    @cached_property
    def queue_names(self) -> list[list[bytes]]:
        """Return the names of the queues for each zone on other zones: by substream, then position."""
        return [
            [queue_name(name, purpose) for name in self.names] for purpose in (QueuePurpose.RECEIPT, QueuePurpose.SEND)
        ]

    @cached_property
    def index_prefixes(self) -> list[pa.BinaryArray]:
        """Return the leaf prefixes of entries of these queues: a column by position per substream."""
        return [
            pa.array([LEAF_PREFIX + uvarint(len(name) + INDEX_BYTES) + name for name in names], pa.binary())
            for names in self.queue_names
        ]

    @cached_property
    def end_prefixes(self) -> dict[bytes, pa.BinaryArray]:
        """Return the leaf prefixes of heads and tails of these queues, up to the value's hash.

        By key; a column by substream, then by position.
        """
        names = [name for of_kind in self.queue_names for name in of_kind]
        return {
            key: pa.array(
                [LEAF_PREFIX + uvarint(len(name) + len(key)) + name + key + bytes([DIGEST_BYTES]) for name in names],
                pa.binary(),
            )
            for key in (HEAD_KEY, TAIL_KEY)
        }

    @cached_property
    def types(self) -> list[str]:
        """Return the packet types: ``call``, then the declared ones."""
        return [CALL_TYPE, *sorted(self.options.types)]

    @cached_property
    def handled(self) -> Mask:
        """Return a mask of the types with a handler on each zone, shape (types, zones)."""
        table = np.ones((len(self.types), len(self.names)), dtype=bool)
        for row, name in enumerate(self.types[1:], start=1):
            chains = self.options.types[name].chains
            if chains is not None:
                unknown = sorted(set(chains) - set(self.names))
                if unknown:
                    raise InvalidInput(f"options.types.{name}.chains: no chain {unknown[0]!r}")
                table[row] = [zone in chains for zone in self.names]
        return table

    @cached_property
    def users(self) -> dict[str, U64]:
        """Return the programs whose packets each user's process carries, by relayer."""
        return {
            name: self._programs_named(programs, f"relay.users.{name}")
            for name, programs in self.options.relay.users.items()
        }

    @cached_property
    def permitted(self) -> list[U64 | None]:
        """Return the programs that may send each type, None for all."""
        found: list[U64 | None] = [None]
        for name in self.types[1:]:
            modules = self.options.types[name].modules
            found.append(None if modules is None else self._programs_named(modules, f"types.{name}.modules"))
        return found

    def _programs_named(self, references: Collection[str], option: str) -> U64:
        """Return the programs in an option, by name or class."""
        names, classes, numbers = (self.topology.programs[key].to_pylist() for key in ("name", "program", "number"))
        unknown = sorted(set(references) - set(names) - set(classes))
        if unknown:
            raise InvalidInput(f"options.{option}: no program or class of programs {unknown[0]!r}")
        rows = zip(numbers, names, classes, strict=True)
        return np.array([n for n, own, kind in rows if own in references or kind in references], dtype=np.uint64)


@dataclass(frozen=True)
class Context:
    """The metadata of a block.

    Attributes:
        height: The height.
        tick: The tick.
        tick_ns: Nanoseconds a tick.
        seed: The scenario's seed.
        chains: The positions of the zones that make a block, ascending.
        zones: The constant parts of the network.
        options: The protocol options.
        programs: The zones' programs.
        secrets: Validators' keys that are not derived from the seed.
    """

    height: int
    tick: int
    tick_ns: int
    seed: int
    chains: npt.NDArray[np.uint32]
    zones: ZoneNetwork
    options: IbcOptions
    programs: ProgramRunner
    secrets: Secrets = NONE

    @property
    def time(self) -> int:
        """Return the block time in nanoseconds: one tick after genesis at tick 0."""
        return (self.tick + 1) * self.tick_ns
