"""``causeway prove`` under ``icmp``: watermarks, pending ingress, egress messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from causeway_proofs.errors import InvalidInput

from causeway.protocols.shared.command_options import CHAIN, COUNTERPARTY, INDEX, TRUST_OUT, CommandOption, FileOption

if TYPE_CHECKING:
    from causeway.network.opened_lake import OpenedLake
    from causeway.proving.icmp.messages import ProvenEgressMessage, RelayState
    from causeway.proving.prover import Document, ProofOffer, ProofResult, ProvableMessage

MOST_BLOCKS = 4_096
"""Maximum number of relay blocks in a proof of pending ingress."""

QUEUE_OUT = FileOption(
    "queue_out",
    "Write the messages in an HRMP channel to this file, with the head before them: they lead to that in its state.",
)

SHOWN = 8
"""Maximum number of listed queues."""


class IcmpProver:
    """Prover for lakes of parachains, under the relay chain's state."""

    about = """Under icmp: prove a message in an egress queue (--index, with --counterparty), how far a parachain has
    consumed (--watermark), all that waits for it (--ingress).

    Trusted is the root of the relay chain's state after a block. What was posted is there until it is consumed: a
    message is proved, without --height, under the first state that lists its queue. With channels = "hrmp": what a
    channel has (--channel, or --index for the first state in which the message is in it), watermarks, and all channels
    to a parachain with what is in them (--ingress). While the relay chain has several
    leaves, watermark and ingress are those of the first.

    [bold]Example[/bold]: causeway prove my-lake --chain left --counterparty right --index 3 --out p.json
    """
    options = (
        CommandOption("chain", CHAIN, required=True),
        CommandOption("counterparty", COUNTERPARTY),
        CommandOption("index", INDEX, int, metavar="N"),
        CommandOption("channel", "Prove the HRMP channel to the counterparty, and its contents.", bool),
        CommandOption("watermark", "Prove up to which relay block the chain has consumed what others sent it.", bool),
        CommandOption("ingress", "Prove which queues wait for the chain: all, and that there are no others.", bool),
        CommandOption(
            "leaf", "At which leaf of the relay chain: its number, or the hash of its block.", metavar="N|HASH"
        ),
    )
    files = (TRUST_OUT, QUEUE_OUT)

    def prove(self, opened: OpenedLake, height: int | None, given: Mapping[str, Any]) -> ProofResult:
        """Prove a watermark, pending ingress, a channel or a message; see ``proving.prover.Prover``."""
        from causeway_proofs.documents.values import U64_MAX

        from causeway.proving.icmp.messages import prove_message, relay_leaves, select_leaf
        from causeway.proving.prover import ProofResult

        selected = _selected(given)
        if selected == "index" and not 0 <= given["index"] <= U64_MAX:
            raise InvalidInput(f"--index: {given['index']}: allowed are 0 to 2**64 - 1")
        if opened.options.get("channels") == "hrmp":
            from causeway.proving.icmp.channels import prove_channels

            return prove_channels(opened, height, given, selected)
        if selected == "channel" or given["queue_out"] is not None:
            flag = "--channel" if selected == "channel" else "--queue-out"
            raise InvalidInput(f'{flag}: the network has egress queues; it needs channels = "hrmp"')
        if selected == "index":
            names = given["chain"], given["counterparty"]
            proven = prove_message(opened, *names, index=given["index"], height=height, leaf=given["leaf"])
            relay, document, lines = proven.relay, message_document(proven), _proof_lines(proven, given)
        else:
            relay = select_leaf(relay_leaves(opened, height), given["leaf"])
            document, lines = entries_document(opened, relay, given["chain"], ingress=selected == "ingress")
        lines.append(f"  root      {relay.root.hex()} of the state after relay block {relay.number}")
        lines.append(f"  head      {relay.leaf.hash.hex()}, leaf {relay.place}")
        beside = {} if given["trust_out"] is None else {"trust_out": trust_document(relay)}
        return ProofResult(document, lines, beside)

    def offers(self, opened: OpenedLake, message: ProvableMessage) -> Sequence[ProofOffer]:
        """Return the proof that the relay chain lists the message's queue."""
        from causeway.proving.prover import ProofOffer

        given = {"chain": message.source, "counterparty": message.destination, "index": message.index}
        return [ProofOffer(f"egress queue: {message.source} has posted the message to {message.destination}", given)]


PROVER = IcmpProver()

_SELECTION_HINT = (
    "selection: allowed: exactly one of --watermark, --ingress, --index N and --channel (with --counterparty)"
)

_BETWEEN_TWO = ("index", "channel")
"""Options that need two chains."""


def _selected(given: Mapping[str, Any]) -> str:
    """Return the single selected proof.

    Raises:
        InvalidInput: None or several are selected, or a required option is missing.
    """
    selected = [
        name for name in (*_BETWEEN_TWO, "watermark", "ingress") if given[name] is not None and given[name] is not False
    ]
    if len(selected) != 1:
        raise InvalidInput(_SELECTION_HINT)
    (choice,) = selected
    if given["chain"] is None:
        raise InvalidInput("--chain: missing")
    if choice in _BETWEEN_TWO and given["counterparty"] is None:
        raise InvalidInput("--counterparty: missing")
    if choice not in _BETWEEN_TWO and given["counterparty"] is not None:
        raise InvalidInput(f"--counterparty: {choice} is of one chain; leave it out")
    return choice


