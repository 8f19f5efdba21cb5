"""What a test of the hazards of the egress queues' relay chain asks of an engine; the oracle's `Network` is one."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from tests.spec.icmp.candidates import Candidate, Messages, validate
from tests.spec.icmp.events import Ingress, Row
from tests.spec.icmp.network import Made, Network
from tests.spec.icmp.options import Options
from tests.spec.icmp.relay import GENESIS, Hash, Mark, ParaId
from tests.spec.icmp.runtime import Call, egress, ingress
from tests.support.icmp.icmp_kernel_engine import KernelEngine


class Engine(Protocol):
    """Relay blocks are made on any parent; a body in `lost`, named (block, from, to), is there for nobody."""

    options: Options
    lost: set[tuple[Hash, ParaId, ParaId]]

    @property
    def log(self) -> list[Row]: ...
    def make(
        self,
        parent: Hash = GENESIS.hash,
        candidates: Sequence[Candidate] = (),
        calls: Sequence[Call] = (),
        seal: bytes = b"",
        attested: Collection[Hash] = (),
    ) -> Made: ...
    def candidate(
        self,
        B: Hash,  # noqa: N803
        p: ParaId,
        sends: Messages = (),
        take: int | None = None,
        watermark: Mark | None = None,
        held: Mapping[tuple[int, Hash], Sequence[bytes]] | None = None,
    ) -> Candidate: ...
    def validate(self, c: Candidate) -> str | None: ...
    def ingress(self, block: Hash, p: ParaId) -> Ingress | None: ...
    def egress(self, block: Hash, p: ParaId) -> Ingress: ...


class Oracle(Network):
    """The oracle as an engine."""

    def validate(self, c: Candidate) -> str | None:
        return validate(self.rt, c)

    def ingress(self, block: Hash, p: ParaId) -> Ingress | None:
        return ingress(self.rt, block, p)

    def egress(self, block: Hash, p: ParaId) -> Ingress:
        return egress(self.rt, block, p)


ENGINES: dict[str, Callable[[Options], Engine]] = {"oracle": Oracle, "kernel": KernelEngine}
"""Engines by name."""
