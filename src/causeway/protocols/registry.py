"""The one table of protocols: what each is called, and where its parts are. A part is imported when it is asked for."""

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
    """One protocol. Parts are named as ``module:name``.

    ``name``: as in a scenario's ``network.protocol``; ``title``: as in a sentence; ``reference``: the text that it
    follows, and the code that it is compared with, each with its date or version. ``kernel``: what makes the kernel
    (``protocols.contract.Kernel``), its class mostly; ``options``: the model of a scenario's ``[options]``; ``asset``:
    what balances and the amounts of messages count.

    ``semantics``: what its lanes, numbers and codes mean (``protocols.semantics.Semantics``). ``kinds``: the sections
    of faults that a scenario may have, where they are not those that all protocols have.
    ``roles``: what chains may be among the others; ``completion``: a function that adds to a topology the chains that
    the protocol does not run without. ``external``: whether another lake may run some of the chains.
    ``moves``: whether programs may leave their chain while a network runs; ``changes_programs``: whether they may be
    installed and get another class then; ``fixed_issue``: whether all value is issued at genesis.
    ``certifies_data``: whether chains certify what their programs set as certified data.
    ``membership``: whether chains come and go while a network runs (``model.membership``), and have nodes.
    ``signs``: whether validators sign the chains' headers: the option ``validator_keys`` lists their public keys, and
    the kernel takes their ``secrets`` (``protocols.secrets``). ``certifies``: whether each chain certifies its states
    with a key of its own: so with the option ``chain_keys``.

    ``places``: options (dotted, ``*`` for any name) that say where parties are: they decide nothing, and may change
    when a lake is continued.

    ``prover``: takes proofs out of a lake (``proving.prover.Prover``); ``endpoint``: serves a lake to other deployments
    (``service.endpoint.Endpoint``); ``drawn_keys``: returns the public keys of the chains that a scenario runs, which
    are drawn from its seed; ``relay``: the process that carries messages between two served lakes
    (``service.relay.Relay``); ``apart``: why no two lakes exchange anything, where that is so; ``carriers``: sums up
    for a person what carriers did in a lake and what they left (``network.carriers.Carriers``); ``gossip``: runs nodes
    that gossip as processes (``service.gossip.Gossip``).
    ``loops``: the modules of compiled loops that rounds use, which workers load before their first task. ``results``:
    of a simulation, a function that makes of its log tables what was found.
    ``first_format``: the first format of lakes whose tables this version still reads. ``shares_plot``: draws what a
    simulation comes to by the share of some nodes.
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
        """Return what makes a kernel."""
        return _loaded(self.kernel)

    def load_options(self) -> type[BaseModel]:
        """Return the model of the options."""
        model: type[BaseModel] = _loaded(self.options)
        return model

    def load_semantics(self) -> Semantics:
        """Return what the protocol's lanes, numbers and codes mean."""
        found: Semantics = _loaded(self.semantics)
        return found

    def fault_kinds(self) -> tuple[type[FaultSection], ...]:
        """Return the sections of all kinds of faults that this protocol has."""
        from causeway.protocols.shared.faults import FAULT_KINDS

        if self.kinds is None:
            return FAULT_KINDS
        kinds: tuple[type[FaultSection], ...] = _loaded(self.kinds)
        return kinds

    def complete(self, topology: Topology) -> Topology:
        """Return the topology with the chains that the protocol needs and a scenario need not name, and their roles."""
        if self.completion is None:
            return topology
        completed: Topology = _loaded(self.completion)(topology)
        return completed

    def part(self, field: str) -> Any:
        """Return the part of that name (``prover``, ``endpoint``, ...), None where there is none."""
        reference: str | None = getattr(self, field)
        return None if reference is None else _loaded(reference)


def _loaded(reference: str) -> Any:
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
            drawn_keys="causeway.service.ic.keys:drawn_keys",
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
                "causeway_proofs.substrate.trie_loops",
                "causeway_proofs.substrate.proof_loops",
                "causeway_proofs.substrate.byte_loops",
                "causeway_proofs.substrate.scale_loops",
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
            completion="causeway.protocols.relay_chain.network:add_relay_chain",
            gossip="causeway.gossip.processes.launcher:GOSSIP",
            endpoint="causeway.service.icmp.endpoint:IcmpEndpoint",
            apart="parachains share one relay chain, in one lake, and of two relay chains none trusts the other",
            kinds="causeway.protocols.relay_chain.fault_kinds:FAULT_KINDS",
            prover="causeway.proving.icmp.prover:PROVER",
            carriers="causeway.service.icmp.summary:summary",
            loops=(
                "causeway_proofs.substrate.trie_loops",
                "causeway_proofs.substrate.trie_node_loops",
                "causeway_proofs.substrate.trie_loops",
                "causeway_proofs.substrate.byte_loops",
                "causeway_proofs.substrate.scale_loops",
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
"""What runs on the tick engine and moves no messages of users: no scenario of a user's names these."""

ProtocolName: TypeAlias = Literal["ibc", "ic", "icmp", "xdm"]
"""The names of all protocols, as a type: what ``names`` returns."""

DEFAULT: Final = "ic"
"""The protocol of a scenario that names none."""


def protocol_names(having: str | None = None) -> list[str]:
    """Return the names of all protocols, or of those that have a part or property (``prover``, ...)."""
    return sorted(name for name, info in _PROTOCOLS.items() if having is None or getattr(info, having))


def find_protocol(name: str) -> ProtocolInfo:
    """Return the protocol of that name. Raises ``InvalidInput``."""
    found = _PROTOCOLS.get(name) or _SIMULATIONS.get(name)
    if found is None:
        raise InvalidInput(f"protocol: {name} is unknown; allowed: {', '.join(protocol_names())}")
    return found


def first_format(name: object) -> int:
    """Return the first format of lakes of a protocol that this version reads, 0 for any and for unknown protocols."""
    info = (_PROTOCOLS.get(name) or _SIMULATIONS.get(name)) if isinstance(name, str) else None
    return 0 if info is None else info.first_format


def is_simulation(name: str) -> bool:
    """Return whether that is the name of a simulation, which a lake may say that it is of."""
    return name in _SIMULATIONS


def create_parachain_kernel(options: Any, **fields: Any) -> Any:
    """Create the kernel that the option ``channels`` of parachains selects: egress queues, or HRMP.

    Args:
        options: ``IcmpOptions``.
        fields: The other fields of either kernel.
    """
    kernel = "hrmp.kernel:HrmpKernel" if options.channels == "hrmp" else "icmp.kernel:IcmpKernel"
    return _loaded(f"causeway.protocols.{kernel}")(options=options, **fields)


@contextmanager
def register_protocol(info: ProtocolInfo) -> Iterator[ProtocolInfo]:
    """Let a further protocol be known for the body of a ``with`` statement: one that is being developed or tested."""
    if info.name in _PROTOCOLS:
        raise InvalidInput(f"protocol: {info.name} is registered already")
    _PROTOCOLS[info.name] = info
    try:
        yield info
    finally:
        del _PROTOCOLS[info.name]
