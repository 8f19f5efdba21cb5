"""The one table of protocols: what each is called, and where its parts are. A part is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pydantic import BaseModel

from causeway.model.errors import InvalidInput


@dataclass(frozen=True)
class ProtocolInfo:
    """One protocol. Parts are named as ``module:name``.

    ``name``: as in a scenario's ``network.protocol``; ``title``: as in a sentence. ``kernel``: the class that
    implements ``protocols.contract.Kernel``; ``options``: the model of a scenario's ``[options]``. ``prover``: takes
    proofs out of a lake (``proving.prover.Prover``); ``endpoint``: serves a lake to other deployments
    (``service.endpoint.Endpoint``); ``relay``: the process that carries messages between two served lakes
    (``service.relay.Relay``); ``carriers``: sums up for a person what carriers did in a lake and what they left
    (``network.carriers.Carriers``).
    """

    name: str
    title: str
    kernel: str
    options: str
    asset: str
    prover: str | None = None
    endpoint: str | None = None
    relay: str | None = None
    carriers: str | None = None

    def load_kernel(self) -> Any:
        """Return the kernel's class."""
        return _loaded(self.kernel)

    def load_options(self) -> type[BaseModel]:
        """Return the model of the options."""
        model: type[BaseModel] = _loaded(self.options)
        return model

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
            kernel="causeway.protocols.ic.kernel:IcKernel",
            options="causeway.protocols.ic.options:IcOptions",
            asset="cycles",
        ),
        ProtocolInfo(
            name="ibc",
            title="the IBC messaging queue",
            kernel="causeway.protocols.ibc.kernel:IbcKernel",
            options="causeway.protocols.ibc.options:IbcOptions",
            asset="units",
            prover="causeway.proving.ibc.prover:PROVER",
            endpoint="causeway.service.ibc.endpoint:IbcEndpoint",
            relay="causeway.service.ibc.relay_process:RELAY",
            carriers="causeway.service.ibc.carriers:summary",
        ),
    )
}

DEFAULT = "ic"
"""The protocol of a scenario that names none."""


def names(having: str | None = None) -> list[str]:
    """Return the names of all protocols, or of those that have a part (``prover``, ``endpoint``, ...)."""
    return sorted(name for name, info in _PROTOCOLS.items() if having is None or getattr(info, having) is not None)


def protocol(name: str) -> ProtocolInfo:
    """Return the protocol of that name. Raises ``InvalidInput``."""
    if name not in _PROTOCOLS:
        raise InvalidInput(f"protocol: {name} is unknown; allowed: {', '.join(names())}")
    return _PROTOCOLS[name]


@contextmanager
def registered(info: ProtocolInfo) -> Iterator[ProtocolInfo]:
    """Let a further protocol be known for the body of a ``with`` statement: one that is being developed or tested."""
    if info.name in _PROTOCOLS:
        raise InvalidInput(f"protocol: {info.name} is registered already")
    _PROTOCOLS[info.name] = info
    try:
        yield info
    finally:
        del _PROTOCOLS[info.name]
