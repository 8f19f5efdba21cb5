"""Protocol registry: one entry per protocol.

The parts of a protocol are imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from causeway_proofs.errors import InvalidInput

if TYPE_CHECKING:
    from pydantic import BaseModel

    from causeway.config.topology import Topology
    from causeway.protocols.shared.faults import FaultSection
    from causeway.protocols.shared.semantics import Semantics


@dataclass(frozen=True)
class ProtocolInfo:
    """Description of a protocol. Parts are references of the form ``module:name``.

    Attributes:
        name: The value of ``network.protocol`` in a scenario.
        title: The name in a sentence.
        reference: The specification, and the deployed code it is compared with, each with its date or version.
        kernel: The factory of the kernel (``protocols.contract.Kernel``), usually its class.
        options: The model of a scenario's ``[options]``.
        asset: The unit of balances and message amounts.
        semantics: The meaning of lanes, numbers and codes (``shared.semantics.Semantics``).
        kinds: The fault sections of the protocol; None for the common ones.
        roles: The roles of chains.
        completion: A function that adds the required chains to a topology.
        external: True if another lake may run some of the chains.
        moves: True if programs may change their chain in a running network.
        changes_programs: True if programs may be installed, and change their class, in a running network.
        fixed_issue: True if all value is issued at genesis.
        certifies_data: True if chains certify the certified data of their programs.
        membership: True if chains join and leave a running network (``config.topology.Membership``), and have nodes.
        signs: True if validators sign headers: the option ``validator_keys`` lists their public keys, and the kernel
            takes their ``secrets`` (``shared.secrets``).
        certifies: True if each chain certifies its states with a key of its own (the option ``chain_keys``).
        places: Options (dotted, ``*`` for any name) with network addresses. They have no effect on results and may
            change when a lake is continued.
        prover: The prover of a lake (``proving.prover.Prover``).
        endpoint: The server of a lake for other deployments (``service.node.endpoint.Endpoint``).
        drawn_keys: A function that returns the public keys of a scenario's own chains, derived from its seed.
        apart: The reason why two lakes cannot exchange messages, if so.
        relay: The process that relays messages between two served lakes (``service.relay.process.Relay``).
        carriers: The summary of the work of carriers in a lake.
        gossip: The launcher of gossiping node processes.
        loops: The modules of compiled loops that workers load before their first task.
        results: For a simulation, a function that derives the results from its log tables.
        pool: The log table of the transaction pool, if any.
        first_format: The first lake format that this version still reads.
        shares_plot: The plot of a simulation's results by the share of some nodes.
    """

    name: str
    title: str
    kernel: str
    options: str
    asset: str
    reference: str = ""
    semantics: str = "causeway.protocols.shared.semantics:NONE"
    kinds: str | None = None
    roles: tuple[str, ...] = ()
    completion: str | None = None
    external: bool = False
    moves: bool = False
    changes_programs: bool = False
    fixed_issue: bool = False
    certifies_data: bool = False
    membership: bool = False
    signs: bool = False
    certifies: bool = False
    places: tuple[str, ...] = ()
    prover: str | None = None
    endpoint: str | None = None
    drawn_keys: str | None = None
    apart: str | None = None
    relay: str | None = None
    carriers: str | None = None
    gossip: str | None = None
    loops: tuple[str, ...] = ()
    results: str | None = None
    pool: str | None = None
    first_format: int = 0
    shares_plot: str | None = None

    def load_kernel(self) -> Any:
        """Import and return the factory of the kernel."""
        return _import_part(self.kernel)

    def load_options(self) -> type[BaseModel]:
        """Import and return the model of the options."""
        model: type[BaseModel] = _import_part(self.options)
        return model

    def load_semantics(self) -> Semantics:
        """Import and return the meaning of the protocol's lanes, numbers and codes."""
        found: Semantics = _import_part(self.semantics)
        return found

    def fault_kinds(self) -> tuple[type[FaultSection], ...]:
        """Return the fault sections of the protocol."""
        from causeway.protocols.shared.faults import FAULT_KINDS

        if self.kinds is None:
            return FAULT_KINDS
        kinds: tuple[type[FaultSection], ...] = _import_part(self.kinds)
        return kinds

    def complete(self, topology: Topology) -> Topology:
        """Return the topology with the required chains and roles added."""
        if self.completion is None:
            return topology
        completed: Topology = _import_part(self.completion)(topology)
        return completed

    def part(self, field: str) -> Any:
        """Import and return a part by field name (``prover``, ``endpoint``, ...), or None."""
        reference: str | None = getattr(self, field)
        return None if reference is None else _import_part(reference)


