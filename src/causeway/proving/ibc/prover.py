"""What ``causeway prove`` proves of a zone: entries of its queues, or that there is none, and where queues begin."""

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
"""Entries of a run that a person is shown."""


class IbcProver:
    """Takes proofs out of lakes of zones."""

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
        """Return a proof out of a lake, as ``proving.prover.Prover`` says."""
        from causeway.protocols.ibc.keys import QueuePurpose
        from causeway.proving.ibc.documents import header_document, trust_document
        from causeway.proving.ibc.store import open_store
        from causeway.proving.prover import ProofResult

        missing = [option.flag for option in self.options if option.required and given[option.name] is None]
        if missing:
            raise InvalidInput(f"{missing[0]}: missing")
        purpose = QueuePurpose[given["queue"].upper()]
        store = open_store(opened, given["chain"], height)
        document, lines = _proved(store, given["counterparty"], purpose, _what(given))
        makers = {"trust_out": trust_document, "header_out": header_document}
        beside = {name: make(store) for name, make in makers.items() if given[name] is not None}
        return ProofResult(document, lines, beside)

    def offers(self, opened: OpenedLake, message: ProvableMessage) -> Sequence[ProofOffer]:
        """Return what may be proved of a message: of a packet, that it is in the send queue, and its receipt; of a
        result, the receipt that it is."""
        from causeway.protocols.ibc.state import RECEIPT, SEND
        from causeway.proving.prover import ProofOffer

        ends = {"chain": message.source, "counterparty": message.destination}
        found = []
        if message.substream == SEND:
            sent = message.during(("committed",), ("collected", "acknowledged", "timed_out"))
            what = f"packet commitment: {message.source} has the packet for {message.destination}"
            found.append(ProofOffer(what, {**ends, "queue": "send", "index": message.index}, sent))
            ends = {"chain": message.destination, "counterparty": message.source}
        if message.substream in (SEND, RECEIPT):
            by = ("received",) if message.substream == SEND else ("committed",)
            there = message.during(by, ())
            what = f"receipt: {ends['chain']} has the receipt of the packet from {ends['counterparty']}"
            found.append(ProofOffer(what, {**ends, "queue": "receipt", "index": message.index}, there))
        return [offer for offer in found if offer.heights]


PROVER = IbcProver()

Wanted = tuple[str, Any]
"""What is asked for: ``index``, ``absent``, ``indices``, ``head`` or ``tail``, and which."""


def _what(given: Mapping[str, Any]) -> Wanted:
    """Return the one thing that is asked for. Raises ``InvalidInput`` when it is none or two."""
    index, indices, absent = given["index"], given["indices"], given["absent"]
    asked: list[Wanted] = []
    if index is not None:
        asked.append(("absent" if absent else "index", index))
    elif absent:
        raise InvalidInput("--absent: say which index, with --index N")
    if indices is not None:
        asked.append(("indices", _bounds(indices)))
    asked += [(name, None) for name in ("head", "tail") if given[name]]
    if len(asked) != 1:
        raise InvalidInput("what to prove: give one of --index N, --indices M:N, --head, --tail")
    return asked[0]


def _bounds(text: str) -> tuple[int, int]:
    first, colon, end = text.partition(":")
    if not (colon and first.isascii() and first.isdigit() and end.isascii() and end.isdigit() and len(text) <= 40):
        raise InvalidInput(
            f"--indices: {to_one_line(text[:40])}: write M:N, two whole numbers (M is included, N is not)"
        )
    if int(first) >= int(end):
        raise InvalidInput(f"--indices: {to_one_line(text)}: M must be below N")
    return int(first), int(end)


