"""``causeway prove`` under ``ic``: stream headers, stream messages, certified data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from causeway_proofs.errors import InvalidInput

from causeway.core.text import to_one_line
from causeway.protocols.shared.command_options import CHAIN, COUNTERPARTY, INDEX, TRUST_OUT, CommandOption, FileOption

if TYPE_CHECKING:
    from causeway.network.opened_lake import OpenedLake
    from causeway.proving.ic.state import CertifiedState, CertifiedValue
    from causeway.proving.prover import Document, ProofOffer, ProofResult, ProvableMessage


class IcProver:
    """Prover for lakes of subnets."""

    about = """Under ic: prove what a subnet has certified: the header of a stream (--header), a message in it
    (--index), a program's certified data (--program).

    These proofs are certificates in CBOR, which @icp-sdk/core and other verifiers of the Internet Computer accept.

    [bold]Example[/bold]: causeway prove my-lake --chain left --counterparty right --index 17 --out proof.json
    """
    options = (
        CommandOption("chain", CHAIN),
        CommandOption("counterparty", COUNTERPARTY),
        CommandOption("substream", "The program that names the substream, unless streams are flat.", metavar="NAME"),
        CommandOption("header", "Prove the header of the stream to the counterparty.", bool),
        CommandOption("index", INDEX, int, metavar="N"),
        CommandOption("program", "Prove the certified data of this program.", metavar="NAME"),
    )
    files = (
        TRUST_OUT,
        FileOption("certificate_out", "Write the certificate itself to this file, in CBOR."),
    )

    def prove(self, opened: OpenedLake, height: int | None, given: Mapping[str, Any]) -> ProofResult:
        """Prove a stream header, a message or certified data; see ``proving.prover.Prover``."""
        from causeway.proving.ic.state import certificate_document, read_subnets, subnet_trust_document
        from causeway.proving.prover import ProofResult

        read_subnets(opened)  # report a lake without certificates first
        selected = _selected(given)
        state, proven, line = _build_proof(opened, height, given, selected)
        document = certificate_document(state, proven)
        trust = subnet_trust_document(state)
        documents: dict[str, Document | bytes] = {"trust_out": trust, "certificate_out": proven.certificate}
        beside = {name: content for name, content in documents.items() if given[name] is not None}
        return ProofResult(document, [line, *_proof_lines(state, proven)], beside)

    def offers(self, opened: OpenedLake, message: ProvableMessage) -> Sequence[ProofOffer]:
        """Return the certificate of a message, provable until its stream is garbage-collected."""
        from causeway.proving.ic.state import read_subnets
        from causeway.proving.prover import ProofOffer

        given = {"chain": message.source, "counterparty": message.destination, "index": message.index}
        if not read_subnets(opened).options.flat:
            given["substream"] = opened.program_names.get(message.substream, str(message.substream))
        heights = message.during(("committed",), ("collected",))
        statement = f"certificate: {message.source} has the message in its stream to {message.destination}"
        return [ProofOffer(statement, given, heights)] if heights else []


PROVER = IcProver()

_SELECTION_HINT = (
    "selection: allowed: exactly one of --header, --index N (both with --chain and --counterparty), --program NAME"
)


def _selected(given: Mapping[str, Any]) -> str:
    """Return the single selected proof.

    Raises:
        InvalidInput: None or several are selected, or a required option is missing.
    """
    selected = [name for name in ("header", "index", "program") if given[name] is not None and given[name] is not False]
    if len(selected) != 1:
        raise InvalidInput(_SELECTION_HINT)
    (choice,) = selected
    for name in ("chain", "counterparty"):
        if choice != "program" and given[name] is None:
            raise InvalidInput(f"--{name}: missing")
    if choice == "program" and given["counterparty"] is not None:
        raise InvalidInput("--counterparty: certified data is of one subnet; leave it out")
    if choice == "program" and given["substream"] is not None:
        raise InvalidInput("--substream: certified data is in no stream; leave it out")
    return choice


def _build_proof(
    opened: OpenedLake, height: int | None, given: Mapping[str, Any], selected: str
) -> tuple[CertifiedState, CertifiedValue, str]:
    """Return the state, the proven value, and a readable summary."""
    from causeway.proving.ic.state import get_state_at, host_of_program

    if selected == "program":
        program = given["program"]
        chain = given["chain"] or host_of_program(opened, program, height)
        state = get_state_at(opened, chain, height)
        proven = state.certified_data(program)
        return (
            state,
            proven,
            f"{_state_label(state)}: certified data of {to_one_line(program)} is {_format_bytes(proven.value)}",
        )
    state = get_state_at(opened, given["chain"], height)
    counterparty, substream = given["counterparty"], given["substream"]
    stream = f"the stream from {state.chain} to {counterparty}"
    if substream is not None:
        stream = f"the substream of {to_one_line(substream)} in {stream}"
    if selected == "header":
        proven = state.header(counterparty, substream)
        return state, proven, f"{_state_label(state)}: {stream} has the header {_describe_header(state, proven.value)}"
    proven = state.message(counterparty, given["index"], substream)
    return (
        state,
        proven,
        f"{_state_label(state)}: message {given['index']} of {stream} is a {_describe_message(state, proven.value)}",
    )


def _state_label(state: CertifiedState) -> str:
    own = "" if state.number == state.height else f" (its height {state.number})"
    return f"{state.chain} at height {state.height}{own}"


def _format_bytes(data: bytes) -> str:
    return f"0x{data.hex()}" if data else "empty"


def _describe_header(state: CertifiedState, value: bytes) -> str:
    from causeway_proofs.documents.ic import header_text
    from causeway_proofs.ic.stream_header import decode_stream_header

    return header_text(decode_stream_header(value, state.subnets.options.version))


def _describe_message(state: CertifiedState, value: bytes) -> str:
    from causeway_proofs.documents.ic import message_text
    from causeway_proofs.ic.messages import decode_stream_message

    from causeway.protocols.ic.ids import canister_number

    names = state.subnets.opened.program_names

    def name(canister: bytes) -> str:
        number = canister_number(canister)
        return names.get(number, str(number))

    return to_one_line(message_text(decode_stream_message(value, state.subnets.options.version), name))


def _proof_lines(state: CertifiedState, proven: CertifiedValue) -> list[str]:
    """Describe the certificate's size, time, root and signer."""
    from causeway_proofs.documents.values import format_time
    from causeway_proofs.ic.primitives import principal_to_text

    subnet = principal_to_text(state.subnets.id_of(state.position))
    return [
        f"  proof     certificate, {len(proven.certificate):,} bytes, of {format_time(proven.time)}",
        f"  root      {state.root.hex()}, signed by subnet {subnet}",
    ]