def _import_part(reference: str) -> Any:
    module, name = reference.split(":")
    return getattr(import_module(module), name)


_PROTOCOLS: dict[str, ProtocolInfo] = {
    info.name: info
    for info in (
        ProtocolInfo(
            name="ic",
            title="the Internet Computer's message routing",
            reference='"Message routing" of the Internet Computer wiki; dfinity/ic at c7c5005419',
            kernel="causeway.protocols.ic.kernel:IcKernel",
            options="causeway.protocols.ic.options:IcOptions",
            asset="cycles",
            semantics="causeway.protocols.ic.semantics:SEMANTICS",
            moves=True,
            changes_programs=True,
            membership=True,
            roles=("system", "nns"),
            kinds="causeway.protocols.ic.fault_kinds:FAULT_KINDS",
            loops=("causeway_proofs.ic.message_loops", "causeway_proofs.ic.header_loops"),
            certifies_data=True,
            external=True,
            certifies=True,
            prover="causeway.proving.ic.prover:PROVER",
            endpoint="causeway.service.ic.endpoint:IcEndpoint",
            places=("remote.*.endpoints", "remote.*.versions", "listen"),
            drawn_keys="causeway.service.ic.endpoint:drawn_keys",
        ),
        ProtocolInfo(
            name="ibc",
            title="the IBC messaging queue",
            reference='"Messaging Queue" of the IBC paper v0.4.0 (2018-02-13); as deployed, ibc-go and ICS-23',
            kernel="causeway.protocols.ibc.kernel:IbcKernel",
            options="causeway.protocols.ibc.options:IbcOptions",
            asset="units",
            semantics="causeway.protocols.ibc.semantics:SEMANTICS",
            changes_programs=True,
            kinds="causeway.protocols.ibc.fault_kinds:FAULT_KINDS",
            external=True,
            signs=True,
            prover="causeway.proving.ibc.prover:PROVER",
            endpoint="causeway.service.ibc.endpoint:IbcEndpoint",
            relay="causeway.service.ibc.relay_process:RELAY",
            carriers="causeway.service.ibc.summary:summary",
        ),
        ProtocolInfo(
            name="xdm",
            title="Subspace cross-domain messaging",
            reference="docs/decex/xdm.md of subspace/protocol-specs at f5b7bf3 (2024-04-11); "
            "autonomys/subspace at 72a5aa6f",
            kernel="causeway.protocols.xdm.kernel:XdmKernel",
            options="causeway.protocols.xdm.options:XdmOptions",
            pool="pool",
            first_format=8,
            asset="units",
            semantics="causeway.protocols.xdm.semantics:SEMANTICS",
            changes_programs=True,
            fixed_issue=True,
            roles=("consensus",),
            completion="causeway.protocols.xdm.chains:add_consensus_chain",
            prover="causeway.proving.xdm.prover:PROVER",
            loops=(
                "causeway_proofs.substrate.trie_loops",
                "causeway_proofs.substrate.trie_node_loops",
                "causeway_proofs.substrate.proof_loops",
                "causeway_proofs.substrate.byte_loops",
                "causeway_proofs.substrate.scale_loops",
                "causeway_proofs.mmr.column_loops",
            ),
            kinds="causeway.protocols.xdm.fault_kinds:FAULT_KINDS",
            external=True,
            signs=True,
            endpoint="causeway.service.xdm.endpoint:XdmEndpoint",
            relay="causeway.service.xdm.relay_process:RELAY",
            carriers="causeway.service.xdm.summary:summary",
        ),
        ProtocolInfo(
            name="icmp",
            title="Polkadot's egress queues",
            reference="docs/polkadot/networking/4-icmp.md of w3f/research at 055da200 (2019-11); "
            "paritytech/polkadot at 96f5dc51",
            kernel="causeway.protocols.registry:create_parachain_kernel",
            options="causeway.protocols.relay_chain.options:IcmpOptions",
            pool="pool",
            asset="units",
            semantics="causeway.protocols.icmp.semantics:SEMANTICS",
            changes_programs=True,
            roles=("relay",),
            completion="causeway.protocols.relay_chain.options:add_relay_chain",
            gossip="causeway.gossip.processes.launcher:GOSSIP",
            endpoint="causeway.service.icmp.endpoint:IcmpEndpoint",
            apart="parachains share one relay chain, in one lake, and of two relay chains none trusts the other",
            kinds="causeway.protocols.relay_chain.fault_kinds:FAULT_KINDS",
            prover="causeway.proving.icmp.prover:PROVER",
            carriers="causeway.service.icmp.summary:summary",
            loops=(
                "causeway_proofs.substrate.trie_loops",
                "causeway_proofs.substrate.trie_node_loops",
                "causeway_proofs.substrate.byte_loops",
                "causeway_proofs.substrate.scale_loops",
            ),
        ),
    )
}