def _proved(store: ZoneStore, counterparty: str, purpose: QueuePurpose, what: Wanted) -> tuple[Document, list[str]]:
    """Return the document, and what a person reads of it."""
    from causeway.protocols.ibc.keys import MAX_INDEX, KeyPart, QueueKey
    from causeway.proving.ibc.documents import absence_document, existence_document, run_document
    from causeway.proving.ibc.store import describe_queue

    own = store.queue(counterparty, purpose)
    kind, which = what
    where = f"{store.chain} at height {store.height}"
    if kind == "indices":
        document = run_document(store, counterparty, purpose, *which)
        lines = [f"{where}: entries {which[0]} to {which[1] - 1} of {_name(counterparty, purpose)} are stored"]
        for offset, entry in enumerate(document["entries"][:SHOWN]):
            lines += _content(store, purpose, bytes.fromhex(entry["value"]), f"{which[0] + offset:<8}")
        if len(document["entries"]) > SHOWN:
            lines.append(f"  ... and {len(document['entries']) - SHOWN:,} more")
        return document, [*lines, *_about(store, document, "range proof")]
    part = {"head": KeyPart.HEAD, "tail": KeyPart.TAIL}.get(kind, KeyPart.INDEX)
    if part == KeyPart.INDEX and not 0 <= which < MAX_INDEX:
        raise InvalidInput(f"--index: {which}: allowed are 0 to {MAX_INDEX - 1}")
    key = QueueKey(counterparty, purpose, part, which or 0).encode()
    named = f"{_name(counterparty, purpose)}/{kind if part != KeyPart.INDEX else which}"
    there = store.locate_key(key)[1]
    if there == (kind == "absent"):
        state = "exists; remove --absent" if there else "does not exist (--absent proves that)"
        raise InvalidInput(f"--index: {which}: {state}; at height {store.height} {describe_queue(own)}")
    if kind == "absent":
        document = absence_document(store, key)
        return document, [f"{where}: nothing is stored under {named}", *_about(store, document, "ICS-23 proof")]
    document = existence_document(store, key)
    value = bytes.fromhex(document["value"])
    if part == KeyPart.INDEX:
        lines = [f"{where}: {named} is stored", *_content(store, purpose, value, "value   ")]
    else:
        lines = [f"{where}: {named} is {int.from_bytes(value, 'big')}"]
    return document, [*lines, *_about(store, document, "ICS-23 proof")]


def _name(counterparty: str, purpose: QueuePurpose) -> str:
    return f"ibc:{counterparty}:{purpose.name.lower()}"


def _about(store: ZoneStore, document: Document, form: str) -> list[str]:
    """Return what stands behind a proof: how long it is, and who signed the root."""
    signed = store.signed
    who = (
        "height 0 is not signed"
        if signed is None
        else f"in the header of height {store.height}, signed by {len(signed.validators)} validators"
    )
    return [
        f"  proof     {form}, {len(document['proof']) // 2:,} bytes",
        f"  root      {store.root.hex()}, {who}",
    ]


def _content(store: ZoneStore, purpose: QueuePurpose, value: bytes, label: str) -> list[str]:
    """Return what a packet or receipt says."""
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
            text += f": {_call(store, packet.data)}"
        except IbcError:
            text += ", which are not a call between programs"
    else:
        receipt = decode_receipt(value)
        known = {code.value: code.name.lower().replace("_", " ") for code in ReceiptCode}
        meaning = known.get(receipt.code)
        text = f"receipt with code {receipt.code}{f' ({meaning})' if meaning else ''}"
        text += f", {len(receipt.result):,} bytes of result"
        if len(receipt.result) >= ANSWER_BYTES:
            text += f": {_answer(receipt.result)}"
    return [f"  {label}  {to_one_line(text)}"]


ANSWER_BYTES = 16
"""What a program's answer has at least."""


def _call(store: ZoneStore, data: bytes) -> str:
    from causeway.protocols.ibc.packets import decode_call

    call = decode_call(data)
    names = store.opened.program_names
    sender, receiver = (names.get(call[side], str(call[side])) for side in ("sender", "receiver"))
    units = _units(call["amount_high"], call["amount_low"])
    return f"{sender} calls {call['method']} of {receiver}, payload of {len(call['payload']):,} bytes{units}"


def _answer(result: bytes) -> str:
    from causeway.protocols.ibc.packets import decode_answer

    high, low, payload = decode_answer(result)
    return f"answer of {len(payload):,} bytes{_units(high, low)}"


def _units(high: int, low: int) -> str:
    amount = (high << 64) + low
    return f", {amount:,} units" if amount else ""