def message_document(proven: ProvenEgressMessage) -> Document:
    """Build the document (``icmp_message``) of a message with its proofs."""
    return {
        "kind": "icmp_message",
        "source": proven.source,
        "destination": proven.destination,
        "block": proven.block,
        "index": proven.place,
        "message": proven.message.hex(),
        "proof": [node.hex() for node in proven.state_proof],
        "queue_proof": [node.hex() for node in proven.queue_proof],
    }


def entries_document(opened: OpenedLake, relay: RelayState, chain: str, *, ingress: bool) -> tuple[Document, list[str]]:
    """Build the proof (``substrate_storage``) of a parachain's watermark.

    Args:
        opened: The lake.
        relay: State of the relay chain.
        chain: Name of the parachain.
        ingress: If True, also prove an entry for every block above the watermark.

    Returns:
        The document and a readable summary.

    Raises:
        InvalidInput: There is no such parachain, or its watermark is too far back.
    """
    from causeway_proofs.substrate import encode_queues, encode_watermark, unrouted_key, watermark_key
    from causeway_proofs.substrate.parachains import UNROUTED, WATERMARKS, encode_u32, unrouted_map_key

    para, paras = opened.position(chain), relay.leaf.paras
    rows = paras.filter((paras["para"] == para) & (paras["active"] == 1))
    if len(rows) == 0:
        raise InvalidInput(f"chain: {chain}: is no parachain that relay block {relay.number} knows as active")
    watermark, marked = int(rows["watermark"][0]), rows["watermark_hash"][0].tobytes()
    keys, entries = [watermark_key(para)], [_entry(WATERMARKS, encode_u32(para), encode_watermark(watermark, marked))]
    lines = [f"{chain} at relay block {relay.number}: watermark {watermark}, {marked.hex()}"]
    if ingress:
        if relay.number - watermark > MOST_BLOCKS:
            raise InvalidInput(
                f"height: {relay.height}: the watermark of {chain}, {watermark}, is more than {MOST_BLOCKS:,} blocks "
                f"below relay block {relay.number}: so many entries are not proved at once"
            )
        unrouted = relay.leaf.unrouted
        unrouted = unrouted.filter(unrouted["to"] == para)
        waiting = 0
        for number in range(watermark + 1, relay.number + 1):
            mine = unrouted.filter(unrouted["number"] == number)
            queues = [*zip(mine["source"].tolist(), (root.tobytes() for root in mine["root"]), strict=True)]
            keys.append(unrouted_key(number, para))
            entries.append(_entry(UNROUTED, unrouted_map_key(number, para), encode_queues(queues) if queues else None))
            lines += [f"  block {number}: queue of {opened.names[sender]}, {root.hex()}" for sender, root in queues]
            waiting += len(queues)
        del lines[SHOWN + 1 :]
        if waiting > SHOWN:
            lines.append(f"  ... {waiting - SHOWN:,} more")
        lines[0] += f"; {waiting:,} waiting queue{'s' if waiting > 1 else ''}" if waiting else "; nothing waits for it"
    nodes = relay.prove(keys)
    size = sum(map(len, nodes))
    lines.append(f"  proof     storage of {len(keys):,} entries, {len(nodes):,} nodes, {size:,} bytes")
    document = {
        "kind": "substrate_storage",
        "state_version": 1,
        "entries": entries,
        "proof": [node.hex() for node in nodes],
    }
    return document, lines


def trust_document(relay: RelayState) -> Document:
    """Build the trust document of a relay block: header (``icmp_head``), or genesis root."""
    if relay.number == 0:
        return {"kind": "root", "root": relay.root.hex()}
    digests = {"hash": relay.leaf.hash, "parent": relay.parent, "root": relay.root, "included": relay.included}
    named = {name: digest.hex() for name, digest in digests.items()}
    return {"kind": "icmp_head", "number": relay.number, **named} | ({"leaf": relay.place} if relay.place else {})


def _entry(item: str, key: bytes, value: bytes | None) -> Document:
    from causeway_proofs.substrate.parachains import PALLET

    storage = {"pallet": PALLET, "item": item, "keys": [{"hasher": "Twox64Concat", "key": key.hex()}]}
    return {"storage": storage, "value": None if value is None else value.hex()}


def _proof_lines(proven: ProvenEgressMessage, given: Mapping[str, Any]) -> list[str]:
    size = sum(map(len, (*proven.state_proof, *proven.queue_proof)))
    way = f"from {given['chain']} to {given['counterparty']}"
    nodes = f"{len(proven.state_proof)} nodes of the relay chain's state, {len(proven.queue_proof)} of the queue"
    return [
        f"message {given['index']} {way}, posted by relay block {proven.block}",
        f"  proof     {nodes}, {size:,} bytes, as of height {proven.relay.height}",
        f"  queue     {proven.queue_root.hex()}, place {proven.place} of {proven.queue_length:,}",
    ]