_SIMULATIONS: dict[str, ProtocolInfo] = {
    info.name: info
    for info in (
        ProtocolInfo(
            name="gossip",
            title="gossip of Polkadot's egress queues",
            kernel="causeway.gossip.simulation.kernel:GossipKernel",
            options="causeway.gossip.simulation.options:SimulationOptions",
            asset="queues",
            results="causeway.gossip.simulation.report:build_results",
            shares_plot="causeway.gossip.simulation.plot:selfish_curves",
        ),
    )
}
"""Simulations on the tick engine that carry no user messages.

No scenario of a user names them.
"""

ProtocolName: TypeAlias = Literal["ibc", "ic", "icmp", "xdm"]
"""The names of all protocols, as a type."""

DEFAULT: Final = "ic"
"""The protocol of a scenario that names none."""


def protocol_names(having: str | None = None) -> list[str]:
    """Return the names of all protocols, sorted.

    Args:
        having: A field of ``ProtocolInfo`` (``prover``, ...) that must be set.
    """
    return sorted(name for name, info in _PROTOCOLS.items() if having is None or getattr(info, having))


def find_protocol(name: str) -> ProtocolInfo:
    """Return the protocol or simulation of a name.

    Raises:
        InvalidInput: The name is unknown.
    """
    found = _PROTOCOLS.get(name) or _SIMULATIONS.get(name)
    if found is None:
        raise InvalidInput(f"protocol: {name} is unknown; allowed: {', '.join(protocol_names())}")
    return found


def first_format(name: object) -> int:
    """Return the first readable lake format of a protocol; 0 for any, and for unknown protocols."""
    info = (_PROTOCOLS.get(name) or _SIMULATIONS.get(name)) if isinstance(name, str) else None
    return 0 if info is None else info.first_format


def is_simulation(name: str) -> bool:
    """Return True if a lake's protocol name is the name of a simulation."""
    return name in _SIMULATIONS


def create_parachain_kernel(options: Any, **fields: Any) -> Any:
    """Create the kernel for the option ``channels`` of parachains: egress queues, or HRMP.

    Args:
        options: The parachain options (``IcmpOptions``).
        fields: The other fields of either kernel.
    """
    kernel = "hrmp.kernel:HrmpKernel" if options.channels == "hrmp" else "icmp.kernel:IcmpKernel"
    return _import_part(f"causeway.protocols.{kernel}")(options=options, **fields)


@contextmanager
def register_protocol(info: ProtocolInfo) -> Iterator[ProtocolInfo]:
    """Register another protocol for the body of a ``with`` statement.

    Args:
        info: The protocol, for example one in development or under test.

    Raises:
        InvalidInput: A protocol of that name exists.
    """
    if info.name in _PROTOCOLS:
        raise InvalidInput(f"protocol: {info.name} is registered already")
    _PROTOCOLS[info.name] = info
    try:
        yield info
    finally:
        del _PROTOCOLS[info.name]
