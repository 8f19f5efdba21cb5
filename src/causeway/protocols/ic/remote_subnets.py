"""Subnets that another lake runs: what came from them over a wire, as part of a round (IC reference 3.8, 3.9).

Their streams lie in no table here. What somebody carried are protobuf slices; each is verified with the remote subnet's
key before anything in it counts, and then stands among the slices of the lake's own subnets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame, concat, repeated
from causeway.model.ledger import NO_CHAIN
from causeway.model.order import U64, stable_order
from causeway.model.topology import Topology
from causeway.proofs.ic.bls import key_point
from causeway.proofs.ic.errors import MalformedKey
from causeway.protocols.contract import Chains
from causeway.protocols.ic.check_slice import SliceError, refusals
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.endpoint import SLICE_COLUMNS
from causeway.protocols.ic.ids import subnet_id
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.state import REJECTS_ORDER, REJECTS_SCHEMA
from causeway.protocols.ic.wire_slices import Refused, SliceReader
from causeway.protocols.messages import NO_QUEUE, OUTBOUND_SCHEMA
from causeway.protocols.secrets import Secrets

READ_COLUMNS = ("read_begin", "read_end")


@dataclass(frozen=True)
class Wired:
    """What a round has from a wire: slices that hold (``SLICE_COLUMNS`` and ``READ_COLUMNS``: nothing must be read for
    them), their messages (``OUTBOUND_SCHEMA``), the REJECT signals in them (``REJECTS_SCHEMA``), and the events of
    those that do not hold."""

    slices: Frame
    messages: Frame
    rejects: Frame
    events: Frame


class RemoteSubnets:
    """The subnets of a network that another lake runs.

    Args:
        topology: the network.
        options: with the remote subnets' keys.
        subnets: the numbers of all subnets by position.
        names: their names.

    Raises:
        InvalidInput: a key is missing or is of no such subnet, or the network has what needs all subnets here.
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
        """Refuse to run subnets that are to sign with keys that are not here; a lake that is executed again signs
        nothing.

        Raises:
            InvalidInput: a key is missing.
        """
        if secrets.certifications is not None:
            return
        for name in names:
            if name in options.chain_keys and bytes.fromhex(options.chain_keys[name]) not in secrets.seeds:
                text = "its secret key is in a file: causeway serve --chain-key"
                raise InvalidInput(f"options.chain_keys.{name}: {text} {name}=FILE")

    @property
    def change_ticks(self) -> list[int]:
        """Return the ticks before whose rounds the registry has other endpoints of remote subnets."""
        return [version.tick for remote in self._registered.values() for version in remote.versions]

    def endpoints(self, tick: int, members: npt.NDArray[np.bool_]) -> dict[int, tuple[str, ...]]:
        """Return where the nodes of remote subnets serve by the registry version of ``tick``, by position.

        ``members``: by position, whether a subnet is in the registry; of others nobody is asked.
        """
        return {at: remote.endpoints_at(tick) for at, remote in self._registered.items() if members[at]}

    def here(self, chains: Chains) -> Chains:
        """Return which of ``chains`` this lake runs."""
        return chains[~np.isin(chains, self.external)] if len(self.external) else chains

    def read(self, carried: pa.Table, context: Context) -> Wired | None:
        """Return what was carried to the chains that run this round, None where nothing was."""
        if not carried.num_rows:
            return None
        destinations = self._positions(carried["chain"])
        sources = self._positions(carried["carrier"])
        rows = [
            (int(source), int(destination), payload)
            for source, destination, payload in zip(sources, destinations, carried["payload"].to_pylist(), strict=True)
            if destination in context.chains
        ]
        strangers = [Refused(0, NO_CHAIN, to, "") for source, to, _ in rows if source == NO_CHAIN]
        found = self._reader.read([row for row in rows if row[0] != NO_CHAIN], self._ids)
        slices = found.slices.select([name for name in SLICE_COLUMNS if name in found.slices])
        nothing = repeated(np.uint64(0), len(slices))
        messages = found.messages.with_columns(
            queue_index=repeated(np.uint64(NO_QUEUE), len(found.messages)),
            sent_tick=repeated(np.uint64(0), len(found.messages)),
        )
        refused = [*((one, SliceError.UnknownSubnet) for one in strangers)]
        refused += [(one, SliceError.InvalidStream) for one in found.refused]
        return Wired(
            slices.with_columns(**dict.fromkeys(READ_COLUMNS, nothing)),
            messages.select(OUTBOUND_SCHEMA.names),
            found.rejects.select(REJECTS_SCHEMA.names),
            _events(refused, context.options),
        )

    def _positions(self, numbers: pa.ChunkedArray) -> list[int]:
        """Return the position of each chain, ``NO_CHAIN`` for one that there is not."""
        known = {number: position for position, number in enumerate(self._subnets.tolist())}
        return [known.get(number, NO_CHAIN) for number in numbers.to_pylist()]


def _check(remote: set[str], own: set[str], topology: Topology, options: IcOptions) -> None:
    if remote and not options.certified:
        raise InvalidInput('options.certification: "off": chains of other lakes are believed by their keys alone')
    if remote and options.blocks_ahead:
        raise InvalidInput(f"options.blocks_ahead: {options.blocks_ahead}: allowed with chains of other lakes: 0")
    for name in sorted(remote - set(options.remote)):
        raise InvalidInput(f"options.remote.{name}: missing; {name} is external: public_key says who signs for it")
    for name in sorted(remote):
        try:
            key_point(bytes.fromhex(options.remote[name].public_key))
        except MalformedKey as error:
            raise InvalidInput(f"options.remote.{name}.public_key: {error}; causeway key drawn prints keys") from None
    for name in sorted(set(options.remote) - remote):
        raise InvalidInput(f"options.remote.{name}: no chain of that name is external")
    for section in ("listen", "chain_keys"):
        for name in sorted(set(getattr(options, section)) - own):
            raise InvalidInput(f"options.{section}.{name}: this lake runs no chain of that name")
    for name, key in sorted(options.chain_keys.items()):
        try:
            key_point(bytes.fromhex(key))
        except MalformedKey as error:
            raise InvalidInput(f"options.chain_keys.{name}: {error}; causeway key show prints keys") from None
    if options.chain_keys and not options.certified:
        raise InvalidInput('options.chain_keys: subnets sign nothing with certification = "off"; leave it out')
    # Refuse moves in a network of several lakes, but for those of splits: a program's state never leaves its lake.
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


def _events(refused: Sequence[tuple[Refused, SliceError]], options: IcOptions) -> Frame:
    """Return the events of slices that do not hold."""
    count = len(refused)
    slices = Frame(
        {
            "source": np.array([one.source for one, _ in refused], dtype=np.uint32),
            "destination": np.array([one.destination for one, _ in refused], dtype=np.uint32),
            "substream": np.zeros(count, dtype=np.uint64),
            "message_begin": np.zeros(count, dtype=np.uint64),
        },
        count,
    )
    # A stream has one event: those of several slices of one stream are told one by one.
    parts = [
        refusals(slices.slice(row, row + 1), np.array([error], dtype=np.uint8), options, [one.cause])
        for row, (one, error) in enumerate(refused)
    ]
    return concat([refusals(slices.slice(0, 0), np.empty(0, dtype=np.uint8), options), *parts])


def all_rejects(rejects: Frame, wired: Wired) -> Frame:
    """Return the REJECT signals in both, in their order."""
    both = concat([rejects, wired.rejects])
    return both.take(stable_order(*(both[name] for name in REJECTS_ORDER)))
