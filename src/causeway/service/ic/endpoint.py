"""Subnet part of a served lake: status, certificates over HTTP, exchange, metrics, public keys for others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn

from causeway_proofs.errors import InvalidInput
from causeway_proofs.ic.primitives import principal_to_text
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from pydantic import Field

from causeway.network.opened_lake import OpenedLake
from causeway.protocols.contract import Tick
from causeway.protocols.ic.ids import subnet_id
from causeway.protocols.ic.kernel import IcKernel
from causeway.protocols.ic.subnet_keys import derive_public_key
from causeway.protocols.shared.limits import DIGITS, MAX_ANSWER_BYTES
from causeway.protocols.shared.secrets import LISTED_CHAINS
from causeway.proving.ic.state import CertifiedStates, certificate_document
from causeway.scenarios.scenario import Scenario
from causeway.service.http import answers
from causeway.service.http.answers import MAX_CHAINS, AnswerModel, ChainAnswer, Height, Hex, Text
from causeway.service.http.requests import Address, Number, Query, address_of_view
from causeway.service.ic.exchange import XNetExchange
from causeway.service.node.endpoint import Endpoint, LakeViews

Bytes = Annotated[bytes, Hex(MAX_ANSWER_BYTES)]


class SubnetAnswer(ChainAnswer):
    """A subnet of the network."""

    id: Text = Field(..., description="Its id, as text.")
    public_key: Bytes | None = Field(..., description="It signs the states; none where nothing is certified.")


class SubnetStatusAnswer(answers.StatusAnswer):
    """Identity and progress of the network."""

    chains: Annotated[list[SubnetAnswer], Field(max_length=MAX_CHAINS)]


class KeyAnswer(AnswerModel):
    """A subnet's public key (DER)."""

    kind: Literal["ic_public_key"]
    key: Bytes
    subnet_id: Text


class PathAnswer(AnswerModel):
    """A value at a path of the state."""

    path: list[Text]
    value: Bytes


class CertificateAnswer(AnswerModel):
    """A certificate (CBOR), and its claims."""

    kind: Literal["ic_certificate"]
    subnet_id: Text
    time: Height
    paths: list[PathAnswer]
    proof: Bytes
    trust: KeyAnswer


KEPT_STATES = 2
"""Number of cached states; a large subnet's takes some hundred megabytes."""

REST_BYTES = 64 << 10
"""Bytes of an answer besides the value and the certificate."""

PATH = "/v1/chains/{chain}/certificate"


class CertificateQuery(Query):
    """A message ``index`` or the header of a stream, or a program's certified data."""

    counterparty: str | None = Field(None, max_length=200, description="The subnet that the stream leads to.")
    index: Number | None = Field(None, description="The message with this index, in place of the header.")
    substream: str | None = Field(
        None, max_length=200, description="The program that names the substream, unless streams are flat."
    )
    program: str | None = Field(None, max_length=200, description="The certified data of this program.")
    height: Number | None = Field(None, description="A certified height; default: the last.")


class Certificates:
    """View of certificates, served at ``address``."""

    def __init__(self, views: LakeViews) -> None:
        self._states = CertifiedStates(views.opened, KEPT_STATES)
        about = "A certificate of a stream, or of a program's certified data."
        self.address = address_of_view(
            PATH, about, self.certificate, CertificateAnswer, CertificateQuery, chain=views.own()
        )

    def certificate(
        self,
        chain: str,
        counterparty: str | None,
        substream: str | None,
        index: int | None,
        program: str | None,
        height: int | None,
    ) -> dict[str, Any]:
        """Return a certificate as a document.

        Args:
            chain: Name of the subnet.
            counterparty: Name of the stream's other subnet.
            substream: Name of the substream's program.
            index: Index of the message; None for the stream's header.
            program: Name of the program with certified data.
            height: A certified height, by default the last.

        Raises:
            InvalidInput: The selection is ambiguous, absent, or exceeds the size of an answer.
        """
        if (counterparty is None) == (program is None):
            raise InvalidInput("query: give either counterparty (and index) or program")
        if counterparty is None and index is not None:
            raise InvalidInput("index: is of a message in a stream; give counterparty with it, not program")
        if counterparty is None and substream is not None:
            raise InvalidInput("substream: is of a stream; give counterparty with it, not program")
        state = self._states.get_state_at(chain, height)
        if program is not None:
            certified = state.certified_data(program)
        elif index is not None:
            certified = state.message(str(counterparty), index, substream)
        else:
            certified = state.header(str(counterparty), substream)
        if DIGITS * (len(certified.value) + len(certified.certificate)) > MAX_ANSWER_BYTES - REST_BYTES:
            raise InvalidInput(f"index: {index}: has {len(certified.value)} bytes, more than an answer holds")
        return certificate_document(state, certified)


