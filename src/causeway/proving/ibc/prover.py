"""``causeway prove`` under ``ibc``: entries of queues, their absence, heads and tails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from causeway_proofs.errors import InvalidInput

from causeway.core.text import to_one_line
from causeway.protocols.shared.command_options import CHAIN, COUNTERPARTY, INDEX, TRUST_OUT, CommandOption, FileOption

if TYPE_CHECKING:
    from causeway.network.opened_lake import OpenedLake
    from causeway.protocols.ibc.keys import QueuePurpose
    from causeway.proving.ibc.store import ZoneStore
    from causeway.proving.prover import Document, ProofOffer, ProofResult, ProvableMessage

SHOWN = 8
"""Maximum number of listed entries."""


class IbcProver:
    """Prover for lakes of zones."""

    about = """Under ibc: prove what a zone has committed to: packets, receipts, heads and tails of queues (--queue).

    Proofs of one entry are ICS-23 proofs of Tendermint's kind, which other verifiers of ICS-23 accept.

    [bold]Example[/bold]: causeway prove my-lake --chain A --counterparty B --queue send --index 17 --out proof.json
    """
    options = (
        CommandOption("chain", CHAIN, required=True),
        CommandOption("counterparty", COUNTERPARTY, required=True),
        CommandOption(
            "queue",
            "Packets for the counterparty, or receipts of packets from it.",
            required=True,
            words=("send", "receipt"),
        ),
        CommandOption("index", INDEX, int, metavar="N"),
        CommandOption("absent", "With --index: prove that there is no such entry.", bool),
        CommandOption("indices", "Prove entries M to N-1 with one proof.", metavar="M:N"),
        CommandOption("head", "Prove the queue's head.", bool),
        CommandOption("tail", "Prove the queue's tail.", bool),
    )
    files = (
        TRUST_OUT,
        FileOption("header_out", "Write the signed header to this file, for a client at the height before."),
    )

    def prove(self, opened: OpenedLake, height: int | None, given: Mapping[str, Any]) -> ProofResult:
        """Prove an entry, its absence, a range, a head or a tail; see ``proving.prover.Prover``."""
        from causeway.protocols.ibc.keys import QueuePurpose
        from causeway.proving.ibc.documents import header_document, trust_document
        from causeway.proving.ibc.store import open_store
        from causeway.proving.prover import ProofResult

        missing = [option.flag for option in self.options if option.required and given[option.name] is None]
        if missing:
            raise InvalidInput(f"{missing[0]}: missing")
        purpose = QueuePurpose[given["queue"].upper()]
        store = open_store(opened, given["chain"], height)
        document, lines = _build_proof(store, given["counterparty"], purpose, _selected(given))
        makers = {"trust_out": trust_document, "header_out": header_document}
        beside = {name: make(store) for name, make in makers.items() if given[name] is not None}
        return ProofResult(document, lines, beside)

    def offers(self, opened: OpenedLake, message: ProvableMessage) -> Sequence[ProofOffer]:
        """Return the provable facts of a message.

        A packet can be proved to be in the send queue, and its receipt; a result as its receipt.
        """
        from causeway.protocols.ibc.state import RECEIPT, SEND
        from causeway.proving.prover import ProofOffer

        ends = {"chain": message.source, "counterparty": message.destination}
        offers = []
        if message.substream == SEND:
            heights_in_queue = message.during(("committed",), ("collected", "acknowledged", "timed_out"))
            statement = f"packet commitment: {message.source} has the packet for {message.destination}"
            offers.append(ProofOffer(statement, {**ends, "queue": "send", "index": message.index}, heights_in_queue))
            ends = {"chain": message.destination, "counterparty": message.source}
        if message.substream in (SEND, RECEIPT):
            events = ("received",) if message.substream == SEND else ("committed",)
            heights_of_receipt = message.during(events, ())
            statement = f"receipt: {ends['chain']} has the receipt of the packet from {ends['counterparty']}"
            offers.append(
                ProofOffer(statement, {**ends, "queue": "receipt", "index": message.index}, heights_of_receipt)
            )
        return [offer for offer in offers if offer.heights]


PROVER = IbcProver()

Wanted = tuple[str, Any]
"""Kind of the proof (``index``, ``absent``, ``indices``, ``head`` or ``tail``), and its index or range."""


def _selected(given: Mapping[str, Any]) -> Wanted:
    """Return the single selected proof.

    Raises:
        InvalidInput: None or several are selected.
    """
    index, indices, absent = given["index"], given["indices"], given["absent"]
    selected: list[Wanted] = []
    if index is not None:
        selected.append(("absent" if absent else "index", index))
    elif absent:
        raise InvalidInput("--absent: say which index, with --index N")
    if indices is not None:
        selected.append(("indices", _bounds(indices)))
    selected += [(name, None) for name in ("head", "tail") if given[name]]
    if len(selected) != 1:
        raise InvalidInput("selection: allowed: exactly one of --index N, --indices M:N, --head, --tail")
    return selected[0]


def _bounds(text: str) -> tuple[int, int]:
    first, colon, end = text.partition(":")
    if not (colon and first.isascii() and first.isdigit() and end.isascii() and end.isdigit() and len(text) <= 40):
        raise InvalidInput(
            f"--indices: {to_one_line(text[:40])}: write M:N, two whole numbers (M is included, N is not)"
        )
    if int(first) >= int(end):
        raise InvalidInput(f"--indices: {to_one_line(text)}: M must be below N")
    return int(first), int(end)


def _build_proof(
    store: ZoneStore, counterparty: str, purpose: QueuePurpose, selected: Wanted
) -> tuple[Document, list[str]]:
    """Build the document and its readable summary."""
    from causeway.protocols.ibc.keys import MAX_INDEX, KeyPart, QueueKey
    from causeway.proving.ibc.documents import absence_document, existence_document, run_document
    from causeway.proving.ibc.store import describe_queue

    own = store.queue(counterparty, purpose)
    kind, index = selected
    location = f"{store.chain} at height {store.height}"
    if kind == "indices":
        document = run_document(store, counterparty, purpose, *index)
        lines = [
            f"{location}: entries {index[0]} to {index[1] - 1} of {_queue_label(counterparty, purpose)} are stored"
        ]
        for offset, entry in enumerate(document["entries"][:SHOWN]):
            lines += _describe_value(store, purpose, bytes.fromhex(entry["value"]), f"{index[0] + offset:<8}")
        if len(document["entries"]) > SHOWN:
            lines.append(f"  ... and {len(document['entries']) - SHOWN:,} more")
        return document, [*lines, *_proof_lines(store, document, "range proof")]
    part = {"head": KeyPart.HEAD, "tail": KeyPart.TAIL}.get(kind, KeyPart.INDEX)
    if part == KeyPart.INDEX and not 0 <= index < MAX_INDEX:
        raise InvalidInput(f"--index: {index}: allowed are 0 to {MAX_INDEX - 1}")
    key = QueueKey(counterparty, purpose, part, index or 0).encode()
    label = f"{_queue_label(counterparty, purpose)}/{kind if part != KeyPart.INDEX else index}"
    exists = store.locate_key(key)[1]
    if exists == (kind == "absent"):
        state = "exists; remove --absent" if exists else "does not exist (--absent proves that)"
        raise InvalidInput(f"--index: {index}: {state}; at height {store.height} {describe_queue(own)}")
    if kind == "absent":
        document = absence_document(store, key)
        return document, [
            f"{location}: no value is stored under {label}",
            *_proof_lines(store, document, "ICS-23 proof"),
        ]
    document = existence_document(store, key)
    value = bytes.fromhex(document["value"])
    if part == KeyPart.INDEX:
        lines = [f"{location}: {label} is stored", *_describe_value(store, purpose, value, "value   ")]
    else:
        lines = [f"{location}: {label} is {int.from_bytes(value, 'big')}"]
    return document, [*lines, *_proof_lines(store, document, "ICS-23 proof")]


def _queue_label(counterparty: str, purpose: QueuePurpose) -> str:
    return f"ibc:{counterparty}:{purpose.name.lower()}"


def _proof_lines(store: ZoneStore, document: Document, form: str) -> list[str]:
    """Describe the proof's size and the root's signers."""
    signed = store.signed
    signers = (
        "height 0 is not signed"
        if signed is None
        else f"in the header of height {store.height}, signed by {len(signed.validators)} validators"
    )
    return [
        f"  proof     {form}, {len(document['proof']) // 2:,} bytes",
        f"  root      {store.root.hex()}, {signers}",
    ]


def _describe_value(store: ZoneStore, purpose: QueuePurpose, value: bytes, label: str) -> list[str]:
    """Describe a packet or receipt."""
    from causeway.protocols.ibc.errors import IbcError
    from causeway.protocols.ibc.keys import QueuePurpose as Kinds
    from causeway.protocols.ibc.packets import NO_LIMIT, decode_packet, decode_receipt
    from causeway.protocols.ibc.program_inputs import ReceiptCode

    if purpose == Kinds.SEND:
        packet = decode_packet(value)
        limits = [
            f"{name} {limit:,}{unit}"
            for name, limit, unit in (("height", packet.max_height, ""), ("time", packet.max_time, " ns"))
            if limit != NO_LIMIT
        ]
        until = f" with limits {' and '.join(limits)}" if limits else ""
        text = f"packet of type {packet.type}{until}, {len(packet.data):,} bytes of data"
        try:
            text += f": {_describe_call(store, packet.data)}"
        except IbcError:
            text += ", which are not a call between programs"
    else:
        receipt = decode_receipt(value)
        known = {code.value: code.name.lower().replace("_", " ") for code in ReceiptCode}
        meaning = known.get(receipt.code)
        text = f"receipt with code {receipt.code}{f' ({meaning})' if meaning else ''}"
        text += f", {len(receipt.result):,} bytes of result"
        if len(receipt.result) >= ANSWER_BYTES:
            text += f": {_describe_answer(receipt.result)}"
    return [f"  {label}  {to_one_line(text)}"]


ANSWER_BYTES = 16
"""Minimum size of a program's answer in bytes."""


def _describe_call(store: ZoneStore, data: bytes) -> str:
    from causeway.protocols.ibc.packets import decode_call

    call = decode_call(data)
    names = store.opened.program_names
    sender, receiver = (names.get(call[side], str(call[side])) for side in ("sender", "receiver"))
    units = _format_units(call["amount_high"], call["amount_low"])
    return f"{sender} calls {call['method']} of {receiver}, payload of {len(call['payload']):,} bytes{units}"


def _describe_answer(result: bytes) -> str:
    from causeway.protocols.ibc.packets import decode_answer

    high, low, payload = decode_answer(result)
    return f"answer of {len(payload):,} bytes{_format_units(high, low)}"


def _format_units(high: int, low: int) -> str:
    amount = (high << 64) + low
    return f", {amount:,} units" if amount else ""