class SubnetViews(LakeViews):
    """Views of a lake of subnets."""

    def __init__(self, opened: OpenedLake, kernel: IcKernel) -> None:
        super().__init__(opened)
        self._kernel = kernel

    def status(self) -> dict[str, Any]:
        """Return the network's identity and progress."""
        numbers = self._kernel.numbers().tolist()
        found = super().status()
        for position, chain in enumerate(found["chains"]):
            chain["id"] = principal_to_text(subnet_id(numbers[position]))
            certified = self._kernel.options.certified
            chain["public_key"] = self._kernel.certifier(Tick(0, 0)).public_key(position).hex() if certified else None
        return found


class IcEndpoint(Endpoint):
    """Served lake of subnets."""

    status_answer = SubnetStatusAnswer
    views: SubnetViews
    exchange: XNetExchange

    def __init__(self, opened: OpenedLake, kernel: IcKernel) -> None:
        self.views, self._kernel = SubnetViews(opened, kernel), kernel
        self.exchange = XNetExchange(opened, kernel)

    def submission(self, chain: str, user: int, transaction: bytes) -> NoReturn:
        """Reject all transactions: subnets pull from each other.

        Raises:
            InvalidInput: Always.
        """
        raise InvalidInput(
            f"transaction: {chain} is a subnet, which pulls what other subnets serve; nobody carries to it"
        )

    def require_possible(self, row: Mapping[str, Any]) -> None:
        """Accept every user message: a canister reports impossible ones by an event."""

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on with a planned fault, or None."""
        return self._kernel.next_planned(tick)

    def addresses(self) -> Sequence[Address]:
        """Return the address of certificates if subnets certify.

        Stream endpoints listen at ports of their own.
        """
        return (Certificates(self.views).address,) if self._kernel.options.certified else ()

    def metrics(self, height: int) -> Iterable[Metric]:
        """Yield metrics of pools and of remote nodes."""
        names = {self.exchange.ids[position]: name for position, name in enumerate(self._kernel.chains())}
        pooled = GaugeMetricFamily("causeway_pooled_bytes", "Bytes of pooled slices.", labels=["chain"])
        for position, pool in self.exchange.pools.items():
            pooled.add_metric([names[self.exchange.ids[position]]], pool.size)
        slices = CounterMetricFamily("causeway_pulled_slices", "Slices that were pulled.", labels=["chain", "source"])
        failed = CounterMetricFamily(
            "causeway_pull_failures", "Answers of nodes that were of no use.", labels=["chain", "source", "cause"]
        )
        labels = ["chain", "source"]
        avoided = GaugeMetricFamily("causeway_avoided_nodes", "Nodes that are not asked now.", labels=labels)
        for client in self.exchange.clients():
            for remote, pulled in client.pulled.items():
                ends = [names[client.own], names[remote]]
                slices.add_metric(ends, pulled.slices)
                avoided.add_metric(ends, len(client.excluded_nodes(remote)))
                for cause, count in pulled.failures.items():
                    failed.add_metric([*ends, cause], count)
        yield from (pooled, slices, failed, avoided)


def drawn_keys(scenario: Scenario) -> dict[str, str]:
    """Return the seed-derived public keys of a scenario's own subnets.

    Args:
        scenario: The scenario.

    Returns:
        Public keys (192 hexadecimal digits) by name, without subnets whose keys are in files.
    """
    chains = scenario.declared_topology()
    named = zip(chains.chains["name"].to_pylist(), chains.chains["number"].to_pylist(), strict=True)
    seed = scenario.network.seed
    listed = scenario.options.get(LISTED_CHAINS, {})
    return {
        name: derive_public_key(seed, number).hex()
        for name, number in named
        if number not in chains.external and name not in listed
    }
